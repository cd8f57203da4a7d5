"""Figures of a pass, over every token that was sampled and over those with a gradient alone.

A group without variance has no gradient, but the policy said its tokens all the same. So entropy,
KL, ratios and the share outside the clip bounds are means over all; `TRAINED` names them over the
tokens with a gradient, which late in a run are a few dozen.
"""

from collections.abc import Mapping, Sequence

from hud_tui.service.engines.base import Datum

SUMS = ("loss:sum", "tokens", "num_tokens")
MEANS = ("entropy", "kl_sample_train", "clip_fraction")
"""Means over tokens: they merge weighted by how many."""
GREATEST = ("ratio_max",)
TRAINED = "trained/"
"""Before the name of a figure over the tokens with a gradient only."""
KNOWN = (*SUMS, *MEANS, *GREATEST, *(f"{TRAINED}{key}" for key in (*MEANS, *GREATEST)))
BOUNDS = (0.8, 1.2)
"""Ratios outside these count as clipped where a loss has no bounds of its own; ppo's usual."""


def fold(key: str, parts: Sequence[Mapping[str, float]]) -> float:
    """One of `KNOWN` out of several passes, or parts of a pass, that all have it."""
    name, values = key.removeprefix(TRAINED), [part[key] for part in parts]
    if name in SUMS:
        return sum(values)
    if name in GREATEST:
        return max(values)
    counted = "tokens" if key.startswith(TRAINED) else "num_tokens"
    counts = [part.get(counted, 1.0) for part in parts]
    total = sum(counts)
    weighted = sum(value * count for value, count in zip(values, counts, strict=True))
    return weighted / total if total else values[-1]


def merge(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One pass's figures out of its parts'; those that a part lacks are left out."""
    shared = [key for key in KNOWN if parts and all(key in part for part in parts)]
    return {key: fold(key, parts) for key in shared}


def of_pass(
    trained: Mapping[str, float] | None, others: Mapping[str, float] | None
) -> dict[str, float]:
    """A whole pass's figures.

    Args:
        trained: Of the turns with a gradient: loss:sum, num_tokens, `MEANS` and `GREATEST` as far
            as they can be known; None where there are none.
        others: Of the turns without; None where there are none.
    """
    found = {"loss:sum": 0.0, "tokens": 0.0}
    for key, value in (trained or {}).items():
        found[f"{TRAINED}{key}" if key in (*MEANS, *GREATEST) else key] = value
    found["tokens"] = found.get("num_tokens", 0.0)
    return found | merge([part for part in (trained, others) if part is not None])


def distinct(datums: Sequence[Datum]) -> tuple[list[Datum], list[int]]:
    """Datums without repetitions, and where each one is found there, shape (N,).

    What a group without variance said is mostly the same: a forward pass need not read it twice.
    """
    places: dict[tuple[object, ...], int] = {}
    which = [
        places.setdefault((*datum.prompt, None, *datum.output, datum.temperature), len(places))
        for datum in datums
    ]
    first = dict(zip(reversed(which), reversed(datums), strict=True))
    return [first[place] for place in range(len(places))], which
