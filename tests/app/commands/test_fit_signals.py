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
from helpers.killing import code_in_a_fork, one_thread  # noqa: F401
from helpers.outcome import assert_same, outcome
from helpers.ranks import join, start_ranks
from helpers.trials import descendants
from PIL import Image

from lightning_ssl import methods
from lightning_ssl.app import cli
from lightning_ssl.app.commands import fit
from lightning_ssl.app.launch import signals
from lightning_ssl.app.launch.noted_signals import STARTED_BY, must_start
from lightning_ssl.app.runs import RunFolder, checkpoints
from lightning_ssl.data import DataModule

FLAGS = [*small_fit("SimCLR", train_images=64), "--knn.k=5"]  # 4 steps an epoch


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
def test_a_signal_stops_a_run_after_its_step_and_it_resumes_bit_for_bit(number, step, stops_at, whole, tmp_path):
    argv = [*FLAGS, "--trainer.max_epochs=3", f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(fit_with_signal, argv, step, number) == 128 + number
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["error"], run.summary()["step"]) == ("interrupted", None, stops_at)
    assert run.newest_checkpoint().name == f"step-{stops_at:08d}.ckpt"
    assert not list(tmp_path.rglob("hpc_ckpt*"))
    assert fit.main(argv) == 0
    assert_same(outcome(run), outcome(whole))


def test_a_signal_while_gradients_are_accumulated_stops_a_run_after_the_whole_step(tmp_path):
    """Batches 0 to 2 are step 1. The validation after batch 1 writes no checkpoint, which would lack a part of it."""
    flags = ["--trainer.accumulate_grad_batches=3", "--trainer.val_check_interval=2", "--trainer.max_epochs=1"]
    whole, stopped = ([*FLAGS, *flags, f"--runs={tmp_path}", f"--name={name}"] for name in ("whole", "stopped"))
    assert code_in_a_fork(fit.main, whole) == 0
    assert code_in_a_fork(fit_with_signal, stopped, 1, signal.SIGTERM) == 143
    run = RunFolder(tmp_path / "stopped")
    assert run.summary()["step"] == 1
    assert fit.main(stopped) == 0
    assert_same(outcome(run), outcome(RunFolder(tmp_path / "whole")))


def test_a_signal_in_the_last_step_does_not_stop_a_run_that_is_done(tmp_path):
    argv = [*FLAGS, "--trainer.max_epochs=1", f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(fit_with_signal, argv, 3, signal.SIGTERM) == 0
    assert RunFolder(tmp_path / "run").summary()["status"] == "finished"


def test_a_signal_to_one_of_two_ranks_stops_both_at_the_same_step(tmp_path):
    argv = [*FLAGS, "--trainer.max_epochs=100", f"--runs={tmp_path}", "--name=run"]
    ranks = start_ranks(argv, run=lambda argv: fit_with_signal(argv, 5, signal.SIGTERM, rank="1"))
    assert join(ranks) == [143, 143]
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["step"]) == ("interrupted", 6)
    assert run.newest_checkpoint().name == "step-00000006.ckpt"


def fit_with_signal_in_setup(argv):
    """Send a signal while the data set is opened, which can take minutes for a download."""

    def setup(self, stage):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not reached")

    DataModule.setup = setup
    return fit.main(argv)


def test_before_the_first_step_a_signal_stops_a_single_process_at_once(tmp_path):
    argv = [*FLAGS, f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(fit_with_signal_in_setup, argv) == 143
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["error"], run.step_checkpoints()) == ("interrupted", None, [])


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


@pytest.mark.parametrize("variable", STARTED_BY[1:])  # the first is W&B's: tests/app/tracking/test_wandb_agent.py
def test_a_rank_notes_a_signal_while_it_imports_torch_and_stops_after_its_first_step(variable, tmp_path):
    argv = [*FLAGS, f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(start_with_signal_at_import, argv, {variable: "0"}) == 143
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["step"]) == ("interrupted", 1)
    assert run.newest_checkpoint().name == "step-00000001.ckpt"


def test_a_task_of_several_must_start():
    assert must_start({"SLURM_STEP_NUM_TASKS": "2"})


