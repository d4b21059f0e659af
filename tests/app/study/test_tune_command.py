"""`lightning-ssl tune`: runs both steps, resumes, and writes files for a cluster."""

import json
import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.studies.tunings import TuningEngine, tuning_file, write_trial

from lightning_ssl.app import cli
from lightning_ssl.app.report import build
from lightning_ssl.app.runs.choice import FILE
from lightning_ssl.app.runs.looks import read_looks
from lightning_ssl.app.study import race
from lightning_ssl.app.sweep import engine, plan
from lightning_ssl.app.sweep.plan import fit_flags


@pytest.fixture
def quick_engine(monkeypatch):
    """The engine of `lightning-ssl tune`, without training."""

    class Quick(TuningEngine):
        ran: ClassVar = []

    monkeypatch.setattr(engine, "Engine", Quick)
    monkeypatch.setattr(race, "Engine", Quick)
    return Quick


@pytest.fixture
def tune(tmp_path, capfd):
    """Runs `lightning-ssl tune` on a tuning file; returns exit code and output."""

    def run(*flags):
        capfd.readouterr()
        file = tmp_path / "one.yaml"
        if not file.exists():
            tuning_file(tmp_path)
        code = cli.main(["tune", str(file), "--runs", str(tmp_path / "runs"), *flags])
        out, err = capfd.readouterr()
        return code, out + err

    return run


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "one"


def accuracy(setting, seed):
    return {"InfoNCE-2": 0.6, "Direct-3": 0.7}.get(setting, 0.4) + 0.001 * seed


def test_one_command_tunes_chooses_and_confirms(tune, quick_engine, folder):
    quick_engine.accuracy = staticmethod(accuracy)
    code, printed = tune("--workers", "2")
    assert code == 0
    assert quick_engine.ran[:12] == [
        ("one-tuning", f"{loss}-{k}", s) for s in (0, 1) for loss in ("InfoNCE", "Direct") for k in (1, 2, 3)
    ]
    assert quick_engine.ran[12:] == [
        ("one-confirm", s, seed) for seed in range(2, 7) for s in ("InfoNCE-2", "Direct-3")
    ]
    assert "InfoNCE  --model.tau=0.2  60.05 %\n" in printed
    assert "Direct  --model.importance.tau=0.5  70.05 %; at the border of its grid: model.importance.tau\n" in printed
    assert printed.endswith(f"lightning-ssl report {folder}\n")


def test_the_same_command_resumes_and_never_chooses_again(tune, quick_engine, folder):
    quick_engine.accuracy = staticmethod(accuracy)
    tune()
    choice, ran = (folder / FILE).read_bytes(), len(quick_engine.ran)
    quick_engine.accuracy = staticmethod(lambda setting, seed: 0.5)
    assert tune()[0] == 0
    assert ((folder / FILE).read_bytes(), len(quick_engine.ran)) == (choice, ran)


def test_failed_runs_stop_before_the_choice(tune, quick_engine, folder):
    quick_engine.accuracy = staticmethod(lambda setting, seed: None if setting == "Direct-1" else 0.5)
    code, printed = tune()
    assert code == 1
    assert "no choice yet: runs failed; --retry runs them again" in printed
    assert not (folder / FILE).exists()
    code, printed = tune("--choose", str(folder / "one-tuning"))
    assert code == 0
    assert "left out: {'model.importance.tau': 0.1}: seed 0: loss is not finite" in printed
    assert tune()[0] == 0  # the confirmation of the chosen settings
    assert {setting for step, setting, _ in quick_engine.ran if step == "one-confirm"} == {"InfoNCE-1", "Direct-2"}


def test_retry_runs_failed_runs_again(tune, quick_engine, folder):
    quick_engine.accuracy = staticmethod(lambda setting, seed: None if setting == "Direct-1" else 0.5)
    tune()
    quick_engine.accuracy = staticmethod(accuracy)
    assert tune("--retry")[0] == 0
    assert (folder / FILE).exists()


