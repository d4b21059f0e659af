"""What the loss asks of an accelerator: few operators, no synchronisation, exact products. Counted without one."""

import sys

import pytest
import torch
from helpers import ROOT
from helpers.losses import (
    FAMILIES,
    IMPORTANCES,
    close_each,
    label,
    make_views,
    scales_of,
    terms_of,
    value_and_gradients,
)
from helpers.watching import Operators, peak_memory

sys.path.insert(0, str(ROOT / "benchmarks"))

import launches

from lightning_ssl.losses import device
from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.importance import Entropy
from lightning_ssl.losses.row_solver import division_steps
from lightning_ssl.losses.solved import Inverse, Regularized

LOSSES = [PairLoss(rule) for rule in IMPORTANCES] + [FamilyLoss(family) for family in FAMILIES]


BARS = {
    launches.closed_form: 100,
    launches.one_component: 100,
    launches.two_components: 150,
    launches.with_solver: 250,
    launches.own_regularizers: None,
}


@pytest.mark.parametrize("group", BARS)
def test_every_bar_of_the_benchmark_is_reached(group, monkeypatch):
    """At one of its sizes: another test is that the number of operators does not depend on the batch."""
    monkeypatch.setattr(launches, "SIZES", (4096,))
    bars = launches.measure(group(), bar=BARS[group])
    assert [str(bar) for bar in bars if not bar.reached] == []


def test_the_operators_of_a_regularizer_of_the_user_are_stated():
    """Each of the 14 steps of float32 takes 9 operators and those of r' and its inverse, 2 each here."""
    loss = launches.own_regularizers()["Regularized, ½ log α"]
    assert division_steps(torch.float32) == 14
    assert launches.count(loss, 128).operators <= 14 * (9 + 2 + 2) + 120


@pytest.mark.parametrize("loss", LOSSES, ids=label)
def test_the_number_of_operators_does_not_depend_on_the_batch(loss):
    assert launches.count(loss, 16).operators == launches.count(loss, 4096).operators


def test_one_block_holds_16384_anchors_on_a_large_card():
    views = torch.empty(2, 8, device="meta")
    assert device.block_rows(views, 16_384) >= 16_384
    assert device.block_rows(views.double(), 16_384) < 16_384
    assert device.block_rows(torch.empty(2, 8), 16_384) < 128


@pytest.mark.parametrize("loss", LOSSES, ids=label)
def test_the_blocks_of_a_loss_stay_within_their_share_of_memory(loss):
    """One block: all rows. The functions of a user make tensors of their own."""
    rows = 512
    views = [torch.randn(rows // 2, 4) for _ in range(3)]
    with device.acting_as_accelerator(), torch.profiler.profile(profile_memory=True) as profile:
        loss(*views[: 3 if loss.importance.uses_clean_view else 2])
    limit = 12 if isinstance(loss.importance, Regularized) else device.LIVE_BLOCKS
    assert peak_memory(profile) / (rows * rows * views[0].element_size()) < limit


@pytest.mark.parametrize("loss", LOSSES, ids=label)
def test_the_kernel_of_an_accelerator_gives_the_result_of_a_cpu(loss):
    views = make_views()
    expected = value_and_gradients(loss, *views)
    with device.acting_as_accelerator():
        actual = value_and_gradients(loss, *views)
    close_each(actual, expected, terms_of(views), scales_of(loss, views))


def precision():
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


def by_legacy_flag():
    torch.backends.cuda.matmul.allow_tf32 = True


def by_legacy_function():
    torch.set_float32_matmul_precision("medium")


def by_parent():
    torch.backends.fp32_precision = "tf32"


def by_backend():
    torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "tf32"


@pytest.fixture
def restored_precision():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    for setting in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        setting.fp32_precision = "none"


@pytest.mark.parametrize("importance", [Entropy(), Inverse(), lambda p, n, v: torch.exp(-n)], ids=label)
@pytest.mark.parametrize("lower", [by_legacy_flag, by_legacy_function, by_parent, by_backend])
def test_products_are_exact_whatever_the_user_set(lower, importance, restored_precision):
    views, seen = make_views(dtype=torch.float32)[:2], set()

    def note(func, *_):
        if func.overloadpacket.__name__ in ("mm", "addmm_"):
            seen.update(precision())

    lower()
    before = precision()
    assert not set(before) <= {"ieee", "none"}
    with Operators(note):
        PairLoss(importance)(*views).backward()
    assert seen
    assert seen <= {"ieee", "none"}
    assert precision() == before


def test_a_setting_that_was_inherited_is_inherited_again(restored_precision):
    by_parent()
    PairLoss(Entropy())(*make_views(dtype=torch.float32)[:2])
    torch.backends.fp32_precision = "none"
    assert precision() == ("none", "none")


def test_embeddings_that_are_not_finite_give_a_nan_loss_on_an_accelerator():
    for loss in LOSSES:
        views = [z.detach().clone() for z in make_views(dtype=torch.float32)]
        views[0][3, 1] = torch.inf
        with device.acting_as_accelerator():
            assert loss(*views[: 3 if loss.importance.uses_clean_view else 2]).isnan(), loss
