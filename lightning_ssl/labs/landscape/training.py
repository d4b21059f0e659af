"""Train every data set × seed of one model at once, by plain SGD with written-out gradients.

Speed. All runs are one batch. Batch normalization is folded into the weights (see `models.Layer`). NT-Xent computes
half of its symmetric matrix, one run after the other, in the cache. Masks are 16-bit draws that all conditions of a
seed share; common random numbers also pair the comparisons.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.lab import random_bits, seeded_generator, track, use_threads
from lightning_ssl.labs.landscape.data import max_cosine, sparse_codes
from lightning_ssl.labs.landscape.losses import negative_cosine, nt_xent, squared_distance, weighted_pairs
from lightning_ssl.labs.landscape.models import Model, Params, affine, encode
from lightning_ssl.labs.landscape.recipes import Setting
from lightning_ssl.labs.landscape.tables import Row
from lightning_ssl.losses.importance import Importance


class InitialValues:
    """Dictionaries, data and initial weights of R = D sparsities × S seeds; runs are ordered (sparsity, seed).

    Every seed has its own generator. Runs of one seed share dictionary, noise, initial weights, order of samples and
    masks, for every model and start. Differences between sparsities, starts and models are therefore paired.
    """

    def __init__(self, row: Row, sparsities: Sequence[float], seeds: Sequence[int], setting: Setting) -> None:
        s, D = setting, len(sparsities)
        self.generators = [seeded_generator(seed) for seed in seeds]
        self.shape = D, len(seeds)
        dictionaries, data, networks = [], [], []
        for generator in self.generators:
            M = torch.linalg.qr(torch.randn(s.p, s.d, generator=generator))[0]
            noise = s.sigma0 * torch.randn(s.samples, s.p, generator=generator)
            state = generator.get_state()
            for sparsity in sparsities:
                generator.set_state(state)
                data.append(sparse_codes(s.latents, s.samples, s.d, sparsity, generator) @ M.T + noise)
            dictionaries.append(M)
            networks.append([_draw_network(M, row, s, generator) for _ in range(2)])
        self.M = torch.stack(dictionaries).repeat(D, 1, 1)  # (R, p, d)
        # Data are drawn seed by seed.
        self.X = torch.stack(data).unflatten(0, (-1, D)).transpose(0, 1).flatten(0, 1)  # (R, n, p)
        self.networks: list[Params] = []
        for drawn in zip(*networks, strict=True):
            stacked = {name: torch.stack([P[name] for P in drawn]) for name in drawn[0]}
            self.networks.append({name: value.repeat(D, *[1] * (value.dim() - 1)) for name, value in stacked.items()})
        partial = row.model.objective == "dual" and not s.all_layers
        # Affine parameters of batch normalization that no optimizer holds stay at 1 and 0.
        self.frozen = {"W2", "b2", "H", "c"} if partial else set()
        if row.model.batch_norm and not partial:
            for P, index in itertools.product(self.networks, range(1, row.model.depth + 1)):
                P[f"gamma{index}"], P[f"beta{index}"] = torch.ones_like(P["b1"]), torch.zeros_like(P["b1"])
        if row.model.objective == "dual":
            # Both encoders use the same predictor.
            self.networks[1] |= {"H": self.networks[0]["H"], "c": self.networks[0]["c"]}


def _draw_network(M: Tensor, row: Row, s: Setting, generator: torch.Generator) -> Params:
    """Draw the parameters of an encoder with two layers and a head."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    W = torch.randn(s.m, s.p, generator=generator)
    columns = torch.randint(0, s.d, (s.m,), generator=generator) if s.m > s.d else torch.arange(s.m)
    b1, W2, b2 = uniform(s.m), torch.randn(s.m, s.m, generator=generator) / math.sqrt(s.m * s.d), uniform(s.m)
    H, c = uniform(s.m, s.m), uniform(s.m)
    if row.model.objective == "siamese":  # the released `Wproj` has the initial values of torch's linear layer
        W2 = uniform(s.m, s.m) / math.sqrt(s.m)
    biased = float(not s.zero_biases)
    return {
        "W1": W / math.sqrt(s.p * s.d) if row.sigma is None else M.T[columns] + row.sigma * W,
        "b1": biased * b1 / math.sqrt(s.p),
        "W2": W2,
        "b2": biased * b2 / math.sqrt(s.m),
        "H": H / math.sqrt(s.m),
        "c": biased * c / math.sqrt(s.m),
    }


