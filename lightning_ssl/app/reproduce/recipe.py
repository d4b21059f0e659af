"""The reproductions as data classes. `papers/reproductions/` has the tables, `labs.yaml` the laboratories.

>>> claim = load("dual-table2").claims[0]
>>> claim.text, claim.left, claim.relation, claim.right, claim.at, claim.margin
('Exact equals InfoNCE', ('exact',), 'equal', ('infonce',), 'late', 0.4)
>>> claim.statement.says, claim.statement.source
('the loss without the residue is comparable with InfoNCE', 'text')
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]

from lightning_ssl import papers
from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.base.checks import UserError
from lightning_ssl.comparison.claims import Relation

Moment = Literal["early", "late"]
Source = Literal["text", "table", "ours"]
"""Who makes a statement: a sentence of the paper, its table alone, or this package (a consequence or a question)."""
Treatment = Literal["text", "code", "ours"]
"""What a row computes: what the text of the paper says, what its released code does, or something else."""
EARLY = 0.2  # share of the training; the papers' first column is 100 of 500 epochs
DATA = "DATA"  # in a path of `Row.published`: the data set


@dataclass(frozen=True)
class Work:
    """What a reproduction runs at a scale."""

    sweeps: list[str]
    data: list[str]
    published_on: str | None = None  # the data set of the published figures, if it is another one


@dataclass(frozen=True)
class Row:
    """A row of a table: the label of its loss, and the settings that tell it from rows with the same loss."""

    key: str
    title: str
    loss: str
    treatment: Treatment
    reading: str = ""  # what is computed, where the text leaves a choice or the treatment differs from it
    settings: dict[str, Scalar] = field(default_factory=dict)
    published: str | None = None  # path in the figures of the paper, such as table1/DATA/direct


@dataclass(frozen=True)
class Statement:
    """A statement of the paper in our words, and its place: section and sentence, or table."""

    says: str
    place: str
    source: Source


@dataclass(frozen=True)
class Claim:
    """A comparison of rows that tests a statement. Several rows stand for their mean. The margin is in points.

    primary        whether it belongs to the family whose error rate is 5 %; the paper's text makes it
    data           the data sets on which it is claimed; None: all of the table
    against_table  the data sets on which the published figures contradict it: text of the paper against its table
    question       the question that it answers on the page of all results; `remark` follows the answer
    """

    text: str
    left: tuple[str, ...]
    relation: Relation
    right: tuple[str, ...]
    at: Moment
    statement: Statement
    margin: float = 0.0
    primary: bool = False
    data: tuple[str, ...] | None = None
    against_table: tuple[str, ...] = ()
    question: str = ""
    remark: str = ""

    def is_made_on(self, data: str) -> bool:
        return self.data is None or data in self.data


@dataclass(frozen=True)
class Reproduction:
    """A published table, or a laboratory (`lab`)."""

    name: str
    title: str
    works: dict[str, Work]
    rows: dict[str, Row]
    claims: tuple[Claim, ...]
    paper: str | None = None
    lab: str | None = None
    minutes: float = 0.0  # of a laboratory, on one core

    def longer(self, scale: str) -> dict[str, Work]:
        """What it runs at the scales after a scale, which train longer."""
        names = list(self.works)
        return {name: self.works[name] for name in names[names.index(scale) + 1 :]}

    def treatment(self, claim: Claim) -> Treatment:
        """The treatment of a claim: "text" only if it is that of all its rows."""
        found = {self.rows[row].treatment for row in (*claim.left, *claim.right)}
        return "ours" if "ours" in found else "code" if "code" in found else "text"

    def published(self, key: str, data: str, at: Moment) -> tuple[float, float] | None:
        """The published mean and standard deviation of a row in percent; None if there is none."""
        path = self.rows[key].published
        if path is None or self.paper is None:
            return None
        found: Any = papers.load(self.paper)
        for word in path.replace(DATA, data).split("/"):
            by_name = {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
            found = by_name.get(word)
        if not found:
            return None
        if not isinstance(found[0], list):  # a table that has the end of the training only
            return (found[0], found[1]) if at == "late" else None
        mean, std = found[0 if at == "early" else -1]
        return mean, std


def names() -> list[str]:
    """The reproductions, those of tables first."""
    folder = files(papers.__name__) / "reproductions"
    found = [file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")]
    return [*sorted(found, key=lambda name: ("table" not in name, "dual" in name, name)), *read("labs.yaml")]


def load(name: str) -> Reproduction:
    """Read one reproduction. An unknown name is a UserError."""
    if name not in names():
        raise UserError(f"name={name!r}: no such reproduction; see `lightning-ssl reproduce list`")
    labs = read("labs.yaml")
    if name in labs:
        return Reproduction(name, works={}, rows={}, claims=(), **labs[name])
    file = files(papers.__name__) / "reproductions" / f"{name}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    works = {scale: Work(**work) for scale, work in content.pop("scales").items()}
    rows = {key: Row(key, **row) for key, row in content.pop("rows").items()}
    margin = content.pop("margin", 0.0)
    claims = tuple(claim for entry in content.pop("statements") for claim in claims_of(margin, **entry))
    return Reproduction(name, works=works, rows=rows, claims=claims, **content)


def claims_of(margin: float, says: str, place: str, source: Source, claims: list[dict[str, Any]]) -> list[Claim]:
    """The claims that test a statement, one for each moment of an entry.

    margin   of the claims of equality and of "not below" that name none
    """
    statement = Statement(says, place, source)
    found = []
    for entry in claims:
        left, right = (tuple(side) if isinstance(side, list) else (side,) for side in (entry["left"], entry["right"]))
        other = {key: value for key, value in entry.items() if key not in ("text", "left", "is", "right", "at")}
        other |= {key: tuple(other[key]) for key in ("data", "against_table") if key in other}
        if entry["is"] in ("equal", "not below"):
            other = {"margin": margin, **other}
        found += [Claim(entry["text"], left, entry["is"], right, at, statement, **other) for at in entry["at"]]
    return found


def read(name: str) -> Any:
    """The content of a YAML file beside this one."""
    return yaml.safe_load((files(__package__) / name).read_text(encoding="utf-8"))
