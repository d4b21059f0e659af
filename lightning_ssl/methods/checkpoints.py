"""Load a method from a checkpoint: its class and arguments are plain values, built without running code of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.base.tree import Group, build, find_class, import_path
from lightning_ssl.base.trust import require_trusted

if TYPE_CHECKING:
    from lightning_ssl.methods.base import Method

M = TypeVar("M", bound="Method")
KEY = "hyper_parameters"
# What version 0.1 added to the arguments for Lightning, which built the method with jsonargparse.
ADDED = ("_class_path", "_instantiator")


def read(checkpoint: Any, map_location: Any, weights_only: bool) -> dict[str, Any]:
    """The content of a file, a URL, or an open file."""
    if str(checkpoint).startswith("http"):
        content = torch.hub.load_state_dict_from_url(
            str(checkpoint), map_location=map_location, weights_only=weights_only
        )
    else:
        file = Path(checkpoint) if isinstance(checkpoint, str) else checkpoint
        content = torch.load(file, map_location=map_location, weights_only=weights_only)
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise UserError(f"checkpoint={str(checkpoint)!r}: it has no state_dict; expected a checkpoint of a training")
    return content


def load_method(
    base: type[M], content: dict[str, Any], replaced: Mapping[str, Any], strict: bool, allow: Sequence[str] | None
) -> M:
    """Build the method of a checkpoint, and load its weights. The arguments in `replaced` win over the checkpoint's."""
    stored = content[KEY] if isinstance(content.get(KEY), Mapping) else {}
    ours = content.get("lightning_ssl")
    model = ours["config"]["model"] if isinstance(ours, Mapping) else {}
    path = stored.get("_class_path", model.get("class_path", import_path(base)))
    arguments = {name: value for name, value in stored.items() if name not in (*ADDED, *replaced)}
    require_trusted({"class_path": path, "init_args": arguments}, KEY, allow)
    kind = find_class(path, [base], KEY)
    known = {name: each for name, each in arguments_of(kind).items() if name not in replaced}
    method: M = kind(**build(arguments, Group(dict, known), KEY), **replaced)
    method.on_load_checkpoint(content)
    method.load_state_dict(content["state_dict"], strict=strict)
    device = next((value.device for value in content["state_dict"].values() if isinstance(value, Tensor)), None)
    return method.to(device)
