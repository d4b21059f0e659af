"""Ranks, alignment and uniformity where they are known in closed form."""

import math

import pytest
import pytorch_lightning as pl
import torch
from helpers.training import METHODS, data, every_method, fit, seeded
from torch.nn import functional as F

from lightning_ssl.callbacks import RankMonitor
from lightning_ssl.callbacks.features import evaluating
from lightning_ssl.callbacks.rank import Moments, alignment, effective_number, uniformity


def ranks(features, batches=3):
    moments = Moments(features.shape[1], features.device)
    for part in features.tensor_split(batches):
        moments.add(part)
    return {key: value.item() for key, value in moments.ranks().items()}


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_isotropic_features_have_full_rank_and_even_spread():
    x = torch.cat([torch.eye(16), -torch.eye(16)])  # centred, of covariance I/16
    found = ranks(x)
    assert found == {
        "rankme": pytest.approx(16),
        "effective": pytest.approx(16),
        "std": pytest.approx(1 / math.sqrt(16)),
    }


def test_features_on_a_line_have_rank_one():
    found = ranks(torch.outer(torch.linspace(-1, 3, 40), random(16, dtype=torch.float32)))
    assert found["rankme"] == pytest.approx(1, abs=1e-4)
    assert found["effective"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_collapsed_features_vary_in_no_direction(scale):
    found = ranks((scale * random(1, 16, dtype=torch.float32)).expand(40, -1))
    assert found["rankme"] == pytest.approx(1, abs=1e-4)
    assert found["effective"] == 0
    assert found["std"] == pytest.approx(0, abs=1e-6)
    assert ranks(torch.zeros(40, 16)) == {"rankme": 0, "effective": 0, "std": 0}


def test_two_of_three_directions():
    """σ = 3, 1, 0 and no mean: p = ¾, ¼ for RankMe, λ ∝ 9, 1 for the covariance."""
    x = torch.tensor([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
    found = ranks(x)
    assert found["rankme"] == pytest.approx(4 / 3**0.75)
    assert found["effective"] == pytest.approx(10 / 9**0.9)


def test_the_ranks_are_those_of_the_singular_values():
    x = random(200, 12, seed=1) * torch.linspace(0.1, 3, 12) + 2
    found = ranks(x)
    for key, matrix, power in (("rankme", x, 1), ("effective", x - x.mean(0), 2)):
        p = torch.linalg.svdvals(matrix) ** power
        p = p / p.sum()
        assert found[key] == pytest.approx(math.exp(-(p * p.log()).sum())), key
    assert found["std"] == pytest.approx(F.normalize(x, dim=1).std(0, unbiased=False).mean().item())


def test_equal_weights_count_fully_and_none_not_at_all():
    weights = torch.tensor([[1.0, 1, 1, 1], [2, 2, 0, 0], [0, 0, 5, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(effective_number(weights), torch.tensor([4.0, 2, 1, 0]))


def test_alignment_and_uniformity_of_known_points():
    e = torch.eye(2)
    assert alignment(e, e) == 0
    assert alignment(e, -e) == 4
    assert uniformity(e[:1].expand(5, -1)) == 0
    torch.testing.assert_close(uniformity(torch.stack([e[0], -e[0]])), torch.tensor(-8.0))
    # far from each other in high dimension: ‖a − b‖² is near 2
    assert uniformity(F.normalize(random(500, 512), dim=1)) == pytest.approx(-4, abs=0.05)


class ByHand(pl.Callback):
    """The same, from all features and views at once."""

    def on_validation_epoch_end(self, trainer, model):
        images = trainer.datamodule.rows("test").images
        with evaluating(model), torch.no_grad():
            features = model(model.augment.unaugmented(images))
            z1, z2 = (F.normalize(model.projector(model(x)), dim=1) for x in model.views(images)[:2])
        uniform = (uniformity(z1) + uniformity(z2)) / 2
        self.expected = {**ranks(features), "alignment": alignment(z1, z2).item(), "uniformity": uniform.item()}


@every_method
def test_a_validation_measures_features_and_two_views(make):
    by_hand = ByHand()
    metrics = fit(seeded(make), [RankMonitor(), by_hand], data()).callback_metrics
    for key, value in by_hand.expected.items():
        assert metrics[f"rank/{key}"].item() == pytest.approx(value, rel=1e-4), key


def test_views_are_taken_of_images_from_every_batch():
    class Watched(RankMonitor):
        def embeddings(self, trainer, pl_module):
            seen.append(torch.cat(self.chosen))
            return super().embeddings(trainer, pl_module)

    seen = []
    model, module = seeded(METHODS["SimCLR"]), data(batch_size=4)
    fit(model, [Watched(images=8)], module, limit_train_batches=1, max_steps=1)
    images = module.rows("test").images  # 16, in 4 batches
    assert torch.equal(seen[0], images.view(4, 4, 3, 32, 32)[:, :2].flatten(0, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda: RankMonitor(every_n_epochs=0), "every_n_epochs=0"), (lambda: RankMonitor(images=1), "images=1")],
)
def test_bad_settings_are_refused_by_name_and_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
