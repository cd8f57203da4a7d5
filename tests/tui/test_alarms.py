"""The Alarms view over the real service, its keys, and who is told: bell, desktop, a webhook."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.client.client import HudClient
from hud_tui.client.replay import ReplayClient, ReplayTransport
from hud_tui.client.transport import MOST_WEBHOOK_BYTES, post_webhook
from hud_tui.config import read_table
from hud_tui.errors import BadTuning
from hud_tui.keys import VIEWS
from hud_tui.rl.alarms.alarm import Level, Notifier, Notify, Report, Skipped
from hud_tui.rl.alarms.demos import demo
from hud_tui.rl.alarms.monitor import AlarmMonitor, usual_thresholds
from hud_tui.rl.changed import alarm_pair
from hud_tui.rl.metrics import short
from hud_tui.storage import JsonStore
from hud_tui.tui import workspace
from hud_tui.tui.alarms import SLICE, SNOOZE, AlarmBook, AlarmWatch
from hud_tui.tui.app import HudApp, Options
from hud_tui.tui.screens.alarms import AlarmsScreen
from hud_tui.tui.screens.base import TopLine, top_line
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.dialogs import ALARM
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.wire import WorkState
from tests.conftest import Served, caller, ended, fork, submit, until
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import run_of, told_by, trained
from tests.tui.runs import alarm
from tests.tui.stage import LIVE, staged
from tests.tui.test_live import text_of

LIMITS = {"info": 1e-9, "warn": 2e-9, "critical": 0.99, "warmup": 2, "hold": 1}
TABLES = {"zero_variance": LIMITS, "reward_plateau": {"enabled": False}}
EASY = read_table(usual_thresholds(), TABLES)
"""Limits that the toy engine's groups are beyond from the third step on."""
JUDGED = Options(thresholds=EASY)


def view_of(flown: Cockpit) -> AlarmsScreen:
    assert isinstance(flown.app.screen, AlarmsScreen)
    return flown.app.screen


async def open_alarms(flown: Cockpit) -> AlarmsScreen:
    await flown.until(lambda: flown.view.run.alarms.active)
    await flown.press("7")
    await flown.until(lambda: isinstance(flown.app.screen, AlarmsScreen) and view_of(flown).alarm)
    return view_of(flown)


def badge(flown: Cockpit) -> bool:
    return "⚑" in str(flown.view.query_one(TopLine).line)


async def test_an_alarm_is_shown_acknowledged_and_snoozed(served: Served, tmp_path: Path) -> None:
    model, _ = await trained(served, 5, group_size=2)
    start = Start("status", model=model)
    async with cockpit(served, start, state=lambda: tmp_path, options=JUDGED) as flown:
        view = await open_alarms(flown)
        assert badge(flown)
        shown = view.alarm
        assert (shown.name, shown.onset, shown.shown) == ("zero_variance", 2, 3)
        said = str(view.text.render())
        assert "zero-variance groups" in said
        assert "zero_variance" in said, "its name in the documentation and in config.toml"
        assert "began at step 2, detected at 3, until the run's end at step 5" in said
        assert shown.meaning in said
        assert shown.advice in said
        await flown.press("space")
        assert not badge(flown)
        assert "acknowledged" in str(view.text.render())
        await flown.press("space", "A")
        assert not badge(flown)
        first = str(view.text.render()).splitlines()[0]
        assert f"snoozed until step {5 + SNOOZE}" in first, "where a long text cannot push it out"
        view.run = replace(view.run, job=view.run.job.model_copy(update={"status": "running"}))
        await flown.pilot.pause()
        assert f"snoozed for {SNOOZE} more steps" in str(view.text.render())
        await flown.press("A")
        assert badge(flown)
        await flown.press("space", "y")
        assert shown.summary in flown.app.clipboard
    async with cockpit(served, start, state=lambda: tmp_path, options=JUDGED) as flown:
        view = await open_alarms(flown)
        assert not badge(flown), "what was acknowledged stays so"
        longest = len("one reward component dominates")
        assert view.list.columns[2].width < longest, "the evidence needs the room"
        await flown.pilot.resize_terminal(200, 60)
        await flown.until(lambda: view.list.columns[2].width == longest)


