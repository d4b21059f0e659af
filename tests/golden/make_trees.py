"""Write data/trees_GROUP.jsonl.gz: command lines of `lightning-ssl fit` and the configuration that each one gives.

Made once, with version 9187a09 (the reader of jsonargparse), in the folder of this repository:

    git worktree add ../today 9187a09
    PYTHONPATH=../today python tests/golden/make_trees.py

The files are never made again: `test_trees.py` compares the present version with them. One line is one command line:

    group     "config", "sweep", "stored" (a config.yaml of a run folder) or "flag"
    argv      the flags, with `configs/…` relative to the root of the repository
    files     texts of further files that the flags name, if there are any
    tree      the completed configuration, `Configuration.parse(argv).stored()`; null if the command line is refused
    label     `runs.labels.label_of_config(tree)`
    refused   the message of the refusal, whose words may change; null if the command line is accepted

Left out are inputs that version 9187a09 reads wrongly without a message: values of another type for arguments of
Square, Tsallis and Inverse, null for a key that does not allow it, `10:00` in a file, a mapping for
`trainer.max_time`, and a file that names no method.
"""

import contextlib
import gzip
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
from pathlib import Path

import torch
import yaml

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("data")
QUICK = "--config=configs/quickstart.yaml"
UNCHECKED = {"Square", "Tsallis", "Inverse"}  # the hints of their arguments are not resolved in version 9187a09


def config_lines():
    """Every packaged file with data; every data file with every class of method."""
    root = ROOT / "configs"
    names = sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    methods = [name for name in names if name.startswith("method/")]
    data = [name for name in names if name.startswith("data/")]
    seen = {}
    for name in methods:
        seen.setdefault(yaml.safe_load((root / f"{name}.yaml").read_text())["model"]["class_path"], name)
    yield ["quickstart"]
    for method in methods:
        yield ["data/shapes", method]
        yield ["quickstart", method]
        yield [method, "data/cifar10"]
        yield ["data/cifar10", "recipe/released", method]
        yield ["data/cifar10", method, "scale/cpu"]
    for each in data:
        for method in seen.values():
            yield [each, method]
            yield [each, method, "recipe/released"]
            yield [each, method, "scale/cpu"]
            yield [each, method, "scale/night"]


def sweep_lines():
    """Every cell of every sweep file, with one seed; three draws of a search."""
    from lightning_ssl.sweep import plan

    for file in sorted((ROOT / "sweeps").glob("*.yaml")):
        grid = yaml.safe_load(file.read_text())["method"] == "grid"
        sweep = plan.read(file, count=None if grid else 3)
        cells = sweep.cells if grid else [sweep.next_parameters([], {}) for _ in range(3)]
        known = set()
        for cell in cells:
            flags = plan.fit_flags(sweep.command_for(cell, Path("parameters.json")))
            without_seed = tuple(flag for flag in flags if not flag.startswith("--seed_everything"))
            if without_seed not in known:
                known.add(without_seed)
                yield flags


def stored_lines():
    """The config.yaml of one run of each loss and sweep in docs/results, and of the run folders of this folder."""
    known = set()
    files = [*sorted(ROOT.glob("docs/results/runs/*/*/config.yaml")), *sorted(DATA.glob("**/config.yaml"))]
    for file in files:
        text = file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        form = json.dumps({**content, "seed_everything": 0}, sort_keys=True)
        form = re.sub(r'"(name|group|root)": "[^"]*"', "", form)
        if form not in known and (file.is_relative_to(DATA) or len(known) < 60):
            known.add(form)
            yield ["--config=stored.yaml"], {"stored.yaml": text}


