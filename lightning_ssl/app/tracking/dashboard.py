"""The W&B workspace that compares losses.

    lightning-ssl dashboard --entity me --project lightning_ssl
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
    entity: str,
    project: str,
    name: str = "Losses",
    group: str | None = None,
    parameters: Sequence[str] = PARAMETERS,
) -> Workspace:
    """Build the workspace as an object of wandb-workspaces. Nothing is sent."""
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
        sections=sections(parameters),
    )


def sections(parameters: Sequence[str]) -> list[Any]:
    """The sections of the workspace, from accuracies to diagnostics."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    searched = [parallel_coordinates(parameters), wr.ParameterImportancePlot(with_respect_to=FINAL)]
    return [
        ws.Section(
            name="Final accuracy",
            is_open=True,
            panels=[
                bar_plot("Linear probe, last epoch: mean and standard deviation over seeds", FINAL),
                bar_plot("Linear probe, best epoch", f"best/{FINAL}"),
                *(bar_plot(f"{title(each)}, last epoch", each.key) for each in RESULTS.values() if each.key != FINAL),
            ],
        ),
        ws.Section(
            name="Accuracy by epoch",
            is_open=True,
            panels=[line_plot(title(each), each.key) for each in RESULTS.values()],
        ),
        ws.Section(name="Parameters", is_open=True, panels=searched),
        *(
            ws.Section(
                name=panel.title,
                is_open=True,
                panels=[
                    line_plot(title(each), each.key, x=STEP if each.every_step else "epoch") for each in panel.metrics
                ],
            )
            for panel in PANELS[len(SHARED) :]
        ),
        ws.Section(
            name="Training",
            is_open=False,
            panels=[
                line_plot("Loss (each loss has its own scale)", "train/loss_epoch"),
                line_plot("Learning rate", "lr", x=STEP),
                line_plot("Images per second", "images_per_second", x=STEP),
            ],
        ),
    ]


def title(metric: Metric) -> str:
    """The title of a panel, without the unit: W&B shows shares."""
    return metric.title[:1].upper() + metric.title[1:]


def line_plot(title: str, metric: str, x: str = "epoch") -> Any:
    """A line plot: one line per loss, with the standard error over its runs."""
    import wandb_workspaces.reports.v2 as wr

    options = {**by_loss("stderr"), "smoothing_type": "none", "max_runs_to_show": 100}
    return wr.LinePlot(title=title, x=x, y=[metric], title_x=x.rpartition("_")[2], **options)


def bar_plot(title: str, metric: str) -> Any:
    """A bar plot: one bar per loss, with the standard deviation over its runs."""
    import wandb_workspaces.reports.v2 as wr

    return wr.BarPlot(title=title, metrics=[metric], **by_loss("stddev"), max_runs_to_show=1000, max_bars_to_show=50)


def by_loss(spread: str) -> dict[str, Any]:
    """Arguments of a plot: the mean of each loss, with the spread over its runs."""
    import wandb_workspaces.reports.v2 as wr

    return {"groupby": wr.Config(LOSS), "groupby_aggfunc": "mean", "groupby_rangefunc": spread}


def parallel_coordinates(parameters: Sequence[str]) -> Any:
    """Parallel coordinates: one line per run, from loss and parameters to accuracy."""
    import wandb_workspaces.reports.v2 as wr

    axes = [wr.ParallelCoordinatesPlotColumn(wr.Config(name), log=name in LOGARITHMIC) for name in (LOSS, *parameters)]
    accuracy = wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(FINAL), display_name="linear probe")
    return wr.ParallelCoordinatesPlot(title="From parameters to accuracy", columns=[*axes, accuracy])
