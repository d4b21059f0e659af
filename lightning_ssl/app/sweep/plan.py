"""Read a sweep file, check it, and give each trial its parameters and its command."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from lightning_ssl.app.config.keys import role
from lightning_ssl.app.sweep import wandb_sweeps
from lightning_ssl.app.sweep.state import Trial
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError, require_folder_name, require_line, shown
from lightning_ssl.base.untrusted import read_text, yaml_mapping
from lightning_ssl.base.walk import walk

RESERVED_FLAGS = ("name", "runs", "resume")
"""Flags of `lightning-ssl fit` that the sweep sets for each trial."""

SEED = "seed_everything"
"""The parameter that repeats an experiment. A grid that has started can get more seeds."""

MODULES = ("lightning_ssl", "lightning_ssl.cli")  # after `python -m`; the second is of older versions
DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")

INTERPRETER = {"${env}", "/usr/bin/env", "env", "${interpreter}", "python", "-m"}
"""Words of a command before `lightning-ssl fit` or `-m lightning_ssl fit` that start no other program."""

MAX_TRIALS = 100_000

MAX_BANDS = 100
"""`s` of hyperband."""


@dataclass(frozen=True)
class Plan:
    """A sweep file that has passed all checks."""

    name: str
    config: dict[str, Any]  # in the form that W&B's engine takes
    command: list[Any]
    program: str
    limit: int  # the number of trials
    seed: int = 0
    extra_flags: list[str] = field(default_factory=list)  # added to every command
    cells: list[Parameters] = field(default_factory=list)  # only for a grid

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def metric(self) -> str | None:
        name: str | None = self.config.get("metric", {}).get("name")
        return name

    @property
    def maximize(self) -> bool:
        return bool(self.config.get("metric", {}).get("goal") == "maximize")

    def fixed_settings(self) -> dict[str, Any]:
        """List the settings that must be equal when a sweep is resumed. The number of trials may change."""
        return {
            **{key: self.config.get(key) for key in ("method", "metric", "parameters", "early_terminate")},
            "command": self.command,
            "program": self.program,
            "seed": None if self.method == "grid" else self.seed,
            "flags after --": self.extra_flags,
        }

    def comparable_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The fixed settings without what may change: the seeds of a grid, and where and how fast a trial runs."""
        kept = {key: entry for key, entry in settings["parameters"].items() if decides(key, entry)}
        if self.method == "grid":
            kept.pop(SEED, None)
        return {**settings, "parameters": kept}

    def decisive(self, parameters: Parameters) -> Parameters:
        """The parameters, without those that decide only where and how fast a trial runs and have a single value."""
        entries = self.config["parameters"]
        return {key: value for key, value in parameters.items() if decides(key, entries.get(key, {}))}

    def identity(self, parameters: Parameters) -> str:
        """What tells the cells of a grid apart, as text."""
        return json.dumps(self.decisive(parameters), sort_keys=True)

    def experiment(self, parameters: Parameters) -> str:
        """What tells experiments apart, as text: trials of one experiment differ only in their seed."""
        return self.identity({key: value for key, value in parameters.items() if key != SEED})

    def words_of(self, parameters: Parameters) -> str:
        """The parameters that vary in words: `direct-seed_everything=1`."""
        words = []
        for key in (key for key, entry in self.config["parameters"].items() if varies(entry) and key in parameters):
            value = parameters[key]
            if isinstance(value, str) and value.endswith((".yaml", ".yml")):
                words.append(Path(value).stem)
            else:
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                words.append(f"{key.rpartition('.')[2]}={shown}")
        return "-".join(words)

    def allows(self, parameters: Parameters) -> bool:
        """Whether the sweep file could have given these parameters. A value of sweep.db can be code to import."""
        entries, given = self.decisive(self.config["parameters"]), self.decisive(parameters)
        return given.keys() == entries.keys() and all(takes(key, entries[key], given[key]) for key in given)

    def target_reached(self, value: float | None) -> bool:
        """Whether a trial's value meets the metric's `target`, which ends a sweep."""
        target = self.config.get("metric", {}).get("target")
        if target is None or value is None:
            return False
        return bool(value >= target if self.maximize else value <= target)

    def next_parameters(self, trials: Sequence[Trial], histories: dict[str, list[float]]) -> Parameters | None:
        """Choose the parameters of the trial after these; None when the search has ended.

        Random draws depend only on the seed and the trial's number. Bayes also depends on the results.
        """
        if self.method == "grid":
            return next(self.open_cells(trials), None)
        number = len(trials)
        if number >= self.limit:
            return None
        random.seed(f"{self.seed}:{number}")
        np.random.seed((self.seed * 1_000_003 + number) % 2**32)
        runs = wandb_sweeps.runs_of(trials, self.metric, histories) if self.method == "bayes" else []
        return wandb_sweeps.next_parameters(self.config, runs)

    def open_cells(self, trials: Sequence[Trial]) -> Iterator[Parameters]:
        """The cells of a grid that none of these trials has."""
        started = {self.identity(trial.parameters) for trial in trials}
        return (cell for cell in self.cells[: self.limit] if self.identity(cell) not in started)

    def trials_to_prune(self, trials: Sequence[Trial], histories: dict[str, list[float]]) -> list[str]:
        """List the ids of the running trials below the hyperband cut-off."""
        return wandb_sweeps.runs_to_stop(self.config, wandb_sweeps.runs_of(trials, self.metric, histories))

    def command_for(self, parameters: Parameters, json_file: Path) -> list[str]:
        """Build a trial's command, as `wandb agent` would run it, followed by the extra flags."""
        return wandb_sweeps.expand_macros(self.command, self.program, parameters, json_file) + self.extra_flags


