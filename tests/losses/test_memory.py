"""Peak memory of a step beyond the embeddings, in MiB, measured in a separate process."""

import sys
from pathlib import Path

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from loss import peak_memory

if not Path("/proc/self/clear_refs").exists():
    pytest.skip("peak memory is read from /proc", allow_module_level=True)


@pytest.mark.slow
def test_65536_pairs_fit_in_three_gibibytes():
    assert peak_memory("bench.PairLoss(bench.Direct(), tile=512)", 65_536, threads=2) < 3 * 1024


@pytest.mark.slow
def test_a_small_tile_needs_no_extra_memory_for_the_list_of_tiles():
    assert peak_memory("bench.PairLoss(bench.Direct(), tile=16)", 4096, threads=1) < 32
