"""Search over names: places by kind, of which a text finds the best matches first.

Places come in sections, one per kind, which may grow meanwhile. A search yields after every block
of names, so that keys go first, however many there are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

BLOCK = 2048
"""Names searched without a pause: about 1 ms."""
LONGEST = 200
"""Most characters of a name that are searched and shown."""
PER_SECTION, MOST = 30, 100
"""Most results of one kind, and in total."""
MOST_LETTERS = 200
"""Most names of a block that are ranked by how close together the letters are."""
SHORTEST_ID = 4
"""Shortest text that is searched for in ids."""
NUMBERED = re.compile(r"(|.*[^0-9])0*([0-9]{1,12})")
"""A search that ends with a number: what is before it, and the number without zeros."""
DIGITS = tuple("0123456789")
BEGINS = " -_/.:,("
"""Characters before the beginning of a word."""


@dataclass(frozen=True)
class Place:
    """Somewhere to go to."""

    name: str
    go: Callable[[], Awaitable[object]]
    note: str = ""
    """Shown dim beside the name: the key of an action, the state of a run."""
    is_dim: bool = False
    """Whether its name is dim as well: an action of another view."""
    id: str = ""
    """The part of the note that tells it from others of its name: shown however long that is."""


@dataclass(frozen=True)
class Block:
    """Some names of a section, case-folded, with a line break before and after each."""

    first: int
    """The position of its first name in the section."""
    names: str
    ids: str
    descriptions: str
    """What else is told of them, e.g. what an action does; empty for names that say all."""


class Section:
    """All places of one kind, by name and id, in the order they were added."""

    def __init__(self, kind: str, place: Callable[[int], Place], within: str = "") -> None:
        """`place` makes the place at an index when it is shown. `within` is the owner of the
        places, e.g. a model, which a search may name as well."""
        self.kind, self.place, self.within = kind, place, within.casefold()
        self.blocks: list[Block] = []
        self.size = 0

    def add(
        self, names: Sequence[str], ids: Sequence[str] = (), descriptions: Sequence[str] = ()
    ) -> Section:
        """Append places; `ids` and `descriptions` have one for each name, or are empty."""
        for start in range(0, len(names), BLOCK):
            part = slice(start, start + BLOCK)
            lines = map(_lines, (names[part], ids[part], descriptions[part]))
            self.blocks.append(Block(self.size + start, *lines))
        self.size += len(names)
        return self

    def phrase_of(self, words: Sequence[str]) -> str:
        """The text to search for: the words without those that name the owner and, before others,
        the kind."""
        rest = [word for word in words if not self.within or word not in self.within]
        for named in kind_names(self.kind):
            if len(rest) > len(named.split()) and " ".join(rest).startswith(f"{named} "):
                rest = rest[len(named.split()) :]
        return " ".join(rest or words)

    def is_asked_for(self, phrase: str) -> bool:
        """Whether a text is the name of its kind, or the beginning of it."""
        enough = len(phrase) >= SHORTEST_KIND
        return enough and any(named.startswith(phrase) for named in kind_names(self.kind))


def kind_names(kind: str) -> tuple[str, ...]:
    """What a search may call the places of a kind, longest first, e.g. ``runs`` and ``run``."""
    called = (kind, *ALSO_CALLED.get(kind, ()))
    return (*(f"{word}s" for word in called), *called)


ALSO_CALLED = {"checkpoint": ("step",), "held-out task": ("task",)}
SHORTEST_KIND = 3
"""Shortest text that is taken for the beginning of a kind's name."""


def _lines(names: Iterable[str]) -> str:
    """Names, which may come from a server, case-folded, one per line."""
    lines = (" ".join(name[:LONGEST].split()) for name in names)
    return "\n".join(("", *lines, "")).casefold()


