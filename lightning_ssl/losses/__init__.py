"""Contrastive losses: pair importances α, the (φ, ψ) family, and the energy that training maximizes.

pairs.py       distances of a batch, masks, shares of the ranks
families.py    the (φ, ψ) losses
rows.py        whole rows of α, and which of their pairs are negatives
interface.py   what an importance is
importance.py  α in closed form, and α of a (φ, ψ) loss
solved.py      α as the solution of a regularizer; row_solver.py solves its rows
contrastive.py, reweighted.py, pairwise.py   α of the losses of other papers
released.py    two rows of the α-CL paper as its released code computes them
energy.py      E_α, `PairLoss`, `FamilyLoss`
kernel.py      their kernels
device.py      the size of a block and what the host may read, by device
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl._lazy import import_files

if TYPE_CHECKING:  # a type checker cannot see the names of a file without a line here
    from lightning_ssl.losses.contrastive import *  # noqa: F403
    from lightning_ssl.losses.energy import *  # noqa: F403
    from lightning_ssl.losses.families import *  # noqa: F403
    from lightning_ssl.losses.importance import *  # noqa: F403
    from lightning_ssl.losses.interface import *  # noqa: F403
    from lightning_ssl.losses.pairwise import *  # noqa: F403
    from lightning_ssl.losses.released import *  # noqa: F403
    from lightning_ssl.losses.reweighted import *  # noqa: F403
    from lightning_ssl.losses.solved import *  # noqa: F403

globals().update(public := import_files(__name__))
__all__ = sorted(public)
