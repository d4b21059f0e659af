"""docs/results: the archived runs give the committed tables again, and no file names a path of a machine."""

import csv
import gzip
import re

import pytest
from helpers import ROOT

from lightning_ssl.app.report.compose import build
from lightning_ssl.app.reproduce import recipe, results, writing
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.run_record import Reader

RESULTS = ROOT / "docs" / "results"
TABLES = [name for name in recipe.names() if recipe.load(name).lab is None and (RESULTS / f"{name}.md").exists()]


@pytest.fixture(scope="module", params=TABLES)
def committed(request):
    """The name of a table, the archives of its runs, and these runs tabulated."""
    reproduction = recipe.load(request.param)
    work = reproduction.works["cpu"]
    archives = [RESULTS / "runs" / f"{name}-cpu.jsonl.gz" for name in work.sweeps]
    return request.param, archives, results.tabulate(reproduction, work, Reader().runs(archives))


def text_of(name):
    return (RESULTS / name).read_text(encoding="utf-8")


def test_the_archived_runs_give_the_committed_claims_and_accuracies(committed):
    name, _, table = committed
    assert writing.claims_table(table) in text_of(f"{name}.md")
    assert all(writing.accuracies_table(table, data) in text_of(f"{name}.md") for data in table.work.data)


def test_the_archived_runs_give_the_committed_csv(committed):
    name, _, table = committed
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        assert file.read() == writing.runs_csv(table)


def test_report_on_the_archived_runs_gives_the_committed_table(committed, tmp_path):
    name, archives, _ = committed
    report = build(archives, tmp_path / "page.html", title=recipe.load(name).title, figures=False)
    assert (report.page.with_suffix("") / "table.md").read_text(encoding="utf-8").strip() in text_of(f"{name}.md")


def test_table_1_has_35_finished_runs_with_seeds():
    rows = list(csv.DictReader(text_of("table1.csv").splitlines()))
    finished = {(row["row"], row["seed"]) for row in rows if row["status"] == "finished" and row["seed"]}
    assert len(finished) >= 35


@pytest.mark.parametrize("file", sorted((RESULTS / "runs").glob("*.jsonl.gz")), ids=lambda file: file.name)
def test_an_archive_has_the_bytes_that_are_written_for_its_runs(file, tmp_path):
    archive.add(tmp_path / file.name, archive.read(file).items())
    assert gzip.decompress((tmp_path / file.name).read_bytes()) == gzip.decompress(file.read_bytes())
    assert file.read_bytes()[4:8] == bytes(4)  # no time


def test_the_results_are_few_files_and_every_figure_is_there_once():
    files = [file for file in RESULTS.rglob("[!.]*") if file.is_file()]
    assert len(files) <= 80
    assert {file.suffix for file in files} == {".md", ".csv", ".png", ".gz"}


def test_no_file_names_a_path_of_the_machine_that_made_it():
    texts = {
        file.name: file.read_text(encoding="utf-8") for file in RESULTS.iterdir() if file.suffix in (".md", ".csv")
    }
    for file in (RESULTS / "runs").iterdir():
        texts |= {f"{file.name}: {name}": "\n".join(files.values()) for name, files in archive.read(file).items()}
    folders = re.compile(r"(?<![\w.])/(tmp|root|home|work)/")
    assert [name for name, text in texts.items() if folders.search(text)] == []
