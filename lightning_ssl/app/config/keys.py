"""The role of each key of a configuration: what it decides about a run.

    role("model.importance.p")          "loss"         what is minimized
    role("data.options.train_images")   "data"         the images; runs on different images are never ranked together
    role("model.optimization.lr")       "setting"      the network, the batches, the optimizer, the length of training
    role("probe.lr")                    "measuring"    how accuracy is measured
    role("trainer.precision")           "other"        it can change a result, but is rarely what an experiment asks
    role("trainer.devices")             "incidental"   where and how fast a run was computed, its seed, its name

Keys are dotted flags of `lightning-ssl fit` (labels.py, `flatten`). The report groups runs by their loss, their data
and their settings, and mentions other differences in a note. The label of a loss names the keys of the loss, and W&B
gets the same words. Methods and callbacks declare the roles of their arguments (base/facts.py).
`tests/app/config/test_keys.py` compares the tuples below with the signatures of the Trainer and the data module: a new
argument has no role until it is entered here.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from lightning_ssl.base import facts

Role = Literal["loss", "data", "setting", "measuring", "other", "incidental"]

# Flags of `fit` outside of trainer, model and data.
FLAG_ROLES: dict[str, Role] = {
    each.declared["flag"]: each.declared["role"] for each in facts.callbacks() if "flag" in each.declared
}
PLACE = ("config", "runs", "name", "resume")  # where a run is; they are not stored in its config.yaml
TRACKING = ("logger", "group", "tags")  # how a run is tracked; they may change when it is resumed
INCIDENTAL = (
    *PLACE, *TRACKING, "seed_everything", "debug", "checkpoint",
    *(flag for flag, role in FLAG_ROLES.items() if role == "incidental"),
)  # fmt: skip
# Where a run is computed. The batch size is that of all ranks together, so these keys may change too.
MACHINE = (
    "trainer.accelerator", "trainer.strategy", "trainer.devices", "trainer.num_nodes", "data.workers", "data.on_device",
)  # fmt: skip
# Keys that the config.yaml of an older version lacks, with the value that describes what that version did.
ADDED = {"data.holdout": 0}
FLAGS = (*FLAG_ROLES, *INCIDENTAL, "trainer", "model", "data")  # every flag of `fit`, without what follows a dot

DATA: dict[Role, tuple[str, ...]] = {
    "data": ("name", "split", "holdout", "options"),
    "setting": ("batch_size", "reshuffle"),
    "incidental": ("root", "seed", "validate", "download", "workers", "on_device"),
}
TRAINER: dict[Role, tuple[str, ...]] = {
    "setting": (
        "max_epochs", "max_steps", "max_time", "limit_train_batches", "overfit_batches", "accumulate_grad_batches",
        "gradient_clip_val", "gradient_clip_algorithm",
    ),
    "measuring": ("limit_val_batches",),  # the share of the validation images
    "other": (
        "callbacks", "min_epochs", "min_steps", "precision", "sync_batchnorm", "use_distributed_sampler",
        "reload_dataloaders_every_n_epochs",
    ),
    "incidental": (
        "accelerator", "strategy", "devices", "num_nodes", "logger", "fast_dev_run", "limit_test_batches",
        "limit_predict_batches", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps",
        "log_every_n_steps", "enable_checkpointing", "enable_progress_bar", "enable_model_summary",
        "enable_autolog_hparams", "deterministic", "benchmark", "inference_mode", "profiler", "detect_anomaly",
        "barebones", "plugins", "default_root_dir", "model_registry",
    ),
}  # fmt: skip
# The roles of arguments, and that of others: users write their own methods and data modules.
ROLES: dict[str, tuple[dict[str, Role], Role]] = {
    "model": (facts.declared("roles", "methods"), "loss"),
    "data": ({name: role for role, names in DATA.items() for name in names}, "data"),
    "trainer": ({name: role for role, names in TRAINER.items() for name in names}, "other"),
}

CALLBACKS = "trainer.callbacks"  # callbacks without a flag, each at the key of its class


def is_compared(key: str) -> bool:
    """Whether runs with different values of this key are different runs."""
    return key.partition(".")[0] not in (*PLACE, *TRACKING) and key not in MACHINE


@cache
def role(key: str) -> Role:
    """The role of a key. An unknown one can change a result."""
    if key.startswith(f"{CALLBACKS}."):
        return callback_role(key)
    top, _, rest = key.partition(".")
    if top in ROLES:
        known, unknown = ROLES[top]
        return known.get(rest.partition(".")[0], unknown)
    return FLAG_ROLES.get(top, "incidental" if top in INCIDENTAL else "other")


def callback_role(key: str) -> Role:
    """The role of a callback in trainer.callbacks and of its arguments, as its class declares it."""
    name, _, argument = key.removeprefix(f"{CALLBACKS}.").partition(".")
    known = facts.facts_of("callbacks")
    if name not in known or "flag" in known[name].declared:  # the user's own, or a second one beside that of its flag
        return "other"
    declared = known[name].declared
    role: Role = declared.get("roles", {}).get(argument, declared["role"])
    return role