def search(sections: Sequence[Section], text: str) -> Iterator[tuple[Section, int] | None]:
    """Find names, the best match first; yields None between two blocks, to let keys go first.

    Whole names come first, then names with this number at their end, then their beginnings,
    beginnings of words, parts of words, beginnings of ids, names with all words in any order, all
    of a kind that is named, words of what is told of them, and names with the letters in this
    order.
    """
    words = text.casefold().split()
    yielded: dict[Section, set[int]] = {section: set() for section in sections}
    for way in WAYS:
        for section, seen in yielded.items():
            phrase = section.phrase_of(words)
            if way is _kind and not section.is_asked_for(phrase):
                continue
            for block in section.blocks if phrase else ():
                if len(seen) >= PER_SECTION:
                    break
                for line in islice(way(block, phrase), PER_SECTION):
                    if block.first + line not in seen and len(seen) < PER_SECTION:
                        seen.add(block.first + line)
                        yield section, block.first + line
                yield None


def _places(text: str, part: str) -> Iterator[int]:
    """Numbers of the lines with a text, each once; it may begin with the line break."""
    position, line, counted = text.find(part), -1, 0
    while position >= 0:
        position += part[0] == "\n"
        line += text.count("\n", counted, position)
        yield line
        counted = position
        position = text.find(part, text.find("\n", position))


def _matches(pattern: str, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """The first match in each line, with the line's number.

    A pattern should begin with plain characters and look back from there: those are found at the
    speed of `str.find`; one that begins with a choice is tried at every character.
    """
    line, counted, last = -1, 0, -2
    for match in re.finditer(pattern, text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if line != last:
            yield line, match
        last = line


def _whole(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, f"\n{phrase}\n")


def _number(block: Block, phrase: str) -> Iterator[int]:
    """Names that end with the search's number, e.g. ``step-000042`` for ``42`` and ``sp42``, and
    have the letters before it in this order."""
    numbered = NUMBERED.fullmatch(phrase)
    if numbered is None:
        return
    letters = numbered[1].replace(" ", "")
    for line, match in _matches(rf"{numbered[2]}\n(?<![1-9]{numbered[2]}\n)", block.names):
        start = match.start()
        before = block.names[block.names.rfind("\n", 0, start) : start].rstrip("0")
        name = iter(before)
        if not before.endswith(DIGITS) and all(letter in name for letter in letters):
            yield line


def _beginning(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, f"\n{phrase}")


def _word(block: Block, phrase: str) -> Iterator[int]:
    text = re.escape(phrase)
    for line, _ in _matches(rf"{text}(?<=[{re.escape(BEGINS)}]{text})", block.names):
        yield line


def _part(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, phrase)


def _id(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.ids, f"\n{phrase}") if len(phrase) >= SHORTEST_ID else iter(())


def _all_words(block: Block, phrase: str) -> Iterator[int]:
    words = phrase.split()
    return _with_all(block.names, words) if len(words) > 1 else iter(())


def _with_all(text: str, words: Sequence[str]) -> Iterator[int]:
    """Search for the rarest word, then for the others in its line."""
    if all(word in text for word in words):
        lines = text.split("\n")
        for line in _places(text, min(words, key=text.count)):
            if all(word in lines[line + 1] for word in words):
                yield line


def _kind(block: Block, phrase: str) -> Iterator[int]:
    """All, of a kind that the search names."""
    return iter(range(block.names.count("\n") - 1))


def _description(block: Block, phrase: str) -> Iterator[int]:
    """Beginnings of words, all of which are in what is told."""
    return _with_all(block.descriptions, [f" {word}" for word in phrase.split()])


def _letters(block: Block, phrase: str) -> Iterator[int]:
    """Names with the letters closest together come first."""
    first, *others = list(phrase.replace(" ", ""))
    steps = (f"[^\n{re.escape(character)}]*{re.escape(character)}" for character in others)
    matches = _matches(re.escape(first) + "".join(steps), block.names)
    spans = {line: match.end() - match.start() for line, match in islice(matches, MOST_LETTERS)}
    return iter(sorted(spans, key=spans.__getitem__))


WAYS = (_whole, _number, _beginning, _word, _part, _id, _all_words, _kind, _description, _letters)
