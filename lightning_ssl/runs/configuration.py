"""The configuration of one run: parsed, completed, built.

| stage     | made by                   | holds                                                    | stored in        |
|-----------|---------------------------|----------------------------------------------------------|------------------|
| parsed    | `Configuration.parse`     | files and flags, checked against the classes' signatures | nowhere          |
| completed | `Configuration.parse` too | … and what follows from them: the data set's image size  | config.yaml and  |
|           |                           | and moments, the stem, the logger                        | every checkpoint |
| built     | `Configuration.build`     | the objects: method, data module, callbacks              | memory           |

`stored()` is the completed configuration as plain values, the form of config.yaml and of the checkpoints. `build.py`
builds a method or a data module from that form.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse import ActionConfigFile, Namespace, get_loader, set_loader
from pytorch_lightning.cli import LightningArgumentParser

from lightning_ssl import data
from lightning_ssl._lightning import pl
from lightning_ssl.callbacks import BY_FLAG as CALLBACKS
from lightning_ssl.checks import (
    MAX_SHOWN,
    NEGATIVE_NUMBER,
    UserError,
    cut,
    require,
    require_folder_name,
    require_line,
    require_seed,
    shown,
)
from lightning_ssl.data import DataModule
from lightning_ssl.files import special_kind
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.methods import Method
from lightning_ssl.networks import NAMES as BACKBONES
from lightning_ssl.networks import stem_for
from lightning_ssl.runs import keys
from lightning_ssl.runs.arguments import check_arguments
from lightning_ssl.runs.checkpointing import Checkpoints
from lightning_ssl.runs.class_defaults import flags_of_defaults
from lightning_ssl.runs.errors import one_line, refusal
from lightning_ssl.runs.imports import explain, failure
from lightning_ssl.trust import texts_in
from lightning_ssl.untrusted import check_yaml, load_yaml, read_text

PARTS = ("trainer", "model", "data", "checkpoint", *CALLBACKS)
EXAMPLES = {"trainer": "max_epochs", "data": "name", "checkpoint": "keep"}
load_of_jsonargparse = get_loader("yaml")


@dataclass(frozen=True)
class Parts:
    """The objects of a run."""

    method: Method
    data: DataModule
    measuring: list[pl.Callback]
    checkpoints: Checkpoints
    trainer: dict[str, Any]  # arguments of `pl.Trainer`


class Configuration:
    """The completed configuration of one run, with access to its values by dotted attributes in `values`."""

    def __init__(self, parser: LightningArgumentParser, values: Namespace) -> None:
        self.parser, self.values = parser, values

    @classmethod
    def parse(cls, argv: list[str], description: str = "") -> Configuration:
        """Parse the flags of `lightning-ssl fit` and complete the result."""
        parser = make_parser(description)
        for key, value in flag_values(argv):
            check_config(value) if key == "config" else check_files(key, value)
        try:
            values = parser.parse_args([*argv, *flags_of_defaults(argv)])
        except argparse.ArgumentError as error:
            raise UserError(explain(argv) or one_line(error)) from error
        except SystemExit as stop:  # --help was printed, or a module of the user's own exits
            if stop.code and (wrong := explain(argv)):
                raise UserError(wrong) from stop
            raise
        return cls(parser, completed(values))

    @property
    def seed(self) -> int:
        seed: int = self.values.seed_everything
        return seed

    def stored(self) -> dict[str, Any]:
        """The configuration as plain values, as in config.yaml."""
        kept = self.values.clone()
        for key in keys.PLACE:
            kept.pop(key, None)
        with warnings.catch_warnings():  # a default of a class, such as a device, is stored as text
            warnings.filterwarnings("ignore", r"\s*Unable to serialize instance")
            found: dict[str, Any] = json.loads(self.parser.dump(kept, skip_unset=False, format="json"))
        arguments = found["model"].get("init_args") or {}
        if isinstance(arguments.get("importance"), str):  # a function of the user's own, in the form of a class
            arguments["importance"] = {"class_path": arguments["importance"]}
        return found

    def build(self) -> Parts:
        """Seed the generators and build the objects. A class that refuses its arguments raises UserError."""
        pl.seed_everything(self.seed, verbose=False)
        seeded = self.values.clone()  # the stored seeds stay null: they follow from seed_everything
        for part in (seeded.data, seeded.model.init_args):
            if "seed" in part and part.seed is None:
                part.seed = self.seed
        try:
            built = self.parser.instantiate(seeded)
        except Exception as error:
            raise failure(error, self.stored()) or refusal(error) from error
        if isinstance(getattr(built.model, "loss", None), PairLoss):
            built.model.loss.key = "model.importance"
        measuring = [built[key] for key in CALLBACKS if built[key] is not None]
        return Parts(built.model, built.data, measuring, built.checkpoint, dict(built.trainer))


def completed(values: Namespace) -> Namespace:
    """Fill in what follows from the configuration: the data set's size and moments, the stem, the logger."""
    values.runs, values.data.root = (os.path.expanduser(path) for path in (values.runs, values.data.root))
    check_run_flags(values)
    check_arguments("model", values.model)
    model, data_module = values.model.init_args, values.data
    wrong = [key for key in data_module.options or {} if not isinstance(key, str)]
    require(not wrong, "data.options", data_module.options, "a dictionary with names as its keys")
    info = data.info(data_module.name, data_module.root, **(data_module.options or {}))
    for key in ("image_size", "mean", "std"):
        if key in model and model[key] is None:
            model[key] = getattr(info, key)
    if "stem" in model and model.stem is None and model.backbone in BACKBONES:
        model.stem = stem_for(model.image_size)
    if values.trainer.accelerator == "cpu":
        values.trainer.sync_batchnorm = False
    if values.logger is None:
        values.logger = "wandb" if os.environ.get("WANDB_SWEEP_ID") else "none"
    return values


