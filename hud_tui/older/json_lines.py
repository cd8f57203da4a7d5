"""Where the keys of a JSON object stand, so that an error can name the line."""

import json
import re
from collections.abc import Iterator

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]|\n')
"""What matters of JSON here: texts, brackets, commas and lines; the rest is passed over."""
Path = tuple[str, ...]


def key_lines(text: str, depth: int = 2) -> tuple[dict[Path, int], list[Path]]:
    """
    Args:
        text: JSON, which has been parsed without a fault.
        depth: How deep the keys are that are looked for.

    Returns:
        The line of each key of an object within objects, from 1; and the keys that stand
        twice in one object.
    """
    lines: dict[Path, int] = {}
    twice: list[Path] = []
    for path, line in _keys(text, depth):
        if path in lines:
            twice.append(path)
        lines[path] = line
    return lines, twice


def _keys(text: str, depth: int) -> Iterator[tuple[Path, int]]:
    line = 1
    open_: list[str | None] = []
    """The key that is being given a value, of each object that is open; None for a list."""
    wants_key = False
    for token in TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "{[":
            open_.append("" if token == "{" else None)
            wants_key = token == "{"
        elif token in "}]":
            open_.pop()
            wants_key = False
        elif token == ",":
            wants_key = open_[-1] is not None
        elif wants_key:
            wants_key = False
            open_[-1] = json.loads(token)
            path = tuple(key for key in open_ if key is not None)
            if len(path) == len(open_) <= depth:
                yield path, line
