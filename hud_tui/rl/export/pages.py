"""Pieces of a page of Markdown: sections, tables, numbers and times."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import inf

from hud_tui.rl.counts import counted
from hud_tui.rl.export.names import code
from hud_tui.rl.tree import Tree, label


def section(name: str, parts: Iterable[str]) -> str:
    """A heading and its paragraphs; nothing at all without any."""
    found = list(parts)
    return "\n\n".join([f"## {name}", *found]) if found else ""


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are escaped already."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scored(tree: Tree, position: int | None) -> str:
    """A checkpoint and what its own weights scored."""
    if position is None:
        return "the base weights"
    own = tree.own(position)
    said = [f"held-out {_of(own.heldout, own.heldout_rollouts)}"] if own.heldout is not None else []
    said += [f"reward {_of(own.reward, own.sampled)}"] if own.reward is not None else []
    return f"{code(label(tree[position]), 60)} ({', '.join(said) or 'not sampled yet'})"


def _of(value: float, rollouts: int | None) -> str:
    """A mean, and how many rollouts it is of where that is known."""
    return f"{number(value)} of {counted(rollouts, 'rollout')}" if rollouts else number(value)


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
