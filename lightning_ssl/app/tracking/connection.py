"""Find out whether a W&B server can be reached, within seconds and without a question to the user.

    chosen, reason = connection.mode()        ("online", ""), or ("offline", "there is no key …")
    wandb.init(mode=chosen, settings=connection.settings())

By default the client asks for a missing key, waits 90 s or more for a server that accepts connections but does not
answer, and waits without a limit at the end of a run.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pydantic
import requests
import wandb

from lightning_ssl.app.tracking import private
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.untrusted import one_line

PING_TIMEOUT = 4.0  # seconds until the first response of the server
# The client can add ten seconds to init_timeout. The sum of all timeouts is at most 30 seconds.
TIMEOUTS = {"init_timeout": 6.0, "finish_timeout": 10.0}


def settings() -> dict[str, Any]:
    """Settings of the client: short timeouts and no output.

    WANDB_INIT_TIMEOUT and WANDB_FINISH_TIMEOUT have priority. A silent client asks no question; the caller prints one
    line instead of the client's twenty.
    """
    timeouts = {key: value for key, value in TIMEOUTS.items() if f"WANDB_{key.upper()}" not in os.environ}
    return {**timeouts, "finish_timeout_raises": True, "silent": True}


def mode() -> tuple[str, str]:
    """The mode for `wandb.init`, and the reason if it is not online."""
    try:
        found = wandb.setup(wandb.Settings(**settings())).settings
        requested = {"run": "online", "dryrun": "offline"}.get(found.mode, found.mode)
        if requested in ("offline", "disabled"):  # WANDB_MODE, `wandb offline`
            return requested, f"{requested}, as requested"
        if not private.has_key(found.base_url):
            return "offline", "there is no key (WANDB_API_KEY, or `wandb login`)"
    except pydantic.ValidationError as error:  # such as WANDB_MODE=maybe
        raise UserError(f"W&B's settings: {error_line(error)}") from error
    except Exception as error:  # a malformed key; wandb.init will raise the same error
        return "online", error_line(error)
    if not is_reachable(found):
        return "offline", f"{found.base_url} does not answer"
    return requested, ""


def is_reachable(found: wandb.Settings) -> bool:
    """Whether the server answers, with any status."""
    proxies = {"http": found.http_proxy, "https": found.https_proxy}
    try:
        requests.head(
            found.base_url, timeout=PING_TIMEOUT, proxies={scheme: proxy for scheme, proxy in proxies.items() if proxy}
        )
    except requests.exceptions.SSLError:  # there is a server; the client has its own certificates
        return True
    except requests.RequestException:
        return False
    return True


def error_line(error: Exception) -> str:
    """An error message in one line, with every API key removed."""
    key = os.environ.get("WANDB_API_KEY")
    line = str(error).replace(key, "…") if key else str(error)
    line = re.sub(r"[0-9a-fA-F]{40,}", "…", line)  # a key from another place, such as netrc
    return one_line(Exception(line or type(error).__name__))
