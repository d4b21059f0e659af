"""What a sweep file asks for: its trials by W&B's own search engine, its commands by W&B's own macros.

The engine is the package `sweeps` 0.2.0, written for pydantic 1. What it does wrong under pydantic 2 is avoided here:
fields of `SweepRun` are given by their aliases (by name they are dropped without a word), nested `parameters` (of which
it repeats the first cell for ever) are refused, and numpy scalars become numbers.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from lightning_ssl.checks import require
from lightning_ssl.sweep.state import Trial

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pydantic 2 on names of pydantic 1
    # By name: a type checker would take the folder sweeps/ of a source checkout for the package.
    sweeps: Any = import_module("sweeps")
    HyperParameter: Any = import_module("sweeps.params").HyperParameter

Parameters = dict[str, Any]

OURS = ("name", "runs", "resume")
"""Flags of `lightning-ssl fit` by which a trial is told where it lives."""

MACROS = {"env", "interpreter", "program"}
MACROS |= {"args", *(f"args_{kind}" for kind in ("no_equals", "no_hyphens", "no_boolean_flags", "json", "json_file"))}
MACROS |= {"args_append_hydra", "args_override_hydra"}

LARGEST_GRID = 100_000


@dataclass(frozen=True)
class Plan:
    """A sweep file, read and found to be sound."""

    name: str
    config: dict[str, Any]  # as W&B's engine takes it
    command: list[Any]
    program: str
    limit: int  # trials in all
    seed: int = 0
    extra: list[str] = field(default_factory=list)  # added to every command
    cells: list[Parameters] = field(default_factory=list)  # of a grid

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

    @property
    def prunes(self) -> bool:
        return "early_terminate" in self.config

    def identity(self) -> dict[str, Any]:
        """What must not change between two calls that work on one sweep; how many trials there are may."""
        kept = {key: self.config.get(key) for key in ("method", "metric", "parameters", "early_terminate")}
        seed = None if self.method == "grid" else self.seed
        return {**kept, "command": self.command, "program": self.program, "seed": seed, "flags after --": self.extra}

    def better(self, one: float, other: float) -> bool:
        return one > other if self.maximize else one < other

    def reached(self, value: float | None) -> bool:
        """Whether a trial met the metric's `target`, which ends a sweep."""
        target = self.config.get("metric", {}).get("target")
        return target is not None and value is not None and (value == target or self.better(value, target))

    def draw(self, past: Sequence[Trial], histories: dict[str, list[float]]) -> Parameters | None:
        """The parameters of the trial after these, or None where the search has ended."""
        number = len(past)  # what is drawn depends on the seed and this alone, and for bayes on the results
        if number >= self.limit:
            return None
        if self.method == "grid":
            return self.cells[number]
        random.seed(f"{self.seed}:{number}")
        np.random.seed((self.seed * 1_000_003 + number) % 2**32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the Gaussian process's, when it has seen little
            run = sweeps.next_run(self.config, [self.as_run(trial, histories.get(trial.id, [])) for trial in past])
        return None if run is None else parameters_of(run)

    def as_run(self, trial: Trial, history: list[float]) -> Any:
        """A trial as W&B's engine sees one."""
        known = self.metric is not None
        return sweeps.SweepRun(
            name=trial.id,
            config={key: {"value": value} for key, value in trial.parameters.items()},
            state=RUN_STATES[trial.status],
            stopped=trial.status == "stopped",
            sampledHistory=[{self.metric: value} for value in history] if known else [],
            summaryMetrics={self.metric: trial.value} if known and trial.value is not None else {},
        )

    def to_stop(self, past: Sequence[Trial], histories: dict[str, list[float]]) -> list[str]:
        """The running trials that hyperband gives up."""
        runs = [self.as_run(trial, histories.get(trial.id, [])) for trial in past]
        return [run.name for run in sweeps.stop_runs(self.config, runs)]

    def words(self, parameters: Parameters, json_file: Path) -> list[str]:
        """A trial's command, as `wandb agent` would run it."""
        return expand(self.command, self.program, parameters, json_file) + self.extra


RUN_STATES = {
    "pending": sweeps.RunState.pending,
    "running": sweeps.RunState.running,
    "interrupted": sweeps.RunState.pending,
    "finished": sweeps.RunState.finished,
    "stopped": sweeps.RunState.finished,  # its history is as good as another's, and bayes must not take it for a crash
    "failed": sweeps.RunState.failed,
}


def parameters_of(run: Any) -> Parameters:
    return {key: plain(entry["value"]) for key, entry in run.config.items()}


def plain(value: Any) -> Any:
    """Numbers instead of numpy's scalars, of which neither JSON nor `repr` makes what a command line expects."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def expand(command: Sequence[Any], program: str, parameters: Parameters, json_file: Path) -> list[str]:
    """Replace macros as the agent does: `${envvar:NAME}` anywhere, others only where an element is nothing else."""
    from wandb.sdk.launch.sweeps import utils as agent

    words = agent.create_sweep_command(list(command))  # it writes into the list it is given
    macros: dict[str, Any] = agent.create_sweep_command_args({"args": {k: {"value": v} for k, v in parameters.items()}})
    macros |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [program]}
    macros["args_json_file"] = [str(json_file)]
    out: list[str] = []
    for word in map(str, words):
        if word.startswith("${") and word.endswith("}"):
            out += macros.get(word[2:-1]) or []
        else:
            out.append(word)
    return out


# -- reading ----------------------------------------------------------------------------------------------------------


def read(
    file: Path, name: str | None = None, seed: int = 0, count: int | None = None, extra: Sequence[str] = ()
) -> Plan:
    """Read a sweep file, and refuse what would go wrong later."""
    config = load(file)
    cap = config.pop("run_cap", None)  # W&B's servers know it, its schema does not
    if cap is not None and (type(cap) is not int or cap < 1):
        raise ValueError(f"{file}: run_cap={cap!r}: expected a whole number of trials, at least 1")
    check(file, config)
    command = config.get("command") or list(DEFAULT_COMMAND)
    program = config.get("program", "")
    check_command(file, command, program, config["parameters"])

    limits = [limit for limit in (cap, count) if limit is not None]
    cells = list(grid(file, config)) if config["method"] == "grid" else []
    if cells:
        limits.append(len(cells))
    elif not limits:
        raise ValueError(f"{file}: a {config['method']} search has no end: give --count N, or run_cap in the file")
    return Plan(
        name=folder_name(str(name or config.get("name") or file.stem)),
        config=config,
        command=command,
        program=program,
        limit=min(limits),
        seed=seed,
        extra=list(extra),
        cells=cells,
    )


DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")


def load(file: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{file}: expected a sweep: `method`, `parameters`, …")
    return config


def check(file: Path, config: dict[str, Any]) -> None:
    """W&B's own validator, after what it would say less clearly or not at all."""
    parameters = config.get("parameters")
    if not isinstance(parameters, dict) or not parameters:
        raise ValueError(f"{file}: parameters={parameters!r}: expected at least one, as `name: {{values: […]}}`")
    for name, entry in parameters.items():
        check_parameter(f"{file}: parameters.{name}", name, entry)
    if config.get("method") not in ("grid", "random", "bayes"):
        raise ValueError(f"{file}: method={config.get('method')!r}: expected grid, random or bayes")
    stop = config.get("early_terminate", {"min_iter": 1})
    if not isinstance(stop, dict) or not ("min_iter" in stop or {"max_iter", "s"} <= set(stop)):
        raise ValueError(
            f"{file}: early_terminate={stop!r}: expected {{type: hyperband, min_iter: …}}, or max_iter and s"
        )
    violations = sweeps.schema_violations_from_proposed_config(copy.deepcopy(config))
    if violations:
        raise ValueError(f"{file}: {'; '.join(' '.join(text.split()) for text in violations)}")
    for section, needs in (("early_terminate", "early_terminate" in config), ("bayes", config["method"] == "bayes")):
        if needs and "metric" not in config:
            raise ValueError(f"{file}: {section} needs `metric: {{name: …, goal: maximize}}`")
    if "early_terminate" in config:
        try:
            sweeps.stop_runs(config, [])
        except ValueError as error:
            raise ValueError(f"{file}: early_terminate: {error}") from error


def check_parameter(where: str, name: object, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}={entry!r}: expected `{{values: […]}}`, `{{value: …}}` or a distribution")
    if "parameters" in entry:
        inner = next(iter(entry["parameters"] or {"…": None})) if isinstance(entry["parameters"], dict) else "…"
        raise ValueError(f"{where}: parameters cannot be nested; write the flat name `{name}.{inner}`")
    for text in texts(entry):
        if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", text):
            raise ValueError(f"{where}: {text} is text to YAML, not a number; write {with_a_point(text)}")
    try:
        known = json.loads(json.dumps(entry, allow_nan=False)) == entry
    except (TypeError, ValueError):
        known = False
    if not known:
        raise ValueError(f"{where}={entry!r}: expected text, finite numbers, true, false, null, and lists of them")
    try:
        HyperParameter(name, entry)
    except Exception as error:  # jsonschema's, of which the message is the whole schema
        detail = error.args[0] if isinstance(error, ValueError) else "no distribution of W&B's has these keys and types"
        raise ValueError(f"{where}={entry!r}: {detail}") from error


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def with_a_point(text: str) -> str:
    """1e-5 as YAML 1.1 knows a number: with a point in it, and a sign of the exponent."""
    mantissa, exponent = re.split("[eE]", text)
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{exponent if exponent[0] in '+-' else f'+{exponent}'}"


def check_command(file: Path, command: Any, program: str, parameters: dict[str, Any]) -> None:
    if not isinstance(command, list) or not command:
        raise ValueError(f"{file}: command={command!r}: expected a list of words")
    words = [str(word) for word in command]
    if "${program}" in words and not program:
        raise ValueError(f"{file}: the command has ${{program}}, and the file has no `program`")
    for word in words:
        macro = re.fullmatch(r"\$\{(.*)\}", word)
        if macro and macro[1] not in MACROS and not macro[1].startswith("envvar:"):
            print(f"{file}: command: {word} is no macro, and expands to nothing, as it does for W&B", file=sys.stderr)
    if fits(words):
        given = [word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")]
        for flag in OURS:
            if flag in parameters or flag in given:
                raise ValueError(f"{file}: {flag}: the sweep sets --{flag} of each trial itself; leave it out")


def fits(words: Sequence[str]) -> list[str] | None:
    """The flags, where a command is `lightning-ssl fit` and nothing else."""
    words = list(words)
    if words and words[0] in ("${env}", "/usr/bin/env", "env"):
        words = words[1:]
    if words[:3] in (["python", "-m", "lightning_ssl.cli"], ["${interpreter}", "-m", "lightning_ssl.cli"]):
        words = ["lightning-ssl", *words[3:]]
    return words[2:] if words[:1] and Path(words[0]).name == "lightning-ssl" and words[1:2] == ["fit"] else None


def grid(file: Path, config: dict[str, Any]) -> Iterator[Parameters]:
    """Every cell, in W&B's order."""
    # Asked beforehand: the engine makes every cell before it hands out the first.
    cells = math.prod(len(each.get("values", [0])) for each in config["parameters"].values())
    if cells > LARGEST_GRID:
        raise ValueError(f"{file}: the grid has {cells:,} cells, more than {LARGEST_GRID:,}; use method: random")
    try:
        runs = sweeps.next_runs(config, [], n=LARGEST_GRID + 1)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if runs[-1] is not None:
        raise ValueError(f"{file}: the grid has more than {LARGEST_GRID:,} cells; use method: random")
    return (parameters_of(run) for run in runs if run is not None)


def folder_name(name: str) -> str:
    require(
        bool(name.strip()) and not name.startswith(".") and not re.search(r"[/\\\x00-\x1f]", name),
        "name",
        name,
        "a folder's name: no slash, no point in front",
    )
    return name
