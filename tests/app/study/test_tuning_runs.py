"""The choice: by the mean on held-out images, frozen with its hash, and fair only with fresh seeds."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.studies.tunings import tuning_file

from lightning_ssl.app.runs.choice import FILE, HOLDOUT, read_choice
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.study import tuning, tuning_runs
from lightning_ssl.app.sweep.plan import SEED
from lightning_ssl.base.checks import UserError
from lightning_ssl.comparison.best import best
from lightning_ssl.comparison.pairs import compare_pairs


@pytest.fixture
def tuned(tmp_path):
    return tuning.read(tuning_file(tmp_path))


def record(setting, seed, value, status="finished", holdout=0.2):
    settings = {**setting.decisive, HOLDOUT: holdout, SEED: seed}
    name = f"{setting.loss}-{setting.number}-{seed}-{status}-{holdout}"
    summary = {"last": {"online/top1": value}}
    return RunRecord(Path(name), name, status, "it failed", settings=settings, summary=summary)


def records(tuned, scores=lambda setting, seed: 0.5):
    return [record(setting, seed, scores(setting, seed)) for setting in tuned.settings for seed in tuned.tuning_seeds]


def test_the_setting_with_the_highest_mean_over_all_tuning_seeds_is_chosen(tuned):
    scores = {("InfoNCE", 1): (0.9, 0.1), ("InfoNCE", 2): (0.6, 0.7), ("Direct", 3): (0.6, 0.6)}
    runs = records(tuned, lambda setting, seed: scores.get((setting.loss, setting.number), (0.4, 0.4))[seed])
    choice = tuning_runs.choose(tuned, runs)
    assert {name: loss.choice.flags for name, loss in choice.losses.items()} == {
        "InfoNCE": {"model.tau": 0.2}, "Direct": {"model.importance.tau": 0.5},
    }  # fmt: skip
    assert choice.losses["InfoNCE"].choice.scores == [0.6, 0.7]
    assert (choice.tuning_seeds, choice.fresh_seeds) == ([0, 1], [2, 3, 4, 5, 6])


def test_runs_on_test_images_and_with_other_seeds_and_settings_do_not_count(tuned):
    best_of_all = [record(s, seed, 0.99, holdout=h) for s in tuned.settings[:1] for seed, h in ((0, 0), (9, 0.2))]
    other = record(tuned.settings[0], 0, 0.99)
    other.settings["trainer.max_epochs"] = 1000
    expected = tuning_runs.choose(tuned, records(tuned))
    assert tuning_runs.choose(tuned, [*best_of_all, other, *records(tuned)]) == expected


def test_a_setting_with_a_failed_run_cannot_be_chosen_and_says_why(tuned):
    runs = records(tuned, lambda setting, seed: 0.9 if setting.number == 1 else 0.5)
    runs[0] = record(tuned.settings[0], 0, None, status="failed")
    loss = tuning_runs.choose(tuned, runs).losses["InfoNCE"]
    assert (loss.chosen, loss.settings[0].scores, loss.settings[0].failed) == (1, [], "seed 0: it failed")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda runs: runs.pop(0), r"InfoNCE 1 \(model.tau=0.1\), seed 0: its run is missing"),
        (lambda runs: setattr(runs[3], "status", "running"), r"InfoNCE 2 .*seed 1: its run is running"),
        (lambda runs: runs.append(runs[0]), "are the same run; give folders with one of them"),
        (lambda runs: runs[0].summary.clear(), "no value of online/top1"),
        (lambda runs: [setattr(run, "status", "failed") for run in runs], "InfoNCE: every setting has a failed run"),
    ],
)
def test_a_choice_without_every_run_is_refused(tuned, change, message):
    runs = records(tuned)
    change(runs)
    with pytest.raises(UserError, match=message):
        tuning_runs.choose(tuned, runs)


@pytest.mark.parametrize("place", ["scores", "chosen", "tuning_seeds", "space"])
def test_a_changed_file_is_refused(tuned, tmp_path, place):
    tuning_runs.choose(tuned, records(tuned)).write(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    loss = content["losses"]["Direct"]
    changed = {"scores": loss["settings"][1], "space": loss, "chosen": loss}.get(place, content)
    changed[place] = {"scores": [0.9, 0.9], "chosen": 1, "tuning_seeds": [5, 6], "space": {}}[place]
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match="changed after the choice was frozen"):
        read_choice(tmp_path / FILE)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"losses": {"A": 3}}', "no json"])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match=r"choice.json: not the choice of a tuning"):
        read_choice(tmp_path / FILE)


@pytest.mark.parametrize("place", ["settings", "space", "configuration", "chosen"])
@pytest.mark.parametrize("value", [None, 3, [], "text", {"a": 1}, [{}], 10**9])
def test_a_loss_of_another_form_is_refused(tuned, tmp_path, place, value):
    tuning_runs.choose(tuned, records(tuned)).write(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    content["losses"]["Direct"][place] = value
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"choice.json: (not the choice of a tuning|changed after)"):
        read_choice(tmp_path / FILE)


@pytest.mark.parametrize(
    "change", [{"seeds": (0, 2)}, {"block": {"fresh_seeds": 6}}, {"parameters": {"trainer.max_epochs": {"value": 9}}}]
)
def test_a_choice_fits_the_tuning_file_that_it_was_made_from_alone(tuned, tmp_path, change):
    tuning_runs.choose(tuned, records(tuned)).write(tmp_path)
    assert tuning_runs.frozen(tuned, tmp_path) is not None
    with pytest.raises(UserError, match="the tuning file has changed since the choice"):
        tuning_runs.frozen(tuning.read(tuning_file(tmp_path, **change)), tmp_path)


@pytest.mark.parametrize("settings", [1, 5, 10])
def test_a_winner_is_false_at_its_nominal_rate_with_fresh_seeds_and_more_often_with_the_tuning_seeds(settings):
    """Two equal losses, the settings of one of which make no difference. It must win in 2.5 % of all cases."""
    repetitions, seeds = 4000, 5
    draw = np.random.default_rng(0)
    baseline = np.repeat(draw.normal(0, 0.6, (repetitions, 1, seeds)), settings, 1)
    scores = np.stack([draw.normal(0, 0.6, (repetitions, settings, seeds)), baseline], 1)  # (R, 2, M, S)
    chosen = [[tuning_runs.best_setting(loss) for loss in losses] for losses in scores.tolist()]
    reused = np.take_along_axis(scores, np.array(chosen)[:, :, None, None], 2)[:, :, 0]
    fresh = draw.normal(0, 0.6, reused.shape)

    def false_wins(results):
        return (best(compare_pairs(results)).winner == 0).mean()

    error = 4 * np.sqrt(0.025 * 0.975 / repetitions)
    assert false_wins(fresh) < 0.025 + error
    assert abs(fresh[:, 0].mean()) < 4 * 0.6 / np.sqrt(seeds * repetitions)
    if settings == 1:
        assert false_wins(reused) < 0.025 + error
    else:
        assert false_wins(reused) > 2 * 0.025 + error
        assert reused[:, 0].mean() > 0.2
