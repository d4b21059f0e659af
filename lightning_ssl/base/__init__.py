"""What every room may import.

checks.py        `require`, `UserError`
tree.py          an object ↔ its plain tree: checks, defaults, `build`; walk.py, the one walker; signatures.py, the
                 arguments of a class; convert.py, values from text and YAML
facts.py         what classes declare, read from their source without torch
trust.py         which code a tree may name; user_code.py, the user's own classes by their path
untrusted.py     reading YAML, JSON and text within limits
files.py         atomic writes; which files a command may replace
distributed.py   ranks; seeding.py, generators; machine.py, cores and memory; palette.py, colours
"""
