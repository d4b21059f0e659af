"""Code that the laboratories share: a claim beside its published figure, a result, seeds, progress and panels.

matplotlib and rich are imported where they are used, so that `lab NAME --help` starts fast.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import yaml  # type: ignore[import-untyped]
from torch import Tensor

from lightning_ssl.base.checks import UserError, is_number, require
from lightning_ssl.base.convert import choices_in
from lightning_ssl.base.files import figure_files, write_all
from lightning_ssl.base.palette import BLACK, COLOURS
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.comparison.claims import OUTCOMES, Decision, Outcome, Relation, decide_mean, margin_of, mean_holds
from lightning_ssl.comparison.spread import standard_deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
Values = Tensor | Sequence[float] | float
"""The values of some runs, or of one."""

PALETTE = (*COLOURS, BLACK)  # for a fixed number of lines; palette.line_style is for any number
RELATIONS: dict[str, Relation] = {"=": "equal", "≥": "above", "≤": "below"}
_LARGEST_ARRAY_IN_JSON = 20_000


@dataclass(frozen=True)
class Claim:
    """One published or theoretical figure beside ours.

    agrees     whether the numbers themselves satisfy the rule, without an interval
    relation   how `paper` is read: "=" is a value to reproduce, "≤" and "≥" are bounds
    margin     largest distance of the mean of `count` runs from the paper's side; None if the rule is not about a mean

    >>> claim = Claim.near("δ = 0.7", [0.36, 0.34, 0.35], paper=0.36)
    >>> claim.outcome, claim.basis()  # the 90 % interval is within 0.36 ± 0.03
    ('holds', '[0.333, 0.367]')
    >>> Claim.near("threshold", 0.3819, paper=0.382).basis()
    'one number'
    """

    name: str
    ours: float
    std: float
    paper: float
    paper_std: float | None
    rule: str
    agrees: bool
    relation: str = "="
    margin: float | None = None
    count: int = 1

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours - self.paper

    @property
    def decision(self) -> Decision:
        """The verdict, by the interval of the mean of several runs. Other rules and one number need no interval."""
        relation = RELATIONS.get(self.relation)
        if relation is None or self.margin is None or None in (self.ours, self.std, self.paper):
            return Decision("holds" if self.agrees else "contradicted", untested="no test")
        return decide_mean(relation, self.difference, self.std, self.count, self.margin)

    @property
    def is_one_number(self) -> bool:
        """Whether one number decides, within a tolerance or not."""
        return self.decision.untested == "one run"

    @property
    def outcome(self) -> Outcome:
        """Holds, contradicted or not decided."""
        return self.decision.outcome

    def basis(self) -> str:
        """What the verdict is based on: an interval of the mean, "one number", runs with "no spread", or "the rule"."""
        found = self.decision
        if found.low is None or found.high is None:
            return "one number" if self.is_one_number else "no spread" if found.untested == "no spread" else "the rule"
        return f"[{self.paper + found.low:.3g}, {self.paper + found.high:.3g}]"

    @classmethod
    def near(
        cls, name: str, values: Values, paper: float, paper_std: float | None = None, tolerance: float = 0.03
    ) -> Claim:
        """Claim that the mean of `values` is within `tolerance` of the paper, or within two of its deviations."""
        rule = f"within {tolerance:g} of the paper" if tolerance else "the paper's figure exactly"
        if paper_std is not None:
            rule = f"within 2 of the paper's standard deviations or {tolerance:g}"
        margin = margin_of(tolerance, paper_std)
        return cls.of_mean(name, values, "=", paper, rule, margin, paper_std)

    @classmethod
    def of_mean(
        cls,
        name: str,
        values: Values,
        relation: str,
        paper: float,
        rule: str,
        margin: float = 0.0,
        paper_std: float | None = None,
    ) -> Claim:
        """Claim that the mean of `values` is equal to the paper (=), above it (≥) or below it (≤), by `margin`."""
        mean, std = mean_std(values)
        agrees = mean_holds(RELATIONS[relation], mean - paper, margin)
        return cls(name, mean, std, paper, paper_std, rule, agrees, relation, margin, len(_floats(values)))

    @classmethod
    def at_most(cls, name: str, values: Values, bound: float, rule: str = "every run at or below the bound") -> Claim:
        """Claim that every one of `values` is at most `bound`."""
        return cls(name, *mean_std(values), bound, None, rule, max(_floats(values)) <= bound, "≤")

    @classmethod
    def at_least(cls, name: str, values: Values, bound: float, rule: str = "every run at or above the bound") -> Claim:
        """Claim that every one of `values` is at least `bound`."""
        return cls(name, *mean_std(values), bound, None, rule, min(_floats(values)) >= bound, "≥")


@dataclass
class Result:
    """The result of a lab: its settings, its arrays, its claims and the function that draws its figure."""

    lab: str
    settings: dict[str, Any]
    arrays: dict[str, Tensor]
    claims: list[Claim]
    notes: list[str] = field(default_factory=list)
    draw: Callable[[Result], Figure] | None = None
    seconds: float | None = None
    origin: dict[str, str] = field(default_factory=dict)
    """The version of the package and the machine that made the result."""
    text: str = ""
    """A table of the lab's own, printed above the claims."""

    def table(self) -> str:
        """Format the claims: verdict, ours, the paper's, the difference and the interval, then the rules and notes."""
        rules = list(dict.fromkeys(claim.rule for claim in self.claims))
        rows = [("claim", "ours", "paper", "difference", "interval", "verdict")]
        for claim in self.claims:
            bound = claim.relation != "="
            ours = _format_number(claim.ours) + ("" if claim.is_one_number else f" ± {_format_number(claim.std)}")
            paper = f"{claim.relation} {_format_number(claim.paper)}" if bound else _format_number(claim.paper)
            if claim.paper_std is not None:
                paper += f" ± {_format_number(claim.paper_std)}"
            difference = "" if bound else _format_number(claim.difference, sign=True)
            verdict = f"{claim.outcome} [{rules.index(claim.rule) + 1}]"
            rows.append((claim.name, ours, paper, difference, claim.basis(), verdict))
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        if self.text:
            lines.insert(0, self.text.rstrip("\n") + "\n")
        lines += [f"[{r}] {rule}" for r, rule in enumerate(rules, 1)] + [f"note: {note}" for note in self.notes]
        lines.append(f"{self.lab}: {self.counts()}")
        return "\n".join(lines)

    def counts(self) -> str:
        """How many claims have each verdict."""
        found = [claim.outcome for claim in self.claims]
        return f"{len(found)} claims; " + ", ".join(f"{outcome}: {found.count(outcome)}" for outcome in OUTCOMES)

    def figure(self) -> Figure:
        """Draw the lab's figure. Axes with labels get a legend, unless they have one."""
        if self.draw is None:
            raise UserError(f"lab {self.lab} draws no figure")
        figure = self.draw(self)
        for ax in figure.axes:
            if ax.get_legend() is None and ax.get_legend_handles_labels()[1]:
                ax.legend(frameon=False, fontsize=8)
        return figure

    def save(self, folder: str | Path) -> Path:
        """Write results.json, settings.yaml, figure.png and figure.svg into `folder`."""
        folder = Path(folder)
        content = {
            "generator": "lightning-ssl lab",  # a later lab may replace the files of a folder with this word
            "lab": self.lab,
            "seconds": self.seconds,
            "origin": self.origin,
            "settings": _to_json(self.settings),
            "claims": [_to_json(asdict(claim) | {"difference": claim.difference}) for claim in self.claims],
            "notes": self.notes,
            "arrays": {name: _array_to_json(array) for name, array in self.arrays.items()},
        }
        results = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        settings = yaml.safe_dump({"lab": self.lab, **_to_json(self.settings)}, sort_keys=False, allow_unicode=True)
        figures = {} if self.draw is None else figure_files(self.figure(), folder / "figure")
        write_all({folder / "results.json": results.encode(), folder / "settings.yaml": settings.encode(), **figures})
        return folder


