"""`lightning-ssl sweep FILE --until decided --write-next NEXT`: looks at runs of agents of W&B."""

import random
import re
from pathlib import Path

import pytest
import yaml
from helpers.processes.wandb_client import grid, run_client
from helpers.processes.wandb_server import ENTITY, FLAGS, Server
from helpers.run_folders import write_run

from lightning_ssl.app.runs.looks import read_looks
from lightning_ssl.app.sweep import plan
from lightning_ssl.app.sweep.cost import complete_configs

DECIDED = ("--until", "decided")


@pytest.fixture
def write_grid(write_sweep):
    """Writes a sweep file of τ and p of Direct."""

    def write(taus=(0.1, 0.5), powers=(2,), seeds=(0, 1)):
        parameters = {
            "config": {"value": "method/direct"},
            "model.importance.tau": {"values": list(taus)},
            "model.importance.p": {"values": list(powers)},
            "seed_everything": {"values": list(seeds)},
        }
        metric = {"name": "online/top1", "goal": "maximize"}
        return write_sweep(parameters=parameters, metric=metric, command=["lightning-ssl", "fit", "${args}"])

    return write


@pytest.fixture
def run_agent(tmp_path):
    """Writes the run folders of a sweep file as agents on other machines do. The best τ is the largest."""

    def run(file, spread=0.003, status="finished"):
        sweep = plan.read(Path(file))
        for cell, config in zip(sweep.cells, complete_configs(sweep), strict=True):

            def change(found, config=config):
                found.clear()
                found.update(config)

            tau, p, seed = (cell[key] for key in ("model.importance.tau", "model.importance.p", "seed_everything"))
            accuracy = 0.5 + 0.04 * tau + spread * random.Random(f"{tau}{p}{seed}").gauss(0, 1)
            folder = tmp_path / "runs" / f"run-{tau}-{p}-{seed}"
            if not folder.exists():
                write_run(folder, "direct", seed, accuracy, epochs=1, status=status, change=change)
        return len(sweep.cells)

    return run


@pytest.fixture
def write_next(run_sweep, tmp_path):
    def run(file, *words):
        return run_sweep(file, *DECIDED, "--write-next", str(tmp_path / "next.yaml"), *words)

    return run


def test_the_next_seeds_are_run_until_the_sweep_is_decided(write_grid, run_agent, write_next, tmp_path):
    file, following = write_grid(taus=(0.1, 0.11, 0.9)), tmp_path / "next.yaml"
    run_agent(file)
    found = write_next(file)
    assert found.stdout == f"9 runs are missing for the look at 5 seeds: wandb sweep {following}\n"
    content = yaml.safe_load(following.read_text())
    assert content["parameters"]["seed_everything"] == {"values": [2, 3, 4]}
    assert content["parameters"]["config"] == {"value": "method/direct"}
    assert content["name"] == "one-5-seeds"
    assert run_agent(following) == 9
    found = write_next(file)
    (look,) = read_looks(tmp_path / "runs" / "one")
    assert (look.outcome, look.losses) == ("wins", 3)
    assert found.stdout == f"after 5 seeds: {look.survivors[0]} wins\n"
    assert "0.9" in look.survivors[0]


def test_only_survivors_get_more_seeds_and_a_file_for_each_grid(write_grid, run_agent, write_next, run_sweep, tmp_path):
    file, following = write_grid(taus=(0.1, 0.11, 2.0), powers=(2, 4), seeds=range(5)), tmp_path / "next.yaml"
    run_agent(file)
    found = write_next(file)
    (look,) = read_looks(tmp_path / "runs" / "one")
    assert (look.outcome, len(look.survivors)) == ("continue", 2)
    assert found.stdout.splitlines()[-1].startswith("6 runs are missing for the look at 8 seeds: ")
    content = yaml.safe_load(following.read_text())
    assert content["parameters"]["model.importance.tau"] == {"values": [2.0]}
    assert content["parameters"]["seed_everything"] == {"values": [5, 6, 7]}
    dry = run_sweep(following, "--dry-run")
    assert (dry.returncode, dry.stdout.count("lightning-ssl fit")) == (0, 6)


