"""ToolForm: a call of a tool, its arguments as fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Static

from hud_tui.rl.game import Argument, BadMove, Call, Move, Tool, check_arguments
from hud_tui.rl.settings import NO, YES
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.form import Field, Picker

LEFT_OUT = "–"
"""Choice of an optional argument that is not given."""
NEWLINE = r"\n"
"""How a line break is typed, in a text argument and in an answer."""


class ToolForm(VerticalScroll, can_focus=False):
    """One of the tools, and a field for each of its arguments. What was typed stays until the call
    is made."""

    @dataclass
    class Called(Message):
        """The call is to be made."""

        move: Move

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.tools: tuple[Tool, ...] = ()
        self._picker = Picker((), id="play-tool")
        self._about = Static("", id="play-about", markup=False)
        self._arguments = Vertical(id="play-arguments")
        self._fields: list[tuple[Argument, Field]] = []

    def compose(self) -> ComposeResult:
        yield Field("tool", self._picker)
        yield self._about
        yield self._arguments
        yield Button("Call", id="play-call", compact=True)

    @property
    def tool(self) -> Tool | None:
        """The chosen one; None if there are none."""
        return self._chosen(self.tools)

    def _chosen(self, tools: Sequence[Tool]) -> Tool | None:
        return next((tool for tool in tools if tool.name == self._picker.value), None)

    async def show(self, tools: Sequence[Tool]) -> None:
        """Offer these tools; the chosen one stays, if it is among them."""
        if tuple(tools) == self.tools:
            return
        names = tuple(tool.name for tool in tools)
        self._picker.options = names
        if self._picker.value not in names:
            self._picker.value = names[0] if names else ""
        self.display = bool(tools)
        await self._lay_out(tools)
        self.tools = tuple(tools)  # last: showing may be cut short by the next turn

    async def _lay_out(self, tools: Sequence[Tool]) -> None:
        """The fields of the chosen tool."""
        tool = self._chosen(tools)
        arguments = [] if tool is None else tool.arguments
        about = "" if tool is None else one_line(tool.about, 400)
        self._about.update(Content.styled(about, "$text-muted"))
        self._fields = [(each, _field(n, each)) for n, each in enumerate(arguments)]
        await self._arguments.remove_children()
        await self._arguments.mount(*(field for _, field in self._fields))

    def clear(self) -> None:
        """Empty the fields; the tool stays chosen."""
        for _, field in self._fields:
            field.complain(False)
            if isinstance(field.field, Picker):
                field.field.value = field.field.options[0]
            else:
                field.field.value = ""

    def focus_first(self) -> None:
        """To the choice of a tool if there are several, else to its first argument."""
        if len(self.tools) > 1 or not self._fields:
            self._picker.focus()
        else:
            self._fields[0][1].field.focus()

    def read(self) -> Move:
        """The call. Raises BadMove, and marks the field: an argument is missing or invalid."""
        tool = self.tool
        if tool is None:
            raise BadMove("call", "this task has no tools")
        for _, field in self._fields:
            field.complain(False)
        try:
            arguments = {each.name: _value(each, field) for each, field in self._given()}
            check_arguments(tool, arguments)
        except BadMove as error:
            if not self._mark(error.field):
                self.screen.notify(error.message, severity="warning", markup=False)
            raise
        return Move(calls=(Call(tool.name, arguments),))

    def _given(self) -> Iterable[tuple[Argument, Field]]:
        for argument, field in self._fields:
            is_empty = field.typed in ("", LEFT_OUT)
            if argument.is_required or not is_empty:
                yield argument, field

    def _mark(self, where: str) -> bool:
        """Mark the field of what is wrong, e.g. ``arguments.to.x``; returns whether there is
        one."""
        for argument, field in self._fields:
            name = f"arguments.{argument.name}"
            if where == name or where.startswith((f"{name}.", f"{name}[")):
                field.complain(True)
                field.field.focus()
                return True
        return False

    @on(Picker.Changed)
    async def _picked(self, event: Picker.Changed) -> None:
        event.stop()
        if event.picker is self._picker:
            await self._lay_out(self.tools)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        """To the next field; from the last one, call."""
        event.stop()
        fields = [field.field for _, field in self._fields]
        if event.input in fields[:-1]:
            fields[fields.index(event.input) + 1].focus()
        else:
            self.call()

    @on(Button.Pressed, "#play-call")
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.call()

    def call(self) -> None:
        """Ask to make the call, unless an argument is invalid, which is then marked."""
        with suppress(BadMove):  # which is shown
            self.post_message(self.Called(self.read()))


def _field(number: int, argument: Argument) -> Field:
    id_, about = f"argument-{number}", one_line(argument.about, 120)
    words = [_written(choice) for choice in argument.choices]
    if argument.kind == "boolean" and not words:
        words = [NO, YES]
    if words:
        picker = Picker(words if argument.is_required else [LEFT_OUT, *words], id=id_)
        return Field(one_line(argument.name, 40), picker, about)
    typed = Input(id=id_, compact=True)
    if argument.usual is not None:
        typed.placeholder = one_line(_written(argument.usual), 40)
    elif not argument.is_required:
        typed.placeholder = LEFT_OUT
    limits = " · ".join(filter(None, (argument.expected, about)))
    return Field(one_line(argument.name, 40), typed, limits, wide=True)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(argument: Argument, field: Field) -> Any:
    """What is typed or picked. Raises BadMove: it is not of the argument's kind."""
    if isinstance(field.field, Picker):
        if argument.choices:
            words = [_written(choice) for choice in argument.choices]
            return argument.choices[words.index(field.typed)]
        return field.typed == YES
    value = argument.read(field.field.value)
    return with_lines(value) if isinstance(value, str) else value


def with_lines(text: str) -> str:
    """A typed text with its line breaks."""
    return text.replace(NEWLINE, "\n")
