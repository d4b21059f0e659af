"""Who started this process, its ranks and devices, and the signals that stop it."""
