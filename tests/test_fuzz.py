"""Checkpoints, run folders and sweep files of wrong shapes: every reader answers, or refuses in one line.

Each test changes a valid file at a random place to a random value of any kind. A refusal is a ValueError of one line;
any other exception is a defect.
"""

import copy
import functools
import json
import os
import sqlite3
import tempfile
import warnings
from pathlib import Path

import torch
import yaml
from helpers.run_folders import config_of, old_folder, write_run
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lightning_ssl import AlphaCL, Direct
from lightning_ssl.app import report
from lightning_ssl.app.commands import import_bolts as bolts
from lightning_ssl.app.runs.evaluations import append_record, read_records
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.runs.restore import evaluation_data, restore_method
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.sweep import plan, screen
from lightning_ssl.app.sweep.state import State, recorded
from lightning_ssl.base.untrusted import load_json, load_yaml

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.just(10**400), st.just("x" * 300),
    st.sampled_from(["os.system", "{class_path: os.system}", "\x1b[2J", "[", "m[/x]", "-1", ".nan", "~", "é\ud800"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
fuzz = settings(
    max_examples=40, deadline=None, derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a failing example would take minutes to shrink
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


def places(tree, prefix=()):
    """The path of every value in nested dictionaries."""
    for key, value in tree.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from places(value, (*prefix, key))


def changed(tree, place, value, remove=False):
    """A copy with another value at a place, or without it."""
    tree = copy.deepcopy(tree)
    owner = functools.reduce(lambda inner, key: inner[key], place[:-1], tree)
    if remove:
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    return tree


def edits(tree):
    """A strategy of changed copies of a tree."""
    return st.builds(changed, st.just(tree), st.sampled_from(list(places(tree))), VALUES, st.booleans())


def answered(work, *arguments):
    """The result, or None if it was refused by a ValueError of one line."""
    refusal = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work(*arguments)
    except ValueError as error:
        refusal = str(error)
    assert len(refusal.splitlines()) == 1, refusal
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints

METHOD = AlphaCL(Direct(), backbone="resnet_tiny")
PLAIN = {
    "epoch": 1,
    "global_step": 4,
    "lightning_ssl": {
        "config": {
            "model": METHOD.configuration(),
            "data": {"name": "shapes", "root": "data", "options": {"train_images": 8, "test_images": 8}},
        },
        "version": "0.1.0",
    },
}


@fuzz
@given(edits(PLAIN))
def test_a_checkpoint_of_any_shape_is_restored_or_refused(tmp_path, content):
    file = tmp_path / "a.ckpt"
    torch.save({**content, "state_dict": METHOD.state_dict()}, file)
    trained = answered(restore_method, file)
    if trained is not None:
        answered(evaluation_data, trained.config)
    assert os.listdir(tmp_path) == ["a.ckpt"]


@fuzz
@given(edits({"state_dict": {"encoder.conv1.weight": 1, "projection.model.0.weight": 2}, "epoch": 1,
              "hyper_parameters": {"dataset": "cifar10", "maxpool1": True, "optimizer": "adam"}}))  # fmt: skip
def test_a_bolts_checkpoint_of_any_shape_is_converted_or_refused(tmp_path, content):
    torch.save(content, tmp_path / "a.ckpt")
    assert answered(bolts.main, [str(tmp_path / "a.ckpt")]) is None
    assert os.listdir(tmp_path) == ["a.ckpt"]


@fuzz
@given(st.binary(max_size=300), st.integers(0, 10**6))
def test_a_damaged_checkpoint_is_restored_or_refused(tmp_path, noise, place):
    file = tmp_path / "damaged.ckpt"
    torch.save({**PLAIN, "state_dict": {}}, file)
    whole = file.read_bytes()
    place %= len(whole)
    file.write_bytes(whole[:place] + noise + whole[place + len(noise) :])
    answered(restore_method, file)


# ---------------------------------------------------------------------------------------------------------------------
# Run folders

SUMMARY = {
    "name": "a", "status": "finished", "error": None, "label": "x", "command": ["fit"], "started": "2026-01-01T00:00Z",
    "duration": 20.0, "images_per_second": 4e3, "epoch": 3, "step": 60, "seed": 0, "group": None, "tags": ["a"],
    "last": {"online/top1": 0.5}, "best": {"online/top1": 0.5}, "linear": {"linear/adam_top1": 0.6}, "version": "0.1.0",
}  # fmt: skip


CELLS = st.text(max_size=200) | st.just("9" * 200_000)


def odd_run(folder, summary, config):
    """A run beside good ones, with another summary and configuration."""
    run = RunFolder(write_run(Path(folder) / "odd", epochs=2))
    write(run.path / "summary.json", json.dumps(summary))
    write(run.path / "config.yaml", dumped(config))
    return run


@fuzz
@given(edits(SUMMARY), edits(config_of("direct", 0, 3)), CELLS, st.integers(0, 3), st.booleans())
def test_a_run_folder_of_any_shape_is_read(tmp_path, summary, config, cell, line, old):
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        write_run(Path(name) / "good", epochs=2)
        run = odd_run(name, summary, config)
        if old:
            old_folder(run.path)
        (metrics,) = run.path.glob("metrics.*")
        lines = metrics.read_text().splitlines()
        lines[line] += cell
        write(metrics, "\n".join([*lines, ""]))
        run.summary(), run.config(), run.metrics(), run.logged_metrics(), run.history("online/top1")
        run.last_value("online/top1"), run.error_line(1)
        assert [record.name for record in Reader().runs([name])] == ["good", "odd"]


@settings(fuzz, max_examples=15)
@given(edits(SUMMARY), edits(config_of("direct", 0, 3)))
def test_the_report_survives_a_run_of_any_shape(tmp_path, summary, config):
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        for seed in range(2):
            write_run(Path(name) / f"good-{seed}", seed=seed, epochs=2)
        odd_run(name, summary, config)
        assert "odd" in report.build([name], figures=False).page.read_text(encoding="utf-8")


def write(file, text):
    file.write_text(text, encoding="utf-8", errors="replace")


def dumped(tree):
    """YAML of any plain values; a lone surrogate and others that YAML cannot hold become JSON."""
    try:
        return yaml.safe_dump(tree, allow_unicode=True)
    except Exception:
        return json.dumps(tree)


RECORD = {
    "checkpoint": "a.ckpt", "step": 3, "metrics": {"linear/adam_top1": 0.5}, "data": {"name": "shapes"},
    "protocols": {"adam": {"seeds": [0]}},
}  # fmt: skip


@fuzz
@given(edits({"evaluations": RECORD}) | edits(RECORD))
def test_an_evaluation_json_of_any_shape_is_read_or_refused_and_then_unchanged(tmp_path, content):
    file = tmp_path / "evaluation.json"
    for records in (content, {"evaluations": [content]}, [content]):
        write(file, json.dumps(records))
        before = file.read_bytes()
        if answered(read_records, file) is None:
            answered(append_record, file, RECORD)
            assert file.read_bytes() == before


# ---------------------------------------------------------------------------------------------------------------------
# Sweep files and their database

SWEEP = {
    "name": "one", "method": "grid", "program": "lightning-ssl", "metric": {"name": "online/top1", "goal": "maximize"},
    "command": ["lightning-ssl", "fit", "${args}"], "run_cap": 3,
    "parameters": {"seed_everything": {"values": [0, 1]}, "model.tau": {"min": 0.1, "max": 0.5}},
    "early_terminate": {"type": "hyperband", "min_iter": 2},
}  # fmt: skip


@fuzz
@given(edits(SWEEP) | edits({**SWEEP, "method": "random"}))
def test_a_sweep_file_of_any_shape_is_read_or_refused(tmp_path, content):
    file = tmp_path / "sweep.yaml"
    write(file, dumped(content))
    answered(plan.read, file)


def test_a_sweep_db_with_values_of_other_kinds_does_not_hide_a_run(tmp_path):
    write_run(tmp_path / "001", epochs=2)
    with sqlite3.connect(tmp_path / "sweep.db") as database:
        database.execute("CREATE TABLE trials (id, status, error)")
        database.execute("INSERT INTO trials VALUES ('001', 'failed', x'ff00')")
    database.close()
    (run,) = Reader(recorded).runs([tmp_path])
    assert run.status == "failed"
    assert isinstance(run.error, str)


@fuzz
@given(st.text(max_size=400), st.binary(max_size=400))
def test_text_of_any_kind_is_loaded_or_refused(text, noise):
    for each in (text, noise.decode("latin-1")):
        answered(load_yaml, each)
        answered(load_json, each)


def test_a_metric_that_looks_like_markup_is_shown(tmp_path, capsys):
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(yaml.safe_dump({**SWEEP, "method": "random", "metric": {"name": "m[/x]", "goal": "maximize"}}))
    assert screen.new_table(answered(plan.read, sweep)).columns[2].header.plain == "m[/x]"
    with State(tmp_path / "sweep.db") as state:
        state.add(1, "001", {})
        state.set("001", status="failed", error="\x1b[2Jgone")
    screen.print_status(plan.read(sweep), tmp_path)
    printed = capsys.readouterr().out
    assert "gone" in printed
    assert "\x1b" not in printed
