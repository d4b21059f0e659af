"""What is wrong with a command line, in one line.

The parser explains itself by a tree of what it attempted, and wraps what a class said when it refused an argument. Here
both become `key=value: what is allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lightning_ssl import methods
from lightning_ssl.families import Family
from lightning_ssl.importance import Importance

NO_SUCH_CLASS = re.compile(
    r"Expected a dot import path|Expected a path but|[Ii]mport path .* does not correspond|Unable to import"
    r"|No module named|Problem with given class_path"
)


def one_line(error: Exception) -> str:
    """The parser's explanation, which is a tree of attempts, as `key=value: what was expected`."""
    text = str(error)
    keys = re.findall(r'[Kk]ey "([^"]+)"', text)
    key = ".".join(dict.fromkeys(keys))
    given = re.search(r"Given value: (.*)", text)
    value = given[1] if given else None
    if nested := re.search(r"NestedArg\(key='([^']*)', val='?(.*?)'?\)$", value or ""):
        # the key of a flag below a class: `importance.p` of `--model.importance.p x`
        key, value = f"{keys[0]}.{nested[1]}" if keys else nested[1], nested[2]
    if refused := re.search(r"Option '([^']+)' is not accepted", text):
        owner = re.findall(r"class_path '([^']+)'", text)
        return f"{key}={value!r}: {short(owner[-1]) if owner else 'this class'} has no {refused[1].split('.')[-1]}"
    if key and NO_SUCH_CLASS.search(text):
        known = names_for(key)
        if known and not re.search(r"Expected a <class '(float|int|str|bool)'", text):
            return f"{key}={value}: expected one of {', '.join(known)}, or the path of a class"
    reasons = [
        line.strip(" -")
        for line in text.splitlines()
        if re.search(r"Expected|is not expected|required|unrecognized|does not exist|not a|[Ii]nvalid|No such", line)
        and "NoneType" not in line
    ]
    reason = re.sub(r"<class '([^']+)'>", lambda m: short(m[1]), (reasons or [text.replace("\n", " ")])[-1])
    if choices := re.search(r"a typing.Literal\[(.*)\]", reason):
        reason = "Expected one of " + choices[1].replace("'", "")
    reason = re.sub(r"^Parser key \"[^\"]+\":\s*", "", reason)
    if got := re.search(r"\.? Got value: (.*)", reason):
        value, reason = value or got[1], reason[: got.start()]
    if not key:
        return " ".join(reason.split())
    return f"{key}={value}: {reason[:1].lower()}{reason[1:]}" if value is not None else f"{key}: {reason}"


def refusal(error: BaseException) -> BaseException:
    """What a class said when it refused its arguments, from under the parser's words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValueError) and "Given value" not in str(cause):
            return ValueError(str(cause))
        cause = cause.__cause__ or cause.__context__
    return error


def short(path: str) -> str:
    """A class by its name alone."""
    return path.rpartition(".")[2]


def names_for(key: str) -> list[str]:
    """The classes that a key may name."""
    last = key.rpartition(".")[2]
    if last == "model":
        return sorted(concrete(methods.Method))
    base = {"importance": Importance, "family": Family}.get(last)
    return sorted(set(concrete(base))) if base else []


def concrete(base: type) -> Iterator[str]:
    """The names of the suite's own classes below one, without those that are a base of others only."""
    kind: type
    for kind in base.__subclasses__():
        ours = kind.__module__.startswith("lightning_ssl") and kind.__name__ != "Contrastive"
        if ours and not getattr(kind, "__abstractmethods__", None):
            yield kind.__name__
        yield from concrete(kind)
