"""The notebooks: plain code without stored outputs. `make docs` executes them in empty folders."""

import ast
import json
import re

import pytest
from helpers import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

ABSOLUTE = re.compile(r"(?<![\w.:/)])/(?:bin|etc|home|mnt|opt|private|root|tmp|usr|var|work|Users)\b|\b[A-Z]:\\")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell):
    return "".join(cell["source"])


def code_cells(path):
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def test_the_notebooks_are_numbered():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_design_your_own_alpha",
        "03_theory_tour",
        "04_compare_losses",
    ]


@every_notebook
def test_the_format_is_version_4(path):
    notebook = read(path)
    assert notebook["nbformat"] == 4
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert {cell["cell_type"] for cell in notebook["cells"]} == {"code", "markdown"}


@every_notebook
def test_no_output_is_stored(path):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code_cells(path))


@every_notebook
def test_the_code_is_plain_python(path):
    for cell in code_cells(path):
        ast.parse(source(cell))  # fails on an IPython magic


@every_notebook
def test_lightning_ssl_is_imported_first(path):
    first = ast.parse(source(code_cells(path)[0])).body[0]
    assert ast.unparse(first) == "import lightning_ssl"


@every_notebook
def test_a_sweep_in_a_notebook_chooses_on_held_out_images(path):
    for cell in code_cells(path):
        if "metric: {" in source(cell):
            assert "--data.holdout=" in source(cell)


@every_notebook
def test_there_is_no_absolute_path(path):
    assert [found for cell in read(path)["cells"] for found in ABSOLUTE.findall(source(cell))] == []


@every_notebook
def test_links_to_other_notebooks_resolve(path):
    for cell in read(path)["cells"]:
        for target in re.findall(r"\]\(([^)]+\.ipynb)\)", source(cell)):
            assert (path.parent / target).exists(), target
