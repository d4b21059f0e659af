"""looks.json beside the runs of a sweep: the looks at which seeds were added, and what each decided.

[{"data": "shapes", "seeds": 5, "survivors": ["AlphaCL Direct p=4", "SimCLR InfoNCE"], "decided": false, …}, …]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_type_hints

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.convert import convert
from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.untrusted import load_json, read_text
from lightning_ssl.comparison.looks import Outcome

FILE = "looks.json"
Rates = Literal["looks", "open-ended"]


@dataclass(frozen=True)
class TakenLook:
    """A look at the losses on one data set. Losses have the titles of the report.

    seeds      the number of seeds at which it was planned
    survivors  the losses that can be the best
    decided    whether no loss gets more seeds, because one wins or the survivors are equivalent
    outcome    as in comparison/looks.py
    losses     the number of losses at the first look
    rates      looks: 5, 8 and 12 seeds; open-ended: after every seed
    within     survivors whose differences are below it, in points, are equivalent; None: not tested
    results    the accuracies that were compared, in percent: loss → seed → accuracy
    """

    data: str
    seeds: int
    survivors: list[str]
    decided: bool
    outcome: Outcome
    losses: int
    rates: Rates = "looks"
    within: float | None = None
    results: dict[str, dict[str, float]] = field(default_factory=dict)


def read_looks(folder: Path) -> list[TakenLook]:
    """Read the looks of a sweep's folder, in the order in which they were taken; none without the file."""
    file = folder / FILE
    if not file.is_file():
        return []
    hints = get_type_hints(TakenLook)
    try:
        entries = convert(load_json(read_text(file)), list[dict])
        return [TakenLook(**{key: convert(value, hints[key]) for key, value in entry.items()}) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file}: not the looks of a sweep ({error})") from error


def write_looks(folder: Path, looks: Sequence[TakenLook]) -> None:
    text = json.dumps([asdict(look) for look in looks], indent=1, ensure_ascii=False)
    write_atomic(folder / FILE, f"{text}\n".encode())
