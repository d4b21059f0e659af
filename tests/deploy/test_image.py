"""The image: it trains, sweeps and runs agents as any user, also with a read-only root, and keeps no secret.

Its base has another user and a folder /workspace. Only the owner of the checkout can read it
(helpers/processes/image.py).
"""

import os
import shutil
import signal
import subprocess
import time

import pytest
import yaml
from helpers.processes.image import COMMIT, IMAGE, PROGRAMS, SECRET, Buildah, Container, make_context
from helpers.processes.wandb_server import ENTITY, FLAGS, KEY, Server

import lightning_ssl
from lightning_ssl.app.commands.names import COMMANDS
from lightning_ssl.app.runs import RunFolder

pytestmark = pytest.mark.slow

USER = "12345:12345"  # a user that the image does not know
WAYS = {
    "root": {"user": "0:0"},
    "the image's user": {},
    "another user": {"user": USER},
    "a read-only root": {"user": USER, "read_only": True},
}
SWEEP = {
    "method": "grid",
    "metric": {"name": "online/top1", "goal": "maximize"},
    "command": ["${env}", "lightning-ssl", "fit", *FLAGS, "${args}"],
    "parameters": {"model.importance.p": {"values": [2.0]}},
}


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    """buildah with the built image."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    buildah = Buildah(tmp_path_factory.mktemp("buildah"))
    try:
        buildah.import_base()
        buildah.build(make_context(buildah.folder / "context"))
        yield buildah
    finally:
        buildah.close()


@pytest.fixture
def container(buildah):
    return Container(buildah)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_fit_sweep_and_agents_start(container, tmp_path, way):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    container.run("fit", *FLAGS, "--name=one", **way, workspace=tmp_path)
    container.run("sweep", "sweep.yaml", "--name=two", **way, workspace=tmp_path)
    assert "Start a sweep agent" in container.run("wandb", "agent", "--help", **way, workspace=tmp_path)
    runs = [tmp_path / "runs/one", *(file.parent for file in (tmp_path / "runs/two").glob("*/summary.json"))]
    assert len(runs) == 2
    for run in runs:
        summary = RunFolder(run).summary()
        assert (summary["status"], summary["version"]) == ("finished", f"{lightning_ssl.__version__}+g{COMMIT}")
        assert run.stat().st_uid == int(way.get("user", container.config["User"]).split(":")[0])


def test_an_unknown_user_can_write_without_a_mounted_folder(container):
    container.run("fit", *FLAGS, "--name=one", user=USER)
    assert RunFolder(container.root / "workspace/runs/one").summary()["status"] == "finished"


def test_an_agent_finishes_its_trial_as_an_unknown_user_on_a_read_only_root(container, tmp_path):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    with Server(lambda text: [{"model.importance.p": 2.0}]) as server:
        way = {**WAYS["a read-only root"], "workspace": tmp_path, "environment": server.environment(patient=True)}
        container.run("wandb", "sweep", "--project=p", "sweep.yaml", **way)
        container.run("wandb", "agent", f"{ENTITY}/p/sweep0", **way)
        (received,) = server.runs.values()
    assert (received.exit_code, received.config["p"]) == (0, 2.0)
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 1
    assert not containing(KEY, [*tmp_path.rglob("*")])


@pytest.mark.parametrize("launcher", [[], ["launch.sh"]])
def test_an_agent_that_cannot_write_takes_no_trial(container, tmp_path, launcher):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    with Server(lambda text: [{"model.importance.p": 2.0}]) as server:
        way = {"workspace": tmp_path, "environment": server.environment(patient=True)}
        container.run("wandb", "sweep", "--project=p", "sweep.yaml", user="1000:1000", **way)
        words = container.words(*launcher, "wandb", "agent", f"{ENTITY}/p/sweep0", user=USER, owner=1000, **way)
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
        assert not server.sweeps["sweep0"].handed_out
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("entrypoint.sh: user 12345 cannot write to /workspace")


def test_no_secret_is_in_a_layer(buildah, tmp_path):
    buildah("push", "--disable-compression", IMAGE, f"dir:{tmp_path}")
    files = [*tmp_path.iterdir()]
    assert containing("a command of lightning-ssl", files)  # a line of the entry point: the layers are readable
    assert not containing(SECRET, files)


def containing(text, files):
    """The files that hold the text."""
    found = []
    for file in files:
        if file.is_file():
            done = subprocess.run(["grep", "--quiet", "--fixed-strings", "--text", text, file], check=False)
            assert done.returncode in (0, 1)
            found += [file] if done.returncode == 0 else []
    return found


def test_a_word_in_the_readme_does_not_install_the_packages_again(buildah):
    readme = buildah.folder / "context/README.md"
    readme.write_text(readme.read_text() + "\nmore\n")
    steps = buildah.build(readme.parent).split("STEP ")
    cached = {step.partition(": ")[2].partition("\n")[0] for step in steps if "Using cache" in step}
    assert any("-r /tmp/requirements.txt" in step for step in cached)
    assert not any("--no-deps /src" in step for step in cached)


def test_a_program_that_handles_no_signal_ends_at_sigterm(container, tmp_path):
    """Without an init it would be process 1, which the kernel protects from such signals."""
    with container.started("bash", "-c", "touch started; exec sleep 600", workspace=tmp_path) as (process, send):
        wait_for(lambda: (tmp_path / "started").exists())
        send(signal.SIGTERM)
        assert process.wait(timeout=600) == 128 + signal.SIGTERM


def test_a_stopped_agent_stops_its_run_first_and_ends_by_the_signal(container, tmp_path):
    """With exit code 0 Kubernetes would count the agent as complete, and would not replace it."""
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    with Server(lambda text: [{"trainer.max_epochs": 100_000}]) as server:
        way = {"user": USER, "workspace": tmp_path, "environment": server.environment(patient=True)}
        container.run("wandb", "sweep", "--project=p", "sweep.yaml", **way)
        words = ["launch.sh", "wandb", "agent", "--forward-signals", f"{ENTITY}/p/sweep0"]
        with container.started(*words, **way) as (process, send):
            wait_for(lambda: list(tmp_path.glob("runs/*/checkpoints/*.ckpt")))
            send(signal.SIGTERM)
            assert process.wait(timeout=120) == 128 + signal.SIGTERM
        (received,) = server.runs.values()
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunFolder(folder)
    assert run.summary()["status"] == "interrupted"
    assert run.newest_checkpoint().name == f"step-{run.summary()['step']:08d}.ckpt"  # that of the stop
    assert (received.preempting, received.exit_code) == (True, 128 + signal.SIGTERM)  # W&B hands the trial out again


def wait_for(condition, timeout=300):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_the_image_has_no_tools_of_development_and_no_program_that_hides_a_command(container):
    for program in ("npm", "node", "pytest", "ruff", "mypy", "gcc", *COMMANDS):
        assert container.run("bash", "-c", f"type -P {program} || echo none").strip() == "none"


def test_the_labels_name_the_commit(container):
    assert container.config["Labels"]["org.opencontainers.image.revision"] == COMMIT
    assert container.run("--version").strip().endswith(f"+g{COMMIT}")
