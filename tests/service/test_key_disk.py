"""What is stored for a key is counted, whatever it is, and bounded."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.events import RolloutDone
from hud_tui.service.caller import SERVICE, Caller, called_by
from hud_tui.service.http import now
from hud_tui.service.service import Service
from hud_tui.service.store import access, checkpoints, events, jobs, replies, seals, traces
from hud_tui.service.store.db import Db, connect
from hud_tui.service.store.replies import Asked, StoredReply
from hud_tui.service.store.tables import MIGRATIONS
from hud_tui.service.store.traces import payload as payload_of
from hud_tui.wire_access import Role
from tests.conftest import at_end, bearer, ended, fork, submit, tasks_of, until
from tests.service.calls import (
    Json,
    ask,
    cancel,
    detail,
    fork_from,
    new_key,
    optim,
    pass_,
    payloads,
    report,
    steps,
    tree,
)
from tests.service.test_reports import span

MB = 1_000_000


async def disk(http: AsyncClient, name: str) -> int:
    [key] = [row for row in (await http.get("/v1/keys")).json() if row["name"] == name]
    return int(key["disk"])


async def test_all_that_a_key_sends_is_counted(
    team: dict[str, AsyncClient], http: AsyncClient
) -> None:
    tim, text = team["tim"], "x" * MB
    job, trace = uuid4().hex, uuid4().hex
    await tim.post(f"/v2/trace/job/{job}/enter", json={})
    await tim.post(f"/v2/trace/{trace}/enter", json={"job_id": job})
    before = await disk(http, "tim")
    await report(tim, trace, span(1, "step.user", {"content": text}))
    assert 0.9 < (await disk(http, "tim") - before) / MB < 1.1
    await report(tim, trace, span(1, "step.user", {"content": text}))
    assert (await disk(http, "tim") - before) / MB < 1.1, "in place of the one before"
    row = {**(await tasks_of(http))[0], "note": text}
    body = {"taskset_name": "long", "tasks": [row]}
    assert (await tim.post("/v2/tasks/upload", json=body)).status_code == 201
    assert 1.9 < (await disk(http, "tim") - before) / MB < 2.2
    assert await disk(http, "tom") < MB / 10


async def test_who_takes_a_step_has_its_files_counted_until_they_are_thinned(
    team: dict[str, AsyncClient], http: AsyncClient, service: Service
) -> None:
    model = await fork(team["tom"])
    before = {name: await disk(http, name) for name in ("tim", "tom")}
    await steps(team["tim"], model, 1)
    files = (await service.parts.store.read(rows))[0]["bytes"]
    assert await disk(http, "tom") == before["tom"]
    taken = await disk(http, "tim")
    assert taken - before["tim"] >= files > 0
    await service.parts.store.write(lambda db: db.execute("UPDATE checkpoint SET bytes = 0"))
    assert await disk(http, "tim") == taken - files


def rows(db: Db) -> list[sqlite3.Row]:
    return db.execute("SELECT * FROM checkpoint").fetchall()


async def test_a_key_stores_no_more_than_it_may(http: AsyncClient) -> None:
    model = await fork(http)
    http.headers.update(bearer(await new_key(http, "full", "train", max_disk=MB)))
    job, trace = uuid4().hex, uuid4().hex
    await http.post(f"/v2/trace/job/{job}/enter", json={})
    await http.post(f"/v2/trace/{trace}/enter", json={"job_id": job})
    kept = {"model_id": model["id"], "split": "heldout", "samples": 1, "num_tasks": 1}
    kept |= {"status": "running", "parameters": {}, "driver": "d"}
    known = uuid4().hex
    assert (await http.put(f"/v1/evaluations/{known}", json=kept)).status_code == 200
    run = await submit(http, model["id"], steps=1000)
    await report(http, trace, span(1, "step.user", {"content": "x" * MB}))
    assert (await ended(http, run))["error"]["message"].startswith("what is stored for key full")
    tasks = await tasks_of(http)
    spans = {"telemetry": [span(2, "step.user", {})]}
    dataset = {"dataset": {"tasks": tasks}, "config": {}}
    agent = {"type": "openai_compatible", "config": {"model": model["id"]}}
    rollout = {"job_id": job, "trace_id": uuid4().hex, "agent": agent, "env": "arith"}
    rollout |= {"task": "add", "args": {"a": 1, "b": 2}, "slug": "one"}
    drive = {"model_id": model["id"], "driver": "d", "name": "own", "parameters": {"steps": 1}}
    refused = [
        await http.post(f"/telemetry/v3/api/trace/{trace}/telemetry-upload", json=spans),
        await http.post(f"/v2/trace/job/{uuid4().hex}/enter", json={}),
        await http.post(f"/v2/trace/{uuid4().hex}/enter", json={}),
        await http.post("/v2/tasks/upload", json={"taskset_name": "t", "tasks": tasks}),
        await http.post("/v1/training/jobs", json={"model_id": model["id"], **dataset}),
        await http.put(f"/v1/training/jobs/{uuid4().hex}/drive", json=drive),
        await http.post("/v2/rollouts/submit", json=rollout),
        await http.post(f"/v1/models/{model['id']}/evaluations", json={"tasks": tasks}),
        await http.put(f"/v1/evaluations/{uuid4().hex}", json=kept),
        await http.put(f"/v1/evaluations/{known}", json=kept),
        await http.post(f"/v2/trace/{uuid4().hex}/exit", json={}),
        await fork_from(http, model["id"], "more"),
        await http.post(
            "/chat/completions",
            json={"model": model["id"], "messages": [{"role": "user", "content": "1+1"}]},
            headers={"Trace-Id": trace},
        ),
    ]
    said = "what is stored for key full takes 0.00 GB, of at most 0.00: an admin can"
    assert [(answer.status_code, said in detail(answer)) for answer in refused] == (
        [(507, True)] * len(refused)
    ), [answer.text for answer in refused]
    assert (await http.post(f"/v2/trace/{trace}/exit", json={})).status_code == 200
    assert (await ask(http, model["id"])).status_code == 200, "that is not stored"
    assert (await cancel(http, job)).status_code == 200


async def test_a_step_beyond_the_bound_is_not_taken(http: AsyncClient) -> None:
    model = await fork(http)
    http.headers.update(bearer(await new_key(http, "full", "train", max_disk=10_000)))
    status, taken = 200, -1
    while status == 200 and taken < 50:
        await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
        status, taken = (await optim(http, model["id"])).status_code, taken + 1
    assert (status, taken > 0) == (507, True)
    assert len(await tree(http, model["id"])) == taken


async def test_an_evaluation_ends_at_the_bound(http: AsyncClient) -> None:
    model = await fork(http)
    http.headers.update(bearer(await new_key(http, "full", "train", max_disk=100_000)))
    asked = {"tasks": await tasks_of(http), "parameters": {"samples": 16}}
    begun = await http.post(f"/v1/models/{model['id']}/evaluations", json=asked)
    ends = await at_end(http, f"/v1/evaluations/{begun.json()['id']}")
    assert (ends["status"], 0 < ends["done"] < ends["total"]) == ("failed", True)
    assert ends["error"]["message"].startswith("what is stored for key full")


async def rollout_of(http: AsyncClient, with_job: bool = True) -> str:
    """A client's rollout; its id."""
    job, trace = uuid4().hex, uuid4().hex
    if with_job:
        await http.post(f"/v2/trace/job/{job}/enter", json={})
    body = {"job_id": job} if with_job else {}
    assert (await http.post(f"/v2/trace/{trace}/enter", json=body)).status_code == 200
    return trace


