"""The user's own data sets: from Python, by path, from the Hugging Face hub, and as a LightningDataModule."""

import multiprocessing
import sys
import textwrap
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from helpers.refusals import refused
from helpers.training import fit
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from lightning_ssl import data
from lightning_ssl.callbacks import OnlineKNN, OnlineProbe
from lightning_ssl.data import map_style
from lightning_ssl.data.loader import decoded_batches
from lightning_ssl.data.module import DataModule
from lightning_ssl.methods import SimCLR


class Colours(Dataset):
    """Item i is an image of one grey value, 10·i, with the label i mod 3."""

    def __init__(self, count=12, make=lambda grey: torch.full((3, 8, 8), grey, dtype=torch.uint8), labelled=True):
        self.count, self.make, self.labelled = count, make, labelled

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = self.make(10 * index % 256)
        return (image, index % 3) if self.labelled else image


def ready(module):
    """The module after its set-up for a training."""
    module.setup("fit")
    return module


FORMS = {
    "uint8 tensor": lambda grey: torch.full((3, 8, 8), grey, dtype=torch.uint8),
    "float tensor": lambda grey: torch.full((3, 8, 8), grey / 255),
    "one channel": lambda grey: torch.full((1, 8, 8), grey, dtype=torch.uint8),
    "no channel": lambda grey: np.full((8, 8), grey, dtype=np.uint8),
    "array, channels last": lambda grey: np.full((8, 8, 3), grey, dtype=np.uint8),
    "float array": lambda grey: np.full((8, 8, 3), grey / 255),
    "PIL image": lambda grey: Image.new("RGB", (8, 8), (grey,) * 3),
    "grey PIL image": lambda grey: Image.new("L", (8, 8), grey),
    "wide tensor": lambda grey: torch.full((3, 8, 24), grey, dtype=torch.uint8),
    "other sizes": lambda grey: Image.new("RGB", (8 + grey, 8), (grey,) * 3),
}


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_image_gives_the_same_batches(make):
    module = ready(DataModule.of(Colours(make=make), batch_size=4, workers=0))
    for images, labels, ids in module.train_dataloader():
        assert images.dtype == torch.uint8
        assert images.shape == (4, 3, 8, 8)
        assert torch.equal(images[:, 0, 0, 0].long(), 10 * ids)
        assert torch.equal(labels, ids % 3)


def test_images_without_labels_have_no_classes():
    module = DataModule.of(Colours(labelled=False), batch_size=12, workers=0)
    assert (module.num_classes, next(iter(module.train_dataloader()))[1].unique().tolist()) == (0, [-1])


def test_a_data_set_describes_itself():
    module = DataModule.of(Colours(), Colours(6), batch_size=4)
    assert (module.image_size, module.num_classes) == (8, 3)
    pixels = torch.arange(12) * 10 / 255
    assert module.mean == (round(pixels.mean().item(), 4),) * 3
    assert DataModule.of(Colours(), batch_size=4, store_size=4, num_classes=7).num_classes == 7


def test_a_share_of_each_class_is_held_out():
    module = DataModule.of(Colours(30), batch_size=4, workers=0, val_share=0.2)
    test, train = module.open_split("test").load(), module.open_split("train").load()
    assert test.labels.bincount().tolist() == [2, 2, 2]
    assert train.labels.bincount().tolist() == [8, 8, 8]
    grey = torch.cat([test.images, train.images])[:, 0, 0, 0]
    assert sorted(grey.tolist()) == sorted((10 * torch.arange(30) % 256).tolist())


class Failing(Colours):
    mean = std = (0.5, 0.5, 0.5)

    def __getitem__(self, index):
        if index == 5:
            raise KeyError("no such picture")
        return super().__getitem__(index)


class Endless(IterableDataset):
    def __iter__(self):
        yield 0


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_an_item_is_one_line_with_its_place(workers):
    module = DataModule.of(Failing(), batch_size=12, workers=workers, num_classes=3, store_size=8)
    with pytest.raises(
        ValueError, match=r"item 5 of the data set: .*test_user_data.py:\d+: KeyError: 'no such"
    ) as refused:
        list(module.train_dataloader())
    assert len(str(refused.value).splitlines()) == 1
    assert not multiprocessing.active_children()  # while the traceback is kept


def held_batches():
    """Take one of four batches; the process then ends."""
    held.append(decoded_batches(torch.Tensor.clone, torch.arange(16).split(4), workers=1))
    next(held[0])


held = []  # as in the traceback of an error, or in a notebook


def test_a_process_that_ends_within_an_epoch_does_not_wait_for_its_workers():
    process = multiprocessing.get_context("fork").Process(target=held_batches)
    process.start()
    process.join(600)
    process.kill()
    assert process.exitcode == 0


