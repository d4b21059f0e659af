"""Slow loops written from the equations, in float64; nothing here imports the package.

Everything is differentiable, so that a gradient can be asked of an oracle as well. Rows are lists of
(anchor, positive, negatives) index triples into z = [z1; z2].

At the end the same in 60 digits and with exponents of any size, for embeddings and parameters far from 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import torch
from torch import Tensor


def d2(a: Tensor, b: Tensor) -> Tensor:
    return 0.5 * ((a - b) ** 2).sum()


def rows(samples: int, anchors: str) -> list[tuple[int, int, list[int]]]:
    """Who is whose positive and negatives, by going through everyone."""
    if anchors == "one":
        return [(i, samples + i, [j for j in range(samples) if j != i]) for i in range(samples)]
    table = []
    for view in (0, 1):
        for i in range(samples):
            anchor, positive = view * samples + i, (1 - view) * samples + i
            table.append((anchor, positive, [j for j in range(2 * samples) if j not in (anchor, positive)]))
    return table


def distances(z1: Tensor, z2: Tensor, anchors: str) -> tuple[Tensor, Tensor]:
    """d2_pos (M,) and d2_neg (M, K), the negatives of each anchor in the order of their index."""
    z = torch.cat([z1, z2])
    table = rows(len(z1), anchors)
    positives = torch.stack([d2(z[i], z[p]) for i, p, _ in table])
    negatives = torch.stack([torch.stack([d2(z[i], z[j]) for j in js]) for i, _, js in table])
    return positives, negatives


def clean_distances(clean: Tensor, anchors: str) -> Tensor:
    """d2 of the un-augmented samples behind each negative pair: (M, K)."""
    n = len(clean)
    return torch.stack([torch.stack([d2(clean[i % n], clean[j % n]) for j in js]) for i, _, js in rows(n, anchors)])


# --- the loss family: name -> (φ, ψ), from the table -----------------------------------------------------------------

FAMILIES = {
    "InfoNCE": lambda tau=0.5, eps=1.0: (lambda x: tau * torch.log(eps + x), lambda x: torch.exp(x / tau)),
    "MINE": lambda: (torch.log, torch.exp),
    "Triplet": lambda margin=1.0: (lambda x: x, lambda x: torch.relu(x + margin)),
    "SoftTriplet": lambda tau=0.5, margin=0.0: (
        lambda x: tau * torch.log(1 + x),
        lambda x: torch.exp(x / tau + margin),
    ),
    "NPlusOneTuplet": lambda: (lambda x: torch.log(1 + x), torch.exp),
    "LiftedStructured": lambda margin=1.0: (
        lambda x: torch.relu(torch.log(x)) ** 2,
        lambda x: torch.exp(x + margin),
    ),
    "ModifiedTriplet": lambda c=1.0: (lambda x: x, lambda x: 1 / (1 + torch.exp(-c * x))),
    "Quadratic": lambda: (lambda x: x, lambda x: x),
}


def family_values(name: str, d2_pos: Tensor, d2_neg: Tensor, **parameters: float) -> Tensor:
    phi, psi = FAMILIES[name](**parameters)
    values = []
    for positive, negatives in zip(d2_pos, d2_neg, strict=True):
        terms = [psi(positive - negative) for negative in negatives]
        xi = sum(terms) / len(terms) if name == "Quadratic" else sum(terms)
        values.append(phi(xi))
    return torch.stack(values)


def family_alpha(name: str, d2_pos: Tensor, d2_neg: Tensor, **parameters: float) -> Tensor:
    """α_ij = −∂φ(ξ_i)/∂d2_neg_ij, by autograd of the value."""
    d2_neg = d2_neg.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(family_values(name, d2_pos.detach(), d2_neg, **parameters).sum(), d2_neg)
    return -gradient


# --- importances, a row at a time ------------------------------------------------------------------------------------


def entropy(c: list[float], tau: float) -> list[float]:
    low = min(c)
    weights = [math.exp(-(x - low) / tau) for x in c]
    return [w / sum(weights) for w in weights]


def direct(c: list[float], tau: float, p: float, normalize: bool) -> list[float]:
    powers = [math.sqrt(max(x, 0.0)) ** p / tau for x in c]
    if not normalize:
        return [math.exp(-x) for x in powers]
    return [math.exp(min(powers) - x) / sum(math.exp(min(powers) - y) for y in powers) for x in powers]


def by_bisection(c: list[float], weight) -> list[float]:
    """Row of α_j = weight(c_j − μ), μ found by halving; weight is decreasing and infinite or growing below 0."""
    low, high = min(c) - 1.0, max(c) + 1.0

    def total(mu: float) -> float:
        return sum(weight(x - mu) for x in c)

    while total(low) > 1:
        low -= 2 * (max(c) - low + 1)
    while total(high) < 1:
        high += 2 * (high - min(c) + 1)
    for _ in range(400):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if total(middle) > 1 else (middle, high)
    return [weight(x - low) for x in c]


def inverse(c: list[float], tau: float, gamma: float) -> list[float]:
    return by_bisection(c, lambda x: (tau / x) ** (1 / gamma) if x > 0 else math.inf)


def square(c: list[float], tau: float) -> list[float]:
    return by_bisection(c, lambda x: max(0.0, -x / tau))


def square_by_sort(c: list[float], tau: float) -> list[float]:
    """The largest support whose pairs all have a weight above 0, in exact arithmetic."""
    exact = [Fraction(x) for x in c]
    ordered = sorted(exact)
    for size in range(len(c), 0, -1):
        mu = (Fraction(tau) + sum(ordered[:size])) / size
        if mu > ordered[size - 1]:
            break
    return [float(max(Fraction(0), (mu - x) / Fraction(tau))) for x in exact]


def tsallis(c: list[float], tau: float, q: float) -> list[float]:
    """r' = −τ α^{q−1}/(q−1) = x  ⇔  α = (x (1−q)/τ)^{1/(q−1)}."""
    if q == 1:
        return entropy(c, tau)

    def weight(x: float) -> float:
        y = x * (1 - q) / tau
        if y <= 0:
            return 0.0 if q > 1 else math.inf
        return y ** (1 / (q - 1)) if y < 1e300 else 0.0

    return by_bisection(c, weight)


