"""Shared by the benchmarks: a training step on a device without values, where every wait of the host is seen.

torch's meta device stands for an accelerator. Its tensors have shapes and no values, so nothing is computed, and the
host cannot use a value without `Waits` noticing. A wait is

    a read            `item`, `tolist`, `bool`, `int`, `float`, `equal` of a tensor on the device
    a shape           that depends on values: an index by a mask, `nonzero`, `unique`
    a blocking copy   to or from the device; `non_blocking=True` from (on CUDA: pinned) memory of the host does not wait

Tensors on the host (the ids of a sampler, seeds, drawn augmentation parameters) are not on the device and do not count.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_ssl import optim
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.run import quiet
from lightning_ssl.app.training.trainer import make_trainer
from lightning_ssl.base.seeding import generator_of
from lightning_ssl.callbacks import noise

READS = ("_local_scalar_dense", "equal", "is_nonzero")
SHAPES = ("nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive")
COPIES = ("_to_copy", "copy_")


class Waits(TorchDispatchMode):
    """Counts the operators for which the host would wait for the device. A read gives 0, a mask selects everything."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.operators = 0  # on the device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_device = [x.is_meta for x in tensors]
        self.operators += any(on_device)
        if name in READS and any(on_device):
            self.count[name] += 1
            return True if name == "equal" else torch.zeros((), dtype=tensors[0].dtype).item()
        if name in SHAPES and any(on_device):
            raise NotImplementedError(f"{name} on a device: its shape depends on values")
        if (
            name in ("index_put", "index_put_", "_index_put_impl_") and args[2].numel() > 1
        ):  # one value is a masked fill
            self.count["mask"] += any(at is not None and at.is_meta and at.dtype == torch.bool for at in args[1])
        if name == "index" and any(on_device):
            masked = [k for k, at in enumerate(args[1]) if at is not None and at.dtype == torch.bool]
            self.count["mask"] += len(masked)
            self.count["index on the host"] += not all(on_device)
            rows = [
                torch.arange(args[0].shape[k], device="meta") if k in masked else at for k, at in enumerate(args[1])
            ]
            return func(args[0], rows)
        if name in COPIES:
            source, target = (args[1], args[0].device) if name == "copy_" else (args[0], kwargs.get("device"))
            to_device, from_device = target is not None and target.type == "meta", source.is_meta
            if from_device and target is not None and not to_device:
                self.count["copy to the host"] += 1
                return torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
            if to_device and not from_device:
                self.count["copy to the device" if not waits(args, kwargs) else "blocking copy to the device"] += 1
        if name == "_fused_sgd_" and any(on_device):  # it has no kernel on the meta device, and returns nothing
            return None
        return func(*args, **kwargs)


class Constructors(TorchFunctionMode):
    """Counts tensors made from numbers of the host: torch copies them and waits. `Waits` does not see them."""

    def __init__(self, mode: Waits) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor) and made.is_meta:
            given = args[1] if func is Tensor.new_tensor else args[0]
            self.mode.count["blocking copy to the device"] += not isinstance(given, Tensor)
        return made


def waits(args: Any, kwargs: Any) -> bool:
    return not (kwargs.get("non_blocking", False) or (len(args) > 2 and args[2]))


class MetaAccelerator(pl.accelerators.CPUAccelerator):
    """Accepts the meta device."""

    def setup_device(self, device: torch.device) -> None:
        pass


class Enough(Exception):
    """Ends a training after the counted steps."""


class Counting(pl.Callback):
    """Counts the waits of the steps between the first two log steps."""

    def __init__(self, mode: Waits, log_every: int) -> None:
        self.mode, self.log_every = mode, log_every
        self.steps: list[Counter[str]] = []
        self.operators = 0

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.log_every < batch_idx + 1 < 2 * self.log_every:
            self.steps.append(Counter({name: count for name, count in self.mode.count.items() if count}))
            self.operators = self.mode.operators
        if batch_idx + 2 == 2 * self.log_every:
            raise Enough
        self.mode.count.clear()
        self.mode.operators = 0


def steps_of_fit(*flags: str, log_every: int = 3) -> Counting:
    """Take steps of `lightning-ssl fit` with all callbacks of the package; count those between two log steps."""
    argv = [
        "--model.backbone=resnet_tiny", '--data.options={"train_images": 256, "test_images": 32}', "--probe.share=1",
        "--data.batch_size=16", "--trainer.max_epochs=1", f"--trainer.log_every_n_steps={log_every}",
        "--trainer.enable_progress_bar=false", f"--importance_monitor.every_n_steps={log_every}",
        "--trainer.callbacks+=WeightNoise", *flags,
    ]  # fmt: skip
    mode = Waits()
    counting = Counting(mode, log_every)
    with tempfile.TemporaryDirectory() as folder, quiet():
        config = Configuration.parse(argv)
        parts = config.build()
        parts.trainer["accelerator"] = MetaAccelerator()
        parts.trainer["strategy"] = pl.strategies.SingleDeviceStrategy(torch.device("meta"))
        trainer = make_trainer(parts, RunFolder(folder), config.stored())
        getattr(trainer, "callbacks").append(counting)  # noqa: B009  mypy does not see it
        with acting_as_device(), mode, Constructors(mode), contextlib.suppress(Enough):
            trainer.fit(parts.method, parts.data)
    return counting


@contextlib.contextmanager
def acting_as_device() -> Iterator[None]:
    """Let the meta device do what torch allows on accelerators: fused optimizers, generators, asking for autocast."""
    enabled = torch.is_autocast_enabled
    fused = "torch.optim.optimizer._get_fused_kernels_supported_devices"
    with (
        mock.patch.object(optim, "FUSED_DEVICES", ("meta",)),
        mock.patch.object(noise, "generator_of", lambda *numbers, device: generator_of(*numbers)),
        mock.patch(fused, return_value=["meta"]),
        mock.patch("torch.is_autocast_enabled", lambda *device: device != ("meta",) and enabled(*device)),
    ):
        yield
