"""The energy E_α, the losses that maximize it, and their kernel.

    E_α = ½ tr C_α[z, z] = Σ_i Σ_j α_ij (d2_neg_ij − d2_pos_i),       training minimizes −E_{sg(α)} / M

With a fixed α the energy is quadratic in z, so its gradient has a closed form (Theorem 1). With W = α + αᵀ,

    ∂/∂z_k Σ_ij α_ij d2_neg_ij = (Σ_j W_kj) z_k − Σ_j W_kj z_j

so the forward pass computes it too, from blocks of α, without an autograd graph. There are two kernels:

  `row_kernel`   blocks of whole rows, for every importance and device. Each rank computes the rows of its own anchors;
                 on an accelerator a block is as large as memory allows (device.py)
  `tile_kernel`  tiles of the symmetric distance matrix that fit in the cache of a CPU, for `Streaming` importances
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from lightning_ssl.base.checks import UserError, require, require_finite
from lightning_ssl.losses.device import Workspace, block_rows, exact_products, is_accelerator
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import FromFamily, Importance, Streaming, refuse_second_derivative
from lightning_ssl.losses.interface import call_checked, require_importance
from lightning_ssl.losses.pairs import Anchors, Pairs, StripNegatives, Tile
from lightning_ssl.losses.rows import Negatives, Rows

__all__ = ["FamilyLoss", "PairLoss", "contrastive_covariance", "energy"]

PairWeights = Importance | Callable[[Tensor, Tensor, Tensor | None], Tensor]
BetaTimes = Literal["row_sum", "one"]


def energy(alpha: Tensor, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """E_α = Σ_i Σ_j α_ij (d2_neg_ij − d2_pos_i): dense (M, K), (M,), (M, K) → scalar.

    >>> energy(torch.ones(1, 2), torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor(0.9000)
    """
    return (alpha * (d2_neg - d2_pos[..., None])).sum()


def contrastive_covariance(a1: Tensor, b1: Tensor, alpha: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    """C_α[a, b] = Σ_i Σ_{j≠i} α_ij (a_i−a_j)(b_i−b_j)ᵀ − Σ_i (Σ_{j≠i} α_ij)(a_i−a_i')(b_i−b_i')ᵀ.

    a1, b1  a_i and b_i of the anchors: (…, N, D)
    a2, b2  a_i' and b_i' of their positives
    alpha   (…, N, N); its diagonal is ignored

    >>> z1, z2 = torch.eye(3), torch.zeros(3, 3)
    >>> contrastive_covariance(z1, z1, torch.ones(3, 3), z2, z2).diagonal()
    tensor([2., 2., 2.])
    """
    alpha = alpha - torch.diag_embed(alpha.diagonal(dim1=-2, dim2=-1))
    row_sum = alpha.sum(-1)  # (…, N)
    pull = (row_sum + alpha.sum(-2))[..., None] * b1 - (alpha + alpha.mT) @ b1
    return a1.mT @ pull - (a1 - a2).mT @ (row_sum[..., None] * (b1 - b2))


class PairLoss(nn.Module):
    """The loss −E_{sg(α)} / M of two views, with α from an importance.

        L = 1/M Σ_i [ a_i d2_pos_i − Σ_j α_ij d2_neg_ij ],   a_i = (1+β) Σ_j α_ij   or   a_i = Σ_j α_ij + β

    `loss(z1, z2, clean=None)` takes embeddings (N, D) and returns a scalar. The embeddings are not normalized here:
    normalize them first if d2 should be 1 − cosine. Half-precision input is computed in float32. Under DDP every rank
    passes its local views and gets the exact value of the global batch. Gradients are scaled so that the average of DDP
    is the gradient of this value.

    importance      an `Importance`, any callable (d2_pos, d2_neg, valid) → α, or a (φ, ψ) loss, which stands for its
                    `FromFamily`
    anchors         "both": 2N anchors, each with one positive and 2N−2 negatives; "one": N anchors z1[i] against z1[j]
    beta            extra weight β of the positive term
    beta_times      "row_sum": β is a share of each row's own weight, a_i = (1+β) Σ_j α_ij; "one": a constant,
                    a_i = Σ_j α_ij + β, so that ∂L/∂r₊ + Σ ∂L/∂r₋ = β for every anchor (dual networks, Section 4.2)
    backprop_alpha  let the gradient into α
    tile            largest height of a block; the extra memory is O(M·(D + tile)). None chooses by device
    check_finite    refuse NaN and infinite embeddings on a CPU. On an accelerator, where the check would wait for the
                    device, they give a NaN loss

    Errors of a user's own importance name it by the attribute `key`; the command line sets it to "model.importance".

    >>> from lightning_ssl.losses.importance import Direct
    >>> z1, z2 = torch.nn.functional.normalize(torch.randn(2, 8, 4), dim=2)
    >>> PairLoss(Direct(p=4))(z1, z2).shape
    torch.Size([])
    """

    key = "importance"

    def __init__(
        self,
        importance: PairWeights | Family,
        anchors: Anchors = "both",
        beta: float = 0.0,
        backprop_alpha: bool = False,
        tile: int | None = None,
        check_finite: bool = True,
        beta_times: BetaTimes = "row_sum",
    ) -> None:
        super().__init__()
        if isinstance(importance, Family):
            importance = FromFamily(importance)
        require_importance(importance)
        require(anchors in ("both", "one"), "anchors", anchors, "'both' or 'one'")
        require_finite("beta", beta)
        require(beta_times in get_args(BetaTimes), "beta_times", beta_times, "'row_sum' or 'one'")
        whole = isinstance(tile, int) and not isinstance(tile, bool)
        require(tile is None or (whole and tile >= 1), "tile", tile, "None or a whole number above 0")
        self.importance = importance
        self.anchors: Anchors = anchors
        self.beta = beta
        self.beta_times: BetaTimes = beta_times
        self.backprop_alpha = backprop_alpha
        self.tile = tile
        self.check_finite = check_finite
        self.workspace = Workspace()
        if backprop_alpha:
            clean = getattr(importance, "uses_clean_view", False)
            require(not clean, "backprop_alpha", True, f"False: {importance!r} weighs samples that get no gradient")
            probe = torch.ones(1, 2)
            vjp_of(importance)(probe, probe, probe)  # an importance without a vjp raises here and not in training

    def forward(self, z1: Tensor, z2: Tensor, clean: Tensor | None = None) -> Tensor:
        if getattr(self.importance, "uses_clean_view", False) != (clean is not None):
            given = "None" if clean is None else "a tensor"
            needs = "the un-augmented embeddings" if clean is None else "None"
            raise UserError(f"clean={given}: {self.importance} needs {needs}")
        return FusedPairs.apply(z1, z2, None if clean is None else clean.detach(), self)

    @property
    def scale(self) -> float:
        """a_i / `attraction(row_sum)`."""
        return 1 + self.beta if self.beta_times == "row_sum" else 1.0

    def attraction(self, row_sum: Tensor) -> Tensor:
        """a_i / `scale`, from Σ_j α_ij of some anchors."""
        return row_sum + self.beta if self.beta_times == "one" and self.beta else row_sum

    def value(self, d2_pos: Tensor, attraction: Tensor, repulsion: Tensor, phi: Tensor | None) -> Tensor:
        """The sum of the loss over some anchors, from their d2_pos, a_i / scale, Σ_ij α_ij d2_neg_ij and φ(ξ_i)."""
        return self.scale * attraction.dot(d2_pos) - repulsion

    def extra_repr(self) -> str:
        return (
            f"{self.importance}, anchors={self.anchors!r}, beta={self.beta}, beta_times={self.beta_times!r}, "
            f"backprop_alpha={self.backprop_alpha}, tile={self.tile}"
        )


class FamilyLoss(PairLoss):
    """The value and the gradient of a (φ, ψ) loss, by the kernel of its importance.

        L = mean_i φ(Σ_j ψ(d2_pos_i − d2_neg_ij))

    family  the (φ, ψ) loss; the other arguments are those of `PairLoss`

    >>> from lightning_ssl.losses.families import InfoNCE
    >>> z1, z2 = torch.nn.functional.normalize(torch.randn(2, 8, 4), dim=2)
    >>> FamilyLoss(InfoNCE(tau=0.1))(z1, z2).shape
    torch.Size([])
    """

    def __init__(
        self, family: Family, anchors: Anchors = "both", tile: int | None = None, check_finite: bool = True
    ) -> None:
        super().__init__(FromFamily(family), anchors=anchors, tile=tile, check_finite=check_finite)
        self.family = family

    def value(self, d2_pos: Tensor, attraction: Tensor, repulsion: Tensor, phi: Tensor | None) -> Tensor:
        assert phi is not None
        return torch.add(phi.sum(), repulsion, alpha=0)  # NaN if the repulsion is not finite

    def extra_repr(self) -> str:
        return f"{self.family}, anchors={self.anchors!r}, tile={self.tile}"


# ---------------------------------------------------------------------------------------------------------------------
# The kernel


class FusedPairs(torch.autograd.Function):
    """The loss as an autograd function. The forward pass computes the gradient too; the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, clean: Tensor | None, loss: PairLoss) -> Tensor:
        with exact_products(z1.device.type):
            pairs = Pairs(z1, z2, clean, loss.anchors, loss.check_finite)
            sums = compute_sums(pairs, loss)
        forces, value = pairs.own_sums(sums.force, sums.value)
        if any(ctx.needs_input_grad[:2]):
            ctx.save_for_backward(*gradients(pairs, forces, sums.attraction, loss.scale))
            ctx.dtype = z1.dtype
            ctx.scale = pairs.ranks / len(pairs)  # DDP divides by the number of ranks
        return value / len(pairs)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        refuse_second_derivative("PairLoss and FamilyLoss")
        scale = upstream * ctx.scale
        g1, g2 = ((g * scale).to(ctx.dtype) for g in ctx.saved_tensors)
        return g1, g2, None, None


