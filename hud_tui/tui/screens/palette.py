"""Palette: go to anything by its name: a view, an action, a model, checkpoint, run, job, taskset or
task.

Places come in sections, one per kind, which may grow while the palette is open. A search yields to
keys every few milliseconds, however many names there are.
"""

from __future__ import annotations

import re
from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import Screen
from textual.widgets import Input, Static

from hud_tui.errors import HudError
from hud_tui.keys import VIEWS, WRITES, Action, of_view
from hud_tui.rl.checkpoint_tree import Kind, Tree, kind, label
from hud_tui.rl.evaluation import size
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import one_line
from hud_tui.rl.work import Work
from hud_tui.tui.keys import doable, shows_view
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.screens.base import HudScreen, scored
from hud_tui.tui.screens.dialogs import LIST_KEYS, Over
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.session import RunSession
from hud_tui.tui.theme import TITLES
from hud_tui.tui.widgets.row_list import Column, Row, RowList
from hud_tui.wire import Checkpoint, Evaluation, Job, Model, Taskset

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
SLICE_S = 0.004
"""Longest search without yielding to keys, seconds."""
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

    def __init__(
        self, kind: str, place: Callable[[int], Place], within: str = "", required: bool = True
    ) -> None:
        """
        Args:
            kind: Shown dim at the right.
            place: Makes the place at an index when it is shown.
            within: Owner of the places, e.g. a model; a search may name it as well.
            required: Whether only a search that names the owner finds them.
        """
        self.kind, self.place = kind, place
        self.within, self._required = within.casefold(), required
        self.blocks: list[Block] = []
        self.size = 0

    def add(
        self, names: Sequence[str], ids: Sequence[str] = (), descriptions: Sequence[str] = ()
    ) -> Section:
        """Append places; `ids` and `descriptions` have one for each name, or are empty. Returns the
        section."""
        for at in range(0, len(names), BLOCK):
            part = slice(at, at + BLOCK)
            lines = map(_lines, (names[part], ids[part], descriptions[part]))
            self.blocks.append(Block(self.size + at, *lines))
        self.size += len(names)
        return self

    def phrase_of(self, words: Sequence[str]) -> str:
        """The text to search for: the words without those that name the owner and, before others,
        the kind; empty if the words do not name the owner and have to."""
        rest = [word for word in words if not self.within or word not in self.within]
        if self.within and self._required and len(rest) == len(words):
            return ""
        for named in kind_names(self.kind):
            if len(rest) > len(named.split()) and " ".join(rest).startswith(f"{named} "):
                rest = rest[len(named.split()) :]
        return " ".join(rest or ([] if self.within and self._required else words))

    def is_asked_for(self, phrase: str) -> bool:
        """Whether a text is the name of its kind, or the beginning of it."""
        enough = len(phrase) >= SHORTEST_KIND
        return enough and any(named.startswith(phrase) for named in kind_names(self.kind))


def kind_names(kind: str) -> tuple[str, ...]:
    """What a search may call the places of a kind, longest first, e.g. ``runs`` and ``run``."""
    called = (kind, *ALSO_CALLED.get(kind, ()))
    return (*(f"{one}s" for one in called), *called)


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
    found: dict[Section, set[int]] = {section: set() for section in sections}
    for way in WAYS:
        for section, seen in found.items():
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
    at, line, counted = text.find(part), -1, 0
    while at >= 0:
        at += part[0] == "\n"
        line += text.count("\n", counted, at)
        yield line
        counted = at
        at = text.find(part, text.find("\n", at))