def epoch_batches(start: InitialValues, row: Row, s: Setting) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the views (2, R, p, N) and the samples without a mask (R, N, p), in a new order with new masks."""
    D, S = start.shape
    order = torch.stack([torch.randperm(s.samples, generator=g) for g in start.generators])
    order = order.repeat(D, 1) + s.samples * torch.arange(D * S)[:, None]  # (R, n)
    # A mask keeps an entry whose 16-bit draw is at most this limit. All sparsities of a seed share the masks.
    limit = max(round(row.keep * 65536) - 32769, -32768)
    bits = random_bits(start.generators, 2 * s.samples * s.p).view(S, 2, s.samples, s.p)
    bits = bits.transpose(0, 1)[:, None]  # (2, 1, S, n, p)
    dropped = s.drop_last and row.model.objective == "pairs"
    end = s.samples - s.batch + 1 if dropped else s.samples
    for first in range(0, end, s.batch):
        batch = slice(first, min(first + s.batch, s.samples))
        clean = start.X.flatten(0, 1).index_select(0, order[:, batch].flatten()).view(D * S, -1, s.p)  # (R, N, p)
        N = clean.shape[1]
        mask = torch.le(bits[:, :, :, batch], limit, out=clean.new_empty(2, 1, S, N, s.p))
        if row.dependent:  # Eqn. 2: 2Dx and 2(I − D)x
            mask = torch.cat([2 * mask[:1], 2 - 2 * mask[:1]])
        yield (mask * clean.view(1, D, S, N, s.p)).view(2, D * S, N, s.p).transpose(2, 3), clean


def recorded_epochs(epochs: int) -> list[int]:
    """The epochs at which the max-cosines are measured: the start, the end and about 80 between them."""
    return [*range(0, epochs, max(1, epochs // 80)), epochs]


def train(
    row: Row,
    sparsities: Sequence[float],
    seeds: Sequence[int],
    setting: Setting,
    importance: Importance | None = None,
    *,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train every sparsity × seed of a row by plain SGD (Section 4.2).

    Returns the max-cosines (T, D, S, 3) at the T `recorded_epochs`, and the first encoders at the end (D, S, m, p).
    `importance` replaces NT-Xent.
    """
    s, model = setting, row.model
    elements = len(sparsities) * len(seeds) * s.m * s.batch
    # glibc keeps freed memory up to the largest block that was freed (at most 32 MiB). Without this the memory of every
    # step is faulted in again.
    torch.empty(31 * 2**18)
    # One thread for small problems: to wake a second one costs more than it gains.
    with torch.no_grad(), use_threads(torch.get_num_threads() if elements > 200_000 else 1):
        start = InitialValues(row, sparsities, seeds, s)
        W1 = start.networks[0]["W1"]
        recorded, cosines = recorded_epochs(s.epochs), [max_cosine(W1, start.M)]
        for epoch in track(range(1, s.epochs + 1), row.key, progress):
            for step, (x, clean) in enumerate(epoch_batches(start, row, s)):
                # Dual encoders are updated alternately; every epoch begins with the first one.
                k = step % 2 if model.objective == "dual" else 0
                grads = _gradients(x, clean, start.networks, k, model, s, importance)
                _update(start, k, grads, s.lr, model)
            if epoch in recorded:
                cosines.append(max_cosine(W1, start.M))
    return torch.stack(cosines).unflatten(1, start.shape), W1.unflatten(0, start.shape)


def _gradients(
    x: Tensor, clean: Tensor, networks: list[Params], k: int, model: Model, s: Setting, importance: Importance | None
) -> Params:
    """The gradient of every run's loss for network k, of views x (2, R, p, N)."""
    symmetric = s.symmetric
    P = networks[k]
    y, encoder_vjp = encode(x[k : k + 1] if model.objective == "dual" else x, P, model, symmetric)
    out, head_vjp = affine(y, P["H"], P["c"]) if model.head else (y, None)
    if model.objective == "dual":
        target, _ = encode(x[1 - k : 2 - k], networks[1 - k], model, symmetric)
        g = squared_distance(out, target, model.normalized)
    elif model.objective == "siamese":
        g = negative_cosine(out, y.flip(0))
    elif importance is None:
        g = nt_xent(out, s.tau)
    else:
        clean_output, _ = encode(clean.mT[None], P, model, symmetric)
        g = weighted_pairs(out, importance, 1 / s.tau, clean_output[0])
    grads: Params = {}
    if head_vjp is not None:
        head_grads, g = head_vjp(g)
        grads |= head_grads
    return grads | encoder_vjp(g)


def _update(start: InitialValues, k: int, grads: Params, lr: float, model: Model) -> None:
    """Take one step of SGD with network k, in place, and normalize the encoders if the model requires it."""
    P = start.networks[k]
    for name, grad in grads.items():
        if name not in start.frozen:
            P[name].sub_(lr * grad)
    if model.unit != "none":
        for network in start.networks:
            network["W1"] /= network["W1"].norm(dim=2 if model.unit == "row" else 1, keepdim=True)


def train_all(jobs: Sequence[tuple[Any, ...]], workers: int, progress: bool) -> list[Tensor]:
    """The max-cosines of `train` for each of `jobs`, its arguments, in one or `workers` processes.

    The number of processes does not change the numbers.
    """
    if workers == 1:
        return [train(*job, progress=progress)[0] for job in jobs]
    # Spawned, not forked: the threads of torch do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(train, *job) for job in jobs]
        return [future.result()[0] for future in track(futures, "landscape, model by model", progress)]
