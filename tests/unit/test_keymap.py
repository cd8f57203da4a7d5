"""Other keys for actions: what the config file may say, and that the screens' texts follow them."""

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.keys import _character_to_key
from textual.message_pump import MessagePump

import hud_tui.tui
from hud_tui.cli.main import main
from hud_tui.config import read_config, read_keymap
from hud_tui.errors import BadTuning, HudUsage
from hud_tui.key_names import NAMED, key_of, read_key, spell, types_text
from hud_tui.keys import ACTIONS, key, keyed, of_view, remap
from hud_tui.tui.screens.dialogs import KEYS, LABEL

PRINTABLE = [chr(code) for code in range(33, 127)]
PACKAGE = Path(__file__).parents[2] / "hud_tui"


def test_a_character_s_name_is_textual_s() -> None:
    for character in (*PRINTABLE, " ", "é", "ß", "½"):
        assert key_of(character) == read_key(character) == _character_to_key(character), character
        assert types_text(key_of(character)), character


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("?", "question_mark"),
        ("^s", "ctrl+s"),
        ("ctrl+S", "ctrl+s"),
        ("shift+ctrl+left", "ctrl+shift+left"),
        ("esc", "escape"),
        ("pgup", "pageup"),
        ("shift+←", "shift+left"),
        ("alt+x", "alt+x"),
        ("slash", "slash"),
        ("F5", "f5"),
        ("+", "plus"),
        ("G", "G"),
    ],
)
def test_a_key_may_be_written_as_people_do(written: str, key: str) -> None:
    assert read_key(written) == key


def test_every_name_in_use_is_known_and_what_is_shown_can_be_written() -> None:
    for name in {*",".join(action.keys for action in ACTIONS).split(",")} | NAMED:
        assert read_key(name) == read_key(spell(name)) == name


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("shift+f", "write F"),
        ("ctrl+i", "same for it as for tab"),
        ("ctrl+m", "same for it as for enter"),
        ("ctrl+1", "do not send"),
        ("ctrl+shift+x", "do not send"),
        ("entre", "did you mean enter"),
        ("ctrl+lefft", "did you mean ctrl.left"),
        ("hyper+x", "no such key"),
        ("", "no such key"),
        ("\x1b", "no such key"),
        ("ab", "no such key"),
    ],
)
def test_a_key_that_cannot_come_is_refused(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_key(written)


@given(written=st.text(max_size=12))
def test_any_text_is_a_key_or_is_refused(written: str) -> None:
    try:
        found = read_key(written)
    except ValueError:
        return
    assert found
    assert "," not in found


def test_ids_are_quoted_or_tables_and_two_actions_may_change_places_or_share_a_key() -> None:
    nested = {"live": {"follow": "F", "cursor": {"-1": ["O", "left"]}}, "app.quit": "ctrl+w"}
    want = {"live.follow": "F", "live.cursor.-1": "O,left", "app.quit": "ctrl+w"}
    with pytest.raises(BadTuning, match=r"live\.outliers"):
        read_keymap(nested)
    assert read_keymap({**nested, "live.outliers": "f12"}) == {**want, "live.outliers": "f12"}
    keymap = read_keymap({"live.follow": "s", "live.smooth.1": "f"})
    assert keymap == {"live.follow": "s", "live.smooth.1": "f"}
    # In the run's form ↓ is the next field; in its list of tasksets, the next row.
    assert read_keymap({"list.move.1": ["down", "ctrl+n"]}) == {"list.move.1": "down,ctrl+n"}


def test_no_id_is_the_beginning_of_another() -> None:
    ids = [action.id for action in ACTIONS]
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z0-9_-]+)+", id_) for id_ in ids)
    assert not [(a, b) for a, b in combinations(sorted(ids), 2) if b.startswith(f"{a}.")]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('live.folow = "F"', r"keys.live.folow: .*did you mean live.follow\?"),
        ('live.follow = "entre"', r"keys.live.follow: entre: no such key; did you mean enter\?"),
        ("live.follow = 3", "keys.live.follow: expected a key"),
        ("live.follow = []", "keys.live.follow: expected a key"),
        ('live.follow = "s"', r"keys.live.follow: s is also the key of live.smooth.1"),
        ('live.follow = "q"', r"keys.live.follow: q is also the key of app.quit"),
        ('app.quit = "f"', r"keys.app.quit: f is also the key of .*\.\w+"),
        ('checkpoints.note = "j"', r"keys.checkpoints.note: j is also the key of list.move.1"),
        ('models.fork = "x"\nmodels.copy = "x"', r"x is also the key of models"),
        ('app.interrupt = "x"', "keys.app.interrupt: x types text in input fields"),
        ('"\\u001b[31m" = "x"', "unknown action"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "config.toml").write_text(f"[keys]\n{table}\n")
    with pytest.raises(HudUsage, match=said) as error:
        read_config(tmp_path)
    assert str(tmp_path / "config.toml") in error.value.message
    assert "\x1b" not in error.value.message


