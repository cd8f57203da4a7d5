"""A YAML reader with limits: it checks sizes while parsing and rejects what could do harm.

Aliases can make a small file enormous ("billion laughs"), tags can name code to run, and nesting
can exhaust the stack.

Source: YAML 1.2.2, sections 3.2.2.2 (anchors and aliases) and 10.3 (the core schema).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from math import isfinite
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.text import has_surrogate, one_line

MAX_DEPTH = 50
MAX_NODES = 20_000
"""Maximum number of values and keys, with aliases expanded: a second of parsing. The lock file of
an environment with 300 tools has about 15 000."""
MAX_MERGES = 200
"""Maximum number of ``<<`` keys, because the time of each grows with those before it."""
PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


class Refused(Exception):
    """Why a document is rejected, and the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def library() -> Any:
    """`ruamel.yaml`; importing it takes 80 ms, and only legacy files need it."""
    import ruamel.yaml

    return ruamel.yaml


@cache
def guarded_parser() -> type:
    """ruamel's parser, with limits that are checked before anything is built."""
    events = library().events

    class Guarded(library().parser.RoundTripParser):  # type: ignore[misc]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.budget = _Budget()

        def get_event(self) -> Any:
            event = super().get_event()
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, events.AliasEvent):
                self.budget.alias(line, event.anchor)
            elif isinstance(event, events.CollectionStartEvent):
                self.budget.tag(line, event.tag, ("seq", "map"))
                self.budget.begin(line, event.anchor)
            elif isinstance(event, events.CollectionEndEvent):
                self.budget.end(line)
            elif isinstance(event, events.ScalarEvent):
                self.budget.tag(line, event.tag, ())
                self.budget.scalar(line, event.anchor)
                if event.value == "<<":
                    self.budget.merge(line)
            elif isinstance(event, events.NodeEvent):
                raise Refused(line, "a node of an unknown kind")
            return event

    return Guarded


@cache
def exact_constructor() -> type:
    """ruamel's constructor with plain floats: its own, which preserve the notation, lose their last
    digit when they are written again."""

    class Exact(library().constructor.RoundTripConstructor):  # type: ignore[misc]
        pass

    plain = library().constructor.SafeConstructor.construct_yaml_float
    Exact.add_constructor("tag:yaml.org,2002:float", plain)
    return Exact


class _Budget:
    """Size of the document with aliases expanded."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        """Size of what each anchor stands for."""
        self.open: list[tuple[str | None, int]] = []
        """Anchor and size so far of each collection that is open."""
        self.merges = 0

    def begin(self, line: int, anchor: str | None) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise Refused(line, f"nested more than {MAX_DEPTH} deep")
        self.open.append((anchor, 1))

    def end(self, line: int) -> None:
        anchor, size = self.open.pop()
        self._add(line, anchor, size)

    def scalar(self, line: int, anchor: str | None) -> None:
        self._add(line, anchor, 1)

    def merge(self, line: int) -> None:
        self.merges += 1
        if self.merges > MAX_MERGES:
            raise Refused(line, f"more than {MAX_MERGES} merges (<<)")

    def alias(self, line: int, anchor: str) -> None:
        size = self.sizes.get(anchor)
        if size is None:
            raise Refused(line, f"the alias *{one_line(anchor, 40)} is not defined before it")
        self._add(line, None, size)

    def tag(self, line: int, tag: object, also: tuple[str, ...]) -> None:
        tags = PLAIN | {f"tag:yaml.org,2002:{kind}" for kind in also}
        if tag not in (None, "!", *tags):
            raise Refused(line, f"the tag {one_line(tag, 80)} is not read: it could run code")

    def _add(self, line: int, anchor: str | None, size: int) -> None:
        if anchor:
            self.sizes[anchor] = size
        if self.open:
            outer, so_far = self.open[-1]
            self.open[-1] = (outer, size := so_far + size)
        if size > MAX_NODES:
            raise Refused(line, f"more than {MAX_NODES} values with aliases expanded")


# Reading untrusted YAML. Only plain values are constructed; tags are rejected, and so is a
# document that is too large with its aliases expanded.


MAX_BYTES = 1 << 19
"""Maximum bytes of a file; real ones have about 20 kB. The parser's time grows with the square of a
comment's length: a file of this size that is a single comment takes a second."""
KeyPath = tuple[str | int, ...]
"""Keys and indices from the root."""


