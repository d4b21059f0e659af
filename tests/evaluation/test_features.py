"""Feature extraction: the encoder does not change, only labelled images count, divergence is an error."""

import copy

import pytest
import torch
from helpers.closeness import close
from helpers.training import terms_of

from lightning_ssl.data import DataModule
from lightning_ssl.evaluation.features import extract_features, select_device
from lightning_ssl.methods import SimCLR

CPU = torch.device("cpu")


@pytest.fixture
def method():
    """A network whose running statistics differ from the initial ones."""
    torch.manual_seed(0)
    method = SimCLR(backbone="resnet_tiny", augment="paper_cifar")
    method.train()(torch.rand(8, 3, 32, 32))
    return method.eval()


def loader(batch_size=64):
    module = DataModule("shapes", batch_size=batch_size, options={"train_images": 64, "test_images": 128})
    return module.sequential_dataloader("test")


def test_the_encoder_does_not_change_even_in_training_mode(method):
    expected = extract_features(method, loader(), CPU)
    before = copy.deepcopy(method.train().state_dict())
    features, labels = extract_features(method, loader(), CPU)
    assert all(torch.equal(before[name], x) for name, x in method.state_dict().items())
    assert all(part.training for part in method.modules())
    assert torch.equal(features, expected.features)
    assert (features.shape, labels.shape) == ((128, method.backbone.num_features), (128,))
    assert not features.requires_grad


def test_images_without_a_label_are_skipped(method):
    batches = loader(50)
    every = extract_features(method, batches, CPU)
    batches.split.labels[::2] = -1
    half = extract_features(method, batches, CPU)
    close(half.features, every.features[1::2], terms=terms_of(method.backbone))
    assert torch.equal(half.labels, every.labels[1::2])
    batches.split.labels[:] = -1
    with pytest.raises(ValueError, match="no image has a label"):
        extract_features(method, batches, CPU)


def test_features_that_are_not_finite_are_rejected(method):
    with torch.no_grad():
        method.backbone.conv1.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite numbers"):
        extract_features(method, loader(), CPU)


def test_progress_advances_once_per_batch(method):
    steps = []
    extract_features(method, loader(), CPU, lambda: steps.append(1))
    assert len(steps) == len(loader())


def test_an_unknown_device_is_rejected():
    assert select_device("cpu") == CPU
    with pytest.raises(ValueError, match=r"device='abacus': device must be auto or"):
        select_device("abacus")