async def test_an_alarm_s_notice_does_not_cover_what_the_view_says_of_it(served: Served) -> None:
    async with cockpit(served, Start("models")) as flown:
        for text, left in ((f"{ALARM} gradient norm since step 4", []), ("else", ["else"])):
            await flown.press("1", then="models")
            flown.app.notify(text, timeout=600)
            await flown.until(
                lambda text=text: [one.message for one in flown.app._notifications] == [text]
            )
            await flown.open(AlarmsScreen, "7")
            assert [notification.message for notification in flown.app._notifications] == left


async def test_two_keys_from_anywhere_show_why_an_alarm_fired(served: Served) -> None:
    """Enter goes to its onset in Live, escape back there."""
    model, _ = await trained(served, 5, group_size=2)
    async with cockpit(served, Start("status", model=model), options=JUDGED) as flown:
        await flown.until(lambda: flown.view.run.alarms.active)
        for view in ("models", "jobs"):
            await flown.press(str(VIEWS.index(view) + 1), then=view)
            await flown.open(AlarmsScreen, "7")
            await flown.until(lambda: view_of(flown).alarm)
            alarm, said = view_of(flown).alarm, str(view_of(flown).text.render())
            assert all(one.name in said for one in alarm.evidence)
            await flown.press("enter")
            live = await flown.until_screen(LiveScreen)
            await flown.until(lambda live=live, alarm=alarm: live.focus_key == alarm.metric)
            await flown.until(lambda live=live, alarm=alarm: live.cursor == alarm.row == 1)
            assert flown.app.workspace.session.checkpoint_id == alarm.checkpoint_id
            chart = text_of(live.query_one(FocusChart))
            assert f"⚑ {alarm.title} limit {short(alarm.limit)}" in chart
            assert live.charts.charted[0] == alarm.metric
        await flown.open(AlarmsScreen, "exclamation_mark")
        await flown.press("escape")
        await flown.until(lambda: flown.app.screen is live)


async def test_one_key_says_what_changed_where_an_alarm_began(served: Served) -> None:
    model_id, _ = await trained(served, 5)
    async with cockpit(served, Start("status", model=model_id), options=JUDGED) as flown:
        view = await open_alarms(flown)
        assert view.alarm is not None
        pair = alarm_pair(view.run.tree, view.alarm)
        panel = await flown.open(ComparePanel, "B")
        assert (panel.both.left.position, panel.both.right.position) == pair


async def test_with_another_model_the_alarm_s_chart_is_left(served: Served) -> None:
    model, _ = await trained(served, 5, group_size=2)
    async with caller(served) as http:
        other = await grown(http, "words rl", 3)
    async with cockpit(served, Start("status", model=model), options=JUDGED) as flown:
        await open_alarms(flown)
        await flown.press("enter")
        live = await flown.until_screen(LiveScreen)
        await flown.until(lambda: live.focus_key == "frac_reward_zero_std")
        await flown.press("4", "3")
        assert live.focus_key == "frac_reward_zero_std", "it stays for this model"
        [found] = [one for one in live.session.catalog if one.id == other["id"]] or [None]
        live.session.choose(found or await live.client.model(other["id"]))
        await flown.until(lambda: live.run.loaded and live.focus_key == "reward_mean")
        assert live.context.layout.now.chart == "reward_mean"


async def test_h_serves_the_last_checkpoint_before_the_onset(served: Served) -> None:
    model, _ = await trained(served, 5, group_size=2)
    async with cockpit(served, Start("status", model=model), options=JUDGED) as flown:
        view = await open_alarms(flown)
        said = await flown.ask("H")
        assert "zero-variance groups began with step 2" in said
        assert "step-000001" in said
        await flown.press("escape")
        assert await flown.head(model) == "step-000005"
        await flown.agree("H")
        await flown.until(lambda: "verified" in str(view.note.render()))
        assert await flown.head(model) == "step-000001"
        await flown.until(lambda: not view.run.alarms.active)
        assert [left.onset for left in view.run.alarms.left] == [2]
        assert not badge(flown)
        assert "1 step judged" in str(view.text.render()) or view.alarm is not None


