"""Run folders, checkpoints, sweeps and exports of version 9187a09 are read and resumed.

data/ is what that version left on a user's disk. It is never made again; commit 37f25cc has the program that made it.

    runs/halfway     a run that SIGTERM stopped; its checkpoint, config.yaml, metrics.csv and summary.json
    runs/finished    a finished run with evaluation.json
    runs/recorded    a run of `record_run`, from Python
    sweep/           sweep.db and the run folders of three trials: finished, failed, stopped
    halfway.safetensors    `lightning-ssl export runs/halfway`
    plain.ckpt       a checkpoint of a plain Trainer with AlphaCL, OnlineProbe and DataModule
    bolts.ckpt.xz    a checkpoint in the layout of lightning-bolts, with weights of few values so that it is small
    imported.ckpt.xz what `lightning-ssl import-bolts` made of it
    expected.json    what the uninterrupted run of runs/halfway ends with, and what the other files hold

The checkpoints name `lightning_ssl.methods.contrastive.AlphaCL` and, as Lightning wrote them, the function that builds
a module from the arguments of jsonargparse. They must load also where jsonargparse is not installed.
"""

import json
import lzma
import shutil
import sqlite3
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from golden.commands import EVALUATE, HALFWAY
from golden.summary import close_runs, of_checkpoint, of_features, of_run
from helpers import TESTS
from helpers.closeness import close
from helpers.training import quiet  # noqa: F401  a fixture
from safetensors import safe_open
from safetensors.torch import load_file

from lightning_ssl import AlphaCL, DataModule, Direct, Head, OnlineProbe
from lightning_ssl.app import cli, report, runs
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.training import record_run

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a copy of the data. The backbone `golden.network.Tiny` is one of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return tmp_path


def copy(name):
    source, target = DATA / name, Path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return target


def unpack(name):
    Path(name).write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return name


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def test_a_stopped_run_is_resumed_to_the_result_of_the_uninterrupted_run(capsys):
    copy("runs/halfway")
    assert RunFolder("runs/halfway").summary()["status"] == "interrupted"
    assert cli.main(["fit", *HALFWAY]) == 0
    assert "resumed from step-" in capsys.readouterr().out
    run = RunFolder("runs/halfway")
    assert run.summary()["status"] == "finished"
    close_runs(of_run(run), EXPECTED["halfway"], steps=48)


def test_a_finished_run_is_not_trained_again(capsys):
    copy("runs/finished")
    assert cli.main(["fit", "--config=runs/finished/config.yaml", "--name=finished"]) == 0
    assert "is finished already" in capsys.readouterr().out


