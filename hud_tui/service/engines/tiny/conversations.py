"""The conversations that a policy answered last, so that only a turn's new tokens are read.

Their keys and values lie in shared memory, for whichever process reads the next turn. What a call
may build on is looked up when it is made, and what it adds is kept when it ends, so it depends on
the calls' order only.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.service.engines.base import Sampled, SampleRequest
from hud_tui.service.engines.tiny.memory import Memory, Region

BYTES = 256 << 20
"""Most bytes of keys and values that a policy keeps."""
SHORTEST = 128
"""Shorter conversations are read again: that is as fast."""


@dataclass(frozen=True, eq=False)
class Kept:
    """A conversation's tokens, and where its keys and values lie: shape (2, L, H, N, D/H)."""

    tokens: "array[int]"
    opening: "array[int]"
    """The first SHORTEST of them, by which most others are told apart."""
    place: Region


@dataclass(frozen=True)
class Known:
    """What is known of a prompt before it is read, and where its conversation is to be kept."""

    beginning: Kept | None
    shared: int
    """Tokens that it shares with the beginning; fewer than it has, since its last one is read."""
    keep: Region | None

    @property
    def regions(self) -> list[Region | None]:
        """What a process reads and writes for it."""
        return [None if self.beginning is None else self.beginning.place, self.keep]

    @property
    def before(self) -> tuple[int, int, int] | None:
        """Start and number of tokens of the beginning, and how many of them are shared."""
        kept = self.beginning
        return None if kept is None else (kept.place.start, len(kept.tokens), self.shared)


NOTHING = Known(None, 0, None)


class Conversations:
    """Valid for the weights that they were read with."""

    def __init__(self, memory: Memory, token_bytes: int) -> None:
        """`token_bytes`: size of one token's keys and values."""
        self._memory, self._token_bytes = memory, token_bytes
        self._kept: list[Kept] = []

    def look_up(self, request: SampleRequest) -> Known:
        """What is known of a request's prompt, and a place for its conversation, if that may become
        long enough to be kept."""
        longest = len(request.prompt) + request.max_tokens - 1
        if longest < SHORTEST:
            return NOTHING
        keep, beginning = self._memory.take(longest * self._token_bytes), self.find(request.prompt)
        return Known(None, 0, keep) if beginning is None else Known(*beginning, keep)

    def find(self, prompt: Sequence[int]) -> tuple[Kept, int] | None:
        """The conversation that shares the longest prefix with a prompt, and the number of shared
        tokens. None if reading the prompt is as fast."""
        if len(prompt) <= SHORTEST:
            return None
        ids = array("i", prompt)[:-1]
        best, most, opening = None, SHORTEST - 1, ids[:SHORTEST]
        for kept in [kept for kept in self._kept if kept.opening == opening]:
            if (shared := _shared(kept.tokens, ids, most)) > most:
                best, most = kept, shared
        return None if best is None else (best, most)

    def keep(self, request: SampleRequest, known: Known, sampled: Sampled) -> None:
        """Keep an answered request's conversation in place of those that it continues; the oldest
        are dropped for it."""
        size = len(request.prompt) + len(sampled.tokens) - 1
        if known.keep is None or size < SHORTEST:
            return
        ids = array("i", [*request.prompt, *sampled.tokens[:-1]])
        new = Kept(ids, ids[:SHORTEST], known.keep)
        alike = [kept for kept in self._kept if kept.opening == new.opening]
        if any(kept.tokens[:size] == ids for kept in alike):
            return
        known.keep.trim(size * self._token_bytes)
        for kept in alike:
            if ids[: len(kept.tokens)] == kept.tokens:
                self._kept.remove(kept)
        self._kept.append(new)
        while sum(kept.place.size for kept in self._kept) > BYTES:
            self._kept.pop(0)


def _shared(first: "array[int]", second: "array[int]", least: int) -> int:
    """Length of the common prefix of two conversations; 0 if it is not above `least`."""
    low, high = least + 1, min(len(first), len(second))
    if high < low or first[:low] != second[:low]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low
