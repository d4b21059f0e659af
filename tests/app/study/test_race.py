"""`lightning-ssl sweep FILE --until decided`: rounds of runs with a look after each."""

import json
import random
from itertools import pairwise

import pytest
from helpers.run_folders import grouping_of
from helpers.studies.quick_engine import Killed
from helpers.sweeps import ForkedSweep, count_lines, read_trials, wait_until

from lightning_ssl.app.report.compared import compare
from lightning_ssl.app.runs.looks import read_looks
from lightning_ssl.comparison.evalue import seeds_until_dropped

DECIDED = ("--until", "decided")


def results(means, spread=0.003):
    """Accuracies around a mean for each loss, the same for the same seed."""

    def accuracy(loss, seed, data):
        return means[loss] + spread * random.Random(f"{loss}{seed}{data}").gauss(0, 1)

    return accuracy


FAR = results({"infonce": 0.70, "direct": 0.74, "quadratic": 0.60})
CLOSE = results({"infonce": 0.700, "direct": 0.7001, "quadratic": 0.60})


def without(accuracy, fails):
    """The same results, of which some runs have none."""
    return lambda loss, seed, data: None if fails(loss, seed) else accuracy(loss, seed, data)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "one"


def ran(quick, loss):
    return sorted(seed for name, seed, _ in quick.ran if name == loss)


def test_a_clear_winner_is_decided_at_the_first_look(quick, write_race, run_sweep, folder):
    quick.accuracy = FAR
    result = run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED)
    assert not result.stderr, result
    (look,) = read_looks(folder)
    assert (look.seeds, look.outcome, look.decided, look.losses) == (5, "wins", True, 3)
    assert look.survivors == [title for title in look.results if "Direct" in title]
    assert [ran(quick, loss) for loss in ("infonce", "direct", "quadratic")] == [[0, 1, 2, 3, 4]] * 3
    assert (result.returncode, result.stdout) == (0, f"after 5 seeds: {look.survivors[0]} wins\n")
    entry = json.loads((folder / "looks.json").read_text())[0]
    assert (entry["seeds"], entry["survivors"], entry["decided"]) == (5, look.survivors, True)


def test_losses_that_cannot_be_the_best_get_no_more_seeds(quick, write_race, run_sweep, folder):
    quick.accuracy = CLOSE
    result = run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED)
    assert ran(quick, "quadratic") == [0, 1, 2, 3, 4]
    assert ran(quick, "infonce") == ran(quick, "direct") == [*range(12)]
    assert [(look.seeds, look.outcome, len(look.survivors)) for look in read_looks(folder)] == [
        (5, "continue", 2), (8, "continue", 2), (12, "undecided", 2),
    ]  # fmt: skip
    first, second, last = result.stdout.splitlines()
    assert first.startswith("after 5 seeds: ")
    assert first.endswith("can be the best (95 %) and get more seeds; no more seeds for AlphaCL Quadratic")
    assert second.endswith("get more seeds")
    assert last.startswith("after 12 seeds: not decided: ")


def test_equivalent_losses_get_no_more_seeds(quick, write_race, run_sweep, folder):
    quick.accuracy = CLOSE
    result = run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED, "--difference", "1.5")
    (look,) = read_looks(folder)
    assert (look.outcome, look.decided, len(look.survivors)) == ("equivalent", True, 2)
    assert "are equivalent within 1.5 points" in result.stdout
    assert ran(quick, "direct") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("most", "looks"), [(5, [5]), (6, [5, 6]), (8, [5, 8]), (10, [5, 8, 10])])
def test_the_last_look_is_at_max_seeds(quick, write_race, run_sweep, folder, most, looks):
    quick.accuracy = CLOSE
    run_sweep(write_race("infonce", "direct"), *DECIDED, "--max-seeds", str(most))
    assert [look.seeds for look in read_looks(folder)] == looks
    assert ran(quick, "infonce") == [*range(most)]


def test_further_seeds_are_fresh_integers_after_those_of_the_file(quick, write_race, run_sweep):
    quick.accuracy = CLOSE
    run_sweep(write_race("infonce", "direct", seeds=(7, 1)), *DECIDED, "--max-seeds", "8")
    assert ran(quick, "direct") == [0, 1, 2, 3, 4, 5, 6, 7]
    first_round = list(dict.fromkeys(seed for _, seed, _ in quick.ran))[:5]
    assert first_round == [7, 1, 0, 2, 3]


