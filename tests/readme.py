"""Parts of docs, made from the program, so that they cannot drift from it: the page of keys, and
the columns of the table of runs.

Run: python -m tests.readme   writes them; the tests compare.
"""

import re
from pathlib import Path

from hud_tui.keys import ACTIONS, MEANINGS, Action
from hud_tui.rl.run_columns import COLUMNS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
KEYS = ROOT / "docs" / "keys.md"
GUIDE = ROOT / "docs" / "guide.md"
PLACES = {
    "app": "Everywhere",
    "list": "In a list",
    "picker": "In a field of choices",
    "fold": "On the row of a form's other fields",
    "dialog": "In a dialog",
    "panel": "In a panel",
    "history": "In the head's history",
    "submit": "Before a run is submitted",
    "head": "Before the head is set",
    "compare": "In a comparison of two checkpoints",
    "connect": "While connecting",
    "json": "In a JSON document",
    "log": "In the command log",
    "machines": "In the list of machines",
    "charts": "Live: the list of charts",
    "group": "Live: one group",
    "overlays": "Live: what to compare with",
    "columns": "Runs: the list of columns",
    "compared": "Runs: several in one chart",
}
"""What the page calls the places that are not one of the seven views."""


def keys() -> str:
    """The keys of every place, as Markdown tables."""
    places = dict.fromkeys(action.view for action in ACTIONS)
    return "\n".join(_table(place) for place in places)


def meanings() -> str:
    """What each key means, as a Markdown table; keys that mean the same share a row."""
    rows: dict[str, list[str]] = {}
    for key, meaning in MEANINGS.items():
        rows.setdefault(meaning, []).append(f"<kbd>{key}</kbd>")
    lines = [f"| {' '.join(keys)} | {meaning} |" for meaning, keys in rows.items()]
    return "\n".join(["| key | meaning |", "|---|---|", *lines, ""])


def keys_page(text: str) -> str:
    """The page with both of its generated parts as they should be."""
    return with_part(with_part(text, "meanings", meanings()), "keys", keys())


def columns() -> str:
    """The columns of the table of runs, as a Markdown table."""
    lines = [f"| `{each.key}` | {each.long_title} | {each.meaning} |" for each in COLUMNS.values()]
    return "\n".join(["| column | title | what it is |", "|---|---|---|", *lines, ""])


def guide_page(text: str) -> str:
    """The guide with its generated part as it should be."""
    return with_part(text, "columns", columns())


def with_part(text: str, name: str, part: str) -> str:
    """A page's text with one generated part put between its markers.

    Raises:
        ValueError: The markers are not there.
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no part {name}")
    return pattern.sub(lambda match: f"{match[1]}{part}\n{match[2]}", text)


def _table(place: str) -> str:
    rows = [_row(action) for action in ACTIONS if action.view == place]
    title = PLACES.get(place, place.capitalize())
    return "\n".join([f"| {title} | | |", "|---|---|---|", *rows, ""])


def _row(action: Action) -> str:
    shown = " ".join(f"<kbd>{key}</kbd>" for key in action.all_shown.split())
    return f"| {shown} | {action.help.replace('|', chr(92) + '|')} | `{action.id}` |"


if __name__ == "__main__":
    KEYS.write_text(keys_page(KEYS.read_text()))
    GUIDE.write_text(guide_page(GUIDE.read_text()))
