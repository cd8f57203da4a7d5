"""How fresh the screen is said to be, and a service that goes away: what is known stays, dated."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest

from hud_tui import notebook, patience
from hud_tui.client.client import HudClient
from hud_tui.errors import HudReadOnly
from hud_tui.events import CheckpointAdded, Event, TreeRead, WorkChanged
from hud_tui.notebook import file_of, read_last_known, scope_of
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.progress import State
from hud_tui.rl.run import Run
from hud_tui.settings import Settings
from hud_tui.storage import JsonStore
from hud_tui.tui import session as live_session
from hud_tui.tui.alarms import AlarmBook, AlarmWatch
from hud_tui.tui.session import MANY, Follower, RunSession
from hud_tui.tui.start import Start
from hud_tui.wire import Checkpoint
from tests.conftest import PATIENCE_S, Served, bearer, on_socket, until
from tests.service.calls import set_head
from tests.tui import runs
from tests.tui.cockpit import grow, grown
from tests.tui.conftest import Connector, Opened, opened
from tests.tui.still import StillClient


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the next attempt, for the end of a short outage, or for the next time to save."""
    monkeypatch.setattr(patience, "LONGEST_S", 0.1)
    monkeypatch.setattr(live_session, "LOST_S", 0.2)
    monkeypatch.setattr(live_session, "SAVE_S", 0.1)


class Remote(Connector):
    """A service that is not this machine's own, at an address that stays."""

    def __init__(self, url: str, api_key: str) -> None:
        super().__init__(None)
        self.settings = Settings(url, url, url, f"{url}/v3/api", url, api_key)

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        self.asked.append((mode, key))
        return HudClient(self.settings, self.net)


@pytest.fixture
async def model(http: httpx.AsyncClient) -> Any:
    """A model with three steps."""
    return await grown(http, "mine", 3)


@asynccontextmanager
async def session(
    connector: Remote, state: Path, command: str = "checkpoints", again: bool = False
) -> AsyncIterator[Opened]:
    async with opened(connector, Start(command, again), "hud", state=lambda: state) as app:
        yield app


def is_offline(app: Opened) -> bool:
    said = str(app.screen.query_one("OfflineLine").render())
    return app.screen.has_class("-offline") and "offline, as of " in said and " ago" in said


def kept_file(state: Path, url: str, key: str) -> Path:
    scope = scope_of(state, url, key)
    return file_of(state, scope)


async def until_kept(state: Path, url: str, key: str) -> None:
    """Wait for three checkpoints on the disk."""

    def whole() -> bool:
        known = read_last_known(kept_file(state, url, key), url)
        return known is not None and len(known.tree) == 3 and bool(known.models)

    await until(whole)


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


