"""Ranks, alignment and uniformity where they are known in closed form."""

import math

import pytest
import pytorch_lightning as pl
import torch
from helpers.closeness import bound, close
from helpers.training import METHODS, data, every_method, fit, seeded, terms_of
from helpers.watching import watch
from torch.nn import functional as F

from lightning_ssl.callbacks import FeatureSpectrum
from lightning_ssl.callbacks.spectrum import RESOLUTION, Moments, alignment, uniformity
from lightning_ssl.networks import eval_mode


def ranks(features, batches=3):
    moments = Moments(features.shape[1], features.device)
    for part in features.tensor_split(batches):
        moments.add(part)
    return {key: value.item() for key, value in moments.ranks().items()}


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


# float32 features on a line leave the line by rounding: in 15 directions by up to √RESOLUTION of their length
OFF_THE_LINE = 15 * RESOLUTION**0.5 * abs(math.log(RESOLUTION**0.5))


def test_features_on_a_line_have_rank_one():
    found = ranks(torch.outer(torch.linspace(-1, 3, 40), random(16, dtype=torch.float32)))
    assert found["rankme"] == pytest.approx(1, abs=OFF_THE_LINE)
    assert found["effective"] == pytest.approx(1, abs=OFF_THE_LINE)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_collapsed_features_have_no_effective_rank_and_no_spread(scale):
    found = ranks((scale * random(1, 16, dtype=torch.float32)).expand(40, -1))
    assert found["rankme"] == pytest.approx(1, abs=OFF_THE_LINE)
    assert found["effective"] == 0
    assert found["std"] < bound(torch.float64, 1.0, terms=40) ** 0.5  # the root of a difference of squares
    assert ranks(torch.zeros(40, 16)) == {"rankme": 0, "effective": 0, "std": 0}


def test_ranks_follow_from_the_singular_values():
    x = random(200, 12, seed=1) * torch.linspace(0.1, 3, 12) + 2
    found = ranks(x)
    for key, matrix, power in (("rankme", x, 1), ("effective", x - x.mean(0), 2)):
        sigma = torch.linalg.svdvals(matrix)
        p = sigma**power / (sigma**power).sum()
        # eigenvalues are σ², with an error of eps σ²_max: that of the smallest σ is larger by σ_max/σ_min
        close(found[key], math.exp(-(p * p.log()).sum()), terms=x.numel(), gain=float(sigma[0] / sigma[-1]), where=key)
    close(found["std"], F.normalize(x, dim=1).std(0, unbiased=False).mean().item(), terms=len(x))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_features_that_are_not_finite_have_no_ranks(value):
    moments = Moments(3, torch.device("cpu"))
    moments.add(torch.full((4, 3), value))
    assert all(rank.isnan() for rank in moments.ranks().values())


def test_alignment_and_uniformity_of_known_points():
    e = torch.eye(2)
    assert alignment(e, e) == 0
    assert alignment(e, -e) == 4
    assert uniformity(e[:1].expand(5, -1)) == 0
    close(uniformity(torch.stack([e[0], -e[0]])), torch.tensor(-8.0), terms=2)
    # random directions in 512 dimensions: ‖a − b‖² is near 2
    assert uniformity(F.normalize(random(500, 512), dim=1)) == pytest.approx(-4, abs=0.05)


class ByHand(pl.Callback):
    """The same from all features and views at once."""

    def on_validation_epoch_end(self, trainer, model):
        images = trainer.datamodule.open_split("test").images
        with eval_mode(model), torch.no_grad():
            features = model(model.augment.unaugmented(images))
            z1, z2 = (F.normalize(model.projector(model(x)), dim=1) for x in model.views(images)[:2])
        uniform = (uniformity(z1) + uniformity(z2)) / 2
        self.expected = {**ranks(features), "alignment": alignment(z1, z2).item(), "uniformity": uniform.item()}


@every_method
def test_a_validation_measures_all_features_and_two_views(make):
    by_hand = ByHand()
    model = seeded(make)
    metrics = fit(model, [FeatureSpectrum(), by_hand], data()).callback_metrics
    for key, value in by_hand.expected.items():
        close(metrics[f"spectrum/{key}"], torch.tensor(value), terms=terms_of(model), where=key)


def test_views_are_of_images_from_every_batch():
    callback = FeatureSpectrum(images=8)
    seen = watch(callback, "embeddings", lambda *_: torch.cat(callback.chosen))
    model, module = seeded(METHODS["SimCLR"]), data(batch_size=4)
    fit(model, [callback], module, limit_train_batches=1, max_steps=1)
    images = module.open_split("test").images  # 16, in 4 batches
    assert torch.equal(seen[0], images.view(4, 4, 3, 32, 32)[:, :2].flatten(0, 1))
