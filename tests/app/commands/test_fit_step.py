"""A training step of `fit`: the host never waits for the device between two log steps, and ranks exchange no flag."""

import json
import os
import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from helpers import ROOT, small_fit
from helpers.killing import one_thread  # noqa: F401
from helpers.ranks import join, start_ranks
from helpers.training import same

sys.path.insert(0, str(ROOT / "benchmarks"))

import device

from lightning_ssl import methods
from lightning_ssl.app import cli, runs
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.callbacks import noise
from lightning_ssl.data import shapes

SIMCLR = "--model=SimCLR"
METHODS = {
    "Square": ["--model=AlphaCL", "--model.importance=Square"],
    "Gaussian": ["--model=AlphaCL", "--model.importance=Gaussian"],  # of un-augmented images too
    "SimSiam": ["--model=SimSiam", "--model.projector.hidden=32", "--model.projector.out=16"],
    "BYOL": ["--model=BYOL", "--model.projector.hidden=32", "--model.predictor.hidden=32"],
}


# Images, labels and ids of the batch, and the parameters of its augmentation.
BATCH = [Counter({"copy to the device": 4})] * 2


@pytest.mark.parametrize("flags", METHODS.values(), ids=METHODS)
def test_the_host_waits_for_the_device_at_log_steps_only(flags):
    assert device.steps_of_fit(*flags, "--data.on_device=false").steps == BATCH


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "lars"])
def test_clipping_under_bf16_does_not_make_the_host_wait_and_a_batch_of_resident_data_is_an_index(optimizer):
    flags = [f"--model.optimization.name={optimizer}", "--trainer.precision=bf16-mixed"]
    with pytest.warns(UserWarning, match="Disabling autocast"):  # there is none on the meta device
        counted = device.steps_of_fit(SIMCLR, *flags, "--trainer.gradient_clip_val=1.0")
    assert counted.steps == [Counter({"copy to the device": 1})] * 2  # the parameters of the augmentation


def test_a_wait_in_the_noise_is_counted(monkeypatch):
    monkeypatch.setattr(noise, "xavier", lambda p: float(p.sum()))
    counted = device.steps_of_fit(SIMCLR)
    assert [step["_local_scalar_dense"] > 0 for step in counted.steps] == [True, True]


def test_the_host_does_not_wait_for_labels_of_partly_labelled_data(monkeypatch):
    """The labels of half of the images are removed when they are read."""
    draw = shapes.Shapes.open_split

    def half_labelled(source, name):
        split = draw(source, name)
        return replace(split, labels=torch.where(torch.arange(len(split.labels)) % 2 == 0, split.labels, -1))

    monkeypatch.setattr(shapes.Shapes, "open_split", half_labelled)
    assert device.steps_of_fit(SIMCLR, "--data.on_device=false").steps == BATCH


@pytest.mark.parametrize(
    ("wait", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: x.tolist(), "copy to the host"),
        (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
        (lambda x: x[x > 0], "mask"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda x: x[torch.tensor([0])], "index on the host"),
        (lambda x: x.new_tensor(2.0), "blocking copy to the device"),
        (lambda x: torch.tensor([1.0], device=x.device), "blocking copy to the device"),
        (lambda x: torch.ones(3).to(x.device), "blocking copy to the device"),
        (lambda x: torch.ones(3).to(x.device, non_blocking=True), "copy to the device"),
        (lambda x: x.new_full((), 2.0) + x.mean() * 3, None),
    ],
)
def test_every_kind_of_wait_is_counted(wait, name):
    mode = device.Waits()
    with mode, device.Constructors(mode):
        wait(torch.zeros(3, device="meta"))
    assert {key for key, count in mode.count.items() if count} == ({name} if name else set())


# ---------------------------------------------------------------------------------------------------------------------
# Two ranks

COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_single", "barrier",
    "all_gather_into_tensor", "all_gather_object", "gather", "reduce_scatter_single", "reduce_scatter_tensor",
)  # fmt: skip
BAD_STEP = 6  # of 8 in an epoch; the host looks at the 4th and the 8th
WORDS = [
    *small_fit("SimSiam", train_images=64, batch_size=8), *METHODS["SimSiam"], "--trainer.max_epochs=2",
    "--trainer.log_every_n_steps=4", "--probe.share=0.5",
]  # fmt: skip


def collectives_of_each_step(folder):
    """Train until the loss of rank 1 is not finite; write the collectives of each step."""

    def run(argv):
        rank, steps = int(os.environ["RANK"]), []
        for name in COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, counted(name, getattr(dist, name), steps))
        loss_of, begin = methods.SimSiam.compute_loss, methods.SimSiam.on_train_batch_start

        def compute_loss(self, views):
            loss = loss_of(self, views)
            # The gradient of this rank stays finite: the guard has to tell the other one.
            return loss + torch.nan if rank == 1 and self.global_step == BAD_STEP else loss

        def on_train_batch_start(self, batch, batch_idx):
            steps.append([])
            if self.global_step == BAD_STEP:
                torch.save(self.state_dict(), folder / f"{rank}.pt")
            begin(self, batch, batch_idx)

        methods.SimSiam.compute_loss, methods.SimSiam.on_train_batch_start = compute_loss, on_train_batch_start
        code = cli.main(["fit", *argv])
        (folder / f"{rank}.json").write_text(json.dumps(steps))
        return code

    return run


def counted(name, collective, steps):
    def call(*args, **kwargs):
        if steps:
            steps[-1].append(name)
        return collective(*args, **kwargs)

    return call


def test_ranks_exchange_nothing_but_gradients_and_stop_together_when_one_diverges(tmp_path, capfd):
    argv = [*WORDS, f"--runs={tmp_path}", "--name=run"]
    assert join(start_ranks(argv, run=collectives_of_each_step(tmp_path))) == [2, 2]
    for rank in range(2):
        steps = json.loads((tmp_path / f"{rank}.json").read_text())
        # DDP reduces the gradients in C++, which is not counted. The probe learns in the second half of the epoch.
        assert steps[:3] == [[], [], []]
        assert steps[3] == ["all_reduce"]  # the flag of the guard, at a log step
        gathers = [len(step) for step in steps[4:7]]
        assert gathers == [1, 1, 1]
    assert f"one of the ranks at step {BAD_STEP}: the last finite loss was" in capfd.readouterr().err
    run = RunFolder(tmp_path / "run")
    assert run.step_checkpoints() == []
    checkpoint = runs.read_checkpoint(run.checkpoints / "last_finite.ckpt")
    assert same(checkpoint["state_dict"], dict(torch.load(tmp_path / "0.pt")))
