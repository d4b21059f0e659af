"""Train every data set × seed of one model at once, by plain SGD.

Speed. All runs are one batch. Batch normalization is folded into the weights (see `models.layer`). NT-Xent is the
package's tiled loss, one run after the other, in the cache. Masks are 16-bit draws that all conditions of a seed share;
common random numbers also pair the comparisons.
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
from lightning_ssl.labs.landscape.losses import negative_cosine, pair_losses, squared_distance
from lightning_ssl.labs.landscape.models import Model, Params, encode
from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.importance import Importance


@dataclass(frozen=True)
class Setting:
    """Settings that all runs of a study share; `run` describes them."""

    epochs: int
    recipe: str = "released"
    samples: int = 1000
    batch: int = 512
    p: int = 50
    d: int = 10
    m: int = 50
    tau: float = 0.2
    noise: float | None = None
    latents: str | None = None
    lr: float = 0.025
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


@dataclass(frozen=True)
class Condition:
    """One data set: its sparsity β and the probability that a mask keeps an entry."""

    sparsity: float
    keep: float


@dataclass
class Trained:
    """Max-cosines (T, D, S, 3) at `epochs` (T,), and the first encoder at the end (D, S, m, p)."""

    epochs: Tensor
    cosines: Tensor
    W: Tensor


class Runs:
    """Dictionaries, data and networks of B = D conditions × S seeds, their batches and their steps of SGD.

    Every seed has its own generator. Runs of one seed share dictionary, noise, initial weights, order of samples and
    masks, for every model. Differences between conditions, starts and models are therefore paired.

    sigma: the noise of a warm start (None: random weights)
    importance: replaces NT-Xent
    """

    def __init__(
        self,
        model: Model,
        conditions: Sequence[Condition],
        seeds: Sequence[int],
        setting: Setting,
        sigma: float | None = None,
        importance: Importance | None = None,
    ) -> None:
        s = self.setting = setting
        self.model = model
        # FamilyLoss is τ times NT-Xent.
        self.pair_loss = FamilyLoss(InfoNCE(s.tau, eps=1.0)) if importance is None else PairLoss(importance)
        self.weighs_clean = importance is not None and importance.uses_clean_view
        # A mask keeps an entry whose 16-bit draw is at most this limit, so one draw serves every condition of a seed.
        limits = [max(round(c.keep * 65536) - 32769, -32768) for c in conditions]
        self.limit = torch.tensor(limits, dtype=torch.int16).view(-1, 1, 1, 1)
        self.generators = [seeded_generator(seed) for seed in seeds]
        D, S = self.shape = len(conditions), len(seeds)
        dictionaries: list[Tensor] = []
        data: list[Tensor] = []
        networks: list[list[Params]] = []
        for generator in self.generators:
            M = torch.linalg.qr(torch.randn(s.p, s.d, generator=generator))[0]
            noise = s.sigma0 * torch.randn(s.samples, s.p, generator=generator)
            state = generator.get_state()
            for condition in conditions:
                generator.set_state(state)
                z = sparse_codes(s.codes, s.samples, s.d, condition.sparsity, generator)
                data.append(z @ M.T + noise)
            dictionaries.append(M)
            networks.append([_draw_network(M, sigma, s, generator) for _ in range(2)])
        self.M = torch.stack(dictionaries).repeat(D, 1, 1)  # (B, p, d)
        # Data are drawn seed by seed. Runs are ordered condition by condition.
        self.X = torch.stack(data).view(S, D, s.samples, s.p).transpose(0, 1).reshape(D * S, s.samples, s.p)
        frozen = {"W2", "b2", "H", "c"} if s.recipe == "released" and model.objective == "dual" else set()
        self.networks = [self._parameters([pair[k] for pair in networks]) for k in range(2)]
        if model.objective == "dual" and model.head:
            # Both encoders use the same predictor.
            self.networks[1] |= {"H": self.networks[0]["H"], "c": self.networks[0]["c"]}
        for network in self.networks:
            for name, value in network.items():
                value.requires_grad_(name not in frozen)

    def _parameters(self, drawn: list[Params]) -> Params:
        """Stack the parameters that the model has, for every run: (B, ...)."""
        (D, S), model, s = self.shape, self.model, self.setting
        P: Params = {}
        for name in ["W1", "b1", *(["W2", "b2"] if model.depth > 1 else []), *(["H", "c"] if model.head else [])]:
            value = torch.stack([n[name] for n in drawn])
            zero = s.recipe == "text" and name in ("b1", "b2", "c")
            P[name] = value.repeat(D, *[1] * (value.dim() - 1)) * (0.0 if zero else 1.0)
        # The released dual optimizers hold only the linear layers of the encoders, so the affine parameters of batch
        # normalization would stay at 1 and 0.
        if model.batch_norm and not (s.recipe == "released" and model.objective == "dual"):
            for index in range(1, model.depth + 1):
                P[f"gamma{index}"], P[f"beta{index}"] = torch.ones(D * S, s.m), torch.zeros(D * S, s.m)
        return P

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """An epoch of masked views (2, B, p, N) and samples (B, p, N), in a new order with new masks."""
        s, (D, S) = self.setting, self.shape
        order = torch.stack([torch.randperm(s.samples, generator=g) for g in self.generators]).repeat(D, 1)  # (B, n)
        words = torch.empty(S, -(-2 * s.samples * s.p // 4), dtype=torch.int64)
        for word, generator in zip(words, self.generators, strict=True):
            word.random_(-(2**63), None, generator=generator)
        bits = words.view(torch.int16)[:, : 2 * s.samples * s.p].view(S, 2, s.samples, s.p)
        bits = bits.transpose(0, 1)[:, None]  # (2, 1, S, n, p)
        run = torch.arange(D * S)[:, None]
        # The released loaders drop the last, smaller batch for the pair losses only.
        end = s.samples - s.batch + 1 if self.model.objective == "pairs" else s.samples
        for first in range(0, end, s.batch):
            batch = slice(first, first + s.batch)
            clean = self.X[run, order[:, batch]]  # (B, N, p)
            masked = (bits[:, :, :, batch] <= self.limit) * clean.unflatten(0, (D, S))
            yield masked.flatten(1, 2).mT, clean.mT

    def losses(self, x: Tensor, clean: Tensor, k: int) -> Tensor:
        """The loss of every run (B,) for network k, of views x (2, B, p, N) and the samples (B, p, N)."""
        model, P, symmetric = self.model, self.networks[k], self.setting.recipe == "text"
        y = encode(x[k : k + 1] if model.objective == "dual" else x, P, model, symmetric)
        out = P["H"] @ y + P["c"][..., None] if model.head else y
        if model.objective == "dual":
            with torch.no_grad():
                target = encode(x[1 - k : 2 - k], self.networks[1 - k], model, symmetric)
            return squared_distance(out, target, model.normalized)
        if model.objective == "siamese":
            return negative_cosine(out, y.flip(0).detach())
        clean_output = encode(clean[None], P, model, symmetric)[0] if self.weighs_clean else None
        return pair_losses(out, self.pair_loss, clean_output) / self.setting.tau

    def step(self, x: Tensor, clean: Tensor, k: int) -> None:
        """Take one step of SGD with network k, in place, and normalize the encoders if the model requires it."""
        trained = [value for value in self.networks[k].values() if value.requires_grad]
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        grads = torch.autograd.grad(self.losses(x, clean, k).sum(), trained)
        with torch.no_grad():
            for value, grad in zip(trained, grads, strict=True):
                value.sub_(grad, alpha=self.setting.lr)
            if self.model.unit != "none":
                for network in self.networks:
                    network["W1"] /= network["W1"].norm(dim=2 if self.model.unit == "row" else 1, keepdim=True)


def _draw_network(M: Tensor, sigma: float | None, s: Setting, generator: torch.Generator) -> Params:
    """Draw the parameters of one encoder with two layers and a head."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    W = torch.randn(s.m, s.p, generator=generator)
    columns = torch.randint(0, s.d, (s.m,), generator=generator) if s.m > s.d else torch.arange(s.m)
    b1, W2, b2 = uniform(s.m), torch.randn(s.m, s.m, generator=generator), uniform(s.m)
    H, c = uniform(s.m, s.m), uniform(s.m)
    return {
        "W1": W / math.sqrt(s.p * s.d) if sigma is None else M.T[columns] + sigma * W,
        "b1": b1 / math.sqrt(s.p),
        "W2": W2 / math.sqrt(s.m * s.d),
        "b2": b2 / math.sqrt(s.m),
        "H": H / math.sqrt(s.m),
        "c": c / math.sqrt(s.m),
    }


