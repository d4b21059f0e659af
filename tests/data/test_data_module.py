"""Batches: equal steps on any number of ranks, a new permutation every epoch, an exact resume."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from helpers.refusals import refused
from helpers.training import fit
from hypothesis import given
from hypothesis import strategies as st
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_ssl import data
from lightning_ssl.data.module import DataModule, SequentialSampler, ShuffledSampler

SMALL = {"train_images": 50, "test_images": 23}


def small(**arguments):
    return DataModule("shapes", **{"batch_size": 12, "options": SMALL, **arguments})


def as_rank(module, rank, ranks, device="cpu"):
    """The module with the trainer of one rank."""
    strategy = SimpleNamespace(root_device=torch.device(device))
    module.trainer = SimpleNamespace(
        global_rank=rank, world_size=ranks, num_devices=ranks, current_epoch=0, strategy=strategy
    )
    return module


# ---------------------------------------------------------------------------------------------------------------------
# Samplers


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 40), st.integers(0, 3), st.integers(0, 2**40), st.data())
def test_ranks_together_take_the_steps_of_one_process(ranks, share, extra, epoch, seed, draw):
    batch_size = ranks * share
    length = batch_size + extra
    whole = ShuffledSampler(length, batch_size, seed=seed)
    parts = [ShuffledSampler(length, batch_size, rank, ranks, seed) for rank in range(ranks)]
    start = draw.draw(st.integers(0, len(whole)))
    for sampler in (whole, *parts):
        sampler.seek(epoch, start)
    steps = list(whole)
    shards = [list(part) for part in parts]
    assert len(steps) == length // batch_size - start
    assert len(torch.cat([*steps, torch.empty(0)]).unique()) == len(steps) * batch_size  # no image twice
    assert all(len(shard) == len(steps) for shard in shards)
    for step, *pieces in zip(steps, *shards, strict=True):
        assert torch.equal(step, torch.cat(pieces))
        assert all(len(piece) == share for piece in pieces)


def test_the_permutation_depends_only_on_seed_and_epoch():
    sampler = ShuffledSampler(64, 8, seed=5)
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append(torch.cat(list(sampler)))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])
    torch.rand(7)  # the global generator is not used
    again = ShuffledSampler(64, 8, seed=5)
    again.set_epoch(2)
    assert torch.equal(torch.cat(list(again)), epochs[2])
    assert not torch.equal(torch.cat(list(ShuffledSampler(64, 8, seed=6))), epochs[1])  # seeds share no epoch


def test_without_reshuffling_the_first_epoch_repeats():
    sampler = ShuffledSampler(64, 8, reshuffle=False)
    first = sampler.epoch_batches()
    sampler.set_epoch(3)
    assert torch.equal(sampler.epoch_batches(), first)


def test_seek_applies_to_one_pass_of_its_epoch():
    sampler = ShuffledSampler(40, 8)
    sampler.seek(2, 3)
    sampler.set_epoch(2)  # as Lightning does after the state was loaded
    whole = sampler.epoch_batches()
    assert torch.equal(torch.stack(list(sampler)), whole[3:])
    assert torch.equal(torch.stack(list(sampler)), whole)
    sampler.seek(2, 5)
    sampler.set_epoch(3)
    assert len(list(sampler)) == len(sampler) == 5


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 6))
def test_evaluation_has_every_image_once_and_equally_many_batches_per_rank(length, batch_size, ranks):
    if length < ranks:
        with pytest.raises(ValueError, match=f"ranks={ranks}"):
            SequentialSampler(length, batch_size, 0, ranks)
        return
    parts = [list(SequentialSampler(length, batch_size, rank, ranks)) for rank in range(ranks)]
    assert torch.equal(torch.cat([ids for part in parts for ids in part]), torch.arange(length))
    assert len({len(part) for part in parts}) == 1
    assert all(len(ids) > 0 for part in parts for ids in part)


# ---------------------------------------------------------------------------------------------------------------------
# DataModule


def test_a_batch_is_images_labels_and_ids():
    module = small()
    images, labels, ids = next(iter(module.train_dataloader()))
    train = data.load("shapes", split="train", **SMALL)
    assert images.shape == (12, 3, 32, 32)
    assert torch.equal(images, train.images[ids])
    assert torch.equal(labels, train.labels[ids])
    assert len(module.train_dataloader()) == 4
    assert small(workers=4).train_dataloader().workers == 0  # nothing to decode


def test_info_needs_no_data():
    module = DataModule("stl10", root="nowhere")
    assert (module.image_size, module.num_classes) == (96, 10)
    assert module.mean == (0.4467, 0.4398, 0.4066)
    assert module.std == (0.2603, 0.2566, 0.2713)
    assert small(options={"size": 40, **SMALL}).image_size == 40


@pytest.mark.parametrize(("split", "count"), [("train", 48), ("val", 23), ("test", 23), ("reference", 50)])
def test_ranks_together_have_every_image_once(split, count):
    shards = [getattr(as_rank(small(), rank, 2), f"{split}_dataloader")() for rank in range(2)]
    ids = [ids for shard in shards for _, _, ids in shard]
    assert len(torch.cat(ids)) == len(torch.cat(ids).unique()) == count


test_invalid_arguments_are_rejected = refused(
    (lambda: small(seed=-1), "seed=-1"),
    (lambda: small(workers=-1), "workers=-1"),
    (lambda: small(on_device="cuda"), "on_device='cuda': on_device must be true, false or 'auto'"),
    (
        lambda: as_rank(small(batch_size=64), 0, 1).setup("fit"),
        "batch_size=64: batch_size must be between 1 and the number of images, 50",
    ),
    *(
        (lambda share=share: small(holdout=share).setup("fit"), "^holdout=")
        for share in (-1, 1.5, 41, 50, "many", True)
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# In Lightning


class IdRecorder(pl.LightningModule):
    """A model that records the ids of its batches."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, _):
        images, _, ids = batch
        self.seen.append(ids.tolist())
        return self.layer(images.float().mean((1, 2, 3))[:, None]).square().mean()

    def validation_step(self, batch, _):
        pass

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches == 11  # schedules ask for it; it creates the loader early
        return torch.optim.SGD(self.parameters(), 1e-6)


