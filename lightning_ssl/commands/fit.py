"""`lightning-ssl fit`: train one model in one run folder.

    lightning-ssl fit --config configs/quickstart.yaml
    lightning-ssl fit --config configs/data/cifar10.yaml --config configs/method/direct.yaml --seed_everything 1
    lightning-ssl fit --config configs/quickstart.yaml --model AlphaCL --model.importance Direct --model.importance.p 6
    lightning-ssl fit … --trainer.devices 4 --trainer.strategy ddp      data.batch_size is that of all ranks together
    lightning-ssl fit … --print_config                                  what would be run

Later files and flags win. The run is in RUNS/NAME; the same command continues it if it was killed (`--resume never`
begins another one). `--probe null`, `--knn null`, `--spectrum null`, `--importance_monitor null` switch a callback off.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
import yaml  # type: ignore[import-untyped]
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lightning_ssl import data, runs
from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe
from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method
from lightning_ssl.networks import stem_for
from lightning_ssl.runs import Run
from lightning_ssl.runs.errors import one_line, refusal
from lightning_ssl.runs.recorder import Checkpoints, Recorder, RunLogger, WholeFiles

CALLBACKS = {
    "probe": OnlineProbe,
    "knn": OnlineKNN,
    "spectrum": FeatureSpectrum,
    "importance_monitor": ImportanceMonitor,
}
# What does not decide a run's result: where it lies, and who is told of it.
ABOUT = ("config", "runs", "name", "resume", "logger", "group", "tags")
# What may change when a run goes on.
LENGTH = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.enable_progress_bar")
CHOSEN = "LIGHTNING_SSL_RUN"  # from the first process to those that it starts: the folder, and where to go on


def main(argv: list[str]) -> int:
    """Parse, choose the run folder, train, and say how it went."""
    sys.path.insert(0, os.getcwd())  # a class of the user's own, by its path
    with quiet():
        command = Fit(argv)
    command.build_objects()  # first, so that what is refused leaves no folder
    run, checkpoint = command.choose()
    if run.summary().get("status") == "finished" and checkpoint is not None and not command.goes_further(run):
        say(f"{run.path} is finished already; --resume never begins another run")
        return 0
    with run.held() if is_first() else nullcontext(), handed_down(run, checkpoint):
        return command.train(run, checkpoint, argv)


@contextmanager
def handed_down(run: Run, checkpoint: Path | None) -> Iterator[None]:
    """Let the processes that Lightning starts for other ranks find the same folder."""
    before = os.environ.get(CHOSEN)
    os.environ[CHOSEN] = json.dumps([str(run.path), checkpoint and str(checkpoint)])
    try:
        yield
    finally:
        if before is None:
            del os.environ[CHOSEN]


class Fit(LightningCLI):
    """The command line of `fit`: Lightning's, with ours beside it."""

    def __init__(self, argv: list[str]) -> None:
        super().__init__(
            Method,
            DataModule,
            save_config_callback=None,
            trainer_defaults={
                "max_epochs": 100,
                "log_every_n_steps": 10,
                "num_sanity_val_steps": 0,
                "enable_model_summary": False,
                "sync_batchnorm": torch.cuda.is_available(),  # torch's refuses tensors of a CPU
            },
            seed_everything_default=0,
            parser_kwargs={"exit_on_error": False, "description": __doc__, "prog": "lightning-ssl fit"},
            subclass_mode_model=True,
            args=argv,
            run=False,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    # -- parsing ------------------------------------------------------------------------------------------------------

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--runs", type=str, default="runs", help="folder of run folders")
        parser.add_argument("--name", type=str | None, default=None, help="the run folder's name; made up if not given")
        parser.add_argument(
            "--resume", type=str, default="auto",
            help="auto: go on if there is such a run; never; or a run folder or checkpoint to go on from",
        )  # fmt: skip
        parser.add_argument(
            "--logger",
            type=Literal["none", "wandb"] | None,
            default=None,
            help="a mirror of the run folder; wandb under a sweep agent",
        )
        parser.add_argument(
            "--group", type=str | None, default=None, help="what belongs together, such as a sweep's name"
        )
        parser.add_argument("--tags", type=list[str], default=[], help="words to find the run by")
        parser.add_lightning_class_args(Checkpoints, "checkpoint")
        for key, kind in CALLBACKS.items():
            path = f"{kind.__module__.rpartition('.')[0]}.{kind.__name__}"
            parser.add_argument(f"--{key}", type=kind | None, default={"class_path": path}, help=f"{path}, or null")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        try:
            self.config = parser.parse_args(args)
        except argparse.ArgumentError as error:
            raise ValueError(one_line(error)) from error
        self.complete()

    def complete(self) -> None:
        """Write into the configuration what follows from it: the data's info and the stem."""
        config, model, about = self.config, self.config.model.init_args, self.config.data
        seed = config.seed_everything
        if isinstance(seed, bool):
            raise ValueError(f"seed_everything={seed!r}: expected a number; a run must be repeatable")
        info = data.info(about.name, about.root, **(about.options or {}))
        for key in ("image_size", "mean", "std"):
            if key in model and model[key] is None:
                model[key] = getattr(info, key)
        if "stem" in model and model.stem is None and not model.backbone.startswith("timm:"):
            model.stem = stem_for(model.image_size)
        if config.trainer.accelerator == "cpu":
            config.trainer.sync_batchnorm = False
        if config.logger is None:
            config.logger = "wandb" if os.environ.get("WANDB_SWEEP_ID") else "none"

    def as_dict(self) -> dict[str, Any]:
        """The complete configuration as plain values."""
        kept = self.config.clone()
        for key in ("config", "runs", "name", "resume"):
            kept.pop(key, None)
        found: dict[str, Any] = yaml.safe_load(self.parser.dump(kept, skip_unset=False))
        return found

    def instantiate_classes(self) -> None:
        """Later, in `build_objects`: parsing builds nothing."""

    def build_objects(self) -> None:
        """The data module, the model and the callbacks; what they refuse is said before there is a run folder."""
        pl.seed_everything(self.config.seed_everything, verbose=False)
        seeded = self.config.clone()  # in the files seeds stay as they were asked for: they follow from one
        for part in (seeded.data, seeded.model.init_args):
            if "seed" in part and part.seed is None:
                part.seed = self.config.seed_everything
        try:
            self.config_init = self.parser.instantiate(seeded)
        except Exception as error:
            raise refusal(error) from error
        self.datamodule, self.model = self.config_init.data, self.config_init.model

    # -- where ---------------------------------------------------------------------------------------------------------

    def choose(self) -> tuple[Run, Path | None]:
        """The run folder, and the checkpoint to go on from."""
        folder, name, resume = Path(self.config.runs), self.config.name, self.config.resume
        if CHOSEN in os.environ and not is_first():
            path, checkpoint = json.loads(os.environ[CHOSEN])
            return Run(path), checkpoint and Path(checkpoint)
        if resume not in ("auto", "never"):
            return self.choose_path(Path(resume))
        if name is None and started_apart():  # such ranks must find the same name, each by itself
            job = os.environ.get("SLURM_JOB_ID") or os.environ.get("TORCHELASTIC_RUN_ID", "none")
            name = self.made_up_name() + ("" if job == "none" else f"-{job}")
        if name is None:
            found = self.unfinished(folder) if resume == "auto" else None
            if found is not None:
                return found, found.newest_checkpoint()
            return new_folder(folder / f"{self.made_up_name()}-{time.strftime('%Y%m%d-%H%M%S')}"), None
        if Path(name).name != name or name in ("", ".", ".."):
            raise ValueError(f"name={name!r}: expected the name of a folder, not a path; --runs is where it lies")
        run = Run(folder / name)
        if resume == "never":
            if run.summary() and is_first():  # where ranks are started apart, the first may have begun it already
                raise ValueError(f"name={name!r}: {run.path} exists; choose another --name, or --resume auto")
            return run, None
        checkpoint = run.newest_checkpoint()
        if checkpoint is not None and (change := self.change_since(run)):
            raise ValueError(
                f"{change}, in {run.path}; choose another --name, or --resume {run.path} to go on regardless"
            )
        return run, checkpoint

    def choose_path(self, path: Path) -> tuple[Run, Path]:
        run = Run(path if path.is_dir() else path.parent.parent)
        checkpoint = run.newest_checkpoint() if path.is_dir() else path
        if checkpoint is None or not (run.path / "config.yaml").exists():
            raise ValueError(f"resume={str(path)!r}: expected auto, never, a run folder or a checkpoint of one")
        runs.read_checkpoint(checkpoint)
        return run, checkpoint

    def made_up_name(self) -> str:
        label = runs.label_of(self.as_dict()).lower().replace(" ", "-")
        return f"{self.config.data.name}-{label}-seed{self.config.seed_everything}"

    def unfinished(self, folder: Path) -> Run | None:
        """The latest run of this very configuration that was stopped."""
        for path in sorted(folder.glob(f"{self.made_up_name()}-*"), reverse=True):
            run = Run(path)
            stopped = run.summary().get("status", "finished") != "finished" and not run.is_held()
            if stopped and run.step_checkpoints() and not self.change_since(run, may_change=()):
                say(f"going on with {run.path} (--resume never begins another run)")
                return run
        return None

    def change_since(self, run: Run, may_change: tuple[str, ...] = LENGTH) -> str | None:
        """The first key whose value decides the result and is another than in a run folder."""
        try:
            before, now = flat(run.config()), flat(self.as_dict())
        except (OSError, yaml.YAMLError):
            return "config.yaml cannot be read"
        for key in sorted(before.keys() | now.keys()):
            decides = key.split(".")[0] not in ABOUT and key not in may_change
            if decides and before.get(key) != now.get(key):
                return f"{key}={now.get(key)!r}: it was {before.get(key)!r} before"
        return None

    def goes_further(self, run: Run) -> bool:
        """Whether more epochs or steps are asked for than a finished run was asked for, and fewer of neither."""
        before, now = run.config()["trainer"], self.config.trainer
        changed = [key for key in ("max_epochs", "max_steps") if now[key] != before[key]]
        return bool(changed) and all(limit(now[key]) > limit(before[key]) for key in changed)

    # -- training -----------------------------------------------------------------------------------------------------

    def train(self, run: Run, checkpoint: Path | None, argv: list[str]) -> int:
        config = self.as_dict()
        if is_first():
            self.begin(run, checkpoint, config, argv)
        try:
            with quiet():
                self.trainer = self.make_trainer(run, config)
                self.say_what_is_local()
                self.trainer.fit(self.model, self.datamodule, ckpt_path=checkpoint, weights_only=True)
        except SIGTERMException:
            return self.stopped(run, 143)
        except SystemExit as stop:  # Lightning's, after Ctrl-C
            if run.summary().get("status") == "interrupted":
                return self.stopped(run, 130)
            raise stop
        except Exception as error:
            line = self.failed(run, error)
            if isinstance(error, (ValueError, OSError)):
                raise
            raise ValueError(f"{type(error).__name__}: {line}; {run.path / 'error.txt'} has more") from error
        if self.trainer.is_global_zero:
            print_result(run)
        return 0

    def begin(self, run: Run, checkpoint: Path | None, config: dict[str, Any], argv: list[str]) -> None:
        before = run.summary() if checkpoint is not None else {}
        if checkpoint is not None:
            run.leave_behind(checkpoint)
        run.update_summary(
            name=run.path.name,
            status="running",
            error=None,
            label=runs.label_of(config),
            command=["lightning-ssl", "fit", *argv],
            started=before.get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seed=config["seed_everything"],
            group=config["group"],
            tags=config["tags"],
            version=runs.version(),
            last=before.get("last", {}),
            best=before.get("best", {}),
            linear={},  # of other weights
        )
        run.write_config(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        where = "" if checkpoint is None else f", going on at {checkpoint.name}"
        say(f"{runs.label_of(config)} on {config['data']['name']} in {run.path}{where}")

    def make_trainer(self, run: Run, config: dict[str, Any]) -> pl.Trainer:
        asked: dict[str, Any] = dict(self.config_init.trainer)
        measuring = [self.config_init[key] for key in CALLBACKS if self.config_init[key] is not None]
        recorder = Recorder(run, self.datamodule.batch_size)
        checkpoints = self.config_init.checkpoint.into(run, config)
        loggers: list[Logger] = [RunLogger(run)]
        if isinstance(asked["logger"], (list, tuple)):
            loggers += asked["logger"]
        elif asked["logger"] not in (None, True, False):
            loggers.append(asked["logger"])
        if self.config.logger == "wandb":
            from lightning_ssl.tracking.logger import wandb_logger

            loggers.append(wandb_logger(run, config))
        asked["logger"] = loggers
        given = asked["callbacks"] or []
        asked["callbacks"] = [*measuring, *(given if isinstance(given, list) else [given]), recorder, checkpoints]
        # Under SLURM Lightning takes up a checkpoint of a requeued job that lies here, whosever it is.
        asked["default_root_dir"] = asked["default_root_dir"] or str(run.path)
        asked["plugins"] = [*as_list(asked["plugins"]), WholeFiles()]
        return pl.Trainer(**asked)

    def say_what_is_local(self) -> None:
        """One line where batch norm's statistics are of a rank and not of the batch."""
        trainer = self.trainer
        norms = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in self.model.modules())
        if trainer.world_size > 1 and norms and not self.config.trainer.sync_batchnorm:
            why = "" if torch.cuda.is_available() else " (torch synchronizes it on GPUs only)"
            say(f"batch norm's statistics are of each rank's own images{why}")

    def stopped(self, run: Run, code: int) -> int:
        say(f"stopped; the same command goes on with {run.path}")
        return code

    def failed(self, run: Run, error: Exception) -> str:
        """Nothing is lost: the summary has one line, which is returned, and error.txt everything."""
        line = str(error).strip().partition("\n")[0] or type(error).__name__
        if is_first():
            with suppress(ValueError, OSError):  # the disk may be full
                run.update_summary(status="failed", error=line)
                (run.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return line


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's advice that does not apply here, and without its news."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        for message in (
            ".*does not have many workers.*",
            ".*GPU available but not used.*",
            ".*Checkpoint directory .* exists and is not empty.*",
            ".*number of training batches .* is smaller than the logging interval.*",
            ".*lr_scheduler.step.*",
            ".*isinstance.treespec, LeafSpec.*",
            ".*litlogger.*",
            ".*callbacks used to create the checkpoint need to be provided.*",  # `--trainer.max_time` may change
            ".*It is recommended to use .*sync_dist.*",  # our values are those of all ranks already
        ):
            warnings.filterwarnings("ignore", message)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def new_folder(path: Path) -> Run:
    """A folder that nobody has: agents that start together may differ in what a name does not say."""
    agent = os.environ.get("WANDB_RUN_ID")
    path = path.with_name(f"{path.name}-{agent}") if agent else path
    number, chosen = 1, path
    while True:
        try:
            chosen.mkdir(parents=True)
            return Run(chosen)
        except FileExistsError:
            number += 1
            chosen = path.with_name(f"{path.name}-{number}")


def started_apart() -> bool:
    """Whether torchrun or SLURM started several ranks, and not Lightning."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1 or int(os.environ.get("SLURM_NTASKS", 1)) > 1


def is_first() -> bool:
    """Whether this process is the first rank; Lightning knows that before there are ranks, by the environment."""
    return getattr(rank_zero_only, "rank", 0) == 0


@rank_zero_only
def say(line: str) -> None:
    print(line, flush=True)


def as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def limit(value: int | None) -> float:
    return math.inf if value is None or value == -1 else value


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def print_result(run: Run) -> None:
    """A table of the last and best values, and where the run is."""
    from rich.console import Console
    from rich.table import Table

    summary = run.summary()
    table = Table("metric", "last", "best", title=f"{summary['label']}, seed {summary['seed']}")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in summary["last"].items():
        if name not in runs.CLOCK:
            table.add_row(name, f"{value:.4g}", f"{summary['best'].get(name, float('nan')):.4g}")
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(
        f"{summary['step']} steps in {summary['duration']:.0f} s, {summary['images_per_second'] or 0:.0f} images/s",
        highlight=False,
    )
    console.print(f"run folder: {run.path}", highlight=False, markup=False)
