"""The reproductions are complete data: published figures, sweep files, rows and claims fit together."""

from pathlib import Path
from typing import get_args

import pytest
import yaml
from helpers import ROOT

from lightning_ssl import labs
from lightning_ssl.app.reproduce import planning, recipe
from lightning_ssl.app.reproduce.results import row_of
from lightning_ssl.app.reproduce.verdicts import family_of, published_holds, published_means
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.sweep.scales import scale_named
from lightning_ssl.comparison.claims import Relation

TABLES = [name for name in recipe.names() if recipe.load(name).lab is None]


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
def test_a_claim_is_marked_on_exactly_the_data_sets_where_its_own_paper_contradicts_it(name):
    """The published means themselves decide. An unmarked contradiction and a mark without one are errors."""
    reproduction = recipe.load(name)
    for claim in reproduction.claims:
        contradicted = {
            data
            for data in reproduction.works["paper"].data
            if claim.is_made_on(data) and published_holds(reproduction, claim, data) is False
        }
        assert contradicted == set(claim.against_table), (claim.text, claim.at)


@pytest.mark.parametrize("name", TABLES)
def test_primary_claims_are_few_and_come_from_the_text_of_the_paper_alone(name):
    reproduction = recipe.load(name)
    primary = [claim for claim in reproduction.claims if claim.primary]
    assert len(primary) == {"table1": 5, "table2": 2, "table3": 1, "dual-table2": 4, "dual-table3": 3}.get(name, 0)
    for claim in primary:
        assert (claim.statement.source, reproduction.treatment(claim)) == ("text", "text"), claim
    for work in reproduction.works.values():
        assert len(family_of(reproduction, work)) == len(primary) * len(work.data), "two claims about the same runs"


def differences(reproduction, claim):
    """The published |left − right| of a claim, on every data set of the table."""
    data = [name for name in reproduction.works["paper"].data if claim.is_made_on(name)]
    means = [published_means(reproduction, claim, name) for name in data]
    return [abs(left - right) for left, right in filter(None, means)]


def claimed_effects(reproduction, claim):
    """The differences that the text of a table's paper names, at the moment of a claim if there are some then.

    Where no sentence names one, the differences that the table shows between the same rows.
    """
    named = [c for c in reproduction.claims if c.relation in ("above", "below") and not c.against_table]
    text = [c for c in named if c.statement.source == "text"]
    same = [c for c in named if {*c.left, *c.right} == {*claim.left, *claim.right}]
    found = [c for c in text if c.at == claim.at] or text or same
    return [differences(reproduction, c) for c in found]


@pytest.mark.parametrize("name", sorted({*TABLES} - {"tsallis", "table4"}))
def test_a_margin_is_smaller_than_every_effect_that_the_table_claims(name):
    """The effect is the mean over the data sets of the table. Tsallis has no figures, and Table 4 no margin."""
    reproduction = recipe.load(name)
    with_margin = [claim for claim in reproduction.claims if claim.relation in ("equal", "not below")]
    assert with_margin
    for claim in with_margin:
        effects = [sum(found) / len(found) for found in claimed_effects(reproduction, claim)]
        assert 0 < claim.margin < min(effects), (claim.text, claim.margin, effects)


@pytest.mark.parametrize("name", TABLES)
def test_every_claim_names_its_statement_its_place_and_its_source(name):
    reproduction = recipe.load(name)
    for claim in reproduction.claims:
        assert claim.statement.source in get_args(recipe.Source), claim
        assert claim.statement.says, claim
        assert claim.statement.place, claim
        assert set(claim.data or ()) <= set(reproduction.works["paper"].data), claim
        if claim.statement.source != "ours":  # a statement of a paper is about its figures
            data = (claim.data or reproduction.works["paper"].data)[0]
            assert published_holds(reproduction, claim, data) is not None, claim
    assert {row.treatment for row in reproduction.rows.values()} <= set(get_args(recipe.Treatment))


def test_no_statement_of_a_paper_is_left_without_a_claim():
    for name in TABLES:
        content = yaml.safe_load((ROOT / f"lightning_ssl/papers/reproductions/{name}.yaml").read_text(encoding="utf-8"))
        assert all(statement["claims"] for statement in content["statements"])


def test_the_treatment_of_a_claim_is_that_of_the_text_only_if_every_row_has_it():
    table1 = recipe.load("table1")
    treatments = {claim.text: table1.treatment(claim) for claim in table1.claims}
    assert treatments["Square is behind InfoNCE"] == "text"
    assert treatments["Square of the released code is behind InfoNCE"] == "code"
    dual = recipe.load("dual-table3")
    treatments = {claim.text: dual.treatment(claim) for claim in dual.claims}
    assert treatments["β < 0 is better than β = 0"] == "ours"
    assert treatments["β < 0, constant, is better than β = 0"] == "text"


def late_claims(name):
    return {claim.text: claim.relation for claim in recipe.load(name).claims if claim.at == "late"}


def test_the_papers_claim_gains_early_and_comparable_accuracy_late():
    assert set(late_claims("table2").values()) == {"equal"}
    assert {claim.relation for claim in recipe.load("table2").claims if claim.at == "early"} == {"above"}
    assert late_claims("dual-table3")["β < 0 equals β = 0"] == "equal"
    assert late_claims("table1")["Square is behind InfoNCE"] == "below"


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
    return work, planning.plan_sweeps(work, scale_named(scale), 2, Path("runs"))


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
