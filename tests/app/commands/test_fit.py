"""`lightning-ssl fit`: a complete run folder, killed runs that resume bit for bit, errors in one line."""

import errno
import logging
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from helpers import small_fit
from helpers.outcome import assert_same, outcome
from helpers.processes.killing import fit_until_killed, in_a_fork, one_thread  # noqa: F401
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_ssl import methods
from lightning_ssl.app import cli, runs
from lightning_ssl.app.commands import fit
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.launch.signals import StopSignals
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.metrics import TIMING_METRICS
from lightning_ssl.app.training import result
from lightning_ssl.app.training.progress import TrainingBar
from lightning_ssl.app.training.trainer import check_logger, chosen_logger, make_trainer
from lightning_ssl.base.checks import RunFailed

SIMCLR = [
    *small_fit("SimCLR"), "--trainer.max_epochs=3", "--trainer.log_every_n_steps=2", "--knn.k=5",
    "--importance_monitor.every_n_steps=5",
]  # fmt: skip


def words(tmp_path, *more, name="run"):
    return [*SIMCLR, f"--runs={tmp_path}", f"--name={name}", *more]


# ---------------------------------------------------------------------------------------------------------------------
# The run folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    assert fit.main(words(folder)) == 0
    return RunFolder(folder / "run")


def test_a_run_folder_is_complete(whole):
    summary = whole.summary()
    assert summary["status"] == "finished"
    assert (summary["epoch"], summary["step"], summary["seed"], summary["label"]) == (3, 18, 0, "SimCLR InfoNCE τ=0.5")
    assert summary["loss"] == {"model": "SimCLR", "model.anchors": "both", "model.eps": 1.0, "model.tau": 0.5}
    assert (summary["data"]["data.name"], summary["settings"]["trainer.max_epochs"]) == ("shapes", 3)
    assert summary["command"][:2] == ["lightning-ssl", "fit"]
    expected = ["train/loss", "train/loss_epoch", "lr", "images_per_second", "online/top1", "online/top5", "knn/top1"]
    expected += ["spectrum/rankme", "spectrum/effective", "spectrum/std", "spectrum/alignment", "spectrum/uniformity"]
    expected += ["alpha/entropy", "alpha/effective_negatives", "alpha/zeros", "alpha/top1"]
    assert set(expected) <= summary["last"].keys()
    assert len(whole.metrics()["train/loss_epoch"].values) == 3
    assert [path.name for path in whole.step_checkpoints()] == ["step-00000018.ckpt", "step-00000012.ckpt"]


def test_config_yaml_has_derived_values_and_repeats_the_run(whole, tmp_path):
    config = whole.config()
    model = config["model"]["init_args"]
    assert (model["stem"], model["image_size"], config["seed_everything"]) == ("cifar", 32, 0)
    again = ["--config", str(whole.path / "config.yaml"), f"--runs={tmp_path}", "--name=again"]
    assert fit.main(again) == 0
    assert_same(outcome(RunFolder(tmp_path / "again")), outcome(whole))


# ---------------------------------------------------------------------------------------------------------------------
# Output


def test_the_result_comes_first_and_the_next_commands_last(whole, capsys):
    result.print_result(whole)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[1] for line in lines if line.startswith("│")]
    assert rows[:2] == ["online/top1", "knn/top1"]
    assert len(rows) == len(whole.summary()["last"]) - len(TIMING_METRICS)
    after = lines[lines.index("next:") + 1 :]
    assert [line.split()[:3] for line in after] == [
        ["lightning-ssl", "evaluate", str(whole.path)],
        ["lightning-ssl", "report", str(whole.path.parent)],
        ["lightning-ssl", "export", str(whole.path)],
    ]
    assert after[2].split()[3:5] == ["--format", "safetensors"]  # a required flag


