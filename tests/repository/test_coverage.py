"""papers/coverage.yaml: every file, claim and command that it names exists, and no number of a paper is missing."""

import re

import pytest
from generators import coverage
from helpers import ROOT

from lightning_ssl import papers
from lightning_ssl.app.reproduce import recipe

FOUND = papers.coverage()
KEYS = {"paper", "item", "says", "state", "file", "claim", "command", "reason"}
# How many of each kind the text of a paper numbers.
NUMBERED = {
    "alpha_cl": {"Theorem": 6, "Corollary": 3, "Lemma": 15, "Table": 4, "Figure": 4},
    "alpha_cl_published": {"Theorem": 6, "Corollary": 3, "Lemma": 3, "Table": 2, "Figure": 3},
    "one_layer": {"Theorem": 3, "Corollary": 2, "Lemma": 8, "Figure": 1},
    "landscape": {"Theorem": 3, "Corollary": 1, "Lemma": 1, "Table": 4, "Figure": 18},
    "dual_networks": {"Theorem": 6, "Corollary": 1, "Lemma": 9, "Table": 6, "Figure": 14},
}


def name_of(item):
    return f"{item['paper']} {item['item']}"


@pytest.mark.parametrize("item", FOUND["items"], ids=name_of)
def test_an_item_has_what_its_state_needs(item):
    assert item.keys() <= KEYS
    assert item["says"]
    if item["state"] == "not tested":
        assert item["reason"]
        assert not {"file", "claim", "command"} & item.keys()
    else:
        assert item["state"] == "tested"
        assert "file" in item


@pytest.mark.parametrize("item", [item for item in FOUND["items"] if "file" in item], ids=name_of)
def test_the_file_of_an_item_exists_and_has_its_claim(item):
    assert item.get("claim", "") in (ROOT / item["file"]).read_text(encoding="utf-8")


def test_the_commands_name_labs_and_reproductions():
    for command in {item["command"] for item in FOUND["items"] if "command" in item}:
        kind, name = re.fullmatch(r"lightning-ssl (lab|reproduce) (\S+)( --.*)?", command).group(1, 2)
        labs = ROOT / "lightning_ssl" / "labs"
        assert (
            name in recipe.names() if kind == "reproduce" else (labs / name).is_dir() or (labs / f"{name}.py").is_file()
        )


@pytest.mark.parametrize("paper", FOUND["papers"])
def test_no_number_of_a_paper_is_missing(paper):
    items = [item["item"] for item in coverage.of_paper(FOUND, paper)]
    assert len(items) == len(set(items))
    for kind, count in NUMBERED[paper].items():
        found = {int(number) for item in items for number in re.findall(rf"^{kind} (\d+)", item)}
        assert found == set(range(1, count + 1)), kind


def test_the_page_has_a_row_for_every_item_of_every_paper():
    text = coverage.page()
    rows = re.findall(r"^\| .* \| (?:tested|not tested) \| .* \|$", text, flags=re.MULTILINE)
    papers_of = [len([item["paper"]] if isinstance(item["paper"], str) else item["paper"]) for item in FOUND["items"]]
    assert len(rows) == sum(papers_of) + 1  # the header of the summary
    assert all(title in text for title in FOUND["papers"].values())
