"""The flags that W&B's agent passes to `lightning-ssl fit`. Importing this module does not import wandb.

A new run gets the parameters of the sweep. A run that was preempted, and is handed out again, gets its whole
configuration in W&B: the parameters, and what the run itself logged (logger.py, `wandb_config`), in any order:

    --_wandb={…} --label=… --loss=Direct --model.importance.p=4 --settings={…} --config=configs/method/direct.yaml
"""

from __future__ import annotations

from lightning_ssl.runs.keys import FLAGS


def sweep_flags(argv: list[str]) -> list[str]:
    """The flags of the sweep, as in the first start of the run. Other command lines are returned as they are."""
    if not any(word.startswith("--_wandb=") for word in argv):
        return argv
    flags: list[list[str]] = []  # each with the words that follow it
    for word in argv:
        if word.startswith("-") or not flags:
            flags.append([word])
        else:
            flags[-1].append(word)
    kept = [flag for flag in flags if key_of(flag).partition(".")[0] in (*FLAGS, "c")]
    # A file before the flags that change it, and a class before its arguments.
    kept.sort(key=lambda flag: (key_of(flag) not in ("config", "c"), key_of(flag)))
    return [word for flag in kept for word in flag]


def key_of(flag: list[str]) -> str:
    return flag[0].lstrip("-").partition("=")[0]