def test_runs_that_are_no_grid_get_several_files(write_grid, run_agent, write_next, tmp_path):
    file = write_grid(powers=(2, 4), seeds=range(5))
    run_agent(file)
    (missing,) = tmp_path.glob("runs/run-0.1-4-3")
    (missing / "config.yaml").unlink()
    (other,) = tmp_path.glob("runs/run-0.5-2-1")
    (other / "config.yaml").unlink()
    found = write_next(file)
    files = [tmp_path / "next.yaml", tmp_path / "next-2.yaml"]
    assert found.stdout.endswith(f"wandb sweep {files[0]}; wandb sweep {files[1]}\n")
    cells = [cell for each in files for cell in plan.read(each).cells]
    keys = ("model.importance.tau", "model.importance.p", "seed_everything")
    assert sorted(tuple(cell[key] for key in keys) for cell in cells) == [(0.1, 4, 3), (0.5, 2, 1)]
    assert [plan.read(each).name for each in files] == ["one-5-seeds", "one-5-seeds-2"]


def test_a_look_waits_for_runs_that_have_not_ended(write_grid, run_agent, write_next, tmp_path):
    file = write_grid(seeds=range(5))
    run_agent(file, status="running")
    assert write_next(file).stdout == "10 of 10 runs have not ended; the same command looks at them later\n"
    assert not read_looks(tmp_path / "runs" / "one")


def test_without_run_folders_there_is_no_look(write_grid, write_next, tmp_path):
    found = write_next(write_grid())
    assert found.returncode == 2
    runs = str(tmp_path / "runs")
    line = f"runs={runs!r}: no run of one below it; --write-next reads run folders on a shared disk"
    assert found.stderr == f"lightning-ssl: {line}\n"


def test_another_file_is_not_replaced(write_grid, run_agent, write_next, tmp_path):
    file = write_grid()
    run_agent(file)
    (tmp_path / "next.yaml").write_text("mine")
    found = write_next(file)
    assert found.returncode == 2
    assert "write-next must be a new file, or one that `lightning-ssl sweep` wrote" in found.stderr
    assert (tmp_path / "next.yaml").read_text() == "mine"


@pytest.mark.slow
def test_agents_of_wandb_run_the_written_files_until_the_last_look(write_sweep, write_next, tmp_path, monkeypatch):
    """About a dozen programs of some seconds, and the agent polls every 5 s."""
    monkeypatch.chdir(tmp_path)
    parameters = {"model.importance.p": {"values": [2.0, 4.0]}, "seed_everything": {"values": [0, 1, 2]}}
    file = write_sweep(
        parameters=parameters,
        metric={"name": "online/top1", "goal": "maximize"},
        command=["${env}", "lightning-ssl", "fit", *FLAGS, "${args}"],
    )
    seen = []
    with Server(grid) as server:
        for number, sweep_file in enumerate([file, "next.yaml", "next.yaml"]):
            run_client(tmp_path, server, "sweep", "--project", "p", str(sweep_file))
            run_client(tmp_path, server, "agent", f"{ENTITY}/p/sweep{number}")
            found = write_next(file, "--max-seeds", "6")
            assert found.returncode == 0, found.stderr
            seen.append(re.findall(r"(\d+) runs are missing|after (\d) seeds: (\w+)", found.stdout))
            if read_looks(tmp_path / "runs" / "one") and "missing" not in found.stdout:
                break
    looks = read_looks(tmp_path / "runs" / "one")
    assert seen[0] == [("4", "", "")]
    assert looks[0].seeds == 5
    assert looks[-1].decided or looks[-1].seeds == 6
    assert len(list((tmp_path / "runs").glob("*/config.yaml"))) == (10 if len(looks) == 1 else 12)
