"""The first write of a run: config.yaml and summary.json."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lightning_ssl.app.config.keys import role
from lightning_ssl.app.config.labels import flatten, label_of
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.runs.version import version
from lightning_ssl.base import machine


def begin(run: RunFolder, config: dict[str, Any], command: list[str], checkpoint: Path | None = None) -> str:
    """Write config.yaml and the first summary.json of a run, or of a resumed one. Returns the label of the loss."""
    before = run.summary() if checkpoint is not None else {}
    if checkpoint is not None:
        run.abandon_newer(checkpoint)
    flat = flatten(config)
    label = label_of(flat)
    # What the run is: the report and other programs need no list of keys to know it.
    by_role = {name: {k: v for k, v in flat.items() if role(k) == name} for name in ("loss", "data", "setting")}
    run.write_config(config)  # first: a folder with a summary and without a configuration would be refused later
    run.update_summary(
        name=run.path.name,
        status="running",
        error=None,
        label=label,
        loss=by_role["loss"],
        data=by_role["data"],
        settings=by_role["setting"],
        command=command,
        started=before.get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seed=config.get("seed_everything"),
        group=config.get("group"),
        tags=config.get("tags") or [],
        version=version(),
        machine=machine.describe(),
        last=before.get("last", {}),
        best=before.get("best", {}),
        linear={},  # an evaluation of other weights
    )
    return label
