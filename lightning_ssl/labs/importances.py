"""Every pair importance on the same synthetic points: where each puts its weight, and what an encoder learns from it.

Points of several classes lie on a sphere and are buried under nuisance directions that are larger than the signal and
that the augmentation redraws. A small network is trained by each importance's α-CL energy, −E_{sg(α)}/M, from the same
initial weights on the same batches; only α differs. For each importance the table gives, on one held-out batch at the
end of training,

    effective negatives   exp H(α_i / Σ_j α_ij), the number of negatives that a row really uses, mean over rows
    row entropy           H / log K: 1 for uniform rows, 0 for a single negative
    zero weights          share of negatives with weight exactly 0
    accuracy              of a linear (ridge) readout of the embedding, before and after training

Sources: Definition 1, Eqn. 12 and 44 and Section 6 of "Understanding Deep Contrastive Learning via Coordinate-wise
Optimization" for the regularized and direct importances, and its Table 1 for the order of the losses; the theory of
one-layer networks for the Gaussian kernel and that of dual networks for the exact weights, both of un-augmented points.
Table 1 is of ResNet18 on CIFAR-10: it is shown beside the toy's accuracies for orientation only; what is claimed of the
toy are the properties that the definitions imply, and that the quadratic loss comes last among the losses of Table 1.

All importances and seeds are one batch of networks; α is asked of each importance with its seeds flattened into rows.
Adam, as in the paper's recipe. Importances that do not divide by the row sum differ in scale as well, which Adam takes
out.

Found. Quadratic comes last, as in Table 1, together with one other: Inverse with the paper's γ = 2 and τ = 0.5. Solved
as it is written, its rows are uniform to three digits (entropy 1.000) and it trains as Quadratic does, where the paper
has it level with InfoNCE. The reason: with K negatives α is near 1/K, where r'' = −γ τ K^{γ+1} makes every departure
from uniform weights γ K^γ times dearer than Entropy does. The paper's released code does not solve for μ; that would
explain its figure. A temperature τ_q = τ K^{q−1} has the same r'' at uniform weights as Entropy with τ, so that only
the shape of r differs; the entries "matched τ" use it, and with it Inverse is within a deviation of Entropy. The lead
of the losses of Table 1 over Quadratic (Inverse apart) grows with training: 0.02 to 0.03 after 60 steps, less than a
deviation, and 0.17 or more after 240.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.checks import require, require_positive
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track
from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily, Gaussian, Importance, Uniform
from lightning_ssl.losses.solved import Inverse, Square, Tsallis

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SPREAD_EVERY = 4  # steps between two measurements of how rows spread their weight


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: its importance, and the row of the paper's Table 1 that it stands for, if any."""

    importance: Importance
    table1: str | None = None
    normalized: bool = True
    backprop_alpha: bool = False


def matched_tau(tau: float, q: float, negatives: int) -> float:
    """τ_q = τ K^{q−1}: with it r_q'' = −τ_q α^{q−2} equals Entropy's −τ/α at uniform weights, α = 1/K."""
    return tau * negatives ** (q - 1)


def entries(tau: float, negatives: int) -> dict[str, Entry]:
    """The importances compared, with the paper's settings where it gives them (γ = 2, p = 4, τ = 5 for Square)."""
    return {
        "Quadratic": Entry(FromFamily(Quadratic()), "quadratic"),
        "InfoNCE, ε=1": Entry(FromFamily(InfoNCE(tau)), "infonce", normalized=False),
        "Entropy, α propagated": Entry(Entropy(tau), "backprop_alpha", backprop_alpha=True),
        "Entropy (InfoNCE, ε=0)": Entry(Entropy(tau), "entropy"),
        "Inverse, γ=2": Entry(Inverse(tau), "inverse"),
        "Inverse, γ=2, matched τ": Entry(Tsallis(matched_tau(tau, -1.0, negatives), -1.0)),
        "Square, τ=5": Entry(Square(), "square"),
        "Tsallis, q=1.5, matched τ": Entry(Tsallis(matched_tau(tau, 1.5, negatives), 1.5)),
        "Direct, p=4": Entry(Direct(tau), "direct"),
        "Direct, p=4, not normalized": Entry(Direct(tau, normalize=False), normalized=False),
        "Uniform": Entry(Uniform(), normalized=False),
        "Gaussian, un-augmented": Entry(Gaussian(tau), normalized=False),
        "Exact, un-augmented": Entry(Exact(tau), normalized=False),
    }


