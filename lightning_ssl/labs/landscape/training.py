"""Train every data set × seed × start of one model at once, by plain SGD with written-out gradients.

Speed. All runs are one batch. Batch normalization is folded into the weights (see `models.Layer`). NT-Xent computes
half of its symmetric matrix, one run after the other, in the cache. Masks are 16-bit draws that all conditions of a
seed share; common random numbers also pair the comparisons.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.lab import seeded_generator, track, use_threads
from lightning_ssl.labs.landscape.data import max_cosine, sparse_codes
from lightning_ssl.labs.landscape.losses import negative_cosine, nt_xent, squared_distance, weighted_pairs
from lightning_ssl.labs.landscape.models import Model, Params, affine, encode
from lightning_ssl.losses.importance import Importance


@dataclass(frozen=True)
class Setting:
    """Settings that all runs of a study share; `run` describes them."""

    epochs: int
    lr: float = 0.025
    recipe: str = "released"
    samples: int = 1000
    batch: int = 512
    p: int = 50
    d: int = 10
    m: int = 50
    tau: float = 0.2
    noise: float | None = None
    latents: str | None = None
    record: int = 80
    """How often the max-cosines are measured in the course of training."""

    @property
    def sigma0(self) -> float:
        """Standard deviation of the noise ε."""
        if self.noise is not None:
            return self.noise
        return math.sqrt(math.log(self.d)) / self.d if self.recipe == "released" else math.log(self.d) / self.d

    @property
    def codes(self) -> str:
        """The kind of latent codes, see `sparse_codes`."""
        return self.latents or ("permuted" if self.recipe == "released" else "bernoulli")


@dataclass
class Trained:
    """Max-cosines (T, D, S, K, 3) at `epochs` (T,), and the first encoder at the end."""

    epochs: Tensor
    cosines: Tensor
    W: Tensor


class InitialValues:
    """Dictionaries, data and initial weights of D sparsities × S seeds × K starts.

    A start is the σ of a warm start, or None for random weights.

    Every seed has its own generator. Runs of one seed share dictionary, noise, initial weights, order of samples and
    masks, for every model. Differences between sparsities, starts and models are therefore paired.
    """

    def __init__(
        self,
        model: Model,
        sparsities: Sequence[float],
        starts: Sequence[float | None],
        seeds: Sequence[int],
        setting: Setting,
    ) -> None:
        s = setting
        self.generators = [seeded_generator(seed) for seed in seeds]
        D, S, K = len(sparsities), len(seeds), len(starts)
        self.shape = D, S, K
        dictionaries: list[Tensor] = []
        data: list[Tensor] = []
        networks: list[list[Params]] = []
        for generator in self.generators:
            M = torch.linalg.qr(torch.randn(s.p, s.d, generator=generator))[0]
            noise = s.sigma0 * torch.randn(s.samples, s.p, generator=generator)
            state = generator.get_state()
            for sparsity in sparsities:
                generator.set_state(state)
                z = sparse_codes(s.codes, s.samples, s.d, sparsity, generator)
                data.append(z @ M.T + noise)
            dictionaries.append(M)
            networks.append([_draw_network(M, starts, s, generator) for _ in range(2)])
        self.M = torch.stack(dictionaries).repeat(D, 1, 1)[:, None]  # (B, 1, p, d)
        # Data are drawn seed by seed. Runs are ordered sparsity by sparsity.
        self.X = torch.stack(data).view(S, D, s.samples, s.p).transpose(0, 1).reshape(D * S, s.samples, s.p)
        self.frozen = {"W2", "b2", "H", "c"} if s.recipe == "released" and model.objective == "dual" else set()
        self.networks = [self._parameters([pair[k] for pair in networks], model, s) for k in range(2)]
        if model.objective == "dual" and model.head:
            # Both encoders use the same predictor.
            self.networks[1] |= {"H": self.networks[0]["H"], "c": self.networks[0]["c"]}

    def _parameters(self, drawn: list[Params], model: Model, s: Setting) -> Params:
        """Stack the parameters that the model has, for every run: (B, K, ...)."""
        D, S, K = self.shape
        P: Params = {"W1": torch.stack([n["W1"] for n in drawn]).repeat(D, 1, 1, 1)}
        names = ["b1", *(["W2", "b2"] if model.depth > 1 else []), *(["H", "c"] if model.head else [])]
        for name in names:
            value = torch.stack([n[name] for n in drawn])[:, None]
            zero = s.recipe == "text" and name in ("b1", "b2", "c")
            P[name] = value.expand(S, K, *value.shape[2:]).repeat(D, *[1] * (value.dim() - 1)) * (0.0 if zero else 1.0)
        # The released dual optimizers hold only the linear layers of the encoders, so the affine parameters of batch
        # normalization would stay at 1 and 0.
        if model.batch_norm and not (s.recipe == "released" and model.objective == "dual"):
            for index in range(1, model.depth + 1):
                P[f"gamma{index}"], P[f"beta{index}"] = torch.ones(D * S, K, s.m), torch.zeros(D * S, K, s.m)
        return P


def _draw_network(M: Tensor, starts: Sequence[float | None], s: Setting, generator: torch.Generator) -> Params:
    """Draw the parameters of one encoder with two layers and a head, W1 for every start."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    W = torch.randn(s.m, s.p, generator=generator)
    columns = torch.randint(0, s.d, (s.m,), generator=generator) if s.m > s.d else torch.arange(s.m)
    cold = W / math.sqrt(s.p * s.d)
    first = [cold if sigma is None else M.T[columns] + sigma * W for sigma in starts]
    b1, W2, b2 = uniform(s.m), torch.randn(s.m, s.m, generator=generator), uniform(s.m)
    H, c = uniform(s.m, s.m), uniform(s.m)
    return {
        "W1": torch.stack(first),  # (K, m, p)
        "b1": b1 / math.sqrt(s.p),
        "W2": W2 / math.sqrt(s.m * s.d),
        "b2": b2 / math.sqrt(s.m),
        "H": H / math.sqrt(s.m),
        "c": c / math.sqrt(s.m),
    }


