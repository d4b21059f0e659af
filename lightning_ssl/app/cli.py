"""The `lightning-ssl` program: finds the command, runs it, prints errors.

The module of a command is imported only when the command is run, because torch and Lightning take seconds to import.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import MutableMapping, Sequence

from lightning_ssl.app.commands.names import COMMANDS
from lightning_ssl.app.commands.parser import choose
from lightning_ssl.app.launch.noted_signals import NotedSignals, must_start
from lightning_ssl.app.launch.rank_variables import check_rank_variables
from lightning_ssl.base.checks import MAX_ERROR, MAX_SHOWN, RunFailed, UserError, cut
from lightning_ssl.base.untrusted import printable

MAX_FAULT = 100  # characters of an error that is no mistake of a person, before the note
FAULT = "not an error of your input: --debug shows where; report it unless it is in your code"

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, or the one of the command line. A command that a signal stopped ends this process by it."""
    if argv is not None:
        return run(argv)
    code = run(sys.argv[1:])
    end_by_signal(code)
    for number in STOP_SIGNALS if code == 0 else ():  # the work is done: a signal while Python ends is no failure
        signal.signal(number, signal.SIG_IGN)
    return code


def end_by_signal(code: int) -> None:
    """End this process by the signal whose exit code this is, so that its parent sees a signal, not a failure.

    W&B's agent gives up after five exit codes above 0. Returns for any other code, and in process 1 of a container,
    which ignores signals that have no handler.
    """
    if code - 128 in STOP_SIGNALS:
        sys.stdout.flush()
        signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)


def run(argv: Sequence[str]) -> int:
    """Run one command. Bad input is one line on standard error and exit code 2; --debug adds the traceback."""
    words = list(argv)
    debug = "--debug" in words
    wait_briefly(os.environ)
    # Labels have Greek letters: a terminal with another encoding shows a question mark instead.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
    try:
        return dispatch([word for word in words if word != "--debug"])
    except UserError as error:
        return refuse(error.args, debug)
    except SystemExit as stop:  # argparse's, after --help
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        print("lightning-ssl: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `lightning-ssl lab list | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # such as a full disk, or a file without read permission
        where = f"{cut(str(error.filename), MAX_SHOWN)}: " if error.filename else ""
        return refuse([f"{where}{error.strerror or error}"], debug)
    except Exception as error:  # a fault of this package, or of the user's own code
        text = str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}"
        return refuse([f"{cut(text, MAX_FAULT)} ({FAULT})"], debug, code=1)


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP's threads wait for each other in a busy loop for about 10 µs, then sleep. torch reads it at import.

    Threads that wait longer in the loop become several times slower when another process uses one of their cores.
    Threads that sleep at once are slower on a quiet machine (docs/faq.md, "Questions").
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment["OMP_WAIT_POLICY"] = "passive"
        environment.setdefault("GOMP_SPINCOUNT", "1000")


def refuse(mistakes: Sequence[object], debug: bool, code: int = 2) -> int:
    """Print errors in one line, without the escape sequences that a value can have. Returns the exit code."""
    if debug:
        traceback.print_exc()
    lines = [cut(" ".join(printable(str(mistake)).split()), MAX_ERROR) for mistake in mistakes]
    print(f"lightning-ssl: {'; '.join(lines)}", file=sys.stderr)
    return code


def with_home(word: str) -> str:
    """Replace ~ by the home folder in `--flag=~/x`. A shell does it only at the start of a word.

    Without it, a folder with the name ~ would be created.
    """
    flag, equals, value = word.partition("=")
    is_path = flag.startswith("--") and value.startswith("~/")
    return f"{flag}{equals}{os.path.expanduser(value)}" if is_path else word


def dispatch(words: list[str]) -> int:
    words = [with_home(word) for word in words]
    if words[:1] == ["--version"]:
        from lightning_ssl.app.runs.version import version  # late, for start-up time

        print(version())
        return 0
    command = choose("lightning-ssl", "command", COMMANDS, words)
    if command is None:
        return 0
    check_rank_variables(os.environ)
    name, arguments = command.replace("-", "_"), words[1:]
    if name == "fit" and must_start(os.environ):
        with NotedSignals() as early:
            return run_command(name, arguments, early)
    return run_command(name, arguments)


def run_command(name: str, *arguments: object) -> int:
    """Import the module of a command, and call it."""
    code: int = importlib.import_module(f"lightning_ssl.app.commands.{name}").main(*arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