def test_a_finished_run_is_evaluated_again_to_the_same_accuracies():
    copy("runs/finished")
    before = json.loads(Path("runs/finished/evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert cli.main(["evaluate", "runs/finished", *EVALUATE]) == 0
    records = json.loads(Path("runs/finished/evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert len(records) == len(before) == 1  # the same settings replace the record
    # The accuracies of 32 images: rounding can change the class of one.
    for name, value in EXPECTED["finished"]["linear"].items():
        assert abs(records[0]["metrics"][name] - value) <= 1 / 32 + 1e-9, name
    close(of_features("runs/finished"), EXPECTED["finished"]["features"], terms=201168, scale=1.0)


def test_the_runs_are_found_and_compared_on_a_page():
    for name in ("halfway", "finished", "recorded"):
        copy(f"runs/{name}")
    labels = {run.path.name: (run.summary()["label"], run.summary()["status"]) for run in runs.find("runs")}
    assert labels == {
        "halfway": ("AlphaCL Tsallis q=1.5 τ=0.5", "interrupted"),
        "finished": ("SimCLR InfoNCE τ=0.5", "finished"),
        "recorded": ("AlphaCL Direct p=6 τ=0.5", "finished"),
    }
    built = report.build(["runs"], "page.html", figures=False)
    assert len(built.runs) == 3
    assert "SimCLR InfoNCE" in Path("page.html").read_text(encoding="utf-8")


def test_a_run_of_python_is_resumed_by_python():
    copy("runs/recorded")
    run = RunFolder("runs/recorded")
    close_runs(of_run(run), EXPECTED["recorded"], steps=8)
    settings = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=3, callbacks=[OnlineProbe()], enable_checkpointing=False, **settings)
    run = record_run(trainer, "runs/recorded", resume=True, tags=["python"])
    method = AlphaCL(Direct(p=6), backbone="golden.network.Tiny", image_size=16, projector=Head(8, 8))
    options = {"size": 16, "train_images": 64, "test_images": 32}
    data = DataModule("shapes", batch_size=16, options=options)
    trainer.fit(method, data, ckpt_path=run.newest_checkpoint(), weights_only=True)
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 12)
    assert len(run.history("train/loss_epoch")) == 3


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints and exports


def test_a_checkpoint_of_a_plain_trainer_loads():
    loaded = AlphaCL.load_from_checkpoint(DATA / "plain.ckpt", trust=("golden",))
    assert loaded.loss.importance == Direct(p=6)
    state = torch.load(DATA / "plain.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    assert of_checkpoint(DATA / "plain.ckpt") == EXPECTED["plain"]


def test_a_checkpoint_of_the_command_line_names_the_old_class_and_loads():
    file = RunFolder(DATA / "runs/halfway").newest_checkpoint()
    content = torch.load(file, weights_only=True)
    assert content["lightning_ssl"]["config"]["model"]["class_path"] == "lightning_ssl.methods.contrastive.AlphaCL"
    assert content["hyper_parameters"]["_instantiator"] == "pytorch_lightning.cli.instantiate_module"
    loaded = AlphaCL.load_from_checkpoint(file, trust=("golden",))
    assert (type(loaded.loss.importance).__name__, loaded.loss.importance.q) == ("Tsallis", 1.5)
    for name, value in loaded.state_dict().items():  # the run was in float64; a module is built in float32
        assert torch.equal(value, content["state_dict"][name].to(value.dtype)), name


def test_an_export_has_the_same_weights_and_origin():
    copy("runs/halfway")
    words = ["--format=safetensors", "--out=again.safetensors", "--trust=golden"]
    assert cli.main(["export", "runs/halfway", *words]) == 0
    before, after = load_file(DATA / "halfway.safetensors"), load_file("again.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with safe_open(DATA / "halfway.safetensors", "pt") as old, safe_open("again.safetensors", "pt") as new:
        assert old.metadata().keys() == new.metadata().keys()


def test_a_file_of_bolts_is_imported_to_the_same_checkpoint():
    assert cli.main(["import-bolts", unpack("bolts.ckpt"), "--out=again.ckpt"]) == 0
    found, old = (torch.load(file, weights_only=True) for file in ("again.ckpt", unpack("imported.ckpt")))
    assert found["state_dict"].keys() == old["state_dict"].keys()
    for name, value in old["state_dict"].items():
        close(found["state_dict"][name].double(), value.double(), terms=512)
    config = found["lightning_ssl"]["config"]
    del config["model"]["init_args"]["views_together"]  # a later argument
    assert config == old["lightning_ssl"]["config"]


def test_an_imported_checkpoint_gives_the_same_features():
    found = of_features(unpack("imported.ckpt"))
    expected = EXPECTED["imported"]["features"]
    assert max(abs(value) for row in expected for value in row) > 0
    close(torch.tensor(found).float(), torch.tensor(expected).float(), terms=11_000_000)


# ---------------------------------------------------------------------------------------------------------------------
# The sweep


def statuses():
    with sqlite3.connect("sweep/sweep/sweep.db") as base:
        return dict(base.execute("SELECT id, status FROM trials"))


def test_the_status_of_a_sweep_is_shown(capsys):
    copy("sweep"), copy("sweep.yaml")
    before = Path("sweep/sweep/sweep.db").read_bytes()
    cli.main(["sweep", "sweep.yaml", "--runs=sweep", "--status"])
    shown = capsys.readouterr().out
    for word in ("001-", "002-", "003-", "finished", "failed", "interrupted"):
        assert word in shown, word
    assert Path("sweep/sweep/sweep.db").read_bytes() == before


def test_a_sweep_is_resumed_at_its_stopped_trial(forked_trials):
    copy("sweep"), copy("sweep.yaml")
    before = statuses()
    assert sorted(before.values()) == ["failed", "finished", "interrupted"]
    first = next(Path("sweep/sweep").glob("001-*/summary.json")).read_bytes()
    assert cli.main(["sweep", "sweep.yaml", "--runs=sweep"]) == 1
    assert sorted(statuses().values()) == ["failed", "finished", "finished"]
    (log,) = Path("sweep/sweep").glob("003-*/log.txt")
    assert "resumed from step-" in log.read_text(encoding="utf-8")
    assert next(Path("sweep/sweep").glob("001-*/summary.json")).read_bytes() == first
