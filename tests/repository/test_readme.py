"""Links and file names in the pages exist."""

import re

import pytest
from helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_file_in_the_readme_exists():
    tree = (ROOT / "README.md").read_text().partition("## Package layout")[2]
    names = re.findall(r"^      (\S+)  ", tree, flags=re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert (ROOT / "lightning_ssl" / name).exists(), name


def test_every_file_in_the_architecture_page_exists():
    names = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", (ROOT / "docs/architecture.md").read_text())
    assert len(names) > 40
    for name in names:
        assert (ROOT / "lightning_ssl" / name).exists() or (ROOT / name).exists(), name


def test_every_configuration_in_a_page_exists():
    for page in (ROOT / "README.md", ROOT / "docs/training.md"):
        for name in re.findall(r"(?:configs|sweeps)/[\w/]+\.yaml", page.read_text()):
            assert (ROOT / name).exists(), name
