"""The procedure that decides between losses, as slow loops from its equations; nothing here imports the package.

x is a list of K lists of S results in points.
"""

from __future__ import annotations

import math

from scipy import integrate, stats


def mean(values):
    return math.fsum(values) / len(values)


def variance(values):
    return math.fsum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)


def standing_out(x):
    """Whether the spread of each loss stands out."""
    losses, seeds = len(x), len(x[0])
    spreads = [variance(row) for row in x]
    if losses <= 2:
        return [False] * losses
    critical = stats.f.ppf(0.95, seeds - 1, (seeds - 1) * (losses - 1))
    return [
        spreads[k] > critical * mean([spreads[j] for j in range(losses) if j != k]) for k in range(losses)
    ]  # a product: the mean can be 0


def residual_variance(x):
    """MSE of the losses x, all of them."""
    losses, seeds = len(x), len(x[0])
    grand = mean([mean(row) for row in x])
    total = 0.0
    for k in range(losses):
        for s in range(seeds):
            of_seed = mean([x[j][s] for j in range(losses)])
            total += (x[k][s] - of_seed - mean(x[k]) + grand) ** 2
    return total / ((seeds - 1) * (losses - 1))


def contrast(x, c, grain=0.0):
    """Σ_k c_k x̄_k, its variance v and its degrees of freedom."""
    seeds = len(x[0])
    out = standing_out(x)
    inside = [row for row, is_out in zip(x, out, strict=True) if not is_out]
    d0, mse = 0.0, 0.0
    if len(inside) >= 2 and not any(weight and is_out for weight, is_out in zip(c, out, strict=True)):
        d0, mse = min(4.0, (seeds - 1) * (len(inside) - 2) / 2), residual_variance(inside)
    y = [math.fsum(weight * row[s] for weight, row in zip(c, x, strict=True)) for s in range(seeds)]
    squares = math.fsum(weight**2 for weight in c)
    v = ((seeds - 1) * variance(y) + d0 * mse * squares) / (seeds - 1 + d0)
    return mean(y), max(v, squares * grain**2 / 12), seeds - 1 + d0


def pair(x, i, j, grain=0.0):
    """x̄_i − x̄_j, v_ij, ν, and T_ij."""
    c = [(k == i) - (k == j) for k in range(len(x))]
    difference, v, freedom = contrast(x, c, grain)
    return difference, v, freedom, difference / math.sqrt(v / len(x[0]))


def headline(x, losses=None, level=0.05):
    """The winner or None, and the set of losses that can be the best or None."""
    K, S = len(x), len(x[0])
    others = [[j for j in range(K) if j != i] for i in range(K)]

    def tail(j, i):
        """P(t > T_ji), but a lead that is shown as 0.00 does not count."""
        difference, _, freedom, t = pair(x, j, i)
        return 0.5 if f"{abs(difference):.2f}" == "0.00" else stats.t.sf(t, freedom)

    if S >= 5:
        for i in range(K):
            if K > 1 and all(2 * tail(i, j) < level for j in others[i]):
                return i, {i}
    if S < 3:
        return None, None
    rivals = max((losses or K) - 1, 2)
    return None, {i for i in range(K) if rivals * min((tail(j, i) for j in others[i]), default=1.0) >= level}


def race(x, looks, level, losses):
    """The winner or None, those that remain, and the seeds of each loss; x has the seeds of the last look."""
    racing, seeds = list(range(losses)), [0] * losses
    for S in looks:
        for k in racing:
            seeds[k] = S
        winner, members = headline([x[k][:S] for k in racing], losses, level)
        if winner is not None:
            return racing[winner], {racing[winner]}, seeds
        racing = [k for place, k in enumerate(racing) if place in members]
        if len(racing) == 1:
            break
    return None, set(racing), seeds


def likelihood_ratio(differences):
    """The evidence of paired differences for "above" against "equal", by integration over effect and scale.

    d_s is normal with mean δσ and deviation σ. Under "equal" δ = 0. Under "above" δ has the density 2 φ(δ), δ > 0. The
    scale has the prior dσ/σ under both, which is dλ/λ for λ = 1/σ.
    """
    n = len(differences)
    size = math.sqrt(math.fsum(d * d for d in differences) / n)  # the ratio does not depend on the unit
    d = [each / size for each in differences]

    def density(scale, effect):
        """Π_s λ exp(−(λ d_s − δ)²/2) / λ, without the constant."""
        return scale ** (n - 1) * math.exp(-math.fsum((scale * each - effect) ** 2 for each in d) / 2)

    accuracy = {"epsabs": 0, "epsrel": 1e-10}
    equal = integrate.quad(lambda scale: density(scale, 0.0), 0, math.inf, **accuracy)[0]

    def above(effect):
        inner = integrate.quad(lambda scale: density(scale, effect), 0, math.inf, **accuracy)[0]
        return 2 * stats.norm.pdf(effect) * inner

    return integrate.quad(above, 0, math.inf, epsabs=0, epsrel=1e-9)[0] / equal


def seeds_needed(variance, losses, difference, power):
    """The smallest S ≥ 5 that satisfies the inequality of the plan."""
    S = 5
    while True:
        freedom = S - 1 + min(4, (S - 1) * (losses - 2) / 2)
        quantiles = stats.t.ppf(0.975, freedom) + stats.t.ppf(1 - (1 - power) / (losses - 1), freedom)
        if variance * quantiles**2 / difference**2 <= S:
            return S
        S += 1
