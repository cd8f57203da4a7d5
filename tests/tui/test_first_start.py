"""A stranger's first minute: three keystrokes from launch to a reward that moves."""

import pytest

from hud_tui.rl.checkpoint_tree import trainable
from hud_tui.service.engines.base import About
from tests.conftest import Served
from tests.toy_engine import ToyEngine
from tests.tui.conftest import Connector, opened

SIZES = [(80, 24), (120, 40), (40, 12)]


@pytest.mark.parametrize("size", SIZES)
async def test_three_keystrokes_to_a_moving_reward(served: Served, size: tuple[int, int]) -> None:
    async with opened(Connector(served), size=size) as app:
        await app.until_view("models")
        await app.until(lambda: "forks toy/four as four-rl" in app.said("#note"))
        await app.press("enter", then="launch")
        await app.until(lambda: "Step 2 of 3" in app.said("#lead"))
        await app.until(lambda: app.screen.query_one("#tasksets").key == "mixed")
        await app.press("enter")
        await app.until(lambda: "rollouts" in app.said("#summary"))
        assert "Step 3 of 3" in app.said("#lead")
        await app.press("enter", then="live")
        await app.until(lambda: app.run.series.length >= 2)
        assert app.net.sent == ["POST /v2/models/fork", "POST /v1/training/jobs"]
        assert app.run.head.mean_reward is not None
        await app.until(lambda: not app.run.training)


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_impatient_keystrokes_do_the_same_unless_escape_withdraws_them(
    served: Served, withdrawn: bool
) -> None:
    """Enter on the button while the checks still run submits once they have passed."""
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: "forks" in app.said("#note"))
        await app.press("enter", then="launch")
        screen = app.screen
        await app.until(lambda: screen.sources.key == "mixed")
        screen.action_choose()
        screen.action_submit()
        if withdrawn:
            screen.action_leave()
            await app.until(lambda: "rollouts" in app.said("#summary"))
            assert app.net.sent == ["POST /v2/models/fork"]
        else:
            assert "once the checks pass" in app.said("#summary")
            await app.until_view("live")
            await app.until(lambda: not app.run.training and app.run.head)


async def test_it_explains_itself_once_and_the_first_fork_can_be_named(served: Served) -> None:
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: app.screen.query_one("#welcome").display)
        said = app.said("#welcome")
        for line in ("Welcome", "Enter forks", "Enter checks", "Enter submits"):
            assert line in said
        await app.until(lambda: "forks" in app.said("#note"))
        await app.ask("F")
        await app.press(*"my own", "enter", then="launch")
        assert app.run.model.name == "my own"
        assert app.app.workspace.session.first_fork == app.run.model.id
    async with opened(Connector(served)) as app:
        await app.until_view("live")
        await app.press("1")
        await app.until(lambda: getattr(app.screen, "models", None))
        assert not app.screen.query_one("#welcome").display
        assert len(trainable(app.screen.models)) == 1


async def test_it_does_not_promise_that_nothing_leaves_where_a_server_trains(
    served: Served, engine: ToyEngine
) -> None:
    engine.place = About("tinker", "http://trainer:8000")
    async with opened(Connector(served)) as app:
        await app.until_view("models")
        await app.until(lambda: "on a Tinker server" in app.said("#welcome"))
        assert "Nothing leaves" not in app.said("#welcome")
        assert "Enter forks" in app.said("#welcome")
