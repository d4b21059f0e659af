"""The energy E_α, the losses that maximize it, and their kernel.

    E_α = ½ tr C_α[z, z] = Σ_i Σ_j α_ij (d2_neg_ij − d2_pos_i),       training minimizes −E_{sg(α)} / M

With a fixed α the energy is quadratic in z, so its gradient has a closed form (Theorem 1). With W = α + αᵀ,

    ∂/∂z_k Σ_ij α_ij d2_neg_ij = (Σ_j W_kj) z_k − Σ_j W_kj z_j

A tile of W needs only the distances of that tile and the parameters of its rows and columns. The kernel makes two
passes over the tiles of the symmetric distance matrix: the first computes the parameters of the rows, the second the
weights. It never stores an M×M tensor or an autograd graph of one. The tiles are divided equally among the ranks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lightning_ssl.checks import require, require_finite
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import FromFamily, Importance, Streaming, refuse_second_derivative
from lightning_ssl.losses.interface import call_checked, has_two_steps, require_importance
from lightning_ssl.losses.pairs import Anchors, Pairs, Tile

PairWeights = Importance | Callable[[Tensor, Tensor, Tensor | None], Tensor]


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

        L = 1/M Σ_i [ (1+β) (Σ_j α_ij) d2_pos_i − Σ_j α_ij d2_neg_ij ]

    `loss(z1, z2, clean=None)` takes embeddings (N, D) and returns a scalar. The embeddings are not normalized here:
    normalize them first if d2 should be 1 − cosine. Half-precision input is computed in float32. Under DDP every rank
    passes its local views and gets the exact value of the global batch. Gradients are scaled so that the average of DDP
    is the gradient of this value.

    importance      an `Importance`, or any callable (d2_pos, d2_neg, valid) → α
    anchors         "both": 2N anchors, each with one positive and 2N−2 negatives; "one": N anchors z1[i] against z1[j]
    beta            extra weight β of the positive term
    backprop_alpha  let the gradient into α
    tile            largest side of a tile; the extra memory is O(M·(D + tile)). None chooses
    check_finite    refuse NaN and infinite embeddings, by one more pass over them

    Errors of a user's own importance name it by the attribute `key`; the command line sets it to "model.importance".

    >>> from lightning_ssl.losses.importance import Direct
    >>> z1, z2 = torch.nn.functional.normalize(torch.randn(2, 8, 4), dim=2)
    >>> PairLoss(Direct(p=4))(z1, z2).shape
    torch.Size([])
    """

    key = "importance"

    def __init__(
        self,
        importance: PairWeights,
        anchors: Anchors = "both",
        beta: float = 0.0,
        backprop_alpha: bool = False,
        tile: int | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        require_importance(importance)
        require(anchors in ("both", "one"), "anchors", anchors, "'both' or 'one'")
        require_finite("beta", beta)
        whole = isinstance(tile, int) and not isinstance(tile, bool)
        require(tile is None or (whole and tile >= 1), "tile", tile, "None or a whole number above 0")
        self.importance = importance
        self.anchors: Anchors = anchors
        self.beta = beta
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
            raise ValueError(f"clean={given}: {self.importance} needs {needs}")
        return FusedPairs.apply(z1, z2, None if clean is None else clean.detach(), self)

    def value(self, pairs: Pairs, sums: KernelSums) -> Tensor:
        """The value of the loss from the sums of the kernel."""
        repulsion = sums.repulsion
        if repulsion is None:
            # ½ Σ_ij W_ij d2_ij, with d2_ij = ½‖z_i‖² + ½‖z_j‖² − ⟨z_i, z_j⟩
            half_norms = pairs.distances.half_norms.squeeze(1)
            repulsion = sums.degree.dot(half_norms) - 0.5 * pairs.points.flatten().dot(sums.pull.flatten())
        return ((1 + self.beta) * sums.row_sum.dot(pairs.d2_pos) - repulsion) / len(pairs)

    def extra_repr(self) -> str:
        return (
            f"{self.importance}, anchors={self.anchors!r}, beta={self.beta}, "
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

    def value(self, pairs: Pairs, sums: KernelSums) -> Tensor:
        assert sums.value is not None
        return sums.value.mean()

    def extra_repr(self) -> str:
        return f"{self.family}, anchors={self.anchors!r}, tile={self.tile}"


# ---------------------------------------------------------------------------------------------------------------------
# The kernel


class KernelSums(NamedTuple):
    """The sums over all tiles of all ranks."""

    pull: Tensor  # (M, D): W z
    degree: Tensor  # (M,): W 1
    row_sum: Tensor  # (M,): Σ_j α_ij
    value: Tensor | None = None  # (M,): φ(ξ_i), if there is a φ
    repulsion: Tensor | None = None  # Σ_ij α_ij d2_neg_ij, if W is not α + αᵀ


class FusedPairs(torch.autograd.Function):
    """The loss as an autograd function. The forward pass computes the gradient too; the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, clean: Tensor | None, loss: PairLoss) -> Tensor:
        autocast = torch.is_autocast_enabled(z1.device.type)
        # Autocast would compute the distances in half precision.
        with torch.autocast(z1.device.type, enabled=False) if autocast else contextlib.nullcontext():
            pairs = Pairs(z1, z2, clean, loss.anchors, loss.check_finite)
            sums = compute_sums(pairs, loss)
            if any(ctx.needs_input_grad[:2]):
                ctx.save_for_backward(*gradients(pairs, sums, loss.beta))
                ctx.dtype = z1.dtype
                ctx.scale = pairs.ranks / len(pairs)  # DDP divides by the number of ranks
            return loss.value(pairs, sums)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        refuse_second_derivative("PairLoss and FamilyLoss")
        scale = upstream * ctx.scale
        g1, g2 = ((g * scale).to(ctx.dtype) for g in ctx.saved_tensors)
        return g1, g2, None, None


def gradients(pairs: Pairs, sums: KernelSums, beta: float) -> tuple[Tensor, Tensor]:
    """M times the gradient of the loss in this rank's two views: (B, D) each."""
    (difference,) = pairs.own(pairs.difference)
    row_sum = torch.stack(pairs.own(sums.row_sum)).sum(0)  # over the anchors of a sample
    attraction = (row_sum * (1 + beta))[:, None] * difference  # in z1; the negative in z2
    repulsion = torch.addcmul(sums.pull, sums.degree[:, None], pairs.points, value=-1)
    g1, *g2 = pairs.own(repulsion)
    return g1.add_(attraction), g2[0].sub_(attraction) if g2 else attraction.neg_()


def compute_sums(pairs: Pairs, loss: PairLoss) -> KernelSums:
    """Run the fastest kernel that the importance allows."""
    importance = loss.importance
    if loss.backprop_alpha or not has_two_steps(importance):
        return strip_kernel(pairs, loss)
    assert isinstance(importance, Importance)
    if importance.streams:
        sums = streaming_kernel(pairs, loss)
        if sums is not None:
            return sums
    return fitted_kernel(pairs, importance, loss)


def streaming_kernel(pairs: Pairs, loss: PairLoss) -> KernelSums | None:
    """The kernel of `Streaming` importances: α_ij = k_ij s_i with a symmetric k, so ij and ji share one exponential.

    Returns None if a sum of k overflows or underflows.
    """
    importance = loss.importance
    assert isinstance(importance, Streaming)
    side = tile_side(pairs, loss.tile)
    share = sum(tile.numel for tile in pairs.tiles(side))
    keep = loss.tile is None and share * pairs.points.element_size() <= MAX_KEPT_BYTES
    memory = loss.workspace.take("kernel", pairs.points, share if keep else side * side)
    outer = loss.workspace.take("outer", pairs.points, side * side)

    def kernel(tile: Tile, start: int) -> Tensor:
        d2 = pairs.weight_distances.tile(*tile, out=memory[start : start + tile.numel].view(tile.shape)).clamp_(min=0)
        return pairs.exclude_(importance.log_kernel(d2).exp_(), tile, 0.0)

    total = pairs.points.new_zeros(len(pairs))
    first: list[Tensor] = []
    start = 0
    for tile in pairs.tiles(side):
        k = kernel(tile, start)
        total[tile.rows].add_(k.sum(1))
        if tile.mirrored:
            total[tile.columns].add_(k.sum(0))
        if keep:
            first.append(k)
            start += tile.numel
    pairs.sum_over_ranks(total)
    if not SMALLEST_SUM < total.min().item() <= total.max().item() < 1 / SMALLEST_SUM:
        return None
    log_sum = total.log()
    row_sum = importance.row_sum(log_sum, pairs.d2_pos)
    scale = row_sum / total
    sums = TileSums(pairs)
    for at, tile in enumerate(pairs.tiles(side)):
        k = first[at] if keep else kernel(tile, 0)
        both = torch.add(scale[tile.rows, None], scale[tile.columns], out=outer[: k.numel()].view(k.shape))
        sums.add(tile, k.mul_(both), tile.mirrored)
    return sums.over_ranks(row_sum, importance.value(log_sum, pairs.d2_pos))


def fitted_kernel(pairs: Pairs, importance: Importance, loss: PairLoss) -> KernelSums:
    """The kernel of any `Importance`: fit whole rows in strips, then weigh the tiles of W = α + αᵀ from both sides."""
    params = row_sum = value = None
    for rows in pairs.strips(strip_height(pairs, loss.tile)):
        d2 = pairs.weight_distances.tile(rows, slice(0, len(pairs))).clamp_(min=0)  # (m, M)
        fitted = importance.fit(pairs.d2_pos[rows], d2, pairs.valid(rows))
        if params is None or row_sum is None:
            params = fitted.params.new_zeros(len(fitted.params), len(pairs))
            row_sum = torch.zeros_like(params[0])
            value = None if fitted.value is None else torch.zeros_like(row_sum)
        params[:, rows], row_sum[rows] = fitted.params, fitted.row_sum
        if value is not None and fitted.value is not None:
            value[rows] = fitted.value
    assert params is not None
    assert row_sum is not None
    for x in (params, row_sum, value):
        if x is not None:
            pairs.sum_over_ranks(x)
    sums = TileSums(pairs)
    for tile in pairs.tiles(tile_side(pairs, loss.tile)):
        d2 = pairs.weight_distances.tile(*tile).clamp_(min=0)
        w = importance.weigh(d2, params[:, tile.rows, None])
        w += importance.weigh(d2, params[:, None, tile.columns])
        sums.add(tile, pairs.exclude_(w, tile, 0.0), tile.mirrored)
    return sums.over_ranks(row_sum, value)


def strip_kernel(pairs: Pairs, loss: PairLoss) -> KernelSums:
    """The kernel of any callable and of `backprop_alpha`: whole rows of α, in strips."""
    sums = TileSums(pairs)
    row_sum = torch.zeros_like(sums.degree)
    repulsion = row_sum.new_zeros(())
    everything = slice(0, len(pairs))
    for rows in pairs.strips(strip_height(pairs, loss.tile)):
        valid = pairs.valid(rows)
        d2 = d2_weights = pairs.distances.tile(rows, everything).clamp_(min=0)  # (m, M)
        if pairs.weight_distances is not pairs.distances:
            d2_weights = pairs.weight_distances.tile(rows, everything).clamp_(min=0)
        # A copy, because a user's function may work in place.
        alpha = call_checked(loss.importance, loss.key, pairs.d2_pos[rows], d2_weights.clone(), valid)
        alpha = alpha.to(d2.dtype).masked_fill(~valid, 0.0)
        row_sum[rows] = alpha.sum(1)
        repulsion += (alpha * d2).sum()
        if loss.backprop_alpha:
            # The loss is −Σ_j α_ij e_ij with e_ij = d2_neg_ij − (1+β) d2_pos_i.
            e = (d2 - (1 + loss.beta) * pairs.d2_pos[rows, None]).masked_fill_(~valid, 0.0)
            alpha = alpha + vjp_of(loss.importance)(d2_weights, alpha, e)
        sums.add(Tile(rows, everything), alpha, mirror=True)
    for x in (row_sum, repulsion):
        pairs.sum_over_ranks(x)
    return sums.over_ranks(row_sum)._replace(repulsion=repulsion)


class TileSums:
    """Accumulates W z and W 1 tile by tile."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.pull = torch.zeros_like(pairs.points)  # (M, D)
        self.degree = pairs.points.new_zeros(len(pairs))

    def add(self, tile: Tile, w: Tensor, mirror: bool) -> None:
        """Add one tile and, with `mirror`, its transpose."""
        z = self.pairs.points
        self.pull[tile.rows].addmm_(w, z[tile.columns])
        self.degree[tile.rows].add_(w.sum(1))
        if mirror:
            self.pull[tile.columns].addmm_(w.T, z[tile.rows])
            self.degree[tile.columns].add_(w.sum(0))

    def over_ranks(self, row_sum: Tensor, value: Tensor | None = None) -> KernelSums:
        """Sum over the ranks."""
        pull, degree = self.pairs.sum_over_ranks(self.pull), self.pairs.sum_over_ranks(self.degree)
        return KernelSums(pull, degree, row_sum, value)


def vjp_of(importance: PairWeights) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the `vjp` of an importance, or refuse `backprop_alpha`."""
    vjp = getattr(importance, "vjp", None)
    require(vjp is not None, "backprop_alpha", True, f"False: {importance!r} has no `vjp`")
    return vjp  # type: ignore[return-value]


class Workspace(threading.local):
    """Memory that a loss reuses at every step. On a CPU, new memory pages cost more time than the exponentials.

    A workspace belongs to one loss on one thread. It is not saved or copied with the loss.
    """

    def __init__(self) -> None:
        self.flat: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, numel: int) -> Tensor:
        """Return a flat tensor of `numel` elements with the dtype and device of `like`."""
        if like.device.type != "cpu":  # torch's allocators for accelerators reuse freed memory
            return like.new_empty(numel)
        flat = self.flat.get(name)
        if flat is None or flat.dtype != like.dtype or flat.numel() < numel:
            with torch.inference_mode(False):  # a later step outside of inference mode uses it too
                flat = self.flat[name] = torch.empty(numel, dtype=like.dtype)
        return flat[:numel]

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()


TILE_SIDE = 512  # a float32 tile fits in the second-level cache of a core
STRIP_PAIRS = 2**19  # pairs in a strip, which the row solver reads many times
MAX_KEPT_BYTES = 2**28  # if they fit, the tiles of the first pass are kept for the second; they do at N = 4096
SMALLEST_SUM = 1e-26  # float32 still holds weights e^{−27} times smaller


def tile_side(pairs: Pairs, tile: int | None) -> int:
    """The side of a tile: as given, or such that it fits in the cache; at most such that every rank has some tiles."""
    side = tile or min(TILE_SIDE, len(pairs))
    if pairs.ranks > 1:
        side = min(side, -(-len(pairs) // (2 * pairs.ranks)))
    return side


def strip_height(pairs: Pairs, tile: int | None) -> int:
    """The number of rows of a strip."""
    return tile or max(16, STRIP_PAIRS // len(pairs))
