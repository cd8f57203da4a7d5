"""JSON as its standard has it: no NaN, no number that overflows, no absurd nesting.

Python's own parser takes NaN, Infinity and 1e999, which no service does, and as much
nesting as the stack allows.

Source: RFC 8259, sections 6 and 9 (a parser may limit the depth and the range of numbers).
"""

import json
from dataclasses import dataclass
from math import isinf
from threading import local
from typing import Any

MAX_DEPTH = 64
"""Lists and objects within each other, in one row."""
DEEP = f"nested more than {MAX_DEPTH} deep"


@dataclass(frozen=True)
class Parsed:
    """A value, or why it is none."""

    value: Any = None
    fault: str = ""
    end: int = 0
    """Where the value ends in the text, so that what follows can be read; 0 where that is
    not known."""
    at: int = 0
    """Where the fault is in the text."""


class Parser:
    """Parses values out of a text, one after another.

    It holds itself in a cycle, so one for every line of a file would keep the garbage
    collector busy: give one that is there another `text` instead.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._refused = ""
        self._decoder = json.JSONDecoder(
            parse_constant=self._constant, parse_float=self._float, parse_int=self._int
        )

    def value(self, start: int) -> Parsed:
        """The value that begins here."""
        self._refused = ""
        try:
            value, end = self._decoder.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            return Parsed(fault=error.msg, at=error.pos)
        except RecursionError:
            return Parsed(fault=DEEP, at=start)
        deep = self.text.count("[", start, end) + self.text.count("{", start, end) > MAX_DEPTH
        fault = self._refused or (DEEP if deep and _is_deep(value) else "")
        return Parsed(None if fault else value, fault, end, start)

    def skip(self, start: int) -> int:
        """The next position that is not white space."""
        text, size = self.text, len(self.text)
        while start < size and text[start] in " \t\n\r":
            start += 1
        return start

    def place(self, position: int, line: int = 1) -> str:
        """E.g. ``line 3 column 9``; both from 1."""
        before = self.text.count("\n", 0, position)
        column = position - self.text.rfind("\n", 0, position)
        return f"line {line + before} column {column}"

    def _constant(self, name: str) -> None:
        self._refused = f"{name} is not JSON"

    def _float(self, digits: str) -> float:
        value = float(digits)
        if isinf(value):
            self._refused = "a number is too large: it would become Infinity"
        return value

    def _int(self, digits: str) -> int:
        try:
            return int(digits)
        except ValueError:
            self._refused = f"a number of {len(digits)} digits is too long"
            return 0


class _Own(local):
    """A parser of each thread's own."""

    def __init__(self) -> None:
        self.parser = Parser("")


_OWN = _Own()


def parse(text: str) -> Parsed:
    """The one value of a text."""
    parser = _OWN.parser
    parser.text = text
    found = parser.value(parser.skip(0))
    rest = parser.skip(found.end) if found.end else len(text)
    return found if rest == len(text) else Parsed(fault="Extra data", at=rest, end=found.end)


def _is_deep(value: Any) -> bool:
    """Whether it has a path of more than MAX_DEPTH lists and objects."""
    waiting: list[tuple[int, Any]] = [(1, value)]
    while waiting:
        depth, node = waiting.pop()
        if isinstance(node, (dict, list)):
            if depth > MAX_DEPTH:
                return True
            parts = node.values() if isinstance(node, dict) else node
            waiting += [(depth + 1, part) for part in parts]
    return False
