"""Mixed precision for the tests. Lightning 2 only: the tests beside lightning-bolts do not import it."""

import contextlib

import pytorch_lightning as pl
import torch


class Mixed(pl.plugins.MixedPrecision):
    """Mixed precision without autocast: not every CPU has products in half precision."""

    def autocast_context_manager(self):
        return contextlib.nullcontext()


def bf16():
    return Mixed("bf16-mixed", "cpu")


def scaled(scale=2.0**10):
    """16-mixed: a GradScaler, which skips steps with gradients that are not finite."""
    return Mixed("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))
