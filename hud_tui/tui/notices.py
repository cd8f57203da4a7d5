"""Notices: what is said at the bottom of any view for a few seconds."""

from __future__ import annotations

from textual.app import App
from textual.notifications import Notification

from hud_tui.errors import START_AGAIN, HudError
from hud_tui.keys import keyed
from hud_tui.rl.text import clean

ALARM = "⚑"
"""How the notice of an alarm begins."""
MOST_NOTICES = 3
"""Seen at once: more would lie over what they are about."""


def tell(app: App[None], error: HudError) -> None:
    """Show a failure with what to do next."""
    message, hint = error.message, error.hint
    if hint == START_AGAIN:  # the app can do that itself
        message, hint = "The service does not answer.", keyed("{app.reconnect} starts it")
    text = clean(f"{message}\n{hint}".strip(), 600)
    app.notify(text, severity="error", markup=False, timeout=10)


def say(app: App[None], text: str) -> None:
    """Show a line for a few seconds."""
    app.notify(clean(text, 200), markup=False)


def superseded(notice: Notification, shown: list[Notification]) -> list[Notification]:
    """The notices that make room for a new one: what tells of the same, then the oldest of too
    many. Alarms go before the others, which answer a key, and stay in their own view."""
    alike = [one for one in shown if _subject(one) == _subject(notice)]
    others = sorted(
        (one for one in shown if one not in alike),
        key=lambda one: not one.message.startswith(ALARM),
    )
    return [*alike, *others[: max(0, len(others) + 1 - MOST_NOTICES)]]


def _subject(notice: Notification) -> tuple[str, str]:
    """What a notice is about: its first line, without the figures that follow."""
    return notice.title, notice.message.partition("\n")[0]
