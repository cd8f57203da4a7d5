"""Slices: a long pass cut into requests of about a second, so that others get their turn between.

Gradients accumulate, so several slices are one pass: their sums, means and maxima merge.
"""

from collections.abc import Iterator, Mapping, Sequence

from hud_tui.service.engines.base import Datum

TOKENS = 16_384
"""Prompt and output tokens in a slice: most of a second of forward and backward."""


def cut(datums: Sequence[Datum]) -> Iterator[slice]:
    """Consecutive runs of datums, each of about `TOKENS` tokens; at least one."""
    start = size = 0
    for index, datum in enumerate(datums):
        more = len(datum.prompt) + len(datum.output)
        if size and size + more > TOKENS:
            yield slice(start, index)
            start, size = index, 0
        size += more
    yield slice(start, len(datums))


def merge(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One pass's metrics out of its slices'; those that a slice lacks are left out."""
    merged = dict(parts[0])
    tokens = merged["tokens"]
    for part in parts[1:]:
        total = tokens + part["tokens"]
        for key in list(merged):
            if key not in part:
                del merged[key]
            elif key in ("loss:sum", "tokens"):
                merged[key] += part[key]
            elif key == "ratio_max":
                merged[key] = max(merged[key], part[key])
            else:
                merged[key] = (merged[key] * tokens + part[key] * part["tokens"]) / total
        tokens = total
    return merged
