"""Every importance and family of the package, found by inspection, the oracle of each importance, and error scales."""

import dataclasses
import inspect
import itertools
import math
import re
import typing

import catalogue
import oracles
import torch

from helpers.closeness import close
from lightning_ssl import losses
from lightning_ssl.losses.contrastive import RINCE
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily, Gaussian, Importance
from lightning_ssl.losses.released import ReleasedInverse, ReleasedSquare
from lightning_ssl.losses.solved import Inverse, Regularized, Square, Tsallis


def concrete(base, module):
    return [
        c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, base) and not inspect.isabstract(c)
    ]


def examples(cls, known):
    """Instances made from defaults, with required arguments filled by their type."""
    hints = typing.get_type_hints(cls.__init__)
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is p.empty]
    fillings = {Family: known, float: [0.5], int: [2], bool: [True]}
    # any other type is a function of a tensor; r' of ½ log α is its own inverse
    choices = [fillings.get(hints.get(p.name), [lambda a: 0.5 / a]) for p in required]
    return [cls(*values) for values in itertools.product(*choices)]


FAMILIES = [example for cls in concrete(Family, losses) for example in examples(cls, [])]
IMPORTANCES = [example for cls in concrete(Importance, losses) for example in examples(cls, FAMILIES)]

# Regularizers as the user's own r' and its inverse, by their name, and the same of the package
OWN = {
    name: (Regularized(r_prime, inverse, name), same)
    for name, r_prime, inverse, same in [
        ("½ log α", lambda a: 0.5 / a, lambda x: 0.5 / x, Tsallis(0.5, q=0.0)),
        ("square", lambda a: -5 * a, lambda x: -x / 5, Square(5.0)),
        ("cube", lambda a: -a.square(), lambda x: (-x).sqrt(), Tsallis(2.0, q=3.0)),
        ("tsallis", lambda a: a**-1.5 / 3, lambda x: (3 * x) ** (-2 / 3), Tsallis(0.5, q=-0.5)),
    ]
}


