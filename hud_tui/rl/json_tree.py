"""A JSON document as foldable lines, built lazily; and a strict JSON parser.

Only unfolded parts become lines, so a document of any size opens at once.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isinf
from threading import local
from typing import Any

Path = tuple[str | int, ...]
"""Keys and list indices from the root down."""
MOST_LINES = 100_000
"""Maximum number of lines; a value that would need more stays folded."""
MOST_FOUND = 10_000
"""Maximum number of matches of a search."""
NESTS = (dict, list)
WORDS = {None: "null", True: "true", False: "false"}
PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Line:
    """A key and its value; if it is unfolded, its children follow."""

    path: Path
    value: Any
    is_open: bool = False

    @property
    def depth(self) -> int:
        """Indentation, from 0."""
        return len(self.path) - 1

    @property
    def folds(self) -> bool:
        """Whether it has children."""
        return isinstance(self.value, (dict, list)) and bool(self.value)


class JsonTree:
    """The visible lines of a document, and operations on them."""

    def __init__(self, document: Any) -> None:
        """The top level is unfolded."""
        self.document = document
        self.lines: list[Line] = list(_children((), document))

    def toggle(self, index: int) -> bool:
        """Unfold or fold a line; False if it has no children, or too many."""
        line = self.lines[index]
        if not line.folds or len(self.lines) + len(line.value) > MOST_LINES:
            return False
        if line.is_open:
            del self.lines[index + 1 : self.end(index)]
        else:
            self.lines[index + 1 : index + 1] = _children(line.path, line.value)
        self.lines[index] = Line(line.path, line.value, not line.is_open)
        return True

    def end(self, index: int) -> int:
        """Index after a line and all lines below it."""
        depth, end = self.lines[index].depth, index + 1
        while end < len(self.lines) and self.lines[end].depth > depth:
            end += 1
        return end

    def parent(self, index: int) -> int:
        """Index of the line that contains this one; itself at the top level."""
        depth = self.lines[index].depth
        return next((up for up in range(index, -1, -1) if self.lines[up].depth < depth), index)

    def unfold_all(self, index: int) -> bool:
        """Unfold a line and everything below it; False if that would exceed MOST_LINES."""
        line = self.lines[index]
        inside: list[Line] = []
        for path, value in walk(line.value, line.path):
            inside.append(Line(path, value, isinstance(value, (dict, list)) and bool(value)))
            if len(self.lines) + len(inside) > MOST_LINES:
                return False
        self.lines[index : self.end(index)] = [Line(line.path, line.value, line.folds), *inside]
        return True

    def reveal(self, path: Path) -> int:
        """Unfold all parents of a path; return the index of its line."""
        position = 0
        for depth in range(len(path)):
            target = path[: depth + 1]
            while self.lines[position].path != target:
                position += 1
            if depth < len(path) - 1:
                if not self.lines[position].is_open:
                    self.toggle(position)
                position += 1
        return position

    def search(self, text: str) -> list[Path]:
        """Paths whose key or scalar value contains this text, in document order;
        case-insensitive."""
        needle, paths = text.casefold(), list[Path]()
        keys: list[str | int] = []
        waiting = [_parts(self.document)] if needle else []
        named: dict[str | int, bool] = {}
        plain = _finder(needle)
        while waiting:
            for key, value in waiting[-1]:
                hit = named.get(key)
                if hit is None:
                    hit = named[key] = needle in str(key).casefold()
                nests = type(value) in NESTS
                if hit or (not nests and plain(value)):
                    paths.append((*keys, key))  # making a path for every value would be slow
                    if len(paths) == MOST_FOUND:
                        return paths
                if nests:
                    keys.append(key)
                    waiting.append(_parts(value))
                    break
            else:
                waiting.pop()
                keys = keys[:-1]
        return paths


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything below a value in document order, at any depth."""
    waiting = [_entries(path, value)]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        yield entry
        waiting.append(_entries(*entry))


