"""The report: reads run folders and writes one page that compares losses, with intervals and tests.

lightning-ssl report runs                     # writes runs/report.html and runs/report/
lightning-ssl report runs --watch             # … and again whenever runs change

from lightning_ssl.app import report
built = report.build(["runs"], "page.html")   # built.page, built.verdicts, built.rows

compose.py      the order of the steps
groups.py       which runs are one experiment
differences.py  which settings differ between runs, and which of them make groups
data_sets.py    which runs have the same data
images.py       which images an accuracy comes from, and choices on test images
compared.py     the comparison of the groups on a data set; comparison/ has the procedure
verdict.py      the rows of the table, the verdict in words
tuning.py       the runs that confirm a tuning, and why they may name no winner
published.py    the papers' figure for a setting
formats.py      numbers, names and escaped tables as text; reproductions use it too
tables.py       the comparison and the runs as CSV, Markdown, LaTeX
figures.py      metrics by epoch, PNG and SVG
page.py         the HTML page, from templates/
figure_data.py  the data of the page's figures
"""

from __future__ import annotations

from lightning_ssl.app.report.compose import Built, build

__all__ = ["Built", "build"]
