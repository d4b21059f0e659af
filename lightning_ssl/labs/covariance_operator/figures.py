"""The figure: the residue against the augmentation and in training, and the smallest eigenvalue against β."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl.base.palette import line_style, panels
from lightning_ssl.labs.lab import PALETTE, Result, band

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: Result) -> Figure:
    """Draw the residue at the start and in training, and the smallest eigenvalue for every β."""
    settings, arrays = result.settings, result.arrays
    figure, (left, middle, right) = panels(1, 3, (13.5, 4.3))
    names = [name.removeprefix("residue ") for name in arrays if name.startswith("residue ")]
    for k, name in enumerate(names):
        colour, line = line_style(k)
        band(left, settings["sigmas"], arrays[f"residue {name}"], "os"[k % 2] + line, colour, name)
        path = arrays[f"size {name}"]
        band(middle, range(len(path)), path, line, colour, name)
    left.set(title="Residue at the start (band: 10 to 90 %)", xlabel="strength of augmentation σ", xscale="log")
    left.set(ylabel="‖θ vec(W)‖ / ‖½V^ξ vec(W)‖", yscale="log")
    middle.set(title=f"Residue in training, σ = {settings['sigma']:g}", xlabel="step")
    middle.set(ylabel="‖θ‖ / ‖½V^ξ‖", yscale="log")
    lowest = arrays["smallest_eigenvalue"]
    right.axhline(0, color="0.4", linewidth=1)
    right.plot(settings["betas"], lowest, color=PALETTE[2], alpha=0.35, linewidth=0.8)
    right.plot(settings["betas"], lowest.mean(1), "o-", color=PALETTE[2], label="mean of the networks")
    right.set(title="−β EV + VE, most negative layer", xlabel="β", ylabel="λ_min / λ_max")
    figure.suptitle("The covariance operator of a contrastive update: what Theorem 4 leaves over, and what β does")
    return figure
