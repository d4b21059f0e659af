"""What the laboratories share: a claim beside its published figure, a result, and the command line derived from `run`.

Nothing here imports torch, matplotlib or rich until it is needed, so that `lab list` and `lab --help` answer at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lightning_ssl.checks import require as require

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
