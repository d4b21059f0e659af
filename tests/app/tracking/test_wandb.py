"""The W&B logger with a server on the loopback; no account is needed."""

import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import wandb.sdk.launch  # noqa: F401  (the client imports it; here once instead of in every process)
from helpers.processes.killing import one_thread  # noqa: F401
from helpers.processes.wandb_server import FLAGS, KEY, Server, closed_port
from helpers.run_folders import config_of, content_of, from_family
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_ssl.app.commands import fit
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.config.labels import label_of_config
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.tracking import connection, private
from lightning_ssl.app.tracking.logger import RunFolderWandbLogger, wandb_config

SMALL = [*FLAGS, "--model.importance.p=6"]
CONFIG = config_of("direct_p6")


def in_a_process(work, *arguments):
    """Run in a new process: W&B's client keeps its settings as long as a process lives."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    assert_success(process)


@pytest.fixture
def sent_by(environment):
    """Run in a process with a server. Returns the W&B run that the server got."""

    def run(work, *arguments, **variables):
        with Server() as server:
            environment({**server.environment(), **variables})
            in_a_process(work, *arguments)
        (sent,) = server.runs.values()
        return sent

    return run


def assert_success(process):
    process.join(timeout=300)
    if process.is_alive():
        process.kill()
    assert process.exitcode == 0


@pytest.fixture
def short_timeouts(monkeypatch):
    """Timeouts of a second."""
    monkeypatch.setattr(connection, "PING_TIMEOUT", 1.0)
    monkeypatch.setattr(connection, "TIMEOUTS", dict.fromkeys(connection.TIMEOUTS, 1.0))


def log_a_run(
    folder,
    metrics=({"online/top1": 0.5}, {"online/top1": 0.3}),
    then=lambda: None,
    status="success",
    stopped_by=0,
    **changes,
):
    """Make the calls of Lightning to a logger, without training."""
    run = RunFolder(folder)
    run.path.mkdir(exist_ok=True)
    logger = RunFolderWandbLogger(run, {**CONFIG, **changes})
    logger.signals.number = stopped_by
    logger.signals.store = threading.Lock()  # it cannot be copied, like the store of torch.distributed
    run.metrics_writer.open(run.summary().get("rows", 0))
    for step, values in enumerate(metrics):
        run.metrics_writer.append({"epoch": step, "step": step, **values})
        logger.log_metrics({**values, "epoch": step}, step)
    run.update_summary(rows=run.metrics_writer.rows)
    then()
    logger.log_metrics({"lr": 0.1}, len(metrics))
    logger.finalize(status)


# -- online ------------------------------------------------------------------------------------------------------------


def test_a_fit_sends_its_configuration_and_summary_and_stores_no_key(tmp_path, sent_by):
    words = [*SMALL, f"--runs={tmp_path / 'runs'}", "--name=one", "--logger=wandb", "--group=table", "--tags=[a,b]"]
    sent = sent_by(fit.main, words)
    run = RunFolder(tmp_path / "runs" / "one")
    summary = run.summary()
    assert (sent.name, sent.group, sent.job_type, sent.tags) == ("one", "table", "fit", ["a", "b"])
    assert sent.exit_code == 0
    assert {key: sent.config[key] for key in ("method", "loss", "label", "p", "batch_size", "seed")} == {
        "method": "AlphaCL", "loss": "Direct", "label": "AlphaCL Direct p=6 τ=0.5", "p": 6, "batch_size": 32, "seed": 0,
    }  # fmt: skip
    assert sent.config["version"] == summary["version"]
    assert sent.config["settings"] == json.loads(json.dumps(run.config()))
    for probe in ("online/top1", "knn/top1"):
        assert sent.summary[probe] == summary["last"][probe]
        assert sent.summary[f"best/{probe}"] == summary["best"][probe]
    rows = {key for row in sent.history for key in row}
    assert {"train/loss_epoch", "online/top1", "spectrum/rankme", "trainer/global_step"} <= rows
    assert summary["wandb"]["id"] == sent.id
    files = content_of(run.path)
    assert any("wandb" in path.parts for path in files)
    assert not [path for path, content in files.items() if KEY.encode() in content]


def test_a_resumed_run_continues_the_wandb_run_of_its_sweep_agent_and_its_best_values(tmp_path, sent_by):
    def start_and_resume():
        values = [{"online/top1": top1, "online/loss": loss} for top1, loss in ((0.5, 2.0), (0.3, 1.0), (0.4, 3.0))]
        in_a_process(log_a_run, tmp_path / "run", values[:2])
        in_a_process(log_a_run, tmp_path / "run", values[2:])

    chosen = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "chosen", "WANDB_PROJECT": "p"}
    sent = sent_by(start_and_resume, **chosen)
    assert (sent.id, sent.sweep, sent.group, sent.project, sent.opened) == ("chosen", "s1", "s1", "p", 2)
    assert [row["online/top1"] for row in sent.history if "online/top1" in row] == [0.5, 0.3, 0.4]
    assert {"online/top1": 0.4, "best/online/top1": 0.5}.items() <= sent.summary.items()
    assert {"online/loss": 3.0, "best/online/loss": 1.0}.items() <= sent.summary.items()
    assert not any(name in sent.summary for name in ("best/lr", "best/epoch"))


def test_fit_logs_to_wandb_by_default_under_a_sweep_agent(environment):
    assert Configuration.parse(SMALL).values["logger"] == "none"
    environment({"WANDB_SWEEP_ID": "s1"})
    assert Configuration.parse(SMALL).values["logger"] == "wandb"
    assert Configuration.parse([*SMALL, "--logger=none"]).values["logger"] == "none"


def test_the_label_of_a_run_is_that_of_the_report_and_needs_no_import_of_a_user_class():
    assert wandb_config(CONFIG)["label"] == label_of_config(CONFIG) == "AlphaCL Direct p=6 τ=0.5"
    model = {"class_path": "nowhere.Mine", "init_args": {"tau": 0.1}}
    assert wandb_config({**CONFIG, "model": model})["label"] == "Mine τ=0.1"


def test_a_family_is_the_loss_and_its_fields_are_keys():
    found = wandb_config({**CONFIG, "model": from_family("Triplet", margin=0.25)})
    keys = ("method", "loss", "margin", "backprop_alpha")
    assert [found[key] for key in keys] == ["AlphaCL", "Triplet", 0.25, False]
    assert not [key for key in found if "." in key]  # W&B reads a dot in a key as a nested level


@pytest.mark.parametrize(
    ("number", "sweep", "stopped", "preempting", "code"),
    [
        (signal.SIGTERM, {}, False, True, 143),
        (signal.SIGUSR1, {}, False, True, 138),
        (signal.SIGTERM, {}, True, False, 255),  # a user or hyperband stops it in W&B, and its agent sends SIGTERM
        (signal.SIGINT, {}, False, False, 255),
        (signal.SIGINT, {"WANDB_SWEEP_ID": "s"}, False, True, 130),  # nobody can repeat the command of a trial
        (0, {}, False, False, 1),  # it failed
    ],
)
def test_a_stopped_run_is_marked_as_preempting_and_has_its_error(
    number, sweep, stopped, preempting, code, tmp_path, environment
):
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run").update_summary(status="failed", error="train/loss=nan at step 3")
    with Server() as server:
        environment(server.environment() | sweep | {"WANDB_RUN_ID": "a1"})
        server.run("a1").stopped = stopped
        in_a_process(partial(log_a_run, tmp_path / "run", status="failed", stopped_by=number))
        sent = server.runs["a1"]
    assert (sent.preempting, sent.exit_code) == (preempting, code)
    assert (sent.summary["status"], sent.summary["error"]) == ("failed", "train/loss=nan at step 3")


# -- offline -----------------------------------------------------------------------------------------------------------


def offline_folders(folder):
    return list((folder / "wandb").glob("offline-run-*/*.wandb"))


UNREACHABLE = {
    "no key": ({}, {"WANDB_API_KEY": ""}, "there is no key"),
    "a malformed key": ({}, {"WANDB_API_KEY": "too-short"}, ""),
    "a refused key": ({"unauthorized": True}, {}, ""),
    "only HEAD is answered": ({"head_only": True}, {}, ""),
    "no answer": ({"silent": True}, {}, "does not answer"),
    "a closed port": ({}, {"WANDB_BASE_URL": f"http://127.0.0.1:{closed_port()}"}, "does not answer"),
}


@pytest.mark.parametrize(("server", "variables", "reason"), UNREACHABLE.values(), ids=UNREACHABLE)
def test_without_a_server_a_run_is_offline_and_prints_one_line(
    tmp_path, environment, short_timeouts, capfd, server, variables, reason
):
    with Server(**server) as running:
        environment({name: value for name, value in {**running.environment(), **variables}.items() if value})
        in_a_process(log_a_run, tmp_path / "run")
        if reason:  # it is known without a request, or after one connection
            assert running.operations == []
            assert running.connections == ("silent" in server)
    assert offline_folders(tmp_path / "run")
    output = capfd.readouterr()
    (line,) = output.err.splitlines()
    assert reason in line
    assert "wandb sync" in line
    assert KEY not in line
    assert "too-short" not in line
    assert not output.out


def test_the_key_of_wandb_login_is_used(tmp_path, environment):
    (tmp_path / "home").mkdir()
    with Server() as server:
        machine = server.url.removeprefix("http://")
        (tmp_path / "home" / ".netrc").write_text(f"machine {machine}\n  login user\n  password {KEY}\n")
        environment({"WANDB_BASE_URL": server.url})
        in_a_process(log_a_run, tmp_path / "run")
        assert len(server.runs) == 1


@pytest.mark.parametrize(("mode", "rank"), [("disabled", 0), ("online", 1)])
def test_a_disabled_client_and_other_ranks_send_and_write_nothing(mode, rank, tmp_path, environment, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    with Server() as server:
        environment({**server.environment(), "WANDB_MODE": mode})
        in_a_process(log_a_run, tmp_path / "run")
        assert server.operations == []
    assert {file.name for file in content_of(tmp_path / "run")} == {"metrics.jsonl", "summary.json"}


def test_an_invalid_wandb_mode_is_rejected(tmp_path, environment):
    def refused():
        with pytest.raises(ValueError, match=r"^W&B's settings: .* mode .*'offline'"):
            _ = RunFolderWandbLogger(RunFolder(tmp_path), CONFIG).experiment

    environment({"WANDB_MODE": "maybe"})
    in_a_process(refused)


def test_all_timeouts_together_are_within_half_a_minute(tmp_path, environment, monkeypatch):
    added_by_client = 10.0  # to init_timeout
    assert connection.PING_TIMEOUT + sum(connection.TIMEOUTS.values()) + added_by_client <= 30

    def all_are_used():
        timeouts = []
        monkeypatch.setattr(connection.requests, "head", lambda url, **options: timeouts.append(options["timeout"]))
        assert connection.mode()[0] == "online"
        assert timeouts == [connection.PING_TIMEOUT]
        settings = RunFolderWandbLogger(RunFolder(tmp_path), CONFIG).init_arguments["settings"]
        assert settings.items() >= connection.TIMEOUTS.items()
        assert settings["finish_timeout_raises"]

    environment({"WANDB_BASE_URL": f"http://127.0.0.1:{closed_port()}", "WANDB_API_KEY": KEY})
    in_a_process(all_are_used)


def signal_client(number):
    """Send a signal to W&B's client, which is a child process."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    for child in children:
        os.kill(int(child), number)
    assert children
    time.sleep(0.5)


