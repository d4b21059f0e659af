"""Reproductions that are laboratories: their claims have a published figure, and a rule of their own.

A rule about the mean of several runs holds if the 95 % interval of the mean (Student's t over runs) is on the claimed
side, does not hold if it is on the other side, and is not decided otherwise. Other rules hold or do not hold.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning_ssl.app.report.formats import Cell, md_cell, md_table, to_csv
from lightning_ssl.app.reproduce.recipe import Reproduction
from lightning_ssl.app.runs.version import version
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.base import machine
from lightning_ssl.base.checks import UserError, is_number, require
from lightning_ssl.base.files import Content, copy_of, write_all
from lightning_ssl.base.untrusted import load_json, read_text
from lightning_ssl.comparison.claims import VERDICTS, Verdict, decide
from lightning_ssl.comparison.spread import interval, standard_error
from lightning_ssl.labs.lab import RELATIONS

RULE = (
    "± is the standard deviation over runs. A claim holds by the rule beside it. If the rule is about the mean of "
    "several runs, the whole 95 % interval of the mean (Student's t) must satisfy it. If no part of the interval "
    "satisfies it, the claim does not hold. Otherwise it is not decided."
)
RESULT = {
    "settings": "a mapping",
    "claims": "a list",
    "notes": "a list",
    "seconds": "a finite number or null",
    "origin": "a mapping",
}
CLAIM = {
    **dict.fromkeys(("name", "rule", "relation"), "text"),
    **dict.fromkeys(("ours", "std", "paper", "paper_std", "margin"), "a finite number or null"),
    "agrees": "true or false",
    "count": "a whole number of at least 1",
}
KINDS: dict[str, Callable[[Any], bool]] = {
    "a mapping": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "text": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a whole number of at least 1": lambda value: type(value) is int and value >= 1,
    "a finite number or null": lambda value: value is None or (is_number(value) and math.isfinite(value)),
}


def result_of(reproduction: Reproduction, folder: Path, seeds: int | None, train: bool) -> dict[str, Any]:
    """The content of results.json in the folder. The laboratory runs if it is missing or has other seeds."""
    file = folder / "results.json"
    if file.is_file():
        found = read(file)
        if seeds is None or found["settings"].get("seeds") == seeds:
            return found
    if not train:
        raise UserError(f"{file}: no result to compare; run without --no-train")
    run = importlib.import_module(f"lightning_ssl.labs.{reproduction.lab}").run
    start = time.perf_counter()
    result = run(progress=True, **({} if seeds is None else {"seeds": seeds}))
    result.seconds = time.perf_counter() - start
    result.origin = {"version": version(), "machine": machine.describe()}
    result.save(folder)
    return read(file)


def read(file: Path) -> dict[str, Any]:
    """Read a results.json. Other content is refused with one line."""
    try:
        found = load_json(read_text(file))
        check(found)
    except ValueError as error:
        again = "delete it and run the command again"
        raise UserError(f"{file} is not the result of a laboratory: {again} ({error})") from error
    result: dict[str, Any] = found
    return result


def check(found: Any) -> None:
    """Refuse a result of another shape than `labs.lab.Result.save` writes, as far as it is used here."""
    require_shape("", found, RESULT)
    for number, claim in enumerate(found["claims"]):
        require_shape(f"claims[{number}].", claim, CLAIM)
    for number, note in enumerate(found["notes"]):
        require(isinstance(note, str), f"notes[{number}]", note, "text")


def require_shape(above: str, found: Any, shape: dict[str, str]) -> None:
    """Refuse anything but a mapping with these keys, whose values have these kinds.

    above   the start of a key in an error, such as `claims[0].`
    """
    require(isinstance(found, dict), above.removesuffix(".") or "content", found, "a mapping")
    for key, kind in shape.items():
        if key not in found:
            raise UserError(f"{above}{key}: a required key is missing")
        require(KINDS[kind](found[key]), f"{above}{key}", found[key], kind)


def write(reproduction: Reproduction, result: dict[str, Any], folder: Path, out: Path, command: str) -> list[Path]:
    """Write NAME.md, NAME.csv and the figure."""
    target = out / reproduction.name
    header = ["claim", "ours", "std", "runs", "relation", "published", "published_std", "margin", "rule", "verdict"]
    keys = ("name", "ours", "std", "count", "relation", "paper", "paper_std", "margin", "rule")
    lines: list[list[Cell]] = [[*(c[key] for key in keys), verdict_of(c)] for c in result["claims"]]
    texts = {".md": page(reproduction, result, command), ".csv": to_csv(header, lines)}
    # JSON can hold half a character.
    files: dict[Path, Content] = {target.with_suffix(end): text.encode(errors="replace") for end, text in texts.items()}
    if (folder / "figure.png").is_file():
        files[target.with_suffix(".png")] = copy_of(folder / "figure.png")
    write_all(files)
    return list(files)


def page(reproduction: Reproduction, result: dict[str, Any], command: str) -> str:
    claims = result["claims"]
    verdicts = [verdict_of(claim) for claim in claims]
    counts = ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in VERDICTS)
    lines = [["verdict", "claim", "rule", "published", "ours", "95 % interval"]]
    for c, verdict in zip(claims, verdicts, strict=True):
        relation = "" if c["relation"] == "=" else f"{c['relation']} "
        paper = f"{relation}{number(c['paper'])}" + ("" if c["paper_std"] is None else f" ± {number(c['paper_std'])}")
        judged = None not in (c["margin"], c["ours"], c["std"])
        interval = "[{}, {}]".format(*map(number, interval_of(c))) if judged else "–"
        lines.append([verdict, c["name"], c["rule"], paper, f"{number(c['ours'])} ± {number(c['std'])}", interval])
    name = reproduction.name
    notes = "\n".join(f"- {md_cell(note)}" for note in result["notes"])
    made = [("command", f"`{command}`"), *((md_cell(k), md_cell(str(v))) for k, v in result["origin"].items())]
    settings = ", ".join(f"{key}={value}" for key, value in result["settings"].items())
    made += [("duration", format_duration(result["seconds"])), ("settings", md_cell(settings))]
    parts = [
        f"# {reproduction.title}",
        f"{len(claims)} claims; {counts}. The setting of the paper runs on a CPU, so both scales are the same.",
        f"![{name}]({name}.png)",
        md_table(lines, text_columns=3),
        f"{RULE}\n\n{notes}",
        "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in made)]),
    ]
    return "\n\n".join(parts) + "\n"


def verdict_of(claim: dict[str, Any]) -> Verdict:
    """The verdict of a claim, by the interval of its mean if its rule is about the mean of several runs."""
    relation, numbers = RELATIONS.get(claim["relation"]), [claim[key] for key in ("margin", "ours", "std", "paper")]
    if relation is None or None in numbers:
        return "holds" if claim["agrees"] else "does not hold"
    low, high = interval_of(claim)
    return decide(relation, low - claim["paper"], high - claim["paper"], claim["margin"])


def interval_of(claim: dict[str, Any]) -> tuple[float, float]:
    """The 95 % interval of the mean of a claim; the mean itself if there is one run."""
    count = claim["count"]
    return interval(claim["ours"], standard_error((claim["std"], count)), count - 1)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
