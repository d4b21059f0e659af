"""Slow loops of the losses of other papers, from similarities s = 1 − d2; nothing here imports the package.

    loss(positives, negatives, **parameters)      (M,), (M, K) similarities → the mean over anchors

Each function is differentiable. What a paper or its code treats as a constant is detached here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mean(losses) -> Tensor:
    found = list(losses)
    return sum(found) / len(found)


def rows(positives: Tensor, negatives: Tensor):
    return zip(positives, negatives, strict=True)


def of_row(P: Tensor, S: Tensor) -> Tensor:
    return -torch.log(P / (P + S))


def dcl(positives, negatives, tau, learn_tau=False):
    return mean(-s / tau + torch.log(sum(torch.exp(x / tau) for x in row)) for s, row in rows(positives, negatives))


def dclw(positives, negatives, tau, sigma, learn_tau=False):
    fixed = positives.detach()
    average = mean(torch.exp(s / sigma) for s in fixed)
    losses = []
    for i, (s, row) in enumerate(rows(positives, negatives)):
        w = 2 - torch.exp(fixed[i] / sigma) / average
        losses.append(-w * s / tau + torch.log(sum(torch.exp(x / tau) for x in row)))
    return mean(losses)


def debiased_row(P, S, count, tau, tau_plus):
    G = (S - tau_plus * count * P) / (1 - tau_plus)
    floor = torch.full_like(P, count * math.exp(-1 / tau))
    return of_row(P, torch.maximum(G, floor))


def debiased(positives, negatives, tau, tau_plus):
    return mean(
        debiased_row(torch.exp(s / tau), sum(torch.exp(x / tau) for x in row), len(row), tau, tau_plus)
        for s, row in rows(positives, negatives)
    )


def hard_negative(positives, negatives, tau, tau_plus, beta, detached):
    """The code: the negatives e_j are weighed by e_j^β over the mean of it."""
    losses = []
    for s, row in rows(positives, negatives):
        weights = [torch.exp(beta * (x.detach() if detached else x) / tau) for x in row]
        average = sum(weights) / len(row)
        R = sum(w / average * torch.exp(x / tau) for w, x in zip(weights, row, strict=True))
        losses.append(debiased_row(torch.exp(s / tau), R, len(row), tau, tau_plus))
    return mean(losses)


def adaptive_negative(positives, negatives, tau, mu, sigma, learn_tau=False):
    losses = []
    for s, row in rows(positives, negatives):
        g = [torch.exp(-((x.detach() - mu) ** 2) / (2 * sigma**2)) for x in row]
        W = sum(len(row) * gj / sum(g) * torch.exp(x / tau) for gj, x in zip(g, row, strict=True))
        losses.append(of_row(torch.exp(s / tau), W))
    return mean(losses)


def sigmoid(positives, negatives, tau, bias, learn_tau=False, learn_bias=False):
    losses = []
    for s, row in rows(positives, negatives):
        of_pairs = [torch.log1p(torch.exp(x / tau + bias)) for x in row]
        losses.append(torch.log1p(torch.exp(-(s / tau + bias))) + sum(of_pairs))
    return mean(losses)


def rince(positives, negatives, tau, lam, q, learn_tau=False):
    losses = []
    for s, row in rows(positives, negatives):
        P = torch.exp(s / tau)
        T = P + sum(torch.exp(x / tau) for x in row)
        losses.append((-(P**q) + lam**q * T**q) / q)
    return mean(losses)


def spectral(positives, negatives):
    return mean(-2 * s + sum(x**2 for x in row) / len(row) for s, row in rows(positives, negatives))


def macl(positives, negatives, tau, alpha, a0):
    tau = tau * (1 + alpha * (mean(positives.detach()) - a0))
    losses = []
    for s, row in rows(positives, negatives):
        P = torch.exp(s / tau)
        share = P / (P + sum(torch.exp(x / tau) for x in row))
        losses.append(-torch.log(share) / (1 - share.detach()))
    return mean(losses)


def align_uniform(positives, negatives, t, power, w_align, w_uniform):
    """‖x − y‖² = 2 (1 − s)."""
    align = mean((2 * (1 - s)) ** (power / 2) for s in positives)
    uniform = torch.log(mean(torch.exp(-t * 2 * (1 - x)) for row in negatives for x in row))
    return w_align * align + w_uniform * uniform


def multi_similarity(positives, negatives, pos_scale, neg_scale, base, mining):
    losses = []
    for s, row in rows(positives, negatives):
        kept = [x for x in row if mining is None or x + mining > s]
        of_positive = torch.log(1 + torch.exp(-pos_scale * (s - base))) / pos_scale
        of_negatives = torch.log(1 + sum(torch.exp(neg_scale * (x - base)) for x in kept)) / neg_scale if kept else 0
        losses.append(of_positive + of_negatives if kept else 0 * s)
    return mean(losses)


def circle(positives, negatives, margin, gamma):
    losses = []
    for s, row in rows(positives, negatives):
        p = torch.relu(1 + margin - s.detach())
        logits = torch.stack([gamma * torch.relu(x.detach() + margin) * (x - margin) for x in row])
        total = -gamma * p * (s - 1 + margin) + torch.logsumexp(logits, 0)
        losses.append(torch.logaddexp(total, torch.zeros_like(total)))  # log(1 + product), where the product overflows
    return mean(losses)


def margin_info_nce(positives, negatives, tau, margin, angular):
    losses = []
    for s, row in rows(positives, negatives):
        Q = torch.exp((torch.cos(torch.acos(s) + margin) if angular else s - margin) / tau)
        losses.append(of_row(Q, sum(torch.exp(x / tau) for x in row)))
    return mean(losses)


F_DIVERGENCES = {  # f' and f* (the conjugate of f)
    "kl": (lambda u: 1 + torch.log(u), lambda t: torch.exp(t - 1)),
    "js": (lambda u: torch.log(2 * u / (1 + u)), lambda t: -torch.log(2 - torch.exp(t))),
    "chi2": (lambda u: 2 * (u - 1), lambda t: t + t**2 / 4),
}


def fmicl(positives, negatives, divergence, width, height, weight):
    slope, conjugate = F_DIVERGENCES[divergence]
    losses = []
    for s, row in rows(positives, negatives):
        G = [height * torch.exp(-(1 - x) / width**2) for x in (s, *row)]
        losses.append(-slope(G[0]) + weight * sum(conjugate(slope(x)) for x in G[1:]) / len(row))
    return mean(losses)


def hard_contrastive(positives, negatives, tau, fraction, learn_tau=False):
    losses = []
    for s, row in rows(positives, negatives):
        last = sorted(row.tolist(), reverse=True)[math.ceil(round(fraction * len(row), 9)) - 1]
        near = [x for x in row if x >= last]
        losses.append(of_row(torch.exp(s / tau), sum(torch.exp(x / tau) for x in near)))
    return mean(losses)


def learned_gradients(loss, positives, negatives, parameters, names) -> list[Tensor]:
    """The derivatives by log τ and b, by autograd."""
    found = []
    for name in names:
        value = torch.tensor(float(parameters[name]), dtype=torch.float64, requires_grad=True)
        of_value = loss(positives.detach(), negatives.detach(), **{**parameters, name: value})
        (slope,) = torch.autograd.grad(of_value, value)
        found.append(slope * (parameters["tau"] if name == "tau" else 1))
    return found
