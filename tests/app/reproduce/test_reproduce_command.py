"""`lightning-ssl reproduce`: what it prints, writes and refuses."""

import contextlib
import csv
import io
import json
import shutil
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
from helpers.run_folders import LOSSES, alpha_cl, empty_figures, write_run  # noqa: F401

from lightning_ssl.app import cli
from lightning_ssl.app.report.compose import build
from lightning_ssl.app.reproduce import moves, recipe, results
from lightning_ssl.app.reproduce.evaluating import keep_finished
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.sweep.scales import scale_named
from lightning_ssl.labs.lab import Claim, Result

ACCURACY = {"quadratic": 0.35, "infonce": 0.45, "entropy": 0.451, "backprop_alpha": 0.44, "direct": 0.47}


def write_table1(runs, seeds=3, linear=True):
    """Runs of Table 1 as the sweep at CPU scale leaves them."""
    for loss, accuracy in ACCURACY.items():
        for seed in range(seeds):
            late = accuracy + 0.01 * seed + 0.0001 * ((seed * len(loss)) % 3)  # differences vary
            measured = {"linear/adam_top1": late + 0.02} if linear else None
            write_run(runs / "table1-cpu" / f"{loss}-{seed}", loss, seed, late, 10, data="cifar10", linear=measured)
    failed = runs / "table1-cpu" / "square-0"
    write_run(failed, "square", 0, 0.3, 10, status="failed", error="the loss is not finite | at step 7", data="cifar10")
    return runs


