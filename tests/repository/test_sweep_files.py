"""The files of sweeps/: W&B accepts them, and `lightning-ssl fit` accepts every flag in them."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

from lightning_ssl.app import cli
from lightning_ssl.app.reproduce import recipe
from lightning_ssl.app.sweep import plan, wandb_sweeps
from lightning_ssl.base.walk import is_node

FILES = sorted((ROOT / "sweeps").glob("*.yaml"))
NAMES = """quickstart regularizers tsallis_q exponent_p temperature batch_size backbones baselines
    table1 table2 table3 table4 beta beta_imagenet exact bayes hyperband catalogue"""
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def read(file):
    return plan.read(file, count=None if yaml.safe_load(file.read_text())["method"] == "grid" else 3)


def two_cells(sweep):
    """Return the first cell and a random one; for a search, the first draw with each of two seeds."""
    if sweep.cells:
        return [sweep.cells[0], random.Random(sweep.name).choice(sweep.cells)]
    return [sweep.next_parameters([], {}), replace(sweep, seed=1).next_parameters([], {})]


def test_the_sweep_files_exist():
    assert {file.stem for file in FILES} >= set(NAMES.split())


@every_file
def test_the_wandb_schema_accepts_the_file(file):
    assert wandb_sweeps.schema_violations(yaml.safe_load(file.read_text())) == []


@every_file
def test_the_header_has_both_commands_and_the_name_is_that_of_the_file(file):
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert any(f"lightning-ssl sweep sweeps/{file.name}" in line for line in head)
    assert any(f"wandb sweep sweeps/{file.name}" in line for line in head)
    assert read(file).name == file.stem
    assert max(map(len, file.read_text().splitlines())) <= 120


@pytest.fixture(scope="module")
def published():
    """The sweeps of the tables of the papers."""
    recipes = map(recipe.load, recipe.names())
    return {name for each in recipes for work in each.works.values() for name in work.sweeps}


@every_file
def test_a_choice_of_parameters_is_made_on_held_out_images(file, published):
    """The tables of the papers keep the test images, as published: they compare and choose nothing."""
    parameters = yaml.safe_load(file.read_text())["parameters"]
    searched = [
        key for key, value in parameters.items() if key.startswith("model.importance.") and "value" not in value
    ]
    assert file.stem in published or not searched or "data.holdout" in parameters


@every_file
def test_its_configuration_files_exist(file):
    sweep = read(file)
    values = sweep.config["parameters"].get("config", {"values": []})
    fixed = [word.removeprefix("--config=") for word in sweep.command if str(word).startswith("--config=")]
    for path in [*fixed, *values.get("values", [values.get("value")])]:
        assert (ROOT / path).is_file(), path


@every_file
def test_fit_accepts_the_flags_of_its_cells(file, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    sweep = read(file)
    of_images = "--config=configs/data/folder.yaml" in sweep.command
    for place in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / place).mkdir(parents=True)
    for cell in two_cells(sweep):
        flags = plan.fit_flags(sweep.command_for(cell, Path("parameters.json")))
        assert flags is not None
        flags += [f"--data.root={tmp_path}"] * of_images  # the user's own images
        capsys.readouterr()
        try:
            code = cli.main(["fit", *flags, "--print_config"])
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert code in (0, None), printed.err
        config = yaml.safe_load(printed.out)
        for key, value in cell.items():
            if key != "config":
                assert_contains(value_at(config, key), value)


def value_at(config, key):
    """Look up a flat name in a configuration: `model.tau` is `model.init_args.tau`."""
    for word in key.split("."):
        if word not in config and "init_args" in config:
            config = config["init_args"]
        config = config[word]
    return config


def assert_contains(found, value):
    if isinstance(value, str) and value.startswith("{"):
        value = yaml.safe_load(value)
    if isinstance(value, dict):
        for key, item in value.items():
            assert_contains(found[key], item)
    elif is_node(found):
        assert found["class_path"].rpartition(".")[2] == value
    else:
        assert found in (value, str(value))  # the configuration holds the trainer's devices as text


def test_quickstart_compares_rows_of_table_1_and_a_baseline_over_several_seeds():
    cells = read(ROOT / "sweeps" / "quickstart.yaml").cells
    losses = {Path(cell["config"]).stem for cell in cells}
    table = {Path(cell["config"]).stem for cell in read(ROOT / "sweeps" / "table1.yaml").cells}
    assert {"quadratic", "infonce", "direct"} <= losses & table
    assert losses - table <= {"simsiam", "byol"}
    assert losses - table
    assert len({cell["seed_everything"] for cell in cells}) >= 3
    assert len(cells) == len(losses) * len({cell["seed_everything"] for cell in cells})


@every_file
def test_a_trial_uses_every_gpu_that_its_agent_sees(file):
    """The batch size is that of all ranks, so results do not depend on their number."""
    parameters = yaml.safe_load(file.read_text())["parameters"]
    for key in ("trainer.devices", "trainer.strategy"):
        assert parameters[key] == {"value": "auto"}
