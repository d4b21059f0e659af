"""`lightning-ssl list`: every name that can be chosen, its configuration, one line each."""

import pytest
import yaml

import lightning_ssl
from lightning_ssl import data, labs
from lightning_ssl.app import cli
from lightning_ssl.app.config import catalog, packaged
from lightning_ssl.augment import PRESETS
from lightning_ssl.networks import build_backbone


def listed(section, capsys):
    assert cli.main(["list", section]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.startswith(f"{section}: ")
    return {line.split()[0]: line for line in lines}


@pytest.mark.parametrize("section", catalog.SECTIONS)
def test_every_entry_has_a_summary_and_an_existing_configuration(section):
    found = catalog.entries(section)
    assert found
    for entry in found:
        assert entry.summary
        assert "\n" not in entry.summary
        assert not entry.config or entry.config in packaged.names("configs")


@pytest.mark.parametrize("section", ["importances", "families", "methods"])
def test_the_classes_are_public_and_each_has_a_configuration_that_uses_it(section, capsys):
    for entry in catalog.entries(section):
        assert entry.name in lightning_ssl.__all__
        if entry.name != "Regularized":  # it takes two functions of the user
            assert entry.config, entry.name
            assert section != "importances" or entry.name in catalog.values(entry.config)
    assert set(listed(section, capsys)) == set(catalog.names(section))


def test_importances_are_listed_with_their_equation_and_configuration(capsys):
    lines = listed("importances", capsys)
    assert {"Entropy", "Inverse", "Square", "Tsallis", "Direct", "Uniform", "Gaussian", "Exact"} <= lines.keys()
    assert lines["Direct"].split()[1] == "method/direct"
    assert "exp(−d_ij^p/τ)" in lines["Direct"]


def test_the_listed_backbones_are_those_that_can_be_built(capsys):
    names = [name for name in listed("backbones", capsys) if name != "timm:NAME"]
    with pytest.raises(ValueError, match="backbone must be one of") as refused:
        build_backbone("resnet19", 32)
    assert all(name in str(refused.value) for name in names)
    assert {build_backbone(name, 32).stem_name for name in names} == {"cifar"}


def test_augmentations_data_sets_sweeps_and_labs_are_complete(capsys):
    assert listed("augmentations", capsys).keys() == PRESETS.keys()
    assert listed("data", capsys).keys() == data.DATASETS.keys()
    assert set(listed("sweeps", capsys)) == set(packaged.names("sweeps"))
    assert listed("labs", capsys).keys() == labs.summaries().keys()


def test_every_configuration_named_for_a_data_set_reads_it():
    for entry in catalog.entries("data"):
        text = (packaged.PACKAGE / "configs" / f"{entry.config}.yaml").read_text()
        assert yaml.safe_load(text)["data"]["name"] == entry.name


def test_without_a_section_all_are_listed(capsys):
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{section}: " in shown for section in catalog.SECTIONS)
