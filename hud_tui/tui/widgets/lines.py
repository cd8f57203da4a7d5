"""LinesView: a pane that draws only visible lines and repaints only changed ones."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.message_pump import _MessagePumpMeta
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style as ContentStyle
from textual.visual import Visual
from textual.widget import Widget

from hud_tui.tui.keys import bindings

APART = 8
"""Least distance of two repainted stretches, cells."""
Cell = tuple[str, Style | None]
"""A text and its style."""
Toned = Callable[[str], Style]
"""A pane's style by its name."""


class _AbstractWidget(ABCMeta, _MessagePumpMeta):
    """Metaclass of a widget with abstract methods."""


class LinesView(ScrollView, metaclass=_AbstractWidget, inherit_bindings=False):
    """A pane with a fixed heading, scrolled up and down by its screen's keys.

    A subclass gives the number of lines and draws the requested ones. It calls `redraw` when their
    content changes.
    """

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = []
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--plain",
        "lines--strong",
        "lines--dim",
        "lines--faint",
        "lines--accent",
        "lines--second",
        "lines--warm",
        "lines--hot",
        "lines--rule",
        "lines--rule-focused",
        "lines--cursor",
        "lines--cursor-blurred",
    }

    headed = True
    """Whether its first row is the heading."""
    shown: reactive[tuple[Strip, ...]] = reactive((), repaint=False)
    """The visible lines, with the heading first."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tones: dict[str, Style] = {}
        self._drawn: tuple[Strip, ...] = ()
        """The visible lines as drawn, without the background."""
        self._ground: tuple[Style, int, int] | None = None
        """Of `shown`: background, width, and width with the place of the scrollbar."""
        self._grounded = Grounded(Style())
        self._ground_style: Style | None = None
        """`rich_style`, which takes all styles above the pane; None: to be looked up."""
        self._background = self.styles.background
        """That of the pane over all above it, looked up with it."""
        self._rules: tuple[object, ...] = ()
        """The styles that it was last drawn with, as `_restyle` compares them."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of lines below the heading."""

    @abstractmethod
    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        """These lines of the pane, each at most `width` cells."""

    def title(self, width: int) -> str:
        return ""

    @property
    def width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def body_rows(self) -> int:
        return max(0, self.size.height - self.headed)

    @property
    def page(self) -> int:
        return page_of(self.body_rows)

    def heading(self, width: int) -> Strip:
        """The first row, which does not scroll: the title in a rule."""
        rule = "━" if self.has_focus else "─"
        lines = self.tone("rule-focused" if self.has_focus else "rule")
        text = fit_text(self.title(width - 4), width - 4).rstrip()
        title = (f" {text} ", self.tone("strong" if self.has_focus else "dim"))
        return line((rule, lines), title, (rule * (width - cell_len(text) - 3), lines))

    def redraw(self) -> None:
        """Draw the visible lines, and repaint those that changed. Does nothing while not visible.

        Textual calls `on_resize` and `watch_…`; where one of them is another name of a method like
        this one, a subclass that overrides the method has to name them again.
        """
        width, height = self.width, self.size.height
        if not (width and height and self.is_attached):
            return
        count, top = self.count, self.scroll_offset.y
        resize_virtually(self, Size(width, count + self.headed))
        rows = range(top, min(count, top + self.body_rows))
        heading = [self.heading(width)] if self.headed else []
        lines = [*heading, *self.draw(width, rows)][:height]
        lines += [Strip([])] * (height - len(lines))
        self._show(lines)

    def resize_virtually(self) -> None:
        resize_virtually(self, Size(self.width, self.count + self.headed))

    def redraw_lines(self, lines: Iterable[int]) -> None:
        """As `redraw`, but only these lines below the heading, if they are visible."""
        drawn, width = [*self._drawn], self.width
        if not width:
            return
        for number in lines:
            row = number - self.scroll_offset.y + self.headed
            if self.headed <= row < len(drawn) and 0 <= number < self.count:
                [drawn[row]] = self.draw(width, range(number, number + 1))
        self._show(drawn)

    def _show(self, lines: Sequence[Strip]) -> None:
        """Show lines on the pane's background; what a row had, if it was drawn alike, stays."""
        if self._ground_style is None:
            self._ground_style, self._background = self.rich_style, self.background_colors[1]
        before, ground = self._drawn, (self._ground_style, self.width, self.size.width)
        if ground != self._ground:
            before, self._ground, self._grounded = (), ground, Grounded(self._ground_style)
        kept = zip(before, self.shown, lines, strict=False)
        grounded, widths = self._grounded, ground[1:]
        shown = [was if old == new else on_ground(new, grounded, *widths) for old, was, new in kept]
        shown += [on_ground(strip, grounded, *widths) for strip in lines[len(shown) :]]
        self._drawn, self.shown = tuple(lines), tuple(shown)

    def watch_shown(self, before: tuple[Strip, ...], now: tuple[Strip, ...]) -> None:
        if len(before) != len(now):
            self.refresh()
            return
        changed = [
            Region(start, row, stop - start, 1)
            for row, (old, new) in enumerate(zip(before, now, strict=True))
            if old is not new
            for start, stop in changed_cells(old, new)
        ]
        if changed:  # a slow terminal gets no more than that
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        return self.shown[y] if y < len(self.shown) else Strip.blank(self.width, self.rich_style)

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, which would look for borders, padding and tints of every line."""
        if self.styles.gutter or self.opacity < 1:
            return super().render_lines(crop)
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self._background) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    on_resize = on_show = redraw

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._ground_style = None
        if self.is_attached:
            self.call_later(self._restyle)  # the component styles are set only after this

    def _restyle(self) -> None:
        """Draw again if the styles have changed: Textual matches those of all panes of a screen
        whenever it is shown, or something above them gets a class or the focus."""
        parts = {name: styles.get_rules() for name, styles in self._component_styles.items()}
        rules = self.app.theme, self.rich_style, self.background_colors, parts
        if rules != self._rules:
            self._rules, self._ground_style = rules, None
            self._forget_styles()
            self.redraw()

    def _forget_styles(self) -> None:
        self._tones.clear()

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.redraw()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self.redraw()

    def tone(self, name: str) -> Style:
        """One of the pane's styles, e.g. ``dim``, for any background."""
        if name not in self._tones:
            self._tones[name] = self.get_component_rich_style(f"lines--{name}", partial=True)
        return self._tones[name]

    @property
    def cursor_tone(self) -> Style:
        return self.tone("cursor" if self.has_focus else "cursor-blurred")

    def under_cursor(self, parts: Iterable[tuple[str, Style]], width: int) -> Strip:
        """A line of styled texts in `width` cells, on the cursor's ground."""
        ground = Style(bgcolor=self.cursor_tone.bgcolor, bold=self.cursor_tone.bold)
        strip = line(*((text, style + ground) for text, style in parts))
        return strip.adjust_cell_length(width, ground)

    def scroll_rows(self, rows: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False)


