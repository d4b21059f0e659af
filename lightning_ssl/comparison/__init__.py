"""The numbers of a comparison: pure functions of arrays and plain numbers. The callers write sentences and tables.

The results of K losses are a sequence of mappings, seed → x_sk in points, or an array (..., K, S) of complete blocks.
Numbers are not rounded here.

blocks.py    from mappings to complete blocks, and what they leave out
estimate.py  a difference with its standard error: p-values and interval by Student's t
pairs.py     the differences of all pairs of losses, and of any contrast
best.py      the headline: the loss that wins, or the losses that can be the best
claims.py    whether a claim holds, is contradicted, or is not decided
looks.py     three looks at 5, 8 and 12 seeds, with fewer losses after each
evalue.py    evidence that may be looked at after every seed
planning.py  how many seeds a difference needs
spread.py    mean, standard deviation and 95 % interval of a sample
"""
