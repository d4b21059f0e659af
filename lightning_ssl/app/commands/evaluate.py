"""`lightning-ssl evaluate`: linear evaluation of a trained network.

examples:
  lightning-ssl evaluate runs/direct                             the newest checkpoint, both protocols
  lightning-ssl evaluate runs/direct --protocol adam --seeds 5   the papers' protocol only, five classifiers
  lightning-ssl evaluate runs/direct/checkpoints/step-00001560.ckpt
  lightning-ssl evaluate runs/direct --data cifar100             transfer: another data set than that of training
  lightning-ssl evaluate runs/direct --data mine.make_dataset    your own data set, by its path
  lightning-ssl evaluate runs/mine --data folder --root photos --options '{"store_size": 160}'
  lightning-ssl evaluate simclr.imported.ckpt --device cuda
  lightning-ssl evaluate runs/own --trust mine                   the run has a loss or data set of mine.py

adam     the protocol of the α-CL papers: Adam with learning rate 3e-4 and weight decay 1e-3, batches of 128, 50 epochs;
         accuracy after the last epoch, mean over the seeds
lbfgs    L-BFGS to convergence; the penalty is chosen on a tenth of the training images, then all of them are used

The network is frozen. The features of the un-augmented images are computed once, in evaluation mode, and kept in
memory. Accuracies are between 0 and 1. They are in the run folder's summary.json under `linear`, and with their
settings in its evaluation.json. A checkpoint outside a run folder gets a file beside it, CKPT.evaluation.json. Metrics
of another data set than that of training have its name: `linear/adam_top1@cifar100`. `knn/top1` is the weighted vote of
the 200 nearest training images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base.checks import MAX_SEED
from lightning_ssl.base.trust import trusted_modules
from lightning_ssl.base.untrusted import printable
from lightning_ssl.data import require_data_set

if TYPE_CHECKING:
    from lightning_ssl.app.runs.restore import TrainedMethod
    from lightning_ssl.evaluation.evaluate import Progress


def run(
    checkpoint: str,
    *,
    protocol: Literal["adam", "lbfgs", "both"] = "both",
    data: str | None = None,
    root: str | None = None,
    options: dict[str, Any] | None = None,
    seed: int = 0,
    seeds: int = 3,
    device: str = "auto",
    batch_size: int = 256,
    trust: Sequence[str] = (),
    best_test: bool = False,
) -> int:
    """Linear evaluation of a trained network: frozen features, a linear classifier, test accuracy.

    Args:
        checkpoint: a checkpoint, or a run folder for its newest one
        protocol: the classifiers
        data: a name of `lightning-ssl list data`, hf:NAME, or the path of your own data set (default: that of training)
        root: folder of the data set (default: that of training)
        options: options of the data set as JSON (default: those of training)
        seed: of the classifiers and the held-out images
        seeds: number of classifiers of the papers' protocol
        device: auto, cpu, cuda, cuda:1, …
        batch_size: images per forward pass
        trust: a module whose classes and functions the checkpoint may name, such as that of your own loss; its code is
            run; can be given several times
        best_test: also report linear/adam_best_test_top1, the best of the 50 epochs, as the papers' released code does;
            it is chosen on the test images and not written to summary.json
    """
    if data is not None:
        require_data_set("data", data)
    trusted = trusted_modules(trust, data)

    # Late: torch takes seconds to import, and --help needs none of it.
    from lightning_ssl.app.runs.evaluations import evaluate_checkpoint, require_record, save_record
    from lightning_ssl.app.runs.restore import evaluation_data, restore_method

    trained = restore_method(checkpoint, trusted)
    require_record(trained)
    module = evaluation_data(trained.config, data, root, options, batch_size, trusted)
    with progress_bars() as progress:
        record = evaluate_checkpoint(
            trained,
            module,
            protocols=("adam", "lbfgs") if protocol == "both" else (protocol,),
            seeds=range(seed, seed + seeds),
            device=device,
            best_test=best_test,
            progress=progress,
        )
    print_table(trained, record)
    print(save_record(trained, record))
    return 0


LIMITS = {"seed": (0, MAX_SEED), "seeds": (1, 1000), "batch_size": (1, 1_000_000)}
COMMAND = main = Command("evaluate", run, __doc__, LIMITS)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress bars on a terminal; nothing elsewhere. They start with the first task, after a download."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    bars = Bars(console=console, transient=True, disable=not console.is_terminal)

    def add_bar(task: str, steps: int | None) -> Callable[[], None]:
        bars.start()
        added = bars.add_task(task, total=steps)
        return lambda: bars.advance(added)

    try:
        yield add_bar
    finally:
        bars.stop()


def print_table(trained: TrainedMethod, record: dict[str, Any]) -> None:
    """Print the metrics, and how each was measured."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lightning_ssl.app.config.labels import short_label

    about, protocols = record["data"], record["protocols"]
    notes = {"knn/top1": "k = {k}, τ = {tau}, {distance}".format(**record["knn"])}
    notes["linear/adam_best_test_top1"] = "chosen on the test images"
    if "adam" in protocols:
        top1 = protocols["adam"]["top1_by_seed"]
        notes["linear/adam_top1"] = f"{len(top1)} seeds, {min(top1):.4f} – {max(top1):.4f}"
    if "lbfgs" in protocols:
        notes["linear/lbfgs_top1"] = lbfgs_note(protocols["lbfgs"])
    title = f"{short_label(trained.config)} at step {trained.step} on {about['name']}"
    table = Table("metric", "value", "how", title=Text(printable(title)))
    table.columns[1].justify = "right"
    for name, value in record["metrics"].items():
        table.add_row(Text(name), f"{value:.4f}", notes.get(name.partition("@")[0], ""))
    console = Console(soft_wrap=True)
    console.print(table)
    images = f"{about['train_images']} training and {about['test_images']} test images"
    seconds = sum(record["seconds"].values())
    console.print(f"{images}, {record['features']} features; {seconds:.0f} s", highlight=False)


def lbfgs_note(details: dict[str, Any]) -> str:
    """The chosen penalty, with a note if the grid is too small or the solver did not converge."""
    grid = details["penalties"]
    edge = ", at an end of the grid" if details["penalty"] in (min(grid), max(grid)) else ""
    end = "" if details["converged"] else f", not converged after {details['iterations']} iterations"
    return f"penalty {details['penalty']:.2g}{edge}{end}"
