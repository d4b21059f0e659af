"""The page of runs that confirm a tuning: the choice beside the fresh scores, and no winner where that is unfair."""

import json
import shutil

import pytest
import yaml
from helpers.run_folders import empty_figures  # noqa: F401
from helpers.studies.tunings import TuningEngine, tuning_file

from lightning_ssl.app.report import build
from lightning_ssl.app.runs.choice import FILE
from lightning_ssl.app.study import tuning, tuning_runs
from lightning_ssl.app.sweep.plan import SEED

pytestmark = pytest.mark.usefixtures("empty_figures")


class Engine(TuningEngine):
    """τ = 0.2 is the best of InfoNCE and τ = 0.5, at the border, that of Direct. Direct is better by 10 points."""

    @staticmethod
    def accuracy(setting, seed):
        noise = 0.001 * (seed % 5) if "InfoNCE" in setting else 0.0
        return {"InfoNCE-2": 0.6, "Direct-3": 0.7}.get(setting, 0.4) + noise


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of a tuning with its confirmation."""
    folder = tmp_path_factory.mktemp("tuned")
    plan = tuning.read(tuning_file(folder))
    step = plan.tuning(folder)
    plan.write(folder)
    Engine(step, folder / step.name).run()
    choice = tuning_runs.freeze(plan, folder, [folder / step.name])
    plan.write_confirmation(folder, choice)
    step = plan.confirmation(folder, choice)
    Engine(step, folder / step.name).run()
    return folder


@pytest.fixture
def folder(tuned, tmp_path):
    return shutil.copytree(tuned, tmp_path / "copy")


def runs_of(folder):
    return sorted((folder / "one-confirm").glob("0*"))


def change_config(run, change):
    config = yaml.safe_load((run / "config.yaml").read_text())
    change(config)
    (run / "config.yaml").write_text(yaml.safe_dump(config))


def test_the_losses_are_compared_on_the_fresh_seeds_alone(folder):
    built = build([folder])
    assert len(built.runs) == 10
    assert {run.seed for run in built.runs} == {2, 3, 4, 5, 6}
    labels = [group.label for group in built.grouping.groups]
    assert labels == ["Direct: AlphaCL Direct p=4 τ=0.5", "InfoNCE: SimCLR InfoNCE τ=0.2"]
    assert built.verdicts[0].headline == "Direct: AlphaCL Direct p=4 τ=0.5 wins"
    assert not built.tuning.problems
    assert built.chosen_on_test_images is None


def test_budget_choice_scores_and_gap_are_shown(folder):
    built = build([folder])
    infonce, direct = built.tuning.rows
    assert built.tuning.budget.startswith("Tuned fairly: 3 settings × 2 tuning seeds for each of 2 losses.")
    assert (infonce.chosen, infonce.border, infonce.seeds) == ("τ=0.2", "", 5)
    assert (direct.chosen, direct.border) == ("τ=0.5", "τ")
    assert (infonce.tuned, infonce.fresh, infonce.gap) == pytest.approx((60.05, 60.2, -0.15))  # seeds 0, 1; 2 to 6
    assert (direct.tuned, direct.fresh, direct.gap) == pytest.approx((70.0, 70.0, 0.0))
    page, table = built.page.read_text(), (folder / "report" / "table.md").read_text()
    assert "Chosen settings, and what they are worth on fresh seeds" in page
    assert "at the border of the grid: τ" in page
    assert "InfoNCE: chosen τ=0.2; tuning score 60.05 %, fresh score 60.20 %, gap -0.15." in table
    assert "12 other runs below these folders are not compared" in table


def test_agents_may_leave_their_runs_elsewhere(folder, tmp_path):
    shutil.move(folder / "one-confirm", tmp_path / "agents")
    assert not build([tmp_path / "agents", folder], tmp_path / "a.html").tuning.problems
    lonely = build([tmp_path / "agents"], tmp_path / "b.html")
    assert lonely.verdicts[0].headline == "Not decided: the file with the choice, choice.json, is not in these folders"


def reuse_a_seed(folder):
    change_config(runs_of(folder)[0], lambda config: config.update({SEED: 1}))


def hold_out(folder):
    for run in runs_of(folder):
        change_config(run, lambda config: config["data"].update(holdout=0.2))


def change_tau(folder):
    for run in runs_of(folder):
        if "InfoNCE" in run.name:
            change_config(run, lambda config: config["model"]["init_args"].update(tau=0.7))


def change_choice(folder):
    content = json.loads((folder / FILE).read_text())
    content["losses"]["Direct"]["settings"][0]["scores"] = [0.1, 0.1]
    (folder / FILE).write_text(json.dumps(content))


def confirm_another_choice(folder):
    for run in runs_of(folder):
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "tags": ["choice-0123456789ab"]}))


def confirm_several_choices(folder):
    run = runs_of(folder)[0]
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "tags": ["choice-0123456789ab"]}))


def lose_a_loss(folder):
    for run in runs_of(folder):
        if "InfoNCE" in run.name:
            shutil.rmtree(run)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (reuse_a_seed, "the settings were chosen with the same seeds (1)"),
        (hold_out, "10 of 10 runs are measured on held-out training images, not on test images"),
        (change_tau, "the frozen choice does not fit one-confirm/001-InfoNCE-2-seed_everything=2: model.tau=0.7"),
        (change_choice, "changed after the choice was frozen"),
        (confirm_another_choice, "choice.json has another choice than the runs confirm"),
        (confirm_several_choices, "the runs confirm several choices; make a page of each"),
    ],
)  # fmt: skip
def test_no_loss_wins_where_the_test_is_not_fair(folder, change, problem):
    change(folder)
    built = build([folder])
    assert problem in built.tuning.problems[0]
    (verdict,) = built.verdicts
    assert verdict.headline == f"Not decided: {built.tuning.problems[0]}"
    assert verdict.winner is None
    assert not any(row.wins or row.can_be_best is not None for row in built.rows)
    assert built.page.read_text().count('class="verdict open"') == 1


def test_no_loss_wins_while_a_loss_has_no_fresh_run(folder):
    lose_a_loss(folder)
    built = build([folder])
    assert built.tuning.problems[0] == "InfoNCE has no finished run with a fresh seed"
    assert built.verdicts[0].winner is None


def test_the_page_of_the_tuning_runs_is_that_of_a_sweep(folder):
    assert build([folder / "one-tuning"]).tuning is None
