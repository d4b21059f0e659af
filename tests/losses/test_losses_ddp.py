"""Losses on several ranks equal the loss of one process with the whole batch; the ranks are gloo processes."""

import contextlib
import functools
import multiprocessing
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from helpers.closeness import close
from helpers.losses import FAMILIES, IMPORTANCES, close_each, scales
from helpers.watching import Operators
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lightning_ssl.losses import device
from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.families import InfoNCE, Triplet
from lightning_ssl.losses.importance import Entropy, Gaussian
from lightning_ssl.losses.solved import Inverse, Tsallis

N = 12  # samples of the whole batch: 6, 4 or 3 a rank
WIDTH, HIDDEN, OUT = 6, 8, 5
ANCHORS = ("both", "one")
DTYPES = (torch.float32, torch.float64)

# The ranks are forked from a server process that has only imported torch. So torch is imported once, and the server has
# no threads, which would make a fork unsafe. DDP imports torch._dynamo.
multiprocessing.set_forkserver_preload(["torch._dynamo", "lightning_ssl.losses.energy", "pytest"])


def losses_of_every_rule():
    """Every importance and family."""
    for anchors in ANCHORS:
        for rule in IMPORTANCES:
            yield f"{rule} {anchors}", PairLoss(rule, anchors=anchors, beta=0.2)
        for family in FAMILIES:
            yield f"{family} {anchors}", FamilyLoss(family, anchors=anchors)


def losses_of_every_path():
    """Every path through the kernel. A path divides its work among the ranks in the same way for every rule."""
    for anchors in ANCHORS:
        for name, loss in {
            "streaming": PairLoss(Entropy(), anchors=anchors, beta=0.2),
            "tiled": PairLoss(Entropy(), anchors=anchors, tile=2),
            "clean": PairLoss(Gaussian(), anchors=anchors),
            "fitted": PairLoss(Inverse(), anchors=anchors, beta=0.2),
            "streaming family": FamilyLoss(InfoNCE(), anchors=anchors),
            "fitted family": FamilyLoss(Triplet(), anchors=anchors),
            "callable": PairLoss(nearer_half, anchors=anchors),
            "backprop streaming": PairLoss(Entropy(), anchors=anchors, backprop_alpha=True),
            "backprop fitted": PairLoss(Tsallis(q=0.5), anchors=anchors, backprop_alpha=True),
        }.items():
            yield f"{name} {anchors}", loss


def nearer_half(d2_pos, d2_neg, valid):
    median = d2_neg.masked_fill(~valid, torch.nan).nanmedian(1, keepdim=True).values
    return ((d2_neg < median) & valid).to(d2_neg.dtype)


def make_net(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT)).to(dtype)


def make_batch(dtype):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(N, WIDTH, dtype=torch.float64, generator=generator).to(dtype) for _ in range(3)]


def step(net, loss, batch):
    """Value and parameter gradient of one step, after DDP's averaging if the net is wrapped."""
    net.zero_grad()
    loss.zero_grad()
    z1, z2, clean = net(torch.cat(batch)).chunk(3)
    needs_clean = getattr(loss.importance, "uses_clean_view", False)
    value = loss(z1, z2, clean.detach()) if needs_clean else loss(z1, z2)
    value.backward()
    learned = [p.grad for p in loss.parameters()]
    if dist.is_initialized():  # as DDP does where the loss is a part of the model
        for g in learned:
            dist.all_reduce(g)
            g /= dist.get_world_size()
    # One vector, because the last bias has a gradient of 0 and so no scale: a shift does not change the distances.
    return [value.detach(), torch.cat([p.grad.flatten() for p in net.parameters()]), *learned]


def run_all(losses, dtype, wrap=lambda net: net, share=slice(None)):
    net = wrap(make_net(dtype))
    batch = [x[share] for x in make_batch(dtype)]
    return {f"{name} {dtype}": step(net, loss, batch) for name, loss in losses()}


@functools.cache
def run_alone(losses, dtype):
    """The same in this process, with the scale of each result."""
    net, batch = make_net(torch.float64), make_batch(torch.float64)
    found = {f"{name} {dtype}": scales(lambda *x, loss=loss: step(net, loss, x), *batch) for name, loss in losses()}
    return run_all(losses, dtype), found


def bfloat16_loss(share=slice(None)):
    z = make_batch(torch.bfloat16)[0][share]
    return PairLoss(Entropy())(z, -z)


