import gc
import os
import signal
import sys

# Small tensors: a second thread costs more than it brings, and workers share the cores. `make test-portable` sets 2.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning_ssl  # noqa: F401  isort: skip  (before anything that imports torchvision)
import pytest
from helpers.closeness import close
from hypothesis import settings

# The same examples on every machine and no deadline: a slow call on a busy machine says nothing about the code.
settings.register_profile("suite", deadline=None, max_examples=100, derandomize=True, database=None)
settings.load_profile("suite")

# A shell starts a background job with SIGINT ignored, and nohup ignores SIGHUP. Processes inherit this, and some tests
# send these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Tests that mostly wait for other processes. They start first, so that no worker waits for them at the end.
LONGEST = (
    "tests/tracking/test_wandb_agent.py",
    "tests/cluster/",
    "tests/sweep/test_sweep_",
    "tests/repository/test_pages.py",
)
# Folders in which a test is numeric only if it calls `close` itself. Elsewhere its whole module is.
FEW_NUMBERS = {"cluster", "commands", "report", "runs", "sweep"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, and mark those that compare floating-point results for `make test-portable`."""
    for item in items:
        if getattr(getattr(item, "module", None), "close", None) is close:
            calls_close = "close" in item.function.__code__.co_names
            if calls_close or item.path.parent.name not in FEW_NUMBERS:
                item.add_marker("numeric")
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore `sys.path` after each test: commands that import the user's own modules add folders to it."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def pytest_collection_finish() -> None:
    """Exclude the modules and the collected tests from garbage collection, which would visit all of them each time."""
    gc.collect()
    gc.freeze()
