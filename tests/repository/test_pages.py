"""The pages: their links and files exist, and their blocks of code run.

A page is a sequence of blocks that run in order in one empty folder:

    python    is executed; a block that starts with a comment like `# mine.py` is written to that file instead
    yaml      is written to the file in its first line; without one it is only parsed
    bash      every line is a command that must succeed
    console   every line after `$` is a command; the lines that follow it are in its output, … stands for any text
    text      is not run: a command that needs a download, a cluster or minutes

A training of a page takes one epoch of few images.
"""

import importlib
import re
import shlex
import subprocess
import sys

import pytest
import pytorch_lightning as pl
import yaml
from helpers import ROOT

from lightning_ssl.app import cli

GENERATED = {"_generated", "api", "notebooks"}  # in docs/, when the site was built here
DOCS = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if page.relative_to(ROOT / "docs").parts[0] not in GENERATED
]
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
RUN_ELSEWHERE = {"migration.md"}  # beside lightning-bolts: tests/bolts/test_bolts_training.py
LANGUAGES = {"python", "yaml", "bash", "console", "text", "latex"}
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """(language, text) of every fenced block that is not a directive of Sphinx."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if not language.startswith("{")]


def runs(page):
    return page.name not in RUN_ELSEWHERE and any(language != "text" for language, _ in blocks(page))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


# ---------------------------------------------------------------------------------------------------------------------
# Code


FAST = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
FEW = ["--data.options={train_images: 96, test_images: 32}", "--data.batch_size=32"]
DOWNLOADED = ("cifar10", "cifar100", "stl10")


class ShortTrainer(pl.Trainer):
    """A trainer that takes a few steps, whatever the page asks for."""

    def __init__(self, **settings):
        short = {"max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 2, "num_sanity_val_steps": 0}
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        super().__init__(**{"logger": False, "enable_checkpointing": False, **settings, **short, **quiet})


def words_of(line):
    """The words of a command. `fit` gets settings for a short training; data that is not here is only parsed."""
    words = shlex.split(line, comments=True)
    if words[:2] != ["lightning-ssl", "fit"] or "--print_config" in words:
        return words
    if any(name in word for name in DOWNLOADED for word in words):
        return [*words, "--print_config"]
    return [*words, *FAST, *([] if "--data.name" in words else FEW)]


def run(words):
    """Run a command in this process, if it is ours, and return its exit code."""
    if words[0] != "lightning-ssl":
        assert words[0] == "python"
        return subprocess.run([sys.executable, *words[1:]], timeout=600).returncode
    try:
        return cli.main(words[1:])
    except SystemExit as end:
        return end.code or 0


def check_console(text, capfd):
    """Run the commands of a console block and look for the lines after each in its output."""
    for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *expected = entry.splitlines()
        capfd.readouterr()
        run(shlex.split(command))
        printed = "".join(capfd.readouterr())
        for line in expected:
            pattern = ".*".join(map(re.escape, line.split("…")))
            assert re.search(f"^{pattern}$", printed, flags=re.MULTILINE), f"{line}\nis not in\n{printed}"


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*smaller than the logging interval")
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=name_of)
def test_every_block_of_the_page_runs(page, working_directory, capfd, monkeypatch, forked_trials):
    names = {"__name__": "page"}
    for language, text in blocks(page):
        if file := re.match(r"# (\w+\.\w+)\n", text):
            (working_directory / file[1]).write_text(text, encoding="utf-8")
            importlib.invalidate_caches()
        elif language == "python":
            with monkeypatch.context() as patch:
                patch.setattr(pl, "Trainer", ShortTrainer)
                exec(compile(text, page.name, "exec"), names)
        elif language == "bash":
            for line in text.splitlines():
                assert run(words_of(line)) == 0, f"{line}\n{capfd.readouterr().err}"
        elif language == "console":
            check_console(text, capfd)
        elif language == "yaml":
            yaml.safe_load(text)
        else:
            assert language == "text"


@every_page
def test_a_sweep_in_a_page_chooses_on_held_out_images(page):
    for language, text in blocks(page):
        if language == "yaml" and "metric" in (sweep := yaml.safe_load(text)):
            assert "data.holdout" in sweep["parameters"]


@every_page
def test_every_block_has_a_language(page):
    assert {language for language, _ in blocks(page)} <= LANGUAGES


# ---------------------------------------------------------------------------------------------------------------------
# Links and files


def text_of(page):
    """The page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


@every_page
def test_every_relative_link_resolves(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text_of(page)):
        if "_generated/" not in target:  # a figure of the site; Sphinx checks it
            assert (page.parent / target).exists(), target


def anchors(page):
    """The anchors of the headings of a page, as Sphinx and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_anchor_of_a_link_is_a_heading(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text_of(page)):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


@every_page
def test_every_web_address_is_well_formed(page):
    for address in re.findall(r"https?:[^\s)>`\"]*", page.read_text(encoding="utf-8")):
        assert re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./%#?=&~+-]*)?", address), address


@every_page
def test_every_configuration_in_a_page_exists(page):
    for name in re.findall(r"(?<![\w/])(?:configs|sweeps)/[\w/.]+\.yaml", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("page", "pattern"),
    [("README.md", r"^      (\S+)  "), ("docs/architecture.md", r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`")],
)
def test_every_file_of_the_package_in_a_page_exists(page, pattern):
    names = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert (ROOT / "lightning_ssl" / name).exists() or (ROOT / name).exists(), name


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in DOCS:
        for entry in re.findall(r"```{toctree}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            for line in entry.splitlines():
                if line and not line.startswith(":"):
                    listed |= set(page.parent.glob(f"{line}.md"))
    assert set(DOCS) - listed == {ROOT / "docs" / "index.md"}
