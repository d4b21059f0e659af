"""The row solver on extreme rows: many candidates, ties, wide spreads, small and large τ."""

import math

import pytest
import torch
from helpers.closeness import bound, close
from helpers.losses import SOLVER_STOP
from helpers.watching import watch
from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.losses import solved
from lightning_ssl.losses.device import acting_as_accelerator
from lightning_ssl.losses.importance import Direct, Entropy
from lightning_ssl.losses.solved import Regularized, Tsallis

ROWS = {
    "spread": lambda u, spread: u * spread,
    "identical": lambda u, spread: torch.full_like(u, spread),
    "tied": lambda u, spread: (u * 3).floor() * spread,
    "geometric": lambda u, spread: spread * 10 ** (-12 * u),
    "one near": lambda u, spread: torch.cat([torch.zeros_like(u[:, :1]), u[:, 1:] * 1e-3 + spread], 1),
    "two groups": lambda u, spread: (u < 0.5) * spread,
    "dense near 0": lambda u, spread: spread * u**3,
    "dense far": lambda u, spread: spread * u**0.25,
    "doubling": lambda u, spread: spread * 2.0 ** torch.arange(u.shape[1]).double().clamp(max=60).expand(3, -1),
}
MORE_KINDS = [*ROWS]
KINDS = MORE_KINDS[:5]


def make_rows(kind: str, count: int, spread: float, seed: int, dtype: torch.dtype) -> torch.Tensor:
    u = torch.rand(3, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ROWS[kind](u, spread).to(dtype)


wide = {
    "kind": st.sampled_from(KINDS),
    "count": st.one_of(st.integers(1, 40), st.sampled_from([1000, 20_000])),
    "spread": st.floats(1e-6, 1e6),
    "log_tau": st.floats(-3, 3),
    "seed": st.integers(0, 1000),
}


@given(q=st.one_of(st.floats(-3, 3), st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 1.0001, 1.5, 2.0, 3.0])), **wide)
def test_tsallis_rows_sum_to_one_in_float32(q, kind, count, spread, log_tau, seed):
    check(Tsallis(tau=10**log_tau, q=q), make_rows(kind, count, spread, seed, torch.float32), q)


def steepness(alpha, q):
    """d log Σα / d log t, t the largest weight: Σ t^{q−1} α^{2−q} over the support."""
    return (alpha.amax(1, keepdim=True) ** (q - 1) * torch.where(alpha > 0, alpha ** (2 - q), 0.0)).sum(1)


def check(rule, d2_neg, q):
    """Rows in float32 sum to one, equal those of float64 and decrease with distance. q: Tsallis with the same r'."""
    alpha = rule(torch.zeros(len(d2_neg), dtype=d2_neg.dtype), d2_neg)
    assert torch.isfinite(alpha).all()
    assert (alpha >= 0).all()
    levels = math.ceil(math.log2(d2_neg.shape[1])) + 1  # torch sums pairwise
    close(alpha.double().sum(1), torch.ones(len(alpha)), terms=levels)
    # Rows are divided by their sum, so the check above cannot find a wrong multiplier.
    wide = rule(torch.zeros(len(d2_neg), dtype=torch.float64), d2_neg.double())
    top = wide.amax(1)
    if q < 2:
        slope = steepness(wide, q)
        tolerance = bound(alpha.dtype, 1.0, gain=(slope + SOLVER_STOP / slope).max().item())
    else:
        # If q = 2, rounding moves many candidates across the edge of the support. If q > 2, the slope of a weight at 0
        # is also infinite: rounding a distance by ε moves a weight at the edge by ε^{1/(q−1)}.
        tolerance = 1e-3 if q == 2 else 3e-2
    assert ((alpha.double() - wide).abs().amax(1) <= tolerance * top).all()
    order = d2_neg.argsort(1)
    rise = alpha.gather(1, order).diff(dim=1) / alpha.amax(1, keepdim=True)
    assert (rise <= bound(alpha.dtype, 1.0)).all(), "a nearer candidate must not weigh less"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [-5.0, -3.0, -1.0, 0.0, 0.5, 0.999, 1.0, 1.001, 1.5, 1.9, 2.0, 3.0])
def test_a_hundred_thousand_candidates_are_solved(q, kind):
    for tau in (1e-3, 1.0, 1e3):
        for rule in [Tsallis(tau=tau, q=q), *([Entropy(tau=tau), Direct(tau=tau)] if q == 1 else [])]:
            check(rule, make_rows(kind, 100_000, 2.0, 0, torch.float32), q)


@pytest.mark.parametrize(
    ("q", "limit"), [(-3.0, 6), (-1.0, 6), (0.0, 6), (0.5, 6), (0.9, 5), (1.1, 5), (1.5, 7), (2.0, 9)]
)
def test_ordinary_rows_take_few_evaluations(q, limit, monkeypatch):
    monkeypatch.setattr(Tsallis, "_powers", Tsallis._powers)  # it is restored after the test
    evaluations = watch(Tsallis, "_powers", lambda *_: 1)
    d2 = make_rows("spread", 4000, 2.0, 0, torch.float32)
    Tsallis(tau=0.5, q=q)(torch.zeros(len(d2)), d2)
    assert len(evaluations) <= limit


def converged(rule, d2_neg, monkeypatch):
    """Rows after many more steps than an accelerator takes."""
    with monkeypatch.context() as patch, acting_as_accelerator():
        patch.setattr(solved, "newton_steps", lambda d: 30)
        return rule(torch.zeros(len(d2_neg), dtype=d2_neg.dtype), d2_neg)


