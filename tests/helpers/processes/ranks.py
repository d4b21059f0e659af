"""Several ranks of `lightning-ssl fit`, as torchrun starts them, in forks of the test process."""

import multiprocessing
import os
import sys

import torch

from helpers.training import free_port
from lightning_ssl.app.commands import fit


def start_ranks(argv, ranks=2, run=fit.main):
    """Start the processes of a run; `run` gets the flags."""
    context, port = multiprocessing.get_context("fork"), free_port()
    processes = [context.Process(target=one_rank, args=(argv, rank, ranks, port, run)) for rank in range(ranks)]
    for process in processes:
        process.start()
    return processes


def join(processes, timeout=600):
    """Wait for all processes; return their exit codes. A process that hangs is killed, and its code is None."""
    codes = []
    for process in processes:
        process.join(timeout)
        codes.append(process.exitcode)
    for process in processes:
        process.kill()
    return codes


def one_rank(argv, rank, ranks, port, run):
    """One process as torchrun starts it."""
    torch.set_num_threads(1)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "7",
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    from pytorch_lightning.utilities.rank_zero import rank_zero_only

    rank_zero_only.rank = rank  # Lightning reads it from the environment when it is imported
    sys.exit(run([*argv, f"--trainer.devices={ranks}", "--trainer.strategy=ddp"]))
