"""A sweep without processes: an engine that writes the run folders of its trials at once."""

from pathlib import Path

from helpers.run_folders import write_run
from lightning_ssl.app.sweep.engine import check_settings, trial_id
from lightning_ssl.app.sweep.state import UNFINISHED, State


class Killed(BaseException):
    """Stands for SIGKILL."""


class QuickEngine:
    """Runs the trials of a plan as `Engine` does. `accuracy(loss, seed, data)` is the result; None is a failed run.

    kill_at   the number of steps, over all engines, after which the program is killed; a step is a write
    """

    steps, kill_at, ran = 0, None, []

    def __init__(self, plan, folder, workers=1, gpus=(), retry=False):
        self.plan, self.folder, self.retry = plan, folder, retry

    @classmethod
    def step(cls):
        cls.steps += 1
        if cls.steps == cls.kill_at:
            raise Killed

    def run(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with State(self.folder / "sweep.db") as state:
            check_settings(state, self.plan, self.folder)
            state.set_settings(self.plan.fixed_settings())
            again = (*UNFINISHED, "failed") if self.retry else UNFINISHED
            for row in state.trials():
                if row.status in again:
                    self.finish(state, row)
            rows = state.trials()
            for number, cell in enumerate(self.plan.open_cells(rows), len(rows) + 1):
                self.step()
                self.finish(state, state.add(number, trial_id(self.plan, number, cell), cell))
            return int(any(row.status == "failed" for row in state.trials()))

    def finish(self, state, row):
        self.step()
        folder, seed = self.folder / row.id, row.parameters["seed_everything"]
        loss, data = Path(row.parameters["config"]).stem, row.parameters.get("data.name", "shapes")
        self.ran.append((loss, seed, data))
        found = type(self).accuracy(loss, seed, data)
        status = "failed" if found is None else "finished"
        if not (folder / "summary.json").exists() or self.retry:
            remove(folder)
            write_run(folder, loss, seed, found or 0.0, epochs=1, status=status, data=data)
        self.step()
        state.set(row.id, status=status, value=found, seconds=1.0)


def remove(folder):
    for file in folder.glob("*") if folder.exists() else ():
        file.rmdir() if file.is_dir() else file.unlink()
    if folder.exists():
        folder.rmdir()
