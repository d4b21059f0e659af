"""The flags that W&B's agent passes to `lightning-ssl fit`. Importing this module does not import wandb.

A new run gets the parameters of the sweep. A run that was preempted, and is handed out again, gets its whole
configuration in W&B: the parameters, and what the run itself logged (logger.py, `wandb_config`), in any order:

    --_wandb={…} --label=… --loss=Direct --model.importance.p=4 --settings={…} --config=configs/method/direct.yaml

The other words of the sweep's command stand before and after these, as in the first start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning_ssl.app.config.keys import FLAGS
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.untrusted import load_yaml, read_text

PARAMETERS = "WANDB_SWEEP_PARAM_PATH"  # the file in which the agent writes the configuration that it passes


def sweep_flags(argv: list[str]) -> list[str]:
    """The flags of the first start of a run that W&B hands out again. Other command lines are returned as they are."""
    if "_wandb" not in map(key_of, argv):
        return argv
    passed, step = agent_words(argv)
    flags = [argv[at : at + step] for at in passed]
    kept = [flag for flag in flags if key_of(flag[0]).partition(".")[0] in FLAGS]
    # A file before the flags that change it, and a class before its arguments.
    kept.sort(key=lambda flag: (key_of(flag[0]) != "config", key_of(flag[0])))
    return [*argv[: passed.start], *(word for flag in kept for word in flag), *argv[passed.stop :]]


def agent_words(argv: list[str]) -> tuple[range, int]:
    """The positions of the flags that the agent passed, and the number of words of each.

    One word: `--key=value`, from ${args}. Two words: `--key value`, from ${args_no_equals}.
    From ${args_no_boolean_flags} one word too: `--key` for true, and none for false.
    """
    passed = passed_configuration()
    without_false = [key for key in passed if passed[key] is not False]
    for keys, step in ((list(passed), 1), (list(passed), 2), (without_false, 1)):
        for start in range(len(argv) - step * len(keys) + 1):
            words = range(start, start + step * len(keys), step)
            if [key_of(argv[at]) for at in words] == keys:
                return words, step
    raise UserError(f"{PARAMETERS}={os.environ[PARAMETERS]}: it has other flags than the command line of W&B's agent")


def passed_configuration() -> dict[str, Any]:
    """The configuration that the agent passed, in the order of its flags."""
    content = load_yaml(read_text(Path(os.environ.get(PARAMETERS, "")), key=PARAMETERS))
    entries = {str(key): entry for key, entry in content.items() if key != "wandb_version"}
    return {key: entry.get("value") if isinstance(entry, dict) else entry for key, entry in entries.items()}


def key_of(word: str) -> str:
    """`a.b` of `--a.b` and of `--a.b=1`; empty for a word that is no flag."""
    return word[2:].partition("=")[0] if word.startswith("--") else ""