async def test_an_outage_is_dated_and_ends_by_itself(
    served: Served, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as line:
        url = await line.enter_async_context(on_socket(served.service))
        async with session(Remote(url, served.api_key), tmp_path) as app:
            await app.until_view("checkpoints")
            await app.until(lambda: app.run.series.length == 3)
            assert not app.screen.has_class("-offline")
            with monkeypatch.context() as unnoticed:
                unnoticed.setattr(live_session, "LOST_S", 3600.0)
                await line.aclose()
                await app.press("5", then="runs")
                await app.until_notice("no answer from")
                assert "reading the runs" in app.said("#runs-empty")
            await app.until(lambda: is_offline(app))
            unread = "were not read before the connection was lost: ^r reconnects."
            await app.until(lambda: unread in app.drawn)
            assert "0 runs" not in app.said("#runs-title")
            await app.press("4", then="checkpoints")
            assert len(app.run.tree) == 3
            await app.until_notice("offline: the service does not answer, so nothing can be", "b")
            with pytest.raises(HudReadOnly):
                await app.app.workspace.session.client.set_head(model["id"], "c")
            assert app.net.sent == []
            await app.press("2", then="launch")
            assert "lists no tasksets" not in app.said("#lead")
            await app.press("6", then="jobs")
            await app.until(lambda: unread in app.drawn)
            chosen = app.app.workspace.session
            chosen.choose(app.run.model)
            await app.until(lambda: chosen.run.loaded and chosen.freshness.offline)
            assert is_offline(app), "choosing the model again does not forget when it was read"
            await line.enter_async_context(on_socket(served.service, port=port_of(url)))
            await app.until(lambda: not app.screen.has_class("-offline"))
            await app.until(lambda: "were not read" not in app.said("#jobs-empty"))
            await app.press("5")
            await app.until(lambda: "1 run" in app.said("#runs-title"))
            await app.press("2")
            await app.until(lambda: getattr(app.screen, "tasksets", None))
            await app.press("4", then="checkpoints")
            await app.ask("b")
            await app.press("escape")


async def known_at(served: Served, folder: Path) -> str:
    """The URL of a service whose state is kept in the folder, and which answers no more."""
    async with AsyncExitStack() as line:
        url = await line.enter_async_context(on_socket(served.service))
        app = await line.enter_async_context(session(Remote(url, served.api_key), folder))
        await app.until_view("checkpoints")
        await until_kept(folder, url, served.api_key)
    return url


async def test_what_was_known_is_there_when_the_service_is_not(
    served: Served, model: Any, tmp_path: Path
) -> None:
    url = await known_at(served, tmp_path)
    assert served.api_key not in kept_file(tmp_path, url, served.api_key).read_text()
    async with session(Remote(url, served.api_key), tmp_path) as app:
        await app.until_view("checkpoints")
        await app.until(lambda: is_offline(app))
        assert [node.name for node in app.run.tree] == [
            *("step-000001", "step-000002", "step-000003")
        ]
        await app.press("1", then="models")
        await app.until(lambda: getattr(app.screen, "models", None) and is_offline(app))
        assert model["id"] in [one.id for one in app.app.workspace.session.catalog]
        await app.until_notice("nothing can be changed", "F")
        async with on_socket(served.service, port=port_of(url)):
            await app.until(lambda: not app.screen.has_class("-offline"))
            async with httpx.AsyncClient(base_url=url, headers=bearer(served.api_key)) as http:
                await grow(http, model["id"])
            await app.until(lambda: len(app.run.tree) == 4)


async def test_the_head_is_kept_and_not_the_newest_step_that_was_it(
    served: Served, model: Any, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    """The app follows a step, whose checkpoint is the head; then the head is set back."""
    async with (
        on_socket(served.service) as url,
        session(Remote(url, served.api_key), tmp_path) as app,
    ):
        await app.until(lambda: app.run.series.length == 3)
        await grow(http, model["id"])
        await app.until(lambda: app.run.series.length == 4)
        assert (await set_head(http, model["id"], app.run.tree[1].id)).is_success
        await app.until(lambda: app.run.tree.head == 1)
    known = read_last_known(kept_file(tmp_path, url, served.api_key), url)
    assert [node.is_active for node in known.tree] == [False, True, False, False]


async def test_closing_ends_a_save_that_has_begun(
    served: Served,
    model: Any,
    tmp_path: Path,
    http: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its worker is cancelled, and the file has the fourth checkpoint once the app has ended."""
    begun, free, checkpoints = threading.Event(), threading.Event(), Tree.checkpoints

    def held(tree: Tree, start: int) -> Iterator[Checkpoint]:
        if tree.size == 4:
            begun.set()
            free.wait(PATIENCE_S)
        yield from checkpoints(tree, start)

    async with on_socket(served.service) as url:
        async with session(Remote(url, served.api_key), tmp_path) as app:
            await until_kept(tmp_path, url, served.api_key)
            monkeypatch.setattr(Tree, "checkpoints", held)
            await grow(http, model["id"])
            await app.until(begun.is_set)
            runner = app.app.workspace.session.evaluation_runner
            stop = runner.stop

            async def stop_and_free() -> None:
                await stop()
                free.set()

            monkeypatch.setattr(runner, "stop", stop_and_free)
            app.app.workers.cancel_group(app.app, "keep")
        known = read_last_known(kept_file(tmp_path, url, served.api_key), url)
    assert len(known.tree) == 4


def loaded(state: Path, local: bool = False) -> RunSession:
    """A session that follows a model with three steps."""
    client = StillClient()
    client.settings.local = local
    made = RunSession(client, "hud", Mock(), JsonStore(lambda: state))
    made.choose(runs.MODEL)
    made.fold(TreeRead(checkpoints=runs.checkpoints(3)))
    return made


async def test_a_save_that_failed_is_tried_again_though_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = loaded(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(notebook, "write_atomic", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        await one.save_last_known()
    assert one.read_last_known() is None
    await one.save_last_known()
    known = one.read_last_known()
    assert len(known.tree) == 3


async def test_nothing_is_kept_of_the_embedded_service(tmp_path: Path) -> None:
    await loaded(tmp_path, local=True).save_last_known()
    assert "offline" not in os.listdir(tmp_path)
    await loaded(tmp_path).save_last_known()
    assert "offline" in os.listdir(tmp_path)


async def test_without_anything_kept_the_failure_is_shown(served: Served, tmp_path: Path) -> None:
    async with on_socket(served.service) as url:
        pass
    file = kept_file(tmp_path, url, served.api_key)
    await asyncio.to_thread(lambda: (file.parent.mkdir(parents=True), file.write_text("{")))
    async with session(Remote(url, served.api_key), tmp_path) as app:
        await app.until(lambda: app.app.connect_screen.state == "failed")
        assert "no answer" in app.said("#connect-text")


async def test_another_account_is_shown_nothing_of_the_first(
    served: Served, model: Any, tmp_path: Path
) -> None:
    url = await known_at(served, tmp_path)
    async with session(Remote(url, "hud-another-key"), tmp_path) as app:
        await app.until(lambda: app.app.connect_screen.state == "failed")
        assert app.app.workspace.session.catalog == ()
    async with session(Remote(url, served.api_key), tmp_path, "status", again=True) as app:
        await app.until_view("checkpoints")
        await app.until(lambda: is_offline(app))


@dataclass
class Heard:
    """A feed that was heard of so many seconds ago."""

    ago_s: float
    trouble: str = ""
    source = "stream"
    retry_at: Any = None
    reading: Any = None
    behind_s: float = 0.0

    @property
    def heard_at(self) -> float:
        return monotonic() - self.ago_s


def follower(feed: Heard, status: str) -> Follower:
    client = SimpleNamespace(settings=SimpleNamespace(local=True), feed=lambda model_id: feed)
    watch = AlarmWatch(None, AlarmBook(JsonStore(), "m1"))
    made = Follower(client, Run(), runs.MODEL, watch)
    made.fold(WorkChanged(work=runs.job(20, 400, status)))
    made.frame()
    return made


def test_an_outage_is_dated_by_the_last_answer_also_one_during_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service that answers between two frames, and is lost again, stays offline."""
    monkeypatch.setattr(live_session, "LOST_S", -1.0)
    state = {"source": "stream", "trouble": "no answer", "heard_at": monotonic() - 0.5}
    feed = SimpleNamespace(**state, retry_at=None, reading=None, behind_s=0.0)
    one = follower(feed, "running")
    one._clock = lambda: now
    now = 1000.0
    feed.heard_at = monotonic() - 0.5
    one.frame()
    assert (one.freshness.offline, one.freshness.as_of) == (True, 999)
    now = 5000.0  # the machine slept
    one.frame()
    assert one.freshness.as_of == 999
    feed.heard_at = monotonic() - 0.5
    one.frame()
    assert (one.freshness.offline, one.freshness.as_of) == (True, 4999)


@pytest.mark.parametrize(
    ("status", "ago_s", "trouble", "said"),
    [
        ("running", 7.5, "", 7),
        ("succeeded", 7.5, "", 0),
        ("succeeded", 27.5, "", 20),
        ("succeeded", 7.5, "no answer", 7),
    ],
)
def test_while_nothing_trains_the_age_changes_seldom(
    status: str, ago_s: float, trouble: str, said: float
) -> None:
    one = follower(Heard(ago_s, trouble), status)
    assert one.freshness.age_s == said
    assert not one.frame(), "nothing new, and it is to be drawn again"


@pytest.mark.parametrize(
    ("spoke", "state"), [(True, State.STALLED), (False, State.LIVE)], ids=["run", "line"]
)
def test_a_silent_line_does_not_mean_that_the_run_has_stalled(spoke: bool, state: State) -> None:
    feed = Heard(0.0 if spoke else 60.0)
    one = follower(feed, "running")
    one._event_at = monotonic() - 60.0
    one.frame()
    assert one.freshness.state is state
    assert ((one.alarms._silent_s or 0.0) >= 59.0) == spoke


@pytest.mark.parametrize(("behind_s", "said"), [(4.9, 0), (40.7, 40)])
def test_what_comes_late_is_said_to_in_whole_seconds(behind_s: float, said: float) -> None:
    one = follower(Heard(0.0, behind_s=behind_s), "running")
    assert one.freshness.behind_s == said


async def test_a_large_tree_is_taken_in_beside_the_keys_and_what_comes_meanwhile_is_kept() -> None:
    nodes = tuple(Checkpoint(id=f"c{n}", prev_model_checkpoint_id=f"c{n - 1}") for n in range(MANY))
    last = Checkpoint(id="last", prev_model_checkpoint_id=nodes[-1].id, is_active=True)
    one = follower(Heard(0.0), "running")
    one._feed = Told([TreeRead(checkpoints=(*nodes, last)), CheckpointAdded(checkpoint=last)])
    reading = asyncio.create_task(one.follow(lambda event: None))
    turns = 0
    while not one.run.loaded:
        await asyncio.sleep(0)
        if not turns:
            one.fold(WorkChanged(work=runs.job(21, 400)))
        turns += 1
        one.frame()
    await reading
    assert turns > 1
    assert (len(one.run.tree), one.run.series.length) == (MANY + 1, MANY + 1)
    assert one.run.job.step == 21


@dataclass
class Told:
    """A feed of these events."""

    events: Sequence[Event]
    source, trouble, retry_at, heard_at, reading = "stream", "", None, None, None
    behind_s = 0.0

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
