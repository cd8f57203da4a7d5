"""Capabilities of this terminal, derived from the environment and tmux; printing rows that suit it.

Nothing is sent to the terminal, because its answer could be mistaken for typed keys.

Source: COLORTERM and NO_COLOR as terminals and https://no-color.org define them; OSC 52 by the
manuals of the named terminals and of tmux (set-clipboard, client_termfeatures).
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from hud_tui.rl.findings import Finding
from hud_tui.rl.text import clean

SMALLEST = (40, 12)
"""Minimum columns and rows of the app."""
TMUX_S = 2.0
COPYING = ("kitty", "alacritty", "foot", "ghostty", "wezterm", "contour", "rio")
"""Terminals that accept OSC 52 by default, by TERM or TERM_PROGRAM."""
Colors = Literal["none", "16", "256", "truecolor"]
Copies = Literal["likely", "unlikely", "unknown"]
Ask = Callable[..., str]
"""Runs tmux with these arguments; returns its output, empty on failure."""


@dataclass(frozen=True)
class Terminal:
    is_terminal: bool
    term: str
    columns: int | None
    rows: int | None
    colors: Colors
    unicode: bool
    clipboard: Copies
    """Whether text copied with OSC 52 reaches the clipboard."""
    multiplexer: str
    """``tmux``, ``screen`` or empty."""

    def __str__(self) -> str:
        if not self.is_terminal:
            return "stdout is not a terminal"
        name = f"{self.term} in {self.multiplexer}" if self.multiplexer else self.term
        drawn = f"{self.colors} colours, {'Unicode' if self.unicode else 'ASCII'}"
        size = f"{self.columns}×{self.rows}"
        return f"{name}  {size}, {drawn}, clipboard by OSC 52: {self.clipboard}"


def terminal(
    environ: Mapping[str, str], size: os.terminal_size | None, encoding: str | None, ask: Ask
) -> Terminal:
    """`size`: of the terminal; None if there is none."""
    multiplexer = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    features = ask("display", "-p", "#{client_termfeatures}") if multiplexer == "tmux" else ""
    return Terminal(
        is_terminal=size is not None,
        term=environ.get("TERM", ""),
        columns=size.columns if size else None,
        rows=size.lines if size else None,
        colors=_colors(environ, "RGB" in features.split(",")),
        unicode=has_unicode(environ, encoding),
        clipboard=_clipboard(environ, multiplexer, ask),
        multiplexer=multiplexer,
    )


def this_terminal() -> Terminal:
    out = sys.__stdout__  # the app replaces sys.stdout
    return terminal(os.environ, _size(), out.encoding if out else None, ask_tmux)


def copy_advice(terminal: Terminal) -> str:
    """How to make copies reach the clipboard; empty if they may do so already."""
    if terminal.clipboard != "unlikely":
        return ""
    fixes = {
        "tmux": "tmux set -s set-clipboard on",
        "screen": "use tmux instead, or select with the mouse while holding shift",
    }
    return fixes.get(terminal.multiplexer, "select with the mouse while holding shift")


_finding = partial(Finding, "terminal", "warning")


def shortcomings(terminal: Terminal) -> Iterator[Finding]:
    """What keeps the app from drawing or copying properly."""
    if not terminal.is_terminal:
        return
    if terminal.term == "dumb":
        fix = "set TERM to what it is, or use --headless"
        yield _finding("TERM is dumb: the app cannot draw", fix=fix)
    columns, rows = terminal.columns or 0, terminal.rows or 0
    if columns < SMALLEST[0] or rows < SMALLEST[1]:
        problem = f"the terminal is {columns}×{rows}; the app needs {SMALLEST[0]}×{SMALLEST[1]}"
        yield _finding(problem, fix="enlarge the window, or use --headless")
    if terminal.term != "dumb" and terminal.colors not in ("256", "truecolor"):
        fix = "set TERM=xterm-256color, and COLORTERM=truecolor if it has that; unset NO_COLOR"
        yield _finding(f"{terminal.colors} colours: curves look alike", fix=fix)
    if not terminal.unicode:
        fix = "set LANG=C.UTF-8 where the terminal has Unicode; ASCII is drawn until then"
        yield _finding("no Unicode: curves are drawn in ASCII", fix=fix)
    if advice := copy_advice(terminal):
        yield _finding("what y copies may not reach the clipboard", fix=advice)


def ask_tmux(*words: str) -> str:
    """Output of a tmux command; empty on failure."""
    try:
        done = subprocess.run(
            ["tmux", *words], capture_output=True, text=True, timeout=TMUX_S, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _size() -> os.terminal_size | None:
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            if stream is not None and stream.isatty():
                return os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            continue
    return None


def _colors(environ: Mapping[str, str], tmux_has_rgb: bool) -> Colors:
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb"):
        return "none"
    if environ.get("COLORTERM") in ("truecolor", "24bit") or tmux_has_rgb or "direct" in term:
        return "truecolor"
    return "256" if "256color" in term or term.startswith(COPYING) else "16"


def has_unicode(environ: Mapping[str, str], encoding: str | None) -> bool:
    """Whether Unicode is drawn: by HUD_TUI_ASCII, else by TERM and the encoding."""
    if "HUD_TUI_ASCII" in environ:
        return environ["HUD_TUI_ASCII"] in ("", "0")
    return environ.get("TERM") != "linux" and "utf" in (encoding or "utf-8").lower()


def _clipboard(environ: Mapping[str, str], multiplexer: str, ask: Ask) -> Copies:
    if multiplexer == "screen" or environ.get("TERM") in ("linux", "dumb"):
        return "unlikely"
    if multiplexer == "tmux":  # "external" lets tmux itself copy, but not programs in it
        setting = ask("show", "-sv", "set-clipboard")
        return "likely" if setting == "on" else "unlikely" if setting else "unknown"
    names = f"{environ.get('TERM', '')} {environ.get('TERM_PROGRAM', '')}".lower()
    if environ.get("WT_SESSION") or any(name in names for name in COPYING):
        return "likely"
    return "unlikely" if environ.get("TERM_PROGRAM") == "Apple_Terminal" else "unknown"


MARKS = {
    "ok": ("✓", "+", 32),
    "warning": ("!", "!", 33),
    "failure": ("✗", "x", 31),
    "off": ("·", "-", 2),
}
"""For each kind of row: a glyph, its ASCII form, and its colour as an SGR code of ECMA-48."""
ASCII = str.maketrans({"×": "x", "·": "-", "→": ">", "…": "."})


def print_rows(rows: Iterable[tuple[str, object]], terminal: Terminal) -> None:
    """Print rows to stdout, adapted to the terminal: pairs of a key of `MARKS`, empty for a
    heading, and a text."""
    unicode, colored = terminal.unicode, terminal.colors != "none" and sys.stdout.isatty()
    for mark, value in rows:
        text = clean(value if unicode else str(value).translate(ASCII))
        glyph, plain_glyph, color = MARKS.get(mark, ("", "", 0))
        shown = glyph if unicode else plain_glyph
        shown = f"\x1b[{color}m{shown}\x1b[0m" if colored else shown
        print(f"  {shown} {text}" if mark else text)
