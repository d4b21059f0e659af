"""Answers a question with a sweep: how many seeds it needs, and adds seeds until it is decided.

rounds.py       the losses of a sweep and their seeds; which runs a round needs
deciding.py     the groups of the runs so far, and the look at them
race.py         rounds of runs with a look after each: `lightning-ssl sweep FILE --until decided`
agents.py       the same with agents of W&B: reads their runs, writes the sweep file of the next seeds
planning.py     seeds, runs and time for a difference: `lightning-ssl plan FILE`
tuning.py       losses, each with the same number of settings: `lightning-ssl tune FILE`
tuning_runs.py  the scores of a tuning's runs, and the choice of a setting for each loss
"""