needs_proc = pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(), reason="needs /proc to find child processes"
)


@needs_proc
def test_a_preemption_is_reported_even_if_the_client_gets_the_signal_too(tmp_path, sent_by):
    """SLURM sends SIGTERM to all processes of a step, and W&B's client ends at it."""
    then = partial(signal_client, signal.SIGTERM)
    sent = sent_by(partial(log_a_run, tmp_path / "run", then=then, status="failed", stopped_by=signal.SIGTERM))
    assert (sent.preempting, sent.exit_code, sent.opened) == (True, 143, 2)


@needs_proc
def test_a_killed_client_prints_one_line(tmp_path, sent_by, capfd):
    sent_by(partial(log_a_run, tmp_path / "run", then=partial(signal_client, signal.SIGKILL)))
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("W&B")]
    assert "wandb sync" in line


@pytest.mark.parametrize(
    ("silent", "end"),
    [(False, {}), (True, {}), (False, {"status": "failed", "stopped_by": signal.SIGTERM})],
    ids=["closed port", "no answer", "preempted"],
)
def test_a_server_that_stops_during_a_run_prints_one_line(tmp_path, environment, monkeypatch, capfd, silent, end):
    """The client retries until `finish_timeout`; the data is on disk."""
    monkeypatch.setitem(connection.TIMEOUTS, "finish_timeout", 1.0)
    # A question to a dead server takes 20 seconds.
    monkeypatch.setattr(private, "is_stopped", lambda *_: print("asked", file=sys.stderr))
    logged, stopped = (multiprocessing.get_context("fork").Event() for _ in range(2))

    def then():
        logged.set()
        assert stopped.wait(60)

    with Server() as server:
        environment(server.environment())
        process = multiprocessing.get_context("fork").Process(
            target=log_a_run, args=(tmp_path / "run",), kwargs={"then": then, **end}
        )
        process.start()
        assert logged.wait(60)
        server.silent = silent
        if not silent:
            server.stop()
        stopped.set()
        assert_success(process)
    (line,) = capfd.readouterr().err.splitlines()
    assert list((tmp_path / "run" / "wandb").glob("run-*/*.wandb"))
    with Server() as server:  # it is back, and the printed command uploads the run
        environment(server.environment())
        _, command, _ = line.split("`")
        program = Path(sys.executable).with_name("wandb")
        subprocess.run([program, *shlex.split(command)[1:]], check=True, capture_output=True)
        (sent,) = server.runs.values()
    assert [row["online/top1"] for row in sent.history if "online/top1" in row] == [0.5, 0.3]
