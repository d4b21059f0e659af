"""Evaluation of a trained network. Importing this package imports no torch.

features.py    frozen features of labelled images
linear.py      the two protocols of linear evaluation
knn.py         the vote of the nearest neighbours
evaluate.py    features, protocols and kNN, in one record of metrics and settings
"""
