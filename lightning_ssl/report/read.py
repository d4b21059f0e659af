"""Being replaced by `lightning_ssl.runs.record`."""

from lightning_ssl.runs.folder import FILES, find
from lightning_ssl.runs.metrics import Curve
from lightning_ssl.runs.record import STATUSES, Reader, read_record as read_run, stamps
from lightning_ssl.runs.record import RunRecord as Run


def run_folders(top):
    return [run.path for run in find(top)]


def stamp_of(file):
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
