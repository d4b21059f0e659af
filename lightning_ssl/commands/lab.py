"""`lightning-ssl lab NAME`: run a laboratory. Its flags are the arguments of its `run` function.

lightning-ssl lab list                      list the labs
lightning-ssl lab hltm --help               describe the flags of one lab
lightning-ssl lab hltm --widths 2 10        run one lab
lightning-ssl lab all --quick               run every lab, seconds each
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import math
import os
import re
import time
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl import labs
from lightning_ssl.checks import NEGATIVE_NUMBER, UserError, require, require_line, require_seed, shown
from lightning_ssl.files import require_own_folder
from lightning_ssl.untrusted import one_line

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from lightning_ssl.labs.lab import Result

PROG = "lightning-ssl lab"
COUNTS = ("steps", "epochs", "samples", "batch")  # endings of flags whose value may be MAX_COUNT
MAX_COUNT = 1_000_000
MAX_SIZE = 10_000  # of other whole numbers, such as widths; a layer of this size takes 800 MB
MAX_NUMBER = 1e9
# Messages of torch's RuntimeError.
NO_MEMORY = re.compile("allocate memory|size calculation overflowed|multiplication overflow")
DIVERGED = re.compile("linalg|without overflow|non-finite")


def main(argv: Sequence[str]) -> int:
    """Run one lab or all of them; returns the exit code. A wrong name, flag or value is a UserError."""
    name, *flags = argv or ["--help"]
    summaries = labs.summaries()
    if name in ("-h", "--help"):
        print(f"usage: {PROG} NAME [--flags]     {PROG} NAME --help     {PROG} all --quick\n\nThe laboratories:")
        print(listing(summaries | {"all": "every one of them, with a summary at the end"}))
        return 0
    if name == "list":
        if flags:
            raise UserError(f"{flags[0]}: unexpected word (see {PROG} --help)")
        print(listing(summaries))
        return 0
    if name == "all":
        parser = build_parser(run_all, f"{PROG} all", "Run every laboratory with its defaults.")
        return run_all(**parse(parser, run_all, flags))
    if name not in summaries:
        raise UserError(f"lab={shown(name)}: no such laboratory; expected one of {', '.join(summaries)}, all, list")
    run = find_run(name)
    parser = build_parser(run, f"{PROG} {name}", summaries[name])
    parser.set_defaults(progress=True)
    parser.add_argument("--folder", type=str, help=f"folder to write into (by default runs/labs/{name}/TIMESTAMP)")
    arguments = parse(parser, run, flags)
    folder = output_folder(arguments.pop("folder"), name)
    require_lab_folder(folder)
    result = run_timed(run, arguments)
    print(result.table())
    print(f"{result.seconds:.1f} s, written to {result.save(folder)}")
    return 0


def listing(summaries: dict[str, str]) -> str:
    """Names and summaries in two columns."""
    width = max(map(len, summaries), default=0)
    return "\n".join(f"  {name.ljust(width)}  {line}" for name, line in summaries.items())


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
        agreeing = sum(claim.agrees for claim in result.claims)
        rows.append((name, f"{agreeing} of {len(result.claims)} agree", f"{result.seconds:.1f} s"))
    name_width, verdict_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, verdict, seconds in rows:
        print(f"{name.ljust(name_width)}  {verdict.ljust(verdict_width)}  {seconds.rjust(8)}")
    print(f"written to {target}")
    return code


def run_timed(run: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Run a lab and record its duration."""
    start = time.perf_counter()
    try:
        result = run(**arguments)
    except (MemoryError, ArithmeticError, RuntimeError) as error:
        if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
            raise UserError("not enough memory for these settings; use smaller sizes") from error
        if isinstance(error, ArithmeticError) or DIVERGED.search(str(error)):
            raise UserError(f"the numbers diverge with these settings ({one_line(error)})") from error
        raise
    result.seconds = time.perf_counter() - start
    return result


def output_folder(given: str | None, name: str) -> Path:
    """The folder to write into. A path that cannot be one is refused before the lab runs for minutes."""
    if given is None:
        return timestamped_folder(Path("runs") / "labs" / name)
    require_line("folder", given)
    folder = Path(given)
    above = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    require(above.is_dir(), "folder", given, f"a folder: {above} is {'a file' if above.exists() else 'a broken link'}")
    return folder


def require_lab_folder(folder: Path) -> None:
    """Refuse a folder with other files than those of an earlier lab."""
    require_own_folder(folder, "results.json", b"lightning-ssl lab", key="folder")


