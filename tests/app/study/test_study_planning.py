"""`lightning-ssl plan`: seeds, runs and hours for a difference, and the reverse."""

import math
import re

import numpy as np
import pytest
from helpers import ROOT
from helpers.run_folders import write_sweep as write_runs

from lightning_ssl.app import cli
from lightning_ssl.app.report.groups import Grouping
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.study import planning
from lightning_ssl.app.study.planning import DataSet, Study
from lightning_ssl.comparison.blocks import blocks
from lightning_ssl.comparison.planning import difference_shown, seeds_needed, variance_of_pilot

ONE = Study([DataSet("shapes", losses=4, seconds=400.0, variance=2 * 0.6**2)], "s", "t", power=0.8)


@pytest.fixture
def run_plan(capsys):
    def run(*words):
        code = cli.main(["plan", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def table_of(out):
    """The lines of the table: difference, seeds, runs, hours."""
    return [[float(cell) for cell in line.split()] for line in out.splitlines() if re.fullmatch(r"[\d. ]+", line)]


def test_the_spreads_without_a_pilot_are_those_of_the_archive():
    known, found = planning.archive_spreads(), {}
    for file in sorted((ROOT / "docs" / "results" / "runs").glob("*-cpu.jsonl.gz")):
        grouping = Grouping.of(Reader().runs([file]), known["metric"])
        (groups,) = grouping.by_data.values()
        x = blocks([group.results for group in groups]).x
        residues = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
        freedom = (x.shape[0] - 1) * (x.shape[1] - 1)
        if freedom >= 4:
            found[file.name.removesuffix(".jsonl.gz")] = round(math.sqrt(2 * (residues**2).sum() / freedom), 2)
    assert found == known["spreads"]


def test_a_study_needs_the_seeds_of_the_formula():
    assert ONE.seeds(1.2) == seeds_needed(2 * 0.6**2, 4, 1.2) == 8
    assert ONE.difference(9) == difference_shown(2 * 0.6**2, 4, 9)
    assert ONE.seconds(8, workers=2) == 8 * 400 / 2
    lines = ONE.lines_for(1.2, workers=2)
    assert lines[-1].endswith("(80 % assurance) with 8 seeds: 32 runs, 26 min 40 s with 2 workers.")
    assert [1.2, 8, 32, 0.4] in table_of("\n".join(lines))


def test_every_data_set_gets_the_seeds_of_the_one_that_needs_most():
    noisy = DataSet("cifar10", losses=2, seconds=100.0, variance=8.0)
    both = Study([*ONE.sets, noisy], "s", "t", power=0.8)
    assert both.seeds(1.2) == seeds_needed(8.0, 2, 1.2) > 8
    assert both.difference(9) == difference_shown(8.0, 2, 9)
    assert both.losses == 6


def test_the_difference_of_a_budget_needs_no_more_than_the_budget():
    for seeds in (5, 8, 20):
        assert ONE.seeds(ONE.difference(seeds)) in (seeds, seeds + 1)
    assert ONE.seeds_in(1.0, workers=1) == 9  # 400 s for a seed of all losses
    with pytest.raises(ValueError, match="hours must be enough for 2 seeds"):
        ONE.seeds_in(0.1, workers=1)


def test_three_seeds_name_no_winner():
    assert "is the only one that can be the best with a probability" in ONE.lines_within(3, 1)[-1]
    assert " wins with a probability" in ONE.lines_within(5, 1)[-1]


def test_a_plan_without_a_pilot_says_where_its_figures_come_from(write_race, run_plan):
    file = write_race("infonce", "direct", parameters={"trainer.max_epochs": {"value": 2}})
    code, out, _ = run_plan(file, "--difference", "2")
    assert code == 0
    spreads = [*planning.archive_spreads()["spreads"].values()]
    spread = f"spread: {np.quantile(spreads, 0.8):.2f} points between two losses"
    assert out.startswith(f"one: 2 losses on shapes\n{spread}, or less in 80 % of {len(spreads)} sweeps")
    assert "time: 580 images/s of resnet_tiny at 32 pixels" in out
    assert len(table_of(out)) == 6


def test_a_pilot_gives_spread_and_time(write_race, run_plan, tmp_path):
    write_runs(tmp_path / "pilot", losses=("infonce", "direct", "square"), seeds=4)
    grouping = Grouping.of(Reader().runs([tmp_path / "pilot"]))
    variance = variance_of_pilot(np.array([list(group.results.values()) for group in grouping.groups]))
    file = write_race("infonce", "direct", "square", "quadratic", parameters={"trainer.max_epochs": {"value": 10}})
    code, out, _ = run_plan(file, "--pilot", tmp_path / "pilot", "--seeds", "7")
    assert code == 0
    assert f"spread: at most {math.sqrt(variance):.2f} points on shapes between two losses of the pilot" in out
    assert "time: 22 s for a run, the mean of 12 runs of the pilot" in out
    assert f"better than all others by {difference_shown(variance, 4, 7):.2f} points wins" in out


def test_the_time_of_a_pilot_is_in_proportion_to_the_work(tmp_path):
    write_runs(tmp_path, seeds=2, epochs=10)
    pilot = planning.Pilot.read([str(tmp_path)], "online/top1")
    same = pilot.settings[0]
    assert pilot.seconds_of(same) == pytest.approx(20.5)
    assert pilot.seconds_of({**same, "trainer.max_epochs": 30}) == pytest.approx(3 * 20.5)
    assert pilot.seconds_of({**same, "data.options.train_images": 1000}) == pytest.approx(20.5 / 10)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--seeds", "5", "--hours", "2"], "hours and seeds='given': hours and seeds must be given alone"),
        (["--difference", "0"], "difference=0.0: difference must be between"),
        (["--pilot", "nowhere"], "pilot='nowhere': pilot must be a folder or an archive of runs"),
        (["--scale", "huge"], "scale='huge': scale must be one of cpu, night, paper"),
    ],
)
def test_wrong_flags_are_refused_with_one_line(write_race, run_plan, words, line):
    code, _, err = run_plan(write_race("infonce", "direct"), *words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"lightning-ssl: {line}")


def test_a_pilot_with_one_loss_is_refused(write_race, run_plan, tmp_path):
    write_runs(tmp_path / "pilot", losses=("infonce",))
    code, _, err = run_plan(write_race("infonce", "direct"), "--pilot", tmp_path / "pilot")
    assert code == 2
    assert "a pilot needs finished runs of two losses with two seeds each that have online/top1" in err


def test_a_sweep_that_trains_no_model_has_no_plan(write_sweep, run_plan):
    parameters = {"quality": {"values": [0.1, 0.2]}, "seed_everything": {"values": [0]}}
    code, _, err = run_plan(write_sweep(parameters=parameters))
    assert code == 2
    assert "expected `lightning-ssl fit`" in err