def check_run_flags(values: Namespace) -> None:
    """Refuse a seed that a generator does not accept, and names that a file system does not accept."""
    require_seed("seed_everything", values.seed_everything)
    if values.name is not None:
        require_folder_name("name", values.name)
    require_line("runs", values.runs)
    above = next(path for path in (Path(values.runs), *Path(values.runs).absolute().parents) if path.exists())
    require(above.is_dir(), "runs", values.runs, f"a folder: {above} is a file")
    for key, texts in (("group", [values.group]), ("tags", values.tags)):
        for text in texts:
            if text is not None:
                require_line(key, text)


def flag_values(argv: list[str]) -> Iterator[tuple[str, str]]:
    """The flags of a command line and their values."""
    for number, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag.startswith("-") and (equals or argv[number + 1 :]):
            yield "config" if flag == "-c" else flag.lstrip("-"), value if equals else argv[number + 1]


def check_files(key: str, value: Any) -> None:
    """Refuse a value that names a pipe, and a part that names a file which cannot be read.

    jsonargparse reads the file that a text names. It would wait for the writer of a pipe.
    """
    for where, text in texts_in(value, key):
        require(special_kind(Path(text)) != "a pipe", where, text, "a value or a regular file: it is a pipe")
        if text.lstrip().startswith(("{", "[")):
            check_duplicates(where, text)
    if key in PARTS and isinstance(value, str) and os.path.isfile(value):
        read_text(Path(value), key=key)


def check_duplicates(key: str, text: str) -> None:
    """Refuse a value in which a key is given twice. jsonargparse would say that its type is wrong."""
    try:
        load_yaml(text)
    except ValueError as error:
        if "duplicate key" in str(error):
            raise UserError(f"{key}={cut(text, MAX_SHOWN)}: {error}") from error


