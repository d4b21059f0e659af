"""A run folder, mirrored to Weights & Biases: `--logger wandb`, and without being asked under `wandb agent`.

    export WANDB_API_KEY=…                                    or `wandb login`, once
    lightning-ssl fit --config … --logger wandb               project: WANDB_PROJECT, or lightning_ssl
    wandb sync RUNS/NAME/wandb/offline-run-*                  what was kept while there was no key or no server

The folder comes first and is complete without W&B, so nothing here may stop training or ask a question: without a key,
or when the server does not answer, the run is kept offline (see connection.py). A resumed run continues in the W&B run
whose id is in its summary.json.

In W&B a run has the words that one filters and groups by at the top of its configuration (`loss: Direct`,
`method: AlphaCL`, `p: 4`, `lr`, `batch_size` …) and everything else below `settings`: sweeps write the flags that they
choose, such as `model`, beside them, and W&B lets those win over ours of the same name.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_ssl import runs
from lightning_ssl.methods import Method
from lightning_ssl.runs import Run
from lightning_ssl.runs.labels import flatten, label_of
from lightning_ssl.tracking import connection

PROJECT = "lightning_ssl"
PROBES = ("online/", "knn/")


def wandb_logger(run: Run, config: dict[str, Any]) -> Mirror:
    """The mirror of a run folder; of all ranks only the first talks."""
    return Mirror(run, config)


class Mirror(WandbLogger):
    """Lightning's logger for W&B, which never fails."""

    def __init__(self, run: Run, config: dict[str, Any]) -> None:
        sweep = os.environ.get("WANDB_SWEEP_ID")
        super().__init__(
            name=run.path.name,
            save_dir=run.path,
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.summary().get("wandb", {}).get("id"),
            group=config.get("group") or sweep or os.environ.get("WANDB_RUN_GROUP"),
            job_type="fit",
            tags=config.get("tags") or None,
            config=described(config),
            settings=connection.settings(),
        )
        self.run = run
        self.best: dict[str, float] = {}
        self.lost = False
        self._wandb_init.pop("anonymous", None)
        if sweep:  # the agent has chosen both, and W&B warns of others
            self._wandb_init |= {"project": None, "id": None}

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run, begun when first asked for."""
        if self._experiment is None:
            self._experiment = self.begin()
            self._experiment.define_metric("trainer/global_step")
            self._experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        return self._experiment

    def begin(self) -> Any:
        """Online if it can be, else offline, and if the disk does not take it either, not at all."""
        self.best = dict(self.run.summary().get("best", {}))
        chosen, reason = connection.mode()
        for mode in dict.fromkeys((chosen, "offline", "disabled")):
            try:
                found = wandb.init(mode=mode, **self._wandb_init)  # type: ignore[arg-type]
                break
            except Exception as error:  # whatever it is, the run goes on
                reason = connection.told(error)
        else:
            raise ValueError(f"logger='wandb': {reason}")
        if found.disabled:
            print(f"W&B: {reason}; nothing is kept for it", file=sys.stderr, flush=True)
            return found
        if found.offline:
            kept = f"kept in {self.run.path / 'wandb'} for `wandb sync`"
            print(f"W&B: {reason}; {kept}", file=sys.stderr, flush=True)
        else:
            print(f"W&B: {found.url}", flush=True)
        url = None if found.offline else found.url
        about = {"id": found.id, "project": found.project, "entity": found.entity or None, "url": url}
        self.run.update_summary(wandb=about)
        return found

    # -- what Lightning tells ------------------------------------------------------------------------------------------

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the configuration is given when the run begins."""

    @rank_zero_only
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.safely(lambda: super(Mirror, self).log_metrics(metrics, step))
        better = {name: float(value) for name, value in metrics.items() if self.is_best(name, float(value))}
        if better:
            self.best |= better
            self.safely(lambda: self.experiment.summary.update({f"best/{name}": better[name] for name in better}))

    def is_best(self, name: str, value: float) -> bool:
        if not name.startswith(PROBES):
            return False
        if name not in self.best:
            return math.isfinite(value)
        return value < self.best[name] if runs.LOWER_IS_BETTER.search(name) else value > self.best[name]

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Say how it ended, and wait for W&B to have it, within bounds."""
        if self._experiment is None:
            return
        summary = self.run.summary()
        last, best = summary.get("last", {}), summary.get("best", {})
        final: dict[str, Any] = {name: value for name, value in last.items() if name.startswith(PROBES)}
        final |= {f"best/{name}": value for name, value in best.items() if name.startswith(PROBES)}
        final |= {key: summary[key] for key in ("status", "error", "duration") if summary.get(key) is not None}
        self.safely(lambda: self.experiment.summary.update(final))
        self.safely(lambda: self.experiment.finish(exit_code=0 if status == "success" else 1))
        self._experiment = None

    def safely(self, action: Callable[[], object]) -> None:
        """Training goes on without its mirror, which is given up when it breaks."""
        if self.lost:
            return
        try:
            action()
        except Exception as error:  # the client's own process may have died, a disk may be full
            self.lost = True
            line = f"W&B: {connection.told(error)}; `wandb sync` uploads what is in {self.run.path / 'wandb'}"
            print(line, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# What W&B is told of a run


def described(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration for W&B: words to filter by, then all of it."""
    model, data, trainer = config["model"], config["data"], config["trainer"]
    args = model.get("init_args", {})
    short = runs.label_of(config).split()
    found: dict[str, Any] = {
        "method": short[0],
        "loss": short[-1],
        "dataset": data["name"],
        "batch_size": data["batch_size"],
        "backbone": args.get("backbone"),
        "augment": args.get("augment"),
        "optimizer": (args.get("optimization") or {}).get("name"),
        "lr": (args.get("optimization") or {}).get("lr"),
        "epochs": trainer["max_epochs"],
        "seed": config["seed_everything"],
        "version": runs.version(),
    }
    network = inspect.signature(Method.__init__).parameters
    part: Any = model
    while isinstance(part, dict) and "class_path" in part:
        args = part.get("init_args") or {}
        for name, value in args.items():
            if name not in network and isinstance(value, bool | int | float | str):
                found.setdefault(name, value)
        part = args.get("importance") or args.get("family")
    return {"label": label_of(flatten(config)), **found, "settings": config}
