"""File writes: atomic, and never over something that the same command did not write. Importing this imports no torch.

    require_replaceable(out, b"lightning-ssl export", force)      before the work
    write_atomic(out, content)                                    a reader sees the previous file or the new one
    write_all({page: html, table: csv})                           all of them, or none if the disk is full

A command marks its output: the page of the report has a generator tag, an archive has a comment (`marked_archive`). A
file with the marker is replaced; any other file only with --force. A file that only mentions the command has no marker.
A device, a pipe, a socket or a folder is never replaced.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from lightning_ssl.base.checks import UserError

Content = bytes | memoryview | Callable[[BinaryIO], object]
END = 65_536  # bytes at the start and at the end of a file in which its marker is looked for
# What stands before the marker in the files of the commands: JSON and safetensors, HTML, a table of Markdown, and YAML.
BEFORE_MARKER = rb'(?:"generator": ?"|<meta name="generator" content="|\| command \| `|# written by )'
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)")
KINDS = {"d": "a folder", "c": "a device", "b": "a device", "p": "a pipe", "s": "a socket"}  # as `ls -l` shows them


def write_atomic(path: Path, content: Content) -> None:
    """Write a file under a temporary name in the same folder, then rename it to `path`.

    A crash or a full disk leaves the previous file, or no file. The parent folder is created if it does not exist. Only
    a regular file is replaced.

    content     the bytes, or a function that writes them to an open binary file: `lambda file: torch.save(x, file)`
    """
    write_all({path: content})


def write_all(contents: Mapping[Path, Content]) -> None:
    """Write several files, as `write_atomic` writes one. They are renamed when all of them are written.

    A full disk therefore leaves the previous files, and no folder that was created for the new ones.
    """
    contents = {without_dots(path): content for path, content in contents.items()}
    temporaries = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    path = Path()
    with contextlib.ExitStack() as folders:
        try:
            for path, content in contents.items():
                if kind := special_kind(path):
                    raise UserError(f"cannot write {path}: it is {kind}, not a regular file")
                folders.enter_context(created_folder(path.parent))
                with temporaries[path].open("wb") as file:
                    if callable(content):
                        content(file)
                    else:
                        file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            for path, temporary in temporaries.items():
                temporary.replace(path)
        except BaseException as error:
            for temporary in temporaries.values():
                with contextlib.suppress(OSError):  # the folder itself may be missing
                    temporary.unlink(missing_ok=True)
            failure = os_error_of(error)
            if failure is None or not isinstance(error, Exception):
                raise
            reason = failure.strerror or failure
            previous = "; the previous file is unchanged" if os.path.lexists(path) else ""
            raise UserError(f"cannot write {path}: {reason}{previous}") from error
    for path in contents:
        remove_leftovers(path.parent, path.name)


@contextlib.contextmanager
def created_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents. Those of them that are empty at the end are removed."""
    created = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in created:
            with contextlib.suppress(OSError):  # it has files
                each.rmdir()


@contextlib.contextmanager
def locked(file: Path, refusal: str, timeout: float = 0.0) -> Iterator[None]:
    """Hold the lock on a file. If another process has it until the timeout, that is refused."""
    try:
        held = FileLock(file).acquire(timeout=timeout)
    except Timeout:
        raise UserError(refusal) from None
    with held:
        yield


def copy_of(path: Path) -> Callable[[BinaryIO], object]:
    """The content of a file, for `write_atomic` and `write_all`."""

    def copy(target: BinaryIO) -> None:
        with path.open("rb") as source:
            shutil.copyfileobj(source, target)

    return copy


def figure_files(figure: Any, stem: Path) -> dict[Path, bytes]:
    """A figure of matplotlib as STEM.png and STEM.svg, for `write_all`."""
    files = {}
    for suffix, options in ((".png", {"dpi": 150}), (".svg", {"metadata": {"Date": None}})):
        content = io.BytesIO()
        figure.savefig(content, format=suffix[1:], **options)
        files[stem.with_name(f"{stem.name}{suffix}")] = content.getvalue()
    return files


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files of writers that were killed: of one file, or of all files in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = TEMPORARY.fullmatch(entry.name)
            if found and found["name"] == (name or found["name"]) and not is_alive(int(found["pid"])):
                os.unlink(entry.path)


