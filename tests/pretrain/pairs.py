"""Byte pairs for a tokenizer, learned from texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hud_tui.service.engines.tiny.tokenizer import (
    FIRST_BYTE,
    FIRST_PAIR,
    BpeTokenizer,
    Pair,
    joined,
)


def learn_pairs(texts: Iterable[str], count: int, words: Sequence[str] | None = None) -> list[Pair]:
    """The most frequent pairs in these texts, for a `BpeTokenizer` of these words; at most
    `count`."""
    split = BpeTokenizer([], words).split
    seen = Counter(piece for text in texts for piece in split(text.encode()))
    for word in words or ():
        seen.pop(word.encode(), None)
    words = [([FIRST_BYTE + byte for byte in piece], often) for piece, often in seen.items()]
    pairs: list[Pair] = []
    while len(pairs) < count:
        frequent: Counter[Pair] = Counter()
        for ids, often in words:
            for pair in pairwise(ids):
                frequent[pair] += often
        if not frequent:
            break
        best = max(frequent, key=lambda pair: (frequent[pair], pair))
        words = [(joined(ids, best, FIRST_PAIR + len(pairs)), often) for ids, often in words]
        pairs.append(best)
    return pairs
