"""A pass's figures, out of the logprobs that it returned: servers report few, or none.

kl_sample_train is the mean of q − lp, which is unbiased. Servers return the logprobs of the tokens
that were sampled and no others, so entropy is estimated as the mean of −lp over them: unbiased for
tokens that these very weights sampled at temperature 1. What the server says itself is kept beside.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np

from hud_tui.service.engines.base import Datum
from hud_tui.service.engines.figures import BOUNDS
from hud_tui.service.engines.tinker.datums import Floats
from hud_tui.service.engines.tiny.losses import token_weights

WIDEST = 80.0
"""A wider gap in logprob counts as this in ratio_max: beyond it lies infinity."""
SERVER = "server/"


def of_loss(
    loss_fn: str, config: Mapping[str, float], datums: Sequence[Datum], logprobs: Sequence[Floats]
) -> tuple[dict[str, float], list[Floats]]:
    """The figures of a loss, and −dC/dlogprob, shape (T,) a datum."""
    lp = np.concatenate(logprobs)
    ratios = all(datum.logprobs for datum in datums)
    q = np.concatenate([np.asarray(d.logprobs, np.float64) for d in datums]) if ratios else lp
    counts = [len(datum.output) for datum in datums]
    advantages = np.repeat([datum.advantage for datum in datums], counts)
    weights, cost = token_weights(loss_fn, config, lp, q, advantages)
    rows = np.split(np.asarray(weights, np.float64), np.cumsum(counts)[:-1])
    return _figures(lp, q, cost, config, ratios), rows


def looked(
    config: Mapping[str, float], datums: Sequence[Datum], logprobs: Sequence[Floats]
) -> dict[str, float]:
    """The figures of turns that are not trained on; loss:sum is 0."""
    zeros = [[0.0] * len(datum.output) for datum in datums]
    return of_weights(datums, logprobs, zeros, config)


def of_weights(
    datums: Sequence[Datum],
    logprobs: Sequence[Floats],
    weights: Sequence[Sequence[float]],
    config: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """The figures of a custom loss's gradients; loss:sum is −Σ w·lp."""
    lp, w = np.concatenate(logprobs), np.concatenate([np.asarray(row) for row in weights])
    ratios = all(datum.logprobs for datum in datums)
    q = np.concatenate([np.asarray(d.logprobs, np.float64) for d in datums]) if ratios else lp
    return _figures(lp, q, -w * lp, config, ratios)


def of_server(metrics: Mapping[str, Any] | None, turns: int = 1) -> dict[str, float]:
    """What the server reports, under names of its own; a gradient norm also under ours.

    Args:
        metrics: As reported.
        turns: Where the server divided the gradient by the number of turns, that number.
    """
    kept = {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float) and isfinite(value)
    }
    named = {f"{SERVER}{key}": value for key, value in kept.items()}
    norm = next((value for key, value in kept.items() if "grad_norm" in key), None)
    return named if norm is None else {"grad_norm": norm * turns, **named}


def _figures(
    lp: Floats, q: Floats, cost: Floats, config: Mapping[str, float], ratios: bool
) -> dict[str, float]:
    figures = {
        "loss:sum": float(cost.sum()),
        "entropy": float(-lp.mean()),
        "num_tokens": float(len(lp)),
    }
    if ratios:
        ratio = np.exp(np.minimum(lp - q, WIDEST))
        low = config.get("clip_low_threshold", BOUNDS[0])
        high = config.get("clip_high_threshold", BOUNDS[1])
        figures |= {
            "kl_sample_train": float((q - lp).mean()),
            "ratio_max": float(ratio.max()),
            "clip_fraction": float(((ratio < low) | (ratio > high)).mean()),
        }
    return figures
