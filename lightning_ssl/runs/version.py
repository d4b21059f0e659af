"""The version that a run is recorded with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import lightning_ssl


def version() -> str:
    """The version of the package, with the commit where it runs from a checkout."""
    checkout = Path(lightning_ssl.__file__).parent.parent
    if not (checkout / ".git").exists():
        return lightning_ssl.__version__
    try:
        commit = subprocess.run(
            ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"],
            capture_output=True, text=True, timeout=5, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return lightning_ssl.__version__
    return f"{lightning_ssl.__version__}+g{commit}"
