"""The flags of a run that W&B hands out again."""

import random

from helpers.wandb_server import FLAGS

from lightning_ssl.runs.configuration import Configuration, make_parser
from lightning_ssl.runs.keys import FLAGS as TOP
from lightning_ssl.tracking.agent import sweep_flags
from lightning_ssl.tracking.logger import wandb_config

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


def test_every_top_level_flag_is_known():
    options = {option for action in make_parser()._actions for option in action.option_strings}
    found = {option.lstrip("-").rstrip("+").partition(".")[0] for option in options}
    assert found - {"h", "help", "c", "print_config"} <= {*TOP}
