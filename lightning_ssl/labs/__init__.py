"""The theory laboratories. Each module or folder here that defines `run()` checks one theoretical claim.

Labs use torch only; all seeds and settings of a study are one batched tensor program. This package itself imports no
torch.
"""

import ast
from pathlib import Path


def summaries() -> dict[str, str]:
    """Map each lab to the first line of its docstring, read from the source so that listing imports no torch."""
    found = {}
    for path in sorted(Path(__file__).parent.iterdir(), key=lambda path: path.stem):
        file = path / "__init__.py" if path.is_dir() else path
        if file.suffix != ".py" or not file.exists():
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found
