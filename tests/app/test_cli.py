"""The command line: help, lists and refusals without torch, errors in one line."""

import json
import subprocess
import sys

import pytest
from helpers.run_folders import write_run

from lightning_ssl.app import cli
from lightning_ssl.app.commands import bench
from lightning_ssl.app.runs.version import version
from lightning_ssl.base.checks import RunFailed

QUICK = [
    "", "--help", "list", "lab list", "data list", "data fetch --help", "list data", "list sweeps", "list labs",
    *(f"{name} --help" for name in cli.COMMANDS),
]  # fmt: skip
REFUSED = {
    "fit --modle X": "--modle: unknown flag; did you mean --model?",
    "fit --model.importance.taau=3": "--model.importance.taau: unknown flag; did you mean --model.importance.tau",
    "fit --model Foo": "model=Foo: expected one of",
    "fit --name ../x": "name='../x': name must be a folder name",
    "fit --config quickstrat": "config=quickstrat: no such file; did you mean quickstart?",
    "fit --resume nowhere": "resume='nowhere': resume must be auto, never",
    "fit --seed_everything x": "seed_everything=x: expected int",
    "fit word": "'word': expected a flag",
}
ANSWERS = """
import contextlib, io, json, sys
from lightning_ssl.app.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words.split())
        except SystemExit as stop:  # argparse's, after --help
            code = stop.code
    heavy = {"torch", "pytorch_lightning", "wandb", "scipy", "matplotlib", "pandas"}
    answers.append([code or 0, sorted(heavy & set(sys.modules)), out.getvalue() + err.getvalue()])
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "a", epochs=2).parent


@pytest.fixture(scope="module")
def answers(runs):
    """Exit code, heavy modules that are loaded by then, and output of each command, from one new process."""
    commands = [*QUICK, *REFUSED, "sweep table1 --dry-run", f"report {runs}"]
    words = [sys.executable, "-c", ANSWERS, json.dumps(commands)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return dict(zip(commands, json.loads(result.stdout), strict=True))


@pytest.mark.parametrize("words", QUICK)
def test_help_answers_without_importing_torch(words, answers):
    code, heavy, shown = answers[words]
    assert (code, heavy) == (0, [])
    assert len(shown.splitlines()) > 1


@pytest.mark.parametrize(("words", "line"), REFUSED.items())
def test_a_wrong_command_line_is_refused_without_importing_torch(words, line, answers):
    code, heavy, shown = answers[words]
    assert (code, heavy) == (2, [])
    assert shown.startswith(f"lightning-ssl: {line}")


def test_a_sweep_and_a_report_do_without_torch(answers, runs):
    for words in ("sweep table1 --dry-run", f"report {runs}"):
        code, heavy, _ = answers[words]
        assert (code, {"torch", "pytorch_lightning"} & set(heavy)) == (0, set())
    assert (runs / "report" / "final.svg").exists()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_gives_examples(name, answers):
    shown = answers[f"{name} --help"][2]
    assert shown.count(f"lightning-ssl {name}") > 1  # the first is argparse's line of usage
    assert f"  {name} " in answers["--help"][2]


def test_a_benchmark_names_the_package_that_it_lacks(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "lightly", None)  # as if it were not installed
    assert cli.main(["bench", "loss", "--quick"]) == 2
    assert capsys.readouterr().err.startswith("lightning-ssl: lightly is not installed: `make bench` installs")


@pytest.mark.parametrize("error", [ValueError("n must be positive"), KeyError("loss"), RunFailed("IndexError: 3")])
def test_a_fault_of_the_program_ends_with_code_1_and_asks_for_a_report(error, monkeypatch, capsys):
    def fail(name, *arguments):
        raise error

    monkeypatch.setattr(cli, "run_command", fail)
    assert cli.main(["list"]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert str(error) in line
    assert "not an error of your input: --debug shows where; report it" in line


def test_debug_shows_the_traceback(capsys):
    assert cli.main(["--debug", "trian"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_bench_needs_a_source_checkout(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path / "benchmarks")
    assert cli.main(["bench", "loss"]) == 2
    assert "source checkout" in capsys.readouterr().err


def test_version_is_the_one_that_a_run_records(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version()


def test_a_tilde_after_a_flag_is_the_home_folder(tmp_path, monkeypatch, capsys):
    """A shell does not replace it in `--root=~/data`, and a folder with the name ~ would be made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").write_text("")
    assert cli.main(["data", "list", "--root=~/file"]) == 2
    assert f"root='{tmp_path}/file'" in capsys.readouterr().err
    (tmp_path / "own.yaml").write_text("runs: ~/file\n")
    assert cli.main(["fit", "--config", "quickstart", "--config", str(tmp_path / "own.yaml")]) == 2
    assert f"runs='~/file': runs must be a folder: {tmp_path}/file is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "added"),
    [
        ({}, {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}),
        ({"OMP_WAIT_POLICY": "active"}, {}),
        ({"GOMP_SPINCOUNT": "5"}, {"OMP_WAIT_POLICY": "passive"}),
    ],
)
def test_threads_sleep_after_a_short_busy_loop_unless_the_user_chose_how_they_wait(chosen, added):
    environment = dict(chosen)
    cli.wait_briefly(environment)
    assert environment == chosen | added
