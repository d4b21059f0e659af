"""The report: its files, the page, and escaping of text from run folders."""

import base64
import csv
import hashlib
import io
import json
import re
import shutil
from importlib.resources import files

import numpy as np
import pytest
from helpers.closeness import close
from helpers.page import Page
from helpers.run_folders import content_of, empty_figures, with_images, write_mixed, write_run, write_sweep  # noqa: F401

from lightning_ssl.app import report
from lightning_ssl.app.report import formats
from lightning_ssl.app.report.figure_data import encode

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>|&\"'</title>"
HOSTILE_LATEX = r"\input{/etc/passwd} 100% of $x_1^2$ & #1 {a} ~"


def read(built, name):
    return next(file for file in built.files if file.name == name).read_text(encoding="utf-8")


def csv_lines(built, name):
    return list(csv.DictReader(io.StringIO(read(built, name))))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three losses with five seeds, and one failed, one running and one broken run."""
    folder = write_sweep(
        tmp_path_factory.mktemp("runs"), ("direct", "infonce", "square"), seeds=5, spread=0.001, epochs=6
    )
    write_run(folder / "dead", "direct", 9, 0.2, status="failed", error="train/loss=nan at step 12", epochs=6, points=2)
    write_run(folder / "going", "square", 9, 0.3, status="running", epochs=6, points=3)
    (write_run(folder / "half", "square", 8, epochs=6) / "metrics.jsonl").unlink()
    return report.build([folder])


@pytest.fixture(scope="module")
def page(built):
    return Page(built.page)


@pytest.fixture(scope="module")
def policy(page):
    return next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")


def test_every_file_is_written_and_readable(built):
    names = {file.name for file in built.files}
    figures = ("final", "accuracy", "loss", "alpha", "spectrum", "parameters")
    assert names >= {"report.html", "summary.csv", "pairs.csv", "runs.csv", "table.md", "table.tex"}
    assert names >= {f"{stem}.{kind}" for stem in figures for kind in ("png", "svg")}
    for file in built.files:
        content = file.read_bytes()
        assert len(content) > 300
        assert file.suffix != ".png" or content.startswith(b"\x89PNG")
        assert file.suffix != ".svg" or b"</svg>" in content


def test_page_needs_no_other_file(page, built, policy):
    for _, attributes in page.elements:
        assert not attributes.get("src")
        assert not str(attributes.get("href", "")).startswith(("http", "//"))
    assert policy.startswith("default-src 'none'")
    assert built.page.stat().st_size < 6e6


def test_policy_lists_the_hash_of_each_script(page, policy):
    kinds = [(tag, attributes.get("type")) for tag, attributes in page.elements if tag in ("script", "style")]
    scripts = [text for kind, text in zip(kinds, page.scripts, strict=True) if kind == ("script", None)]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert len(digests) == 2


def test_every_colour_of_the_page_is_in_the_palette_of_both_themes():
    folder = files("lightning_ssl.app.report") / "templates"
    palette = (folder / "palette.css").read_text(encoding="utf-8")
    dark, light = (re.findall(r"--([a-z-]+):", theme) for theme in palette.split("{% endset %}"))
    assert dark == light
    for file in (folder / "page.css", *folder.glob("*.html")):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"#[0-9a-fA-F]{6}\b|\brgba?\(|\bhsla?\(", text), file.name
        assert set(re.findall(r"var\(--([a-z-]+)\)", text)) - {"c"} <= set(light), file.name  # --c: a group's colour


def test_every_run_is_shown_with_its_configuration_and_its_command(page):
    for words in ("train/loss=nan at step 12", "metrics.jsonl is missing", "1 failed", "1 running", "1 broken"):
        assert words in page.words
    for name in ("dead", "going", "half", "direct-0"):
        assert name in page.text
    assert "lightning-ssl fit --config configs/method/direct.yaml --seed_everything 3" in page.words
    assert page.words.count("class_path: lightning_ssl.methods.AlphaCL") == 13


def test_encoded_curves_decode_to_the_means(page, built):
    group = next(g for g in page.data["groups"] if g["title"].startswith("AlphaCL Direct"))
    epochs, (low, high, code), spread = group["curves"]["online/top1"]
    steps = np.frombuffer(base64.b64decode(code), "<u2")
    runs = [run for run in built.runs if run.finished and "direct" in run.name]
    mean = 100 * np.mean([run.curve("online/top1")[1] for run in runs], 0)
    step = (high - low) / 65534  # a value is encoded as one of 65535 levels
    np.testing.assert_allclose(low + step * steps, mean, rtol=0, atol=step)
    assert page.data["epochs"][epochs] == [1, 2, 3, 4, 5, 6]
    assert spread != 0


def test_nan_and_inf_are_encoded_as_missing():
    low, high, code = encode(np.array([1.0, np.nan, 3.0, np.inf]))
    assert (low, high) == (1.0, 3.0)
    assert np.frombuffer(base64.b64decode(code), "<u2").tolist() == [0, 65535, 65534, 65535]


def test_csv_files_hold_the_table_and_every_run_in_full_precision(built):
    summary, runs = csv_lines(built, "summary.csv"), csv_lines(built, "runs.csv")
    assert [line["loss"] for line in summary] == [row.group.label for row in built.rows]
    assert float(summary[0]["mean (%)"]) == built.rows[0].spread.mean
    first = built.rows[0].difference
    columns = ("difference (%)", "difference_low95 (%)", "difference_high95 (%)", "p")
    assert [float(summary[0][each]) for each in columns] == [first.value, first.low, first.high, first.p]
    assert summary[0]["can_be_best"] == "wins"
    pairs = csv_lines(built, "pairs.csv")
    assert [(line["loss"], line["other"]) for line in pairs] == [
        (one.group.title, two.group.title) for k, one in enumerate(built.rows) for two in built.rows[k + 1 :]
    ]
    assert [float(pairs[0][each]) for each in columns] == [first.value, first.low, first.high, first.p]
    assert summary[0]["failed"] == "1"
    assert len(runs) == 18
    direct = [float(run["online/top1 (%)"]) for run in runs if run["run"].startswith("direct-")]
    close(sum(direct) / len(direct), built.rows[0].spread.mean, terms=len(direct))
    assert {run["status"] for run in runs} == {"finished", "failed", "running", "broken"}


def test_runs_csv_has_a_column_for_every_parameter_of_a_loss(built):
    runs = {run["run"]: run for run in csv_lines(built, "runs.csv")}
    keys = ("model.importance", "model.importance.p", "model.importance.tau", "model.tau")
    assert [runs["direct-0"][key] for key in keys] == ["Direct", "4", "0.5", ""]
    assert [runs["square-0"][key] for key in keys] == ["Square", "", "5", ""]
    assert runs["infonce-0"]["model.tau"] == "0.5"


def test_markdown_and_latex_tables_have_a_row_per_loss(built):
    table = [line for line in read(built, "table.md").splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(built.rows)
    assert len({line.count("|") for line in table}) == 1
    assert "Δ is the difference to the baseline, SimCLR InfoNCE τ=0.5." in read(built, "table.md")
    latex = read(built, "table.tex")
    assert r"the baseline, SimCLR InfoNCE $\tau$=0.5." in latex
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\textbf{AlphaCL Direct p=4 $\tau$=0.5}", r"$\pm$"):
        assert word in latex
    assert latex.count(r" \\") == 1 + len(built.rows)


def test_only_a_significant_winner_is_bold(built, page, one_seed):
    assert built.rows[0].group.label == "AlphaCL Direct p=4 τ=0.5"
    assert "AlphaCL Direct p=4 τ=0.5 wins" in page.words
    order = [page.words.index(row.group.label, page.words.index("accuracy %")) for row in built.rows]
    assert order == sorted(order)
    assert "**AlphaCL Direct p=4 τ=0.5**" in read(built, "table.md")
    assert 'data-best="1"' in built.page.read_text(encoding="utf-8")
    assert one_seed.rows[0].rank == 1
    assert "has the highest mean, not tested (1 seed)" in Page(one_seed.page).words
    assert "One seed gives no test" in one_seed.line
    assert "**" not in read(one_seed, "table.md")
    assert "textbf" not in read(one_seed, "table.tex")
    assert 'data-best="1"' not in one_seed.page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory):
    runs = write_sweep(tmp_path_factory.mktemp("one"), ("direct", "infonce"), seeds=1, epochs=2)
    return report.build([runs], figures=False)


def test_page_of_mixed_runs_has_one_short_headline_and_no_needless_column(tmp_path):
    built = report.build([write_mixed(tmp_path)], figures=False)
    assert built.verdicts[0].headline == "Only SimCLR InfoNCE τ=0.5 can be the best (95 %)"
    page = Page(built.page)
    filters = [attributes["data-filter"] for tag, attributes in page.elements if "data-filter" in attributes]
    assert filters == ["status"]
    # The probe's settings differ, so the note stands at the top as well.
    assert page.words.count("Differs between runs but is not part of the comparison") == 2


@pytest.mark.usefixtures("empty_figures")
def test_data_sets_are_separate_and_the_page_says_why(tmp_path):
    for images, gain in ((600, 0), (2000, 0.1)):
        for seed in range(2):
            for loss, accuracy in (("direct", 0.6), ("infonce", 0.5)):
                name = f"{loss}-{images}-{seed}"
                write_run(tmp_path / name, loss, seed, accuracy + gain, epochs=2, change=with_images(images))
    built = report.build([tmp_path])
    page = Page(built.page)
    assert [(row.group.data, row.rank) for row in built.rows] == [
        (f"shapes, train_images={images}", rank) for images in (600, 2000) for rank in (1, 2)
    ]
    assert all(row.baseline.data == row.group.data for row in built.rows)
    assert "ranked within each data set and not across data sets: an accuracy depends on" in page.words
    assert "Comparison of losses on shapes" in page.text
    colours = {(group["title"], group["colour"], group["dash"]) for group in page.data["groups"]}
    assert len(colours) == 2
    places = [attributes["id"] for _, attributes in page.elements if str(attributes.get("id")).startswith("plot-final")]
    assert places == ["plot-final-0", "plot-final-1"]
    assert {file.name for file in built.files} >= {f"final-shapes-train_images-{n}.png" for n in (600, 2000)}


def test_folder_without_a_finished_run_gives_a_page(tmp_path):
    write_run(tmp_path / "a", status="failed", error="no disk", epochs=2, points=0)
    (tmp_path / "b" / "checkpoints").mkdir(parents=True)
    built = report.build([tmp_path])
    assert built.line == "No result yet. No run on shapes has finished (1 failed)"
    assert "no disk" in Page(built.page).words
    shutil.rmtree(tmp_path / "a")
    built = report.build([tmp_path])
    assert built.line == "no run could be read"
    assert "config.yaml is missing" in Page(built.page).words


def test_published_figures_are_shown_for_the_same_setting(tmp_path):
    setting = {"data": "cifar10", "backbone": "resnet18", "batch_size": 128, "epochs": 100}
    built = report.build([write_sweep(tmp_path, ("direct", "infonce"), seeds=2, points=3, **setting)], figures=False)
    words = Page(built.page).words
    assert "85.11 ± 0.19" in words
    assert "α-CL paper, Table 1 = α-CL paper, Table 2" in words


def test_notes_name_a_setting_that_differs_between_losses(tmp_path):
    write_run(tmp_path / "a", "direct", lr=0.01, epochs=2)
    write_run(tmp_path / "b", "simsiam", lr=0.03, epochs=2)
    (note,) = [note for note in report.build([tmp_path], figures=False).notes if "recipes" in note]
    assert note.startswith("Differs between losses: model.optimization.lr (0.01, 0.03). This compares recipes")


def test_metric_and_baseline_can_be_chosen(tmp_path):
    write_sweep(tmp_path, ("direct", "entropy"), seeds=2, epochs=2)
    built = report.build([tmp_path], metric="knn/top1", baseline="AlphaCL Entropy τ=0.5", figures=False)
    assert built.rows[0].difference is not None
    assert built.rows[0].spread.mean == pytest.approx(built.runs[0].last("knn/top1") * 100, abs=2)  # two seeds


@pytest.mark.slow
def test_page_of_a_thousand_runs_is_small(tmp_path):
    first = write_run(tmp_path / "first", "direct", 0, 0.7, epochs=500, full=True)
    text = (first / "metrics.jsonl").read_text()
    losses = ("direct", "infonce", "square", "entropy", "inverse", "quadratic", "direct_p6", "direct_unnormalized")
    for k in range(1000):
        lr = 0.001 * (1 + k // 40)
        run = write_run(tmp_path / "runs" / f"{k}", losses[k % 8], k // 8 % 5, 0.5 + 0.0002 * k, 500, points=1, lr=lr)
        (run / "metrics.jsonl").write_text(text)
    built = report.build([tmp_path / "runs"], tmp_path / "page.html")
    assert len(built.grouping.groups) == 200
    assert built.page.stat().st_size < 25e6


# -- escaping ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Names, parameters, commands and errors that contain markup, formulas and LaTeX."""
    folder = tmp_path_factory.mktemp("hostile")

    def change(config):
        config["model"]["init_args"]["importance"]["class_path"] = "mine." + HOSTILE.replace(".", "")
        config["data"]["batch_size"] = HOSTILE_LATEX
        config["data"]["name"] = HOSTILE
        config["note"] = {HOSTILE: HOSTILE}

    for seed in range(2):
        safe_name = HOSTILE.replace("/", "∕")
        run = write_run(folder / f"{safe_name}{seed}", "direct", seed, epochs=2, change=change)
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"command": ["=cmd|' /C calc'!A0", HOSTILE], "error": HOSTILE, "started": HOSTILE, "tags": [HOSTILE]}
        (run / "summary.json").write_text(json.dumps(summary).replace("</title>", "</title>\\ud800"))
    write_run(folder / "=HYPERLINK(1)", "infonce", 0, epochs=2, change=lambda c: c["data"].update(name=HOSTILE))
    write_run(folder / "other", "direct", 0, epochs=2, change=lambda c: c["data"].update(name=HOSTILE, batch_size=1))
    return report.build([folder], title=HOSTILE)


