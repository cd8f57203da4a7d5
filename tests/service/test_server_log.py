"""The service's log: who changed what, whatever happens to it."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.cli import access
from hud_tui.client.access_calls import AccessCalls
from hud_tui.client.client import HudClient
from hud_tui.errors import HudMalformed
from hud_tui.service import journal
from hud_tui.service.app import AREAS
from hud_tui.service.caller import Caller, called_by
from hud_tui.service.service import Service
from hud_tui.wire_access import LogLine, LogPage, Role
from tests.conftest import bearer, fork, until
from tests.service.calls import Json, set_head, steps
from tests.toy_engine import ToyEngine

SCOPE: Json = {"headers": [], "method": "PUT", "path": "/"}
"""Of a request."""


async def test_each_change_has_a_line_whoever_made_it_and_secrets_are_in_none(
    team: dict[str, AsyncClient], http: AsyncClient, service: Service
) -> None:
    model = await fork(team["tim"])
    [first] = await steps(team["tim"], model, 1)
    await set_head(team["sue"], model["id"], first)
    await set_head(team["rea"], model["id"], first)
    await http.get("/v2/models")
    told = (await team["rea"].get("/v1/log", params={"limit": 5})).json()["lines"]
    assert [(line["key"], line["what"], line["status"]) for line in told] == [
        ("rea", "move a head", 403),
        ("sue", "move a head", 200),
        ("tim", "take a step", 200),
        ("tim", "fork a model", 201),
        ("admin", "make a key", 201),
    ]
    assert told[1]["about"] == {"model": model["model_name"], "checkpoint": first}
    assert told[3]["about"]["name"] == "arith rl"
    assert (told[1]["address"], told[1]["method"], told[1]["role"]) == ("127.0.0.1", "PUT", "steer")
    older = (await http.get("/v1/log", params={"before": told[4]["at"]})).json()["lines"]
    assert [line["about"]["name"] for line in older] == ["sue", "tom", "tim", "rea"]
    text = (service.data_dir / "log.jsonl").read_text()
    assert service.api_key not in text
    assert not any(c.headers["authorization"].partition(" ")[2] in text for c in team.values())
    assert (service.data_dir / "log.jsonl").stat().st_mode & 0o077 == 0


async def test_a_client_that_hangs_up_has_its_line_too(http: AsyncClient, service: Service) -> None:
    model = await fork(http)
    task = asyncio.ensure_future(steps(http, model, 1))
    [checkpoint] = await task
    async with service.parts.session(await _row(service, model)).lock:
        moving = asyncio.ensure_future(set_head(http, model["id"], checkpoint))
        await asyncio.sleep(0.01)
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
    [line] = (await http.get("/v1/log", params={"limit": 1})).json()["lines"]
    assert (line["what"], line["status"]) == ("move a head", 499)


async def _row(service: Service, model: Json) -> Any:
    from hud_tui.service.store import models

    return await service.parts.store.read(models.find, model["id"])


async def test_refused_keys_are_logged_together(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(journal, "monotonic", lambda: clock[0])
    for _ in range(5):
        await http.get("/v2/models", headers=bearer("wrong"))
    clock[0] += journal.REFUSED_S
    await http.get("/v2/models", headers=bearer("wrong"))
    lines = (await http.get("/v1/log")).json()["lines"]
    assert [(line["status"], line["count"]) for line in lines] == [(401, 1), (401, 4), (401, 1)]


async def test_a_flood_that_is_refused_rotates_nothing_away(
    team: dict[str, AsyncClient],
    http: AsyncClient,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of one key, nor of many addresses without one."""
    clock = [100.0]
    monkeypatch.setattr(journal, "monotonic", lambda: clock[0])
    monkeypatch.setattr(journal, "OF_ALL", 3)
    monkeypatch.setattr(journal, "MOST_KNOWN", 15)
    key = team["rea"].headers["authorization"]
    for _ in range(50):
        await http.put("/v2/models/x/head", json={}, headers={"authorization": key})
    clock[0] += journal.REFUSED_S
    await http.put("/v2/models/x/head", json={}, headers={"authorization": key})
    lines = (await http.get("/v1/log")).json()["lines"]
    assert [line["count"] for line in lines if line["key"] == "rea"] == [1, 41] + [1] * 9
    kept = service.journal = journal.Journal(service.data_dir)
    for number in range(20):
        kept.refuse({**SCOPE, "client": (f"2001:db8::{number:x}", 1)})
    clock[0] += journal.REFUSED_S
    kept.refuse({**SCOPE, "client": ("2001:db8::ff", 1)})
    kept.release()
    lines = (await http.get("/v1/log")).json()["lines"]
    counts = [line["count"] for line in lines if not line["key"]]
    assert (sum(counts), counts[-3:], len(counts) < 8) == (21, [1] * 3, True)


