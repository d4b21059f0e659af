"""Several ranks are one process: real gloo processes against the whole batch on one."""

import itertools
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from helpers.losses import FAMILIES, IMPORTANCES
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lightning_ssl.energy import FamilyLoss, PairLoss
from lightning_ssl.importance import Entropy, Tsallis
from lightning_ssl.pairs import Pairs

N = 12  # samples of the whole batch: 12, 6, 4 or 3 a rank
WIDTH = 6


def losses():
    """Every importance and family, both anchor modes, β, backprop-α, a plain callable."""
    for anchors in ("both", "one"):
        for rule in IMPORTANCES:
            yield f"{rule} {anchors}", PairLoss(rule, anchors=anchors, beta=0.2)
        for family in FAMILIES:
            yield f"{family} {anchors}", FamilyLoss(family, anchors=anchors)
        for rule in (Entropy(), Tsallis(q=0.5)):
            yield f"backprop {rule} {anchors}", PairLoss(rule, anchors=anchors, backprop_alpha=True)
        yield f"callable {anchors}", PairLoss(nearer_half, anchors=anchors)
        yield f"tiled {anchors}", PairLoss(Entropy(), anchors=anchors, tile=2)


def nearer_half(d2_pos, d2_neg, valid):
    median = d2_neg.masked_fill(~valid, torch.nan).nanmedian(1, keepdim=True).values
    return ((d2_neg < median) & valid).to(d2_neg.dtype)


def make_net(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 5)).to(dtype)


def make_batch(dtype):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(N, WIDTH, dtype=torch.float64, generator=generator).to(dtype) for _ in range(3)]


def step(net, loss, batch):
    """Value and parameter gradients of one step, after whatever averaging the wrapper does."""
    net.zero_grad()
    z1, z2, clean = net(torch.cat(batch)).chunk(3)
    needs_clean = getattr(loss.importance, "weighs_clean", False)
    value = loss(z1, z2, clean.detach()) if needs_clean else loss(z1, z2)
    value.backward()
    return [value.detach().clone(), *(p.grad.clone() for p in net.parameters())]


def run_all(dtype, wrap=lambda net: net, share=slice(None)):
    net = wrap(make_net(dtype))
    batch = [x[share] for x in make_batch(dtype)]
    return {name: step(net, loss, batch) for name, loss in losses()}


def start(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)


def work(rank, ranks, folder):
    start(rank, ranks, folder)
    local = N // ranks
    share = slice(rank * local, (rank + 1) * local)
    results = {dtype: run_all(dtype, DistributedDataParallel, share) for dtype in TOLERANCE}
    # bf16 travels and is computed in float32
    z = make_batch(torch.bfloat16)[0][share]
    results["bf16"] = PairLoss(Entropy())(z, -z)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.fixture(scope="module")
def alone():
    return {dtype: run_all(dtype) for dtype in TOLERANCE}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_equal_one_process(ranks, alone, tmp_path):
    mp.spawn(work, (ranks, str(tmp_path)), nprocs=ranks)
    for rank, (dtype, tolerance) in itertools.product(range(ranks), TOLERANCE.items()):
        results = torch.load(tmp_path / f"{rank}.pt")[dtype]
        assert results.keys() == alone[dtype].keys()
        for name, tensors in results.items():
            for got, expected in zip(tensors, alone[dtype][name], strict=True):
                scale = max(1.0, expected.abs().max().item())
                gap = (got - expected).abs().max().item() / scale
                assert gap <= tolerance, f"{name}, rank {rank} of {ranks}, {dtype}: {gap:.2e}"
    z = make_batch(torch.bfloat16)[0]
    for rank in range(ranks):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt")["bf16"], PairLoss(Entropy())(z, -z))


def fail(rank, ranks, folder):
    start(rank, ranks, folder)
    messages = []
    z = torch.randn(4, 3)
    poisoned = z.clone()
    poisoned[0, 0] = torch.inf
    other = z.double() if rank else z
    for first, second in (
        (z[: 4 - rank], z[: 4 - rank]),
        (z[:, : 3 - rank], z[:, : 3 - rank]),
        (z, z) if rank else (poisoned, poisoned),
        (z[:0], z[:0]) if rank else (z, z),
        (z, z[:2]) if rank else (z, z),
        (other, other),
    ):
        try:
            PairLoss(Entropy())(first, second)
            messages.append("accepted")
        except ValueError as error:
            messages.append(str(error))
    Path(f"{folder}/{rank}.txt").write_text("\n".join(messages))
    dist.destroy_process_group()


def test_every_rank_refuses_what_one_of_them_gets_wrong(tmp_path):
    mp.spawn(fail, (2, str(tmp_path)), nprocs=2)
    for rank in range(2):
        batch, width, poison, empty, shape, dtype = (tmp_path / f"{rank}.txt").read_text().splitlines()
        assert "local batch=[4, 3]" in batch
        assert "width of z1=[3, 2]" in width
        assert "z1: 1 of 8 embeddings are not finite" in poison
        assert "z1=(0, 3)" in empty if rank else "rank 1 refused its views" in empty
        assert "z2=(2, 3)" in shape if rank else "rank 1 refused its views" in shape
        assert "dtype of z1=['torch.float32', 'torch.float64']" in dtype


@pytest.mark.parametrize("anchors", ["both", "one"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("side", [1, 5, 16])
def test_the_ranks_share_every_pair_once_and_evenly(ranks, anchors, side):
    pairs = Pairs(torch.randn(48, 2), torch.randn(48, 2), anchors=anchors)
    pairs.ranks = ranks
    times = torch.zeros(len(pairs), len(pairs), dtype=torch.int)
    rows = torch.zeros(len(pairs), dtype=torch.int)
    loads = []
    for pairs.rank in range(ranks):
        before = times.sum().item()
        for tile in pairs.tiles(side):
            times[tile.rows, tile.columns] += 1
            if tile.mirrored:
                times[tile.columns, tile.rows] += 1
        loads.append(times.sum().item() - before)
        for strip in pairs.strips(side):
            rows[strip] += 1
    assert (times == 1).all()
    assert (rows == 1).all()
    blocks = -(-len(pairs) // side)
    if blocks >= 2 * ranks:
        assert max(loads) <= 1.5 * len(pairs) ** 2 / ranks
