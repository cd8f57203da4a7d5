"""Something is on the screen before anything heavy is imported."""

import subprocess
import sys

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
