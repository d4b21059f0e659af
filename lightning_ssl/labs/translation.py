"""Telling 11 from 101 on a ring: a linear neuron cannot begin to learn it, a ReLU neuron with a local field can.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Section 5.1, Eqns. 11 to 13.

The data. Object z_0 ∈ {1, 2} lights pixels z' and z' + z_0 (mod d); augmentation moves it to any of the d positions.
The neuron sees pixels 0 … k−1, its receptive field, and a constant 1 when it has a bias. Under the simple contrastive
loss r₊ − r₋ its weights move by w ← w + α OP w, OP = V_{z0}[K̄(z_0)], K̄(z_0) = E_{z'}[ψ'(wᵀx) x] (Theorem 3).
Expectations are sums over the 2d inputs, so that the statements are exact.

What it shows:
- linear neuron, field of any width: OP = 0, to the last bit;
- ReLU neuron that answers to one pattern p of a two-pixel field: OP = c_p x_p x_pᵀ with c_p = 1/(4d²), and x_pᵀw grows
  by the factor 1 + α c_p ‖x_p‖² in a step;
- random ReLU neurons: about half have OP ≠ 0, and what these amplify is the difference between their mean responses to
  the two objects, Dᵀw with D = K̄(1) − K̄(2), for OP = ¼ D Dᵀ.

Where this says more than the paper, or differs:
- The paper has c_p > 0; counting positions gives 1/(4d²) for each of the four patterns.
- Without a bias no neuron answers to 11 alone (it would have to answer to 01 or 10 too), nor to 00 at all (x_00 = 0).
  The remark that the argument holds with biases is needed for these two; here neurons have one by default.
- The exponential growth of Eqn. 13 ends: w moves along x_p, which raises the response to patterns that overlap with p,
  and when one of them crosses the threshold the neuron is no longer selective for p alone. The factor is compared up to
  that step, which the notes give.
- Without a bias OP ≠ 0 for exactly half of all directions w of a two-pixel field: one weight positive, one negative.
- Non-linearity alone is enough for OP ≠ 0: nearly all random ReLU neurons that see the whole ring have it. OP = 0 rests
  on linearity, and the width of the field only changes how large OP is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.checks import require
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATTERNS = ("00", "01", "10", "11")


def ring(d: int) -> Tensor:
    """The inputs of Eqn. 11, 𝐱(z_0, z') = 𝐞_{z'} + 𝐞_{(z'+z_0) mod d}: (2, d, d) over object, position, pixel."""
    position = torch.arange(d)
    x = torch.zeros(2, d, d, dtype=torch.float64)
    for z0 in (1, 2):
        x[z0 - 1, position, position] = 1
        x[z0 - 1, position, (position + z0) % d] = 1
    return x


def field(x: Tensor, width: int, bias: bool) -> Tensor:
    """What a neuron on pixels 0 … width−1 sees, with a constant 1 for the bias: (2, d, width (+ 1))."""
    seen = x[..., :width]
    return torch.cat([seen, torch.ones_like(seen[..., :1])], 2) if bias else seen


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


def single_pattern_neurons(x: Tensor, bias: bool) -> tuple[Tensor, list[str]]:
    """Neurons of a two-pixel field that answer to exactly one pattern, as far as there are any: (P, 2 (+ 1))."""
    neurons = {"01": (-4.0, 1.0, 0.0), "10": (1.0, -4.0, 0.0)}
    if bias:
        neurons = {"00": (-4.0, -4.0, 1.0), "01": (-4.0, 2.0, -1.0), "10": (2.0, -4.0, -1.0), "11": (3.0, 3.0, -5.0)}
    w = torch.tensor(list(neurons.values()), dtype=x.dtype)
    return (w if bias else w[:, :2]), list(neurons)


def pattern(name: str, bias: bool) -> Tensor:
    """The vector 𝐱_p of a two-pixel pattern."""
    pixels = [float(pixel) for pixel in name]
    return torch.tensor(pixels + [1.0] * bias, dtype=torch.float64)


def steps_of_single_answer(path: Tensor, x: Tensor) -> Tensor:
    """Steps for which the gates ψ'(wᵀx) of each neuron on a path (T + 1, R, k) stay as they were at the start: (R,)."""
    gates = torch.einsum("trk,zpk->trzp", path, x) > 0
    same = (gates == gates[0]).all(3).all(2)  # (T + 1, R)
    return same[:-1].long().cumprod(0).sum(0)


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
    """Covariance operators and training of single neurons that look at moving objects.

    d: pixels on the ring
    widths: pixels in the receptive field of the random neurons
    bias: neurons have a bias
    alpha: step size
    steps: steps of training
    seeds: random neurons for each width
    first_seed: seed of the first of them
    quick: a tenth of the neurons and steps
    progress: show a progress bar
    """
    require(d >= 5, "d", d, "at least 5, for 11 and 101 to be different objects with room to move")
    require(len(widths) > 0 and all(2 <= k <= d for k in widths), "widths", widths, f"whole numbers from 2 to d={d}")
    require(alpha > 0, "alpha", alpha, "more than 0")
    require(steps >= 1, "steps", steps, "at least 1")
    require(seeds >= 1, "seeds", seeds, "at least 1")
    if quick:
        seeds, steps = max(seeds // 10, 1), max(steps // 10, 1)
    settings = {"d": d, "widths": widths, "bias": bias, "alpha": alpha, "steps": steps}
    settings |= {"seeds": seeds, "first_seed": first_seed}
    x = ring(d)
    # (S, d (+ 1))
    start = per_seed(lambda g: torch.randn(d + bias, generator=g, dtype=torch.float64), seeds, first_seed)

    def neurons(width: int) -> Tensor:
        return torch.cat([start[:, :width], start[:, d:]], 1) / width**0.5

    linear_norm, relu_norm = [], []
    for width in widths:
        w, seen = neurons(width), field(x, width, bias)
        linear_norm.append(torch.linalg.matrix_norm(operator(w, seen, linear=True)))
        relu_norm.append(torch.linalg.matrix_norm(operator(w, seen)))
    arrays = {"linear_norm": torch.stack(linear_norm), "relu_norm": torch.stack(relu_norm)}  # (widths, S)

    seen = field(x, 2, bias)
    chosen, names = single_pattern_neurons(x, bias)
    xp = torch.stack([pattern(name, bias) for name in names])  # (P, 2 (+ 1))
    c, square = 1 / (4 * d**2), xp.square().sum(1)
    OP = operator(chosen, seen)
    path = train(chosen, seen, alpha, steps)
    linear_path = train(chosen, seen, alpha, steps, linear=True)
    response = (path * xp).sum(2)  # 𝐱_pᵀ𝐰(t), (steps + 1, P)
    closed = response[0] * (1 + alpha * c * square) ** torch.arange(steps + 1)[:, None]
    random_path = train(neurons(2), seen, alpha, steps, progress=progress)
    gap = torch.stack([(selectivity(w, seen) * w).sum(1) for w in random_path])  # (steps + 1, S)
    arrays |= {"pattern_response": response, "closed_form": closed, "object_gap": gap}

    whole = operator(start, field(x, d, bias), linear=True)
    fields = ", ".join(map(str, widths))
    claims = [
        Claim.at_most("‖OP‖, linear neuron that sees the whole ring", torch.linalg.matrix_norm(whole), 0.0),
        Claim.at_most(f"‖OP‖, linear neuron, fields of {fields} pixels", arrays["linear_norm"], 0.0),
        Claim.at_most("movement of linear neurons in training", (linear_path - chosen).abs().amax(), 0.0),
    ]
    lasts = arrays["steps_of_single_answer"] = steps_of_single_answer(path, seen)
    for k, name in enumerate(names):
        neuron, T = f"ReLU, answers to {name} alone", int(lasts[k])
        claims.append(Claim.near(f"{neuron}: 4d² c_p", float(OP[k].trace() / square[k] / c), 1.0, tolerance=1e-9))
        residue = (OP[k] - c * torch.outer(xp[k], xp[k])).abs().max() / c
        claims.append(Claim.at_most(f"{neuron}: largest |OP − c_p x xᵀ|/c_p", float(residue), 1e-9))
        rate = (response[1 : T + 1, k] / response[:T, k]).log().mean().exp() if T else torch.nan
        theory = float(1 + alpha * c * square[k])
        claims.append(Claim.near(f"{neuron}: growth of xᵀw in a step", float(rate), theory, tolerance=1e-9))
    plain = operator(start[:, :2], field(x, 2, bias=False))
    share = (torch.linalg.matrix_norm(plain) > 0).double()
    claims.append(
        Claim.near("random ReLU neurons without bias, field of 2: share with OP ≠ 0", share, 0.5, tolerance=0.1)
    )
    started = gap[0] != 0
    amplified = gap[-1, started].abs() / gap[0, started].abs()
    if len(amplified):
        claims.append(
            Claim.at_least("random ReLU neurons with OP ≠ 0: growth of the objects' difference", amplified, 1.0)
        )
    wide, narrow = arrays["relu_norm"][-1], arrays["relu_norm"][0]
    last = ", ".join(f"{name} {int(T)}" for name, T in zip(names, lasts, strict=True))
    notes = [
        f"steps (of {steps}) until another pattern crosses the threshold and Eqn. 13 ends: {last}",
        f"random ReLU neurons with OP ≠ 0: {(narrow > 0).double().mean():.0%} with a field of {widths[0]}, "
        f"{(wide > 0).double().mean():.0%} with a field of {widths[-1]}; "
        f"mean ‖OP‖ {narrow.mean():.1e} and {wide.mean():.1e}",
    ]
    if not bias:
        notes.append("without a bias no neuron answers to 00 or to 11 alone; these two are left out")
    return Result("translation", settings, arrays, claims, notes, _draw)


def _draw(result: Result) -> Figure:
    settings, arrays = result.settings, result.arrays
    figure, (left, middle, right) = panels(1, 3, (13.5, 4.3))
    norm, widths = arrays["relu_norm"], list(settings["widths"])
    low, median, high = norm.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=norm.dtype), dim=1)
    left.fill_between(widths, low, high, color=PALETTE[0], alpha=0.2, linewidth=0, label="10 % to 90 % of ReLU neurons")
    left.plot(widths, median, "o-", color=PALETTE[0], label="ReLU, median")
    left.plot(widths, arrays["linear_norm"].amax(1), "s--", color=PALETTE[1], label="linear, largest")
    left.set(title="Operator of random neurons", xlabel="pixels in the receptive field", ylabel="‖OP‖")
    left.legend(frameon=False, fontsize=8)
    response, closed, lasts = arrays["pattern_response"], arrays["closed_form"], arrays["steps_of_single_answer"]
    names = single_pattern_neurons(ring(settings["d"]), settings["bias"])[1]
    step = torch.arange(len(response))
    marks = slice(0, None, max(settings["steps"] // 16, 1))
    for k, name in enumerate(names):
        grown, theory, T = response[:, k] / response[0, k], closed[:, k] / closed[0, k], int(lasts[k]) + 1
        middle.plot(
            step[marks], grown[marks], "osxD"[k], color=PALETTE[k], fillstyle="none", markersize=(5, 8, 5, 6)[k]
        )
        line, width = ("-", "-", "--", "-")[k], (1.4, 3.0, 1.4, 1.4)[k]
        label = f"answers to {name} alone, {T - 1} steps"
        middle.plot(step[:T], theory[:T], color=PALETTE[k], linestyle=line, linewidth=width, label=label)
    middle.axhline(1, color="0.4", linestyle=":", linewidth=1, label="linear neuron")
    middle.set(title="Marks: training. Lines: Eqn. 13", xlabel="step", ylabel="xᵀw relative to the start", yscale="log")
    middle.set_ylim(bottom=0.6)
    middle.legend(frameon=False, fontsize=8, loc="lower right")
    gap = arrays["object_gap"][:, :40]
    right.plot(step, gap[:, gap[0] > 0], color=PALETTE[2], linewidth=0.8, alpha=0.7)
    right.plot(step, gap[:, gap[0] < 0], color=PALETTE[3], linewidth=0.8, alpha=0.7)
    right.axhline(0, color="0.3", linewidth=1)
    right.set_yscale("symlog", linthresh=0.1 / settings["d"])
    right.set(title="Random ReLU neurons with a field of 2", xlabel="step", ylabel="mean response to 11 minus to 101")
    figure.suptitle(f"11 or 101 on a ring of {settings['d']} pixels: initial selectivity is amplified")
    return figure