@dataclass(frozen=True)
class Points:
    """Batches of two views and the un-augmented points, with labels; every tensor has the seeds in front."""

    x1: Tensor  # (S, T, N, n)
    x2: Tensor  # (S, T, N, n)
    clean: Tensor  # (S, T, N, n)
    label: Tensor  # (S, T, N)


def sphere_mixture(
    classes: int,
    batches: int,
    samples: int,
    signal: int,
    nuisance: int,
    spread: float,
    loudness: float,
    seeds: int,
    first_seed: int = 0,
    stream: int = 0,
) -> Points:
    """A mixture of classes on the sphere of `signal` dimensions, beside `nuisance` dimensions that a view redraws.

    x = [(c_label + spread·noise normalized), loudness·nuisance]; a view adds 0.1·noise to the signal and draws half of
    the nuisance's variance anew. The centres c are the seed's own and the same for every stream.
    """
    centres = per_seed(lambda g: torch.randn(classes, signal, generator=g), seeds, first_seed, 0)
    centres = centres / centres.norm(dim=2, keepdim=True)  # (S, C, signal)
    shape = (batches, samples)
    label = per_seed(lambda g: torch.randint(classes, shape, generator=g), seeds, first_seed, 100 + stream)
    dim = signal + nuisance
    noise = per_seed(lambda g: torch.randn(4, *shape, dim, generator=g), seeds, first_seed, 200 + stream)
    chosen = centres.gather(1, label.flatten(1)[..., None].expand(-1, -1, signal)).view(seeds, *shape, signal)
    s = chosen + spread / math.sqrt(signal) * noise[:, 0, ..., :signal]
    s = s / s.norm(dim=-1, keepdim=True)
    clean = torch.cat([s, loudness * noise[:, 0, ..., signal:]], -1)

    def view(fresh: Tensor) -> Tensor:
        moved = s + 0.1 * fresh[..., :signal]
        redrawn = math.sqrt(0.5) * (noise[:, 0, ..., signal:] + fresh[..., signal:])
        return torch.cat([moved, loudness * redrawn], -1)

    return Points(view(noise[:, 1]), view(noise[:, 2]), clean, label)


