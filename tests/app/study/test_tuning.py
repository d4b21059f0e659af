"""A tuning file: what is fair, and what is refused before the first run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers.studies.tunings import GRID, LOSSES, tuning_file

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.config.labels import flatten
from lightning_ssl.app.runs.choice import HOLDOUT, Choice, TunedLoss, TunedSetting, decisive
from lightning_ssl.app.study import tuning
from lightning_ssl.app.sweep import plan, wandb_sweeps
from lightning_ssl.app.sweep.plan import SEED, fit_flags
from lightning_ssl.base.checks import UserError

INFONCE, DIRECT = LOSSES["InfoNCE"], LOSSES["Direct"]
DRAWN = {"distribution": "uniform", "min": 0.1, "max": 1.0}
TWO_VALUES = {"distribution": "q_uniform", "q": 1, "min": 0, "max": 1}


def choice_of(tuned, chosen=0):
    """A choice with invented scores."""
    losses = {
        name: TunedLoss(space, [TunedSetting(s.flags, [0.5, 0.5]) for s in mine], chosen, mine[chosen].decisive)
        for name, space in tuned.spaces.items()
        for mine in [tuned.of_loss(name)]
    }
    return Choice(tuned.name, tuned.metric, tuned.holdout, tuned.tuning_seeds, tuned.fresh_seeds, losses)


def test_every_loss_has_every_setting_with_every_tuning_seed(tmp_path):
    tuned = tuning.read(tuning_file(tmp_path))
    cells = tuned.tuning(Path("one")).cells
    assert [cell["config"] for cell in cells[:6]] == [
        f"one/settings/{loss}-{number}.yaml" for loss in ("InfoNCE", "Direct") for number in (1, 2, 3)
    ]
    assert [cell[SEED] for cell in cells] == [0] * 6 + [1] * 6  # an interrupted tuning has every setting
    assert {cell[HOLDOUT] for cell in cells} == {0.2}


def test_fresh_seeds_are_none_of_the_tuning_seeds(tmp_path):
    for seeds in ([0, 1], [7, 3], [100]):
        tuned = tuning.read(tuning_file(tmp_path, seeds=seeds))
        assert not set(tuned.fresh_seeds) & set(seeds)
        assert len(set(tuned.fresh_seeds)) == 5


def test_the_confirmation_has_the_chosen_settings_on_the_test_images(tmp_path):
    tuned = tuning.read(tuning_file(tmp_path, block={"fresh_seeds": 3}))
    cells = tuned.confirmation(Path("one"), choice_of(tuned, chosen=2)).cells
    assert {cell["config"] for cell in cells} == {"one/chosen/InfoNCE-3.yaml", "one/chosen/Direct-3.yaml"}
    assert [cell[SEED] for cell in cells] == [2, 2, 3, 3, 4, 4]
    assert {cell[HOLDOUT] for cell in cells} == {0}


def test_the_written_files_are_sweeps_of_wandb_that_fit_reads_as_planned(tmp_path):
    tuned = tuning.read(tuning_file(tmp_path, parameters={"trainer.max_epochs": {"value": 3}}))
    tuned.write(tmp_path / "w")
    tuned.write_confirmation(tmp_path / "w", choice := choice_of(tuned))
    for step, tags in (("tuning", set()), ("confirm", {choice.tag, "loss-InfoNCE", "loss-Direct"})):
        file = tmp_path / "w" / f"{step}.yaml"
        assert wandb_sweeps.schema_violations(yaml.safe_load(file.read_text())) == []
        sweep = plan.read(file)
        found = set()
        by_values = {json.dumps(setting.decisive, sort_keys=True) for setting in tuned.settings}
        for cell in sweep.cells:
            config = Configuration.parse(fit_flags(sweep.command_for(cell, Path("p.json")))).stored()
            assert json.dumps(decisive(flatten(config)), sort_keys=True) in by_values
            assert config["trainer"]["max_epochs"] == 3
            found.update(config["tags"])
            assert config["data"]["holdout"] == (0.2 if step == "tuning" else 0)
        assert found == tags


def test_a_file_that_was_changed_is_not_replaced(tmp_path):
    tuned = tuning.read(tuning_file(tmp_path))
    tuned.write(tmp_path / "w")
    tuned.write(tmp_path / "w")
    (tmp_path / "w" / "settings" / "Direct-1.yaml").write_text("model: AlphaCL\n")
    with pytest.raises(UserError, match=r"Direct-1\.yaml: another content since this tuning started"):
        tuned.write(tmp_path / "w")


def test_random_spaces_have_as_many_distinct_settings_and_depend_on_the_seed_alone(tmp_path):
    space = {**DIRECT, "model.importance.tau": DRAWN, "model.importance.p": {"values": [2, 4]}}
    file = tuning_file(tmp_path, losses={"InfoNCE": INFONCE, "Direct": space})
    one, same, other = (tuning.read(file, seed=seed) for seed in (0, 0, 1))
    draws = [[setting.flags for setting in each.of_loss("Direct")] for each in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]
    assert len({json.dumps(flags) for flags in draws[0]}) == 3
    assert all(0.1 <= flags["model.importance.tau"] <= 1 for flags in draws[0])


def test_a_flag_with_the_same_distribution_has_the_same_draws_in_each_loss(tmp_path):
    losses = {"A": {**DIRECT, "model.importance.tau": DRAWN}, "B": {"config": {"value": "method/entropy"}}}
    losses["B"]["model.importance.tau"] = DRAWN
    tuned = tuning.read(tuning_file(tmp_path, losses=losses, block={"settings": 4}))
    a, b = ([setting.flags for setting in tuned.of_loss(loss)] for loss in "AB")
    assert a == b
    assert len(a) == 4


def with_losses(**losses):
    return {"losses": {**LOSSES, **losses}}


REFUSED = {
    "unequal grids": (
        with_losses(Direct={**DIRECT, "model.importance.tau": {"values": [0.1, 0.2]}}),
        r"each loss must have the same number of settings, not 3 \(InfoNCE\), 2 \(Direct\)",
    ),
    "a grid of another size than tune.settings": (
        {"block": {"settings": 4}},
        r"same number of settings, not 3 \(InfoNCE\), 3 \(Direct\), 4 \(tune.settings\)",
    ),
    "random spaces without a number": (
        {"losses": {"A": {**INFONCE, "model.tau": DRAWN}, "B": {**DIRECT, "model.importance.tau": DRAWN}}},
        "tune.settings: expected a number of settings",
    ),
    "fewer distinct settings": (
        with_losses(Direct={"config": {"value": "method/direct"}, "model.beta": TWO_VALUES}),
        "tune.losses.Direct has fewer than 3 distinct settings",
    ),
    "one loss": ({"losses": {"A": INFONCE}}, "tune.losses has 1: expected two or more, with the baseline"),
    "the same setting twice": (
        {"losses": {"A": INFONCE, "B": {"model": {"value": "SimCLR"}, "model.tau": GRID}}},
        r"A 1 \(model.tau=0.1\) and B 1 \(model.tau=0.1\) are the same setting",
    ),
    "no held-out images": ({"parameters": {HOLDOUT: {"value": 0}}}, "data.holdout=0: expected a number or share"),
    "no seeds": ({"parameters": {SEED: {"value": "a"}}}, "seed_everything=.*the tuning seeds"),
    "a shared parameter with values": (
        {"parameters": {"trainer.max_epochs": {"values": [1, 2]}}}, "losses have settings",
    ),
    "a flag in both places": (
        {"parameters": {"model.tau": {"value": 1}}}, "tune.losses.InfoNCE: model.tau is in `parameters` too",
    ),
    "other images for a loss": (
        with_losses(Direct={**DIRECT, "data.name": {"value": "cifar10"}}), "data.name must be the same for all losses",
    ),
    "a seed for a loss": (with_losses(Direct={**DIRECT, SEED: {"value": 1}}), "seed_everything must be the same"),
    "pruning": ({"early_terminate": {"type": "hyperband", "min_iter": 1}}, "early_terminate: remove it"),
    "bayes": ({"method": "bayes"}, "expected grid or random; the settings are fixed before the first run"),
    "test images": (
        {"metric": {"name": "linear/adam_top1", "goal": "maximize"}}, "expected {name: online/top1, goal: maximize}",
    ),
    "another program": ({"command": ["python", "train.py", "${args}"]}, "expected `lightning-ssl fit` in it"),
    "tags": ({"parameters": {"tags": {"value": "[a]"}}}, "tags: remove it"),
    "held-out images in the command": (
        {"command": ["lightning-ssl", "fit", "--config=data/shapes", "${args}", "--data.holdout=0"]},
        "the command sets data.holdout",
    ),
    "a typo in a flag": (
        with_losses(Direct={**DIRECT, "model.importance.tua": {"value": 1}}), "model.importance.tua",
    ),
    "a typo in the block": ({"block": {"fresh_seed": 5}}, "tune.fresh_seed: unknown key; did you mean fresh_seeds"),
    "a loss that is no mapping": (with_losses(Direct=3), "Direct"),
    "a loss with a slash": (with_losses(**{"a/b": DIRECT}), "a folder name"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), REFUSED.values(), ids=REFUSED)
def test_a_file_without_a_fair_tuning_is_refused_in_one_line(tmp_path, keys, message):
    with pytest.raises(UserError, match=message) as refusal:
        tuning.read(tuning_file(tmp_path, **keys))
    assert len(str(refusal.value).splitlines()) == 1


def test_a_sweep_without_the_block_is_refused(tmp_path):
    file = tuning_file(tmp_path, tune=None)
    with pytest.raises(UserError, match=r"expected `losses: \{NAME: flags, …\}`"):
        tuning.read(file)


def test_sweep_refuses_a_tuning_file(tmp_path):
    with pytest.raises(UserError, match="`lightning-ssl tune` runs it"):
        plan.read(tuning_file(tmp_path))


def test_a_choice_at_the_smallest_or_largest_value_of_a_grid_is_at_its_border(tmp_path):
    tuned = tuning.read(tuning_file(tmp_path))
    loss = choice_of(tuned).losses["InfoNCE"]
    assert [replace(loss, chosen=k).borders for k in range(3)] == [["model.tau"], [], ["model.tau"]]