async def test_a_flood_of_changes_has_lines_that_say_how_many_they_were(
    team: dict[str, AsyncClient],
    http: AsyncClient,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(journal, "monotonic", lambda: clock[0])
    monkeypatch.setattr(journal, "OF_CHANGES", 3)
    service.journal = journal.Journal(service.data_dir)

    async def rename(name: str, count: int) -> None:
        for number in range(count):
            await team[name].patch(f"/v2/jobs/{job}", json={"name": f"{number}"})

    async def lines() -> list[tuple[str, str, int]]:
        page = (await http.get("/v1/log")).json()["lines"]
        told = [(line["key"], line["what"], line["count"]) for line in page]
        return [line for line in told if line[0] != "admin"]

    job = uuid4().hex
    await team["tim"].post(f"/v2/trace/job/{job}/enter", json={})
    await rename("tim", 7)
    await fork(team["tim"])
    await rename("sue", 1)
    own = [("tim", "rename a job", 1)] * 2 + [("tim", "report a job", 1)]
    held = [("tim", "fork a model", 1), ("tim", "rename a job", 5)]
    others = [("sue", "rename a job", 1)]
    assert await lines() == [*others, *held, *own], "also what is not written yet"
    clock[0] += journal.CHANGES_S
    await rename("sue", 1)
    assert renamed_by(service.data_dir, "tim") == 7
    assert sorted(await lines()) == sorted([*others * 2, *held, *own])
    await rename("tim", 4)
    assert renamed_by(service.data_dir, "tim") == 7 + 3
    service.journal.release()
    assert renamed_by(service.data_dir, "tim") == 7 + 4
    written = (service.data_dir / journal.FILE).read_text().splitlines()
    times = [json.loads(line)["at"] for line in written]
    assert times == sorted(times), "so that pages by time leave none out"


def renamed_by(data: Path, key: str) -> int:
    """How often a key has renamed a job, by the file."""
    lines = map(json.loads, (data / "log.jsonl").read_text().splitlines())
    return sum(
        line["count"] for line in lines if (line["key"], line["what"]) == (key, "rename a job")
    )


@pytest.mark.parametrize("ends", [True, False])
async def test_what_is_held_is_written_in_time_and_when_the_service_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Numbers of changes, and of refused requests with a key and without."""
    if not ends:
        for name in ("REFUSED_S", "CHANGES_S"):
            monkeypatch.setattr(journal, name, 0.02)
    for name in ("OF_CHANGES", "OF_KEY", "OF_ADDRESS"):
        monkeypatch.setattr(journal, name, 0)

    def told() -> Counter[str]:
        counts = Counter[str]()
        for line in map(json.loads, (tmp_path / journal.FILE).read_text().splitlines()):
            counts[line["what"]] += line["count"]
        return counts

    async with Service(tmp_path, ToyEngine()) as service:
        for _ in range(3):
            service.journal.write(SCOPE, "rename a job", 200, {})
            service.journal.write(SCOPE, "move a head", 403, {})
            service.journal.refuse({**SCOPE, "client": ("10.0.0.1", 1)})
        expected = Counter({"move a head": 3, "no key that is accepted": 3, "rename a job": 3})
        if not ends:
            await until(lambda: (tmp_path / journal.FILE).exists() and told() == expected)
    assert told() == expected


def days(size: float, keys: int = 1) -> float:
    """How far the log reaches back, if lines have so many bytes and so many keys and strangers send
    as much as they can."""
    routes = [route for area in AREAS for route in area.ROUTES]
    kinds = 2 * sum(route.does != "" and route.is_logged for route in routes)
    of_key = (journal.OF_CHANGES + kinds) / journal.CHANGES_S
    of_key += (journal.OF_KEY + 1) / journal.REFUSED_S
    of_strangers = (journal.OF_ALL + 1) / journal.REFUSED_S
    return journal.KEPT * journal.MOST_BYTES / ((keys * of_key + of_strangers) * size * 86400)


def test_the_log_reaches_back_for_days_whatever_a_key_and_strangers_send(tmp_path: Path) -> None:
    kept = journal.Journal(tmp_path)
    agent = b"hud-tui/0.1.0 (Linux; Python 3.12)"
    scope = {**SCOPE, "path": f"/v2/jobs/{uuid4()}", "headers": [(b"user-agent", agent)]}
    kept.write({**scope, "client": ("192.168.100.100", 1)}, "resume a run or an evaluation", 200, {
        "model": "arith-rl-with-a-long-name", "job_id": str(uuid4()), "checkpoint": str(uuid4())
    })  # fmt: skip
    size = (tmp_path / "log.jsonl").stat().st_size
    assert (350 < size < 450, days(size) > 2, days(size, keys=5) > 14 / 24) == (True,) * 3, size


@pytest.mark.parametrize("letter", ["a", "中", "🙂", '"', "\\", "\x1b", "\u2028"])
def test_no_line_is_longer_than_the_page_says(tmp_path: Path, letter: str) -> None:
    kept = journal.Journal(tmp_path)
    most = {"path": "/" + letter * 9000, "client": (":".join(["2001"] * 8), 65535)}
    sent = {"program": letter * 99, "host": letter * 99}
    move = urlencode(sent).encode()
    about = {f"proposal_id{number}": letter * 9000 for number in range(20)}
    with called_by(Caller("k" * 40, Role.ADMIN)):
        kept.write({**SCOPE, **most, "headers": [(b"hud-tui-move", move)]}, "w" * 40, 200, about)
    data = (tmp_path / "log.jsonl").read_bytes()
    assert (len(data) <= 2500, days(2500) > 1 / 3) == (True, True), len(data)
    [line] = kept.newest(1).lines
    assert line.path.startswith("/" + journal.one_line(letter * 9)), "as much as there is room for"
    assert line.path.endswith("…")


async def test_a_request_that_another_key_repeats_is_told_as_that(
    team: dict[str, AsyncClient], http: AsyncClient
) -> None:
    base = (await http.get("/v2/models")).json()["items"][0]
    body, headers = {"name": "one", "source_model_id": base["id"]}, {"Idempotency-Key": "k"}
    for name in ("tim", "sue"):
        answer = await team[name].post("/v2/models/fork", json=body, headers=headers)
        assert answer.json()["by"] == "tim", answer.text
    told = (await http.get("/v1/log", params={"limit": 2})).json()["lines"]
    assert [(line["key"], line["status"], line["repeated"]) for line in told] == [
        ("sue", 201, True),
        ("tim", 201, False),
    ]
    shown = [access._cells(LogLine.model_validate(line))[3] for line in told]
    assert shown == ["done before", "done"]


async def test_a_line_for_which_there_is_no_room_is_not_left_half_written(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one would be part of it."""
    kept = service.journal
    write = journal.os.write
    monkeypatch.setattr(journal.os, "write", lambda file, data: write(file, data[:9]))
    kept.write(SCOPE, "move a head", 200, {})
    monkeypatch.undo()
    assert "no room for all of it: not logged" in caplog.text
    kept.write(SCOPE, "fork a model", 200, {})
    page = kept.newest(10)
    assert ([line.what for line in page.lines], page.incomplete) == (["fork a model"], False)


async def test_older_lines_are_read_without_those_of_newer_files(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page from long ago costs no more than the newest."""
    monkeypatch.setattr(journal, "MOST_BYTES", 1000)
    clock = [1000.0]
    monkeypatch.setattr(journal, "now", lambda: clock[0])
    for _ in range(20):
        clock[0] += 1
        service.journal.write(SCOPE, "pin", 200, {})
    read: list[bytes] = []
    at = journal._at
    monkeypatch.setattr(journal, "_at", lambda line: read.append(line) or at(line))
    page = (await http.get("/v1/log", params={"before": 1004.0, "limit": 1})).json()
    assert [line["at"] for line in page["lines"]] == [1003.0]
    assert len(read) < 12


async def test_the_log_is_rotated_and_a_torn_line_is_left_out(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 1000)
    monkeypatch.setattr(journal, "KEPT", 4)
    for _ in range(20):
        service.journal.write(SCOPE, "pin a checkpoint", 200, {"model": "x" * 100})
    files = sorted(path.name for path in service.data_dir.glob("log.jsonl*"))
    assert files == ["log.jsonl", *(f"log.jsonl.{number}" for number in range(1, 5))]
    page = (await http.get("/v1/log", params={"limit": 1000})).json()
    assert (page["incomplete"], 5 < len(page["lines"]) < 20) == (True, True)
    newest, *_, oldest = (service.data_dir / name for name in files)
    oldest.unlink()
    whole = (await http.get("/v1/log", params={"limit": 1000})).json()
    newest.write_bytes(newest.read_bytes() + b'{"at": 1' + b"\n")
    torn = (await http.get("/v1/log", params={"limit": 1000})).json()
    assert (whole["incomplete"], torn["incomplete"]) == (False, True)
    assert torn["lines"] == whole["lines"]


async def test_pages_miss_no_line_where_the_clock_was_set(
    client: HudClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 1000)
    for number, at in enumerate([10, 11, 99_000, 99_001, 99_002, 12, 13, 14, 13.5, 15.0]):
        monkeypatch.setattr(journal, "now", lambda at=at: float(at))
        service.journal.write(SCOPE, "pin", 200, {"name": f"{number}"})
    for size in (1, 2, 3, 100):
        read = []
        async for page in client.access.log_pages(size):
            read += [line.about["name"] for line in page.lines]
            if size == 2 and len(read) == 4:  # files get other names meanwhile
                service.journal.write(SCOPE, "pin", 200, {"name": "new", "more": "x" * 900})
        assert [name for name in read if name != "new"] == [f"{n}" for n in range(9, -1, -1)]


async def test_a_cursor_of_no_page_is_refused_and_one_of_a_lost_file_has_no_lines(
    http: AsyncClient, service: Service
) -> None:
    service.journal.write(SCOPE, "pin", 200, {})
    for cursor in ("x", "1-2", "1-2.0-" + "9" * 20):
        assert (await http.get("/v1/log", params={"cursor": cursor})).status_code == 422
    page = (await http.get("/v1/log", params={"cursor": "1-2.0-3"})).json()
    assert page["lines"] == []


async def test_a_line_that_a_crash_tore_spoils_no_other(service: Service) -> None:
    service.journal.write(SCOPE, "pin", 200, {})
    with (service.data_dir / "log.jsonl").open("ab") as file:
        file.write(b'{"at":1')
    service.journal.write(SCOPE, "fork a model", 200, {})
    page = service.journal.newest(10)
    assert [line.what for line in page.lines] == ["fork a model", "pin"]
    assert page.incomplete


async def test_a_log_that_cannot_be_written_stops_nothing(
    http: AsyncClient, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    (service.data_dir / "log.jsonl").mkdir()
    assert (await fork(http))["by"] == "admin"
    assert "not logged" in caplog.text


async def test_a_log_whose_pages_repeat_themselves_is_not_read_without_end(
    client: HudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LogLine(at=1.0, key="tim", what="pin", method="PUT", path="/", status=200)

    async def log(calls: AccessCalls, limit: int, after: LogPage | None = None) -> LogPage:
        return LogPage(lines=[line])

    monkeypatch.setattr(AccessCalls, "log", log)
    with pytest.raises(HudMalformed, match="repeats itself"):
        _ = [page async for page in client.access.log_pages(1)]
