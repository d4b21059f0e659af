"""Run folders as `lightning-ssl fit` writes them, with artificial curves.

write_run(folder, loss="direct", seed=3, accuracy=0.71, epochs=20)
"""

import csv
import json
import math
import random
from pathlib import Path

import pytest
import yaml

from lightning_ssl.app.report.groups import Grouping
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.sweep.state import recorded

METHODS = "lightning_ssl.methods."
PARTS = "lightning_ssl.losses."  # importances and families


def alpha_cl(name, beta=0.0, backprop_alpha=False, **parameters):
    importance = {"class_path": PARTS + name, "init_args": parameters}
    arguments = {"importance": importance, "anchors": "both", "beta": beta, "backprop_alpha": backprop_alpha}
    return {"class_path": METHODS + "AlphaCL", "init_args": arguments}


def from_family(name, **parameters):
    return alpha_cl("FromFamily", family={"class_path": PARTS + name, "init_args": parameters})


LOSSES = {
    "infonce": {"class_path": METHODS + "SimCLR", "init_args": {"tau": 0.5, "eps": 1.0, "anchors": "both"}},
    "quadratic": from_family("Quadratic"),
    "entropy": alpha_cl("Entropy", tau=0.5),
    "backprop_alpha": alpha_cl("Entropy", tau=0.5, backprop_alpha=True),
    "inverse": alpha_cl("Inverse", tau=0.5, gamma=2.0),
    "square": alpha_cl("Square", tau=5.0),
    "direct": alpha_cl("Direct", tau=0.5, p=4.0, normalize=True),
    "direct_p6": alpha_cl("Direct", tau=0.5, p=6.0, normalize=True),
    "direct_unnormalized": alpha_cl("Direct", tau=0.5, p=4.0, normalize=False),
    "simsiam": {"class_path": METHODS + "SimSiam", "init_args": {"predictor": None}},
    "byol": {"class_path": METHODS + "BYOL", "init_args": {"momentum": 0.996, "predictor": None}},
}
COLUMNS = (
    "train/loss_step", "train/loss_epoch", "lr", "images_per_second", "online/top1", "online/top5", "online/loss",
    "knn/top1", "spectrum/rankme", "spectrum/effective", "spectrum/std", "spectrum/alignment",
    "spectrum/uniformity", "alpha/entropy",
    "alpha/effective_negatives", "alpha/zeros", "alpha/top1",
)  # fmt: skip


def config_of(loss="direct", seed=0, epochs=10, data="shapes", batch_size=256, backbone="resnet_tiny", lr=0.01):
    model = json.loads(json.dumps(LOSSES[loss]))
    model["init_args"] |= {
        "backbone": backbone, "stem": None, "image_size": 32, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25],
        "augment": "paper_stl10" if data == "stl10" else "paper_cifar",
        "projector": {"hidden": 512, "out": 128, "layers": 2},
        "optimization": {"name": "adam", "lr": lr, "momentum": 0.9, "weight_decay": 0.0, "schedule": "constant"},
        "seed": seed, "channels_last": False, "compile": False,
    }  # fmt: skip
    return {
        "seed_everything": seed,
        "trainer": {"max_epochs": epochs, "accelerator": "cpu", "devices": 1, "precision": None, "logger": None},
        "model": model,
        "data": {"name": data, "root": "data", "batch_size": batch_size, "seed": seed, "options": None},
        "probe": {"lr": 0.001}, "knn": {"k": 20}, "spectrum": {}, "importance_monitor": {}, "group": None, "tags": [],
    }  # fmt: skip