INT = ["2", "010", "1_000", "0x10", "2.0", "1e3", "true", "x"]
FLOAT = ["0.5", ".5", "1e-3", "2", "inf", "true", "x"]
BOOL = ["true", "false", "yes", "on", "True", "1", "x"]
TEXT = ["abc", "123", "1.50", "10:00", "true"]
OWN_VALUES = {
    "config": [], "print_config": [], "help": [], "name": ["abc", "123", "1.50", "true", "null"],
    "resume": ["auto", "never"], "runs": ["abc", "~/abc"],
    "tags": ["[a, b]", "[1, 2]", "[]", "a"], "data.root": ["abc", "~/abc", "123"],
    "data.options": ["{}", "{train_images: 64}", "{train_images: 64, test_images: 32}", "null", "[1]"],
    "model.mean": ["[0.1, 0.2, 0.3]", "[0, 1, 0]", "0.5", "null"], "model.std": ["[0.1, 0.2, 0.3]", "[1, 1, 1]"],
    "model.image_size": [*INT, "32"], "data.split": ["train", "123", "null"],
    "model.backbone": ["resnet18", "resnet34", "resnet50", "resnet_tiny", "torchvision.models.resnet18",
                       "{class_path: torchvision.models.resnet18}"],
    "trainer.devices": ["2", "auto", "[0, 1]", "x", "-1"], "trainer.precision": ["32", "16-mixed", "64-true", "7"],
    "trainer.strategy": ["ddp", "auto", "{class_path: DDPStrategy}",
                         "{class_path: DDPStrategy, init_args: {find_unused_parameters: true}}"],
    "trainer.callbacks": ["[]", "null", "EarlyStopping", "{class_path: LearningRateMonitor}",
                          "[{class_path: lightning_ssl.WeightNoise, init_args: {std: 0.1}}]", "[LearningRateMonitor]"],
    "trainer.max_time": ["00:01:00:00", "null"], "trainer.logger": ["true", "false", "null"],
    "trainer.profiler": ["simple", "null"], "trainer.plugins": ["null"], "trainer.model_registry": ["null", "abc"],
    "trainer.accelerator": ["cpu", "auto"], "trainer.default_root_dir": ["abc", "null"],
    "trainer.limit_train_batches": ["2", "2.0", "0.5", "1", "1.0", "x"],
    "trainer.limit_val_batches": ["2", "2.0", "0.5", "0", "1", "1.0", "null"],
    "trainer.overfit_batches": ["2", "0.5", "0.0"], "trainer.val_check_interval": ["2", "0.5", "00:00:10:00", "null"],
    "trainer.fast_dev_run": ["true", "false", "3", "1", "x"], "trainer.deterministic": ["true", "false", "warn", "x"],
    "trainer.gradient_clip_val": ["0.5", "1", "null", "x"], "probe.name": ["abc", "123"],
    "model.importance.r_prime": [], "model.importance.r_prime_inverse": [],
    "data.name": ["shapes", "cifar10", "cifar100", "stl10", "nothing"],
}  # fmt: skip


def values_of(key, flag, owner):
    """Sensible and slightly wrong values of a flag, by what its help says of it."""
    if key in OWN_VALUES:
        return OWN_VALUES[key]
    kinds = flag.values.split(" | ")
    found = [*flag.choices]
    if flag.choices and set(flag.choices) - {"null"} != {"true", "false"}:
        found.append("nothing")
    for kind, values in (("INT", INT), ("FLOAT", FLOAT), ("TEXT", TEXT)):
        found += values if kind in kinds else []
    if {"true", "false"} <= set(kinds):
        found += BOOL
    if "null" in kinds:
        found.append("null")
    if owner in UNCHECKED:
        found = [value for value in found if re.fullmatch(r"[\d.]+", value) and not value.startswith("0")]
    return list(dict.fromkeys(found))


def flag_lines():
    """Every flag of every section of the help, each with several values; in a file too where that differs."""
    from lightning_ssl.commands.fit_flags import sections

    for title, section in sections().items():
        owner = title.rpartition(".")[2]
        if title in ("model.importance", "model.importance.family"):  # the classes themselves: class_lines
            continue
        select = []
        if title.startswith("model.importance.family."):
            select = ["--model=AlphaCL", "--model.importance=FromFamily", f"--model.importance.family={owner}"]
            select += ["--model.importance.family.c=2"] if owner == "ModifiedTriplet" else []
        elif title.startswith("model.importance."):
            select = ["--model=AlphaCL", f"--model.importance={owner}"]
            select += ["--model.importance.family=InfoNCE"] if owner == "FromFamily" else []
        elif title.startswith("model."):
            select = [f"--model={owner}"]
        yield [QUICK, *select]
        for flag in section.flags:
            part, _, name = flag.key.partition(".")
            for value in values_of(flag.key, flag, owner):
                yield [QUICK, *select, f"--{flag.key}={value}"]
                plain = re.fullmatch(r"-?[\w.:]+", value) and value not in ("yes", "on", "10:00")
                if plain and part in ("trainer", "data"):
                    yield [QUICK, "--config=more.yaml"], {"more.yaml": f"{part}: {{{name}: {value}}}\n"}
    yield from class_lines()
    yield from merge_lines()


