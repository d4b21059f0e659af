"""The figures of concepts.md: a batch on the circle, the min player, the max player."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from lightning_ssl import Entropy, Importance, PairLoss, Square, Tsallis, Uniform
from lightning_ssl.base.palette import COLOURS, LINE_STYLES

LINES = LINE_STYLES
GRAY = "0.6"
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "lightning_ssl"}


def axes(width: float, height: float, count: int = 1) -> tuple[Figure, Axes]:
    """A figure in the common style, with its axes: one, or a list of them."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        made = figure.subplots(1, count)
    return figure, made


def save(draw: Callable[[], Figure], file: Path) -> None:
    """Draw a figure and write it. The same code writes the same bytes, so Sphinx copies it once."""
    with mpl.rc_context(STYLE):
        draw().savefig(file, metadata={"Date": None})


# ---------------------------------------------------------------------------------------------------------------------
# A batch on the circle

ANGLES = torch.tensor([20.0, 48.0, 80.0, 125.0, 185.0, 250.0, 320.0]).deg2rad()  # of the negatives
ANCHOR, AUGMENTED = math.radians(0), math.radians(-14)


def point(angle: Tensor | float) -> Tensor:
    """Unit vectors: (…) → (…, 2)."""
    angle = torch.as_tensor(angle)
    return torch.stack([angle.cos(), angle.sin()], -1)


def distances() -> tuple[Tensor, Tensor]:
    """d2_pos (1,) and d2_neg (1, K) of the anchor."""
    anchor = point(ANCHOR)
    return half_squared(anchor, point(AUGMENTED))[None], half_squared(anchor, point(ANGLES))[None]


def half_squared(a: Tensor, b: Tensor) -> Tensor:
    return 0.5 * (a - b).square().sum(-1)


def draw_circle(ax: Axes, title: str) -> None:
    ax.add_patch(mpl.patches.Circle((0, 0), 1, fill=False, color="0.85"))
    ax.set(xlim=(-1.25, 1.35), ylim=(-1.2, 1.2), aspect="equal", title=title)
    ax.axis("off")


def batch() -> Figure:
    """The pairs of one anchor under three importances: a line is as wide as its weight."""
    figure, panels = axes(9, 3.1, 3)
    d2_pos, d2_neg = distances()
    shown: dict[str, Importance] = {
        "Uniform": Uniform(),
        "Entropy(tau=0.5)": Entropy(0.5),
        "Square(tau=1)": Square(1.0),
    }
    anchor, positive, negatives = point(ANCHOR), point(AUGMENTED), point(ANGLES)
    for ax, (title, importance) in zip(panels, shown.items(), strict=True):
        draw_circle(ax, title)
        alpha = importance(d2_pos, d2_neg)[0]
        for weight, other in zip(alpha / alpha.sum(), negatives, strict=True):
            if weight > 0:
                ax.plot(*torch.stack([anchor, other]).T, color=COLOURS[1], linewidth=14 * float(weight), alpha=0.5)
        ax.plot(*torch.stack([anchor, positive]).T, color=COLOURS[2], linewidth=2)
        ax.plot(*negatives.T, "o", color=COLOURS[1], markersize=5)
        ax.plot(*anchor, "o", color="black", markersize=7)
        ax.plot(*positive, "o", color=COLOURS[2], markersize=5)
        for (x, y), weight in zip(negatives.tolist(), (alpha / alpha.sum()).tolist(), strict=True):
            ax.text(1.17 * x, 1.12 * y, f"{weight:.2f}", ha="center", va="center", fontsize=7.5)
    return figure


def min_player() -> Figure:
    """What the min player minimizes, for two negatives; and the weights of one row under several regularizers."""
    figure, (simplex, weights) = axes(9, 3.1, 2)
    share = torch.linspace(0.001, 0.999, 400)
    c = torch.tensor([0.3, 0.7])
    for k, tau in enumerate((0.1, 0.5, 2.0)):
        regularizer = -tau * (share * share.log() + (1 - share) * (1 - share).log())
        value = share * c[0] + (1 - share) * c[1] - regularizer
        value = value - value.min()
        simplex.plot(share, value, LINES[k], color=COLOURS[k], label=f"τ = {tau:g}")
        best = float(Entropy(tau)(torch.zeros(1), c[None])[0, 0])
        simplex.plot(best, 0, "o", color=COLOURS[k], markersize=6, clip_on=False)
    simplex.set(xlabel="α of the nearer of two negatives", ylabel="Σ α c − Σ r(α), minus its minimum", ylim=(0, 0.6))
    simplex.legend(frameon=False, title="entropy regularizer")
    d2_neg = torch.linspace(0.05, 1.9, 62)[None]
    tau, count = 0.3, d2_neg.shape[1]
    for k, q in enumerate((0.5, 1.0, 1.5, 2.0)):
        matched = Tsallis(tau * count ** (q - 1), q)
        weights.plot(
            d2_neg[0], count * matched(torch.zeros(1), d2_neg)[0], LINES[k], color=COLOURS[k], label=f"q = {q:g}"
        )
    weights.set(xlabel="d2 of the negative", ylabel="K α", xlim=(0, 1.9), ylim=(0, None))
    weights.legend(frameon=False, title="Tsallis, matched τ")
    return figure


def max_player() -> Figure:
    """Positions on the circle while the max player takes gradient steps: 12 samples, each with two fixed views."""
    figure, panels = axes(8, 2.9, 2)
    shown: dict[str, Importance] = {"Uniform()": Uniform(), "Entropy(tau=0.5)": Entropy(0.5)}
    for ax, (title, importance) in zip(panels, shown.items(), strict=True):
        path = trajectory(importance)
        ax.plot(path.rad2deg(), color=COLOURS[0], linewidth=1)
        ax.plot(torch.full((path.shape[1],), len(path) - 1), path[-1].rad2deg(), "o", color=COLOURS[0], markersize=3)
        ax.set(title=title, xlabel="step", xlim=(0, len(path) * 1.02))
    panels[0].set_ylabel("angle of the embedding, degrees")
    return figure


def trajectory(importance: Importance, samples: int = 12, steps: int = 150) -> Tensor:
    """The angles of the samples after each step of gradient descent on −E_{sg(α)}: (steps, samples)."""
    generator = torch.Generator().manual_seed(0)
    angle = (2 * math.pi * torch.rand(samples, generator=generator)).requires_grad_()
    first, second = 0.03 * torch.randn(2, samples, generator=generator)
    loss, path = PairLoss(importance), []
    for k in range(steps):
        path.append(angle.detach().clone())
        (step,) = torch.autograd.grad(loss(point(angle + first), point(angle + second)), angle)
        with torch.no_grad():
            angle -= 0.05 * (1 - k / steps) * step / step.abs().max()
    return torch.stack(path)


FIGURES = {"batch": batch, "min_player": min_player, "max_player": max_player}