def test_what_is_said_of_keys_follows_the_keymap() -> None:
    remap({"jobs.open": "space", "app.view.launch": "f2,L"})
    try:
        assert keyed("{^jobs.open}, then {app.view.launch}") == "Space, then f2"
        assert key("jobs.leave") == "esc"
        assert next(a for a in of_view("app") if a.id == "app.view.launch").all_shown == "f2 L"
    finally:
        remap({})
    assert keyed("{^jobs.open}, then {app.view.launch}") == "Enter, then 2"


def test_text_names_actions_that_there_are() -> None:
    views, action_ids = {action.view for action in ACTIONS}, {action.id for action in ACTIONS}
    for file in PACKAGE.glob("tui/**/*.py"):
        text = file.read_text()
        named = re.findall(r"\{\^?([a-z]+\.[a-z_.0-9-]+)\}|key\([\"']([a-z.]+)[\"']\)", text)
        ids = {one or other for one, other in named if (one or other).partition(".")[0] in views}
        assert ids - action_ids <= _attributes(text), file


def _attributes(text: str) -> set[str]:
    """What f-strings show of local values that are called as a view is."""
    return {
        one
        for found in re.findall(r"f\"[^\"]*\"", text)
        for one in re.findall(r"\{([a-z_.]+)\}", found)
    }


def test_the_command_lists_every_key_and_refuses_what_the_app_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUD_TUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text('[keys]\nlive.follow = ["F", "f6"]\n')
    assert main(["--headless", "keys"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["id"]: row for row in document["data"]["keys"]}
    assert document["kind"] == "keys"
    assert list(rows) == [action.id for action in ACTIONS]
    assert rows["live.follow"]["keys"] == ["F", "f6"]
    assert rows["live.follow"]["changed"] is True
    assert rows["app.help"] == {
        "id": "app.help",
        "view": "app",
        "keys": ["question_mark", "f1"],
        "shown": "? f1",
        "label": "help",
        "does": "All keys of this view; Enter runs one.",
        "changed": False,
    }
    assert main(["keys", "live"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(of_view("live"))
    assert any(re.match(r"live\.follow +F f6 +Follow the newest", line) for line in lines)

    monkeypatch.setenv("HUD_TUI_CONFIG_DIR", str(tmp_path))
    assert main(["keys", "nowhere"]) == 2
    assert "known: panel" in capsys.readouterr().err
    (tmp_path / "config.toml").write_text("[keys]\nlive.folow = 'x'\n")
    assert main(["--headless", "keys"]) == 2
    assert "did you mean live.follow" in json.loads(capsys.readouterr().out)["error"]["message"]


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
    assert max(len(one.label) for one in ACTIONS) <= LABEL
    assert max(len(one.all_shown) for one in ACTIONS) <= KEYS


def test_no_method_of_a_widget_or_screen_is_called_by_a_key() -> None:
    """Textual calls a method ``key_at`` when ``@`` is pressed, which is named ``at``."""
    for module in pkgutil.walk_packages(hud_tui.tui.__path__, "hud_tui.tui."):
        importlib.import_module(module.name)
    pumps = [MessagePump]
    for pump in pumps:
        pumps += pump.__subclasses__()
    own = [pump for pump in pumps if pump.__module__.startswith("hud_tui.")]
    assert len(own) > 50
    called = {
        f"{pump.__name__}.{name}"
        for pump in own
        for name in vars(pump)
        if re.match(r"_?key_[a-z]", name)
    }
    assert called == set()