def class_lines():
    """One class after another at the same key: which arguments are kept."""
    from lightning_ssl.commands import catalog

    importances = [name for name in catalog.names("importances") if name not in ("Regularized", "FromFamily")]
    methods = catalog.names("methods")
    for first in importances:
        for then in importances:
            yield [QUICK, "--model=AlphaCL", f"--model.importance={first}", f"--model.importance={then}"]
            yield [QUICK, "--model=AlphaCL", f"--model.importance={first}", "--model.importance.tau=0.25",
                   f"--model.importance={then}"]  # fmt: skip
    for first in methods:
        for then in methods:
            yield [QUICK, f"--model={first}", f"--model={then}"]
            yield [QUICK, f"--model={first}", "--model.backbone=resnet18", "--model.projector.hidden=64",
                   f"--model={then}"]  # fmt: skip
    for family in catalog.names("families"):
        for then in catalog.names("families"):
            yield [QUICK, "--model=AlphaCL", "--model.importance=FromFamily", f"--model.importance.family={family}",
                   f"--model.importance.family={then}"]  # fmt: skip
    for path in ("lightning_ssl.Direct", "lightning_ssl.losses.Direct", "lightning_ssl.losses.importance.Direct"):
        yield [QUICK, "--model=AlphaCL", f"--model.importance={path}"]
        yield [QUICK, "--model=AlphaCL", f"--model.importance={{class_path: {path}, init_args: {{p: 2}}}}"]
    for path in ("lightning_ssl.AlphaCL", "lightning_ssl.methods.AlphaCL", "lightning_ssl.methods.contrastive.AlphaCL"):
        yield [QUICK, f"--model={path}"]


OWN = "import torch\n\n\ndef mine(d2_pos, d2_neg, valid):\n    return torch.softmax(-d2_neg, 1)\n"


def merge_lines():
    """Mappings and lists: what replaces, what merges, what is the last item."""
    alpha = [QUICK, "--model=AlphaCL"]
    for flags in (
        ["--data.options={size: 16}", "--data.options={train_images: 64}"],
        ["--data.options={size: 16}", "--data.options.train_images=64"],
        ["--data.options.train_images=64", "--data.options.size=16"],
        ["--model.optimization={lr: 1}"],
        ["--model.optimization={lr: 1}", "--model.optimization={weight_decay: 0.1}"],
        ["--model.optimization.lr=1", "--model.optimization={weight_decay: 0.1}"],
        ["--model.init_args={backbone: resnet18}"],
        ["--model.init_args.backbone=resnet18"],
        ["--model.init_args={backbone: resnet18, optimization: {lr: 0.01}}"],
        ["--model={class_path: SimCLR, init_args: {tau: 0.1}}"],
        ["--probe=null"],
        ["--probe=null", "--probe.lr=1"],
        ["--probe.lr=1", "--probe=null"],
        ["--knn=null", "--spectrum=null", "--importance_monitor=null"],
        ["--probe={class_path: lightning_ssl.callbacks.OnlineProbe, init_args: {lr: 2}}"],
        ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=loss"],
        ["--trainer.callbacks=LearningRateMonitor", "--trainer.callbacks+=EarlyStopping",
         "--trainer.callbacks.monitor=loss"],
        ["--trainer.callbacks+=LearningRateMonitor", "--trainer.callbacks+=WeightNoise", "--trainer.callbacks.std=0.5"],
        ["--trainer.callbacks+=lightning_ssl.WeightNoise", "--trainer.callbacks.std=0.5"],
        ["--trainer.callbacks=LearningRateMonitor", "--trainer.callbacks=[]"],
        ["--trainer={max_epochs: 3}"],
        ["--trainer.max_epochs=3", "--trainer={min_epochs: 2}"],
        ["--data={name: shapes, batch_size: 32}"],
        ["--checkpoint={keep: 3}"],
        ["--tags=[a]", "--tags=[b]"],
        ["--tags+=a", "--tags+=b"],
        ["--seed_everything=1", "--seed_everything=2"],
        ["--trainer.max_epochs", "3"],
        ["--model.projector", "{hidden: 8, out: 4}"],
        ["--config={trainer: {max_epochs: 2}}"],
        ["--config={trainer: {max_epochs: 2}}", "--trainer.max_epochs=3"],
        ["--trainer.max_epochs=3", "--config={trainer: {max_epochs: 2}}"],
    ):  # fmt: skip
        yield [QUICK, *flags]
        yield [*alpha, *flags]
    for flags in (
        ["--model.importance=Direct", "--model.importance.p=2"],
        ["--model.importance.p=2"],
        ["--model.importance.p=2", "--model.importance=Direct"],
        ["--model.importance={class_path: Direct, init_args: {p: 2}}"],
        ["--model.importance.init_args.p=2"],
        ["--model.importance=Entropy", "--model.importance.tau=1"],
        ["--model.importance={class_path: FromFamily, init_args: {family: {class_path: MINE}}}"],
        ["--model.importance=FromFamily", "--model.importance.family=SoftTriplet", "--model.importance.family.tau=0.2",
         "--model.importance.family.margin=0.3"],
        ["--model.importance=Exact", "--model.importance.kind=infonce"],
        ["--model.importance=Tsallis", "--model.importance.q=127"],
        ["--model.importance=Tsallis", "--model.importance.q=127.0"],
    ):  # fmt: skip
        yield [*alpha, *flags]
    for importance in ("{class_path: mine.mine}", "mine.mine"):
        yield [*alpha, f"--model.importance={importance}"], {"mine.py": OWN}
    for config in (
        "model: {class_path: AlphaCL, init_args: {importance: {class_path: Inverse, init_args: {tau: 1, gamma: 3}}}}",
        "model: {class_path: lightning_ssl.SimCLR, init_args: {tau: '0.3'}}",
        "model:\n  class_path: BYOL\n",
        "seed_everything: '3'",
        "data: {batch_size: '16', options: {size: 16}}",
        "trainer: {precision: '32', devices: 1}",
        "trainer: {precision: 32, devices: '1'}",
        "trainer: {callbacks: [{class_path: LearningRateMonitor}, {class_path: EarlyStopping, init_args: "
        "{monitor: loss}}]}",
        "trainer: {callbacks: {class_path: LearningRateMonitor}}",
        "probe: null",
        "probe: {class_path: OnlineProbe, init_args: {lr: 3}}",
        "tags: [1, x]",
    ):
        yield [QUICK, "--config=more.yaml"], {"more.yaml": f"{config}\n"}
        yield ["--config=more.yaml", QUICK], {"more.yaml": f"{config}\n"}


