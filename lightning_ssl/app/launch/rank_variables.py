"""Checks of the variables by which torchrun, SLURM and Lightning tell a process its rank.

Lightning reads some of them when it is imported, and says of a wrong one only "invalid literal for int()".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lightning_ssl.base.checks import require

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID")
COUNTS = (
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
)  # fmt: skip
MAX_PORT = 65_535


def check_rank_variables(environment: Mapping[str, str]) -> None:
    """Refuse a variable of a launcher that is not a whole number."""
    for name in (*RANKS, *IDS, *COUNTS):
        value, lowest = environment.get(name, "1"), int(name in COUNTS)
        valid = re.fullmatch("[0-9]{1,19}", value) is not None and int(value) >= lowest
        require(valid, name, value, f"a whole number of at least {lowest} (the environment has this value)")
    port = environment.get("MASTER_PORT", "1")
    require(int(port) <= MAX_PORT, "MASTER_PORT", port, f"at most {MAX_PORT} (the environment has this value)")
