"""`lightning-ssl evaluate`: how much of the classes a linear classifier reads off a trained network's features.

    linear/adam_top1, linear/adam_top5        the α-CL papers' protocol: Adam, 50 epochs, the last one
    linear/lbfgs_top1, linear/lbfgs_top5      L-BFGS, its penalty chosen on images held out of the training set
    knn/top1                                  the 200 nearest neighbours' vote

The network is frozen: features of the un-augmented images are computed once, in evaluation mode, and kept in memory.
`linear.py` has the protocols. Results are shares between 0 and 1, in the run folder's summary.json under `linear`, and
with their settings in its evaluation.json; those of a checkpoint that is in no run folder lie beside it, in
CKPT.evaluation.json. Another data set than that of training says so in the name: `linear/adam_top1@cifar100`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl import data, runs
from lightning_ssl.checks import require
from lightning_ssl.commands.parser import Parser
from lightning_ssl.runs import Run

if TYPE_CHECKING:
    import torch

    from lightning_ssl.data import DataModule
    from lightning_ssl.data.module import Loader
    from lightning_ssl.evaluation.linear import Outcome, Split
    from lightning_ssl.methods import Method

PROTOCOLS = {"adam": ("adam",), "lbfgs": ("lbfgs",), "both": ("adam", "lbfgs")}
NEIGHBOURS: dict[str, Any] = {"k": 200, "tau": 0.1, "distance": "cosine"}  # as `OnlineKNN` has it

EXAMPLES = """examples:
  lightning-ssl evaluate runs/direct                             its newest checkpoint, by both protocols
  lightning-ssl evaluate runs/direct --protocol adam --seeds 5  the papers' alone, with five classifiers
  lightning-ssl evaluate runs/direct/checkpoints/step-00001560.ckpt
  lightning-ssl evaluate runs/direct --data cifar100             another data set than that of training (transfer)
  lightning-ssl evaluate runs/mine --data folder --root photos --options '{"store_size": 160}'
  lightning-ssl evaluate simclr.imported.ckpt --device cuda

adam     Adam 3e-4, weight decay 1e-3, batches of 128, 50 epochs; the last epoch's accuracy, mean over the seeds;
         this is the α-CL papers' protocol
lbfgs    L-BFGS to the optimum; the penalty is chosen on a tenth of the training images, then all of them are fitted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate a checkpoint, print a table, keep the result."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help, which is printed by now
        return 0
    require(arguments.seeds >= 1, "seeds", arguments.seeds, "at least 1")
    require(arguments.seed >= 0, "seed", arguments.seed, "0 or above")
    require(arguments.batch_size >= 1, "batch-size", arguments.batch_size, "at least 1")
    options = read_options(arguments.options)
    sys.path.insert(0, os.getcwd())  # a class of the user's own, by its path
    trained = restore(arguments.checkpoint)
    record = evaluate(
        trained,
        data_for(trained.config, arguments.data, arguments.root, options, arguments.batch_size),
        PROTOCOLS[arguments.protocol],
        range(arguments.seed, arguments.seed + arguments.seeds),
        arguments.device,
        arguments.best_test,
    )
    print_table(trained, record)
    keep(trained, record)
    return 0


