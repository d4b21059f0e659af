"""The folder in which the hostile commands run: damaged files of every kind, and one run folder that is whole."""

from __future__ import annotations

import copy
import json
import os
import sqlite3
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import yaml
from helpers.training import build_method

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.sweep.state import SCHEMA

SMALL = ("--config=quickstart", "--model.projector.hidden=8", "--model.projector.out=8", "--trainer.accelerator=cpu")
GRID = {"method": "grid", "parameters": {"seed_everything": {"values": [0, 1]}}}
METRIC = {"name": "x", "goal": "maximize"}
FIT = ["${env}", "lightning-ssl", "fit", "--config", "quickstart", "${args}"]

# Configuration files and other texts by name.
TEXTS = {
    "empty.yaml": "",
    "duplicate.yaml": "data:\n  name: shapes\n  batch_size: 8\n  batch_size: 16\n",
    "tag.yaml": "data: !!python/object/apply:os.system ['echo hostile']\n",
    "bomb.yaml": "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]\n" for n in range(9)),
    "deep.yaml": "[" * 3000 + "]" * 3000 + "\n",
    "huge_number.yaml": f"trainer: {{max_epochs: {'9' * 400}}}\n",
    "itself.yaml": "config: itself.yaml\n",
    "long_key.yaml": f"{'k' * 900}: 1\n",
    "large.yaml": f"a: {'x' * 5_000_000}\n",
    "notes.txt": "not a checkpoint\n",
    "photos/cat/one.jpg": "not an image\n",
    "mine.py": "VALUE = 3\ndef broken(a):\n    return a\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "raises.py": "1 / 0\n",
}
# Sweep files, each the grid above with some keys replaced; None removes a key.
SWEEPS: dict[str, dict[str, Any]] = {
    "grid": {},
    "no_method": {"method": None},
    "huge_grid": {"parameters": {f"p{n}": {"values": list(range(100))} for n in range(4)}},
    "random": {"method": "random"},
    "slash_name": {"name": "../out"},
    "escape_name": {"name": "\x1b[31mred"},
    "big_grid": {"parameters": {"x": {"min": 0, "max": 10**9}}},
    "fine_grid": {"parameters": {"x": {"distribution": "q_uniform", "min": 0, "max": 1, "q": 1.0e-12}}},
    "flag_parameter": {"parameters": {"--x": {"values": [1]}}},
    "zero_command": {"command": ["a\0b"]},
    "hyperband_s": {"metric": METRIC, "early_terminate": {"type": "hyperband", "max_iter": 9, "s": 10**9}},
    "run_cap_huge": {"method": "random", "run_cap": 10**25},
}  # fmt: skip

# Checkpoints of `runs/whole` with one changed value of their configuration.
CHECKPOINTS: dict[str, tuple[str, Any]] = {
    "timm": ("model.init_args.backbone", "timm:resnet18"),
    "foreign_backbone": ("model.init_args.backbone", {"class_path": "evilmod.Net"}),
    "huge_size": ("model.init_args.image_size", 10**9),
    "huge_projector": ("model.init_args.projector", {"hidden": 10**12}),
    "deep_projector": ("model.init_args.projector", {"layers": 10**8}),
    "wrong_argument": ("model.init_args.nothing", 1),
    "missing_class": ("model.class_path", "lightning_ssl.methods.Nope"),
    "long_class": ("model.class_path", "a." * 3000 + "b"),
    "escape_class": ("model.class_path", "\x1b[31mred"),
    "huge_data": ("data.options", {"size": 4096, "train_images": 10**7}),
    "hub_data": ("data.name", "hf:x/y"),
    "null_root": ("data", {"name": "cifar10", "root": "a\0b"}),
}
WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse() if x.dim() else x,
}
TRIAL = "INSERT INTO trials (number, id, parameters, status) VALUES "
SEED = """'{"seed_everything": 0}'"""
# sweep.db with the tables of a sweep, and one change by a statement.
STATES = {
    "deep_parameters": f"{TRIAL} (1, '001', '{'[' * 2000}', 'pending')",
    "unknown_status": f"{TRIAL} (1, '001', {SEED}, 'done')",
    "path_as_id": f"{TRIAL} (1, '../../x', {SEED}, 'pending')",
    "escape_in_id": f"{TRIAL} (1, 'a' || char(27) || '[31m', {SEED}, 'pending')",
    "bytes_as_id": f"{TRIAL} (1, x'ff', {SEED}, 'pending')",
    "negative_number": f"{TRIAL} (-5, '001', {SEED}, 'pending')",
    "endless_seconds": f"INSERT INTO trials (number, id, parameters, seconds) VALUES (1, '001', {SEED}, 9e999)",
    "last_attempt": f"INSERT INTO trials (number, id, parameters, attempt) VALUES (1, '001', {SEED}, {2**63 - 1})",
    "group_as_pid": f"INSERT INTO trials (number, id, parameters, pid) VALUES (1, '001', {SEED}, -1)",
    "settings_list": "INSERT INTO metadata VALUES ('settings', '[1]')",
}
LAB_RESULTS = {
    "claims_text": '{"settings": {}, "claims": "many", "notes": [], "seconds": 1, "origin": {}}',
    "deep": "[" * 5000,
}


