"""The flags of a run that W&B hands out again."""

import random

import pytest
import yaml
from helpers.processes.wandb_server import FLAGS

from lightning_ssl.app.config.configuration import Configuration, root
from lightning_ssl.app.config.keys import FLAGS as TOP
from lightning_ssl.app.tracking.agent import PARAMETERS, sweep_flags
from lightning_ssl.app.tracking.logger import wandb_config
from lightning_ssl.base.checks import UserError

FIXED = ["--config=configs/data/shapes.yaml", "--trainer.accelerator", "cpu"]
CELL = {"config": "configs/method/direct.yaml", "model.importance.p": 6.0, "seed_everything": 3, "model": "AlphaCL"}


def test_the_flags_of_a_first_start_are_left_alone():
    assert sweep_flags([*FIXED, *FLAGS]) == [*FIXED, *FLAGS]


def passed_by_agent(logged, tmp_path, monkeypatch):
    """The words that the agent passes for the configuration that W&B has of a run. Its file has the keys."""
    content = {"wandb_version": 1, **{key: {"value": value} for key, value in logged.items()}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setenv(PARAMETERS, str(tmp_path / "config.yaml"))
    return [f"--{key}={value}" for key, value in logged.items()]


def test_a_whole_configuration_in_any_order_gives_the_run_of_the_sweep(tmp_path, monkeypatch):
    first = Configuration.parse([*FIXED, *(f"--{key}={value}" for key, value in CELL.items())])
    logged = CELL | wandb_config(first.stored()) | {"_wandb": {"cli_version": "0.31.0", "t": {"1": [1, 5]}}}
    for seed in range(5):
        shuffled = dict(random.Random(seed).sample(list(logged.items()), len(logged)))
        words = passed_by_agent(shuffled, tmp_path, monkeypatch)
        assert Configuration.parse(sweep_flags([*FIXED, *words])).stored() == first.stored()


def handed_out_again(words, tmp_path, monkeypatch):
    """The words that the agent passes when it repeats a run with these flags."""
    flags = dict(word[2:].split("=", 1) for word in words)
    logged = {"_wandb": {"t": 1}, "backprop_alpha": False, "label": "AlphaCL", "normalize": True, **flags}
    return passed_by_agent(logged, tmp_path, monkeypatch)


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
    ("passed", "given"),
    [
        (without_false, list),  # from ${args_no_boolean_flags}
        (two_words, two_words),  # from ${args_no_equals}
    ],
)
def test_other_forms_of_flags_are_known(passed, given, tmp_path, monkeypatch):
    words = ["--config=configs/method/direct.yaml", "--seed_everything=-3"]
    again = passed(handed_out_again(words, tmp_path, monkeypatch))
    first = ["--trainer.max_steps", "-1"]  # a value that looks like a flag
    assert sweep_flags([*first, *again]) == [*first, *given(words)]


def test_a_configuration_of_another_command_line_is_refused(tmp_path, monkeypatch):
    words = handed_out_again(["--seed_everything=3"], tmp_path, monkeypatch)
    with pytest.raises(UserError, match=f"^{PARAMETERS}=.*: it has other flags"):
        sweep_flags([*words[1:], words[0]])
    monkeypatch.delenv(PARAMETERS)
    with pytest.raises(UserError, match=f"^{PARAMETERS}=.*: not a regular file"):
        sweep_flags(words)


def test_every_top_level_flag_is_known():
    assert {*root().named(), "config"} <= {*TOP}
