"""An importance that is chosen in place of another one starts with its own defaults."""

import pytest

from lightning_ssl.commands.packaged import expand_configs
from lightning_ssl.runs.class_defaults import flags_of_defaults
from lightning_ssl.runs.configuration import Configuration

QUICKSTART = ["--config=quickstart", "--model=AlphaCL"]
MODULE = """
class Margin:
    def __init__(self, tau: float = 0.3, margin: float = 1.0):
        self.tau, self.margin = tau, margin

    def __call__(self, d2_pos, d2_neg, valid=None):
        return (-d2_neg / self.tau).exp()


class Strict(Margin):
    def __init__(self, tau: float):
        super().__init__(tau)
"""


def arguments(*flags, key="importance"):
    """The class and the arguments of the importance."""
    values = Configuration.parse(expand_configs([*QUICKSTART, *flags])).values
    part = values.model.init_args[key]
    return part.class_path.rpartition(".")[2], dict(part.init_args.items())


def test_an_importance_has_its_own_default_and_not_that_of_the_method_s_importance():
    assert arguments("--model.importance=Square") == ("Square", {"tau": 5.0})
    assert arguments("--model.importance", "Square") == ("Square", {"tau": 5.0})


def test_a_value_of_a_file_counts_only_for_the_class_of_that_file():
    assert arguments("--config=method/entropy", "--model.importance=Square") == ("Square", {"tau": 5.0})
    assert arguments("--config=method/direct", "--config=method/square")[1] == {"tau": 5.0}


@pytest.mark.parametrize("flags", [("Square", "tau=2"), ("tau=2", "Square")])
def test_a_flag_counts_before_and_after_the_class(flags):
    words = [f"--model.importance.{flag}" if "=" in flag else f"--model.importance={flag}" for flag in flags]
    assert arguments(*words) == ("Square", {"tau": 2.0})


def test_a_flag_that_holds_class_and_arguments_counts():
    assert arguments("--model.importance={class_path: Square, init_args: {tau: 7}}")[1] == {"tau": 7.0}


def test_the_same_class_keeps_its_values():
    assert flags_of_defaults(expand_configs([*QUICKSTART, "--config=method/direct", "--model.importance=Direct"])) == []
    assert arguments("--config=method/direct", "--model.importance.p=6")[1]["p"] == 6


def test_a_family_has_its_own_default():
    words = ["--config=method/soft_triplet", "--config=method/triplet"]
    assert flags_of_defaults(expand_configs([*QUICKSTART, *words])) == []
    words = [
        "--model.importance=FromFamily",
        "--model.importance.family=SoftTriplet",
        "--model.importance.family=InfoNCE",
    ]
    assert flags_of_defaults([*QUICKSTART[1:], *words]) == ["--model.importance.family.tau=0.5"]
    assert flags_of_defaults([*QUICKSTART[1:], *words, "--model.importance=Square"]) == ["--model.importance.tau=5.0"]


def test_a_class_of_the_user_has_its_own_default(tmp_path, monkeypatch):
    (tmp_path / "margin_of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert arguments("--model.importance=margin_of_mine.Margin")[1] == {"tau": 0.3, "margin": 1.0}
    with pytest.raises(ValueError, match=r"model.importance.tau: margin_of_mine.Strict requires it"):
        arguments("--model.importance=margin_of_mine.Strict")


def test_print_config_prints_the_own_default(capsys):
    with pytest.raises(SystemExit):
        Configuration.parse(expand_configs([*QUICKSTART, "--model.importance=Square", "--print_config"]))
    assert "tau: 5.0" in capsys.readouterr().out
