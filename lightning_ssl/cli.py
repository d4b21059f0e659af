"""The `lightning-ssl` command: one word chooses what to do, and only that is imported.

torch and Lightning take seconds to import, so nothing here imports them before a command that needs them is chosen.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import lightning_ssl

BENCHMARKS = Path(lightning_ssl.__file__).parent.parent / "benchmarks"


def fit(argv: list[str]) -> int:
    """train one model: `lightning-ssl fit --config configs/quickstart.yaml`"""
    from lightning_ssl import fit

    return fit.main(argv)


def evaluate(argv: list[str]) -> int:
    """linear classifiers on a trained network's frozen features: `lightning-ssl evaluate runs/NAME`"""
    from lightning_ssl import evaluate

    return evaluate.main(argv)


def export(argv: list[str]) -> int:
    """the backbone alone, for others: `lightning-ssl export runs/NAME --format torchvision`"""
    from lightning_ssl import export

    return export.main(argv)


def sweep(argv: list[str]) -> int:
    """run a W&B sweep file here, without a server: `lightning-ssl sweep sweeps/quickstart.yaml --workers 2`"""
    from lightning_ssl import sweep

    return sweep.main(argv)


def report(argv: list[str]) -> int:
    """one page that compares losses: `lightning-ssl report runs/quickstart --open`"""
    from lightning_ssl import report

    return report.main(argv)


def dashboard(argv: list[str]) -> int:
    """the same comparison as a workspace of W&B: `lightning-ssl dashboard --entity E --project P`"""
    from lightning_ssl import dashboard

    return dashboard.main(argv)


def import_bolts(argv: list[str]) -> int:
    """turn a lightning-bolts checkpoint into one of ours: `lightning-ssl import-bolts bolts.ckpt`"""
    from lightning_ssl import bolts

    return bolts.main(argv)


def data(argv: list[str]) -> int:
    """fetch published data sets, list what there is: `lightning-ssl data fetch cifar10`, `lightning-ssl data list`"""
    from lightning_ssl.data import command

    return command.main(argv)


def lab(argv: list[str]) -> int:
    """the papers' theory as fast experiments: `lightning-ssl lab list`, `lightning-ssl lab hltm --quick`"""
    from lightning_ssl.labs import lab

    return lab.main(argv)


def bench(argv: list[str]) -> int:
    """measure against the bars, side by side with others: `lightning-ssl bench loss`"""
    if not BENCHMARKS.is_dir():
        raise ValueError("bench: benchmarks live beside the package in its source checkout, and this is not one")
    known = {file.stem: first_line(file) for file in sorted(BENCHMARKS.glob("*.py"))}
    if not argv or argv[0] in ("-h", "--help", "list"):
        print("usage: lightning-ssl bench NAME [--flags]     lightning-ssl bench NAME --help\n\nThe benchmarks:")
        print_table(known)
        return 0
    name, *flags = argv
    if name not in known:
        raise ValueError(f"bench={name!r}: expected one of {', '.join(known)}")
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    code: int = module.main(flags)
    return code


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "fit": fit,
    "evaluate": evaluate,
    "sweep": sweep,
    "report": report,
    "export": export,
    "data": data,
    "lab": lab,
    "bench": bench,
    "dashboard": dashboard,
    "import-bolts": import_bolts,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one line on standard error and exit code 2, a traceback only with --debug."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    # OpenMP reads it when torch is imported. Threads that spin while they wait for each other run ten times slower as
    # soon as another process takes a core (README, "Threads").
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return dispatch([word for word in words if word != "--debug"])
    except ValueError as error:
        if debug:
            traceback.print_exc()
        print(f"lightning-ssl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lightning-ssl: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `lightning-ssl lab list | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # a full disk, a file that may not be read
        if debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        print(f"lightning-ssl: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def dispatch(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    if words and words[0] == "--version":
        print(lightning_ssl.__version__)
        return 0
    if words and words[0] not in ("-h", "--help"):
        raise ValueError(f"command={words[0]!r}: expected one of {', '.join(COMMANDS)} (see --help)")
    print("usage: lightning-ssl COMMAND …     lightning-ssl COMMAND --help\n\nThe commands:")
    print_table({name: command.__doc__ or "" for name, command in COMMANDS.items()})
    return 0


def first_line(file: Path) -> str:
    """The first line of a file's docstring, without running the file."""
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def print_table(lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    for name, words in lines.items():
        print(f"  {name.ljust(width)}  {words}")


if __name__ == "__main__":
    sys.exit(main())
