"""`lightning-ssl lab NAME`: run a laboratory. Its flags are the arguments of its `run` function.

lightning-ssl lab list                      list the labs
lightning-ssl lab hltm --help               describe the flags of one lab
lightning-ssl lab hltm --widths 2 10        run one lab
lightning-ssl lab all --quick               run every lab, seconds each
"""

from __future__ import annotations

import argparse
import importlib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from lightning_ssl import labs
from lightning_ssl.app.commands.parser import Parser, columns
from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut, require, require_line, require_seed, shown
from lightning_ssl.base.convert import Mismatch, as_object, choices_in, convert, in_words, members, origin
from lightning_ssl.base.files import require_own_folder
from lightning_ssl.base.signatures import arguments_of

if TYPE_CHECKING:
    from lightning_ssl.labs.lab import Result

PROG = "lightning-ssl lab"
COUNTS = ("steps", "epochs", "samples", "batch")  # endings of flags whose value may be MAX_COUNT
MAX_COUNT = 1_000_000
MAX_SIZE = 10_000  # of other whole numbers, such as widths; a layer of this size takes 800 MB
MAX_NUMBER = 1e9
ALL = "every one of them, with a summary at the end"


def main(argv: Sequence[str]) -> int:
    """Run one lab or all of them; returns the exit code. A wrong name, flag or value is a UserError."""
    name, *flags = argv or ["--help"]
    known = labs.summaries()
    if name in ("-h", "--help"):
        print(f"usage: {PROG} NAME [--flags]     {PROG} NAME --help     {PROG} all --quick\n\nThe laboratories:")
        print(columns(known | {"all": ALL}))
        return 0
    if name == "list":
        if flags:
            raise UserError(f"{flags[0]}: unexpected word (see {PROG} --help)")
        print(columns(known))
        return 0
    if name not in (*known, "all"):
        raise UserError(f"lab={shown(name)}: no such laboratory; expected one of {', '.join(known)}, all, list")
    arguments = parse(flags_of(name), run_of(name), flags)
    if name == "all":
        return run_all(**arguments)
    folder = output_folder(arguments.pop("folder"), name)
    require_lab_folder(folder)
    result = run_timed(find_run(name), arguments)
    print(result.table())
    print(f"{result.seconds:.1f} s, written to {result.save(folder)}")
    return 0


def flags_of(name: str) -> Parser:
    """The flags of a lab, or of `all`."""
    parser = build_parser(run_of(name), f"{PROG} {name}", {**labs.summaries(), "all": ALL}.get(name, ""))
    if name != "all":
        parser.set_defaults(progress=True)
        parser.add_argument(
            "--folder", metavar="DIR", help=f"folder to write into (by default runs/labs/{name}/TIMESTAMP)"
        )
    return parser


def run_of(name: str) -> Callable[..., Any]:
    """The function whose arguments are the flags."""
    return run_all if name == "all" else find_run(name)


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
    result = run(**arguments)
    result.seconds = time.perf_counter() - start
    return result


def output_folder(given: str | None, name: str) -> Path:
    """The folder to write into: the given one, or a new one with the time in its name."""
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


def build_parser(function: Callable[..., Any], prog: str, description: str) -> Parser:
    """Build the flags of a function from its signature, and their help from the Args of its docstring."""
    parser = Parser(prog=prog, description=description)
    for argument in arguments_of(function).values():
        text = f"{argument.description} (default: {default_text(argument.default)})".replace("%", "%%")
        options: dict[str, Any] = {"help": text, "default": argument.default}
        if argument.type is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif is_list(argument.type):
            options |= {"nargs": "+", "metavar": "VALUE"}
        else:
            options["metavar"] = "|".join(choices_in(argument.type)) or in_words(argument.type).upper()
        parser.add_argument(flag_name(argument.name), **options)
    return parser


def default_text(value: Any) -> str:
    """A default as it is given on the command line."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def parse(parser: Parser, function: Callable[..., Any], argv: Sequence[str]) -> dict[str, Any]:
    """Parse flags into the arguments of a function; a wrong flag or value is a UserError."""
    arguments = vars(parser.parse_args(list(argv)))
    for name, argument in arguments_of(function).items():
        if arguments[name] is not argument.default:
            arguments[name] = value_of(name, arguments[name], argument.type, parser.prog)
            require_limits(name, arguments[name])
    return arguments


def value_of(name: str, given: Any, hint: Any, prog: str) -> Any:
    """The value of a flag: `2 10` and `2,10` are lists, none is None."""
    words = [item for word in given for item in word.split(",") if item] if isinstance(given, list) else given
    text = words[0] if isinstance(words, list) and len(words) == 1 else words
    try:
        none = NoneType in members(hint) and str(text).lower() == "none"
        return None if none else as_object(convert(words, hint), hint)
    except Mismatch as error:
        shown_text = " ".join(words) if isinstance(words, list) else words
        raise UserError(f"{flag_name(name)}={cut(shown_text, MAX_SHOWN)}: {error} (see {prog} --help)") from error


def require_limits(name: str, value: Any) -> None:
    """Refuse numbers that no laboratory can use."""
    items = value if isinstance(value, tuple) else (value,)
    numbers = [each for each in items if type(each) in (int, float)]
    if name == "first_seed":
        require_seed(name, value)
        return
    largest = MAX_COUNT if name.endswith(COUNTS) else MAX_SIZE
    for each in numbers:
        limit = MAX_NUMBER if isinstance(each, float) else largest
        require(abs(each) <= limit, name, value, f"at most {limit:,.0f} in size")


def flag_name(parameter: str) -> str:
    """The flag of a parameter: --delta-lower for delta_lower."""
    return "--" + parameter.replace("_", "-")


def is_list(hint: Any) -> bool:
    """Whether a type is a tuple, optional or not."""
    return any(origin(kind) is tuple for kind in members(hint))
