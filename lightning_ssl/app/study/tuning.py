"""A tuning file: losses, each with the same number of settings, all fixed before the first run.

It is a W&B sweep file with a block `tune`. `parameters` has what all runs share: the tuning seeds, and `data.holdout`.

    tune:
      losses:                        # the flags of each loss, in the language of `parameters`
        InfoNCE: {model: {value: SimCLR}, model.tau: {values: [0.1, 0.2, 0.5]}}
        Mine: {config: {value: mine.yaml}, model.importance.tau: {distribution: uniform, min: 0.1, max: 1}}
      settings: 3                    # of each loss, for random spaces; by default the size of the grids
      fresh_seeds: 5                 # of the confirmation

The settings of a loss are the grid of its `values`. With a distribution, they are drawn at random. A setting is a
configuration file, so that one W&B sweep of two parameters, `config` and `seed_everything`, has the settings of all
losses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from lightning_ssl.app.config.configuration import Configuration, root
from lightning_ssl.app.config.keys import role
from lightning_ssl.app.config.labels import Scalar, flatten
from lightning_ssl.app.config.merge import merge
from lightning_ssl.app.config.text import Step, configuration
from lightning_ssl.app.runs.choice import HOLDOUT, Choice, decisive
from lightning_ssl.app.sweep import plan as sweep_plan
from lightning_ssl.app.sweep.plan import SEED, Plan, any_fit_flags, varies
from lightning_ssl.app.sweep.state import Trial
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError, did_you_mean, is_number, require_folder_name, shown
from lightning_ssl.base.files import write_all
from lightning_ssl.base.untrusted import read_text, yaml_mapping
from lightning_ssl.comparison.best import FEWEST_FOR_A_WINNER

BLOCK = ("losses", "settings", "fresh_seeds")
TUNING, CONFIRM = "tuning", "confirm"  # the two steps: the ends of the names of their sweeps
MAX_DRAWS = 100  # for each setting that is drawn: draws can be equal


@dataclass(frozen=True)
class Setting:
    """One setting of a loss.

    flags     the values of the flags that vary
    content   its configuration file
    decisive  the values by which its runs are recognized
    """

    loss: str
    number: int
    flags: dict[str, Scalar]
    content: dict[str, Any]
    decisive: dict[str, Scalar]

    @property
    def file(self) -> str:
        return f"{self.loss}-{self.number}.yaml"

    @property
    def name(self) -> str:
        """Such as "InfoNCE 3 (model.tau=0.5)"."""
        flags = ", ".join(f"{key}={value}" for key, value in self.flags.items())
        return f"{self.loss} {self.number} ({flags})" if flags else f"{self.loss} {self.number}"


@dataclass(frozen=True)
class Tuning:
    """A tuning file that has passed all checks.

    sweep    the keys of the file without `tune`; its parameters are those of all runs, without the seed
    spaces   the tuned flags of each loss, in the language of sweep files
    """

    name: str
    sweep: dict[str, Any]
    spaces: dict[str, dict[str, Any]]
    settings: list[Setting]
    tuning_seeds: list[int]
    fresh_seeds: list[int]

    @property
    def metric(self) -> str:
        return str(self.sweep["metric"]["name"])

    @property
    def holdout(self) -> float:
        held_out: float = self.sweep["parameters"][HOLDOUT]["value"]
        return held_out

    @property
    def each(self) -> int:
        """The number of settings of each loss."""
        return len(self.settings) // len(self.spaces)

    def of_loss(self, loss: str) -> list[Setting]:
        return [setting for setting in self.settings if setting.loss == loss]

    def tuning(self, folder: Path) -> Plan:
        """The sweep of all settings over the tuning seeds, in which `folder` has the files of the settings."""
        files = [str(folder / "settings" / setting.file) for setting in self.settings]
        return self.plan(TUNING, files, self.sweep["parameters"], self.tuning_seeds)

    def confirmation(self, folder: Path, choice: Choice) -> Plan:
        """The sweep of the chosen settings over the fresh seeds, on the test images."""
        files = [str(folder / "chosen" / setting.file) for setting in self.chosen(choice)]
        parameters = {**self.sweep["parameters"], HOLDOUT: {"value": 0}}
        return self.plan(CONFIRM, files, parameters, choice.fresh_seeds)

    def chosen(self, choice: Choice) -> list[Setting]:
        return [self.of_loss(name)[loss.chosen] for name, loss in choice.losses.items()]

    def plan(self, step: str, files: list[str], parameters: dict[str, Any], seeds: list[int]) -> Plan:
        name = f"{self.name}-{step}"
        varied = {"config": {"values": files}, **parameters, SEED: {"values": seeds}}
        config = {**self.sweep, "name": name, "method": "grid", "parameters": varied}
        cells = sweep_plan.grid_cells(Path(name), config)
        cells.sort(key=lambda cell: seeds.index(cell[SEED]))  # an interrupted step has every setting with some seeds
        return Plan(name, config, self.sweep["command"], "", len(cells), cells=cells)

    def write(self, folder: Path) -> None:
        """Write the sweep of the tuning seeds and the files of its settings. Other files of an earlier one are refused.

        NAME/tuning.yaml is a W&B sweep file, and NAME/settings/ has its configuration files.
        """
        files = {f"settings/{setting.file}": to_yaml(setting.content) for setting in self.settings}
        write_same(folder, {**files, f"{TUNING}.yaml": to_yaml(self.tuning(folder).config)})

    def write_confirmation(self, folder: Path, choice: Choice) -> None:
        """Write the sweep of the fresh seeds and the files of the chosen settings, with the tag of the choice."""
        tagged = {f"chosen/{s.file}": to_yaml({**s.content, "tags": [choice.tag]}) for s in self.chosen(choice)}
        write_same(folder, {**tagged, f"{CONFIRM}.yaml": to_yaml(self.confirmation(folder, choice).config)})


def to_yaml(content: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text


def write_same(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files, or keep them if they have the same content. A file with another content is refused."""
    for name, text in texts.items():
        file = folder / name
        if file.exists() and (not file.is_file() or read_text(file) != text):
            raise UserError(f"{file}: another content since this tuning started; restore it, or choose another --name")
    write_all({folder / name: text.encode() for name, text in texts.items() if not (folder / name).exists()})


