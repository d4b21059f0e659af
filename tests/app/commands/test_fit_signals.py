"""`fit` at a signal: every rank stops at the same step, with a whole checkpoint, and resumes bit for bit."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import pytorch_lightning as pl
from helpers import small_fit
from helpers.outcome import assert_same, outcome
from helpers.processes.killing import code_in_a_fork, one_thread  # noqa: F401
from helpers.processes.ranks import join, start_ranks
from helpers.processes.trials import descendants
from PIL import Image

from lightning_ssl import methods
from lightning_ssl.app import cli
from lightning_ssl.app.commands import fit
from lightning_ssl.app.launch import signals
from lightning_ssl.app.launch.noted_signals import STARTED_BY, must_start
from lightning_ssl.app.runs import RunFolder, checkpoints
from lightning_ssl.data import DataModule

FLAGS = [*small_fit("SimCLR", train_images=64), "--knn.k=5"]  # 4 steps an epoch
PROGRAM = os.path.join(os.path.dirname(sys.executable), "lightning-ssl")
ENDLESS = "--trainer.max_epochs=10000"
TWO_RANKS = ["--trainer.devices=2", "--trainer.strategy=ddp"]


@pytest.fixture
def argv(tmp_path):
    return [*FLAGS, "--trainer.max_epochs=3", f"--runs={tmp_path}", "--name=run"]


def assert_interrupted(folder, step=None, saved=True):
    """The run has the status, no error, and as its newest checkpoint a whole one of the step at which it stopped."""
    run = RunFolder(folder)
    summary, newest = run.summary(), run.step_checkpoints()[:1]
    assert (summary["status"], summary["error"]) == ("interrupted", None)
    assert step in (None, summary.get("step", 0))
    assert not list(run.path.parent.rglob("hpc_ckpt*"))
    if saved:
        assert [file.name for file in newest] == ([f"step-{summary['step']:08d}.ckpt"] if step != 0 else [])
        assert [checkpoints.damage(file) for file in newest] == [None] * len(newest)


def fit_with_signal(argv, step, number, rank="0"):
    """Train, and send a signal to this rank within a training step."""
    original, done = methods.Method.training_step, 0

    def training_step(self, batch, batch_idx):
        nonlocal done
        if done == step and os.environ.get("RANK", "0") == rank:
            os.kill(os.getpid(), number)
        done += 1
        return original(self, batch, batch_idx)

    methods.Method.training_step = training_step
    signals.SECONDS = 0.0  # the ranks meet at every step
    return fit.main(argv)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of three epochs."""
    folder = tmp_path_factory.mktemp("whole")
    assert code_in_a_fork(fit.main, [*FLAGS, "--trainer.max_epochs=3", f"--runs={folder}", "--name=run"]) == 0
    return RunFolder(folder / "run")


# In epoch 1: the first step, one in the middle, the last one, after which the epoch ends first.
@pytest.mark.parametrize(
    ("number", "step", "stops_at"),
    [(signal.SIGTERM, 4, 5), (signal.SIGUSR1, 5, 6), (signal.SIGINT, 7, 8)],
)
def test_a_signal_stops_a_run_after_its_step_and_it_resumes_bit_for_bit(number, step, stops_at, whole, argv, tmp_path):
    assert code_in_a_fork(fit_with_signal, argv, step, number) == 128 + number
    assert_interrupted(tmp_path / "run", stops_at)
    assert fit.main(argv) == 0
    assert_same(outcome(RunFolder(tmp_path / "run")), outcome(whole))


def test_a_signal_while_gradients_are_accumulated_stops_a_run_after_the_whole_step(argv, tmp_path):
    """Batches 0 to 2 are step 1. The validation after batch 1 writes no checkpoint, which would lack a part of it."""
    argv += ["--trainer.accumulate_grad_batches=3", "--trainer.val_check_interval=2", "--trainer.max_epochs=1"]
    assert code_in_a_fork(fit.main, [*argv, "--name=whole"]) == 0
    assert code_in_a_fork(fit_with_signal, argv, 1, signal.SIGTERM) == 143
    assert RunFolder(tmp_path / "run").summary()["step"] == 1
    assert fit.main(argv) == 0
    assert_same(*(outcome(RunFolder(tmp_path / name)) for name in ("run", "whole")))


def test_a_signal_in_the_last_step_does_not_stop_a_run_that_is_done(argv, tmp_path):
    assert code_in_a_fork(fit_with_signal, [*argv, "--trainer.max_epochs=1"], 3, signal.SIGTERM) == 0
    assert RunFolder(tmp_path / "run").summary()["status"] == "finished"


def test_a_signal_to_one_of_two_ranks_stops_both_at_the_same_step(argv, tmp_path):
    ranks = start_ranks([*argv, ENDLESS], run=lambda argv: fit_with_signal(argv, 5, signal.SIGTERM, rank="1"))
    assert join(ranks) == [143, 143]
    assert_interrupted(tmp_path / "run", 6)


def fit_with_signal_in_setup(argv):
    """Send a signal while the data set is opened, which can take minutes for a download."""

    def setup(self, stage):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not reached")

    DataModule.setup = setup
    return fit.main(argv)


def fit_with_signal_to_all_processes(argv):
    """Train, and send a signal to this process and its children, as SLURM does for a step."""
    os.setpgrp()
    original = os.kill
    os.kill = lambda pid, number: os.killpg(0, number) if number == signal.SIGTERM else original(pid, number)
    return fit_with_signal(argv, 2, signal.SIGTERM)


