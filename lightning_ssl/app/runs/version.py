"""The version that a run is recorded with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lightning_ssl

COMMIT = "LIGHTNING_SSL_COMMIT"  # the commit of an image, whose files have no repository around them


def version() -> str:
    """The version of the package, with the commit of its checkout or image."""
    commit = source_commit(Path(lightning_ssl.__file__).parent.parent)
    return f"{lightning_ssl.__version__}+g{commit}" if commit else lightning_ssl.__version__


def source_commit(checkout: Path) -> str:
    """The commit of a checkout; outside of one, what the image was built from.

    "-dirty" follows if a file outside of docs was changed. Every run of a study changes its archive, which is in docs.
    """
    if not (checkout / ".git").exists():
        return os.environ.get(COMMIT, "")
    try:
        commit = git(checkout, "describe", "--always", "--exclude", "*")
        changed = git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}-dirty" if changed else commit


def git(checkout: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()
