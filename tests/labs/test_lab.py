"""Code that the labs share: claims, results, and the flags built from the signature of `run`."""

import inspect
import json
import os
from typing import Literal

import docstring_parser
import pytest
import torch
import yaml
from helpers import ROOT
from helpers.closeness import close

from lightning_ssl import labs, papers
from lightning_ssl.app import cli
from lightning_ssl.app.commands import lab as command
from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base.checks import require
from lightning_ssl.base.palette import panels
from lightning_ssl.labs import lab
from lightning_ssl.labs.lab import Claim, Result


def result(**changes):
    claims = [
        Claim.near("close", [0.60, 0.64], 0.63),
        Claim.near("far", [0.1, 0.1], 0.63, 0.01),
        Claim.at_most("bounded", torch.tensor([1e-8, 2e-8]), 1e-6),
    ]
    arrays = {"small": torch.arange(3.0), "large": torch.zeros(200, 200), "holes": torch.tensor([float("nan"), 1.0])}
    return Result("toy", {"widths": (2, 10), "lr": 0.1}, arrays, claims, ["a note"], **changes)


def test_near_uses_the_wider_of_tolerance_and_standard_deviations():
    """One number has no interval: it is within the tolerance or not."""
    claims = {
        ours: Claim.near("x", ours, paper, std)
        for ours, paper, std in ((0.66, 0.63, None), (0.67, 0.63, None), (0.82, 0.62, 0.1), (0.83, 0.62, 0.1))
    }
    assert {claim.basis() for claim in claims.values()} == {"one number"}
    found = {ours: claim.outcome for ours, claim in claims.items()}
    assert found == {0.66: "holds", 0.67: "contradicted", 0.82: "holds", 0.83: "contradicted"}


def test_bounds_apply_to_every_run_not_to_the_mean():
    for claim in (Claim.at_most("x", [0.0, 3.0], 2.0), Claim.at_least("x", [1.0, 3.0], 2.0)):
        assert (claim.outcome, claim.basis()) == ("contradicted", "the rule")


def test_the_interval_of_the_mean_of_several_runs_decides():
    """Equality takes the 90 % interval: two one-sided tests."""
    runs = [0.35, 0.37, 0.36]  # 0.36 ± 2.92 · 0.01/√3
    assert Claim.near("x", runs, 0.36, tolerance=0.02).basis() == "[0.343, 0.377]"
    papers = {"holds": 0.36, "contradicted": 0.40, "not decided": 0.37}
    assert {Claim.near("x", runs, paper, tolerance=0.02).outcome: paper for paper in papers.values()} == papers
    assert Claim.of_mean("x", runs, "≥", 0.33, "above").outcome == "holds"
    assert Claim.of_mean("x", runs, "≤", 0.33, "below").outcome == "contradicted"
    assert Claim.of_mean("x", runs, "≥", 0.35, "above").outcome == "not decided"


def test_the_same_number_in_every_run_has_no_interval():
    claim = Claim.near("x", [1.0, 1.0, 1.0 + 4e-16], 1.0, tolerance=1e-9)
    assert (claim.outcome, claim.basis()) == ("holds", "no spread")


def test_standard_deviation_is_the_sample_one_and_zero_for_one_seed():
    close(lab.mean_std([1.0, 3.0]), (2.0, 2**0.5))
    assert lab.mean_std(5.0) == (5.0, 0.0)


def test_table_shows_difference_verdict_rule_and_count():
    lines = result().table().splitlines()
    close, far = (next(line for line in lines if line.startswith(name)) for name in ("close", "far"))
    assert "0.620 ± 0.028" in close
    assert "-0.010" in close
    assert close.endswith("not decided [1]")
    assert "0.630 ± 0.010" in far
    assert "-0.530" in far
    assert far.split("-0.530")[1].split() == ["no", "spread", "contradicted", "[2]"]
    assert any("0.03 of the paper" in line for line in lines)
    assert lines[-1] == "toy: 3 claims; holds: 1, contradicted: 1, not decided: 1"


