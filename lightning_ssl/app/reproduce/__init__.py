"""Repeats the published tables and judges their claims. `lightning-ssl reproduce` is its command.

A reproduction is data: `papers/reproductions/NAME.yaml` has its sweep files, its rows, and the statements of the paper
with the claims that test them, `papers/*.yaml` the published figures, `app/sweep/scales.yaml` the scales, `labs.yaml`
the laboratories. There is no code for a single table.

recipe.py       the reproductions as data classes
planning.py     the runs of a reproduction at a scale, their data, and how long they take
sharing.py      runs that several tables share
evaluating.py   linear evaluation of finished runs, and their archive
results.py      the runs of each row, with their early and their late accuracy
verdicts.py     whether a claim holds, is contradicted, or is not decided
writing.py      NAME.md and NAME.csv
moves.py        the section of NAME.md that compares the scales
figure.py       NAME.png
labs.py         reproductions that are laboratories
"""
