"""Sampling a taskset before a run: rollouts, what is kept of them, and what stops them."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui import patience
from hud_tui.client import signal
from hud_tui.client.client import HudClient
from hud_tui.client.signal import SampleRequest, SignalCache, ask_of, choose, measure
from hud_tui.errors import HudUnauthorized, HudUsage
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.signal import Pace, Progress
from hud_tui.rl.tasks.task import HELD_OUT
from hud_tui.service.service import Service
from hud_tui.settings import Settings
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters
from tests.conftest import until
from tests.service.clients import answered, fork_of
from tests.service.headless import Command

ROWS = [{"env": "arith", "id": "add", "args": {"a": n, "b": 1}, "slug": f"t{n}"} for n in range(12)]
TASKS = read_rows(ROWS)
HUD = Settings("http://hud", "http://hud", "http://hud", "http://hud/t", "http://hud", "sk-key")
MINE = Model(id="m-1", model_name="mine", is_trainable=True)


pytestmark = pytest.mark.usefixtures("hurried")


async def all_of(*given: Any) -> list[Progress]:
    return [progress async for progress in measure(*given)]


def test_as_many_tasks_as_groups_are_chosen_and_the_same_again() -> None:
    held = read_rows([{**ROWS[0], "slug": "h", "columns": {"split": HELD_OUT}}])
    older = read_rows([{"prompt": "p", "mcp_config": {"a": {"url": "https://b.c"}}}])
    chosen = choose([*TASKS, *held, *older], 5)
    assert chosen == choose([*TASKS, *held, *older], 5)
    assert len({task.slug for task in chosen}) == 5
    twice = choose(TASKS, 24)
    assert sorted(task.slug for task in twice) == sorted([task.slug for task in TASKS] * 2)
    assert choose([*held, *older], 3) == []


async def test_groups_are_rolled_out_and_graded(client: HudClient, tmp_path: Path) -> None:
    model = await fork_of(client)
    asked = await ask_of(client, model, JobParameters(group_size=3), 4)
    assert asked.checkpoint is None
    seen = await all_of(client, TASKS, model, asked, SignalCache(tmp_path))
    assert [seen[0].done, seen[-1].done, seen[-1].total] == [0, 12, 12]
    assert len(seen[-1].signals) == 4
    assert {len(signal.outcomes) for signal in seen[-1].signals} == {3}
    assert all(o.tokens and o.seconds is not None for s in seen[-1].signals for o in s.outcomes)
    assert {signal.basis for signal in seen[-1].signals} == {"sampled"}
    [job] = await client.jobs()
    assert (job.name, job.group_size) == (f"preflight on {model.model_name}", 3)
    traces = await client.rollouts.job_traces(job.id)
    assert len(traces) == 12
    assert len({trace.group_id for trace in traces}) == 4


async def test_what_was_sampled_is_kept_with_its_date_for_this_head(
    client: HudClient, tmp_path: Path
) -> None:
    cache = SignalCache(tmp_path)
    model = await fork_of(client)
    asked = await ask_of(client, model, JobParameters(group_size=2), 3)
    first = (await all_of(client, TASKS, model, asked, cache))[-1]
    again = (await all_of(client, TASKS, model, asked, cache))[-1]
    assert [s.basis for s in again.signals] == ["cached"] * 3
    assert {(s.slug, s.outcomes, s.at) for s in again.signals} == {
        (s.slug, s.outcomes, s.at) for s in first.signals
    }
    assert (again.done, again.total, again.pace.rollouts) == (6, 6, 6)
    assert (first.pace.at, again.pace.seconds) == ("", first.pace.seconds)
    assert datetime.fromisoformat(again.pace.at).tzinfo is not None
    more = (await all_of(client, TASKS, model, replace(asked, groups=5), cache))[-1]
    assert sorted(s.basis for s in more.signals) == ["cached"] * 3 + ["sampled"] * 2
    for other in (
        replace(asked, checkpoint="another"),
        replace(asked, sampling={"temperature": 0.5}),
    ):
        assert cache.read(other, TASKS) == {}
    fresh = SignalCache(tmp_path, fresh=True)
    sampled = (await all_of(client, TASKS, model, asked, fresh))[-1]
    assert {s.basis for s in sampled.signals} == {"sampled"}
    changed = [replace(task, args={**task.args, "b": 2}) for task in TASKS]
    assert cache.read(asked, changed) == {}


def test_a_spoilt_cache_is_as_good_as_none(tmp_path: Path) -> None:
    for spoil in ("", "{", "[]", '{"x": 1}', "\x00", '{"KEY": {"outcomes": 3}}', '{"pace": 3}'):
        cache = SignalCache(tmp_path)
        asked = SampleRequest("m", "mine", None, 2, 1, {})
        cache.write(asked, TASKS, (), Pace(2, 1.0))
        assert cache.pace(asked) is not None
        [file] = tmp_path.glob("*.json")
        file.write_text(spoil)
        assert (cache.read(asked, TASKS), cache.pace(asked)) == ({}, None)


async def test_a_task_that_cannot_be_rolled_out_is_an_error_of_its_own_and_too_many_are_refused(
    client: HudClient,
) -> None:
    bad = read_rows([{"env": "arith", "id": "add", "args": {"a": 1}, "slug": "bad"}])
    model = await fork_of(client)
    asked = await ask_of(client, model, JobParameters(group_size=2), 13)
    last = (await all_of(client, [*TASKS, *bad], model, asked))[-1]
    by_slug = {signal.slug: signal for signal in last.signals}
    assert (by_slug["bad"].errors, by_slug["bad"].outcomes) == (2, ())
    assert "args.b is missing" in last.trouble
    assert sum(len(signal.outcomes) for signal in last.signals) == 24
    with pytest.raises(HudUsage, match="no task to roll out"):
        await all_of(client, [], model, asked)
    with pytest.raises(HudUsage, match="groups of"):
        await ask_of(client, model, JobParameters(), 10**6)


async def test_leaving_early_stops_what_is_under_way(
    client: HudClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.hosted._line = asyncio.Semaphore(0)
    model = await fork_of(client)
    asked = await ask_of(client, model, JobParameters(group_size=4), 4)
    began = asyncio.Event()

    async def watch() -> None:
        async for progress in measure(client, TASKS, model, asked):
            if progress.total:
                began.set()

    task = asyncio.create_task(watch())
    await began.wait()
    await until(lambda: len(service.hosted._tasks) == 16)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [job] = await client.jobs()
    assert {trace.status for trace in await client.rollouts.job_traces(job.id)} == {"cancelled"}


def platform(status: int = 201) -> Callable[[httpx.Request], httpx.Response]:
    """A service that answers rollouts with this status, and lists those that it was sent."""
    submitted: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v2/rollouts/submit":
            body = json.loads(request.content)
            submitted.append(body)
            ids = {"trace_id": body["trace_id"], "job_id": body["job_id"], "status": "queued"}
            return httpx.Response(status, json=ids if status < 300 else {"detail": "no"})
        if request.url.path.endswith("/traces"):
            rows = [{"id": body["trace_id"]} for body in submitted]
            return httpx.Response(200, json={"items": rows, "total": len(rows)})
        return httpx.Response(200, json={})

    return answer


ASKED = SampleRequest("m-1", "mine", "c-1", 2, 3, {})


async def last_of(handler: Callable[[httpx.Request], httpx.Response], *more: Any) -> Progress:
    async with answered(handler, HUD) as client:
        return (await all_of(client, TASKS, MINE, ASKED, *more))[-1]


async def test_a_platform_that_says_less_is_enough_but_for_a_reward() -> None:
    last = await last_of(_with({"status": "completed", "reward": 0.5}))
    assert [signal.rewards for signal in last.signals] == [[0.5, 0.5]] * 3
    assert [signal.tokens for signal in last.signals] == [None] * 3
    for row in ({"status": "error", "error": "boom\x1b[2J"}, {"status": "completed"}):
        last = await last_of(_with(row))
        assert [signal.errors for signal in last.signals] == [2, 2, 2]
        assert "\x1b" not in last.trouble


def _with(row: dict[str, Any]) -> Callable[[httpx.Request], httpx.Response]:
    inner = platform()

    def answer(request: httpx.Request) -> httpx.Response:
        found = inner(request)
        if request.url.path.endswith("/traces"):
            items = [{"id": item["id"], **row} for item in found.json()["items"]]
            return httpx.Response(200, json={"items": items, "total": len(items)})
        return found

    return answer


async def test_a_halt_is_no_lack_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, made, lists = patience.monotonic, _with({"status": "completed", "reward": 0.5}), 0
    monkeypatch.setattr(
        patience, "monotonic", lambda: ran() + (2 * signal.PATIENCE_S if lists else 0.0)
    )

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal lists
        lists += request.url.path.endswith("/traces")
        return made(request) if lists != 1 else httpx.Response(200, json={"items": [], "total": 0})

    last = await last_of(handler)
    assert [each.errors for each in last.signals] == [0, 0, 0]


async def test_a_key_that_may_not_ends_it_and_a_service_without_hosted_rollouts_says_so() -> None:
    for status in (401, 403):
        with pytest.raises(HudUnauthorized):
            await last_of(platform(status=status))
    last = await last_of(platform(status=404))
    assert [signal.errors for signal in last.signals] == [2, 2, 2]
    assert last.trouble.startswith("HTTP 404")


async def test_recorded_traces_are_used_before_any_is_made() -> None:
    slugs = [task.slug for task in choose(TASKS, 3)]
    rows = [
        {
            "id": f"{slug}-{n}",
            "task_slug": slug,
            "status": "completed",
            "reward": float(n),
            "inference_llm_model_id": "m-1" if slug != slugs[2] else "another",
            "created_at": f"2026-01-0{n + 1}T00:00:00+00:00",
        }
        for slug in slugs
        for n in range(2)
    ]
    made = _with({"status": "completed", "reward": 0.5})

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v2/jobs":
            return httpx.Response(200, json={"items": [{"id": "old"}], "total": 1})
        if request.url.path == "/v2/jobs/old/traces":
            return httpx.Response(200, json={"items": rows, "total": len(rows)})
        return made(request)

    last = await last_of(handler, None, "ts-1")
    found = {signal.slug: signal for signal in last.signals}
    assert [found[slug].basis for slug in slugs] == ["recorded", "recorded", "sampled"]
    assert found[slugs[0]].rewards == [0.0, 1.0]
    assert found[slugs[0]].at == "2026-01-02T00:00:00+00:00"


async def test_preflight_samples_and_says_which_tasks_give_signal(
    hud: Command, tmp_path: Path
) -> None:
    flags = ("--state-dir", str(tmp_path / "state"), "--sample", "6", "--group-size", "4")
    result = await hud("preflight", "arith", *flags)
    signal = result.data["signal"]
    assert (signal["rollouts"], signal["sampled"], signal["group_size"]) == (24, 6, 4)
    assert (signal["model"], signal["checkpoint"]) == ("arith-rl", None)
    assert signal["with_signal"].keys() == {"4", "8", "16"}
    assert {len(task["rewards"]) for task in signal["tasks"]} == {4}
    assert signal["estimate"]["rollouts"] > 0
    assert signal["estimate"]["basis"]
    [finding] = [finding for finding in result.data["findings"] if finding["check"] == "signal"]
    assert result.code == (5 if finding["level"] == "failure" else 0)
    assert "24 of 24 rollouts, 6 tasks" in result.err
    again = await hud("preflight", "arith", *flags)
    assert {task["basis"] for task in again.data["signal"]["tasks"]} == {"cached"}
    fresh = await hud("preflight", "arith", *flags, "--fresh")
    assert {task["basis"] for task in fresh.data["signal"]["tasks"]} == {"sampled"}


async def test_nothing_is_sampled_where_a_check_failed(hud: Command, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps([{"env": "nowhere", "id": "s"}]))
    result = await hud("preflight", str(file), "--sample", "2")
    assert (result.code, "signal" in result.data) == (5, False)
    assert (await hud("jobs")).data["jobs"] == []
    wrong = await hud("preflight", "arith", "--sample", "0")
    assert (wrong.code, wrong.error["type"]) == (2, "usage")
