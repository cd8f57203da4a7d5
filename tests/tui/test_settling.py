"""The garbage collector begins when everything is loaded, and leaves that alone."""

import gc
import sys

from hud_tui.tui.app import VIEWS, Options, settle
from tests.conftest import until
from tests.tui.still import StillClient, chain, still


async def test_it_is_said_once_when_every_view_is_loaded() -> None:
    loaded: list[bool] = []
    views = [f"hud_tui.tui.screens.{name}" for name in VIEWS]
    options = Options(settle=lambda: loaded.append(all(view in sys.modules for view in views)))
    app = still(StillClient(chain(3)), options=options)
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
