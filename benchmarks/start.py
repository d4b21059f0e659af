"""Seconds until a wrong command line is refused, and until `lightning-ssl list` has printed: without torch.

python benchmarks/start.py [--repeats 5]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from bars import Bar, conclude, seconds_in_turns

from lightning_ssl.app.commands.parser import Command

SECONDS = 1.0
COMMANDS = {
    "fit, an unknown flag": ["fit", "--modle", "X"],
    "fit, an unknown loss": ["fit", "--model", "AlphaCL", "--model.importance", "Directt"],
    "fit, a name that is no folder name": ["fit", "--config", "quickstart", "--name", "../x"],
    "fit, a missing file": ["fit", "--config", "nowhere.yaml"],
    "list": ["list"],
}


def run(*, repeats: int = 5) -> int:
    """Seconds until a wrong command line is refused, and until `lightning-ssl list` has printed.

    Args:
        repeats: runs of each command; they take turns
    """
    program = [sys.executable, "-m", "lightning_ssl"]
    commands = {
        name: partial(subprocess.run, [*program, *words], capture_output=True) for name, words in COMMANDS.items()
    }
    found = []
    for name, values in seconds_in_turns(commands, repeats).items():
        detail = f"{min(values):.2f}–{max(values):.2f} s"
        found.append(Bar(f"{name}, seconds", statistics.median(values), SECONDS, detail, at_least=False))
        print(found[-1])
    return conclude(found, None)


main = Command("bench start", run, __doc__, {"repeats": (1, 1000)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
