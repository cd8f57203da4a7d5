"""Keys with names and roles: what each may do, who did what, and what a key is bounded by."""

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.events import Actor
from hud_tui.processes import boot_s
from hud_tui.rl.history import who
from hud_tui.service import access as access_module
from hud_tui.service import gate
from hud_tui.service.app import AREAS, create_app, role_table
from hud_tui.service.caller import CALLER, SERVICE
from hud_tui.service.engines.base import CLAIMANT
from hud_tui.service.http import now
from hud_tui.service.routes import Route
from hud_tui.service.service import Service
from hud_tui.service.store import proposals
from hud_tui.service.store.tables import MIGRATIONS
from hud_tui.wire_access import Role
from tests.conftest import at_end, bearer, ended, fork, submit, tasks_of
from tests.service.calls import (
    Json,
    ask,
    cancel,
    detail,
    new_key,
    request_of,
    set_head,
    steps,
    tree,
)

ROUTES = [route for area in AREAS for route in area.ROUTES]
Team = dict[str, AsyncClient]
OPEN = "/telemetry/v3/api/sdk-events/cli"
"""Needs no key."""


def path_of(route: Route, model: str) -> str:
    """A path that the route takes."""
    text = route.path.replace("{model_id:path}", model)
    for name in ("{name:path}", "{ref:path}", "{rest:path}", "{name}"):
        text = text.replace(name, "nobody")
    while "{" in text:
        start, end = text.index("{"), text.index("}")
        text = text[:start] + str(uuid4()) + text[end + 1 :]
    return text


async def test_every_route_says_which_role_it_needs_and_none_that_changes_something_is_for_readers(
    service: Service,
) -> None:
    assert all(isinstance(route, Route) for route in ROUTES)
    free = {
        route.path
        for route in ROUTES
        if route.methods and not route.methods <= {"GET", "HEAD"} and route.needs is Role.READ
    }
    assert free == {
        "/chat/completions",
        "/v1/chat/completions",
        "/completions",
        "/v1/completions",
        "/v1/models/{model_id:path}/train/demonstration",
        "/v1/environments/{name}/play",
        OPEN,
        *("/messages", "/v1/messages", "/responses", "/v1/responses"),  # these are not served
        *("/v2/builds/{rest:path}", "/v2/qa/{rest:path}", "/runtime/{rest:path}", "/v2/projects"),
    }


async def test_no_route_lets_through_who_may_not(
    http: AsyncClient, team: Team, service: Service
) -> None:
    """Every route and method, by every role and by keys that are revoked, expired, foreign, cut
    off, or none."""
    model, calls, passed = (await fork(http))["id"], 0, 0
    revoked = await new_key(http, "gone", "admin")
    expired = await new_key(http, "late", "admin", expires_s=0.000001)
    await http.delete("/v1/keys/gone")
    valid = await new_key(http, "val", "admin")
    digest = access_module.access.digest(valid)
    odd = [revoked, expired, "hud-tui-" + "A" * 43, valid[:-1], valid + "a", valid.upper(), digest]
    odd += ["", "é", " " + valid + " x", f"{valid},{valid}"]
    headers = [f"Bearer {key}".encode("latin-1") for key in odd]
    headers += [f"Basic {valid}".encode(), valid.encode(), b"Bearer", b""]
    for route, method in product(ROUTES, ("GET", "POST", "PUT", "PATCH", "DELETE")):
        path = path_of(route, model)
        matches = method in (route.methods or ())
        for header in headers if matches else headers[:1]:
            answer = await http.request(method, path, headers={b"authorization": header})
            calls += 1
            is_open = (method, path) == ("POST", OPEN)
            passed += answer.status_code != 401 and not is_open
        for name, role in (("rea", Role.READ), ("tim", Role.TRAIN), ("sue", Role.STEER)):
            if not matches or route.path.endswith("/train/events"):
                continue
            answer = await team[name].request(method, path, json={})
            calls += 1
            is_refused = answer.status_code == 403 and "may not" in detail(answer)
            assert is_refused is not role.may(route.needs), (method, path, name, answer.text)
    assert (passed, calls > 1500) == (0, True), calls
    for header in (b"", b"Bearer wrong"):
        answer = await http.get("/v2/models", headers={b"authorization": header})
        assert "missing or wrong API key" in detail(answer)


