"""The report: run folders in, one page out that says which loss wins, by how much, and how sure one can be.

lightning-ssl report runs                     # writes runs/report.html and runs/report/
lightning-ssl report runs --watch             # … again and again while a sweep runs

from lightning_ssl import report
built = report.build(["runs"], "page.html")   # built.page, built.verdicts, built.rows

read.py        run folders as they are on disk
groups.py      which runs are one experiment
statistics.py  intervals, tests, the verdict
published.py   the papers' figure for a setting
curves.py      metrics by epoch
tables.py      CSV, Markdown, LaTeX
figures.py     PNG and SVG
page.py        the HTML page (page.html, page.css, page.js)
compose.py     the order of all this
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_ssl.report.compose import Built, build

__all__ = ["Built", "build"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lightning_ssl.report import compose

        return getattr(compose, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
