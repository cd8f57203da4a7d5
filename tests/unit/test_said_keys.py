"""What the screens say of keys follows the keys in use: no text of theirs has one written out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hud_tui.tui
from hud_tui.keys import ACTIONS
from hud_tui.tui.screens.dialogs import KEYS, LABEL

KEY = r"(?:\^[a-z]|[C-Zac-z0-9/?!]|esc)"
"""A key, but A and B, which are the two that are compared."""
SAID = re.compile(rf"(?:^|[·:] ){KEY} \w+s\b|\bwith [0-9]\b|\([A-Z]\)")
"""E.g. ``z undoes``, ``: 1 chooses one``, ``with 2``, ``(H)``."""
FIXED = {"↑ ↓ choose · enter run · esc back", "tab next · esc cancel"}
"""Of a widget's own keys, which no action has."""


def _texts(file: Path) -> Iterator[str]:
    """The string constants of a module, but docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    said = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            yield node.value


def test_no_text_has_a_key_written_out() -> None:
    found = [
        f"{file.name}: {text}"
        for root in hud_tui.tui.__path__
        for file in Path(root).rglob("*.py")
        for text in _texts(file)
        if SAID.search(text) and text not in FIXED
    ]
    assert found == []


def test_the_scan_finds_what_it_is_for() -> None:
    for text in ("done · z undoes", "^r starts it", "nothing: / begins.", "launch with 2.", "(H)"):
        assert SAID.search(text), text
    for text in ("done · {checkpoints.undo} undoes", "B descends from A", "launch a new run"):
        assert not SAID.search(text), text
    assert max(len(one.label) for one in ACTIONS) < LABEL
    assert max(len(one.all_shown) for one in ACTIONS) < KEYS