def released_inverse(
    c: list[float], tau: float, exponent: float, power: float = 1.0, normalize: bool = False
) -> list[float]:
    weights = [1 / (x**power + tau) ** exponent for x in c]
    return [weight / sum(weights) for weight in weights] if normalize else weights


def released_square(c: list[float], tau: float) -> list[float]:
    """The μ of the first pair outside of the support, or of the nearest pair if there is none outside."""
    ordered, means = sorted(c), []
    for k in range(len(c)):
        means.append((tau + sum(ordered[: k + 1])) / (k + 1))
    outside = [k for k in range(len(c)) if ordered[k] >= means[k]]
    mu = means[outside[0] if outside else 0]
    return [max(0.0, (mu - x) / tau) for x in c]


def exact(
    r: list[float], tau: float, kind: str, r0: float = 0.0, distances: str = "clean", mean: bool = False
) -> list[float]:
    """ξ of Eqn. 6, or of Eqn. 80; which distances r are is the caller's choice."""
    if kind == "infonce":
        xi = [math.exp(-x / tau) / (1 + math.exp(-x / tau)) / tau for x in r]
    elif kind == "soft_triplet":
        xi = [math.exp(-(x - r0) / tau) / (1 + math.exp(-(x - r0) / tau)) for x in r]
    else:
        xi = [math.exp(-x / tau) / (1 + sum(math.exp(-y / tau) for y in r)) for x in r]
    return [x / len(r) for x in xi] if mean else xi


def uniform(c: list[float]) -> list[float]:
    return [1.0] * len(c)


def gaussian(r: list[float], tau: float) -> list[float]:
    return [math.exp(-x / tau) for x in r]


def each_row(rule, d2_neg: Tensor, **parameters: object) -> Tensor:
    return torch.tensor([list(map(float, rule(row.tolist(), **parameters))) for row in d2_neg], dtype=torch.float64)


# --- energy ----------------------------------------------------------------------------------------------------------


def pair_loss(alpha: Tensor, d2_pos: Tensor, d2_neg: Tensor, beta: float = 0.0, beta_times: str = "row_sum") -> Tensor:
    """1/M Σ_i Σ_j α_ij ((1+β) d2_pos_i − d2_neg_ij), or 1/M Σ_i (β d2_pos_i + Σ_j α_ij (d2_pos_i − d2_neg_ij))."""
    total = d2_pos.new_zeros(())
    for i in range(len(d2_pos)):
        if beta_times == "one":
            total = total + beta * d2_pos[i]
        share = 1 + beta if beta_times == "row_sum" else 1
        for j in range(d2_neg.shape[1]):
            total = total + alpha[i, j] * (share * d2_pos[i] - d2_neg[i, j])
    return total / len(d2_pos)


