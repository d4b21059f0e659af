"""LARS, the parameter groups it needs, and learning-rate schedules.

A schedule is a function of the step. It returns the factor on the base learning rate, for torch's `LambdaLR` with one
call per step:

    LambdaLR(optimizer, partial(warmup_cosine, warmup_steps=100, total_steps=1000))

A schedule has no state, so a resumed run has the same rate at every step as an uninterrupted one. `Optimization`,
`BYOL` and `Method.total_steps` check the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lightning_ssl.base.checks import require, require_positive


def parameter_groups(
    model: nn.Module, weight_decay: float = 0.0, exclude_bias_and_norm: bool = True
) -> list[dict[str, Any]]:
    """Split the trainable parameters of a model into weights and, with `exclude_bias_and_norm`, biases and norms.

    Weights have weight decay and `adapt=True`. Biases and norms, the parameters with at most one dimension, have
    neither. `LARS` reads the key `adapt`; torch's own optimizers ignore it.

    >>> [group["weight_decay"] for group in parameter_groups(nn.Linear(2, 2), weight_decay=0.1)]
    [0.1, 0.0]
    """
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": weight_decay, "adapt": True},
        {"params": [], "weight_decay": 0.0, "adapt": False},
    ]
    for p in model.parameters():
        if p.requires_grad:
            groups[exclude_bias_and_norm and p.ndim <= 1]["params"].append(p)
    return [group for group in groups if group["params"]]


# Not "mps": torch has fused kernels for it, but they ignored `found_inf` until 2026 (pytorch/pytorch#186360).
FUSED_DEVICES = ("cpu", "cuda", "xpu")


def can_fuse(device: torch.device) -> bool:
    """Whether torch's fused optimizers work on this device and take `found_inf`."""
    return device.type in FUSED_DEVICES


def adopt_loaded_state(optimizer: Optimizer) -> None:
    """Make a loaded state fit an optimizer of torch: a hook after `load_state_dict`.

    A run can resume on another kind of device, where the optimizer is fused or the memory format is another one. torch
    loads the flag `fused` with the state. Its fused optimizers need the count of steps on the device. On a CPU they
    pair the elements of a parameter and of its state by their place in memory, without a check.
    """
    fused = optimizer.defaults["fused"]
    for group in optimizer.param_groups:
        group["fused"] = fused
    for p, state in optimizer.state.items():
        for key, value in state.items():
            if key == "step" and fused:
                state[key] = value.to(p.device)
            elif isinstance(value, Tensor) and value.shape == p.shape and value.stride() != p.stride():
                state[key] = torch.empty_like(p, dtype=value.dtype).copy_(value)


