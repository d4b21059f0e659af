"""The sweep files: W&B accepts them, and every flag in them is one of `lightning-ssl fit`."""

import random
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

from lightning_ssl import cli
from lightning_ssl.sweep import plan

FILES = sorted((ROOT / "sweeps").glob("*.yaml"))
NAMES = """quickstart regularizers tsallis_q exponent_p temperature batch_size backbones baselines
    table1 table2 table3 table4 beta exact bayes hyperband"""
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def read(file):
    return plan.read(file, count=None if yaml.safe_load(file.read_text())["method"] == "grid" else 3)


def cells(asked):
    """The first and a random one."""
    if asked.cells:
        return [asked.cells[0], random.Random(asked.name).choice(asked.cells)]
    return [asked.draw([], {}), plan.Plan(**{**vars(asked), "seed": 1}).draw([], {})]


def test_every_promised_file_is_there():
    assert {file.stem for file in FILES} >= set(NAMES.split())


@every_file
def test_wandbs_own_validator_accepts_it(file):
    assert plan.sweeps.schema_violations_from_proposed_config(yaml.safe_load(file.read_text())) == []


@every_file
def test_it_says_how_to_run_it_and_is_named_as_its_file(file):
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert any(f"lightning-ssl sweep sweeps/{file.name}" in line for line in head)
    assert any(f"wandb sweep sweeps/{file.name}" in line for line in head)
    assert read(file).name == file.stem
    assert max(map(len, file.read_text().splitlines())) <= 120


@every_file
def test_its_configuration_files_exist(file):
    asked = read(file)
    values = asked.config["parameters"]["config"]
    fixed = [word.removeprefix("--config=") for word in asked.command if str(word).startswith("--config=")]
    for path in [*fixed, *values.get("values", [values.get("value")])]:
        assert (ROOT / path).is_file(), path


@every_file
def test_its_cells_parse_by_the_real_command_line(file, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    asked = read(file)
    for cell in cells(asked):
        flags = plan.fits(asked.words(cell, Path("parameters.json")))
        assert flags is not None
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
                assert_contains(at(config, key), value)


def at(config, key):
    """What a flat name means in a configuration: `model.tau` is `model.init_args.tau`."""
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
    else:
        assert found in (value, str(value))  # the trainer's devices may be text


def test_quickstart_compares_rows_of_table_1_and_a_baseline_over_several_seeds():
    cells = read(ROOT / "sweeps" / "quickstart.yaml").cells
    losses = {Path(cell["config"]).stem for cell in cells}
    table = {Path(cell["config"]).stem for cell in read(ROOT / "sweeps" / "table1.yaml").cells}
    assert {"quadratic", "infonce", "direct"} <= losses & table
    assert losses - table <= {"simsiam", "byol"}
    assert losses - table
    assert len({cell["seed_everything"] for cell in cells}) >= 3
    assert len(cells) == len(losses) * len({cell["seed_everything"] for cell in cells})