def check_config(given: str) -> None:
    """Refuse a file, or a text, that holds no configuration. The errors of jsonargparse do not name the file."""
    where, is_text = f"config={cut(given, MAX_SHOWN)}", given.lstrip().startswith(("{", "["))
    require(bool(given.strip()), "config", given, "a YAML file")
    text = given if is_text else read_text(Path(given), key="config")
    try:
        content = load_yaml(text)
    except ValueError as error:
        raise UserError(f"{where}: not YAML: {error}") from error
    if not isinstance(content, dict) or not (content or is_text):
        what = "an empty file" if not content else type(content).__name__
        raise UserError(f"{where}: expected `trainer`, `model`, `data`, … and found {what}")
    for key, value in content.items():
        if not isinstance(key, str):
            raise UserError(f"{where}: the key {key!r} is not text")
        check_files(key, value)
        check_classes(key, value)
        if key in EXAMPLES and not isinstance(value, dict):
            raise UserError(f"{where}: {key}={shown(value)}: expected keys below it, such as {EXAMPLES[key]}")


def check_classes(key: str, tree: Any) -> None:
    """Refuse a class_path that is not text, and init_args that are not a mapping. jsonargparse names neither."""
    if isinstance(tree, list):
        for number, item in enumerate(tree):
            check_classes(f"{key}[{number}]", item)
    if not isinstance(tree, dict):
        return
    for name, value in tree.items():
        if name == "class_path" and not isinstance(value, str):
            raise UserError(f"{key}.class_path={shown(value)}: expected the name or the path of a class")
        if name == "init_args" and "class_path" in tree and not isinstance(value, dict):
            raise UserError(f"{key}.init_args={shown(value)}: expected a mapping")
        check_classes(key if name == "init_args" else f"{key}.{name}", value)


def load_checked(text: str) -> Any:
    """Load YAML as jsonargparse does, within the limits of `untrusted`."""
    check_yaml(text)
    return load_of_jsonargparse(text)


set_loader("yaml", load_checked, (yaml.YAMLError,))


def make_parser(description: str = "") -> LightningArgumentParser:
    """The parser of `lightning-ssl fit`: Lightning's Trainer, a method, a data module, and the flags of a run."""
    parser = LightningArgumentParser(
        exit_on_error=False, allow_abbrev=False, description=description, prog="lightning-ssl fit"
    )
    parser._negative_number_matcher = NEGATIVE_NUMBER
    parser.add_argument("-c", "--config", action=ActionConfigFile, help="a YAML file; later files and flags win")
    parser.add_argument("--seed_everything", type=int, default=0, help="seed of weights, batches and views")
    add_run_flags(parser)
    parser.add_lightning_class_args(pl.Trainer, "trainer")
    defaults = {
        "max_epochs": 100,
        "log_every_n_steps": 10,
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "sync_batchnorm": torch.cuda.is_available(),  # torch's refuses tensors on a CPU
    }
    parser.set_defaults({f"trainer.{key}": value for key, value in defaults.items()})
    parser.add_lightning_class_args(Method, "model", subclass_mode=True)
    parser.add_lightning_class_args(DataModule, "data")
    parser.add_lightning_class_args(Checkpoints, "checkpoint")
    for key, kind in CALLBACKS.items():
        path = f"{kind.__module__.rpartition('.')[0]}.{kind.__name__}"
        parser.add_argument(f"--{key}", type=kind | None, default={"class_path": path}, help=f"{path}, or null")
    return parser


def add_run_flags(parser: LightningArgumentParser) -> None:
    """Flags that say where a run is, and how it is tracked."""
    parser.add_argument("--runs", type=str, default="runs", help="folder of run folders")
    parser.add_argument("--name", type=str | None, default=None, help="name of the run folder; generated if not given")
    parser.add_argument(
        "--resume", type=str, default="auto",
        help="auto: resume the run if it was stopped; never; or a run folder or checkpoint to resume from",
    )  # fmt: skip
    parser.add_argument(
        "--logger",
        type=Literal["none", "csv", "tensorboard", "wandb"] | None,
        default=None,
        help="log besides the run folder: csv and tensorboard write into it; wandb is the default under a sweep agent",
    )
    parser.add_argument("--group", type=str | None, default=None, help="name of a set of runs, such as a sweep's name")
    parser.add_argument("--tags", type=list[str], default=[], help="words to find the run by")
