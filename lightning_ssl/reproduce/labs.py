"""Reproductions that are laboratories: their claims have a published figure, and a rule of their own."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from lightning_ssl import machine
from lightning_ssl.files import write_atomic
from lightning_ssl.report.tables import Cell, md_cell, to_csv
from lightning_ssl.reproduce.recipe import Reproduction
from lightning_ssl.reproduce.writing import markdown
from lightning_ssl.runs.version import version
from lightning_ssl.sweep.screen import format_duration
from lightning_ssl.untrusted import load_json, read_text


def result_of(reproduction: Reproduction, folder: Path, seeds: int | None, train: bool) -> dict[str, Any]:
    """The content of results.json in the folder. The laboratory runs if it is missing or has other seeds."""
    file = folder / "results.json"
    if file.is_file():
        found = read(file)
        if seeds is None or found["settings"].get("seeds") == seeds:
            return found
    if not train:
        raise ValueError(f"{file}: no result to compare; run without --no-train")
    run = importlib.import_module(f"lightning_ssl.labs.{reproduction.lab}").run
    start = time.perf_counter()
    result = run(progress=True, **({} if seeds is None else {"seeds": seeds}))
    result.seconds = time.perf_counter() - start
    result.save(folder)
    return read(file)


def read(file: Path) -> dict[str, Any]:
    """Read a results.json. Other content is refused with one line."""
    try:
        found: dict[str, Any] = load_json(read_text(file))
        if {"settings", "claims", "notes", "seconds"} <= set(found) and isinstance(found["settings"], dict):
            return found
    except (ValueError, TypeError):
        pass
    raise ValueError(f"{file} is not the result of a laboratory: delete it and run the command again")


def write(reproduction: Reproduction, result: dict[str, Any], folder: Path, out: Path, command: str) -> list[Path]:
    """Write NAME.md, NAME.csv and the figure."""
    target = out / reproduction.name
    claims = result["claims"]
    written = [target.with_suffix(".md"), target.with_suffix(".csv")]
    write_atomic(written[0], page(reproduction, result, command).encode())
    header = ["claim", "ours", "std", "relation", "published", "published_std", "rule", "verdict"]
    lines: list[list[Cell]] = [
        [c["name"], c["ours"], c["std"], c["relation"], c["paper"], c["paper_std"], c["rule"], verdict_of(c)]
        for c in claims
    ]
    write_atomic(written[1], to_csv(header, lines).encode())
    for suffix in (".png", ".svg"):
        if (folder / f"figure{suffix}").is_file():
            written.append(target.with_suffix(suffix))
            write_atomic(written[-1], (folder / f"figure{suffix}").read_bytes())
    return written


def page(reproduction: Reproduction, result: dict[str, Any], command: str) -> str:
    claims = result["claims"]
    holding = sum(claim["agrees"] for claim in claims)
    lines = [["claim", "published", "ours", "rule", "verdict"]]
    for c in claims:
        relation = "" if c["relation"] == "=" else f"{c['relation']} "
        paper = f"{relation}{number(c['paper'])}" + ("" if c["paper_std"] is None else f" ± {number(c['paper_std'])}")
        lines.append([c["name"], paper, f"{number(c['ours'])} ± {number(c['std'])}", c["rule"], verdict_of(c)])
    name = reproduction.name
    notes = "\n".join(f"- {md_cell(note)}" for note in result["notes"])
    made = [("command", f"`{command}`"), ("version", md_cell(version())), ("machine", md_cell(machine.describe()))]
    settings = ", ".join(f"{key}={value}" for key, value in result["settings"].items())
    made += [("duration", format_duration(result["seconds"])), ("settings", md_cell(settings))]
    parts = [
        f"# {reproduction.title}",
        f"{holding} of {len(claims)} claims hold. The published setting runs on a CPU, so both scales are the same.",
        f"![{name}]({name}.png)",
        markdown(lines, text_columns=1),
        f"± is the standard deviation over runs. A claim holds by the rule beside it.\n\n{notes}",
        "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in made)]),
    ]
    return "\n\n".join(parts) + "\n"


def verdict_of(claim: dict[str, Any]) -> str:
    return "holds" if claim["agrees"] else "does not hold"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
