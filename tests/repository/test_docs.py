"""The pages that are made from the code: nothing public is missing. `make docs` builds the site itself."""

import doctest
import inspect
import re

import pytest
from generators import api, configuration, losses, results
from helpers import ROOT

import lightning_ssl
from lightning_ssl.app.config import catalog
from lightning_ssl.losses import Family, Importance

CONCRETE = [
    name
    for name in lightning_ssl.PUBLIC_NAMES["losses"]
    if inspect.isclass(kind := getattr(lightning_ssl, name))
    and issubclass(kind, Importance | Family)
    and not inspect.isabstract(kind)
]


def test_every_loss_has_a_section_and_a_figure():
    sections = re.findall(r"^### (\w+)$", losses.page(), flags=re.MULTILINE)
    assert sorted(sections) == sorted(CONCRETE)
    assert sorted(sections) == sorted([*catalog.names("importances"), *catalog.names("families")])  # lightning-ssl list
    assert {f"weights_{name}" for name in CONCRETE} == losses.all_figures().keys()


@pytest.mark.parametrize("name", CONCRETE)
def test_the_section_of_a_loss_has_alpha_source_configuration_and_class(name):
    text = losses.section(getattr(lightning_ssl, name))
    assert re.search(r"^α_ij? [=∝] ", text, flags=re.MULTILINE)
    assert "- Source: " in text
    file = re.search(r"^- Configuration: `(configs/.*\.yaml)`", text, flags=re.MULTILINE)
    if name in losses.WITHOUT_FILE:
        assert file is None
    else:
        assert name in (ROOT / file[1]).read_text(encoding="utf-8")
    assert f"{{py:obj}}`lightning_ssl.{name}`" in text
    assert f"_generated/weights_{name}.svg" in text


def test_a_new_loss_without_a_source_is_an_error():
    class Unknown(lightning_ssl.Entropy):
        """A loss of no paper."""

    with pytest.raises(ValueError, match="Unknown declares no source: say which paper"):
        losses.section(Unknown)


def test_the_figure_of_a_loss_shows_its_default_and_two_other_values():
    (ax,) = losses.draw(lightning_ssl.Direct).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["tau = 0.125", "tau = 0.5", "tau = 2"]


def test_every_public_name_is_on_an_api_page():
    pages = "".join(api.pages().values())
    public = [name for names in lightning_ssl.PUBLIC_NAMES.values() for name in names]
    assert [name for name in public if f"lightning_ssl.{name}\n" not in pages] == []


def test_every_flag_of_fit_is_in_the_reference():
    listed = set(re.findall(r"--([\w.]+)", configuration.page()))
    frozen = (ROOT / "tests/app/commands/flags.txt").read_text(encoding="utf-8").splitlines()
    flags = {flag for line in frozen for flag in re.findall(r"^lightning-ssl fit --([\w.]+)", line)}
    assert len(flags) > 50
    assert flags - listed <= {"help"}


def test_docstrings_become_restructured_text():
    result = doctest.testmod(api)
    assert (result.failed, result.attempted) == (0, 1)
    assert api.inline("a_ times b* of `Direct`s and `x_y`") == (
        r"a\_ times b\* of :py:obj:`~lightning_ssl.Direct`\ s and ``x_y``"
    )


def test_the_page_of_every_laboratory_has_its_full_run():
    parts = results.of_labs(ROOT / "docs/results")
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs/labs").glob("*.md")}
    assert pages.keys() - parts.keys() == {"index"}
    assert all(f"```{{include}} ../_generated/lab_{name}.md\n" in pages[name] for name in parts)
    assert parts["translation"].startswith("![")
    assert "(../results/translation.md) has 21 claims; holds: 21" in parts["translation"]
