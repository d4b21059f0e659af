"""The files in deploy/ that start containers: valid for their programs, and in agreement with the Dockerfile."""

import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from helpers import ROOT
from wandb.cli.cli import agent

from lightning_ssl.app import cli
from lightning_ssl.app.runs.version import version

DOCKERFILE = (ROOT / "deploy/docker/Dockerfile").read_text()
# The last line of each counts.
WORKSPACE, USER = (re.findall(rf"^{word} (\S+)$", DOCKERFILE, re.MULTILINE)[-1] for word in ("WORKDIR", "USER"))
COPIES = [line.split()[:-1] for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)]  # flags and sources
KUBERNETES = ROOT / "deploy/kubernetes/agents.yaml"
COMPOSE = ROOT / "deploy/compose.yaml"


@pytest.fixture(scope="module")
def pod():
    (job,) = [resource for resource in yaml.safe_load_all(KUBERNETES.read_text()) if resource["kind"] == "Job"]
    return job["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def services():
    """The services of the Compose file, with the default of every variable."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    assert "$" not in "".join(line.partition("#")[0] for line in text.splitlines())
    return yaml.safe_load(text)["services"]


@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
def test_kubernetes_accepts_every_resource(version):
    resources = list(yaml.safe_load_all(KUBERNETES.read_text()))
    assert [resource["kind"] for resource in resources] == ["PersistentVolumeClaim", "Job"]
    for resource in resources:
        kubernetes_validate.validate(resource, version, strict=True)


def test_compose_accepts_its_file():
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout


def test_keys_come_from_a_secret_or_the_shell(pod, services):
    keys = [variable for variable in pod["containers"][0]["env"] if variable["name"] == "WANDB_API_KEY"]
    assert keys == [{"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "api-key"}}}]
    assert services["agent"]["environment"]["WANDB_API_KEY"] is None


def test_a_pod_can_write_where_the_image_writes(pod):
    (container,), security = pod["containers"], pod["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == USER
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {WORKSPACE, "/tmp"}


@pytest.mark.parametrize("name", ["sweep", "agent"])
def test_a_service_can_write_where_the_image_writes(services, name):
    service = services[name]
    assert (service["user"], service["volumes"], service["read_only"]) == (USER, [f"..:{WORKSPACE}"], True)
    assert [place.partition(":")[0] for place in service["tmpfs"]] == ["/tmp"]


def test_every_command_is_understood(pod, services, tmp_path, capsys):
    for words in (pod["containers"][0]["args"], services["agent"]["command"]):
        assert words[:3] == ["launch.sh", "wandb", "agent"]  # by itself a stopped agent ends with exit code 0
        assert agent.make_context("agent", words[3:]).params["forward_signals"]
    assert cli.main([*services["sweep"]["command"], "--dry-run", "--runs", str(tmp_path)]) == 0
    assert "configs/method/direct.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["deploy/docker/Dockerfile", "docs/cluster.md"])
def test_an_example_of_an_agent_in_a_container_forwards_signals(file):
    """Otherwise `docker stop` ends the agent at once, and the engine kills its run."""
    text = (ROOT / file).read_text(encoding="utf-8")
    examples = re.findall(r"\n#? +lightning-ssl (?:launch\.sh )?wandb agent (.+)", text)
    assert examples
    for words in examples:
        assert agent.make_context("agent", words.split()).params["forward_signals"]


def test_compose_starts_only_services_that_are_named(services):
    """`docker compose up` would start the agent too, and without SWEEP there is no sweep for it."""
    assert all(service["profiles"] for service in services.values())


def test_a_program_of_the_image_runs_whatever_the_checkout_allows():
    """A checkout with umask 077 has files that only their owner can run."""
    programs = [words for words in COPIES if any(word.endswith(".sh") for word in words)]
    assert programs
    assert all("--chmod=0755" in words for words in programs)


def test_the_build_context_is_what_the_dockerfile_copies():
    copied = {word for words in COPIES for word in words if not word.startswith("--")}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_image_passes_the_commit():
    words = ["make", "--silent", "image", "BUILD=echo", "BUILD_FLAGS=--build-arg BASE=base"]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout.split()
    commit = version().partition("+g")[2]
    assert printed == ["--build-arg", f"COMMIT={commit}", "--tag", "lightning-ssl", "--build-arg", "BASE=base", "."]


def test_there_is_one_dockerfile():
    assert (ROOT / "Dockerfile").is_symlink()
    assert (ROOT / "Dockerfile").samefile(ROOT / "deploy/docker/Dockerfile")