async def test_what_each_role_may_do(team: Team, http: AsyncClient) -> None:
    model = await fork(team["tim"])
    assert model["by"] == "tim"
    first, second = await steps(team["tom"], model, 2)
    assert (await set_head(team["tim"], model["id"], first)).status_code == 403
    assert (await set_head(team["sue"], model["id"], first)).status_code == 200
    assert (await ask(team["rea"], model["model_name"])).status_code == 200
    sampled = await team["rea"].post(
        "/chat/completions",
        json={"model": model["model_name"], "messages": [{"role": "user", "content": "2+2"}]},
        headers={"Trace-Id": uuid4().hex},
    )
    assert "sample rollouts" in detail(sampled)
    pinned = await team["tim"].put(f"/v2/models/{model['id']}/checkpoints/{second}/pin")
    assert pinned.json()["pinned_by"] == "tim"
    rows = await tree(http, model["id"])
    assert [row.get("pinned_by") for row in rows] == [None, "tim"]
    await team["sue"].delete(f"/v2/models/{model['id']}/checkpoints/{second}/pin")
    assert [row.get("pinned_by") for row in await tree(http, model["id"])] == [None, None]
    [move] = await moves_of(http, model)
    assert (move["by"]["key"], move["checkpoint_id"]) == ("sue", first)
    me = (await team["sue"].get("/v2/auth/me")).json()
    assert (me["key"], me["role"], me["expires_at"]) == ("sue", "steer", None)


async def test_who_trains_ends_only_what_is_theirs(team: Team, http: AsyncClient) -> None:
    model = await fork(team["tim"])
    job = await submit(team["tim"], model["id"], steps=500)
    others = await cancel(team["tom"], job)
    assert (others.status_code, "tim began this" in detail(others)) == (403, True)
    every = await team["tom"].post("/v2/rollouts/cancel_user_jobs")
    assert every.json()["jobs_cancelled"] == 0
    renamed = await team["tom"].patch(f"/v2/jobs/{job}", json={"name": "mine"})
    assert renamed.status_code == 403
    shown = (await http.get(f"/v2/jobs/{job}")).json()
    assert (shown["by"], shown["name"]) == ("tim", f"arith on {model['model_name']}")
    assert (await cancel(team["tim"], job)).json()["cancelled"] == 1
    assert (await ended(http, job))["by"] == "tim"
    resumed = await team["tom"].post(f"/v1/training/jobs/{job}/resume")
    assert resumed.status_code == 403
    resumed = await team["sue"].post(f"/v1/training/jobs/{job}/resume")
    assert (resumed.status_code, resumed.json()["by"]) == (200, "tim")
    assert (await cancel(team["sam"], job)).json()["cancelled"] == 1
    [run] = (await http.get("/v1/runs")).json()["items"]
    assert (run["by"], run["resumed_by"]) == ("tim", "sue")
    body = {"checkpoint_id": None, "tasks": (await tasks_of(http))[:2], "split": "all"}
    body |= {"parameters": {"samples": 1}}
    asked = await team["tom"].post(f"/v1/models/{model['id']}/evaluations", json=body)
    assert asked.json()["by"] == "tom", asked.text
    await at_end(http, f"/v1/evaluations/{asked.json()['id']}")


