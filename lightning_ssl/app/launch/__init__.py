"""Who started this process, its ranks and devices, and the signals that stop it.

rank_variables.py     the variables with which launchers number their ranks
ranks.py              which rank this process is, and who started the ranks
devices.py            the Trainer's devices and nodes; trainer_arguments.py checks its other arguments
noted_signals.py      notes signals before torch is imported; signals.py stops all ranks at one step
"""
