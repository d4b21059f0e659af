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
    """The commit of a checkout as git describes it; outside of one, what the image was built from."""
    if not (checkout / ".git").exists():
        return os.environ.get(COMMIT, "")
    try:
        described = subprocess.run(
            ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()
