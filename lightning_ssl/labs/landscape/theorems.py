"""Theorems 1 to 3 and Corollary 1 in their own exact, small settings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.landscape.data import max_cosine


def non_contrastive_loss(W: Tensor, keep: float) -> Tensor:
    """Theorem 1's L_non-CL(W, W) for M = I, one-hot z: 2 − 2·keep²·mean_j ‖ReLU(W_*j)‖²; W (..., m, d) → (...)."""
    return 2 - 2 * keep**2 * W.relu().square().sum(-2).mean(-1)


def contrastive_loss(W: Tensor, keep: float, tau: float) -> Tensor:
    """Theorem 1's L_CL of Eqn. 16 (divided by d), its masks enumerated; W (..., m, d) → (...)."""
    d = W.shape[-1]
    masks = torch.cartesian_prod(*[torch.arange(2.0, dtype=W.dtype)] * d)  # (2^d, d)
    prob = torch.where(masks > 0, keep, 1 - keep).to(W).prod(1)
    r = W.relu()
    # (..., 2^d, i, j): D1 keeps i, D2 keeps the j of the mask
    logits = tau * (r.mT @ r)[..., None, :, :] * masks[:, None]
    value = logits.logsumexp(-1) - logits.diagonal(dim1=-2, dim2=-1)  # (..., 2^d, i)
    return keep * (prob[:, None] * value).sum(-2).mean(-1) + (1 - keep) * math.log(d)


def relu_gradient(other: Tensor, b: float, keep: float, kappa: float) -> Tensor:
    """Theorem 3: the population gradient ∂L/∂W^o of Eqn. 13 near W = I, from the other encoder W^t (..., d, d)."""
    diagonal = torch.eye(other.shape[-1], dtype=other.dtype)
    return -2 * keep**2 * kappa * (diagonal * (other - b) + keep**2 * kappa * (1 - diagonal) * other)


def linear_descent(
    A: Tensor, B: Tensor, M: Tensor, steps: int, rate: float, decay: float, keep: float, p_z: float, sigma0: float
) -> tuple[Tensor, Tensor]:
    """Theorem 2: W^o and W^t after `steps` of descent of the population loss (Eqn. 12) from A and B (m, p)."""
    covariance = 2 * p_z * M @ M.T + sigma0**2 * torch.eye(len(M), dtype=M.dtype)
    for _ in range(steps):
        A, B = decay * A + 2 * rate * keep**2 * B @ covariance, decay * B + 2 * rate * keep**2 * A @ covariance
    return A, B


def best_combination(A: Tensor, B: Tensor, M: Tensor, angles: int = 3600) -> Tensor:
    """The highest max-cosines (Eqn. 11) of any aA + bB, each of maximum, median and minimum on its own: (3,)."""
    angle = torch.arange(angles, dtype=A.dtype)[:, None, None] * (math.pi / angles)
    return max_cosine(angle.cos() * A + angle.sin() * B, M).amax(0)


def theorem_claims(d: int = 4, count: int = 20) -> list[Claim]:
    """Check Theorems 1 to 3 and Corollary 1, with `count` random d × d encoders where a theorem takes any."""
    generator = torch.Generator().manual_seed(0)
    return [
        *_theorem_1(generator, d, count),
        _theorem_2(generator),
        _theorem_3(generator, d, count),
        *_corollary_1(generator),
    ]


def _theorem_1(generator: torch.Generator, d: int, count: int) -> list[Claim]:
    keep, tau = 0.5, 2.0
    W = torch.rand(count, d, d, generator=generator, dtype=torch.float64)
    W = W / W.norm(dim=1, keepdim=True)
    eye = torch.eye(d, dtype=torch.float64)
    minimum = 2 - 2 * keep**2
    overlap = (W.mT @ W - eye).abs().amax((1, 2))
    least = contrastive_loss(eye[None], keep, tau)
    gap = contrastive_loss(W, keep, tau) - least
    r = _descend_contrastive(W, keep, tau)
    reached = contrastive_loss(r, keep, tau) - least < 1e-3
    distance = (r - r.round()).abs().amax((1, 2)) + (r.round().sum(2) - 1).abs().amax(1)
    return [
        Claim.at_most("Theorem 1a: L_non-CL − minimum at random W ∈ U≥", non_contrastive_loss(W, keep) - minimum, 1e-6),
        Claim.at_least("  their columns' overlap (0 for a permutation)", overlap, 0.2),
        Claim.at_least("Theorem 1b: L_CL(random W ∈ U≥) − L_CL(permutation)", gap, 0.0),
        Claim.at_least("  descent of L_CL: share of starts that reach its minimum", reached.double().mean(), 0.5),
        Claim.at_most("  their distance to a permutation", distance[reached], 0.05),
    ]


