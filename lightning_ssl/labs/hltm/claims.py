"""The claims about training: the cells of Table 6, and growth."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.comparison.claims import mean_holds
from lightning_ssl.comparison.spread import standard_error
from lightning_ssl.labs.lab import Claim

STAGES = ("initial", "after epoch 1", "converged")
PAPER_WIDTHS = (2, 10)
FIGURE_OPERATORS = ("s0", "s1", "s010", "s1100")  # two of Figure 13, two of Figure 14
PAPER_SAMPLES = 64_000
CONVERGED = 20  # epochs; shorter trainings are not compared with the paper's last column


def paper_cells(name: str, delta: float, width: int) -> dict[str, tuple[float, float]]:
    """The paper's mean and std of every stage in Table 6; empty for settings that it does not have."""
    row = papers.load("dual_networks")["hltm"]["table6"].get(name, {}).get(delta)
    if row is None or width not in PAPER_WIDTHS:
        return {}
    return dict(zip(STAGES, row[3 * PAPER_WIDTHS.index(width) :], strict=False))


def table6_claims(corr: Tensor, settings: dict[str, Any]) -> list[Claim]:
    """Compare with the cells of Table 6 that have the same depth, width, δ, latent and length of training.

    corr: best correlations (epochs+1, widths, δ, seeds, latents).
    """
    if settings["depth"] != 5:
        return []
    epochs, claims = {"initial": 0}, []
    if settings["samples"] == PAPER_SAMPLES:
        epochs["after epoch 1"] = 1
    if settings["epochs"] * settings["samples"] >= CONVERGED * PAPER_SAMPLES:
        epochs["converged"] = -1
    keys = itertools.product(*(enumerate(settings[name]) for name in ("latents", "delta_lower", "widths")))
    for (n, name), (d, delta), (w, width) in keys:
        for stage, (mean, std) in paper_cells(name, delta, width).items():
            if stage in epochs:
                claim = f"{name:5} ρ~U[{delta:g}, 1] |N|={width:<2} {stage}"
                claims.append(Claim.near(claim, corr[epochs[stage], w, d, :, n], mean, std))
    return claims


def correlation_claims(corr: Tensor, widths: Sequence[int]) -> list[Claim]:
    """Wide networks correlate better than narrow ones, and correlation grows in training."""
    epochs, wide, narrow = len(corr) - 1, widths.index(max(widths)), widths.index(min(widths))
    of_means = "means of the trials, all of them at or above"
    claims = []
    if wide != narrow:
        gain = (corr[:, wide] - corr[:, narrow]).mean(2)[[0, min(1, epochs), epochs]]
        name = f"mean correlation, |N|={max(widths)} minus |N|={min(widths)}, every stage, δ and latent"
        claims.append(Claim.at_least(name, gain, 0.0, of_means))
    growth = (corr[-1, wide] - corr[0, wide]).mean(1)
    name = f"growth of the mean correlation, |N|={max(widths)}, every δ and latent"
    return [*claims, Claim.at_least(name, growth, 0.0, of_means)]


def operator_claims(arrays: dict[str, Tensor], settings: dict[str, Any]) -> list[Claim]:
    """Figures 13 and 14: the median norm of each operator of the widest networks grows, for every δ and depth."""
    rule, widest, claims = "medians of the trials, all of them at or above", max(settings["widths"]), []
    norm = arrays["operator_norm"][:, settings["widths"].index(widest)].median(2).values  # (epochs+1, D, operators)
    for k, name in enumerate(settings["operators"]):
        figure = f"Fig. {14 if name in FIGURE_OPERATORS[2:] else 13}: growth factor of ‖OP_{name}‖, |N|={widest}"
        claims.append(Claim.at_least(f"{figure}, every δ", norm[-1, :, k] / norm[0, :, k], 1.0, rule))
        shallow = [float(path[-1] / path[0]) for path in norms_of_other_depths(name, arrays, settings).values()]
        if shallow:
            claims.append(Claim.at_least(f"{figure}, other depths", shallow, 1.0, rule))
    return claims


def norms_of_other_depths(name: str, arrays: dict[str, Tensor], settings: dict[str, Any]) -> dict[int, Tensor]:
    """The median norm of an operator in training, (epochs+1,), for each of the other depths that have it."""
    found = {}
    for depth in settings["other_depths"]:
        present = [operator for operator in settings["operators"] if len(operator) <= depth]
        if name in present:
            found[depth] = arrays[f"operator_norm_depth_{depth}"][:, 0, 0, :, present.index(name)].median(1).values
    return found


def operator_notes(norm: Tensor, settings: dict[str, Any]) -> list[str]:
    """The share of narrow networks without gradient at a latent; their median norm may be 0. norm: (…, W, D, S, O)."""
    narrowest = min(settings["widths"])
    zero = (norm[-1, settings["widths"].index(narrowest)] == 0).double().mean((0, 1)).tolist()
    shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(settings["operators"], zero, strict=True))
    return [f"share of trials with OP = 0 at the end, |N|={narrowest}: {shares}"] if shares else []


def table6_notes(cells: list[Claim], settings: dict[str, Any]) -> list[str]:
    """Count the cells of Table 6 whose mean is within the margin of the claims, and within a narrower one."""
    if not cells:
        return ["none of these settings is in Table 6"]
    size, seeds = len(cells), settings["seeds"]
    agreeing = sum(claim.agrees for claim in cells)
    mean = sum(abs(claim.difference) for claim in cells) / size
    # Two of the paper's standard deviations are wide where its trials scatter. Two standard errors of the difference of
    # two means are narrower.
    errors = [standard_error((claim.std, seeds), (claim.paper_std or 0.0, seeds)) for claim in cells]
    near = [mean_holds("equal", c.difference, 0.005 + 2 * error) for c, error in zip(cells, errors, strict=True)]
    return [
        f"Table 6: the means of {agreeing} of {size} cells are within the margin; mean |difference| {mean:.3f}",
        f"Table 6: {sum(near)} of {size} are within two standard errors of the difference of the means",
    ]
