"""The figure: spectrum, power iteration, Lemma 2, roughness, local optima, basins, and Theorems 1 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from lightning_ssl.base.palette import line_style, panels
from lightning_ssl.labs.lab import PALETTE, Result
from lightning_ssl.labs.one_layer.dynamics import THRESHOLD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = dict[str, Tensor]


def draw(result: Result) -> Figure:
    """Draw the eight panels."""
    arrays, taus, q = result.arrays, result.settings["ran_taus"], result.arrays["q"]
    figure, (spectrum, curves, lemma, rough, optima, basins, gaps, condition) = panels(2, 4, (19, 8))
    spectrum.plot(q, (1 - q) ** 2, color=PALETTE[0], label="along u_m: (1 − q)²")
    spectrum.plot(q, q, color=PALETTE[1], label="across: q")
    spectrum.axvline(THRESHOLD, color="0.4", linestyle=":", label="(3 − √5)/2")
    spectrum.set(title="Summation model: eigenvalues of A(u_m)", xlabel="q", ylabel="eigenvalue")
    spectrum.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 0.12))

    _draw_power_iteration(curves, arrays)

    sizes, error = arrays["batch_sizes"], arrays["lemma2_error"]
    lemma.loglog(sizes, error, "o", color=PALETTE[4], alpha=0.6)
    lemma.loglog(sizes, error.mean(1), color=PALETTE[0], label="mean over seeds")
    lemma.loglog(sizes, error.mean(1)[0] * (sizes[0] / sizes).sqrt(), color="0.4", linestyle=":", label="N^(−1/2)")
    lemma.set(title="Lemma 2: C_α of a batch against its limit", xlabel="batch size N", ylabel="relative error")
    lemma.set_xticks(sizes.tolist(), [str(size) for size in sizes.tolist()])
    lemma.minorticks_off()

    rho = arrays["plane_rho"]
    rough.plot(taus, rho[1:] / rho[0], "o-", color=PALETTE[0], label="roughness ρ, measured")
    rough.plot(taus, arrays["plane_exact"][1:], "x", color="black", markersize=9, label="E[φ₀h]/E[h]")
    rough.plot(taus, arrays["plane_z0"][1:], "s--", color=PALETTE[1], label="z₀ (Corollary 2: its bound)")
    rough.set(title="Gaussian over uniform α: roughness", xlabel="τ", ylabel="ratio", xscale="log", ylim=(0, None))

    _draw_optima(optima, arrays, taus, result.settings["patterns_count"])
    _draw_basins(basins, arrays, taus)
    _draw_theorem_1(gaps, arrays)
    _draw_theorem_3(condition, arrays["theorem_3_away"])
    return figure


def _draw_power_iteration(ax: Axes, arrays: Arrays) -> None:
    for k, moved in enumerate(arrays["power_iteration"]):
        label = f"{float(arrays['skew_norm'][k].mean()):.2f}"
        colour, line = line_style(k)
        ax.semilogy(range(1, len(moved) + 1), moved.clamp_min(1e-17), line, color=colour, label=label)
    ax.set(title="Power iteration from u_m (Figure 1, right), median", xlabel="iteration t", ylabel="‖w(t+1) − w(t)‖")
    ax.legend(title="‖UᵀU − I‖", frameon=False)


def _draw_theorem_1(ax: Axes, arrays: Arrays) -> None:
    names = {"theorem_1_noise": "ReLU, LeakyReLU, noise", "theorem_1_power_2": "x²", "theorem_1_power_4": "x⁴"}
    for k, (key, name) in enumerate(names.items()):
        gap, rho, maximal, stable = arrays[key].flatten(2).movedim(1, 0).flatten(1)
        for back, style in ((True, "o"), (False, "x")):
            where = (maximal > 0) & ((stable > 0) == back)
            label = f"{name}, {'stable' if back else 'unstable'}" if bool(where.any()) else None
            ax.loglog(gap[where], rho[where].clamp_min(1e-6), style, color=PALETTE[k], alpha=0.6, label=label)
    ax.plot((1e-6, 1e5), (1e-6, 1e5), ":", color="0.4")
    ax.set(title="Theorem 1: below the line λ_gap > ρ", xlabel="λ_gap(u_m)", ylabel="ρ(u_m), at least 1e-6")


def _draw_theorem_3(ax: Axes, away: Tensor) -> None:
    names = ("ReLU, nearer to orthogonal", "ReLU, less near", "LeakyReLU 0.98")
    for k, ((path, bound), name) in enumerate(zip(away, names, strict=True)):
        ax.semilogy(path.clamp_min(1e-20), color=PALETTE[k], label=name)
        ax.semilogy(bound.clamp_min(1e-20), ":", color=PALETTE[k])
    ax.set(title="Theorem 3 where ω ≤ γ (dotted: γᵗ(1 − c₀))", xlabel="iteration t", ylabel="1 − c_t, slowest run")


def _draw_optima(ax: Axes, arrays: Arrays, taus: Sequence[float], patterns_count: int) -> None:
    counts = [arrays["linear_optima"].double(), *arrays["optima"].double()]
    colours = [PALETTE[6], PALETTE[0], *[PALETTE[1]] * len(taus)]
    ax.bar(range(len(counts)), [float(values.mean()) for values in counts], color=colours)
    for k, values in enumerate(counts):
        ax.plot([k] * len(values), values, "o", color="0.35", markersize=3)
    ax.set_xticks(list(range(len(counts))), ["linear", *_alpha_names(taus)], rotation=20)
    ax.axhline(patterns_count, color="0.4", linestyle=":")
    ax.set(title="Local optima found (dotted: patterns; τ: Gaussian α)", ylabel="number per seed")


def _draw_basins(ax: Axes, arrays: Arrays, taus: Sequence[float]) -> None:
    for k, (sizes, name) in enumerate(zip(arrays["basins"].double(), _alpha_names(taus), strict=True)):
        share = sizes.mean(0) / sizes.sum(1).mean()
        share = share[share > 0]
        colour, line = line_style(k)
        ax.plot(range(1, len(share) + 1), share, "o" + line, markersize=3, color=colour, label=name)
    ax.set(title="Basins, largest first", xlabel="rank of the basin", ylabel="share of random filters")


def _alpha_names(taus: Sequence[float]) -> list[str]:
    return ["uniform α", *[f"τ = {tau:g}" for tau in taus]]
