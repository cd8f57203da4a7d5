"""Film: screens of the app, one after the other, as one SVG that plays by itself.

It plays wherever an SVG is shown as a picture, without scripts, and says of each screen which keys
led there. A row that several screens have is drawn once. Where motion is not wanted, the first
screen stands.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from xml.sax.saxutils import escape

from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME as THEME
from textual.screen import Screen

WIDTH, HEIGHT, BASELINE = 12.04, 23.2, 17.6
"""Of a cell, and from its top to the baseline; a font of 20 with the shape of most terminals'."""
MARGIN, CAPTION = 14.0, 62.0
INK, QUIET, PANEL = "#e0e0e0", "#9aa0a6", "#101014"
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SANS = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"


@dataclass(frozen=True)
class Look:
    """How a run of cells is drawn."""

    ink: str
    ground: str
    bold: bool = False
    italic: bool = False
    underline: bool = False


Row = tuple[tuple[str, Look], ...]


@dataclass(frozen=True)
class Shot:
    """A screen, and what is said below it."""

    rows: tuple[Row, ...]
    seconds: float
    keys: tuple[str, ...]
    caption: str


def shot(screen: Screen[object], seconds: float, keys: Sequence[str], caption: str) -> Shot:
    """The screen as it is drawn now."""
    rows = [_row(strip) for strip in screen._compositor.render_strips()]
    return Shot(tuple(rows), seconds, tuple(keys), caption)


def _row(segments: Iterable[Segment]) -> Row:
    runs: list[tuple[str, Look]] = []
    for text, style, _ in segments:
        look = _look(style or Style.null())
        if runs and runs[-1][1] == look:
            runs[-1] = runs[-1][0] + text, look
        else:
            runs.append((text, look))
    return tuple(runs)


def _look(style: Style) -> Look:
    ink, ground = _rgb(style.color, True), _rgb(style.bgcolor, False)
    if style.reverse:
        ink, ground = ground, ink
    if style.dim:
        ink = blend_rgb(ink, ground, 0.5)
    emphasis = bool(style.bold), bool(style.italic), bool(style.underline)
    return Look(ink.hex, ground.hex, *emphasis)


def _rgb(color: Color | None, is_ink: bool) -> ColorTriplet:
    if color is None:
        return THEME.foreground_color if is_ink else THEME.background_color
    return color.get_truecolor(THEME, is_ink)


