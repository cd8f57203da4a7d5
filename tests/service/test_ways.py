"""From a submission to a step, and from `eval` to an interval: docs/architecture.md names the
functions that run, and all of them."""

import pytest

from hud_tui.cli import evaluate
from hud_tui.cli.commands import build_parser
from tests.conftest import Served
from tests.service.clients import fork_of, over_socket, train, trained
from tests.ways import Way, assert_is_whole, follow_threads


@pytest.fixture
def store_at_once() -> bool:
    """What its thread does is a way of its own."""
    return False


async def test_a_submission_takes_the_way_that_is_written_down(served: Served) -> None:
    way = Way("From a submission to a step")
    async with over_socket(served) as client:
        model = await fork_of(client)
        await follow_threads(served.service, way)
        with way.traced():
            await train(client, model, steps=1)
    assert_is_whole(way, 30)


async def test_an_evaluation_takes_the_way_that_is_written_down(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    way = Way("From `eval` to an interval")
    async with over_socket(served) as client:
        await trained(client, "arith-rl", steps=1)
        await follow_threads(served.service, way)
        args = build_parser().parse_args(["--headless", "eval", "arith", "-m", "arith-rl"])
        with way.traced():
            assert await evaluate.evaluate(client, args) == 0
    assert_is_whole(way, 20)