def test_dry_run_and_status_run_and_write_nothing(tune, quick_engine, folder):
    code, printed = tune("--dry-run")
    assert (code, folder.exists(), quick_engine.ran) == (0, False, [])
    assert printed.startswith("one: 2 losses × 3 settings × 2 tuning seeds, then 5 fresh seeds each: 22 runs\n")
    assert printed.count("\n    lightning-ssl fit --config=data/shapes --config=") == 12
    code, printed = tune("--status")
    assert (code, folder.exists()) == (0, False)
    assert "one-tuning: 0 of 12 finished" in printed


def test_dry_run_prints_the_confirmation_after_the_choice(tune, quick_engine, folder):
    tune()
    shutil.rmtree(folder / "one-confirm")
    assert tune("--dry-run")[1].count("--data.holdout=0 ") == 10


def test_agents_run_written_files_and_the_choice_reads_their_runs(tune, quick_engine, tmp_path):
    """The names of their run folders say nothing: runs are recognized by their configuration."""
    target, agents = tmp_path / "tuned", tmp_path / "agents"
    code, printed = tune("--write", str(target))
    assert (code, quick_engine.ran) == (0, [])
    assert f"{target}/tuning.yaml: run it with `wandb sweep`" in printed
    sweep = plan.read(target / "tuning.yaml")
    for number, cell in enumerate(sweep.cells):
        flags = fit_flags(sweep.command_for(cell, Path("parameters.json")))
        write_trial(
            agents / f"silly-name-{number}", flags, accuracy(Path(cell["config"]).stem, cell["seed_everything"])
        )
    code, printed = tune("--write", str(target), "--choose", str(agents))
    assert (code, quick_engine.ran) == (0, [])
    assert json.loads((target / FILE).read_text())["losses"]["Direct"]["chosen"] == 2
    assert [Path(c["config"]).stem for c in plan.read(target / "confirm.yaml").cells[::5]] == ["InfoNCE-2", "Direct-3"]


def test_a_frozen_choice_is_never_replaced(tune, quick_engine, folder, tmp_path):
    quick_engine.accuracy = staticmethod(accuracy)
    tune()
    for summary in (folder / "one-tuning").glob("*InfoNCE-1*/metrics.jsonl"):
        summary.write_text(summary.read_text().replace("0.4", "0.9"))
    code, printed = tune("--choose", str(folder / "one-tuning"))
    assert code == 2
    assert "the choice is frozen, and these runs give another" in printed


def test_a_changed_tuning_file_is_refused(tune, quick_engine, tmp_path):
    tune()
    tuning_file(tmp_path, parameters={"trainer.max_epochs": {"value": 9}})
    code, printed = tune()
    assert code == 2
    assert "the tuning file has changed since the choice" in printed


def test_flags_after_two_hyphens_reach_every_run(tune, quick_engine, folder):
    tune("--", "--trainer.max_epochs=7")
    runs = [*folder.glob("one-*/*/config.yaml")]
    assert len(runs) == 22
    assert all("max_epochs: 7" in run.read_text() for run in runs)


def test_until_decided_adds_fresh_seeds_and_never_a_tuning_seed(tune, quick_engine, folder):
    """Two equal losses, of which one has a failed run: its seed is replaced by a fresh one."""

    def equal(setting, seed):
        return None if (setting, seed) == ("Direct-1", 3) else 0.5 + 0.01 * ((7 * seed + len(setting)) % 3 - 1)

    quick_engine.accuracy = staticmethod(equal)
    assert tune("--until", "decided", "--dry-run")[1].startswith(
        "one: 2 losses × 3 settings × 2 tuning seeds, then fresh"
    )
    tune("--until", "decided")
    confirmed = {seed for step, _, seed in quick_engine.ran if step == "one-confirm"}
    assert [look.seeds for look in read_looks(folder / "one-confirm")] == [5, 8, 12]
    assert confirmed == set(range(2, 15))
    built = build([folder], figures=False)
    assert not built.tuning.problems
    assert built.compared[0].look.seeds == 12
    code, printed = tune("--until", "decided", "--write", "x")
    assert code == 2
    assert "until='decided': until must be given without --write and --choose" in printed