def write_run(
    folder, loss="direct", seed=0, accuracy=0.7, epochs=10, status="finished", error=None, linear=None, change=None,
    points=None, full=False, **settings,
):  # fmt: skip
    """One run folder that ends at exactly `accuracy`; `full` fills every cell, `change` edits the config."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    config = config_of(loss, seed, epochs, **settings)
    if change:
        change(config)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    draw = random.Random(f"{loss}{seed}{folder.name}")
    points = epochs if points is None else points
    last = {}
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as stream:
        for epoch in range(points):
            values = curve_point(loss, (epoch + 1) / points, epoch == points - 1, accuracy, draw)
            if not full:
                write_event(stream, epoch, 20 * epoch + 10, {COLUMNS[0]: values[0]})
            last = dict(zip(COLUMNS[not full :], values[not full :], strict=True))
            write_event(stream, epoch, 20 * epoch + 20, last)
    summary = {
        "name": folder.name, "status": status, "error": error, "label": loss,
        "command": ["lightning-ssl", "fit", "--config", f"configs/method/{loss}.yaml", "--seed_everything", str(seed)],
        "started": f"2026-01-01T00:{seed % 60:02d}:00+00:00", "duration": 20.0 + seed, "images_per_second": 4000.0,
        "epoch": points, "step": 20 * points, "seed": seed, "group": None, "tags": [], "version": "0.1.0",
        "last": last, "best": last, "linear": linear or {},
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "checkpoints").mkdir()
    return folder


def write_event(stream, epoch, step, metrics):
    stream.write(json.dumps({"epoch": epoch, "step": step, **metrics}) + "\n")


def content_of(folder):
    """Every file below a folder with its bytes, to compare before and after."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def old_folder(folder):
    """Replace metrics.jsonl by the metrics.csv that an older version would have written."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    columns = list(dict.fromkeys(name for event in events for name in event))
    with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([event.get(name, "") for name in columns] for event in events)
    (folder / "metrics.jsonl").unlink()
    return folder


def curve_point(loss, t, last, accuracy, draw):
    wobble = 0 if last else 0.01 * draw.gauss(0, 1)
    top1 = min(1.0, max(0.0, accuracy * (1 - math.exp(-4 * t)) / (1 - math.exp(-4)) + wobble))
    if last:
        top1 = accuracy
    collapse = 3.0 if loss == "simsiam" else 0.2
    negatives = {"quadratic": 510, "square": 60, "inverse": 480}.get(loss, 220) * (1 - 0.4 * t) + draw.gauss(0, 4)
    return [
        -1.2 * t + draw.gauss(0, 0.02), -1.2 * t + draw.gauss(0, 0.01), 0.01, 4000 + draw.gauss(0, 50), top1,
        min(1.0, top1 + 0.25), 2.3 * (1 - top1), max(0.0, top1 - 0.03), 60 * math.exp(-collapse * t) + draw.gauss(0, 1),
        40 * math.exp(-collapse * t), 0.09 * math.exp(-collapse * t), 0.4 * (1 - t), -2.5 * t,
        0.9 - 0.2 * t, negatives, 0.3 * t if loss == "square" else 0.0, 0.01 + 0.03 * t,
    ]  # fmt: skip


def write_sweep(folder, losses=("infonce", "direct", "quadratic", "square"), seeds=5, spread=0.004, **settings):
    """Several losses with the same seeds. Each loss is about a point worse than the one before it."""
    draw = random.Random(0)
    for k, loss in enumerate(losses):
        for seed in range(seeds):
            accuracy = 0.72 - 0.012 * k + 0.003 * math.sin(seed) + spread * draw.gauss(0, 1)
            write_run(Path(folder) / f"{loss}-{seed}", loss, seed, accuracy, **settings)
    return Path(folder)


EARLY_STOPPING = {
    "class_path": "pytorch_lightning.callbacks.EarlyStopping",
    "init_args": {"monitor": "online/loss", "min_delta": 0.0, "patience": 3, "mode": "min", "check_finite": True},
}
PROBE = {
    "class_path": "lightning_ssl.OnlineProbe",
    "init_args": {"name": "online", "lr": 0.01, "weight_decay": 0.0, "share": 0.2, "memory": 1024},
}
KNN = {"class_path": "lightning_ssl.OnlineKNN", "init_args": {"k": 200, "tau": 0.1, "every_n_epochs": 10}}


def write_mixed(folder, losses=("infonce", "direct", "square"), seeds=3, **settings):
    """Runs as a user's folder collects them: every loss ran under its own callbacks, probe and trainer extras."""

    plain = {"probe": PROBE, "knn": KNN}
    other = {**PROBE, "init_args": {**PROBE["init_args"], "lr": 0.1, "share": 0.5}}
    variants = (
        ({"callbacks": None}, plain),
        ({"callbacks": [EARLY_STOPPING], "precision": "16-mixed", "min_epochs": 2}, plain),
        ({"callbacks": None}, {"probe": other, "knn": None, "spectrum": None, "importance_monitor": None}),
    )
    draw = random.Random(1)
    for k, loss in enumerate(losses):
        for seed in range(seeds):
            accuracy = 0.72 - 0.012 * k + 0.003 * math.sin(seed) + 0.001 * draw.gauss(0, 1)
            trainer, parts = variants[(k + seed) % len(variants)]

            def change(config, trainer=trainer, parts=parts):
                config |= json.loads(json.dumps(parts))
                config["trainer"] |= trainer

            write_run(Path(folder) / f"mixed-{loss}-{seed}", loss, seed, accuracy, change=change, **settings)
    return Path(folder)


def grouping_of(folder, metric=None):
    return Grouping.of(Reader(recorded).runs([folder]), metric)


@pytest.fixture
def empty_figures(monkeypatch):
    """Write the figures of a report as empty files: drawing takes most of the time."""

    def empty(figure, stem):
        return {stem.with_name(f"{stem.name}.{kind}"): b"" for kind in ("png", "svg")}

    monkeypatch.setattr("lightning_ssl.app.report.figures.files_of", empty)


def with_images(train_images):
    """Return the change of a configuration that sets the number of training images."""
    return lambda config: config["data"].update(options={"train_images": train_images, "test_images": 500})


def write_trials(folder, parameter, values, loss="direct", seeds=2):
    """The folder of a sweep over one parameter, as `lightning-ssl sweep` leaves it."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    (folder / "sweep.db").touch()
    for k, value in enumerate(values):

        def change(config, value=value):
            config |= {"probe": json.loads(json.dumps(PROBE))}
            *path, last = parameter.split(".")
            place = config
            for key in path:
                place = place[key]
                place = place.get("init_args", place)
            place[last] = value

        for seed in range(seeds):
            name = f"{k * seeds + seed + 1:03d}"
            run = write_run(folder / name, loss, seed, 0.7 - 0.01 * k + 0.002 * seed, epochs=2, change=change)
            parameters = {"config": f"configs/method/{loss}.yaml", "seed_everything": seed, parameter: value}
            (run / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
    return folder
