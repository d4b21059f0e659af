"""A trial without torch: it logs `score` once per step and writes a run folder like `lightning-ssl fit`.

score = quality · (1 − 2^−step). `--fail=1` raises an error. Each start and each end adds a line to `began` and
`completed` beside the run folders. An interrupted trial continues after its last row.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
    folder = Path(os.environ["LIGHTNING_SSL_TRIAL"])
    tell("began", folder)
    print("working", flags)
    stubborn = flags.get("stubborn") == "1"
    signal.signal(signal.SIGTERM, lambda *_: None if stubborn else leave(folder, "interrupted", 143))
    if flags.get("fail") == "1":
        raise RuntimeError("asked to fail")
    metrics = folder / "metrics.csv"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    with open(metrics, "a", buffering=1) as rows:
        if not lines:
            rows.write("epoch,step,score\n")
        for step in range(max(0, len(lines) - 1), int(flags.get("steps", 3))):
            time.sleep(float(flags.get("pause", 0)))
            rows.write(f"{step},{step},{float(flags.get('quality', 1)) * (1 - 0.5 ** (step + 1))!r}\n")
    tell("completed", folder)
    leave(folder, "finished", 0)


def tell(what: str, folder: Path) -> None:
    with open(folder.parent / what, "a") as lines:
        lines.write(f"{folder.name}\n")


def leave(folder: Path, status: str, code: int) -> None:
    rows = (folder / "metrics.csv").read_text().splitlines() if (folder / "metrics.csv").exists() else []
    last = {"score": float(rows[-1].split(",")[2])} if len(rows) > 1 else {}
    (folder / "summary.json").write_text(json.dumps({"name": folder.name, "status": status, "last": last}))
    os._exit(code)


if __name__ == "__main__":
    main()
