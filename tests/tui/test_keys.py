"""The table of keys: what is shown works, what works is shown, and other keys than the usual."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from textual.actions import parse

from hud_tui.cli.main import main
from hud_tui.config import LISTS, read_keymap
from hud_tui.key_names import spell
from hud_tui.keys import ACTIONS, VIEWS, of_view
from hud_tui.tui import screens
from hud_tui.tui.app import HudApp
from hud_tui.tui.keys import KeyLine, bindings, key_line, use_keymap
from hud_tui.tui.run_draft import SubmitDialog
from hud_tui.tui.screens.bisect import BisectPanel
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.dialogs import BESIDE, ConfirmDialog, Panel, Viewed
from hud_tui.tui.screens.palette import Palette
from hud_tui.tui.screens.set_head import HeadDialog, HistoryPanel
from hud_tui.tui.screens.ship import ShipPanel
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import FoldRow, Picker
from hud_tui.tui.widgets.table import RowList
from tests.conftest import Served
from tests.readme import KEYS
from tests.tui.conftest import Connector, Opened, helped, opened


def viewed() -> Iterator[type[Viewed[Any]]]:
    """Every class of the program that has a view's name."""
    for module in iter_modules(screens.__path__, f"{screens.__name__}."):
        import_module(module.name)
    classes: list[type[Viewed[Any]]] = [Viewed]
    for each in classes:
        classes += each.__subclasses__()
        if "VIEW" in vars(each) and each.__module__.startswith(screens.__name__):
            yield each


HOLDERS: dict[str, type] = {
    "app": HudApp,
    "list": RowList,
    "picker": Picker,
    "fold": FoldRow,
    "dialog": ConfirmDialog,
    "panel": ComparePanel,
    "history": HistoryPanel,
    "submit": SubmitDialog,
    "head": HeadDialog,
    "ship": ShipPanel,
    "bisect": BisectPanel,
    **{each.VIEW: each for each in sorted(viewed(), key=lambda each: each.__name__)},
}


@pytest.mark.parametrize("view", HOLDERS)
def test_every_action_has_a_method_and_says_what_it_does(view: str) -> None:
    for action in (one for one in ACTIONS if one.view == view):
        name = action.name.partition("(")[0]
        assert callable(getattr(HOLDERS[view], f"action_{name}", None)), action.id
        assert action.help.endswith("."), action.id
        assert len(action.label.split()) <= 3, action.id
        assert action.shown, action.id


def test_every_action_is_of_a_holder_and_has_an_id_of_its_own() -> None:
    assert {action.view for action in ACTIONS} <= HOLDERS.keys()
    assert [id_ for id_, count in Counter(a.id for a in ACTIONS).items() if count > 1] == []


@pytest.mark.parametrize("view", HOLDERS)
def test_no_key_is_bound_twice(view: str) -> None:
    """Neither within a view, nor in a view and the app, which would hide the app's."""
    keys = Counter(key for action in of_view(view) for key in action.keys.split(","))
    if view in VIEWS:
        keys.update(key for action in of_view("app") for key in action.keys.split(","))
    assert [key for key, count in keys.items() if count > 1] == []


WAYS: dict[str, set[str]] = {
    "[": {"cursor(-1)", "step(-1)"},
    "]": {"cursor(1)", "step(1)"},
    "g": {"first", "edge(-1)"},
    "G": {"last", "edge(1)"},
    "/": {"filter", "search"},
    "0": {"zoom(0)", "reset"},
    "↑ k": {"move(-1)", "move(0, -1)", "field(-1)"},
    "↓ j": {"move(1)", "move(0, 1)", "field(1)"},
    "← h": {
        *("cursor(-1)", "move(-1, 0)", "rollout(-1)", "pick(-1)", "columns(-1)"),
        *("fold", "close_fold"),
    },
    "→ l": {"cursor(1)", "move(1, 0)", "rollout(1)", "pick(1)", "columns(1)", "unfold"},
    "enter": {"open", "choose", "enlarge", "fold", "field(1)"},
    "space": {
        *("play", "acknowledge", "fold", "leave_out", "mark", "open", "pick(1)", "show_or_hide"),
        "take_over",
    },
    "esc": {"leave", "close"},
    "a": {"fold_all", "charts", "arrange"},
    "e": {"edit", "note"},
    "E": {"baseline", "evaluate"},
    "o": {"order", "arrange"},
    "q": {"quit", "leave"},
    "T": {"try", "let_policy"},
    "R": {"resume_run", "resume_job", "resume_evaluation", "resume_sampling"},
    "X": {"cancel_run", "cancel_job", "cancel_evaluation", "cancel_sampling"},
}
"""Keys that do their one thing in several ways, and what each is called; all others have one."""