def varies(entry: Any) -> bool:
    """Whether a parameter of a sweep file has more than one value."""
    return bool(set(entry) - {"value", "distribution"})


def takes(key: str, entry: Any, value: Any) -> bool:
    """Whether a parameter of a sweep file can have this value. `--seeds` adds seeds; a distribution gives numbers."""
    if "value" in entry:
        return bool(value == entry["value"])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if "values" in entry:
        return value in entry["values"] or (key == SEED and is_number)
    return is_number


def decides(key: str, entry: Any) -> bool:
    """Whether a parameter decides more than where and how fast a trial runs, as trainer.devices does with one value."""
    return varies(entry) or "." not in key or role(key) != "incidental"


# -- reading ----------------------------------------------------------------------------------------------------------


def read(
    file: Path,
    name: str | None = None,
    seed: int = 0,
    count: int | None = None,
    extra_flags: Sequence[str] = (),
    seeds: int | None = None,
) -> Plan:
    """Read and check a sweep file.

    seeds   replaces the values of `seed_everything` by 0 … seeds − 1
    """
    config = yaml_mapping(read_text(file), str(file), "a sweep: `method`, `parameters`, …")
    if seeds is not None:
        config["parameters"] = {**config["parameters"], SEED: {"values": list(range(seeds))}}
    if "tune" in config:
        raise UserError(f"{file}: tune: this is a tuning file; `lightning-ssl tune` runs it")
    cap = config.pop("run_cap", None)  # known to W&B's servers, but not to the schema of `sweeps`
    check_count(f"{file}: run_cap", cap, MAX_TRIALS)
    check_config(file, config)
    command = config.get("command") or list(DEFAULT_COMMAND)
    program = config.get("program", "")
    check_command(file, command, program, config["parameters"])
    if extra_flags and not extra_flags[0].startswith("-"):
        raise UserError(
            f"-- {shown(extra_flags[0])}: expected flags of a trial after --, such as --trainer.max_epochs=1"
        )
    refuse_reserved("-- --", flag_names(extra_flags))
    name = str(config.get("name") or file.stem) if name is None else name
    require_folder_name("name", name)

    cells = grid_cells(file, config) if config["method"] == "grid" else []
    limits = [limit for limit in (cap, count, len(cells) or None) if limit is not None]
    if not limits:
        raise UserError(f"{file}: a {config['method']} search has no limit: give --count N, or run_cap in the file")
    return Plan(name, config, command, program, min(limits), seed, list(extra_flags), cells)


def grid_cells(file: Path, config: dict[str, Any]) -> list[Parameters]:
    """List every cell of a grid, in W&B's order."""
    # The size is checked first: W&B's engine builds every cell before it returns the first.
    size = math.prod(map(grid_values, config["parameters"].values()))
    if size > MAX_TRIALS:
        raise UserError(f"{file}: the grid has {size:,.0f} cells, more than {MAX_TRIALS:,}; use method: random")
    try:
        return wandb_sweeps.grid_cells(config, MAX_TRIALS)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from error


def grid_values(entry: dict[str, Any]) -> float:
    """The number of values of a parameter in a grid; W&B's engine lists those of int_uniform and q_uniform too."""
    if "min" in entry and "max" in entry:
        return float(entry["max"] - entry["min"]) / entry.get("q", 1) + 1
    return len(entry.get("values", [0]))


# -- checks -----------------------------------------------------------------------------------------------------------


