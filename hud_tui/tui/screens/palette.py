"""Palette: go to anything by its name: a view, an action, a model, checkpoint, run, job, taskset or
task."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from hud_tui.rl.text import one_line
from hud_tui.tui.name_search import LONGEST, MOST, Place, Section, search
from hud_tui.tui.places import Places, action_sections
from hud_tui.tui.screens.dialogs import SearchList
from hud_tui.tui.widgets.table import DIM, Column, RowList, item_row

SLICE_S = 0.004
"""Longest search without yielding to keys, seconds."""


class Palette(SearchList[Place | None]):
    """A search over places; closes with the chosen one."""

    def __init__(self, below: Screen[object], places: Places | None) -> None:
        """`below` has the listed actions; `places` is None before there is a service."""
        field = Input(placeholder=HINT, id="palette-search", compact=True)
        super().__init__(field, RowList(COLUMNS, id="palette-list", least=20))
        self._actions = list(action_sections(below))
        self._elsewhere = [] if places is None else list(places.actions_elsewhere(below))
        self._service = places
        self._more: dict[tuple[str, str], Section] = {}
        """Sections by kind and `within`."""
        self._places: dict[str, Place] = {}
        """The listed places, by their rows' keys."""
        self._found: list[tuple[Section, int]] = []
        self._listed_for: str | None = None
        """The text whose search is complete."""
        self._gathering = False
        self.nothing = Static("", id="palette-nothing", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="palette") as box:
            box.border_title = "go to"
            box.border_subtitle = "↑ ↓ choose · enter go · esc back"
            yield self.field
            yield self.nothing
            yield self.list

    def on_mount(self) -> None:
        self._find("")
        if self._service is not None:
            self._gather(self._service)

    @property
    def sections(self) -> list[Section]:
        return [*self._actions, *self._more.values(), *self._elsewhere]

    @work(group="gather")
    async def _gather(self, places: Places) -> None:
        """Add sections as they come, and search again."""
        self._gathering = True
        async for section in places.sections():
            self._more[section.kind, section.within] = section
            if self.field.value and len(self._places) < MOST:
                self._find(self.field.value)
        self._gathering = False
        self._show_no_match()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._find(event.value)

    @work(exclusive=True, group="find")
    async def _find(self, text: str) -> None:
        matches: list[tuple[Section, int]] = []
        began = monotonic()
        for match in self._matches(text):
            if match is not None:
                matches.append(match)
            if len(matches) == MOST:
                break
            if monotonic() - began > SLICE_S:
                await sleep(0)
                began = monotonic()
        self._show(matches)
        if self._listed_for != text:
            self.list.action_first()
        self._listed_for = text
        self._show_no_match()

    def _matches(self, text: str) -> Iterator[tuple[Section, int] | None]:
        if text.strip():
            return search(self.sections, text)
        return ((section, n) for section in self._actions for n in range(section.size))

    def _show(self, matches: Sequence[tuple[Section, int]]) -> None:
        self._found = list(matches)
        self._places = {
            f"{section.kind} {n} {section.within}": section.place(n) for section, n in matches
        }
        self._draw()

    def _draw(self) -> None:
        room = self.list.width - KIND_CELLS - 4
        lines = (PlaceLine(place, kind, room) for place, kind in self.listed)
        rows = zip(self._places, lines, strict=True)
        self.list.show([item_row(COLUMNS, key, line) for key, line in rows])

    @property
    def listed(self) -> list[tuple[Place, str]]:
        kinds = (section.kind for section, _ in self._found)
        return list(zip(self._places.values(), kinds, strict=True))

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _show_no_match(self) -> None:
        """Say that nothing matches, and what is searched."""
        text = one_line(self.field.value.strip(), 60)
        message = f"nothing matches “{text}”" if text and not self._places else ""
        if message and self._gathering:
            message = f"{message} yet: names are being read …"
        elif message:
            message = f"{message}\n{SEARCHED if self._service is not None else UNCONNECTED}"
        self.nothing.display, self.list.display = bool(message), not message
        self.nothing.update(Content.styled(message, "$text-muted"))

    def on_input_submitted(self) -> None:
        if self._listed_for == self.field.value:
            self.choose()
        else:  # the list is still of a shorter text
            best = next((m for m in self._matches(self.field.value) if m is not None), None)
            self._show([] if best is None else [best])
            self.choose()

    def choose(self) -> None:
        place = self._places.get(self.list.key or "")
        if place is not None:
            self.dismiss(place)


HINT = "a view, action, model, checkpoint, run, job, taskset or task"
SEARCHED = (
    "Names and ids are searched: of views, actions of all views, themes, models, runs, jobs, "
    "tasksets, tasks and this model's checkpoints. A kind lists all of it (runs), and searches in "
    "it (runs mixed)."
)
UNCONNECTED = "Views, models, runs and tasks are searched once there is a service."
KIND_CELLS = 13
SHORT_NOTE, LEAST_NOTE = 8, 10
"""A note of at most so many cells, as a key is, is always whole; a longer one gives way to the
name, and is left out, but for an id, where less than so many cells are left."""


@dataclass(frozen=True)
class PlaceLine:
    place: Place
    kind: str
    room: int
    """Cells for the name, and the note at their right end."""


def _place_name(line: PlaceLine) -> Content:
    place, room = line.place, line.room
    name, note = Content(one_line(place.name, LONGEST)), one_line(place.note, 40)
    name = name.stylize("$text-muted") if place.is_dim else name
    left = room - name.cell_length - 2
    if len(note) > max(left, SHORT_NOTE):
        note = one_line(note, left - 1) if left >= LEAST_NOTE else place.id
    if not note:
        return name
    name = name.truncate(max(1, room - len(note) - 2), ellipsis=True)
    gap = " " * max(2, room - name.cell_length - len(note))
    return Content.assemble(name, gap, (note, "$text-muted"))


COLUMNS: Sequence[Column[PlaceLine]] = (
    Column("name", 0, _place_name),
    Column("kind", KIND_CELLS, lambda line: line.kind, DIM, right=True),
)
