"""A trial without torch: it logs `score` once per step and writes a run folder like `lightning-ssl fit`.

score = quality · (1 − 2^−(step + 1)), step = 0, 1, …; a seed adds a number around 0. The loss of its configuration has
the name of the quality. `--fail=1` raises an error. `--ignore_sigterm=1` ignores SIGTERM.
Each start adds a line to the file `started` beside the run folders, and each completed trial a line to `completed`. An
interrupted trial resumes after its last row.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
    folder = Path(os.environ["LIGHTNING_SSL_TRIAL"])
    append_line("started", folder)
    print("working", flags)
    ignore = flags.get("ignore_sigterm") == "1"
    signal.signal(signal.SIGTERM, lambda *_: None if ignore else write_summary_and_exit(folder, "interrupted", 143))
    if flags.get("fail") == "1":
        raise RuntimeError("asked to fail")
    quality, seed = flags.get("quality", "1"), flags.get("seed_everything")
    noise = 0.003 * random.Random(f"{quality}, {seed}").gauss(0, 1) if seed else 0.0
    config = {"seed_everything": seed and int(seed), "model": f"Quality{quality}", "data": {"name": "fake"}}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    with open(metrics, "a", buffering=1) as rows:
        for step in range(len(lines), int(flags.get("steps", 3))):
            time.sleep(float(flags.get("pause", 0)))
            score = float(quality) * (1 - 0.5 ** (step + 1)) + noise
            rows.write(json.dumps({"epoch": step, "step": step, "score": score}) + "\n")
    append_line("completed", folder)
    write_summary_and_exit(folder, "finished", 0)


def append_line(file: str, folder: Path) -> None:
    with open(folder.parent / file, "a") as lines:
        lines.write(f"{folder.name}\n")


def write_summary_and_exit(folder: Path, status: str, code: int) -> None:
    rows = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    last = {"score": json.loads(rows[-1])["score"]} if rows else {}
    (folder / "summary.json").write_text(json.dumps({"name": folder.name, "status": status, "last": last}))
    os._exit(code)


if __name__ == "__main__":
    main()
