"""Links and file names in the pages exist."""

import re

import pytest
from helpers import ROOT


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_every_relative_link_resolves(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_every_file_in_the_readme_exists():
    tree = (ROOT / "README.md").read_text().partition("## Which file does what")[2]
    for name in re.findall(r"^      (\S+)  ", tree, flags=re.MULTILINE):
        assert (ROOT / "lightning_ssl" / name).exists(), name


def test_every_configuration_in_a_page_exists():
    for page in (ROOT / "README.md", ROOT / "docs/training.md"):
        for name in re.findall(r"(?:configs|sweeps)/[\w/]+\.yaml", page.read_text()):
            assert (ROOT / name).exists(), name