def every_line():
    """Every command line with its group and files, each once."""
    known = set()
    for group, lines in (
        ("config", ([f"--config=configs/{name}.yaml" for name in line] for line in config_lines())),
        ("sweep", sweep_lines()),
        ("stored", stored_lines()),
        ("flag", flag_lines()),
    ):
        for line in lines:
            argv, files = line if isinstance(line, tuple) else (line, {})
            if (key := json.dumps([argv, files])) not in known:
                known.add(key)
                yield {"group": group, "argv": argv, "files": files}


def answered(line):
    """The line with its tree and label, both null if the command line is refused. The text of an error for a fault."""
    from lightning_ssl.runs.configuration import Configuration
    from lightning_ssl.runs.labels import label_of_config

    for name, text in line["files"].items():
        Path(name).write_text(text, encoding="utf-8")
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            tree = Configuration.parse(line["argv"]).stored()
    except ValueError as error:
        return {**line, "tree": None, "label": None, "refused": str(error)}
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for name in line["files"]:
            Path(name).unlink()
    return {**line, "tree": tree, "label": label_of_config(tree), "refused": None}


def own_folder():
    """A new working folder for each process, with the packaged files."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    sys.path.insert(0, folder)
    Path("configs").symlink_to(ROOT / "configs")
    torch.cuda.is_available = lambda: False
    torch.set_num_threads(1)


def main():
    chosen = sys.argv[1:]
    lines = [line for line in every_line() if not chosen or line["group"] in chosen]
    kept, faults = {}, []
    with multiprocessing.Pool(3, own_folder) as pool:
        for number, (line, found) in enumerate(zip(lines, pool.imap(answered, lines, chunksize=4), strict=True)):
            if isinstance(found, dict):
                kept.setdefault(line["group"], []).append(json.dumps(found))
            else:
                faults.append(f"{line['argv']}: {found}")
            if number % 100 == 0:
                print(number, "of", len(lines), flush=True)
    for group, found in kept.items():
        file = DATA / f"trees_{group}.jsonl.gz"
        file.write_bytes(gzip.compress("\n".join(found).encode(), 9, mtime=0))
        print(file, len(found), "lines,", file.stat().st_size, "bytes")
    print("left out, because the program failed:", *faults, sep="\n")


if __name__ == "__main__":
    os.environ.pop("WANDB_SWEEP_ID", None)
    main()
