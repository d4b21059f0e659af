"""SimCLR in float64 without batch norm, for which two ranks equal one process up to rounding."""

from torch import nn

from lightning_ssl.methods import Optimization, SimCLR


class SmoothSimCLR(SimCLR):
    """Every batch norm is replaced by the identity."""

    def __init__(self, tau: float = 0.2, backbone: str = "resnet_tiny", seed: int | None = None) -> None:
        # Not Adam: it divides a gradient by its own size, which amplifies the rounding of small gradients.
        plain = Optimization("sgd", lr=0.1)
        super().__init__(tau, backbone=backbone, seed=seed, augment="paper_cifar", optimization=plain)
        for module in list(self.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.modules.batchnorm._BatchNorm):
                    setattr(module, name, nn.Identity())
        self.double()
