"""What every method shares: views of a batch, a backbone with a projector, an optimizer with its schedule.

A method is a loss on embeddings and nothing else; probes, neighbours and monitors are callbacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lightning_ssl.augment import TwoViews
from lightning_ssl.checks import require, require_positive
from lightning_ssl.networks import Norm, Projector, Stem, backbone
from lightning_ssl.optim import LARS, constant, parameter_groups, released, warmup_cosine
from lightning_ssl.seeding import generator_of

OptimizerName = Literal["adam", "sgd", "lars"]
ScheduleName = Literal["warmup_cosine", "constant", "released"]


@dataclass(frozen=True)
class Head:
    """A projector's shape; the default is the α-CL papers' (see `networks.PROJECTORS` for others)."""

    hidden: int = 512
    out: int = 128
    layers: int = 2
    norm: Norm | None = "bn_noaffine"
    last_norm: Norm | None = None


@dataclass(frozen=True)
class Optimization:
    """An optimizer and its schedule; the default is the α-CL papers' Adam without weight decay."""

    name: OptimizerName = "adam"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: ScheduleName = "constant"
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        for key, allowed in (("name", get_args(OptimizerName)), ("schedule", get_args(ScheduleName))):
            require(getattr(self, key) in allowed, key, getattr(self, key), f"one of {', '.join(allowed)}")
        require_positive("lr", self.lr)
        require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        require(self.warmup_epochs >= 0, "warmup_epochs", self.warmup_epochs, "at least 0")
        require(
            self.warmup_epochs == 0 or self.schedule == "warmup_cosine",
            "warmup_epochs",
            self.warmup_epochs,
            "0 unless schedule='warmup_cosine'",
        )

    def optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if self.name == "adam":
            return torch.optim.Adam(groups, lr=self.lr, betas=(self.momentum, 0.999))
        kind = LARS if self.name == "lars" else torch.optim.SGD
        return kind(groups, lr=self.lr, momentum=self.momentum)

    def factor(self, steps_per_epoch: int, total_steps: int) -> Callable[[int], float]:
        """The factor on the learning rate as a function of the step."""
        if self.schedule == "constant":
            return constant
        if self.schedule == "released":
            return partial(released, steps_per_epoch=steps_per_epoch)
        return partial(warmup_cosine, warmup_steps=self.warmup_epochs * steps_per_epoch, total_steps=total_steps)


class Views(NamedTuple):
    """Augmented views of a batch, and the images themselves where a loss asks for them."""

    first: Tensor  # (B, 3, S, S)
    second: Tensor
    clean: Tensor | None = None


