"""Every pair importance on the same synthetic points: where each puts its weight, and what an encoder learns from it.

Points of several classes lie on a sphere, beside nuisance dimensions that are larger than the signal and that the
augmentation redraws. Each importance trains a small network by its α-CL energy, −E_{sg(α)}/M, from the same initial
weights on the same batches; only α differs. The table has for each importance, on one held-out batch after training:

    effective negatives   exp H(α_i / Σ_j α_ij), mean over rows
    row entropy           H / log K: 1 for uniform rows, 0 for a single negative
    zero weights          share of negatives with weight exactly 0
    accuracy              of a linear (ridge) readout of the embedding, before and after training

Sources: Definition 1, Eqn. 12 and 44 and Section 6 of "Understanding Deep Contrastive Learning via Coordinate-wise
Optimization" for the regularized and direct importances, and its Table 1 for the order of the losses; the theory of
one-layer networks for the Gaussian kernel and that of dual networks for the exact weights, both of un-augmented points.
Table 1 is of ResNet18 on CIFAR-10: it is printed beside our accuracies for orientation only. The claims are the
properties that the definitions imply, and that the quadratic loss is the worst of the losses of Table 1.

All importances and seeds are one batch of networks. The optimizer is Adam, as in the paper's recipe. Importances that
do not divide by the row sum also differ in scale, which Adam removes. Findings: docs/labs/importances.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.base.palette import line_style, panels
from lightning_ssl.labs.lab import Claim, Result, laboratory, mean_std, normal, per_seed, track
from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily, Gaussian, Importance, Uniform
from lightning_ssl.losses.solved import Inverse, Square, Tsallis

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MEASURED_EVERY = 4  # steps between two measurements of the effective negatives


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: its importance, and its row in the paper's Table 1, if any."""

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
    """Batches of two views and the un-augmented points, with labels; the first axis of every tensor is the seed."""

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
    """Draw a mixture of classes on the sphere of `signal` dimensions, with `nuisance` dimensions that a view redraws.

    x = [(c_label + spread·noise normalized), loudness·nuisance]. A view adds 0.1·noise to the signal and redraws half
    of the nuisance's variance. Each seed has its own centres c, the same for every stream.
    """
    centres = normal((classes, signal), seeds, first_seed, 0)
    centres = centres / centres.norm(dim=2, keepdim=True)  # (S, C, signal)
    shape = (batches, samples)
    label = per_seed(lambda g: torch.randint(classes, shape, generator=g), seeds, first_seed, 100 + stream)
    dim = signal + nuisance
    noise = normal((4, *shape, dim), seeds, first_seed, 200 + stream)
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
    """Two layers with a ReLU between them, outputs on the unit sphere: (R, N, n) → (R, N, d)."""
    z = (x @ weights[0].mT + weights[1]).relu() @ weights[2].mT
    return z / z.norm(dim=2, keepdim=True).clamp_min(1e-12)