@dataclass(frozen=True)
class Document:
    name: str
    """Name of the file, for messages."""
    text: str
    value: Any
    """Dicts with text keys, lists, texts, finite numbers, booleans and None."""
    source: Any
    """The same content with ruamel's positions and comments."""

    def where(self, path: KeyPath = ()) -> str:
        """Place of a value, e.g. ``hud.lock.yaml line 3``."""
        return f"{self.name} line {self.line(path)}"

    def line(self, path: KeyPath = ()) -> int:
        """Line of a value, from 1; of the nearest part that has a line of its own."""
        node: Any = self.source
        line = 0
        for step in path:
            try:
                held = node.lc.item(step) if isinstance(step, int) else node.lc.key(step)
                line, node = held[0], node[step]
            except (AttributeError, KeyError, IndexError, TypeError):
                break
        return line + 1

    def wrong(self, path: KeyPath, message: str, fix: str = "") -> HudUsage:
        return HudUsage(f"{self.where(path)}: field {field_name(path)}: {message}", fix)


def read_yaml(name: str, body: bytes) -> Document:
    """Read one document. `body`: at most one byte more than `MAX_BYTES`. Raises HudUsage: too
    large, too deep, not UTF-8, not YAML, or with tags or values that JSON does not have; names
    file, line and the fix."""
    name = one_line(name)
    if len(body) > MAX_BYTES:
        raise HudUsage(f"{name}: larger than {MAX_BYTES >> 10} kB", "it is not such a file")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HudUsage(f"{name}: byte {error.start}: not UTF-8", "save it as UTF-8") from error
    source = _load(name, text)
    document = Document(name, text, None, source)
    return Document(name, text, _plain(document, source, ()), source)


def field_name(path: KeyPath) -> str:
    """A path as text, e.g. ``tools[0].name``."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{one_line(step, 60)}" for step in path]
    return "".join(parts).removeprefix(".") or "(the whole)"


def round_trip() -> Any:
    """A ruamel.yaml that keeps comments and order, and rejects what `read_yaml` rejects."""
    yaml = library().YAML(typ="rt", pure=True)
    yaml.Parser = guarded_parser()
    yaml.Constructor = exact_constructor()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    return yaml


def writable(value: Any) -> Any:
    r"""A value in the style that reads back unchanged: text with line breaks other than \n, which
    YAML would fold, in double quotes; other text of several lines as a literal block."""
    if isinstance(value, dict):
        return {writable(key): writable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [writable(part) for part in value]
    if not isinstance(value, str):
        return value
    if not value.replace("\n", "").isprintable():
        return library().scalarstring.DoubleQuotedScalarString(value)
    lines = value.split("\n")
    plain = all(line == line.rstrip() for line in lines) and lines[0] == lines[0].lstrip()
    if len(lines) > 1 and lines[0] and plain:
        return library().scalarstring.LiteralScalarString(value)
    return value


def _load(name: str, text: str) -> Any:
    errors = library().error
    try:
        return round_trip().load(text)
    except Refused as error:
        hint = "write it out plainly and try again"
        raise HudUsage(f"{name} line {error.line}: {error}", hint) from None
    except errors.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name} line {mark.line + 1} column {mark.column + 1}" if mark else name
        problem = one_line(error.problem or error.context or "cannot be read")
        if isinstance(error, library().constructor.DuplicateKeyError):
            problem = "duplicate key"  # ruamel's message has the values, which may be secret
        raise HudUsage(f"{where}: not YAML: {problem}", "fix that line and try again") from None
    except errors.YAMLError as error:
        message = f"{name}: not YAML: {one_line(error)}"
        raise HudUsage(message, "fix it and try again") from None
    except NotImplementedError as error:  # ruamel.yaml raises it for two comments at one place
        message = f"{name}: unsupported comment or blank line within a key"
        raise HudUsage(message, "write each key on a line of its own") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        message = f"{name}: a number or date that cannot be read ({type(error).__name__})"
        raise HudUsage(message, "put that value in quotes") from None


def _plain(document: Document, value: Any, path: KeyPath) -> Any:
    """The value as Python's own types, restricted to those of JSON."""
    match value:
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise document.wrong(path, "a key is not text", "put that key in quotes")
            return {str(key): _plain(document, value[key], (*path, str(key))) for key in value}
        case str():
            if has_surrogate(value):
                raise document.wrong(path, "lone surrogate: not valid text", "fix it")
            return str(value)
        case bytes():
            raise document.wrong(path, "expected text or a number, found bytes")
        case Sequence():
            return [_plain(document, part, (*path, index)) for index, part in enumerate(value)]
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            if not isfinite(value):
                raise document.wrong(path, "expected a finite number", "give a number")
            return float(value)
        case date():
            return value.isoformat()
    raise document.wrong(path, f"expected text or a number, found {type(value).__name__}")
