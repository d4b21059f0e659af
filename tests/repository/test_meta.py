"""The files around the code are valid and agree with it: citation, workflow, hooks, issue templates, change log."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from helpers import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import lightning_ssl

SCHEMAS = {
    "citation-file-format": ["CITATION.cff"],
    "github-workflows": [".github/workflows/checks.yaml"],
    "github-issue-forms": [f".github/ISSUE_TEMPLATE/{name}.yaml" for name in ("bug", "feature", "reproduction")],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def load(name):
    return yaml.safe_load(text(name))


def of_project(key):
    """A line of pyproject.toml; Python 3.10 has no reader of TOML."""
    return re.search(rf'^{key} = "(.*)"$', text("pyproject.toml"), flags=re.MULTILINE)[1]


@pytest.mark.parametrize(("schema", "files"), SCHEMAS.items(), ids=SCHEMAS)
def test_the_file_is_valid(schema, files):
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout


def test_version_and_license_are_the_same_everywhere():
    citation = load("CITATION.cff")
    assert citation["version"] == of_project("version") == lightning_ssl.__version__
    assert citation["license"] == of_project("license")
    assert f"## {citation['version']}" in text("CHANGELOG.md")


def test_the_badges_say_what_the_package_needs():
    lightning = re.search(r'"pytorch-lightning>=(\d+\.\d+)', text("pyproject.toml"))[1]
    shown = {"python": of_project("requires-python").replace(">=", "≥ "), "license": of_project("license")}
    for name, value in {**shown, "lightning": lightning}.items():
        assert f">{value}</text>" in text(f"docs/_static/{name}.svg")


def test_the_citation_has_the_five_papers():
    titles = [reference["title"] for reference in load("CITATION.cff")["references"]]
    assert len(titles) == 5
    assert all(title in text("docs/papers.md") for title in titles)
    cited = re.findall(r"^\d\. .*?\*(.*?)\*", text("README.md").partition("## Citation")[2], flags=re.MULTILINE)
    assert cited == titles


def dependencies():
    """The requirements of the package, by name."""
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text("pyproject.toml"), flags=re.MULTILINE | re.DOTALL)[1]
    found = map(Requirement, re.findall(r'^    "(.*?)"', listed, flags=re.MULTILINE))
    return {canonicalize_name(each.name): each for each in found}


def pins(name):
    """The versions of a file of requirements, by the name of the package."""
    found = map(Requirement, re.findall(r"^[^#\s-][^#\n]*", text(name), flags=re.MULTILINE))
    return {
        canonicalize_name(each.name): Version(str(each.specifier).removeprefix("=="))
        for each in found
        if each.marker is None or each.marker.evaluate()
    }


def test_the_oldest_versions_are_the_lower_bounds():
    bounds = {
        name: Version(each.version)
        for name, requirement in dependencies().items()
        for each in requirement.specifier
        if each.operator in (">=", "==")
    }
    assert bounds.keys() == dependencies().keys()  # every package has one
    assert bounds == pins("requirements-oldest.txt")


def test_the_pinned_versions_are_within_the_bounds():
    pinned = pins("requirements.txt")
    assert len(pinned) > 15
    for name, requirement in dependencies().items():
        assert name not in pinned or pinned[name] in requirement.specifier, name


def test_the_workflow_tests_the_oldest_packages_on_the_oldest_python():
    jobs = load(".github/workflows/checks.yaml")["jobs"]
    steps = jobs["oldest"]["steps"]
    (python,) = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
    assert python == of_project("requires-python").removeprefix(">=")
    assert python in jobs["pinned"]["strategy"]["matrix"]["python"]
    runs = [step["run"] for step in steps if "run" in step]
    assert any("-r requirements-oldest.txt" in run for run in runs)
    tested = [folder for run in runs for folder in re.findall(r"\btests/\w+", run)]
    assert len(tested) > 4
    assert all((ROOT / folder).is_dir() for folder in tested)


def test_the_workflow_and_the_hooks_call_what_exists():
    makefile = text("Makefile")
    for job in load(".github/workflows/checks.yaml")["jobs"].values():
        for step in job["steps"]:
            for target in re.findall(r"^make ([\w-]+)$", step.get("run", "")):
                assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    lint = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    for hook in load(".pre-commit-config.yaml")["repos"][0]["hooks"]:
        program = hook["entry"].split()[0].rpartition("/")[2]
        assert f"$(BIN)/{program}" in lint


LARGEST_ROOM, LONGEST_FILE = 15, 400  # files, lines
PER_VERB = {ROOT / "lightning_ssl/app/commands", ROOT / "tests/app/commands"}  # one file for each command
CODE = {".py", ".js", ".css", ".html"}


@pytest.mark.parametrize("house", ["lightning_ssl", "tests"])
def test_no_room_has_too_many_files_and_no_file_too_many_lines(house):
    """Links to the configurations and sweeps, which are data, are not followed."""
    for folder, _, names in os.walk(ROOT / house):
        files = [Path(folder, name) for name in names if "__pycache__" not in folder]
        assert len(files) <= LARGEST_ROOM or Path(folder) in PER_VERB, f"{folder} has {len(files)} files"
        for file in files:
            if file.suffix in CODE:
                lines = len(file.read_text(encoding="utf-8").splitlines())
                assert lines <= LONGEST_FILE, f"{file} has {lines} lines"


LOCAL = ("tests", "docs", "benchmarks")  # folders of modules that tests import by their names
DEPENDENCIES = {"packaging": "pytest"}  # imported by tests, installed with another


@cache
def named(file):
    """The names that a file imports, and the packages of its `importorskip`.

    An import inside a function of docs/ or benchmarks/ does not count.
    """
    found, guarded = set(), set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if file.is_relative_to(ROOT / "tests") else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            guarded.add(node.args[0].value)
    return found, guarded


def imports(file, seen):
    """The packages that a test needs, itself or in the local modules that it imports, but those of `importorskip`."""
    seen.add(file)
    names, guarded = named(file)
    found = {name.partition(".")[0] for name in names}
    paths = [name.replace(".", "/") for name in names]
    for each in {ROOT / top / end for path in paths for top in LOCAL for end in (f"{path}.py", f"{path}/__init__.py")}:
        if each not in seen and each.exists():
            found |= imports(each, seen)
    return found - guarded


def test_make_test_installs_what_the_tests_import():
    listed = {*pins("requirements.txt"), *pins("requirements-dev.txt")}
    for name, parent in DEPENDENCIES.items():
        assert parent in listed
        assert name in {canonicalize_name(Requirement(each).name) for each in distribution(parent).requires}
    known = {*sys.stdlib_module_names, "lightning_ssl"}
    known |= {path.stem for folder in LOCAL for path in (ROOT / folder).iterdir()}
    known |= {Path(file.parts[0]).stem for name in listed | DEPENDENCIES.keys() for file in distribution(name).files}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        if file.parent.name != "bolts":  # a separate environment
            assert imports(file, set()) - known == set(), file
