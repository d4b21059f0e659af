"""Checkpoint files: reading one safely, and finding damage. Importing this module does not import torch."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any


def damage(file: Path) -> str | None:
    """What is wrong with a checkpoint file, or None. The archive has a checksum of every byte."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
        return None if broken is None else f"bad checksum of {broken}"
    except Exception as error:  # a damaged header makes zipfile raise many kinds of errors
        return str(error) or type(error).__name__


def load_checkpoint(file: Path) -> dict[str, Any]:
    """Load a checkpoint of this package, as plain values and tensors on the CPU. No code in it is run."""
    import torch  # late: readers of run folders start without it

    if not file.is_file():
        raise ValueError(f"checkpoint={str(file)!r}: no such file; expected a checkpoint or a run folder")
    if reason := damage(file):
        raise ValueError(f"checkpoint={str(file)!r}: not a readable checkpoint ({reason})")
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler can raise anything
        reason = str(error).partition("\n")[0]
        raise ValueError(f"checkpoint={str(file)!r}: not a readable checkpoint ({reason})") from error
    if not isinstance(found, dict) or "config" not in found.get("lightning_ssl", {}):
        raise ValueError(
            f"checkpoint={str(file)!r}: expected one written by `lightning-ssl fit` or `lightning-ssl import-bolts`"
        )
    return found
