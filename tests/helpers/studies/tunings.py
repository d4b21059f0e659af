"""Tuning files, and an engine that writes the runs of a tuning without training."""

import json
from pathlib import Path
from typing import ClassVar

import yaml

from helpers.studies.quick_engine import QuickEngine
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.sweep.plan import fit_flags

GRID = {"values": [0.1, 0.2, 0.5]}
LOSSES = {
    "InfoNCE": {"config": {"value": "method/infonce"}, "model.tau": GRID},
    "Direct": {"config": {"value": "method/direct"}, "model.importance.tau": GRID},
}


def tuning_file(folder, losses=LOSSES, parameters=None, seeds=(0, 1), block=None, **keys):
    """Write one.yaml, a tuning of two losses with three settings each."""
    content = {
        "name": "one",
        "method": "grid",
        "metric": {"name": "online/top1", "goal": "maximize"},
        "command": ["lightning-ssl", "fit", "--config=data/shapes", "${args}"],
        "tune": {"losses": losses, **(block or {})},
        "parameters": {
            "data.holdout": {"value": 0.2},
            "seed_everything": {"values": list(seeds)},
            **(parameters or {}),
        },
        **keys,
    }
    file = Path(folder) / "one.yaml"
    kept = {key: value for key, value in content.items() if value is not None}
    file.write_text(yaml.safe_dump(kept, sort_keys=False))
    return file


class TuningEngine(QuickEngine):
    """Writes the run folders that the trials of a plan would leave. `accuracy(setting, seed)`; None is a failed run.

    The configuration of a run is that of the trial's command, read as `lightning-ssl fit` does.
    """

    accuracy = staticmethod(lambda setting, seed: 0.5)
    ran: ClassVar = []

    def finish(self, state, row):
        setting, seed = Path(row.parameters["config"]).stem, row.parameters["seed_everything"]
        value = self.accuracy(setting, seed)
        self.ran.append((self.folder.name, setting, seed))
        write_trial(self.folder / row.id, fit_flags(self.plan.command_for(row.parameters, Path("p.json"))), value)
        state.set(row.id, status="failed" if value is None else "finished", value=value, seconds=1.0)


def write_trial(folder, flags, value):
    """The run folder of a command with one value of the metric."""
    config = Configuration.parse(flags).stored()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    last = {} if value is None else {"online/top1": value}
    (folder / "metrics.jsonl").write_text(json.dumps({"epoch": 0, "step": 1, "train/loss": 1.0, **last}) + "\n")
    status, error = ("failed", "loss is not finite") if value is None else ("finished", None)
    summary = {"name": folder.name, "status": status, "error": error, "seed": config["seed_everything"]}
    summary |= {"tags": config["tags"], "last": last, "label": "?", "duration": 1.0}
    (folder / "summary.json").write_text(json.dumps(summary))
