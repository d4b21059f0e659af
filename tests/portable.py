"""Run the numeric tests as on other processors: `make test-portable`, `python tests/portable.py [--quick] [ARGS]`.

ATen and oneDNN choose their kernels by the instruction set, and sums are ordered by the number of threads. Both can be
lowered from outside, so one machine stands for several. Every combination runs in random order with two seeds and
prints one line; ARGS go to pytest. --quick takes each value once instead of every combination.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

ATEN = ("default", "avx2", "avx512")
ONEDNN = ("SSE41", "AVX2", "ALL")  # ALL: the machine's best
THREADS = ("1", "2")
SEEDS = ("1", "2")
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability().lower())"


def combinations(quick: bool) -> list[tuple[str, str, str, str]]:
    if quick:
        return list(zip(ATEN, ONEDNN, ("1", "2", "1"), ("1", "2", "2"), strict=True))
    return list(itertools.product(ATEN, ONEDNN, THREADS, SEEDS))


def missing(aten: str) -> bool:
    """Whether the processor cannot run this instruction set: torch then takes a lower one without a word."""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": aten}
    found = subprocess.run([sys.executable, "-c", CAPABILITY], env=environment, capture_output=True, text=True)
    return found.stdout.strip() != aten


def run(aten: str, onednn: str, threads: str, seed: str, arguments: list[str]) -> tuple[bool, str]:
    """Whether the numeric tests passed, and pytest's last line."""
    environment = {
        **os.environ, "ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "passive",  # threads that spin starve each other where workers share the cores
    }  # fmt: skip
    order = ["--random-order", f"--random-order-seed={seed}"]
    words = [sys.executable, "-m", "pytest", "-q", "-m", "numeric and not slow", "-n", "2", *order, *arguments]
    result = subprocess.run(words, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    if result.returncode:
        print(result.stdout, result.stderr, sep="\n", file=sys.stderr, flush=True)
    return result.returncode == 0, (result.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    rest = [word for word in arguments if word != "--quick"]
    absent = {aten for aten in ATEN if missing(aten)}
    failed = 0
    for aten, onednn, threads, seed in combinations(quick):
        name = f"ATEN {aten:<8} oneDNN {onednn:<6} threads {threads}  order {seed}"
        if aten in absent:
            print(f"{name}  not on this processor", flush=True)
            continue
        start = time.monotonic()
        passed, line = run(aten, onednn, threads, seed, rest)
        failed += not passed
        print(f"{name}  {'green' if passed else 'RED  '}  {time.monotonic() - start:4.0f} s  {line}", flush=True)
    print(f"{failed} failed" if failed else "all green")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
