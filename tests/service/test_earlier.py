"""A data directory with a table for runs and one for evaluations reads the same in one table."""

import gzip
import json
import sqlite3
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hud_tui.rl.progress import pace
from hud_tui.service.service import Service
from hud_tui.service.store.seals import checksum
from tests.conftest import at_end, calling
from tests.service.calls import Json, cancel, reach, status_of
from tests.toy_engine import ToyEngine

EARLIER = Path(__file__).parent / "earlier"
"""data.tar.gz: a service's data directory of schema 17 without its key, with runs and evaluations
of all kinds that succeeded, failed, were cancelled and interrupted. replies.json.gz: what was read
of it, by path."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(EARLIER / "data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def without_news(reply: Any) -> Any:
    """Of runs and evaluations: they say now which they are, runs their pace, and evaluations who
    makes their rollouts, and which run they are part of; of rollouts: who sampled them, and
    whether a person played; of all, by whose key."""
    if isinstance(reply, list):
        return [without_news(item) for item in reply]
    if not isinstance(reply, dict):
        return reply
    if "items" in reply:
        return {**reply, "items": without_news(reply["items"])}
    if "parameters" not in reply:
        more = reply.get("metadata") or {}
        shown = {key: value for key, value in more.items() if key != "run_id"}
        added = ("sampled_from", "played", "by", "resumed_by")
        reply = {key: value for key, value in reply.items() if key not in added}
        return {**reply, "metadata": shown} if more else reply
    if "revision" in reply:
        news = ("step_s", "waits", "by", "resumed_by")
        return {key: value for key, value in reply.items() if key not in news}
    assert reply["kind"] == ("evaluation" if "samples" in reply else "training")
    own = ("kind", "driver", "asked") if "samples" in reply else ("kind", "step_s")
    known = (*own, "by", "resumed_by")
    return {key: value for key, value in reply.items() if key not in known}


async def test_runs_evaluations_rollouts_and_statistics_read_the_same(data: Path) -> None:
    expected: Json = json.loads(gzip.decompress((EARLIER / "replies.json.gz").read_bytes()))
    assert len(expected) > 60
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        for path, reply in expected.items():
            answer = await http.get(path)
            found = answer.json() if answer.is_success else answer.status_code
            assert without_news(found) == reply, path


async def test_the_pace_of_an_earlier_run_is_that_of_its_newest_steps(data: Path) -> None:
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        for run in (await http.get("/v1/runs")).json()["items"]:
            at = (await http.get(f"/v1/runs/{run['id']}/steps")).json()["at"]
            usual = pace([datetime.fromtimestamp(taken, UTC).isoformat() for taken in at])
            assert run["step_s"] == (None if usual is None else pytest.approx(usual, abs=1e-5))
            assert (usual is None) == (len(at) < 2)


async def test_what_was_cut_short_resumes_with_what_is_missing(data: Path) -> None:
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        jobs = (await http.get("/v2/jobs")).json()["items"]
        cut = {job["metadata"]["kind"]: job["id"] for job in jobs if job["status"] == "interrupted"}
        evaluation, run = cut["evaluation"], cut["training"]
        before = (await http.get(f"/v1/evaluations/{evaluation}")).json()
        taken = (await status_of(http, run))["step"]
        for job_id in (evaluation, run):
            assert (await http.post(f"/v1/training/jobs/{job_id}/resume")).status_code == 200
        after = await at_end(http, f"/v1/evaluations/{evaluation}")
        assert (before["done"], after["status"], after["done"]) == (4, "succeeded", 6)
        assert after["groups"][: len(before["groups"])] == before["groups"]
        await reach(http, run, taken + 1)
        assert (await cancel(http, run)).json()["cancelled"] == 1


async def test_followers_are_told_of_the_same_changes_as_one_event(data: Path) -> None:
    query = "SELECT id, type, body, body_crc FROM event ORDER BY id"
    db = sqlite3.connect(data / "service.db")
    before = db.execute(query).fetchall()
    db.close()
    async with Service(data, ToyEngine()) as service:
        after = await service.parts.store.read(
            lambda db: [tuple(row) for row in db.execute(query).fetchmany(len(before))]
        )
    kinds = {"job": "training", "evaluation": "evaluation"}
    assert {type_ for _, type_, _, _ in before} >= kinds.keys()
    for (id_, type_, text, _), (now_id, now_type, now_text, crc) in zip(before, after, strict=True):
        body = json.loads(text)
        if type_ in kinds:
            work = body.pop(type_) | {"kind": kinds[type_]}
            body |= {"type": "work", "work": work}
        assert (now_id, now_type, json.loads(now_text)) == (id_, body["type"], body)
        assert crc == checksum(now_text)


async def test_a_text_that_cannot_be_read_holds_up_its_row_alone(data: Path) -> None:
    with sqlite3.connect(data / "service.db") as db:
        first, second = (id_ for [id_] in db.execute("SELECT id FROM trace ORDER BY id LIMIT 2"))
        db.execute("UPDATE trace SET error = CAST(x'ff' AS TEXT) WHERE id = ?", (first,))
    db.close()
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        answers = [(await http.get(f"/v2/trace/{id_}")).status_code for id_ in (first, second)]
    assert answers == [500, 200]