def lines_of(file):
    return file.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of the results of Table 1, and what the command printed."""
    top, printed = tmp_path_factory.mktemp("table1"), io.StringIO()
    runs = write_table1(top / "runs")
    with contextlib.redirect_stdout(printed):
        assert cli.main(["reproduce", "table1", "--no-train", "--runs", str(runs), "--out", str(top / "out")]) == 0
    assert (runs / "cpu" / "table1.html").is_file()
    return top / "out", printed.getvalue()


def test_finished_runs_are_compared_and_every_file_is_written(compared):
    out, printed = compared
    assert "holds         secondary  Quadratic is far below InfoNCE, late: -10.01 [" in printed
    assert "not decided   primary    Square is behind InfoNCE, late: no finished runs" in printed
    assert "holds         primary    Direct is comparable with InfoNCE or better, late: +1.99 [" in printed
    page = (out / "table1.md").read_text(encoding="utf-8")
    assert "| Quadratic is far below InfoNCE | late | \\< −5 | text | 73.58 − 87.86 = -14.28 | -10.01 |" in page
    assert "table: the quadratic loss is far below InfoNCE in every column (Table 1)" in page
    assert "performance than InfoNCE (Section 6, on Table 1, sentence 2 (3)). Text against table |" in page
    assert "code: another μ, rows sum to more than 1" in page
    assert "## From" not in page  # no runs of a longer scale
    assert "85.11 ± 0.19" in page  # published
    assert "lightning-ssl reproduce table1 --scale cpu" in page
    assert "linear evaluation of the papers' protocol" in page
    assert "the whole interval is above m" in page  # the rule
    assert "Interim, with 3 seeds (the looks are at 5, 8 and 12)." in page
    assert "5 primary claims; holds: 3, contradicted: 0, not decided: 2. Holds: Direct is comparable" in page
    assert "The primary claims are 5 comparisons: p is multiplied by 5" in page
    assert "were named from the text of the paper when the runs of the archive were known" in page
    assert "On cifar10 with resnet\\_tiny." in page
    assert "trainer.max\\_epochs (10)" in page
    assert "square-0: failed. the loss is not finite \\| at step 7" in page
    assert (out / "table1.png").read_bytes().startswith(b"\x89PNG")


def test_the_csv_has_every_run_with_its_status(compared):
    with (compared[0] / "table1.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 16
    assert [row["error"] for row in rows if row["status"] == "failed"] == ["the loss is not finite | at step 7"]
    direct = next(row for row in rows if row["run"] == "direct-1")
    assert (direct["row"], direct["seed"], direct["data"]) == ("Direct", "1", "cifar10")
    assert float(direct["linear/adam_top1 (%)"]) == pytest.approx(50.0)


def test_early_is_the_probe_at_a_fifth_of_the_training_and_late_its_end_without_an_evaluation(tmp_path):
    runs = Reader().runs([write_table1(tmp_path / "runs", linear=False)])
    reproduction = recipe.load("table1")
    table = results.tabulate(reproduction, reproduction.works["cpu"], runs)
    assert table.late_metric == "online/top1"
    direct = next(each for each in table.measured if each.run.folder.name == "direct-2")
    epochs, values = direct.run.curve("online/top1")
    assert direct.early == pytest.approx(100 * values[list(epochs).index(2)])  # of 10
    assert direct.late == pytest.approx(49.0)


def test_a_run_that_was_not_measured_early_has_no_early_accuracy(tmp_path):
    write_run(tmp_path / "run", "direct", epochs=3)
    assert results.early_accuracy(Reader().runs([tmp_path])[0]) is None


def test_the_page_compares_each_claim_with_the_runs_of_a_longer_scale_and_counts_them(tmp_path):
    table1 = recipe.load("table1")
    short = results.tabulate(table1, table1.works["cpu"], Reader().runs([write_table1(tmp_path / "short")]))
    night, work = scale_named("night"), table1.works["night"]
    assert moves.section(short, [(night, results.tabulate(table1, work, []))]) == ""
    runs = Reader().runs([write_table1(tmp_path / "long", seeds=1)])
    longer = results.tabulate(table1, work, [run for run in runs if run.name != "direct-0"])
    for each in (*short.measured, *longer.measured):
        each.run.summary["step"] = 780 if each in short.measured else 7800
    section = moves.section(short, [(night, longer)])
    assert "## From 780 to 7,800 steps" in section
    assert ": 4. Seeds of each row: Quadratic: 1; InfoNCE: 1;" in section
    assert "; Direct: 0; " in section
    assert ": 0. 5 of 16 rows have fewer seeds than above: this comparison is not complete. A claim" in section
    assert "A claim with fewer than 3 common seeds has no test and is not decided." in section
    lines = {tuple(line.split(" | ")[0:3]): line for line in section.splitlines()}
    far = lines["| Quadratic is far below InfoNCE", "cifar10", "late"]
    assert far.endswith("| holds | -10.00 | not decided (1 common seed: no test) |")
    direct = lines["| Direct is better than InfoNCE", "cifar10", "late"]
    assert direct.endswith("| – | not decided (no finished runs) |")


@pytest.mark.usefixtures("empty_figures")
def test_the_archive_gives_the_table_of_the_report_and_of_the_page_again(tmp_path):
    runs, kept = write_table1(tmp_path / "runs"), tmp_path / "archive"
    arguments = ["reproduce", "table1", "--no-train", "--archive", str(kept), "--runs"]
    assert cli.main([*arguments, str(runs)]) == 0
    assert [file.name for file in kept.glob("[!.]*")] == ["table1-cpu.jsonl.gz"]
    pages = {file.name: file.read_bytes() for file in (runs / "cpu").glob("table1.[!h]*")}
    table = (runs / "cpu" / "table1" / "table.md").read_text("utf-8")
    shutil.rmtree(runs)
    again = build([kept / "table1-cpu.jsonl.gz"], tmp_path / "again.html", figures=False)
    assert (again.page.with_suffix("") / "table.md").read_text("utf-8") == table
    assert table.rstrip("\n") in pages["table1.md"].decode()
    assert cli.main([*arguments, str(tmp_path / "empty")]) == 0
    assert {name: (tmp_path / "empty" / "cpu" / name).read_bytes() for name in pages} == pages


class FakeEngine:
    """Ends one trial of each sweep, as it is in RUNS, and is then interrupted."""

    started: ClassVar = []

    def __init__(self, plan, folder, workers, gpus, retry, ended):
        self.started.append((plan.name, plan.limit, workers, retry))
        self.folder, self.ended = folder, ended

    def run(self):
        if self.ended is not None:
            run = write_run(self.folder / "003-late", "direct", 3, data="cifar10")
            (run / "checkpoints" / "step-00000200.ckpt").touch()
            self.ended(run)
        return 130


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lightning_ssl.app.sweep.engine.Engine", FakeEngine)
    monkeypatch.setattr("lightning_ssl.app.reproduce.planning.missing_data", lambda planned, fetch: {})
    monkeypatch.setattr(FakeEngine, "started", [])
    return FakeEngine


def test_runs_are_trained_by_the_sweep_engine_and_an_interruption_ends_the_command(engine):
    assert cli.main(["reproduce", "dual-table2", "--seeds", "2", "--workers", "3", "--retry"]) == 130
    assert engine.started == [("exact-cpu", 6, 3, True)]


def test_finished_runs_are_evaluated_and_archived_while_the_study_continues(tmp_path, engine, monkeypatch, capsys):
    def evaluate(runs):
        for run in runs:
            if run.finished:
                (run.folder / "evaluation.json").write_text("{}")
                RunFolder(run.folder).update_summary(linear={"linear/adam_top1": 0.5})

    monkeypatch.setattr("lightning_ssl.app.reproduce.evaluating.evaluate_all", evaluate)
    folder, file = tmp_path / "runs" / "reproduce" / "exact-cpu", tmp_path / "archive" / "exact-cpu.jsonl.gz"
    for number, status in ((1, "finished"), (2, "interrupted")):
        run = write_run(folder / f"00{number}-early", "infonce", number, status=status, data="cifar10")
        (run / "checkpoints" / "step-00000200.ckpt").touch()
    command = ["reproduce", "dual-table2", "--seeds", "2", "--archive", "archive"]
    assert cli.main(command) == 130
    runs = {run.name: run.last("linear/adam_top1") for run in Reader().runs([file])}
    assert runs == {"001-early": 0.5, "003-late": 0.5}

    file.write_text("a merge conflict")
    assert cli.main(command) == 2
    assert "exact-cpu.jsonl.gz: not an archive of runs, or damaged" in capsys.readouterr().err
    assert file.read_text() == "a merge conflict"


def test_a_run_that_could_not_be_evaluated_is_not_archived_while_the_study_continues(tmp_path, capsys):
    run = write_run(tmp_path / "001-run")
    (run / "checkpoints" / "step-00000200.ckpt").touch()
    keep_finished(tmp_path / "all.jsonl.gz")(run)
    assert "[1/1] 001-run not evaluated: " in capsys.readouterr().out
    assert not (tmp_path / "all.jsonl.gz").exists()


def test_a_failure_of_the_archive_does_not_stop_the_training(tmp_path, capsys):
    file = tmp_path / "file" / "exact-cpu.jsonl.gz"
    file.parent.write_text("")
    keep_finished(file)(write_run(tmp_path / "001-run"))
    assert f"001-run is not in {file} yet: " in capsys.readouterr().out


def test_rows_are_told_apart_by_all_parameters_of_the_loss(tmp_path, monkeypatch):
    monkeypatch.setitem(LOSSES, "released", alpha_cl("ReleasedInverse", tau=0.5, exponent=2.0))
    monkeypatch.setitem(LOSSES, "other", alpha_cl("Direct", tau=0.4, p=4.0, normalize=True))
    for loss in ("released", "direct", "direct_p6", "direct_unnormalized", "other"):
        write_run(tmp_path / loss, loss)
    rows = [results.row_of(run, recipe.load("table1")) for run in Reader().runs([tmp_path])]
    titles = {run.name: row and row.key for run, row in zip(Reader().runs([tmp_path]), rows, strict=True)}
    assert titles.pop("released") == "released_inverse2"
    assert titles.pop("direct") == "direct"
    assert titles == {"direct_p6": None, "direct_unnormalized": None, "other": None}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["tabel1"], "name='tabel1': no such reproduction; see `lightning-ssl reproduce list`"),
        (["../papers/alpha_cl"], "no such reproduction"),
        (["table2", "--scale", "night"], "scale='night': scale must be a scale of table2: cpu, paper"),
        (["hltm", "--no-train", "--runs", "nowhere"], "no result to compare"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message.replace(".*", "") in error or all(part in error for part in message.split(".*"))
    assert list(tmp_path.iterdir()) == []


def test_the_list_names_every_reproduction_and_every_scale(capsys):
    assert cli.main(["reproduce", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name}" in printed for name in recipe.names())
    assert all(f"--scale {name}" in printed for name in ("cpu", "night", "paper"))


def test_a_dry_run_lists_runs_and_time_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "dual-table2", "--seeds", "2", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "exact-cpu: 6 runs on cifar10, 2 seeds" in printed
    assert printed.splitlines()[-1].startswith("20 runs, 20 left: about")  # below the list, where it stays visible
    assert printed.count("--config=configs/scale/cpu.yaml --runs") == 20
    assert list(tmp_path.iterdir()) == []


CLAIM = vars(Claim("a claim", 0.5, 0.1, 0.5, None, "a rule", True, count=2))
RESULT = {"settings": {"seeds": 2}, "claims": [CLAIM], "notes": [], "seconds": 1.0, "origin": {}}


def write_result(runs, content):
    (runs / "hltm-cpu").mkdir()
    text = content if isinstance(content, str) else json.dumps(content)
    (runs / "hltm-cpu" / "results.json").write_text(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{}", "'claims'"),
        ({**RESULT, "claims": [3]}, "'int' object"),
        ({**RESULT, "claims": [CLAIM, {}]}, "Claim.__init__() missing"),
    ],
)
def test_a_result_of_a_laboratory_with_another_shape_is_one_line(tmp_path, monkeypatch, capsys, content, reason):
    monkeypatch.chdir(tmp_path)
    write_result(tmp_path, content)
    assert cli.main(["reproduce", "hltm", "--no-train", "--runs", "."]) == 2
    expected = "hltm-cpu/results.json is not the result of a laboratory: delete it and run the command again"
    assert capsys.readouterr().err.startswith(f"lightning-ssl: {expected} ({reason}")
    assert not (tmp_path / "cpu").exists()


def test_a_claim_without_a_number_is_judged_by_its_own_rule(tmp_path, capsys):
    write_result(tmp_path, {**RESULT, "claims": [{**CLAIM, "margin": 0.1, "ours": None}]})
    assert cli.main(["reproduce", "hltm", "--no-train", "--runs", str(tmp_path)]) == 0
    assert "  holds         a claim" in capsys.readouterr().out


def test_the_names_of_claims_are_printed_without_escape_sequences(tmp_path, capsys):
    write_result(tmp_path, {**RESULT, "claims": [{**CLAIM, "name": "\x1b[31mred\x07 \ud800"}]})
    assert cli.main(["reproduce", "hltm", "--no-train", "--runs", str(tmp_path)]) == 0
    assert "  holds         red " in capsys.readouterr().out
    assert "red" in (tmp_path / "cpu" / "hltm.md").read_text(encoding="utf-8")


def test_a_laboratory_is_run_once_and_its_claims_get_verdicts(tmp_path, monkeypatch, capsys):
    calls = []

    def run(progress, seeds=10):
        calls.append(seeds)
        claims = [
            Claim.near("root, δ = 0.7", [0.36, 0.34], 0.35, 0.2),
            Claim.near("root, δ = 0.9", [0.36, 0.34], 0.35, 0.02),  # the interval of two runs is wider than the margin
            Claim.at_least("correlation | grows", 0.1, 0.5),
        ]
        return Result("hltm", {"seeds": seeds}, {}, claims, ["a note"])

    monkeypatch.setitem(sys.modules, "lightning_ssl.labs.hltm", SimpleNamespace(run=run))
    command = ["reproduce", "hltm", "--runs", str(tmp_path), "--seeds", "2"]
    assert cli.main(command) == 0
    assert cli.main(command) == 0
    assert calls == [2]
    printed = capsys.readouterr().out
    assert "contradicted  correlation | grows" in printed
    assert "\n3 claims; holds: 1, contradicted: 1, not decided: 1\n" in printed
    page = (tmp_path / "cpu" / "hltm.md").read_text(encoding="utf-8")
    assert "3 claims; holds: 1, contradicted: 1, not decided: 1." in page
    assert "| 0.35 ± 0.02 | 0.35 ± 0.0141 | \\[0.287, 0.413\\] |" in page
    assert (
        "| contradicted | correlation \\| grows | every run at or above the bound | ≥ 0.5 | 0.1 ± 0 | the rule |"
        in page
    )
    assert "| version | " in page
    assert len(lines_of(tmp_path / "cpu" / "hltm.csv")) == 4


@pytest.mark.parametrize("name", ["table1.md", "table1.csv", "table1.png"])
def test_only_files_of_an_earlier_reproduction_are_replaced(tmp_path, name, capsys):
    (tmp_path / name).write_text("mine")
    assert cli.main(["reproduce", "table1", "--no-train", "--out", str(tmp_path)]) == 2
    assert f"{name}': there is a file that `lightning-ssl reproduce` did not write" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("empty_figures")
def test_force_replaces_other_files_and_the_command_replaces_its_own(tmp_path):
    runs = write_table1(tmp_path / "runs", seeds=2)
    (runs / "cpu").mkdir()
    (runs / "cpu" / "table1.csv").write_text("mine")
    arguments = ["reproduce", "table1", "--no-train", "--runs", str(runs)]
    assert cli.main([*arguments, "--force"]) == 0
    assert cli.main(arguments) == 0
