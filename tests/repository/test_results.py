"""docs/results: the archived runs give the committed tables again, and no file names a path of a machine."""

import csv
import gzip
import re

import pytest
from generators import results as pages
from helpers import ROOT

from lightning_ssl.app.report.compose import build
from lightning_ssl.app.reproduce import moves, recipe, results, writing
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.sweep.scales import scale_named

RESULTS = ROOT / "docs" / "results"
TABLES = [name for name in recipe.names() if recipe.load(name).lab is None and (RESULTS / f"{name}.md").exists()]


@pytest.fixture(scope="module", params=TABLES)
def committed(request):
    """The name of a table, the archives of its runs, and these runs tabulated."""
    reproduction = recipe.load(request.param)
    work = reproduction.works["cpu"]
    archives = [RESULTS / "runs" / f"{name}-cpu.jsonl.gz" for name in work.sweeps]
    archives = [file for file in archives if file.is_file()]
    return request.param, archives, results.tabulate(reproduction, work, Reader().runs(archives))


def text_of(name):
    return (RESULTS / name).read_text(encoding="utf-8")


def test_the_archived_runs_give_the_committed_claims_and_accuracies(committed):
    name, _, table = committed
    assert writing.claims_table(table) in text_of(f"{name}.md")
    assert all(writing.accuracies_table(table, data) in text_of(f"{name}.md") for data in table.work.data)


def test_a_verdict_never_stands_beside_a_p_that_says_otherwise(committed):
    """In the digits that are shown: no decided claim has a p above its level, and no other one a p below it."""
    lines = [line[2:-2].split(" | ") for line in text_of(f"{committed[0]}.md").splitlines()]
    claims = [line for line in lines if len(line) > 11 and line[-1].startswith("0.0")]
    assert len(claims) == len(committed[2].judgements)
    for line in claims:
        verdict, p, level = line[0], line[-3].removeprefix("\\< "), float(line[-1].partition(",")[0])
        if verdict.startswith("not decided"):
            assert p == "–" or float(p) >= level, line
        else:
            assert float(p) <= level, line


def test_the_archived_runs_give_the_committed_csv(committed):
    name, _, table = committed
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        assert file.read() == writing.runs_csv(table)


def test_report_on_the_archived_runs_gives_the_committed_table(committed, tmp_path):
    name, archives, _ = committed
    report = build(archives, tmp_path / "page.html", title=recipe.load(name).title, figures=False)
    assert (report.page.with_suffix("") / "table.md").read_text(encoding="utf-8").strip() in text_of(f"{name}.md")


def night():
    """Table 1 at the scale `night`, from the archive."""
    reproduction = recipe.load("table1")
    work = reproduction.works["night"]
    archives = [RESULTS / "runs" / f"{name}-night.jsonl.gz" for name in work.sweeps]
    return results.tabulate(reproduction, work, Reader().runs([file for file in archives if file.is_file()]))


def test_the_page_of_table_1_shows_how_each_claim_moves_with_longer_training():
    """Runs are added while the study continues: the page can count fewer of them, and never other results."""
    text, longer = text_of("table1.md"), night()
    counted = re.search(r"Finished runs at the scale night .*?: (\d+)\.", text)
    finished = sum(each.run.finished for each in longer.measured)
    assert counted is not None
    assert int(counted[1]) <= finished
    if int(counted[1]) < finished:
        pytest.skip(f"the page counts {counted[1]} of {finished} runs: make it again (docs/reproduce.md)")
    reproduction = recipe.load("table1")
    archives = [RESULTS / "runs" / f"{name}-cpu.jsonl.gz" for name in reproduction.works["cpu"].sweeps]
    runs = Reader().runs([file for file in archives if file.is_file()])
    short = results.tabulate(reproduction, reproduction.works["cpu"], runs)
    assert moves.section(short, [(scale_named("night"), longer)]) in text


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_generated_parts_of_a_page_are_those_of_the_archived_runs(name):
    made = pages.pages(RESULTS)[name]
    assert made == text_of(name), "cd docs && python -m generators"


def test_a_difference_in_a_sentence_has_one_digit():
    assert [pages.points(value) for value in (-10.34, 0.04, 1.75)] == ["−10.3", "0.0", "+1.8"]


def test_a_part_of_a_page_without_a_function_is_an_error():
    parts = {"known": lambda: "new"}
    made = pages.filled("a\n<!-- made: known -->\nold\n<!-- end -->\nb", parts)
    assert made == "a\n<!-- made: known -->\n\nnew\n\n<!-- end -->\nb"
    with pytest.raises(KeyError):
        pages.filled("<!-- made: unknown -->\n\n<!-- end -->", parts)


def test_the_page_of_all_results_has_every_claim_of_every_table():
    text = text_of("index.md")
    for name in TABLES:
        for claim in recipe.load(name).claims:
            assert writing.md_cell(claim.text) in text, claim
            assert writing.md_cell(f"{claim.statement.says} ({claim.statement.place})") in text, claim


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
