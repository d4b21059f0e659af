"""The version of a run names the commit of the checkout or of the image that it was made with."""

import re
import subprocess

import pytest

import lightning_ssl
from lightning_ssl.app.runs.version import COMMIT, version

PLAIN = lightning_ssl.__version__


@pytest.fixture
def place(monkeypatch, tmp_path):
    """An empty folder that the package seems to be installed in, in an image built from commit 0123abc."""
    monkeypatch.setattr(lightning_ssl, "__file__", str(tmp_path / "lightning_ssl/__init__.py"))
    monkeypatch.setenv(COMMIT, "0123abc")
    return tmp_path


@pytest.mark.parametrize(("commit", "end"), [("0123abc", "+g0123abc"), ("", ""), (None, "")])
def test_an_image_names_the_commit_that_it_was_built_from_if_it_knows_it(commit, end, place, monkeypatch):
    monkeypatch.delenv(COMMIT)
    if commit is not None:  # else an image built without the argument
        monkeypatch.setenv(COMMIT, commit)
    assert version() == f"{PLAIN}{end}"


def test_a_checkout_in_an_image_names_its_own_commit(place):
    git = ["git", "-C", place, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    assert re.fullmatch(re.escape(PLAIN) + r"\+g(?!0123abc)[0-9a-f]{7,}", version())


def test_changed_code_is_dirty_and_a_changed_archive_is_not(place):
    git = ["git", "-C", place, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    for name in ("docs/results/runs/table1.jsonl.gz", "lightning_ssl/__init__.py"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("before")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    commit = version()
    (place / "docs/results/runs/table1.jsonl.gz").write_text("after")
    assert version() == commit
    (place / "lightning_ssl/__init__.py").write_text("after")
    assert version() == f"{commit}-dirty"


def test_a_checkout_without_git_claims_no_commit(place, monkeypatch):
    (place / ".git").mkdir()
    monkeypatch.setenv("PATH", str(place))
    assert version() == PLAIN