test_an_unusable_data_set_is_refused = refused(
    (lambda: DataModule.of(Endless()), "train: Endless is no map-style data set; expected __len__ and __getitem__"),
    (lambda: DataModule.of(Colours(0)), "at least one item"),
    (lambda: DataModule.of(Colours(make=lambda g: torch.zeros(5, 8, 8))), r"an image of shape \(5, 8, 8\); expec"),
    (
        lambda: DataModule.of(Colours(make=lambda g: torch.full((3, 8, 8), 2.0))),
        "values from 2 to 2.*not normalize",
    ),
    (lambda: DataModule.of(Colours(make=lambda g: "x.jpg")), "an image of type str; expected a PIL image"),
    (lambda: DataModule.of(Colours(make=lambda g: torch.zeros(3, 8, 8).long())), "an image of torch.int64"),
    (
        lambda: DataModule.of(TensorDataset(torch.zeros(3, 3, 8, 8), torch.zeros(3))),
        "a label 0.0; expected a whole",
    ),
    (lambda: DataModule.of(Colours(), Colours(), val_share=0.1), "val_share=0.1: val_share must be 0 where there"),
    (lambda: DataModule.of(Colours(labelled=False), val_share=0.1).setup("fit"), "validation needs labels"),
)


def test_describing_a_data_set_leaves_the_random_numbers_alone():
    state = torch.get_rng_state()
    noisy = Colours(make=lambda grey: torch.rand(3, 8, 8))
    first, second = (DataModule.of(noisy, batch_size=4).mean for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("test", [Colours(16), None])
def test_a_method_trains_on_an_own_data_set_and_without_test_images_there_is_no_validation_and_no_warning(test):
    module = DataModule.of(Colours(32, FORMS["PIL image"]), test, batch_size=16, workers=0, store_size=32)
    runner = fit(SimCLR(backbone="resnet_tiny"), [OnlineProbe(), OnlineKNN(k=3, every_n_epochs=1)], module)
    assert {"online/top1", "knn/top1"} & runner.callback_metrics.keys() == (
        {"online/top1", "knn/top1"} if test else set()
    )
    assert runner.limit_val_batches == 1.0  # as before, for other data


# ---------------------------------------------------------------------------------------------------------------------
# By path

MODULE = """
    import torch
    from torch.utils.data import TensorDataset

    calls = []

    def make(split, count=12, grey=0):
        calls.append(split)
        labels = torch.arange(count) % 3
        return TensorDataset(torch.full((count, 3, 8, 8), grey + (split == "test"), dtype=torch.uint8), labels)

    def only_train(count: int = 12):
        return make("train", count)

    class LikeTorchvision:
        classes = ["cat", "dog"]

        def __init__(self, root, train=True):
            self.root, self.labels = root, [0, 1, 0, 1] if train else [0, 1]

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, index):
            return torch.zeros(3, 8, 8), self.labels[index]
"""


@pytest.fixture
def mine(working_directory):
    (working_directory / "photos.py").write_text(textwrap.dedent(MODULE))
    return working_directory


def test_a_function_is_called_once_per_split_with_its_options(mine):
    module = DataModule("photos.make", batch_size=4, workers=0, options={"count": 8, "grey": 5})
    module.prepare_data()
    module.setup("fit")
    assert (len(module.open_split("train")), len(module.open_split("test"))) == (8, 8)
    assert module.open_split("train").load().images.unique().tolist() == [5]
    assert module.open_split("test").load().images.unique().tolist() == [6]
    assert sys.modules["photos"].calls == ["train", "test"]
    assert module.num_classes == 3


def test_a_class_with_root_and_train_works_as_those_of_torchvision(mine):
    module = ready(DataModule("photos.LikeTorchvision", root="somewhere", batch_size=2, workers=0))
    assert (len(module.open_split("train")), len(module.open_split("test"))) == (4, 2)
    assert module.open_split("train").dataset.root == "somewhere"
    assert module.open_split("train").classes == ("cat", "dog")


def test_a_function_without_split_gives_training_images_only(mine, capsys):
    module = ready(DataModule("photos.only_train", batch_size=4, workers=0))
    assert module.val_dataloader() == []
    assert "validation is skipped: data.name=photos.only_train has no test images" in capsys.readouterr().out
    held_out = DataModule("photos.only_train", options={"val_share": 0.25})
    assert len(held_out.open_split("test")) == 3
    with pytest.raises(ValueError, match=r"only_train has no test images; val_share=0\.1"):
        module.setup("test")


def test_an_option_that_the_function_does_not_take_is_refused(mine):
    with pytest.raises(
        ValueError, match=r"options.cuont=3: unknown key cuont for photos.make .*; did you mean count\?"
    ):
        DataModule("photos.make", options={"cuont": 3})


# ---------------------------------------------------------------------------------------------------------------------
# The Hugging Face hub


class FakeRows:
    """The part of `datasets.Dataset` that is used."""

    def __init__(self, count, label):
        self.count, self.label = count, label
        self.features = {"picture_id": SimpleNamespace(), "img": SimpleNamespace()}
        if label:
            self.features[label] = SimpleNamespace(names=["cat", "dog"])

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        if isinstance(key, str):
            return [i % 2 for i in range(self.count)]
        row = {"picture_id": key, "img": Image.new("RGB", (8, 8), (key, 0, 0))}
        return row | ({self.label: key % 2} if self.label else {})


@pytest.fixture
def hub(monkeypatch):
    module = ModuleType("datasets")
    module.asked = []

    def load_dataset(name, **arguments):
        module.asked.append((name, arguments))
        if name == "absent":
            raise FileNotFoundError("Dataset 'absent' doesn't exist on the Hub")
        return {"train": FakeRows(8, "label"), "validation": FakeRows(4, "label")}

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    map_style.kept.clear()
    return module


def test_a_hub_data_set_gives_its_splits(hub):
    module = ready(DataModule("hf:org/pets", batch_size=4, workers=0, options={"revision": "main"}))
    assert hub.asked == [("org/pets", {"revision": "main"})]
    assert (len(module.open_split("train")), len(module.open_split("test"))) == (8, 4)
    assert (module.image_size, module.num_classes) == (8, 2)
    assert module.open_split("train").load().labels.tolist() == [0, 1] * 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hf:absent", {}, "data.name=hf:absent: datasets.load_dataset failed: .*doesn't exist on the Hub"),
        ("hf:x", {"image": "photo"}, "data.options.image='photo': choose one of picture_id, img, label of hf:x"),
        ("hf:x", {"test": "dev"}, "data.options.test='dev': choose one of train, validation of hf:x"),
    ],
)
def test_a_mistake_about_the_hub_is_one_line(hub, name, options, message):
    with pytest.raises(ValueError, match=message):
        DataModule(name, options=options)


