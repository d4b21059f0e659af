"""Checks of the variables by which torchrun, SLURM and Lightning tell a process its rank.

Lightning reads some of them when it is imported, and says of a wrong one only "invalid literal for int()".
"""

from __future__ import annotations

from collections.abc import Mapping

from lightning_ssl.base.checks import require

LOWEST = {
    "RANK": 0,
    "LOCAL_RANK": 0,
    "NODE_RANK": 0,
    "GROUP_RANK": 0,
    "WORLD_SIZE": 1,
    "LOCAL_WORLD_SIZE": 1,
    "MASTER_PORT": 1,
    "SLURM_JOB_ID": 0,
    "SLURM_PROCID": 0,
    "SLURM_LOCALID": 0,
    "SLURM_NODEID": 0,
    "SLURM_NTASKS": 1,
    "SLURM_NTASKS_PER_NODE": 1,
    "SLURM_NNODES": 1,
    "SLURM_STEP_ID": 0,
    "SLURM_STEP_NUM_TASKS": 1,
    "SLURM_STEP_NUM_NODES": 1,
}


MAX_PORT = 65_535


def check_rank_variables(environment: Mapping[str, str]) -> None:
    """Refuse a variable of a launcher that is not a whole number."""
    for name, lowest in LOWEST.items():
        value = environment.get(name)
        valid = value is None or (value.isascii() and value.isdigit() and len(value) < 20 and int(value) >= lowest)
        require(valid, name, value, f"a whole number of at least {lowest} (the environment has this value)")
    port = environment.get("MASTER_PORT", "1")
    require(int(port) <= MAX_PORT, "MASTER_PORT", port, f"at most {MAX_PORT} (the environment has this value)")
