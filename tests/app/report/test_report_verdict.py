"""The verdict in words, the rows of the table, and published values by setting."""

import re

import pytest
from helpers.run_folders import grouping_of, write_run, write_sweep

from lightning_ssl import papers
from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.report.published import published
from lightning_ssl.app.report.verdict import rows, verdict


def verdict_of(folder):
    return verdict(grouping_of(folder), "shapes")


def test_significant_lead_wins(tmp_path):
    found = verdict_of(write_sweep(tmp_path, ("direct", "infonce", "square"), seeds=5, spread=0.0005, epochs=2))
    assert found.clear
    assert found.headline == "AlphaCL Direct p=4 τ=0.5 wins"
    assert "paired t over 5 seeds" in found.reason
    assert "Holm-corrected for 2 comparisons" in found.reason


def write_results(folder, **results):
    """Runs with these accuracies of seeds 0, 1, …, by loss."""
    for loss, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            write_run(folder / f"{loss}{seed}", loss, seed, accuracy, epochs=2)
    return folder


EVEN = {"direct": [0.71, 0.69, 0.705], "infonce": [0.69, 0.71, 0.70]}


@pytest.mark.parametrize(
    ("results", "headline", "reason"),
    [
        (  # seeds 3 and 4 of InfoNCE have no result
            {"direct": [0.800, 0.801, 0.799, 0.95, 0.95], "infonce": [0.810, 0.8112, 0.8091]},
            "No clear winner",
            "on the common seeds SimCLR InfoNCE τ=0.5 is ahead by 1.01",
        ),
        (EVEN, "No clear winner", "the difference to SimCLR InfoNCE τ=0.5 is not significant"),
        (
            {**EVEN, "quadratic": [0.400, 0.401, 0.405]},
            "AlphaCL Direct p=4 τ=0.5 leads and is significantly better than AlphaCL Quadratic",
            "the difference to SimCLR InfoNCE τ=0.5 is not significant",
        ),
        ({"direct": [0.71], "infonce": [0.69]}, "AlphaCL Direct p=4 τ=0.5 leads", "one seed"),
    ],
    ids=["behind", "even", "two of three", "one seed"],
)
def test_lead_that_is_not_significant_is_not_a_win(tmp_path, results, headline, reason):
    found = verdict_of(write_results(tmp_path, **results))
    assert (found.clear, found.headline) == (False, headline)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("names", "words"), [("A", "A"), ("AB", "A and B"), ("ABC", "A, B and C"), ("ABCDE", "A, B, C and 2 others")]
)
def test_long_lists_of_names_are_shortened(names, words):
    assert list_names(list(names)) == words


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_tie_is_no_lead(tmp_path, seeds):
    direct = [0.7 + 0.01 * seed for seed in range(seeds)]
    infonce = [accuracy + 0.00002 for accuracy in direct]
    found = verdict_of(write_results(tmp_path, direct=direct, infonce=infonce, square=[0.6] * seeds))
    assert (found.clear, found.winner, found.headline) == (False, None, "No clear winner")
    assert found.reason.startswith("SimCLR InfoNCE τ=0.5 and AlphaCL Direct p=4 τ=0.5 have the same mean, 7")
    assert not re.search(r"ahead|leads|\b0\.00 (ahead|over)", found.line)
    assert [row.rank for row in rows(grouping_of(tmp_path))] == [1, 1, 3]


def test_verdict_without_finished_runs_counts_the_others(tmp_path):
    for status in ("failed", "interrupted"):
        write_run(tmp_path / status, status=status, error="nan", epochs=2)
    found = verdict_of(tmp_path)
    assert found.winner is None
    assert found.reason == "no run on shapes has finished (1 interrupted, 1 failed)"


