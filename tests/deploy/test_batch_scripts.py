"""The scripts of deploy/slurm with programs that print their words. tests/cluster runs them on a real SLURM."""

import os
import subprocess

import pytest
from helpers import ROOT

SCRIPTS = sorted((ROOT / "deploy" / "slurm").glob("*.sbatch"))
KNOWN = ("SLURM_", "SRUN_", "CUDA_VISIBLE_DEVICES")


@pytest.fixture
def printed(tmp_path):
    """Run a script with some variables of SLURM, and return what its program prints."""
    for name in ("lightning-ssl", "wandb", "srun"):
        (tmp_path / name).write_text('#!/bin/bash\necho "$SRUN_CPUS_PER_TASK" "$@"\n')
        (tmp_path / name).chmod(0o755)

    def run(script, **variables):
        known = {name: value for name, value in os.environ.items() if not name.startswith(KNOWN)}
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", ROOT / "deploy" / "slurm" / script, "more"],
            env=known | {"PATH": path, "SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"} | variables,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return run


def test_a_sweep_has_a_worker_for_each_gpu(printed):
    variables = {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "4,7"}
    assert printed("sweep_local.sbatch", **variables) == ["sweep", "--workers=2", "--gpus=4,7", "more"]


@pytest.mark.parametrize("variables", [{}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_a_sweep_on_a_node_without_gpus_has_one_worker(variables, printed):
    assert printed("sweep_local.sbatch", **variables) == ["sweep", "--workers=1", "more"]


@pytest.mark.parametrize("script", ["agents.sbatch", "ddp.sbatch"])
def test_steps_get_the_cores_of_the_job(script, printed):
    assert printed(script, SLURM_CPUS_PER_TASK="8")[0] == "8"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_job_may_leave_the_cores_to_the_cluster(script, printed):
    """Without --cpus-per-task, such as with --cpus-per-gpu, SLURM does not set SLURM_CPUS_PER_TASK."""
    assert printed(script)[-1] == "more"