def check_config(file: Path, config: dict[str, Any]) -> None:
    """Check a sweep with W&B's schema. Cases in which the schema gives no message or an unclear one come first."""
    for key, value in config.items():
        check_plain(f"{file}: {key}", value)
    if config.get("method") not in ("grid", "random", "bayes"):
        raise UserError(f"{file}: method={shown(config.get('method'))}: expected grid, random or bayes")
    parameters = config.get("parameters")
    for name, entry in parameters.items() if isinstance(parameters, dict) else ():
        check_parameter(f"{file}: parameters.{name}", name, entry)
    violations = wandb_sweeps.schema_violations(config)
    if violations:
        raise UserError(f"{file}: {' '.join(violations[0].split())}")
    if "metric" in config:
        require_line("metric.name", config["metric"]["name"])
    for section, needs in (("early_terminate", "early_terminate" in config), ("bayes", config["method"] == "bayes")):
        if needs and "metric" not in config:
            raise UserError(f"{file}: {section} needs `metric: {{name: …, goal: maximize}}`")
    if stop := config.get("early_terminate"):
        check_count(f"{file}: early_terminate.s", stop.get("s"), MAX_BANDS)
        try:
            wandb_sweeps.runs_to_stop(config, [])
        except (ValueError, ArithmeticError) as error:
            raise UserError(f"{file}: early_terminate={shown(stop)}: {error}") from error


def check_parameter(where: str, name: object, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise UserError(f"{where}={shown(entry)}: expected `{{values: […]}}`, `{{value: …}}` or a distribution")
    if "parameters" in entry:
        raise UserError(f"{where}: nested parameters are not supported; write flat names, `{name}.…`")
    for _, text in walk(entry, into_lists=True):
        if isinstance(text, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", text):
            number = yaml.safe_dump(float(text)).split()[0]
            raise UserError(f"{where}: YAML reads {text} as text, not as a number; write {number}")
    try:
        wandb_sweeps.check_distribution(name, entry)
    except ValueError as error:
        raise UserError(f"{where}={shown(entry)}: {error}") from error


def check_plain(where: str, value: Any) -> None:
    """Refuse values that JSON cannot hold, and text that cannot be a word of a command."""
    try:
        text = json.dumps(value, allow_nan=False)
        is_plain = json.loads(text) == value and r"\u0000" not in text
    except (TypeError, ValueError):
        is_plain = False
    if not is_plain:
        raise UserError(f"{where}={shown(value)}: expected text, finite numbers, true, false, null, and lists of them")


def check_count(where: str, value: object, most: int) -> None:
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise UserError(f"{where}={shown(value)}: expected a whole number, 1 to {most}")


def check_command(file: Path, command: Any, program: str, parameters: dict[str, Any]) -> None:
    if not isinstance(command, list) or not all(isinstance(word, str | int | float) for word in command):
        raise UserError(f"{file}: command={shown(command)}: expected a list of words")
    words = [str(word) for word in command]
    if "${program}" in words and not program:
        raise UserError(f"{file}: the command uses ${{program}}, but the file has no `program`")
    for word in words:
        macro = re.fullmatch(r"\$\{(.*)\}", word)
        if macro and macro[1] not in wandb_sweeps.MACROS and not macro[1].startswith("envvar:"):
            print(f"{file}: command: {word} is not a macro; it expands to nothing, as in W&B", file=sys.stderr)
    if flags := any_fit_flags(words):
        refuse_reserved(f"{file}: ", [*parameters, *flag_names(flags)])


def refuse_reserved(where: str, names: Collection[str]) -> None:
    """Refuse flags that the sweep sets."""
    for flag in RESERVED_FLAGS:
        if flag in names:
            raise UserError(f"{where}{flag}: the sweep sets --{flag} for each trial; remove it")


def flag_names(words: Iterable[str]) -> list[str]:
    return [word[2:].partition("=")[0] for word in words if word.startswith("--")]


def fit_flags(command: Sequence[str]) -> list[str] | None:
    """Return the flags of a command that is `lightning-ssl fit`, and None for any other command."""
    flags = any_fit_flags(command)
    if flags is None or not set(command[: -len(flags) - 2]) <= INTERPRETER:
        return None
    return flags


def any_fit_flags(command: Sequence[str]) -> list[str] | None:
    """Return the flags of `lightning-ssl fit`, also where another program such as torchrun starts it, and else None."""
    for place, (program, verb) in enumerate(pairwise(command)):
        if verb == "fit" and (program in MODULES or Path(program).name == "lightning-ssl"):
            return list(command[place + 2 :])
    return None
