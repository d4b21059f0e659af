"""The outputs of the notebooks: a cell that ends with a figure shows it."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)


def warn_of_hidden_figures(app: Any, doctree: nodes.document, page: str) -> None:
    """Warn if a page has the name of a figure instead of the figure: a handler of Sphinx's event `doctree-resolved`."""
    for block in doctree.findall(nodes.literal_block):
        if block.astext().startswith("<Figure size"):
            logger.warning("a cell prints %s and does not show it; call plt.ion() first", block.astext(), location=page)
