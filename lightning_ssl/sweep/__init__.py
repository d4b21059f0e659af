"""`lightning-ssl sweep FILE`: a W&B sweep file, run on this machine without a server and without an account.

    plan.py      what the file asks for: its trials by W&B's own search, its commands by W&B's own macros
    state.py     what has happened: one SQLite file beside the run folders
    trial.py     the process of one trial; apart.py (the session of their parent)
    outcome.py   what a trial left in its run folder
    engine.py    the loop that starts, watches, prunes and resumes trials
    screen.py    what one sees meanwhile

A sweep is the folder RUNS/NAME: `sweep.db` and one run folder per trial, with the trial's `log.txt` in it.

A command that is not `lightning-ssl fit` learns of its run folder by the environment: LIGHTNING_SSL_TRIAL is that
folder, LIGHTNING_SSL_SWEEP the sweep's name. What it writes there as `summary.json` ({"last": {metric: value}}) or
`metrics.csv` (with a column of the metric's name) is read as that of a `fit`.
"""
