"""A W&B server on the loopback, with the part of the protocol that the unmodified client uses.

    with Server(cells=lambda text: [{"seed": 0}, {"seed": 1}]) as server:
        subprocess.run(["wandb", "sweep", "file.yaml"], env=os.environ | server.environment())
        server.runs["1a2b3c4d"].summary["online/top1"]

It keeps runs (configuration, history, summary), sweeps and views in memory. `cells` turns the text of a sweep
file into its trials, so that this file needs only the standard library.

    Server(silent=True)         accepts connections and never answers
    Server(head_only=True)      answers HEAD, and never answers POST
    Server(unauthorized=True)   answers 401 to every key
    Server(stops=lambda run: len(run.history) > 3)    stops such runs, as a user or hyperband does
    server.stop()               closes the port

A run that was marked as preempting and ended with another exit code than 0 is handed out again, with its whole
configuration as arguments.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from helpers import small_fit

KEY = "0123456789abcdef0123456789abcdef01234567"
# A fit of a few seconds.
FLAGS = [*small_fit("AlphaCL", 64, 32, 32), "--model.importance=Direct", "--trainer.max_epochs=1", "--knn.k=5"]
ENTITY = "tester"
# Fields of a run, by the names of the client.
SENT = {"displayName": "name", "project": "project", "groupName": "group", "jobType": "job_type", "sweep": "sweep",
        "tags": "tags"}  # fmt: skip


@dataclass
class Run:
    """The state of one run."""

    id: str
    name: str = ""
    project: str = ""
    group: str | None = None
    job_type: str | None = None
    sweep: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # of a streamed file: lines received
    exit_code: int | None = None
    preempting: bool = False
    stopped: bool = False
    exit_codes: list[int | None] = field(default_factory=list)  # of all starts
    opened: int = 0  # how many times a client opened it


@dataclass
class Sweep:
    """A sweep file and its remaining trials."""

    id: str
    config: str
    project: str
    waiting: Iterator[dict[str, Any]]
    handed_out: list[dict[str, Any]] = field(default_factory=list)  # the commands of its agents, in order


class Server:
    """Listens on a free port of the loopback until the block ends."""

    def __init__(
        self,
        cells: Callable[[str], list[dict[str, Any]]] = lambda text: [],
        silent: bool = False,
        head_only: bool = False,
        unauthorized: bool = False,
        stops: Callable[[Run], bool] = lambda run: False,
    ) -> None:
        self.stops = stops
        self.cells, self.silent, self.head_only, self.unauthorized = cells, silent, head_only, unauthorized
        self.runs: dict[str, Run] = {}
        self.sweeps: dict[str, Sweep] = {}
        self.views: list[dict[str, Any]] = []
        self.operations: list[str] = []  # names of GraphQL operations, in order
        self.connections = 0  # accepted so far
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"app": self}))
        self.http.daemon_threads = True
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def environment(self, patient: bool = False) -> dict[str, str]:
        """Variables that a client needs to find this server. A patient one waits for minutes, for slow machines."""
        known = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY, "WANDB_ERROR_REPORTING": "false"}
        return known | {"WANDB_INIT_TIMEOUT": "300", "WANDB_FINISH_TIMEOUT": "300"} if patient else known

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port and drop open connections."""
        self.released.set()
        if self.thread.is_alive():
            self.http.shutdown()
            self.thread.join()
        self.http.server_close()

    # -- GraphQL: one method per operation, with the client's name ----------------------------------------------------

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The data of one GraphQL request."""
        found = re.search(r"\b(?:query|mutation)\s+(\w+)", body["query"])
        name = body.get("operationName") or (found[1] if found else "")
        with self.lock:
            self.operations.append(name)
            reply: dict[str, Any] = getattr(self, f"on_{name}", self.on_anything)(body.get("variables") or {})
        return reply

    def on_anything(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {}

    def on_Viewer(self, variables: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer}

    def on_UpsertSweep(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = f"sweep{len(self.sweeps)}"
        project = variables["projectName"]
        self.sweeps[name] = Sweep(name, variables["config"], project, iter(self.cells(variables["config"])))
        return {
            "upsertSweep": {"sweep": {"name": name, "project": project_of(project)}, "configValidationWarnings": []}
        }

    def on_SweepWithRuns(self, variables: dict[str, Any]) -> dict[str, Any]:
        sweep = self.sweeps[variables["sweep"]]
        about = {"id": sweep.id, "name": sweep.id, "config": sweep.config, "state": "RUNNING", "runs": {"edges": []}}
        return {"project": {"sweep": about}}

    def on_CreateAgent(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"createAgent": {"agent": {"id": variables["sweep"]}}}  # one agent per sweep

    def on_Heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        sweep = self.sweeps[variables["id"]]
        running = [self.runs[name] for name in json.loads(variables["runState"])]
        for run in running:
            run.stopped = run.stopped or self.stops(run)
        commands = [{"type": "stop", "run_id": run.id} for run in running if run.stopped]
        if not running:
            commands.append(self.next_command(sweep))
        sweep.handed_out += commands
        return {"agentHeartbeat": {"agent": {"id": sweep.id}, "commands": json.dumps(commands)}}

    def next_command(self, sweep: Sweep) -> dict[str, Any]:
        """A preempted run, or a new one, or the end."""
        known = [run for run in self.runs.values() if run.sweep == sweep.id]
        for run in known:
            if run.preempting and run.exit_code:
                run.preempting, run.exit_code = False, None
                return {"type": "resume", "run_id": run.id, "program": "", "args": values_of(run.config)}
        cell = next(sweep.waiting, None)
        if cell is None:
            return {"type": "exit"}
        run = self.run(f"{sweep.id}-{len(known)}", sweep=sweep.id, project=sweep.project)
        return {"type": "run", "run_id": run.id, "program": "", "args": values_of(cell)}

    def on_RunStoppedStatus(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"run": {"stopped": self.run(variables["runId"]).stopped}}}

    def on_UpsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:
        new = variables["name"] not in self.runs
        fields = {ours: variables[name] for name, ours in SENT.items() if variables.get(name) is not None}
        run = self.run(variables["name"], **fields)
        run.opened += variables.get("host") is not None  # sent when a client opens a run
        if variables.get("config"):
            sent = json.loads(variables["config"])
            run.config |= {key: value["value"] for key, value in sent.items() if isinstance(value, dict)}
        if variables.get("summaryMetrics"):
            run.summary |= json.loads(variables["summaryMetrics"])
        return {"upsertBucket": {"bucket": bucket_of(run), "inserted": new}}

    def on_RunResumeStatus(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(variables["name"])
        bucket = bucket_of(run) if run is not None and run.opened else None
        return {"model": {**project_of(variables["project"]), "bucket": bucket}}

    def on_CreateRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = variables["run"]
        files = [{"name": name, "uploadUrl": f"{self.url}/upload/{run}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": files}}

    def on_UpsertView2(self, variables: dict[str, Any]) -> dict[str, Any]:
        self.views.append(variables)
        return {"upsertView": {"view": {"id": "view", "name": variables["name"]}, "inserted": True}}

    # -- the other requests -------------------------------------------------------------------------------------------

    def stream(self, run_id: str, body: dict[str, Any]) -> None:
        """Lines of a run's files, each from an offset."""
        with self.lock:
            run = self.run(run_id)
            for name, chunk in (body.get("files") or {}).items():
                run.lines[name] = chunk["offset"] + len(chunk["content"])
                if name == "wandb-history.jsonl":
                    run.history[chunk["offset"] :] = map(json.loads, chunk["content"])
                elif name == "wandb-summary.json":
                    for line in chunk["content"]:
                        run.summary |= json.loads(line)
            run.preempting |= bool(body.get("preempting"))
            if body.get("complete"):
                run.exit_code = body.get("exitcode")
                run.exit_codes.append(run.exit_code)

    def run(self, run_id: str, **fields: Any) -> Run:
        run = self.runs.setdefault(run_id, Run(run_id))
        for key, value in fields.items():
            setattr(run, key, value)
        return run


