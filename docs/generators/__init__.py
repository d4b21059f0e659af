"""Pages and figures that are made from the code when the site is built, so that they cannot be out of date.

api.py            docs/api/: a page per package, from the docstrings of its public names
losses.py         docs/_generated/losses.md: a section per importance and per (φ, ψ) loss, with a figure of its weights
configuration.py  docs/_generated/configuration.md: every flag of `lightning-ssl fit`
coverage.py       docs/_generated/coverage.md: every statement of the papers and where it is tested
figures.py        docs/_generated/*.svg: the figures of concepts.md
results.py        the generated parts of README.md, docs/results/index.md and inverse.md: every claim with its verdict;
                  docs/_generated/results.md: the verdicts of the labs; lab_*.md: those of one lab
formulas.py       sets α_ij and K^{q−1} of the pages as subscripts and superscripts
outputs.py        warns of a notebook that prints the name of a figure
__main__.py       `python -m generators`: the generated parts of docs/results alone
(here)            docs/notebooks/: a copy of notebooks/, because Sphinx reads only what is below docs/
"""

from pathlib import Path

from generators import api, configuration, coverage, figures, losses, results


def write_all(docs: Path) -> None:
    """Write every generated page and figure below docs/."""
    for folder in ("_generated", "api", "notebooks"):
        (docs / folder).mkdir(exist_ok=True)
    notebooks = {file.name: file.read_text(encoding="utf-8") for file in docs.parent.glob("notebooks/*.ipynb")}
    for stale in {file.name for file in docs.glob("notebooks/*.ipynb")} - notebooks.keys():
        (docs / "notebooks" / stale).unlink()
    for name, text in notebooks.items():
        write(docs / "notebooks" / name, text)
    for name, text in api.pages().items():
        write(docs / "api" / f"{name}.md", text)
    write(docs / "_generated" / "losses.md", losses.page())
    write(docs / "_generated" / "configuration.md", configuration.page())
    results.write(docs / "results")
    write(docs / "_generated" / "coverage.md", coverage.page())
    write(docs / "_generated" / "results.md", results.page(docs / "results"))
    for name, text in results.of_labs(docs / "results").items():
        write(docs / "_generated" / f"lab_{name}.md", text)
    for name, draw in {**figures.FIGURES, **losses.all_figures(), "inverse_row": results.inverse}.items():
        figures.save(draw, docs / "_generated" / f"{name}.svg")


def write(file: Path, text: str) -> None:
    """Write a file if its text changes: Sphinx reads a page again when its file is newer."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
