"""Pieces of a page of Markdown: sections, tables, numbers and times."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import inf

from hud_tui.rl.export.names import code
from hud_tui.rl.tree import HELDOUT, label
from hud_tui.wire import Checkpoint


def section(name: str, parts: Iterable[str]) -> str:
    """A heading and its paragraphs; nothing at all without any."""
    found = list(parts)
    return "\n\n".join([f"## {name}", *found]) if found else ""


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are escaped already."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scored(node: Checkpoint | None) -> str:
    """A checkpoint and its rewards."""
    if node is None:
        return "the base weights"
    reward, heldout = node.mean_reward, node.metrics.get(HELDOUT)
    said = [f"reward {number(reward)}"] if reward is not None else []
    said += [f"held-out {number(heldout)}"] if heldout is not None else []
    return code(label(node), 60) + (f" ({', '.join(said)})" if said else "")


def duration(length: float) -> str:
    """Seconds in words, e.g. ``2 h 05 min``."""
    whole = int(max(0.0, min(length, 1e12)))
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole % 60:02} s"


def moment(stamp: float) -> str:
    """Unix seconds as a date and a time; a dash where unknown."""
    if not 0 < stamp < 2e11:
        return "–"
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def number(value: float) -> str:
    """A number to five digits."""
    if abs(value) == inf:
        return "∞" if value > 0 else "-∞"
    return f"{value:.5g}"
