"""What several test modules share; the oracles are in tests/oracles.py."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
