"""Write the run folders and files of data/, from which the tests resume, report, evaluate and export.

Made once, with version 9187a09, in the folder of this repository:

    git worktree add ../today 9187a09
    PYTHONPATH=$PWD/../today:$PWD/tests python tests/golden/make.py

The files are never made again: they are what an older version left on a user's disk.

    runs/halfway     a run that SIGTERM stopped; its checkpoint, config.yaml, metrics.csv and summary.json
    runs/finished    a finished run with evaluation.json
    runs/recorded    a run of `record_run`, from Python
    sweep/           sweep.db and the run folders of three trials: finished, failed, stopped
    halfway.safetensors    `lightning-ssl export runs/halfway`
    plain.ckpt       a checkpoint of a plain Trainer with AlphaCL, OnlineProbe and DataModule
    bolts.ckpt.xz    a checkpoint in the layout of lightning-bolts, with weights of few values so that it is small
    imported.ckpt.xz what `lightning-ssl import-bolts` made of it
    expected.json    what the uninterrupted run of runs/halfway ends with, and what the other files hold
    twenty_steps.json    what the configurations of twenty_steps.py end with
"""

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
import yaml
from golden import twenty_steps
from golden.commands import EVALUATE, FINISHED, HALFWAY, SWEEP
from golden.summary import of_checkpoint, of_features, of_run
from helpers.bolts_layout import HPARAMS, network, save

from lightning_ssl import AlphaCL, DataModule, Direct, Head, OnlineProbe
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.training import record_run

DATA = Path(__file__).with_name("data")
PROGRAM = [sys.executable, "-m", "lightning_ssl"]


def run(*words):
    subprocess.run([*PROGRAM, *words], check=True)


def stop_after(condition, *words):
    """Start a command, and end it by SIGTERM as soon as the condition holds."""
    process = subprocess.Popen([*PROGRAM, *words])
    while not condition():
        assert process.poll() is None, "it ended before it was stopped"
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    print("exit code", process.wait())


def make_runs():
    halfway = Path("runs/halfway/checkpoints")
    stop_after(lambda: list(halfway.glob("step-*.ckpt")), "fit", *HALFWAY)
    run("fit", *FINISHED)
    run("evaluate", "runs/finished", *EVALUATE)
    run("export", "runs/halfway", "--format=safetensors", "--out=halfway.safetensors", "--trust=golden")
    run("fit", *HALFWAY, "--name=uninterrupted", "--runs=whole")


def make_sweep():
    Path("sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False), encoding="utf-8")
    third = Path("sweep/sweep")
    stop_after(lambda: list(third.glob("003-*/checkpoints/step-*.ckpt")), "sweep", "sweep.yaml", "--runs=sweep")
    for file in third.glob("001-*/checkpoints/*"):
        file.unlink()


def make_from_python():
    """A recorded run, and a checkpoint of a Trainer that knows nothing of run folders."""
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    for name in ("recorded", "plain"):
        pl.seed_everything(7)
        trainer = pl.Trainer(max_epochs=2, callbacks=[OnlineProbe()], enable_checkpointing=False, **quiet)
        if name == "recorded":
            record_run(trainer, "runs/recorded", tags=["python"])
        method = AlphaCL(Direct(p=6), backbone="golden.network.Tiny", image_size=16, projector=Head(8, 8))
        options = {"size": 16, "train_images": 64, "test_images": 32}
        trainer.fit(method, DataModule("shapes", batch_size=16, options=options))
        if name == "plain":
            trainer.save_checkpoint("plain.ckpt")


def make_bolts():
    theirs = network("SimCLR")
    state = {}
    for place, (name, value) in enumerate(theirs.state_dict().items()):
        numbers = (torch.arange(value.numel()) % 16 + place % 5).reshape(value.shape)
        positive = "running_var" in name
        state[name] = (numbers + 1) / 16 if positive else (numbers - 8) / 64
        state[name] = numbers if value.dtype == torch.long else state[name].to(value.dtype)
    save(Path("bolts.ckpt"), state, HPARAMS["SimCLR"])
    run("import-bolts", "bolts.ckpt", "--out=imported.ckpt")
    for name in ("bolts.ckpt", "imported.ckpt"):
        Path(f"{name}.xz").write_bytes(lzma.compress(Path(name).read_bytes(), preset=9))


def make_expected():
    finished = RunFolder("runs/finished")
    found = {
        "halfway": of_run(RunFolder("whole/uninterrupted")),
        "recorded": of_run(RunFolder("runs/recorded")),
        "finished": {"features": of_features(finished.path), "linear": finished.summary()["linear"]},
        "imported": {"features": of_features("imported.ckpt"), **of_checkpoint("imported.ckpt")},
        "plain": of_checkpoint("plain.ckpt"),
    }
    Path("expected.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def make_twenty_steps():
    found = {name: of_run(twenty_steps.run(name, "short")) for name in twenty_steps.CONFIGURATIONS}
    Path("twenty_steps.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def keep():
    """Copy the files to data/, of each run the newest checkpoint only."""
    for folder in (*Path("runs").iterdir(), *Path("sweep/sweep").glob("*/")):
        for file in RunFolder(folder).step_checkpoints()[1:]:
            file.unlink()
    for name in ("runs", "sweep"):
        shutil.rmtree(DATA / name, ignore_errors=True)
        shutil.copytree(name, DATA / name, ignore=shutil.ignore_patterns("*.lock", "lock"))
    for pattern in ("*.yaml", "*.safetensors", "plain.ckpt", "*.xz", "*.json"):
        for file in Path().glob(pattern):
            shutil.copy(file, DATA / file.name)


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    os.chdir(tempfile.mkdtemp())
    print(os.getcwd())
    make_runs()
    make_sweep()
    make_from_python()
    make_bolts()
    make_expected()
    make_twenty_steps()
    keep()


if __name__ == "__main__":
    main()