def embed(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Two layers with ReLU between, outputs on the unit sphere: (R, N, n) → (R, N, d)."""
    z = (x @ weights[0].mT + weights[1]).relu() @ weights[2].mT
    return z / z.norm(dim=2, keepdim=True).clamp_min(1e-12)


def pair_distances(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """d2_pos (R, 2N) and d2_neg (R, 2N, 2N) of unit vectors, both views as anchors."""
    z = torch.cat([z1, z2], 1)
    d2_pos = 1 - (z1 * z2).sum(2)
    return torch.cat([d2_pos, d2_pos], 1), 1 - z @ z.mT


def negatives(samples: int) -> Tensor:
    """Which of the 2N candidates are negatives of each of the 2N anchors: (2N, 2N)."""
    one = torch.eye(samples, dtype=torch.bool)
    return ~one.repeat(2, 2)


def weigh(importance: Callable[..., Tensor], d2_pos: Tensor, d2_neg: Tensor, valid: Tensor) -> Tensor:
    """α of many runs at once, by flattening runs into rows: (R, M), (R, M, K), valid (M, K) → (R, M, K)."""
    rows = importance(d2_pos.flatten(), d2_neg.flatten(0, 1).clamp_min(0), valid.repeat(len(d2_pos), 1))
    return rows.view_as(d2_neg)


def losses(compared: Sequence[Entry], z1: Tensor, z2: Tensor, clean: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """−E_{sg(α)}/M of every run (R,) and α (R, M, K); runs are ordered by importance, then by seed.

    α is detached here and nowhere else, except for an entry that asks to propagate through it.
    """
    d2_pos, d2_neg = pair_distances(z1, z2)
    d2_clean = pair_distances(clean.detach(), clean.detach())[1]
    seeds = len(z1) // len(compared)
    alphas = []
    for k, entry in enumerate(compared):
        at = slice(k * seeds, (k + 1) * seeds)
        if entry.backprop_alpha:
            alphas.append(weigh(entry.importance, d2_pos[at], d2_neg[at], valid))
        else:
            looked_at = d2_clean if entry.importance.uses_clean_view else d2_neg
            alphas.append(weigh(entry.importance, d2_pos[at].detach(), looked_at[at].detach(), valid))
    alpha = torch.cat(alphas)
    return -(alpha * (d2_neg - d2_pos[:, :, None])).sum(2).mean(1), alpha.detach()


def readout(z: Tensor, label: Tensor, z_test: Tensor, label_test: Tensor, classes: int) -> Tensor:
    """Accuracy of a ridge regression onto the classes: (R, n, d), (R, n) and a test set → (R,)."""
    ones = torch.ones_like(z[:, :, :1])
    a, a_test = torch.cat([z, ones], 2), torch.cat([z_test, torch.ones_like(z_test[:, :, :1])], 2)
    target = torch.nn.functional.one_hot(label, classes).to(z.dtype)
    gram = a.mT @ a + 1e-3 * z.shape[1] * torch.eye(a.shape[2], dtype=z.dtype)
    w = torch.linalg.solve(gram, a.mT @ target)
    return ((a_test @ w).argmax(2) == label_test).to(z.dtype).mean(1)


def spread_of(alpha: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """How a run's rows spread their weight: effective negatives, row entropy and share of zeros, each (R,)."""
    negatives_per_row = int(valid.sum(1)[0])
    share = alpha / alpha.sum(2, keepdim=True).clamp_min(1e-30)
    h = torch.special.entr(share).sum(2)  # (R, M)
    zero = ((alpha == 0) & valid).to(alpha.dtype).sum(2) / negatives_per_row
    return {"effective": h.exp().mean(1), "entropy": h.mean(1) / math.log(negatives_per_row), "zeros": zero.mean(1)}


def run(
    *,
    classes: int = 8,
    samples: int = 64,
    signal: int = 8,
    nuisance: int = 16,
    spread: float = 0.5,
    loudness: float = 0.7,
    hidden: int = 48,
    outputs: int = 8,
    tau: float = 0.5,
    steps: int = 120,
    lr: float = 0.01,
    seeds: int = 5,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train one small encoder by each importance on the same points and compare them.

    classes: classes of the mixture
    samples: samples N of a batch; each of the 2N anchors has 2N−2 negatives
    signal: dimensions that carry the class
    nuisance: dimensions that do not, and that the augmentation redraws
    spread: spread of a class on the sphere
    loudness: size of a nuisance dimension
    hidden: hidden width of the encoder
    outputs: width of the embedding
    tau: temperature of the importances that have one (Square has 5, as in the paper, and 0.5)
    steps: Adam steps, each on a fresh batch
    lr: Adam's learning rate
    seeds: encoders per importance
    first_seed: seed of the first
    quick: fewer steps and seeds
    progress: show a progress bar
    """
    require(classes >= 2, "classes", classes, "2 or more")
    require(samples >= 2, "samples", samples, "2 or more")
    require(signal >= 1, "signal", signal, "1 or more")
    require(outputs >= 2, "outputs", outputs, "2 or more")
    require(nuisance >= 0, "nuisance", nuisance, "0 or more")
    require(spread >= 0, "spread", spread, "0 or more")
    require(loudness >= 0, "loudness", loudness, "0 or more")
    require(hidden >= 1, "hidden", hidden, "1 or more")
    require(steps >= 1, "steps", steps, "1 or more")
    require(seeds >= 1, "seeds", seeds, "1 or more")
    require_positive("tau", tau)
    require_positive("lr", lr)
    if quick:
        steps, seeds = min(steps, 100), min(seeds, 3)
    settings: dict[str, object] = {
        "classes": classes, "samples": samples, "signal": signal, "nuisance": nuisance, "spread": spread,
        "loudness": loudness, "hidden": hidden, "outputs": outputs, "tau": tau, "steps": steps, "lr": lr,
        "seeds": seeds, "first_seed": first_seed, "quick": quick,
    }  # fmt: skip
    named = entries(tau, negatives=2 * samples - 2)
    compared, count = list(named.values()), len(named)

    def draw(batches: int, size: int, stream: int) -> Points:
        return sphere_mixture(classes, batches, size, signal, nuisance, spread, loudness, seeds, first_seed, stream)

    training, probe, test, held_out = draw(steps, samples, 0), draw(1, 512, 1), draw(1, 512, 2), draw(1, samples, 3)
    weights = [
        w.repeat(count, 1, 1).requires_grad_(True)
        for w in initial(signal + nuisance, hidden, outputs, seeds, first_seed)
    ]
    valid = negatives(samples)

    def accuracy() -> Tensor:
        with torch.no_grad():
            z, z_test = (embed(p.clean[:, 0].repeat(count, 1, 1), weights) for p in (probe, test))
        labels, test_labels = (p.label[:, 0].repeat(count, 1) for p in (probe, test))
        return readout(z, labels, z_test, test_labels, classes).view(count, seeds)

    def loss_on(points: Points, t: int) -> tuple[Tensor, Tensor]:
        z1, z2, clean = (embed(x[:, t].repeat(count, 1, 1), weights) for x in (points.x1, points.x2, points.clean))
        return losses(compared, z1, z2, clean, valid)

    before = accuracy()
    spreads = []
    adam = torch.optim.Adam(weights, lr=lr)
    for t in track(range(steps), "importances", progress):
        loss, alpha = loss_on(training, t)
        if t % SPREAD_EVERY == 0:
            spreads.append(spread_of(alpha, valid)["effective"])
        adam.zero_grad()
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        loss.sum().backward()
        adam.step()
    after = accuracy()
    with torch.no_grad():
        _, alpha = loss_on(held_out, 0)
        z1, z2 = (embed(x[:, 0].repeat(count, 1, 1), weights) for x in (held_out.x1, held_out.x2))
        d2_neg = pair_distances(z1, z2)[1]
    final = {name: value.view(count, seeds) for name, value in spread_of(alpha, valid).items()}
    rows = alpha.sum(2).view(count, seeds, -1)

    published = papers.load("alpha_cl")["table1"]["cifar10"]
    names = list(named)
    accuracies = dict(zip(names, after.mean(1).tolist(), strict=True))
    table1 = {name: published[entry.table1][0][0] for name, entry in named.items() if entry.table1}
    text = _table(named, final, before, after, table1)

    normalized = [entry.normalized for entry in compared]
    drops = [isinstance(e.importance, Square) or getattr(e.importance, "q", 0) > 1 for e in compared]
    keeps = [not drop for drop in drops]
    above = sum(accuracies[name] > accuracies["Quadratic"] + 0.01 for name in table1)
    claims = [
        Claim.at_most("rows of normalized importances: |Σ_j α_ij − 1|", (rows[normalized] - 1).abs().amax(2), 1e-4),
        Claim.at_least("q > 1 drops pairs: share of zero weights", final["zeros"][drops], 1e-3),
        Claim.at_most("all others keep every pair: share of zero weights", final["zeros"][keeps], 0.0),
        Claim.at_least("training helps: gain in accuracy", after - before, 0.0),
        Claim(
            "Table 1: losses better than Quadratic", above, 0.0, len(table1) - 1, None,
            "as many as in the paper, by 0.01 or more in mean accuracy", above == len(table1) - 1,
        ),
    ]  # fmt: skip
    worse = [name for name in table1 if name != "Quadratic" and accuracies[name] <= accuracies["Quadratic"] + 0.01]
    notes = [
        f"accuracies are of a linear readout on {classes} classes (chance {1 / classes:.3f}), ± over {seeds} seeds; "
        "CIFAR-10 is the paper's Table 1 at 100 epochs, for orientation"
    ]
    if worse:
        notes.append(f"not better than Quadratic here: {'; '.join(worse)}")
        notes.append("Inverse as the paper sets it has uniform rows; the lab's docstring gives the reason")
    d2, a = d2_neg.view(count, seeds, *d2_neg.shape[1:])[:, 0], alpha.view(count, seeds, *alpha.shape[1:])[:, 0]
    arrays = {
        **final, "before": before, "after": after, "row_sums": rows.mean(2),
        "effective_path": torch.stack(spreads, 1).view(count, seeds, -1),
        "d2": d2[:, :, valid[0]][:, 0], "alpha": (a / a.sum(2, keepdim=True))[:, :, valid[0]][:, 0],
    }  # fmt: skip
    settings["importances"] = {name: repr(entry.importance) for name, entry in named.items()}
    return Result("importances", settings, arrays, claims, notes, _draw, text=text)


def initial(inputs: int, hidden: int, outputs: int, seeds: int, first_seed: int = 0) -> list[Tensor]:
    """He-initialized layers, the first with a bias b of zero.

    W_1 (seeds, hidden, inputs), b (seeds, 1, hidden), W_2 (seeds, outputs, hidden).
    """
    w1 = per_seed(lambda g: torch.randn(hidden, inputs, generator=g), seeds, first_seed, 10) * (2 / inputs) ** 0.5
    w2 = per_seed(lambda g: torch.randn(outputs, hidden, generator=g), seeds, first_seed, 11) * (2 / hidden) ** 0.5
    return [w1, torch.zeros(seeds, 1, hidden), w2]


def _table(
    named: dict[str, Entry], final: dict[str, Tensor], before: Tensor, after: Tensor, table1: dict[str, float]
) -> str:
    width = max(map(len, named))
    head = f"{'importance'.ljust(width)}  effective  row      zero     accuracy                  CIFAR-10"
    lines = [head, f"{''.ljust(width)}  negatives  entropy  weights  before → after            (paper)"]
    lines.append("-" * len(head))
    for k, name in enumerate(named):
        std = after[k].std() if after.shape[1] > 1 else torch.zeros(())
        lines.append(
            f"{name.ljust(width)}  {final['effective'][k].mean():9.1f}  {final['entropy'][k].mean():7.3f}  "
            f"{final['zeros'][k].mean():7.1%}  {before[k].mean():.3f} → {after[k].mean():.3f} ± {std:.3f}"
            + (f"     {table1[name]:8.2f}" if name in table1 else "")
        )
    return "\n".join(lines)


def _draw(result: Result) -> Figure:
    fig, (weight, path, accuracy) = panels(1, 3, (17, 5.4))
    a, names = result.arrays, list(result.settings["importances"])
    styles = [(PALETTE[k % 7], ("-", "--")[k // 7]) for k in range(len(names))]
    for k, name in enumerate(names):
        if name == "Entropy, α propagated":  # the weights of Entropy at another encoder: nothing new to see
            continue
        order = a["d2"][k].argsort()
        colour, line = styles[k]
        weight.plot(a["d2"][k][order], a["alpha"][k][order].clamp_min(1e-6), line, color=colour, label=name)
    weight.set(title="One anchor's weights at the end", xlabel="d² = 1 − cos to the negative", ylabel="α / row sum")
    weight.set(yscale="log", ylim=(1e-5, 1))
    for k, name in enumerate(names):
        colour, line = styles[k]
        used = a["effective_path"][k].mean(0)
        path.plot(torch.arange(len(used)) * SPREAD_EVERY, used, line, color=colour, label=name)
    path.set(title="How many negatives a row really uses", xlabel="step", ylabel="effective negatives", yscale="log")
    places = list(range(len(names)))[::-1]
    mean, std = a["after"].mean(1), a["after"].std(1) if a["after"].shape[1] > 1 else torch.zeros(len(names))
    for k, place in enumerate(places):
        accuracy.barh(place, float(mean[k]), xerr=float(std[k]), color=styles[k][0], alpha=0.85, height=0.7)
        accuracy.plot([float(a["before"][k].mean())] * 2, [place - 0.35, place + 0.35], "k:", linewidth=1.5)
    accuracy.set_yticks(places, names)
    accuracy.set(title="Linear readout (dotted: before training)", xlabel="accuracy")
    accuracy.set_xlim(max(0.0, float(a["before"].min()) - 0.1), 1)
    fig.legend(*path.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return fig
