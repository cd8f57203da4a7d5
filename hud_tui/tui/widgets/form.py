"""RunForm: a run's parameters, one line per field, with errors beside it; its findings;
FilterField and FileSuggester."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from os.path import expanduser
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Horizontal
from textual.content import Content
from textual.events import Blur, Click
from textual.message import Message
from textual.reactive import reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from hud_tui.keys import keyed
from hud_tui.parameters import ROLLOUT_OPTIONS, RUNS_AT_ONCE, TRAIN, Parameter, taken_by
from hud_tui.rl.findings import Finding, in_order, verdict, worst_first
from hud_tui.rl.settings import DEFAULT, FIELDS, LOSS, NO, YES, Value, is_picked, parameters, write
from hud_tui.rl.text import one_line, read_loss_config
from hud_tui.rollouts.run_files import read_option
from hud_tui.tui.keys import ClickableText, bindings, clicked
from hud_tui.tui.wrapping import wrapped

CHECKS = {
    "rows": "file",
    "train": "tasks",
    "slugs": "slugs",
    "model": "model",
    "environments": "environments",
    "scenarios": "scenarios",
    "args": "arguments",
    "key": "key",
    "ready": "ready",
    "tokens": "tokens",
    "group_size": "group size",
    "disk": "disk",
    "count": "task count",
    "duplicates": "duplicates",
    "vision": "images",
    "runtime": "runtime",
    "fields": "fields",
    "graded": "graded",
    "variables": "variables",
    "remote": "MCP servers",
    "lock": "lock file",
    "signal": "signal",
    "rollout": "rollouts",
    "estimate": "estimate",
}
SHOWN = frozenset(list(CHECKS)[:7])
"""Checks with a line when they pass; the others only if they find something."""
TOLD = ("signal", "rollout", "estimate")
"""Checks on demand; they have a line when they pass, too."""
BY_NAME = {"environments": "", "scenarios": "", "args": "valid in "}
"""Checks made once per environment; a passed one shows the names only, after this."""
GLYPHS = {"ok": ("✔", "$success"), "warning": ("⚠", "$warning"), "failure": ("✘", "$error")}
NOT_YET = ("·", "$text-muted")
LABEL = 14
NAMES = 24
"""Width below which only the names of checks are shown, cells."""
SHORT, LONG = 300, 4000
"""Most characters of one part of a finding, in the pane and where it is shown in full."""
MORE = "{launch.details} shows all findings"
MORE_BRIEFLY = "{launch.details} all"


class Findings(ClickableText):
    """The findings of preflight. Passed checks share a line; a warning or a failure has its own,
    with the fix.

    If there is not enough room, failures come first, then checks on demand, then warnings.
    """

    findings: reactive[tuple[Finding, ...]] = reactive((), init=False)
    checking: reactive[bool] = reactive(False, init=False)
    source: reactive[str] = reactive("", init=False)
    """Name of what is checked."""

    def _draw(self) -> None:
        width, height = self.content_size
        lines = list(islice(self._lines(CHECKS, width), height + 1))
        if len(lines) > height > 1 and self.findings:
            lines = list(islice(self._lines(self._worst_first(), width), height - 1))
            more = keyed(MORE if width >= NAMES else MORE_BRIEFLY)
            lines.append(clicked(Content.styled(more, "$accent"), "launch.details"))
        self.update(Content("\n").join(lines))

    watch_findings = watch_checking = watch_source = on_resize = _draw

    def _worst_first(self) -> list[str]:
        level = {level: {f.check for f in self.findings if f.level == level} for level in GLYPHS}
        first = [level["failure"], frozenset(TOLD), level["warning"]]
        return sorted(CHECKS, key=lambda check: [check not in checks for checks in first])

    def _lines(self, checks: Iterable[str], width: int) -> Iterator[Content]:
        for check in checks:
            findings = in_order(finding for finding in self.findings if finding.check == check)
            bad = [finding for finding in findings if finding.level != "ok"]
            if width < NAMES and (findings or check in SHOWN):
                yield _briefly(check, findings).truncate(max(1, width))
            elif bad:
                yield from chain.from_iterable(_wrapped(finding, width) for finding in bad)
            elif check in SHOWN or (findings and check in TOLD):
                yield self._passed(check, findings).truncate(max(1, width), ellipsis=True)

    def _passed(self, check: str, findings: Sequence[Finding]) -> Content:
        glyph, style = GLYPHS["ok"] if findings else NOT_YET
        briefly = (f.where if check in BY_NAME and f.where else f.message for f in findings)
        told = ", ".join(one_line(text, 200) for text in briefly)
        summary = f"{BY_NAME.get(check, '')}{told}" if told else "…" * self.checking
        if check == "rows" and self.source:
            summary = f"{self.source}: {summary}"
        label = Content.styled(f"{CHECKS[check]:<{LABEL}}", "" if findings else "$text-muted")
        return Content.assemble((f"{glyph} ", style), label, (summary, "$text-muted"))


def _briefly(check: str, findings: Sequence[Finding]) -> Content:
    """A check's verdict and name, where there is no room for more."""
    glyph, style = GLYPHS.get(verdict(findings) if findings else "", NOT_YET)
    return Content.assemble((f"{glyph} ", style), CHECKS[check])


