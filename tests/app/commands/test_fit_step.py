"""A training step of `fit`: the host never waits for the device between two log steps, and two ranks stop together."""

import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from helpers import ROOT, small_fit
from helpers.processes.killing import one_thread  # noqa: F401
from helpers.processes.ranks import join, start_ranks
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


@pytest.mark.parametrize("name", ["Square", "Gaussian", "BYOL"])
def test_the_host_waits_for_the_device_at_log_steps_only(name):
    assert device.steps_of_fit(*METHODS[name], "--data.on_device=false").steps == BATCH


@pytest.mark.parametrize("optimizer", ["adam", "lars"])
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

BAD_STEP = 6  # of 8 in an epoch; the host looks at the 4th and the 8th
WORDS = [
    *small_fit("SimSiam", train_images=64, batch_size=8), *METHODS["SimSiam"], "--trainer.max_epochs=2",
    "--trainer.log_every_n_steps=4", "--probe.share=0.5",
]  # fmt: skip


def fit_until_one_rank_diverges(folder):
    """Train until the loss of rank 1 is not finite; write the weights before that step."""

    def run(argv):
        loss_of = methods.SimSiam.compute_loss

        def compute_loss(self, views):
            if self.global_step == BAD_STEP:
                torch.save(self.state_dict(), folder / f"{self.global_rank}.pt")
            # The gradient of this rank stays finite: the guard has to tell the other one.
            bad = self.global_rank == 1 and self.global_step == BAD_STEP
            return loss_of(self, views) + (torch.nan if bad else 0)

        methods.SimSiam.compute_loss = compute_loss
        return cli.main(["fit", *argv])

    return run


def test_two_ranks_stop_together_with_the_same_weights_when_one_diverges(tmp_path, capfd):
    """What they exchange in a step: test_fit_collectives.py."""
    argv = [*WORDS, f"--runs={tmp_path}", "--name=run"]
    assert join(start_ranks(argv, run=fit_until_one_rank_diverges(tmp_path))) == [2, 2]
    assert f"one of the ranks at step {BAD_STEP}: the last finite loss was" in capfd.readouterr().err
    run = RunFolder(tmp_path / "run")
    assert run.step_checkpoints() == []
    checkpoint = runs.read_checkpoint(run.checkpoints / "last_finite.ckpt")
    assert same(checkpoint["state_dict"], dict(torch.load(tmp_path / "0.pt")))