def pair_distances(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """d2_pos (R, 2N) and d2_neg (R, 2N, 2N) of unit vectors, both views as anchors."""
    z = torch.cat([z1, z2], 1)
    d2_pos = 1 - (z1 * z2).sum(2)
    return torch.cat([d2_pos, d2_pos], 1), 1 - z @ z.mT


def negatives(samples: int) -> Tensor:
    """Mask of the negatives of each of the 2N anchors: (2N, 2N)."""
    one = torch.eye(samples, dtype=torch.bool)
    return ~one.repeat(2, 2)


def batched_alpha(importance: Callable[..., Tensor], d2_pos: Tensor, d2_neg: Tensor, valid: Tensor) -> Tensor:
    """Compute α of many runs, by merging runs into rows: (R, M), (R, M, K), valid (M, K) → (R, M, K)."""
    rows = importance(d2_pos.flatten(), d2_neg.flatten(0, 1).clamp_min(0), valid.repeat(len(d2_pos), 1))
    return rows.view_as(d2_neg)


def energy_losses(
    compared: Sequence[Entry], z1: Tensor, z2: Tensor, clean: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor]:
    """−E_{sg(α)}/M of every run (R,) and α (R, M, K); runs are ordered by importance, then by seed.

    α is detached here and nowhere else, except for an entry with `backprop_alpha`.
    """
    d2_pos, d2_neg = pair_distances(z1, z2)
    d2_clean = pair_distances(clean.detach(), clean.detach())[1]
    alphas = []
    parts = (d2.chunk(len(compared)) for d2 in (d2_pos, d2_neg, d2_clean))
    for entry, pos, neg, unaugmented in zip(compared, *parts, strict=True):
        d2 = unaugmented if entry.importance.uses_clean_view else neg
        if not entry.backprop_alpha:
            pos, d2 = pos.detach(), d2.detach()
        alphas.append(batched_alpha(entry.importance, pos, d2, valid))
    alpha = torch.cat(alphas)
    return -(alpha * (d2_neg - d2_pos[:, :, None])).sum(2).mean(1), alpha.detach()


def readout_accuracy(z: Tensor, label: Tensor, z_test: Tensor, label_test: Tensor, classes: int) -> Tensor:
    """Accuracy of a ridge regression onto the classes: (R, n, d), (R, n) and a test set → (R,)."""
    a, a_test = (torch.nn.functional.pad(x, (0, 1), value=1.0) for x in (z, z_test))
    target = torch.nn.functional.one_hot(label, classes).to(z.dtype)
    gram = a.mT @ a + 1e-3 * z.shape[1] * torch.eye(a.shape[2], dtype=z.dtype)
    w = torch.linalg.solve(gram, a.mT @ target)
    return ((a_test @ w).argmax(2) == label_test).to(z.dtype).mean(1)


def row_statistics(alpha: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """Effective negatives, row entropy and share of zeros of α (R, M, K), mean over rows, each (R,)."""
    negatives_per_row = int(valid.sum(1)[0])
    share = alpha / alpha.sum(2, keepdim=True).clamp_min(1e-30)
    h = torch.special.entr(share).sum(2)  # (R, M)
    zero = ((alpha == 0) & valid).to(alpha.dtype).sum(2) / negatives_per_row
    return {"effective": h.exp().mean(1), "entropy": h.mean(1) / math.log(negatives_per_row), "zeros": zero.mean(1)}


def initial(inputs: int, hidden: int, outputs: int, seeds: int, first_seed: int = 0) -> list[Tensor]:
    """He-initialized layers, the first with a bias b of zero.

    W_1 (seeds, hidden, inputs), b (seeds, 1, hidden), W_2 (seeds, outputs, hidden).
    """
    w1 = normal((hidden, inputs), seeds, first_seed, 10) * (2 / inputs) ** 0.5
    w2 = normal((outputs, hidden), seeds, first_seed, 11) * (2 / hidden) ** 0.5
    return [w1, torch.zeros(seeds, 1, hidden), w2]


@laboratory(quick={"steps": 100, "seeds": 3}, classes=2, samples=2, nuisance=0, spread=0, loudness=0, outputs=2)
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

    Args:
        classes: classes of the mixture
        samples: samples N of a batch; each of the 2N anchors has 2N−2 negatives
        signal: dimensions that carry the class
        nuisance: dimensions that do not, and that the augmentation redraws
        spread: spread of a class on the sphere
        loudness: size of a nuisance dimension
        hidden: hidden width of the encoder
        outputs: width of the embedding
        tau: temperature of the importances that have one (Square has 5, as in the paper)
        steps: Adam steps, each on a new batch
        lr: Adam's learning rate
        seeds: encoders per importance
        first_seed: seed of the first encoder
        quick: fewer steps and seeds
        progress: show a progress bar
    """
    settings = dict(locals())
    named = entries(tau, negatives=2 * samples - 2)
    arrays, row_sums = _train(list(named.values()), settings, progress)
    published = papers.load("alpha_cl")["table1"]["cifar10"]
    table1 = {name: published[entry.table1][0][0] for name, entry in named.items() if entry.table1}
    accuracies = dict(zip(named, arrays["after"].mean(1).tolist(), strict=True))
    better = [name for name in table1 if accuracies[name] > accuracies["Quadratic"] + 0.01]
    settings["importances"] = {name: repr(entry.importance) for name, entry in named.items()}
    claims, notes = _claims(named, arrays, row_sums, table1, better), _notes(settings, table1, better)
    return Result("importances", settings, arrays, claims, notes, _draw, text=_table(named, arrays, table1))


def _train(compared: Sequence[Entry], settings: dict[str, Any], progress: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Train every importance × seed; the arrays of the result, (count, S, ...), and Σ_j α_ij (count, S, M)."""
    s, count = settings, len(compared)

    def draw(batches: int, size: int, stream: int) -> Points:
        shape = (s["classes"], batches, size, s["signal"], s["nuisance"], s["spread"], s["loudness"])
        return sphere_mixture(*shape, s["seeds"], s["first_seed"], stream)

    training, probe, test, held_out = (
        draw(batches, size, stream)
        for stream, (batches, size) in enumerate([(s["steps"], s["samples"]), (1, 512), (1, 512), (1, s["samples"])])
    )
    inputs = s["signal"] + s["nuisance"]
    start = initial(inputs, s["hidden"], s["outputs"], s["seeds"], s["first_seed"])
    weights = [w.repeat(count, 1, 1).requires_grad_(True) for w in start]
    valid = negatives(s["samples"])

    def embed_all(x: Tensor) -> Tensor:
        return embed(x.repeat(count, 1, 1), weights)

    def embeddings(points: Points, t: int) -> tuple[Tensor, Tensor, Tensor]:
        return embed_all(points.x1[:, t]), embed_all(points.x2[:, t]), embed_all(points.clean[:, t])

    def accuracy() -> Tensor:
        with torch.no_grad():
            z, z_test = (embed_all(points.clean[:, 0]) for points in (probe, test))
        labels, test_labels = (points.label[:, 0].repeat(count, 1) for points in (probe, test))
        return readout_accuracy(z, labels, z_test, test_labels, s["classes"]).view(count, -1)

    measured = {"before": accuracy()}
    effective = []
    adam = torch.optim.Adam(weights, lr=s["lr"])
    for t in track(range(s["steps"]), "importances", progress):
        loss, alpha = energy_losses(compared, *embeddings(training, t), valid)
        if t % MEASURED_EVERY == 0:
            effective.append(row_statistics(alpha, valid)["effective"])
        adam.zero_grad()
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        loss.sum().backward()
        adam.step()
    measured |= {"after": accuracy(), "effective_path": torch.stack(effective, 1).view(count, s["seeds"], -1)}
    with torch.no_grad():
        z1, z2, clean = embeddings(held_out, 0)
        _, alpha = energy_losses(compared, z1, z2, clean, valid)
        d2_neg = pair_distances(z1, z2)[1]
    measured |= {name: value.view(count, -1) for name, value in row_statistics(alpha, valid).items()}
    row_sums = alpha.sum(2)
    # One anchor's row of the first seed.
    measured |= {"row_sums": row_sums.mean(1).view(count, -1), "d2": d2_neg[:: s["seeds"], 0, valid[0]]}
    measured["alpha"] = (alpha / row_sums[..., None])[:: s["seeds"], 0, valid[0]]
    return measured, row_sums.view(count, s["seeds"], -1)


def _claims(
    named: dict[str, Entry], measured: dict[str, Tensor], row_sums: Tensor, table1: dict[str, float], better: list[str]
) -> list[Claim]:
    normalized = [entry.normalized for entry in named.values()]
    drops = [isinstance(e.importance, Square) or getattr(e.importance, "q", 0) > 1 for e in named.values()]
    keeps = [not drop for drop in drops]
    gain, expected = measured["after"] - measured["before"], len(table1) - 1
    return [
        Claim.at_most("rows of normalized importances: |Σ_j α_ij − 1|", (row_sums[normalized] - 1).abs().amax(2), 1e-4),
        Claim.at_least("q > 1 drops pairs: share of zero weights", measured["zeros"][drops], 1e-3),
        Claim.at_most("all others keep every pair: share of zero weights", measured["zeros"][keeps], 0.0),
        Claim.at_least("training helps: gain in accuracy", gain, 0.0),
        Claim(
            "Table 1: losses better than Quadratic", len(better), 0.0, expected, None,
            "as many as in the paper, by 0.01 or more in mean accuracy", len(better) == expected,
        ),
    ]  # fmt: skip


def _notes(settings: dict[str, Any], table1: dict[str, float], better: list[str]) -> list[str]:
    classes, seeds = settings["classes"], settings["seeds"]
    notes = [
        f"accuracies are of a linear readout on {classes} classes (chance {1 / classes:.3f}), ± over {seeds} seeds; "
        "CIFAR-10 is the paper's Table 1 at 100 epochs, for orientation"
    ]
    worse = [name for name in table1 if name != "Quadratic" and name not in better]
    if worse:
        notes.append(f"not better than Quadratic here: {'; '.join(worse)}")
        notes.append("Inverse as the paper sets it has uniform rows; docs/labs/importances.md gives the reason")
    return notes


def _table(named: dict[str, Entry], measured: dict[str, Tensor], table1: dict[str, float]) -> str:
    width, before, after = max(map(len, named)), measured["before"], measured["after"]
    head = f"{'importance'.ljust(width)}  effective  row      zero     accuracy                  CIFAR-10"
    lines = [head, f"{''.ljust(width)}  negatives  entropy  weights  before → after            (paper)"]
    lines.append("-" * len(head))
    for k, name in enumerate(named):
        accuracy, std = mean_std(after[k])
        lines.append(
            f"{name.ljust(width)}  {measured['effective'][k].mean():9.1f}  {measured['entropy'][k].mean():7.3f}  "
            f"{measured['zeros'][k].mean():7.1%}  {before[k].mean():.3f} → {accuracy:.3f} ± {std:.3f}"
            + (f"     {table1[name]:8.2f}" if name in table1 else "")
        )
    return "\n".join(lines)


def _draw(result: Result) -> Figure:
    fig, (weight, path, accuracy) = panels(1, 3, (17, 5.4))
    a, names = result.arrays, list(result.settings["importances"])
    styles = [line_style(k) for k in range(len(names))]
    for k, name in enumerate(names):
        colour, line = styles[k]
        used = a["effective_path"][k].mean(0)
        path.plot(torch.arange(len(used)) * MEASURED_EVERY, used, line, color=colour, label=name)
        if name == "Entropy, α propagated":  # it has the weights of Entropy, for another encoder
            continue
        order = a["d2"][k].argsort()
        weight.plot(a["d2"][k][order], a["alpha"][k][order].clamp_min(1e-6), line, color=colour, label=name)
    weight.set(title="One anchor's weights at the end", xlabel="d² = 1 − cos to the negative", ylabel="α / row sum")
    weight.set(yscale="log", ylim=(1e-5, 1))
    path.set(title="How many negatives a row really uses", xlabel="step", ylabel="effective negatives", yscale="log")
    places = list(range(len(names)))[::-1]
    for k, place in enumerate(places):
        mean, std = mean_std(a["after"][k])
        accuracy.barh(place, mean, xerr=std, color=styles[k][0], alpha=0.85, height=0.7)
        accuracy.plot([float(a["before"][k].mean())] * 2, [place - 0.35, place + 0.35], "k:", linewidth=1.5)
    accuracy.set_yticks(places, names)
    accuracy.set(title="Linear readout (dotted: before training)", xlabel="accuracy")
    accuracy.set_xlim(max(0.0, float(a["before"].min()) - 0.1), 1)
    fig.legend(*path.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return fig
