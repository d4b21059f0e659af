"""The numbers of a comparison: pure functions of arrays and plain numbers. The callers write sentences and tables.

The results of K losses are a sequence of mappings, seed → x_sk. A seed is one observation.

spread.py       mean, standard deviation and 95 % interval of a sample
differences.py  the difference of two losses, its interval and p; Holm's correction
leader.py       the ranks of several losses, and what is known about the first
claims.py       the rules by which a claim holds
"""
