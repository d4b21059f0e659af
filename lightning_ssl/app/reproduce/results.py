"""The runs of each row of a table, with their early and their late accuracy.

early   the online probe at 20 % of the training, as the papers' first column is 100 of 500 epochs
late    the linear evaluation of the papers' protocol after training; the online probe if a finished run lacks it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_ssl.app.config.labels import Scalar, label_of, plain_number
from lightning_ssl.app.report.data_sets import base_name
from lightning_ssl.app.report.groups import accuracy
from lightning_ssl.app.reproduce.recipe import EARLY, Moment, Reproduction, Row, Work
from lightning_ssl.app.reproduce.verdicts import KINDS, Judgement, judge
from lightning_ssl.app.runs.run_record import RunRecord

TOLERANCE = 0.02  # of the share of the training
MOMENTS: tuple[Moment, ...] = ("early", "late")
PROBE, EVALUATION = "online/top1", "linear/adam_top1"


@dataclass(frozen=True)
class Measured:
    """A run, its row and its accuracies in percent; None where it has none."""

    run: RunRecord
    row: Row | None
    data: str
    early: float | None
    late: float | None


@dataclass(frozen=True)
class Table:
    """The runs of a reproduction and its claims, judged, the primary ones first."""

    reproduction: Reproduction
    work: Work
    late_metric: str
    measured: list[Measured]
    judgements: list[Judgement]

    def values(self, row: str, data: str, at: Moment) -> dict[Scalar, float]:
        """Seed → accuracy in percent of the finished runs of a row."""
        found = {}
        for each in self.measured:
            value = each.early if at == "early" else each.late
            if each.row is not None and (each.row.key, each.data) == (row, data) and value is not None:
                found[each.run.seed] = value
        return found

    def published(self, row: str, data: str, at: Moment) -> tuple[float, float] | None:
        return self.reproduction.published(row, self.work.published_on or data, at)


def tabulate(reproduction: Reproduction, work: Work, runs: Sequence[RunRecord]) -> Table:
    """Assign the runs to rows, measure them, and judge the claims on every data set."""
    finished = [run for run in runs if run.finished]
    evaluated = bool(finished) and all(run.last(EVALUATION) is not None for run in finished)
    metric = EVALUATION if evaluated else PROBE
    measured = [
        Measured(run, row_of(run, reproduction), base_name(run.settings), early_accuracy(run), accuracy(run, metric))
        for run in runs
    ]
    table = Table(reproduction, work, metric, measured, [])
    for data in work.data:
        results = {(row, at): table.values(row, data, at) for row in reproduction.rows for at in MOMENTS}
        table.judgements.extend(judge(reproduction, work, data, results))
    table.judgements.sort(key=lambda j: KINDS.index(j.kind))
    return table


def row_of(run: RunRecord, reproduction: Reproduction) -> Row | None:
    """The row whose loss and settings a run has; the one with the most settings, if there are several."""
    if "model" not in run.settings:
        return None
    label = label_of(run.settings)

    def fits(row: Row) -> bool:
        settings = row.settings.items()
        return row.loss == label and all(plain_number(run.settings.get(k)) == plain_number(v) for k, v in settings)

    return max(filter(fits, reproduction.rows.values()), key=lambda row: len(row.settings), default=None)


def early_accuracy(run: RunRecord) -> float | None:
    """The online probe at 20 % of the training in percent; None if it was not measured then."""
    curve, epochs = run.curve(PROBE), run.settings.get("trainer.max_epochs")
    if not run.finished or curve is None or not isinstance(epochs, int):
        return None
    for trained, value in zip(*curve, strict=True):
        if abs(trained / epochs - EARLY) < TOLERANCE and 0 <= value <= 1:
            return 100 * float(value)
    return None
