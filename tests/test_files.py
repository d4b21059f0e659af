"""Atomic writes: complete or absent, one-line errors, no temporary file left."""

import os
import resource
import subprocess
import sys

import pytest

from lightning_ssl.files import write_atomic


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", [b"new", memoryview(b"new"), lambda file: file.write(b"new")])
def test_content_is_written_into_a_folder_that_did_not_exist(tmp_path, content):
    write_atomic(tmp_path / "a" / "b" / "file", content)
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"new"
    assert names(tmp_path / "a" / "b") == ["file"]


def test_an_existing_file_is_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"old and longer")
    write_atomic(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_failed_write_leaves_the_previous_file(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ValueError, match=r"^cannot write .*file: No space left on device; the previous file is unch"):
        write_atomic(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_an_error_of_the_writer_is_not_hidden(tmp_path):
    def fails(file):
        file.write(b"half")
        raise KeyError("x")

    with pytest.raises(KeyError):
        write_atomic(tmp_path / "file", fails)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^cannot write .*: (Not a directory|File exists); the previous"):
        write_atomic(tmp_path / "file" / "below", b"new")


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on the size of files")
def test_a_full_disk_during_torch_save_is_one_line(tmp_path):
    """torch.save raises RuntimeError on a full disk. A limit on the size of files has the same effect."""
    code = f"""
import pathlib, resource, torch
from lightning_ssl.files import write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomic(pathlib.Path({str(tmp_path / "file")!r}), lambda file: torch.save(torch.zeros(100_000), file))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(f"cannot write {tmp_path / 'file'}: File too large"), done.stderr
    assert names(tmp_path) == []
