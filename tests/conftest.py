import lightning_ssl  # noqa: F401  isort: skip  (before anything that imports torchvision)
import torch
from hypothesis import settings

# A first call loads libraries; a slow one on a busy machine says nothing about the code.
settings.register_profile("suite", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("suite")

torch.set_num_threads(1)  # small tensors: a second thread costs more than it brings
