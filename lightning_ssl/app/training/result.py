"""What `lightning-ssl fit` prints at its end: the result, the other metrics, and the next commands."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightning_ssl.app.runs import panels
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.runs.metrics import TIMING_METRICS
from lightning_ssl.base.trust import OURS, paths_in
from lightning_ssl.base.untrusted import printable

RESULTS = [metric.key for metric in panels.RESULTS.values()]  # the first rows


def print_result(run: RunFolder) -> None:
    """Print a table of the last and the best values, the path of the run folder, and what to do next."""
    summary = run.summary()
    table = Table("metric", "last", "best", title=Text(printable(f"{summary['label']}, seed {summary['seed']}")))
    for column in table.columns[1:]:
        column.justify = "right"
    names = [name for name in summary["last"] if name not in TIMING_METRICS]
    results = [name for name in RESULTS if name in names]
    for section in (results, [name for name in names if name not in results]):
        for name in section:
            best = summary["best"].get(name, float("nan"))
            table.add_row(Text(printable(name)), f"{summary['last'][name]:.4g}", f"{best:.4g}")
        table.add_section()
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(
        f"{summary['step']} steps in {summary['duration']:.0f} s, {summary['images_per_second'] or 0:.0f} images/s"
    )
    console.print(f"run folder: {run.path}\n{next_steps(run)}", markup=False)


def next_steps(run: RunFolder) -> str:
    """The commands that use a finished run, one line each."""
    folder, parent = shlex.quote(str(run.path)), shlex.quote(str(run.path.parent))
    config = run.config()
    name = config.get("data", {}).get("name")
    own = dict.fromkeys(path.partition(".")[0] for _, path in paths_in([config.get("model"), name], ""))
    trust = "".join(f" --trust {module}" for module in own if module != OURS)
    commands = {
        f"lightning-ssl evaluate {folder}{trust}": "linear classifiers on the frozen features",
        f"lightning-ssl report {parent} --open": "compare it with the other runs",
        f"lightning-ssl export {folder} --format safetensors{trust}": "save the backbone for other code",
    }
    width = max(map(len, commands))
    return "\n".join(["next:", *(f"  {command.ljust(width)}   {text}" for command, text in commands.items())])