async def test_what_is_resumed_counts_for_who_resumed_it(team: Team, http: AsyncClient) -> None:
    async def counted() -> dict[str, int]:
        keys = (await http.get("/v1/keys")).json()
        return {key["name"]: key["work"] for key in keys if key["work"]}

    model = await fork(team["tim"])
    job = await submit(team["tim"], model["id"], steps=5000)
    assert await counted() == {"tim": 1}
    for name, shown in (("sue", "sue"), ("sam", "sam"), ("tim", None), ("admin", "admin")):
        await cancel(http, job)
        resumed = await team[name].post(f"/v1/training/jobs/{job}/resume")
        assert (resumed.json()["by"], resumed.json()["resumed_by"]) == ("tim", shown)
        assert await counted() == ({} if name == "admin" else {name: 1})
    listed = (await http.get(f"/v2/jobs/{job}")).json()
    assert (listed["by"], listed["resumed_by"]) == ("tim", "admin")
    await cancel(http, job)


async def test_what_a_client_carries_out_counts_for_who_resumed_it(
    team: Team, http: AsyncClient
) -> None:
    model, job, evaluation = await fork(team["tim"]), uuid4().hex, uuid4().hex
    run = {"model_id": model["id"], "name": "own", "driver": "d", "parameters": {"steps": 9}}
    kept = {"model_id": model["id"], "split": "all", "samples": 1, "num_tasks": 1}
    kept |= {"parameters": {}, "groups": [], "driver": "d"}
    begun = {f"/v1/training/jobs/{job}/drive": run}
    begun[f"/v1/evaluations/{evaluation}"] = {**kept, "status": "running"}
    for path, body in begun.items():
        for name, resumed_by in (("tim", None), ("sue", "sue")):
            state = (await team[name].put(path, json=body)).json()
            assert (state["by"], state["resumed_by"]) == ("tim", resumed_by), state
            over = {**kept, "status": "cancelled"} if body is not run else None
            if over is not None:
                await team["tim"].put(path, json=over)


async def test_rollouts_of_anothers_job_cannot_be_reported(team: Team, http: AsyncClient) -> None:
    job, trace = uuid4().hex, uuid4().hex
    await team["tim"].post(f"/v2/trace/job/{job}/enter", json={"name": "loop"})
    enter, leave = f"/v2/trace/{trace}/enter", f"/v2/trace/{trace}/exit"
    body, end = {"job_id": job, "task_slug": "a"}, {"status": "completed", "reward": 1.0}
    assert (await team["tom"].post(enter, json=body)).status_code == 403
    assert (await team["tim"].post(enter, json=body)).status_code == 200
    assert (await team["tom"].post(leave, json=end)).status_code == 403
    spans = f"/telemetry/v3/api/trace/{trace}/telemetry-upload"
    told = {"telemetry": [{"span_id": "s", "a": 1}]}
    assert (await team["tom"].post(spans, json=told)).status_code == 403
    stop = {"trace_id": trace}
    cancelled = await team["tom"].post("/v2/rollouts/cancel", json=stop)
    assert cancelled.status_code == 403
    assert (await team["tim"].post(leave, json=end)).status_code == 200


async def test_keys_are_listed_without_secrets_and_stored_as_hashes(
    http: AsyncClient, service: Service
) -> None:
    key = await new_key(http, "ana", "train", expires_s=3600, max_work=2)
    [row] = (await http.get("/v1/keys")).json()
    assert (row["name"], row["role"], row["by"], row["max_work"]) == ("ana", "train", "admin", 2)
    assert 3590 < row["expires_at"] - now() < 3600
    assert key not in json.dumps(row)
    await http.get("/v2/models", headers=bearer(key))
    await http.get("/v2/models", headers=bearer(key[:-1]))
    kept = b"".join(file.read_bytes() for file in service.data_dir.rglob("*") if file.is_file())
    assert key.encode() not in kept
    taken = await http.post("/v1/keys", json={"name": "ana", "role": "read"})
    assert taken.status_code == 409
    for name in ("admin", "Ana", "", "a" * 41, "a b", "-a", "ä"):
        answer = await http.post("/v1/keys", json={"name": name, "role": "read"})
        assert answer.status_code in (409, 422), name
    assert (await http.delete("/v1/keys/admin")).status_code == 409
    assert (await http.delete("/v1/keys/nobody")).status_code == 404