def test_a_look_uses_its_own_seeds_where_a_sweep_already_has_more(quick, write_race, run_sweep, folder, monkeypatch):
    quick.accuracy = FAR
    monkeypatch.setattr("lightning_ssl.app.sweep.engine.Engine", quick)
    file = write_race("infonce", "direct", seeds=range(9))
    run_sweep(file)
    assert run_sweep(file, *DECIDED).returncode == 0
    (look,) = read_looks(folder)
    assert {*map(len, look.results.values())} == {5}
    assert len(quick.ran) == 18


def test_each_data_set_is_decided_on_its_own(quick, write_race, run_sweep, folder):
    on_shapes = results({"infonce": 0.70, "direct": 0.74})
    quick.accuracy = lambda loss, seed, data: (on_shapes if data == "shapes" else CLOSE)(loss, seed, data)
    parameters = {"data.name": {"values": ["shapes", "cifar10"]}}
    result = run_sweep(write_race("infonce", "direct", parameters=parameters), *DECIDED, "--max-seeds", "8")
    looks = read_looks(folder)
    assert [(look.data, look.seeds, look.outcome) for look in looks] == [
        ("cifar10", 5, "continue"), ("shapes", 5, "wins"), ("cifar10", 8, "undecided"),
    ]  # fmt: skip
    assert {data for _, seed, data in quick.ran if seed > 4} == {"cifar10"}
    assert "after 5 seeds on shapes: " in result.stdout


def test_a_failed_seed_is_replaced_for_all_losses(quick, write_race, run_sweep, folder):
    quick.accuracy = without(FAR, lambda loss, seed: (loss, seed) == ("direct", 2))
    result = run_sweep(write_race("infonce", "direct"), *DECIDED)
    (look,) = read_looks(folder)
    assert (result.returncode, look.outcome, look.seeds) == (1, "wins", 5)
    assert [*map(list, look.results.values())] == [["0", "1", "3", "4", "5"]] * 2


def test_a_loss_with_three_failed_runs_is_left_out(quick, write_race, run_sweep, folder):
    quick.accuracy = without(FAR, lambda loss, seed: loss == "quadratic")
    result = run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED)
    (look,) = read_looks(folder)
    assert (look.losses, len(look.results), look.outcome) == (2, 2, "wins")
    assert next(iter(look.results.values())).keys() == {"0", "1", "2", "3", "4"}
    assert "AlphaCL Quadratic on shapes is left out: more than 2 of its runs failed\n" in result.stdout


def test_runs_without_a_result_decide_nothing(quick, write_race, run_sweep, folder):
    quick.accuracy = without(FAR, lambda *_: True)
    result = run_sweep(write_race("infonce", "direct"), *DECIDED)
    assert result.returncode == 2
    assert "no run has online/top1 between 0 and 1, so that nothing can be decided" in result.stderr
    assert not read_looks(folder)


@pytest.mark.parametrize("accuracy", [FAR, CLOSE])
def test_a_race_that_is_killed_at_any_step_decides_the_same(quick, write_race, run_sweep, folder, accuracy):
    quick.accuracy = accuracy
    words = (write_race("infonce", "direct"), *DECIDED, "--max-seeds", "8")
    run_sweep(*words, "--name", "calm")
    steps, runs = quick.steps, sorted(quick.ran)
    calm = (folder.with_name("calm") / "looks.json").read_text()
    for kill_at in range(1, steps + 1, 5):
        quick.steps, quick.kill_at, quick.ran = 0, kill_at, []
        name = f"killed-{kill_at}"
        with pytest.raises(Killed):
            run_sweep(*words, "--name", name)
        assert run_sweep(*words, "--name", name).returncode == 0
        assert (folder.with_name(name) / "looks.json").read_text() == calm
        assert sorted({*quick.ran}) == runs
        assert len(quick.ran) <= len(runs) + 1  # the killed run is the only one that starts again


def test_the_same_command_after_the_end_runs_nothing_and_repeats_the_looks(quick, write_race, run_sweep):
    quick.accuracy = CLOSE
    file = write_race("infonce", "direct")
    before, count = run_sweep(file, *DECIDED), len(quick.ran)
    assert run_sweep(file, *DECIDED) == before
    assert len(quick.ran) == count


def test_a_larger_number_of_seeds_continues_the_looks(quick, write_race, run_sweep, folder):
    quick.accuracy = CLOSE
    file = write_race("infonce", "direct")
    run_sweep(file, *DECIDED, "--max-seeds", "5")
    run_sweep(file, *DECIDED)
    assert [look.outcome for look in read_looks(folder)] == ["undecided", "continue", "undecided"]