def path_text(path: Path) -> str:
    """E.g. ``checkpoints[3].metrics.kl`` or ``["a key"][0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def value_text(value: Any) -> str:
    """A value as JSON, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value on its line: the number of children, or the scalar as JSON."""
    if isinstance(value, dict):
        return f"{{{len(value)}}}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return json.dumps(value, ensure_ascii=False)


def _entries(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    return (((*path, key), part) for key, part in _parts(value))


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Keys or indices with their values."""
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _children(path: Path, value: Any) -> Iterator[Line]:
    return (Line(below, part) for below, part in _entries(path, value))


def _finder(needle: str) -> Callable[[Any], bool]:
    """A test whether a scalar contains `needle`; fast for numbers, which most scalars are."""
    may_be_number = all(character in "0123456789.+-e" for character in needle)
    words = [value for value, text in WORDS.items() if needle in text]

    def has(value: Any) -> bool:
        if isinstance(value, str):
            return needle in value.casefold()
        if value is None or isinstance(value, bool):
            return value in words
        return may_be_number and needle in repr(value)

    return has


# Strict JSON: no NaN, no overflowing numbers, bounded nesting.
#
# Python's parser accepts NaN, Infinity and 1e999, which services reject, and nests as deep
# as the stack allows.
#
# Source: RFC 8259, sections 6 and 9 (a parser may limit the depth and the range of numbers).


MAX_DEPTH = 64
"""Maximum nesting of lists and objects."""
DEEP = f"nested more than {MAX_DEPTH} deep"


@dataclass(frozen=True)
class Parsed:
    """A parsed value, or the error."""

    value: Any = None
    fault: str = ""
    end: int = 0
    """End of the value in the text; 0 if unknown."""
    offset: int = 0
    """Position of the error in the text."""


class Parser:
    """Parses consecutive JSON values of a text.

    A parser contains a reference cycle: set another `text` instead of making a parser for every
    line of a file.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._refused = ""
        self._decoder = json.JSONDecoder(
            parse_constant=self._constant, parse_float=self._float, parse_int=self._int
        )

    def value(self, start: int) -> Parsed:
        """Parse the value that begins at `start`."""
        self._refused = ""
        try:
            value, end = self._decoder.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            return Parsed(fault=error.msg, offset=error.pos)
        except RecursionError:
            return Parsed(fault=DEEP, offset=start)
        deep = self.text.count("[", start, end) + self.text.count("{", start, end) > MAX_DEPTH
        fault = self._refused or (DEEP if deep and _is_deep(value) else "")
        return Parsed(None if fault else value, fault, end, start)

    def skip(self, start: int) -> int:
        """The next position that is not white space."""
        text, size = self.text, len(self.text)
        while start < size and text[start] in " \t\n\r":
            start += 1
        return start

    def line_column(self, position: int) -> str:
        """Line and column of a position, both from 1, e.g. ``line 3 column 9``."""
        line = 1 + self.text.count("\n", 0, position)
        column = position - self.text.rfind("\n", 0, position)
        return f"line {line} column {column}"

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
    """One parser per thread."""

    def __init__(self) -> None:
        self.parser = Parser("")


_OWN = _Own()


def parse(text: str) -> Parsed:
    """Parse a text that holds exactly one value."""
    parser = _OWN.parser
    parser.text = text
    parsed = parser.value(parser.skip(0))
    rest = parser.skip(parsed.end) if parsed.end else len(text)
    return parsed if rest == len(text) else Parsed(fault="Extra data", offset=rest, end=parsed.end)


def _is_deep(value: Any) -> bool:
    """Whether anything in it is nested more than MAX_DEPTH deep."""
    waiting: list[tuple[int, Any]] = [(1, value)]
    while waiting:
        depth, node = waiting.pop()
        if isinstance(node, (dict, list)):
            if depth > MAX_DEPTH:
                return True
            parts = node.values() if isinstance(node, dict) else node
            waiting += [(depth + 1, part) for part in parts]
    return False
