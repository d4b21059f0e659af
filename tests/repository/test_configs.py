"""The files of configs/: any data file works with any method file, and a method file sets only the loss."""

import pytest
import pytorch_lightning as pl
import torch
import yaml
from helpers import ROOT
from PIL import Image

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.base.files import write_atomic
from lightning_ssl.data.download import cached
from lightning_ssl.data.split import Images

DATA = sorted(path.stem for path in (ROOT / "configs/data").glob("*.yaml"))
METHODS = sorted(path.stem for path in (ROOT / "configs/method").glob("*.yaml"))
CLASSES = {
    yaml.safe_load((ROOT / f"configs/method/{name}.yaml").read_text())["model"]["class_path"]: name for name in METHODS
}
# A data file may set an argument that a class does not have. So each data file is tested with each class, and each
# method with one data file.
PAIRS = {("shapes", method) for method in METHODS} | {(data, method) for data in DATA for method in CLASSES.values()}


def files(data, *others):
    return [f"--config={ROOT}/configs/data/{data}.yaml", *(f"--config={ROOT}/configs/{other}.yaml" for other in others)]


@pytest.fixture(scope="module")
def fake_data(tmp_path_factory):
    """Eight random images for every data set, in the layout of its cache."""
    root = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    for name, splits, size, classes in (
        ("cifar10", ("train", "test"), 32, 10),
        ("cifar100", ("train", "test"), 32, 100),
        ("stl10", ("pretrain", "test"), 96, 10),
    ):
        for split in splits:
            images = torch.randint(0, 256, (8, 3, size, size), dtype=torch.uint8)
            made = Images(images, torch.arange(8), tuple(map(str, range(classes))))
            write_atomic(root / name / f"{split}.pt", cached(made))
    for split in ("train", "val"):
        for k in range(8):
            file = root / split / f"class{k % 2}" / f"{k}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((40, 36), 50).convert("RGB").save(file)
    return root


SMALL = {
    "shapes": ['--data.options={"train_images": 8, "test_images": 8}'],
    "folder": ['--data.options={"store_size": 36}', "--model.image_size=32", "--data.workers=0"],
}


@pytest.mark.parametrize(("data", "method"), sorted(PAIRS))
def test_a_data_file_and_a_method_file_train_together(data, method, fake_data):
    small = ["--model.backbone=resnet_tiny", "--data.batch_size=4", f"--data.root={fake_data}", *SMALL.get(data, [])]
    parts = Configuration.parse([*files(data, f"method/{method}"), *small]).build()
    trainer = pl.Trainer(
        max_steps=1, accelerator="cpu", limit_val_batches=0, callbacks=parts.trainer["callbacks"],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(parts.method, parts.data)
    assert trainer.global_step == 1
    assert all(torch.isfinite(p).all() for p in parts.method.parameters())


@pytest.mark.parametrize("data", DATA)
def test_a_data_file_sets_neither_heads_nor_loss(data):
    arguments = yaml.safe_load((ROOT / f"configs/data/{data}.yaml").read_text())["model"]["init_args"]
    assert not {"projector", "predictor", "importance", "tau"} & arguments.keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_file_starts_with_its_command_and_sets_only_the_loss(method):
    text = (ROOT / f"configs/method/{method}.yaml").read_text()
    first = f"# lightning-ssl fit --config configs/data/cifar10.yaml --config configs/method/{method}.yaml\n"
    assert text.startswith(first)
    config = yaml.safe_load(text)
    assert config.keys() <= {"model", "trainer"}
    set_by_data_files = {"backbone", "stem", "augment", "optimization", "image_size", "mean", "std"}
    assert not set_by_data_files & config["model"].get("init_args", {}).keys()


def test_two_files_give_the_last_row_of_table_1(tmp_path):
    config = Configuration.parse([*files("cifar10", "method/direct"), f"--data.root={tmp_path}"]).stored()
    model = config["model"]["init_args"]
    assert config["model"]["class_path"] == "lightning_ssl.AlphaCL"
    direct = {"tau": 0.5, "p": 4.0, "normalize": True}
    assert model["importance"] == {"class_path": "lightning_ssl.Direct", "init_args": direct}
    assert (model["backbone"], model["stem"], model["augment"]) == ("resnet18", "cifar", "paper_cifar")
    assert (config["data"]["batch_size"], model["optimization"]["lr"]) == (128, 0.01)
    assert config["trainer"]["max_epochs"] == 500


def test_the_released_recipe_changes_shuffling_and_schedule(tmp_path):
    plain = Configuration.parse([*files("cifar10", "method/direct"), f"--data.root={tmp_path}"]).stored()
    released = Configuration.parse(
        [*files("cifar10", "recipe/released", "method/direct"), f"--data.root={tmp_path}"]
    ).stored()
    assert (plain["data"]["reshuffle"], released["data"]["reshuffle"]) == (True, False)
    assert released["model"]["init_args"]["optimization"]["schedule"] == "released"
    assert released["model"]["init_args"]["optimization"]["lr"] == 0.01
    assert released["model"]["class_path"] == "lightning_ssl.AlphaCL"