@pytest.mark.parametrize(
    ("terminal", "flag", "expected"),
    [(False, "null", False), (True, "null", True), (True, "false", False), (False, "true", True)],
)
def test_there_is_a_progress_bar_on_a_terminal_only_unless_told(terminal, flag, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    config = Configuration.parse(words(tmp_path, f"--trainer.enable_progress_bar={flag}"))
    trainer = make_trainer(config.build(), RunFolder(tmp_path / "run"), config.stored())
    assert isinstance(trainer.progress_bar_callback, TrainingBar) == expected
    assert (trainer.progress_bar_callback is not None) == expected


@pytest.mark.parametrize(
    ("name", "file"), [("csv", "csv/version_0/metrics.csv"), ("tensorboard", "tensorboard/events.*")]
)
def test_a_logger_writes_into_the_run_folder(name, file, tmp_path):
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    run = RunFolder(tmp_path / "run")
    (logger,) = chosen_logger(name, run, {}, StopSignals())
    logger.log_metrics({"online/top1": 0.5}, step=3)
    logger.finalize("success")
    (written,) = run.path.glob(file)
    assert written.stat().st_size > 0


def test_tensorboard_is_refused_with_the_pip_line_while_it_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"logger='tensorboard': .*pip install tensorboard"):
        check_logger("tensorboard")
    check_logger("csv")


# ---------------------------------------------------------------------------------------------------------------------
# Resuming


NOISY = ["--trainer.callbacks+=WeightNoise", "--trainer.limit_train_batches=5"]
TWO_EPOCHS = ["--checkpoint.every_n_steps=2", "--trainer.max_epochs=2"]


@pytest.mark.parametrize(
    ("flags", "kills"),
    [
        (["--name=run"], [4]),  # before its first checkpoint
        (["--checkpoint.every_n_steps=4"], [5, 6]),  # without a name
        (["--model=BYOL", "--model.projector.hidden=32", "--model.predictor.hidden=32", *NOISY, *TWO_EPOCHS], [7]),
        (["--trainer.accumulate_grad_batches=2", "--trainer.val_check_interval=2", *TWO_EPOCHS], [10]),  # of batches
    ],
    ids=["before a checkpoint", "twice", "noisy BYOL", "accumulated and validated often"],
)
def test_the_same_command_resumes_a_killed_run_to_the_same_result(flags, kills, whole, tmp_path):
    argv = [*SIMCLR, *flags, f"--runs={tmp_path / 'killed'}"]
    if "--trainer.max_epochs=2" in flags:
        assert fit.main(words(tmp_path, *flags, name="whole")) == 0
        whole = RunFolder(tmp_path / "whole")
    for steps in kills:
        assert in_a_fork(fit_until_killed, argv, steps) == -signal.SIGKILL
        (run,) = runs.find(tmp_path / "killed")
        assert run.summary()["status"] == "running"
    assert fit.main(argv) == 0
    (run,) = runs.find(tmp_path / "killed")
    assert run.summary()["status"] == "finished"
    assert_same(outcome(run), outcome(whole))


def test_resuming_from_an_older_checkpoint_abandons_newer_ones(whole, tmp_path):
    copied = RunFolder(shutil.copytree(whole.path, tmp_path / "run"))
    older = copied.step_checkpoints()[-1]
    changed = [f"--resume={older}", "--model.tau=0.2", "--trainer.max_epochs=4"]
    assert fit.main([*SIMCLR, f"--runs={tmp_path}", *changed]) == 0
    assert copied.config()["model"]["init_args"]["tau"] == 0.2
    saved = runs.read_checkpoint(copied.newest_checkpoint())
    assert saved["lightning_ssl"]["config"]["model"]["init_args"]["tau"] == 0.2
    assert (copied.checkpoints / "abandoned-step-00000018.ckpt").exists()


def test_a_run_stopped_by_max_time_is_interrupted_and_resumes(tmp_path):
    endless = ["--trainer.max_epochs=10000", "--trainer.max_time=00:00:00:01"]
    assert fit.main(words(tmp_path, *endless)) == 0
    run = RunFolder(tmp_path / "run")
    assert run.summary()["status"] == "interrupted"
    step = run.summary()["step"]
    assert fit.main(words(tmp_path, f"--trainer.max_epochs={step // 6 + 2}")) == 0
    assert run.summary()["status"] == "finished"
    assert run.summary()["step"] > step


def test_seed_everything_overrides_the_seeds_of_a_configuration(whole, tmp_path):
    again = ["--config", str(whole.path / "config.yaml"), f"--runs={tmp_path}", "--name=x", "--seed_everything=3"]
    parts = Configuration.parse(again).build()
    assert (parts.method.seed, parts.data.seed) == (3, 3)


