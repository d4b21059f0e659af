"""The role of every argument of a method: it belongs to the loss, to the network, or to neither.

Resume uses the roles to decide whether a changed argument makes another experiment. The report and W&B use them to
name the loss of a run and to group runs.

This is a separate file without torch, because reading runs must not import torch.
"""

from __future__ import annotations

LOSS = ("tau", "eps", "anchors", "importance", "beta", "backprop_alpha", "momentum")
"""What is minimized."""

NETWORK = ("backbone", "stem", "image_size", "mean", "std", "augment", "projector", "predictor", "optimization")
"""The network, its input and its training."""

INCIDENTAL = ("seed", "channels_last", "compile", "tile")
"""The random draws and the way of computing: the experiment stays the same, up to chance and rounding."""
