"""The number of nodes that Theorem 5 requires: R̂(c, γ) of Lemma 8, its bounds (Figure 11) and Eqn. 165.

y₊ and y₋ are standard Gaussian with correlation −γ. Lemma 8 bounds P(y₊ ≥ √c, y₋ ≥ 0) from below by
e^{−c/2} √(1−γ²) R̂(c, γ) / 2π (Eqn. 112), and Theorem 5 needs ln(1/η) over this bound nodes (Eqn. 128).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.labs.lab import Claim

Mills = Callable[[Tensor], Tensor]

FIGURE_C = torch.logspace(-1, 3, 81, dtype=torch.float64)
FIGURE_GAMMA = torch.tensor([0.0, 0.1, 0.2, 0.5, 0.9, 0.99], dtype=torch.float64)


def mills(y: Tensor) -> Tensor:
    """The Mills ratio r(y) = ∫₀^∞ e^{−yt − t²/2} dt (Eqn. 116)."""
    return (math.pi / 2) ** 0.5 * torch.special.erfcx(y / 2**0.5)


def mills_below(y: Tensor) -> Tensor:
    """2/(√(y² + 4) + y) < r(y) (Eqn. 124)."""
    return 2 / ((y.square() + 4).sqrt() + y)


def mills_above(y: Tensor) -> Tensor:
    """4/(√(y² + 8) + 3y) > r(y) (Eqn. 124)."""
    return 4 / ((y.square() + 8).sqrt() + 3 * y)


def r_hat(c: Tensor, gamma: Tensor, r: Mills = mills) -> Tensor:
    """R̂(c, γ) = max[r(κ₁) r(κ₂ + γ e(κ₁)), r(κ₂) r(κ₁ + γ e(κ₂))], e(y) = 1/r(y) − y (Eqns. 117 to 121).

    R̂ grows with r, so a bound of r gives a bound of R̂.
    """
    k1 = (c / (1 - gamma**2)).sqrt()
    k2 = gamma * k1
    e1, e2 = 1 / r(k1) - k1, 1 / r(k2) - k2
    return torch.maximum(r(k1) * r(k2 + gamma * e1), r(k2) * r(k1 + gamma * e2))


def r_hat_limit(c: Tensor, gamma: Tensor) -> Tensor:
    """(1 − γ²)/(γ c), the curve that R̂ approaches for c → ∞ and γ → 1 (Eqn. 126)."""
    return (1 - gamma**2) / (gamma * c)


def required_nodes(c: float, gamma: float, eta: float, r: Mills = mills) -> float:
    """2π e^{c/2} ln(1/η) / (√(1−γ²) R̂(c, γ)), the nodes |N_μ| that Theorem 5 requires (Eqn. 128)."""
    R = float(r_hat(torch.tensor(c, dtype=torch.float64), torch.tensor(gamma, dtype=torch.float64), r))
    return 2 * math.pi * math.exp(c / 2) / ((1 - gamma**2) ** 0.5 * R) * math.log(1 / eta)


def lucky_width(c: float, gamma: float, eta: float) -> int:
    """The smallest whole number of nodes that satisfies Theorem 5."""
    return math.ceil(required_nodes(c, gamma, eta))


def tail(c: Tensor, gamma: Tensor) -> Tensor:
    """P(y₊ ≥ √c, y₋ ≥ 0) = ∫_{√c}^∞ φ(t) Φ(−γt/√(1−γ²)) dt, times e^{c/2(1−γ²)}, which keeps it above underflow.

    The integral is the trapezoidal rule in s, t = √c + e^s.
    """
    s = torch.linspace(-30, 4, 4001, dtype=torch.float64)
    root, slope = c.sqrt()[..., None], (gamma / (1 - gamma**2).sqrt())[..., None]
    t = root + s.exp()
    exponent = (c / (1 - gamma**2))[..., None] / 2 - t.square() / 2 + torch.special.log_ndtr(-slope * t) + s
    return torch.trapezoid(exponent.exp(), s) / (2 * math.pi) ** 0.5


def lemma8(c: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """P(y₊ ≥ √c, y₋ ≥ 0) over its lower bound: Eqn. 112, then Steck's bound, from which it is derived (Eqn. 115).

    Eqn. 115 has the factor e^{−y₀ᵀMy₀/2} with y₀ᵀMy₀ = c/(1−γ²). The proof takes c for it, so Eqn. 112 has e^{−c/2}.
    """
    steck = tail(c, gamma) * 2 * math.pi / ((1 - gamma**2).sqrt() * r_hat(c, gamma))
    return steck * (-c * gamma**2 / (1 - gamma**2) / 2).exp(), steck


def lucky_claims() -> tuple[list[Claim], list[str], dict[str, Tensor]]:
    """Lemma 8, Figure 11, Eqn. 165 and the remark on ρ: the claims, the notes and the arrays of the figure."""
    c, gamma = FIGURE_C[:, None].expand(-1, len(FIGURE_GAMMA)), FIGURE_GAMMA.expand(len(FIGURE_C), -1)
    exact, low, high = (r_hat(c, gamma, r) for r in (mills, mills_below, mills_above))
    stated, steck = lemma8(c, gamma)
    to_limit = (exact / r_hat_limit(c, gamma))[-1, -1]
    largest_c = r_hat(torch.full_like(FIGURE_GAMMA, 1e6), FIGURE_GAMMA)
    largest_gamma = r_hat(FIGURE_C, torch.full_like(FIGURE_C, 1 - 1e-6))
    rounding, quadrature = 1e-9, 1e-6
    most = f"c = {FIGURE_C[-1]:g}, γ = {FIGURE_GAMMA[-1]:g}"
    claims = [
        Claim.at_most("Fig. 11: bound of Eqn. 124 from below over R̂", low / exact, 1.0 + rounding),
        Claim.at_least("Fig. 11: bound of Eqn. 124 from above over R̂", high / exact, 1.0 - rounding),
        Claim.near(f"Fig. 11: R̂ over (1 − γ²)/(γc), {most}", to_limit, 1.0, tolerance=0.01),
        Claim.at_most("Eqn. 127: R̂ at c = 1e6, every γ", largest_c, 0.01),
        Claim.at_most("Eqn. 127: R̂ at γ = 1 − 1e-6, every c", largest_gamma, 0.01),
        Claim.at_least("Lemma 8, Eqn. 115: probability over its bound", steck, 1.0 - quadrature),
        Claim.at_least("Lemma 8, Eqn. 112: probability over its bound", stated, 1.0 - quadrature),
    ]
    further, note = _remark_claims()
    return claims + further, [note], {"r_hat": exact, "r_hat_below": low, "r_hat_above": high}


def _remark_claims() -> tuple[list[Claim], str]:
    """The remark after Theorem 5: the smallest ρ with a gap, and the range of |N_μ| by Eqn. 124 (Eqn. 165).

    The paper gives no η for the range. η is a factor of both ends, so their ratio does not depend on it.
    """
    paper = papers.load("dual_networks")["theorem5"]
    c, gamma, (first, last) = paper["c"], paper["gamma"], paper["width"]
    ends = {eta: [required_nodes(c, gamma, eta, r) for r in (mills_above, mills_below)] for eta in (0.1, 0.05, 0.01)}
    smallest, largest = ends[0.05]
    rho = (6 / (c + 6)) ** 0.5  # (c + 6)ρ²/6 = 1 (Eqn. 130)
    claims = [
        Claim.near(f"Theorem 5: smallest ρ for c = {c}, σ_l = 0", rho, paper["rho"], tolerance=0.001),
        Claim.near("Eqn. 165: largest over smallest |N_μ| (any η)", largest / smallest, last / first, tolerance=0.01),
    ]
    widths = ", ".join(f"{low:.0f} to {high:.0f} for η = {eta}" for eta, (low, high) in ends.items())
    return claims, f"Eqn. 165 has {first} to {last} nodes and no η; Eqns. 124 and 128 give {widths}"
