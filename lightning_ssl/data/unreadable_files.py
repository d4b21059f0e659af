"""Which image files cannot be read. The result is kept in the user's cache folder, so each folder is checked once.

The check decodes every file, JPEG at an eighth of its size, in worker processes. The cache is
`$XDG_CACHE_HOME/lightning_ssl/readable` (`~/.cache` by default). It is used while names, sizes and times of the files
stay the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.machine import available_cores
from lightning_ssl.base.untrusted import load_json, read_text
from lightning_ssl.data.pixels import UNREADABLE, as_rgb, opened, reason_of
from lightning_ssl.data.workers import decoded_batches

CHUNK = 256  # files per task of a worker
VERSION = 3  # of the check; raise it when other files become readable


def unreadable_files(folder: Path, files: list[str]) -> dict[str, str]:
    """The unreadable files and the reason for each, in the order of the files."""
    cache, state = cache_file(folder), fingerprint(files)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = load_json(read_text(cache))
        if known["files"] == state:
            return {str(file): str(why) for file, why in known["unreadable"].items()}
    chunks = torch.arange(len(files)).split(CHUNK)
    workers = min(available_cores(), len(chunks)) if len(chunks) > 1 else 0
    parts = decoded_batches(partial(reasons, files), chunks, workers)
    found = {file: why for part in parts for file, why in part if why}
    with contextlib.suppress(ValueError):  # a cache that cannot be written only costs time
        write_atomic(cache, json.dumps({"files": state, "unreadable": found}).encode())
    return found


def reasons(files: list[str], ids: Tensor) -> list[tuple[str, str]]:
    """The files at these positions, each with the reason why it is unreadable."""
    return [(files[i], why_unreadable(files[i])) for i in ids.tolist()]


def why_unreadable(file: str) -> str:
    """Why a file cannot be decoded; empty if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about metadata
            with opened(file) as encoded:
                encoded.draft("RGB", (1, 1))
                as_rgb(encoded)
    except UNREADABLE as error:
        return reason_of(error)
    return ""


def fingerprint(files: list[str]) -> str:
    """A checksum of names, sizes and times."""
    digest = hashlib.sha256(f"{VERSION}\n".encode())
    for file in files:
        with contextlib.suppress(OSError):
            state = os.stat(file)
            digest.update(os.fsencode(file) + f"\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def cache_file(folder: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    return Path(home) / "lightning_ssl" / "readable" / f"{name}.json"
