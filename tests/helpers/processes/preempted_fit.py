"""`lightning-ssl fit`, preempted: it gets SIGTERM once, when it starts for the first time.

python preempted_fit.py MARK step --model=…        in its fourth training step
python preempted_fit.py MARK import --model=…      before it imports torch

MARK is a file that the first start writes.
"""

import importlib
import os
import signal
import sys
from pathlib import Path

from lightning_ssl.app import cli

done = 0


def preempt():
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGTERM)


def training_step(self, batch, batch_idx):
    """Send the signal within the step."""
    global done
    done += 1
    if done == 4:
        preempt()
    return original(self, batch, batch_idx)


def import_module(name):
    """Send the signal while the module of the command is imported."""
    importlib.import_module = import_original
    preempt()
    return import_original(name)


if __name__ == "__main__":
    mark, moment = Path(sys.argv.pop(1)), sys.argv.pop(1)
    sys.argv.insert(1, "fit")
    if moment == "import":
        import_original, importlib.import_module = importlib.import_module, import_module
    else:
        from lightning_ssl import methods

        original, methods.Method.training_step = methods.Method.training_step, training_step
    sys.exit(cli.main())
