"""Files of an evaluation.

RUNS/NAME/evaluation.json      every evaluation of the run's checkpoints, with its settings
RUNS/NAME/summary.json         `linear`: the accuracies of the newest checkpoint
CKPT.evaluation.json           the evaluations of a checkpoint that is not in a run folder
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.restore import TrainedMethod
from lightning_ssl.app.runs.small_files import as_mapping, read_mapping
from lightning_ssl.app.runs.version import version
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.files import require_writable, write_atomic
from lightning_ssl.base.untrusted import load_json, read_text
from lightning_ssl.data import DataModule
from lightning_ssl.evaluation.evaluate import evaluate


def evaluate_checkpoint(trained: TrainedMethod, module: DataModule, **options: Any) -> dict[str, Any]:
    """Evaluate the weights of a checkpoint on a data set. `options` are the further arguments of `evaluate`."""
    trained_on = (trained.config.get("data") or {}).get("name", "")
    found = evaluate(trained.method, module, trained_on=trained_on, **options)
    origin = {"checkpoint": trained.checkpoint.name, "step": trained.step, "version": version()}
    return {"metrics": found["metrics"], **origin, **found}


def save_record(trained: TrainedMethod, record: dict[str, Any]) -> str:
    """Write an evaluation to its files. Returns one line that names them."""
    file = record_file(trained)
    append_record(file, record)
    if trained.run is None:
        return f"written to {file}"
    newest = trained.run.step_checkpoints()[:1]
    if [trained.checkpoint] != newest:
        return f"written to {file}; summary.json is about {newest[0].name if newest else 'another checkpoint'}"
    update_summary(trained.run, trained.step, record["metrics"])
    return f"written to {file} and {trained.run.path / 'summary.json'}"


def record_file(trained: TrainedMethod) -> Path:
    """The file of the evaluations: in the run folder, or beside a checkpoint that is in none."""
    if trained.run is not None:
        return trained.run.path / "evaluation.json"
    return trained.checkpoint.with_name(f"{trained.checkpoint.name}.evaluation.json")


def require_record(trained: TrainedMethod) -> None:
    """Refuse to evaluate, before minutes of work, if the files of the result cannot be read or written."""
    file = record_file(trained)
    read_records(file)
    require_writable(file, f"cannot write {file}")
    if trained.run is not None and (problems := read_mapping(trained.run.path / "summary.json")[1]):
        raise UserError(f"{trained.run.path}: {problems[0]}")


def update_summary(run: RunFolder, step: int, metrics: dict[str, float]) -> None:
    """Add the accuracies to summary.json. Those of an earlier step are removed; evaluation.json still has them."""
    summary = run.summary()
    previous = as_mapping(summary.get("linear")) if summary.get("linear_step", step) == step else {}
    # Not a classifier that was chosen on the test images.
    new = {name: value for name, value in metrics.items() if name.startswith("linear/") and "best_test" not in name}
    run.update_summary(linear={**previous, **new}, linear_step=step)


def append_record(file: Path, record: dict[str, Any]) -> None:
    """Append an evaluation to a file. An earlier one with the same settings is removed."""
    kept = [other for other in read_records(file) if settings_of(other) != settings_of(record)]
    text = json.dumps({"evaluations": [*kept, record]}, indent=2, ensure_ascii=False)
    write_atomic(file, (text + "\n").encode())


def read_records(file: Path) -> list[dict[str, Any]]:
    """The evaluations in a file; none if there is no file."""
    if not file.exists():
        return []
    try:
        records: list[dict[str, Any]] = load_json(read_text(file))["evaluations"]
        for record in records:
            settings_of(record)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is not a file of evaluations: delete it and evaluate again") from error
    return records


def settings_of(record: dict[str, Any]) -> str:
    """The settings that identify an evaluation: checkpoint, data, protocols with their seeds, best_test."""
    seeds = {name: (details.get("seeds"), details.get("seed")) for name, details in record["protocols"].items()}
    best = [name for name in record["metrics"] if "best_test" in name]
    return json.dumps([record["checkpoint"], record["step"], record["data"], seeds, best], sort_keys=True)
