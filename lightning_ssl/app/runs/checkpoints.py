"""Checkpoint files: reading one safely, and finding damage. Importing this module does not import torch.

A checkpoint is untrusted until `load_checkpoint` has checked its shape:

    lightning_ssl.config      model: class_path and init_args; data: name, root and options, if a DataModule was used
    state_dict                the weights by name
    epoch, global_step        whole numbers from 0

The classes that it names are checked where they are built (`trust.py`).
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.files import special_kind
from lightning_ssl.base.untrusted import check_nested, one_line, printable

if TYPE_CHECKING:
    import torch
    from torch import nn

SHOWN = 2  # weights in a message


def damage(file: Path) -> str | None:
    """What is wrong with a checkpoint file, or None. The archive has a checksum of every byte."""
    if kind := special_kind(file):
        return f"it is {kind}"
    try:
        with zipfile.ZipFile(file) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                return "a compressed archive, which torch does not write"
            broken = archive.testzip()
        return None if broken is None else f"bad checksum of {printable(broken)}"
    except Exception as error:  # a damaged header makes zipfile raise many kinds of errors
        return one_line(error)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """Load a checkpoint of this package, as plain values and tensors on the CPU. No code in it is run."""
    found = load_archive(file)
    if not has_form(found):
        expected = "expected one written by `lightning-ssl fit` or `lightning-ssl import-bolts`"
        raise UserError(f"checkpoint={str(file)!r}: {expected}")
    content: dict[str, Any] = found
    return content


def load_archive(file: Path) -> Any:
    """Load plain values and tensors from a file of `torch.save`. No code in it is run."""
    import torch  # late: readers of run folders start without it

    if not file.exists():
        raise UserError(f"checkpoint={str(file)!r}: no such file; expected a checkpoint or a run folder")
    if reason := damage(file):
        raise UserError(f"checkpoint={str(file)!r}: not a readable checkpoint ({reason})")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch asks to report a file that it refuses
            content = torch.load(file, map_location="cpu", weights_only=True)
        check_nested(content)
        return content
    except Exception as error:  # an unpickler can raise anything
        raise UserError(f"checkpoint={str(file)!r}: {unreadable(error)}") from error


def unreadable(error: Exception) -> str:
    """Why `torch.load(weights_only=True)` failed. torch's own text advises to load the file without this check."""
    if isinstance(error, pickle.UnpicklingError):
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it has a {named[1]}" if named else "not a readable checkpoint"
        return f"{what}, and only tensors and plain values are read"
    return f"not a readable checkpoint ({printable(error).strip().partition(chr(10))[0] or type(error).__name__})"


def has_form(found: Any) -> bool:
    """Whether the content of a checkpoint has the parts above, each of its type."""
    match found:
        case {"lightning_ssl": {"config": {"model": {"class_path": str(), **model}, **config}}, "state_dict": state}:
            data: Any = config.get("data") or {}  # a training from Python can have other data than a DataModule
            mappings = [state, model.get("init_args", {}), data]
            if not all(map(has_names, mappings)) or not has_names(data.get("options") or {}):
                return False
            texts = [data.get("name", ""), data.get("root", "")]
            counts = [found.get(key, 0) for key in ("epoch", "global_step")]
            return all(map(is_whole, counts)) and all(isinstance(text, str) for text in texts)
    return False


def has_names(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def require_weights(module: nn.Module, state: Mapping[str, Any], file: Path) -> None:
    """Refuse weights of another network: the error names the first mismatches and their number."""
    expected = {name: form_of(value) for name, value in module.state_dict().items() if hasattr(value, "shape")}
    found = {name: form_of(value) if is_whole_tensor(value) else "unknown" for name, value in state.items()}
    wrong = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if wrong:
        first = "; ".join(
            f"{printable(name)} is {found.get(name, 'absent')} instead of {expected.get(name, 'absent')}"
            for name in wrong[:SHOWN]
        )
        count = f"({len(wrong)} of {len({**expected, **found})} differ)"
        raise UserError(f"checkpoint={str(file)!r}: its weights do not fit the network {count}: {first}")


def form_of(value: torch.Tensor) -> str:
    """The shape of a tensor, and whether it has real numbers. Their precision can differ."""
    kind = "" if value.is_floating_point() else " of integers" if not value.is_complex() else " of complex numbers"
    return f"{tuple(value.shape)}{kind}"


def is_whole_tensor(value: Any) -> bool:
    """Whether a value is a tensor whose elements are all in the file. A view can have more elements than memory."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()
