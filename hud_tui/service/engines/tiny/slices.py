"""Slices: a long pass cut into requests of about a second, so that others get their turn between.

Gradients accumulate, so several slices are one pass: their figures merge.
"""

from collections.abc import Iterator, Sequence

from hud_tui.service.engines.base import Datum

TOKENS = 16_384
"""Prompt and output tokens in a slice: most of a second of forward and backward."""


def cut(datums: Sequence[Datum]) -> Iterator[slice]:
    """Consecutive runs of datums, each of about `TOKENS` tokens; none where there are no datums."""
    start = size = 0
    for index, datum in enumerate(datums):
        more = len(datum.prompt) + len(datum.output)
        if size and size + more > TOKENS:
            yield slice(start, index)
            start, size = index, 0
        size += more
    if datums:
        yield slice(start, len(datums))
