"""Every interface of W&B's packages `sweeps` and `wandb` that the sweep engine uses.

W&B guarantees the stability of none of them, so no other module calls them. tests/app/sweep/test_wandb_sweeps.py checks
that each exists, its behaviour, and the versions that they were checked with. The README of `sweeps` shows `next_run`,
`stop_runs`, `SweepRun` and `RunState`. The others are not documented.

`sweeps` 0.2.0 was written for pydantic 1. With pydantic 2 it has three defects, which are avoided:
- `SweepRun` silently drops a field that is given by its name. `runs_of` gives fields by their aliases.
- With nested `parameters` it repeats the first grid cell forever. plan.py refuses nested parameters.
- Drawn values are numpy scalars. `parameters_of` converts them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lightning_ssl.app.sweep.state import Trial
from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut

Parameters = dict[str, Any]


@cache
def interface(path: str) -> Any:
    """Import a name of W&B's packages."""
    module, _, name = path.rpartition(".")
    with warnings.catch_warnings():
        if path.startswith("sweeps."):
            warnings.simplefilter("ignore")  # pydantic 2 warns about pydantic 1 syntax
        # Imported by name: a type checker would take the folder sweeps/ of a source checkout for the package.
        return getattr(import_module(module), name)


# -- search -----------------------------------------------------------------------------------------------------------


RUN_STATES = {
    "interrupted": "pending",
    "stopped": "finished",  # its history counts; bayes treats a failed run as a crash
}
"""The member of W&B's `RunState` for a status of a trial; the others have its name."""


def runs_of(trials: Sequence[Trial], metric: str | None, histories: Mapping[str, Sequence[float]]) -> list[Any]:
    """Convert trials to W&B's runs. A history has all values of the metric, and `trial.value` is the last one."""
    return [
        interface("sweeps.SweepRun")(
            name=trial.id,
            config={key: {"value": item} for key, item in trial.parameters.items()},
            state=interface("sweeps.RunState")[RUN_STATES.get(trial.status, trial.status)],
            stopped=trial.status == "stopped",
            sampledHistory=[{metric: item} for item in histories.get(trial.id, ()) if metric is not None],
            summaryMetrics={} if metric is None or trial.value is None else {metric: trial.value},
        )
        for trial in trials
    ]


def next_parameters(config: dict[str, Any], runs: Sequence[Any]) -> Parameters | None:
    """Draw the next parameters of a random or bayes search, from the global random states; None ends the search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Gaussian process warns while it has few results
        run = interface("sweeps.next_run")(config, list(runs))
    return None if run is None else parameters_of(run)


def grid_cells(config: dict[str, Any], most: int) -> list[Parameters]:
    """List the first cells of a grid in W&B's order, at most `most`."""
    runs = interface("sweeps.next_runs")(config, [], n=most)
    return [parameters_of(run) for run in runs if run is not None]


def runs_to_stop(config: dict[str, Any], runs: Sequence[Any]) -> list[str]:
    """List the names of the runs below the cut-off of `early_terminate`."""
    return [run.name for run in interface("sweeps.stop_runs")(config, list(runs))]


def parameters_of(run: Any) -> Parameters:
    """The parameters of a run. Drawn values are scalars of numpy, which JSON cannot hold."""
    values = {key: entry["value"] for key, entry in run.config.items()}
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}


# -- checks -----------------------------------------------------------------------------------------------------------


def schema_violations(config: dict[str, Any]) -> list[str]:
    """Check a sweep against W&B's schema: each violation with its key. An empty list is a valid sweep."""
    errors = list(interface("sweeps.config.schema.validator").iter_errors(config))
    if errors:
        return list(map(violation, errors))
    check = interface("sweeps.schema_violations_from_proposed_config")
    violations: list[str] = check(copy.deepcopy(config))  # a copy: the check must not change the sweep
    return violations


def violation(error: Any) -> str:
    """An error of jsonschema with its key. An unknown key is told with the valid ones."""
    while error.context:  # one error for each alternative; the deepest one is about the key that is wrong
        error = max(error.context, key=lambda each: len(each.absolute_path))
    line = ": ".join(filter(None, (".".join(map(str, error.absolute_path)), cut(error.message, MAX_SHOWN))))
    is_key = error.validator == "additionalProperties"
    return f"{line}; valid keys: {', '.join(error.schema['properties'])}" if is_key else line


def check_distribution(name: object, entry: dict[str, Any]) -> None:
    """Raise `ValueError` unless W&B has a distribution with these keys and types, and its draws are finite."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parameter = interface("sweeps.params.HyperParameter")(name, entry)
            is_drawn = "value" not in entry and "values" not in entry
            draws = [parameter.ppf(share) for share in (0.01, 0.5, 0.99)] if is_drawn else []
    except ValueError:
        raise
    except Exception as error:  # a jsonschema error, whose message is the whole schema; or a number that is too large
        raise UserError("no W&B distribution has these keys and types") from error
    if not np.all(np.isfinite(draws)):
        raise UserError("its draws are not finite numbers")


# -- commands ---------------------------------------------------------------------------------------------------------

MACROS = {"env", "interpreter", "program"}
MACROS |= {"args", *(f"args_{kind}" for kind in ("no_equals", "no_hyphens", "no_boolean_flags", "json", "json_file"))}
MACROS |= {"args_append_hydra", "args_override_hydra"}


def expand_macros(command: Sequence[Any], program: str, parameters: Parameters, json_file: Path) -> list[str]:
    """Expand the macros of a command as `wandb agent` does.

    `${envvar:NAME}` is replaced anywhere in an element. Every other macro must be a whole element. An unknown macro
    expands to nothing.
    """
    create_sweep_command = interface("wandb.sdk.launch.sweeps.utils.create_sweep_command")
    create_sweep_command_args = interface("wandb.sdk.launch.sweeps.utils.create_sweep_command_args")

    elements = create_sweep_command(list(command))
    values: dict[str, Any] = create_sweep_command_args({"args": {k: {"value": v} for k, v in parameters.items()}})
    values |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [program]}
    values["args_json_file"] = [str(json_file)]
    expanded: list[str] = []
    for element in map(str, elements):
        if element.startswith("${") and element.endswith("}"):
            expanded += values.get(element[2:-1]) or []
        else:
            expanded.append(element)
    return expanded
