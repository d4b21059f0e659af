"""The report says which images an accuracy comes from, and warns of choices on test images."""

import pytest
from helpers.run_folders import grouping_of, write_run, write_sweep, write_trials

from lightning_ssl.app.report.compose import build
from lightning_ssl.app.report.images import choice_on_test_images, measured_on
from lightning_ssl.app.sweep.state import State


def hold_out(number):
    return lambda config: config["data"].update(holdout=number)


def test_losses_with_one_setting_each_are_measured_on_test_images_and_nothing_is_chosen(tmp_path):
    grouping = grouping_of(write_sweep(tmp_path / "runs", seeds=2))
    assert measured_on(grouping) == "online/top1 is measured on the test images."
    assert choice_on_test_images(grouping) is None


def test_held_out_images_are_named_and_a_choice_on_them_is_no_warning(tmp_path):
    for k, loss in enumerate(("direct", "direct_p6")):
        write_run(tmp_path / loss, loss, accuracy=0.5 + 0.1 * k, change=hold_out(500))
    grouping = grouping_of(tmp_path)
    assert measured_on(grouping) == "online/top1 is measured on images held out of the training set (data.holdout 500)."
    assert choice_on_test_images(grouping) is None


def test_a_linear_evaluation_is_measured_on_test_images_whatever_is_held_out(tmp_path):
    for loss in ("direct", "direct_p6"):
        write_run(tmp_path / loss, loss, linear={"linear/adam_top1": 0.6}, change=hold_out(500))
    grouping = grouping_of(tmp_path)
    assert measured_on(grouping) == "linear/adam_top1 is measured on the test images."
    assert "2 settings of AlphaCL Direct" in choice_on_test_images(grouping)


def test_several_settings_of_a_loss_on_test_images_are_a_choice(tmp_path):
    write_trials(tmp_path / "temperature", "model.importance.tau", [0.1, 0.5, 1.0])
    warning = choice_on_test_images(grouping_of(tmp_path))
    assert "3 settings of AlphaCL Direct" in warning
    assert "data.holdout" in warning


def test_runs_with_different_holdouts_are_not_ranked_together(tmp_path):
    write_run(tmp_path / "one", "direct")
    write_run(tmp_path / "two", "infonce", change=hold_out(500))
    grouping = grouping_of(tmp_path)
    assert "for shapes, holdout=0" in measured_on(grouping)


@pytest.mark.parametrize(("held", "searched"), [(0, True), (500, False)])
def test_a_search_by_test_images_is_named(tmp_path, held, searched):
    folder = tmp_path / "hyperband"
    write_run(folder / "001", "direct", change=hold_out(held))
    with State(folder / "sweep.db") as state:
        search = {"method": "random", "metric": {"name": "online/top1"}, "early_terminate": {"type": "hyperband"}}
        state.set_settings(search)
    warning = choice_on_test_images(grouping_of(tmp_path))
    assert (warning is not None and "hyperband searched by an accuracy on test images" in warning) == searched


def test_the_page_and_the_table_have_the_note_and_the_warning(tmp_path):
    write_trials(tmp_path / "runs", "model.importance.tau", [0.1, 0.5])
    built = build([tmp_path / "runs"], figures=False)
    for text in (
        built.page.read_text(encoding="utf-8"),
        (tmp_path / "runs" / "report" / "table.md").read_text("utf-8"),
    ):
        assert "is measured on the test images" in text.replace("\\", "")
        assert "is chosen on test images" in text.replace("\\", "")