def page_of(rows: int) -> int:
    """Lines that a page moves by where so many are visible: one stays in sight."""
    return max(1, rows - 1)


def revealed(line: int, top: int, rows: int) -> int:
    """The first visible line after scrolling from `top` just far enough to show a line where `rows`
    are visible; what is above the first row scrolls into view with that."""
    if rows and line >= top + rows:
        return line - rows + 1
    return 0 if line == 1 and rows > 1 else min(line, top)


def line(*parts: tuple[str, Style]) -> Strip:
    """A strip of styled texts; empty ones are left out."""
    return Strip([Segment(text, style) for text, style in parts if text])


class Grounded(dict[Style | None, Style]):
    """Each style over a background."""

    def __init__(self, ground: Style) -> None:
        self._ground = ground

    def __missing__(self, style: Style | None) -> Style:
        return self.setdefault(style, self._ground + style if style else self._ground)


def on_ground(strip: Strip, grounded: Grounded, width: int, room: int) -> Strip:
    """A line in at most `width` cells, on a background of exactly `room`."""
    if strip.cell_length > width:
        strip = strip.adjust_cell_length(width)
    cells = [(text, grounded[style]) for text, style, _ in strip if text]
    if strip.cell_length < room:
        cells.append((" " * (room - strip.cell_length), grounded[None]))
    return Strip(joined(cells), room)


def joined(cells: Iterable[Cell]) -> list[Segment]:
    """Styled texts as segments; neighbours of one style are one segment."""
    runs: list[Segment] = []
    texts: list[str] = []
    style: Style | None = None
    for text, own in cells:
        if texts and own is not style:
            runs.append(Segment("".join(texts), style))
            texts = []
        texts.append(text)
        style = own
    return [*runs, Segment("".join(texts), style)] if texts else runs


