"""Tests beside lightning-bolts: `make test-bolts` runs them; other environments do not collect them."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pl_bolts") else ["test_*.py"]


def pytest_configure(config):
    # bolts emits this warning for each name that it defines.
    config.addinivalue_line("filterwarnings", "ignore:.*currently marked under review")
    config.addinivalue_line("filterwarnings", "ignore:.*pkg_resources")
