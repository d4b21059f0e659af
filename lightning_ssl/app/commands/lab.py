"""`lightning-ssl lab NAME`: run a laboratory. Its flags are the arguments of its `run` function.

lightning-ssl lab list                      list the labs
lightning-ssl lab hltm --help               describe the flags of one lab
lightning-ssl lab hltm --widths 2 10        run one lab
lightning-ssl lab all --quick               run every lab, seconds each
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl import labs
from lightning_ssl.app.commands.parser import Command, choose
from lightning_ssl.base.checks import MAX_SEED, UserError, require, require_line
from lightning_ssl.base.files import require_own_folder
from lightning_ssl.base.signatures import Argument

if TYPE_CHECKING:
    from lightning_ssl.labs.lab import Result

COUNTS = ("steps", "epochs", "samples", "batch")  # endings of flags whose value may be MAX_COUNT
MAX_COUNT = 1_000_000
MAX_SIZE = 10_000  # of other whole numbers, such as widths; a layer of this size takes 800 MB
MAX_NUMBER = 1e9


def main(argv: Sequence[str]) -> int:
    """Run one lab or all of them; returns the exit code. A wrong name, flag or value is a UserError."""
    known = labs.summaries() | {"all": "every one of them, with a summary at the end"}
    name = choose("lightning-ssl lab", "lab", known, argv)
    if name is None:
        return 0
    arguments = command_of(name).parse(argv[1:])
    for key, value in arguments.items():
        require_limits(key, value)
    if name == "all":
        return run_all(**arguments)
    folder = output_folder(arguments.pop("folder", None), name)
    require_lab_folder(folder)
    result = run_timed(find_run(name), {"progress": True, **arguments})
    print(result.table())
    print(f"{result.seconds:.1f} s, written to {result.save(folder)}")
    return 0


def command_of(name: str) -> Command:
    """The flags of a lab, or of `all`."""
    if name == "all":
        return Command("lab all", run_all, negations=True)
    further = {"folder": Argument("folder", str | None, None, output_folder)}
    return Command(f"lab {name}", find_run(name), further=further, negations=True)


def find_run(name: str) -> Callable[..., Result]:
    """Import the `run` function of a lab."""
    run: Callable[..., Result] = importlib.import_module(f"lightning_ssl.labs.{name}").run
    return run


def run_all(*, quick: bool = False, seeds: int | None = None, progress: bool = True, folder: str | None = None) -> int:
    """Run every lab and print a summary; the exit code is 1 if one of them failed.

    Args:
        quick: seconds per lab instead of minutes
        seeds: number of seeds (by default each lab's own)
        progress: show a progress bar
        folder: folder to write into (by default runs/labs/all/TIMESTAMP)
    """
    require(seeds is None or seeds >= 1, "seeds", seeds, "at least 1")
    target = output_folder(folder, "all")
    arguments: dict[str, Any] = {"quick": quick, "progress": progress} | ({} if seeds is None else {"seeds": seeds})
    for name in labs.summaries():
        require_lab_folder(target / name)
    rows, code = [], 0
    for name, summary in labs.summaries().items():
        print(f"== {name}: {summary}")
        try:
            result = run_timed(find_run(name), arguments)
            print(result.table(), end="\n\n")
            result.save(target / name)
        # One lab that fails must not stop the others. The summary and the exit code report it.
        except Exception as error:
            if not isinstance(error, UserError):
                traceback.print_exc()
            rows.append((name, f"failed: {type(error).__name__}: {error}", ""))
            code = 1
            continue
        rows.append((name, result.counts(), f"{result.seconds:.1f} s"))
    name_width, verdict_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, verdict, seconds in rows:
        print(f"{name.ljust(name_width)}  {verdict.ljust(verdict_width)}  {seconds.rjust(8)}")
    print(f"written to {target}")
    return code


def run_timed(run: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Run a lab and record its duration."""
    start = time.perf_counter()
    result = run(**arguments)
    result.seconds = time.perf_counter() - start
    return result


def output_folder(given: str | None, name: str) -> Path:
    """The folder to write into: the given one, or a new one with the time in its name.

    Args:
        given: folder to write into (by default runs/labs/NAME/TIMESTAMP)
    """
    if given is not None:
        require_line("folder", given)
        return Path(given)
    parent, stamp, n = Path("runs") / "labs" / name, time.strftime("%Y%m%d-%H%M%S"), 1
    folder = parent / stamp
    while folder.exists():
        folder, n = parent / f"{stamp}-{n}", n + 1
    return folder


def require_lab_folder(folder: Path) -> None:
    """Refuse a folder with other files than those of an earlier lab, before the lab runs for minutes."""
    require_own_folder(folder, "results.json", b"lightning-ssl lab", key="folder")


def require_limits(name: str, value: Any) -> None:
    """Refuse numbers that no laboratory can use."""
    if name == "first_seed":
        require(0 <= value <= MAX_SEED, name, value, f"between 0 and {MAX_SEED}")
        return
    largest = MAX_COUNT if name.endswith(COUNTS) else MAX_SIZE
    for each in value if isinstance(value, tuple) else (value,):
        if type(each) in (int, float):
            limit = MAX_NUMBER if isinstance(each, float) else largest
            require(abs(each) <= limit, name, value, f"at most {limit:,.0f} in size")
