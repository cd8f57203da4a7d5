"""Palette: go to anything by its name: a view, an action, a model, checkpoint, run, job or task.

What there is to go to comes in sections, one for each kind, which may still grow while the palette
is open. A search gives way to keys every few milliseconds, however many names there are.
"""

from __future__ import annotations

import re
from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import ClassVar, Protocol

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import Screen
from textual.widgets import Input

from hud_tui.rl.text import one_line
from hud_tui.tui.keys import doable, shows_view
from hud_tui.tui.screens.dialogs import Over
from hud_tui.tui.theme import TITLES
from hud_tui.tui.widgets.row_list import Column, Row, RowList

BLOCK = 2048
"""Names that are searched in one go: about a millisecond."""
LONGEST = 200
"""Characters of a name that are searched and shown."""
PER_SECTION, MOST = 30, 100
"""Results of one kind, and of all together."""
MOST_LETTERS = 200
"""Names of a block that are compared by how close together the letters are."""
SHORTEST_ID = 4
"""Characters from which the beginning of an id is looked for."""
SLICE_S = 0.004
"""Longest search between two looks for keys."""
BEGINS = " -_/.:,("
"""What a word begins after."""


@dataclass(frozen=True)
class Place:
    """Somewhere to go to."""

    name: str
    go: Callable[[], Awaitable[object]]
    note: str = ""
    """Shown dim beside it: the key of an action, the state of a run."""


@dataclass(frozen=True)
class Block:
    """Some names of a section, folded; a line break before and after each."""

    first: int
    """The position of its first name in the section."""
    names: str
    ids: str


class Section:
    """All places of one kind, by name and id; those added first are shown first."""

    def __init__(self, kind: str, place: Callable[[int], Place], within: str = "") -> None:
        """
        Args:
            kind: Shown dim at the right.
            place: Makes the place of a position, once it is to be shown.
            within: What the names belong to, e.g. another model: only a search that names it too
                finds them.
        """
        self.kind, self.place = kind, place
        self.within = within.casefold()
        self.blocks: list[Block] = []
        self.size = 0

    def add(self, names: Sequence[str], ids: Sequence[str] = ()) -> None:
        """Add places after those that are there; `ids` has one for each name, or none."""
        for at in range(0, len(names), BLOCK):
            part = slice(at, at + BLOCK)
            self.blocks.append(Block(self.size + at, _lines(names[part]), _lines(ids[part])))
        self.size += len(names)

    def wanted(self, words: Sequence[str]) -> str:
        """What is looked for in the names: the words without those that say where they belong;
        empty where nothing of this section is meant."""
        rest = [word for word in words if not self.within or word not in self.within]
        return " ".join(rest) if len(rest) < len(words) or not self.within else ""


def _lines(names: Iterable[str]) -> str:
    """Texts of a server, folded, one a line."""
    lines = (" ".join(name[:LONGEST].split()) for name in names)
    return "\n".join(("", *lines, "")).casefold()


def search(sections: Sequence[Section], text: str) -> Iterator[tuple[Section, int] | None]:
    """Find names, the best match first; None between two blocks, where a key may be let in.

    Whole names come first, then their beginnings, beginnings of words, parts of words, beginnings
    of ids, names with all words in any order, and names with the letters in this order.
    """
    words = text.casefold().split()
    found: dict[Section, set[int]] = {section: set() for section in sections}
    for way in WAYS:
        for section, seen in found.items():
            phrase = section.wanted(words)
            for block in section.blocks if phrase else ():
                if len(seen) >= PER_SECTION:
                    break
                for line in islice(way(block, phrase), PER_SECTION):
                    if block.first + line not in seen and len(seen) < PER_SECTION:
                        seen.add(block.first + line)
                        yield section, block.first + line
                yield None


def _places(text: str, part: str) -> Iterator[int]:
    """Numbers of the lines that hold a part, each once; it may begin with the line break."""
    at, line, counted = text.find(part), -1, 0
    while at >= 0:
        at += part[0] == "\n"
        line += text.count("\n", counted, at)
        yield line
        counted = at
        at = text.find(part, text.find("\n", at))


def _whole(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, f"\n{phrase}\n")


def _beginning(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, f"\n{phrase}")


def _word(block: Block, phrase: str) -> Iterator[int]:
    for before in BEGINS:
        yield from _places(block.names, before + phrase)


def _part(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.names, phrase)


def _id(block: Block, phrase: str) -> Iterator[int]:
    return _places(block.ids, f"\n{phrase}") if len(phrase) >= SHORTEST_ID else iter(())


def _all_words(block: Block, phrase: str) -> Iterator[int]:
    """The rarest word is looked for, then the others beside it."""
    words = phrase.split()
    if len(words) > 1 and all(word in block.names for word in words):
        lines = block.names.split("\n")
        rarest = min(words, key=block.names.count)
        for line in _places(block.names, rarest):
            if all(word in lines[line + 1] for word in words):
                yield line


def _letters(block: Block, phrase: str) -> Iterator[int]:
    """The closest together first."""
    first, *others = list(phrase.replace(" ", ""))
    steps = (f"[^\n{re.escape(one)}]*{re.escape(one)}" for one in others)
    pattern = re.compile(re.escape(first) + "".join(steps))
    spans: dict[int, int] = {}
    line, counted = -1, 0
    for found in islice(pattern.finditer(block.names), MOST_LETTERS):
        line += block.names.count("\n", counted, found.start())
        counted = found.start()
        spans.setdefault(line, found.end() - found.start())
    return iter(sorted(spans, key=spans.__getitem__))


