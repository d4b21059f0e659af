"""Stops a run at a signal: every rank at the same step, with a checkpoint of that step.

SIGTERM (SLURM, Kubernetes, `wandb agent`), SIGUSR1 (SLURM, before the time limit), SIGINT (Ctrl-C) and SIGHUP (a closed
terminal; `nohup` ignores it) only set a flag. `StopAtSignal` looks at it between two training steps. It requests a
checkpoint and raises `Stopped` before the next step. The exit code is 128 + the number of the signal: 143, 138, 130 or
129.

Several ranks agree through the store of torch.distributed, about once a second. It runs on the hosts: no rank waits for
a device. Lightning's own handlers call a collective inside the handler, where the other ranks are in another one.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from torch.distributed.distributed_c10d import _get_default_store, get_world_size

from lightning_ssl._lightning import pl
from lightning_ssl.app.launch.noted_signals import NotedSignals, blocked
from lightning_ssl.callbacks.checkpoints import Checkpoints

SECONDS = 1.0  # between two agreements of several ranks
LEAVE_SECONDS = 5.0  # for which rank 0 waits for the others at the end


class Stopped(pl.utilities.exceptions.SIGTERMException):
    """A signal stopped the run."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class StopSignals(NotedSignals):
    """The signals of a run, the store of its ranks, and W&B's request to stop. `early` has the signals from before."""

    def __init__(self, early: NotedSignals | None = None) -> None:
        super().__init__()
        self.early = early
        self.asked_by_wandb = False  # whether a user or a sweep stops the run in W&B: it is not to be continued
        self.raises = False  # whether a signal stops the run at once: before the training of a single process
        self.store: Any = None  # of torch.distributed; None for a single process

    def __enter__(self) -> StopSignals:
        super().__enter__()
        if self.early is not None:
            self.number = self.number or self.early.number
        return self

    def note(self, number: int, frame: FrameType | None = None) -> None:
        super().note(number, frame)
        if self.raises:
            self.raises = False
            raise Stopped(self.number)

    def __deepcopy__(self, memo: dict[int, Any]) -> StopSignals:
        """Itself: W&B's client copies its settings, which have `stop_for_wandb`, and a store cannot be copied."""
        return self

    def stop_for_wandb(self) -> None:
        """Stop as at a SIGTERM. W&B's client calls it in a thread of its own."""
        self.asked_by_wandb = True
        self.number = self.number or signal.SIGTERM

    def leave_together(self, is_first: bool) -> None:
        """Keep the other ranks alive until rank 0 is done: launchers kill all ranks once the first has ended.

        Rank 0 ends last, because the store is in its process.
        """
        if self.store is None:
            return
        with suppress(RuntimeError):  # a rank may be gone, and the store with it
            if not is_first:
                self.store.get("stop/recorded")
                self.store.add("stop/left", 1)
                return
            self.store.set("stop/recorded", "")
            deadline = time.monotonic() + LEAVE_SECONDS
            while self.store.add("stop/left", 0) < get_world_size() - 1 and time.monotonic() < deadline:
                time.sleep(0.01)


class StopAtSignal(pl.Callback):
    """Stops all ranks at the same step once one of them has noted a signal. `Checkpoints` comes after it."""

    def __init__(self, signals: StopSignals, checkpoints: Checkpoints) -> None:
        self.signals, self.checkpoints = signals, checkpoints
        self.agreed = 0  # number of the signal at which all ranks stop
        self.batches, self.period = 0, 1  # since the last meeting, and from it to the next one
        self.meetings, self.met = 0, 0.0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.signals.store = _get_default_store() if trainer.world_size > 1 else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.signals.raises, self.met = False, time.monotonic()

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.agreed and self.checkpoints.saved_at == trainer.global_step:
            raise Stopped(self.agreed)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.batches += 1
        if not self.agreed and self.batches >= self.period:
            self.agreed = self.signals.number if self.signals.store is None else self.meet(trainer.world_size)
            if self.agreed:
                self.signals.number, self.checkpoints.is_due = self.agreed, True

    def meet(self, ranks: int) -> int:
        """Exchange the signals of all ranks. Every rank calls it at the same batch; all get the same answer.

        The last rank to arrive answers, and sets the number of batches until the next meeting.
        """
        store = self.signals.store
        here, before = f"stop/{self.meetings}", f"stop/{self.meetings - 1}"
        if self.signals.number:
            store.set(f"{here}/signal", str(self.signals.number))
        if store.add(f"{here}/arrived", 1) == ranks:
            number = int(store.get(f"{here}/signal")) if store.check([f"{here}/signal"]) else 0
            period = max(1, int(SECONDS * self.batches / (time.monotonic() - self.met)))
            store.set(f"{here}/answer", f"{number} {period}")
            for name in ("arrived", "answer"):  # every rank has read them, or it would not be here
                store.delete_key(f"{before}/{name}")
        number, self.period = map(int, store.get(f"{here}/answer").split())
        self.batches, self.meetings, self.met = 0, self.meetings + 1, time.monotonic()
        return number


def replace_lightnings_handlers(trainer: pl.Trainer) -> None:
    """Switch off Lightning's signal handlers, and the broadcast of their flag in every step of several ranks.

    A signal to a rank that Lightning starts waits until the rank can note it.
    """
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    launcher: Any = trainer.strategy.launcher
    if hasattr(launcher, "_call_children_scripts"):
        launcher._call_children_scripts = blocked()(launcher._call_children_scripts)
