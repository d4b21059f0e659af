"""The notebooks hold the outputs of one run without errors, and contain no absolute path."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest
from helpers import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

ABSOLUTE = re.compile(r"(?<![\w.:/)])/(?:bin|etc|home|mnt|opt|private|root|tmp|usr|var|work|Users)\b|\b[A-Z]:\\")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(path):
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def outputs(path):
    return [output for cell in code_cells(path) for output in cell["outputs"]]


def texts(path):
    """Return all sources and text outputs."""
    found = [source(cell) for cell in read(path)["cells"]]
    for output in outputs(path):
        shown = output.get("data", {})
        found += ["".join(text) for kind, text in shown.items() if kind.startswith("text/")]
        found.append("".join(output.get("text", [])))
    return found


def test_both_notebooks_exist():
    assert [path.stem for path in NOTEBOOKS] == ["design_a_loss", "read_runs"]


@every_notebook
def test_the_format_is_version_4(path):
    notebook = read(path)
    assert notebook["nbformat"] == 4
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert {cell["cell_type"] for cell in notebook["cells"]} == {"code", "markdown"}
    assert path.stat().st_size < 400_000


@every_notebook
def test_the_code_is_plain_python(path):
    for cell in code_cells(path):
        ast.parse(source(cell))  # fails on an IPython magic


@every_notebook
def test_lightning_ssl_is_imported_first(path):
    first = ast.parse(source(code_cells(path)[0])).body[0]
    assert ast.unparse(first) == "import lightning_ssl"


@every_notebook
def test_the_outputs_come_from_one_run(path):
    counts = [cell["execution_count"] for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    assert sum("image/png" in output.get("data", {}) for output in outputs(path)) >= 3


@every_notebook
def test_no_output_is_an_error_or_a_warning(path):
    for output in outputs(path):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr"
    assert not any("Warning" in text for text in texts(path))


@every_notebook
def test_there_is_no_absolute_path(path):
    assert [found for text in texts(path) for found in ABSOLUTE.findall(text)] == []


@pytest.mark.slow
@every_notebook
def test_the_cells_run_in_an_empty_folder_without_jupyter(path, tmp_path):
    script = tmp_path / f"{path.stem}.py"
    script.write_text("\n\n".join(source(cell) for cell in code_cells(path)), encoding="utf-8")
    root = str(path.parent.parent)
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