async def test_an_alarm_since_the_first_step_has_nothing_before_it(served: Served) -> None:
    model, _ = await trained(served, 2, group_size=2)
    limits = read_table(usual_thresholds(), {"zero_variance": LIMITS | {"warmup": 0}})
    async with cockpit(served, Start("status", model=model), options=Options(limits)) as flown:
        view = await open_alarms(flown)
        await flown.press("H")
        assert "no checkpoint before it" in str(view.note.render())
        assert not flown.net.sent


async def test_a_run_without_alarms_says_so_and_what_was_skipped(served: Served) -> None:
    model, _ = await trained(served, 2, group_size=2)
    async with cockpit(served, Start("status", model=model)) as flown:
        await flown.until(lambda: flown.view.run.alarms.steps == 2)
        await flown.open(AlarmsScreen, "7")
        view = view_of(flown)
        assert "No active alarm: 2 steps checked" in str(view.text.render())
        await flown.press("H", "space", "A", "y", "enter")
        assert flown.app.screen is view, "keys of an alarm do nothing without one"
        rows = {row.key: row.cells[-1].plain for row in view.list.rows}
        assert rows["skipped:staleness"] == "metric staleness_mean not reported"


async def test_a_new_alarm_is_told_on_any_view_and_an_old_one_is_not(served: Served) -> None:
    async with caller(served) as http:
        model = str((await fork(http))["id"])
        start = Start("checkpoints", model=model)
        async with cockpit(served, start, options=JUDGED) as flown:
            await flown.until(lambda: flown.view.run.loaded)
            await ended(http, await submit(http, model, steps=5, group_size=2))
            await flown.until(lambda: notices(flown))
            assert "zero-variance groups since step 2" in notices(flown)[0]
            await flown.until(lambda: badge(flown))
        async with cockpit(served, start, options=JUDGED) as flown:
            await flown.until(lambda: badge(flown))
            assert notices(flown) == []


@pytest.mark.parametrize("over", ["question_mark", "7"])
async def test_an_alarm_waits_for_a_dialog_and_is_not_told_over_its_own_list(
    served: Served, over: str
) -> None:
    async with caller(served) as http:
        model = str((await fork(http))["id"])
        async with cockpit(served, Start("status", model=model), options=JUDGED) as flown:
            await flown.until(lambda: flown.view.run.loaded)
            await flown.press(over)
            await flown.until(
                lambda: flown.screen.is_modal or isinstance(flown.screen, AlarmsScreen)
            )
            await ended(http, await submit(http, model, steps=5, group_size=2))
            await flown.until(lambda: flown.run.alarms.active)
            if over == "7":
                await flown.until(lambda: view_of(flown).list.rows and badge(flown))
                assert notices(flown) == []
                return
            assert notices(flown) == []
            await flown.press("escape")
            await flown.until(lambda: not flown.app.screen.is_modal)
            await ended(http, await submit(http, model, steps=1, group_size=2))
            await flown.until_notice("zero-variance groups since step 2")


def test_an_alarm_that_comes_and_goes_is_news_once() -> None:
    watch = AlarmWatch(None, AlarmBook(JsonStore(), "m1"))
    watch._loaded = True
    warned, worse = runs.alarm(level=Level.WARN), runs.alarm(level=Level.CRITICAL)
    announced = []
    for alarms in ((), (warned,), (), (warned,), (worse,), (), (worse,)):
        watch.report = Report(alarms)
        announced.append(watch.news())
    assert announced == [[], [warned], [], [], [worse], [], []]


def notices(flown: Cockpit) -> list[str]:
    return [notice for notice in flown.told if notice.startswith("⚑")]


