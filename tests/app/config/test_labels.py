"""The label of a loss, and the flags of a configuration."""

import pytest
from helpers.run_folders import config_of

from lightning_ssl.app.config.labels import flatten, label_of, label_of_config, short_label


def test_configuration_is_flattened_to_its_flags():
    tree = {
        "model": {"class_path": "a.b.AlphaCL", "init_args": {"importance": {"class_path": "Direct"}, "beta": 0.0}},
        "trainer": {"callbacks": [
            {"class_path": "x.WeightNoise", "init_args": {"std": 0.01}}, {"class_path": "x.Timer", "init_args": {}},
        ]},
        "data": {"options": {"train_images": 10}, "mean": [1, 2]},
    }  # fmt: skip
    assert flatten(tree) == {
        "model": "AlphaCL",
        "model.importance": "Direct",
        "model.beta": 0.0,
        "trainer.callbacks.WeightNoise.std": 0.01,
        "trainer.callbacks.Timer": None,
        "data.options.train_images": 10,
        "data.mean": "[1, 2]",
    }


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        ("infonce", "SimCLR InfoNCE τ=0.5"),
        ("direct_p6", "AlphaCL Direct p=6 τ=0.5"),
        ("direct_unnormalized", "AlphaCL Direct normalize=no p=4 τ=0.5"),
        ("backprop_alpha", "AlphaCL Entropy backprop_alpha τ=0.5"),
        ("inverse", "AlphaCL Inverse γ=2 τ=0.5"),
        ("quadratic", "AlphaCL Quadratic"),
        ("byol", "BYOL momentum=0.996"),
    ],
)
def test_a_loss_is_named_by_its_method_and_its_parameters(loss, label):
    assert label_of_config(config_of(loss)) == label


def test_noise_in_the_weights_is_part_of_the_loss():
    plain = {"model": "AlphaCL", "model.importance": "Exact"}
    assert label_of(plain) == "AlphaCL Exact"
    noisy = {**plain, "trainer.callbacks.WeightNoise.std": 0.01}
    assert label_of({**noisy, "trainer.callbacks.WeightNoise.added_to": "update"}) == "AlphaCL Exact noise=0.01"
    assert label_of({**noisy, "trainer.callbacks.WeightNoise.added_to": "epoch"}) == (
        "AlphaCL Exact added_to=epoch noise=0.01"
    )


def test_the_short_label_has_no_parameters():
    assert [short_label(config_of(loss)) for loss in ("infonce", "direct", "quadratic")] == [
        "SimCLR", "AlphaCL Direct", "AlphaCL Quadratic",
    ]  # fmt: skip
