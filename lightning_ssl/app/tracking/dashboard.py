"""The W&B workspace that compares losses.

    lightning-ssl dashboard --entity me --project lightning_ssl
    lightning-ssl dashboard --entity me --project lightning_ssl --runs runs/table1        with the verdict of the report
    lightning-ssl dashboard --entity me --project lightning_ssl --dump workspace.json      no server, no account

Runs are grouped by `label`: the loss with its parameters (see logger.py for the keys of a run). The panels are: the
accuracy of the probes by epoch, with the standard error over seeds; the final accuracy, with the standard deviation;
parallel coordinates of common sweep parameters; what the other callbacks measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightning_ssl.app.runs.panels import PANELS, RESULTS, SHARED
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.facts import Metric

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

LOSS = "label"
FINAL = "online/top1"
STEP = "trainer/global_step"  # Lightning's name
# Keys of every run: W&B omits a run from parallel coordinates if it lacks one of the axes.
PARAMETERS = ("batch_size", "lr", "epochs")
LOGARITHMIC = ("tau", "batch_size", "lr")


def save(workspace: Workspace) -> None:
    """Save the workspace in W&B. Raises UserError in one line if that is not possible."""
    from lightning_ssl.app.tracking import connection  # late: `dashboard --help` needs no wandb

    mode, reason = connection.mode()
    if mode != "online":
        raise UserError(f"dashboard: {reason}; --dump FILE writes the workspace without a server")
    try:
        workspace.save()
    except Exception as error:  # a refused key, an unknown project, …
        raise UserError(f"dashboard: {connection.error_line(error)}") from error
    print(f"the workspace is at {workspace.url}")


def build(
    entity: str, project: str, name: str, group: str | None, parameters: Sequence[str], verdict: str | None = None
) -> Workspace:
    """Build the workspace as an object of wandb-workspaces. Nothing is sent.

    verdict   Markdown text of the first section; a workspace cannot test differences
    """
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name=name,
        auto_generate_panels=False,
        settings=ws.WorkspaceSettings(x_axis="epoch", smoothing_type="none", max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("Group") == group) if group else "",
            groupby=[ws.Config(LOSS)],
            order=[ws.Ordering(ws.Summary(FINAL), ascending=False)],
            pinned_columns=[f"summary:{FINAL}", f"summary:best/{FINAL}", "summary:knn/top1", "config:seed.value"],
        ),
        sections=sections(parameters, verdict),
    )


def sections(parameters: Sequence[str], verdict: str | None = None) -> list[Any]:
    """The sections of the workspace, from accuracies to diagnostics. A plot has the mean of each loss over its runs."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    by_loss: dict[str, Any] = {"groupby": wr.Config(LOSS), "groupby_aggfunc": "mean"}

    def curve(title: str, metric: str, x: str = "epoch") -> Any:
        """A line for each loss, with the standard error over its runs."""
        options = {**by_loss, "groupby_rangefunc": "stderr", "smoothing_type": "none", "max_runs_to_show": 100}
        return wr.LinePlot(title=title, x=x, y=[metric], title_x=x.rpartition("_")[2], **options)

    def bars(title: str, metric: str) -> Any:
        """A bar for each loss, with the standard deviation over its runs."""
        options = {**by_loss, "groupby_rangefunc": "stddev", "max_runs_to_show": 1000, "max_bars_to_show": 50}
        return wr.BarPlot(title=title, metrics=[metric], **options)

    axes = [wr.ParallelCoordinatesPlotColumn(wr.Config(name), log=name in LOGARITHMIC) for name in (LOSS, *parameters)]
    accuracy = wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(FINAL), display_name="linear probe")
    panels: dict[str, list[Any]] = {}
    if verdict is not None:
        panels["Which loss is the best"] = [wr.MarkdownPanel(markdown=verdict)]
    panels |= {
        "Final accuracy": [
            bars("Linear probe, last epoch: mean and standard deviation over seeds", FINAL),
            bars("Linear probe, best epoch", f"best/{FINAL}"),
            *(bars(f"{title_of(each)}, last epoch", each.key) for each in RESULTS.values() if each.key != FINAL),
        ],
        "Accuracy by epoch": [curve(title_of(each), each.key) for each in RESULTS.values()],
        "Parameters": [
            wr.ParallelCoordinatesPlot(title="From parameters to accuracy", columns=[*axes, accuracy]),
            wr.ParameterImportancePlot(with_respect_to=FINAL),
        ],
    }
    for panel in PANELS[len(SHARED) :]:
        panels[panel.title] = [
            curve(title_of(each), each.key, x=STEP if each.every_step else "epoch") for each in panel.metrics
        ]
    panels["Training"] = [
        curve("Loss (each loss has its own scale)", "train/loss_epoch"),
        curve("Learning rate", "lr", x=STEP),
        curve("Images per second", "images_per_second", x=STEP),
    ]
    return [ws.Section(name=name, is_open=name != "Training", panels=shown) for name, shown in panels.items()]


def title_of(metric: Metric) -> str:
    """The title of a panel, without the unit: W&B shows shares."""
    return metric.title[:1].upper() + metric.title[1:]