def check_fixed_steps(rule, d2_neg, monkeypatch):
    """The fixed number of steps of an accelerator gives the converged rows."""
    with acting_as_accelerator():
        alpha = rule(torch.zeros(len(d2_neg), dtype=d2_neg.dtype), d2_neg)
    expected = converged(rule, d2_neg, monkeypatch)
    assert torch.isfinite(expected).all()
    # The iterates of converged rows differ by the rounding of y, which grows with the number of pairs at the edge.
    gain = SOLVER_STOP * max(1.0, steepness(expected, rule.q).reciprocal().max().item())
    close(alpha / expected.amax(1, keepdim=True), expected / expected.amax(1, keepdim=True), gain=gain)


Q = [-5.0, -3.0, -2.0, -1.0, 0.0, 0.5, 0.9, 0.999, 1.001, 1.1, 1.25, 1.5, 1.75, 1.9, 2.0]


FEW = (
    (-5.0, -2.0, -1.0, 0.0, 0.5, 1.1, 1.5, 2.0),
    [(3, 2.0, 1e-3), (100, 2.0, 1e-6), (1000, 2.0, 1e-1), (1000, 2.0, 1e3), (10_000, 2.0, 1.0)],
)
EVERY_SCALE = (
    Q,
    [
        (count, spread, tau)
        for count, spread in [(1, 2.0), (2, 1e6), (3, 2.0), (100, 1e-6), (100, 2.0), (1000, 1e6), (100_000, 2.0)]
        for tau in (1e-6, 1e-3, 1e-1, 1.0, 1e3, 1e6)
    ],
)


@pytest.mark.parametrize("kind", MORE_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("qs", "rows"), [FEW, pytest.param(*EVERY_SCALE, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_fixed_number_of_steps_solves_hostile_rows(qs, rows, kind, dtype, monkeypatch):
    for q in qs:
        for count, spread, tau in rows:
            check_fixed_steps(Tsallis(tau=tau, q=q), make_rows(kind, count, spread, 0, dtype), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_a_search_finds_no_rows_that_need_more_steps(seed, monkeypatch):
    """Groups of random sizes at random distances, over many orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()

    count = int(10 ** draw(0.3, 3.7))
    groups = int(draw(1, 13))
    sizes = draw(1, 8) ** torch.arange(groups, dtype=torch.float64)
    group = torch.multinomial(sizes, count, replacement=True, generator=generator)
    distances = 10 ** (torch.rand(20, groups, generator=generator, dtype=torch.float64) * draw(1, 20) - draw(0, 12))
    d2 = distances.sort(1).values[:, group]
    for q in Q:
        rule = Tsallis(tau=10 ** draw(-5, 5), q=q)
        for dtype in (torch.float32, torch.float64):
            check_fixed_steps(rule, d2.to(dtype), monkeypatch)


@pytest.mark.parametrize("kind", MORE_KINDS)
@pytest.mark.parametrize("q", [2.001, 2.5, 3.0])
def test_a_divided_bracket_gives_the_rows_of_the_bracketed_solver(q, kind):
    """Compared as α^{q−1}, which is linear in the distances: rounding moves a weight at the edge without bound."""
    rows = [(1, 2, 0.5), (2, 1e6, 1), (3, 2, 1e-3), (100, 2, 1e-6), (1000, 2, 0.5), (10_000, 2, 1e3)]
    for count, spread, tau in rows:
        rule = Tsallis(tau=tau, q=q)
        for dtype in (torch.float32, torch.float64):
            d2 = make_rows(kind, count, spread, 0, dtype)
            expected = rule(torch.zeros(3, dtype=torch.float64), d2.double())
            with acting_as_accelerator():
                alpha = rule(torch.zeros(3, dtype=dtype), d2)
            assert (alpha >= 0).all()
            levels = math.ceil(math.log2(count)) + 1
            close(alpha.sum(1), torch.ones(3), terms=levels)
            # Rounding of t moves Σα, which divides the row, by the steepness; rounding of Σα moves t by its inverse. A
            # CPU stops when log t is exact to 2 eps (1 + log K).
            top = expected.amax(1, keepdim=True) ** (q - 1)
            slope = steepness(expected, q)
            gain = (q - 1) * (2 * (1 + math.log(count)) * slope + SOLVER_STOP / slope).max().item()
            found = (alpha.double() ** (q - 1) / top).to(dtype)
            close(found, expected ** (q - 1) / top, terms=levels, scale=1.0, gain=gain)


@pytest.mark.parametrize(("q", "tau"), [(-1.0, 1e-6), (0.5, 1e-2), (1.5, 1e-2), (2.0, 1e-2)])
def test_a_row_that_is_not_solved_is_nan(q, tau, monkeypatch):
    monkeypatch.setattr(solved, "newton_steps", lambda d: 1)
    d2 = make_rows("geometric", 1000, 100.0, 0, torch.float64)
    assert Tsallis(tau=tau, q=q)(torch.zeros(3, dtype=torch.float64), d2).isnan().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("power", "inverse"), [(-0.5, lambda x: x**-2), (0.5, lambda x: x.square())])
def test_a_custom_regularizer_is_solved(kind, power, inverse):
    """r' = 1/√α, infinite at 0, and r' = −√α, which drops pairs."""
    rule = Regularized(lambda a: -math.copysign(1, power) * a**power, inverse)
    check(rule, make_rows(kind, 3000, 2.0, 0, torch.float32), q=1 + power)
