import os
import signal

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the modules that compare floating-point results, for `make test-portable`."""
    for item in items:
        if getattr(getattr(item, "module", None), "close", None) is close:
            item.add_marker("numeric")
