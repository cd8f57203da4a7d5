"""Something is on the screen before anything heavy is imported; the collector begins after."""

import gc
import subprocess
import sys

from hud_tui.tui.app import VIEWS, Options, settle
from tests.conftest import until
from tests.tui import runs
from tests.tui.still import StillClient, still

PROGRAM = """
import os, sys
from hud_tui.settings import Start
from hud_tui.tui.app import HudApp

HEAVY = {"httpx", "numpy", "plotext", "pydantic", "starlette", "tinker", "hud_tui.wire"}

async def connect(mode, key, progress):
    raise AssertionError("nobody asked")

class Once(HudApp):
    def on_mount(self):
        self.call_after_refresh(self.report)

    def report(self):
        said = str(self.screen.query_one("#connect-text").render())
        print("Which service?" in said, sorted(HEAVY & set(sys.modules)), flush=True)
        os._exit(0)

Once(connect, None, Start()).run(headless=True)
"""


def test_the_first_frame_imports_neither_the_client_nor_the_wire() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "True []\n", done.stderr


async def test_it_is_said_once_when_every_view_is_loaded() -> None:
    loaded: list[bool] = []
    views = [f"hud_tui.tui.screens.{name}" for name in VIEWS]
    options = Options(settle=lambda: loaded.append(all(view in sys.modules for view in views)))
    app = still(StillClient(runs.checkpoints(3)), options=options)
    async with app.run_test():
        await until(lambda: app.shown_view is not None)
    assert loaded == [True]


def test_then_it_collects_but_not_what_is_there() -> None:
    gc.disable()
    try:
        settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.enable()
        gc.unfreeze()