class KernelSums(NamedTuple):
    """What this rank contributes to the loss and its gradient, times M.

    If the force is not finite, the value is not, and then the loss of every rank is not: the loss alone tells whether a
    step is finite.
    """

    force: Tensor  # (M, D): W z − (W 1) z, the gradient of −Σ_ij α_ij d2_neg_ij
    attraction: Tensor  # (M,): a_i / scale of its own anchors
    value: Tensor  # (): the sum of the loss over its own anchors


def gradients(pairs: Pairs, forces: list[Tensor], attraction: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """M times the gradient of the loss in this rank's two views: (B, D) each."""
    (difference,) = pairs.own(pairs.difference)
    weight, *of_z2 = pairs.own(attraction)
    if of_z2:
        weight = weight + of_z2[0]
    pull = weight[:, None] * difference  # in z1; the negative in z2
    g1, *g2 = forces
    in_z2 = torch.sub(g2[0], pull, alpha=scale) if g2 else pull * -scale
    return torch.add(g1, pull, alpha=scale), in_z2


def compute_sums(pairs: Pairs, loss: PairLoss) -> KernelSums:
    """Run the fastest kernel that the importance and the device allow."""
    importance = loss.importance
    fits = pairs.ranks == 1 and not is_accelerator(pairs.points)
    if fits and not loss.backprop_alpha and isinstance(importance, Importance) and importance.streams:
        sums = tile_kernel(pairs, loss)
        if sums is not None:
            return sums
    return row_kernel(pairs, loss)


def row_kernel(pairs: Pairs, loss: PairLoss) -> KernelSums:
    """The kernel of any importance: whole rows of α of this rank's anchors, in blocks."""
    left, right = pairs.distances.factors  # (M, D+2): d2_ij = ⟨left_i, right_j⟩
    sums = torch.zeros_like(right)  # W (z, 1, ½‖z‖²)
    attraction = torch.zeros_like(pairs.d2_pos)
    value = attraction.new_zeros(())
    reuses = isinstance(loss.importance, Importance)  # a function of the user's may keep its argument
    streams = reuses and loss.importance.streams  # type: ignore[attr-defined]
    height = max(block_rows(pairs.points, len(pairs)), STREAMING_ROWS if streams else 1)
    for rows in pairs.strips(loss.tile or height):
        negatives = StripNegatives(pairs, rows)
        out = loss.workspace.block("rows", pairs.points, rows.stop - rows.start, len(pairs)) if reuses else None
        d2 = pairs.weight_distances.strip(rows, out=out).clamp_(min=0)  # (m, M)
        d2_pos = pairs.d2_pos[rows]
        found = compute_rows(loss, d2_pos, d2.clone() if loss.backprop_alpha else d2, negatives)
        alpha = found.alpha
        attraction[rows] = own = loss.attraction(found.row_sum)
        if loss.backprop_alpha:
            # The loss is −Σ_j α_ij e_ij with e_ij = d2_neg_ij − scale d2_pos_i, and a constant β adds β d2_pos_i.
            e = negatives.exclude_(d2 - loss.scale * d2_pos[:, None], 0.0)
            value -= (alpha * e).sum()
            if loss.beta_times == "one" and loss.beta:
                value += loss.beta * d2_pos.sum()
            alpha = alpha + vjp_of(loss.importance)(d2, alpha, e)
        pulled = alpha @ right
        sums[rows].add_(pulled)
        sums.addmm_(alpha.T, right[rows])
        if not loss.backprop_alpha:
            repulsion = left[rows].flatten().dot(pulled.flatten())  # Σ_ij α_ij d2_ij
            value += loss.value(d2_pos, own, repulsion, found.value)
    width = pairs.points.shape[1]
    pushed = force(sums[:, :width], sums[:, width : width + 1], pairs)
    return KernelSums(pushed, attraction, torch.add(value, pushed.sum(), alpha=0))


def force(pull: Tensor, degree: Tensor, pairs: Pairs) -> Tensor:
    """W z − (W 1) z from W z, (M, D), and W 1, (M, 1)."""
    return torch.addcmul(pull, degree, pairs.points, value=-1)


def compute_rows(loss: PairLoss, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
    """Whole rows of α of an importance or of any callable. It may overwrite d2_neg."""
    if isinstance(loss.importance, Importance):
        return loss.importance.rows(d2_pos, d2_neg, negatives)
    valid = negatives.mask()
    assert valid is not None
    alpha = call_checked(loss.importance, loss.key, d2_pos, d2_neg, valid).to(d2_pos.dtype).masked_fill(~valid, 0.0)
    return Rows(alpha, alpha.sum(1))


def tile_kernel(pairs: Pairs, loss: PairLoss) -> KernelSums | None:
    """The kernel of `Streaming` importances: α_ij = k_ij s_i with a symmetric k, so ij and ji share one exponential.

    It makes two passes over the tiles: the first sums the rows of k, the second adds up the forces. Returns None if a
    sum of k overflows or underflows.
    """
    importance = cast(Streaming, loss.importance)
    side = loss.tile or min(TILE_SIDE, len(pairs))
    tiles = list(pairs.tiles(side))
    share = sum(tile.numel for tile in tiles)
    keep = loss.tile is None and share * pairs.points.element_size() <= MAX_KEPT_BYTES
    memory = loss.workspace.take("kernel", pairs.points, share if keep else side * side)
    outer = loss.workspace.take("outer", pairs.points, side * side)

    def kernel(tile: Tile, start: int) -> Tensor:
        d2 = pairs.weight_distances.tile(tile, memory[start : start + tile.numel]).clamp_(min=0)
        return pairs.exclude_(importance.log_kernel(d2).exp_(), tile, 0.0)

    total = pairs.points.new_zeros(len(pairs))
    first: list[Tensor] = []
    start = 0
    for tile in tiles:
        k = kernel(tile, start)
        total[tile.rows].add_(k.sum(1))
        if tile.mirrored:
            total[tile.columns].add_(k.sum(0))
        if keep:
            first.append(k)
            start += tile.numel
    smallest, largest = total.aminmax()
    if not SMALLEST_SUM < smallest.item() <= largest.item() < 1 / SMALLEST_SUM:
        return None
    log_sum = torch.xlogy(1, total)  # `log` would wake the threads of MKL for a few numbers
    row_sum = importance.row_sum(log_sum, pairs.d2_pos)
    scale = row_sum / total
    z = pairs.points
    pull, degree = torch.zeros_like(z), torch.zeros_like(total)
    for at, tile in enumerate(tiles):
        k = first[at] if keep else kernel(tile, 0)
        both = torch.add(scale[tile.rows, None], scale[tile.columns], out=outer[: k.numel()].view(k.shape))
        w = k.mul_(both)
        pull[tile.rows].addmm_(w, z[tile.columns])
        degree[tile.rows].add_(w.sum(1))
        if tile.mirrored:
            pull[tile.columns].addmm_(w.T, z[tile.rows])
            degree[tile.columns].add_(w.sum(0))
    pushed = force(pull, degree[:, None], pairs)
    repulsion = (z * pushed).sum().mul_(-0.5)  # Σ_ij α_ij d2_ij is quadratic in z (Euler's theorem)
    attraction = loss.attraction(row_sum)
    value = loss.value(pairs.d2_pos, attraction, repulsion, importance.value(log_sum, pairs.d2_pos))
    return KernelSums(pushed, attraction, value)


def vjp_of(importance: PairWeights) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the `vjp` of an importance, or refuse `backprop_alpha`."""
    vjp = getattr(importance, "vjp", None)
    require(vjp is not None, "backprop_alpha", True, f"False: {importance!r} has no `vjp`")
    return vjp  # type: ignore[return-value]


STREAMING_ROWS = 256  # fewer rows make products slow; a solver, which reads its block many times, takes fewer
TILE_SIDE = 768  # about the cache of two cores; with smaller tiles the threads wait for each other more often
MAX_KEPT_BYTES = 2**28  # if they fit, the tiles of the first pass are kept for the second; they do at N = 4096
SMALLEST_SUM = 1e-26  # float32 still holds weights e^{−27} times smaller
