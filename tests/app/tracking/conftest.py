"""An environment without the variables of W&B."""

import os

import pytest


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment without a key; call it to add variables."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]
