"""`lightning-ssl lab NAME`: run a laboratory; its flags are the arguments of its `run`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import re
import sys
import time
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl import labs

if TYPE_CHECKING:
    from lightning_ssl.labs.lab import Result


def main(argv: Sequence[str], prog: str = "lightning-ssl lab") -> int:
    """Run the laboratories from command-line words; returns the exit code (2 for a wrong name or flag)."""
    argv = list(argv)
    debug = "--debug" in argv
    if debug:
        argv.remove("--debug")
    # A table with ± or λ must not fail on a terminal of another encoding.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
    try:
        return _dispatch(argv, prog)
    except ValueError as error:
        if debug:
            traceback.print_exc()
        name = argv[0] if argv else ""
        print(f"{prog} {name}: {error}", file=sys.stderr)
        return 2


def _dispatch(argv: list[str], prog: str) -> int:
    known = labs.summaries()
    if not argv or argv[0] in ("-h", "--help", "list"):
        if not argv or argv[0] != "list":
            print(f"usage: {prog} NAME [--flags]     {prog} NAME --help     {prog} all --quick\n\nThe laboratories:")
        width = max(map(len, known), default=0)
        print("\n".join(f"  {name.ljust(width)}  {line}" for name, line in known.items()))
        if not argv or argv[0] != "list":
            print(f"  {'all'.ljust(width)}  every one of them, with a summary at the end")
        return 0
    name, *flags = argv
    if name == "all":
        return _run_all(known, flags, prog)
    if name not in known:
        raise ValueError(f"no such laboratory; expected one of {', '.join(known)}, all, list")
    run = importlib.import_module(f"lightning_ssl.labs.{name}").run
    parsed = _parser(run, f"{prog} {name}", known[name]).parse_args(flags)
    knobs = vars(parsed)
    folder = knobs.pop("folder") or _fresh(Path("runs") / "labs" / name)
    result = _timed(run, knobs)
    print(result.table())
    print(f"{result.seconds:.1f} s, written to {result.save(folder)}")
    return 0


def _run_all(known: dict[str, str], flags: list[str], prog: str) -> int:
    parser = _OneLineParser(prog=f"{prog} all", description="Every laboratory with its defaults.", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="seconds per lab instead of minutes")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: each lab's own)")
    parser.add_argument("--progress", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--folder", type=Path, help="where to write (default: runs/labs/all/<timestamp>)")
    parsed = parser.parse_args(flags)
    folder = parsed.folder or _fresh(Path("runs") / "labs" / "all")
    knobs: dict[str, Any] = {"quick": parsed.quick, "progress": parsed.progress}
    if parsed.seeds is not None:
        knobs["seeds"] = parsed.seeds
    lines, code = [], 0
    for name in known:
        print(f"== {name}: {known[name]}")
        try:
            result = _timed(importlib.import_module(f"lightning_ssl.labs.{name}").run, knobs)
            print(result.table(), end="\n\n")
            result.save(folder / name)
        # One broken lab must not hide the others; the exit code and the summary tell of it.
        except Exception as error:
            if not isinstance(error, ValueError):
                traceback.print_exc()
            lines.append((name, f"failed: {type(error).__name__}: {error}", ""))
            code = 1
            continue
        agreeing = sum(claim.agrees for claim in result.claims)
        lines.append((name, f"{agreeing} of {len(result.claims)} agree", f"{result.seconds:.1f} s"))
    width, verdict_width = max(len(line[0]) for line in lines), max(len(line[1]) for line in lines)
    for lab, verdict, seconds in lines:
        print(f"{lab.ljust(width)}  {verdict.ljust(verdict_width)}  {seconds.rjust(8)}")
    print(f"written to {folder}")
    return code


def _timed(run: Callable[..., Result], knobs: dict[str, Any]) -> Result:
    start = time.perf_counter()
    result = run(**knobs)
    result.seconds = time.perf_counter() - start
    return result


def _fresh(parent: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder, n = parent / stamp, 1
    while folder.exists():
        folder, n = parent / f"{stamp}-{n}", n + 1
    return folder


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def _parser(run: Callable[..., Result], prog: str, description: str) -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog=prog, description=description, allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    hints, words = typing.get_type_hints(run), _knob_words(run)
    for name, parameter in inspect.signature(run).parameters.items():
        flag, words_of = "--" + name.replace("_", "-"), words.get(name, " ")
        default = True if name == "progress" else parameter.default
        if hints[name] is bool:
            parser.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, default=default, help=words_of)
        else:
            kind, many, choices = _kind(hints[name])
            parser.add_argument(
                flag,
                dest=name,
                type=_list_of(kind) if many else kind,
                action=_Tuple if many else "store",
                nargs="+" if many else None,
                choices=choices,
                default=default,
                metavar=None if choices else name.upper(),
                help=words_of,
            )
    parser.add_argument("--folder", type=Path, default=None, help="where to write; None: runs/labs/<name>/<timestamp>")
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    return parser


class _Tuple(argparse.Action):
    """`--widths 2 10` and `--widths 2,10` both give (2, 10)."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        setattr(namespace, self.dest, tuple(item for part in values for item in part))


def _kind(hint: Any) -> tuple[Callable[[str], Any], bool, list[Any] | None]:
    """How the words of one flag are read: (convert, takes several, choices)."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _kind(arguments[0])[0], True, None
    if origin is typing.Literal:
        return str, False, list(arguments)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _or_none(_kind(inner)[0]), typing.get_origin(inner) is tuple, None
    if hint in (int, float, str):
        return hint, False, None
    raise TypeError(f"a knob of type {hint} cannot be read from the command line")


def _or_none(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(word: str) -> Any:
        return None if word.lower() == "none" else kind(word)

    convert.__name__ = getattr(kind, "__name__", "value")
    return convert


def _list_of(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def convert(words: str) -> list[Any]:
        return [kind(word) for word in words.split(",") if word]

    convert.__name__ = f"list of {getattr(kind, '__name__', 'value')}"
    return convert


def _knob_words(run: Callable[..., Result]) -> dict[str, str]:
    """Help texts from the lines `knob: words` of run's docstring."""
    lines = re.findall(r"^\s*(\w+): (.+)$", run.__doc__ or "", re.MULTILINE)
    return {knob: words.replace("%", "%%") for knob, words in lines}
