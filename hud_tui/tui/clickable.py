"""What is said of keys, as something to click: a click does what the key does, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.content import Content
from textual.style import Style

from hud_tui.keys import ACTIONS, VIEWS, Action, key, keyed

_PARTS = re.compile(r"( {2,}|\n)")
_ID = re.compile(r"\{\^?([a-z]+\.[a-z_.0-9-]+)\}")
_BY_ID = {action.id: action for action in ACTIONS}


def click(action: Action) -> Style:
    """The style of a text that does the action when it is clicked."""
    return does(f"{'app' if action.view == 'app' else 'screen'}.{action.name}")


def does(action: str) -> Style:
    """The same by the action's full name, e.g. ``app.view('live')``."""
    return Style.from_meta({"@click": action})


def clicked(text: Content | str, id_: str) -> Content:
    """A text that does the action of this id when it is clicked."""
    content = Content(text) if isinstance(text, str) else text
    return content.stylize(click(_BY_ID[id_]))


def pressed(id_: str) -> Content:
    """The key in use of an action, in a sentence that says to press it."""
    return clicked(Content.styled(key(id_), "bold $accent"), id_)


def shows_view(action: Action) -> bool:
    """Whether it goes to one of the views."""
    return action.name.startswith("view(") or action.name in VIEWS


def foot(text: str) -> Content:
    """Our own text of keys, e.g. ``{group.copy} copy  {group.leave} back``, each to be clicked.

    Two blanks are between one key with what it does and the next; where several keys share
    what is said, only they themselves can be clicked.
    """
    return Content.assemble(*(part for each in _PARTS.split(text) for part in _keys(each)))


def _keys(part: str) -> Iterator[Content]:
    ids: list[str] = _ID.findall(part)
    if len(ids) == 1:
        yield clicked(keyed(part), ids[0])
        return
    place = 0
    for found in _ID.finditer(part):
        yield Content(part[place : found.start()])
        yield clicked(keyed(found[0]), found[1])
        place = found.end()
    yield Content(part[place:])
