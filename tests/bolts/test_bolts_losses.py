"""Our losses equal those of lightning-bolts, and float64 loops where bolts is inaccurate."""

import oracles
import pytest
import torch
from pl_bolts.models.self_supervised import BYOL as BoltsBYOL
from pl_bolts.models.self_supervised import SimCLR as BoltsSimCLR
from pl_bolts.models.self_supervised import SimSiam as BoltsSimSiam
from torch.nn.functional import normalize

from lightning_ssl.app.commands.import_bolts import Bolts, convert
from lightning_ssl.losses.energy import FamilyLoss
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.methods import BYOL, Head, SimCLR, SimSiam
from lightning_ssl.methods.base import Views
from lightning_ssl.methods.siamese import PredictorHead


def embeddings(dtype, seed=0):
    """Two correlated views: at every temperature the loss is neither 0 nor that of random embeddings."""
    generator = torch.Generator().manual_seed(seed)
    z1, noise = torch.randn(2, 16, 32, dtype=torch.float64, generator=generator)
    return [normalize(normalize(z, dim=1).to(dtype), dim=1) for z in (z1, 0.7 * z1 + noise)]


def nt_xent_of_bolts(z1, z2, tau):
    return BoltsSimCLR.nt_xent_loss(None, z1, z2, tau)  # the method does not use self


def nt_xent_of_ours(z1, z2, tau):
    return FamilyLoss(InfoNCE(tau))(z1, z2) / tau


def nt_xent_by_loops(z1, z2, tau):
    distances = oracles.distances(z1.double(), z2.double(), "both")
    return oracles.family_values("InfoNCE", *distances, tau=tau).mean() / tau


def gradients(loss, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(loss(*inputs), inputs)


@pytest.mark.parametrize(("tau", "tolerance"), [(1.0, 1e-6), (0.5, 1e-6), (0.2, 1e-6), (0.1, 1e-4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nt_xent_of_bolts_is_ours_over_tau_at_large_tau(tau, tolerance, dtype):
    z = embeddings(dtype)
    torch.testing.assert_close(nt_xent_of_ours(*z, tau), nt_xent_of_bolts(*z, tau), rtol=tolerance, atol=0)
    # Gradients along the sphere: bolts subtracts e^{1/τ} as a constant, so its value also depends on the norms of the
    # embeddings. The normalization of the method removes this part of the gradient.
    for ours, theirs, x in zip(
        gradients(lambda a, b: nt_xent_of_ours(a, b, tau), *z),
        gradients(lambda a, b: nt_xent_of_bolts(a, b, tau), *z),
        z,
        strict=True,
    ):
        tangential = [g - (g * x).sum(1, keepdim=True) * x for g in (ours, theirs)]
        torch.testing.assert_close(*tangential, rtol=0, atol=100 * tolerance * float(ours.abs().max()))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [0.02, 0.015])
def test_nt_xent_of_bolts_is_wrong_at_small_tau_and_ours_is_not(tau, dtype, seed):
    z = embeddings(dtype, seed)
    truth = nt_xent_by_loops(*z, tau)
    # bolts computes e^{1/τ} in float32 even for float64 embeddings. Its rounding error is larger than the negatives.
    assert abs(nt_xent_of_bolts(*z, tau) - truth) > truth
    torch.testing.assert_close(nt_xent_of_ours(*z, tau).double(), truth, rtol=2e-6, atol=0)


def test_at_tau_one_hundredth_bolts_overflows_and_ours_does_not():
    z = embeddings(torch.float32)
    with pytest.raises(RuntimeError, match="overflow"):
        nt_xent_of_bolts(*z, 0.01)
    torch.testing.assert_close(nt_xent_of_ours(*z, 0.01).double(), nt_xent_by_loops(*z, 0.01), rtol=2e-6, atol=0)


# ---------------------------------------------------------------------------------------------------------------------
# Whole methods, on the same weights and the same views

SIZES = {"base_encoder": "resnet18", "encoder_out_dim": 512, "projector_hidden_dim": 64, "projector_out_dim": 16}


def views():
    return Views(*torch.rand(2, 6, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))


def both(theirs):
    """A model of bolts and our model with the same weights, in float64."""
    torch.manual_seed(0)
    theirs = theirs()
    state = convert(Bolts(theirs.state_dict(), dict(theirs.hparams), 0, 0)).checkpoint["state_dict"]
    network = {"backbone": "resnet18", "stem": "standard"}
    if isinstance(theirs, BoltsSimCLR):
        ours = SimCLR(tau=0.5, projector=Head(512, 128, norm="bn"), backbone="resnet18", stem="cifar")
    elif isinstance(theirs, BoltsBYOL):
        ours = BYOL(projector=Head(64, 16, norm="bn"), predictor=PredictorHead(64), **network)
    else:
        ours = SimSiam(projector=Head(64, 16, norm="bn"), predictor=PredictorHead(8), **network)
    ours.load_state_dict(state)
    return ours.double(), theirs.double()


def assert_same_gradients(ours, encoder, scale=1.0):
    theirs = dict(encoder.named_parameters())
    for name, p in ours.backbone.named_parameters():
        torch.testing.assert_close(p.grad, scale * theirs[name].grad, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "constant"),
    [(lambda: BoltsBYOL(**SIZES), 4), (lambda: BoltsSimSiam(predictor_hidden_dim=8, **SIZES), 0)],
    ids=["BYOL", "SimSiam before the first step"],
)
def test_the_siamese_losses_are_those_of_bolts_but_for_a_constant(make, constant):
    ours, theirs = both(make)
    x1, x2, _ = views()
    loss = theirs.calculate_loss(x1, x2) + theirs.calculate_loss(x2, x1)
    mine = ours.compute_loss(views())
    torch.testing.assert_close(mine, loss + constant)
    loss.backward()
    mine.backward()
    assert_same_gradients(ours, theirs.online_network.encoder)


def test_the_target_of_bolts_simsiam_is_never_updated():
    _, theirs = both(lambda: BoltsSimSiam(predictor_hidden_dim=8, **SIZES))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
    before = [p.clone() for p in theirs.target_network.parameters()]
    x1, x2, _ = views()
    for _ in range(2):
        optimizer.zero_grad()
        loss = theirs.calculate_loss(x1, x2) + theirs.calculate_loss(x2, x1)
        loss.backward()
        optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(theirs.target_network.parameters(), before, strict=True))
    moved = zip(theirs.online_network.parameters(), before, strict=True)
    assert not any(torch.equal(p, q) for p, q in moved if p.grad.any())


def test_the_loss_of_simclr_is_tau_times_that_of_bolts_in_evaluation_mode():
    settings = {"gpus": 0, "num_samples": 8, "batch_size": 4, "dataset": "cifar10", "arch": "resnet18"}
    settings |= {"hidden_mlp": 512, "temperature": 0.5, "first_conv": False, "maxpool1": False}
    ours, theirs = (model.eval() for model in both(lambda: BoltsSimCLR(**settings)))
    x1, x2, _ = views()
    loss = theirs.shared_step(((x1, x2, x1), None))
    mine = ours.compute_loss(views())
    torch.testing.assert_close(mine, 0.5 * loss, rtol=1e-6, atol=0)
    loss.backward()
    mine.backward()
    assert_same_gradients(ours, theirs.encoder, scale=0.5)

    # In training mode our batch norms see both views as one batch, as in SimCLR; those of bolts see each view alone.
    ours.train()
    theirs.train()
    assert abs(ours.compute_loss(views()) - 0.5 * theirs.shared_step(((x1, x2, x1), None))) > 1e-4
