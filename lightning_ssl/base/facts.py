"""What the classes of a room declare about themselves, read from their source: torch is not imported.

A class declares as plain attributes:

    a loss       source      the paper and the equation
                 symbols     {"tau": "τ"}: how a label shows an argument
                 unlabelled  {"beta": 0}: values that a label leaves out
    a method     roles       {"backbone": "setting"}: the arguments that are not its loss; symbols, unlabelled
    a callback   flag        its flag of `lightning-ssl fit`; without one it is given in trainer.callbacks
                 role        "measuring": its settings change a measured accuracy; "incidental": they change nothing
                             else; "loss": they change what is minimized. `roles` has the exceptions; symbols
                 metrics     what it logs, the most important one first
                 panel       the panel that shows them

Subclasses inherit all but `source`. Only literals, `Metric` and `Panel` can be read.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lightning_ssl
from lightning_ssl._lazy import exported

Room = Literal["losses", "methods", "callbacks"]
DECLARED = ("symbols", "unlabelled", "flag", "role", "roles", "metrics", "panel")


@dataclass(frozen=True)
class Metric:
    """A metric of a run: its key in the run folder and its title in figures.

    better      which values are better
    panel       key of a panel; by default that of the callback
    percent     a share, which the report shows times 100
    every_step  logged many times an epoch: the value of an epoch is their mean; for other metrics it is the last one
    """

    key: str
    title: str
    better: Literal["higher", "lower", "neither"] = "neither"
    panel: str = ""
    percent: bool = False
    every_step: bool = False

    @property
    def name(self) -> str:
        """The title with its unit."""
        return f"{self.title} (%)" if self.percent else self.title


@dataclass(frozen=True)
class Panel:
    """A figure with several metrics to choose from; the first one is the default."""

    key: str
    title: str
    description: str
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True)
class Facts:
    """A class of a room."""

    name: str
    summary: str  # the first line of its docstring
    public: bool
    bases: frozenset[str]  # its ancestors in the room
    abstract: frozenset[str]  # methods that a subclass must define
    declared: Mapping[str, Any]
    arguments: Mapping[str, Hint]


class Hint(NamedTuple):
    """The type of an argument as text, and whether it has a default."""

    text: str
    optional: bool


@cache
def facts_of(room: Room) -> dict[str, Facts]:
    """The classes of a room by name, in the order of the files."""
    found: dict[str, Facts] = {}
    folder = Path(lightning_ssl.__file__).parent / room
    nodes = {
        node.name: (node, node.name in public)
        for file, public in exported(room).items()
        for node in ast.parse((folder / f"{file}.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }

    def add(name: str) -> Facts:
        if name not in found:
            node, public = nodes[name]
            parents = [add(base.id) for base in node.bases if isinstance(base, ast.Name) and base.id in nodes]
            found[name] = read_class(node, public, parents)
        return found[name]

    return {name: add(name) for name in nodes}


def read_class(node: ast.ClassDef, public: bool, parents: list[Facts]) -> Facts:
    """A class from its definition and its bases."""
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    bases = frozenset[str]().union(*({each.name, *each.bases} for each in parents))
    functions = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    required = {name for name, each in functions.items() if any("abstract" in ast.dump(d) for d in each.decorator_list)}
    inherited = frozenset[str]().union(*(each.abstract for each in parents))
    assigned = [each for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    targets = {ast.unparse(each.targets[0] if isinstance(each, ast.Assign) else each.target): each for each in assigned}
    own = {name: value_of(each.value) for name, each in targets.items() if name in DECLARED and each.value is not None}
    declared: dict[str, Any] = {}
    for each in [*(parent.declared for parent in reversed(parents)), own]:
        for key, value in each.items():
            declared[key] = {**declared.get(key, {}), **value} if isinstance(value, dict) else value
    abstract = (inherited - functions.keys()) | required
    return Facts(node.name, summary, public, bases, abstract, declared, arguments_of(node, parents))


def arguments_of(node: ast.ClassDef, parents: Sequence[Facts] = ()) -> dict[str, Hint]:
    """The arguments of a class: of its constructor, with the optional ones of its bases if it takes `**kwargs`."""
    inherited = {name: hint for each in parents for name, hint in each.arguments.items()}
    constructor = [each.args for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if constructor:
        (args,) = constructor
        required = len(args.args) - len(args.defaults)
        defaults = [*([None] * required), *args.defaults, *args.kw_defaults]
        named = zip([*args.args, *args.kwonlyargs], defaults, strict=True)
        own = {arg.arg: Hint(text_of(arg.annotation), default is not None) for arg, default in named}
        del own["self"]
        return own | {name: hint for name, hint in inherited.items() if args.kwarg and hint.optional}
    if not any("dataclass" in ast.dump(each) for each in node.decorator_list):
        return inherited
    fields = {ast.unparse(each.target): each for each in node.body if isinstance(each, ast.AnnAssign)}
    own = {name: Hint(text_of(each.annotation), each.value is not None) for name, each in fields.items()}
    return inherited | {name: hint for name, hint in own.items() if not hint.text.startswith("ClassVar")}


def arguments_in(file: Path, name: str) -> dict[str, Hint]:
    """The arguments of a class that stands in a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return next(arguments_of(node) for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def text_of(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def value_of(node: ast.expr) -> Any:
    """The value of a literal, a tuple, a `Metric` or a `Panel`."""
    return eval(ast.unparse(node), {"__builtins__": {}, "Metric": Metric, "Panel": Panel})


def concrete(room: Room, base: str) -> list[Facts]:
    """The public classes below a base that can be instantiated."""
    return [each for each in facts_of(room).values() if each.public and not each.abstract and base in each.bases]


def declared(name: str, *rooms: Room) -> dict[str, Any]:
    """A dictionary that the classes of some rooms declare, of all classes together."""
    found: dict[str, Any] = {}
    for room in rooms:
        for each in facts_of(room).values():
            found |= each.declared.get(name, {})
    return found


@cache
def callbacks() -> tuple[Facts, ...]:
    """The public callbacks with those first that measure an accuracy: the order of the columns in metrics.csv."""
    public = [each for each in facts_of("callbacks").values() if each.public]
    return tuple(sorted(public, key=lambda each: (each.declared["role"], each.declared.get("flag", "")), reverse=True))
