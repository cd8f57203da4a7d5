"""What a call is cut into: parts, of which several processes take one each.

The parts depend on the call alone, never on the number of processes: a BLAS rounds by the shapes
that it is given, so equal parts give equal bits, whoever computes them. Results are put together in
the order of the parts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hud_tui.service.engines.base import Datum, SampleRequest

# Of completions: so many that arrays are large enough for NumPy, and small enough for the caches.


ROWS = 64
"""Most completions in a part: as fast per completion as more of them."""
TOKENS = 4096
"""Most tokens of prompts and first answers in a part of several completions."""
GROWTH = 128
"""Tokens of an answer that count in advance; by as many the cache grows."""


def of_requests(requests: Sequence[SampleRequest]) -> list[slice]:
    """Consecutive parts of equal numbers, an even one where there are several."""
    rows = len(requests)
    if not rows:
        return []
    tokens = rows * max(size_of(request) for request in requests)
    count = max(-(-rows // ROWS), -(-tokens // TOKENS), 2 * (rows > ROWS // 2))
    count = min(rows, count + count % 2 if count > 1 else 1)
    bounds = [rows * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def size_of(request: SampleRequest) -> int:
    """Tokens of the prompt and of a first answer."""
    return len(request.prompt) + min(request.max_tokens, GROWTH)


# Of turns to train on: sequences of about the same length, sorted by it. Page faults of large
# temporaries cost more than the calls of small ones.


CHUNK = 1024
"""Most tokens in a part of several sequences."""


def of_datums(datums: Sequence[Datum]) -> list[list[list[int]]]:
    """The parts, short turns first. Each is a list of sequences, a sequence the indices of the
    turns that share it, as in `conversations`."""
    lengths = [len(datum.prompt) + len(datum.output) - 1 for datum in datums]
    shared = conversations(datums)
    order = sorted(sorted(shared), key=lambda i: lengths[i])
    parts = []
    while order:
        count = next(
            (n for n in range(1, len(order)) if (n + 1) * lengths[order[n]] > CHUNK), len(order)
        )
        parts.append([shared[i] for i in order[:count]])
        order = order[count:]
    return parts


def conversations(datums: Sequence[Datum]) -> dict[int, list[int]]:
    """The datums that share one sequence, turn by turn, by the index of the last one.

    A turn is continued by another if its prompt and output are the beginning of the other's prompt.
    Datums without an output are left out.
    """
    whole = {i: (*d.prompt, *d.output) for i, d in enumerate(datums) if d.output}
    lines: list[list[int]] = []
    # in descending order, a turn's continuation comes right before it
    for i in sorted(whole, key=lambda i: (whole[i], i), reverse=True):
        size = len(whole[i])
        number = len(lines)
        while number and whole[lines[number - 1][0]][:size] == whole[i]:
            number -= 1
            if len(datums[lines[number][0]].prompt) >= size:
                lines.append([i, *lines.pop(number)])
                break
        else:
            lines.append([i])
    return {turns[-1]: turns for turns in lines}


# Slices: a long pass is cut into slices of about a second's work of one process, so that others
# get their turn. Gradients accumulate, so several slices are one pass, with their metrics merged.


SLICE = 16_384
"""Prompt and output tokens in a slice: most of a second of forward and backward with a policy of
PARAMETERS; a larger policy gets smaller slices."""
PARAMETERS = 172_480


def cut(datums: Sequence[Datum], parameters: int = PARAMETERS) -> Iterator[slice]:
    """Consecutive slices of the datums, each about a second's work for a policy of this size; none
    without datums.

    A turn that continues the one before it costs its new tokens only, and stays in the same slice.
    """
    tokens = SLICE * PARAMETERS // max(PARAMETERS, parameters)
    start = size = 0
    before: list[int] = []
    for index, datum in enumerate(datums):
        continues = bool(before) and list(datum.prompt[: len(before)]) == before
        more = len(datum.prompt) + len(datum.output) - (len(before) if continues else 0)
        if size and size + more > tokens and not continues:
            yield slice(start, index)
            start, size = index, 0
        size += more
        before = [*datum.prompt, *datum.output]
    if datums:
        yield slice(start, len(datums))
