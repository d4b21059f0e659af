import gc
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Small tensors: a second thread costs more than it brings, and workers share the cores. `make test-portable` sets 2.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning_ssl  # noqa: F401  isort: skip  (before anything that imports torchvision)
import pytest

# A shell starts a background job with SIGINT ignored, and nohup ignores SIGHUP. Processes inherit this, and some tests
# send these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Tests that mostly wait for other processes. They start first, so that no worker waits for them at the end.
LONGEST = (
    "tests/app/tracking/test_wandb_agent.py",
    "tests/app/cluster/",
    "tests/app/sweep/test_sweep_",
    "tests/repository/test_pages.py",
    "tests/test_drill.py",
    "tests/test_lightning.py",
)
# Folders in which a test is numeric only if it calls `close` itself. Elsewhere its whole module is.
FEW_NUMBERS = {"cluster", "commands", "report", "runs", "sweep", "training"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import what the tests need, where warnings are no errors yet; the process that only distributes them needs none.

    The same examples on every machine and no deadline: a slow call on a busy machine says nothing about the code.
    """
    if session.config.getoption("numprocesses", None):
        return
    import torch  # noqa: F401
    from hypothesis import settings

    settings.register_profile("suite", deadline=None, max_examples=100, derandomize=True, database=None)
    settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, and mark those that compare floating-point results for `make test-portable`."""
    from helpers.closeness import close

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


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory from which modules are imported; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def forked_trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fork the trials of a sweep in this process from it: a forkserver would import torch first."""
    import torch

    fork, threads = multiprocessing.get_context("fork"), torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    monkeypatch.setattr("lightning_ssl.app.sweep.engine.multiprocessing.get_context", lambda _: fork)
    yield
    torch.set_num_threads(threads)


def pytest_collection_finish() -> None:
    """Exclude the modules and the collected tests from garbage collection, which would visit all of them each time."""
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------------------------------------------------------------
# `make test-times`: the time of each folder


TABLE = """# Time of the fast tests

Written by `make test-times`, on one worker. CPU seconds count child processes; imports and collection are not counted.

| folder | cases | CPU s | wall s |
|---|---:|---:|---:|
"""


TIMES: dict[str, list[float]] = {}  # cases, CPU seconds and wall seconds by folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", type=Path, help="write the time of each test folder to FILE")


def seconds() -> tuple[float, float]:
    """The CPU time of this process and of every child that it has waited for, and the time."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used), time.monotonic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add the time of a test, with its fixtures, to its folder."""
    before = seconds()
    result = yield
    folder = "/".join(item.nodeid.partition("::")[0].split("/")[1:-1]) or "files in tests/"
    spent = (1, *(now - then for now, then in zip(seconds(), before, strict=True)))
    TIMES[folder] = [sum(pair) for pair in zip(TIMES.get(folder, (0, 0, 0)), spent, strict=True)]
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table, the folder that takes longest first."""
    file = session.config.getoption("times")
    if file is None or not TIMES or hasattr(session.config, "workerinput"):
        return
    rows = sorted(TIMES.items(), key=lambda row: -row[1][1])
    rows.append(("all", [sum(column) for column in zip(*TIMES.values(), strict=True)]))
    lines = [f"| {name} | {cases:,} | {cpu:,.0f} | {wall:,.0f} |" for name, (cases, cpu, wall) in rows]
    file.write_text(TABLE + "\n".join(lines) + "\n", encoding="utf-8")