WAYS = (_whole, _beginning, _word, _part, _id, _all_words, _letters)


class Atlas(Protocol):
    """What there is to go to, beside the views and the actions."""

    def sections(self) -> AsyncIterator[Section]:
        """Sections; one that has grown is given again."""

    async def within(self, words: Sequence[str]) -> Section | None:
        """The checkpoints of another model that some words name; None where they name none."""


class Palette(Over[Place | None]):
    """Closes with the place that was chosen."""

    LEAVE: ClassVar[str] = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("up", "move(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
    ]

    def __init__(self, below: Screen[object], atlas: Atlas | None) -> None:
        """
        Args:
            below: The screen whose actions are listed.
            atlas: What else there is to go to; None before there is a service.
        """
        super().__init__()
        self._actions = list(action_sections(below))
        self._atlas = atlas
        self._more: dict[tuple[str, str], Section] = {}
        """Sections by kind and `within`."""
        self._places: dict[str, Place] = {}
        """The listed places, by their rows' keys."""
        self._listed_for: str | None = None
        """The text of the search that is listed whole."""
        self.field = Input(placeholder=HINT, id="palette-search", compact=True)
        self.list = RowList(COLUMNS, id="palette-list", least=20)
        self.list.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(id="palette") as box:
            box.border_title = "go to"
            box.border_subtitle = "↑ ↓ choose · enter go · esc back"
            yield self.field
            yield self.list

    def on_mount(self) -> None:
        self._find("")
        if self._atlas is not None:
            self._gather(self._atlas)

    @property
    def text(self) -> str:
        return self.field.value

    @property
    def sections(self) -> list[Section]:
        return [*self._actions, *self._more.values()]

    @work(group="gather")
    async def _gather(self, atlas: Atlas) -> None:
        """Add the sections as they come, and search again."""
        async for section in atlas.sections():
            self._more[section.kind, section.within] = section
            if self.text and len(self._places) < MOST:
                self._find(self.text)

    @work(exclusive=True, group="within")
    async def _look_within(self, atlas: Atlas, text: str) -> None:
        """Add the checkpoints of another model that the text names."""
        section = await atlas.within(text.casefold().split())
        if section is not None and section not in self._more.values():
            self._more[section.kind, section.within] = section
            self._find(self.text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._find(event.value)
        if self._atlas is not None and len(event.value.split()) > 1:
            self._look_within(self._atlas, event.value)

    @work(exclusive=True, group="find")
    async def _find(self, text: str) -> None:
        """List what matches."""
        found: list[tuple[Section, int]] = []
        began = monotonic()
        for one in self._matches(text):
            if one is not None:
                found.append(one)
            if len(found) == MOST:
                break
            if monotonic() - began > SLICE_S:
                await sleep(0)
                began = monotonic()
        self._show(found)
        if self._listed_for != text:
            self.list.action_first()
        self._listed_for = text

    def _matches(self, text: str) -> Iterator[tuple[Section, int] | None]:
        """The search's results; for an empty text, the views and actions."""
        if text.strip():
            return search(self.sections, text)
        return ((section, at) for section in self._actions for at in range(section.size))

    def _show(self, found: Sequence[tuple[Section, int]]) -> None:
        self._places = {f"{one.kind} {at} {one.within}": one.place(at) for one, at in found}
        kinds = (one.kind for one, _ in found)
        self.list.show([_row(*one) for one in zip(self._places.items(), kinds, strict=True)])

    def action_move(self, rows: int) -> None:
        self.list.action_move(rows)

    def action_page(self, pages: int) -> None:
        self.list.action_page(pages)

    def on_input_submitted(self) -> None:
        if self._listed_for == self.text:
            self._choose()
        else:  # what is listed is of fewer letters
            best = next((one for one in self._matches(self.text) if one is not None), None)
            self._show([] if best is None else [best])
            self._choose()

    async def on_click(self, event: Click) -> None:
        if event.widget is self.list and event.y:
            self._choose()
        else:
            await super().on_click(event)

    def _choose(self) -> None:
        place = self._places.get(self.list.key or "")
        if place is not None:
            self.dismiss(place)


HINT = "a view, action, model, checkpoint, run, job or task"
COLUMNS = (Column("name"), Column("", 20, right=True, rank=1), Column("kind", 13, right=True))


def _row(place: tuple[str, Place], kind: str) -> Row:
    key, one = place
    dim = (Content.styled(text, "$text-muted") for text in (one_line(one.note, 40), kind))
    return Row(key, (Content(one_line(one.name, LONGEST)), *dim))


def action_sections(screen: Screen[object]) -> Iterator[Section]:
    """The views, what can be done on a screen now, and the themes."""
    able = [one for one in doable(screen) if one.action.name not in HIDDEN]
    app = screen.app
    for kind, wanted in (("view", True), ("action", False)):
        of_kind = [one for one in able if shows_view(one.action) is wanted]
        yield _section(
            kind,
            [
                Place(
                    f"{one.action.label.capitalize()}: {one.action.help}",
                    partial(app.run_action, one.action.name, one.where),
                    one.action.all_shown,
                )
                for one in of_kind
            ],
        )
    wear = {name: partial(app.run_action, f"app.wear({name!r})") for name in TITLES}
    yield _section("theme", [Place(f"Theme: {TITLES[name]}", wear[name]) for name in TITLES])


HIDDEN = frozenset({"command_palette", "interrupt"})
"""Actions that are not listed: one is open, the other is quitting by another name."""


def _section(kind: str, places: Sequence[Place]) -> Section:
    section = Section(kind, places.__getitem__)
    section.add([place.name for place in places])
    return section
