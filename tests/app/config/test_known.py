"""Wrong flags, names and files are refused without importing torch or Lightning."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "pytorch_lightning", "wandb", "matplotlib", "scipy")
PROGRAM = f"""
import sys
from lightning_ssl.app import cli
code = cli.main(sys.argv[1:])
print("imported:", *(name for name in {HEAVY} if name in sys.modules))
sys.exit(code)
"""


def run(*words):
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--modle", "X"], "--modle: unknown flag; did you mean --model?"),
        (["--epochs=3"], "--epochs: unknown flag; did you mean --trainer.max_epochs?"),
        (["--model.importance.taau=3"], "--model.importance.taau: unknown flag; did you mean --model.importance.tau"),
        (["--model", "Foo"], "model=Foo: expected one of"),
        (["--name", "../x"], "name='../x': name must be a folder name"),
        (["--config", "quickstrat"], "config=quickstrat: no such file; did you mean quickstart?"),
        (["--resume", "nowhere"], "resume='nowhere': resume must be auto, never"),
        (["--seed_everything", "x"], "seed_everything=x: expected int"),
        (["word"], "'word': expected a flag"),
    ],
)
def test_a_wrong_command_line_is_answered_without_torch(words, line):
    result = run("fit", *words)
    assert result.returncode == 2
    assert result.stderr.startswith(f"lightning-ssl: {line}")
    assert result.stdout.strip() == "imported:"


def test_the_catalogue_is_listed_without_torch():
    result = run("list")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].strip() == "imported:"


def test_flags_below_a_class_of_the_user_are_left_to_it():
    from lightning_ssl.app.config.known import check_early
    from lightning_ssl.app.config.text import steps

    check_early(list(steps(["--model.importance=mine.Scaled", "--model.importance.scale=2"])))
    check_early(list(steps(["--data.options.anything=2", "--trainer.callbacks.monitor=x", "--trainer.strategy.dim=0"])))
    with pytest.raises(ValueError, match=r"--model\.importance\.scale: unknown flag"):
        check_early(list(steps(["--model.importance=Direct", "--model.importance.scale=2"])))
