"""LightningModules: `SimCLR`, `AlphaCL` (contrastive), `SimSiam`, `BYOL` (siamese)."""

from lightning_ssl.methods.base import Head, Method, Optimization
from lightning_ssl.methods.contrastive import AlphaCL, SimCLR
from lightning_ssl.methods.siamese import BYOL, SimSiam

__all__ = ["BYOL", "AlphaCL", "Head", "Method", "Optimization", "SimCLR", "SimSiam"]
