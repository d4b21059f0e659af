"""The reproductions are complete data: published figures, sweep files, rows and claims fit together."""

from pathlib import Path
from typing import get_args

import pytest
from helpers import ROOT

from lightning_ssl import labs
from lightning_ssl.app.reproduce import planning, recipe
from lightning_ssl.app.reproduce.results import row_of
from lightning_ssl.app.reproduce.verdicts import published_difference
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.comparison.claims import Relation, decide

TABLES = [name for name in recipe.names() if recipe.load(name).lab is None]
# Claims about how the row Inverse came about; the published figures contradict the first of them on purpose.
NOT_PUBLISHED = ("Inverse, the paper's formula, equals Quadratic", "Exact equals InfoNCE")


def test_the_reproductions_of_the_papers_exist():
    tables = ["table1", "table2", "table3", "table4", "dual-table2", "dual-table3", "tsallis"]
    names = recipe.names()
    assert names[: len(tables)] == tables
    assert sorted(recipe.load(name).lab or "" for name in names[len(tables) :]) == sorted(labs.summaries())


@pytest.mark.parametrize("name", TABLES)
def test_every_published_row_has_a_figure_on_every_data_set_of_the_paper(name):
    reproduction = recipe.load(name)
    work = reproduction.works["paper"]
    for key, row in reproduction.rows.items():
        for data in work.data if row.published else ():
            assert reproduction.published(key, data, "late") is not None, (key, data)


@pytest.mark.parametrize("name", TABLES)
def test_the_published_figures_satisfy_the_claims_on_cifar10_within_their_margin(name):
    """A claim with a wrong direction would be tested against the paper's own figures. 0.3 is two standard errors."""
    reproduction = recipe.load(name)
    data = reproduction.works["cpu"].published_on or "cifar10"
    for claim in reproduction.claims:
        difference = published_difference(reproduction, claim, data)
        if difference is not None and not claim.text.startswith(NOT_PUBLISHED):
            assert decide(claim.relation, difference - 0.3, difference + 0.3, claim.margin) != "does not hold", claim


def test_published_figures_are_found_by_row_data_and_moment():
    table1, table4 = recipe.load("table1"), recipe.load("table4")
    assert table1.published("direct", "cifar10", "early") == (85.11, 0.19)
    assert table1.published("direct", "stl10", "late") == (84.05, 0.20)
    assert table1.published("direct", "cifar100", "late") is None
    assert table4.published("p6", "stl10", "late") == (84.08, 0.42)
    assert table4.published("p6", "stl10", "early") is None
    assert recipe.load("dual-table3").published("negative", "cifar10", "early") == (85.17, 0.36)
    assert recipe.load("tsallis").published("q200", "cifar10", "late") is None


@pytest.mark.parametrize("name", TABLES)
def test_every_claim_compares_rows_of_its_table_by_a_known_rule(name):
    reproduction = recipe.load(name)
    for claim in reproduction.claims:
        assert {*claim.left, *claim.right} <= reproduction.rows.keys(), claim
        assert claim.relation in get_args(Relation), claim
        assert claim.at in get_args(recipe.Moment), claim
        assert claim.margin > 0 or (claim.margin == 0 and claim.relation != "equal"), claim


def planned_for(name, scale, monkeypatch):
    monkeypatch.chdir(ROOT)
    work = recipe.load(name).works[scale]
    return work, planning.plan_sweeps(work, recipe.scale_named(scale), 2, Path("runs"))


def check_rows(name, scale, monkeypatch):
    reproduction = recipe.load(name)
    work, planned = planned_for(name, scale, monkeypatch)
    seeds = {}
    for settings in (settings for each in planned for settings in each.settings):
        row = row_of(RunRecord(Path(), "run", settings=settings), reproduction)
        assert row is not None, settings
        seeds.setdefault((row.key, settings["data.name"]), []).append(settings["seed_everything"])
    assert all(found == [0, 1] for found in seeds.values()), seeds
    assert {data for _, data in seeds} == set(work.data)
    assert {key for key, _ in seeds} == set(reproduction.rows) - (
        {"infonce50", "direct50"} if scale == "cpu" else set()
    )


@pytest.mark.parametrize("name", ["table4", "dual-table2"])
def test_every_run_of_a_sweep_belongs_to_one_row(name, monkeypatch):
    check_rows(name, "cpu", monkeypatch)


def test_a_reproduction_runs_every_row_with_one_seed_before_the_next_seed(monkeypatch):
    _, (table1, _) = planned_for("table1", "night", monkeypatch)
    assert [settings["seed_everything"] for settings in table1.settings] == 7 * [0] + 7 * [1]
    assert len({settings["model"] for settings in table1.settings[:7]}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_every_sweep_belongs_to_one_row(name, scale, monkeypatch):
    check_rows(name, scale, monkeypatch)
