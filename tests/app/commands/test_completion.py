"""Tab completion in a real bash, and the list of all public flags."""

import contextlib
import io
import shlex
import shutil
import subprocess
from pathlib import Path

from helpers import ROOT

from lightning_ssl import callbacks
from lightning_ssl.app import cli
from lightning_ssl.app.commands import completion
from lightning_ssl.app.config import catalog

FLAGS = Path(__file__).with_name("flags.txt")
UPDATE = 'python -c "from lightning_ssl.app.commands.completion import *; print(*all_flags(), sep=chr(10))" > ' + str(
    FLAGS.relative_to(ROOT)
)


def script(shell):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(["completion", shell]) == 0
    return out.getvalue()


# The words of a line, the last of them before the tab key, and what bash completes.
COMPLETED = {
    ("",): list(cli.COMMANDS),
    ("ev",): ["evaluate"],
    ("fit", "--trainer.max_ep"): ["--trainer.max_epochs"],
    ("fit", "--model.importance.g"): ["--model.importance.gamma"],
    ("data", "fetch", "--so"): ["--source"],
    ("lab", "hltm", "--wi"): ["--widths"],
    ("fit", "--model", "Al"): ["AlphaCL"],
    ("fit", "--model.augment", "paper_c"): ["paper_cifar"],
    ("fit", "--data.name", "cifar"): ["cifar10", "cifar100"],
    ("fit", "--config", "quick"): ["quickstart"],
    ("fit", "--config", "quickstart", "--config", "method/simc"): [],
    ("fit", "--config", "quickstart", "--config", "method/sims"): ["method/simsiam"],
    ("fit", "--config", "pyproject"): ["pyproject.toml"],
    ("fit", "--help", "model.Al"): ["model.AlphaCL"],
    ("sweep", "table4"): ["table4", "table4_cifar10"],
    ("reproduce", "dual"): ["dual-table2", "dual-table3"],
    ("data", "fetch", "st"): ["stl10"],
    ("lab", "hl"): ["hltm"],
    ("evaluate", "--protocol", "l"): ["lbfgs"],
    ("report", "benchm"): ["benchmarks"],
    ("list", ""): list(catalog.SECTIONS),
}


def test_bash_completes_flags_names_and_files():
    program = script("bash") + "function=$(complete -p lightning-ssl | sed 's/.* -F \\([^ ]*\\) .*/\\1/')\n"
    for words in COMPLETED:
        program += f"COMP_WORDS=(lightning-ssl {shlex.join(words)}); COMP_CWORD={len(words)}; COMPREPLY=()\n"
        program += '"$function"; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash"], input=program, capture_output=True, text=True, cwd=ROOT, check=True, timeout=600)
    assert done.stderr == ""
    found = [line.split() for line in done.stdout.splitlines()]
    assert dict(zip(COMPLETED, found, strict=True)) == COMPLETED


def test_zsh_has_a_script_too(tmp_path):
    text = script("zsh")
    assert text.startswith("#compdef lightning-ssl")
    assert "--trainer.max_epochs" in text
    assert "_lightning_ssl_configs() {" in text
    if shutil.which("zsh"):
        (tmp_path / "_lightning-ssl").write_text(text)
        subprocess.run(["zsh", "-n", tmp_path / "_lightning-ssl"], check=True, timeout=600)


def test_the_public_flags_are_those_of_the_list():
    """A flag that is added, renamed or removed changes flags.txt, so that a diff shows it.

    The flags of a new loss or callback follow from its class.
    """
    known = FLAGS.read_text(encoding="utf-8").splitlines()
    of_classes = tuple(f"lightning-ssl fit --{part}." for part in ("model.importance", *callbacks.BY_FLAG))
    found = [flag for flag in completion.all_flags() if flag in known or not flag.startswith(of_classes)]
    added, removed = sorted(set(found) - set(known)), sorted(set(known) - set(found))
    assert not added and not removed, f"added: {added}, removed: {removed}; if it is meant: {UPDATE}"  # noqa: PT018
