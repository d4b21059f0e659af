"""The parts of Sphinx that the site adds: subscripts and superscripts, and a warning of hidden figures.

They need Sphinx (requirements-docs.txt), which `make docs` installs.
"""

import doctest

import pytest

pytest.importorskip("sphinx", reason="needs Sphinx (make docs)")
pytest.importorskip("docutils", reason="needs Sphinx (make docs)")

from docutils import nodes
from docutils.utils import new_document
from generators import formulas, outputs


def test_subscripts_and_superscripts_are_set_as_in_print():
    result = doctest.testmod(formulas)
    assert (result.failed, result.attempted) == (0, 1)


def marked(text):
    """The text with <…> around a subscript and ^<…> around a superscript."""
    found = []
    for part in formulas.parts(text):
        plain = part.astext()
        found.append({"Text": plain, "subscript": f"<{plain}>", "superscript": f"^<{plain}>"}[type(part).__name__])
    return "".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("E_{sg(α)} and W_1ᵀ", "E<sg(α)> and W<1>ᵀ"),
        ("τ K^{q−1}, τ K^(q−1), σ^2.", "τ K^<q−1>, τ K^<q−1>, σ^<2>."),
        ("d2_neg_ij, exp(−d_ij^p/τ)", "d2_neg<ij>, exp(−d<ij>^<p>/τ)"),
        ("‖W_l‖_F", "‖W<l>‖<F>"),
        ("resnet_tiny, every_n_steps, first_seed=0, d2_neg", "resnet_tiny, every_n_steps, first_seed=0, d2_neg"),
    ],
)
def test_a_formula_is_told_from_a_name(text, expected):
    assert marked(text) == expected


def test_a_block_is_an_equation_if_it_has_symbols_and_no_command():
    assert formulas.is_equation(nodes.literal_block("", "α_ij = 1"))
    assert formulas.is_equation(nodes.literal_block("", "2^{1/2} = 1.41"))
    assert not formulas.is_equation(nodes.literal_block("", "lightning-ssl lab hltm   # ρ"))
    assert not formulas.is_equation(nodes.literal_block("", "x_i = α", language="python"))


@pytest.mark.parametrize("printed", ["<Figure size 640x480 with 1 Axes>", "a table of figures"])
def test_a_notebook_that_prints_the_name_of_a_figure_is_a_warning(printed, caplog):
    page = new_document("page")
    page += nodes.literal_block(printed, printed)
    outputs.warn_of_hidden_figures(None, page, "page")
    assert ("does not show it" in caplog.text) == printed.startswith("<Figure")