def _descend_contrastive(W: Tensor, keep: float, tau: float) -> Tensor:
    """Minimize L_CL over unit columns by Adam; ReLU(W) at the end.

    The starts are in U≥, where no column has a zero gradient. The theorem is about global minima; descent may also end
    at other minima.
    """
    V = W.clone().requires_grad_()
    optimizer = torch.optim.Adam([V], lr=0.05)
    with torch.enable_grad():
        for _ in range(200):
            optimizer.zero_grad()
            contrastive_loss(V / V.norm(dim=1, keepdim=True), keep, tau).sum().backward()
            optimizer.step()
    return (V / V.norm(dim=1, keepdim=True)).detach().relu()


def _theorem_2(generator: torch.Generator) -> Claim:
    """Gradient descent of the linear dual network's population loss (Eqn. 12), W^o = A and W^t = B, in closed form.

    C_1 = (λ − c)^t and C_2 = ((λ + c)^t − (λ − c)^t)/2 with c = 2η·keep²(2p_z + σ_0²).
    """
    A, B = torch.randn(2, 20, 12, generator=generator, dtype=torch.float64)
    M = torch.linalg.qr(torch.randn(12, 4, generator=generator, dtype=torch.float64))[0]
    rate, decay, keep, p_z, sigma0, steps = 0.05, 0.98, 0.5, 0.1, 0.2, 200
    c = 2 * rate * keep**2 * (2 * p_z + sigma0**2)
    C1, C2 = (decay - c) ** steps, ((decay + c) ** steps - (decay - c) ** steps) / 2
    expected = C1 * A @ M + C2 * (A + B) @ M
    trained, _ = linear_descent(A, B, M, steps, rate, decay, keep, p_z, sigma0)
    error = (trained @ M - expected).abs().max() / expected.abs().max()
    return Claim.at_most("Theorem 2: |W_t M − C₁W₀M − C₂(W₀ + W₀')M|, relative", error, 1e-6)


def _corollary_1(generator: torch.Generator) -> list[Claim]:
    """Compare trained linear encoders with the best linear combination of their initial values.

    Theorem 2 is about W M. The cosines of Eqn. 11 divide by the norms of the rows of W, which also have a part outside
    the span of M. That part decays faster, so that all cosines rise. Within the span the corollary holds. The decay
    λ = 1 − c keeps the weights from exploding and vanishing, as Theorem 2 requires.
    """
    A, B = torch.randn(2, 50, 50, generator=generator, dtype=torch.float64)
    M = torch.linalg.qr(torch.randn(50, 10, generator=generator, dtype=torch.float64))[0]
    span = M @ M.T
    rate, keep, p_z, sigma0 = 0.05, 0.5, 0.1, 0.2
    decay = 1 - 2 * rate * keep**2 * (2 * p_z + sigma0**2)
    trained, _ = linear_descent(A, B, M, 300, rate, decay, keep, p_z, sigma0)
    within = max_cosine(trained @ span, M) - best_combination(A @ span, B @ span, M)
    gain = max_cosine(trained, M) - best_combination(A, B, M)
    rule = "every max-cosine at most that of the best combination, to 0.001"
    return [
        Claim.at_most("Corollary 1 within the span of M: gain over the best combination", within, 1e-3, rule),
        Claim.at_most("Corollary 1 by Eqn. 11: gain over the best combination", gain, 1e-3, rule),
    ]


def _theorem_3(generator: torch.Generator, d: int, count: int) -> Claim:
    """Alternating descent with row normalization, from warm starts."""
    eye = torch.eye(d, dtype=torch.float64)
    A, B = eye + 0.1 / d * torch.randn(2, count, d, d, generator=generator, dtype=torch.float64)
    for _ in range(30):
        for _ in range(20):
            A = torch.nn.functional.normalize(A - relu_gradient(B, b=0.05, keep=0.5, kappa=0.3), dim=-1)
        for _ in range(20):
            B = torch.nn.functional.normalize(B - relu_gradient(A, b=0.05, keep=0.5, kappa=0.3), dim=-1)
    return Claim.at_most("Theorem 3: |W − I| after alternating descent", (A - eye).abs().amax((1, 2)), 1e-4)