def pair_form(alpha: Tensor, attraction: Tensor, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """1/M Σ_i [a_i d2_pos_i − Σ_j α_ij d2_neg_ij]."""
    total = d2_pos.new_zeros(())
    for i in range(len(d2_pos)):
        total = total + attraction[i] * d2_pos[i]
        for j in range(d2_neg.shape[1]):
            total = total - alpha[i, j] * d2_neg[i, j]
    return total / len(d2_pos)


def contrastive_covariance(a1: Tensor, b1: Tensor, alpha: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    n = len(a1)
    c = torch.zeros(a1.shape[1], b1.shape[1], dtype=a1.dtype)
    for i in range(n):
        for j in range(n):
            if i != j:
                c = c + alpha[i, j] * torch.outer(a1[i] - a1[j], b1[i] - b1[j])
                c = c - alpha[i, j] * torch.outer(a1[i] - a2[i], b1[i] - b2[i])
    return c


# --- any size: numbers of 60 digits, whose exponents do not overflow -------------------------------------------------

mp.mp.dps = 60


def any_size(x: Tensor) -> list[list[mp.mpf]]:
    return [[mp.mpf(value) for value in row] for row in x.tolist()]


def softmax_of_any_size(logits: list[mp.mpf]) -> list[mp.mpf]:
    top = max(logits)
    weights = [mp.exp(x - top) for x in logits]
    return [w / sum(weights) for w in weights]


def sigmoid_of_any_size(x: mp.mpf) -> mp.mpf:
    return mp.exp(min(x, 0)) / (1 + mp.exp(-abs(x)))


def exact_of_any_size(r: list[mp.mpf], tau: float, kind: str, r0: float, distances: str, mean: bool) -> list[mp.mpf]:
    if kind == "all_negatives":
        *xi, _ = softmax_of_any_size([*(-x / tau for x in r), mp.mpf(0)])
    else:
        margin, factor = (0, tau) if kind == "infonce" else (mp.mpf(r0), 1)
        xi = [sigmoid_of_any_size((margin - x) / tau) / factor for x in r]
    return [x / len(r) for x in xi] if mean else xi


def released_inverse_of_any_size(
    c: list[mp.mpf], tau: float, exponent: float, power: float, normalize: bool
) -> list[mp.mpf]:
    weights = [(x ** mp.mpf(power) + tau) ** -mp.mpf(exponent) for x in c]
    return [weight / sum(weights) for weight in weights] if normalize else weights


def log_add_exp_of_any_size(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return max(x, y) + mp.log1p(mp.exp(-abs(x - y)))


def tsallis_of_any_size(c: list[mp.mpf], tau: float, q: float) -> list[mp.mpf]:
    """α_j = (t^{q−1} + (1−q) c_j/τ)₊^{1/(q−1)}, with c of the nearest pair 0; log t by halving."""
    if q == 1:
        return softmax_of_any_size([-x / tau for x in c])
    nearest = min(c)
    gaps = [x - nearest for x in c]
    with mp.workdps(25):  # from here on nothing cancels
        power = 1 / (mp.mpf(q) - 1)
        shifts = [-x / (power * tau) for x in gaps]

        def weights(log_t: mp.mpf) -> list[mp.mpf]:
            y = mp.exp(log_t / power)
            return [(y + x) ** power if y + x > 0 else mp.mpf(0) for x in shifts]

        low, high = -mp.log(len(c)), mp.mpf(0)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if sum(weights(middle)) > 1 else (middle, high)
        found = weights(low)
        return [w / sum(found) for w in found]


IMPORTANCES_OF_ANY_SIZE = {
    "Entropy": lambda c, tau: tsallis_of_any_size(c, tau, 1),
    "Inverse": lambda c, tau, gamma: tsallis_of_any_size(c, mp.mpf(gamma) * tau, 1 - mp.mpf(gamma)),
    "Square": lambda c, tau: tsallis_of_any_size(c, tau, 2),
    "Tsallis": tsallis_of_any_size,
    "Direct": lambda c, tau, p, normalize: (softmax_of_any_size if normalize else lambda x: list(map(mp.exp, x)))(
        [-(mp.sqrt(x) ** p) / tau for x in c]
    ),
    "Uniform": lambda c: [mp.mpf(1)] * len(c),
    "Gaussian": lambda c, tau: [mp.exp(-x / tau) for x in c],
    "Exact": exact_of_any_size,
    "ReleasedInverse": released_inverse_of_any_size,
    "ReleasedSquare": released_square,
}


def exponential_of_any_size(phi, row_sum, tau: float, margin: float):
    """φ(ξ) and α of a row, from φ(e^u) and Σ_j α_j = τ⁻¹ ξ φ'(ξ) at ξ = e^u."""

    def row(positive: mp.mpf, negatives: list[mp.mpf]) -> tuple[mp.mpf, list[mp.mpf]]:
        logits = [(positive - x) / tau + margin for x in negatives]
        u = max(logits) + mp.log(sum(mp.exp(x - max(logits)) for x in logits))
        return phi(u), [row_sum(u) * w for w in softmax_of_any_size(logits)]

    return row


def elementwise_of_any_size(psi, psi_prime, averages: bool = False):
    def row(positive: mp.mpf, negatives: list[mp.mpf]) -> tuple[mp.mpf, list[mp.mpf]]:
        divisor = len(negatives) if averages else 1
        x = [positive - negative for negative in negatives]
        return sum(map(psi, x)) / divisor, [psi_prime(each) / divisor for each in x]

    return row


def info_nce_of_any_size(tau: float, eps: float):
    if eps == 0:
        return exponential_of_any_size(lambda u: tau * u, lambda u: mp.mpf(1), tau, 0)
    log_eps = mp.log(eps)
    return exponential_of_any_size(
        lambda u: tau * log_add_exp_of_any_size(u, log_eps), lambda u: sigmoid_of_any_size(u - log_eps), tau, 0
    )


def soft_triplet_of_any_size(tau: float, margin: float):
    return exponential_of_any_size(
        lambda u: tau * log_add_exp_of_any_size(u, mp.mpf(0)), sigmoid_of_any_size, tau, margin
    )


FAMILIES_OF_ANY_SIZE = {
    "InfoNCE": info_nce_of_any_size,
    "MINE": lambda: exponential_of_any_size(lambda u: u, lambda u: mp.mpf(1), 1, 0),
    "SoftTriplet": soft_triplet_of_any_size,
    "NPlusOneTuplet": lambda: soft_triplet_of_any_size(1, 0),
    "LiftedStructured": lambda margin: exponential_of_any_size(
        lambda u: max(u, 0) ** 2, lambda u: 2 * max(u, 0), 1, margin
    ),
    "Triplet": lambda margin: elementwise_of_any_size(lambda x: max(x + margin, 0), lambda x: mp.mpf(x + margin > 0)),
    "ModifiedTriplet": lambda c: elementwise_of_any_size(
        lambda x: sigmoid_of_any_size(c * x), lambda x: c * sigmoid_of_any_size(c * x) * sigmoid_of_any_size(-c * x)
    ),
    "Quadratic": lambda: elementwise_of_any_size(lambda x: x, lambda x: mp.mpf(1), averages=True),
}


def loss_of_any_size(
    row, z1: Tensor, z2: Tensor, clean: Tensor | None = None
) -> tuple[mp.mpf, list[mp.mpf], list[mp.mpf], mp.mpf]:
    """Value and gradients, with α fixed, of a loss with both views as anchors, and the largest α.

    row  (d2_pos, d2_neg) or (d2_pos, d2 of the un-augmented samples) of an anchor → its φ(ξ) or None, and its α
    """
    z, n = any_size(torch.cat([z1, z2])), len(z1)
    weighed = z if clean is None else any_size(torch.cat([clean, clean]))
    gradient = [[mp.mpf(0)] * len(z[0]) for _ in z]
    table, value, largest = rows(n, "both"), mp.mpf(0), mp.mpf(0)

    def half_square(points: list[list[mp.mpf]], i: int, j: int) -> mp.mpf:
        return sum((a - b) ** 2 for a, b in zip(points[i], points[j], strict=True)) / 2

    for i, positive, negatives in table:
        d2_pos, d2_neg = half_square(z, i, positive), [half_square(z, i, j) for j in negatives]
        phi, alpha = row(d2_pos, [half_square(weighed, i, j) for j in negatives])
        value += sum(a * (d2_pos - x) for a, x in zip(alpha, d2_neg, strict=True)) if phi is None else phi
        largest = max(largest, *alpha)
        for j, weight in [(positive, sum(alpha)), *((j, -a) for j, a in zip(negatives, alpha, strict=True))]:
            for k in range(len(z[0])):
                step = weight * (z[i][k] - z[j][k]) / len(table)
                gradient[i][k] += step
                gradient[j][k] -= step
    flat = [entry for point in gradient for entry in point]
    return value / len(table), flat[: len(flat) // 2], flat[len(flat) // 2 :], largest
