"""What is typed ahead comes to the field or dialog that it is meant for.

The keys of one write to a terminal, or one by one over a slow line, in the whole app over the
service: each is given to what the keys before it have opened, in order, none lost, none twice.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hud_tui import __version__, build
from hud_tui.processes import holding
from hud_tui.service_file import LOCK, ServiceReady, register
from hud_tui.settings import Paths
from tests.conftest import Served, until
from tests.tui.cockpit import grown
from tests.tui.conftest import caller
from tests.tui.typed_app import TypedApp, typed_app

SLOW_S = 0.02
"""Between two bytes of a slow line."""
NAME = "arith rl"
TREE = [("ModelsScreen", "models"), ("CheckpointsScreen", "tree")]
"""Where ``4`` and the key after it come to."""
FIELD = ("InputDialog", "dialog-input")
FILTER = ("CheckpointsScreen", "tree-filter")
STEPS = ("LaunchScreen", "steps")
COMPARED = ("ComparePanel", "compare-tasks")
SEARCH = ("HelpScreen", "help-search")
CASES = {
    "filter": ("4/ste", [*TREE, *[FILTER] * 3], "ste"),
    "note": ("4ekeep\re", [*TREE, *[FIELD] * 5, TREE[1]], "keep"),
    "fork": ("4Fx1", [*TREE, *[FIELD] * 2], "x1"),
    "roll back": ("4bn/a", [*TREE, ("HeadDialog", "cancel"), TREE[1], FILTER], "a"),
    "form": ("2e60", [TREE[0], ("LaunchScreen", "tasksets"), STEPS, STEPS], "60"),
    "help": ("4?name, or\rx", [*TREE, *[SEARCH] * 9, FILTER], "x"),
    "protect": ("PParith", [TREE[0]] * 2 + [FIELD] * 5, "arith"),
    "export": ("4\x05n/b", [*TREE, ("ChoiceDialog", "svg"), TREE[1], FILTER], "b"),
    "reset": ("4\x0cn/c", [*TREE, ("ConfirmDialog", "cancel"), TREE[1], FILTER], "c"),
    "compare": ("4jc\t", [*TREE, TREE[1], COMPARED], None),
    "json": ("J/k", [TREE[0], ("JsonScreen", "json"), ("JsonScreen", "json-search")], "k"),
}  # fmt: skip

PROTECTED = {"protect": ("Parith", [TREE[0]] + [FIELD] * 5, "arith")}
"""What it comes to once the model is protected."""

QUICK = ["\x10\r\r", "?\r\r", "4?\r\r", "4\x10\r\r", "4b\r\r\rb\x1b", "\x10a\x1b[6~"]


@pytest.fixture
async def app(served: Served, tmp_path: Path) -> AsyncIterator[TypedApp]:
    """The app on its models, of which one has three checkpoints."""
    async with caller(served) as http:
        await grown(http, NAME, 3)
    ready = ServiceReady(
        url=served.url, api_key=served.api_key, telemetry_url=served.url, pid=os.getpid(),
        data_dir=str(tmp_path / "data"), version=__version__, build=build.digest(),
    )  # fmt: skip
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "data")
    for file in (paths.service_file, paths.serving_file):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        register(file, ready)
    with holding(paths.data / LOCK):  # as the process of a service does
        async with typed_app(["--local", "models"], tmp_path) as app:
            await app.until(lambda at: at.screen == "ModelsScreen")
            app.type(b"4")
            await until(lambda: b"3 checkpoints" in app.drawn)  # only then is it under the cursor
            app.type(b"1")
            await app.until(lambda at: at.screen == "ModelsScreen")
            app.reports.clear()
            yield app


async def models(app: TypedApp) -> None:
    """Leave what is open, and forget what was typed."""
    while (await app.ping()).screen != "ModelsScreen":
        seen = len(app.reports)
        app.type(b"\x1b")
        await until(lambda seen=seen: any(report.key == "escape" for report in app.reports[seen:]))
        app.type(b"1")  # with the Esc before it in one read it would be Alt+1
    app.reports.clear()


async def test_keys_come_to_what_they_are_meant_for_and_are_neither_lost_nor_doubled(
    app: TypedApp,
) -> None:
    """Those of one write, and those of a slow line; none ends the app."""
    for pause_s, cases in ((0.0, CASES), (SLOW_S, CASES | PROTECTED)):
        met = {}
        for case, (keys, _, _) in cases.items():
            await models(app)
            for part in keys if pause_s else [keys]:
                app.type(part.encode())
                await asyncio.sleep(pause_s)
            last = await app.ping()
            met[case] = (keys, [(one.screen, one.focus) for one in app.reports[:-1]], last.value)
        assert met == cases, f"{pause_s} s between two bytes"
    for keys in QUICK:
        await models(app)
        app.type(keys.encode())
        await app.ping()
        assert not app.crash, keys
    await models(app)
    text = "the quick brown fox jumps over the lazy dog " * 4
    app.type(b"?" + text.encode())
    last = await app.ping()
    assert last.value == text
    assert len(app.reports) == len(text) + 2