def test_a_result_that_changed_after_its_look_is_told_and_decides_nothing(quick, write_race, run_sweep, folder):
    quick.accuracy = FAR
    file = write_race("infonce", "direct")
    run_sweep(file, *DECIDED)
    before = (folder / "looks.json").read_text()
    (summary,) = folder.glob("*direct-seed_everything=3/metrics.jsonl")
    summary.write_text('{"epoch": 0, "step": 1, "online/top1": 0.5}\n')
    first = run_sweep(file, *DECIDED).stdout.splitlines()[0]
    assert first.startswith("AlphaCL Direct p=4 τ=0.5 on shapes: results changed since the look at 5 seeds")
    assert (folder / "looks.json").read_text() == before


def test_retry_runs_a_failed_run_again_once(quick, write_race, run_sweep, folder):
    quick.accuracy = without(FAR, lambda loss, seed: seed == 2)
    file = write_race("infonce", "direct")
    assert run_sweep(file, *DECIDED, "--max-seeds", "5").returncode == 1
    quick.accuracy = FAR
    assert run_sweep(file, *DECIDED, "--max-seeds", "5", "--retry").returncode == 0
    assert len(read_looks(folder)) == 1


def test_the_status_shows_the_losses_that_can_be_the_best(quick, write_race, run_sweep):
    quick.accuracy = CLOSE
    file = write_race("infonce", "direct", "quadratic")
    looks = run_sweep(file, *DECIDED).stdout
    for words in ((), DECIDED):
        status = run_sweep(file, "--status", *words).stdout
        assert status.startswith("one: 29 of 29 finished")
        assert status.endswith(looks)


def test_a_dry_run_lists_the_runs_until_the_next_look(quick, write_race, run_sweep, folder):
    file = write_race("infonce", "direct")
    assert run_sweep(file, *DECIDED, "--dry-run").stdout.count("lightning-ssl fit") == 10
    assert not folder.exists()
    quick.accuracy = CLOSE
    run_sweep(file, *DECIDED, "--max-seeds", "5")
    assert run_sweep(file, *DECIDED, "--dry-run").stdout.count("lightning-ssl fit") == 6
    assert run_sweep(file, *DECIDED, "--max-seeds", "5", "--dry-run").stdout == ""


