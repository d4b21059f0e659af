"""Which process of a run this is, and who started its ranks, before torch.distributed is set up.

| command                        | its ranks are started by | recognized by                                            |
|--------------------------------|--------------------------|----------------------------------------------------------|
| `lightning-ssl fit`            | Lightning                |                                                          |
| `torchrun … lightning-ssl fit` | torchrun                 | TORCHELASTIC_RUN_ID                                      |
| `srun … lightning-ssl fit`     | srun                     | SLURM_STEP_ID, which a batch script does not have        |
| the same, with one task        | Lightning                | SLURM_STEP_NUM_TASKS; the task can be a shell: `--pty`   |
| `srun … wandb agent …`         | Lightning                | the task of srun has no WANDB_RUN_ID: its agent made one |
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError, require

rank_zero_only = pl.utilities.rank_zero.rank_zero_only

SALLOC_STEP = "4294967290"  # SLURM_STEP_ID in the shell that `salloc` opens
# Variables from which Lightning reads that SLURM started several ranks.
TASK_VARIABLES = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS")


@dataclass(frozen=True)
class Launch:
    """The ranks that a launcher other than Lightning started."""

    launcher: str = ""  # "srun", "torchrun", or empty: Lightning starts the ranks
    ranks: int = 1
    nodes: int = 1

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes


def launch() -> Launch:
    """Read from the environment who started the ranks of this run."""
    if {"TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} <= os.environ.keys():
        require_variables("torchrun", "RANK", "LOCAL_RANK")
        ranks, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        require(ranks % local == 0, "WORLD_SIZE", ranks, f"a multiple of LOCAL_WORLD_SIZE, {local}")
        return Launch("torchrun", ranks, ranks // local)
    if is_srun_task():
        require_variables("srun", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
        ranks, per_node = int(os.environ["SLURM_STEP_NUM_TASKS"]), os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
        nodes = int(os.environ.get("SLURM_STEP_NUM_NODES", 1))
        if "," in per_node or ranks % nodes:
            where = f"{per_node} on a node" if per_node else f"on {nodes} nodes"
            raise UserError(f"srun started {ranks} ranks, {where}: expected the same number on every node")
        return Launch("srun", ranks, nodes)
    return Launch()


def require_variables(launcher: str, *names: str) -> None:
    """Refuse a task of a launcher without these variables."""
    for name in names:
        require(name in os.environ, name, None, f"set: {launcher} sets it for every rank")


def is_srun_task() -> bool:
    """Whether `srun` started this process as one of the ranks of its run."""
    if os.environ.get("SLURM_STEP_ID") in (None, SALLOC_STEP) or os.environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return False
    return "WANDB_RUN_ID" not in os.environ or "WANDB_RUN_ID" in task_environment()


def task_environment() -> set[str]:
    """The names of the variables with which srun started the task that this process belongs to."""
    try:
        content = Path("/proc", os.environ["SLURM_TASK_PID"], "environ").read_bytes()
    except (KeyError, OSError):
        return set(os.environ)
    return {entry.partition(b"=")[0].decode(errors="replace") for entry in content.split(b"\0")}


def forget_unused_tasks() -> None:
    """Remove SLURM's variables of tasks where srun did not start this process as a rank.

    In a batch script with two tasks and without srun, Lightning would wait for a second rank that nobody starts.
    """
    if not is_srun_task() and "SLURM_JOB_ID" in os.environ:
        for name in TASK_VARIABLES:
            os.environ.pop(name, None)
        rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
        rank_zero_only.rank = rank  # type: ignore[attr-defined]


def is_first_process() -> bool:
    """Whether this is rank 0. Lightning reads the rank from the environment."""
    return getattr(rank_zero_only, "rank", 0) == 0


def is_started_by_lightning() -> bool:
    """Whether the first process of this run started this one."""
    return not is_first_process() and not launch().launcher


def launcher_job() -> str | None:
    """The job id of SLURM or torchrun, which all ranks of a run share and a requeued job keeps; None if there is none.

    `torchrun --standalone` makes up a new one at every start, and `none` is torchrun's default.
    """
    job = os.environ.get("SLURM_JOB_ID") or os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return None if job == "none" or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", job) else job


@rank_zero_only
def print_once(line: str) -> None:
    """Print a line on rank 0."""
    print(line, flush=True)
