"""The page of the losses: a section for every importance and every (φ, ψ) loss of the package, from its class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from matplotlib.figure import Figure

from generators import figures
from lightning_ssl.app.config import catalog, packaged
from lightning_ssl.app.config.flags import about
from lightning_ssl.base.signatures import arguments_of, concrete
from lightning_ssl.losses import Family, FromFamily, Importance, InfoNCE, Regularized

# Pages that the sources name.
LINKS = {
    **dict.fromkeys(("α-CL", "dual networks", "one layer"), "papers.md"),
    "the row Inverse": "results/inverse.md",
}
# Classes that no packaged file can name.
WITHOUT_FILE = {
    "Regularized": "no file, because r is given as functions; name a subclass by its path, as `mine.Burg` in "
    "[Your own parts](own_parts.md#own-loss)",
}
# Arguments of the classes that have no default.
EXAMPLES = {
    "FromFamily": FromFamily(InfoNCE()),
    "Regularized": Regularized(lambda a: 0.004 / a, lambda x: 0.004 / x, "log α"),
}
NEGATIVES = 126  # of a batch of 64 images with both views as anchors
POSITIVE = 0.1  # d2_pos of the anchor


def page() -> str:
    """All sections, in three chapters."""
    importances = "\n".join(section(kind) for kind in concrete(Importance) if not kind.is_loss)
    of_papers = "\n".join(section(kind) for kind in concrete(Importance) if kind.is_loss)
    families = "\n".join(section(kind) for kind in concrete(Family))
    chapters = {
        "Importances": importances,
        "Losses of other papers": f"{OF_PAPERS}\n{of_papers}",
        "(φ, ψ) losses": f"{FAMILIES}\n{families}",
    }
    return "\n".join(f"## {title}\n\n{text}" for title, text in chapters.items())


OF_PAPERS = """\
Each class is the importance of a loss: `PairLoss(DCL())` has the value and the gradient of the loss, on the scale of
its paper, and a configuration names it in the place of an importance, `--model.importance DCL`. With similarities
s = 1 − d2, the cosines of unit embeddings, s₊ of the positive and s_j of the K negatives, P = e^{s₊/τ} and
S = Σ_j e^{s_j/τ}. Where the weight a_i of d2_pos_i is not Σ_j α_ij, the section says so. α < 0 attracts a negative. The
figures are drawn for a batch of one anchor with d2_pos = 0.1.

Some of them are equal, or differ by a factor:

| loss | is |
|---|---|
| τ · `DCL(τ)` | `InfoNCE(τ, ε=0)`; the gradient is that of `Entropy(τ)` |
| `MACL` | the gradient of `DCL` at its temperature |
| τ · `Debiased(τ, τ⁺=0)` | `InfoNCE(τ)`, which is τ · NT-Xent |
| `HardNegative(β=0)` | `Debiased` |
| τ · `HardContrastive(τ, fraction=1)` | `InfoNCE(τ)` |
| τ · `AdaptiveNegative(τ, σ → ∞)` | `InfoNCE(τ)` |
| τ · `MarginInfoNCE(τ, m)` | `SoftTriplet(τ, m/τ)` |
| `RINCE(τ, λ=1, q → 0)` | the gradient of NT-Xent |
| `FMICL("js", ρ, h, w=K)` | the gradient of `Sigmoid(τ=ρ², b=log h − 1/ρ²)` |

