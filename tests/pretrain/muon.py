"""Muon: steps of equal size in every direction of a matrix, for the matrices between tokens.

Source: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/). To copy is learned in half
of Adam's steps. Only the lessons of the base for agents use it: reinforcement learning is Adam's.
"""

import numpy as np

from hud_tui.service.engines.base import Adam
from hud_tui.service.engines.tiny.model import Array, Weights, zeros
from hud_tui.service.engines.tiny.training import Moments, adam_step

MOMENTUM = 0.95
SIZE = 20 / 3
"""Learning rate of the matrices as a multiple of that of embeddings and gains, which are Adam's."""
TURNS = 5
A, B, C = 3.4445, -4.7750, 2.0315
"""Newton and Schulz's iteration, and its coefficients."""


class Muon:
    def __init__(self, weights: Weights) -> None:
        self._moments = Moments.fresh(weights)
        self._mean = zeros({name: w for name, w in weights.items() if _between_tokens(name)})

    def step(self, weights: Weights, grads: Weights, rate: float) -> None:
        """Move the weights by one step, in place; grads are used up."""
        for name, mean in self._mean.items():
            grad = grads.pop(name)
            mean += (1 - MOMENTUM) * (grad - mean)
            ahead = (1 - MOMENTUM) * grad + MOMENTUM * mean
            # queries, keys and values are matrices of their own
            parts = np.split(ahead, 3, axis=1) if name.endswith("qkv") else [ahead]
            turned = np.concatenate([orthogonal(part) for part in parts], axis=1)
            weights[name] -= np.float32(SIZE * rate) * turned
        adam_step(weights, grads, self._moments, Adam(rate))


def _between_tokens(name: str) -> bool:
    return name == "shift" or name.endswith(("qkv", "out", "up", "down"))


def orthogonal(matrix: Array) -> Array:
    """About the nearest matrix with orthonormal rows or columns, times √(columns / rows) if that is
    above 1."""
    rows, columns = matrix.shape
    x = matrix / (np.linalg.norm(matrix) + 1e-7)
    x = x.T if rows > columns else x
    for _ in range(TURNS):
        square = x @ x.T
        x = A * x + (B * square + C * (square @ square)) @ x
    x = x.T if rows > columns else x
    scaled: Array = x * np.float32(max(1.0, columns / rows) ** 0.5)
    return scaled
