"""Whether a run can resume from a checkpoint: the checks that Lightning leaves out, or that fail late.

Other damage makes Lightning or torch fail while they restore the state. Nothing in the run folder changes before that
(`Recorder.on_train_start`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_ssl.app.config.configuration import Parts
from lightning_ssl.app.runs.checkpoints import is_whole, load_checkpoint, require_weights, wrong_value
from lightning_ssl.base.checks import UserError
from lightning_ssl.methods import Method

KINDS = {"optimizer_states": list, "lr_schedulers": list, "loops": dict, "callbacks": dict}


def require_resumable(file: Path, parts: Parts, batches: int) -> None:
    """Refuse a checkpoint without a training's state, or with the state of another network, optimizer or data set.

    batches    number of training batches of an epoch
    """
    content = load_checkpoint(file)
    for key, kind in KINDS.items():
        if not isinstance(content.get(key), kind):
            raise UserError(f"checkpoint={str(file)!r}: it has no {key}; expected one written by `lightning-ssl fit`")
    require_weights(parts.method, content["state_dict"], file)
    if wrong := wrong_optimizer(parts.method, content["optimizer_states"]) or wrong_position(content, batches):
        raise UserError(f"checkpoint={str(file)!r}: {wrong}")
    epochs, last = content.get("epoch", 0), parts.trainer["max_epochs"]
    if last not in (None, -1) and epochs > last:
        raise UserError(f"trainer.max_epochs={last}: max_epochs must be at least {epochs}, the epochs of {file}")


def wrong_optimizer(method: Any, states: list[Any]) -> str | None:
    """Why the states do not belong to the optimizer of a method, or None. A method with an own optimizer has any."""
    if not isinstance(method, Method) or type(method).configure_optimizers is not Method.configure_optimizers:
        return None
    groups = states[0].get("param_groups") if len(states) == 1 and isinstance(states[0], dict) else None
    found, expected = describe_groups(groups), describe_groups(method.make_optimizer().param_groups)
    return None if found == expected else f"its optimizer has {found}, that of model.optimization has {expected}"


def describe_groups(groups: Any) -> str:
    """The sizes of parameter groups, and which state of them an optimizer keeps."""
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return "no parameter groups"
    sizes = ["?" if not isinstance(group.get("params"), list) else str(len(group["params"])) for group in groups]
    kept = [name for name in ("betas", "momentum") if any(name in group for group in groups)]
    return f"{' + '.join(sizes) or 'no'} parameters with {' and '.join(kept) or 'neither betas nor momentum'}"


def wrong_position(content: dict[str, Any], batches: int) -> str | None:
    """Why a training cannot continue at the batch at which the checkpoint was saved, or None."""
    place = content.get("DataModule") or {"epoch": 0, "batch": 0}
    if not isinstance(place, dict) or not all(is_whole(place.get(key)) for key in ("epoch", "batch")):
        return wrong_value("DataModule", place, "an epoch and a batch")
    if place["batch"] > batches:
        return f"it was saved at batch {place['batch']} of an epoch, and an epoch has {batches} batches now"
    return None