async def test_onsets_are_flagged_on_the_x_axis() -> None:
    run = runs.run_of(30)
    async with staged(run, size=(80, 24)) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        assert "⚑" not in text_of(chart)
        report = Report((alarm(15), alarm(25, active=False, ended=28)))
        await stage.show(replace(run, alarms=report))
        assert axis_of(chart).count("⚑") == 2
        assert "⚑ alarm" in text_of(chart).splitlines()[-1]
        await pilot.press("left", "left")
        assert axis_of(chart).count("⚑") == 2


def axis_of(chart: FocusChart) -> str:
    return next(line for line in text_of(chart).splitlines() if "└" in line)


def test_the_badge_counts_what_nobody_has_answered() -> None:
    run = runs.run_of(30)

    def line(report: Report, width: int = 120) -> str:
        return top_line("live", "HUD", replace(run, alarms=report), LIVE, width).plain

    worse = alarm(5, level=Level.CRITICAL, name="non_finite")
    assert "⚑" not in line(Report((alarm(5, level=Level.INFO),)))
    assert "⚑ 1 critical, 1 warning (7)" in line(Report((worse, alarm())))
    assert "⚑ 1 warning (7)" in line(Report((worse, alarm()), quiet=frozenset({worse.id})))
    assert "⚑" not in line(Report((alarm(active=False, ended=9),)))
    assert "⚑ 1 warning (7)" in line(Report((alarm(),)), 40)


def test_acknowledged_alarms_survive_a_broken_file(tmp_path: Path) -> None:
    book = AlarmBook(JsonStore(lambda: tmp_path), "../m\x00")
    book.acknowledge(alarm())
    [file] = tmp_path.iterdir()
    for text in ("[]", '{"acknowledged": 3, "snoozed": [1]}', '{"snoozed": {"a": "b"}}', "{"):
        file.write_text(text)
        read = AlarmBook(JsonStore(lambda: tmp_path), "../m\x00")
        assert not read.is_acknowledged(alarm())
        assert read.snoozed_until("a") == 0


def test_snoozing_ends_by_itself() -> None:
    book = AlarmBook(JsonStore(), "m")
    assert book.snooze(alarm(), 50) == 50 + SNOOZE
    assert book.quiet(Report((alarm(),), steps=60)) == {alarm().id}
    assert book.quiet(Report((alarm(),), steps=50 + SNOOZE)) == frozenset()


def test_a_long_run_is_judged_in_slices() -> None:
    watch = AlarmWatch(None, AlarmBook(JsonStore(), "m"))
    run = runs.run_of(3 * SLICE)
    first = watch.detect(run, None)
    assert (first.steps, watch.behind, watch.news()) == (SLICE, True, [])
    while watch.behind:
        watch.detect(run, None)
    assert watch.report.steps == 3 * SLICE
    assert watch.detect(run, None) is watch.report
    monitor = AlarmMonitor()
    monitor.follow(run.tree, run.job)
    assert watch.report == monitor.report()
    assert all(isinstance(one, Skipped) for one in watch.report.skipped)


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
    told = [ended(WorkState(id="j", status="failed", step=step), "m") for step in (0, 1, 2)]
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
    ended = told.notifier.ended(WorkState(status="failed", id="j", step=7), "m")
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
        await until(lambda: "ended" in {one["kind"] for one in sent})
        await until(lambda: "critical" in {one.get("level") for one in sent})
        await until(lambda: len(rings) == len(sent) and any("webhook" in text for text in told))
        notices = [text for text in told if "webhook" in text]
    alarms = [(one["name"], one["level"]) for one in sent if one["kind"] == "alarm"]
    worse = [("zero_variance", "warn"), ("zero_variance", "critical")]
    assert alarms in (worse, worse[1:])  # told again where a frame fell between the two
    [ended] = [one for one in sent if one["kind"] == "ended"]
    assert ended["text"] == "demo/zero-variance: run succeeded after 300 steps"
    assert len(notices) == 1
    assert len(rings) == len(sent)
