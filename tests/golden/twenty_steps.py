"""Twenty steps of six configurations, and a resumed run: hashes of their weights and metrics, for one machine.

    git worktree add ../before COMMIT
    PYTHONPATH=$PWD/../before python tests/golden/twenty_steps.py before.json
    python tests/golden/twenty_steps.py after.json
    diff before.json after.json

Both run the same configurations, with two versions of the package. On one machine equal code gives equal bits.
`test_twenty_steps.py` compares with numbers of another machine instead, within rounding.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning_ssl  # noqa: I001  (before torchvision)
import torch
from golden.commands import HALFWAY, TINY
from golden.summary import exact
from helpers.processes.ranks import join, start_ranks
from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder

DATA = Path(__file__).with_name("data")
STEPS = 20
SHORT = [*TINY, f"--trainer.max_steps={STEPS}", "--trainer.max_epochs=-1", "--spectrum.images=16"]
DOUBLE = "--trainer.precision=64-true"
CONFIGURATIONS = {
    "simclr": ["--model=SimCLR", "--model.tau=0.2", *SHORT, DOUBLE],
    "alpha": ["--model=AlphaCL", "--model.importance=Direct", "--model.beta=0.3", *SHORT, DOUBLE],
    "simsiam": ["--model=SimSiam", *SHORT, DOUBLE, "--model.optimization={name: sgd, schedule: warmup_cosine}"],
    "byol": ["--model=BYOL", *SHORT, DOUBLE, "--model.optimization={name: lars, lr: 0.1}"],
    "solved": [
        "--model=AlphaCL", "--model.importance=Tsallis", "--model.importance.q=0.5", *SHORT, DOUBLE,
        "--probe.every_n_steps=1", "--data.holdout=16", "--importance_monitor.every_n_steps=5",
        "--trainer.accumulate_grad_batches=2", "--trainer.gradient_clip_val=1", "--trainer.callbacks+=WeightNoise",
        "--trainer.callbacks.std=0.001",
    ],
    "two_ranks": ["--model=AlphaCL", "--model.importance=Entropy", *SHORT, DOUBLE],
}  # fmt: skip


def run(name, folder):
    """Train one of the configurations in this process, or on two ranks in forks of it."""
    argv = [*CONFIGURATIONS[name], f"--name={name}", f"--runs={folder}"]
    if name == "two_ranks":
        assert join(start_ranks(argv)) == [0, 0]
    else:
        assert fit.main(argv) == 0
    return RunFolder(Path(folder) / name)


def resume(folder):
    """Resume a copy of the run that was stopped half-way."""
    shutil.copytree(DATA / "runs/halfway", Path(folder) / "halfway")
    assert fit.main([*HALFWAY, f"--runs={folder}"]) == 0
    return RunFolder(Path(folder) / "halfway")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(lightning_ssl.__file__, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: exact(run(name, folder)) for name in CONFIGURATIONS} | {"resumed": exact(resume(folder))}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
