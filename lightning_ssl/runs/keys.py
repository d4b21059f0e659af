"""The role of each key of a configuration: part of the loss, a setting that can change the result, or incidental.

    role("model.importance.p")   "loss"         what is minimized
    role("data.batch_size")      "setting"      the data, the network and its training, the probe that measures
    role("trainer.devices")      "incidental"   where and how fast a run was computed, its seed, its name

Keys are dotted flags of `lightning-ssl fit` (labels.py, `flatten`). The report groups runs by their loss and settings,
the label of a loss names the keys of the loss, and W&B gets the same words. `tests/runs/test_keys.py` compares the
tuples below with the signatures of the Trainer, the data module and the methods: a new argument has no role until it
is entered here or in methods/arguments.py.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from lightning_ssl.methods import arguments

Role = Literal["loss", "setting", "incidental"]

# Flags of `fit` outside of trainer, model and data.
MEASURING = ("probe", "knn")  # callbacks whose settings change the accuracy that is measured
INCIDENTAL = (
    "config", "seed_everything", "runs", "name", "resume", "logger", "group", "tags", "debug", "checkpoint", "spectrum",
    "importance_monitor",
)  # fmt: skip

DATA_SETTINGS = ("name", "batch_size", "split", "reshuffle", "options")
DATA_INCIDENTAL = ("root", "seed", "validate", "download", "workers")

TRAINER_SETTINGS = (
    "max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "limit_train_batches", "limit_val_batches",
    "limit_test_batches", "limit_predict_batches", "overfit_batches", "accumulate_grad_batches", "gradient_clip_val",
    "gradient_clip_algorithm", "precision", "sync_batchnorm", "callbacks", "use_distributed_sampler",
    "reload_dataloaders_every_n_epochs", "model_registry",
)  # fmt: skip
TRAINER_INCIDENTAL = (
    "accelerator", "strategy", "devices", "num_nodes", "logger", "fast_dev_run", "val_check_interval",
    "check_val_every_n_epoch", "num_sanity_val_steps", "log_every_n_steps", "enable_checkpointing",
    "enable_progress_bar", "enable_model_summary", "enable_autolog_hparams", "deterministic", "benchmark",
    "inference_mode", "profiler", "detect_anomaly", "barebones", "plugins", "default_root_dir",
)  # fmt: skip

# Noise in every update is part of what is minimized (dual-network paper, Table 2).
NOISE = "trainer.callbacks.WeightNoise"


@cache
def role(key: str) -> Role:
    """The role of a key. An unknown argument of a method belongs to its loss: users write methods of their own."""
    top, _, rest = key.partition(".")
    argument = rest.partition(".")[0]
    if top == "model":
        if argument in arguments.INCIDENTAL:
            return "incidental"
        return "setting" if argument in arguments.NETWORK else "loss"
    if key == NOISE or key.startswith(f"{NOISE}."):
        return "incidental" if key == f"{NOISE}.seed" else "loss"
    if top in INCIDENTAL or (top == "data" and argument in DATA_INCIDENTAL):
        return "incidental"
    if top == "trainer" and argument in TRAINER_INCIDENTAL:
        return "incidental"
    return "setting"