async def test_a_revoked_key_stays_so_after_a_restart_and_its_name_is_not_used_again(
    http: AsyncClient, service: Service
) -> None:
    key = await new_key(http, "ana", "admin")
    other = await new_key(http, "bob", "read")
    with_key = bearer(key)
    assert (await http.delete("/v1/keys/ana", headers=with_key)).status_code == 200
    assert (await http.get("/v2/models", headers=with_key)).status_code == 401
    again = (await http.delete("/v1/keys/ana")).json()
    assert again["revoked_at"] is not None
    assert (await http.post("/v1/keys", json={"name": "ana", "role": "read"})).status_code == 409
    reopened = access_module.Access(service.parts.store)
    await reopened.open(service.api_key)
    assert reopened.caller(b"Bearer " + other.encode()).name == "bob"
    with pytest.raises(access_module.Unknown):
        reopened.caller(b"Bearer " + key.encode())


async def test_a_clock_that_is_set_back_gives_a_key_no_more_time(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_key(http, "short", "read", expires_s=60)
    header, wall, boot = f"Bearer {key}".encode(), now(), boot_s()
    monkeypatch.setattr(access_module, "now", lambda: wall - 86_400)
    assert service.access.accepts(service.access.caller(header))
    monkeypatch.setattr(access_module, "boot_s", lambda: boot + 61)
    with pytest.raises(access_module.Unknown, match="short has expired"):
        service.access.caller(header)


# Protected models.


class Proposals:
    """The proposals for a model's head, as people of a team make and decide them."""

    def __init__(self, team: Team, model: Json) -> None:
        self._team, self._at = team, f"/v2/models/{model['id']}"

    async def protect(self) -> Response:
        return await self._team["admin"].put(f"{self._at}/protection")

    async def unprotect(self) -> Response:
        return await self._team["admin"].delete(f"{self._at}/protection")

    async def send(self, checkpoint_id: str, note: str = "") -> Response:
        body = {"checkpoint_id": checkpoint_id, "note": note}
        return await self._team["sue"].post(f"{self._at}/head/proposals", json=body)

    async def make(self, checkpoint_id: str) -> str:
        """A proposal's id."""
        return str((await self.send(checkpoint_id)).json()["id"])

    async def decide(self, id_: str, verb: str = "approve", by: str = "sam") -> Response:
        return await self._team[by].post(f"{self._at}/head/proposals/{id_}/{verb}")

    async def refused(self, id_: str, why: str, verb: str = "approve") -> bool:
        late = await self.decide(id_, verb)
        return late.status_code == 409 and why in detail(late)

    async def all(self) -> list[Json]:
        return list((await self._team["rea"].get(f"{self._at}/head/proposals")).json()["proposals"])

    async def statuses(self) -> list[str]:
        return [proposal["status"] for proposal in await self.all()]


async def protected(team: Team, count: int) -> tuple[Json, list[str], Proposals]:
    """A model that is protected, so many steps of it, and its proposals."""
    model = await fork(team["admin"])
    nodes, asked = await steps(team["admin"], model, count), Proposals(team, model)
    assert (await asked.protect()).json()["protected_by"] == "admin"
    return model, nodes, asked


async def moves_of(http: AsyncClient, model: Json) -> list[Json]:
    return list((await http.get(f"/v2/models/{model['id']}/head/moves")).json()["moves"])


async def test_a_protected_head_moves_by_two_people(team: Team, http: AsyncClient) -> None:
    model, [first, second], asked = await protected(team, 2)
    assert (await team["sue"].put(f"/v2/models/{model['id']}/protection")).status_code == 403
    assert (await http.get(f"/v2/models/{model['id']}")).json()["protected_by"] == "admin"
    for client in team.values():
        answer = await set_head(client, model["id"], first)
        assert answer.status_code == 403
    assert "--propose" in detail(answer)
    sent = await asked.send(first, note="2 is overfitted")
    assert (sent.status_code, sent.json()["by"]) == (201, "sue")
    id_ = sent.json()["id"]
    assert await asked.make(first) == id_
    own = await asked.decide(id_, by="sue")
    assert (own.status_code, detail(own)) == (
        403,
        "another person has to approve what you proposed",
    )
    assert (await asked.decide(id_, by="tim")).status_code == 403
    agreed = await asked.decide(id_)
    assert (agreed.status_code, agreed.json()["decided_by"]) == (200, "sam")
    assert [row["is_active"] for row in await tree(http, model["id"])] == [True, False]
    [move] = await moves_of(http, model)
    assert (move["by"]["key"], move["by"]["proposed_by"]) == ("sam", "sue")
    assert await asked.refused(id_, "the head is step-000001")
    [listed] = await asked.all()
    assert (listed["status"], listed["note"]) == ("approved", "2 is overfitted")
    assert listed["checkpoint"] == "step-000001"
    assert (await asked.unprotect()).json()["protected_by"] is None
    assert (await set_head(team["sue"], model["id"], second)).status_code == 200


async def test_no_program_is_called_as_a_person_who_proposed(team: Team, http: AsyncClient) -> None:
    model = await fork(http)
    first, _ = await steps(http, model, 2)
    told = {"HUD-TUI-Move": "program=sam:%20app&host=box,%20proposed%20by%20sam&key=sam"}
    body = {"checkpoint_id": first}
    await team["sue"].put(f"/v2/models/{model['id']}/head", json=body, headers=told)
    [move] = await moves_of(http, model)
    assert (move["by"]["key"], move["by"].get("proposed_by", "")) == ("sue", "")
    assert who(Actor(**move["by"])) == "sue: sam  app on box  proposed by sam"


async def test_a_proposal_that_another_move_overtook_is_refused(team: Team) -> None:
    _, [first, second, third], asked = await protected(team, 3)
    await asked.unprotect()
    assert (await asked.send(first)).status_code == 409, "nobody has to approve it"
    await asked.protect()
    one, two = await asked.make(first), await asked.make(second)
    assert (await asked.decide(one)).status_code == 200
    assert await asked.refused(two, "the head is step-000001")
    assert await asked.statuses() == ["approved", "overtaken"]
    three = await asked.make(second)
    assert (three != two, await asked.make(second)) == (True, three)
    withdrawn = (await asked.decide(three, "withdraw")).json()
    assert (withdrawn["status"], withdrawn["decided_by"]) == ("withdrawn", "sam")
    assert await asked.refused(three, "was withdrawn by sam")
    assert (await asked.decide(await asked.make(third))).status_code == 200
    assert (await asked.statuses())[1] == "overtaken", "though the head is back"


async def test_who_proposes_again_after_the_head_moved_proposes_anew(
    team: Team, http: AsyncClient
) -> None:
    """Else what they get is a proposal that nobody can approve."""
    model, [first, second, _], asked = await protected(team, 3)
    old = await asked.make(first)
    await asked.unprotect()
    assert (await set_head(http, model["id"], second)).status_code == 200
    await asked.protect()
    assert await asked.refused(old, "the head is step-000002")
    assert (await asked.decide(await asked.make(first))).status_code == 200
    assert await asked.statuses() == ["overtaken", "approved"]


async def test_a_proposal_that_nobody_can_approve_reads_as_ended_and_the_list_is_bounded(
    team: Team, http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "MOST_OPEN", 2)
    monkeypatch.setattr(proposals, "MOST_ENDED", 3)
    model, nodes, asked = await protected(team, 4)
    for node in nodes[:2]:
        assert (await asked.send(node)).status_code == 201
    many = await asked.send(nodes[2])
    assert (many.status_code, "2 proposals are open" in detail(many)) == (409, True)
    await asked.unprotect()
    await set_head(http, model["id"], nodes[2])
    await asked.protect()
    assert await asked.statuses() == ["overtaken"] * 2, "though nobody has looked since"
    new, stamp = await asked.make(nodes[0]), now()
    monkeypatch.setattr(proposals, "now", lambda: stamp + proposals.VALID_S)
    assert (await asked.statuses())[-1] == "expired"
    for verb in ("approve", "withdraw"):
        assert await asked.refused(new, "has expired: propose", verb)
    await asked.decide(await asked.make(nodes[0]), "withdraw")
    assert (await asked.send(nodes[1])).status_code == 201
    ends = [("overtaken", None), ("expired", None), ("withdrawn", "sam"), ("open", None)]
    assert [(each["status"], each["decided_by"]) for each in await asked.all()] == ends
    expire = "UPDATE checkpoint SET state = 'expired' WHERE id = ?"
    await service.parts.store.write(lambda db: db.execute(expire, (nodes[1],)))
    assert (await asked.statuses())[-1] == "expired", "with its checkpoint"


@pytest.mark.parametrize("by", ["a move", "a step"])
async def test_what_is_overtaken_while_a_model_is_not_protected_stays_ended(
    team: Team, http: AsyncClient, by: str
) -> None:
    model, [first, second], asked = await protected(team, 2)
    id_ = await asked.make(first)
    await asked.unprotect()
    if by == "a move":
        await set_head(http, model["id"], first)
        await set_head(http, model["id"], second)
    else:
        await steps(http, model, 1)
    await asked.protect()
    [listed] = await asked.all()
    assert (listed["status"], listed["decided_by"]) == ("overtaken", None)
    assert await asked.refused(id_, "overtaken: the head has moved")


async def test_what_was_overtaken_in_an_older_version_stays_ended(
    team: Team, http: AsyncClient, service: Service
) -> None:
    """It stored an end only when the next one was proposed."""
    model, [first, second], asked = await protected(team, 2)
    script = next(one for one in MIGRATIONS if "SET status = 'overtaken'" in one)

    async def migrated(change: str = "UPDATE proposal SET status = 'open'") -> list[str]:
        await service.parts.store.write(lambda db: db.execute(change))
        await service.parts.store.write(lambda db: db.execute(script))
        return await asked.statuses()

    await asked.make(first)
    await asked.unprotect()
    await set_head(http, model["id"], first)
    await service.parts.store.write(lambda db: db.execute("DELETE FROM event"))
    assert await migrated() == ["overtaken"], "though its event is not kept"
    await set_head(http, model["id"], second)
    assert await migrated() == ["overtaken"], "though the head is back"
    await asked.protect()
    await asked.make(first)
    assert await migrated("SELECT 1") == ["overtaken", "open"]


async def test_a_protected_model_is_not_trained(team: Team, http: AsyncClient) -> None:
    model = await fork(http)
    await steps(http, model, 1)
    job = await submit(http, model["id"], steps=500)
    at = f"/v2/models/{model['id']}/protection"
    busy = await http.put(at)
    assert (busy.status_code, job in detail(busy)) == (409, True)
    await cancel(http, job)
    await ended(http, job)
    assert (await http.put(at)).status_code == 200
    path = f"/v1/models/{model['id']}/train/"
    step = await http.post(f"{path}optim-step", json={"learning_rate": 0.1})
    resumed = await http.post(f"/v1/training/jobs/{job}/resume")
    body = {"model_id": model["id"], "dataset": {"tasks": await tasks_of(http)}, "config": {}}
    run = await http.post("/v1/training/jobs", json=body)
    drive = {"model_id": model["id"], "name": "n", "driver": "d", "parameters": {}, "start": "base"}
    driven = await http.put(f"/v1/training/jobs/{uuid4()}/drive", json=drive)
    for answer in (step, resumed, run, driven):
        assert (answer.status_code, "protected by admin" in detail(answer)) == (403, True)
    source = {"source_model_id": model["id"], "name": "a fork", "checkpoint_id": "base"}
    assert (await http.post("/v2/models/fork", json=source)).status_code == 201


# Bounds.


async def test_a_key_has_at_most_so_much_work(http: AsyncClient) -> None:
    headers = bearer(await new_key(http, "two", "train", max_work=1))
    models = [await fork(http, name) for name in ("one", "two")]
    tasks = await tasks_of(http)
    parameters = {"config": {"parameters": {"steps": 500}}}

    async def run(model: Json) -> Response:
        body = {"model_id": model["id"], "dataset": {"tasks": tasks}, **parameters}
        return await http.post("/v1/training/jobs", json=body, headers=headers)

    first, second = await run(models[0]), await run(models[1])
    assert (first.status_code, second.status_code) == (201, 429)
    assert "two may have 1" in detail(second)
    asked = {"checkpoint_id": None, "tasks": tasks[:2], "split": "all"}
    path = f"/v1/models/{models[1]['id']}/evaluations"
    assert (await http.post(path, json=asked, headers=headers)).status_code == 429
    kept = {"model_id": models[1]["id"], "checkpoint_id": None, "status": "running"}
    kept |= {"split": "all", "samples": 1, "num_tasks": 1, "parameters": {}, "groups": []}
    made = await http.put(f"/v1/evaluations/{uuid4()}", json=kept, headers=headers)
    drive = {"model_id": models[1]["id"], "name": "n", "driver": "d", "parameters": {}}
    path = f"/v1/training/jobs/{uuid4()}/drive"
    driven = await http.put(path, json={**drive, "start": "base"}, headers=headers)
    assert (made.status_code, driven.status_code) == (429, 429), made.text
    [_, row] = [{}, *(await http.get("/v1/keys")).json()]
    assert row["work"] == 1
    await cancel(http, first.json()["job_id"])
    third = await run(models[1])
    assert third.status_code == 201
    path = f"/v1/training/jobs/{first.json()['job_id']}/resume"
    assert (await http.post(path, headers=headers)).status_code == 429
    await cancel(http, third.json()["job_id"])


async def test_what_a_key_takes_over_is_bounded_too(team: Team, http: AsyncClient) -> None:
    """By whatever a client sends: running work, what has ended, and what was given up."""
    owns = bearer(await new_key(http, "one", "steer", max_work=1))
    models = [await fork(team["tim"], name) for name in ("one", "two")]

    def drive(number: int, **key: Any) -> Any:
        body = {"model_id": models[number]["id"], "name": "n", "driver": "d", "parameters": {}}
        return http.put(f"/v1/training/jobs/{runs[number]}/drive", json=body, **key)

    def evaluate(status: str, **key: Any) -> Any:
        body = {"model_id": models[1]["id"], "split": "all", "samples": 1, "num_tasks": 1}
        body |= {"parameters": {}, "groups": [], "status": status}
        return http.put(f"/v1/evaluations/{evaluation}", json=body, **key)

    def report(status: str) -> Any:
        path = f"/v1/training/jobs/{runs[0]}/drive"
        return http.patch(path, json={"status": status}, headers=owns)

    runs, evaluation = [str(uuid4()), str(uuid4())], str(uuid4())
    tim = {"headers": team["tim"].headers}
    for answer in (drive(0, headers=owns), drive(1, **tim), evaluate("running", **tim)):
        assert (await answer).status_code == 200
    await evaluate("cancelled", **tim)
    for answer in (drive(1, headers=owns), evaluate("running", headers=owns)):
        assert (told := await answer).status_code == 429, told.text
        assert "one may have 1 runs and evaluations at once" in detail(told)
    assert (await http.get(f"/v2/jobs/{runs[1]}")).json()["resumed_by"] is None, "nothing was done"
    assert (await drive(0, headers=owns)).status_code == 200, "that is its own, and counted"
    assert (await report("interrupted")).status_code == 200
    assert (await drive(1, headers=owns)).json()["resumed_by"] == "one"
    assert (await report("running")).status_code == 429
    assert [row["work"] for row in (await http.get("/v1/keys")).json() if row["work"]] == [1]


async def test_a_key_sends_at_most_so_many_requests(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "WAIT_S", 0.0)
    clock = [100.0]
    monkeypatch.setattr(access_module, "monotonic", lambda: clock[0])
    headers = bearer(await new_key(http, "flood", "read", max_calls=3))
    codes = [(await http.get("/v2/auth/me", headers=headers)).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    clock[0] += 0.4
    answers = [await http.get("/v2/auth/me", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].headers["Retry-After"] == "1"
    assert "more than 3 requests per second" in detail(answers[1])
    assert (await http.get("/v2/auth/me")).status_code == 200


async def test_a_key_has_at_most_so_many_requests_under_way(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "WAIT_S", 0.0)
    monkeypatch.setattr(access_module, "AT_ONCE", 2)
    headers = bearer(await new_key(http, "slow", "read"))
    answers = await asyncio.gather(*(http.get("/v2/models", headers=headers) for _ in range(6)))
    codes = sorted(answer.status_code for answer in answers)
    assert (codes[:2], codes[-1]) == ([200, 200], 429)
    assert (await http.get("/v2/models", headers=headers)).status_code == 200


async def test_the_more_requests_of_a_key_are_refused_the_longer_they_wait(
    http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thousand connections that are refused would take all there is."""
    headers, waits = bearer(await new_key(http, "flood", "read")), list[float]()
    pause = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await pause(0.02)

    monkeypatch.setattr(gate, "WAITERS", 2)
    monkeypatch.setattr(access_module, "AT_ONCE", 0)
    monkeypatch.setattr(asyncio, "sleep", noted)
    await asyncio.gather(*(http.get("/v2/models", headers=headers) for _ in range(5)))
    await http.get("/v2/models", headers=headers)
    assert waits == [gate.WAIT_S * times for times in (1, 1, 1.5, 2, 2.5, 1)]


async def test_the_reads_of_a_key_are_carried_out_one_by_one(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that reads all rollouts of a long run again and again would stop a step."""
    headers, at_once = bearer(await new_key(http, "rea", "read")), [0]
    disk = service.parts.retention.disk

    async def slow(base: Any) -> Any:
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(0.001)
        at_once.append(at_once[-1] - 1)
        return await disk(base)

    monkeypatch.setattr(service.parts.retention, "disk", slow)
    for sent, most in ((headers, 1), ({}, 4)):
        at_once[:] = [0]
        answers = [http.get("/v2/models", headers=sent) for _ in range(4)]
        assert {answer.status_code for answer in await asyncio.gather(*answers)} == {200}
        assert max(at_once) == most


async def test_nobody_is_left_as_the_caller(http: AsyncClient) -> None:
    await http.get("/v2/models")
    assert CALLER.get() is SERVICE


async def test_the_engine_is_told_for_whom_it_samples_and_steps(
    team: Team, http: AsyncClient, service: Service, monkeypatch: Any
) -> None:
    """So that it can have keys take turns."""
    told: set[tuple[str, str]] = set()

    def telling(name: str, call: Any) -> Any:
        def told_of(*args: Any) -> Any:
            told.add((name, CLAIMANT.get()))
            return call(*args)

        return told_of

    engine = service.parts.engine
    for name in ("sample", "optim_step"):
        monkeypatch.setattr(engine, name, telling(name, getattr(engine, name)))
    model = await fork(team["tim"])
    await ended(http, await submit(team["tim"], model["id"], steps=2))
    assert told == {("sample", "tim"), ("optim_step", "tim")}
    await ask(team["rea"], model["model_name"])
    assert ("sample", "rea") in told


def test_the_page_says_what_each_role_may_do() -> None:
    page = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
    assert "\n".join(role_table()) in page


async def test_the_line_is_there_before_the_answer(http: AsyncClient, service: Service) -> None:
    """Else who has made a change might not find it in the log."""
    app, lines = create_app(service), list[str]()
    log, body = service.data_dir / "log.jsonl", b'{"name": "ana", "role": "read"}'
    request = request_of("POST", "/v1/keys", authorization=f"Bearer {service.api_key}")

    async def receive() -> Json:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            lines.extend(log.read_text().splitlines())

    await app(request, receive, send)
    [line] = map(json.loads, lines)
    assert (line["what"], line["status"]) == ("make a key", 201)
    assert log.read_text().splitlines() == lines, "once"
