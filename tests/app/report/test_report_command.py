"""`lightning-ssl report`: what it prints, what it replaces, `--watch`, and a full disk."""

import multiprocessing
import os
import re
import shutil
import signal
import sys

import pytest
from helpers.page import Page
from helpers.run_folders import content_of, empty_figures, write_run, write_sweep  # noqa: F401

from lightning_ssl.app import cli
from lightning_ssl.app.commands import report as command


@pytest.mark.usefixtures("empty_figures")
def test_tie_is_no_lead_in_any_file(tmp_path, capsys):
    for seed in range(2):
        for loss in ("direct", "infonce"):
            write_run(tmp_path / f"{loss}{seed}", loss, seed, 0.7, epochs=2)
    assert command.main([str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("Not decided. AlphaCL Direct p=4 τ=0.5 and SimCLR InfoNCE τ=0.5 have the same mean")
    texts = [line, Page(tmp_path / "report.html").words, (tmp_path / "report" / "table.md").read_text(encoding="utf-8")]
    for text in texts:
        assert not re.search(r"\b0\.00 (ahead|over)|[+-]0\.00|τ=0.5 wins|\*\*", text)


@pytest.mark.usefixtures("empty_figures")
def test_command_prints_the_page_and_the_winner(tmp_path, capsys):
    write_sweep(tmp_path / "runs", ("direct", "infonce"), seeds=5, spread=0.0005, epochs=2)
    assert command.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out" / "page.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(tmp_path / "out" / "page.html")
    assert lines[1].startswith("AlphaCL Direct p=4 τ=0.5 wins. ")
    assert len(lines) == 2
    assert (tmp_path / "out" / "page" / "table.tex").exists()


@pytest.mark.usefixtures("empty_figures")
def test_only_an_earlier_report_is_replaced(tmp_path):
    write_run(tmp_path / "runs" / "a")
    words = [str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]
    assert command.main(words) == command.main(words) == 0
    (tmp_path / "page.html").unlink()
    assert command.main(words) == 0  # as after a crash before the page
    other, folder = tmp_path / "mine.html", tmp_path / "notes"
    other.write_text("<html>mine")
    folder.mkdir()
    (folder / "runs.csv").write_text("mine")
    for page, line in ((other, "a file that `lightning-ssl report` did not write"), (folder, "has files that")):
        words = [str(tmp_path / "runs"), "--out", str(page.with_suffix(".html"))]
        with pytest.raises(ValueError, match=line):
            command.main(words)
    assert (other.read_text(), (folder / "runs.csv").read_text()) == ("<html>mine", "mine")
    assert command.main([*words, "--force"]) == 0


def test_watch_rebuilds_and_ends_with_a_final_page(tmp_path):
    folder, page = tmp_path / "runs", tmp_path / "page.html"
    folder.mkdir()
    receiver, sender = os.pipe()

    def watch():
        os.dup2(sender, 1)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.exit(command.main([str(folder), "--watch", "--every", "0.2", "--out", str(page)]))

    watcher = multiprocessing.get_context("fork").Process(target=watch)
    watcher.start()
    os.close(sender)
    with open(receiver, encoding="utf-8") as printed:
        try:
            assert "waiting for the first run" in printed.readline()
            write_run(tmp_path / "made" / "a", "direct", epochs=2)
            shutil.move(tmp_path / "made" / "a", folder / "a")
            assert "1 of 1 finished" in printed.readline()
            assert Page(page).data["refresh"] == 5
            write_run(tmp_path / "made" / "b", "infonce", epochs=2, accuracy=0.8)
            shutil.move(tmp_path / "made" / "b", folder / "b")
            assert "2 of 2 finished; SimCLR InfoNCE τ=0.5 has the highest mean" in printed.readline()
            os.kill(watcher.pid, signal.SIGINT)
            assert printed.readline() == f"{page}\n"
            watcher.join(timeout=600)
        finally:
            watcher.kill()
    assert watcher.exitcode == 0
    assert Page(page).data["refresh"] is None
    assert (tmp_path / "page" / "final.svg").exists()


@pytest.mark.usefixtures("empty_figures")
def test_a_full_disk_is_one_line_and_leaves_the_previous_report(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "runs" / "a")
    assert cli.main(["report", str(tmp_path / "runs")]) == 0
    before = content_of(tmp_path / "runs")
    write_run(tmp_path / "more" / "b")
    fsync, calls = os.fsync, []

    def fails_late(descriptor):
        calls.append(descriptor)
        if len(calls) > 5:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_late)
    capsys.readouterr()
    for folder, rest in (("runs", "; the previous file is unchanged"), ("more", "")):  # the second has no report
        calls.clear()
        assert cli.main(["report", str(tmp_path / folder)]) == 2
        line = rf"lightning-ssl: cannot write .*: No space left on device{rest}\n"
        assert re.fullmatch(line, capsys.readouterr().err)
    assert content_of(tmp_path / "runs") == before
    assert not [file for file in (tmp_path / "more").iterdir() if file.name != "b"]
