"""An image folder: layout, decoding, worker processes, errors."""

import os
import shutil

import numpy as np
import pytest
import torch
from helpers.refusals import refused
from PIL import Image

from lightning_ssl import data
from lightning_ssl.data import folder
from lightning_ssl.data.folder import decode
from lightning_ssl.data.module import DataModule


def save(file, colour, size=(40, 30), mode="RGB"):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(file)


@pytest.fixture
def root(tmp_path):
    """Three classes by colour, with unusual modes, sizes, suffixes and depths."""
    for split, count in (("train", 5), ("val", 3)):
        for red, name in ((10, "cat"), (120, "ant"), (240, "bee")):
            for i in range(count):
                save(tmp_path / split / name / f"{i}.png", (red, 20 * i, 0), (40 + i, 30 + 3 * i))
    save(tmp_path / "train" / "ant" / "deep" / "er" / "grey.JPEG", (90, 90, 90), (20, 64), "L")
    save(tmp_path / "train" / "bee" / "palette.png", (240, 0, 0), (64, 64), "P")
    save(tmp_path / "train" / "cat" / "cmyk.jpg", (10, 0, 0), (33, 31), "CMYK")
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / "cat" / "._0.png").write_text("a resource fork")
    return tmp_path


def test_files_classes_and_labels_follow_the_layout(root):
    train = data.load("folder", root, "train", store_size=16)
    assert train.classes == ("ant", "bee", "cat")
    assert train.images.shape == (18, 3, 16, 16)
    assert train.labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert len(data.load("folder", root, "test", store_size=16)) == 9
    plain = train.images[train.labels == 1][:5]  # bees 0 … 4, by name
    assert plain[:, 0].unique().tolist() == [240]
    assert plain[:, 1, 0, 0].tolist() == [0, 20, 40, 60, 80]


def test_the_shorter_side_is_resized_and_the_centre_is_cropped(tmp_path):
    pixels = np.zeros((20, 60, 3), dtype=np.uint8)
    pixels[:, 20:40] = 255  # a white middle third
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    for name in ("wide.png", "tall.png"):
        found = decode(str(tmp_path / name), 10)
        assert found.shape == (3, 10, 10)
        assert found[:, 3:7, 3:7].min() >= 250
        assert found.float().mean() > 240


def test_shrinking_is_antialiased(tmp_path):
    checkerboard = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(np.stack([checkerboard] * 3, 2)).save(tmp_path / "board.png")
    found = decode(str(tmp_path / "board.png"), 32).float()
    assert (found - 127.5).abs().max() < 3  # PIL rounds each pass to uint8


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_give_the_same_batches(root, workers):
    module = DataModule("folder", str(root), batch_size=5, workers=workers, options={"store_size": 16})
    module.setup("fit")
    whole = data.load("folder", root, "train", store_size=16)
    loader = module.train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader) == 3
    for images, labels, ids in batches:
        assert images.dtype == torch.uint8
        assert torch.equal(images, whole.images[ids])
        assert torch.equal(labels, whole.labels[ids])
    assert (module.image_size, module.num_classes) == (16, 3)


def test_workers_do_not_count_batches_that_were_only_prefetched(root):
    module = DataModule("folder", str(root), batch_size=3, workers=2, options={"store_size": 16})
    loader = module.train_dataloader()
    batches = iter(loader)
    next(batches)
    assert loader.state_dict() == {"epoch": 0, "batch": 1}
    rest = [ids.tolist() for _, _, ids in batches]
    loader.load_state_dict({"epoch": 0, "batch": 1})
    assert [ids.tolist() for _, _, ids in loader] == rest


def test_workers_do_not_change_the_global_generator(root):
    state = torch.get_rng_state()
    module = DataModule("folder", str(root), batch_size=5, workers=1, options={"store_size": 8})
    list(module.train_dataloader())
    data.load("folder", root, "train", store_size=8)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_folder_without_images_is_rejected(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match="a folder with images in train"):
        data.load("folder", tmp_path, "train")


def test_class_of_only_one_split_is_rejected(root):
    save(root / "val" / "dog" / "0.png", (0, 0, 0))
    with pytest.raises(ValueError, match=r"val and train have the same classes, not \['dog'\]"):
        data.load("folder", root, "test")


# ---------------------------------------------------------------------------------------------------------------------
# Other layouts, and files that cannot be read