def test_text_of_a_lab_precedes_its_claims():
    table = result(text="a table of its own").table()
    assert table.index("of its own") < table.index("claim")


def test_saved_results_can_be_read_back(tmp_path):
    def draw(result):
        figure, (axes,) = panels(1, 1, (3, 2))
        axes.plot([0, 1])
        return figure

    folder = result(draw=draw).save(tmp_path / "new" / "folder")
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    close(content["claims"][0]["difference"], -0.01, scale=0.63)  # 0.62 − 0.63
    assert content["arrays"]["small"]["values"] == [0, 1, 2]
    assert content["arrays"]["holes"]["values"] == [None, 1]
    assert "values" not in content["arrays"]["large"]
    assert content["arrays"]["large"]["shape"] == [200, 200]
    assert yaml.safe_load((folder / "settings.yaml").read_text()) == {"lab": "toy", "widths": [2, 10], "lr": 0.1}
    assert (folder / "figure.png").stat().st_size > 1000
    assert (folder / "figure.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_streams_of_a_seed_differ():
    assert not torch.equal(lab.normal((4,), seeds=2), lab.normal((4,), seeds=2, stream=1))


def toy_run(
    *,
    widths: tuple[int, ...] = (2, 10),
    kept: tuple[str, ...] | None = None,
    step_size: float = 0.1,
    cut: float | None = None,
    kind: Literal["a", "b"] = "a",
    signed: bool = True,
    seeds: int = 3,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Run a toy.

    Args:
        step_size: the 10% step
        cut: a text that is longer than one line of a docstring has room for, and which is therefore wrapped into a
            second line
    """
    require(step_size > 0, "step_size", step_size, "above 0")
    found = result()
    found.settings = {k: v for k, v in locals().items() if k != "found"}
    return found


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Make the toy the only lab, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labs, "summaries", lambda: {"toy": "a toy"})
    monkeypatch.setattr(command, "find_run", lambda name: toy_run)
    return tmp_path


def parse(*words):
    defaults = {name: parameter.default for name, parameter in inspect.signature(toy_run).parameters.items()}
    return defaults | Command("lab toy", toy_run, negations=True).parse(words)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("--step-size 0.5 --no-signed --kind b", {"step_size": 0.5, "signed": False, "kind": "b"}),
        ("--quick", {"quick": True}),
        *((f"--widths{value}", {"widths": (3, 4)}) for value in (" 3 4", " 3,4", "=3,4", " 3, 4")),
        ("--kept x,y", {"kept": ("x", "y")}),
        ("--widths -3 4 --cut -0.5", {"widths": (-3, 4), "cut": -0.5}),
        *((f"--cut 0.5 --cut{value}", {"cut": None}) for value in (" none", " None", "=none", " null")),
    ],
)
def test_words_become_the_arguments_of_the_lab(words, changed):
    assert parse(*words.split()) == parse() | changed


def test_help_has_the_docstring_and_the_default(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "--step-size FLOAT the 10% step (default: 0.1)" in words
    assert "is therefore wrapped into a second line --" in words
    assert "--signed, --no-signed" in words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--step-size", "fast"), "--step-size=fast: expected float (see lightning-ssl lab toy --help)"),
        (("--widths", "2,x"), "--widths=2 x: expected a list of int"),
        (("--seeds", "1.5"), "--seeds=1.5: expected int"),
        (("--cut", "x"), "--cut=x: expected float or null"),
        (("--kind", "c"), "argument --kind: invalid choice: 'c' (choose from"),
        (("--signed=3",), "argument --signed/--no-signed: ignored explicit argument '3'"),
        (("--step-size",), "argument --step-size: expected one argument"),
        (("--seed", "3"), "unrecognized arguments: --seed 3; did you mean --seeds?"),  # no abbreviations
        (("--step-size", "-1"), "step_size=-1.0: step_size must be above 0"),
    ],
)
def test_a_wrong_flag_or_value_is_one_line_and_exit_code_two(words, message, toy, capsys):
    assert cli.main(["lab", "toy", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"lightning-ssl: {message}")
    assert error.count("\n") == 1
    assert not (toy / "runs").exists()


def test_debug_adds_the_traceback(toy, capsys):
    assert cli.main(["lab", "toy", "--step-size", "-1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_files_of_others_are_not_replaced(toy, capsys):
    (toy / "notes").mkdir()
    (toy / "notes" / "results.json").write_text("{}")
    for words in (["toy", "--folder", "notes"], ["toy", "--folder", "notes/results.json"]):
        assert cli.main(["lab", *words]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "notes has files that `lightning-ssl lab` did not write; choose another name" in first
    assert "notes/results.json exists and is not a folder" in second
    assert (toy / "notes" / "results.json").read_text() == "{}"


@pytest.mark.parametrize("words", [["toy"], ["toy", "--folder", "mine"], ["all"], ["all", "--folder", "mine"]])
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(words, toy, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert cli.main(["lab", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""  # no table
    assert printed.err.endswith(f": this user cannot write to the folder {toy}\n")
    assert printed.err.count("\n") == 1


def test_a_run_prints_its_table_and_writes_its_folder(toy, capsys):
    assert cli.main(["lab", "toy", "--no-progress"]) == 0
    assert "toy: 3 claims; holds: 1, contradicted: 1" in capsys.readouterr().out
    (folder,) = (toy / "runs" / "labs" / "toy").iterdir()
    settings = yaml.safe_load((folder / "settings.yaml").read_text())
    assert settings["widths"] == [2, 10]
    assert settings["progress"] is False
    assert cli.main(["lab", "toy", "--folder", "mine"]) == 0
    assert cli.main(["lab", "toy", "--folder", "mine"]) == 0  # its own files are replaced
    assert yaml.safe_load((toy / "mine" / "settings.yaml").read_text())["progress"] is True


def test_all_runs_every_lab(toy, capsys):
    assert cli.main(["lab", "all", "--quick", "--seeds", "2", "--folder", "every"]) == 0
    assert "3 claims; holds: 1, contradicted: 1, not decided: 1" in capsys.readouterr().out.splitlines()[-2]
    settings = yaml.safe_load((toy / "every" / "toy" / "settings.yaml").read_text())
    assert (settings["quick"], settings["seeds"]) == (True, 2)


def test_one_failing_lab_does_not_stop_the_others(monkeypatch, capsys, tmp_path):
    def broken(**arguments):
        raise RuntimeError("out of order")

    monkeypatch.setattr(labs, "summaries", lambda: {"bad": "fails", "good": "works"})
    monkeypatch.setattr(command, "find_run", {"bad": broken, "good": toy_run}.__getitem__)
    assert command.main(["all", "--folder", str(tmp_path)]) == 1
    assert "failed: RuntimeError: out of order" in capsys.readouterr().out
    assert (tmp_path / "good" / "results.json").exists()


def test_listing_names_every_lab(capsys):
    assert cli.main(["lab", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*labs.summaries(), "all"]
    assert {"deep_linear", "importances"} <= set(names)  # a folder and a file
    assert "lab" not in names


@pytest.mark.parametrize("name", labs.summaries())
def test_every_lab_has_a_summary_a_page_and_flags_with_help(name):
    assert labs.summaries()[name]
    assert (ROOT / "docs" / "labs" / f"{name}.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    run = command.find_run(name)
    parameters = inspect.signature(run).parameters
    assert {"seeds", "quick", "progress"} <= set(parameters)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    assert set(command.command_of(name).arguments()) == {*parameters, "folder"}
    documented = [p.arg_name for p in docstring_parser.parse(run.__doc__).params]
    assert documented == list(parameters)


def test_published_figures_are_shipped_and_load():
    assert {"alpha_cl", "dual_networks", "landscape"} <= set(papers.names())
    table = papers.load("dual_networks")["hltm"]["table6"]
    assert sum(len(row) for latent in table.values() for row in latent.values()) == 90
    with pytest.raises(ValueError, match="alpha_cl"):
        papers.load("nature")