def make_workspace(folder: Path) -> None:
    """Write every file that the cases name."""
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.yaml").write_bytes(bytes(range(256)) * 4)
    (folder / "a_folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    for name, keys in SWEEPS.items():
        sweep = {**GRID, "command": FIT, **keys}
        text = yaml.safe_dump({key: value for key, value in sweep.items() if value is not None}, sort_keys=False)
        (folder / f"sweep_{name}.yaml").write_text(text, encoding="utf-8")
    make_runs(folder)
    make_sweep_folders(folder / "sweeps_here")
    make_lab_results(folder / "labs")


def make_runs(folder: Path) -> None:
    """Write `runs/whole`, a finished run, and checkpoints that do not fit their configuration."""
    stored = Configuration.parse(SMALL).stored()
    state = build_method(stored).state_dict()
    content = {"lightning_ssl": {"config": stored, "version": "0"}, "state_dict": state, "global_step": 4}
    run = folder / "runs" / "whole"
    (run / "checkpoints").mkdir(parents=True)
    torch.save(content, run / "checkpoints" / "step-00000004.ckpt")
    (run / "config.yaml").write_text(yaml.safe_dump(stored, sort_keys=False))
    (run / "summary.json").write_text(json.dumps({"name": "whole", "status": "finished", "last": {"loss": 1.0}}))
    (run / "metrics.jsonl").write_text('{"epoch": 0, "step": 4, "loss": 1.0}\n')
    torch.save({**content, "state_dict": {}}, folder / "no_weights.ckpt")
    torch.save({"state_dict": state}, folder / "no_config.ckpt")
    for name, (key, value) in CHECKPOINTS.items():
        torch.save({**content, "lightning_ssl": {"config": changed(stored, key, value)}}, folder / f"{name}.ckpt")
    for name, change in WEIGHTS.items():
        weights = {key: change(value) for key, value in state.items()}
        torch.save({**content, "state_dict": weights}, folder / f"{name}.ckpt")
    torch.save([1, 2], folder / "list.ckpt")
    torch.save({"state_dict": {}, "own": os.getcwd}, folder / "function.ckpt")
    whole = (run / "checkpoints" / "step-00000004.ckpt").read_bytes()
    (folder / "cut.ckpt").write_bytes(whole[: len(whole) // 2])
    (folder / "runs_empty").mkdir()


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a configuration with another value at a dotted key."""
    config = copy.deepcopy(config)
    *parts, last = key.split(".")
    reduce(dict.__getitem__, parts, config)[last] = value
    return config


def make_sweep_folders(folder: Path) -> None:
    """Write folders whose sweep.db is not that of a sweep."""
    for name in ("text", "other"):
        (folder / name).mkdir(parents=True)
    (folder / "text" / "sweep.db").write_text("not a database, but long enough to have a header\n" * 40)
    with sqlite3.connect(folder / "other" / "sweep.db") as database:
        database.execute("CREATE TABLE cats (name TEXT)")
    database.close()
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "sweep.db")
    for name, statement in STATES.items():
        (folder / name).mkdir()
        with sqlite3.connect(folder / name / "sweep.db") as database:
            for each in (*SCHEMA, statement):
                database.execute(each)
        database.close()


def make_lab_results(folder: Path) -> None:
    """Write results.json of a lab with other shapes, each below a folder for --runs."""
    for name, content in LAB_RESULTS.items():
        (folder / name / "hltm-cpu").mkdir(parents=True)
        (folder / name / "hltm-cpu" / "results.json").write_text(content)


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below a folder with its kind and content, to compare before and after a command."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            status = path.stat()
            found[name] = f"{status.st_size} bytes of {status.st_mtime_ns}"
        else:
            found[name] = "folder" if path.is_dir() else "special"
    return found
