"""AdamW on a dict of weights.

Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1; Loshchilov and Hutter 2019
(arXiv:1711.05101), algorithm 2, for the decay apart from the gradient.
"""

from dataclasses import dataclass

import numpy as np

from hud_tui.service.engines.base import Adam
from hud_tui.service.engines.tiny.policy import Weights, zeros


@dataclass
class Moments:
    """Adam's running means of the gradient and of its square, after t steps."""

    m: Weights
    v: Weights
    t: int = 0

    @classmethod
    def fresh(cls, weights: Weights) -> "Moments":
        return cls(zeros(weights), zeros(weights))


def norm(grads: Weights) -> float:
    """Euclidean length of the whole gradient."""
    return float(np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads.values())))


def adam_step(weights: Weights, grads: Weights, moments: Moments, adam: Adam) -> None:
    """Move the weights by one step, in place; grads are used up."""
    moments.t += 1
    short_m, short_v = 1 - adam.beta1**moments.t, 1 - adam.beta2**moments.t
    for name, grad in grads.items():
        m, v, weight = moments.m[name], moments.v[name], weights[name]
        m += (1 - adam.beta1) * (grad - m)
        grad *= grad
        v += (1 - adam.beta2) * (grad - v)
        step = (m / short_m) / (np.sqrt(v / short_v) + adam.eps)
        weight -= adam.learning_rate * (step + adam.weight_decay * weight)
