"""Demos and replays in the app: a recording stands behind the same client as a service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from time import time
from typing import Any

import httpx
import pytest

from hud_tui.cli.main import main
from hud_tui.client.client import HudClient
from hud_tui.client.replay import (
    FASTEST,
    Playback,
    ReplayClient,
    ReplayTransport,
    player,
)
from hud_tui.errors import HudNotFound, HudReadOnly
from hud_tui.events import StepTaken, WorkChanged
from hud_tui.rl.alarms.demos import PATHOLOGIES, STEP_S, demo, demo_names
from hud_tui.rl.recording import Moment, Recording
from hud_tui.tui.screens.alarms import AlarmsScreen
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.rollout_columns import RolloutColumns
from hud_tui.tui.widgets.run_status import RunStatus
from tests.conftest import Served
from tests.tui.cockpit import cockpit
from tests.tui.conftest import Opened, opened

FAST = 5000.0


async def played(client: HudClient) -> list[str]:
    """What a feed says of the demo until its run has ended; the types of its events."""
    said: list[str] = []
    async with aclosing(aiter(client.feed("demo"))) as events:
        async for event in events:
            said.append(event.type)
            if isinstance(event, WorkChanged) and event.work.status == "succeeded":
                return said
    return said


async def test_a_recording_is_read_through_the_ordinary_client() -> None:
    async with aclosing(ReplayClient(ReplayTransport(demo("zero-variance"), FAST))) as client:
        assert client.settings.label == "replay"
        assert [model.model_name for model in await client.models()] == ["demo/zero-variance"]
        assert await client.jobs() == []
        assert (await client.training.losses("demo")).losses == []
        said = await played(client)
        assert said[0] == "tree"
        tree = await client.checkpoints("demo")
        assert (len(tree), tree[-1].is_active) == (300, True)
        job = await client.known_job("demo")
        assert (job.status, job.step) == ("succeeded", 300)
        assert await client.known_job("other") is None
        with pytest.raises(HudNotFound):
            await client.job("demo")
        with pytest.raises(HudReadOnly, match="a replay changes nothing"):
            await client.set_head("demo", "c1")


async def test_a_demo_is_dated_as_if_it_had_just_happened() -> None:
    before = time()
    client = await player("healthy", None, FAST)("replay", None, print)
    async with aclosing(client):
        await played(client)
        last = (await client.checkpoints("demo"))[-1]
        job = await client.known_job("demo")
    assert before <= datetime.fromisoformat(last.created_at or "").timestamp() + 1e-3
    assert last.created_at <= datetime.now(UTC).isoformat()
    assert 0 < before - float(job.created_at) <= 300 * STEP_S


async def test_ages_are_those_of_the_time_that_is_played() -> None:
    """A recording of last year is as old as it was then; one without a date counts from now."""
    now, recording = [0.0], replace(demo("healthy"), began=1000.0)
    transport = ReplayTransport(recording, 20.0, lambda: now[0])
    assert transport.present == 1000.0
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://replay.invalid") as http,
        http.stream("GET", "/v1/models/demo/train/events"),
    ):
        now[0] = 3.0
        assert transport.present == 1060.0
    before = time()
    assert ReplayTransport(replace(recording, began=None), 1.0).present >= before


async def test_time_passes_as_fast_as_it_is_told_to() -> None:
    client = ReplayClient(ReplayTransport(demo("healthy"), 0.001))
    async with aclosing(client), aclosing(aiter(client.feed("demo"))) as events:
        assert (await anext(events)).type == "tree"
        assert await client.checkpoints("demo") == [], "the first step is half an hour away"


async def test_a_stream_goes_on_where_it_is_asked_to_whatever_time_has_passed() -> None:
    """The feed looks where the stream begins, reads the tree, and opens it after that place."""
    now = [0.0]
    transport = ReplayTransport(demo("healthy"), 1.0, lambda: now[0])
    async with httpx.AsyncClient(transport=transport, base_url="http://replay.invalid") as http:
        events = "/v1/models/demo/train/events"

        async def begin(after: dict[str, str]) -> tuple[str, str]:
            """Where a stream says that it begins, and its first id."""
            async with http.stream("GET", events, headers=after) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("id: "):
                        return answer.headers["x-last-event-id"], line.removeprefix("id: ")
            raise AssertionError("the stream said nothing")

        await begin({})
        now[0] = 100.0
        place, first = await begin({})
        assert int(first) == int(place) + 1 > 0
        now[0] = 300.0
        assert await begin({"Last-Event-ID": place}) == (place, first)


@asynccontextmanager
async def playing(
    name: str | None, speed: float = FAST, size: tuple[int, int] = (120, 40), **more: Any
) -> AsyncIterator[Opened]:
    """The app on Live, playing a demo; `file` is of a recording, `options` are the app's."""
    connect = player(name, more.pop("file", None), speed)
    async with opened(connect, mode="replay", size=size, **more) as app:
        await app.until_view("live")
        yield app