def test_a_key_means_one_thing_in_every_view() -> None:
    """The page of keys says what, once; a dialog and the first screen ask a question, and letters
    answer it."""
    found: dict[str, set[str]] = {}
    for action in ACTIONS:
        for key in action.keys.split(",") if action.view not in ("dialog", "connect") else ():
            found.setdefault(spell(key), set()).add(action.name)
    several = {key: ways for keys, ways in WAYS.items() for key in keys.split()}
    for key, names in found.items():
        assert len(names) == 1 or names <= several.get(key, set()), key
    page, _, _ = KEYS.read_text().partition("<!-- keys -->")
    rows = [row for row in page.splitlines() if row.startswith("| <kbd>")]
    told = [key for row in rows for key in re.findall(r"<kbd>(.+?)</kbd>", row)]
    assert sorted(told) == sorted(found)


@pytest.mark.parametrize("view", HOLDERS)
def test_every_holder_binds_its_part_of_the_table(view: str) -> None:
    bound = {
        binding.id for _, binding in HOLDERS[view]._merged_bindings or HOLDERS[view]()._bindings
    }
    assert {action.id for action in of_view(view)} <= bound
    assert len(bindings(view)) == len(of_view(view))


@pytest.mark.parametrize("view", VIEWS)
def test_the_key_line_fits_and_keeps_help(view: str) -> None:
    shown = [action for action in of_view(view) if action.footer]
    for width in (200, 120, 80, 40, 12):
        line = key_line(shown, width)
        assert line.cell_length <= width
        assert "? help" in line.plain
        if width >= 80:
            assert f"{shown[0].shown} {shown[0].label}" in line.plain
    typing = key_line(of_view("models"), 80, typing=True).plain
    assert "F fork" not in typing, "a field takes the letters"
    assert "esc back" in typing
    assert "f1 help" in typing


async def test_help_lists_every_key_of_the_view_once(served: Served) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 60)) as app:
        for view in ("models", "launch", "live", "jobs"):
            await app.press(str(VIEWS.index(view) + 1), then=view)
            await app.until(lambda: app.screen.is_mounted)
            can = [a for a in of_view(view) if app.screen.check_action(*parse(a.name)[1:])]
            await app.press("question_mark")
            await app.until(lambda: app.screen.query("#help-list"))
            listed = " ".join(helped(app.screen))
            for action in [*can, *of_view("app")]:
                assert action.help in listed
                assert action.all_shown in listed
            await app.press("escape", then=view)
        await app.press("C", then="log")  # a page, which takes a key from the app
        await app.press("question_mark")
        await app.until(lambda: app.screen.query("#help-list"))
        listed = helped(app.screen)
        [row] = [row for row in listed if "q" in row.split()[:2]]
        assert row.startswith("esc q back ")
        assert any(row.startswith("^c ^q") for row in listed)


async def test_help_tells_what_a_key_does_beside_it_however_narrow(served: Served) -> None:
    async with opened(Connector(served), Start("models"), size=(60, 24)) as app:
        await app.until_view("models")
        await app.press("question_mark")
        await app.until(lambda: app.screen.query("#help-list"))
        shown = app.screen.query_one(RowList)

        def lines() -> list[str]:
            return [shown.render_line(y).text for y in range(shown.size.height)]

        await app.until(lambda: len(lines()) > 9 and "…" not in "".join(lines()))
        beside = 1 + BESIDE
        assert any(row[:beside].isspace() and not row.isspace() for row in lines())
        assert all(row[beside - 1] == " " for row in lines())
        helps = [row[beside:] for row in lines()]
        assert all(len(row.rstrip()) < len(row) for row in helps), "none is cut"
        assert "esc back" in str(app.screen.query_one("#help").border_subtitle)


