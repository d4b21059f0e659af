"""Commands whose words and flags are the arguments of a function. A wrong flag or value is an error of one line.

`lightning-ssl fit` has a reader of its own in `app/config`: its flags are those of many classes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NoReturn

from lightning_ssl.base.checks import MAX_SHOWN, NEGATIVE_NUMBER, UserError, cut, did_you_mean, require, shown
from lightning_ssl.base.convert import Mismatch, as_object, choices_in, convert, in_words, members, origin
from lightning_ssl.base.signatures import REQUIRED, Argument, arguments_of, parameters, summary

PROGRAM = "lightning-ssl"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError instead of printing the usage and exiting. Flags have one spelling.

    Line breaks of a description and of examples are kept.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fixed = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*args, **{**kwargs, **fixed})
        self._negative_number_matcher = NEGATIVE_NUMBER

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}{self.suggestion(message)} (see {self.prog} --help)")

    def suggestion(self, message: str) -> str:
        """The flag that an unknown one resembles, as `; did you mean --batch-size?`; else empty."""
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        known = [flag for action in self._actions for flag in action.option_strings]
        meant = did_you_mean(unknown[1].replace("_", "-"), known, most=1) if unknown else ""
        return f"; {meant}" if meant else ""


@dataclass(frozen=True)
class Command:
    """A function whose arguments are the words and flags of a command line.

    A parameter before `*` is a word, one after it a flag. Types and defaults are those of the signature; the help has
    the texts of the docstring. A tuple is given as `2 10` or `2,10`. A sequence has one word for each item: several
    words, or a flag that is given several times.

    name       the words that run it: "data fetch"
    function   returns the exit code
    about      a docstring whose text below the first line ends the help
    limits     the smallest and the largest value of a number, by parameter
    further    flags besides those of the function
    negations  whether a switch that is off by default has a flag --no-… too
    extra      whether the words after `--` are the first argument of the function
    """

    name: str
    function: Callable[..., Any]
    about: str | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    further: Mapping[str, Argument] = field(default_factory=dict)
    negations: bool = False
    extra: bool = False

    def __call__(self, argv: Sequence[str]) -> int:
        end = list(argv).index("--") if self.extra and "--" in argv else len(argv)
        extra = [argv[end + 1 :]] if self.extra else []
        code: int = self.function(*extra, **self.parse(argv[:end]))
        return code

    def arguments(self) -> dict[str, Argument]:
        return {**arguments_of(self.function), **self.further}

    def parser(self) -> Parser:
        title, about = f"{PROGRAM} {self.name}", below_first_line(self.about)
        parser = Parser(prog=title, description=summary(self.function), epilog=about)
        words = {each.name for each in parameters(self.function) if each.kind is each.POSITIONAL_OR_KEYWORD}
        for name, argument in self.arguments().items():
            options: dict[str, Any] = {"help": help_of(argument), "default": argparse.SUPPRESS}
            kinds = [origin(kind) for kind in members(argument.type)]
            if bool in kinds:
                both = self.negations or argument.default is not False
                options["action"] = argparse.BooleanOptionalAction if both else "store_true"
            elif choices := choices_in(argument.type):
                optional = NoneType in kinds and argument.default
                options["choices"] = [*choices, "none"] if optional else choices
            elif name not in words:
                options["metavar"] = "VALUE" if tuple in kinds else in_words(argument.type).partition(" or ")[0].upper()
            if Sequence in kinds and name not in words:
                options |= {"action": "append", "metavar": name.upper()}
            elif Sequence in kinds or tuple in kinds:
                options["nargs"] = "+"
            elif name in words and argument.default is not REQUIRED:
                options |= {"nargs": "?", "default": argument.default}
            if name in words:
                parser.add_argument(name, **options)
            else:
                parser.add_argument(flag_name(name), dest=name, required=argument.default is REQUIRED, **options)
        return parser

    def parse(self, argv: Sequence[str]) -> dict[str, Any]:
        """The arguments that a command line gives. A wrong flag or value is a UserError."""
        parser = self.parser()
        if not all(word.strip() for word in argv):
            parser.error("empty argument; is a shell variable unset?")
        given = vars(parser.parse_args(list(argv)))
        for name, value in given.items():
            given[name] = value_of(name, value, self.arguments()[name].type, parser.prog)
            if name in self.limits and given[name] is not None:
                low, high = self.limits[name]
                require(low <= given[name] <= high, flag_name(name)[2:], given[name], f"between {low} and {high}")
        return given


def help_of(argument: Argument) -> str:
    """The description of an argument, with its default if it has one that a text can show."""
    text, default = argument.description, argument.default
    if not any(default is none for none in (REQUIRED, None, False, ())):
        shown_default = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        text += f" (default: {'true' if default is True else shown_default})"
    return text.replace("%", "%%")


def value_of(name: str, given: Any, hint: Any, prog: str) -> Any:
    """The value of a flag: `2 10` and `2,10` are tuples, none is None."""
    words = given
    if tuple in map(origin, members(hint)):
        words = [item for word in given for item in word.split(",") if item]
    text = words[0] if isinstance(words, list) and len(words) == 1 else words
    try:
        none = NoneType in members(hint) and str(text).lower() == "none"
        return None if none else as_object(convert(words, hint), hint)
    except Mismatch as error:
        shown_text = " ".join(words) if isinstance(words, list) else words
        raise UserError(f"{flag_name(name)}={cut(shown_text, MAX_SHOWN)}: {error} (see {prog} --help)") from error


def flag_name(parameter: str) -> str:
    """The flag of a parameter: --delta-lower for delta_lower, --from for from_."""
    return "--" + parameter.rstrip("_").replace("_", "-")


def choose(
    prog: str, kind: str, known: Mapping[str, str], words: Sequence[str], about: str | None = None
) -> str | None:
    """The first word, one of the known ones. Without one, for `list` or help, print all of them and return None.

    kind    what the word is: "lab"
    about   a docstring whose text below the first line ends the help
    """
    word = words[0] if words else "--help"
    if word in known:
        return word
    given = " ".join(words) if word == "list" else word
    if given not in ("-h", "--help", "list"):
        raise UserError(f"{kind}={shown(given)}: expected one of {', '.join(known)} (see {prog} --help)")
    if word == "list":
        print(columns(known))
        return None
    name = kind.upper()
    usage = f"usage: {prog} {name} …     {prog} {name} --help"
    print("\n\n".join(filter(None, (usage, columns(known), below_first_line(about)))))
    return None


def below_first_line(docstring: str | None) -> str:
    return (docstring or "").partition("\n")[2].strip()


def columns(entries: Mapping[str, str]) -> str:
    """Names and their lines in two columns."""
    width = max(map(len, entries), default=0)
    return "\n".join(f"  {name.ljust(width)}  {line}" for name, line in entries.items())
