"""The Jobs view over the real service: jobs and rollouts, every key, jobs of both kinds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import time
from typing import Any
from uuid import uuid4

import httpx
import pytest
from textual.events import Key
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.rl.groups import Advantages
from hud_tui.service.run_plan import Planned
from hud_tui.tui.rollout_reader import rollout_title
from hud_tui.tui.screens.base import PageTitle
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.jobs import JobsScreen, Level
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.screens.rollout_search import RolloutSearch
from hud_tui.tui.start import Start
from hud_tui.wire import Job
from tests.conftest import Served, ended, fork, submit
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import caller, cancel, status, toy_of, training

HOSTILE = "\x1b]0;owned\x07 fine [red]not markup[/] \u202egnorts"


def screen(flown: Cockpit) -> JobsScreen:
    assert isinstance(flown.view, JobsScreen)
    return flown.view


def keys_of(flown: Cockpit) -> list[str]:
    """Keys of the rows that the cursor can be on."""
    return [row.key for row in screen(flown).list.rows if not row.heading]


def headings(flown: Cockpit) -> list[str]:
    rows = screen(flown).list.rows
    return [row.cells[0].plain for row in rows if row.heading]


@asynccontextmanager
async def jobs_of(served: Served, *args: Any, **parameters: Any) -> AsyncIterator[Cockpit]:
    """The view of a service with one managed run that has ended."""
    async with caller(served) as http:
        model_id = str((await fork(http))["id"])
        job_id = await submit(http, model_id, **{"steps": 3, **parameters})
        await ended(http, job_id)
    async with cockpit(served, Start("jobs"), *args) as flown:
        await flown.until(lambda: keys_of(flown) == [job_id])
        yield flown


async def opened(flown: Cockpit) -> None:
    """Enter the job under the cursor, and wait for its rollouts."""
    await flown.press("enter")
    await flown.until(lambda: screen(flown).level is Level.TRACES and keys_of(flown))


async def one_rollout(flown: Cockpit) -> RolloutScreen:
    """Enter the job, then the rollout under the cursor."""
    await opened(flown)
    return await read(flown)


async def read(flown: Cockpit) -> RolloutScreen:
    """Enter the rollout under the cursor."""
    reader = await flown.open(RolloutScreen, "enter")
    await flown.until(lambda: reader.transcript is not None)
    return reader


async def report(http: httpx.AsyncClient, job_id: str, rewards: list[float], text: str) -> None:
    """A job as the SDK reports it: no step, no group."""
    await http.post(f"/v2/trace/job/{job_id}/enter", json={"name": "my evaluation"})
    for reward in rewards:
        trace = uuid4().hex
        entered = {"job_id": job_id, "task_slug": text}
        assert (await http.post(f"/v2/trace/{trace}/enter", json=entered)).is_success
        left = {"status": "completed", "reward": reward}
        assert (await http.post(f"/v2/trace/{trace}/exit", json=left)).is_success


async def test_a_long_name_has_the_room_that_other_columns_leave(served: Served) -> None:
    async with jobs_of(served, (120, 30), steps=1) as flown:
        [job_id] = keys_of(flown)
        name = "multiplication with three digits, group size 16, lr 1e-3"
        await flown.http.patch(f"/v2/jobs/{job_id}", json={"name": name})
        await flown.press("r")
        await flown.until(lambda: name in flown.drawn)
        shown = screen(flown).list
        assert "ETA" not in [column.title for column in shown.columns], "no job runs"
        await flown.pilot.resize_terminal(80, 30)
        assert name not in flown.drawn
        assert "1/1" in flown.drawn, "what ranks higher stays"


async def test_from_jobs_to_one_rollout_through_its_siblings_and_back(served: Served) -> None:
    async with jobs_of(served, group_size=8) as flown:
        reader = await one_rollout(flown)
        group = reader.group
        assert len(group.rollouts) == 8
        assert sum(r.advantage or 0.0 for r in group.rollouts) == pytest.approx(0.0, abs=1e-9)
        said = reader.view.plain
        for word in ("reward", "user", "assistant", "advantage", "at step 3", "expected"):
            assert word in said
        first = reader.trace_id
        await flown.press("tab", "j")
        await flown.until(lambda: reader.transcript is not None)
        shown = reader.trace_id
        assert [row.key for row in reader.list.rows if row.cells[0].plain == "▸"] == [shown]
        assert first != shown == reader.list.key

        await flown.press("tab", "escape")
        assert screen(flown).level is Level.TRACES
        assert screen(flown).list.key == shown
        assert "step 3 of 3" in flown.said("#jobs-title")
        assert any("±" in heading for heading in headings(flown))
        for _ in range(2):
            await flown.press("escape")
            assert screen(flown).level is Level.JOBS
        assert "1 job" in flown.said("#jobs-title")


async def test_curly_brackets_go_through_the_listed_rollouts(served: Served) -> None:
    async with jobs_of(served, steps=1, group_size=4, tasks_per_step=3) as flown:
        await opened(flown)
        keys = keys_of(flown)
        reader = await read(flown)
        for _ in range(10):
            await flown.press("right_curly_bracket")
        assert reader.trace_id == keys[10]
        await flown.press("left_curly_bracket")
        assert reader.trace_id == keys[9]
        for edge, key, end in (
            ("g", "left_curly_bracket", "first"),
            ("G", "right_curly_bracket", "last"),
        ):
            await flown.press("escape", edge)
            await read(flown)
            await flown.press(key, key)
            said = f"This is the {end} rollout."
            await flown.until_notice(said)
            assert flown.notices.count(said) == 1


async def test_square_brackets_go_through_the_steps_also_of_a_new_connection(
    served: Served,
) -> None:
    async with jobs_of(served) as flown:
        await opened(flown)
        for key, step in (
            ("left_square_bracket", 2),
            ("left_square_bracket", 1),
            ("left_square_bracket", 1),
            ("right_square_bracket", 2),
            ("f", 3),
        ):
            await flown.press(key)
            await flown.until(lambda step=step: screen(flown).part.number == step)
            traces = screen(flown).part.traces
            assert {trace.step for trace in traces} == {step}
        assert "following" in flown.said("#jobs-title")

        connections = flown.view.client.wire.http
        await flown.press("ctrl+r")
        await flown.until(lambda: connections.is_closed)
        await flown.press("left_square_bracket")
        await flown.until(lambda: screen(flown).part.number == 2)


async def test_a_job_of_the_sdk_has_no_steps_and_its_text_cannot_act(served: Served) -> None:
    async with caller(served) as http:
        await report(http, uuid4().hex, [0.0, 1.0, 0.5], HOSTILE)
    async with cockpit(served, Start("jobs")) as flown:
        await flown.until(lambda: len(keys_of(flown)) == 1)
        await opened(flown)
        assert len(keys_of(flown)) == 3
        [heading] = headings(flown)
        assert "\x1b" not in heading
        assert "\u202e" not in heading
        assert "[red]not markup[/]" in heading
        part = screen(flown).part
        assert {r.advantage for g in part.groups for r in g.rollouts} == {None}
        reader = await read(flown)
        assert "no conversation" in reader.view.plain
        title = reader.query_one(PageTitle).line.plain
        assert "[red]not markup[/]" in title
        assert "\x1b" not in title


async def test_the_last_rollout_of_a_job_without_steps_is_read_at_its_end(served: Served) -> None:
    job_id, trace = uuid4().hex, uuid4().hex
    async with caller(served) as http:
        await report(http, job_id, [0.0], "task")
        entered = {"job_id": job_id, "task_slug": "task"}
        assert (await http.post(f"/v2/trace/{trace}/enter", json=entered)).is_success
        async with cockpit(served, Start("jobs")) as flown:
            await flown.until(lambda: len(keys_of(flown)) == 1)
            await opened(flown)
            assert [trace.reward for trace in screen(flown).part.traces] == [0.0, None]
            left = {"status": "completed", "reward": 1.0}
            assert (await http.post(f"/v2/trace/{trace}/exit", json=left)).is_success
            await flown.press("r")
            await flown.until(lambda: screen(flown).part.final)
            assert [trace.reward for trace in screen(flown).part.traces] == [0.0, 1.0]


async def test_a_running_job_is_cancelled_and_resumed(served: Served) -> None:
    _, job_id = await training(served)
    async with cockpit(served, Start("jobs", ref=job_id)) as flown:
        view = screen(flown)
        await flown.until(lambda: view.level is Level.TRACES and keys_of(flown))
        assert view.job.id == job_id
        assert "checkpoint so far is kept" in await flown.ask("X")
        await flown.press("enter", then="jobs")
        assert await status(served, job_id) == "running"
        await flown.agree("X")
        await flown.press("escape")
        await flown.until(lambda: view.job and view.job.status == "cancelled")
        await flown.agree("R")
        await flown.until(lambda: view.job.status == "running")
        assert await status(served, job_id) == "running"


async def test_a_list_in_which_nothing_runs_grows_older_and_has_what_is_started_elsewhere(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with jobs_of(served) as flown, caller(served) as http:
        view, first, now = screen(flown), keys_of(flown), time() + 3600

        def is_old() -> bool:
            return "1 h" in [cell.plain for cell in view.list.rows[0].cells]

        monkeypatch.setattr(view, "context", replace(view.context, clock=lambda: now))
        await flown.until(is_old)
        second = await submit(http, (await fork(http, "another"))["id"], steps=1)
        await ended(http, second)
        monkeypatch.setattr(view, "context", replace(view.context, clock=lambda: now + 60))
        await flown.until(lambda: keys_of(flown) == [second, *first])


async def test_an_opened_job_is_shown_as_it_is_now(served: Served) -> None:
    """At a step to which nothing is added."""
    _, job_id = await training(served, steps=2)
    async with cockpit(served, Start("jobs", ref=job_id)) as flown:
        view = screen(flown)
        await flown.until(lambda: view.level is Level.TRACES and view.part)
        await flown.press("left_square_bracket")
        await flown.until(lambda: view.part.final)
        toy_of(served).rest_after(1)
        await flown.until(lambda: view.job.metadata["step"] == 3)
        assert "at step 3 of 10000" in await flown.ask("X")
        await flown.press("escape")
        await cancel(served, job_id)
        await flown.until(lambda: view.job.status == "cancelled")
        assert not view.can("cancel_job")
        await flown.until_notice("has ended (cancelled): nothing to cancel.", "X")
        await flown.until(lambda: "cancelled" in flown.said("#jobs-title"))
        await flown.agree("R")
        await flown.until(lambda: view.job.status == "running")


async def test_a_key_asks_of_the_job_as_it_is_and_not_as_it_is_listed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job_id = await training(served)
    monkeypatch.setattr(JobsScreen, "_again", lambda screen, changed=False: None)
    async with cockpit(served, Start("jobs")) as flown:
        await flown.until(lambda: keys_of(flown) == [job_id])
        await cancel(served, job_id)
        assert screen(flown).can("cancel_job")
        await flown.until_notice("has ended (cancelled): nothing to cancel.", "X")


async def test_what_is_typed_after_x_waits_for_its_dialog(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job_id = await training(served)
    async with cockpit(served, Start("jobs")) as flown:
        await flown.until(lambda: keys_of(flown) == [job_id])
        read, begun, go = HudClient.job, asyncio.Event(), asyncio.Event()

        async def slow(client: HudClient, id_: str) -> Job:
            begun.set()
            await go.wait()
            return await read(client, id_)

        monkeypatch.setattr(HudClient, "job", slow)
        flown.app.post_message(Key("X", "X"))
        flown.app.post_message(Key("y", "y"))
        await begun.wait()
        go.set()
        await flown.until_notice("The run is cancelled.")


async def test_a_run_that_ends_before_it_is_cancelled_is_told_of_in_words(served: Served) -> None:
    _, job_id = await training(served)
    async with cockpit(served, Start("jobs")) as flown:
        await flown.until(lambda: keys_of(flown) == [job_id])
        await flown.ask("X")
        await cancel(served, job_id)
        await flown.until_notice("The run is not cancelled: it was not running.", "y")
        assert not any("not_running" in notice for notice in flown.told)


async def test_a_refused_key_leaves_the_request_under_way_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job_id = await training(served)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> str:
        begun.set()
        await go.wait()
        return "cancelled at last"

    monkeypatch.setattr("hud_tui.tui.screens.jobs.ask_cancel", slow)
    async with cockpit(served, Start("jobs", ref=job_id)) as flown:
        await flown.until(lambda: screen(flown).level is Level.TRACES and keys_of(flown))
        await flown.press("X")
        await flown.until(begun.is_set)
        await flown.press("R")
        go.set()
        await flown.until(lambda: "The run is cancelled at last." in flown.notices)


async def test_no_jobs_says_what_to_press(served: Served) -> None:
    async with cockpit(served, Start("jobs"), (80, 24)) as flown:
        await flown.until(lambda: "Press 2 to launch a run" in flown.said("#jobs-empty"))


async def test_a_zero_variance_run_shows_what_it_sampled_and_why_it_failed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planned, "grade", lambda self, completion: 0.5)
    async with jobs_of(served, group_size=2, tasks_per_step=2) as flown:
        await flown.until(lambda: "zero variance" in flown.said("#jobs-reason"))
        await opened(flown)
        assert "step 1 of 3" in flown.said("#jobs-title")
        part = screen(flown).part
        assert part.attempts > 1
        trained = [group for group in part.groups if not group.heldout]
        sampled = sum(len(group.rollouts) for group in trained)
        said = f"{sampled} training rollouts in {part.attempts} attempts"
        assert said in flown.said("#jobs-title")
        assert [len(group.rollouts) for group in trained] == [2] * 2 * part.attempts
        of = f" of {part.attempts}"
        attempts = [heading for heading in headings(flown) if heading.startswith("attempt")]
        assert attempts[0] == f"attempt {part.attempts}{of}"
        assert attempts[-1] == f"attempt 1{of}: zero variance, sampled again"
        assert len(attempts) == part.attempts
        assert "zero variance" in flown.said("#jobs-reason")


async def test_filter_copy_and_refresh_and_what_cannot_be_done_says_why(served: Served) -> None:
    async with jobs_of(served) as flown:
        for key, why in (
            ("X", "nothing to cancel"),
            ("R", "nothing to resume. Launch a new run with"),
        ):
            await flown.until_notice(why, key)
        assert not isinstance(flown.app.screen, Dialog)

        job_id = screen(flown).list.key
        await flown.press("y")
        assert flown.app.clipboard == job_id
        await flown.press("slash", *"nothing", "enter")
        await flown.until(lambda: "No job matches" in flown.said("#jobs-empty"))
        await flown.press("escape")
        assert keys_of(flown) == [job_id]
        await opened(flown)
        everything = keys_of(flown)
        slug = screen(flown).part.groups[0].task_slug
        await flown.press("slash", *slug, "enter")
        await flown.until(lambda: 0 < len(keys_of(flown)) < len(everything))
        assert all(heading.startswith(slug) for heading in headings(flown))
        await flown.press("escape")
        await flown.until(lambda: keys_of(flown) == everything)
        await flown.press("slash", *"reward>.9")
        await flown.until(lambda: 0 < len(keys_of(flown)) < len(everything))
        kept = keys_of(flown)
        right = {trace.id for trace in screen(flown).part.traces if (trace.reward or 0) > 0.9}
        assert right == set(kept)
        assert screen(flown).sheet().shown == len(kept), "an export has what the filter leaves"
        await flown.press(*" tool:x")
        await flown.until(lambda: "only the conversations tell" in flown.said("#jobs-reason"))
        assert keys_of(flown) == kept
        await flown.press("escape", "escape", "backslash")
        search = await flown.open(RolloutSearch)
        assert search.step == screen(flown).part.number
        await flown.press(*"reward>.9 -", "enter")
        await flown.until(lambda: " rollouts" in str(search.query_one("#search-said").render()))
        assert set(kept) >= {match.rollout.trace.id for match in search.matches} != set()
        await flown.press("escape")

        trace_id = screen(flown).list.key
        await flown.press("y")
        assert flown.app.clipboard == trace_id
        reader = await read(flown)
        before = reader.transcript
        await flown.press("r")
        await flown.until(lambda: reader.transcript is not before)


async def test_after_a_new_run_the_view_is_back_at_the_jobs(served: Served) -> None:
    async with caller(served) as http:
        model_id = str((await fork(http))["id"])
        first = await submit(http, model_id, steps=2)
        await ended(http, first)
        async with cockpit(served, Start("jobs", model=model_id)) as flown:
            await flown.until(lambda: keys_of(flown) == [first])
            await flown.until(lambda: flown.run.job is not None)
            await opened(flown)
            await flown.press("4", "6", then="jobs")
            assert screen(flown).level is Level.TRACES
            await flown.press("4")
            second = await submit(http, model_id, steps=1)
            await flown.until(lambda: flown.run.job.id == second)
            await flown.press("6", then="jobs")
            assert screen(flown).level is Level.JOBS
            await flown.until(lambda: set(keys_of(flown)) == {first, second})
            await ended(http, second)


async def test_a_rollout_is_coloured_and_copied(served: Served) -> None:
    async with jobs_of(served) as flown:
        reader = await one_rollout(flown)
        legend = reader.query_one("#rollout-legend", Static)

        def colours(text: str) -> bool:
            return legend.display and text in str(legend.render())

        await flown.press("v")
        await flown.until(lambda: colours("surprise"))
        assert "logprob Σ" in reader.view.plain
        await flown.until_notice("This block has no tokens", "d")
        await flown.until_notice("tells none", "G", "d")
        assert "[end]" in reader.view.plain
        await flown.press("v")
        await flown.until(lambda: colours("importance ratio"))
        await flown.until(lambda: reader._now.get(reader.trace_id))
        assert "some unknown" not in reader.view.plain
        await flown.press("right_curly_bracket")
        await flown.until(lambda: reader.trace_id in reader._now)
        await flown.press("v")
        await flown.until(lambda: colours("advantage: − pushed down"))
        await flown.press("v")
        assert not legend.display

        slug = reader.rollout(reader.trace_id).trace.task_slug
        for keys, begins in ((["enter"], slug), (["right", "enter"], f"## {slug}")):
            await flown.open(Dialog, "y")
            await flown.until(lambda: flown.app.screen.focused)
            await flown.press(*keys)
            await flown.until(lambda: flown.app.screen is reader)
            await flown.until(lambda begins=begins: flown.app.clipboard.startswith(begins))
        assert "### assistant" in flown.app.clipboard
        assert "- expected:" in flown.app.clipboard


async def test_ratios_of_a_model_that_trains_are_refused_until_its_run_has_ended(
    served: Served,
) -> None:
    _, job_id = await training(served)
    async with cockpit(served, Start("jobs")) as flown:
        await flown.until(lambda: keys_of(flown) == [job_id])
        reader = await one_rollout(flown)
        await flown.press("v")
        await flown.until_notice(job_id, "v")
        assert reader.trace_id not in reader._now
        await cancel(served, job_id)
        await flown.press("v", "v", "v", "v")
        await flown.until(lambda: reader._now.get(reader.trace_id))


async def test_advantages_are_shown_as_the_run_was_trained_with_them(served: Served) -> None:
    async with jobs_of(served, norm_adv_by_std=True, steps=1) as flown:
        reader = await one_rollout(flown)
        part, trace = screen(flown).part, reader.rollout(reader.trace_id).trace
        taught = [group for group in part.groups if group.has_signal]
        assert taught
        for group in taught:
            squares = [(rollout.advantage or 0.0) ** 2 for rollout in group.rollouts]
            assert round(sum(squares) / len(squares), 6) == 1.0
        said = rollout_title(part.group_of(trace), trace, 200).plain
        assert " ÷ std" in said
        assert " ÷ std" in reader.view.plain

        await flown.press("escape", "3")
        await flown.until(lambda: flown.run.series.length == 1)
        group = await flown.open(GroupScreen, "tab", "enter")
        await flown.until(lambda: group.rule == Advantages(norm_by_std=True))
        rewards = {answer.reward for answer in group.columns.answers}
        assert len(rewards) > 1, "groups with signal come first"
        squares = [answer.advantage**2 for answer in group.columns.answers]
        assert round(sum(squares) / len(squares), 6) == 1.0
        said = str(group.query_one("#group-facts", Static).render())
        assert "advantages: (reward − mean) ÷ std" in said
