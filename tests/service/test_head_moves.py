"""The moves of a head: the service keeps them with who made them, and clients read them."""

import sqlite3
import tarfile
from dataclasses import replace
from pathlib import Path
from platform import node
from urllib.parse import urlencode

import httpx
import pytest
from httpx import AsyncClient

from hud_tui.audit_log import AuditEntry, CommandLog
from hud_tui.client import HudClient
from hud_tui.client.history import read_moves
from hud_tui.events import Act, Actor, HeadMoved, MovesRead
from hud_tui.notebook import Notebook, notebook_file
from hud_tui.service.service import Service
from hud_tui.service.store import events
from hud_tui.service.store.seals import checksum
from hud_tui.settings import DEFAULTS, local_settings
from tests.conftest import calling
from tests.service.calls import Json, set_head, steps
from tests.service.clients import answered
from tests.service.test_earlier import EARLIER
from tests.toy_engine import ToyEngine


async def moves_of(http: AsyncClient, model: Json) -> MovesRead:
    answer = await http.get(f"/v2/models/{model['id']}/head/moves")
    assert answer.status_code == 200, answer.text
    return MovesRead.model_validate_json(answer.content)


async def put(
    http: AsyncClient, model: Json, checkpoint_id: str, headers: dict[str, str]
) -> httpx.Response:
    url = f"/v2/models/{model['id']}/head"
    return await http.put(url, json={"checkpoint_id": checkpoint_id}, headers=headers)


def sent(**fields: str) -> dict[str, str]:
    return {"HUD-TUI-Move": urlencode(fields)}


async def test_each_move_is_kept_with_who_made_it_and_steps_are_none(
    http: AsyncClient, model: Json
) -> None:
    first, second, third = await steps(http, model, 3)
    assert await moves_of(http, model) == MovesRead(since=0.0)
    answer = await put(http, model, first, sent(program="app", host="laptop"))
    assert answer.json()["previous"] == third
    undone = sent(program="app", host="laptop", act="undo") | {"Idempotency-Key": "k"}
    for _ in range(2):  # a repeated request is no second move
        await put(http, model, third, undone)
    again = (await put(http, model, third, {})).json()
    assert (again["previous"], again["moved_at"]) == (third, None)
    await put(http, model, second, {"User-Agent": "hud-python/0.6.21 Linux"})
    read = await moves_of(http, model)
    app = Actor(program="app", host="laptop")
    assert read.since == 0.0
    assert [(m.previous, m.checkpoint_id, m.act, m.by) for m in read.moves] == [
        (third, first, Act.SET, app),
        (first, third, Act.UNDO, app),
        (third, second, Act.SET, Actor(program="hud-python/0.6.21")),
    ]
    assert read.moves[0].at == answer.json()["moved_at"]


async def test_an_account_of_oneself_is_short_and_printable(http: AsyncClient, model: Json) -> None:
    first, second = await steps(http, model, 2)
    await put(http, model, first, sent(program="\x1b[31m" + "x" * 200, host="a\r\nb", act="no act"))
    await put(http, model, second, {"HUD-TUI-Move": "&".join(["%ff=%00"] * 500) + ";%zz"})
    told, other = (await moves_of(http, model)).moves
    assert told.by.program.startswith("␛[31mxxx")
    assert (len(told.by.program), told.by.host, told.act) == (61, "a␍⏎b", Act.SET)
    assert other.by.program.startswith("python-httpx/")