def whole_lines(findings: Sequence[Finding], width: int) -> Iterator[Content]:
    """Every finding in full, failures first, `width` cells wide."""
    for finding in worst_first(in_order(findings)):
        yield from _wrapped(finding, width, LONG)


def _wrapped(finding: Finding, width: int, most: int = SHORT) -> Iterator[Content]:
    """A finding wrapped to `width`, each part cut at `most` characters."""
    glyph, style = GLYPHS[finding.level]
    room = max(12, width - LABEL - 2)
    advice = finding.advice if finding.level != "ok" else []
    parts = [(line, style) for line in wrapped(one_line(finding.message, most), room)]
    parts += [(line, "") for text in advice for line in wrapped(one_line(text, most), room)]
    head = Content.assemble((f"{glyph} ", style), f"{CHECKS[finding.check]:<{LABEL}}")
    for line in parts:
        yield head + Content.styled(*line)
        head = Content(" " * (LABEL + 2))


def worst(findings: Sequence[Finding]) -> Finding | None:
    bad = (finding for finding in worst_first(findings) if finding.level != "ok")
    return next(bad, None)


class Picker(Widget, can_focus=True):
    """One of several words: ``‹ ppo ›``; left and right change it."""

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

    cursor_y = 0
    """Line of the cursor in the widget."""

    def action_pick(self, by: int) -> None:
        if self.options:
            index = self.options.index(self.value) if self.value in self.options else -by
            self.value = self.options[(index + by) % len(self.options)]
            self.post_message(self.Changed(self))

    def on_click(self, event: Click) -> None:
        self.action_pick(-1 if event.x < 2 else 1)

    def render(self) -> Content:
        shown = one_line(self.value, 40)
        return Content.assemble(("‹ ", "$text-muted"), shown, (" ›", "$text-muted"))


class Field(Horizontal):
    """A label, an input, and its limits or its error."""

    def __init__(
        self,
        label: str,
        field: Input | Picker,
        limits: str = "",
        folded: bool = False,
        wide: bool = False,
    ) -> None:
        """`limits`: what is allowed; `folded`: whether it is shown only when the others are
        unfolded; `wide`: whether it has the room of two."""
        super().__init__(classes="field wide" if wide else "field")
        self.label, self.field, self.limits, self.folded = label, field, limits, folded
        self.offered = True
        """Whether the user can set it: the model's service has it, and it applies to this run."""
        self._limits_line = Static(limits, classes="limits")

    @property
    def key(self) -> str:
        """Id of the widget: a parameter's wire name."""
        return self.field.id or ""

    @property
    def typed(self) -> str:
        return self.field.value.strip()

    def compose(self) -> ComposeResult:
        yield Static(self.label, classes="label long" if len(self.label) > LABEL else "label")
        yield self.field
        if self.limits:
            yield self._limits_line

    def complain(self, wrong: bool) -> None:
        if wrong == self.has_class("wrong"):
            return
        self.set_class(wrong, "wrong")
        self._limits_line.update(f"✘ {self.limits}" if wrong else self.limits)


