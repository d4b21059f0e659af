"""Which process of a run this is, before torch.distributed is set up."""

from __future__ import annotations

import os

from lightning_ssl._lightning import pl

rank_zero_only = pl.utilities.rank_zero.rank_zero_only


def is_first_process() -> bool:
    """Whether this is rank 0. Lightning reads the rank from the environment."""
    return getattr(rank_zero_only, "rank", 0) == 0


def launched_externally() -> bool:
    """Whether torchrun or SLURM, not Lightning, started several ranks."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1 or int(os.environ.get("SLURM_NTASKS", 1)) > 1


def launcher_job() -> str | None:
    """The job id of SLURM or torchrun, which all ranks of a run share."""
    job = os.environ.get("SLURM_JOB_ID") or os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return None if job == "none" else job


@rank_zero_only
def print_once(line: str) -> None:
    """Print a line on rank 0."""
    print(line, flush=True)
