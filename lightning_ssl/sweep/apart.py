"""Imported by the parent of all trials alone, first of all: it leaves the engine's session.

A signal for the whole group, as `timeout` and a closing terminal send it, would otherwise end that parent and with it
trials that have not saved their state. The engine decides when they end.
"""

import contextlib
import os

with contextlib.suppress(OSError):  # it leads a session already
    os.setsid()
