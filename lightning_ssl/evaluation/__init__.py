"""Evaluation of a trained network. Importing this package imports no torch.

restore.py     a method with the weights of a checkpoint, and the data to evaluate it on
features.py    frozen features of labelled images
linear.py      the two protocols of linear evaluation
knn.py         the vote of the nearest neighbours
minimize.py    L-BFGS for a batch of convex problems
evaluate.py    features, protocols and kNN, in one record of metrics and settings
record.py      evaluation.json and the `linear` entry of summary.json
"""
