"""The flags of a run that W&B hands out again."""

import random

import pytest
import yaml
from helpers.wandb_server import FLAGS

from lightning_ssl.app.config.configuration import Configuration, root
from lightning_ssl.app.config.keys import FLAGS as TOP
from lightning_ssl.app.tracking.agent import PARAMETERS, sweep_flags
from lightning_ssl.app.tracking.logger import wandb_config

FIXED = ["--config=configs/data/shapes.yaml", "--trainer.accelerator", "cpu"]
CELL = {"config": "configs/method/direct.yaml", "model.importance.p": 6.0, "seed_everything": 3, "model": "AlphaCL"}


def test_the_flags_of_a_first_start_are_left_alone():
    assert sweep_flags([*FIXED, *FLAGS]) == [*FIXED, *FLAGS]


def test_a_whole_configuration_in_any_order_gives_the_run_of_the_sweep():
    first = Configuration.parse([*FIXED, *(f"--{key}={value}" for key, value in CELL.items())])
    logged = CELL | wandb_config(first.stored()) | {"_wandb": {"cli_version": "0.31.0", "t": {"1": [1, 5]}}}
    words = [f"--{key}={value}" for key, value in logged.items()]
    for seed in range(5):
        random.Random(seed).shuffle(words)
        assert Configuration.parse(sweep_flags([*FIXED, *words])).stored() == first.stored()


def handed_out_again(words, tmp_path, monkeypatch):
    """The words that the agent passes for the configuration that W&B has of a run. Its file has the keys."""
    flags = dict(word[2:].split("=", 1) for word in words)
    logged = {"_wandb": {"t": 1}, "backprop_alpha": False, "label": "AlphaCL", "normalize": True, **flags}
    content = {"wandb_version": 1, **{key: {"value": value} for key, value in logged.items()}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setenv(PARAMETERS, str(tmp_path / "config.yaml"))
    return [f"--{key}={value}" for key, value in logged.items()]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--trainer.max_steps", "-1"], []),  # a value that looks like a flag
        (["--data.batch_size=16"], []),  # the file of the sweep comes later, and wins
        (["--data.batch_size=16"], ["--config=configs/data/shapes.yaml", "-c", "x.yaml"]),
        (["--seed_everything=1"], []),  # it repeats the last key of the sweep
    ],
)
def test_the_other_words_of_the_command_keep_their_places(before, after, tmp_path, monkeypatch):
    words = ["--config=configs/method/direct.yaml", "--model.importance.p=6.0", "--seed_everything=3"]
    again = handed_out_again(words, tmp_path, monkeypatch)
    assert sweep_flags([*before, *again, *after]) == [*before, *words, *after]


def two_words(words):
    return [part for word in words for part in word.split("=", 1)]


def without_false(words):
    return [word.removesuffix("=True") for word in words if not word.endswith("=False")]


@pytest.mark.parametrize(
    ("passed", "given", "file"),
    [
        (without_false, list, True),  # from ${args_no_boolean_flags}
        (two_words, two_words, True),  # from ${args_no_equals}
        (list, list, False),
    ],
)
def test_other_forms_of_flags_and_a_missing_file_are_known(passed, given, file, tmp_path, monkeypatch):
    words = ["--config=configs/method/direct.yaml", "--seed_everything=-3"]
    again = passed(handed_out_again(words, tmp_path, monkeypatch))
    if not file:
        monkeypatch.delenv(PARAMETERS)
    first = ["--trainer.max_steps", "-1"]  # a value that looks like a flag
    assert sweep_flags([*first, *again]) == [*first, *given(words)]


def test_every_top_level_flag_is_known():
    assert {*root().named(), "config"} <= {*TOP}