# -- reading ----------------------------------------------------------------------------------------------------------


def read(
    file: Path,
    name: str | None = None,
    seed: int = 0,
    extra_flags: Sequence[str] = (),
    fresh: int | None = None,
) -> Tuning:
    """Read and check a tuning file.

    seed         of random spaces
    extra_flags  added to the command of every run
    fresh        number of fresh seeds; by default that of the file
    """
    sweep = yaml_mapping(read_text(file), str(file), "a sweep with a block `tune`")
    block = sweep.pop("tune", None)
    if not isinstance(block, dict) or not isinstance(block.get("losses"), dict):
        raise UserError(f"{file}: tune={shown(block)}: expected `losses: {{NAME: flags, …}}`; see docs/tuning.md")
    for key in block:
        if key not in BLOCK:
            hint = did_you_mean(key, BLOCK) or f"valid keys: {', '.join(BLOCK)}"
            raise UserError(f"{file}: tune.{key}: unknown key; {hint}")
    if len(block["losses"]) < 2:
        raise UserError(f"{file}: tune.losses has {len(block['losses'])}: expected two or more, with the baseline")
    sweep_plan.check_config(file, sweep)
    sweep["command"] = [*sweep.get("command", []), *extra_flags]
    check_sweep(file, sweep)
    seeds = seeds_of(file, sweep)
    fresh = fresh or block.get("fresh_seeds", FEWEST_FOR_A_WINNER)
    sweep_plan.check_count(f"{file}: tune.fresh_seeds", fresh, 1000)
    sweep_plan.check_count(f"{file}: tune.settings", block.get("settings"), 1000)
    shared = {key: entry for key, entry in sweep["parameters"].items() if key != SEED}
    sweep = {**sweep, "parameters": shared}
    sweep_plan.check_command(file, sweep["command"], "", sweep["parameters"])
    name = str(sweep.get("name") or file.stem) if name is None else name
    require_folder_name("name", name)

    spaces = {loss: space_of(file, loss, entries, shared) for loss, entries in block["losses"].items()}
    parameters = draw(file, spaces, block.get("settings"), seed)
    given = [
        (loss, number, cell, content_of(cell))
        for loss, cells in parameters.items()
        for number, cell in enumerate(cells, 1)
    ]
    settings = [
        Setting(
            loss, number, {k: v for k, v in cell.items() if varies(spaces[loss][k])}, content,
            configured(file, sweep, content, seeds[0]),
        )
        for loss, number, cell, content in given
    ]  # fmt: skip
    require_distinct(file, settings)
    tuned = {loss: {key: entry for key, entry in space.items() if varies(entry)} for loss, space in spaces.items()}
    return Tuning(name, sweep, tuned, settings, seeds, fresh_seeds(seeds, fresh))


