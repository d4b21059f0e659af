"""Stops a training that diverged: one guard for all methods, without a host synchronization at each step.

A loss or a gradient that is not finite must not reach the weights. If the host read the loss at every step, it would
wait for the device at every step. So the device decides, and the host looks at the result now and then:

1. Before a backward pass, the flag `alive` becomes 0 if the loss is not finite. While it is 0, the gradient of the loss
   is NaN. DDP's own reduction of the gradients carries the NaN to all ranks, so no further collective is needed.
2. Before an optimizer step, `alive` becomes 0 if a gradient is not finite. At this point the gradients of all ranks are
   equal. The optimizer gets `found_inf` = 1 − alive, as from torch's GradScaler, and skips the step on the device.
   `alive` never becomes 1 again: the weights stay those from before the first bad step.
3. What no optimizer steps (the statistics of batch norms, the target of BYOL) is copied before every optimizer step
   while `alive` is 1. Several batches whose gradients are accumulated are one step.
4. The host reads the flag at log steps, before a validation, and before any checkpoint is written. If it is 0, the host
   restores the copy of 3, writes last_finite.ckpt and raises `LossNotFinite`. In that file the weights, the batch
   norms and the optimizer are from before the bad step; counters and callbacks are from the step of the reading.

An optimizer that does not take `found_inf` has the flag read before each of its steps. A validation whose features are
not finite stops the training too, before the checkpoint of its epoch.

With `precision="16-mixed"`, torch's GradScaler skips the steps with gradients that are not finite, and halves its scale
each time. A single skip is no divergence: the scale was too large. So only the loss counts in 2, and the host stops the
run when it reads a scale below `LOWEST_SCALE`. The weights and the optimizer are then from before the skipped steps.
The batch norms in the file and the step in the message are then those of the reading, also where the loss of another
rank is not finite.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from lightning_ssl._lightning import pl
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.recorder import loss_of_batch
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.distributed import sum_over_ranks
from lightning_ssl.callbacks.log import is_log_step

ADVICE = "try a lower learning rate or a longer warm-up"
# float16 ends at 65504: at this scale a finite gradient that overflows is above 4e9.
LOWEST_SCALE = 2.0**-16


class LossNotFinite(UserError):
    """The training loss, its gradient, or a feature is NaN or infinite."""


class DivergenceGuard(pl.Callback):
    """Stops the run at a loss, a gradient or a feature that is not finite. Place it before all other callbacks."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.watching = False
        self.start = 0  # the step at which this process began

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        device = pl_module.device
        self.watching, self.start = True, trainer.global_step
        self.step = -1  # of the current batch
        self.alive = self.alive_before = self.features_finite = torch.ones((), dtype=torch.bool, device=device)
        self.steps = torch.zeros((), dtype=torch.int64, device=device)  # with finite losses and gradients
        # Of the first bad batch, or of the latest one; of the latest good step.
        self.loss = self.last_finite = torch.full((), math.nan, device=device)
        self.kept = Copies(tensors_without_optimizer(trainer, pl_module))

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.alive_before = self.alive
        if trainer.global_step != self.step:  # else the gradient is added to that of the previous batch
            self.step = trainer.global_step
            self.kept.update(self.alive)

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        value = loss.detach() * trainer.accumulate_grad_batches  # Lightning divided by it
        self.loss = torch.where(self.alive_before, value, self.loss)
        alive = self.alive = self.alive & value.isfinite()
        loss.register_hook(lambda gradient: gradient.masked_fill(~alive, math.nan))

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        if scaler_of(trainer) is not None:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.alive = self.alive & get_total_norm(gradients).isfinite()
        if skips_steps(optimizer):
            optimizer.found_inf = (~self.alive).float()  # type: ignore[attr-defined]
        else:
            self.look(trainer)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step != self.step:
            self.steps = torch.add(self.steps, self.alive, alpha=trainer.global_step - self.step)
            loss = loss_of_batch(trainer, outputs)
            if loss is not None:
                self.last_finite = torch.where(self.alive, loss, self.last_finite)
        if is_log_step(trainer, batch_idx):
            self.look(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.look(trainer)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        features = outputs.get("features") if isinstance(outputs, dict) else None
        if self.watching and isinstance(features, Tensor):
            self.features_finite = self.features_finite & features.isfinite().all()

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.look(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.look(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.look(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.watching = False

    def look(self, trainer: pl.Trainer) -> None:
        """Read the flags and the scale, which is equal on all ranks. Stop if a flag is 0 or the scale is too low."""
        if not self.watching:
            return
        diverged, blind = sum_over_ranks(1 - self.alive.float(), 1 - self.features_finite.float())
        scaler = scaler_of(trainer)
        scale = 1.0 if scaler is None else scaler.get_scale()
        if not diverged + blind and scale >= LOWEST_SCALE:
            return
        if diverged:
            self.kept.restore()
        loss = float(self.loss)
        if not diverged + blind:
            reason = f"the gradient is not finite at any scale of the GradScaler down to {scale:g}"
        elif not diverged:
            reason = "the features of the validation images are not finite"
        elif not math.isfinite(loss):
            reason = f"train/loss={loss!r}"
        elif trainer.world_size > 1:
            reason = "the loss or its gradient is not finite on one of the ranks"
        else:
            reason = f"the gradient of train/loss={loss:g} is not finite"
        self.stop(trainer, reason)

    def stop(self, trainer: pl.Trainer, reason: str) -> None:
        """Save the weights, which no bad step has changed, and raise."""
        self.watching = False
        path = self.run.checkpoints / "last_finite.ckpt"
        trainer.save_checkpoint(path)
        step = self.start + int(self.steps)
        last = float(self.last_finite)
        before = f"the last finite loss was {last:g} at step {step - 1}"
        if step == self.start:
            before = "it is the first step of this process"
        raise LossNotFinite(f"{reason} at step {step}: {before}; {ADVICE}; the weights before it are in {path}")


def scaler_of(trainer: pl.Trainer) -> torch.amp.GradScaler | None:
    """The GradScaler of `precision="16-mixed"`."""
    scaler: torch.amp.GradScaler | None = getattr(trainer.precision_plugin, "scaler", None)
    return scaler if scaler is not None and scaler.is_enabled() else None


def skips_steps(optimizer: Optimizer) -> bool:
    """Whether the optimizer takes `found_inf`: LARS of this package, and torch's fused optimizers."""
    return bool(getattr(optimizer, "skips_steps", getattr(optimizer, "_step_supports_amp_scaling", False)))


def tensors_without_optimizer(trainer: pl.Trainer, module: pl.LightningModule) -> list[Tensor]:
    """The buffers and the parameters of a module that no optimizer steps."""
    stepped = {id(p) for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]}
    return [x.detach() for x in (*module.buffers(), *module.parameters()) if id(x) not in stepped and x.numel()]


class Copies:
    """A copy of some tensors, one flat tensor for each dtype."""

    def __init__(self, tensors: list[Tensor]) -> None:
        dtypes = dict.fromkeys(x.dtype for x in tensors)
        self.tensors = [[x for x in tensors if x.dtype == dtype] for dtype in dtypes]
        self.flat = [flatten(group) for group in self.tensors]

    @torch.no_grad()
    def update(self, condition: Tensor) -> None:
        """Copy the tensors again where the condition, a tensor on their device, holds."""
        self.flat = [
            torch.where(condition, flatten(group), old) for group, old in zip(self.tensors, self.flat, strict=True)
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the copy back into the tensors."""
        for group, flat in zip(self.tensors, self.flat, strict=True):
            for x, part in zip(group, flat.split([x.numel() for x in group]), strict=True):
                x.copy_(part.view_as(x))


def flatten(tensors: list[Tensor]) -> Tensor:
    return torch.cat([x.reshape(-1) for x in tensors])