def test_fast_dev_run_takes_one_step_with_any_limits(tmp_path):
    """It replaces the limits, so those that do not fit the number of batches are not refused."""
    limits = ["--trainer.val_check_interval=1000", "--trainer.limit_train_batches=0.001"]
    assert fit.main(words(tmp_path, "--trainer.fast_dev_run=true", *limits)) == 0
    assert RunFolder(tmp_path / "run").summary()["step"] == 1


def test_a_damaged_checkpoint_falls_back_to_the_previous_one(whole, tmp_path):
    run = RunFolder(shutil.copytree(whole.path, tmp_path / "run"))
    run.update_summary(status="running")
    newest, before = run.step_checkpoints()
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1  # a single bit of some weight
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"):
        assert run.newest_checkpoint() == before
    with pytest.warns(UserWarning, match="damaged"):
        assert fit.main(words(tmp_path)) == 0
    assert_same(outcome(run), outcome(whole))


def lost(*_):
    raise RuntimeError("connection closed")


@pytest.mark.parametrize(("rank", "end"), [(0, "; .*error.txt has the traceback"), (1, "")])
def test_the_error_of_a_rank_names_error_txt_only_if_the_rank_wrote_it(rank, end, tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    monkeypatch.setattr(methods.SimCLR, "training_step", lost)
    with pytest.raises(RunFailed, match=f"^RuntimeError: connection closed{end}$"):
        fit.main(words(tmp_path))
    assert (tmp_path / "run" / "error.txt").exists() == (rank == 0)


@pytest.mark.parametrize("limit", ["--trainer.max_epochs=2", "--trainer.max_steps=12"])
def test_a_finished_run_can_be_given_more_epochs_or_steps(limit, whole, tmp_path, monkeypatch):
    """Lightning prints nothing when the run is resumed."""
    assert fit.main(words(tmp_path, limit)) == 0
    assert RunFolder(tmp_path / "run").summary()["status"] == "finished"
    printed = []
    for logger in map(logging.getLogger, ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")):
        monkeypatch.setattr(logger, "handlers", [keeper := logging.Handler()])
        monkeypatch.setattr(keeper, "emit", lambda record: printed.append(record.getMessage()))
        monkeypatch.setattr(logger, "level", logging.INFO)
    assert fit.main(words(tmp_path)) == 0
    assert printed == []
    weights = (runs.read_checkpoint(run.path)["state_dict"] for run in (RunFolder(tmp_path / "run"), whole))
    assert_same(*weights)  # the learning rate is constant


def test_a_run_folder_is_locked_by_one_process(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.lock():
        assert run.is_locked()
        with pytest.raises(ValueError, match="another process"), RunFolder(run.path).lock():
            pass
    assert not run.is_locked()


# ---------------------------------------------------------------------------------------------------------------------
# Errors: one line, exit code 2


def test_a_run_requires_a_model(capfd):
    """Every other refusal of flags and files: tests/app/hostile/."""
    assert cli.main(["fit"]) == 2
    assert "model: a run requires it" in capfd.readouterr().err


def test_a_loss_that_is_not_finite_stops_the_run_and_saves_the_weights(tmp_path, monkeypatch, capfd):
    original = methods.SimCLR.compute_loss

    def compute_loss(self, views):
        return original(self, views) * (float("nan") if self.global_step == 8 else 1.0)

    monkeypatch.setattr(methods.SimCLR, "compute_loss", compute_loss)
    assert cli.main(["fit", *words(tmp_path)]) == 2
    (line,) = filter(None, capfd.readouterr().err.splitlines())
    assert "train/loss=nan at step 8: the last finite loss was" in line
    run = RunFolder(tmp_path / "run")
    assert run.summary()["status"] == "failed"
    assert "at step 8" in run.summary()["error"]
    weights = runs.read_checkpoint(run.checkpoints / "last_finite.ckpt")["state_dict"]
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_a_full_disk_is_one_line_and_leaves_no_partial_file(tmp_path, monkeypatch, capfd):
    def replace(self, target):
        if target.suffix == ".ckpt":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.replace(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert cli.main(["fit", *words(tmp_path)]) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert list((tmp_path / "run").glob("checkpoints/*")) == []