def mean_std(values: Values) -> tuple[float, float]:
    """Mean and standard deviation (n − 1 in the denominator; 0 for a single value)."""
    x = _floats(values)
    return fmean(x), standard_deviation(x) or 0.0


def seeded_generator(seed: int, stream: int = 0) -> torch.Generator:
    """Make the random generator of one seed; different streams of a seed are independent of each other."""
    return torch.Generator().manual_seed(seed * 1_000_003 + stream)


def per_seed(draw: Callable[[torch.Generator], Tensor], seeds: int, first_seed: int = 0, stream: int = 0) -> Tensor:
    """Stack the draws of every seed, each from the seed's own generator: (seeds, ...).

    A seed therefore has the same numbers alone and in a batch.
    """
    return torch.stack([draw(seeded_generator(seed, stream)) for seed in range(first_seed, first_seed + seeds)])


def normal(
    shape: Sequence[int], seeds: int, first_seed: int = 0, stream: int = 0, dtype: torch.dtype | None = None
) -> Tensor:
    """Standard normal draws of every seed, (seeds, *shape); see `per_seed`."""
    return per_seed(lambda g: torch.randn(tuple(shape), generator=g, dtype=dtype), seeds, first_seed, stream)


def random_bits(generators: Sequence[torch.Generator], count: int) -> Tensor:
    """Draw `count` 16-bit numbers from each generator: int16 (S, count)."""
    words = torch.empty(len(generators), -(-count // 4), dtype=torch.int64)
    for row, generator in zip(words, generators, strict=True):
        row.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[:, :count]


def laboratory(
    *, quick: Mapping[str, int], maybe_empty: tuple[str, ...] = (), **least: float
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Declare the `run` function of a lab. Its arguments are checked, and are the settings of its result.

    A whole number is at least 1, another number finite and above 0, or both at least what `least` says. The same holds
    for the items of a tuple, which has at least one. A `Literal` must be one of its values.

    quick        the largest values of settings of a quick run
    maybe_empty  tuples that may be empty
    """
    least = {"first_seed": 0} | least

    def declare(run: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(run)
        def checked(**given: Any) -> Result:
            arguments = arguments_of(run)
            settings = {name: each.default for name, each in arguments.items()} | given
            for name, value in settings.items():
                require_setting(name, value, least.get(name), choices_in(arguments[name].type))
                require(value != () or name in maybe_empty, name, value, "one value or more")
            if settings["quick"]:
                settings |= {name: min(settings[name], most) for name, most in quick.items()}
            result = run(**settings)
            result.settings = settings | result.settings
            del result.settings["progress"]  # it changes no number
            return result

        return checked

    return declare


def require_setting(name: str, value: Any, least: float | None, choices: Sequence[str]) -> None:
    """Refuse a value below its least one, or that is none of the choices, if there are any."""
    require(not choices or value in (None, *choices), name, value, f"one of {', '.join(choices)}")
    for number in filter(is_number, value if isinstance(value, tuple) else (value,)):
        if least is not None or isinstance(number, int):
            bound = 1 if least is None else least
            require(number >= bound, name, value, f"at least {bound}")
        else:
            require(0 < number < math.inf, name, value, "finite and above 0")


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Run the body with `count` threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def track(steps: Iterable[T], label: str, progress: bool) -> Iterator[T]:
    """Iterate over `steps`, with a progress bar if `progress`."""
    if not progress:
        yield from steps
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(steps, description=label, console=Console(stderr=True), transient=True)


def band(
    ax: Axes,
    x: Sequence[float],
    values: Tensor,
    style: str,
    colour: str,
    name: str,
    alpha: float = 0.15,
    **fill: Any,
) -> None:
    """Draw the median of the runs, values (len(x), runs), and the band from their 10 % to their 90 % quantile."""
    low, median, high = (values.quantile(q, dim=1) for q in (0.1, 0.5, 0.9))
    ax.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, **fill)
    ax.plot(x, median, style, color=colour, label=name)


def _floats(values: Values) -> list[float]:
    found: list[float] = torch.as_tensor(values, dtype=torch.float64).flatten().tolist()
    return found


def _format_number(x: float, sign: bool = False) -> str:
    if x == 0 or not math.isfinite(x):
        return f"{x:+g}" if sign and x else f"{x:g}"
    places = ".1e" if abs(x) < 1e-3 or abs(x) >= 1e5 else ".3f"
    return format(x, ("+" if sign else "") + places)


def _to_json(value: Any) -> Any:
    """Convert to the types of JSON and YAML. Infinities and NaN become None, because JSON cannot express them."""
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _array_to_json(array: Tensor) -> dict[str, Any]:
    """The values of a small array, the statistics of a large one."""
    if array.numel() <= _LARGEST_ARRAY_IN_JSON:
        values = {"values": array.tolist()}
    else:
        values = {name: getattr(array.double(), name)().item() for name in ("mean", "std", "min", "max")}
    return {"shape": list(array.shape), **_to_json(values)}
