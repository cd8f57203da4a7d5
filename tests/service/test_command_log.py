"""The command log over the real service: what is written down, and that it does the same again."""

import asyncio
import json
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.audit_log import NAME, AuditEntry, CommandLog, as_curl, as_hud_tui, as_python
from hud_tui.change import Change
from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.client.submit import omitted_tasks
from hud_tui.config import ReadOnly
from hud_tui.errors import HudConflict, HudMalformed, HudReadOnly, HudRefused, HudUnreachable
from hud_tui.service.service import Service
from hud_tui.settings import Settings
from hud_tui.wire import Model
from hud_tui.wire_training import Chat
from tests.conftest import PATIENCE_S, Served, ended, submit, until
from tests.service.calls import ran, set_head, status_of, tree
from tests.service.clients import KEY, answered, fork_of, in_process, run_of
from tests.service.headless import Command, Result, Text, forked, model_of
from tests.toy_engine import ToyEngine
from tests.tui.cockpit import grow
from tests.tui.conftest import Net, settings_of


async def test_what_was_changed_is_told_with_what_came_of_it(service: Service) -> None:
    log: list[AuditEntry] = []
    async with in_process(service, observe=log.append) as client:
        model = await fork_of(client)
        with pytest.raises(HudConflict):
            await fork_of(client)
        job = await client.runs.submit(await run_of(client, model, steps=1))
        await client.cancel_job(job.job_id)
        await client.models()
    verbs = [(one.verb, one.outcome) for one in log]
    assert verbs == [("fork", "done"), ("fork", "refused"), ("submit", "done"), ("cancel", "done")]
    made, refused, submitted, cancelled = log
    assert (made.after, made.subject) == (model.id, "arith rl")
    assert made.sent["name"] == "arith rl"
    assert "exists already" in refused.message
    assert refused.after == ""
    assert (submitted.model, submitted.name) == (model.id, model.model_name)
    assert submitted.after == job.job_id
    assert submitted.omitted == ("dataset",)
    assert submitted.sent["config"]["parameters"]["steps"] == 1
    assert cancelled.subject == job.job_id
    assert len({one.key for one in log}) == 4
    assert {one.service for one in log} == {"HUD local"}


@pytest.mark.parametrize("lost", [None, "answer"])
async def test_what_a_head_move_replaced_is_as_the_service_says_it(
    served: Served, http: httpx.AsyncClient, lost: str | None
) -> None:
    """Training takes steps between the last read of the head and its move."""
    log: list[AuditEntry] = []
    settings = settings_of(served)
    async with aclosing(HudClient(settings, Net(lose=lost), observe=log.append)) as client:
        model = await fork_of(client) if lost is None else await other_fork(settings)
        await grow(http, model.id, 2)
        first, read = [node.id for node in await client.checkpoints(model.id)]
        await grow(http, model.id, 2)
        served_then = (await tree(http, model.id))[-1]["id"]
        replaced = (await client.set_head(model.id, first, read, was=read)).previous
    assert served_then != read
    assert (replaced, log[-1].before, log[-1].after) == (served_then, served_then, first)
    assert log[-1].outcome == "done"


async def other_fork(settings: Settings) -> Model:
    """A fork by a client that loses nothing."""
    async with aclosing(HudClient(settings)) as client:
        return await fork_of(client)


