"""From a step to a pixel: docs/architecture.md names the functions that run, and all of them."""

from hud_tui.client.replay import player
from hud_tui.tui.app import HudApp
from hud_tui.tui.start import Start
from tests.conftest import until
from tests.ways import Way

OTHERS_TOO = frozenset({("tui/widgets/lines.py", "redraw")})


async def test_a_step_takes_the_way_that_is_written_down() -> None:
    app = HudApp(player("healthy", None, 10.0), "replay", Start())
    way = Way("From a step to a pixel", OTHERS_TOO)

    def steps() -> int:
        return 0 if app.workspace is None else len(app.workspace.session.run.tree)

    async with app.run_test(size=(120, 40)):
        await until(lambda: steps() > 5)
        with way.traced():  # what is drawn first may have been read before
            await until(lambda: not way.not_called)
    assert len(way.functions) <= 12
    assert way.not_named == set()
