"""`WeightNoise`: Gaussian noise on the weights at every step, as in Table 2 of the dual-network paper.

    W ← W − lr · step + lr · η · ξ,    ξ_ij ~ N(0, 2/(fan_in + fan_out))

The paper has η = 0.01 and draws ξ like Xavier's initialization. The noise is part of the update rule, so it is scaled
by the learning rate of the step. Only matrices and convolutions get noise; biases and the scales of norms do not.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require
from lightning_ssl.base.seeding import generator_of

__all__ = ["WeightNoise"]


class WeightNoise(pl.Callback):
    """Adds lr · std · ξ to every trained matrix and convolution after each optimizer step.

    std    η above
    seed   ξ is a function of (seed, step): a resumed run and every rank add the same noise, and the global generator is
           not used; None takes the method's seed

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[WeightNoise(std=0.01)])
    """

    role = "loss"  # noise in every update is part of what is minimized (dual-network paper, Table 2)
    roles: ClassVar = {"seed": "incidental"}
    symbols: ClassVar = {"std": "noise"}

    def __init__(self, std: float = 0.01, seed: int | None = None) -> None:
        require(0 <= std < math.inf, "std", std, "a finite number, at least 0")
        require(seed is None or seed >= 0, "seed", seed, "0 or above")
        self.std, self.seed = std, seed
        self.hook: RemovableHandle | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.std:
            return
        seed = self.seed if self.seed is not None else int(getattr(pl_module, "seed", 0))

        def after_step(optimizer: Optimizer, *_: Any) -> None:
            # Lightning counts the step later.
            self.add_noise(optimizer, generator_of(seed, trainer.global_step + 1, device=pl_module.device))

        # In the optimizer, because torch's GradScaler leaves out some steps and removes `found_inf` after the others.
        self.hook = trainer.optimizers[0].register_step_post_hook(after_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.hook is not None:
            self.hook.remove()

    @torch.no_grad()
    def add_noise(self, optimizer: Optimizer, generator: torch.Generator) -> None:
        """Add the noise of one step with the learning rates of this step."""
        skipped = getattr(optimizer, "found_inf", None)  # 1 if the optimizer skips this step on the device
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.ndim >= 2:
                    xi = torch.randn(p.shape, dtype=p.dtype, device=p.device, generator=generator)
                    if skipped is not None:
                        xi.mul_(1 - skipped)
                    p.add_(xi, alpha=float(group["lr"]) * self.std * xavier(p))


def xavier(p: torch.Tensor) -> float:
    """√(2/(fan_in + fan_out)) (Glorot & Bengio 2010) of (out, in, …)."""
    field = p[0, 0].numel()
    return math.sqrt(2 / ((p.shape[0] + p.shape[1]) * field))
