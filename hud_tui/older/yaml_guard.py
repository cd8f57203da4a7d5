"""A parser of YAML that counts before anything is built, and refuses what could do harm.

Aliases can make a small file enormous ("billion laughs"), tags can name code to run, and
nesting can exhaust the stack.

Source: YAML 1.2.2, sections 3.2.2.2 (anchors and aliases) and 10.3 (the core schema).
"""

from functools import cache
from typing import Any

from hud_tui.rl.text import one_line

MAX_DEPTH = 50
MAX_NODES = 20_000
"""Values and keys, each alias counted as large as what it stands for: a second of parsing.
A lock file of 300 tools has some 15 000."""
MAX_MERGES = 200
"""Keys ``<<``: the time of each grows with all before it."""
PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


class Refused(Exception):
    """Why a document is refused, and the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@cache
def guarded_parser() -> type:
    """ruamel's parser, which counts before anything is built."""
    from ruamel.yaml.events import (
        AliasEvent,
        CollectionEndEvent,
        CollectionStartEvent,
        NodeEvent,
        ScalarEvent,
    )
    from ruamel.yaml.parser import RoundTripParser

    class Guarded(RoundTripParser):  # type: ignore[misc, unused-ignore]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.budget = _Budget()

        def get_event(self) -> Any:
            event = super().get_event()
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, AliasEvent):
                self.budget.alias(line, event.anchor)
            elif isinstance(event, CollectionStartEvent):
                self.budget.tag(line, event.tag, ("seq", "map"))
                self.budget.begin(line, event.anchor)
            elif isinstance(event, CollectionEndEvent):
                self.budget.end(line)
            elif isinstance(event, ScalarEvent):
                self.budget.tag(line, event.tag, ())
                self.budget.scalar(line, event.anchor)
                if event.value == "<<":
                    self.budget.merge(line)
            elif isinstance(event, NodeEvent):
                raise Refused(line, "a node of an unknown kind")
            return event

    return Guarded


@cache
def exact_constructor() -> type:
    """ruamel's constructor with plain floats: its own, which keep how they were written, lose
    their last digit when they are written again."""
    from ruamel.yaml.constructor import RoundTripConstructor, SafeConstructor

    class Exact(RoundTripConstructor):  # type: ignore[misc, unused-ignore]
        pass

    Exact.add_constructor("tag:yaml.org,2002:float", SafeConstructor.construct_yaml_float)
    return Exact


class _Budget:
    """How large the document becomes, aliases written out."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        """Of what each anchor stands for."""
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
            raise Refused(line, f"the alias *{one_line(anchor, 40)} stands for nothing before it")
        self._add(line, None, size)

    def tag(self, line: int, tag: object, also: tuple[str, ...]) -> None:
        known = PLAIN | {f"tag:yaml.org,2002:{kind}" for kind in also}
        if tag not in (None, "!", *known):
            raise Refused(line, f"the tag {one_line(tag, 80)} is not read: it could run code")

    def _add(self, line: int, anchor: str | None, size: int) -> None:
        if anchor:
            self.sizes[anchor] = size
        if self.open:
            outer, so_far = self.open[-1]
            self.open[-1] = (outer, size := so_far + size)
        if size > MAX_NODES:
            raise Refused(line, f"more than {MAX_NODES} values, aliases written out")
