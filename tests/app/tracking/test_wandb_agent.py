"""The unmodified `wandb sweep` and `wandb agent`, and the runs that they start, with a server on the loopback."""

from functools import partial

import pytest
import yaml
from helpers import TESTS
from helpers.processes.wandb_client import grid, run_client
from helpers.processes.wandb_server import ENTITY, FLAGS, KEY, Server

from lightning_ssl.app.runs import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def client(tmp_path):
    """Runs W&B's command line."""
    return partial(run_client, tmp_path)


@pytest.fixture
def run_agent(tmp_path, client):
    """Runs a grid by `wandb sweep` and `wandb agent`. Returns the server, and the type of each command that it gave."""

    def run(flags, parameters, **options):
        content = {
            "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
            "command": ["${env}", *flags, *FLAGS, "${args}"],
            "parameters": {name: {"values": values} for name, values in parameters.items()},
        }  # fmt: skip
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(content))
        with Server(grid, **options) as server:
            assert f"wandb agent {ENTITY}/p/sweep0" in client(server, "sweep", "--project", "p", "sweep.yaml")
            client(server, "agent", f"{ENTITY}/p/sweep0")
        return server, [command["type"] for command in server.sweeps["sweep0"].handed_out]

    return run


def test_wandb_agent_runs_every_cell_and_the_server_gets_its_summary(tmp_path, run_agent):
    """The agent starts a program for each cell, and polls every 5 s."""
    powers = [2, 4]
    parameters = {"model.importance.p": [float(p) for p in powers], "seed_everything": [1]}
    server, _ = run_agent(["lightning-ssl", "fit"], parameters)
    received = list(server.runs.values())
    assert {"CreateAgent", "Heartbeat"} <= set(server.operations)
    assert [(run.config["p"], run.config["seed"]) for run in received] == [(p, 1) for p in powers]
    folders = {run.summary()["wandb"]["id"]: run for run in map(RunFolder, (tmp_path / "runs").iterdir())}
    for run in received:
        assert (run.exit_code, run.sweep, run.group, run.job_type, run.project) == (0, "sweep0", "sweep0", "fit", "p")
        assert run.config["model.importance.p"] == run.config["p"]  # the key that the agent writes
        last = folders[run.id].summary()["last"]
        assert [run.summary[name] == last[name] for name in ("online/top1", "knn/top1")] == [True, True]
        assert "best/online/top1" in run.summary
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]


def test_a_preempted_run_continues_and_a_stopped_one_does_not(tmp_path, run_agent):
    """The agent takes neither for a failure: it stops after one with WANDB_AGENT_MAX_INITIAL_FAILURES=1."""
    script = ["python", str(TESTS / "helpers" / "processes" / "preempted_fit.py"), str(tmp_path / "mark"), "step"]

    def is_long(run):
        return run.config.get("trainer.max_epochs") == 10_000 and len(run.history) > 2

    server, commands = run_agent(script, {"trainer.max_epochs": [3, 10_000]}, stops=is_long)
    preempted, stopped = server.runs.values()
    assert list(dict.fromkeys(commands)) == ["run", "resume", "stop", "exit"]
    assert (preempted.exit_codes, preempted.opened) == ([143, 0], 2)
    assert stopped.exit_codes == [255]
    first, second = (RunFolder(next(tmp_path.glob(f"runs/*-{run.id}"))) for run in (preempted, stopped))
    assert (first.summary()["status"], first.summary()["step"]) == ("finished", 6)
    assert (second.summary()["status"], second.newest_checkpoint() is None) == ("interrupted", False)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    logged = [row["train/loss_epoch"] for row in preempted.history if "train/loss_epoch" in row]
    assert logged == first.history("train/loss_epoch")


def test_a_run_that_is_preempted_while_it_imports_torch_is_handed_out_again(tmp_path, run_agent):
    script = ["python", str(TESTS / "helpers" / "processes" / "preempted_fit.py"), str(tmp_path / "mark"), "import"]
    server, commands = run_agent(script, {"trainer.max_epochs": [3]})
    (sent,) = server.runs.values()
    assert commands == ["run", "resume", "exit"]
    assert sent.exit_codes == [143, 0]
    (run,) = map(RunFolder, (tmp_path / "runs").iterdir())
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 6)
