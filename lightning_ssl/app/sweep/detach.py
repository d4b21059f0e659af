"""Start a new session on import. The forkserver, the parent process of all trials, imports this module first.

`timeout` and a closing terminal send a signal to the whole process group. In the engine's group the forkserver would
end with it, and so would trials that have not saved their state. The engine decides when trials end.
"""

import contextlib
import os

with contextlib.suppress(OSError):  # the process is a session leader already
    os.setsid()