def timestamped_folder(parent: Path) -> Path:
    """A path below `parent` that does not exist yet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder, n = parent / stamp, 1
    while folder.exists():
        folder, n = parent / f"{stamp}-{n}", n + 1
    return folder


def build_parser(function: Callable[..., Any], prog: str, description: str) -> ArgumentParser:
    """Build the flags of a function from its signature, and their help from the Args of its docstring."""
    import docstring_parser
    from jsonargparse import ActionYesNo, ArgumentParser

    parser = ArgumentParser(prog=prog, description=description, exit_on_error=False, allow_abbrev=False)
    parser._negative_number_matcher = NEGATIVE_NUMBER
    documented = docstring_parser.parse(function.__doc__ or "").params
    helps = {parameter.arg_name: (parameter.description or "").replace("\n", " ") for parameter in documented}
    hints = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        flag, hint, default = flag_name(name), hints[name], parameter.default
        options: dict[str, Any] = {"help": helps.get(name), "default": default}
        if hint is bool:
            parser.add_argument(flag, action=ActionYesNo(no_prefix="no-"), **options)
        elif (item := item_type(hint)) is not None:
            # A list: jsonargparse converts the items of the default in place.
            options["default"] = default if default is None else list(default)
            parser.add_argument(flag, type=item, nargs="+", **options)
        else:
            parser.add_argument(flag, type=hint, **options)
    return parser


def parse(parser: ArgumentParser, function: Callable[..., Any], argv: Sequence[str]) -> dict[str, Any]:
    """Parse flags into the arguments of a function; a wrong flag or value is a UserError."""
    hints = typing.get_type_hints(function)
    try:
        arguments = parser.parse_args(split_items(argv, hints)).as_dict()
    except argparse.ArgumentError as error:
        raise UserError(f"{explain(error, hints)} (see {parser.prog} --help)") from error
    for name, value in arguments.items():
        numbers = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, float)]
        require(all(map(math.isfinite, numbers)), name, value, "finite")
        require(all(abs(each) <= MAX_NUMBER for each in numbers), name, value, f"at most {MAX_NUMBER:g} in size")
        wholes = [each for each in (value if isinstance(value, list) else [value]) if type(each) is int]
        largest = MAX_COUNT if name.endswith(COUNTS) else MAX_SIZE
        if name == "first_seed":
            require_seed(name, value)
        else:
            require(all(abs(each) <= largest for each in wholes), name, value, f"at most {largest:,}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}


def flag_name(parameter: str) -> str:
    """The flag of a parameter: --delta-lower for delta_lower."""
    return "--" + parameter.replace("_", "-")


def item_type(hint: Any) -> Any:
    """The type of the items of a tuple, optional or not; None for other types."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next((item for each in typing.get_args(hint) if (item := item_type(each)) is not None), None)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def split_items(argv: Sequence[str], hints: dict[str, Any]) -> list[str]:
    """Rewrite `--widths 2,10` as `--widths 2 10`, and the value none as null, which is None in jsonargparse."""
    tuples = {flag_name(name) for name, hint in hints.items() if item_type(hint) is not None}
    optional = {flag_name(name) for name, hint in hints.items() if types.NoneType in typing.get_args(hint)}
    words: list[str] = []
    flag = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            flag = name
            if not (equals and flag in tuples | optional):
                words.append(word)
                continue
            words.append(name)
            word = value
        if flag in tuples:
            words += [item for item in word.split(",") if item]
        else:
            words.append("null" if flag in optional and word.lower() == "none" else word)
    return words


def explain(error: argparse.ArgumentError, hints: dict[str, Any]) -> str:
    """Turn an error of the parser into one line."""
    # Imported here, because it imports Lightning, which takes seconds.
    from lightning_ssl.runs import errors

    text = str(error)
    if unknown := re.match(r"unrecognized arguments: (\S+)", text):
        flags = list(dict.fromkeys([*(flag_name(name) for name in hints if name != "return"), "--folder"]))
        word = unknown[1].partition("=")[0]
        if not word.startswith("-"):
            return f"{word}: unexpected word"
        close = difflib.get_close_matches(word.replace("_", "-"), flags, n=1)
        hint = f"did you mean {close[0]}?" if close else f"valid flags: {', '.join(flags)}"
        return f"{word}: unknown flag; {hint}"
    if boolean := re.match(r"argument --(\S+)/(\S+): ignored explicit argument '(.*)'", text):
        return f"{boolean[1]}={boolean[3]}: expected --{boolean[1]} or {boolean[2]}, without a value"
    # `argument --lr: expected one argument`
    return errors.one_line(error).removeprefix("argument ")