`learn_tau=True` trains the temperature with the network, from the given value, and `Sigmoid` also trains its bias. The
parameters belong to `PairLoss` and are stored in its state; `PairLoss.learned_values()` and the run's metrics
`alpha/tau` and `alpha/bias` have their values.
"""


FAMILIES = """\
With x_ij = d2_pos_i − d2_neg_ij and ξ_i = Σ_j ψ(x_ij), `FamilyLoss(family)` is the loss L = mean_i φ(ξ_i) itself, and
`FromFamily(family)` its importance α_ij = φ'(ξ_i) ψ'(x_ij). Both have the same gradient (Theorem 1). Each section has
φ, ψ and the α that follows from them; the figure is drawn for d2_pos = 0.1. A configuration names the loss below
with its name, `--model.importance MINE`; `SimCLR` is InfoNCE.
"""


def section(kind: type) -> str:
    """α, equation, source, configuration, arguments and figure of one class."""
    name = kind.__name__
    source = vars(kind).get("source")
    if not source:
        raise ValueError(f"{name} declares no source: say which paper it comes from")
    for words, page in LINKS.items():
        source = source.replace(words, f"[{words}]({page})")
    lines = [f"### {name}", "", markdown(about(kind)), "", f"- Source: {source}"]
    lines.append(f"- Configuration: {configuration(name)}")
    lines.append(f"- Class: {{py:obj}}`lightning_ssl.{name}`")
    lines += [f"- `{each.name}`: {each.description}" for each in arguments_of(kind).values() if each.description]
    return "\n".join([*lines, "", f"![Weights of {name}](_generated/weights_{name}.svg)", ""])


def configuration(name: str) -> str:
    """The packaged file that uses a class, and whether its header has published figures."""
    if name in WITHOUT_FILE:
        return WITHOUT_FILE[name]
    config = catalog.config_of(name)
    text = (packaged.PACKAGE / "configs" / f"{config}.yaml").read_text(encoding="utf-8")
    return f"`configs/{config}.yaml`" + (", with the published figures" if "# Published" in text else "")


def markdown(text: str) -> str:
    """A docstring as Markdown: an indented block is a block of text."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith(" "):
            blocks.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(re.sub(r"(?<!`)([*<])", r"\\\1", block))
    return "\n\n".join(blocks)


# ---------------------------------------------------------------------------------------------------------------------
# Figures


def figures_of(base: type) -> dict[str, Callable[[], Figure]]:
    return {f"weights_{kind.__name__}": partial(draw, kind) for kind in concrete(base)}


def all_figures() -> dict[str, Callable[[], Figure]]:
    """A function for each figure, by the name of its file."""
    return {**figures_of(Importance), **figures_of(Family)}


def example(kind: type) -> Importance:
    """An importance with default arguments; that of a (φ, ψ) loss comes from Theorem 1."""
    made = EXAMPLES[kind.__name__] if kind.__name__ in EXAMPLES else kind()
    return FromFamily(made) if isinstance(made, Family) else made


def variants(kind: type) -> dict[str, Importance]:
    """The default, and the same with a quarter and four times of its first argument that is a number."""
    first = example(kind)
    owner = first.family if issubclass(kind, Family) else first
    number = next((name for name, each in arguments_of(kind).items() if isinstance(each.default, float)), None)
    if number is None:
        return {kind.__name__: first}
    value = getattr(owner, number)
    found = {}
    for factor in (0.25, 1, 4):
        changed = replace(owner, **{number: factor * value})
        found[f"{number} = {factor * value:g}"] = FromFamily(changed) if issubclass(kind, Family) else changed
    return found


def draw(kind: type) -> Figure:
    """α of one anchor over the distance of its negatives, divided by the mean of |α| in the row."""
    d2_neg = torch.linspace(0.02, 1.9, NEGATIVES)[None]  # (1, K)
    figure, ax = figures.axes(4.6, 2.4)
    for k, (label, importance) in enumerate(variants(kind).items()):
        alpha = importance(torch.tensor([POSITIVE]), d2_neg)[0]
        relative = alpha / alpha.abs().mean().clamp(min=torch.finfo(alpha.dtype).tiny)
        ax.plot(d2_neg[0], relative, figures.LINES[k], color=figures.COLOURS[k], label=label)
    ax.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    low, high = ax.get_ylim()
    low = low if any(min(line.get_ydata()) < 0 for line in ax.get_lines()) else 0
    ax.set(xlabel="d2 of the negative", ylabel="α / mean |α|", xlim=(0, 1.9), ylim=(low, max(2, high)))
    ax.legend(frameon=False)
    return figure