async def test_moves_stay_when_other_events_go(
    http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await steps(http, model, 2)
    await set_head(http, model["id"], first)
    monkeypatch.setattr(events, "MOST_EVENTS", 2)
    monkeypatch.setattr(events, "PRUNE_EVERY", 1)
    await steps(http, model, 2)
    await set_head(http, model["id"], second)
    read = await moves_of(http, model)
    assert ([m.checkpoint_id for m in read.moves], read.since) == ([first, second], 0.0)
    monkeypatch.setattr(events, "MOST_MOVES", 1)
    read = await moves_of(http, model)
    assert [m.checkpoint_id for m in read.moves] == [second]
    assert read.since == read.moves[0].at


async def test_what_is_before_a_damaged_move_is_not_told(
    service: Service, http: AsyncClient, model: Json
) -> None:
    nodes = await steps(http, model, 3)
    for id_ in nodes[:2]:
        await set_head(http, model["id"], id_)
    damage = """UPDATE event SET body = replace(body, '"previous"', '"prevjous"')
        WHERE type = 'head' AND body LIKE '%"set"%' AND body LIKE ?"""
    for id_, left in zip(nodes[:2], (1, 0), strict=True):
        to = f'%"checkpoint_id":"{id_}"%'
        await service.parts.store.write(lambda db, to=to: db.execute(damage, (to,)))
        read = await moves_of(http, model)
        assert len(read.moves) == left
        assert read.since
        assert all(move.at == read.since for move in read.moves)


async def test_moves_of_an_earlier_data_directory_are_there_as_far_as_its_events_go(
    tmp_path: Path,
) -> None:
    with tarfile.open(EARLIER / "data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with sqlite3.connect(tmp_path / "service.db") as db:
        (whole,), (cut,) = db.execute("SELECT id FROM model WHERE NOT is_base LIMIT 2")
        last = 0
        for model_id in (whole, cut):
            for at in (5.0, 7.0):
                old = (
                    f'{{"at":{at},"type":"head","checkpoint_id":"b","previous":"a","cause":"set"}}'
                )
                row = (model_id, "head", old, checksum(old))
                insert = "INSERT INTO event (model_id, type, body, body_crc) VALUES (?, ?, ?, ?)"
                last = db.execute(insert, row).lastrowid or 0
        db.execute("DELETE FROM event WHERE model_id = ? AND id < ?", (cut, last))
        db.execute("UPDATE model SET pruned_to = ? WHERE id = ?", (last - 1, cut))
    db.close()

    def move(at: float) -> HeadMoved:
        return HeadMoved(at=at, checkpoint_id="b", previous="a", cause="set")

    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        expected = MovesRead(moves=(move(5.0), move(7.0)), since=0.0)
        assert await moves_of(http, {"id": whole}) == expected
        assert await moves_of(http, {"id": cut}) == MovesRead(moves=(move(7.0),), since=7.0)


async def test_a_client_says_who_it_is_and_reads_its_move_as_it_was_told(
    http: AsyncClient, model: Json, client: HudClient
) -> None:
    first, second = await steps(http, model, 2)
    moved = await client.set_head(model["id"], first, second, act=Act.REDO)
    assert moved.by == Actor(program="python", host=node())
    assert (moved.previous, moved.act) == (second, Act.REDO)
    assert (await read_moves(client, model["id"], None)).moves == (moved,)


async def test_hud_is_not_told_who_and_its_moves_are_those_sent_or_seen_here(
    tmp_path: Path,
) -> None:
    asked: list[httpx.Request] = []

    def hud(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.method == "PUT":
            return httpx.Response(200, json={"id": "m", "model_name": "m"})
        return httpx.Response(404, json={"detail": "Not Found"})

    log, seen = CommandLog(tmp_path, "headless"), Notebook(notebook_file(tmp_path, "m"))
    sent_at = {"outcome": "done", "before": "c2", "after": "c1"}
    log.add(AuditEntry(10.0, "set head", "m", **sent_at))  # type: ignore[arg-type]
    seen.add(HeadMoved(at=12.0, checkpoint_id="c1", previous="c2", cause="set"))
    seen.add(HeadMoved(at=99.0, checkpoint_id="c3", previous="c1", cause="set"))
    settings = replace(local_settings(DEFAULTS["HUD_API_URL"], "key", "t"), local=False)
    async with answered(hud, settings) as client:
        moved = await client.set_head("m", "c1", was="c2")
        read = await read_moves(client, "m", tmp_path, 50.0)
        nothing = await read_moves(client, "m", None)
    assert (moved.previous, moved.checkpoint_id, moved.cause) == ("c2", "c1", "set")
    assert moved.at > 1e9
    assert "hud-tui-move" not in asked[0].headers
    here = Actor(program="headless", host=node())
    assert [(m.at, m.checkpoint_id, m.by) for m in read.moves] == [
        (12.0, "c1", here),
        (99.0, "c3", None),
    ]
    assert (read.since, nothing) == (50.0, MovesRead())