def test_baseline_is_the_best_infonce_of_the_same_setting(tmp_path):
    for k, batch in enumerate((128, 256)):
        write_run(tmp_path / f"d{k}", "direct", batch_size=batch, epochs=2)
        for tau, accuracy in ((0.5, 0.6), (0.2, 0.65)):
            write_run(
                tmp_path / f"i{k}{tau}", "infonce", accuracy=accuracy, batch_size=batch, epochs=2,
                change=lambda c, tau=tau: c["model"]["init_args"].update(tau=tau),
            )  # fmt: skip
    for row in rows(grouping_of(tmp_path)):
        assert row.baseline.settings == row.group.settings
        assert row.baseline.label == "SimCLR InfoNCE τ=0.2"


# -- published values -------------------------------------------------------------------------------------------------


def published_of(folder, loss, change=None, **settings):
    setting = {"data": "cifar10", "backbone": "resnet18", "batch_size": 128, "epochs": 500, "lr": 0.01} | settings
    write_run(folder, loss, points=1, change=change, **setting)
    return published(grouping_of(folder).groups[0])


@pytest.mark.parametrize("loss", papers.load("alpha_cl")["table1"]["cifar10"])
def test_every_row_of_table_1_is_found_by_its_setting(tmp_path, loss):
    found = published_of(tmp_path / "a", loss)
    assert [found.mean, found.std] == papers.load("alpha_cl")["table1"]["cifar10"][loss][2]
    assert "α-CL paper, Table 1" in found.source


@pytest.mark.parametrize(
    "other", [{"epochs": 200}, {"backbone": "resnet34"}, {"data": "shapes"}, {"lr": 0.02}, {"batch_size": 512}]
)
def test_another_setting_has_no_published_value(tmp_path, other):
    assert published_of(tmp_path / "a", "direct", **other) is None


@pytest.mark.parametrize(("loss", "key", "value"), [("direct", "p", 5.0), ("direct", "tau", 0.4), ("square", "tau", 4)])
def test_another_parameter_of_the_loss_has_no_published_value(tmp_path, loss, key, value):
    def change(config):
        config["model"]["init_args"]["importance"]["init_args"][key] = value

    assert published_of(tmp_path / "a", loss, change) is None


LARGE = {"backbone": "resnet50", "lr": 0.001, "epochs": 100}


@pytest.mark.parametrize(
    ("loss", "setting", "mean", "source"),
    [
        ("direct", {"data": "cifar100", **LARGE}, 62.93, "Table 2"),
        ("direct_unnormalized", {"batch_size": 256, **LARGE}, 87.74, "Table 3"),
        ("direct_p6", {"data": "stl10"}, 84.08, "Table 4"),
        ("direct", {"data": "stl10"}, 84.05, "84.06 ± 0.24 in α-CL paper, Table 4"),
    ],
)
def test_tables_2_to_4_are_found_by_setting(tmp_path, loss, setting, mean, source):
    found = published_of(tmp_path / "a", loss, **setting)
    assert (found.mean, source in found.source) == (mean, True)


def test_beta_and_noise_are_found_in_the_dual_networks_paper(tmp_path):
    infonce = {"class_path": "lightning_ssl.losses.InfoNCE", "init_args": {"tau": 0.5, "eps": 1.0}}

    def beta(config):
        importance = {"class_path": "lightning_ssl.losses.FromFamily", "init_args": {"family": infonce}}
        config["model"]["init_args"] |= {"importance": importance, "beta": -0.5}

    def noise(config):
        exact = {"tau": 0.5, "kind": "infonce", "r0": 0.0}
        config["model"]["init_args"]["importance"] = {
            "class_path": "lightning_ssl.losses.Exact",
            "init_args": exact,
        }
        noise = {"class_path": "lightning_ssl.callbacks.WeightNoise", "init_args": {"std": 0.01, "seed": 0}}
        config["trainer"]["callbacks"] = [noise]

    assert published_of(tmp_path / "a", "direct", beta, epochs=100).mean == 85.17
    assert published_of(tmp_path / "b", "direct", noise, epochs=300).mean == 88.23
