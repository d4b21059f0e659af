"""Every private interface of W&B, and of Lightning's W&B logger, that `tracking` uses.

A private interface can change in any release; CHECKED holds the versions that were checked. One function here wraps
each of them. No other file of `tracking` uses a private name. `tests/app/tracking/test_private.py` fails with the name
of an interface that moved or changed.

Imports are late: `lightning-ssl dashboard --help` needs neither wandb nor torch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytorch_lightning.loggers import WandbLogger
    from wandb_workspaces.workspaces import Workspace


INTERFACES = {
    "wandb.sdk.lib.wbauth:authenticate_session": ("host", "source", "prompt", "update_session"),
    "wandb.apis.public.service_api:ServiceApi.execute_graphql": ("self", "query", "variables", "timeout"),
    "wandb_workspaces.workspaces:Workspace._to_model": ("self",),
}
"""Functions that their package does not document, with the parameters that are used here."""

CHECKED = {"wandb": "0.31.0", "wandb_workspaces": "0.4.13", "pytorch_lightning": "2.6.6"}


def has_key(base_url: str) -> bool:
    """Whether the client finds an API key for this server (WANDB_API_KEY, netrc). It asks no question."""
    from wandb.sdk.lib.wbauth import authenticate_session

    return authenticate_session(host=base_url, source="", prompt=False, update_session=False) is not None


def is_stopped(project: str, entity: str, run_id: str, timeout: float) -> bool:
    """Whether the server wants the run to stop: a user pressed Stop, or the sweep's early termination chose it."""
    import wandb

    query = """query RunStoppedStatus($projectName: String, $entityName: String, $runId: String!) {
        project(name: $projectName, entityName: $entityName) { run(name: $runId) { stopped } }
    }"""  # that of `LaunchApi.check_stop_requested`, which has no timeout
    variables = {"projectName": project, "entityName": entity, "runId": run_id}
    answer: dict[str, Any] = wandb.Api()._service_api.execute_graphql(query, variables, timeout)
    return bool(((answer.get("project") or {}).get("run") or {}).get("stopped"))


def workspace_as_dict(workspace: Workspace) -> dict[str, Any]:
    """The content that `workspace.save()` sends."""
    view = workspace._to_model()
    spec = json.loads(view.spec.model_dump_json(by_alias=True, exclude_none=True))
    return {"entity": view.entity, "project": view.project, "displayName": view.display_name, "spec": spec}


def started_run(logger: WandbLogger) -> Any | None:
    """The W&B run of a logger; None before it is started. The property `experiment` would start it."""
    return logger._experiment


def set_run(logger: WandbLogger, run: Any | None) -> None:
    """Set the W&B run of a logger, which Lightning's own methods also read."""
    logger._experiment = run
