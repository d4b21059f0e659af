"""Tests beside lightning-bolts: `make test-bolts` runs them in their own environment, elsewhere they are not seen."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pl_bolts") else ["test_*.py"]


def pytest_configure(config):
    # bolts says this at every name it defines.
    config.addinivalue_line("filterwarnings", "ignore:.*currently marked under review")
    config.addinivalue_line("filterwarnings", "ignore:.*pkg_resources")