@pytest.mark.parametrize("accuracy", [FAR, CLOSE, without(CLOSE, lambda loss, seed: (loss, seed) == ("direct", 2))])
def test_the_page_of_a_race_names_the_survivors_of_its_last_look(quick, write_race, run_sweep, folder, accuracy):
    quick.accuracy = accuracy
    run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED, "--max-seeds", "8")
    last = read_looks(folder)[-1]
    grouping = grouping_of(folder)
    compared = compare("shapes", grouping.groups, grouping.metric)
    assert {compared.groups[k].title for k in compared.members} == {*last.survivors}
    assert (compared.winner is not None) == (last.outcome == "wins")
    assert {group.title: [*row] for group, row in zip(compared.groups, compared.x, strict=True)} == {
        title: [*results.values()] for title, results in last.results.items()
    }


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"method": "random"}, "method is random, and a grid is needed"),
        ({"metric": None}, "`metric: {name: …, goal: maximize}` without a target is needed"),
        ({"metric": {"name": "train/loss", "goal": "minimize"}}, "without a target is needed"),
        ({"metric": {"name": "online/top1", "goal": "maximize", "target": 0.5}}, "without a target is needed"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 2}}, "early_terminate stops runs before their end"),
        ({"run_cap": 3}, "run_cap leaves out runs; remove it"),
        ({"parameters": {"config": {"value": "a.yaml"}}}, "it has one loss, and nothing to compare it with"),
        (
            {"parameters": {"seed_everything": {"values": ["a", "b"]}}},
            "seed_everything=['a', 'b'] must be whole numbers",
        ),
    ],
)
def test_a_sweep_that_is_no_race_is_refused_with_one_line(quick, write_race, run_sweep, folder, keys, line):
    result = run_sweep(write_race("infonce", "direct", **keys), *DECIDED)
    assert (result.returncode, folder.exists()) == (2, False)
    assert "not a comparison of losses over seeds: " in result.stderr
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_sweep_without_seeds_is_refused(write_sweep, run_sweep):
    result = run_sweep(write_sweep(parameters={"quality": {"values": [0.1, 0.2]}}), *DECIDED)
    assert "not a comparison of losses over seeds: seed_everything is needed among its parameters" in result.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--difference", "1"], "difference=1.0: difference must be given with --until decided"),
        (["--open-ended"], "open-ended=True: open-ended must be given with --until decided"),
        (["--write-next", "x.yaml"], "write-next='x.yaml': write-next must be given with --until decided"),
        ([*DECIDED, "--count", "3"], "count=3: count must be given without --until decided"),
        ([*DECIDED, "--difference", "0"], "difference=0.0: difference must be a finite number above 0"),
        ([*DECIDED, "--max-seeds", "13"], "max-seeds=13: max-seeds must be from"),
        ([*DECIDED, "--max-seeds", "2"], "max-seeds=2: max-seeds must be from"),
        (
            [*DECIDED, "--open-ended", "--difference", "1"],
            "difference=1.0: difference must be given without",
        ),
        ([*DECIDED, "--status", "--write-next", "x.yaml"], "write-next='x.yaml': write-next must be given alone"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(write_race, run_sweep, words, line):
    result = run_sweep(write_race("infonce", "direct"), *words)
    assert result.returncode == 2
    assert result.stderr.startswith(f"lightning-ssl: {line}")


@pytest.mark.parametrize(
    "words", [["--difference", "2"], ["--open-ended"], ["--max-seeds", "6"], ["--difference", "1", "--max-seeds", "7"]]
)
def test_looks_of_another_rule_are_not_continued(quick, write_race, run_sweep, words):
    quick.accuracy = CLOSE
    file = write_race("infonce", "direct")
    run_sweep(file, *DECIDED, "--max-seeds", "8")
    result = run_sweep(file, *DECIDED, *words)
    assert result.returncode == 2
    assert "looks.json; start another sweep with --name" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_changed_sweep_file_is_refused(quick, write_race, run_sweep):
    quick.accuracy = FAR
    run_sweep(write_race("infonce", "direct"), *DECIDED)
    result = run_sweep(write_race("infonce", "square"), *DECIDED)
    assert "the sweep file has changed since this sweep started (parameters)" in result.stderr


def test_looks_that_cannot_be_read_are_refused(quick, write_race, run_sweep, folder):
    folder.mkdir(parents=True)
    (folder / "looks.json").write_text('{"seeds": 5}')
    result = run_sweep(write_race("infonce", "direct"), *DECIDED)
    assert result.returncode == 2
    assert "not the looks of a sweep" in result.stderr


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_a_race_of_processes_that_are_killed_resumes_with_the_same_command(write_sweep, run_sweep, folder, kills):
    """SIGKILL of the engine, with real trials."""
    qualities = [0.2, 0.5, 0.501]
    parameters = {"quality": {"values": qualities}, "seed_everything": {"values": [0, 1]}, "pause": {"value": 0.05}}
    file, words = write_sweep(parameters=parameters), (*DECIDED, "--max-seeds", "6", "--workers", "2")
    for kill in range(kills):
        engine = ForkedSweep(file, *words)
        later = count_lines(folder / "completed").total() + kill
        wait_until(lambda n=later, e=engine: count_lines(folder / "completed").total() > n or not e.is_alive())
        engine.kill()
        engine.end()
    result = run_sweep(file, *words)
    assert result.returncode == 0, result.stderr
    looks = read_looks(folder)
    assert {*looks[0].survivors} == {"Quality0.501", "Quality0.5"}
    assert set(count_lines(folder / "completed").values()) == {1}
    assert len(read_trials(folder)) == 15 + 2 * (len(looks) - 1)


# -- open-ended -------------------------------------------------------------------------------------------------------


def test_an_open_ended_race_looks_after_every_seed_and_drops_losses_for_good(quick, write_race, run_sweep, folder):
    quick.accuracy = results({"infonce": 0.700, "direct": 0.7001, "quadratic": 0.60, "square": 0.69})
    result = run_sweep(
        write_race("infonce", "direct", "quadratic", "square"), *DECIDED, "--open-ended", "--max-seeds", "9"
    )
    looks = read_looks(folder)
    assert [look.seeds for look in looks] == [*range(3, 10)]
    assert {look.rates for look in looks} == {"open-ended"}
    assert (looks[-1].outcome, looks[-1].decided) == ("undecided", False)
    assert all({*after.survivors} <= {*before.survivors} for before, after in pairwise(looks))
    x = [
        [100 * quick.accuracy(loss, seed, "shapes") for seed in range(9)]
        for loss in ("infonce", "direct", "quadratic", "square")
    ]
    dropped = [at or 9 for at in seeds_until_dropped(x)]
    assert [len(ran(quick, loss)) for loss in ("infonce", "direct", "quadratic", "square")] == dropped
    assert "can be the best (95 %) and get more seeds; no more seeds for AlphaCL Quadratic" in result.stdout


def test_an_open_ended_race_ends_when_one_loss_remains(quick, write_race, run_sweep, folder):
    quick.accuracy = FAR
    run_sweep(write_race("infonce", "direct", "quadratic"), *DECIDED, "--open-ended")
    last = read_looks(folder)[-1]
    assert (last.outcome, last.decided, "Direct" in last.survivors[0]) == ("wins", True, True)
    assert len(ran(quick, "direct")) == last.seeds < 12