async def test_help_is_searched_and_does_what_is_chosen(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        await app.press("f1", *"dark")
        await app.until(lambda: len(helped(app.screen)) == 1)
        await app.press("enter")
        await app.until(lambda: app.app.theme == "hud-light")
        await app.press("question_mark", "down", "up", "up", "down", *"nothing", "enter")
        await app.until_view("models")


async def test_the_palette_does_not_stay_behind_in_a_view_that_is_left(served: Served) -> None:
    """What a worker has read may change the view while it is open; there can be one of it."""
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        await app.open(Palette, "ctrl+p")
        await app.app.action_view("jobs")
        await app.until_view("jobs")
        await app.open(Palette, "ctrl+p")
        await app.press("escape", "1", then="models")
        app.app.action_command_palette()  # and the view is changed before it is there
        await app.app.action_view("jobs")
        await app.until_view("jobs")


async def test_a_screen_is_dismissed_once(served: Served) -> None:
    """Not one that lies on it, nor the view under it; the first result counts."""
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        heard: list[object] = []
        lower, upper = Panel("lower"), Panel("upper")
        await app.app.push_screen(lower, heard.append)
        await app.app.push_screen(upper, heard.append)
        lower.dismiss("first")
        lower.dismiss("second")
        assert app.screen is upper
        upper.dismiss("upper")
        upper.dismiss("again")
        await app.until_view("models")
        assert heard == ["upper", "first"]


@contextmanager
def remapped(app: Opened, table: dict[str, object]) -> Iterator[None]:
    use_keymap(app.app, read_keymap(table))
    try:
        yield
    finally:
        use_keymap(app.app, {})


async def test_a_view_is_on_another_key_or_on_that_of_another(served: Served) -> None:
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        with remapped(app, {"app.view.live": ["f8", "f7"], "app.help": "f9"}):
            await app.until_view("models")
            await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("3")
            assert app.screen.VIEW == "models"
            await app.press("f8", then="live")
            await app.press("1", then="models")
            await app.until(lambda: isinstance(app.screen.focused, RowList))
            await app.press("f7", then="live")
            await app.until(lambda: "f8 Live" in _line(app) and "f9 help" in _line(app))
            await app.press("f9")
            await app.until(lambda: app.screen.query("#help-list"))
            listed = helped(app.screen)
            assert any(row.startswith("f8 f7") and "Watch the run" in row for row in listed)
            await app.press("escape", then="live")
        with remapped(app, {"app.view.checkpoints": "3", "app.view.live": "4"}):
            await app.press("3", then="checkpoints")
            await app.press("4", then="live")


async def test_a_key_line_without_room_names_the_views_by_their_keys(served: Served) -> None:
    async with opened(Connector(served), Start("models")) as app:
        await app.until_view("models")
        await app.until(lambda: "1-8 views" in _line(app))
        with remapped(app, {"app.view.jobs": "f8", "app.view.models": "f2"}):
            await app.until_view("models")
            app.screen.query_one(KeyLine).refresh()
            await app.until(lambda: "f2/2/3/4/5/f8/7/8 views" in _line(app))
            assert "1-8" not in _line(app)


def _line(app: Opened) -> str:
    return str(app.screen.query_one(KeyLine).render())


async def test_any_action_can_have_another_key(served: Served) -> None:
    """Of all that could be done with the usual keys, each is done by its new one."""
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        await app.until_view("models")
        await app.until(lambda: isinstance(app.screen.focused, RowList))
        for view in VIEWS:
            await app.press("exclamation_mark" if view == "alarms" else str(VIEWS.index(view) + 1))
            await app.until_view(view)
            each_action_has_another_key(app, view)


def each_action_has_another_key(app: Opened, view: str) -> None:
    usual = {binding.binding.id for binding in app.screen.active_bindings.values()} - {None}
    places = (view, "app", *(["list"] if view in LISTS else []))
    mine = [one for one in ACTIONS if one.view in places]
    fresh = [f"alt+{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    fresh += [f"{held}+f{n}" for held in ("ctrl+shift", "ctrl") for n in range(1, 25)]
    table = {one.id: key for one, key in zip(mine, fresh, strict=False)}
    assert len(table) == len(mine)
    with remapped(app, dict(table)):
        now = app.screen.active_bindings
        assert {one.binding.id for one in now.values()} - {None} >= usual
        assert {id_: now[key].binding.id for id_, key in table.items() if id_ in usual} == {
            id_: id_ for id_ in table if id_ in usual
        }


def test_the_app_does_not_start_with_a_key_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUD_TUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text("[keys]\nlive.follow = 'entre'\n")
    assert main(["--local"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'config.toml'}: keys.live.follow: entre: no such key" in said