async def test_what_is_unclear_is_said_to_be_and_no_key_is_kept() -> None:
    log: list[AuditEntry] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            raise httpx.ReadError(f"cut, with {KEY}", request=request)
        if request.method == "DELETE":
            return httpx.Response(503, json={"detail": f"busy {KEY}"})
        headers = {"x-request-id": "req-1\x1b[31m"}
        return httpx.Response(409, json={"detail": f"no {KEY}"}, headers=headers)

    async with answered(handler, observe=log.append) as client:
        for call in (
            client.set_head("m", KEY, was="before"),
            client.pin("m", "c", False),
            client.fork("m", f"named {KEY}"),
        ):
            with pytest.raises((HudUnreachable, HudRefused)):
                await call
        waiting = asyncio.create_task(client.resume_job("j"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert [one.outcome for one in log] == ["unknown", "unknown", "refused"]
    assert log[0].before == "before"
    assert log[2].request_id.startswith("req-1")
    assert "\x1b" not in log[2].request_id
    assert all(KEY not in str(one) for one in log)


def empty(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={})


async def test_what_computes_or_was_not_sent_is_not_told_nor_the_user_of_a_url() -> None:
    log: list[AuditEntry] = []
    guard = Guard(lambda: ReadOnly("told so", "do not"))
    async with answered(empty, guard=guard, observe=log.append) as client:
        with pytest.raises(HudReadOnly):
            await client.set_head("m", "c")
    async with answered(empty, observe=log.append) as client:
        with pytest.raises(HudMalformed):
            await client.training.chat(Chat(model="m", messages=[]))
        assert log == []
        change = Change("set head", "m", after="c")
        await client.wire.write("PUT", "http://ada:secret@hud/x", dict, change)
    assert [one.url for one in log] == ["http://hud/x"]


async def test_headless_commands_are_written_down_and_told(
    bare: Command, text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = await bare("log")
    assert (empty.code, empty.kind) == (0, "log")
    assert empty.data == {"entries": [], "total": 0, "omitted": 0, "unreadable": 0}
    model = await forked(bare)
    await bare("fork", "arith-rl", "--name", "arith-rl", "-y")
    with (tmp_path / "state" / NAME).open("a") as file:
        file.write("no line of ours\n")
    told = (await bare("log")).data
    assert (told["total"], told["unreadable"]) == (2, 1)
    first, second = told["entries"]
    assert (first["verb"], first["outcome"], first["by"]) == ("fork", "done", "headless")
    assert first["after"] == model["id"]
    assert second["outcome"] == "refused"
    assert first["commands"]["hud"].endswith(f"--name=arith-rl --yes {first['model']}")
    last = (await bare("log", "refused", "--limit", "1")).data
    assert [entry["message"] for entry in last["entries"]] == [second["message"]]
    assert (await bare("log", "--limit", "1")).data["omitted"] == 1
    assert (await bare("log", "--limit", "0")).code == 2
    monkeypatch.delenv("HUD_API_KEY")  # it is read without a service, and as lines
    code, out, _ = await text("log")
    done, refused, unreadable = out.splitlines()
    assert code == 0
    assert ("done    fork" in done, "→ arith-rl" in done) == (True, True)
    assert "refused" in refused
    assert unreadable == "1 unreadable line in the log"
    with (tmp_path / "state" / NAME).open("a") as file:
        file.write(json.dumps({**first, "verb": "forward-backward", "name": "mine"}) + "\n")
    assert "done    forward-backward mine " in (await text("log", "forward-backward"))[1]
    code, out, _ = await text("log", "nothing of it")
    assert (code, out.startswith("no entry matches\n")) == (0, True)


async def test_a_change_that_is_not_written_down_is_told(bare: Command, tmp_path: Path) -> None:
    (tmp_path / "state" / NAME).mkdir(parents=True)
    base = (await bare("models")).data["models"][0]["model_name"]
    forked = await bare("fork", base, "--name", "arith-rl", "-y")
    assert (forked.code, forked.data["model"]["name"]) == (0, "arith-rl")
    said = "hud-tui: done, but not in the command log, which cannot be written: fork → arith-rl:"
    assert said in forked.err


async def test_curl_and_python_do_the_same_again(
    hud: Command, served: Served, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)

    async def head() -> str:
        return str(next(row["name"] for row in await tree(http, model["id"]) if row["is_active"]))

    first = await head()
    assert (await hud("head", "arith-rl", "--back", "1", "-y")).code == 0
    second = await head()
    [one] = entries(tmp_path, "set head")
    assert (one.before, one.after) != ("", "")
    for command in (["sh", "-c", as_curl(one)], [sys.executable, "-c", as_python(one)]):
        assert (await set_head(http, model["id"], one.before)).is_success
        assert await head() == first
        await run_with_key(served, *command)
        assert await head() == second
    everything = (tmp_path / "state" / NAME).read_text()
    assert served.api_key not in everything


async def test_curl_of_a_submission_has_its_tasks_read_again(
    hud: Command, served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "it's.jsonl"
    row = {"env": "arith", "id": "add"}
    rows = [{**row, "args": {"a": n, "b": 2}, "slug": f"a'{n}"} for n in range(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--steps", "1", "--tasks-per-step", "2", "--group-size", "2")
    done = await hud("run", str(file), "-m", "arith-rl", *flags, "-y", "--follow")
    assert done.code == 0
    [one] = entries(tmp_path, "submit")
    async with aclosing(HudClient(settings_of(served))) as client:
        rest, why = await omitted_tasks(client, one)
        assert (why, rest is not None) == ("", True)
        curl = as_curl(one, rest)
        told = await run_with_key(served, "sh", "-c", curl)
        assert "not base, where the run was to start" in json.loads(told)["detail"]
        head = (await client.checkpoints((await client.model("arith-rl")).id))[-1].id
        curl = curl.replace('"start": "base"', f'"start": "{head}"')
        told = await run_with_key(served, "sh", "-c", curl)
        again = await client.known_job(json.loads(told)["job_id"])
        assert again is not None
        assert (again.parameters or {})["group_size"] == 2
        file.write_text(file.read_text() + json.dumps({**rows[0], "slug": "new"}) + "\n")
        assert "have digest" in (await omitted_tasks(client, one))[1]


def entries(tmp_path: Path, verb: str) -> list[AuditEntry]:
    return [one for one in CommandLog(tmp_path / "state").read()[0] if one.verb == verb]


async def run_with_key(served: Served, *words: str) -> bytes:
    """What a command prints to which HUD_API_KEY is the service's."""
    environ = {**os.environ, "HUD_API_KEY": served.api_key}
    process = await asyncio.create_subprocess_exec(*words, env=environ, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, err
    return out


def logged(tmp_path: Path, verb: str) -> str:
    """The hud-tui command of the newest entry with this verb."""
    return as_hud_tui(entries(tmp_path, verb)[-1])


async def again(hud: Command, command: str) -> Result:
    """Run a command of the log as it is."""
    words = shlex.split(command)
    assert words[:2] == ["hud-tui", "--headless"]
    return await hud(*words[2:])


async def parameters_of(http: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    status = (await http.get(f"/v1/training/jobs/{job_id}/raw-status")).json()
    return dict(status["parameters"])


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    """A file of three tasks."""
    rows = [
        {"env": "arith", "id": "add", "args": {"a": one, "b": 2}, "slug": f"add {one}"}
        for one in (1, 2, 3)
    ]
    file = tmp_path / "my tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def change(file: Path) -> None:
    """One task asks something else."""
    file.write_text(file.read_text().replace('"a": 3', '"a": 4'))


async def test_the_command_of_a_submission_submits_the_same(
    hud: Command,
    http: httpx.AsyncClient,
    tmp_path: Path,
    tasks_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From any directory, with the same tasks and parameters."""
    monkeypatch.chdir(tmp_path)
    flags = ("--steps", "1", "--lr", "1e-4", "--norm-adv-by-std", "--leave-out", "add 2", "-y")
    first = (await hud("run", tasks_file.name, "-m", "arith-rl", *flags)).data["job_id"]
    await ended(http, first)
    monkeypatch.chdir("/")
    result = await again(hud, logged(tmp_path, "submit"))
    second = result.data["job_id"]
    assert (result.code, second != first) == (0, True)
    await ended(http, second)
    assert await parameters_of(http, second) == await parameters_of(http, first)
    for id_ in (first, second):
        traces = (await http.get(f"/v2/jobs/{id_}/traces")).json()["items"]
        assert {trace["task_slug"] for trace in traces} == {"add 1", "add 3"}


async def test_a_submission_whose_file_has_changed_is_refused_with_both_digests(
    hud: Command, tmp_path: Path, tasks_file: Path, http: httpx.AsyncClient
) -> None:
    assert (await hud("run", str(tasks_file), "-m", "arith-rl", "--steps", "1", "-y")).code == 0
    await ended(http, (await http.get("/v2/jobs")).json()["items"][0]["id"])
    command = logged(tmp_path, "submit")
    change(tasks_file)
    refused = await again(hud, command)
    assert (refused.code, refused.error["type"]) == (2, "tasks_changed")
    [was] = re.findall("--digest=([0-9a-f]{16})", command)
    said = f"{refused.error['message']} {refused.error['hint']}"
    [now] = {one for one in re.findall("[0-9a-f]{16}", said) if one != was}
    assert f"digest {now}, not {was}" in refused.error["message"]
    assert len(entries(tmp_path, "submit")) == 1
    assert (await again(hud, command.replace(was, now))).code == 0
    other = await hud("run", str(tasks_file), "-m", "arith-rl", "--leave-out", "add 9", "-y")
    assert (other.code, "no such task" in other.error["message"]) == (2, True)


async def test_the_commands_of_a_head_a_fork_and_a_name_do_the_same(
    hud: Command, served: Served, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)
    url = f"/v2/models/{model['id']}"
    first, second = [node["id"] for node in (await http.get(f"{url}/checkpoints")).json()]
    assert (await hud("head", "arith-rl", "--back", "1", "-y")).code == 0
    assert (await http.put(f"{url}/head", json={"checkpoint_id": second})).is_success
    command = logged(tmp_path, "set head")
    assert (await again(hud, command)).code == 0
    assert (await hud("head", "arith-rl")).data["head"]["id"] == first
    settings = replace(settings_of(served), local=False)
    for start in (None, first):
        lost = Net(lose="request")
        log = CommandLog(tmp_path / "state")
        async with aclosing(HudClient(settings, lost, observe=log.add)) as client:
            with pytest.raises(HudUnreachable):
                await client.fork(model["id"], f"mine {start}", start)
        made = await again(hud, logged(tmp_path, "fork"))
        assert (made.code, made.data["model"]["name"]) == (0, f"mine {start}")
    job_id = await ran(http, model["id"], steps=1)
    for name in ("one", "two"):
        assert (await hud("runs", job_id, "--name", name, "-y")).code == 0
        if name == "one":
            command = logged(tmp_path, "rename")
    assert (await again(hud, command)).code == 0
    assert (await http.get(f"/v2/jobs/{job_id}")).json()["name"] == "one"


async def test_the_commands_of_a_cancellation_and_of_resuming_do_the_same(
    hud: Command, http: httpx.AsyncClient, tmp_path: Path, engine: ToyEngine
) -> None:
    model = await model_of(hud)
    engine.rest_after(1)
    job_id = await submit(http, model["id"], steps=1000, learning_rate=1e-6)
    await until(lambda: engine.rests)

    async def status() -> str:
        return str((await status_of(http, job_id))["status"])

    assert (await hud("jobs", job_id, "--cancel", "-y")).code == 0
    assert (await hud("jobs", job_id, "--resume", "-y")).code == 0
    assert await status() in ("queued", "running")
    assert (await again(hud, logged(tmp_path, "cancel"))).code == 0
    assert await status() == "cancelled"
    assert (await again(hud, logged(tmp_path, "resume"))).code == 0
    assert await status() in ("queued", "running")


async def test_the_command_of_an_evaluation_evaluates_the_same(
    hud: Command, tmp_path: Path, tasks_file: Path
) -> None:
    flags = ("--checkpoint", "base", "--samples", "2", "--seed", "3", "--split", "train")
    first = await hud("eval", str(tasks_file), "-m", "arith-rl", *flags)
    assert first.code == 0
    command = logged(tmp_path, "evaluate")
    second = await again(hud, command)
    kept = ("checkpoint_id", "samples", "split", "total", "groups")
    found = [{name: one.data["evaluation"][name] for name in kept} for one in (first, second)]
    assert found[0] == found[1]
    assert first.data["evaluation"]["id"] != second.data["evaluation"]["id"]
    change(tasks_file)
    refused = await again(hud, command)
    assert (refused.code, refused.error["type"]) == (2, "tasks_changed")
