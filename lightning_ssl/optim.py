"""LARS, the groups of parameters it needs, and schedules that are functions of the step alone.

A schedule gives the factor on the base learning rate, so torch's `LambdaLR` takes it as it is, one call a step:

    LambdaLR(optimizer, partial(warmup_cosine, warmup_steps=100, total_steps=1000))

Nothing is remembered between steps: a run resumed at a step has the rate of the run that was never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lightning_ssl.checks import require, require_positive


def parameter_groups(
    model: nn.Module, weight_decay: float = 0.0, exclude_bias_and_norm: bool = True
) -> list[dict[str, Any]]:
    """Split the trainable parameters of a model into those that are decayed and adapted and those that are not.

    Biases and the scales of norms are the parameters with at most one dimension, whatever their layers are called.
    The key `adapt` is read by `LARS`; torch's own optimizers carry it along unread.
    """
    require(0 <= weight_decay < math.inf, "weight_decay", weight_decay, "a finite number, at least 0")
    trainable = [p for p in model.parameters() if p.requires_grad]
    require(bool(trainable), "model", type(model).__name__, "a module with trainable parameters")
    plain = [p for p in trainable if exclude_bias_and_norm and p.ndim <= 1]
    matrices = [p for p in trainable if not (exclude_bias_and_norm and p.ndim <= 1)]
    groups = [
        {"params": matrices, "weight_decay": weight_decay, "adapt": True},
        {"params": plain, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


class LARS(Optimizer):
    """SGD with momentum whose step is proportional to the norm of each parameter (You et al. 2017, Eqn. 6).

        u = g + λ p                         λ the weight decay
        u ← u · η‖p‖ / (‖g‖ + λ‖p‖ + eps)   η the trust coefficient; not where p = 0, nor where `adapt` is False
        v ← μ v + u,   p ← p − lr v         μ the momentum; Nesterov's step is u + μ v

    `adapt` belongs to a parameter group (see `parameter_groups`); groups without it are adapted.

    The trajectory is that of lightning-bolts' LARS but for two cases. There a group without weight decay is silently
    left to plain SGD; here `adapt` says so. There a gradient of exactly zero switches the decay off too, a jump; here
    the equation is kept, whose limit is u = η p.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        eps: float = 1e-8,
        nesterov: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
            "nesterov": nesterov,
            "adapt": True,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Check a group's own values, and those it takes from the defaults, before it is added."""
        check_group({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; a closure is called first, and its value returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self.velocity(p, group), alpha=-group["lr"])
        return loss

    def velocity(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        """What a parameter moves against, its momentum brought up to date."""
        momentum = group["momentum"]
        u = p.grad.add(p, alpha=group["weight_decay"])  # type: ignore[union-attr]
        if group["adapt"]:
            u.mul_(trust_ratio(p, group).to(u.dtype))
        if momentum == 0:
            return u
        v = self.state[p].get("momentum_buffer")
        if v is None:
            v = self.state[p]["momentum_buffer"] = u.clone()
        else:
            v.mul_(momentum).add_(u)
        return u.add(v, alpha=momentum) if group["nesterov"] else v


def trust_ratio(p: Tensor, group: dict[str, Any]) -> Tensor:
    """η‖p‖ / (‖g‖ + λ‖p‖ + eps), or 1 where p = 0: a scalar that stays on the parameter's device."""
    dtype = torch.promote_types(p.dtype, torch.float32)  # squares of half-precision numbers overflow
    p_norm = torch.linalg.vector_norm(p, dtype=dtype)
    g_norm = torch.linalg.vector_norm(p.grad, dtype=dtype)
    ratio = group["trust_coefficient"] * p_norm / (g_norm + group["weight_decay"] * p_norm + group["eps"])
    return torch.where(p_norm > 0, ratio, 1.0)


def check_group(group: dict[str, Any]) -> None:
    for name in ("lr", "weight_decay"):
        require(0 <= group[name] < math.inf, name, group[name], "a finite number, at least 0")
    require(0 <= group["momentum"] < 1, "momentum", group["momentum"], "in [0, 1)")
    for name in ("trust_coefficient", "eps"):
        require_positive(name, group[name])
    nesterov = group["nesterov"]
    require(not nesterov or group["momentum"] > 0, "nesterov", nesterov, "False where momentum is 0")


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def constant(step: int) -> float:
    """The base learning rate, always."""
    require_step("step", step)
    return 1.0


def warmup_cosine(step: int, warmup_steps: int, total_steps: int, start: float = 0.0, final: float = 0.0) -> float:
    """A line from `start` to 1 over the warm-up, then half a cosine down to `final` at `total_steps` and after.

    A run shorter than its warm-up is the beginning of a longer one.
    """
    require_step("step", step)
    require_step("warmup_steps", warmup_steps)
    require_count("total_steps", total_steps)
    for name, factor in (("start", start), ("final", final)):
        require(0 <= factor < math.inf, name, factor, "a finite factor of the learning rate, at least 0")
    if step < warmup_steps:
        return start + (1 - start) * step / warmup_steps
    if step >= total_steps:
        return final
    up = half_cosine(step - warmup_steps, total_steps - warmup_steps)
    return up + final * (1 - up)


def released(step: int, steps_per_epoch: int, flat_epochs: int = 10) -> float:
    """The schedule of the α-CL papers' released code, quirk and all: reproduce with it, do not choose it.

    The cosine's half period is the number of steps in an epoch, but it moves once per epoch, at the end of each epoch
    from `flat_epochs` (counted from 0) on: epochs 0 … 10 have the full rate, epoch 11 is one move down. CIFAR in
    batches of 128 has 390 steps per epoch: the rate is down by an eighth after 100 epochs, 0 in epoch 400, then rises.
    """
    require_step("step", step)
    require_count("steps_per_epoch", steps_per_epoch)
    require_step("flat_epochs", flat_epochs)
    moves = max(0, step // steps_per_epoch - flat_epochs)
    return half_cosine(moves, steps_per_epoch)


def momentum_schedule(step: int, total: int, base: float = 0.996) -> float:
    """The rate of BYOL's moving average: `base` at step 0, 1 at step `total` and after, half a cosine between.

    1 − (1 − base) (1 + cos(π step/total)) / 2
    """
    require_step("step", step)
    require_count("total", total)
    require(0 <= base <= 1, "base", base, "in [0, 1]")
    away = half_cosine(min(step, total), total)
    return base * away + (1 - away)


def half_cosine(step: int, period: int) -> float:
    """1 at step 0, 0 at `period`, both exactly."""
    return (1 + math.cos(math.pi * step / period)) / 2


def require_step(argument: str, value: int) -> None:
    require(value >= 0 and float(value).is_integer(), argument, value, "a whole number, at least 0")


def require_count(argument: str, value: int) -> None:
    require(value >= 1 and float(value).is_integer(), argument, value, "a whole number, at least 1")