def _rank(field: Field) -> tuple[bool, bool]:
    """Order of the fields. Of the folded ones those with the room of two come first: a grid of two
    columns cuts one in half that begins in the second."""
    return field.folded, field.folded and not field.has_class("wide")


SEVERAL = ","
"""Separates several values of a field, which make the form a sweep's."""
LONGEST = 200


class RunForm(Grid):
    """Numbers are typed, words are picked; the limits are beside the field and turn into the error.

    Several comma-separated values make a sweep. The optimizer's fields are folded under one row.
    """

    @dataclass
    class Changed(Message):
        """Something was typed or picked."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.unfolded = False
        self.swept: dict[str, tuple[Value, ...]] = {}
        """The parameters with several values, as last read."""
        self.is_of_environment = False
        """Whether the run is on an environment of the user's own."""
        self._accepted: Mapping[str, Value] = {}
        """The parameters that the model's service accepts, with their defaults."""
        self.options: dict[str, Any] = {}
        """How its rollouts are made, as last read; fields of `Options`."""
        fields = (
            *map(field_of, FIELDS),
            field_of(RUNS_AT_ONCE),
            *map(_option_field, ROLLOUT_OPTIONS),
        )
        self._fields = sorted(fields, key=_rank)

    def compose(self) -> ComposeResult:
        yield from (field for field in self._fields if not field.folded)
        yield FoldRow("", id="fold", compact=True)
        yield from (field for field in self._fields if field.folded)

    def on_mount(self) -> None:
        self._fold()

    def fill(
        self,
        values: Mapping[str, Value],
        swept: Mapping[str, Sequence[Value]] | None = None,
        at_once: int = RUNS_AT_ONCE.usual,
    ) -> None:
        """Fill in values by their wire names; a field without one cannot be set, and is hidden.
        `swept`: parameters with several values, which replace those in `values`."""
        several = {key: f"{SEVERAL} ".join(map(write, them)) for key, them in (swept or {}).items()}
        self._accepted = values
        for field in self._fields:
            key = field.key
            if key == RUNS_AT_ONCE.name:
                field.field.value = str(at_once)
            elif key in values and isinstance(field.field, Picker):
                _fill_picker(field.field, write(values[key]), several.get(key))
            elif key in values:
                field.field.value = several.get(key) or write(values[key])
        self.offer_options(self.is_of_environment)

    def offer_options(self, is_of_environment: bool) -> None:
        self.is_of_environment = is_of_environment
        for field in self._fields:
            key, accepted = field.key, field.key in self._accepted
            driven = key in OF_ENVIRONMENT or (accepted and key in OF_DRIVEN)
            field.offered = driven if is_of_environment else accepted
        self.read()
        self._fold()

    def offer_losses(self, losses: Sequence[str]) -> None:
        """Set the choices of the loss; what was chosen stays, if it is among them."""
        picker = self.query_one("#loss_fn", Picker)
        chosen, swept = picker.value, [option for option in picker.options if SEVERAL in option]
        picker.options = (*swept, *losses)
        picker.value = chosen if chosen in picker.options else picker.options[0]
        self.read()

    def read(self) -> dict[str, Value] | None:
        """The values, the first one of several; None if a value is invalid, which is then marked.
        Afterwards `swept` has the parameters with several values."""
        values: dict[str, Value] = {}
        good = True
        swept: dict[str, tuple[Value, ...]] = {}
        options: dict[str, Any] = {}
        for field in self._offered():
            if (key := field.key) in _OPTIONS:
                try:
                    options |= read_option(_OPTIONS[key], field.typed)
                    field.complain(False)
                except ValueError:
                    field.complain(True)
                    good = False
                continue
            read = self._read_field(field)
            field.complain(read is None)
            field.set_class(read is not None and len(read) > 1, "several")
            if read is None:
                good = False
            elif key != RUNS_AT_ONCE.name:
                values[key] = read[0]
                swept |= {key: read} if len(read) > 1 else {}
        self.swept, self.options = swept, options
        at_once = next(each for each in self._fields if each.key == RUNS_AT_ONCE.name)
        at_once.offered = at_once.display = bool(swept)
        return values if good else None

    def _read_field(self, field: Field) -> tuple[Value, ...] | None:
        """One value, or several; None if one of them is invalid."""
        key, typed = field.key, field.typed
        if isinstance(field.field, Picker):
            if field.field.options == (NO, YES):
                return (typed == YES,)
            return tuple(word.strip() for word in typed.split(SEVERAL))
        try:
            if key == "loss_fn_config":
                return (read_loss_config(typed) or None,)
        except ValueError:
            return None
        return _typed_values(key, typed)

    def _is_set(self, field: Field) -> bool:
        if option := _OPTIONS.get(field.key):
            return field.typed != _initial(option)
        return self._read_field(field) not in ((None,), (False,), (DEFAULT,))

    @property
    def at_once(self) -> int:
        typed = self.query_one(f"#{RUNS_AT_ONCE.name}", Input)
        try:
            return int(RUNS_AT_ONCE.read(typed.value.strip()) or RUNS_AT_ONCE.usual)
        except ValueError:
            return int(RUNS_AT_ONCE.usual)

    @property
    def faults(self) -> list[str]:
        """The invalid fields, that with the cursor first, with what is allowed and an example."""
        wrong = [field for field in self._offered() if field.has_class("wrong")]
        wrong.sort(key=lambda field: not field.field.has_focus)
        return [self._expected(field) for field in wrong[:1]] + [field.label for field in wrong[1:]]

    def _expected(self, field: Field) -> str:
        """What may be typed in a field, e.g. ``Adam beta1: 0 to < 1, or empty, e.g. 0.9``."""
        row = ROWS[field.key]
        empty = ", or empty" if row.is_optional and row.is_number else ""
        usual = write(self._accepted.get(field.key))
        if field.key in _OPTIONS:
            usual = row.example or _initial(row)
        usual = usual or row.example
        example = f", e.g. {usual}" if usual else ""
        return f"{field.label}: {field.limits}{empty}{example}"

    def _offered(self) -> Iterable[Field]:
        return (field for field in self._fields if field.offered)

    def _fold(self) -> None:
        """Show the available fields; of the folded ones only their number."""
        folded = [field for field in self._offered() if field.folded]
        for field in self._fields:
            field.display = field.offered and (self.unfolded or not field.folded)
        button = self.query_one("#fold", Button)
        changed = sum(map(self._is_set, folded))
        count = f" · {changed} set" if changed else ""
        mark, more = ("▾", "fewer") if self.unfolded else ("▸", f"{len(folded)} more")
        named = "python, turns, runtime …" if self.is_of_environment else "loss config, Adam …"
        button.label = Content(f"{mark} {more}: {named}{count}")
        button.display = bool(folded)
        self.screen.set_class(self.unfolded, "-unfolded")

    @on(Button.Pressed, "#fold")
    def _fold_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.unfolded = not self.unfolded
        self._fold()
        self.screen.refresh_bindings()  # the last line says what the key does next

    def focus_first(self) -> None:
        next(iter(self._offered())).field.focus()

    def focus_fault(self) -> None:
        wrong = next((field for field in self._offered() if field.has_class("wrong")), None)
        if wrong is None:
            return
        if wrong.folded and not self.unfolded:
            self.unfolded = True
            self._fold()
        wrong.field.focus()

    @on(Input.Changed)
    @on(Picker.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        self.read()
        self.post_message(self.Changed())


@lru_cache(maxsize=1024)  # a key changes one field, and all are read again
def _typed_values(key: str, typed: str) -> tuple[Value, ...] | None:
    """What is typed for a parameter, one value or several; None if one of them is invalid."""
    try:
        if key == RUNS_AT_ONCE.name:
            return (RUNS_AT_ONCE.read(typed),)
        values = tuple(ROWS[key].read(word.strip()) for word in typed.split(SEVERAL))
        for value in values:
            parameters({key: value})  # the wire accepts less than the limits for some fields
    except ValueError:
        return None
    return values


class FoldRow(Button, inherit_bindings=False):
    """The row that shows the folded fields, or hides them."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("fold")

    def action_fold(self) -> None:
        self.press()

    def action_unfold(self) -> None:
        if not self.screen.has_class("-unfolded"):
            self.press()

    def action_close_fold(self) -> None:
        if self.screen.has_class("-unfolded"):
            self.press()


def _id(option: Parameter) -> str:
    """Id of an option's field: a sweep has an `at_once` of its own."""
    return f"rollouts-{option.name}"


_OPTIONS = {_id(option): option for option in ROLLOUT_OPTIONS}
ROWS = {row.name: row for row in (*FIELDS, RUNS_AT_ONCE)} | _OPTIONS
"""The rows of the fields, by the id of what is typed or picked."""
OF_DRIVEN = frozenset(row.name for row in taken_by(TRAIN, FIELDS))
OF_ENVIRONMENT = frozenset({*_OPTIONS, "max_tokens"})
"""What a run on an environment is asked of any service."""


def _option_field(row: Parameter) -> Field:
    typed = Input(_initial(row), id=_id(row), compact=True, max_length=LONGEST)
    return Field(row.title, typed, row.allowed, folded=True, wide=not row.is_number)


def field_of(row: Parameter) -> Field:
    is_folded = row.in_form == "folded"
    if is_picked(row):
        words = (NO, YES) if row.kind == "switch" else (DEFAULT, *row.choices)
        picker = Picker(() if row.name == LOSS else words, id=row.name)
        return Field(row.title, picker, folded=is_folded)
    kind = "number" if row.is_number else "text"
    typed = Input(id=row.name, compact=True, max_length=LONGEST, classes=kind)
    typed.placeholder = "–" if row.is_optional and row.is_number else ""
    return Field(row.title, typed, row.allowed, is_folded, wide=not row.is_number)


def _initial(option: Parameter) -> str:
    """What an option's field has at first."""
    return "" if option.is_optional or option.kind == "words" else write(option.usual)


def _fill_picker(picker: Picker, value: str, several: str | None) -> None:
    """Choose a value, or several; the choices of the loss come later, from the service."""
    options = (value,) if picker.id == "loss_fn" else picker.options
    if several is not None:
        options = (several, *(option for option in options if SEVERAL not in option))
        value = several
    picker.options = options
    picker.value = value if value in options else options[0]


class FilterField(Input):
    """A filter's input. It takes the focus only on request: otherwise a list without rows, as while
    they are read, would lose the focus to it, and action keys would be typed into it. Enter goes
    back to the rows."""

    def __init__(self, placeholder: str, id: str, rows: Widget) -> None:
        """`rows`: the list that it filters."""
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self.can_focus = self.display = False
        self.rows = rows

    def focus(self, scroll_visible: bool = True) -> FilterField:
        """Take the focus until the user leaves it."""
        self.can_focus = self.display = True
        super().focus(scroll_visible)
        return self

    def fill(self, text: str) -> None:
        """Set the filter; it is in sight unless it is empty."""
        self.value, self.display = text, bool(text)

    def leave(self) -> bool:
        """Esc: back to the rows; out of the input, clear it. Returns whether there was any."""
        typing, text = self.has_focus, self.value
        self.fill(text if typing else "")
        self.rows.focus()
        return typing or bool(text)

    def on_input_submitted(self) -> None:
        self.fill(self.value)
        self.rows.focus()

    def on_click(self, event: Click) -> None:
        self.focus()

    def on_blur(self, event: Blur) -> None:
        if self.app.app_focus:  # not when another window has the focus for a while
            self.can_focus = False


SUFFIXES = (".json", ".jsonl", ".py")
MOST_ENTRIES = 5000
"""Most entries of a directory that are read."""


class FileSuggester(Suggester):
    """Suggests directories, task files and environments: the first with the typed prefix."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return await to_thread(complete, value) if value else None


def complete(typed: str) -> str | None:
    """The first path with the typed prefix; None if there is none."""
    folder, _, begun = typed.rpartition("/")
    root = Path(expanduser(folder + "/" if "/" in typed else "."))
    try:
        names = sorted(
            entry.name + ("/" if entry.is_dir() else "")
            for entry, _ in zip(root.iterdir(), range(MOST_ENTRIES), strict=False)
            if entry.name.startswith(begun) and (entry.is_dir() or entry.suffix in SUFFIXES)
        )
    except OSError:
        return None
    hidden = begun.startswith(".")
    shown = [name for name in names if hidden or not name.startswith(".")]
    return typed + shown[0][len(begun) :] if shown else None
