"""`cd docs && python -m generators`: fill the parts of docs/results and README.md from the archived runs."""

from pathlib import Path

from generators import results

results.write(Path("results"))
