"""The theory laboratories: each file is one theoretical claim and a `run()` that checks it.

Every lab is pure torch; all seeds and settings of a study are one batched tensor program. Importing this package
imports no torch.
"""

import ast
from pathlib import Path


def summaries() -> dict[str, str]:
    """The labs and the first line of each one's docstring, read from the source so that listing stays light."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[file.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found
