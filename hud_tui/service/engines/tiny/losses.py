"""The losses, each as a weight w = −dC/dlogprob per token, so that there is one gradient path.

With lp the current logprob, q the sampling policy's, r = exp(lp − q) and A the advantage:

    cross_entropy         C = −Σ A·lp                       w = A
    importance_sampling   C = −Σ r·A                        w = r·A
    ppo                   C = −Σ min(r·A, clip(r)·A)        w = r·A where unclipped, else 0
    cispo                 C = −Σ clip(r)·A·lp, clip fixed   w = clip(r)·A
    dro                   C = −Σ A·lp − β/2·(lp − q)²       w = A − β·(lp − q)

All are sums over tokens. On the sampling policy's own rollouts r is 1 and the four policy
losses give one gradient; they part with stale rollouts and further substeps.

Source: Tinker's documentation of its losses (SDK 0.38); Schulman et al. 2017 (ppo,
arXiv:1707.06347); MiniMax 2025 (cispo, arXiv:2506.13585); Richemond et al. 2024 (dro,
arXiv:2405.19107).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESIDUE = 2e-5
"""Sampler and trainer round differently. A difference in logprob below this is not signal, and
dro must not see it: Adam scales any gradient, however small, up to the learning rate."""


def token_weights(
    loss_fn: str, config: Mapping[str, float], lp: Floats, q: Floats, advantage: Floats
) -> tuple[Floats, Floats]:
    """Weights and costs of some tokens; every array has shape (R,).

    Args:
        loss_fn: One of `engines.base.LOSSES`.
        config: The loss's own keys, all present.
        lp: Current logprobs.
        q: Sampling logprobs; not read by cross_entropy.
        advantage: For cross_entropy, the weights.

    Returns:
        w and C per token.
    """
    if loss_fn == "cross_entropy":
        return advantage, -advantage * lp
    gap = np.where(np.abs(lp - q) < RESIDUE, 0.0, lp - q)
    if loss_fn == "dro":
        beta = config["beta"]
        return advantage - beta * gap, -(advantage * lp - beta / 2 * gap**2)
    ratio = np.exp(gap)
    gain = ratio * advantage
    if loss_fn == "importance_sampling":
        return gain, -gain
    clipped = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"])
    if loss_fn == "ppo":
        active = gain <= clipped * advantage
        return np.where(active, gain, 0.0), -np.minimum(gain, clipped * advantage)
    return clipped * advantage, -clipped * advantage * lp