def changed_cells(old: Strip, new: Strip) -> list[tuple[int, int]]:
    """The stretches in which two lines of one width differ, left to right: first cell, last cell +
    1.

    Stretches less than APART apart are joined: moving a terminal's cursor takes bytes too.
    """
    width = new.cell_length
    if old.cell_length != width:
        return [(0, max(old.cell_length, width))]
    before, after = list(old), list(new)
    start, stop = _same_cells(before, after), width
    before.reverse()
    after.reverse()
    stop -= _same_cells(before, after)
    was, now = ("".join(text for text, *_ in reversed(line)) for line in (before, after))
    if not len(was) == len(now) == stop - start:
        return [(start, stop)]  # some character takes two cells
    styles = zip(_styles(before), _styles(after), strict=True)
    stretches: list[tuple[int, int]] = []
    for cell, (before_char, char, (before_style, style)) in enumerate(
        zip(was, now, styles, strict=True), start
    ):
        if before_char == char and (before_style is style or before_style == style):
            continue
        if stretches and cell - stretches[-1][1] < APART:
            stretches[-1] = stretches[-1][0], cell + 1
        else:
            stretches.append((cell, cell + 1))
    return stretches


def _styles(reversed_line: Sequence[Segment]) -> Iterator[Style | None]:
    """The style of each character, left to right."""
    return chain.from_iterable(repeat(s, len(text)) for text, s, _ in reversed(reversed_line))


def _same_cells(left: list[Segment], right: list[Segment]) -> int:
    """Remove the segments with which both lines begin; returns their cells."""
    pairs = enumerate(zip(left, right, strict=False))
    count = next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))
    cells = sum(cell_len(segment.text) for segment in left[:count])
    del left[:count], right[:count]
    return cells


def fit_text(text: str, width: int, right: bool = False) -> str:
    """Text in exactly `width` cells: padded, or cut with an ellipsis. `right`: aligned there."""
    room = width - (len(text) if text.isascii() else cell_len(text))
    if room < 0:
        return set_cell_size(text, max(0, width - 1)) + "…" * (width > 0)
    return " " * room + text if right else text + " " * room


def labelled(width: int, label: str, *parts: Content | str | tuple[str, str]) -> Content:
    """A line of details: a label in `width` cells, then what is said of it."""
    return Content.assemble((f"{label:<{width}}", "$text-muted"), *parts)


def cut_in_middle(text: str, width: int) -> str:
    """A name in at most `width` cells: forks of a sweep differ at the end."""
    kept = (width - 1) // 3
    return text if cell_len(text) <= width else f"{text[:kept]}…{text[-(width - 1 - kept) :]}"


def resize_virtually(view: ScrollView, size: Size) -> None:
    """Change the scrollable size without a layout of the screen.

    Setting `virtual_size` lays the whole screen out again, which costs more than a repaint.
    """
    if size != view.virtual_size:
        view.set_reactive(Widget.virtual_size, size)
        view._scroll_update(size)


class TextPane(ScrollView, can_focus=True, inherit_bindings=False):
    """A pane of lines without wrapping; Tab focuses it, and a list's keys scroll it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    class Resized(Message):
        """The width has changed, so the lines need a new layout."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Content] = ()

    @property
    def width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def plain(self) -> str:
        """The text, without its styles."""
        return "\n".join(line.plain for line in self.lines)

    def show(self, lines: Sequence[Content]) -> None:
        before, self.lines = self.lines, lines
        resize_virtually(self, Size(self.width, len(lines)))
        top = self.scroll_offset.y
        for y in range(self.size.height):
            if not _line(before, top + y).is_same(_line(lines, top + y)):
                self.refresh(Region(0, y, self.width, 1))

    def render_line(self, y: int) -> Strip:
        width, number = self.width, self.scroll_offset.y + y
        line = self._shaded(number)
        if not line or not width:
            return Strip.blank(width, self.rich_style).apply_offsets(0, number)
        text = line.truncate(width, ellipsis=True)
        strips = Visual.to_strips(
            self, text, width, 1, self.visual_style, apply_selection=False, pad=True
        )
        return strips[0].adjust_cell_length(width, self.rich_style).apply_offsets(0, number)

    def _shaded(self, number: int) -> Content:
        """A line, with its selected part in the selection's colours."""
        line, selection = _line(self.lines, number), self.text_selection
        span = None if selection is None else selection.get_span(number)
        if not line or span is None:
            return line
        style = ContentStyle.from_styles(self.screen.get_component_styles("screen--selection"))
        start, stop = span
        return line.stylize(style, start, len(line) if stop < 0 else stop)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The selected text, with its line breaks here."""
        return selection.extract(self.plain), "\n"

    def on_resize(self) -> None:
        resize_virtually(self, Size(self.width, len(self.lines)))
        self.post_message(self.Resized())

    def on_show(self) -> None:
        self.post_message(self.Resized())

    def action_move(self, rows: int) -> None:
        self.scroll_relative(y=rows, animate=False)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * page_of(self.size.height), animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)


def _line(lines: Sequence[Content], number: int) -> Content:
    return lines[number] if number < len(lines) else Content.empty()
