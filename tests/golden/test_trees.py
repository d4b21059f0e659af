"""Command lines give the configurations and labels that they gave in version 9187a09, with its reader.

One line of data/trees_GROUP.jsonl.gz is one command line:

    group     "config", "sweep", "stored" (a config.yaml of a run folder) or "flag"
    argv      the flags, with `configs/…` relative to the root of the repository
    files     texts of further files that the flags name, if there are any
    tree      the completed configuration, `Configuration.parse(argv).stored()`; null if the command line is refused
    label     `label_of_config(tree)`

Left out are inputs that version 9187a09 reads wrongly without a message: values of another type for arguments of
Square, Tsallis and Inverse, null for a key that does not allow it, `10:00` in a file, a mapping for
`trainer.max_time`, and a file that names no method.

Two configurations are equal if they differ only in the type of a number (2 and 2.0), or in empty `init_args`. `CHANGED`
lists the command lines whose answer has changed, with the reason.
"""

import gzip
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from golden.summary import LATER_ARGUMENTS
from helpers import ROOT

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.config.labels import label_of_config

FILES = sorted((Path(__file__).parent / "data").glob("trees_*.jsonl.gz"))
PARTS = 100  # of which the fast tests take one
# Patterns of command lines that are answered in another way than in version 9187a09.
CHANGED = {
    "null is allowed where the argument allows it": r"(projector|predictor)\.(norm|last_norm)=null",
    "null is refused where the argument does not allow it": r"split: null",
    "the arguments of every class are checked": r"importance=Released\w+ .*=(inf|true|x) ",
    "the order of a class and its arguments does not matter": r"importance=Uniform .*tau=0.25 .*importance=\w+ ",
    "a (φ, ψ) loss stands in the place of the importance": r"method/(quadratic|beta|\w*triplet|n_plus|lifted)",
    "the released recipe has the views apart": r"recipe/released",
    "arguments that a library passes on are not listed": r"class_path: (DDPStrategy|torchvision)",
}
MISSING = object()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the packaged configurations, on a machine without GPU and without W&B."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("WANDB_SWEEP_ID", raising=False)
    yield tmp_path
    sys.modules.pop("mine", None)


def every_line():
    return [json.loads(line) for file in FILES for line in gzip.decompress(file.read_bytes()).splitlines()]


def differences(found, expected, key=""):
    """The keys at which two trees differ, with both values."""
    if isinstance(found, dict) and isinstance(expected, dict):
        both = [{k: v for k, v in each.items() if (k, v) != ("init_args", {})} for each in (found, expected)]
        names = dict.fromkeys([*both[1], *both[0]])
        return [
            each
            for name in names
            if name not in LATER_ARGUMENTS or name in both[1] or both[0][name] != LATER_ARGUMENTS[name]
            for each in differences(*(tree.get(name, MISSING) for tree in both), f"{key}.{name}".lstrip("."))
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [each for number, pair in pairs for each in differences(*pair, f"{key}[{number}]")]
    if found == expected and isinstance(found, bool) == isinstance(expected, bool):
        return []
    words = ["nothing" if value is MISSING else repr(value) for value in (found, expected)]
    return [f"{key}: {words[0]} instead of {words[1]}"]


def parsed(line, folder):
    """The tree and label of a command line, or None and None if it is refused."""
    for name, text in line["files"].items():
        (folder / name).write_text(text, encoding="utf-8")
    try:
        tree = Configuration.parse(line["argv"]).stored()
    except ValueError:
        return None, None
    return json.loads(json.dumps(tree)), label_of_config(tree)


def test_trees_differ_in_values_but_not_in_the_type_of_a_number_or_in_empty_arguments():
    assert differences({"a": 2.0, "b": {"init_args": {}}}, {"a": 2, "b": {}}) == []
    assert differences({"a": True}, {"a": 1}) == ["a: True instead of 1"]
    assert differences({"a": {"b": [1]}}, {"a": {"b": [1], "c": None}}) == ["a.c: nothing instead of None"]
    assert differences({"a": {"b": [1, {"c": 1}]}}, {"a": {"b": [1, {"c": 2}]}}) == ["a.b[1].c: 1 instead of 2"]


def test_the_set_is_whole():
    lines = every_line()
    assert {line["group"] for line in lines} == {"config", "sweep", "stored", "flag"}
    assert len(lines) > 2000
    assert sum(line["tree"] is None for line in lines) > 300


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_a_command_line_gives_the_same_tree_and_label(part, folder):
    wrong = []
    for line in every_line()[part::PARTS]:
        tree, label = parsed(line, folder)
        found = differences(tree, line["tree"]) or differences(label, line["label"])
        words = f"{' '.join(line['argv'])} {line['files'] or ''}"
        changed = any(re.search(pattern, words) for pattern in CHANGED.values())
        wrong += [f"{words}: {'; '.join(found)}"] if found and not changed else []
    assert wrong == []
