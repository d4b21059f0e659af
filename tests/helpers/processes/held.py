"""SmoothSimCLR that waits for the signal that stops it: the test needs no race against the training.

HOLD is a file. Every rank writes it in the sixth step, and then waits until it has noted a signal, and HOLD_SECONDS
longer. A run that is resumed after that step does not wait. Ranks meet after every step.
"""

import os
import signal
import time
from pathlib import Path

from helpers.smooth import SmoothSimCLR
from lightning_ssl.app.launch import signals

HELD_AT = 5  # steps before the one that waits


class HeldSimCLR(SmoothSimCLR):
    """The same training as without HOLD, bit for bit."""

    def on_fit_start(self) -> None:
        super().on_fit_start()
        signals.SECONDS = 0.0

    def training_step(self, batch, batch_idx):
        if "HOLD" in os.environ and self.global_step == HELD_AT:
            Path(os.environ["HOLD"]).touch()
            noted = signal.getsignal(signal.SIGTERM).__self__  # the StopSignals of the run
            while not noted.number:
                time.sleep(0.02)
            time.sleep(float(os.environ.get("HOLD_SECONDS", 0)))
        return super().training_step(batch, batch_idx)
