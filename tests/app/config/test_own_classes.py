"""A user's own loss by its path: every mistake has its own line, with the key and the place in the user's file."""

import textwrap

import pytest

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.config.known import check_early
from lightning_ssl.app.config.text import steps

MODULE = """
    import torch
    from lightning_ssl.losses import Direct, Importance, Streaming

    NUMBER = 3

    def weights(d2_pos, d2_neg, valid):
        return torch.exp(-d2_neg)

    def of_two(d2_pos, d2_neg):
        return d2_neg

    def make(p: float = 3.0) -> Importance:
        return Direct(p=p)

    class Scaled:
        def __init__(self, scale: float = 1.0):
            if scale < 0:
                raise ArithmeticError("scale is negative")
            self.scale = scale

        def __call__(self, d2_pos, d2_neg, valid=None):
            return torch.exp(-self.scale * d2_neg)

    class Required(Scaled):
        def __init__(self, scale: float):
            super().__init__(scale)

    class Silent:
        pass

    class OfTwo:
        def __call__(self, d2_pos, d2_neg):
            return d2_neg

    class Cauchy(Streaming):
        def log_kernel(self, d2_neg):
            return -(1 + d2_neg).log()

    class Half(Importance):
        def vjp(self, d2_neg, alpha, cotangent):
            return None

    instance = Scaled(2.0)

    class Inherits(Required):
        pass
"""
SMALL = ["--data.options={train_images: 32, test_images: 32}", "--model.backbone=resnet_tiny"]


@pytest.fixture
def folder(working_directory):
    """A working directory with the user's modules."""
    files = {
        "mine.py": textwrap.dedent(MODULE),
        "typo.py": "def f(:\n    pass\n",
        "needs.py": "import math\nimport not_installed_here\n",
        "crashes.py": "x = 1\n\ny = x / 0\n",
        "parts/__init__.py": "",
        "parts/losses.py": "from mine import weights\n",
    }
    (working_directory / "parts").mkdir()
    for name, text in files.items():
        (working_directory / name).write_text(text)
    return working_directory


def parse(*flags):
    return Configuration.parse(["--model=AlphaCL", *SMALL, *flags])


@pytest.mark.parametrize(
    ("flags", "stored"),
    [
        (["--model.importance=mine.weights"], {"class_path": "mine.weights"}),
        (["--model.importance=mine.instance"], {"class_path": "mine.instance"}),
        (["--model.importance=parts.losses.weights"], {"class_path": "parts.losses.weights"}),
        (
            ["--config=method/direct", "--model.importance=mine.Scaled"],  # without the arguments of Direct
            {"class_path": "mine.Scaled", "init_args": {"scale": 1.0}},
        ),
        (
            ["--model.importance=mine.Scaled", "--model.importance.scale=2"],
            {"class_path": "mine.Scaled", "init_args": {"scale": 2.0}},
        ),
        (
            ["--model.importance", "mine.make", "--model.importance.p", "5"],
            {"class_path": "mine.make", "init_args": {"p": 5.0}},
        ),
        (["--model.importance=mine.Cauchy"], {"class_path": "mine.Cauchy", "init_args": {}}),
    ],
)
def test_an_own_loss_is_stored_under_its_own_path_and_builds(folder, flags, stored):
    config = parse(*flags)
    assert config.stored()["model"]["init_args"]["importance"] == stored
    (folder / "again.yaml").write_text(f"model: {{class_path: AlphaCL, init_args: {{importance: {stored}}}}}")
    again = Configuration.parse([f"--config={folder}/again.yaml", *SMALL])
    assert again.stored() == config.stored()
    assert type(again.build().method.loss.importance) is type(config.build().method.loss.importance)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["=absent.f"], "model.importance=absent.f: no module named 'absent' in {folder}"),
        (["=parts.losess.f"], "model.importance=parts.losess.f: parts/__init__.py has no 'losess'; did you mean"),
        (["=mine.weigths"], "model.importance=mine.weigths: mine.py has no 'weigths'; did you mean weights?"),
        (["=mine.qqqqq"], "model.importance=mine.qqqqq: mine.py has no 'qqqqq'; it has Cauchy, Direct,"),
        (["=needs.f"], "model.importance=needs.f: needs.py:2: ModuleNotFoundError: No module named 'not_installed"),
        (["=typo.f"], "model.importance=typo.f: typo.py:1: SyntaxError: invalid syntax"),
        (["=crashes.f"], "model.importance=crashes.f: crashes.py:3: ZeroDivisionError: division by zero"),
        (["=mine.NUMBER"], "model.importance=mine.NUMBER: builtins.int has no __call__; it must accept"),
        (["=mine.Silent"], "model.importance=mine.Silent: mine.py:29 has no __call__; it must accept"),
        (
            ["=mine.of_two"],
            "model.importance=mine.of_two: mine.py:10: it must accept (d2_pos, d2_neg, valid); "
            "its signature is (d2_pos, d2_neg)",
        ),
        (["=mine.OfTwo"], "model.importance=mine.OfTwo: mine.py:32: it must accept (d2_pos, d2_neg, valid)"),
        (["=mine.Half"], "model.importance=mine.Half: mine.py:40: class Half must define rows"),
        (
            ["=mine.Scaled", ".scal=2"],
            "model.importance.scal=2: unknown key scal for Scaled (mine.py:16); did you mean scale?",
        ),
        (["=mine.Scaled", ".x=2"], "model.importance.x=2: unknown key x for Scaled (mine.py:16); valid keys: scale"),
        (["=mine.Required"], "model.importance.scale: Required (mine.py:25) requires it"),
        (["=mine.Inherits"], "model.importance.scale: Inherits (mine.py:46) requires it"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_own_line(folder, flags, line):
    with pytest.raises(ValueError, match=r"\S") as refused:
        parse(*(f"--model.importance{flag}" for flag in flags))
    assert str(refused.value).startswith(line.format(folder=folder))
    assert len(str(refused.value).splitlines()) == 1


def test_an_error_of_the_constructor_names_file_and_line(folder):
    config = parse("--model.importance=mine.Scaled", "--model.importance.scale=-1")
    with pytest.raises(ValueError, match=r"^model\.importance=mine\.Scaled: mine\.py:19: ArithmeticError: scale"):
        config.build()


def test_flags_below_a_class_of_the_user_are_left_to_it():
    check_early(list(steps(["--model.importance=mine.Scaled", "--model.importance.scale=2"])))
    check_early(list(steps(["--data.options.anything=2", "--trainer.callbacks.monitor=x", "--trainer.strategy.dim=0"])))
    with pytest.raises(ValueError, match=r"--model\.importance\.scale: unknown flag"):
        check_early(list(steps(["--model.importance=Direct", "--model.importance.scale=2"])))
