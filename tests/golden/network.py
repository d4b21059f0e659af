"""A backbone with about 2,000 weights, so that its checkpoints are small."""

from torch import nn


class Tiny(nn.Sequential):
    """Maps (B, 3, H, W) to (B, 16)."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