def check_sweep(file: Path, sweep: dict[str, Any]) -> None:
    """Refuse what is unfair or undefined for a tuning."""
    parameters = sweep["parameters"]
    for key in ("early_terminate", "run_cap"):
        if key in sweep:
            raise UserError(f"{file}: {key}: remove it; a fair tuning runs every setting in full")
    if sweep["method"] == "bayes":
        raise UserError(f"{file}: method='bayes': expected grid or random; the settings are fixed before the first run")
    metric = sweep.get("metric", {})
    if metric.get("goal") != "maximize" or str(metric["name"]).startswith("linear/"):
        raise UserError(f"{file}: metric={shown(metric)}: expected {{name: online/top1, goal: maximize}}, or knn/top1")
    if any_fit_flags([str(word) for word in sweep["command"]]) is None:
        raise UserError(f"{file}: command={shown(sweep['command'])}: expected `lightning-ssl fit` in it")
    for key, entry in parameters.items():
        if key != SEED and "value" not in entry:
            raise UserError(f"{file}: parameters.{key}={shown(entry)}: expected {{value: …}}; losses have settings")
    held_out = parameters.get(HOLDOUT, {}).get("value", 0)
    if not is_number(held_out) or held_out <= 0:
        raise UserError(
            f"{file}: {HOLDOUT}={shown(held_out)}: expected a number or share of training images to choose on"
        )
    if "tags" in (*parameters, *sweep_plan.flag_names(map(str, sweep["command"]))):
        raise UserError(f"{file}: tags: remove it; a tag names the choice that a run confirms")
    if "config" in parameters:
        raise UserError(f"{file}: parameters.config: write it into the command as --config=…, or give it to each loss")


def seeds_of(file: Path, sweep: dict[str, Any]) -> list[int]:
    """The tuning seeds."""
    entry = sweep["parameters"].get(SEED, {})
    seeds = entry.get("values", [entry["value"]] if "value" in entry else [])
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise UserError(f"{file}: {SEED}={shown(entry)}: expected {{values: [0, 1, …]}}, the tuning seeds")
    return list(seeds)


def fresh_seeds(tuning_seeds: Sequence[int], count: int) -> list[int]:
    """The seeds of the confirmation: those that follow the largest tuning seed.

    >>> fresh_seeds([0, 1, 2], 5)
    [3, 4, 5, 6, 7]
    """
    first = max(tuning_seeds) + 1
    return list(range(first, first + count))


