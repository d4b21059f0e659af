"""Build the report page: one HTML file that contains its style, its scripts and its data, and opens without a network.

This module builds plain data, and the templates in `templates/` make HTML of it. The tables are HTML, so they can be
read, searched and copied without JavaScript; page.js sorts and filters them and draws the figures.

Text from run folders is untrusted. Three measures keep it from becoming code:
1. Jinja2 escapes every value (autoescape).
2. The figures' data is JSON without the characters that HTML interprets (Jinja2's `tojson`), and page.js escapes every
   name that it gives to Plotly, which interprets markup.
3. The page's Content-Security-Policy allows the two scripts whose hashes it lists, and no request to a server.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lightning_ssl.app.config.labels import format_value
from lightning_ssl.app.report.differences import distinct
from lightning_ssl.app.report.figure_data import SINGLE_RUN_PANELS, figure_data
from lightning_ssl.app.report.formats import counted, duration, p_digits, signed
from lightning_ssl.app.report.groups import Grouping, accuracy, count_statuses, setting_name
from lightning_ssl.app.report.tables import command_of, interval_text
from lightning_ssl.app.report.verdict import Results, seed_notes
from lightning_ssl.app.runs.panels import PANELS
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.base import palette
from lightning_ssl.base.facts import Metric, Panel
from lightning_ssl.comparison.best import FEWEST_FOR_A_WINNER
from lightning_ssl.comparison.estimate import LEVEL

PAIRS_SHOWN = 24  # best losses whose differences the page shows; pairs.csv has all
PAIRS_OPEN = 7  # losses up to which their table is open at first


def render(results: Results, title: str, downloads: Sequence[tuple[str, str]], refresh: int | None) -> str:
    """Return the HTML of the page.

    downloads   (file name, path relative to the page) of the files that the page links to
    refresh     seconds after which the page reloads itself; None for a page that does not
    """
    grouping = results.grouping
    js = (files("lightning_ssl.app.report") / "templates" / "page.js").read_text(encoding="utf-8")
    plotly, page = plotly_js(), templates().get_template("page.html")
    return page.render(
        **vars(results),
        policy=content_security_policy([plotly, js]),
        title=title,
        # Markup is safe for these two: they are files of this package and of plotly and contain no text of a run.
        js=Markup(js),
        plotly=Markup(plotly),
        data=figure_data(results, refresh),
        filters=filters(grouping),
        cautions=cautions(results),
        panels=[(panel, logged_metrics(panel, results.runs)) for panel in PANELS],
        downloads=downloads,
        built=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


@cache
def templates() -> Environment:
    """Return the Jinja2 environment: values are escaped, and an unknown variable is an error."""
    environment = Environment(
        loader=PackageLoader("lightning_ssl.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    words = (format_value, setting_name, signed, p_digits, percent_text, duration, interval_text)
    environment.filters |= {each.__name__: each for each in words}
    functions = (accuracy, command_of, count_statuses, counted)
    environment.globals |= {each.__name__: each for each in functions}
    environment.globals |= {"level": LEVEL, "palette": palette, "single_run_panels": SINGLE_RUN_PANELS}
    environment.globals |= {
        "fewest_for_a_winner": FEWEST_FOR_A_WINNER,
        "pairs_shown": PAIRS_SHOWN,
        "pairs_open": PAIRS_OPEN,
    }
    return environment


def content_security_policy(scripts: Sequence[str]) -> str:
    """Return a policy that allows these scripts alone.

    'unsafe-eval' is needed by plotly's parallel coordinates, which compile code for their shaders. 'unsafe-inline'
    applies to styles only: the page's style is inside the page, and Plotly sets styles on the elements that it draws.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def plotly_js() -> str:
    """Return plotly.js from the plotly package. The smaller bundles have no parallel coordinates."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")


def filters(grouping: Grouping) -> list[tuple[str, str, list[str]]]:
    """Return (attribute of the rows, title, values) of each drop-down list above the comparison table."""
    found = [("data", "data set", grouping.data_sets)] if len(grouping.data_sets) > 1 else []
    for k, key in enumerate(grouping.swept):
        values = distinct(group.settings[key] for group in grouping.groups)
        found.append((f"s{k}", setting_name(key), [format_value(value) for value in values]))
    return found


def percent_text(share: float | None) -> str:
    """Return a share in percent; a dash if it is missing or not finite."""
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.2f}"


def cautions(results: Results) -> list[str]:
    """Return what a reader must know beside the headline.

    Why data sets are separate, which seeds are not compared, whether measurements differ, whether something was chosen
    on test images.
    """
    grouping, differences = results.grouping, results.grouping.differences
    seeds = [note for compared in results.compared for note in seed_notes(compared)]
    note = differences.note() if differences.disturbs(grouping.metric) else None
    found = (grouping.separation, *seeds, note, results.chosen_on_test_images)
    return [text for text in found if text is not None]


def logged_metrics(panel: Panel, runs: Sequence[RunRecord]) -> list[Metric]:
    """Return the panel's metrics that at least one run has logged."""
    return [metric for metric in panel.metrics if any(metric.key in run.metrics for run in runs)]
