"""Alignment of two rollouts: which turns of one stand beside which of the other.

What both say alike stands side by side; between that, turns of the same role that call the same
tools, then turns of the same role. A turn that only one of them has stands alone. So it is with
what their environments did: alike, then of one phase and name, then of one phase.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count, takewhile
from operator import attrgetter
from typing import TypeVar

from hud_tui.rl.transcript import EnvironmentPart, Turn
from hud_tui.wire_training import value_text

MOST_CELLS = 100_000
"""Most pairs of turns, left × right, among which a longest common subsequence is looked for; where
there are more, only what occurs once on both sides is, and what stands in the same place."""

T = TypeVar("T")
Match = tuple[int, int]
"""Indices of two turns that stand side by side."""
Line = tuple[int | None, int | None]
"""The same; None where a rollout has no such turn."""
Keys = Sequence[int]


def aligned(left: Sequence[Turn], right: Sequence[Turn]) -> list[Line]:
    """Every turn of both, each in its order."""
    return _aligned(left, right, (_said, _made, attrgetter("role")))


def aligned_parts(left: Sequence[EnvironmentPart], right: Sequence[EnvironmentPart]) -> list[Line]:
    """The same of what their environments did before the turns, or after them."""
    return _aligned(left, right, (_did, attrgetter("phase", "name"), attrgetter("phase")))


def _aligned(
    left: Sequence[T], right: Sequence[T], keys: Sequence[Callable[[T], Hashable]]
) -> list[Line]:
    levels = [_numbered(left, right, key) for key in keys]
    lines: list[Line] = []
    i = j = 0
    for before, after in [*_matches(levels, 0, 0), (len(left), len(right))]:
        lines += [(number, None) for number in range(i, before)]
        lines += [(None, number) for number in range(j, after)]
        lines.append((before, after))
        i, j = before + 1, after + 1
    return lines[:-1]


def _said(turn: Turn) -> Hashable:
    calls = [
        (call.name, value_text(call.arguments), call.result, call.error) for call in turn.calls
    ]
    return turn.role, turn.text, turn.reasoning, turn.error, tuple(calls)


def _made(turn: Turn) -> Hashable:
    return turn.role, tuple(call.name for call in turn.calls)


def _did(part: EnvironmentPart) -> Hashable:
    return part.phase, part.name, value_text(part.arguments), part.result, part.error


def _numbered(
    left: Sequence[T], right: Sequence[T], key: Callable[[T], Hashable]
) -> tuple[Keys, Keys]:
    """The keys of both sides as numbers, which are fast to compare."""
    numbers: dict[Hashable, int] = {}
    before, after = (
        [numbers.setdefault(key(t), len(numbers)) for t in side] for side in (left, right)
    )
    return before, after


def _matches(levels: Sequence[tuple[Keys, Keys]], i: int, j: int) -> Iterator[Match]:
    """What is common by the first keys; between that, by the next ones. The first index of both
    sides is `i`, `j`."""
    if not levels or not all(levels[0]):
        return
    left, right = levels[0]
    low = high = 0
    for before, after in [*common(left, right), (len(left), len(right))]:
        between = [(a[low:before], b[high:after]) for a, b in levels[1:]]
        yield from _matches(between, i + low, j + high)
        if before < len(left):
            yield i + before, j + after
        low, high = before + 1, after + 1


def common(left: Keys, right: Keys) -> list[Match]:
    """A common subsequence, the longest one where that is not too much to look for."""
    pairs = zip(left, right, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    pairs = zip(reversed(left[start:]), reversed(right[start:]), strict=False)
    stop = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    ends = len(left) - stop, len(right) - stop
    middle = _within(left[start : ends[0]], right[start : ends[1]])
    return [
        *((number, number) for number in range(start)),
        *((start + i, start + j) for i, j in middle),
        *((ends[0] + number, ends[1] + number) for number in range(stop)),
    ]


def _within(left: Keys, right: Keys) -> list[Match]:
    """`common` of what neither begins nor ends alike."""
    if len(left) * len(right) <= MOST_CELLS:
        return _longest(left, right)
    anchors = _anchors(left, right)
    if not anchors:
        pairs = zip(count(), left, right)
        return [(number, number) for number, before, after in pairs if before == after]
    matches: list[Match] = []
    i = j = 0
    for before, after in [*anchors, (len(left), len(right))]:
        between = common(left[i:before], right[j:after])
        matches += [(i + m, j + n) for m, n in between]
        matches.append((before, after))
        i, j = before + 1, after + 1
    return matches[:-1]


def _longest(left: Keys, right: Keys) -> list[Match]:
    """A longest common subsequence, O(left × right)."""
    lengths = [[0] * (len(right) + 1)]
    for key in reversed(left):
        below, row, longest = lengths[-1], [0] * (len(right) + 1), 0
        for number in range(len(right) - 1, -1, -1):
            if right[number] == key:
                longest = below[number + 1] + 1
            elif below[number] > longest:
                longest = below[number]
            row[number] = longest
        lengths.append(row)
    lengths.reverse()
    matches: list[Match] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            matches.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return matches


def _anchors(left: Keys, right: Keys) -> list[Match]:
    """What occurs once on either side, as many as are in the same order. O(n log n)."""
    counts = Counter(left), Counter(right)
    once = {key for key, times in counts[0].items() if times == counts[1].get(key) == 1}
    places = {key: number for number, key in enumerate(right) if key in once}
    pairs = [(number, places[key]) for number, key in enumerate(left) if key in once]
    ends: list[int] = []
    """The least last place of a rising sequence of each length."""
    lasts: list[int] = []
    """The pair of that place."""
    before: list[int | None] = []
    """Of each pair the one before it in its sequence."""
    for number, (_, position) in enumerate(pairs):
        length = bisect_left(ends, position)
        before.append(lasts[length - 1] if length else None)
        ends[length:], lasts[length:] = (
            [position, *ends[length + 1 :]],
            [number, *lasts[length + 1 :]],
        )
    rising: list[Match] = []
    last = lasts[-1] if lasts else None
    while last is not None:
        rising.append(pairs[last])
        last = before[last]
    return rising[::-1]