def is_over(app: Opened) -> bool:
    return bool(app.run.series.length) and not app.run.training


async def test_a_demo_raises_its_alarms_in_the_app() -> None:
    async with playing("zero-variance") as app:
        expected = set(PATHOLOGIES["zero-variance"].trips)
        await app.until(lambda: expected <= {alarm.name for alarm in app.run.alarms.alarms})
        view = await app.open(AlarmsScreen, "7")
        await app.until(lambda: view.alarm is not None)
        await app.until_notice("a replay changes nothing", "H")
        assert app.screen is view, "no dialog asked anything before"
        await app.until(lambda: "read-only" in app.said("TopLine"))


async def test_a_replay_is_left_without_a_question() -> None:
    """The run that is shown goes on nowhere."""
    async with playing("healthy", 1.0) as app:
        await app.until(lambda: app.run.training)
        await app.press("q")
        await app.until(lambda: not app.app.is_running)


async def test_views_say_what_a_replay_does_not_have() -> None:
    """Neither a service's refusal nor the advice to launch a run, which cannot be."""
    async with playing("reward-hacking", 20.0) as app:
        await app.until(lambda: app.screen.query_one(GroupGrid).groups.rows)
        columns = (await app.open(GroupScreen, "tab", "enter")).query_one(RolloutColumns)
        await app.until(lambda: "A replay has the rewards" in app.said("#group-prompt"))
        await app.until(lambda: "Not recorded." in drawn(columns))
        assert "service" not in drawn(columns)
        await app.press("escape", "6", then="jobs")
        await app.until(lambda: "A replay has no jobs" in app.said("#jobs-empty"))
        await app.press("2", then="launch")
        await app.until(lambda: "A replay cannot check" in app.said("#lead"))
        assert "--local" in app.said("#summary")


def drawn(columns: RolloutColumns) -> str:
    return "\n".join(strip.text for strip in columns.draw(columns.width, range(columns.count)))


def playback_of(now: list[float], speed: float = 20.0) -> Playback:
    playback = Playback(demo("healthy"), speed, lambda: now[0])
    playback.begin()
    return playback


def test_the_time_of_a_replay_stands_still_goes_on_and_changes_its_pace() -> None:
    now = [100.0]
    playback = playback_of(now)
    assert playback.state_text == "▶ 20× · step 0/300"
    now[0] += 1.0
    assert (playback.now, playback.step) == (20.0, 10)
    playback.toggle()
    now[0] += 50.0
    assert (playback.now, playback.state_text) == (20.0, "⏸ 20× · step 10/300")
    playback.faster(-2)
    playback.toggle()
    now[0] += 1.0
    assert (playback.now, playback.state_text) == (25.0, "▶ 5× · step 12/300")
    playback.faster(1)
    assert playback.speed == 10.0
    playback.faster(99)
    assert playback.speed == FASTEST
    now[0] += 1.0
    assert playback.state_text == "■ 10000× · step 300/300"
    ended = playback.now
    playback.faster(-1)
    assert playback.now == ended, "another speed is no jump back"
    playback.toggle()
    assert (playback.now, playback.paused) == (0.0, False), "at the end it begins anew"


def test_a_replay_is_put_to_a_step_and_waits_there() -> None:
    now = [0.0]
    playback = playback_of(now)
    for steps, there in ((1, 1), (1, 2), (-1, 1), (-5, 0), (2, 2)):
        playback.move(steps)
        now[0] += 9.0
        assert (playback.step, playback.paused) == (there, True)
    playback.go_to(120)
    assert (playback.step, playback.now) == (120, 120 * STEP_S)
    playback.go_to(9999)
    assert playback.state_text == "■ 20× · step 300/300"
    playback.go_to(0)
    assert (playback.step, playback.last_step) == (0, 300)