def ids_of_training(folder, resume=None):
    """Eleven steps, four per epoch, with a checkpoint after each."""
    model, keep = IdRecorder(), ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    fit(model, [keep], small(), resume, max_steps=11, enable_checkpointing=True)
    return model.seen


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_gets_a_new_permutation_every_epoch_and_a_resumed_run_the_remaining_batches(tmp_path):
    whole = ids_of_training(tmp_path / "whole")
    assert len(whole) == 11
    sampler = ShuffledSampler(50, 12)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert whole[4 * epoch : 4 * epoch + 4] == sampler.epoch_batches().tolist()
    for stopped in (2, 4, 7):
        rest = ids_of_training(tmp_path / str(stopped), resume=tmp_path / "whole" / f"step={stopped}.ckpt")
        assert rest == whole[stopped:]


def test_the_state_between_two_epochs_is_the_start_of_the_second_and_a_loaded_one_stays_until_the_next_batch():
    loader = small().train_dataloader()
    list(loader)
    assert loader.state_dict() == {"epoch": 0, "batch": 4}
    loader.sampler.set_epoch(1)
    assert loader.state_dict() == {"epoch": 1, "batch": 0}
    loader.load_state_dict({"epoch": 3, "batch": 2})
    assert loader.state_dict() == {"epoch": 3, "batch": 2}


def test_epoch_set_after_the_iterator_was_created_applies():
    """Lightning sets the epoch after it creates the first iterator."""
    loader = small().train_dataloader()
    batches = iter(loader)
    loader.sampler.set_epoch(1)
    expected = ShuffledSampler(50, 12)
    expected.set_epoch(1)
    assert torch.equal(next(batches)[2], expected.epoch_batches()[0])


