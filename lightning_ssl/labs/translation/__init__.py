"""Telling 11 from 101 on a ring: a linear neuron cannot begin to learn it, a ReLU neuron with a local field can.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Section 5.1, Eqns. 11 to 13. Findings, and
differences from the paper: docs/labs/translation.md. `semantic` has the first example of Section 5.1, a linear neuron
in the subspace that augmentation preserves.

Data: object z_0 ∈ {1, 2} lights pixels z' and z' + z_0 (mod d); augmentation moves it to any of the d positions. The
neuron sees pixels 0 … k−1, its receptive field, and a constant 1 when it has a bias. Under the simple contrastive loss
r₊ − r₋ its weights move by w ← w + α OP w, OP = V_{z0}[K̄(z_0)], K̄(z_0) = E_{z'}[ψ'(wᵀx) x] (Theorem 3). Expectations
are sums over the 2d inputs, so the statements are exact.

Checks:
- linear neuron, field of any width: OP = 0, to the last bit;
- ReLU neuron that responds to one pattern p of a two-pixel field: OP = c_p x_p x_pᵀ with c_p = 1/(4d²), and x_pᵀw grows
  by the factor 1 + α c_p ‖x_p‖² in a step;
- random ReLU neurons: about half have OP ≠ 0. These amplify the difference between their mean responses to the two
  objects, Dᵀw with D = K̄(1) − K̄(2), because OP = ¼ D Dᵀ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.base.palette import panels
from lightning_ssl.labs.lab import PALETTE, Claim, Result, band, laboratory, normal, track
from lightning_ssl.labs.translation.semantic import semantic_claims

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Neurons of a two-pixel field, with and without a bias, that respond to one pattern only.
SINGLE_PATTERN: dict[bool, dict[str, tuple[float, ...]]] = {
    True: {"00": (-4.0, -4.0, 1.0), "01": (-4.0, 2.0, -1.0), "10": (2.0, -4.0, -1.0), "11": (3.0, 3.0, -5.0)},
    False: {"01": (-4.0, 1.0), "10": (1.0, -4.0)},
}


def ring(d: int) -> Tensor:
    """The inputs of Eqn. 11, 𝐱(z_0, z') = 𝐞_{z'} + 𝐞_{(z'+z_0) mod d}: (2, d, d) over object, position, pixel."""
    eye = torch.eye(d, dtype=torch.float64)
    return torch.stack([eye + eye.roll(z0, 1) for z0 in (1, 2)])


def receptive_field(x: Tensor, width: int, bias: bool) -> Tensor:
    """The input of a neuron on pixels 0 … width−1, with a constant 1 for the bias: (2, d, width (+ 1))."""
    pixels = x[..., :width]
    return torch.cat([pixels, torch.ones_like(pixels[..., :1])], 2) if bias else pixels


def selectivity(w: Tensor, x: Tensor, linear: bool = False) -> Tensor:
    """D = K̄(1) − K̄(2) of neurons w (R, k): (R, k). The operator is V_{z0}[K̄] = ¼ D Dᵀ."""
    if linear:
        return (x[0].mean(0) - x[1].mean(0)).expand_as(w)
    gate = (torch.einsum("rk,zpk->rzp", w, x) > 0).to(x.dtype)
    K = torch.einsum("rzp,zpk->rzk", gate, x) / x.shape[1]
    return K[:, 0] - K[:, 1]


def operator(w: Tensor, x: Tensor, linear: bool = False) -> Tensor:
    """The covariance operator OP = V_{z0}[E_{z'}[ψ'(𝐰ᵀ𝐱) 𝐱]] of each neuron: (R, k, k)."""
    D = selectivity(w, x, linear)
    return D[:, :, None] * D[:, None, :] / 4


def train(w: Tensor, x: Tensor, alpha: float, steps: int, linear: bool = False, progress: bool = False) -> Tensor:
    """Weights along 𝐰 ← 𝐰 + α OP(𝐰) 𝐰: (steps + 1, R, k)."""
    path = [w]
    for _ in track(range(steps), "moving objects", progress):
        D = selectivity(path[-1], x, linear)
        path.append(path[-1] + alpha / 4 * D * (D * path[-1]).sum(1, keepdim=True))
    return torch.stack(path)


def selective_steps(path: Tensor, x: Tensor) -> Tensor:
    """Steps of a path (T + 1, R, k) until the gates ψ'(wᵀx) of each neuron first change: (R,)."""
    gates = torch.einsum("trk,zpk->trzp", path, x) > 0
    same = (gates == gates[0]).all(3).all(2)  # (T + 1, R)
    return same[:-1].long().cumprod(0).sum(0)


@laboratory(quick={"seeds": 100, "steps": 20}, d=5)  # from 5 on, 11 and 101 are different objects with room to move
def run(
    *,
    d: int = 16,
    widths: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16),
    bias: bool = True,
    alpha: float = 20.0,
    steps: int = 200,
    seeds: int = 1000,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Compute covariance operators and training of single neurons that see moving objects.

    Args:
        d: pixels on the ring
        widths: pixels in the receptive field of the random neurons
        bias: neurons have a bias
        alpha: step size
        steps: steps of training
        seeds: random neurons for each width; at most 50 of them for the semantic subspace
        first_seed: seed of the first neuron
        quick: at most 100 neurons and 20 steps
        progress: show a progress bar
    """
    settings = dict(locals())
    require(all(2 <= k <= d for k in widths), "widths", widths, f"whole numbers from 2 to d={d}")
    x = ring(d)
    start = normal((d + bias,), seeds, first_seed, dtype=torch.float64)  # (S, d (+ 1))
    random = [(_neurons(start, width, d), receptive_field(x, width, bias)) for width in widths]
    linear_norm, relu_norm = (
        torch.stack([torch.linalg.matrix_norm(operator(w, seen, linear)) for w, seen in random])
        for linear in (True, False)
    )  # each (widths, S)
    whole = operator(start, receptive_field(x, d, bias), linear=True)
    fields = ", ".join(map(str, widths))
    selective_claims, selective = _single_patterns(x, bias, alpha, steps)
    seen = receptive_field(x, 2, bias)
    path = train(_neurons(start, 2, d), seen, alpha, steps, progress=progress)
    gap = torch.stack([(selectivity(w, seen) * w).sum(1) for w in path])  # (steps + 1, S)
    semantic, cosine = semantic_claims(seeds, first_seed)
    claims = [
        *semantic,
        Claim.at_most("‖OP‖, linear neuron that sees the whole ring", torch.linalg.matrix_norm(whole), 0.0),
        Claim.at_most(f"‖OP‖, linear neuron, fields of {fields} pixels", linear_norm, 0.0),
        *selective_claims,
        *_random_claims(start, x, gap),
    ]
    arrays = {
        "linear_norm": linear_norm,
        "relu_norm": relu_norm,
        "object_gap": gap,
        "semantic_cosine": cosine,
        **selective,
    }
    return Result("translation", settings, arrays, claims, _notes(arrays, settings), _draw)


def _neurons(start: Tensor, width: int, d: int) -> Tensor:
    """Random neurons on a field of `width` pixels, from start (S, d (+ 1)): (S, width (+ 1))."""
    return torch.cat([start[:, :width], start[:, d:]], 1) / width**0.5


def _single_patterns(x: Tensor, bias: bool, alpha: float, steps: int) -> tuple[list[Claim], dict[str, Tensor]]:
    """Train the P neurons that respond to one pattern only, linear and ReLU, and compare them with Eqn. 13."""
    d, seen = x.shape[2], receptive_field(x, 2, bias)
    names, neurons = zip(*SINGLE_PATTERN[bias].items(), strict=True)
    w = torch.tensor(neurons, dtype=x.dtype)  # (P, 2 (+ 1))
    patterns = torch.tensor([[*map(float, name), *[1.0] * bias] for name in names], dtype=x.dtype)  # (P, 2 (+ 1))
    path = train(w, seen, alpha, steps)
    movement = (train(w, seen, alpha, steps, linear=True) - w).abs().amax()
    response = (path * patterns).sum(2)  # x_pᵀw(t), (steps + 1, P)
    c, square = 1 / (4 * d**2), patterns.square().sum(1)
    factor = 1 + alpha * c * square
    lasts = selective_steps(path, seen)
    claims = [Claim.at_most("movement of linear neurons in training", movement, 0.0)]
    for k, (name, OP) in enumerate(zip(names, operator(w, seen), strict=True)):
        neuron, T = f"ReLU, answers to {name} alone", int(lasts[k])
        residue = (OP - c * torch.outer(patterns[k], patterns[k])).abs().max() / c
        rate = (response[1 : T + 1, k] / response[:T, k]).log().mean().exp() if T else torch.nan
        claims += [
            Claim.near(f"{neuron}: 4d² c_p", float(OP.trace() / square[k] / c), 1.0, tolerance=1e-9),
            Claim.at_most(f"{neuron}: largest |OP − c_p x xᵀ|/c_p", float(residue), 1e-9),
            Claim.near(f"{neuron}: growth of xᵀw in a step", float(rate), float(factor[k]), tolerance=1e-9),
        ]
    closed_form = response[0] * factor ** torch.arange(steps + 1)[:, None]
    return claims, {"pattern_response": response, "closed_form": closed_form, "steps_of_single_answer": lasts}


def _random_claims(start: Tensor, x: Tensor, gap: Tensor) -> list[Claim]:
    without_bias = operator(start[:, :2], receptive_field(x, 2, bias=False))
    share = (torch.linalg.matrix_norm(without_bias) > 0).double()
    name = "random ReLU neurons without bias, field of 2: share with OP ≠ 0"
    claims = [Claim.near(name, share, 0.5, tolerance=0.1)]
    selective = gap[0] != 0
    growth = gap[-1, selective].abs() / gap[0, selective].abs()
    if len(growth):
        name = "random ReLU neurons with OP ≠ 0: growth of the objects' difference"
        claims.append(Claim.at_least(name, growth, 1.0))
    return claims


def _notes(arrays: dict[str, Tensor], settings: dict[str, Any]) -> list[str]:
    widths, steps, norm = settings["widths"], settings["steps"], arrays["relu_norm"]
    steps_of = zip(SINGLE_PATTERN[settings["bias"]], arrays["steps_of_single_answer"].tolist(), strict=True)
    last = ", ".join(f"{name} {T}" for name, T in steps_of)
    notes = [
        f"steps (of {steps}) until another pattern crosses the threshold and Eqn. 13 ends: {last}",
        f"random ReLU neurons with OP ≠ 0: {(norm[0] > 0).double().mean():.0%} with a field of {widths[0]}, "
        f"{(norm[-1] > 0).double().mean():.0%} with a field of {widths[-1]}; "
        f"mean ‖OP‖ {norm[0].mean():.1e} and {norm[-1].mean():.1e}",
    ]
    if not settings["bias"]:
        notes.append("without a bias no neuron answers to 00 or to 11 alone; these two are left out")
    return notes


def _draw(result: Result) -> Figure:
    settings, arrays = result.settings, result.arrays
    figure, (first, left, middle, right) = panels(1, 4, (17.5, 4.3))
    cosine = arrays["semantic_cosine"]
    band(first, range(len(cosine)), cosine, "-", PALETTE[1], "linear neuron, median", label="10 % to 90 %")
    first.set(title="Semantic subspace", xlabel="step", ylabel="|cos(w, top direction of Q V[x] Qᵀ)|", xscale="symlog")
    _draw_operators(left, arrays, list(settings["widths"]))
    _draw_responses(middle, arrays, list(SINGLE_PATTERN[settings["bias"]]))
    _draw_random(right, arrays["object_gap"][:, :40], settings["d"])
    figure.suptitle(f"11 or 101 on a ring of {settings['d']} pixels: initial selectivity is amplified")
    return figure


def _draw_operators(ax: Axes, arrays: dict[str, Tensor], widths: list[int]) -> None:
    norm = arrays["relu_norm"]
    band(ax, widths, norm, "o-", PALETTE[0], "ReLU, median", alpha=0.2, label="10 % to 90 % of ReLU neurons")
    ax.plot(widths, arrays["linear_norm"].amax(1), "s--", color=PALETTE[1], label="linear, largest")
    ax.set(title="Operator of random neurons", xlabel="pixels in the receptive field", ylabel="‖OP‖")


def _draw_responses(ax: Axes, arrays: dict[str, Tensor], names: list[str]) -> None:
    response, closed, lasts = arrays["pattern_response"], arrays["closed_form"], arrays["steps_of_single_answer"]
    step = torch.arange(len(response))
    marks = slice(0, None, max((len(response) - 1) // 16, 1))
    for k, name in enumerate(names):
        grown, theory, T = response[:, k] / response[0, k], closed[:, k] / closed[0, k], int(lasts[k]) + 1
        ax.plot(step[marks], grown[marks], "osxD"[k], color=PALETTE[k], fillstyle="none", markersize=(5, 8, 5, 6)[k])
        line, width = ("-", "-", "--", "-")[k], (1.4, 3.0, 1.4, 1.4)[k]
        label = f"answers to {name} alone, {T - 1} steps"
        ax.plot(step[:T], theory[:T], color=PALETTE[k], linestyle=line, linewidth=width, label=label)
    ax.axhline(1, color="0.4", linestyle=":", linewidth=1, label="linear neuron")
    ax.set(title="Marks: training. Lines: Eqn. 13", xlabel="step", ylabel="xᵀw relative to the start", yscale="log")
    ax.set_ylim(bottom=0.6)
    ax.legend(frameon=False, fontsize=8, loc="lower right")


def _draw_random(ax: Axes, gap: Tensor, d: int) -> None:
    step = torch.arange(len(gap))
    ax.plot(step, gap[:, gap[0] > 0], color=PALETTE[2], linewidth=0.8, alpha=0.7)
    ax.plot(step, gap[:, gap[0] < 0], color=PALETTE[3], linewidth=0.8, alpha=0.7)
    ax.axhline(0, color="0.3", linewidth=1)
    ax.set_yscale("symlog", linthresh=0.1 / d)
    ax.set(title="Random ReLU neurons with a field of 2", xlabel="step", ylabel="mean response to 11 minus to 101")