def _matches(pattern: str, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """The first match in each line, with the line's number.

    A pattern should begin with plain characters and look back from there: those are found at the
    speed of `str.find`; one that begins with a choice is tried at every character.
    """
    line, counted, last = -1, 0, -2
    for found in re.finditer(pattern, text):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        if line != last:
            yield line, found
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
    for line, found in _matches(rf"{numbered[2]}\n(?<![1-9]{numbered[2]}\n)", block.names):
        at = found.start()
        before = block.names[block.names.rfind("\n", 0, at) : at].rstrip("0")
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
    steps = (f"[^\n{re.escape(one)}]*{re.escape(one)}" for one in others)
    found = _matches(re.escape(first) + "".join(steps), block.names)
    spans = {line: one.end() - one.start() for line, one in islice(found, MOST_LETTERS)}
    return iter(sorted(spans, key=spans.__getitem__))


WAYS = (_whole, _number, _beginning, _word, _part, _id, _all_words, _kind, _description, _letters)


class Palette(Over[Place | None]):
    """A search over places; closes with the chosen one."""

    LEAVE: ClassVar[str] = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = LIST_KEYS

    def __init__(self, below: Screen[object], places: Places | None) -> None:
        """
        Args:
            below: The screen whose actions are listed.
            places: The service's places; None before there is a service.
        """
        super().__init__()
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
        self.field = Input(placeholder=HINT, id="palette-search", compact=True)
        self.list = RowList(COLUMNS, id="palette-list", least=20)
        self.list.can_focus = False
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

    @work(exclusive=True, group="within")
    async def _search_within(self, places: Places, text: str) -> None:
        """Add the checkpoints of another model that the text names."""
        section = await places.within(text.casefold().split())
        if section is not None and section not in self._more.values():
            self._more[section.kind, section.within] = section
            self._find(self.field.value)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._find(event.value)
        if self._service is not None and len(event.value.split()) > 1:
            self._search_within(self._service, event.value)

    @work(exclusive=True, group="find")
    async def _find(self, text: str) -> None:
        """List the matches."""
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
        self._show_no_match()

    def _matches(self, text: str) -> Iterator[tuple[Section, int] | None]:
        """The search's results; for an empty text, the views and actions."""
        if text.strip():
            return search(self.sections, text)
        return ((section, at) for section in self._actions for at in range(section.size))

    def _show(self, found: Sequence[tuple[Section, int]]) -> None:
        self._found = list(found)
        self._places = {f"{one.kind} {at} {one.within}": one.place(at) for one, at in found}
        self._draw()

    def _draw(self) -> None:
        room = self.list.size.width - KIND_CELLS - 4
        self.list.show(
            [_row(key, *one, room) for key, one in zip(self._places, self.listed, strict=True)]
        )

    @property
    def listed(self) -> list[tuple[Place, str]]:
        """The places in the list, best first, each with its kind."""
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

    def action_move(self, rows: int) -> None:
        self.list.action_move(rows)

    def action_page(self, pages: int) -> None:
        self.list.action_page(pages)

    def on_input_submitted(self) -> None:
        if self._listed_for == self.field.value:
            self._choose()
        else:  # the list is still of a shorter text
            best = next((one for one in self._matches(self.field.value) if one is not None), None)
            self._show([] if best is None else [best])
            self._choose()

    async def on_click(self, event: Click) -> None:
        if event.widget is self.list and event.y:
            self._choose()

    def _choose(self) -> None:
        place = self._places.get(self.list.key or "")
        if place is not None:
            self.dismiss(place)


HINT = "a view, action, model, checkpoint, run, job, taskset or task"
SEARCHED = (
    "Names and ids are searched: of views, actions of all views, themes, models, runs, jobs, "
    "tasksets and tasks; of this model's checkpoints, and after another model's name its "
    "(arith-rl 12). A kind lists all of it (runs), and searches in it (runs mixed)."
)
UNCONNECTED = "Views, models, runs and tasks are searched once there is a service."
KIND_CELLS = 13
COLUMNS = (Column("name"), Column("kind", KIND_CELLS, right=True))
SHORT_NOTE, LEAST_NOTE = 8, 10
"""A note of at most so many cells, as a key is, is always whole; a longer one gives way to the
name, and is left out, but for an id, where less than so many cells are left."""


def _row(key: str, one: Place, kind: str, room: int) -> Row:
    """A line with `room` cells for the name, and the note at their right end."""
    name, note = Content(one_line(one.name, LONGEST)), one_line(one.note, 40)
    name = name.stylize("$text-muted") if one.is_dim else name
    left = room - name.cell_length - 2
    if len(note) > max(left, SHORT_NOTE):
        note = one_line(note, left - 1) if left >= LEAST_NOTE else one.id
    if note:
        name = name.truncate(max(1, room - len(note) - 2), ellipsis=True)
        gap = " " * max(2, room - name.cell_length - len(note))
        name = Content.assemble(name, gap, (note, "$text-muted"))
    return Row(key, (name, Content.styled(kind, "$text-muted")))


def action_sections(screen: Screen[object]) -> Iterator[Section]:
    """The views, what can be done on a screen now, and the themes."""
    able = [one for one in doable(screen) if one.action.name not in HIDDEN]
    app = screen.app
    for title, are_views in (("view", True), ("action", False)):
        of_kind = [one for one in able if shows_view(one.action) is are_views]
        places = [
            Place(
                f"{one.action.label.capitalize()}: {one.action.help}",
                partial(app.run_action, one.action.name, one.where),
                one.action.all_shown,
            )
            for one in of_kind
        ]
        yield _of_actions(title, places, [one.action for one in of_kind])
    wear = {name: partial(app.run_action, f"app.wear({name!r})") for name in TITLES}
    themes = [Place(f"Theme: {TITLES[name]}", wear[name]) for name in TITLES]
    yield Section("theme", themes.__getitem__).add([place.name for place in themes])


HIDDEN = frozenset({"command_palette", "interrupt"})
"""Actions that are not listed: the first is open already, the second is another name of quit."""
UNTOLD = frozenset({"quit"})
"""Actions that are found by their names only, not by what is told of them."""
MOVES = frozenset(
    {
        *("enter", "escape", "tab", "up", "down", "left", "right"),
        *("home", "end", "pageup", "pagedown"),
    }
)
"""Keys that move or choose in what is in sight: such actions of other views are not listed."""


def _of_actions(
    kind: str, places: Sequence[Place], actions: Sequence[Action], within: str = ""
) -> Section:
    """Actions are searched by their labels, then by what their help tells."""
    section = Section(kind, places.__getitem__, within, required=False)
    descriptions = ["" if one.name in UNTOLD else f"· {one.label}: {one.help}" for one in actions]
    return section.add([one.label for one in actions], descriptions=descriptions)


# Places of the service, beside views and actions.


MOST_JOBS = {True: 10_000, False: 1000}
"""Newest jobs that are read: from the embedded service, and from HUD."""
NEW_JOBS = 100
"""Newest jobs that are read again when the palette is opened another time."""
TASK_STEPS = 200
"""Newest steps whose tasks are listed."""
IN_RUN = "in this model's steps"
"""Note of a task that steps train on, whose groups Live shows."""
MOST_TASKS = 50_000
"""Most tasks of tasksets that are listed."""


class Places:
    """The service's places: models, checkpoints, runs, jobs, tasksets and tasks."""

    def __init__(self, app: App[None], session: RunSession) -> None:
        self._app, self._session = app, session
        self._jobs: dict[str, Job] = {}
        """The jobs read so far, by id, newest first."""
        self._others: dict[str, Section] = {}
        """Checkpoints of models that are not selected, by the model's id."""
        self._scored: dict[str, list[str]] = {}
        """Tasks of evaluations, by the evaluation's id."""
        self._tasks_of: dict[Taskset, list[tuple[str, bool]]] = {}
        """Tasks of tasksets: their slugs, and whether they are held out."""

    def actions_elsewhere(self, below: Screen[object]) -> Iterator[Section]:
        """The actions of each view that cannot be done on the screen `below`."""
        here = set() if below.is_modal else {one.action.id for one in doable(below)}
        for shown in filter(shows_view, of_view("app")) if here else ():
            view = shown.name.removeprefix("view('").removesuffix("')")
            listed = [one for one in of_view(view) if one.id not in here and not _moves(one)]
            places = [
                Place(
                    f"{one.label.capitalize()} · {shown.shown} {shown.label} · {one.shown}",
                    partial(self._do, view, one),
                    one.help,
                    is_dim=True,
                )
                for one in listed
            ]
            yield _of_actions("action", places, listed, shown.label)

    async def _do(self, view: str, action: Action) -> None:
        """Show an action's view, and do it if it changes nothing and can be done there now; else
        tell its key."""
        if view in VIEWS:
            await self._app.switch_mode(view)
        else:
            await self._app.run_action(view)
        screen = self._app.screen
        able = isinstance(screen, HudScreen) and view == screen.VIEW and screen.can(action.name)
        if able and action.id not in WRITES:
            await self._app.run_action(action.name, screen)
        else:
            self._app.notify(f"{action.shown}  {action.label}: {action.help}", markup=False)

    async def sections(self) -> AsyncIterator[Section]:
        """Known places first, then the jobs; a section that has grown is given again.

        Jobs that cannot be read are left out: their view says why.
        """
        self._others.clear()
        yield self._models()
        tasks = self._tasks()
        yield tasks
        with suppress(HudError):  # the known ones suffice
            self._session.catalog = tuple(await self._session.client.models())
            yield self._models()
        with suppress(HudError):  # then only tasks that are trained on are listed
            if (heldout := await self._heldout()) is not None:
                yield heldout
        tree, model = self._session.run.tree, self._session.run.model
        checkpoints = Section(
            "checkpoint",
            lambda at: self._checkpoint(tree, len(tree) - 1 - at),
            within=model.model_name if model is not None else "",
            required=False,
        )
        async for section in _filled(checkpoints, tree):
            yield section
        for section in self._known_jobs():
            yield section
        if await self._read_jobs():
            for section in self._known_jobs():
                yield section
        with suppress(HudError):  # their view says why
            async for section in self._tasksets():
                yield section

    async def _tasksets(self) -> AsyncIterator[Section]:
        """The tasksets that the service lists, and their tasks."""
        found = await self._session.client.tasksets()
        names = [one.name for one in found]
        section = Section("taskset", lambda at: Place(names[at], partial(self._launch, names[at])))
        yield section.add(names, [one.id for one in found])
        self._tasks_of = {one: tasks for one, tasks in self._tasks_of.items() if one in found}
        listed = 0
        for one in found:
            if one not in self._tasks_of:
                rows = (await self._session.client.taskset(one.name)).tasks
                tasks = await to_thread(read_rows, rows)
                self._tasks_of[one] = [(task.slug, task.heldout) for task in tasks]
            listed += len(self._tasks_of[one])
            if listed > MOST_TASKS:
                return
            for heldout in (False, True):
                slugs = [slug for slug, held in self._tasks_of[one] if held is heldout]
                yield self._tasks_within(one.name, "held-out task" if heldout else "task", slugs)

    def _tasks_within(self, taskset: str, title: str, slugs: Sequence[str]) -> Section:
        """Tasks of a taskset, which Launch lists with their texts."""

        def place(at: int) -> Place:
            return Place(slugs[at], partial(self._launch, taskset, slugs[at]), f"of {taskset}")

        return Section(title, place, within=taskset, required=False).add(slugs)

    async def _launch(self, taskset: str, slug: str | None = None) -> None:
        """Check a taskset in Launch, as Enter there does, with the cursor on a task."""
        await self._app.switch_mode("launch")
        if isinstance(self._app.screen, LaunchScreen):
            self._app.screen.take(taskset, slug)

    async def within(self, words: Sequence[str]) -> Section | None:
        """The checkpoints of another model that some of the words name; None if they name none."""
        followed = self._session.run.model
        others = [one for one in self._session.catalog if followed is None or one.id != followed.id]
        named = [one for one in others if _named(one, words)]
        if not named:
            return None
        model = max(named, key=lambda one: (_named(one, words), -len(one.model_name)))
        if model.id not in self._others:
            try:
                nodes = await self._session.client.checkpoints(model.id)
            except HudError:
                return None  # it has none; or the service does not answer, which other views show
            place = partial(self._checkpoint_of, model, nodes)
            section = Section("checkpoint", place, model.model_name)
            async for _ in _filled(section, nodes):
                pass
            self._others[model.id] = section
        return self._others[model.id]

    def _models(self) -> Section:
        models = list(self._session.catalog)

        def place(at: int) -> Place:
            one = models[at]
            return Place(one.model_name, partial(self._open, one))

        section = Section("model", place)
        return section.add([one.model_name for one in models], [one.id for one in models])

    async def _open(self, model: Model) -> None:
        """What Enter does in Models; the user's own model is selected at once."""
        if kind(model) is Kind.OWN:
            self._session.choose(model)
            await self._app.switch_mode("launch" if model.checkpoint_count == 0 else "live")
            return
        await self._show("models", model.id)
        if isinstance(self._app.screen, ModelsScreen):
            self._app.screen.open(model)

    async def _heldout(self) -> Section | None:
        """The tasks of the newest held-out evaluation, in the head's lineage if there is one there;
        None without any."""
        run = self._session.run
        known = dict(run.tree.evaluations())
        lineage = set(run.tree.lineage(run.tree.head))
        position = max(known, key=lambda at: (at in lineage, at), default=None)
        node = run.tree.node(position)
        found = known.get(position) if position is not None else run.base_evaluation
        if found is None or not found.id:
            return None
        if found.id not in self._scored:
            groups = (await self._session.evaluations.get(found.id)).groups
            self._scored[found.id] = sorted(group.task_slug for group in groups)
        slugs, note = self._scored[found.id], f"evaluated at {label(node)}"

        def place(at: int) -> Place:
            return Place(slugs[at], partial(self._rollouts, found, node, slugs[at]), note)

        return Section("held-out task", place).add(slugs)

    async def _rollouts(self, found: Evaluation, node: Checkpoint | None, slug: str) -> None:
        """Show an evaluation's rollouts of a task."""
        group = await self._session.evaluations.rollouts(found, node, slug)
        name = f"{label(node)}, evaluated on {size(found.num_tasks, found.samples or 1)}"
        step = StepGroups(name, [group], place=0, node=node, names=[name])
        await self._app.push_screen(GroupScreen(self._session.client, step))

    def _tasks(self) -> Section:
        tree = self._session.run.tree
        newest = (tree[at] for at in islice(tree.lineage(tree.head), TASK_STEPS))
        found = dict.fromkeys(group.task_slug for node in newest for group in node.groups)
        slugs = sorted(slug for slug in found if slug)

        def place(at: int) -> Place:
            return Place(slugs[at], partial(self._show, "live", slugs[at]), IN_RUN)

        return Section("task", place).add(slugs)

    def _checkpoint(self, tree: Tree, position: int) -> Place:
        node = tree[position]
        go = partial(self._show, "checkpoints", node.id)
        return Place(label(node), go, scored(tree.own(position)))

    def _checkpoint_of(self, model: Model, nodes: Sequence[Checkpoint], at: int) -> Place:
        node = nodes[-1 - at]

        async def go() -> None:
            self._session.choose(model)
            await self._show("checkpoints", node.id)

        return Place(f"{model.model_name} {label(node)}", go)

    def _known_jobs(self) -> list[Section]:
        """The runs, and the other jobs."""
        runs = [one for one in self._jobs.values() if Work.of(one).model_id is not None]
        others = [one for one in self._jobs.values() if Work.of(one).model_id is None]
        return [self._job_section("run", runs), self._job_section("job", others)]

    def _job_section(self, kind: str, jobs: Sequence[Job]) -> Section:
        def place(at: int) -> Place:
            one = jobs[at]
            short, go = one.id[:8], partial(self._show, f"{kind}s", one.id)
            return Place(one.name or one.id, go, f"{short} {one.status or ''}", id=short)

        section = Section(kind, place)
        return section.add([one.name or "" for one in jobs], [one.id for one in jobs])

    async def _read_jobs(self) -> bool:
        """Read the jobs, after the first time only the newest. Returns whether any has changed."""
        most = NEW_JOBS if self._jobs else MOST_JOBS[self._session.client.settings.local]
        try:
            newest = {job.id: job for job in await self._session.client.jobs(most)}
        except HudError:
            return False
        before = self._jobs
        self._jobs = newest | {id_: job for id_, job in before.items() if id_ not in newest}
        return self._jobs != before

    async def _show(self, view: str, name: str) -> None:
        """Show a view, with the cursor on what has this name."""
        await self._app.switch_mode(view)
        if isinstance(self._app.screen, HudScreen):
            self._app.screen.go_to(name)


def _moves(action: Action) -> bool:
    return any(one.rpartition("+")[2] in MOVES for one in action.keys.split(","))


async def _filled(section: Section, nodes: Sequence[Checkpoint] | Tree) -> AsyncIterator[Section]:
    """Add checkpoints, newest first; yields after every part, so that keys go first."""
    for end in range(len(nodes), 0, -BLOCK):
        part = [nodes[at] for at in range(end - 1, max(0, end - BLOCK) - 1, -1)]
        section.add([label(node) for node in part], [node.id for node in part])
        yield section
        await sleep(0)


def _named(model: Model, words: Sequence[str]) -> int:
    """Number of the words that are in the model's name."""
    return sum(word in model.model_name.casefold() for word in words)
