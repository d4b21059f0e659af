"""`WeightNoise`: noise on the weights or on the gradient, as in Table 2 of the dual-network paper.

The paper adds "η · XavierInit(W)" "to the gradient update rule", with η = 0.01, and does not say where in Adam's rule.
With Ξ drawn as Xavier's initialization draws W, three equations can be meant, and the released code has a fourth:

    added_to      equation                               when
    "gradient"    g ← g + η Ξ                            at each step, before the optimizer (and before clipping)
    "update"      W ← W − lr · step(g) + lr · η Ξ        at each step
    "weights"     W ← W − lr · step(g) + η Ξ             at each step
    "epoch"       W ← (1 − η) W + η Ξ                    before each epoch, as in the released code

Ξ_ij is normal with variance 2/(fan_in + fan_out), and for "epoch" uniform with this variance, as in the released code.
Only matrices and convolutions get noise; biases and the scales of norms do not.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require
from lightning_ssl.base.facts import Metric, Panel
from lightning_ssl.base.seeding import generator_of
from lightning_ssl.callbacks.log import log_now

__all__ = ["WeightNoise"]

AddedTo = Literal["update", "gradient", "weights", "epoch"]


class WeightNoise(pl.Callback):
    """Adds noise Ξ, drawn as Xavier's initialization, to every trained matrix and convolution.

        added_to="gradient"   g ← g + η Ξ at each step, before the optimizer
        added_to="update"     W ← W + lr · η Ξ after each step
        added_to="weights"    W ← W + η Ξ after each step
        added_to="epoch"      W ← (1 − η) W + η Ξ before each epoch, as in the released code

    std       η
    seed      Ξ is a function of (seed, step): a resumed run and every rank add the same noise, and the global generator
              is not used; None takes the method's seed
    added_to  one of the equations above

    At log steps `noise/relative` is ‖noise‖ / ‖the optimizer's step‖; for "gradient" ‖noise‖ / ‖g‖.

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[WeightNoise(std=0.01)])
    """

    role = "loss"  # noise in every update is part of what is minimized (dual-network paper, Table 2)
    roles: ClassVar = {"seed": "incidental"}
    symbols: ClassVar = {"std": "noise"}
    unlabelled: ClassVar = {"added_to": "update"}
    panel = Panel("noise", "Noise", "The norm of the noise over the norm of the optimizer's step or of the gradient.")
    metrics = (Metric("noise/relative", "noise over step", every_step=True),)

    def __init__(self, std: float = 0.01, seed: int | None = None, added_to: AddedTo = "update") -> None:
        require(0 <= std < math.inf, "std", std, "a finite number, at least 0")
        require(seed is None or seed >= 0, "seed", seed, "0 or above")
        require(added_to in get_args(AddedTo), "added_to", added_to, f"one of {', '.join(get_args(AddedTo))}")
        self.std, self.seed, self.added_to = std, seed, added_to
        self.hooks: list[RemovableHandle] = []
        self.before: list[Tensor] = []  # the weights before a step that is measured
        self.noise = torch.zeros(())  # norm of the last noise
        self.ratio: Tensor | None = None  # to be logged after the step

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.remove_hooks()  # of a training that failed
        if not self.std:
            return

        def before_step(optimizer: Optimizer, *_: Any) -> None:
            self.before = [p.detach().clone() for p in trained(optimizer)] if is_measured(trainer) else []

        def after_step(optimizer: Optimizer, *_: Any) -> None:
            step = [p.detach() - before for p, before in zip(trained(optimizer), self.before, strict=False)]
            if self.added_to in ("update", "weights"):
                self.add_noise(optimizer, self.generator(trainer, pl_module))
            if step and self.added_to != "gradient":
                self.ratio = self.noise / norm(step)

        # In the optimizer, because torch's GradScaler leaves out some steps and removes `found_inf` after the others.
        optimizer = trainer.optimizers[0]
        self.hooks = [optimizer.register_step_pre_hook(before_step), optimizer.register_step_post_hook(after_step)]

    @torch.no_grad()
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.std and self.added_to == "epoch":
            generator, change = self.generator(trainer, pl_module), []
            for p in trained(trainer.optimizers[0]):
                xi = torch.rand(p.shape, dtype=p.dtype, device=p.device, generator=generator)
                xi = xi.sub_(0.5).mul_(math.sqrt(12) * xavier(p))  # uniform, with Xavier's variance
                change.append(xi.sub_(p).mul_(self.std))
                p.add_(change[-1])
            self.noise = norm(change)

    @torch.no_grad()
    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer, *_: Any
    ) -> None:
        if not (self.std and self.added_to == "gradient"):
            return
        generator = self.generator(trainer, pl_module)
        gradients = [p.grad for p in trained(optimizer) if p.grad is not None]
        size = norm(gradients) if is_measured(trainer) else None
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scaled = scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False)
        noise = []
        for gradient in gradients:
            noise.append(gaussian(gradient, generator).mul_(self.std * xavier(gradient)))
            if scaled:  # the optimizer divides by the scale later
                noise[-1].mul_(scaler._get_scale_async())  # type: ignore[union-attr]  # without a read on the host
            gradient.add_(noise[-1])
        if size is not None:
            self.ratio = norm(noise) / size

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.ratio is not None:
            log_now(trainer, {"noise/relative": float(self.ratio)}, pl_module)
            self.ratio = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.remove_hooks()

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.noise = state_dict["noise"]

    def remove_hooks(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def generator(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> torch.Generator:
        """The generator of a step."""
        seed = self.seed if self.seed is not None else int(getattr(pl_module, "seed", 0))
        return generator_of(seed, trainer.global_step + 1, device=pl_module.device)  # Lightning counts the step later

    @torch.no_grad()
    def add_noise(self, optimizer: Optimizer, generator: torch.Generator) -> None:
        """Add the noise of one step to the weights, for "update" with the learning rates of this step."""
        skipped = getattr(optimizer, "found_inf", None)  # 1 if the optimizer skips this step on the device
        norms = []
        for group in optimizer.param_groups:
            rate = float(group["lr"]) if self.added_to == "update" else 1.0
            for p in filter(is_matrix, group["params"]):
                xi = gaussian(p, generator)
                if skipped is not None:
                    xi.mul_(1 - skipped)
                size = rate * self.std * xavier(p)
                p.add_(xi, alpha=size)
                if self.before:
                    norms.append(norm([xi]) * size)
        if norms:
            self.noise = norm(norms)


def is_measured(trainer: pl.Trainer) -> bool:
    """Whether the step that follows is a log step."""
    return (trainer.global_step + 1) % int(getattr(trainer, "log_every_n_steps")) == 0  # noqa: B009  mypy does not see it


def is_matrix(p: Tensor) -> bool:
    return p.ndim >= 2


def trained(optimizer: Optimizer) -> list[Tensor]:
    """The matrices and convolutions of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"] if is_matrix(p)]


def gaussian(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def norm(tensors: list[Tensor]) -> Tensor:
    """√Σ‖x‖² of several tensors."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


def xavier(p: Tensor) -> float:
    """√(2/(fan_in + fan_out)) (Glorot & Bengio 2010) of (out, in, …)."""
    field = p[0, 0].numel()
    return math.sqrt(2 / ((p.shape[0] + p.shape[1]) * field))