def test_markup_in_a_name_is_shown_as_text(hostile):
    page = Page(hostile.page)
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert [tag for tag, _ in page.elements].count("title") == 1
    assert "<script>alert(1)</script>" in page.words
    assert any(HOSTILE in group["data"] for group in page.data["groups"])


def test_templates_escape_every_value():
    for file in (files("lightning_ssl.app.report") / "templates").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|\bautoescape\b|Markup", text), file.name


def test_csv_files_contain_no_formula(hostile):
    for name in ("summary.csv", "runs.csv"):
        for line in csv.reader(io.StringIO(read(hostile, name))):
            for cell in line:
                assert not cell.startswith(("=", "+", "@", "\t")) or re.fullmatch(r"[+-]?[\d.e+-]+", cell)
                assert not cell.startswith("-") or float(cell) < 0


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "  =1", "%0A", "|calc"])
def test_csv_cell_quotes_formulas_and_not_numbers(cell):
    assert formats.csv_cell(cell).startswith("'")
    assert formats.csv_cell(-1.5) == "-1.5"


def test_markdown_table_keeps_its_columns(hostile):
    table = [re.sub(r"\\.", "", line) for line in read(hostile, "table.md").splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert not any("<" in line for line in table)


def test_latex_contains_no_command_from_a_run(hostile):
    text = read(hostile, "table.tex")
    assert r"\input" not in text
    ours = {"toprule", "midrule", "bottomrule", "begin", "end", "textbf", "usepackage", "tau", "pm", "Delta", "alpha"}
    marks = {"textbackslash", "textless", "textgreater", "textbar", "textquotedbl", "textasciitilde", "textasciicircum"}
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= ours | marks | {"textperiodcentered"}