class Method(pl.LightningModule):
    """Trains a backbone and a projector on two views; a subclass gives `compute_loss(views)`.

    backbone      resnet18, resnet34, resnet50, resnet_tiny or timm:NAME
    stem          "cifar", "standard", or None to choose by `image_size`
    image_size, mean, std   of the data; the command line takes them from there, otherwise CIFAR-10's are assumed
    augment       a preset of `augment.PRESETS`
    channels_last  memory format of images and convolutions; "auto": on where it is faster, on a CPU and on CUDA with
                  mixed precision
    seed          of the augmentations: those of an image are a function of the seed, the batch and its place in it, so
                  that neither a resumed run nor another number of ranks changes them; the command line takes it from
                  `seed_everything`
    """

    needs_clean = False

    def __init__(
        self,
        backbone: str = "resnet18",
        stem: Stem | None = None,
        image_size: int | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        augment: str = "simclr_cifar",
        projector: Head = Head(),  # noqa: B008  frozen, as those below
        optimization: Optimization = Optimization(),  # noqa: B008
        seed: int | None = None,
        channels_last: bool | Literal["auto"] = "auto",
        compile: bool = False,
    ) -> None:
        super().__init__()
        require(seed is None or seed >= 0, "seed", seed, "0 or above")
        size = 32 if image_size is None else image_size
        self.backbone = make_backbone(backbone, size, stem)
        self.projector = Projector(self.backbone.num_features, **asdict(projector))
        moments: dict[str, Any] = {name: value for name, value in (("mean", mean), ("std", std)) if value is not None}
        self.augment = TwoViews(augment, size=size, clean=self.needs_clean, **moments)
        self.optimization = optimization
        self.seed = seed or 0
        self.channels_last = channels_last
        self.choose_memory_format(torch.device("cpu"), "32-true")
        if compile:
            self.backbone.compile()  # in place, so that the names of the parameters stay

    def compute_loss(self, views: Views) -> Tensor:
        """The scalar to descend, of this rank's views."""
        raise NotImplementedError

    def trained(self) -> nn.Module:
        """What the optimizer moves."""
        return self

    # -- from images to embeddings ------------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        """The representation of normalized images: (B, 3, S, S) → (B, F)."""
        x = x.to(self.dtype)  # that of `--trainer.precision 64-true` and the like
        features: Tensor = self.backbone(x.contiguous(memory_format=self.memory_format))
        return features

    def choose_memory_format(self, device: torch.device, precision: str) -> None:
        """Lay out the convolutions' weights, and from now on their input, as `channels_last` says."""
        on = self.channels_last
        if on == "auto":
            on = device.type == "cpu" or (device.type == "cuda" and "mixed" in precision)
        self.memory_format = torch.channels_last if on else torch.contiguous_format
        self.to(memory_format=self.memory_format)

    def views(self, images: Tensor, batch_idx: int = 0) -> Views:
        """Augmented views of this rank's uint8 images, drawn for the whole batch and taken in part."""
        rank, ranks = self.global_rank, self.trainer.world_size if self._trainer is not None else 1
        generator = generator_of(self.seed, self.current_epoch, batch_idx)
        views = self.augment(images, generator, rank, ranks, self.memory_format)
        return Views(*(x.to(self.dtype, memory_format=self.memory_format) for x in views))

    # -- Lightning ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        self.choose_memory_format(self.trainer.strategy.root_device, str(self.trainer.precision))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Networks with dropout draw from the global generator: there too a resumed run draws what it would have drawn.
        seed = generator_of(self.seed, self.current_epoch, batch_idx, self.global_rank).initial_seed()
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would queue a call for CUDA, at every step
        else:
            torch.manual_seed(seed)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self.compute_loss(self.views(batch[0], batch_idx))
        callbacks = getattr(self.trainer, "callbacks")  # noqa: B009  mypy does not see it
        logged_elsewhere = any(getattr(callback, "logs_train_loss", False) for callback in callbacks)
        to_logger = bool(self.trainer.loggers) and not logged_elsewhere  # Lightning warns if there is no logger
        self.log("train/loss", loss, prog_bar=True, logger=to_logger, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Features of the images as they are, computed once for every callback that measures them."""
        return {"features": self(self.augment.unaugmented(batch[0])), "labels": batch[1]}

    def configure_optimizers(self) -> Any:
        settings = self.optimization
        # Weights alone are decayed and adapted: LARS on a bias, whose norm starts at 0, would hardly move it.
        groups = parameter_groups(self.trained(), settings.weight_decay, exclude_bias_and_norm=settings.name != "adam")
        optimizer = settings.optimizer(groups)
        known = settings.schedule != "constant"  # which needs neither
        factor = settings.factor(self.steps_per_epoch() if known else 1, self.total_steps() if known else 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def total_steps(self) -> int:
        """Optimizer steps of the whole training; a schedule must know its end."""
        total = self.trainer.estimated_stepping_batches
        require(total != math.inf, "max_epochs", self.trainer.max_epochs, "a number where a schedule needs its end")
        return max(1, int(total))

    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch, whatever ends the training."""
        trainer = self.trainer
        if trainer.num_training_batches in (0, math.inf):  # not asked for yet
            load = getattr(trainer.fit_loop, "setup_data", None)  # of 2.x; 1.9 has it elsewhere
            (load or getattr(trainer, "reset_train_dataloader"))()  # noqa: B009
        return max(1, math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches))


make_backbone = backbone  # `backbone` is the name of the configured one in `Method.__init__`
