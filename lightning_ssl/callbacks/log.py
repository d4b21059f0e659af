"""When to log, and logging at once, so that a killed run does not lose its metrics."""

from __future__ import annotations

from lightning_ssl._lightning import pl


def is_log_step(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Whether the values of this batch are logged. `log_every_n_steps=0` logs those of epochs only."""
    every = getattr(trainer, "log_every_n_steps", 50)
    return every > 0 and (batch_idx + 1) % every == 0


def log_now(trainer: pl.Trainer, metrics: dict[str, float], module: pl.LightningModule | None = None) -> None:
    """Send metrics to every logger at once.

    Lightning writes what a training step or epoch logs after the checkpoints of its end. A run killed in between
    would lose it. With `module`, other callbacks see the metrics too, in `trainer.callback_metrics`.
    """
    if module is not None:
        module.log_dict(metrics, logger=False, batch_size=1)
    for logger in trainer.loggers:
        # Lightning's step index starts at 0.
        logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=max(0, trainer.global_step - 1))