class LARS(Optimizer):
    """SGD with momentum and a step proportional to the norm of each parameter (You et al. 2017, Eqn. 6).

        u = g + λ p                         λ the weight decay
        u ← u · η‖p‖ / (‖g‖ + λ‖p‖ + eps)   η the trust coefficient; skipped if p = 0 or if `adapt` is False
        v ← μ v + u,   p ← p − lr v         μ the momentum; with `nesterov` the step is u + μ v

    `adapt` is a key of a parameter group (see `parameter_groups`), True by default. As for torch's fused optimizers, a
    step with the attribute `found_inf` = 1, a tensor on the device, changes nothing. With `unscales`, as for these, a
    GradScaler leaves the division by its scale to the optimizer. Otherwise the scaler reads `found_inf` on the host.

    The steps equal those of LARS in lightning-bolts except in two cases. In bolts a group without weight decay gets
    plain SGD; here the key `adapt` decides. In bolts a gradient of exactly zero also removes the weight decay, which is
    a discontinuity; here the equation holds, and its limit is u = η p.

    >>> p = nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> p.grad = torch.tensor([0.6, -0.8])
    >>> LARS([p], lr=1.0, trust_coefficient=0.1).step()
    >>> p.data                                              # ‖p‖ = 5, ‖g‖ = 1: the ratio is 0.5
    tensor([2.7000, 4.4000])
    """

    skips_steps = True  # `found_inf` is read; app/training/guard.py asks for this attribute

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        eps: float = 1e-8,
        nesterov: bool = False,
        unscales: bool = False,
    ) -> None:
        self._step_supports_amp_scaling = unscales  # the name by which torch's GradScaler asks
        of_sgd = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, {**of_sgd, "trust_coefficient": trust_coefficient, "eps": eps, "adapt": True})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group after a check of its values and defaults."""
        group = {**self.defaults, **param_group}
        for name, end in (("lr", math.inf), ("weight_decay", math.inf), ("momentum", 1)):
            require(0 <= group[name] < end, name, group[name], f"0 or above, and below {end}")
        for name in ("trust_coefficient", "eps"):
            require_positive(name, group[name])
        possible = not group["nesterov"] or group["momentum"] > 0
        require(possible, "nesterov", group["nesterov"], "False if momentum is 0")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. A closure is called first and its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf = getattr(self, "found_inf", None)
        skip = None if found_inf is None else found_inf > 0
        scale = getattr(self, "grad_scale", None)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if scale is not None:
                        p.grad.div_(scale)
                    p.add_(self.velocity(p, group, skip), alpha=-group["lr"])
        return loss

    def velocity(self, p: Tensor, group: dict[str, Any], skip: Tensor | None = None) -> Tensor:
        """Update the momentum of a parameter and return its step divided by −lr. With `skip` the step is 0."""
        momentum = group["momentum"]
        u = p.grad.add(p, alpha=group["weight_decay"])  # type: ignore[union-attr]
        if group["adapt"]:
            u.mul_(trust_ratio(p, group).to(u.dtype))
        if skip is not None:
            u.masked_fill_(skip, 0.0)
        if momentum == 0:
            return u
        v = self.state[p].get("momentum_buffer")
        if v is None:
            v = self.state[p]["momentum_buffer"] = u.clone()
        else:
            v.mul_(momentum if skip is None else torch.where(skip, v.new_ones(()), momentum)).add_(u)
        taken = u.add(v, alpha=momentum) if group["nesterov"] else v
        return taken if skip is None else taken.masked_fill(skip, 0.0)


def trust_ratio(p: Tensor, group: dict[str, Any]) -> Tensor:
    """η‖p‖ / (‖g‖ + λ‖p‖ + eps), or 1 if p = 0: a scalar on the parameter's device."""
    dtype = torch.promote_types(p.dtype, torch.float32)  # squares overflow in half precision
    p_norm = torch.linalg.vector_norm(p, dtype=dtype)
    g_norm = torch.linalg.vector_norm(p.grad, dtype=dtype)
    ratio = group["trust_coefficient"] * p_norm / (g_norm + group["weight_decay"] * p_norm + group["eps"])
    return torch.where(p_norm > 0, ratio, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def constant(step: int) -> float:
    """1: the base learning rate at every step."""
    return 1.0


def warmup_cosine(step: int, warmup_steps: int, total_steps: int, start: float = 0.0, final: float = 0.0) -> float:
    """A linear rise from `start` to 1, then half a cosine down to `final` at `total_steps` and after.

    If `total_steps` is below `warmup_steps`, the rate only rises, as at the beginning of a longer run.

    >>> [warmup_cosine(step, warmup_steps=10, total_steps=110) for step in (0, 5, 10, 110)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if step < warmup_steps:
        return start + (1 - start) * step / warmup_steps
    if step >= total_steps:
        return final
    height = half_cosine(step - warmup_steps, total_steps - warmup_steps)
    return height + final * (1 - height)


FLAT_EPOCHS = 10  # of `released`


def released(step: int, steps_per_epoch: int) -> float:
    """The schedule of the α-CL papers' released code, for reproducing their tables only.

    It is a cosine whose half period is the number of steps per epoch, but which advances once per epoch, at the end of
    each epoch from `FLAT_EPOCHS` on (counted from 0). Epochs 0 … 10 have the full rate, epoch 11 is one advance lower.
    CIFAR in batches of 128 has 390 steps per epoch: the rate is lower by an eighth after 100 epochs, 0 in epoch 400,
    and rises afterwards.
    """
    advances = max(0, step // steps_per_epoch - FLAT_EPOCHS)
    return half_cosine(advances, steps_per_epoch)


def momentum_schedule(step: int, total: int, base: float = 0.996) -> float:
    """The momentum of BYOL's moving average: half a cosine from `base` at step 0 to 1 at step `total` and after.

        1 − (1 − base) (1 + cos(π step/total)) / 2

    >>> momentum_schedule(0, total=100), momentum_schedule(100, total=100)
    (0.996, 1.0)
    """
    height = half_cosine(min(step, total), total)
    return base * height + (1 - height)


def half_cosine(step: int, period: int) -> float:
    """(1 + cos(π step/period)) / 2: exactly 1 at step 0 and exactly 0 at `period`."""
    return (1 + math.cos(math.pi * step / period)) / 2
