"""Atomic writes: complete or absent, one-line errors, no temporary file left."""

import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.processes.killing import in_a_fork

from lightning_ssl.base.files import (
    copy_of,
    is_own,
    marked_archive,
    remove_leftovers,
    require_own_folder,
    require_replaceable,
    write_all,
    write_atomic,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", [b"new", memoryview(b"new"), lambda file: file.write(b"new")])
def test_content_is_written_into_a_folder_that_did_not_exist(tmp_path, content):
    write_atomic(tmp_path / "a" / "b" / "file", content)
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"new"
    assert names(tmp_path / "a" / "b") == ["file"]


@pytest.mark.parametrize("previous", [True, False])
def test_a_full_disk_leaves_the_previous_files_and_no_new_file_or_folder(tmp_path, previous):
    def full_disk(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "first").write_bytes(b"old")
    last = tmp_path / ("first" if previous else "new/below/last")
    unchanged = "; the previous file is unchanged" if previous else ""
    with pytest.raises(ValueError, match=rf"^cannot write .*{last.name}: No space left on device{unchanged}$"):
        write_all({tmp_path / "new" / "second": b"new", last: full_disk})
    assert (tmp_path / "first").read_bytes() == b"old"
    assert names(tmp_path) == ["first"]


def test_several_files_are_written_together(tmp_path):
    (tmp_path / "first").write_bytes(b"old")
    write_all({tmp_path / "first": b"new", tmp_path / "below" / "second": copy_of(tmp_path / "first")})
    assert (tmp_path / "first").read_bytes() == b"new"
    assert (tmp_path / "below" / "second").read_bytes() == b"old"
    assert names(tmp_path) == ["below", "first"]


def test_an_error_of_the_writer_is_not_hidden(tmp_path):
    def fails(file):
        file.write(b"half")
        raise KeyError("x")

    with pytest.raises(KeyError):
        write_atomic(tmp_path / "file", fails)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^cannot write .*: (Not a directory|File exists)$"):
        write_atomic(tmp_path / "file" / "below", b"new")


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on the size of files")
def test_a_full_disk_during_torch_save_is_one_line(tmp_path):
    """torch.save raises RuntimeError on a full disk. A limit on the size of files has the same effect."""

    def save():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(ValueError, match=f"^cannot write {tmp_path / 'file'}: File too large"):
            write_atomic(tmp_path / "file", lambda file: torch.save(torch.zeros(100_000), file))

    assert in_a_fork(save) == 0
    assert names(tmp_path) == []


# ---------------------------------------------------------------------------------------------------------------------
# What may be replaced

MARKER = b"lightning-ssl test"


@pytest.fixture
def special(tmp_path):
    """A device, a pipe, a socket, a folder, and a link to a device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    return [tmp_path / name for name in ("pipe", "folder", "link", "socket")] + [Path("/dev/null")]


def test_a_special_file_is_never_replaced(special):
    for path in special:
        before = path.lstat().st_mode
        with pytest.raises(ValueError, match=r"^cannot write .*: it is a \w+, not a regular file"):
            write_atomic(path, b"new")
        for force in (False, True):
            with pytest.raises(
                ValueError, match=r"^out='.*': it is a (device|pipe|folder|socket); out must be a new f"
            ):
                require_replaceable(path, MARKER, force)
        assert path.lstat().st_mode == before


def test_a_file_of_other_origin_is_replaced_only_by_force(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(ValueError, match=r"a file that `lightning-ssl test` did not write; .* --force replaces it$"):
        require_replaceable(file, MARKER)
    require_replaceable(file, MARKER, force=True)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(ValueError, match="it is a link"):
        require_replaceable(tmp_path / "link", MARKER)


OWN = {
    "empty": b"",
    "witness": MARKER + b"\n",
    "page": b'<html><meta name="generator" content="lightning-ssl test">' + b"x" * 10**6,
    "json": b'{\n "generator": "lightning-ssl test",' + b"x" * 10**6,
    "safetensors": b'\x00{"__metadata__":{"generator":"lightning-ssl test"}}' + b"x" * 10**6,
    "archive": b"PK\x03\x04" + b"x" * 10**6 + MARKER,
    "markdown": b"# Table\n" + b"x" * 10**6 + b"\n| command | `lightning-ssl test table1` |\n",
}
OTHER = {
    "script": b"#!/bin/sh\nlightning-ssl test runs/a --out x\n",
    "last line": b"first\nlightning-ssl test",
    "prose": b"The option `lightning-ssl test` writes a page; its generator is lightning-ssl test.\n",
    "other command": b'{"generator": "lightning-ssl tests"}',
}


@pytest.mark.parametrize("content", OTHER.values(), ids=OTHER)
def test_a_file_that_only_mentions_the_command_is_not_replaced(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="a file that `lightning-ssl test` did not write"):
        require_replaceable(tmp_path / "file", MARKER)


def test_a_path_through_a_missing_folder_names_the_file_behind_it(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    path = tmp_path / "missing" / ".." / "file"
    with pytest.raises(ValueError, match="a file that `lightning-ssl test` did not write"):
        require_replaceable(path, MARKER)
    with pytest.raises(ValueError, match="it is a folder"):
        require_replaceable(tmp_path / "missing" / "..", MARKER)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "runs.csv").write_bytes(b"mine")
    with pytest.raises(ValueError, match="has files that `lightning-ssl test` did not write"):
        require_own_folder(tmp_path / "missing" / ".." / "page", "witness", MARKER)
    write_atomic(path, b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file", "page"]


@pytest.mark.parametrize("content", OWN.values(), ids=OWN)
def test_an_own_file_an_empty_one_and_a_new_one_are_replaceable(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    require_replaceable(tmp_path / "file", MARKER)
    require_replaceable(tmp_path / "new" / "file", MARKER)
    with pytest.raises(ValueError, match="is not a folder"):
        require_replaceable(tmp_path / "file" / "below", MARKER)


REFUSALS = """
import sys
from pathlib import Path
from lightning_ssl.base.files import require_own_folder, require_replaceable, require_writable
folder = Path(sys.argv[1])
for check in (
    lambda: require_writable(folder / "file", "cannot write it"),
    lambda: require_replaceable(folder / "new" / "file", b"test"),
    lambda: require_own_folder(folder, "witness", b"test"),
    lambda: require_own_folder(folder / "new", "witness", b"test"),
):
    try:
        check()
    except ValueError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root needs setpriv")
def test_a_folder_that_the_user_cannot_write_to_is_refused_before_the_work(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    # Root may write everywhere, unless it has no capabilities.
    limits = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    words = [*limits, sys.executable, "-c", REFUSALS, folder]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout.splitlines()
    reason = f"this user cannot write to the folder {folder}"
    starts = ["cannot write it", f"out='{folder}/new/file'", f"out='{folder}'", f"out='{folder}/new'"]
    assert printed == [f"{start}: {reason}" for start in starts]


def test_a_folder_is_replaceable_with_its_witness(tmp_path):
    folder = tmp_path / "page"
    require_own_folder(folder, "witness", MARKER)
    folder.mkdir()
    require_own_folder(folder, "witness", MARKER)
    (folder / "runs.csv").write_text("mine")
    with pytest.raises(ValueError, match="has files that `lightning-ssl test` did not write"):
        require_own_folder(folder, "witness", MARKER)
    require_own_folder(folder, "witness", MARKER, force=True)
    (folder / "witness").write_bytes(MARKER)
    require_own_folder(folder, "witness", MARKER)


def test_torch_loads_a_marked_archive(tmp_path):
    file = tmp_path / "weights.pth"
    write_atomic(file, marked_archive(lambda stream: torch.save({"a": torch.arange(5)}, stream), MARKER))
    assert is_own(file, MARKER)
    for mapped in (False, True):
        assert torch.load(file, weights_only=True, mmap=mapped)["a"].tolist() == [0, 1, 2, 3, 4]


def test_temporary_files_of_killed_writers_are_removed(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = ended.stdout.strip()
    for name in (f".file.{dead}", f".other.{dead}", f".file.{os.getppid()}", ".file.txt", "file.12"):
        (tmp_path / name).write_bytes(b"half")
    write_atomic(tmp_path / "file", b"new")
    assert names(tmp_path) == sorted([f".other.{dead}", f".file.{os.getppid()}", ".file.txt", "file.12", "file"])
    remove_leftovers(tmp_path)
    assert f".other.{dead}" not in names(tmp_path)