@pytest.mark.parametrize("environment", [{}, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}])
def test_a_single_process_ends_at_once_while_it_imports_torch(environment, tmp_path):
    argv = [*FLAGS, f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(start_with_signal_at_import, argv, environment) == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


def fit_with_signal_to_all_processes(argv):
    """Train, and send a signal to this process and its children, as SLURM does for a step."""
    os.setpgrp()
    original = os.kill
    os.kill = lambda pid, number: os.killpg(0, number) if number == signal.SIGTERM else original(pid, number)
    return fit_with_signal(argv, 2, signal.SIGTERM)


def test_a_signal_to_all_processes_does_not_end_the_workers_that_decode_images(tmp_path):
    for number in range(24):
        path = tmp_path / "images" / "train" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (10 * number, 100, 50)).save(path)
    data = ["--data.name=folder", f"--data.root={tmp_path / 'images'}", "--data.workers=1", "--data.batch_size=4"]
    argv = [*FLAGS, *data, "--data.options={store_size: 32}", "--trainer.max_epochs=100"]
    code = code_in_a_fork(fit_with_signal_to_all_processes, [*argv, f"--runs={tmp_path}", "--name=run"])
    run = RunFolder(tmp_path / "run")
    assert (code, run.summary()["status"], run.summary()["error"]) == (143, "interrupted", None)
    assert run.newest_checkpoint().name == "step-00000003.ckpt"


def test_a_second_ctrl_c_stops_at_once():
    with signals.StopSignals() as noted:
        os.kill(os.getpid(), signal.SIGINT)
        assert noted.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def fit_with_two_quick_interrupts(argv):
    original = os.kill
    os.kill = lambda pid, number: [original(pid, number) for _ in range(2 if number == signal.SIGINT else 1)]
    return fit_with_signal(argv, 2, signal.SIGINT)


def test_two_quick_ctrl_c_leave_the_right_status_and_no_traceback(tmp_path, capfd):
    argv = [*FLAGS, "--trainer.max_epochs=100", f"--runs={tmp_path}", "--name=run"]
    assert code_in_a_fork(fit_with_two_quick_interrupts, argv) == 130
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["error"]) == ("interrupted", None)
    assert "Traceback" not in capfd.readouterr().err


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
def test_twenty_signals_at_random_times_never_hang_two_ranks(tmp_path):
    """After the first checkpoint, whatever they are doing."""
    draw = random.Random(0)
    for attempt in range(20):
        argv = [*FLAGS, "--trainer.max_epochs=10000", f"--runs={tmp_path}", f"--name=run{attempt}"]
        ranks, run = start_ranks(argv), RunFolder(tmp_path / f"run{attempt}")
        while not run.step_checkpoints():
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 2.0))
        victims = draw.choice([ranks[:1], ranks[1:], ranks])
        for process in victims:
            os.kill(process.pid, draw.choice([signal.SIGTERM, signal.SIGUSR1]))
        codes = join(ranks, timeout=600)
        assert codes[0] == codes[1], attempt
        assert codes[0] in (143, 138), attempt
        assert run.summary()["status"] == "interrupted", attempt
        assert checkpoints.damage(run.step_checkpoints()[0]) is None, attempt
        assert run.step_checkpoints()[0].name == f"step-{run.summary()['step']:08d}.ckpt", attempt


@pytest.mark.slow
@pytest.mark.parametrize("start", ["lightning", "torchrun"])
def test_a_signal_to_the_started_process_stops_all_ranks(start, tmp_path):
    program = os.path.join(os.path.dirname(sys.executable), "lightning-ssl")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*(launcher if start == "torchrun" else []), program, "fit", *FLAGS, "--trainer.max_epochs=10000"]
    started = subprocess.Popen([*command, f"--runs={tmp_path}", "--trainer.devices=2", "--trainer.strategy=ddp"])
    while not (found := list(tmp_path.glob("*/checkpoints/*.ckpt"))):
        assert started.poll() is None
        time.sleep(0.1)
    started.terminate()
    assert started.wait(timeout=600) == (1 if start == "torchrun" else -signal.SIGTERM)
    run = RunFolder(found[0].parent.parent)
    assert run.summary()["status"] == "interrupted"
    assert checkpoints.damage(run.step_checkpoints()[0]) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_while_the_second_rank_starts_stops_both(number, tmp_path):
    program = os.path.join(os.path.dirname(sys.executable), "lightning-ssl")
    command = [program, "fit", *FLAGS, "--trainer.max_epochs=10000", f"--runs={tmp_path}", "--name=run"]
    started = subprocess.Popen([*command, "--trainer.devices=2", "--trainer.strategy=ddp"], start_new_session=True)
    while not descendants(started.pid):
        assert started.poll() is None
        time.sleep(0.01)
    os.killpg(started.pid, number)  # before Python has begun in the second rank
    assert started.wait(timeout=120) == (-number if number == signal.SIGTERM else 130)
    run = RunFolder(tmp_path / "run")
    assert (run.summary()["status"], run.summary()["error"]) == ("interrupted", None)
