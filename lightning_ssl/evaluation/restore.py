"""A method with the weights of a checkpoint, and the data to evaluate it on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method
from lightning_ssl.runs import RunFolder, read_checkpoint
from lightning_ssl.runs.build import build_method


class TrainedMethod(NamedTuple):
    """A method with the weights of a checkpoint, in evaluation mode, and the origin of the weights."""

    method: Method
    config: dict[str, Any]
    checkpoint: Path
    run: RunFolder | None  # the run folder that contains the checkpoint
    step: int
    version: str  # of the package at the time of training


def restore_method(path: str | Path) -> TrainedMethod:
    """Build the method of a checkpoint with its weights. The path is a checkpoint, or a run folder for its newest."""
    path = Path(path)
    run = RunFolder(path) if path.is_dir() else RunFolder(path.parent.parent)
    checkpoint = (run.newest_checkpoint() if path.is_dir() else None) or path
    content = read_checkpoint(checkpoint)
    config = content["lightning_ssl"]["config"]
    model = config["model"]
    # Without compilation: it takes longer than one pass over the images.
    uncompiled = {**model, "init_args": {**model.get("init_args", {}), "compile": False}}
    method = build_method({**config, "model": uncompiled})
    try:
        method.load_state_dict(content["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n")[2].partition("\n")[0].split())
        raise ValueError(
            f"checkpoint={str(checkpoint)!r}: its weights do not fit its configuration: {reason}"
        ) from error
    in_run = checkpoint.parent == run.checkpoints and (run.path / "summary.json").exists()
    step, version = int(content.get("global_step", 0)), str(content["lightning_ssl"].get("version", ""))
    return TrainedMethod(method.eval(), config, checkpoint, run if in_run else None, step, version)


def evaluation_data(
    config: dict[str, Any],
    name: str | None = None,
    root: str | None = None,
    options: dict[str, Any] | None = None,
    batch_size: int = 256,
) -> DataModule:
    """The data module to evaluate on: the data set of training, or another one.

    None means the value of training. The options of training apply to the data set of training only.
    """
    trained_on = config["data"]
    name = name or trained_on["name"]
    if options is None:
        options = trained_on.get("options") if name == trained_on["name"] else None
    return DataModule(
        name,
        root or trained_on.get("root", "data"),
        batch_size,
        download=trained_on.get("download", True),
        workers=trained_on.get("workers"),
        options=options,
    )