def parser() -> Parser:
    """The command line, which needs no torch."""
    top = Parser(
        prog="lightning-ssl evaluate",
        description="Linear evaluation of a trained network: frozen features, a linear classifier, test accuracy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("checkpoint", metavar="CKPT", help="a checkpoint, or a run folder for its newest one")
    top.add_argument("--protocol", choices=tuple(PROTOCOLS), default="both", help="default: %(default)s")
    top.add_argument("--data", choices=tuple(data.DATASETS), help="data set to evaluate on (default: that of training)")
    top.add_argument("--root", help="where it lies (default: as in training)")
    top.add_argument("--options", metavar="JSON", help="its own options (default: as in training, for the same set)")
    top.add_argument("--seed", type=int, default=0, help="of the classifiers and of what is held out (default: 0)")
    top.add_argument("--seeds", type=int, default=3, help="classifiers of the papers' protocol (default: 3)")
    top.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, … (default: auto)")
    top.add_argument("--batch-size", type=int, default=256, help="images in one forward pass (default: 256)")
    top.add_argument(
        "--best-test",
        action="store_true",
        help="also what the papers' released code reports, as linear/adam_best_test_top1: the best of the 50 epochs,"
        " chosen on the test images; never in summary.json",
    )
    return top


def read_options(text: str | None) -> dict[str, Any] | None:
    """The data set's options, None where nothing was said of them."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    require(isinstance(found, dict), "options", text, """a JSON object, such as '{"train_images": 5000}'""")
    return dict(found)


# ---------------------------------------------------------------------------------------------------------------------
# What was trained


class Trained(NamedTuple):
    """A method with the weights of a checkpoint, and where it came from."""

    method: Method
    config: dict[str, Any]
    path: Path  # of the checkpoint
    run: Run | None  # the run folder it lies in
    step: int
    version: str  # of the package that trained it


def restore(checkpoint: str | Path) -> Trained:
    """Build the method that a checkpoint, or a run folder's newest one, was saved from, with its weights."""
    from lightning_ssl.runs.build import build_method  # it imports torch

    path = Path(checkpoint)
    run = Run(path) if path.is_dir() else Run(path.parent.parent)
    path = (run.newest_checkpoint() if path.is_dir() else None) or path
    found = runs.read_checkpoint(path)
    config = found["lightning_ssl"]["config"]
    model = config["model"]
    # Compiling takes longer than one pass over the images.
    uncompiled = {**model, "init_args": {**model.get("init_args", {}), "compile": False}}
    method = build_method({**config, "model": uncompiled})
    try:
        method.load_state_dict(found["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n")[2].partition("\n")[0].split())
        raise ValueError(
            f"checkpoint={str(path)!r}: its weights are not those of its configuration: {reason}"
        ) from error
    is_run = path.parent == run.checkpoints and (run.path / "summary.json").exists()
    step, version = int(found.get("global_step", 0)), str(found["lightning_ssl"].get("version", ""))
    return Trained(method.eval(), config, path, run if is_run else None, step, version)


def data_for(
    config: dict[str, Any], name: str | None, root: str | None, options: dict[str, Any] | None, batch_size: int
) -> DataModule:
    """The data set of training, or another one; nothing is inherited that another one would not understand."""
    from lightning_ssl.data import DataModule

    trained_on = config["data"]
    name = name or trained_on["name"]
    if options is None:
        options = trained_on.get("options") if name == trained_on["name"] else None
    return DataModule(
        name,
        root or trained_on.get("root", "data"),
        batch_size,
        download=trained_on.get("download", True),
        workers=trained_on.get("workers"),
        options=options,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation


def evaluate(
    trained: Trained,
    module: DataModule,
    protocols: Sequence[str],
    seeds: Sequence[int],
    device: str = "auto",
    best_test: bool = False,
) -> dict[str, Any]:
    """Features once, then each protocol: metrics and everything that decides them, as plain values."""
    from lightning_ssl.callbacks.knn import vote
    from lightning_ssl.evaluation import linear

    place = device_of(device)
    module.prepare_data()
    module.setup("test")
    classes, clock = module.num_classes, Clock()
    where = "" if module.data_set == trained.config["data"]["name"] else f"@{module.data_set}"
    found: dict[str, Outcome] = {}
    with progress() as bar:
        method = trained.method.to(place)
        loaders = {"training": module.in_order("train"), "test": module.in_order("test")}
        train, test = (
            features_of(method, loader, place, bar(f"features of the {name} images", len(loader)))
            for name, loader in loaders.items()
        )
        clock.lap("features")
        if "adam" in protocols:
            tick = bar("Adam", linear.PAPER.epochs)
            found["adam"] = linear.adam(train, test, classes, seeds, best_test=best_test, tick=tick)
            clock.lap("adam")
        if "lbfgs" in protocols:
            found["lbfgs"] = linear.lbfgs(train, test, classes, seeds[0], tick=bar("L-BFGS", None))
            clock.lap("lbfgs")
        shares = vote(test.features, train.features, train.labels, classes, **NEIGHBOURS)  # (N, C)
        clock.lap("knn")

    metrics: dict[str, float] = {}
    for name, outcome in found.items():
        metrics |= {f"linear/{name}_top1{where}": outcome.top1, f"linear/{name}_top5{where}": outcome.top5}
        if by_seed := outcome.details.get("best_test_top1_by_seed"):
            metrics[f"linear/{name}_best_test_top1{where}"] = fmean(by_seed)
    metrics[f"knn/top1{where}"] = float(linear.accuracy(shares, test.labels))
    return {
        "metrics": metrics,
        "checkpoint": trained.path.name,
        "step": trained.step,
        "data": {
            "name": module.data_set,
            "options": module.options,
            "train_images": len(train.labels),
            "test_images": len(test.labels),
            "classes": classes,
        },
        "features": train.features.shape[1],
        "protocols": {name: outcome.details for name, outcome in found.items()},
        "knn": NEIGHBOURS,
        "seconds": clock.laps,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "version": runs.version(),
    }


def features_of(method: Method, loader: Loader, device: torch.device, tick: Callable[[], None] = lambda: None) -> Split:
    """Features of the labelled images as they are, in evaluation mode; the network is left as it was."""
    import torch

    from lightning_ssl.callbacks.features import evaluating
    from lightning_ssl.evaluation.linear import Split

    features: torch.Tensor | None = None
    labels, filled = [], 0
    with torch.no_grad(), evaluating(method):
        for images, y, _ in loader:
            known = y >= 0
            if known.any():
                x = method(method.augment.unaugmented(images[known].to(device)))  # (b, F)
                if features is None:  # once, for all: parts and their whole would be twice the memory
                    features = torch.empty(len(loader.rows), x.shape[1], device=device, dtype=torch.float32)
                features[filled : filled + len(x)] = x
                labels.append(y[known])
                filled += len(x)
            tick()
    if features is None:
        raise ValueError("data: none of its images has a label, and a linear evaluation needs them")
    if not features[:filled].isfinite().all():
        raise ValueError("checkpoint: its features are not finite numbers; the training diverged")
    return Split(features[:filled], torch.cat(labels).to(device))


def device_of(name: str) -> torch.device:
    """The device by its name; `auto` is a GPU where there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={name!r}: device must be auto, or one that torch has here ({reason})") from error


class Clock:
    """Seconds of one thing after another."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.mark = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.mark = round(now - self.mark, 2), now


# ---------------------------------------------------------------------------------------------------------------------
# What is shown and kept


@contextmanager
def progress() -> Iterator[Callable[[str, int | None], Callable[[], None]]]:
    """Bars on a terminal: `tick = bar("what is done", how_often)`, then `tick()` after each."""
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with rich.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def bar(words: str, total: int | None) -> Callable[[], None]:
            task = bars.add_task(words, total=total)
            return lambda: bars.advance(task)

        yield bar


def print_table(trained: Trained, record: dict[str, Any]) -> None:
    """The metrics, and in a few words how each was measured."""
    from rich.console import Console
    from rich.table import Table

    about, how = record["data"], {}
    for name, details in record["protocols"].items():
        if name == "adam":
            top1 = details["top1_by_seed"]
            spread = f", {min(top1):.4f} – {max(top1):.4f}" if len(top1) > 1 else ""
            how["linear/adam_top1"] = f"{len(top1)} seeds{spread}" if len(top1) > 1 else "1 seed"
            how["linear/adam_best_test_top1"] = "chosen on the test images"
        else:
            end = "" if details["converged"] else f", not converged after {details['iterations']} iterations"
            edge = ", an end of the grid" if details["penalty"] in edges(details["penalties"]) else ""
            how["linear/lbfgs_top1"] = f"penalty {details['penalty']:.2g}{edge}{end}"
    how["knn/top1"] = "k = {k}, τ = {tau}, {distance}".format(**record["knn"])
    title = f"{runs.label_of(trained.config)} at step {trained.step} on {about['name']}"
    table = Table("metric", "value", "how", title=title)
    table.columns[1].justify = "right"
    for name, value in record["metrics"].items():
        table.add_row(name, f"{value:.4f}", how.get(name.partition("@")[0], ""))
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(
        f"{about['train_images']} training and {about['test_images']} test images, {record['features']} features; "
        f"{sum(record['seconds'].values()):.0f} s",
        highlight=False,
    )


def edges(grid: Sequence[float]) -> tuple[float, float]:
    return min(grid), max(grid)


def keep(trained: Trained, record: dict[str, Any]) -> None:
    """Write evaluation.json, and summary.json where the checkpoint is its run's newest."""
    if trained.run is None:
        file = trained.path.with_name(f"{trained.path.name}.evaluation.json")
        append(file, record)
        print(f"written to {file}")
        return
    file = trained.run.path / "evaluation.json"
    append(file, record)
    newest = trained.run.step_checkpoints()[:1]
    if [trained.path] != newest:
        print(f"written to {file}; summary.json is about {newest[0].name if newest else 'another checkpoint'}")
        return
    summary = trained.run.summary()
    # A run that went on since is another network: what was measured before stays in evaluation.json alone.
    before = summary.get("linear", {}) if summary.get("linear_step", trained.step) == trained.step else {}
    new = {name: value for name, value in record["metrics"].items() if is_result(name)}
    trained.run.update_summary(linear={**before, **new}, linear_step=trained.step)
    print(f"written to {file} and {trained.run.path / 'summary.json'}")


def is_result(name: str) -> bool:
    """Whether a metric is a linear evaluation that was not chosen on the test images."""
    return name.startswith("linear/") and "best_test" not in name


def append(file: Path, record: dict[str, Any]) -> None:
    """Add an evaluation to a file of them, newest last; one of the same settings is replaced."""
    before: list[dict[str, Any]] = []
    if file.exists():
        try:
            before = json.loads(file.read_text(encoding="utf-8"))["evaluations"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not a file of evaluations: remove it, and it is made again") from error
    kept = [one for one in before if identity(one) != identity(record)]
    text = json.dumps({"evaluations": [*kept, record]}, indent=2, ensure_ascii=False)
    runs.write_whole(file, (text + "\n").encode())


def identity(record: dict[str, Any]) -> str:
    """What makes two evaluations the same one."""
    seeds = {name: (details.get("seeds"), details.get("seed")) for name, details in record["protocols"].items()}
    best = [name for name in record["metrics"] if "best_test" in name]
    return json.dumps([record["checkpoint"], record["step"], record["data"], seeds, best], sort_keys=True)
