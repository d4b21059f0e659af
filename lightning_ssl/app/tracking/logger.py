"""Copies a run folder to Weights & Biases: `--logger wandb`. Under `wandb agent` this is the default.

    export WANDB_API_KEY=…                                    or `wandb login`, once
    lightning-ssl fit --config … --logger wandb               project: WANDB_PROJECT, or lightning_ssl
    wandb sync --include-online RUNS/NAME/wandb               upload what the server did not get

The run folder is complete without W&B, so an error of W&B never stops the training, and the client never asks a
question. Without a key, or if the server does not answer, the run is recorded offline (see connection.py). A resumed
run continues the W&B run whose id is in its summary.json.

In W&B, the keys for filters and groups are at the top level of the configuration (`loss: Direct`, `method: AlphaCL`,
`p: 4`, `lr`, `batch_size` …). The complete configuration is below `settings`, because a sweep writes its flags, such as
`model`, to the top level, and W&B gives them priority over keys of the same name.

A run that SIGTERM, SIGUSR1 or SIGHUP stops is marked as preempting. Its exit code in W&B is 143, 138 or 129. A sweep
hands it out again, to any agent. A trial of an agent is also marked at Ctrl-C (130), because nobody can repeat its
command. A run that W&B itself stops, or Ctrl-C without an agent, has 255, W&B's code of a killed run.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_ssl.app.config.keys import FLAGS, role
from lightning_ssl.app.config.labels import flatten, label_of_config, short_label
from lightning_ssl.app.launch.signals import StopSignals
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.panels import RESULTS
from lightning_ssl.app.runs.version import version
from lightning_ssl.app.tracking import connection, private
from lightning_ssl.base.checks import UserError

PROJECT = "lightning_ssl"
PROBES = tuple(f"{metric.key.partition('/')[0]}/" for metric in RESULTS.values())  # prefixes of their metrics
KILLED = 255  # W&B's exit code of a run that its user stopped


class RunFolderWandbLogger(WandbLogger):
    """Lightning's W&B logger for a run folder. Only rank 0 sends data. An error of W&B does not stop the training."""

    def __init__(self, run: RunFolder, config: dict[str, Any], signals: StopSignals | None = None) -> None:
        self.signals = signals or StopSignals()
        sweep = os.environ.get("WANDB_SWEEP_ID")
        project, run_id = os.environ.get("WANDB_PROJECT", PROJECT), run.summary().get("wandb", {}).get("id")
        super().__init__(name=run.path.name, save_dir=run.path, project=project, id=run_id)
        self.init_arguments: dict[str, Any] = {
            "name": run.path.name,
            "dir": os.fspath(run.path),
            # Under a sweep the agent chooses both, and W&B warns about other values.
            "project": None if sweep else project,
            "id": None if sweep else run_id,
            "resume": "allow",
            "group": config.get("group") or sweep or os.environ.get("WANDB_RUN_GROUP"),
            "job_type": "fit",
            "tags": config.get("tags") or None,
            "config": wandb_config(config),
            "settings": {**connection.settings(), "stop_fn": self.signals.stop_for_wandb},
        }
        self.run = run
        self.error: Exception | None = None  # the first one of W&B, which is not called again after it

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run. The first access starts it."""
        started = private.started_run(self)
        if started is None:
            started = self.start_run()
            private.set_run(self, started)
            started.define_metric("trainer/global_step")
            started.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        return started

    def start_run(self) -> Any:
        """Start a W&B run: online if possible, else offline, and disabled if the disk cannot be written."""
        chosen, reason = connection.mode()
        for mode in dict.fromkeys((chosen, "offline", "disabled")):
            try:
                started = wandb.init(mode=mode, **self.init_arguments)  # type: ignore[arg-type]
                break
            except Exception as error:  # the client raises many types; none stops the training
                reason = connection.error_line(error)
        else:
            raise UserError(f"logger='wandb': {reason}")
        if started.disabled:
            print(f"W&B: {reason}; nothing is recorded for W&B", file=sys.stderr, flush=True)
            return started
        if started.offline:
            print(f"W&B: {reason}; {self.hint}", file=sys.stderr, flush=True)
        else:
            print(f"W&B: {started.url}", flush=True)
        url = None if started.offline else started.url
        about = {"id": started.id, "project": started.project, "entity": started.entity or None, "url": url}
        self.run.update_summary(wandb=about)
        return started

    # -- calls from Lightning ------------------------------------------------------------------------------------------

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `wandb.init` gets the configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.try_to(lambda: super(RunFolderWandbLogger, self).log_metrics(metrics, step))
        best = self.run.metrics_writer.best  # the run folder's logger has the metrics already
        better = {f"best/{k}": best[k] for k, v in metrics.items() if k.startswith(PROBES) and best.get(k) == float(v)}
        if better:
            self.try_to(lambda: self.experiment.summary.update(better))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Send the final summary, and wait for the upload until a timeout."""
        if private.started_run(self) is None:
            return
        self.finish(status)
        # A timeout is the server's; after another error the client's own process has ended.
        if self.signals.number and self.error is not None and not isinstance(self.error, TimeoutError):
            # SLURM sends SIGTERM to all processes of a step. A new client reports how the run ended; what the first one
            # had not sent is on disk.
            with suppress(Exception):  # the connection to the first one is lost
                wandb.teardown()
            private.set_run(self, None)
            if not os.environ.get("WANDB_SWEEP_ID"):
                self.init_arguments["id"] = self.run.summary()["wandb"]["id"]
            self.error = None
            self.finish(status)
        private.set_run(self, None)

    def finish(self, status: str) -> None:
        """Send the final summary and the exit code."""
        summary = self.run.summary()
        last = {name: value for name, value in summary.get("last", {}).items() if name.startswith(PROBES)}
        best = {f"best/{name}": value for name, value in summary.get("best", {}).items() if name.startswith(PROBES)}
        ending = {key: summary[key] for key in ("status", "error", "duration") if summary.get(key) is not None}
        self.try_to(lambda: self.experiment.summary.update({**last, **best, **ending}))
        code = self.exit_code(status)
        self.try_to(lambda: self.experiment.finish(exit_code=code))

    def exit_code(self, status: str) -> int:
        """The exit code of the W&B run. A run that is preempted is marked: W&B hands it out again."""
        number = self.signals.number
        if status == "success" or not number:
            return 0 if status == "success" else 1
        is_trial = bool(os.environ.get("WANDB_SWEEP_ID"))
        if (number == signal.SIGINT and not is_trial) or self.is_stopped_by_wandb():
            return KILLED
        self.try_to(lambda: self.experiment.mark_preempting())
        return 128 + number

    def is_stopped_by_wandb(self) -> bool:
        """Whether W&B itself stops this run. Its agent sends SIGTERM for it, as a cluster does for a preemption."""
        run = self.experiment
        if self.signals.asked_by_wandb or run.offline or run.disabled:
            return self.signals.asked_by_wandb
        try:
            if not connection.is_reachable(run.settings):  # `wandb.Api` would try for 20 seconds
                return False
            return private.is_stopped(run.project, run.entity, run.id, connection.PING_TIMEOUT)
        except Exception:  # the server is gone, and the run will be preempted
            return False

    @property
    def hint(self) -> str:
        """How to upload the data that the server did not get. Without the flag W&B skips runs that began online."""
        return f"`wandb sync --include-online {shlex.quote(str(self.run.path / 'wandb'))}` uploads the data"

    def try_to(self, action: Callable[[], object]) -> None:
        """Call a function of W&B. After the first error W&B is not called again, and the training continues."""
        if self.error is not None:
            return
        try:
            action()
        except Exception as error:  # the client's process may have died, or the disk may be full
            self.error = error
            print(f"W&B: {connection.error_line(error)}; {self.hint}", file=sys.stderr, flush=True)


def wandb_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run for W&B: keys for filters and groups, then the complete one below `settings`."""
    args, words = config["model"].get("init_args", {}), short_label(config).split()
    optimization = args.get("optimization") or {}
    found: dict[str, Any] = {
        "method": words[0],
        "loss": words[-1],
        "dataset": config["data"]["name"],
        "batch_size": config["data"]["batch_size"],
        "backbone": args.get("backbone"),
        "augment": args.get("augment"),
        "optimizer": optimization.get("name"),
        "lr": optimization.get("lr"),
        "epochs": config["trainer"]["max_epochs"],
        "seed": config["seed_everything"],
        "version": version(),
    }
    for key, value in flatten({"model": config["model"]}).items():
        name = key.rpartition(".")[2]
        if role(key) == "loss" and key != "model" and value is not None and name not in FLAGS:  # see agent.py
            found.setdefault(name, value)
    return {"label": label_of_config(config), **found, "settings": config}
