"""Lists of names, the baseline, and published values by setting."""

import pytest
from helpers.run_folders import grouping_of, write_run

from lightning_ssl import papers
from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.report.published import published
from lightning_ssl.app.report.verdict import results_of


@pytest.mark.parametrize(
    ("names", "words"), [("A", "A"), ("AB", "A and B"), ("ABC", "A, B and C"), ("ABCDE", "A, B, C and 2 others")]
)
def test_long_lists_of_names_are_shortened(names, words):
    assert list_names(list(names)) == words


def test_baseline_is_the_best_infonce_of_the_same_setting(tmp_path):
    for k, batch in enumerate((128, 256)):
        write_run(tmp_path / f"d{k}", "direct", batch_size=batch, epochs=2)
        for tau, accuracy in ((0.5, 0.6), (0.2, 0.65)):
            write_run(
                tmp_path / f"i{k}{tau}", "infonce", accuracy=accuracy, batch_size=batch, epochs=2,
                change=lambda c, tau=tau: c["model"]["init_args"].update(tau=tau),
            )  # fmt: skip
    for row in results_of([], grouping_of(tmp_path)).rows:
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
