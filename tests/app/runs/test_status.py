"""The status of a run: one function for every reader."""

import pytest

from lightning_ssl.app.runs.status import STATUSES, Exit, status_of


@pytest.mark.parametrize("status", STATUSES)
def test_the_status_is_that_of_the_summary_and_broken_without_its_files_unless_the_run_failed(status):
    assert status_of({"status": status}) == status
    assert status_of({"status": status}, readable=False) == ("failed" if status == "failed" else "broken")


@pytest.mark.parametrize("summary", [{}, {"status": None}, {"status": "words"}, {"status": ["finished"]}])
def test_a_summary_without_a_known_status_is_broken(summary):
    assert status_of(summary) == "broken"


@pytest.mark.parametrize(
    ("trial", "summary", "status"),
    [
        ("failed", {"status": "interrupted"}, "failed"),
        ("failed", {}, "failed"),
        ("stopped", {"status": "interrupted"}, "stopped"),
        ("running", {}, "running"),
        ("running", {"status": "interrupted"}, "interrupted"),
        ("pending", {}, "broken"),
        ("finished", {}, "broken"),
        (["failed"], {"status": "finished"}, "finished"),
    ],
)
def test_the_state_of_an_older_sweep_completes_the_summary(trial, summary, status):
    assert status_of(summary, trial=trial) == status


@pytest.mark.parametrize(
    ("end", "recorded", "status"),
    [
        (Exit(0), "finished", "finished"),
        (Exit(0), None, "finished"),  # a program without a summary
        (Exit(None), "finished", "finished"),  # killed after its summary was written
        (Exit(None), "running", "interrupted"),  # it, or its parent, was killed
        (Exit(143), "interrupted", "interrupted"),
        (Exit(138), "interrupted", "interrupted"),  # SIGUSR1
        (Exit(143, pruned=True), "interrupted", "stopped"),
        (Exit(0, pruned=True), "finished", "finished"),  # it finished before the signal
        (Exit(1), "failed", "failed"),
        (Exit(1), "interrupted", "failed"),  # the summary of an earlier attempt
        (Exit(0), "failed", "failed"),
        (Exit(0), "interrupted", "interrupted"),
        (Exit(1), "running", "failed"),
        (Exit(-9), "running", "interrupted"),  # killed, but not by the engine
        (Exit(-11), "running", "failed"),  # a fault of its own
        (Exit(-9, interrupted=True), "running", "interrupted"),
    ],
)
def test_the_status_of_a_trial_follows_from_its_exit_code_and_summary(end, recorded, status):
    assert status_of({"status": recorded}, end=end) == status