def fit_with_two_quick_interrupts(argv):
    original = os.kill
    os.kill = lambda pid, number: [original(pid, number) for _ in range(2 if number == signal.SIGINT else 1)]
    return fit_with_signal(argv, 2, signal.SIGINT)


def start_with_signal_at_import(argv, environment):
    """Run the program, and send SIGTERM before it imports torch."""
    original = importlib.import_module

    def import_module(name):
        importlib.import_module = original
        os.kill(os.getpid(), signal.SIGTERM)
        return original(name)

    importlib.import_module = import_module
    for name in (*STARTED_BY, "SLURM_STEP_NUM_TASKS"):
        os.environ.pop(name, None)
    os.environ |= environment
    return cli.main(["fit", *argv])


PHOTOS = ["--data.name=folder", "--data.workers=1", "--data.batch_size=4", "--data.options={store_size: 32}"]


@pytest.mark.parametrize(
    ("work", "code", "step"),
    [
        (fit_with_signal_in_setup, 143, 0),  # a single process stops at once
        (fit_with_two_quick_interrupts, 130, None),  # at once, wherever it is
        (lambda argv: fit_with_signal_to_all_processes([*argv, *PHOTOS]), 143, 3),  # not the workers that decode images
        # A rank notes it while it imports torch. The first variable is W&B's: tests/app/tracking/test_wandb_agent.py
        *((lambda argv, name=name: start_with_signal_at_import(argv, {name: "0"}), 143, 1) for name in STARTED_BY[1:]),
    ],
)
def test_a_run_that_a_signal_stops_has_its_status_and_no_traceback(work, code, step, argv, tmp_path, capfd):
    for number in range(24):
        path = tmp_path / "images" / "train" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (10 * number, 100, 50)).save(path)
    assert code_in_a_fork(work, [*argv, ENDLESS, f"--data.root={tmp_path / 'images'}"]) == code
    assert_interrupted(tmp_path / "run", step, saved=step is not None)
    assert "Traceback" not in capfd.readouterr().err


def test_a_task_of_several_must_start():
    assert must_start({"SLURM_STEP_NUM_TASKS": "2"})


@pytest.mark.parametrize("environment", [{}, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}])
def test_a_single_process_ends_at_once_while_it_imports_torch(environment, argv, tmp_path):
    assert code_in_a_fork(start_with_signal_at_import, argv, environment) == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_a_second_ctrl_c_stops_at_once():
    with signals.StopSignals() as noted:
        os.kill(os.getpid(), signal.SIGINT)
        assert noted.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("handler", "number"), [(lambda *_: None, signal.SIGHUP), (signal.SIG_IGN, 0)])
def test_sighup_stops_a_run_and_nohup_keeps_it_from_doing_so(handler, number):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with signals.StopSignals() as noted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert noted.number == number
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_program_ends_by_the_signal_that_stopped_it(number, monkeypatch):
    """W&B's agent takes an exit code above 0 as a failure, and a signal as none."""
    monkeypatch.setattr(cli, "run", lambda argv: 128 + number)
    assert code_in_a_fork(cli.main) == -number
    assert cli.main(["fit"]) == 128 + number  # a caller within Python gets the code


def test_lightning_has_the_private_methods_that_are_replaced():
    trainer = pl.Trainer(logger=False, accelerator="cpu", enable_checkpointing=False)
    assert callable(trainer._signal_connector.register_signal_handlers)
    assert callable(trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor)
    several = pl.Trainer(logger=False, accelerator="cpu", devices=2, strategy="ddp", enable_checkpointing=False)
    assert callable(several.strategy.launcher._call_children_scripts)


@pytest.mark.slow
def test_twenty_signals_at_random_times_never_hang_two_ranks(argv, tmp_path):
    """After the first checkpoint, whatever they are doing."""
    draw = random.Random(0)
    for attempt in range(20):
        ranks, run = start_ranks([*argv, ENDLESS, f"--name=run{attempt}"]), RunFolder(tmp_path / f"run{attempt}")
        while not run.step_checkpoints():
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 2.0))
        victims = draw.choice([ranks[:1], ranks[1:], ranks])
        for process in victims:
            os.kill(process.pid, draw.choice([signal.SIGTERM, signal.SIGUSR1]))
        codes = join(ranks, timeout=600)
        assert codes in ([143, 143], [138, 138]), attempt
        assert_interrupted(run.path)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["lightning", "torchrun"])
def test_a_signal_to_the_started_process_stops_all_ranks(start, argv, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [*(launcher if start == "torchrun" else []), PROGRAM, "fit", *argv, ENDLESS, *TWO_RANKS]
    started = subprocess.Popen(words)
    while not list(tmp_path.glob("run/checkpoints/*.ckpt")):
        assert started.poll() is None
        time.sleep(0.1)
    started.terminate()
    assert started.wait(timeout=600) == (1 if start == "torchrun" else -signal.SIGTERM)
    assert_interrupted(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_while_the_second_rank_starts_stops_both(number, argv, tmp_path):
    started = subprocess.Popen([PROGRAM, "fit", *argv, ENDLESS, *TWO_RANKS], start_new_session=True)
    while not descendants(started.pid):
        assert started.poll() is None
        time.sleep(0.01)
    os.killpg(started.pid, number)  # before Python has begun in the second rank
    assert started.wait(timeout=120) == (-number if number == signal.SIGTERM else 130)
    assert_interrupted(tmp_path / "run", saved=False)
