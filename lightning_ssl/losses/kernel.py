"""The kernels of `PairLoss`: the value of the loss and its gradient, in blocks of α.

With fixed α and a the loss is quadratic in z, so its gradient has a closed form (Theorem 1). With W = α + αᵀ,

    ∂/∂z_k Σ_ij α_ij d2_neg_ij = (Σ_j W_kj) z_k − Σ_j W_kj z_j

so the forward pass computes it too, without an autograd graph. There are two kernels:

  `row_kernel`   blocks of whole rows, for every importance and device. Each rank computes the rows of its own anchors;
                 on an accelerator a block is as large as memory allows (device.py)
  `tile_kernel`  tiles of the symmetric distance matrix that fit in the cache of a CPU, for mixtures of softmaxes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.base.distributed import gather_equal_rows
from lightning_ssl.losses.device import block_rows, exact_products, is_accelerator
from lightning_ssl.losses.importance import Mixture
from lightning_ssl.losses.interface import Importance, Sums, call_checked, refuse_second_derivative
from lightning_ssl.losses.pairs import Pairs, StripNegatives, Tile
from lightning_ssl.losses.rows import Negatives, Row, Rows, Weights

if TYPE_CHECKING:
    from lightning_ssl.losses.energy import PairLoss, PairWeights


class FusedPairs(torch.autograd.Function):
    """The loss as an autograd function. The forward pass computes the gradient too; the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, clean: Tensor | None, loss: PairLoss, *learned: Tensor) -> Tensor:
        with exact_products(z1.device.type):
            pairs = Pairs(z1, z2, clean, loss.anchors, loss.check_finite)
            sums = compute_sums(pairs, loss)
        forces, value = pairs.own_sums(sums.force, sums.value)
        if any(ctx.needs_input_grad):
            of_learned = [found.to(x.dtype) for found, x in zip(sums.learned, learned, strict=True)]
            ctx.save_for_backward(*gradients(pairs, forces, sums.attraction, sums.factor), *of_learned)
            ctx.dtype = z1.dtype
            ctx.scale = pairs.ranks / len(pairs)  # DDP divides by the number of ranks
        return value / len(pairs)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("PairLoss and FamilyLoss")
        scale = upstream * ctx.scale
        g1, g2, *of_learned = ctx.saved_tensors
        of_views = ((g * scale).to(ctx.dtype) for g in (g1, g2))
        return *of_views, None, None, *(g * scale for g in of_learned)


class KernelSums(NamedTuple):
    """What this rank contributes to the loss and its gradient, times M.

    If the force is not finite, the value is not, and then the loss of every rank is not: the loss alone tells whether a
    step is finite.
    """

    force: Tensor  # (M, D): W z − (W 1) z, the gradient of −Σ_ij α_ij d2_neg_ij
    attraction: Tensor  # (M,): a_i / factor of its own anchors
    factor: float
    value: Tensor  # (): the sum of the loss over its own anchors
    learned: list[Tensor]  # (): the sum of the derivative by each learned parameter over its own anchors