def test_a_missing_library_is_named_with_its_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    map_style.kept.clear()
    with pytest.raises(ValueError, match=r"data\.name=hf:x: it needs the package datasets: pip install datasets$"):
        DataModule("hf:x")


# ---------------------------------------------------------------------------------------------------------------------
# A LightningDataModule


class Own(pl.LightningDataModule):
    num_classes = 3

    def __init__(self, change=lambda images, labels: (images, labels)):
        super().__init__()
        self.change = change

    def loader(self, count):
        images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(images, torch.arange(count) % 3), 8, collate_fn=self.collate)

    def collate(self, items):
        images, labels = zip(*items, strict=True)
        return self.change(torch.stack(images), torch.stack(labels))

    def train_dataloader(self):
        return self.loader(32)

    def val_dataloader(self):
        return self.loader(16)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("change", [lambda x, y: (x, y), lambda x, y: (x, y, y)], ids=["two parts", "with ids"])
def test_an_own_module_works_with_methods_and_callbacks(change):
    callbacks = [OnlineProbe(), OnlineKNN(k=3, every_n_epochs=1)]
    runner = fit(SimCLR(backbone="resnet_tiny"), callbacks, data.adapt(Own(change)))
    assert {"online/top1", "knn/top1"} <= runner.callback_metrics.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: x, r"the first batch of train_dataloader is of type torch.uint8 \(8, 3, 32, 32\); expected"),
        (
            lambda x, y: (x.float() / 255, y),
            r"has images torch.float32 \(8, 3, 32, 32\) and .*; expected \(images uint8",
        ),
        (lambda x, y: (x[:, :1], y), r"has images torch.uint8 \(8, 1, 32, 32\)"),
        (lambda x, y: (x, y.float()), r" and labels torch.float32 \(8,\)"),
        (lambda x, y: (x, y[:3]), r" and labels torch.int64 \(3,\)"),
        (lambda x, y: (x, None), " and labels NoneType"),
    ],
)
def test_a_batch_of_another_form_is_refused_at_setup(change, message):
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=rf"test_user_data.py:\d+: .*{message}"):
        data.check_batches(Own(change))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_number_of_classes_must_be_known():
    module = Own()
    module.num_classes = None
    with pytest.raises(ValueError, match="num_classes=None: num_classes must be given, or an attribute"):
        data.adapt(module)
    assert data.adapt(module, num_classes=3).num_classes == 3


def test_references_are_shared_by_the_ranks():
    found = []
    for rank in range(2):
        module = data.adapt(Own(lambda x, y: (x, y, y)))
        module.trainer = SimpleNamespace(global_rank=rank, world_size=2)
        found.append(sum(len(images) for images, _, _ in module.reference_dataloader(20)))
    assert found == [12, 8]
