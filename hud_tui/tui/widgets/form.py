"""FilterField and RunForm: the run's parameters, one line a field, what is wrong said beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Horizontal
from textual.content import Content
from textual.events import Blur, Click
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.rl.progress import EFFORTS, NUMBERS, NumberField, Value, write
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import bindings


class Picker(Widget, can_focus=True):
    """One of a few words: ``‹ ppo ›``; left and right change it."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = bindings("picker")

    options: reactive[tuple[str, ...]] = reactive((), init=False)
    value: reactive[str] = reactive("", init=False)

    @dataclass
    class Changed(Message):
        picker: Picker

    def __init__(self, options: Sequence[str], id: str) -> None:
        super().__init__(id=id)
        self.set_reactive(Picker.options, tuple(options))
        self.set_reactive(Picker.value, options[0] if options else "")

    def action_pick(self, by: int) -> None:
        """The next word, or the one before."""
        if self.options:
            at = self.options.index(self.value) if self.value in self.options else -by
            self.value = self.options[(at + by) % len(self.options)]
            self.post_message(self.Changed(self))

    def on_click(self, event: Click) -> None:
        """The next word; on the mark before it, the one before."""
        self.action_pick(-1 if event.x < 2 else 1)

    def render(self) -> Content:
        shown = one_line(self.value, 40)
        return Content.assemble(("‹ ", "$text-muted"), shown, (" ›", "$text-muted"))


class Field(Horizontal):
    """A label, what is typed, and the limits or what is wrong."""

    def __init__(self, label: str, field: Widget, limits: str = "") -> None:
        super().__init__(classes="field")
        self.label, self.field, self.limits = label, field, limits
        self._said = Static(limits, classes="limits")

    def compose(self) -> ComposeResult:
        yield Static(self.label, classes="label")
        yield self.field
        if self.limits:
            yield self._said

    def complain(self, wrong: bool) -> None:
        if wrong == self.has_class("wrong"):
            return
        self.set_class(wrong, "wrong")
        self._said.update(f"✘ {self.limits}" if wrong else self.limits)


class RunForm(Grid):
    """Numbers are typed, words are picked; the limits stand beside and turn into the fault."""

    @dataclass
    class Changed(Message):
        """Something was typed or picked."""

    def compose(self) -> ComposeResult:
        for spec in NUMBERS:
            field = Input(id=spec.key, compact=True, max_length=12, classes="number")
            yield Field(spec.label, field, spec.limits)
        yield Field("loss", Picker((), id="loss_fn"))
        yield Field("effort", Picker(EFFORTS, id="reasoning_effort"))

    def fill(self, values: Mapping[str, Value], losses: Sequence[str] = ()) -> None:
        """Put in values; a field without one is not the user's to set, and is hidden."""
        for field in self.query(Field):
            key = field.field.id or ""
            field.display = key in values
            if key not in values:
                continue
            if isinstance(field.field, Input):
                field.field.value = write(values[key])
            elif isinstance(field.field, Picker):
                self._fill_picker(field.field, str(values[key]), losses)

    def _fill_picker(self, picker: Picker, value: str, losses: Sequence[str]) -> None:
        if picker.id == "loss_fn":
            picker.options = tuple(losses) or (value,)
        picker.value = value if value in picker.options else picker.options[0]

    def read(self) -> dict[str, Value] | None:
        """The values; None where one is wrong, which is then marked."""
        values: dict[str, Value] = {}
        good = True
        for field in self._shown():
            if isinstance(field.field, Picker):
                values[field.field.id or ""] = field.field.value
            elif isinstance(field.field, Input):
                good &= self._read_number(field, field.field, values)
        return values if good else None

    def _read_number(self, field: Field, typed: Input, values: dict[str, Value]) -> bool:
        spec = _SPECS[typed.id or ""]
        try:
            values[spec.key] = spec.read(typed.value.strip())
        except ValueError:
            field.complain(True)
            return False
        field.complain(False)
        return True

    @property
    def faults(self) -> list[str]:
        """Labels of the fields that are wrong."""
        return [field.label for field in self._shown() if field.has_class("wrong")]

    def _shown(self) -> Iterable[Field]:
        return (field for field in self.query(Field) if field.display)

    def focus_first(self) -> None:
        for field in self._shown():
            field.field.focus()
            return

    def focus_fault(self) -> None:
        for field in self._shown():
            if field.has_class("wrong"):
                field.field.focus()
                return

    @on(Input.Changed)
    @on(Picker.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        self.read()
        self.post_message(self.Changed())


_SPECS: dict[str, NumberField] = {spec.key: spec for spec in NUMBERS}


# FilterField: where a list's filter is typed; it is in sight for as long as it has a text.


class FilterField(Input):
    """It has the focus only where it was asked to: a list that has no rows for a moment, as while
    they are read, would leave the focus to it, and keys that act would be typed."""

    def __init__(self, placeholder: str, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self.can_focus = False

    def focus(self, scroll_visible: bool = True) -> FilterField:
        """Be typed into, until it is left."""
        self.can_focus = self.display = True
        super().focus(scroll_visible)
        return self

    def on_click(self, event: Click) -> None:
        self.focus()

    def on_blur(self, event: Blur) -> None:
        if self.app.app_focus:  # not where another window has the keys for a while
            self.can_focus = False