def test_the_epoch_of_the_trainer_is_read_at_the_first_batch():
    """Lightning 1.9 sets it for a DataLoader only."""
    module = as_rank(small(), 0, 1)
    batches = iter(module.train_dataloader())
    module.trainer.current_epoch = 1
    expected = ShuffledSampler(50, 12)
    expected.set_epoch(1)
    assert torch.equal(next(batches)[2], expected.epoch_batches()[0])


@pytest.mark.parametrize(
    ("on_device", "kind", "limit", "place"),
    [
        ("auto", "cpu", 2**31, "cpu"),
        ("auto", "meta", 2**31, "meta"),
        ("auto", "meta", 50 * 3 * 32 * 32 - 1, "cpu"),
        (False, "meta", 2**31, "cpu"),
        (True, "meta", 1, "meta"),
    ],
)
def test_a_small_split_is_kept_on_an_accelerator(on_device, kind, limit, place, monkeypatch):
    monkeypatch.setattr("lightning_ssl.data.module.MAX_BYTES_ON_DEVICE", limit)
    loader = as_rank(small(on_device=on_device), 0, 1, kind).train_dataloader()
    batches = list(loader)
    assert {part.device.type for batch in batches for part in batch} == {place}
    assert [len(images) for images, _, _ in batches] == [12] * 4


@pytest.mark.parametrize(("on_device", "pinned"), [(False, 3), (True, 0)])
def test_batches_for_a_gpu_are_in_pinned_memory_unless_they_are_on_the_device(on_device, pinned, monkeypatch):
    module = as_rank(small(on_device=on_device), 0, 1, "meta")
    module.setup("fit")
    loader, calls = module.train_dataloader(), []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: calls.append(tensor) or tensor)
    assert len(next(iter(loader))) == 3
    assert len(calls) == pinned  # images, labels and ids


# ---------------------------------------------------------------------------------------------------------------------
# Held-out images


def ids_of(loader):
    return torch.cat([ids for _, _, ids in loader]).tolist()


@pytest.mark.parametrize(("holdout", "counts"), [(10, (10,)), (0.2, range(8, 13)), (7, (7,))])
def test_training_validation_and_references_share_no_image(holdout, counts):
    module = small(holdout=holdout, batch_size=4)
    module.setup("fit")
    held, trained = ids_of(module.val_dataloader()), ids_of(module.train_dataloader())
    references = ids_of(module.reference_dataloader())
    assert len(held) == len(set(held))
    assert len(held) in counts  # a share is rounded in every class
    assert not set(held) & set(trained)
    assert set(trained) <= set(references)
    assert sorted(held + references) == list(range(50))


def test_the_same_share_of_each_class_is_held_out_and_the_seed_decides_which():
    one, two, other = (small(holdout=20, seed=seed) for seed in (3, 3, 4))
    held = torch.cat([labels for _, labels, _ in one.val_dataloader()]).bincount(minlength=10)
    assert held.sum() == 20
    assert (held - 20 / 50 * one.open_split("train").labels.bincount(minlength=10)).abs().max() < 1
    assert ids_of(one.val_dataloader()) == ids_of(two.val_dataloader()) != ids_of(other.val_dataloader())


def test_with_a_holdout_the_test_images_are_not_opened_before_the_test():
    module = small(holdout=0.1)
    module.setup("fit")
    list(module.val_dataloader())
    assert "test" not in module._splits
    assert len(ids_of(module.test_dataloader())) == 23
    assert len(ids_of(module.sequential_dataloader("train"))) == 50  # `evaluate` trains on all of them


def test_images_without_labels_stay_in_training():
    class Unlabelled(DataModule):  # as STL-10: labelled images first
        def open_split(self, split):
            images = super().open_split(split)
            if split == "train":
                return data.Images(images.images[:30], images.labels[:30], images.classes)
            labels = images.labels.clone()
            labels[30:] = -1
            return data.Images(images.images, labels, images.classes)

    module = Unlabelled("shapes", batch_size=2, options=SMALL, holdout=10)
    held = ids_of(module.val_dataloader())
    assert max(held) < 30
    assert sorted(held + ids_of(module.train_dataloader())) == list(range(50))
    assert sorted(held + ids_of(module.reference_dataloader())) == list(range(30))