def is_alive(pid: int) -> bool:
    """Whether a process with this number exists on this machine."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # it belongs to another user
    except OverflowError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# What may be replaced


def require_writable(path: Path, shown: str) -> None:
    """Refuse a path, before the work, if this user cannot write its file.

    The file is written under a temporary name first, so its folder must be writable; or, if that does not exist, the
    nearest folder above it.

    shown       the start of the error: the key and its value, or "cannot write FILE"
    """
    parent = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not parent.is_dir():
        raise UserError(f"{shown}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{shown}: this user cannot write to the folder {parent}")


def require_replaceable(
    path: Path, marker: bytes, force: bool = False, key: str = "out", witness: Path | None = None
) -> None:
    """Refuse an output path unless it is new, empty, an earlier output of the same command, or forced.

    marker      what the command writes into its files, such as b"lightning-ssl export"
    witness     a file of the same output that has the marker, if this one cannot have it
    """
    shown, path = f"{key}={str(path)!r}", without_dots(path)
    if not str(path).isprintable():
        raise UserError(f"{shown}: {key} must be text without control characters")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()  # a name that is too long raises OSError
    if kind := special_kind(path):
        raise UserError(f"{shown}: it is {kind}; {key} must be a new file, or a regular one")
    require_writable(path, shown)
    if force or not os.path.lexists(path) or is_own(path, marker):
        return
    if witness is not None and is_own(witness, marker) and not path.is_symlink():
        return
    what = "it is a link" if path.is_symlink() else f"there is a file that `{marker.decode()}` did not write"
    raise UserError(f"{shown}: {what}; choose another name, or --force replaces it")


def require_own_folder(folder: Path, witness: str, marker: bytes, force: bool = False, key: str = "out") -> None:
    """Refuse an output folder unless it is new, empty, an earlier output of the same command, or forced.

    witness     the name of the file in the folder that has the marker
    """
    shown, folder = f"{key}={str(folder)!r}", without_dots(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise UserError(f"{shown}: {folder} exists and is not a folder")
    require_writable(folder / witness, shown)
    if not force and folder.is_dir() and any(folder.iterdir()) and not is_own(folder / witness, marker):
        raise UserError(f"{shown}: {folder} has files that `{marker.decode()}` did not write; choose another name")


def is_own(path: Path, marker: bytes) -> bool:
    """Whether a regular file is empty, or has the marker of a command near its start or its end.

    The marker has the form in which commands write it. A script or a page that mentions the command is not own.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(END)
        file.seek(max(0, file.seek(0, os.SEEK_END) - END))
        end = file.read()
    written = re.compile(BEFORE_MARKER + re.escape(marker) + rb'[" ]')
    archive = start.startswith(b"PK") and end.endswith(marker)
    return start in (b"", marker, marker + b"\n") or archive or any(map(written.search, (start, end)))


def without_dots(path: Path) -> Path:
    """The path without `..`. A write creates missing folders, so `missing/../file` is `file` after it."""
    if ".." not in path.parts:
        return path
    with contextlib.suppress(OSError, ValueError):  # the write refuses it
        return path.resolve() if path.name == ".." else path.parent.resolve() / path.name
    return path


def special_kind(path: Path) -> str | None:
    """The kind of a path, or of what it links to, that is no regular file: "a device"; None for a file or nothing."""
    try:
        return KINDS.get(stat.filemode(path.stat().st_mode)[0])
    except (OSError, ValueError):  # nothing there; or a name with a null character, which a write refuses
        return None


def marked_archive(write: Callable[[BinaryIO], object], marker: bytes) -> memoryview:
    """The bytes of a zip archive, such as `torch.save` writes, with the marker as its comment."""
    content = io.BytesIO()
    write(content)
    with zipfile.ZipFile(content, "a") as archive:
        archive.comment = marker
    return content.getbuffer()


def os_error_of(error: BaseException) -> OSError | None:
    """The OSError that caused an exception; None if there is none.

    On a full disk `torch.save` raises a RuntimeError while it handles the OSError.
    """
    causes = (error, error.__cause__, error.__context__)
    return next((cause for cause in causes if isinstance(cause, OSError)), None)
