"""Trainings that are killed, in a fork of the test process."""

import multiprocessing
import os
import signal
import sys

import pytest
import torch

from lightning_ssl import methods
from lightning_ssl.app.commands import fit


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """A pool of threads does not survive a fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def in_a_fork(work, *arguments):
    """Run a function in a fork of this process; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def code_in_a_fork(work, *arguments):
    """Run a function in a fork that ends with the code that it returns."""
    return in_a_fork(lambda: sys.exit(work(*arguments)))


def fit_until_killed(argv, steps):
    """Train for `steps` training steps and send SIGKILL in the next."""
    done = 0
    original = methods.Method.training_step

    def training_step(self, batch, batch_idx):
        nonlocal done
        if done == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return original(self, batch, batch_idx)

    methods.Method.training_step = training_step
    fit.main(argv)
