"""Atomic file writes: a reader sees the previous file or the complete new one. Importing this imports no torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomic(path: Path, content: bytes | memoryview | Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name in the same folder, then rename it to `path`.

    A crash or a full disk leaves the previous file, or no file. The parent folder is created if it does not exist.

    content     the bytes, or a function that writes them to an open binary file: `lambda file: torch.save(x, file)`
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except Exception as error:
        failure = os_error_of(error)
        if failure is None:
            raise
        reason = failure.strerror or failure
        raise ValueError(f"cannot write {path}: {reason}; the previous file is unchanged") from error
    finally:
        with contextlib.suppress(OSError):  # the folder itself may be missing
            temporary.unlink(missing_ok=True)


def os_error_of(error: BaseException) -> OSError | None:
    """The OSError that caused an exception; None if there is none.

    On a full disk `torch.save` raises a RuntimeError while it handles the OSError.
    """
    causes = (error, error.__cause__, error.__context__)
    return next((cause for cause in causes if isinstance(cause, OSError)), None)
