"""`lightning-ssl tune FILE`: give each loss its best setting, then compare the losses with fresh seeds.

examples:
  lightning-ssl tune sweeps/tune_shapes.yaml --workers 2     tunes, chooses, confirms; the same command resumes
  lightning-ssl report runs/tune_shapes                      which loss is better when each has its best setting
  lightning-ssl tune sweeps/tune_shapes.yaml --dry-run       print the runs and their commands
  lightning-ssl tune sweeps/tune_shapes.yaml --status        print the progress
  lightning-ssl tune sweeps/tune_shapes.yaml --until decided adds fresh seeds until one loss wins, at most 12

on a cluster, with W&B's agents and run folders on a shared disk:
  lightning-ssl tune sweeps/tune_cifar10.yaml --write tuned  write tuned/tuning.yaml, and run nothing
  wandb sweep tuned/tuning.yaml                              then `wandb agent` on every machine
  lightning-ssl tune sweeps/tune_cifar10.yaml --write tuned --choose runs
  wandb sweep tuned/confirm.yaml                             written by the choice
  lightning-ssl report runs tuned

FILE is a sweep file with a block `tune`, which names the losses and the same number of settings for each. The tuning
seeds are trained on a part of the training images and measured on the rest (data.holdout). The choice, by the mean over
seeds, is frozen in choice.json. Fresh seeds are then trained on all training images and measured on the test images.
Flags after `--` are added to every run's command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.commands.sweep import devices_of, share_cores
from lightning_ssl.app.config import packaged
from lightning_ssl.base.checks import MAX_SEED, require, require_line
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from lightning_ssl.app.runs.choice import Choice
    from lightning_ssl.app.study.tuning import Tuning


def main(argv: Sequence[str]) -> int:
    """Run, resume or show a tuning. The exit code is 0 if no run failed, 1 if one failed, 130 if interrupted."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    return run(argv[end + 1 :], **COMMAND.parse(argv[:end]))


def run(
    extra_flags: Sequence[str],
    /,
    file: str,
    *,
    workers: int = 1,
    dry_run: bool = False,
    status: bool = False,
    write: str | None = None,
    choose: Sequence[str] = (),
    runs: str = "runs",
    name: str | None = None,
    seed: int = 0,
    gpus: str | None = None,
    retry: bool = False,
    until: Literal["decided"] | None = None,
) -> int:
    """Tune every loss with the same budget, freeze the choice, and compare the losses with fresh seeds.

    Args:
        file: a sweep file with a block `tune`, such as sweeps/tune_shapes.yaml
        workers: runs at a time; they share the cores
        dry_run: print the runs of the next step and their commands, run nothing
        status: print the progress, run nothing
        write: folder for the sweep files, which another machine runs
        choose: choose by the finished runs below this folder, and run nothing; can be given several times
        runs: parent of the tuning's folder
        name: name of the tuning and its folder (default: `name` in the file, or the file's name)
        seed: seed of random spaces
        gpus: GPUs such as 0,1,2,3; each worker uses one of them
        retry: run failed runs again
        until: add fresh seeds until one loss wins, with looks at 5, 8 and 12 seeds
    """
    require(dry_run + status + bool(write or choose) < 2, "tune", file, "given one of --dry-run, --status, --write")
    require_line("runs", runs)
    devices = devices_of(gpus)
    share_cores(workers)

    # Imported here: --help must not wait for torch.
    from lightning_ssl.app.study import tuning, tuning_runs
    from lightning_ssl.app.sweep import screen
    from lightning_ssl.app.sweep.engine import Engine, preview
    from lightning_ssl.comparison.looks import LOOKS

    plan = tuning.read(Path(packaged.find("sweeps", file)), name, seed, extra_flags, LOOKS[-1] if until else None)
    folder = Path(write or Path(runs) / plan.name)
    choice = tuning_runs.frozen(plan, folder)
    steps = [plan.tuning(folder), *([] if choice is None else [plan.confirmation(folder, choice)])]
    if status or dry_run:
        print(budget(plan))
        for step in steps if status else steps[-1:]:
            if status:
                screen.print_status(step, folder / step.name)
            else:
                screen.print_trials(preview(step, folder / step.name))
        return 0
    plan.write(folder)
    if write and not choose:
        print(f"{budget(plan)}\n{folder}/{tuning.TUNING}.yaml: run it with `wandb sweep` or `lightning-ssl sweep`")
        return 0
    if not choose and choice is None:
        engine = Engine(steps[0], folder / steps[0].name, workers, devices, retry)
        if code := engine.run():
            if code == 1:
                failed = f"--choose {folder / steps[0].name} leaves their settings out"
                print(f"no choice yet: runs failed; --retry runs them again, {failed}")
            return code
    if choose or choice is None:
        choice = tuning_runs.freeze(plan, folder, choose or [str(folder / steps[0].name)])
    plan.write_confirmation(folder, choice)
    print(printable(chosen(choice, folder)))
    step = plan.confirmation(folder, choice)
    if choose:
        print(f"{folder}/{tuning.CONFIRM}.yaml: run it with `wandb sweep`, or `lightning-ssl sweep … --runs {folder}`")
        return 0
    if until:
        from lightning_ssl.app.study import race, rounds

        code = race.Race(step, folder / step.name, rounds.Rule.of(None, None, False)).run(workers, devices, retry)
    else:
        code = Engine(step, folder / step.name, workers, devices, retry).run()
    print(f"lightning-ssl report {folder}")
    return code


def budget(plan: Tuning) -> str:
    """The size of a tuning in one line."""
    losses, seeds = len(plan.spaces), len(plan.tuning_seeds)
    runs = losses * (plan.each * seeds + len(plan.fresh_seeds))
    tuning = f"{losses} losses × {plan.each} settings × {seeds} tuning seeds"
    return f"{plan.name}: {tuning}, then {len(plan.fresh_seeds)} fresh seeds each: {runs} runs"


def chosen(choice: Choice, folder: Path) -> str:
    """What was chosen, a line for each loss."""
    lines = [f"chosen by {choice.metric} on held-out images, frozen in {folder / 'choice.json'} ({choice.hash[:12]}):"]
    for name, loss in choice.losses.items():
        flags = " ".join(f"--{key}={value}" for key, value in loss.choice.flags.items()) or "its only setting"
        border = f"; at the border of its grid: {', '.join(loss.borders)}" if loss.borders else ""
        lines.append(f"  {name}  {flags}  {100 * loss.choice.mean:.2f} %{border}")
        failed = [setting for setting in loss.settings if setting.failed]
        lines += [f"    left out: {each.flags}: {each.failed}" for each in failed]
    return "\n".join(lines)


COMMAND = Command("tune", run, __doc__, {"workers": (1, 1024), "seed": (0, MAX_SEED)})
