"""STL-10 (Coates, Ng and Lee, 2011): 96×96 pixels, 5,000 training, 8,000 test and 100,000 unlabeled images.

The cache stores train and unlabeled as one tensor of 2.9 GB, labelled images first. `pretrain` is the whole tensor and
`train` is a slice of it, so neither is copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_ssl.data.download import Published
from lightning_ssl.data.split import DatasetInfo, Images


class STL10(Published):
    name, official, files = "stl10", "STL10", ("pretrain", "test")
    info = DatasetInfo(96, 10, (0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713))

    def open_split(self, split: str) -> Images:
        """Open a split; `pretrain` is train followed by unlabeled, which has labels −1."""
        if split != "train":
            return self.mapped(split)
        both = self.mapped("pretrain")
        labelled = int((both.labels >= 0).sum())
        return Images(both.images[:labelled], both.labels[:labelled], both.classes)

    def read(self, official: Any, folder: Path) -> dict[str, Images]:
        """Both files of the cache from the official binaries."""
        checked = official(folder, split="test")  # torchvision checks the MD5 sums of all files here
        files = Path(folder) / official.base_folder
        classes = tuple(checked.classes)
        train_x, train_y, unlabeled_x = (files / name for name, _ in official.train_list)
        test_x, test_y = (files / name for name, _ in official.test_list)
        labelled = read_labels(train_y)
        images = read_images(train_x, unlabeled_x)
        labels = torch.cat([labelled, labelled.new_full((len(images) - len(labelled),), -1)])
        return {
            "pretrain": Images(images, labels, classes),
            "test": Images(read_images(test_x), read_labels(test_y), classes),
        }


def read_labels(file: Path) -> Tensor:
    """Labels as int64 from 0. The file has one byte per label and counts from 1."""
    return torch.from_numpy(np.fromfile(file, dtype=np.uint8)).long() - 1


def read_images(*files: Path) -> Tensor:
    """Read files of 3 × 96 × 96 bytes per image, columns first, into one tensor. The mapped files take no memory."""
    columns_first = [np.memmap(file, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96) for file in files]
    images = torch.empty(sum(map(len, columns_first)), 3, 96, 96, dtype=torch.uint8)
    np.concatenate([part.swapaxes(2, 3) for part in columns_first], out=images.numpy())
    return images
