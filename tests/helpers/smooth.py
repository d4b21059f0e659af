"""A SimCLR without batch norm and in double precision, in which ranks and one process agree to the last digits."""

from torch import nn

from lightning_ssl.methods import SimCLR


class SmoothSimCLR(SimCLR):
    """Its batch norms do nothing."""

    def __init__(self, tau: float = 0.2, backbone: str = "resnet_tiny", seed: int | None = None) -> None:
        super().__init__(tau, backbone=backbone, seed=seed, augment="paper_cifar")
        for module in list(self.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.modules.batchnorm._BatchNorm):
                    setattr(module, name, nn.Identity())
        self.double()
