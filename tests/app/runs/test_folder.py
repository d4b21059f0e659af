"""The run folder: reading of any content, values of metrics, checkpoints with damage."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from lightning_ssl.app.runs.checkpoints import damage, load_archive
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.base.checks import UserError


def test_the_last_value_comes_from_the_metrics_and_then_from_the_summary(tmp_path):
    run = RunFolder(tmp_path)
    run.update_summary(last={"x": 0.4, "y": 1})
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "x": 0.4}\n{"step": 1, "x": 0.5}\n')
    assert (run.last_value("x"), run.last_value("y"), run.last_value("z")) == (0.5, 1.0, None)
    assert run.logged_metrics() == ["x", "y"]
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "x": 0.4}\n{"step": 1, "nonfinite": {"x": "nan"}}\n')
    assert (run.last_value("x"), run.history("x")) == (None, [0.4])


def test_no_file_of_a_run_is_read_from_a_pipe(tmp_path):
    for name in ("config.yaml", "summary.json", "metrics.jsonl", "metrics.csv", "log.txt"):
        os.mkfifo(tmp_path / name)
    os.mkfifo(tmp_path / "a.ckpt")
    run = RunFolder(tmp_path)
    assert (run.config(), run.summary(), run.metrics()) == ({}, {}, {})
    assert (run.last_line(), run.last_value("x")) == (None, None)
    assert damage(tmp_path / "a.ckpt") == "it is a pipe"


def test_the_last_line_of_a_log_has_no_escape_sequences(tmp_path):
    (tmp_path / "log.txt").write_bytes(b"first\n\x1b[2K\rEpoch 1\x1b[0m\n\x1b[2J\n")
    assert RunFolder(tmp_path).last_line() == "Epoch 1"


def test_a_compressed_archive_is_no_checkpoint(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(10**7))
    assert damage(tmp_path / "a.ckpt") == "a compressed archive, which torch does not write"


def test_the_error_of_other_objects_does_not_advise_to_load_them(tmp_path):
    torch.save({"a": 1}, tmp_path / "plain.ckpt")
    with zipfile.ZipFile(tmp_path / "plain.ckpt") as plain, zipfile.ZipFile(tmp_path / "a.ckpt", "w") as archive:
        for name in plain.namelist():
            text = pickle.dumps({"a": Path("x")}, protocol=4) if name.endswith("data.pkl") else plain.read(name)
            archive.writestr(name, text)
    with pytest.raises(UserError, match=r"not a readable checkpoint, and only tensors and plain values are read$"):
        load_archive(tmp_path / "a.ckpt")


def test_damage_anywhere_in_a_checkpoint_is_found(tmp_path):
    file = tmp_path / "a.ckpt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"weights" * 10)
    whole = file.read_bytes()
    assert damage(file) is None
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        found = damage(file)  # it never raises
        assert found is None or found
    file.write_bytes(whole[: len(whole) // 2])
    assert damage(file)
