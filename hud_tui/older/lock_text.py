"""A lock file's text with another ``primary_dataset``; nothing else changes, not even by a space.

Only that block is written anew, by ruamel.yaml, which keeps the comments within it. A file
that is one flow mapping (JSON) is written anew as a whole.
"""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.older.yaml_text import Document, read_yaml, round_trip

KEY = "primary_dataset"
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as YAML 1.2 counts them (5.4): other breaks of Unicode's are text."""


def with_dataset(name: str, text: str, entry: Mapping[str, str | int]) -> str:
    """
    Args:
        name: The file's, for messages.
        text: The lock file's.
        entry: Its new ``primary_dataset``; keys that the block has besides stay.

    Raises:
        HudUsage: The text is not YAML, or of a kind that cannot be written again.
    """
    from ruamel.yaml.error import YAMLError

    document = read_yaml(name, text.encode())
    try:
        return _changed(document, name, text, entry)
    except (YAMLError, NotImplementedError) as error:  # it reads what it cannot write
        what = f"{document.name}: {KEY} cannot be changed in what stands there"
        raise HudUsage(what, f"write it plainly, or put {entry['name']} there yourself") from error


def _changed(document: Document, name: str, text: str, entry: Mapping[str, str | int]) -> str:
    wanted = {**document.value, KEY: {**_block(document), **entry}}
    spliced = _spliced(document, entry)
    if spliced is not None and _same(name, spliced, wanted):
        return spliced
    root = document.source
    root[KEY] = {**_block(document), **entry}
    return _dump(root)


def _block(document: Document) -> dict[str, Any]:
    """What stands there now; empty where it is a bare name."""
    block = document.value.get(KEY)
    return block if isinstance(block, dict) else {}


def _spliced(document: Document, entry: Mapping[str, str | int]) -> str | None:
    """The text with the block replaced or added; None where the root is a flow mapping."""
    root, text = document.source, document.text
    if root.fa.flow_style():
        return None
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = LINE.findall(text)
    if KEY not in root:
        return _appended(lines, newline, {KEY: dict(entry)})
    first = root.lc.key(KEY)[0]
    last = _end(root, first, lines)
    block = round_trip().load("".join(lines[first:last]).replace("\r\n", "\n"))
    held: Any = block[KEY]
    if isinstance(held, dict):
        for key, value in entry.items():
            held[key] = value
    else:
        block[KEY] = dict(entry)
    return "".join([*lines[:first], _dump(block, newline), *lines[last:]])


def _appended(lines: list[str], newline: str, block: dict[str, Any]) -> str:
    """At the end, or before the line that ends the document."""
    end = next((i for i, line in enumerate(lines) if line.rstrip() == "..."), len(lines))
    before = "".join(lines[:end])
    if before and not before.endswith("\n"):
        before += newline
    return before + _dump(block, newline) + "".join(lines[end:])


def _end(root: Any, first: int, lines: list[str]) -> int:
    """The line after the block: comments and blank lines at its end are not part of it."""
    starts = [root.lc.key(key)[0] for key in root if key in root.lc.data]
    last = min((line for line in starts if line > first), default=len(lines))
    while last > first + 1 and _is_between(lines[last - 1]):
        last -= 1
    return last


def _is_between(line: str) -> bool:
    stripped = line.rstrip()
    return not stripped or stripped.startswith("#") or stripped == "..."


def _same(name: str, text: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a text says this. An anchor in the block, say, may have gone with it."""
    try:
        return bool(read_yaml(name, text.encode()).value == wanted)
    except HudUsage:
        return False


def _dump(root: Any, newline: str = "\n") -> str:
    out = StringIO()
    round_trip().dump(root, out)
    return out.getvalue().replace("\n", newline)
