"""The latent tree, its networks, Theorems 5 and 6, and the lab that trains them."""

import math

import pytest
import torch
from helpers.closeness import close
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs import hltm
from lightning_ssl.labs.hltm import categorical, lucky, theorems, training, tree
from lightning_ssl.labs.hltm.networks import LOSSES, NORM_EPS, Networks

SEEDS = range(3)
PROVED = ("Theorem", "Lemma", "Eqn", "Fig. 11")


def slow_forward(W: list[Tensor], b: list[Tensor], leaves: Tensor) -> Tensor:
    """One run, one latent at a time: leaves (n_0, N) → output (N, h)."""
    values = [leaf[:, None] for leaf in leaves.float()]
    for layer, (blocks, biases) in enumerate(zip(W, b, strict=True)):
        parents = []
        for mu in range(len(values) // 2):
            children = [values[2 * mu], values[2 * mu + 1]]
            if layer > 0:
                children = [child.clamp_min(0) for child in children]
            weight = torch.cat([blocks[2 * mu], blocks[2 * mu + 1]])
            parents.append(torch.cat(children, 1) @ weight + biases[mu])
        values = parents
    return values[0]


def slow_loss(name: str, f: Tensor, tau: float) -> Tensor:
    y = f / (f.norm(dim=1, keepdim=True) + NORM_EPS)
    anchor, positive, negative = y.chunk(3)
    if name == "batch_nce":
        p, n = F.mse_loss(anchor, positive), F.mse_loss(anchor, negative)
        return -(-p / tau).exp() / ((-p / tau).exp() + (-n / tau).exp())
    r_pos = (anchor - positive).square().sum(1) / 2
    r_neg = (anchor - negative).square().sum(1) / 2
    if name == "nce":
        logits = torch.stack([-r_pos / tau, -r_neg / tau], 1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    return (r_pos - r_neg).mean()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("table", [0, 1, 2, 3])
def test_gradient_equals_autograd_of_a_plain_network(loss: str, table: int) -> None:
    depth, width, tau, roots = 4, 3, 0.2, 16
    networks = Networks(depth, width, SEEDS, repeat=2, table=table)
    leaves = tree.Samples(tree.polarities(depth, (0.7, 0.9), SEEDS), SEEDS, 2).draw(roots, (2, 1))[0]
    ours = networks.gradient(networks.table_index(leaves), LOSSES[loss], tau)
    for run in (0, 4):
        W = [w[run].detach().requires_grad_() for w in networks.W]
        b = [x[run].detach().requires_grad_() for x in networks.b]
        slow_loss(loss, slow_forward(W, b, leaves[run]), tau).backward()
        for gradient, parameter in zip(ours, W + b, strict=True):
            assert parameter.grad is not None
            close(gradient[run], parameter.grad, terms=4 * depth * width + 3 * roots, gain=1 / tau)


def test_tables_of_patterns_change_no_node() -> None:
    depth, width = 5, 4
    leaves = tree.Samples(tree.polarities(depth, (0.7,), SEEDS), SEEDS, 2).draw(40)[0]
    slow = Networks(depth, width, SEEDS, table=0).nodes(leaves)
    fast = Networks(depth, width, SEEDS, table=3).nodes(leaves)
    close(fast, slow, terms=depth * (2 * width + 1))


def test_polarities_lie_in_their_range_and_share_the_draw_of_their_seed() -> None:
    rho = torch.cat(tree.polarities(4, (0.5, 0.9), SEEDS), 1).unflatten(0, (2, 3))
    assert rho.abs().amin((1, 2))[0] >= 0.5
    assert rho.abs().amin((1, 2))[1] >= 0.9
    assert rho.abs().max() <= 1
    close((rho[0].abs() - 0.5) / 0.5, (rho[1].abs() - 0.9) / 0.1, scale=1, gain=1 / 0.1)
    assert (rho < 0).any()
    assert not (torch.cat(tree.polarities(4, (0.5,), SEEDS, signed=False), 1) < 0).any()


def test_samples_follow_the_tree() -> None:
    """E[z_μ z_ν] in ±1 is the product of ρ on the path between the two, for parent and child and for root and leaf."""
    depth, finite_sample = 3, 0.02  # 40,000 samples: four standard errors
    rho = tree.polarities(depth, (0.6,), SEEDS)
    z = [2.0 * layer - 1 for layer in tree.Samples(rho, SEEDS, 2).draw(40_000)]
    product = torch.ones(3, 1)
    for layer in range(depth - 1, -1, -1):
        product = product.repeat_interleave(2, 1) * rho[layer]
        parent = z[layer + 1].repeat_interleave(2, 1)
        torch.testing.assert_close((z[layer] * parent).mean(2), rho[layer], rtol=0, atol=finite_sample)
        torch.testing.assert_close((z[layer] * z[depth]).mean(2), product, rtol=0, atol=finite_sample)


def test_views_share_the_root_and_negatives_do_not() -> None:
    z0 = tree.Samples(tree.polarities(2, (0.7,), SEEDS), SEEDS, 2).draw(2000, (2, 1))[2].view(3, 3, 2000)
    assert torch.equal(z0[:, 0], z0[:, 1])
    same = (z0[:, 0] == z0[:, 2]).float().mean()
    assert 0.45 < same < 0.55


def test_pattern_probabilities_sum_to_one_and_match_samples() -> None:
    rho = tree.polarities(3, (0.6,), SEEDS)
    p = tree.pattern_probabilities(rho, 2)  # (3, 2, 2, 16)
    close(p.sum(3), torch.ones(3, 2, 2, dtype=torch.float64), terms=p.shape[3])
    z = tree.Samples(rho, SEEDS, 2).draw(20_000)
    index, latent = tree.patterns(z[0], 2).long(), z[2]
    for value in (0, 1):
        hit = F.one_hot(index, 16) * (latent == bool(value))[..., None]
        frequency = hit.sum(2) / hit.sum((2, 3))[..., None]
        torch.testing.assert_close(frequency.double(), p[:, :, value], rtol=0, atol=0.02)  # 20,000 samples


@pytest.mark.parametrize(("rho", "c"), [(0.8, 4.0), (0.9, 5.0)])
def test_theorem5_gives_lucky_nodes_with_the_stated_probability(rho: float, c: float) -> None:
    found = theorems.theorem5(rho, c, eta=0.05, children=20, seeds=range(100))
    assert found.shape[1] == lucky.lucky_width(c, (1 - rho**2) / (1 + rho**2), 0.05)
    assert found.any(1).double().mean() >= 0.95
    assert found.double().mean() < 0.5  # most nodes are not lucky


def test_theorem5_width_grows_with_c_and_with_confidence() -> None:
    widths = [lucky.lucky_width(c, 0.2, 0.05) for c in (4.0, 6.0, 9.0)]
    assert widths == sorted(widths)
    assert lucky.lucky_width(9.0, 0.2, 0.01) > widths[-1]


def test_correlation_is_the_largest_corrcoef_and_zero_for_a_constant_node() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.rand(2, 500, generator=g) < 0.5
    f = torch.randn(2, 500, 3, generator=g) + z[..., None] * torch.tensor([1.0, -2.0, 0.0])
    f[:, :, 2] = 0.3
    for nodes in ([0], [1], [2], [0, 1, 2]):
        measure = training.Correlation("root", depth=1)
        for some in (slice(200), slice(200, 500)):
            measure.add(Networks(1, 1, range(2)), [f[:, None, some, nodes]] * 2, [z[:, None, some]] * 2)
        for run in range(2):
            corr = torch.corrcoef(torch.cat([z[run, :, None].float(), f[run, :, nodes]], 1).T)[0, 1:]
            close(measure.value()[run], corr.abs().nan_to_num(0).max(), terms=z.shape[1])


@pytest.mark.parametrize("name", ["root", "s0", "s10"])
def test_operator_norm_equals_the_full_covariance_operator(name: str) -> None:
    """Against the Kronecker product with autograd's Jacobian, sample by sample."""
    depth, width, N, run = 3, 2, 30, 1
    networks = Networks(depth, width, SEEDS)
    z = tree.Samples(tree.polarities(depth, (0.7,), SEEDS), SEEDS, 2).draw(N)
    measure = training.OperatorNorm(name, depth)
    measure.add(networks, networks.nodes(z[0]), z)

    layer, position = tree.find_latent(name, depth)
    W, b = [w[run] for w in networks.W], [x[run] for x in networks.b]
    K = []
    for n in range(N):
        leaves = z[0][run, :, n : n + 1]

        def output(bias: Tensor, leaves: Tensor = leaves) -> Tensor:
            shifted = list(b)
            shifted[layer - 1] = torch.cat([b[layer - 1][:position], bias[None], b[layer - 1][position + 1 :]])
            return slow_forward(W, shifted, leaves)[0]

        J = torch.func.jacrev(output)(b[layer - 1][position])  # ∂f/∂f̃_μ, since the bias enters f̃_μ directly
        below = networks.nodes(z[0][:, :, n : n + 1])[layer - 1][run]
        f_ch = torch.cat([below[2 * position, 0], below[2 * position + 1, 0]]).relu()
        K.append(torch.kron(f_ch[:, None], J.T.contiguous()))
    connections, label = torch.stack(K), z[depth][run, 0]
    overall, OP = connections.mean(0), torch.zeros(len(K[0]), len(K[0]))
    for value in (False, True):
        difference = connections[label == value].mean(0) - overall
        OP += (label == value).float().mean() * difference @ difference.T
    close(measure.value()[run], OP.norm(), terms=N + len(OP) ** 2)


@pytest.mark.parametrize(("name", "where"), [("root", (5, 0)), ("s0", (4, 0)), ("s101", (2, 5)), ("s0111", (1, 7))])
def test_latents_are_named_as_in_the_paper(name: str, where: tuple[int, int]) -> None:
    assert tree.find_latent(name, 5) == where


def test_quick_run_shows_growth_and_the_theorems_and_draws() -> None:
    result = hltm.run(quick=True, seeds=2, samples=12_800)
    corr = result.arrays["correlation"]  # (epochs+1, widths, δ, seeds, latents)
    assert corr.shape == (3, 2, 1, 2, 5)
    assert corr[-1, 1, 0, :, 0].mean() > corr[0, 1, 0, :, 0].mean()
    assert "Table 6" in result.table()
    differ = [claim.name for claim in result.claims if claim.name.startswith(PROVED) and claim.outcome != "holds"]
    # The proof of Lemma 8 takes c for c/(1 − γ²). No reading of Eqn. 165 gives its range.
    assert [name[:17] for name in differ] == ["Lemma 8, Eqn. 112", "Eqn. 165: largest"], result.table()
    assert len(result.figure().axes) == 12


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_a_tree_of_any_depth_is_measured_where_it_has_latents(depth: int) -> None:
    result = hltm.run(depth=depth, seeds=2, trials=3, samples=256, epochs=1, delta_lower=(0.8,), other_depths=(1, 3))
    assert result.arrays["correlation"].shape == (2, 2, 1, 2, len(result.settings["latents"]))
    assert result.arrays["operator_norm"].shape == (2, 2, 1, 3, len(result.settings["operators"]))
    # Depth 1 has none of the operators.
    compared = {"operator_norm_depth_3"} if depth > 1 else set()
    assert {name for name in result.arrays if "depth" in name} == compared
    assert "none of these settings is in Table 6" in result.notes
    result.figure()


def test_claims_are_made_only_for_the_papers_own_settings() -> None:
    result = hltm.run(quick=True, seeds=2, samples=1280, epochs=1, delta_lower=(0.65,), operators=())
    assert not any(claim.paper_std is not None for claim in result.claims)


def test_mills_ratio_lies_between_its_bounds_and_equals_the_integral() -> None:
    """Eqn. 116 as a sum over a fine grid (midpoint rule, error of order step²)."""
    step, t_max = 1e-3, 12.0
    for y in (0.1, 1.0, 5.0):
        total = sum(math.exp(-y * t - t * t / 2) * step for t in (step * (k + 0.5) for k in range(int(t_max / step))))
        value = torch.tensor(y, dtype=torch.float64)
        assert abs(float(lucky.mills(value)) - total) < step**2
        assert lucky.mills_below(value) < total < lucky.mills_above(value)


@pytest.mark.parametrize(("c", "gamma"), [(1.0, 0.5), (4.0, 0.9), (9.0, 0.2)])
def test_tail_of_two_gaussians_equals_a_double_sum(c: float, gamma: float) -> None:
    """P(y₊ ≥ √c, y₋ ≥ 0) over a grid of both variables (midpoint rule), times e^{c/2(1−γ²)}."""
    step, total = 0.02, 0.0
    for i in range(300):
        y1 = c**0.5 + step * (i + 0.5)
        for j in range(300):
            y2 = step * (j + 0.5)
            total += math.exp(-(y1 * y1 + 2 * gamma * y1 * y2 + y2 * y2) / (2 * (1 - gamma**2)))
    total *= step**2 / (2 * math.pi * (1 - gamma**2) ** 0.5)
    arguments = torch.tensor([[c], [gamma]], dtype=torch.float64)
    ours = float(lucky.tail(*arguments)) * math.exp(-c / (2 * (1 - gamma**2)))
    assert abs(ours / total - 1) < 20 * step**2
    stated, steck = (float(ratio) for ratio in lucky.lemma8(*arguments))
    bound = math.exp(-c / 2) * (1 - gamma**2) ** 0.5 * float(lucky.r_hat(*arguments)) / (2 * math.pi)
    assert abs(stated / (total / bound) - 1) < 20 * step**2
    assert stated < 1 < steck  # Eqn. 112 is too large; the bound that it comes from holds


def test_lemma9_equals_a_loop_over_the_values_of_every_latent_and_leaf() -> None:
    """A path of three latents with one child, whose leaves are enumerated too."""
    m0, m1, m2, leaf_values = 3, 2, 4, 2
    P01, P12 = (categorical.regular_transition(*shape, 1, 5, s)[0] for shape, s in (((m0, m1), 20), ((m1, m2), 22)))
    root = categorical.distribution((m0,), 1, 5, 44)
    leaf = categorical.distribution((m2, 2, leaf_values), 1, 5, 46)[0]  # two leaves
    w = torch.tensor([[1.0, -1.0, 0.5], [-2.0, 1.0, 0.7]], dtype=torch.float64)

    def node(x: int, y: int) -> Tensor:
        return (x * w[0] + y * w[1] + 0.3).clamp_min(0)

    def given_root(z0: int) -> Tensor:
        total = torch.zeros(3, dtype=torch.float64)
        for z1 in range(m1):
            for z2 in range(m2):
                for x in range(leaf_values):
                    for y in range(leaf_values):
                        total += P01[z0, z1] * P12[z1, z2] * leaf[z2, 0, x] * leaf[z2, 1, y] * node(x, y)
        return total

    means = [given_root(z0) for z0 in range(m0)]
    overall = sum(p * mean for p, mean in zip(root[0], means, strict=True))
    expected = sum(p * torch.outer(v - overall, v - overall) for p, v in zip(root[0], means, strict=True))
    v2 = torch.stack(
        [sum(leaf[z, 0, x] * leaf[z, 1, y] * node(x, y) for x in (0, 1) for y in (0, 1)) for z in range(m2)]
    )
    V = categorical.lemma6([P01[None], P12[None]]) @ v2
    close(categorical.lemma9(root, V)[0], expected, terms=m0 * m1 * m2 * leaf_values**2, scale=float(V.max()) ** 2)


def test_lemma6_needs_columns_that_sum_to_zero() -> None:
    regular = categorical.regular_transition(3, 3, 4, 0, 20)
    close(regular.sum(1), torch.ones(4, 3, dtype=torch.float64), terms=9)
    assert regular.min() >= 0
    free = categorical.distribution((3, 3), 4, 0, 20)
    assert (categorical.chain([free, free]) - categorical.lemma6([free, free])).abs().amax() > 0.01