def gradients(pairs: Pairs, forces: list[Tensor], attraction: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """M times the gradient of the loss in this rank's two views: (B, D) each."""
    (difference,) = pairs.own(pairs.difference)
    weight, *of_z2 = pairs.own(attraction)
    if of_z2:
        weight = weight + of_z2[0]
    pull = weight[:, None] * difference  # in z1; the negative in z2
    g1, *g2 = forces
    in_z2 = torch.sub(g2[0], pull, alpha=factor) if g2 else pull * -factor
    return torch.add(g1, pull, alpha=factor), in_z2


def compute_sums(pairs: Pairs, loss: PairLoss) -> KernelSums:
    """Run the fastest kernel that the importance and the device allow."""
    rule = loss.rule(pairs.d2_pos)
    fits = pairs.ranks == 1 and not is_accelerator(pairs.points)
    if fits and not loss.backprop_alpha and isinstance(rule, Mixture) and rule.streams:
        sums = tile_kernel(pairs, loss, rule)
        if sums is not None:
            return sums
    return row_kernel(pairs, loss, rule)


def row_kernel(pairs: Pairs, loss: PairLoss, rule: PairWeights) -> KernelSums:
    """The kernel of any importance: whole rows of α of this rank's anchors, in blocks."""
    left, right = pairs.distances.factors  # (M, D+2): d2_ij = ⟨left_i, right_j⟩
    sums = torch.zeros_like(right)  # W (z, 1, ½‖z‖²)
    attraction = torch.zeros_like(pairs.d2_pos)
    value = attraction.new_zeros(())
    of_learned: list[Tensor] = []
    reuses = isinstance(rule, Importance)  # a function of the user's may keep its argument
    streams = isinstance(rule, Mixture) and rule.streams
    height = max(block_rows(pairs.points, len(pairs)), STREAMING_ROWS if streams else 1)
    strips = list(pairs.strips(loss.tile or height))

    def distances(rows: slice) -> Tensor:
        out = loss.workspace.block("rows", pairs.points, rows.stop - rows.start, len(pairs)) if reuses else None
        return pairs.weight_distances.strip(rows, out=out).clamp_(min=0)  # (m, M)

    if isinstance(rule, Mixture) and rule.needs_batch and (len(strips) > 1 or pairs.ranks > 1):
        rule = rule.for_rows(rows_of_batch(pairs, rule, strips, distances))
    for rows in strips:
        negatives = StripNegatives(pairs, rows)
        d2, d2_pos = distances(rows), pairs.d2_pos[rows]
        found = compute_rows(loss, rule, d2_pos, d2.clone() if loss.backprop_alpha else d2, negatives)
        alpha = found.alpha
        own, factor = loss.attraction(found)
        attraction[rows] = own
        if loss.backprop_alpha:
            # The loss is −Σ_j α_ij e_ij with e_ij = d2_neg_ij − factor d2_pos_i, and a constant β adds β d2_pos_i.
            e = negatives.exclude_(d2 - factor * d2_pos[:, None], 0.0)
            value -= (alpha * e).sum()
            if loss.beta_times == "one" and loss.beta:
                value += loss.beta * d2_pos.sum()
            alpha = alpha + vjp_of(rule)(d2, alpha, e)
        pulled = alpha @ right
        sums[rows].add_(pulled)
        sums.addmm_(alpha.T, right[rows])
        if not loss.backprop_alpha:
            repulsion = left[rows].flatten().dot(pulled.flatten())  # Σ_ij α_ij d2_ij
            value += loss.value(d2_pos, found, own, factor, repulsion)
            if loss.learns:
                of_learned.append(sums_for_learned(found, d2_pos, repulsion))
    width = pairs.points.shape[1]
    pushed = force(sums[:, :width], sums[:, width : width + 1], pairs)
    value = torch.add(value, pushed.sum(), alpha=0)
    return KernelSums(pushed, attraction, factor, value, learned_gradients(loss, rule, of_learned))


def force(pull: Tensor, degree: Tensor, pairs: Pairs) -> Tensor:
    """W z − (W 1) z from W z, (M, D), and W 1, (M, 1)."""
    return torch.addcmul(pull, degree, pairs.points, value=-1)


def sums_for_learned(found: Rows | Weights, d2_pos: Tensor, repulsion: Tensor) -> Tensor:
    """`Sums` of some anchors, as one tensor: (3,). A β adds a term of its own, which the parameters do not change."""
    own = found.row_sum if found.attraction is None else found.attraction
    return torch.stack([own.dot(d2_pos) - repulsion, own.sum(), found.row_sum.sum()])


def learned_gradients(loss: PairLoss, rule: PairWeights, sums: list[Tensor]) -> list[Tensor]:
    """The derivatives by the learned parameters, from the sums of all blocks."""
    if not sums:
        return []
    assert isinstance(rule, Importance)
    found = rule.learned_gradients(Sums(*torch.stack(sums).sum(0)))
    return [found[name] for name in loss.learned]


def rows_of_batch(pairs: Pairs, rule: Mixture, strips: list[slice], distances: Callable[[slice], Tensor]) -> Row:
    """The log-sums, d2_pos and numbers of negatives of the anchors of all ranks: a pass of its own."""
    found = []
    for rows in strips:
        negatives = StripNegatives(pairs, rows)
        logits = [negatives.exclude_(x, -torch.inf) for x in rule.log_kernels(distances(rows))]
        log_sums = [x.logsumexp(1) for x in logits]
        found.append(torch.stack([*log_sums, pairs.d2_pos[rows], count_negatives(pairs, rows)], 1))
    *sums, d2_pos, count = gather_equal_rows(torch.cat(found)).unbind(1)
    return Row(tuple(sums), d2_pos, lambda: count)


def count_negatives(pairs: Pairs, rows: slice) -> Tensor:
    """The number of negatives of some anchors: (m,)."""
    return StripNegatives(pairs, rows).count(pairs.d2_pos[rows]).squeeze(1)


def compute_rows(loss: PairLoss, rule: PairWeights, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
    """Whole rows of α of an importance or of any callable. It may overwrite d2_neg."""
    if isinstance(rule, Importance):
        return rule.rows(d2_pos, d2_neg, negatives)
    valid = negatives.mask()
    assert valid is not None
    alpha = call_checked(rule, loss.key, d2_pos, d2_neg, valid).to(d2_pos.dtype).masked_fill(~valid, 0.0)
    return Rows(alpha, alpha.sum(1))


def tile_kernel(pairs: Pairs, loss: PairLoss, rule: Mixture) -> KernelSums | None:
    """The kernel of mixtures: α_ij = Σ_c k_cij s_ci with symmetric k_c, so ij and ji share the exponentials.

    It makes two passes over the tiles: the first sums the rows of the k_c, the second adds up the forces. Returns None
    if a sum of a k_c overflows or underflows.
    """
    side = loss.tile or min(TILE_SIDE, len(pairs))
    tiles = list(pairs.tiles(side))
    share = sum(tile.numel for tile in tiles)
    keep = loss.tile is None and share * pairs.points.element_size() <= MAX_KEPT_BYTES
    memory = loss.workspace.take("kernel", pairs.points, share if keep else side * side)
    outer = loss.workspace.take("outer", pairs.points, side * side)

    def kernels(tile: Tile, start: int, needed: int | None = None) -> list[Tensor]:
        d2 = pairs.weight_distances.tile(tile, memory[start : start + tile.numel]).clamp_(min=0)
        return [pairs.exclude_(x.exp_(), tile, 0.0) for x in rule.log_kernels(d2)[:needed]]

    totals: list[Tensor] = []
    first: list[list[Tensor]] = []
    start = 0
    for tile in tiles:
        found = kernels(tile, start)
        totals = totals or [pairs.points.new_zeros(len(pairs)) for _ in found]
        for k, total in zip(found, totals, strict=True):
            total[tile.rows].add_(k.sum(1))
            if tile.mirrored:
                total[tile.columns].add_(k.sum(0))
        if keep:
            first.append(found)
            start += tile.numel
    for total in totals:
        smallest, largest = total.aminmax()
        if not SMALLEST_SUM < smallest.item() <= largest.item() < 1 / SMALLEST_SUM:
            return None
    log_sums = tuple(torch.xlogy(1, x) for x in totals)  # `log` would wake the threads of MKL for a few numbers
    weights = rule.weigh(Row(log_sums, pairs.d2_pos, lambda: count_negatives(pairs, slice(0, len(pairs)))))
    scales = [mass / total for mass, total in zip(weights.masses, totals, strict=False)]
    z = pairs.points
    pull, degree = torch.zeros_like(z), torch.zeros_like(pairs.d2_pos)
    for at, tile in enumerate(tiles):
        w, *others = first[at] if keep else kernels(tile, 0, len(scales))
        both = outer[: w.numel()].view(w.shape)
        w.mul_(torch.add(scales[0][tile.rows, None], scales[0][tile.columns], out=both))
        for k, scale in zip(others, scales[1:], strict=False):
            w.addcmul_(k, torch.add(scale[tile.rows, None], scale[tile.columns], out=both))
        pull[tile.rows].addmm_(w, z[tile.columns])
        degree[tile.rows].add_(w.sum(1))
        if tile.mirrored:
            pull[tile.columns].addmm_(w.T, z[tile.rows])
            degree[tile.columns].add_(w.sum(0))
    pushed = force(pull, degree[:, None], pairs)
    repulsion = (z * pushed).sum().mul_(-0.5)  # Σ_ij α_ij d2_ij is quadratic in z (Euler's theorem)
    of_learned = [sums_for_learned(weights, pairs.d2_pos, repulsion)] if loss.learns else []
    attraction, factor = loss.attraction(weights)
    value = loss.value(pairs.d2_pos, weights, attraction, factor, repulsion)
    return KernelSums(pushed, attraction, factor, value, learned_gradients(loss, rule, of_learned))


def vjp_of(importance: PairWeights) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the `vjp` of an importance, or refuse `backprop_alpha`."""
    vjp = getattr(importance, "vjp", None)
    require(vjp is not None, "backprop_alpha", True, f"False: {importance!r} has no `vjp`")
    return vjp  # type: ignore[return-value]


STREAMING_ROWS = 256  # fewer rows make products slow; a solver, which reads its block many times, takes fewer
TILE_SIDE = 768  # about the cache of two cores; with smaller tiles the threads wait for each other more often
MAX_KEPT_BYTES = 2**28  # for each component: if they fit, the tiles of the first pass are kept; they do at N = 4096
SMALLEST_SUM = 1e-26  # float32 still holds weights e^{−27} times smaller
