"""The role of every argument of a method: it belongs to the loss, to the network, or to neither.

`runs/keys.py` reads these names and gives a role to every key of a configuration. The label of a run, the groups of
the report and the keys in W&B follow from the roles.

This is a separate file without torch, because reading runs must not import torch.
"""

from __future__ import annotations

LOSS = ("tau", "eps", "anchors", "importance", "beta", "backprop_alpha", "momentum")
"""What is minimized."""

NETWORK = ("backbone", "stem", "image_size", "mean", "std", "augment", "projector", "predictor", "optimization")
"""The network, its input and its training."""

INCIDENTAL = ("seed", "channels_last", "compile", "tile")
"""The random draws and the way of computing: the experiment stays the same, up to chance and rounding."""
