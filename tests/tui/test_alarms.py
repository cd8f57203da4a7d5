"""The Alarms view over the real service: what is wrong, and what its keys do about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from hud_tui.config import read_table
from hud_tui.keys import VIEWS
from hud_tui.rl.alarms.alarm import Level, Report, Skipped
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.metrics import short
from hud_tui.settings import Start
from hud_tui.storage import JsonStore
from hud_tui.tui.alarms import SLICE, SNOOZE, AlarmBook, AlarmWatch
from hud_tui.tui.app import Options
from hud_tui.tui.screens.alarms import AlarmsScreen
from hud_tui.tui.screens.base import TopLine, top_line
from hud_tui.tui.screens.dialogs import ALARM, is_alarm
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.widgets.focus_chart import FocusChart
from tests.conftest import Served, caller, ended, fork, submit
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import trained
from tests.tui.runs import alarm
from tests.tui.stage import LIVE, staged
from tests.tui.test_live import text_of

LIMITS = {"info": 1e-9, "warn": 2e-9, "critical": 0.99, "warmup": 2, "hold": 1}
EASY = read_table(Thresholds(), {"zero_variance": LIMITS, "reward_plateau": {"enabled": False}})
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
        assert "since step 2 (seen at 3), detected at step 3, until the run's end (step 5)" in said
        assert shown.meaning in said
        assert shown.advice in said
        await flown.press("space")
        assert not badge(flown)
        assert "acknowledged" in str(view.text.render())
        await flown.press("space", "A")
        assert not badge(flown)
        assert f"snoozed until step {5 + SNOOZE}" in str(view.text.render())
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


async def test_an_alarm_s_notice_does_not_cover_what_the_view_says_of_it(served: Served) -> None:
    async with cockpit(served, Start("models")) as flown:
        for text in (f"{ALARM} gradient norm since step 4", "something else"):
            flown.app.notify(text, timeout=600)
        await flown.until(lambda: any(map(is_alarm, flown.app._notifications)))
        await flown.open(AlarmsScreen, "7")
        assert [one.message for one in flown.app._notifications] == ["something else"]


async def test_two_keys_from_anywhere_show_why_an_alarm_fired(served: Served) -> None:
    """Enter goes to its onset in Live, escape back there."""
    model, _ = await trained(served, 5, group_size=2)
    async with cockpit(served, Start("status", model=model), options=JUDGED) as flown:
        await flown.until(lambda: flown.view.run.alarms.active)
        for number, view in enumerate(VIEWS[:6], 1):
            await flown.press(str(number), then=view)
            await flown.open(AlarmsScreen, "7")
            await flown.until(lambda: view_of(flown).alarm)
            alarm, said = view_of(flown).alarm, str(view_of(flown).text.render())
            assert all(one.name in said for one in alarm.evidence)
            await flown.press("enter")
            live = await flown.until_screen(LiveScreen)
            await flown.until(lambda live=live, alarm=alarm: live.focus_key == alarm.metric)
            await flown.until(lambda live=live, alarm=alarm: live.cursor == alarm.row == 1)
            assert flown.app.workspace.session.at == alarm.checkpoint_id
            chart = text_of(live.query_one(FocusChart))
            assert f"⚑ {alarm.title} limit {short(alarm.limit)}" in chart
            assert live.charted[0] == alarm.metric
        await flown.open(AlarmsScreen, "exclamation_mark")
        await flown.press("escape")
        await flown.until(lambda: flown.app.screen is live)


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
    limits = read_table(Thresholds(), {"zero_variance": LIMITS | {"warmup": 0}})
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


def notices(flown: Cockpit) -> list[str]:
    return [notice for notice in flown.told if notice.startswith("⚑")]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_onsets_are_flagged_on_the_x_axis(size: tuple[int, int]) -> None:
    run = runs.run_of(30)
    async with staged(run, size=size) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        if not chart.drawable:
            return
        assert "⚑" not in text_of(chart)
        report = Report((alarm(15), alarm(25, active=False, ended=28)))
        await stage.show(replace(run, alarms=report))
        assert axis_of(chart).count("⚑") == 2
        assert size == (40, 12) or "⚑ alarm" in text_of(chart).splitlines()[-1]
        await pilot.press("left", "left")
        assert axis_of(chart).count("⚑") == 2


def axis_of(chart: FocusChart) -> str:
    """The line of the x axis."""
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
    watch = AlarmWatch(Thresholds(), AlarmBook(JsonStore(), "m"))
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
