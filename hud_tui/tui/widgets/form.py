"""RunForm: a run's parameters, one line a field, errors beside it; its findings; FilterField."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from textwrap import wrap
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

from hud_tui.keys import keyed
from hud_tui.rl.progress import EFFORTS, NO, NUMBERS, YES, NumberField, Value, write
from hud_tui.rl.tasks.checks import Finding, in_order
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import ClickableText, bindings, clicked

CHECKS = {
    "rows": "rows load",
    "train": "to train on",
    "slugs": "slugs unique",
    "model": "model",
    "environments": "environments",
    "scenarios": "scenarios",
    "args": "args fit",
    "key": "key",
    "ready": "model ready",
    "tokens": "tokens",
    "group_size": "group size",
    "disk": "disk",
    "count": "enough tasks",
    "duplicates": "duplicates",
    "vision": "images",
    "runtime": "runtime",
    "fields": "fields",
    "graded": "graded",
    "variables": "variables",
    "remote": "MCP servers",
    "lock": "lock file",
    "signal": "signal",
    "rollout": "one rollout",
}
"""Every check, in the order they are shown."""
SHOWN = frozenset(list(CHECKS)[:7])
"""Checks that have a line when they pass; the others have one only where they found something."""
TOLD = ("signal", "rollout")
"""Checks that are made on demand, and then have a line when they pass too."""
BY_NAME = ("environments", "scenarios", "args")
"""Checks made once per environment; a passed one shows the name only."""
GLYPHS = {"ok": ("✔", "$success"), "warning": ("⚠", "$warning"), "failure": ("✘", "$error")}
LABEL = 14
SHORT, LONG = 300, 4000
"""Characters of one part of a finding, in the pane and where all of it is shown."""
MORE = "{launch.details} shows all findings"


class Findings(ClickableText):
    """Checks that passed share a line; a warning or a failure has its own, with the fix.

    Where there is no room for all of it, what fails comes first, then what was asked for, then
    what is doubtful.
    """

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False)
    checking: reactive[bool] = reactive(False, init=False)
    source: reactive[str] = reactive("", init=False)
    """What is checked, by its name."""

    def watch_findings(self) -> None:
        self._draw()

    def watch_checking(self) -> None:
        self._draw()

    def watch_source(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.content_size
        lines = list(islice(self._lines(CHECKS, width), height + 1))
        if len(lines) > height > 1:
            lines = list(islice(self._lines(self._worst_first(), width), height - 1))
            lines.append(clicked(Content.styled(keyed(MORE), "$accent"), "launch.details"))
        self.update(Content("\n").join(lines))

    def _worst_first(self) -> list[str]:
        level = {level: {f.check for f in self.findings if f.level == level} for level in GLYPHS}
        first = [level["failure"], frozenset(TOLD), level["warning"]]
        return sorted(CHECKS, key=lambda check: [check not in checks for checks in first])

    def _lines(self, checks: Iterable[str], width: int) -> Iterator[Content]:
        for check in checks:
            found = in_order(finding for finding in self.findings if finding.check == check)
            bad = [finding for finding in found if finding.level != "ok"]
            if bad:
                yield from chain.from_iterable(_wrapped(finding, width) for finding in bad)
            elif check in SHOWN or (found and check in TOLD):
                yield self._passed(check, found).truncate(max(1, width), ellipsis=True)

    def _passed(self, check: str, found: Sequence[Finding]) -> Content:
        glyph, style = GLYPHS["ok"] if found else ("·", "$text-muted")
        said = ", ".join(_briefly(finding) for finding in found) or "…" * self.checking
        if check == "rows" and self.source:
            said = f"{self.source}: {said}"
        label = Content.styled(f"{CHECKS[check]:<{LABEL}}", "" if found else "$text-muted")
        return Content.assemble((f"{glyph} ", style), label, (said, "$text-muted"))


def whole_lines(findings: Sequence[Finding], width: int) -> Iterator[Content]:
    """Every finding in full, what is wrong first, `width` cells wide."""
    by_level = ("failure", "warning", "ok")
    for finding in sorted(in_order(findings), key=lambda one: by_level.index(one.level)):
        yield from _wrapped(finding, width, LONG)


def _wrapped(finding: Finding, width: int, most: int = SHORT) -> Iterator[Content]:
    """A finding over as many lines as it takes, each part cut at `most` characters."""
    glyph, style = GLYPHS[finding.level]
    room = max(12, width - LABEL - 2)
    advice = [finding.where, finding.fix] if finding.level != "ok" else []
    said = [(line, style) for line in wrap(one_line(finding.message, most), room)]
    said += [
        (line, "") for part in advice if part for line in wrap(f"→ {one_line(part, most)}", room)
    ]
    head = Content.assemble((f"{glyph} ", style), f"{CHECKS[finding.check]:<{LABEL}}")
    for line in said:
        yield head + Content.styled(*line)
        head = Content(" " * (LABEL + 2))


def _briefly(finding: Finding) -> str:
    by_name = finding.check in BY_NAME and finding.where
    return one_line(finding.where if by_name else finding.message, 200)


def worst(findings: Sequence[Finding]) -> Finding | None:
    """The first failure, else the first warning."""
    by_level = sorted(
        (one for one in findings if one.level != "ok"), key=lambda one: one.level != "failure"
    )
    return by_level[0] if by_level else None


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
        yield Field("baseline", Picker((NO, YES), id="baseline"))

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
                self._fill_picker(field.field, write(values[key]), losses)

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
                picked = field.field.value
                values[field.field.id or ""] = (
                    picked == YES if field.field.options == (NO, YES) else picked
                )
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
