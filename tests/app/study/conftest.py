"""Races without processes."""

import pytest
from helpers.studies.quick_engine import QuickEngine

from lightning_ssl.app.study import race


@pytest.fixture
def quick(monkeypatch):
    """The engine of all races of a test."""

    class Quick(QuickEngine):
        steps, kill_at, ran = 0, None, []

    write = race.write_looks

    def write_looks(*arguments):
        Quick.step()
        write(*arguments)
        Quick.step()

    monkeypatch.setattr(race, "Engine", Quick)
    monkeypatch.setattr(race, "write_looks", write_looks)
    return Quick


@pytest.fixture
def write_race(write_sweep):
    """Writes a sweep file of losses."""

    def write(*losses, seeds=(0, 1, 2, 3), **keys):
        parameters = {
            "config": {"values": [f"configs/method/{loss}.yaml" for loss in losses]},
            "seed_everything": {"values": list(seeds)},
            **keys.pop("parameters", {}),
        }
        metric = {"name": "online/top1", "goal": "maximize"}
        command = ["lightning-ssl", "fit", "${args}"]
        return write_sweep(**{"command": command, "metric": metric, "parameters": parameters, **keys})

    return write