def share_of(rank, ranks):
    return slice(rank * N // ranks, (rank + 1) * N // ranks)


def groups(ranks):
    """What a number of ranks computes: every path, and every rule if there are two of them."""
    return [
        *((losses_of_every_path, dtype) for dtype in DTYPES),
        *[(losses_of_every_rule, torch.float64)] * (ranks == 2),
    ]


def refusals(rank):
    """What a rank is told about each of six batches."""
    messages = []
    z = torch.randn(4, 3)
    infinite = z.clone()
    infinite[0, 0] = torch.inf
    other = z.double() if rank else z
    for first, second in (
        (z[: 4 - rank], z[: 4 - rank]),
        (z[:, : 3 - rank], z[:, : 3 - rank]),
        (z, z) if rank else (infinite, infinite),
        (z[:0], z[:0]) if rank else (z, z),
        (z, z[:2]) if rank else (z, z),
        (other, other),
    ):
        try:
            PairLoss(Entropy())(first, second)
            messages.append("accepted")
        except ValueError as error:
            messages.append(str(error))
    return messages


def collectives():
    """The collectives of two steps of each path, on a CPU and as on an accelerator."""
    seen, names = {}, []

    def note(func, *_):
        if func.namespace == "c10d":
            names.append(func.overloadpacket.__name__.removesuffix("_"))

    for name, loss in losses_of_every_path():
        clean = [torch.randn(4, 2)] if getattr(loss.importance, "uses_clean_view", False) else []
        for place in (device.acting_as_accelerator(), contextlib.nullcontext()):
            with place:
                for step in ("first", "second"):
                    z1, z2 = torch.randn(2, 4, 3).requires_grad_()
                    names.clear()
                    with Operators(note):
                        loss(z1, z2, *clean).backward()
                    seen[name, step, type(place).__name__] = [*names]
    return seen


def one_rank(rank, ranks, folder):
    """Save the results of a rank; two ranks also save what they refuse and their collectives."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    share = share_of(rank, ranks)
    # First: a rank keeps the shapes of the step before.
    found = {"collectives": collectives()} if ranks == 2 else {}
    found["results"] = [run_all(losses, dtype, DistributedDataParallel, share) for losses, dtype in groups(ranks)]
    found["bfloat16"] = bfloat16_loss(share)
    if ranks == 2:
        found["refusals"] = refusals(rank)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@functools.cache
def of_ranks(ranks):
    """What each rank has saved."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(one_rank, (ranks, folder), nprocs=ranks, start_method="forkserver")
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(ranks)]


# The sums on the way to a gradient: both layers forward, the distances, 2N candidates, 3N samples of a weight.
TERMS = WIDTH + HIDDEN + OUT + 2 * N + 3 * N


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_equal_one_process_on_every_path_of_the_kernel_and_two_for_every_rule(ranks):
    for rank, saved in enumerate(of_ranks(ranks)):
        for found, group in zip(saved["results"], groups(ranks), strict=True):
            expected, scale = run_alone(*group)
            for name in expected:
                close_each(found[name], expected[name], TERMS, scale[name], where=f"rank {rank} of {ranks}, {name}")
        close(saved["bfloat16"], bfloat16_loss(), terms=TERMS)  # both in float32


def test_every_rank_raises_if_one_rank_has_bad_input():
    for rank, saved in enumerate(of_ranks(2)):
        batch, width, not_finite, empty, shape, dtype = saved["refusals"]
        assert "local batch=[4, 3]" in batch
        assert "width of z1=[3, 2]" in width
        assert "z1: 1 of 8 embeddings are not finite" in not_finite
        assert "z1=(0, 3)" in empty if rank else "rank 1 refused its views" in empty
        assert "z2=(2, 3)" in shape if rank else "rank 1 refused its views" in shape
        assert "dtype of z1=['torch.float32', 'torch.float64']" in dtype


def test_a_loss_takes_one_gather_and_one_reduce_scatter():
    """Before, the shapes of all ranks are compared: on a CPU always, on an accelerator if those of the rank changed."""
    loss = ["_allgather_base", "_reduce_scatter_base"]
    for saved in of_ranks(2):
        seen = saved["collectives"]
        assert seen["streaming both", "first", "_GeneratorContextManager"] == ["_allgather_base", *loss]
        for (name, step, place), names in seen.items():
            if place == "nullcontext":
                assert names == ["_allgather_base", *loss], name
            elif step == "second":
                assert names == loss, name
