"""`lightning-ssl fit`, preempted: it gets SIGTERM in its fourth training step when it starts for the first time.

python preempted_fit.py MARK --model=…        MARK is a file that the first start writes
"""

import os
import signal
import sys
from pathlib import Path

from lightning_ssl import cli, methods

done, original = 0, methods.Method.training_step


def training_step(self, batch, batch_idx):
    """Send the signal within the step."""
    global done
    done += 1
    if done == 4 and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGTERM)
    return original(self, batch, batch_idx)


if __name__ == "__main__":
    mark = Path(sys.argv.pop(1))
    sys.argv.insert(1, "fit")
    methods.Method.training_step = training_step
    sys.exit(cli.main())
