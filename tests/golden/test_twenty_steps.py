"""Twenty steps of six configurations end with the weights and metrics of version 9187a09, but for rounding.

`tests/golden/twenty_steps.py` compares two versions on one machine bit for bit.
"""

import json

import pytest
from golden import twenty_steps
from golden.summary import close_runs, exact, of_run
from helpers.processes.killing import one_thread  # noqa: F401

from lightning_ssl.app.runs import RunFolder

EXPECTED = json.loads((twenty_steps.DATA / "twenty_steps.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", twenty_steps.CONFIGURATIONS)
def test_twenty_steps_end_with_the_same_weights_and_metrics(name):
    run = twenty_steps.run(name, "runs")
    assert run.summary()["step"] == twenty_steps.STEPS
    close_runs(of_run(run), EXPECTED[name], twenty_steps.STEPS)


def test_the_hashes_of_two_runs_differ_in_weights_and_in_metrics():
    one, other = (exact(RunFolder(twenty_steps.DATA / "runs" / name)) for name in ("halfway", "finished"))
    assert all(one[part] != other[part] for part in ("weights", "metrics"))
