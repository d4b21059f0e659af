"""Ranks, kills, trials, SLURM, the image and a W&B server: tests start or stop their processes with them."""