def space_of(file: Path, loss: str, entries: Any, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a loss, checked."""
    require_folder_name(f"{file}: tune.losses", str(loss))
    where = file.with_name(f"{file.name}: tune.losses.{loss}")
    sweep_plan.check_config(where, {"method": "random", "parameters": entries})
    for key in entries:
        if key in shared:
            raise UserError(f"{where}: {key} is in `parameters` too; write it in one place")
        if key == SEED or role(key) == "data" or (key != "config" and role(key) == "incidental"):
            raise UserError(f"{where}: {key} must be the same for all losses; write it into `parameters`")
    return dict(entries)


def draw(file: Path, spaces: Mapping[str, dict[str, Any]], count: int | None, seed: int) -> dict[str, list[Parameters]]:
    """The settings of each loss: its grid, or as many random draws. Unequal numbers are refused."""
    grids = {loss: grid_of(file, loss, space) for loss, space in spaces.items() if not is_random(space)}
    sizes = {loss: len(cells) for loss, cells in grids.items()}
    if count is not None:
        sizes["tune.settings"] = count
    if not sizes:
        raise UserError(f"{file}: tune.settings: expected a number of settings, because every space is random")
    if len(set(sizes.values())) > 1:
        numbers = ", ".join(f"{size} ({name})" for name, size in sizes.items())
        raise UserError(f"{file}: each loss must have the same number of settings, not {numbers}")
    (size,) = set(sizes.values())
    return {loss: grids.get(loss) or drawn(file, loss, space, size, seed) for loss, space in spaces.items()}


def is_random(space: Mapping[str, Any]) -> bool:
    return any(not {"value", "values"} & set(entry) for entry in space.values())


def grid_of(file: Path, loss: str, space: dict[str, Any]) -> list[Parameters]:
    return sweep_plan.grid_cells(
        file.with_name(f"{file.name}: tune.losses.{loss}"), {"method": "grid", "parameters": space}
    )


def drawn(file: Path, loss: str, space: dict[str, Any], size: int, seed: int) -> list[Parameters]:
    """Distinct random draws by W&B's own search. A flag with the same distribution has the same draws in each loss."""
    search = Plan(loss, {"method": "random", "parameters": space}, [], "", size * MAX_DRAWS, seed)
    found: dict[str, Parameters] = {}
    trials: list[Trial] = []
    while len(found) < size and (cell := search.next_parameters(trials, {})) is not None:
        found.setdefault(json.dumps(cell, sort_keys=True), cell)
        trials.append(Trial(len(trials) + 1, "", {}))
    if len(found) < size:
        raise UserError(f"{file}: tune.losses.{loss} has fewer than {size} distinct settings")
    return list(found.values())


def content_of(cell: Parameters) -> dict[str, Any]:
    """The configuration file of a setting: its flags, merged as `lightning-ssl fit` does."""
    given = [
        Step("", configuration(value), from_file=True) if key == "config" else Step(key, value)
        for key, value in cell.items()
    ]
    tree: dict[str, Any] = json.loads(json.dumps(merge(given, root())))
    return tree


def configured(file: Path, sweep: dict[str, Any], content: dict[str, Any], seed: int) -> dict[str, Scalar]:
    """The settings of a run, read as `lightning-ssl fit` does: a wrong key is told before the first run."""
    parameters = {key: entry["value"] for key, entry in sweep["parameters"].items()}
    search = Plan("", sweep, sweep["command"], "", 1)
    command = search.command_for({"config": json.dumps(content), **parameters, SEED: seed}, Path("parameters.json"))
    flags = any_fit_flags(command)
    assert flags is not None
    settings = flatten(Configuration.parse(flags).stored())
    if settings.get(HOLDOUT) != sweep["parameters"][HOLDOUT]["value"] or settings.get(SEED) != seed:
        raise UserError(f"{file}: the command sets {HOLDOUT} or {SEED}; write them into `parameters`")
    return decisive(settings)


def require_distinct(file: Path, settings: Sequence[Setting]) -> None:
    """Refuse two settings that are the same experiment: a page could not tell them apart."""
    known: dict[str, Setting] = {}
    for setting in settings:
        key = json.dumps(setting.decisive, sort_keys=True)
        if key in known:
            raise UserError(f"{file}: {known[key].name} and {setting.name} are the same setting")
        known[key] = setting
