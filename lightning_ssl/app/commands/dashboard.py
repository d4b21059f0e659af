"""`lightning-ssl dashboard`: create the W&B workspace that compares losses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.app.commands.parser import Parser
from lightning_ssl.app.tracking.dashboard import PARAMETERS, build, save
from lightning_ssl.app.tracking.private import workspace_as_dict
from lightning_ssl.base.checks import require, require_line
from lightning_ssl.base.files import require_replaceable, write_atomic

MARKER = b"lightning-ssl dashboard"  # in every file that this command writes

EXAMPLES = """examples:
  lightning-ssl dashboard --entity me --project lightning_ssl
  lightning-ssl dashboard --entity me --project lightning_ssl --group 4kzq0n7s --parameters tau,p     one sweep
  lightning-ssl dashboard --entity me --project lightning_ssl --dump -          print it, send nothing"""


def parser() -> Parser:
    """The command line. It needs neither torch nor wandb."""
    top = Parser(
        prog="lightning-ssl dashboard",
        description="Create the W&B workspace that compares losses.",
        epilog=EXAMPLES,
    )
    top.add_argument("--entity", required=True, help="the user or team that owns the project")
    top.add_argument("--project", required=True, help="the project of the runs")
    top.add_argument("--name", default="Losses", help="name of the workspace (default: %(default)s)")
    top.add_argument("--group", help="show only runs of this group, such as the id of a sweep")
    top.add_argument(
        "--parameters", default=",".join(PARAMETERS), metavar="LIST",
        help="axes of the parallel coordinates, such as tau,p (default: %(default)s)",
    )  # fmt: skip
    top.add_argument("--dump", metavar="FILE", help="write the workspace as JSON and send nothing; - prints it")
    top.add_argument("--force", action="store_true", help="replace any regular file at --dump")
    return top


def main(argv: Sequence[str]) -> int:
    """Build the workspace, then save it in W&B or write it to a file."""
    arguments = parser().parse_args(list(argv))
    for key in ("entity", "project"):
        value = getattr(arguments, key)
        require(re.fullmatch(r"[\w.-]+", value) is not None, key, value, "a name of letters, digits, -, _ and .")
    for key in ("name", "group", "parameters"):
        if getattr(arguments, key) is not None:
            require_line(key, getattr(arguments, key))
    if arguments.dump not in (None, "-"):
        require_replaceable(Path(arguments.dump), MARKER, arguments.force, "dump")
    parameters = [name.strip() for name in arguments.parameters.split(",") if name.strip()]
    workspace = build(arguments.entity, arguments.project, arguments.name, arguments.group, parameters)
    if arguments.dump:
        text = (
            json.dumps({"generator": MARKER.decode(), **workspace_as_dict(workspace)}, indent=2, ensure_ascii=False)
            + "\n"
        )
        if arguments.dump == "-":
            sys.stdout.write(text)
        else:
            write_atomic(Path(arguments.dump), text.encode())
            print(f"the workspace is in {arguments.dump}")
        return 0
    save(workspace)
    return 0
