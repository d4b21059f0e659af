"""A method with the weights of a checkpoint, and the data to evaluate it on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lightning_ssl import data
from lightning_ssl.app.runs.checkpoints import load_checkpoint, require_weights
from lightning_ssl.app.runs.folder import RunFolder, checkpoint_file
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.tree import build as build_tree
from lightning_ssl.base.trust import OURS, is_trusted, paths_in, require_trusted
from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method

DEFAULT_ROOT = "data"


class TrainedMethod(NamedTuple):
    """A method with the weights of a checkpoint, in evaluation mode, and the origin of the weights."""

    method: Method
    config: dict[str, Any]
    checkpoint: Path
    run: RunFolder | None  # the run folder that contains the checkpoint
    step: int
    version: str  # of the package at the time of training


def restore_method(path: str | Path, trust: Sequence[str] = ()) -> TrainedMethod:
    """Build the method of a checkpoint with its weights. The path is a checkpoint, or a run folder for its newest.

    trust    modules whose classes the checkpoint may name, besides this package (`trust.py`)
    """
    path = Path(path)
    run = RunFolder(path) if path.is_dir() else RunFolder(path.parent.parent)
    checkpoint = checkpoint_file(path)
    content = load_checkpoint(checkpoint)
    config = content["lightning_ssl"]["config"]
    model = config["model"]
    # Without compilation: it takes longer than one pass over the images.
    uncompiled = {**model, "init_args": {**model.get("init_args", {}), "compile": False}}
    state = content["state_dict"]

    def build() -> Method:
        try:
            method: Method = build_tree(uncompiled, Method, "model", allow=trust)
            return method
        except UserError as error:
            raise UserError(f"checkpoint={str(checkpoint)!r}: {error}") from error

    if all(path.startswith(f"{OURS}.") for _, path in paths_in(model, "model")):  # other networks may need memory
        with torch.device("meta"):  # shapes are compared before memory is allocated
            require_weights(build(), state, checkpoint)
    method = build()
    require_weights(method, state, checkpoint)
    method.load_state_dict(state)
    in_run = checkpoint.parent == run.checkpoints and (run.path / "summary.json").exists()
    step, version = int(content.get("global_step", 0)), str(content["lightning_ssl"].get("version", ""))
    return TrainedMethod(method.eval(), config, checkpoint, run if in_run else None, step, version)


def evaluation_data(
    config: dict[str, Any],
    name: str | None = None,
    root: str | None = None,
    options: dict[str, Any] | None = None,
    batch_size: int = 256,
    trust: Sequence[str] = (),
) -> DataModule:
    """The data module to evaluate on: the data set of training, or another one.

    None means the value of training. The options of training apply to the data set of training only. Nothing is written
    to a folder that only the checkpoint names.

    trust    modules whose code the checkpoint may name as its data set
    """
    trained_on = config.get("data") or {}
    if name is None:
        name = str(trained_on.get("name", ""))
        data.require_data_set("data", name)
        require_trusted(name, "data", trust)
        if name.startswith("hf:") and not is_trusted("datasets", trust):
            raise UserError(f"data={name}: the hub is not trusted; --trust datasets or --data {name} allows it")
    if options is None:
        options = trained_on.get("options") if name == trained_on.get("name") else None
    if root is None:
        root = trained_on.get("root", DEFAULT_ROOT)
        if root != DEFAULT_ROOT and not data.is_complete(name, root):
            raise UserError(f"data.root={root!r}: {name} is not complete there; --root FOLDER says where to put it")
    return DataModule(name, root, batch_size, options=options)
