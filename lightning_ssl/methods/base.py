"""The base class of every method: views of a batch, a backbone with a projector, an optimizer with a schedule.

A subclass adds a loss on embeddings. Probes, nearest neighbours and monitors are callbacks.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import lightning_ssl
from lightning_ssl._lightning import pl
from lightning_ssl.augment import PRESETS, TwoViews
from lightning_ssl.base.checks import UserError, require, require_positive
from lightning_ssl.base.seeding import generator_of
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.base.tree import import_path, to_tree
from lightning_ssl.data import DataModule
from lightning_ssl.methods.checkpoints import load_method, read
from lightning_ssl.networks import Norm, Projector, Stem, build_backbone, eval_mode, stem_for
from lightning_ssl.optim import LARS, adopt_loaded_state, can_fuse, constant, parameter_groups, released, warmup_cosine

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Head", "Method", "Optimization"]

DEFAULT_SIZE = 32  # pixels of the images, if neither the arguments nor the data say it
OptimizerName = Literal["adam", "sgd", "lars"]
ScheduleName = Literal["warmup_cosine", "constant", "released"]


@dataclass(frozen=True)
class Head:
    """The shape of a projector, without its input width. The arguments are those of `networks.Projector`.

    hidden     width of the hidden layers
    out        width of the embeddings
    layers     number of linear maps
    norm       after each map but the last: "bn", "bn_noaffine" (no scale and shift) or null
    last_norm  after the last map

    The default is that of the α-CL and dual-network papers, as in their released code. Chen et al. 2020 (Sec. 2.1) use
    `Head(2048, 128, norm="bn", last_norm="bn")` on ResNet50; the last norm is in their code and not in their text.

    >>> Head(hidden=2048, norm="bn")
    Head(hidden=2048, out=128, layers=2, norm='bn', last_norm=None)
    """

    hidden: int = 512
    out: int = 128
    layers: int = 2
    norm: Norm | None = "bn_noaffine"
    last_norm: Norm | None = None


@dataclass(frozen=True)
class Optimization:
    """An optimizer and its schedule. The default is that of the α-CL papers: Adam without weight decay.

    name           "adam", "sgd" or "lars"
    lr             base learning rate
    momentum       β₁ in Adam
    weight_decay   "sgd" and "lars" apply it to weights only, "adam" to every parameter
    schedule       "warmup_cosine", "constant", or "released", the schedule of the α-CL papers' code
    warmup_epochs  epochs of linear warm-up, for "warmup_cosine" only

    >>> Optimization("lars", lr=0.3, weight_decay=1e-4, schedule="warmup_cosine", warmup_epochs=10).name
    'lars'
    """

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
        require(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "a finite number, at least 0")
        require(self.warmup_epochs >= 0, "warmup_epochs", self.warmup_epochs, "at least 0")
        used = self.warmup_epochs == 0 or self.schedule == "warmup_cosine"
        require(used, "warmup_epochs", self.warmup_epochs, "0 unless schedule='warmup_cosine'")

    def optimizer(
        self, groups: list[dict[str, Any]], fused: bool = False, unscales: bool = False
    ) -> torch.optim.Optimizer:
        """Build the optimizer of these parameter groups.

        fused      use torch's fused kernels for Adam and SGD, which can skip a step without the host
        unscales   the optimizer divides by the scale of a GradScaler itself
        """
        if self.name == "lars":
            return LARS(groups, lr=self.lr, momentum=self.momentum, unscales=unscales)
        optimizer: torch.optim.Optimizer
        if self.name == "adam":
            optimizer = torch.optim.Adam(groups, lr=self.lr, betas=(self.momentum, 0.999), fused=fused)
        else:
            optimizer = torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, fused=fused)
        # app/training/guard.py reads the first, torch's GradScaler and Lightning the second.
        optimizer.skips_steps, optimizer._step_supports_amp_scaling = fused, unscales  # type: ignore[union-attr]
        optimizer.register_load_state_dict_post_hook(adopt_loaded_state)
        return optimizer

    def factor(self, steps_per_epoch: int, total_steps: int) -> Callable[[int], float]:
        """Return the factor on the learning rate as a function of the step."""
        if self.schedule == "constant":
            return constant
        if self.schedule == "released":
            return partial(released, steps_per_epoch=steps_per_epoch)
        return partial(warmup_cosine, warmup_steps=self.warmup_epochs * steps_per_epoch, total_steps=total_steps)


class Views(NamedTuple):
    """Two augmented views of a batch, and the un-augmented images if the loss needs them."""

    first: Tensor  # (B, 3, S, S)
    second: Tensor
    clean: Tensor | None = None


class Method(pl.LightningModule):
    """Trains a backbone and a projector on two views of each image. A subclass defines `compute_loss(views)`.

    backbone       resnet18, resnet34, resnet50, resnet_tiny, timm:NAME, the path of your own class, or a network that
                   maps (B, 3, H, W) to (B, F)
    stem           "cifar", "standard", or None to choose by `image_size`
    image_size     side of the images in pixels. `image_size`, `mean` and `std` are by default those of the data module,
                   or CIFAR-10's if it has none
    mean, std      of the channels, on a scale of 0 to 1
    augment        name of a preset in `augment.PRESETS`
    projector      shape of the projector
    optimization   optimizer and schedule
    seed           of the augmentations; the command line sets it to `seed_everything`. The augmentation of an image is
                   a function of the seed, the epoch, the batch and the place in the batch. It does not depend on the
                   number of ranks, nor on an interruption of the run
    channels_last  memory format of images and convolutions. "auto" is True where this is faster: on a CPU, and on CUDA
                   with mixed precision
    compile        compile the backbone with torch.compile

    >>> class Alignment(Method):
    ...     def compute_loss(self, views):
    ...         z1, z2 = (self.projector(self(x)) for x in views[:2])
    ...         return (z1 - z2).square().sum(1).mean()
    >>> model = Alignment(backbone="resnet_tiny")
    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> model.compute_loss(model.views(images)).shape, model.features(images).shape
    (torch.Size([]), torch.Size([4, 112]))
    """

    # The network and its training, and the random draws and the way of computing. What a subclass adds is its loss.
    roles: ClassVar = {
        "backbone": "setting", "stem": "setting", "image_size": "setting", "mean": "setting", "std": "setting",
        "augment": "setting", "projector": "setting", "optimization": "setting",
        "seed": "incidental", "channels_last": "incidental", "compile": "incidental",
    }  # fmt: skip
    needs_clean = False
    shares_arguments: ClassVar[bool] = True
    """Whether another method that is chosen later keeps the given arguments that it has too."""

    def __init__(
        self,
        backbone: str | nn.Module = "resnet18",
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
        self.save_hyperparameters(self.plain_arguments(inspect.currentframe()))
        require(seed is None or 0 <= seed < 2**63, "seed", seed, "0 or above, and below 2^63")
        require(augment in PRESETS, "augment", augment, f"one of {', '.join(PRESETS)}")
        self.built_for = DEFAULT_SIZE if image_size is None else image_size  # pixels
        self.backbone = build_backbone(backbone, self.built_for, stem)
        self.projector = Projector(self.backbone.num_features, **asdict(projector))
        self.augment = self.make_augment()
        self.optimization = optimization
        self.seed = seed or 0
        self.channels_last = channels_last
        self.choose_memory_format(torch.device("cpu"), "32-true")
        if compile:
            self.backbone.compile()  # in place: the names of the parameters stay the same

    def compute_loss(self, views: Views) -> Tensor:
        """The scalar to minimize, from the views of this rank."""
        raise NotImplementedError

    def plain_arguments(self, constructor: Any) -> dict[str, Any]:
        """The arguments of all constructors as plain values, from the frame of the first one.

        A checkpoint rebuilds the method from them. The arguments of a subclass win over those that it passes to its
        base. Modules other than the backbone are left out: their weights are in the checkpoint.
        """
        given: dict[str, Any] = {}
        for each in pl.utilities.parsing.collect_init_args(constructor, [], classes=(Method,)):
            given |= each
        known = arguments_of(cast(Any, type(self)))
        kept = {name: value for name, value in given.items() if name == "backbone" or not isinstance(value, nn.Module)}
        return {name: to_tree(value, known[name].type if name in known else Any) for name, value in kept.items()}

    def configuration(self) -> dict[str, Any]:
        """The class and its arguments as plain values: the part `model` of a configuration."""
        return {"class_path": import_path(type(self)), "init_args": dict(self.hparams)}

    # -- from images to embeddings ------------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        """The backbone's features of normalized images: (B, 3, S, S) → (B, F)."""
        x = x.to(self.dtype)  # float64 under `--trainer.precision 64-true`
        features: Tensor = self.backbone(x.contiguous(memory_format=self.memory_format))
        return features

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """The backbone's features of un-augmented images: uint8 (B, 3, H, W) → (B, F).

        They are computed in evaluation mode and without a gradient. Autocast is the caller's choice.
        """
        with eval_mode(self):
            features: Tensor = self(self.augment.unaugmented(images))
        return features

    def choose_memory_format(self, device: torch.device, precision: str) -> None:
        """Set the memory format of the convolutions' weights and inputs, by the argument `channels_last`."""
        on = self.channels_last
        if on == "auto":
            on = device.type == "cpu" or (device.type == "cuda" and "mixed" in precision)
        self.memory_format = torch.channels_last if on else torch.contiguous_format
        self.to(memory_format=self.memory_format)

    def views(self, images: Tensor, batch_idx: int = 0) -> Views:
        """Augmented views of this rank's uint8 images.

        The parameters are drawn for the batch of all ranks; each rank takes its own part.
        """
        rank, ranks = self.global_rank, self.trainer.world_size if self._trainer is not None else 1
        generator = generator_of(self.seed, self.current_epoch, batch_idx)
        views = self.augment(images, generator, rank, ranks)
        return Views(*(x.to(self.dtype, memory_format=self.memory_format) for x in views))

    # -- Lightning ----------------------------------------------------------------------------------------------------

    def make_augment(self) -> TwoViews:
        """The augmentation with the image size and the channel statistics in `hparams`."""
        moments: Any = {key: tuple(value) for key in ("mean", "std") if (value := self.hparams[key]) is not None}
        size = self.hparams["image_size"] or DEFAULT_SIZE
        return TwoViews(self.hparams["augment"], size=size, clean=self.needs_clean, **moments)

    def adopt_data(self, data: Any) -> None:
        """Take the image size and the channel statistics of a data module where the constructor was given none."""
        known = {name: getattr(data, name, None) for name in ("image_size", "mean", "std")}
        missing = {name: value for name, value in known.items() if self.hparams[name] is None and value is not None}
        size = missing.get("image_size", self.built_for)
        if size != self.built_for and stem_for(size) != getattr(self.backbone, "stem_name", None):
            differ = f"the images have {size} pixels, and the backbone was built for {self.built_for}"
            raise UserError(f"image_size=None: {differ}; pass image_size={size} to {type(self).__name__}")
        if missing:
            self.hparams.update({name: to_tree(value) for name, value in missing.items()})
            self.augment = self.make_augment()

    def setup(self, stage: str) -> None:
        self.adopt_data(getattr(self.trainer, "datamodule", None))
        self.choose_memory_format(self.trainer.strategy.root_device, str(self.trainer.precision))

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = None,
        # Lightning's hparams_file is left out.
        strict: bool = True,  # type: ignore[override]
        weights_only: bool = True,  # type: ignore[override]
        trust: Sequence[str] = (),  # type: ignore[override]
        **kwargs: Any,
    ) -> Self:
        """Load a method with its weights, from a checkpoint of Python or of `lightning-ssl fit`, as Lightning does.

        trust         modules whose classes the checkpoint may name, besides this package and the user's own modules
                      that are imported already
        weights_only  False trusts the whole file
        kwargs        arguments that replace those of the checkpoint
        """
        content = read(checkpoint_path, map_location, weights_only)
        return load_method(cls, content, kwargs, strict, tuple(trust) if weights_only else None)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what `load_from_checkpoint`, `lightning-ssl evaluate` and `lightning-ssl export` need to rebuild this."""
        if "lightning_ssl" not in checkpoint:  # `lightning-ssl fit` adds the whole configuration
            config = {"model": self.configuration()}
            data = getattr(self.trainer, "datamodule", None)
            if isinstance(data, DataModule):
                config["data"] = data.configuration()
            checkpoint["lightning_ssl"] = {"config": config, "version": lightning_ssl.__version__}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout draws from the global generator. Seeding it at every step makes a resumed run draw the same numbers.
        seed = generator_of(self.seed, self.current_epoch, batch_idx, self.global_rank).initial_seed()
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed also queues a call for CUDA
        else:
            torch.manual_seed(seed)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self.compute_loss(self.views(batch[0], batch_idx))
        callbacks = getattr(self.trainer, "callbacks")  # noqa: B009  mypy does not see it
        logged_elsewhere = any(getattr(callback, "logs_train_loss", False) for callback in callbacks)
        to_logger = bool(self.trainer.loggers) and not logged_elsewhere  # Lightning warns if there is no logger
        bar = self.trainer.progress_bar_callback
        to_bar = bar is not None and getattr(bar, "shows_loss", True)  # Lightning then reads the loss at every step
        self.log("train/loss", loss, prog_bar=to_bar, logger=to_logger, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Features of the un-augmented images, computed once for all callbacks."""
        return {"features": self(self.augment.unaugmented(batch[0])), "labels": batch[1]}

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the trainable parameters."""
        settings = self.optimization
        # LARS would hardly move a bias, whose norm starts at 0.
        groups = parameter_groups(self, settings.weight_decay, exclude_bias_and_norm=settings.name != "adam")
        fused = can_fuse(self.device)
        # Lightning refuses to clip the gradients of an optimizer that unscales them, also without a GradScaler.
        clips = self._trainer is not None and bool(self._trainer.gradient_clip_val)
        return settings.optimizer(groups, fused, unscales=fused and not clips)

    def configure_optimizers(self) -> Any:
        settings, optimizer = self.optimization, self.make_optimizer()
        counted = settings.schedule != "constant"  # a constant rate needs no number of steps
        factor = settings.factor(self.steps_per_epoch() if counted else 1, self.total_steps() if counted else 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def total_steps(self) -> int:
        """Number of optimizer steps of the whole training."""
        total = self.trainer.estimated_stepping_batches
        require(total != math.inf, "max_epochs", self.trainer.max_epochs, "a number if a schedule needs its end")
        return max(1, int(total))

    def steps_per_epoch(self) -> int:
        """Number of optimizer steps of an epoch; `max_steps` does not change it."""
        trainer = self.trainer
        if trainer.num_training_batches in (0, math.inf):  # the loader is not set up yet
            load = getattr(trainer.fit_loop, "setup_data", None)  # Lightning 2.x; 1.9 has the method below
            (load or getattr(trainer, "reset_train_dataloader"))()  # noqa: B009
        return max(1, math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches))
