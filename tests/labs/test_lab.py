"""Code that the labs share: claims, results, and the command line derived from `run`."""

import json
import subprocess
import sys
from typing import Literal

import pytest
import torch
import yaml
from helpers.closeness import close

from lightning_ssl import labs, papers
from lightning_ssl.checks import require
from lightning_ssl.commands import lab as command
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
    assert Claim.near("x", 0.66, 0.63).agrees
    assert not Claim.near("x", 0.67, 0.63).agrees
    assert Claim.near("x", 0.82, 0.62, paper_std=0.1).agrees
    assert not Claim.near("x", 0.83, 0.62, paper_std=0.1).agrees


def test_bounds_apply_to_every_run_not_to_the_mean():
    assert not Claim.at_most("x", [0.0, 3.0], 2.0).agrees
    assert not Claim.at_least("x", [1.0, 3.0], 2.0).agrees


def test_standard_deviation_is_the_sample_one_and_zero_for_one_seed():
    close(lab.mean_std([1.0, 3.0]), (2.0, 2**0.5))
    assert lab.mean_std(5.0) == (5.0, 0.0)


def test_table_shows_difference_verdict_rule_and_count():
    lines = result().table().splitlines()
    close, far = (next(line for line in lines if line.startswith(name)) for name in ("close", "far"))
    assert "0.620 ± 0.028" in close
    assert "-0.010" in close
    assert "agrees" in close
    assert "0.630 ± 0.010" in far
    assert "-0.530" in far
    assert "differs" in far
    assert any("0.03 of the paper" in line for line in lines)
    assert lines[-1] == "toy: 2 of 3 agree, 1 differ"


def test_text_of_a_lab_precedes_its_claims():
    table = result(text="mine | all mine").table()
    assert table.index("all mine") < table.index("claim")


def test_saved_results_can_be_read_back(tmp_path):
    def draw(result):
        figure, (axes,) = lab.panels(1, 1, (3, 2))
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


def test_a_seed_draws_the_same_alone_and_in_a_batch():
    def draw(generator):
        return torch.randn(4, generator=generator)

    batch = lab.per_seed(draw, seeds=5)
    assert torch.equal(lab.per_seed(draw, seeds=1, first_seed=3)[0], batch[3])
    assert not torch.equal(batch, lab.per_seed(draw, seeds=5, stream=1))


def toy_run(
    *,
    widths: tuple[int, ...] = (2, 10),
    lr: float = 0.1,
    cut: float | None = None,
    kind: Literal["a", "b"] = "a",
    signed: bool = True,
    seeds: int = 3,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """A toy.

    lr: the 10% step
    """
    require(lr > 0, "lr", lr, "above 0")
    found = result()
    found.settings = {k: v for k, v in locals().items() if k != "found"}
    return found


def parse(*words):
    return vars(command._parser(toy_run, "toy", "a toy").parse_args(words))


def test_flags_follow_the_signature():
    assert parse()["widths"] == (2, 10)
    assert parse("--widths", "3", "4")["widths"] == parse("--widths", "3,4")["widths"] == (3, 4)
    assert parse("--lr", "0.5", "--no-signed", "--quick") | {"lr": 0.5, "signed": False, "quick": True} == parse(
        "--lr", "0.5", "--no-signed", "--quick"
    )
    assert parse("--cut", "0.5")["cut"] == 0.5
    assert parse("--cut", "none")["cut"] is None
    assert parse("--kind", "b")["kind"] == "b"
    assert parse()["progress"] is True


def test_help_shows_docstring_and_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    assert "the 10% step (default: 0.1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("--lr", "fast"), ("--no-such-flag",), ("--kind", "c"), ("--widths", "2,x"), ("--seed", "3")]
)
def test_a_wrong_flag_is_one_line_and_exit_code_two(words, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(*words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words[0].lstrip("-").split("-")[0] in error


def test_a_wrong_value_is_one_line_unless_debugging(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labs, "summaries", lambda: {"toy": "a toy"})
    monkeypatch.setattr(command.importlib, "import_module", lambda name: sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "run", toy_run, raising=False)
    assert command.main(["toy", "--lr", "-1"]) == 2
    assert capsys.readouterr().err == "lightning-ssl lab toy: lr=-1.0: lr must be above 0\n"
    assert command.main(["toy", "--lr", "-1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert command.main(["toy", "--no-progress"]) == 0
    assert "2 of 3 agree" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs" / "labs" / "toy").iterdir()
    assert (folder / "results.json").exists()
    assert command.main(["all", "--quick"]) == 0
    assert "2 of 3 agree" in capsys.readouterr().out.splitlines()[-2]
    assert command.main(["nonsense"]) == 2
    assert "expected one of toy, all, list" in capsys.readouterr().err


def test_one_failing_lab_does_not_hide_the_others(monkeypatch, capsys, tmp_path):
    def broken(**knobs):
        raise RuntimeError("out of order")

    class Module:
        pass

    modules = {"lightning_ssl.labs.bad": Module(), "lightning_ssl.labs.good": Module()}
    modules["lightning_ssl.labs.bad"].run = broken
    modules["lightning_ssl.labs.good"].run = toy_run
    monkeypatch.setattr(labs, "summaries", lambda: {"bad": "fails", "good": "works"})
    monkeypatch.setattr(command.importlib, "import_module", modules.__getitem__)
    assert command.main(["all", "--folder", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "failed: RuntimeError: out of order" in out
    assert (tmp_path / "good" / "results.json").exists()


def test_listing_names_every_lab_and_imports_no_torch():
    code = (
        "import sys; from lightning_ssl.commands.lab import main; code = main(['list']); "
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules; sys.exit(code)"
    )
    listing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listing.splitlines()] == list(labs.summaries())
    assert "deep_linear" in listing
    assert "  lab " not in listing


@pytest.mark.parametrize("name", labs.summaries())
def test_every_lab_has_a_one_line_claim_and_a_readable_signature(name):
    import importlib
    import inspect

    assert labs.summaries()[name]
    run = importlib.import_module(f"lightning_ssl.labs.{name}").run
    parameters = inspect.signature(run).parameters
    assert {"seeds", "quick", "progress"} <= set(parameters)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    knobs = vars(command._parser(run, name, "").parse_args([]))
    assert {k: v for k, v in knobs.items() if k not in ("progress", "folder")} == {
        k: p.default for k, p in parameters.items() if k != "progress"
    }


def test_published_figures_are_shipped_and_load():
    assert {"alpha_cl", "dual_networks", "landscape"} <= set(papers.names())
    table = papers.load("dual_networks")["hltm"]["table6"]
    assert sum(len(row) for latent in table.values() for row in latent.values()) == 90
    with pytest.raises(ValueError, match="alpha_cl"):
        papers.load("nature")
