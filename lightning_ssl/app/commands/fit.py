"""`lightning-ssl fit`: train one model in one run folder. app/config/help.py has its --help."""

from __future__ import annotations

import os
import sys

from lightning_ssl.app.config.known import check_early
from lightning_ssl.app.config.text import asks_to_print, steps
from lightning_ssl.app.launch.noted_signals import NotedSignals
from lightning_ssl.app.tracking.agent import sweep_flags


def main(argv: list[str], early: NotedSignals | None = None) -> int:
    """Read the flags, then train. `early` has noted the signals before this call."""
    sys.path.insert(0, os.getcwd())  # for the user's own classes, given by their path
    argv = sweep_flags(argv)
    given = list(steps(argv))
    check_early(given)

    # Late: they import torch and Lightning, and what is refused above must not wait for them.
    from lightning_ssl.app.config.configuration import Configuration, printed
    from lightning_ssl.app.training.run import quiet, train

    with quiet():
        config = Configuration.of(given)
    if asks_to_print(argv):
        print(printed(config), end="")
        return 0
    return train(config, argv, early)
