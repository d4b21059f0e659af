"""Whether a W&B server can be reached, found out within seconds and without asking anybody anything.

    chosen, reason = connection.mode()        ("online", ""), or ("offline", "there is no key …")
    wandb.init(mode=chosen, settings=connection.settings())

Left to itself the client asks for a key where it finds none, waits 90 s and more for a server that accepts connections
and never answers, and at the end of a run waits for ever.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pydantic
import requests
import wandb
from wandb.sdk.lib.wbauth import authenticate_session

HELLO_TIMEOUT = 4.0  # seconds for a first answer of any kind
# The client may add ten seconds of its own to the first; all of it together stays within half a minute.
TIMEOUTS = {"init_timeout": 6.0, "finish_timeout": 10.0}


def settings() -> dict[str, Any]:
    """The client's: for how long it waits, unless WANDB_INIT_TIMEOUT and the like say otherwise; and that it is quiet.

    Silent it asks nothing, and does not say in twenty lines what a caller says in one.
    """
    timeouts = {key: value for key, value in TIMEOUTS.items() if f"WANDB_{key.upper()}" not in os.environ}
    return {**timeouts, "finish_timeout_raises": True, "silent": True}


def mode() -> tuple[str, str]:
    """The mode to begin in, and why if it is not online."""
    try:
        found = wandb.setup(wandb.Settings(**settings())).settings
        asked = {"run": "online", "dryrun": "offline"}.get(found.mode, found.mode)
        if asked in ("offline", "disabled"):  # WANDB_MODE, `wandb offline`
            return asked, f"{asked}, as asked"
        if authenticate_session(host=found.base_url, source="", prompt=False, update_session=False) is None:
            return "offline", "there is no key (WANDB_API_KEY, or `wandb login`)"
    except pydantic.ValidationError as error:  # such as WANDB_MODE=maybe
        raise ValueError(f"W&B's settings: {told(error)}") from error
    except Exception as error:  # a malformed key: the client will say so again
        return "online", told(error)
    if not answers(found):
        return "offline", f"{found.base_url} does not answer"
    return asked, ""


def answers(found: wandb.Settings) -> bool:
    """Whether there is somebody at the address, whatever the answer is."""
    proxies = {"http": found.http_proxy, "https": found.https_proxy}
    try:
        requests.head(
            found.base_url,
            timeout=HELLO_TIMEOUT,
            proxies={scheme: proxy for scheme, proxy in proxies.items() if proxy},
        )
    except requests.exceptions.SSLError:  # somebody is there; the client has certificates of its own
        return True
    except requests.RequestException:
        return False
    return True


def told(error: Exception) -> str:
    """An error in one line, without a key."""
    if isinstance(error, pydantic.ValidationError):  # of the client's settings; its first line says nothing
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    key = os.environ.get("WANDB_API_KEY")
    line = line.replace(key, "…") if key else line
    return re.sub(r"[0-9a-fA-F]{40,}", "…", line)  # one that was found elsewhere
