"""docs/_generated/coverage.md: every statement of the papers, and where it is tested, from papers/coverage.yaml."""

from __future__ import annotations

from typing import Any

from lightning_ssl.papers import coverage

STATES = ("tested", "not tested")


def page() -> str:
    """The number of items of each paper, and a table of them for each paper."""
    found = coverage()
    parts = [summary(found)]
    for paper, title in found["papers"].items():
        rows = ["| item | statement | state | where, or why not |", "|---|---|---|---|"]
        rows += [row(item) for item in of_paper(found, paper)]
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def of_paper(found: dict[str, Any], paper: str) -> list[dict[str, Any]]:
    """The items of one paper; an item can belong to several versions of a paper."""
    return [item for item in found["items"] if paper == item["paper"] or paper in list(item["paper"])]


def summary(found: dict[str, Any]) -> str:
    """How many items of each paper have each state."""
    rows = [f"| paper | items | {' | '.join(STATES)} |", "|---|" + "---:|" * (1 + len(STATES))]
    for paper, title in found["papers"].items():
        states = [item["state"] for item in of_paper(found, paper)]
        counts = " | ".join(str(states.count(state)) for state in STATES)
        rows.append(f"| {title.partition(':')[0]} | {len(states)} | {counts} |")
    return "\n".join(rows)


def row(item: dict[str, Any]) -> str:
    """One line of a table: file, claim and command of a tested item, and what is left out."""
    where = []
    if "file" in item:
        where.append(f"`{item['file']}`" + (f": “{item['claim']}”" if "claim" in item else ""))
    if "command" in item:
        where.append(f"`{item['command']}`")
    if "reason" in item:
        where.append(item["reason"])
    cells = (item["item"], item["says"], item["state"], "; ".join(where))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
