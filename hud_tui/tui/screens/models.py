"""ModelsScreen: the catalog; choose the model to follow, or fork one.

On a first start it explains the way to a first run, and Enter forks the base under the
cursor without asking: the name it will have is on the screen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.catalog import Kind, free_name, kind
from hud_tui.rl.export.sheet import Sheet
from hud_tui.rl.export.sheets import models_sheet
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.engine_line import engine_line
from hud_tui.tui.first_choice import WAY, WELCOME, WELCOME_ON_SERVER, enter_does, first_choice
from hud_tui.tui.forking import ask_fork
from hud_tui.tui.model_rows import COLUMNS, model_rows
from hud_tui.tui.screens.models_reading import ModelsReading
from hud_tui.tui.widgets.filter_field import FilterField
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Model


class ModelsScreen(ModelsReading):
    VIEW = "models"
    BINDINGS: ClassVar[list[BindingType]] = bindings("models")
    AUTO_FOCUS: ClassVar[str | None] = "RowList"
    """Never the filter's field, out of sight as it is: the first key would be typed there."""

    def __init__(self) -> None:
        super().__init__()
        self._said = ""
        """What was last said of the protected models."""
        self._begun_for: str | None = None
        """Id of the followed model when the cursor was put on it."""

    def body(self) -> Iterable[Widget]:
        yield Static(WELCOME + keyed(WAY), id="welcome")
        yield FilterField("filter by name, base or provider", "filter")
        yield RowList(COLUMNS, id="models", least=16, most=48)
        yield Static("", id="engine", markup=False)
        yield Static("reading the catalog …", id="note", markup=False)

    @property
    def rows(self) -> RowList:
        return self.query_one("#models", RowList)

    @property
    def filter_field(self) -> FilterField:
        return self.query_one("#filter", FilterField)

    @property
    def chosen(self) -> Model | None:
        """The model under the cursor."""
        return next((m for m in self.models or () if m.id == self.rows.key), None)

    def on_mount(self) -> None:
        self.rows.focus()
        self.watch_models()
        wanted = self.hud.start.command == "fork" and self.hud.start.source
        if wanted and self.hud.may_change():
            self.fork_named(self.hud.start.source, self.hud.start.name)

    def watch_models(self) -> None:
        if self.models is None or not self.query("#note"):  # it was read before it is built
            return
        if self.on_server:
            self.query_one("#welcome", Static).update(WELCOME_ON_SERVER + keyed(WAY))
        self.show_rows()
        followed = self.run.model.id if self.run.model is not None else ""
        if followed != self._begun_for:
            self._begun_for = followed
            self._begin()

    def _begin(self) -> None:
        """Put the cursor where Enter does what is wanted most likely."""
        wanted = self.run.model or first_choice(self.models or ())
        if wanted is not None:
            self.rows.select(wanted.id)

    def watch_first_start(self, first: bool) -> None:
        self.query("#welcome").set_class(first, "shown")

    def show_rows(self) -> None:
        """Draw the catalog as it is known now."""
        if self.models is None or not self.query("#note"):
            return
        followed = self.run.model.id if self.run.model is not None else None
        text, now = self.filter_field.value, self.hud.clock()
        rows = model_rows(self.models, self.facts, followed, text, now, self._protected())
        self.rows.show(rows)
        self._note()

    def _protected(self) -> Collection[str]:
        """Ids of the protected models; none where the file does not say: then nothing is sent."""
        try:
            return self.client.wire.guard.protected.keys()
        except HudError as error:
            self._complain(error)
            return ()

    def _complain(self, error: HudError) -> None:
        """Say once what stands in the way of knowing."""
        if error.message != self._said:
            self._said = error.message
            self.tell(error)

    def _note(self) -> None:
        """Say what Enter does to the model under the cursor."""
        self.query_one("#note", Static).update(self._note_text())
        place = self.query_one("#engine", Static)
        place.update(line := engine_line(self.chosen))
        place.display = bool(line)

    def _note_text(self) -> Content:
        return enter_does(self.chosen, self.models or (), self.first_start)

    @on(RowList.Moved)
    def _cursor_moved(self) -> None:
        self._note()

    @on(RowList.Opened)
    def _row_opened(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        """Enter: follow one's own model, fork a base."""
        model = self.chosen
        if model is None:
            return
        match kind(model):
            case Kind.OWN:
                self.follow(model)
            case Kind.BASE if not self.hud.may_change():
                return
            case Kind.BASE if self.first_start:
                self.fork_first(model)
            case Kind.BASE:
                self.fork_from(model)
            case Kind.SERVED:
                self.notify(self._note_text().plain, markup=False)

    def action_fork(self) -> None:
        model = self.chosen
        if model is None or kind(model) is Kind.SERVED:
            self.notify("choose a trainable model to fork", severity="warning")
        else:
            self.fork_from(model)

    @work(exclusive=True, group="act")
    async def follow(self, model: Model) -> None:
        """Follow a model; show its run, or where to start one."""
        self.hud.choose(model)
        facts = self.facts.get(model.id)
        steps = facts.steps if facts is not None else model.checkpoint_count or 0
        await self.hud.action_view("live" if steps else "launch")

    @work(exclusive=True, group="act")
    async def fork_first(self, source: Model) -> None:
        """The first fork of all, under a free name, and on to its first run."""
        name = free_name(source.model_name, self.models or ())
        model = await self.attempt(self.client.fork(source.id, name))
        if model is not None:
            self.hud.first_fork = model.id
            self.hud.choose(model)
            await self.hud.action_view("launch")

    @work(exclusive=True, group="act")
    async def fork_from(self, source: Model, name: str | None = None) -> None:
        """Ask for a name, fork, and go on to a run of the new model."""
        model = await ask_fork(self.hud, source, self.models or (), name)
        if model is None:
            self.read()
            return
        if self.first_start:
            self.hud.first_fork = model.id
        self.hud.choose(model)
        await self.hud.action_view("launch")

    @work(exclusive=True, group="start")
    async def fork_named(self, source: str, name: str | None) -> None:
        """The command line's ``fork``: the dialog, filled in."""
        models = await self.attempt(self.client.models())
        if models is None:
            return
        try:
            self.fork_from(find_model(source, models), name)
        except HudError as error:
            self.tell(error)

    def sheet(self) -> Sheet:
        heads = {id_: (one.head, one.steps, one.own) for id_, one in self.facts.items()}
        return models_sheet(self.models or (), heads)

    @work(exclusive=True, group="act")
    async def action_protect(self) -> None:
        """Protect the model under the cursor; or no longer, once its name is typed."""
        model = self.chosen
        if model is None or kind(model) is not Kind.OWN:
            self.notify("choose a model of yours to protect", severity="warning")
            return
        protection = self.client.wire.guard.protection
        try:
            was = protection.models.get(model.id)
            if was is not None and not await self.hud.type_name(was, "protect it no longer"):
                return
            protection.protect(model.id, model.model_name, was is None)
        except HudError as error:
            self.tell(error)
        else:
            shut = "changed only by who types its name" if was is None else "protected no longer"
            self.notify(f"{one_line(model.model_name, 60)} is {shut}", markup=False)
        self.show_rows()

    def lay_out(self) -> None:
        super().lay_out()
        text = self.hud.layout.models_filter
        self.filter_field.value, self.filter_field.display = text, bool(text)

    def action_filter(self) -> None:
        self.filter_field.focus()

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self.hud.arrange(models_filter=self.filter_field.value)
        self.show_rows()

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.rows.focus()

    def action_leave(self) -> None:
        """Esc: out of the filter; once more clears it."""
        if self.focused is self.filter_field:
            self.rows.focus()
        else:
            self.filter_field.value = ""
        self.filter_field.display = bool(self.filter_field.value)

    def action_refresh(self) -> None:
        self.read()

    def action_copy(self) -> None:
        if self.chosen is not None:
            self.copy(self.chosen.model_name)
