"""The Trainer's devices and nodes: what the launcher started, or a refusal before there is a run folder."""

from __future__ import annotations

import os
from typing import Any

import torch
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from lightning_ssl.app.launch.ranks import Launch, launch, print_once
from lightning_ssl.app.launch.trainer_arguments import checked_trainer
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.convert import as_list


def for_launched_ranks(trainer: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The arguments of the Trainer for the ranks that were started, and their number. Raises UserError if they differ.

    Lightning itself accepts one device in each of several tasks: all of them would train the whole run in one folder.
    """
    started = launch()
    if started.launcher and trainer["devices"] == "auto":
        if trainer["accelerator"] in ("auto", "gpu", "cuda"):
            check_visible_gpus(started)
        trainer = trainer | {"devices": started.ranks_per_node}
    if started.launcher == "srun":
        trainer = trainer | {"plugins": [*as_list(trainer["plugins"]), SrunEnvironment()]}
    if not isinstance(trainer["strategy"], str):  # an object of the user's own belongs to one Trainer only
        return trainer, started.ranks
    probe = checked_trainer(trainer)
    if isinstance(probe.strategy.launcher, _MultiProcessingLauncher):
        raise UserError(
            f"trainer.strategy={trainer['strategy']!r}: strategy must be one whose processes run the command line, such"
            " as ddp: spawned and forked processes do not share the run"
        )
    alone = isinstance(getattr(probe.strategy, "cluster_environment", None), LightningEnvironment)
    if probe.num_nodes > 1 and alone:
        raise UserError(f"trainer.num_nodes={probe.num_nodes}: expected 1, or srun or torchrun to start the ranks")
    expected = {"devices": started.ranks_per_node, "num_nodes": started.nodes}
    found = {"devices": probe.num_devices, "num_nodes": probe.num_nodes}
    for key in expected if started.launcher else ():
        if found[key] != expected[key]:
            raise UserError(
                f"trainer.{key}={trainer[key]}: expected {expected[key]}, because {started.launcher} started"
                f" {started.ranks} ranks on {started.nodes} {'node' if started.nodes == 1 else 'nodes'}"
            )
    return trainer, probe.world_size


def check_visible_gpus(started: Launch) -> None:
    """Refuse ranks that do not see a GPU for each rank of their node, and report GPUs that no rank uses.

    Without GPUs the ranks train on the CPU.
    """
    ranks, gpus = started.ranks_per_node, torch.cuda.device_count()
    if 0 < gpus < ranks:
        raise UserError(
            f"trainer.devices=auto: {started.launcher} started {ranks} ranks on a node, which see {gpus}"
            f" {'GPU' if gpus == 1 else 'GPUs'}: every rank must see all GPUs of its node (in SLURM, --gpus-per-node"
            " instead of --gpus-per-task or --gpu-bind)"
        )
    if gpus > ranks:
        words = f"{ranks} {'rank' if ranks == 1 else 'ranks'} on a node with {gpus} GPUs"
        print_once(f"{started.launcher} started {words}: {gpus - ranks} are not used")


class SrunEnvironment(SLURMEnvironment):
    """The ranks of a step that srun started.

    Unlike Lightning's own, it takes steps with `--ntasks` alone, gives each step of a job its own port, and leaves
    signals and the requeueing of the job to the run and to the batch script.
    """

    def __init__(self) -> None:
        """Not Lightning's, which refuses such steps."""
        self.auto_requeue, self.requeue_signal = False, None

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Do nothing: `for_launched_ranks` has compared them with the step. Lightning compares them with the job."""

    @property
    def main_address(self) -> str:
        """MASTER_ADDR, or the first node of the step: `n[3-5,9]` is n3."""
        if os.environ["SLURM_STEP_NUM_NODES"] == "1":
            return os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        return os.environ.setdefault("MASTER_ADDR", self.resolve_root_node_address(os.environ["SLURM_STEP_NODELIST"]))

    @property
    def main_port(self) -> int:
        """MASTER_PORT, or one that follows from job and step, below the range that Linux gives to clients."""
        job, step = int(os.environ["SLURM_JOB_ID"]), int(os.environ["SLURM_STEP_ID"])
        return int(os.environ.setdefault("MASTER_PORT", str(12_000 + (61 * job + step) % 20_000)))

    def world_size(self) -> int:
        return launch().ranks