class Film:
    """The SVG of some shots of one size."""

    def __init__(self, shots: Sequence[Shot], title: str) -> None:
        self._shots, self._title = shots, title
        self._classes: dict[str, str] = {}
        """Names of the rules that say how cells look."""
        self._rows: dict[str, str] = {}
        """Ids of what is drawn more than once, by what it is."""
        grounds = Counter[str]()
        for shot in shots:
            for text, look in chain.from_iterable(shot.rows):
                grounds[look.ground] += len(text)
        self._ground = grounds.most_common(1)[0][0]
        self.seconds = sum(shot.seconds for shot in shots)

    def svg(self) -> str:
        columns = sum(len(text) for text, _ in self._shots[0].rows[0])
        wide = columns * WIDTH + 2 * MARGIN
        screen = len(self._shots[0].rows) * HEIGHT
        high = screen + MARGIN + CAPTION
        frames = [self._frame(number, wide, screen) for number in range(len(self._shots))]
        rows = [f'<g id="{name}">{drawn}</g>' for drawn, name in self._rows.items()]
        size = f'viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{self._style()}</style>",
                f"<defs>{''.join(rows)}</defs>",
                f'<rect width="100%" height="100%" rx="10" fill="{PANEL}"/>',
                f'<rect width="{wide:.0f}" height="{screen + MARGIN:.0f}" rx="10"'
                f' fill="{self._ground}"/>',
                *frames,
                f'<rect class="now" y="{high - 4:.1f}" width="{wide:.0f}" height="3"/>',
                "</svg>\n",
            ]
        )

    def _style(self) -> str:
        rules = [
            f"text{{font:20px {FONT};white-space:pre}}defs rect{{shape-rendering:crispEdges}}",
            f".key{{fill:{INK};font-weight:bold}}.say{{fill:{INK};font:20px {SANS}}}",
            f".cap{{fill:none;stroke:{QUIET}}}",
            *(f".{name}{{{rule}}}" for rule, name in self._classes.items()),
            f".now{{fill:{QUIET};animation:now {self.seconds:g}s linear infinite}}",
            "@keyframes now{from{transform:scaleX(0)}to{transform:scaleX(1)}}",
            ".f{visibility:hidden}#f0{visibility:visible}",
        ]
        begin = 0.0
        for number, shot in enumerate(self._shots):
            start, begin = begin / self.seconds, begin + shot.seconds
            rules.append(
                f"#f{number}{{animation:f{number} {self.seconds:g}s step-end infinite}}"
                f"@keyframes f{number}{{{_shown(start, begin / self.seconds)}}}"
            )
        return "\n".join(
            [*rules, "@media(prefers-reduced-motion){.f,.now{animation:none!important}}"]
        )

    def _frame(self, number: int, wide: float, screen: float) -> str:
        shot, parts = self._shots[number], list[str]()
        for y, row in enumerate(shot.rows):
            if drawn := self._drawn(row):
                name = self._rows.setdefault(drawn, f"r{len(self._rows)}")
                top = MARGIN / 2 + y * HEIGHT
                parts.append(f'<use href="#{name}" x="{MARGIN:g}" y="{top:.1f}"/>')
        parts.append(_caption(shot, screen + MARGIN))
        return f'<g class="f" id="f{number}">{"".join(parts)}</g>'

    def _drawn(self, row: Row) -> str:
        """A row at the top left: the ground of its cells, and its text."""
        x, grounds, texts = 0, list[str](), list[str]()
        for text, look in row:
            left, cells = x * WIDTH, len(text)
            x += cells
            if look.ground != self._ground:
                ground = self._class(f"fill:{look.ground}")
                grounds.append(
                    f'<rect class="{ground}" x="{left:.2f}" width="{cells * WIDTH + 0.3:.2f}"'
                    f' height="{HEIGHT + 0.3:.1f}"/>'
                )
            if text.strip() or look.underline:
                texts.append(self._text(text, look, left))
        return "".join([*grounds, *texts])

    def _text(self, text: str, look: Look, left: float) -> str:
        rule = f"fill:{look.ink}"
        rule += ";font-weight:bold" if look.bold else ""
        rule += ";font-style:italic" if look.italic else ""
        rule += ";text-decoration:underline" if look.underline else ""
        shown = text if look.underline else text.rstrip()
        begins = shown if look.underline else shown.lstrip()
        left += (len(shown) - len(begins)) * WIDTH
        return (
            f'<text class="{self._class(rule)}" x="{left:.2f}" y="{BASELINE}"'
            f' textLength="{len(begins) * WIDTH:.2f}" lengthAdjust="spacingAndGlyphs">'
            f"{escape(begins)}</text>"
        )

    def _class(self, rule: str) -> str:
        return self._classes.setdefault(rule, f"c{len(self._classes)}")


def _shown(start: float, end: float) -> str:
    """Keyframes of what is seen from `start` to `end`, shares of the whole."""
    moments = {0.0: "hidden", start: "visible", end: "hidden"}
    return "".join(f"{at:.3%}{{visibility:{value}}}" for at, value in sorted(moments.items()))


def _caption(shot: Shot, top: float) -> str:
    """The keys as caps, and what they do."""
    x, parts, middle = MARGIN, list[str](), top + (CAPTION - 4) / 2
    for key in shot.keys:
        wide = len(key) * WIDTH + 18
        parts.append(
            f'<rect class="cap" x="{x:.1f}" y="{middle - 17:.1f}" width="{wide:.1f}" height="34"'
            f' rx="6"/><text class="key" x="{x + 9:.1f}" y="{middle + 7:.1f}">{escape(key)}</text>'
        )
        x += wide + 8
    said = f'<text class="say" x="{x + 6:.1f}" y="{middle + 7:.1f}">{escape(shot.caption)}</text>'
    return "".join([*parts, said])
