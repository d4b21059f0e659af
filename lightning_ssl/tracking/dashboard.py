"""`lightning-ssl dashboard`: the W&B workspace that compares losses, made in one go.

    lightning-ssl dashboard --entity me --project lightning_ssl
    lightning-ssl dashboard --entity me --project lightning_ssl --dump workspace.json      no server, no account

Runs are grouped by their loss with its parameters (`label`; see logger.py for what a run tells W&B): accuracy of the
probes over epochs with a band of the standard error over seeds, final accuracy with error bars, parallel coordinates
over what is usually swept, what α does, how many dimensions the features fill.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

LOSS = "label"
FINAL = "online/top1"
STEP = "trainer/global_step"  # Lightning's name
# What every run has; W&B leaves a run without one of its axes out of the plot.
PARAMETERS = ("batch_size", "lr", "epochs")
LOGARITHMIC = ("tau", "batch_size", "lr")


def save(workspace: Workspace) -> None:
    """Send it, or say in one line why that cannot be."""
    from lightning_ssl.tracking import connection

    mode, reason = connection.mode()
    if mode != "online":
        raise ValueError(f"dashboard: {reason}; --dump FILE writes the workspace without a server")
    try:
        workspace.save()
    except Exception as error:  # refused key, unknown project, …
        raise ValueError(f"dashboard: {connection.told(error)}") from error
    print(f"the workspace is at {workspace.url}")


def as_dict(workspace: Workspace) -> dict[str, Any]:
    """What `save` would send."""
    view = workspace._to_model()
    spec = json.loads(view.spec.model_dump_json(by_alias=True, exclude_none=True))
    return {"entity": view.entity, "project": view.project, "displayName": view.display_name, "spec": spec}


def build(
    entity: str,
    project: str,
    name: str = "Losses",
    group: str | None = None,
    parameters: Sequence[str] = PARAMETERS,
) -> Workspace:
    """The workspace, as an object of wandb-workspaces that nobody has been told of."""
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
    """From the answer to its reasons."""
    import wandb_workspaces.workspaces as ws

    return [
        ws.Section(
            name="Final accuracy",
            is_open=True,
            panels=[
                bars("Linear probe, last epoch: mean and standard deviation over seeds", FINAL),
                bars("Linear probe, best epoch", f"best/{FINAL}"),
                bars("Nearest neighbours, last epoch", "knn/top1"),
            ],
        ),
        ws.Section(
            name="Accuracy by epoch",
            is_open=True,
            panels=[lines("Linear probe, top 1", FINAL), lines("Nearest neighbours, top 1", "knn/top1")],
        ),
        ws.Section(name="What was swept", is_open=True, panels=[coordinates(parameters), parameter_importance()]),
        ws.Section(
            name="Pair importance α",
            is_open=True,
            panels=[
                lines("Effective negatives of an anchor", "alpha/effective_negatives", x=STEP),
                lines("Entropy of a row of α", "alpha/entropy", x=STEP),
                lines("Part of α that is zero", "alpha/zeros", x=STEP),
                lines("Largest α of a row", "alpha/top1", x=STEP),
            ],
        ),
        ws.Section(
            name="Features: rank and collapse",
            is_open=False,
            panels=[
                lines("RankMe", "spectrum/rankme"),
                lines("Effective rank", "spectrum/effective"),
                lines("Standard deviation of unit features", "spectrum/std"),
                lines("Alignment", "spectrum/alignment"),
                lines("Uniformity", "spectrum/uniformity"),
            ],
        ),
        ws.Section(
            name="Training",
            is_open=False,
            panels=[
                lines("Loss (of different scale for different losses)", "train/loss_epoch"),
                lines("Learning rate", "lr", x=STEP),
                lines("Images per second", "images_per_second", x=STEP),
            ],
        ),
    ]


def lines(title: str, metric: str, x: str = "epoch") -> Any:
    """A line a loss, with a band of the standard error over its runs."""
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(
        title=title,
        x=x,
        y=[metric],
        title_x=x.rpartition("_")[2],
        groupby=wr.Config(LOSS),
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        smoothing_type="none",
        max_runs_to_show=100,
    )


def bars(title: str, metric: str) -> Any:
    """A bar a loss, with the standard deviation over its runs."""
    import wandb_workspaces.reports.v2 as wr

    return wr.BarPlot(
        title=title,
        metrics=[metric],
        groupby=wr.Config(LOSS),
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
        max_runs_to_show=1000,
        max_bars_to_show=50,
    )


def coordinates(parameters: Sequence[str]) -> Any:
    """A line a run, from its loss and parameters to its accuracy."""
    import wandb_workspaces.reports.v2 as wr

    axes = [wr.ParallelCoordinatesPlotColumn(wr.Config(name), log=name in LOGARITHMIC) for name in (LOSS, *parameters)]
    accuracy = wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(FINAL), display_name="linear probe")
    return wr.ParallelCoordinatesPlot(title="From parameters to accuracy", columns=[*axes, accuracy])


def parameter_importance() -> Any:
    """Which parameter tells most of the accuracy."""
    import wandb_workspaces.reports.v2 as wr

    return wr.ParameterImportancePlot(with_respect_to=FINAL)
