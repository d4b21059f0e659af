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


def growth_claims(corr: Tensor, norm: Tensor, widths: Sequence[int], operators: Sequence[str]) -> list[Claim]:
    """Wide networks correlate better than narrow ones, and correlation and operator norms grow in training."""
    epochs, widest, narrowest = len(corr) - 1, max(widths), min(widths)
    wide, narrow = widths.index(widest), widths.index(narrowest)
    of_means = "means of the trials, all of them at or above"
    claims = []
    if wide != narrow:
        gain = (corr[:, wide] - corr[:, narrow]).mean(2)[[0, min(1, epochs), epochs]]
        name = f"mean correlation, |N|={widest} minus |N|={narrowest}, every stage, δ and latent"
        claims.append(Claim.at_least(name, gain, 0.0, of_means))
    growth = (corr[-1, wide] - corr[0, wide]).mean(1)
    name = f"growth of the mean correlation, |N|={widest}, every δ and latent"
    claims.append(Claim.at_least(name, growth, 0.0, of_means))
    for k, name in enumerate(operators[:2]):  # those of Figure 13
        ratio = (norm[-1, :, :, :, k].median(-1).values / norm[0, :, :, :, k].median(-1).values)[wide]
        claim = f"growth factor of ‖OP_{name}‖, |N|={widest}, every δ"
        claims.append(Claim.at_least(claim, ratio, 1.0, "medians of the trials, all of them at or above"))
    return claims


def table6_notes(cells: list[Claim], settings: dict[str, Any]) -> list[str]:
    """Count the cells of Table 6 that agree, by the rule of the claims and by a stricter one."""
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
        f"Table 6: {agreeing} of {size} cells agree ({agreeing / size:.0%}); mean |difference| {mean:.3f}",
        f"Table 6, stricter: {sum(near)} of {size} within two standard errors of the difference of the means",
    ]
