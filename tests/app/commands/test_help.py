"""`lightning-ssl fit --help`: one screen, and topics with texts from the docstrings."""

import re

import pytest

from lightning_ssl.app import cli
from lightning_ssl.app.commands import fit
from lightning_ssl.app.commands.parser import below_first_line
from lightning_ssl.app.config import flags as fit_flags
from lightning_ssl.app.config.configuration import CALLBACKS, root
from lightning_ssl.app.config.known import known_flags
from lightning_ssl.augment import PRESETS
from lightning_ssl.base.tree import Group
from lightning_ssl.data import DATASETS

PAGE = below_first_line(fit.__doc__)


@pytest.fixture(scope="module")
def sections():
    return fit_flags.sections()


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal of 100 columns, whatever the environment of the tests is."""
    monkeypatch.setenv("COLUMNS", "100")


def shown(topic, capsys):
    assert cli.main(["fit", "--help", topic]) == 0
    return capsys.readouterr().out


def test_help_is_one_screen(capsys):
    assert cli.main(["fit", "--config", "quickstart", "--help"]) == 0
    page = capsys.readouterr().out
    assert page == f"{PAGE}\n"
    assert len(page.splitlines()) <= 52
    assert max(map(len, page.splitlines())) <= 100


def test_every_flag_and_topic_of_the_screen_exists(sections, capsys):
    keys = {flag.key for section in sections.values() for flag in section.flags} | {"print_config", "probe", "knn"}
    used = set(re.findall(r"--([\w.]+)", PAGE)) - {"help", "FLAG"}
    assert len(used) >= 20
    assert used <= keys
    topics = PAGE.partition("--help TOPIC")[2].replace(",", " ").split()
    assert len(topics) > 10
    for topic in topics:
        assert shown(topic, capsys)


def test_the_names_on_the_screen_can_be_chosen(sections):
    flags = {flag.key: flag for section in sections.values() for flag in section.flags}
    for key in ("model", "model.importance", "model.backbone", "model.augment", "data.name", "logger"):
        line = next(line for line in PAGE.splitlines() if line.startswith(f"  --{key} "))
        text = line[41:].rpartition(": ")[2]
        names = line.split()[1].split("|") if key == "logger" else text.split(", ")
        assert set(names) - {"…"} <= set(flags[key].choices), key


def test_every_flag_of_the_parser_is_in_a_section(sections):
    keys = {flag.key for section in sections.values() for flag in section.flags}
    for key, argument in root().named().items():
        named = [f"{key}.{name}" for name in argument.type.named()] if isinstance(argument.type, Group) else [key]
        assert all(each in keys or each in sections for each in named), key


def test_the_flags_that_are_known_without_torch_are_those_of_the_signatures(sections):
    keys = {flag.key for section in sections.values() for flag in section.flags}
    assert set(known_flags()) == keys | set(CALLBACKS)


def test_every_flag_has_a_description(sections):
    for section in sections.values():
        for flag in section.flags:
            assert flag.description, f"{section.title}: {flag.key}"


@pytest.mark.parametrize(
    ("topic", "found", "absent"),
    [
        ("model.AlphaCL", "E_{sg(α)}", "--model.tau"),  # its equation
        ("model.AlphaCL", "--model.beta FLOAT", "--model.tau"),
        ("model.AlphaCL", "extra weight of the positive term (default: 0.0)", "--model.tau"),
        ("model.AlphaCL", "--model.backbone NAME", "--model.tau"),  # of every method
        ("Direct", "model.importance.Direct\n", "model.importance.Square\n"),  # a class is found by its name
        ("BYOL", "model.BYOL\n", "model.SimCLR\n"),
        ("trainer.log_every_n_steps", "(default: 10)", "(default: 50)"),  # not that of Lightning
        ("data.batch_size", "in data:\n  --data.batch_size INT", "data.root"),  # a flag alone
    ],
)
def test_a_topic_shows_its_own_flags(topic, found, absent, capsys):
    text = shown(topic, capsys)
    assert found in text
    assert absent not in text


def test_allowed_values_are_listed(capsys):
    text = " ".join(shown("all", capsys).split())
    for names in (PRESETS, DATASETS, ("resnet18", "timm:NAME"), ("Direct", "Tsallis"), ("bf16-mixed",)):
        assert all(name in text for name in names)


def test_a_method_shows_its_own_projector(sections):
    own = {flag.key: flag.default for flag in sections["model.BYOL"].flags}
    assert own["model.projector.out"] == "256"
