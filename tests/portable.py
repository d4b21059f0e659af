"""Run the numeric tests with the kernels of other processors.

    make test-portable
    python tests/portable.py [ARGS]

ATen and oneDNN choose their kernels by the instruction set, and the number of threads changes the order of sums. Both
can be set by environment variables, so one machine can run the kernels of several. Every combination runs in random
order with two seeds and prints one line. ARGS are passed to pytest.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

ATEN = ("default", "avx2", "avx512")
ONEDNN = ("SSE41", "AVX2", "ALL")  # ALL: the best of the machine
THREADS = ("1", "2")
SEEDS = ("1", "2")
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability().lower())"


def unsupported(aten: str) -> bool:
    """Whether the processor lacks this instruction set. torch then silently uses a lower one."""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": aten}
    found = subprocess.run([sys.executable, "-c", CAPABILITY], env=environment, capture_output=True, text=True)
    return found.stdout.strip() != aten


def files() -> list[str]:
    """The files with numeric tests: collecting all others takes longer than many of their tests."""
    found = [file for file in sorted(Path(__file__).parent.rglob("test_*.py")) if file.parent.name != "bolts"]
    return [str(file) for file in found if "helpers.closeness import" in file.read_text(encoding="utf-8")]


def run(aten: str, onednn: str, threads: str, seed: str, arguments: list[str]) -> tuple[bool, str]:
    """Run the numeric tests. Return whether they passed, and the last line of pytest."""
    environment = {
        **os.environ, "ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "passive",  # threads that spin take the cores from other workers
    }  # fmt: skip
    chosen = ["-m", "numeric and not slow", "--random-order", f"--random-order-seed={seed}"]
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", *chosen, *arguments, *files()]
    result = subprocess.run(words, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    if result.returncode:
        print(result.stdout, result.stderr, sep="\n", file=sys.stderr, flush=True)
    return result.returncode == 0, (result.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")


def main(arguments: list[str]) -> int:
    skipped = {aten for aten in ATEN if unsupported(aten)}
    failed = 0
    for aten, onednn, threads, seed in itertools.product(ATEN, ONEDNN, THREADS, SEEDS):
        name = f"ATEN {aten:<8} oneDNN {onednn:<6} threads {threads}  order {seed}"
        if aten in skipped:
            print(f"{name}  not supported by this processor", flush=True)
            continue
        start = time.monotonic()
        passed, line = run(aten, onednn, threads, seed, arguments)
        failed += not passed
        print(f"{name}  {'passed' if passed else 'FAILED'}  {time.monotonic() - start:4.0f} s  {line}", flush=True)
    print(f"{failed} failed" if failed else "all passed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