def values_of(config: dict[str, Any]) -> dict[str, Any]:
    """Parameters as the agent reads them."""
    return {name: {"value": value} for name, value in config.items()}


def project_of(name: str) -> dict[str, Any]:
    return {"id": name, "name": name, "entity": {"id": ENTITY, "name": ENTITY}}


def bucket_of(run: Run) -> dict[str, Any]:
    """A run as the client reads it, also to resume it."""
    return {
        "id": run.id,
        "name": run.id,
        "displayName": run.name,
        "description": None,
        "config": json.dumps(values_of(run.config)),
        "sweepName": run.sweep,
        "project": project_of(run.project),
        "tags": run.tags,
        "summaryMetrics": json.dumps(run.summary),
        "historyLineCount": len(run.history),
        "eventsLineCount": run.lines.get("wandb-events.jsonl", 0),
        "logLineCount": run.lines.get("output.log", 0),
        "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
        "eventsTail": "[]",
        "wandbConfig": json.dumps({"t": 1}),
    }


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of a `Server`."""

    app: Server
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with self.app.lock:
            self.app.connections += 1
        if self.app.silent:
            self.app.released.wait()
            return
        with suppress(ConnectionError):  # a client may end without closing
            super().handle()

    def body(self) -> bytes:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content

    def reply(self, data: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        content = self.body()
        if self.app.head_only:
            self.app.released.wait()
        elif self.app.unauthorized:
            self.reply({"errors": [{"message": "unauthorized"}]}, 401)
        elif self.path == "/graphql":
            self.reply({"data": self.app.answer(json.loads(content))})
        elif found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self.app.stream(found[1], json.loads(content))
            self.reply({})
        else:
            self.reply({}, 404)  # the client's own telemetry

    def do_PUT(self) -> None:
        self.body()  # a file of a run
        self.reply({})

    def log_message(self, *words: object) -> None:
        """Print nothing."""


def closed_port() -> int:
    """A port of the loopback without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