class Batches:
    """Masked views of all data sets, one batch after the other."""

    def __init__(self, start: InitialValues, keep: float, setting: Setting, drop_last: bool) -> None:
        s = self.setting = setting
        self.generators = start.generators
        self.D, self.S, _ = start.shape
        self.end = s.samples - s.batch + 1 if drop_last else s.samples
        self.X, self.first_row = start.X.flatten(0, 1), s.samples * torch.arange(self.D * self.S)[:, None]
        # A mask keeps an entry whose 16-bit draw is at most this limit. All sparsities of a seed share the masks.
        self.limit = max(round(keep * 65536) - 32769, -32768)

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the views (2, B, p, N) and the samples without a mask (B, N, p), in a new order with new masks."""
        s, D, S = self.setting, self.D, self.S
        order = torch.stack([torch.randperm(s.samples, generator=g) for g in self.generators])
        order = order.repeat(D, 1) + self.first_row  # (B, n)
        words = torch.empty(S, -(-2 * s.samples * s.p // 4), dtype=torch.int64)
        for word, generator in zip(words, self.generators, strict=True):
            word.random_(-(2**63), None, generator=generator)
        bits = words.view(torch.int16)[:, : 2 * s.samples * s.p].view(S, 2, s.samples, s.p)
        bits = bits.transpose(0, 1)[:, None]  # (2, 1, S, n, p)
        for first in range(0, self.end, s.batch):
            batch = slice(first, min(first + s.batch, s.samples))
            clean = self.X.index_select(0, order[:, batch].flatten()).view(D * S, -1, s.p)  # (B, N, p)
            N = clean.shape[1]
            mask = torch.le(bits[:, :, :, batch], self.limit, out=clean.new_empty(2, 1, S, N, s.p))
            yield (mask * clean.view(1, D, S, N, s.p)).view(2, D * S, N, s.p).transpose(2, 3), clean


def train(
    model: Model,
    keep: float,
    sparsities: Sequence[float],
    seeds: Sequence[int],
    setting: Setting,
    *,
    starts: Sequence[float | None] = (None,),
    importance: Importance | None = None,
    progress: bool = False,
    label: str = "landscape",
) -> Trained:
    """Train every sparsity × seed × start by plain SGD (Section 4.2) and record the max-cosines.

    keep         probability that a mask keeps an entry
    importance   replaces NT-Xent
    """
    s = setting
    elements = len(sparsities) * len(seeds) * len(starts) * s.m * s.batch
    # glibc keeps freed memory up to the largest block that was freed (at most 32 MiB). Without this the memory of every
    # step is faulted in again.
    torch.empty(31 * 2**18)
    # One thread for small problems: to wake a second one costs more than it gains.
    with torch.no_grad(), use_threads(torch.get_num_threads() if elements > 200_000 else 1):
        start = InitialValues(model, sparsities, starts, seeds, s)
        # The released loaders drop the last, smaller batch for the pair losses only.
        batches = Batches(start, keep, s, drop_last=model.objective == "pairs")
        W1 = start.networks[0]["W1"]
        every = max(1, s.epochs // s.record)
        recorded_at, cosines = [0], [max_cosine(W1, start.M)]
        for epoch in track(range(1, s.epochs + 1), label, progress):
            for step, (x, clean) in enumerate(batches.epoch()):
                # Dual encoders are updated alternately; every epoch begins with the first one.
                k = step % 2 if model.objective == "dual" else 0
                grads = _gradients(x, clean, start.networks, k, model, s, importance)
                _update(start, k, grads, s.lr, model)
            if epoch % every == 0 or epoch == s.epochs:
                recorded_at.append(epoch)
                cosines.append(max_cosine(W1, start.M))
    shape = start.shape
    return Trained(torch.tensor(recorded_at), torch.stack(cosines).view(-1, *shape, 3), W1.view(*shape, s.m, s.p))


def _gradients(
    x: Tensor, clean: Tensor, networks: list[Params], k: int, model: Model, s: Setting, importance: Importance | None
) -> Params:
    """The gradient of every run's loss for network k, of views x (2, B, p, N)."""
    symmetric = s.recipe == "text"
    P = networks[k]
    y, encoder_vjp = encode(x[k : k + 1] if model.objective == "dual" else x, P, model, symmetric)
    out, head_vjp = affine(y, P["H"], P["c"]) if model.head else (y, None)
    if model.objective == "dual":
        target, _ = encode(x[1 - k : 2 - k], networks[1 - k], model, symmetric)
        _, g = squared_distance(out, target, model.normalized)
    elif model.objective == "siamese":
        _, g = negative_cosine(out, y.flip(0))
    elif importance is None:
        _, g = nt_xent(out, s.tau)
    else:
        clean_output, _ = encode(clean.transpose(1, 2)[None], P, model, symmetric)
        _, g = weighted_pairs(out, importance, 1 / s.tau, clean_output[0])
    grads: Params = {}
    if head_vjp is not None:
        head_grads, g = head_vjp(g)
        grads |= head_grads
    return grads | encoder_vjp(g)


def _update(start: InitialValues, k: int, grads: Params, lr: float, model: Model) -> None:
    """Take one step of SGD with network k, in place, and normalize the encoders if the model requires it."""
    P = start.networks[k]
    for name, grad in grads.items():
        if name not in start.frozen and name in P:
            P[name].sub_(lr * grad.view_as(P[name]))
    if model.unit != "none":
        for network in start.networks:
            network["W1"] /= network["W1"].norm(dim=3 if model.unit == "row" else 2, keepdim=True)


def train_all(jobs: Sequence[dict[str, Any]], workers: int, progress: bool) -> list[Trained]:
    """Call `train` for each of `jobs`, one after the other or in `workers` processes; the numbers are the same."""
    if workers == 1:
        return [train(**job, progress=progress) for job in jobs]
    # Spawned, not forked: the threads of torch do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(train, **job) for job in jobs]
        return [future.result() for future in track(futures, "landscape, model by model", progress)]
