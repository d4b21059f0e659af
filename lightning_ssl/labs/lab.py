"""What the laboratories share: a claim beside its published figure, a result, and the command line derived from `run`.

Nothing here imports torch, matplotlib or rich until it is needed, so that `lab list` and `lab --help` answer at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import math
import re
import sys
import time
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lightning_ssl import labs
from lightning_ssl.validation import require as require

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

# Okabe and Ito's eight colours, distinguishable with every common colour-vision deficiency.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_LARGEST_ARRAY_IN_JSON = 20_000


@dataclass(frozen=True)
class Claim:
    """One published or theoretical figure beside ours.

    `relation` says how `paper` is to be read: "=" a value to meet, "≤" or "≥" a bound.
    """

    name: str
    ours: float
    std: float
    paper: float
    paper_std: float | None
    rule: str
    agrees: bool
    relation: str = "="

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours - self.paper

    @classmethod
    def near(
        cls,
        name: str,
        values: torch.Tensor | Sequence[float] | float,
        paper: float,
        paper_std: float | None = None,
        tolerance: float = 0.03,
        sigmas: float = 2.0,
    ) -> Claim:
        """The mean of `values` is within `tolerance` of the paper, or within `sigmas` of its standard deviations."""
        mean, std = mean_std(values)
        # A figure printed with two digits lies on the boundary as often as not: decimal rounding must not decide.
        agrees = abs(mean - paper) <= max(tolerance, sigmas * (paper_std or 0.0)) * (1 + 1e-9)
        rule = f"within {tolerance:g} of the paper" if tolerance else "the paper's figure exactly"
        if paper_std is not None:
            rule = f"within {sigmas:g} of the paper's standard deviations or {tolerance:g}"
        return cls(name, mean, std, paper, paper_std, rule, agrees)

    @classmethod
    def at_most(cls, name: str, values: torch.Tensor | Sequence[float] | float, bound: float) -> Claim:
        """Every one of `values` is at most `bound`."""
        mean, std = mean_std(values)
        return cls(name, mean, std, bound, None, "every run at or below the bound", max(_floats(values)) <= bound, "≤")

    @classmethod
    def at_least(cls, name: str, values: torch.Tensor | Sequence[float] | float, bound: float) -> Claim:
        """Every one of `values` is at least `bound`."""
        mean, std = mean_std(values)
        return cls(name, mean, std, bound, None, "every run at or above the bound", min(_floats(values)) >= bound, "≥")


@dataclass
class Result:
    """What a lab found: its settings, its arrays, its claims and how to draw it."""

    lab: str
    settings: dict[str, Any]
    arrays: dict[str, torch.Tensor]
    claims: list[Claim]
    notes: list[str] = field(default_factory=list)
    draw: Callable[[Result], Figure] | None = None
    seconds: float | None = None
    text: str = ""
    """A table of the lab's own, printed above the claims."""

    def table(self) -> str:
        """The claims as text: ours, the paper's, the difference and the verdict, then the rules and the notes."""
        rules = list(dict.fromkeys(claim.rule for claim in self.claims))
        rows = [("claim", "ours", "paper", "difference", "verdict")]
        for claim in self.claims:
            mark = f" [{rules.index(claim.rule) + 1}]" if len(rules) > 1 else ""
            rows.append(
                (
                    claim.name,
                    f"{_number(claim.ours)} ± {_number(claim.std)}",
                    ("" if claim.relation == "=" else claim.relation + " ")
                    + _number(claim.paper)
                    + ("" if claim.paper_std is None else f" ± {_number(claim.paper_std)}"),
                    _number(claim.difference, sign=True) if claim.relation == "=" else "",
                    ("agrees" if claim.agrees else "differs") + mark,
                )
            )
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        if self.text:
            lines.insert(0, self.text.rstrip("\n") + "\n")
        for r, rule in enumerate(rules):
            lines.append(f"[{r + 1}] {rule}" if len(rules) > 1 else f"rule: {rule}")
        lines += [f"note: {note}" for note in self.notes]
        agreeing = sum(claim.agrees for claim in self.claims)
        lines.append(f"{self.lab}: {agreeing} of {len(self.claims)} agree, {len(self.claims) - agreeing} differ")
        return "\n".join(lines)

    def figure(self) -> Figure:
        """The lab's figure, freshly drawn."""
        if self.draw is None:
            raise ValueError(f"lab {self.lab} draws no figure")
        return self.draw(self)

    def save(self, folder: str | Path) -> Path:
        """Write results.json, settings.yaml, figure.png and figure.svg into `folder`."""
        import yaml  # type: ignore[import-untyped]

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "lab": self.lab,
            "seconds": self.seconds,
            "settings": _plain(self.settings),
            "claims": [_plain(asdict(claim) | {"difference": claim.difference}) for claim in self.claims],
            "notes": self.notes,
            "arrays": {name: _summary(array) for name, array in self.arrays.items()},
        }
        (folder / "results.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        settings = yaml.safe_dump({"lab": self.lab, **_plain(self.settings)}, sort_keys=False, allow_unicode=True)
        (folder / "settings.yaml").write_text(settings, encoding="utf-8")
        if self.draw is not None:
            figure = self.figure()
            figure.savefig(folder / "figure.png", dpi=150)
            figure.savefig(folder / "figure.svg", metadata={"Date": None})
        return folder


def mean_std(values: torch.Tensor | Sequence[float] | float) -> tuple[float, float]:
    """Mean and standard deviation (n − 1 in the denominator; 0 for a single value)."""
    x = _floats(values)
    mean = math.fsum(x) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / max(len(x) - 1, 1)
    return mean, math.sqrt(variance)


def per_seed(
    draw: Callable[[torch.Generator], torch.Tensor], seeds: int, first_seed: int = 0, stream: int = 0
) -> torch.Tensor:
    """Stack what `draw` gives for each seed's own generator: (seeds, ...).

    So run r of a batch equals that seed run alone. Different `stream`s of one seed are independent of each other.
    """
    import torch

    drawn = []
    for seed in range(first_seed, first_seed + seeds):
        drawn.append(draw(torch.Generator().manual_seed(seed * 1_000_003 + stream)))
    return torch.stack(drawn)


def track(steps: Iterable[T], label: str, progress: bool) -> Iterator[T]:
    """Iterate over `steps` with a progress bar when `progress`."""
    if not progress:
        yield from steps
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(steps, description=label, console=Console(stderr=True), transient=True)


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes in the labs' common look; axes are returned row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(rows, columns, k + 1) for k in range(rows * columns)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


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


def _floats(values: torch.Tensor | Sequence[float] | float) -> list[float]:
    if isinstance(values, int | float):
        return [float(values)]
    return [float(v) for v in (values if isinstance(values, Sequence) else values.detach().flatten().tolist())]


def _number(x: float, sign: bool = False) -> str:
    if x == 0 or not math.isfinite(x):
        return f"{x:+g}" if sign and x else f"{x:g}"
    places = ".1e" if abs(x) < 1e-3 or abs(x) >= 1e5 else ".3f"
    return format(x, ("+" if sign else "") + places)


def _plain(value: Any) -> Any:
    """`value` in the types that JSON and YAML know; what is not finite becomes None, as JSON has no word for it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str | int | float) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


def _summary(array: torch.Tensor) -> dict[str, Any]:
    shape = list(array.shape)
    if array.numel() <= _LARGEST_ARRAY_IN_JSON:
        return {"shape": shape, "values": _plain(array.detach())}
    x = array.detach().double()
    statistics = {"mean": x.mean(), "std": x.std(), "min": x.min(), "max": x.max()}
    return {"shape": shape, **{name: _plain(value.item()) for name, value in statistics.items()}}
