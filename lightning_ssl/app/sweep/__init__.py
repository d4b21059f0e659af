"""`lightning-ssl sweep FILE` runs a W&B sweep file on this machine, without a server and without an account.

    plan.py          reads and checks a sweep file; gives each trial its parameters and its command
    wandb_sweeps.py  the interfaces of W&B's packages in use: search, hyperband, macros
    state.py         the state of a sweep: one SQLite file beside the run folders
    trial.py         the process of one trial; detach.py gives the parent of these processes its own session
    engine.py        the loop that starts, watches, prunes and resumes trials
    screen.py        the output on the terminal
    cost.py          the configurations of the runs, and how long they take; scales.py has the speeds

A sweep is the folder RUNS/NAME. It holds `sweep.db` and one run folder per trial, with the trial's `log.txt`.

`lightning-ssl fit` gets its run folder as flags, also where a launcher such as torchrun starts it. Another command
reads its run folder from the environment variable LIGHTNING_SSL_TRIAL, and the name of the sweep from
LIGHTNING_SSL_SWEEP. The sweep reads that folder's `summary.json` ({"last": {metric: value}}) and `metrics.jsonl` (a
line {"epoch": 0, "step": 9, metric: value} for each event) as it reads those of `fit`. A `metrics.csv` with the columns
epoch, step and the metric is read too. The sweep writes `status` and `error` into `summary.json` when the trial ends.
"""