@pytest.mark.parametrize("folder", [".", "train"])
def test_a_folder_without_classes_has_training_images_without_labels(tmp_path, capsys, folder):
    for i in range(5):
        save(tmp_path / folder / f"{i}.png", (i, i, i))
    module = DataModule("folder", str(tmp_path), batch_size=2, workers=0, options={"store_size": 8})
    module.prepare_data()
    module.setup("fit")
    module.setup("fit")
    assert [labels.tolist() for _, labels, _ in module.train_dataloader()] == [[-1, -1], [-1, -1]]
    assert module.num_classes == 0
    assert module.val_dataloader() == []
    printed = capsys.readouterr().out
    assert printed.startswith(f"validation is skipped: {tmp_path} has no folder val or test")
    assert len(printed.splitlines()) == 1


def test_class_folders_without_train_are_the_training_images(tmp_path):
    for name in ("ant", "bee"):
        save(tmp_path / name / "0.png", (9, 9, 9))
    (tmp_path / "notes").mkdir()  # without images
    assert data.load("folder", tmp_path, "train", store_size=8).classes == ("ant", "bee")


def test_a_folder_without_val_can_hold_out_a_share_of_each_class(root):
    shutil.rmtree(root / "val")
    options = {"store_size": 8, "val_share": 0.34}
    train, test = (data.open_split("folder", root, split, **options) for split in ("pretrain", "test"))
    assert test.labels.bincount().tolist() == [2, 2, 2]
    assert train.labels.bincount().tolist() == [4, 4, 4]
    assert sorted(train.ids.tolist() + test.ids.tolist()) == list(range(18))
    assert torch.equal(test.ids, data.open_split("folder", root, "test", **options).ids)


test_a_wrong_option_is_refused = refused(
    (lambda: data.load("folder", corrupt="ignore"), "corrupt='ignore': corrupt must be error or skip"),
    (lambda: data.load("folder", store_size=0), "store_size=0: store_size must be between 1 and 4096"),
)


def test_a_share_is_not_held_out_where_there_are_test_images(root):
    with pytest.raises(ValueError, match=r"val_share=0.1: val_share must be 0: .* has test images"):
        data.open_split("folder", root, "train", val_share=0.1)


def test_evaluating_without_test_images_is_one_line(root):
    shutil.rmtree(root / "val")
    with pytest.raises(ValueError, match=r"has no folder val or test; the option val_share: 0\.1 holds out"):
        DataModule("folder", str(root), workers=0).setup("test")


def broken(root):
    file = root / "train" / "ant" / "0.png"
    file.write_bytes(file.read_bytes()[:-30])
    (root / "train" / "bee" / "palette.png").write_bytes(b"half a file")


def test_the_first_unreadable_file_is_named_at_the_start(root):
    broken(root)
    module = DataModule("folder", str(root), batch_size=5, workers=0, options={"store_size": 8})
    with pytest.raises(
        ValueError, match=r"ant.0\.png is not a readable image: .* \(2 of 18 files are unreadable\)"
    ) as no:
        module.prepare_data()
    assert len(str(no.value).splitlines()) == 1


def test_an_image_whose_name_is_not_utf8_is_read(tmp_path):
    for split, name in ((b"train", b"caf\xe9.png"), (b"val", b"0.png")):
        file = os.path.join(os.fsencode(tmp_path), split, b"ant", name)
        os.makedirs(os.path.dirname(file))
        Image.new("RGB", (9, 9), (0, 100, 0)).save(os.fsdecode(file))
    assert data.load("folder", tmp_path, "train", store_size=8).images[0, 1].unique().tolist() == [100]


def test_unreadable_files_are_left_out_with_one_line_that_counts_them(root, capsys):
    broken(root)
    (root / "train" / "ant" / "\x1b[31m.jpg").write_bytes(b"an escape sequence in a name")
    options = {"store_size": 8, "corrupt": "skip"}
    module = DataModule("folder", str(root), batch_size=4, workers=0, options=options)
    module.prepare_data()
    module.setup("fit")
    module.reference_dataloader()
    printed = capsys.readouterr().out
    assert printed.count("3 of 19 images are unreadable and left out") == 1
    assert printed.rstrip("\n").isprintable()
    assert len(module.open_split("train")) == 16

    assert len(list(module.train_dataloader())) == 4


def test_a_checked_folder_is_not_read_again_until_a_file_changes(root, monkeypatch):
    data.open_split("folder", root, "train")
    monkeypatch.setattr(folder, "why_unreadable", lambda file: "read again")
    data.open_split("folder", root, "train")
    save(root / "train" / "ant" / "new.png", (1, 2, 3))
    with pytest.raises(ValueError, match="read again"):
        data.open_split("folder", root, "train")


def test_a_cache_that_cannot_be_written_is_no_error(root, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(data.open_split("folder", root, "train")) == 18
