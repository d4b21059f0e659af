"""The worker processes of a loader end with it."""

import multiprocessing
import subprocess
import sys

import pytest
import torch
from torch.utils.data import Dataset

from lightning_ssl import DataModule


class Grey(Dataset):
    """Sixteen images; item 9 is missing."""

    mean = std = (0.5, 0.5, 0.5)

    def __len__(self):
        return 16

    def __getitem__(self, index):
        if index == 9:
            raise KeyError("no such picture")
        return torch.full((3, 8, 8), index, dtype=torch.uint8), 0


def batches():
    """The batches of an epoch, made by one worker."""
    module = DataModule.of(Grey(), batch_size=4, workers=1, num_classes=1, store_size=8)
    return iter(module.sequential_dataloader("train"))


def test_an_error_of_an_item_ends_the_workers_while_its_traceback_is_kept():
    with pytest.raises(ValueError, match="no such picture") as error:
        list(batches())
    assert error.value.__traceback__ is not None
    assert not multiprocessing.active_children()


HELD = """
import torch
from lightning_ssl.data.loader import decoded_batches
held = decoded_batches(torch.Tensor.clone, torch.arange(16).split(4), workers=1)
next(held)
"""


def test_a_program_that_ends_within_an_epoch_does_not_wait_for_its_workers():
    assert subprocess.run([sys.executable, "-c", HELD], timeout=600).returncode == 0
