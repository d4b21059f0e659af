"""Weights & Biases: the logger of a run (logger.py), the connection (connection.py), the workspace (dashboard.py)."""
