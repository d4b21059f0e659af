"""Studies: what a question about losses needs besides one sweep.

tuning.py         a tuning file: losses, each with the same number of settings
tuning_runs.py    the scores of their runs, the choice, and the runs that confirm it
"""
