"""The runs of a reproduction: their number, their data and their time."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import ROOT
from helpers.sweeps import FAKE_COMMAND

from lightning_ssl.app.reproduce import planning
from lightning_ssl.app.reproduce.planning import Planned
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.sweep import cost, plan, scales
from lightning_ssl.app.sweep.engine import Engine, check_settings, preview
from lightning_ssl.app.sweep.state import State

CPU = scales.scale_named("cpu")
SETTINGS = {
    "data.name": "cifar10", "data.root": "data", "data.batch_size": 128, "trainer.max_epochs": 10,
    "trainer.limit_train_batches": 0.2, "model.backbone": "resnet_tiny", "model.image_size": 32,
}  # fmt: skip


def planned_table4(folder, seeds=2, **settings):
    sweep = plan.read(ROOT / "sweeps" / "table4_cifar10.yaml", "table4_cifar10-cpu", extra_flags=CPU.flags, seeds=seeds)
    return Planned(
        sweep, folder, [{**SETTINGS, **settings, "seed_everything": c["seed_everything"]} for c in sweep.cells]
    )


def finish(planned, number, seconds):
    """Record the first trials of a sweep as finished."""
    planned.folder.mkdir(parents=True, exist_ok=True)
    with State(planned.folder / "sweep.db") as state:
        state.set_settings(planned.plan.fixed_settings())
        for k, cell in enumerate(planned.plan.cells[:number], 1):
            state.add(k, f"{k:03d}", cell)
            state.set(f"{k:03d}", status="finished", seconds=seconds)


def test_the_time_is_images_by_speed_with_the_evaluation(tmp_path):
    found = planning.estimate([planned_table4(tmp_path)], replace(CPU, images_per_second=1000, evaluation_seconds=20))
    assert (found.total, found.left) == (10, 10)
    assert found.seconds == pytest.approx(10 * (100_000 / 1000 + 20))
    assert "1000 images/s of resnet_tiny" in found.line(1, "core")
    assert "20 min 00 s of one core, 11 min 40 s with 2 workers" in found.line(2, "core")


def test_finished_runs_are_not_counted_again_and_their_duration_is_used(tmp_path):
    planned = planned_table4(tmp_path / "sweep")
    finish(planned, 4, seconds=50.0)
    found = planning.estimate([planned], replace(CPU, evaluation_seconds=0))
    assert (found.total, found.left, found.seconds) == (10, 6, 300.0)
    assert "mean of 4 finished" in found.line(1, "core")
    given = planning.estimate([planned], replace(CPU, evaluation_seconds=0), images_per_second=100)
    assert given.seconds == pytest.approx(6 * 1000)


def test_a_larger_network_and_larger_images_cost_more():
    one = cost.relative_cost(SETTINGS, CPU)
    assert one == 1
    assert cost.relative_cost({**SETTINGS, "model.backbone": "resnet18"}, CPU) > 5
    assert cost.relative_cost({**SETTINGS, "model.image_size": 64}, CPU) == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(
    ("limit", "images"), [(0.2, 100_000), (None, 500_000), (10, 12_800), (10.0, 12_800), (1.0, 500_000)]
)
def test_the_images_of_a_run(limit, images):
    assert cost.images_of({**SETTINGS, "trainer.limit_train_batches": limit}) == images


def test_runs_on_data_that_cannot_be_fetched_are_left_out_with_one_line(tmp_path, monkeypatch):
    def refuse(name, root):
        raise ValueError(f"{name}: no connection")

    monkeypatch.setattr(planning.data, "fetch", refuse)
    planned = planned_table4(tmp_path, **{"data.root": str(tmp_path), "data.name": "cifar100"})
    missing = planning.missing_data([planned], fetch=True)
    assert missing == {"cifar100": "cifar100 is missing, its runs are left out: cifar100: no connection"}
    assert planning.without([planned], missing) == []
    assert "downloaded before the first run" in planning.missing_data([planned], fetch=False)["cifar100"]


def test_data_that_is_there_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(planning.data, "fetch", None)
    (tmp_path / "cifar10").mkdir()
    for split in ("train", "test"):
        (tmp_path / "cifar10" / f"{split}.pt").touch()
    assert planning.missing_data([planned_table4(tmp_path, **{"data.root": str(tmp_path)})], fetch=True) == {}


# ---------------------------------------------------------------------------------------------------------------------
# The sweep engine: more seeds, and a part of a grid


def test_more_seeds_are_added_to_the_trials_that_exist(tmp_path):
    finish(planned_table4(tmp_path, seeds=2), 10, 1.0)
    more = planned_table4(tmp_path, seeds=3)
    shown = [row for row, _ in preview(more.plan, tmp_path)]
    assert [row.parameters["seed_everything"] for row in shown] == [2] * 5
    assert [row.number for row in shown] == [11, 12, 13, 14, 15]
    assert len(planned_table4(tmp_path, seeds=1).trials()) == 5
    assert list(preview(planned_table4(tmp_path, seeds=1).plan, tmp_path)) == []


def test_a_part_of_a_grid_is_completed_later(tmp_path):
    whole = planned_table4(tmp_path)
    part = whole.keep(lambda cell, _: cell["model.importance.p"] > 4)
    finish(part, len(part.plan.cells), 1.0)
    left = [row.parameters["model.importance.p"] for row, _ in preview(whole.plan, tmp_path)]
    assert left == [2, 2, 4, 4]


def test_a_changed_grid_is_still_refused(tmp_path):
    planned = planned_table4(tmp_path)
    finish(planned, 1, 1.0)
    changed = {**planned.plan.config["parameters"], "trainer.max_epochs": {"value": 2}}
    other = replace(planned.plan, config={**planned.plan.config, "parameters": changed})
    with State(tmp_path / "sweep.db") as state, pytest.raises(ValueError, match=r"has changed .*\(parameters\)"):
        check_settings(state, other, Path("table4"))


def test_a_sweep_goes_on_with_another_number_of_devices(tmp_path):
    planned = planned_table4(tmp_path)
    finish(planned, 10, 1.0)
    elsewhere = {**planned.plan.config["parameters"], "trainer.devices": {"value": 4}}
    cells = [{**cell, "trainer.devices": 4} for cell in planned.plan.cells]
    moved = replace(planned.plan, config={**planned.plan.config, "parameters": elsewhere}, cells=cells)
    assert list(preview(moved, tmp_path)) == []
    assert len(replace(planned, plan=moved).trials()) == 10


def test_cells_that_differ_in_an_incidental_key_are_different_cells():
    sweep = planned_table4(Path("sweep")).plan
    varied = {**sweep.config["parameters"], "data.seed": {"values": [0, 1]}}
    varied_sweep = replace(sweep, config={**sweep.config, "parameters": varied})
    one, two = ({**sweep.cells[0], "data.seed": seed} for seed in (0, 1))
    assert varied_sweep.identity(one) != varied_sweep.identity(two)
    assert sweep.identity(one) == sweep.identity(two)


def test_the_engine_tells_of_each_trial_when_it_has_ended(tmp_path):
    parameters = {"quality": {"values": [0.5]}, "fail": {"values": [0, 1]}}
    content = {"method": "grid", "command": FAKE_COMMAND, "parameters": parameters}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(content))
    sweep, seen = plan.read(tmp_path / "one.yaml", "one"), []
    engine = Engine(sweep, tmp_path / "one", ended=lambda run: seen.append(RunFolder(run).status()))
    assert engine.run() == 1
    assert seen == ["finished", "failed"]