def test_a_replay_is_put_to_a_step_whose_number_comes_twice() -> None:
    """The head was set back to step 2 and trained again; then somebody sought in a replay."""
    steps = [1, 2, 3, 3, 4, 1, 2]
    moments = tuple(
        Moment(float(at), "m1", StepTaken(step=step, checkpoint_id=f"c{at}"))
        for at, step in enumerate(steps, 1)
    )
    playback = Playback(Recording((), moments), 1.0, lambda: 0.0)
    assert playback.last_step == 4, "as far as one can go"
    for asked, at, step in ((1, 1, 1), (3, 3, 3), (4, 5, 4), (9, 5, 4), (0, 0, 0)):
        playback.go_to(asked)
        assert (playback.now, playback.step) == (at, step)


def test_a_speed_is_shown_in_three_digits_and_stays_one_that_moves() -> None:
    playback = playback_of([0.0], speed=3.7)
    playback.faster(-1)
    assert playback.state_text.startswith("▶ 1.85×")
    playback.faster(-99)
    assert playback.state_text.startswith("▶ 0.125×")
    playback.faster(99)
    playback.faster(-9)
    assert playback.state_text.startswith("▶ 19.5×")
    playback = playback_of([0.0], speed=0.01)
    playback.faster(-1)
    assert playback.speed == 0.01, "no slower than the command line asked for"


async def test_what_waits_hears_at_once_of_another_time() -> None:
    now = [0.0]
    playback = playback_of(now)
    playback.toggle()
    waiting = asyncio.create_task(playback.until(240.0))
    await asyncio.sleep(0)
    playback.go_to(120)
    assert await waiting
    assert await playback.until(10.0)


async def test_a_replay_is_paused_stepped_sought_and_sped_up_by_keys() -> None:
    async with playing("healthy", 20.0) as app:
        await app.until(lambda: app.run.series.length > 1)

        def status() -> str:
            return app.screen.query_one(RunStatus).line.plain

        await app.until(lambda: "▶ 20× · step " in status())
        keys = "space play/pause  W slower  w faster  @ go to step"
        assert app.said("KeyLine").startswith(keys)
        await app.press("space")
        await app.until(lambda: "⏸ 20× · step " in status())
        here = app.app.workspace.session.playback.step
        await app.until(lambda: app.run.series.length == here)
        await app.press("full_stop", "full_stop")
        await app.until(lambda: app.run.series.length == here + 2)
        assert f"⏸ 20× · step {here + 2}/300" in status()
        await app.press("comma")
        await app.until(lambda: app.run.series.length == here + 1)
        await app.press("w", "w", "W")
        await app.until(lambda: "⏸ 40×" in status())
        await app.open(InputDialog, "at")
        await app.press(*"301", "enter")
        await app.until(lambda: "from 0 to 300" in app.said("#dialog-problem"))
        await app.press(*["backspace"] * 3, *"120", "enter", then="live")
        await app.until(lambda: app.run.series.length == 120)
        await app.until(lambda: "step 120/300" in status())
        await app.open(InputDialog, "at")
        await app.press(*"7", "enter")
        await app.until(lambda: app.run.series.length == 7)
        await app.press("space")
        await app.until(lambda: app.run.series.length > 8)
        assert "stalled" not in status()


async def test_a_replay_that_has_ended_has_no_time_left() -> None:
    async with playing("stall", 2000.0, size=(200, 40)) as app:
        status = app.screen.query_one(RunStatus)
        await app.until(lambda: "■" in status.line.plain and status.freshness.over)
        assert app.run.training, "the recording ends within the run"
        assert " left" not in status.line.plain
        await app.press("1", then="models")
        await app.until(lambda: "step 200/300" in app.said("TopLine"))
        assert " left" not in app.said("TopLine")


async def test_where_a_service_is_followed_the_keys_of_a_replay_do_nothing(served: Served) -> None:
    async with cockpit(served, Start("status")) as flown:
        await flown.press("3", then="live")
        assert flown.screen.check_action("play", ()) is False
        await flown.press("space", "full_stop", "w", "at")
        assert flown.screen is flown.view


def test_the_demos_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == demo_names()
    assert "entropy-collapse    Entropy collapses and the reward is flat." in lines