@pytest.mark.parametrize("what", ["events", "replies"])
async def test_what_is_dropped_counts_no_more_for_who_had_it_stored(
    team: dict[str, AsyncClient],
    http: AsyncClient,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    """Not for whose write drops it."""
    monkeypatch.setattr(events, "PRUNE_EVERY", 1)
    monkeypatch.setattr(events, "MOST_EVENTS", 5)
    monkeypatch.setattr(replies, "MOST_REPLIES", 5)
    model, store = await fork(http), service.parts.store

    async def add(name: str, size: int) -> None:
        with called_by(Caller(name, Role.TRAIN)):
            for _ in range(5):
                id_ = uuid4().hex
                said = RolloutDone(at=now(), trace_id=id_, task_slug="x" * size)
                answer = StoredReply(Asked(id_, "optim-step", ""), b"x" * size)
                if what == "events":
                    await store.write(events.append, model["id"], [said])
                else:
                    await store.write(replies.keep, model["id"], answer)

    before = await disk(http, "tim")
    await report(team["tom"], await rollout_of(team["tom"]), span(1, "a", {"content": "x" * MB}))
    kept = await disk(http, "tom")
    await add("tim", MB // 5)
    assert 0.9 < (await disk(http, "tim") - before) / MB < 1.1
    await add("tom", 100)
    assert abs(await disk(http, "tim") - before) < MB / 10
    assert 0 <= await disk(http, "tom") - kept < MB / 10


@pytest.mark.usefixtures("team")
async def test_what_comes_and_goes_does_not_add_up(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short text takes less than its row, which goes with it."""
    monkeypatch.setattr(events, "PRUNE_EVERY", 50)
    monkeypatch.setattr(events, "MOST_EVENTS", 50)
    model, store = await fork(http), service.parts.store
    found = list[int]()
    for _ in range(2):
        for _ in range(20):
            told = [RolloutDone(at=now(), trace_id=uuid4().hex, task_slug="x") for _ in range(100)]
            with called_by(Caller("tim", Role.TRAIN)):
                await store.write(events.append, model["id"], told)
        found.append(await disk(http, "tim"))
    assert abs(found[1] - found[0]) < MB / 20


@pytest.mark.parametrize("with_job", [True, False])
async def test_who_replaces_what_another_stored_is_not_credited(
    team: dict[str, AsyncClient], http: AsyncClient, with_job: bool
) -> None:
    who, told = ("sue" if with_job else "tom"), span(1, "a", {"content": "x" * MB})
    trace = await rollout_of(team["tim"], with_job)
    for name, id_ in (("tim", trace), (who, await rollout_of(team[who]))):
        await report(team[name], id_, told)
    before = {name: await disk(http, name) for name in ("tim", who)}
    await report(team[who], trace, span(1, "a", {}))
    assert abs(await disk(http, who) - before[who]) < MB / 10
    assert (before["tim"] - await disk(http, "tim") > 0.9 * MB) is with_job, "whose it is, is known"


async def test_what_the_service_does_by_itself_is_nobodys(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever's request it begins with."""
    seen = list[Caller]()

    def look(db: Db, *args: object) -> int:
        seen.append(db.caller)
        return 0

    listening = service.works._listening
    await until(lambda: listening is None or listening.done())
    await service.parts.retention.settled()
    monkeypatch.setattr(jobs, "end_abandoned", look)
    monkeypatch.setattr(checkpoints, "used", look)
    with called_by(Caller("tim", Role.TRAIN)):
        service.works.listen()
        service.parts.retention.wake()
    await until(lambda: len(seen) == 2)
    assert seen == [SERVICE] * 2


async def test_what_is_stored_for_a_key_is_never_less_than_nothing(
    team: dict[str, AsyncClient], http: AsyncClient, service: Service
) -> None:
    await steps(team["tim"], await fork(http), 1)
    for change in ("UPDATE key_disk SET bytes = 1", "UPDATE checkpoint SET bytes = 0"):
        await service.parts.store.write(lambda db, change=change: db.execute(change))
    assert await disk(http, "tim") == 0


async def test_a_wrong_figure_of_an_older_version_is_made_right(
    team: dict[str, AsyncClient], http: AsyncClient, service: Service, tmp_path: Path
) -> None:
    model = await fork(team["tim"])
    team["tom"].headers["Idempotency-Key"] = "k"
    await fork_from(team["tom"], model["id"], "more")
    del team["tom"].headers["Idempotency-Key"]
    await steps(team["tom"], model, 2)
    await ended(team["tim"], await submit(team["tim"], model["id"], steps=3))
    await report(team["tim"], await rollout_of(team["tim"]), span(1, "a", {"content": "x" * MB}))
    right = {name: await disk(http, name) for name in ("tim", "tom")}
    path, store = tmp_path / "older.db", service.parts.store
    await store.read(lambda db: db.execute("VACUUM INTO ?", (str(path),)))
    with closing(sqlite3.connect(path)) as older:
        seals.add_functions(older, [])
        number = next(at for at, one in enumerate(MIGRATIONS) if "DELETE FROM key_disk" in one)
        older.executescript(
            "ALTER TABLE event DROP COLUMN name; ALTER TABLE reply DROP COLUMN name;"
            "ALTER TABLE run DROP COLUMN discarded;"
            "UPDATE reply SET seal = seal_of(key, scope, call, digest, status, body);"
            f"UPDATE key_disk SET bytes = -7; PRAGMA user_version = {number}"
        )
    with closing(connect(path)) as db:
        counted = {name: access.stored(db, name) for name in right}
        assert replies.find(db, model["id"], "k") is not None, "as it was written"
    assert all(abs(counted[name] - right[name]) < MB / 10 for name in right), (counted, right)


async def test_files_count_once(team: dict[str, AsyncClient], service: Service) -> None:
    def grow(db: Db, files: int) -> None:
        db.files += files

    before = await disk(team["admin"], "tim")
    with called_by(Caller("tim", Role.TRAIN)):
        for files in (MB, 0, 0):
            await service.parts.store.write(grow, files)
    assert await disk(team["admin"], "tim") - before < 1.1 * MB


async def test_spans_of_a_trace_are_not_read_again_when_more_come(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, looked_at = uuid4().hex, list[Json]()

    def payload(one: Json) -> Json:
        looked_at.append(one)
        return payload_of(one)

    monkeypatch.setattr(traces, "payload", payload)
    sample = {"output_token_ids": [53, 50, 1], "output_logprobs": [-1.0] * 3}

    def said(number: int, text: str) -> Json:
        return span(number, "step.agent", {"content": text, "sample": sample})

    async def answer() -> tuple[str, int]:
        row = (await http.get(f"/v2/trace/{trace}")).json()
        return row["completion"], row["num_tokens"]

    await report(http, trace, said(5, "five"))
    await http.post(f"/v2/trace/{trace}/enter", json={})
    assert await answer() == ("five", 3), "it had come before its trace"
    for number, text in ((3, "three"), (7, ""), (6, "six"), (6, "six again")):
        await report(http, trace, said(number, text))
    assert await answer() == ("six again", 12)
    user = [span(number, "step.user", {"content": "go on"}) for number in range(10, 60)]
    await report(http, trace, *user)
    looked_at.clear()
    await report(http, trace, said(8, "eight"))
    assert (await answer(), len(looked_at) < 5) == (("eight", 15), True)


async def test_what_an_older_version_stored_counts_for_who_forked(
    team: dict[str, AsyncClient], http: AsyncClient, service: Service
) -> None:
    model = await fork(team["tim"])
    await steps(team["tom"], model, 2)
    script = next(one for one in MIGRATIONS if "CREATE TABLE key_disk" in one)

    def migrate(db: Db) -> int:
        db.execute("DELETE FROM author WHERE what = 'checkpoint'")
        for kind, name in (("TABLE", "key_disk"), ("TRIGGER", "key_disk_changes")):
            db.execute(f"DROP {kind} {name}")
        for statement in _statements(script):
            db.execute(statement)
        return sum(row["bytes"] for row in rows(db))

    files = await service.parts.store.write(migrate)
    assert files > 0
    assert (await disk(http, "tim"), await disk(http, "tom")) == (files, 0)


def _statements(script: str) -> list[str]:
    """Those of a script, which a transaction can run one by one."""
    found, begun = list[str](), ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun) or (";" in line and not begun.strip(" \n;")):
            found.append(begun)
            begun = ""
    return [*found, begun]
