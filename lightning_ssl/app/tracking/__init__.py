"""Weights & Biases. Importing this package imports neither torch nor wandb.

agent.py        the flags that W&B's agent passes to a run
logger.py       the logger that copies a run folder to W&B
connection.py   whether a W&B server can be reached
dashboard.py    the W&B workspace that compares losses
private.py      every private interface of W&B and of Lightning's logger that is used here
"""
