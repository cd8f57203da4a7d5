"""Notifications: the bell, the desktop and a webhook, each alarm once in a while."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.client.replay import ReplayClient, ReplayTransport
from hud_tui.client.transport import MOST_WEBHOOK_BYTES, post_webhook
from hud_tui.config import read_table
from hud_tui.errors import BadTuning
from hud_tui.rl.alarms.alarm import Level, Notifier, Notify
from hud_tui.rl.alarms.demos import demo
from hud_tui.settings import Start
from hud_tui.tui import workspace
from hud_tui.tui.app import HudApp, Options
from hud_tui.wire import JobStatus
from tests.conftest import until
from tests.tui.conftest import run_of, told_by
from tests.tui.runs import alarm

HOOK = "http://hooks.test/x"


class Told:
    """A notifier's terminal and clock."""

    def __init__(self, notify: Notify) -> None:
        self.now, self.rings, self.written = 1000.0, 0, list[str]()
        self.notifier = Notifier(notify, self.ring, self.written.append, lambda: self.now)

    def ring(self) -> None:
        self.rings += 1


def test_each_detector_is_told_once_in_a_while_and_again_when_it_is_worse() -> None:
    told = Told(Notify(webhook=HOOK, cooldown_s=60))
    tell = told.notifier.alarm
    assert tell(alarm(), "m") is not None
    assert tell(alarm(9), "m") is None
    assert tell(alarm(9), "other") is not None
    assert tell(alarm(9, level=Level.CRITICAL), "m") is not None
    assert tell(alarm(10, level=Level.CRITICAL), "m") is None
    told.now += 61
    assert tell(alarm(11), "m") is not None
    assert told.rings == len(told.written) == 4


def test_an_ended_run_s_steps_are_counted() -> None:
    ended = Told(Notify(webhook=HOOK)).notifier.ended
    told = [ended(JobStatus(id="j", status="failed", step=step), "m") for step in (0, 1, 2)]
    assert [one and str(one["text"]).rpartition("after ")[2] for one in told] == [
        "0 steps", "1 step", "2 steps",
    ]  # fmt: skip


def test_the_terminal_gets_what_cannot_act_on_it() -> None:
    told = Told(Notify())
    assert told.notifier.alarm(alarm(), "m\x1b]0;title\x07") is None, "there is no webhook"
    [written] = told.written
    assert written.startswith("\x1b]9;warning: gradient norm since step 4")
    assert written.endswith("\x1b\\")
    assert "\x1b" not in written[1:-2]
    assert "\x07" not in written


def test_what_is_turned_off_or_below_the_level_is_not_told() -> None:
    told = Told(Notify(bell=False, osc9=False, webhook=HOOK, level=Level.CRITICAL))
    assert told.notifier.alarm(alarm(), "m") is None
    sent = told.notifier.alarm(alarm(level=Level.CRITICAL), "m")
    assert (sent["kind"], sent["name"], sent["onset"]) == ("alarm", "grad_norm", 4)
    assert (told.rings, told.written) == (0, [])
    ended = told.notifier.ended(JobStatus(status="failed", id="j", step=7), "m")
    assert ended["text"] == "m: run failed after 7 steps"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"webhook": "ftp://h/x"}, "webhook: expected an http or https URL"),
        ({"webhook": "file:///etc/passwd"}, "webhook: "),
        ({"webhook": "http://"}, "webhook: "),
        ({"webhook": "http://h/\x1b"}, "webhook: "),
        ({"webhook": 3}, "webhook: "),
        ({"bell": 1}, "bell: expected true or false"),
        ({"level": "info"}, "level: expected warn or critical"),
        ({"cooldown_s": -1}, "cooldown_s: expected 0 or more"),
        ({"cooldown_s": float("nan")}, "cooldown_s: "),
        ({"sound": True}, "sound: unknown setting"),
        (3, "expected a table"),
    ],
)
def test_what_cannot_be_configured_is_named(table: Any, said: str) -> None:
    with pytest.raises(BadTuning, match=said):
        read_table(Notify(), table)


def test_the_table_is_typed() -> None:
    table = {"bell": False, "webhook": "https://h:8443/x?y=1", "level": "critical"}
    assert read_table(Notify(), table) == Notify(False, True, table["webhook"], Level.CRITICAL)
    assert read_table(Notify(), {}) == Notify()


async def test_a_webhook_is_one_small_post_without_a_key() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    transport = httpx.MockTransport(answer)
    assert await post_webhook(HOOK, {"text": "t", "kind": "alarm"}, transport) == ""
    assert await post_webhook(HOOK, {"text": "t" * 9000, "more": "x" * 99_999}, transport) == ""
    assert [request.method for request in seen] == ["POST", "POST"]
    assert "authorization" not in seen[0].headers
    assert json.loads(seen[0].content) == {"text": "t", "kind": "alarm"}
    assert len(seen[1].content) <= MOST_WEBHOOK_BYTES


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(500), "HTTP 500"),
        (httpx.Response(302, headers={"location": "file:///etc/passwd"}), "HTTP 302"),
        (httpx.ConnectError("no\x1b route"), "ConnectError: no␛ route"),
    ],
)
async def test_why_a_webhook_failed_is_said(answer: Any, said: str) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await post_webhook(HOOK, {"text": "t"}, httpx.MockTransport(fail)) == said


async def test_the_app_tells_of_alarms_and_of_the_end_and_of_a_failure_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[dict[str, Any]] = []

    async def fails(url: str, document: dict[str, Any]) -> str:
        assert url == HOOK
        sent.append(document)
        return "HTTP 500"

    monkeypatch.setattr(workspace, "post_webhook", fails)
    now = 0.0
    transport = ReplayTransport(demo("zero-variance"), 100.0, lambda: now)
    settings = ReplayClient(ReplayTransport(demo("healthy"), 1.0)).settings

    async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
        return HudClient(settings, transport)

    notify = replace(Notify(), webhook=HOOK, osc9=False)
    app = HudApp(connect, "replay", Start(), options=Options(notify=notify))
    rings: list[None] = []
    monkeypatch.setattr(app, "bell", lambda: rings.append(None))
    async with app.run_test(size=(80, 24)):
        told = told_by(app)
        await until(lambda: run_of(app).loaded and run_of(app).training)
        now = 1000.0
        await until(lambda: {"alarm", "ended"} <= {one["kind"] for one in sent})
        await until(lambda: len(rings) == len(sent) and any("webhook" in text for text in told))
        notices = [text for text in told if "webhook" in text]
    alarms = [(one["name"], one["level"]) for one in sent if one["kind"] == "alarm"]
    worse = [("zero_variance", "warn"), ("zero_variance", "critical")]
    assert alarms in (worse, worse[1:])  # told again where a frame fell between the two
    [ended] = [one for one in sent if one["kind"] == "ended"]
    assert ended["text"] == "demo/zero-variance: run succeeded after 300 steps"
    assert len(notices) == 1
    assert len(rings) == len(sent)