def train(
    model: Model,
    conditions: Sequence[Condition],
    seeds: Sequence[int],
    setting: Setting,
    *,
    sigma: float | None = None,
    importance: Importance | None = None,
    progress: bool = False,
    label: str = "landscape",
) -> Trained:
    """Train every condition × seed by plain SGD (Section 4.2) and record the max-cosines; see `Runs`."""
    s = setting
    runs = Runs(model, conditions, seeds, s, sigma, importance)
    W1 = runs.networks[0]["W1"]
    every = max(1, s.epochs // s.record)
    recorded_at, cosines = [0], [max_cosine(W1.detach(), runs.M)]
    # glibc keeps freed memory up to the largest block that was freed (at most 32 MiB). Without this the memory of every
    # step is faulted in again.
    torch.empty(31 * 2**18)
    # One thread for small problems: to wake a second one costs more than it gains.
    with use_threads(torch.get_num_threads() if len(runs.X) * s.m * s.batch > 200_000 else 1):
        for epoch in track(range(1, s.epochs + 1), label, progress):
            for step, batch in enumerate(runs.batches()):
                # Dual encoders are updated alternately; every epoch begins with the first one.
                runs.step(*batch, step % 2 if model.objective == "dual" else 0)
            if epoch % every == 0 or epoch == s.epochs:
                recorded_at.append(epoch)
                cosines.append(max_cosine(W1.detach(), runs.M))
    path = torch.stack(cosines).unflatten(1, runs.shape)
    return Trained(torch.tensor(recorded_at), path, W1.detach().unflatten(0, runs.shape))


def train_all(jobs: Sequence[dict[str, Any]], workers: int, progress: bool) -> list[Trained]:
    """Call `train` for each of `jobs`, one after the other or in `workers` processes; the numbers are the same."""
    if workers == 1:
        return [train(**job, progress=progress) for job in jobs]
    # Spawned, not forked: the threads of torch do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(train, **job) for job in jobs]
        return [future.result() for future in track(futures, "landscape, model by model", progress)]
