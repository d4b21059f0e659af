"""Reproductions that are laboratories: their claims have a published figure, and a rule of their own.

`labs.lab.Claim` decides: by the interval of the mean if the rule is about the mean of several runs, else by the rule.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path

from lightning_ssl.app.report.formats import md_cell, md_table, to_csv
from lightning_ssl.app.reproduce.recipe import Reproduction
from lightning_ssl.app.reproduce.writing import facts_table
from lightning_ssl.app.runs.version import version
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.base import machine
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.files import Content, copy_of, write_all
from lightning_ssl.base.untrusted import load_json, one_line, read_text
from lightning_ssl.labs.lab import Claim, Result

RULE = (
    "± is the standard deviation over runs. Every claim has the rule beside it. If the rule is about the mean of "
    "several runs, the interval of the mean (Student's t over runs; 95 %, and 90 % for equality: two one-sided tests) "
    "decides: the claim holds if the whole interval satisfies the rule, is contradicted if no part of it does, and is "
    "not decided otherwise. “One number” is a number within a tolerance or not, and “no spread” the same number in "
    "every run: there is no interval. “The rule” is about every run, or another one without an interval. Every "
    "interval has an error rate of 5 % of its own; nothing is corrected for the number of claims."
)
# The columns of NAME.csv, with the fields of a claim.
COLUMNS = {
    "claim": "name", "ours": "ours", "std": "std", "runs": "count", "relation": "relation", "published": "paper",
    "published_std": "paper_std", "margin": "margin", "rule": "rule",
}  # fmt: skip


def result_of(reproduction: Reproduction, folder: Path, seeds: int | None, train: bool) -> Result:
    """The content of results.json in the folder. The laboratory runs if it is missing or has other seeds."""
    file = folder / "results.json"
    if file.is_file():
        found = read(file)
        if seeds is None or found.settings.get("seeds") == seeds:
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


def read(file: Path) -> Result:
    """Read a results.json. Other content is refused with one line. A number that is not finite is None."""
    try:
        found = load_json(read_text(file))
        claims = [Claim(**{k: v for k, v in each.items() if k != "difference"}) for each in found["claims"]]
        notes, about = [str(note) for note in found["notes"]], dict(found["origin"])
        return Result("", dict(found["settings"]), {}, claims, notes, seconds=found["seconds"], origin=about)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        again = "delete it and run the command again"
        raise UserError(f"{file} is not the result of a laboratory: {again} ({one_line(error)})") from error


def write(reproduction: Reproduction, result: Result, folder: Path, out: Path, command: str) -> list[Path]:
    """Write NAME.md, NAME.csv and the figure."""
    target = out / reproduction.name
    lines = [{key: getattr(c, name) for key, name in COLUMNS.items()} | {"verdict": c.outcome} for c in result.claims]
    texts = {".md": page(reproduction, result, command), ".csv": to_csv(lines)}
    # JSON can hold half a character.
    files: dict[Path, Content] = {target.with_suffix(end): text.encode(errors="replace") for end, text in texts.items()}
    if (folder / "figure.png").is_file():
        files[target.with_suffix(".png")] = copy_of(folder / "figure.png")
    write_all(files)
    return list(files)


def page(reproduction: Reproduction, result: Result, command: str) -> str:
    lines = [["verdict", "claim", "rule", "published", "ours", "interval"]]
    for c in result.claims:
        relation = "" if c.relation == "=" else f"{c.relation} "
        paper = f"{relation}{number(c.paper)}" + ("" if c.paper_std is None else f" ± {number(c.paper_std)}")
        ours = number(c.ours) + ("" if c.is_one_number else f" ± {number(c.std)}")
        lines.append([c.outcome, c.name, c.rule, paper, ours, c.basis()])
    name = reproduction.name
    notes = "\n".join(f"- {md_cell(note)}" for note in result.notes)
    made = [("command", f"`{command}`"), *((md_cell(k), md_cell(str(v))) for k, v in result.origin.items())]
    settings = ", ".join(f"{key}={value}" for key, value in result.settings.items())
    made += [("duration", format_duration(result.seconds)), ("settings", md_cell(settings))]
    parts = [
        f"# {reproduction.title}",
        f"{result.counts()}. The setting of the paper runs on a CPU, so both scales are the same.",
        f"![{name}]({name}.png)",
        md_table(lines, text_columns=3),
        f"{RULE}\n\n{notes}",
        facts_table(made),
    ]
    return "\n\n".join(parts) + "\n"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
