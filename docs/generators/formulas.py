"""Subscripts and superscripts of the site: α_ij, E_{sg(α)} and K^{q−1} in plain text are set as in print.

The sources stay readable in an editor and in `lightning-ssl … --help`, which show the same docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

# A base is one letter, so that names such as resnet_tiny stay as they are; or an operator or symbol of several letters.
BASE = r"(?:(?<!\w)(?:d2_neg|d2_pos|d2(?!_neg|_pos)|mean|softmax|argmin|cotangent)|(?<![^\W_])(?<!_)[^\W\d_]|‖)"
SUB = r"_(?:\{(?P<sub>[^{}]*)\}|(?P<sub_word>\*?[A-Za-zα-ω0-9]+)(?![A-Za-z0-9_]))"
SUP = r"\^(?:\{(?P<sup>(?:[^{}]|\{[^{}]*\})*)\}|\((?P<sup_round>[^()]*)\)|(?P<sup_word>\d+(?:\.\d+)?|[^\W\d_]+))"
SCRIPT = re.compile(rf"(?<=[\w)}}\]‖₊₋ᵀ']){SUP}|(?P<base>{BASE}){SUB}")
CODE = (nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.raw, addnodes.desc_signature)


def parts(text: str) -> Iterator[nodes.Node]:
    """Split a text into plain text, subscripts and superscripts.

    >>> [(type(each).__name__, each.astext()) for each in parts("α_ij = e^{x_i/τ} of resnet_tiny")]
    [('Text', 'α'), ('subscript', 'ij'), ('Text', ' = e'), ('superscript', 'xi/τ'), ('Text', ' of resnet_tiny')]
    """
    end = 0
    for found in SCRIPT.finditer(text):
        before = text[end : found.start()] + (found["base"] or "")
        if before:
            yield nodes.Text(before)
        below = found["sub"] or found["sub_word"]
        above = found["sup"] or found["sup_round"] or found["sup_word"]
        node = nodes.subscript() if below else nodes.superscript()
        node.extend(parts(below or above or ""))
        yield node
        end = found.end()
    if text[end:]:
        yield nodes.Text(text[end:])


def is_equation(block: nodes.literal_block) -> bool:
    """Whether a block is an equation: plain text with a Greek letter, a sum or a power, and no command."""
    text = block.astext()
    plain = block.get("language", "default") in ("default", "text", "none")
    return plain and re.search(r"[α-ωΣ]|\^\{", text) is not None and "lightning-ssl" not in text


class Scripts(SphinxPostTransform):
    """Replace the marks _ and ^ in prose and in equations."""

    default_priority = 900  # after the outputs of notebooks are chosen

    def run(self, **kwargs: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if text.parent is not None and in_prose(text) and SCRIPT.search(text):
                text.parent.replace(text, list(parts(text.astext())))
        for block in list(self.document.findall(nodes.literal_block)):
            if is_equation(block) and SCRIPT.search(block.astext()):
                # A block whose text differs from its source is not highlighted: Sphinx writes its children.
                block.rawsource, children = block.astext(), list(parts(block.astext()))
                block.clear()
                block.extend(children)


def in_prose(text: nodes.Text) -> bool:
    """Whether a text is neither code nor the signature of a function."""
    node: nodes.Node | None = text.parent
    while node is not None and not isinstance(node, CODE):
        node = node.parent
    return node is None
