"""Files of an evaluation.

RUNS/NAME/evaluation.json      every evaluation of the run's checkpoints, with its settings
RUNS/NAME/summary.json         `linear`: the accuracies of the newest checkpoint
CKPT.evaluation.json           the evaluations of a checkpoint that is not in a run folder
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning_ssl.evaluation.restore import TrainedMethod
from lightning_ssl.files import write_atomic
from lightning_ssl.runs import RunFolder


def save_record(trained: TrainedMethod, record: dict[str, Any]) -> str:
    """Write an evaluation to its files. Returns one line that names them."""
    if trained.run is None:
        file = trained.checkpoint.with_name(f"{trained.checkpoint.name}.evaluation.json")
        append_record(file, record)
        return f"written to {file}"
    file = trained.run.path / "evaluation.json"
    append_record(file, record)
    newest = trained.run.step_checkpoints()[:1]
    if [trained.checkpoint] != newest:
        return f"written to {file}; summary.json is about {newest[0].name if newest else 'another checkpoint'}"
    update_summary(trained.run, trained.step, record["metrics"])
    return f"written to {file} and {trained.run.path / 'summary.json'}"


def update_summary(run: RunFolder, step: int, metrics: dict[str, float]) -> None:
    """Add the accuracies to summary.json. Those of an earlier step are removed; evaluation.json still has them."""
    summary = run.summary()
    previous = summary.get("linear", {}) if summary.get("linear_step", step) == step else {}
    new = {name: value for name, value in metrics.items() if is_result(name)}
    run.update_summary(linear={**previous, **new}, linear_step=step)


def is_result(name: str) -> bool:
    """Whether a metric is an accuracy of a linear classifier that was not chosen on the test images."""
    return name.startswith("linear/") and "best_test" not in name


def append_record(file: Path, record: dict[str, Any]) -> None:
    """Append an evaluation to a file. An earlier one with the same settings is removed."""
    earlier: list[dict[str, Any]] = []
    if file.exists():
        try:
            earlier = json.loads(file.read_text(encoding="utf-8"))["evaluations"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not a file of evaluations: delete it and evaluate again") from error
    kept = [other for other in earlier if settings_of(other) != settings_of(record)]
    text = json.dumps({"evaluations": [*kept, record]}, indent=2, ensure_ascii=False)
    write_atomic(file, (text + "\n").encode())


def settings_of(record: dict[str, Any]) -> str:
    """The settings that identify an evaluation: checkpoint, data, protocols with their seeds, best_test."""
    seeds = {name: (details.get("seeds"), details.get("seed")) for name, details in record["protocols"].items()}
    best = [name for name in record["metrics"] if "best_test" in name]
    return json.dumps([record["checkpoint"], record["step"], record["data"], seeds, best], sort_keys=True)