def oracle_of(rule):
    """The oracle of an importance: the function with its name in snake case.

    It stands in tests/oracles.py and gives a row of α; that of a loss stands in tests/catalogue.py and gives its value.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(rule).__name__).lower()
    module, of = (catalogue, "the loss") if rule.is_loss else (oracles, "a row of α")
    assert hasattr(module, name), f"tests/{module.__name__}.py has no {name}(…, **parameters), the oracle of {of}"
    return getattr(module, name)


def parameters(rule):
    return {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}


# Importances that stand for a loss; tests/catalogue.py has the loops of the losses.
OF_LOSSES = [rule for rule in IMPORTANCES if rule.is_loss]
# Importances that need no argument, by default.
DEFAULTS = [rule for rule in IMPORTANCES if not isinstance(rule, FromFamily | Regularized) and rule not in OF_LOSSES]
CASES = [
    *(
        (rule, oracle_of(rule), parameters(rule))
        for rule in [
            *DEFAULTS,
            Entropy(tau=0.05),
            Direct(tau=0.2, p=2.7),
            Direct(normalize=False),
            Inverse(tau=0.01, gamma=3.3),
            Square(tau=0.3),
            *(
                Tsallis(tau=tau, q=q)
                for tau in (0.05, 0.5, 5.0)
                for q in (-3.0, -1.0, 0.0, 0.5, 0.99, 1.0, 1.01, 1.3, 1.5, 2.0, 2.5, 3.0)
                if (tau, q) != (0.5, 1.0)  # the default
            ),
            Gaussian(tau=0.3),
            Exact(tau=0.3, kind="soft_triplet", r0=0.4),
            Exact(tau=0.3, kind="all_negatives", distances="augmented"),
            Exact(mean=True),
            ReleasedInverse(tau=0.2, exponent=2.0),
            ReleasedInverse(exponent=1.0, power=2.0, normalize=True),
            ReleasedSquare(tau=0.3),
        ]
    ),
    *((own, oracle_of(same), parameters(same)) for own, same in OWN.values()),
]
FAMILY_CASES = [
    *((type(family).__name__, {}) for family in FAMILIES),
    ("InfoNCE", {"tau": 0.1, "eps": 0.0}),
    ("InfoNCE", {"tau": 2.0, "eps": 3.0}),
    ("Triplet", {"margin": 0.3}),
    ("SoftTriplet", {"tau": 0.2, "margin": 0.7}),
    ("LiftedStructured", {"margin": 0.0}),
    ("LiftedStructured", {"margin": -1.0}),
    ("ModifiedTriplet", {"c": 4.0}),
]
# Rules with a derivative of their weights
DIFFERENTIABLE = [
    Entropy(),
    Direct(),
    Direct(p=3.0, normalize=False),
    Inverse(tau=0.05),
    Square(tau=0.5),
    Tsallis(q=0.5),
    Tsallis(q=1.5),
    Regularized(lambda a: 0.05 / a, lambda x: 0.05 / x),
]


def at_tau(rule, tau):
    """The same rule at another τ, if it has one; RINCE refuses a τ at which its value overflows."""
    if isinstance(rule, RINCE):
        tau = max(tau, rule.q / 80)
    if isinstance(getattr(rule, "family", None), Family):
        return dataclasses.replace(rule, family=at_tau(rule.family, tau))
    return dataclasses.replace(rule, tau=tau) if "tau" in inspect.signature(type(rule)).parameters else rule


SOLVER_STOP = 16.0  # row_solver.solve_top_weight stops at |log Σα| ≤ 16 eps


def oracle_gain(alpha, c, tau=1.0, q=1.0, **others):
    """Gain of the oracle that gave the weights α: Tsallis takes a rounded c − μ to the power 1/(q − 1).

    The error of a weight is that of c − μ, as large as c and μ are, times dα/dμ = α^{2−q}/τ; relative to the largest
    weight t of the row.
    """
    if q == 1:
        return 1.0
    t = alpha.amax(1, keepdim=True)
    size = c.amax(1, keepdim=True) + tau * t ** (q - 1) / abs(q - 1)
    slope = torch.where(alpha > 0, alpha ** (2 - q), 0.0) / tau
    return max(1.0, (size * slope / t).max().item())


def make_views(n=13, d=5, dtype=torch.float64, normalize=True, seed=1):
    """Two views with a gradient and a clean one: on the sphere, or around another point than 0."""
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, d, dtype=torch.float64, generator=generator) for _ in range(3)]
    views = [torch.nn.functional.normalize(z, dim=1) if normalize else z * 0.6 + 0.5 for z in views]
    return [z.to(dtype).requires_grad_(i < 2) for i, z in enumerate(views)]


def make_distances(dtype=torch.float64, rows=6, count=10):
    """d2_pos and d2_neg of some anchors and candidates."""
    generator = torch.Generator().manual_seed(0)
    d2_pos = torch.rand(rows, dtype=torch.float64, generator=generator)
    d2_neg = 2 * torch.rand(rows, count, dtype=torch.float64, generator=generator)
    return d2_pos.to(dtype), d2_neg.to(dtype)


def value_and_gradients(loss, *views):
    """The third view is for an importance that weighs clean samples; other losses do not get it."""
    value = loss(*views[: 3 if getattr(loss.importance, "uses_clean_view", False) else 2])
    return value.detach(), *torch.autograd.grad(value, views[:2])


def scales_of(loss, views):
    """`scales` of the value and the gradients of a loss at these views."""
    return scales(lambda *z: value_and_gradients(loss, *z), *views)


def terms_of(views):
    """Up to 2N candidates of an anchor, and D + 2 products for each distance."""
    n, d = views[0].shape
    return 2 * n * (d + 2)


STEP = 1e-6  # far above the rounding of float64, far below the curvature of a result


def scales(function, *points):
    """The argument `scale` of helpers.closeness.close for each result of a function.

    It is the largest entry plus the response: the change of the result per relative change of the arguments, measured
    in float64. The rounding of the arguments changes the result by eps times the response.
    """
    points = [x.detach().double().requires_grad_(x.requires_grad) for x in points]
    generator = torch.Generator().manual_seed(0)
    here = function(*points)
    response = [0.0] * len(here)
    for _ in range(4):
        signs = [torch.randint(0, 2, x.shape, generator=generator) * 2.0 - 1 for x in points]
        moved = [
            (x.detach() * (1 + STEP * s)).requires_grad_(x.requires_grad) for x, s in zip(points, signs, strict=True)
        ]
        changes = [largest(b - a) / STEP for a, b in zip(here, function(*moved), strict=True)]
        response = [max(pair) for pair in zip(response, changes, strict=True)]
    found = [largest(x) + r for x, r in zip(here, response, strict=True)]
    assert all(map(math.isfinite, found)), found  # an infinite scale would accept anything
    return found


def scale_of(function, *points):
    """`scales` of a function with one result."""
    return scales(lambda *x: [function(*x)], *points)[0]


def largest(x):
    return x.detach().abs().max().item()


def close_each(actual, expected, terms, scale, gain=1.0, where=""):
    """`close` with a scale for each result."""
    for index, (a, e, s) in enumerate(zip(actual, expected, scale, strict=True)):
        close(a, e, terms=terms, scale=s, gain=gain, where=f"{where} result {index}")


def label(value):
    """A test id without the address of a function, so it is the same in every process."""
    return re.sub(r" at 0x\w+", "", getattr(value, "__name__", str(value)))[:60]
