"""Writes whose answer says nothing: what became of them is found out, and said."""

from collections.abc import AsyncGenerator, Callable
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from hud_tui.change import TaskSource
from hud_tui.cli import runs, watch
from hud_tui.client import submit
from hud_tui.client.client import HudClient
from hud_tui.wire_runs import SubmitJob
from tests.conftest import Served, ended, fork, until
from tests.service.calls import step, tree
from tests.service.headless import Command, meddle
from tests.toy_engine import ToyEngine

pytestmark = pytest.mark.usefixtures("hurried")
PORTAL = "<html><body>Sign in to the network</body></html>"
ANSWERS: dict[str, Callable[[], httpx.Response | Exception]] = {
    "a portal's page": lambda: httpx.Response(200, html=PORTAL),
    "nothing": lambda: httpx.Response(200),
    "half of it": lambda: httpx.Response(200, text='{"id": "3f'),
    "other JSON": lambda: httpx.Response(200, json={"ok": True}),
    "a redirection": lambda: httpx.Response(302, headers={"Location": "http://portal/"}),
    "no content": lambda: httpx.Response(204),
    "a gateway's fault": lambda: httpx.Response(502, html="<h1>Bad Gateway</h1>"),
    "its end": lambda: httpx.ReadError("cut"),
    "too short": lambda: httpx.RemoteProtocolError("incomplete body"),
    "garbage": lambda: httpx.DecodingError("not gzip"),
}


@pytest.fixture(params=ANSWERS)
def instead(request: pytest.FixtureRequest) -> Callable[[], httpx.Response | Exception]:
    """What comes in the place of an answer."""
    return ANSWERS[request.param]


class Line:
    """Puts something in the place of the answers to writes."""

    arrives = True
    keyless = False
    """Whether the service keeps no keys, as HUD."""
    written = 0
    """Requests that would change something."""


@pytest.fixture
def line(
    instead: Callable[[], httpx.Response | Exception], monkeypatch: pytest.MonkeyPatch
) -> Line:
    line = Line()

    def answer(request: httpx.Request) -> httpx.Response | None:
        if request.method == "GET" or request.url.path.endswith("/settle"):
            return None
        answer = instead()
        if isinstance(answer, Exception):
            raise answer
        answer.request = request
        return answer

    def before(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/settle"):
            unknown = httpx.Response(404, json={"detail": "Not Found"}, request=request)
            return unknown if line.keyless else None
        line.written += request.method != "GET"
        return None if line.arrives else answer(request)

    meddle(monkeypatch, after=answer, before=before)
    return line


@pytest.mark.parametrize("keyless", [False, True])
async def test_a_fork(bare: Command, line: Line, http: httpx.AsyncClient, keyless: bool) -> None:
    line.keyless = keyless
    made = await bare("fork", "toy/four", "--name", "Mine", "-y")
    assert (made.code, made.data["model"]["name"]) == (0, "Mine")
    line.arrives = False
    lost = await bare("fork", "toy/four", "--name", "other", "-y")
    known = {"code": 7, "type": "unclear", "outcome": "unknown"}
    if not keyless:
        known = {"code": 3, "type": "unreachable", "outcome": "not_done"}
    said = {"code": lost.code, "type": lost.error["type"], "outcome": lost.error["outcome"]}
    assert said == known
    assert ("before you fork again" in lost.error["hint"]) == keyless
    names = [row["name"] for row in (await http.get("/v2/models")).json()["items"]]
    assert (names.count("Mine"), names.count("other"), line.written) == (1, 0, 2)
    logged = [entry["outcome"] for entry in (await bare("log")).data["entries"]]
    assert logged == ["done", "unknown" if keyless else "refused"]


@pytest.mark.parametrize("instead", ["a gateway's fault"], indirect=True)
@pytest.mark.parametrize("keyless", [False, True])
async def test_a_head(bare: Command, line: Line, http: httpx.AsyncClient, keyless: bool) -> None:
    model = await fork(http, "mine")
    first, second = [(await step(http, model))["checkpoint_id"] for _ in range(2)]
    line.keyless = keyless
    done = await bare("head", "mine", "--set", first, "-y")
    assert (done.code, done.data["verified"], done.data["head"]["id"]) == (0, True, first)
    line.arrives = False
    lost = await bare("head", "mine", "--set", second, "-y")
    assert (lost.code, lost.error["outcome"]) == ((7, "unknown") if keyless else (3, "not_done"))
    assert [row["id"] for row in await tree(http, model["id"]) if row["is_active"]] == [first]
    assert line.written == 2


async def test_a_head_that_was_set_is_said_to_be_though_the_tree_cannot_be_read(
    bare: Command, served: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await fork(http, "mine")
    first, second = [(await step(http, model))["checkpoint_id"] for _ in range(2)]
    wrote = False

    def page(request: httpx.Request) -> httpx.Response | None:
        nonlocal wrote
        wrote = wrote or request.method == "PUT"
        if not wrote or not request.url.path.endswith("/checkpoints"):
            return None
        return httpx.Response(200, html=PORTAL, request=request)

    meddle(monkeypatch, after=page)
    done = await bare("head", "mine", "--set", first, "-y")
    assert (done.code, done.data["verified"]) == (0, False)
    assert (done.data["previous"], done.data["head"]["id"]) == (second, first)
    assert done.data["head"]["is_active"]
    assert "the head was set, but the tree could not be read" in done.err


@pytest.mark.parametrize("instead", ["its end"], indirect=True)
@pytest.mark.parametrize("keyless", [False, True])
async def test_a_run_its_cancellation_and_its_resumption(
    bare: Command, line: Line, http: httpx.AsyncClient, engine: ToyEngine, keyless: bool
) -> None:
    await fork(http, "mine")
    engine.rest_after(1)
    line.keyless = keyless
    flags = ("--steps", "100000", "--learning-rate", "0.000001")
    begun = await bare("run", "arith", "-m", "mine", *flags, "-y")
    assert (begun.code, begun.kind) == (0, "job")
    job_id = begun.data["job_id"]
    stopped = await bare("jobs", job_id, "--cancel", "-y")
    assert (stopped.code, stopped.data["cancelled"]) == (0, 1)
    assert stopped.data["status"]["status"] == "cancelled"
    resumed = await bare("jobs", job_id, "--resume", "-y")
    assert (resumed.code, resumed.data["status"]["status"] in ("queued", "running")) == (0, True)
    assert line.written == 3
    line.arrives = False
    lost = await bare("jobs", job_id, "--cancel", "-y")
    assert (lost.code, lost.error["outcome"]) == ((7, "unknown") if keyless else (3, "not_done"))
    assert ("before you cancel it again" in lost.error["hint"]) == keyless
    await http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})
    assert (await ended(http, job_id))["status"] == "cancelled"
    lost = await bare("jobs", job_id, "--resume", "-y")
    assert (lost.code, lost.error["outcome"]) == ((7, "unknown") if keyless else (3, "not_done"))
    assert (await http.get("/v2/jobs")).json()["total"] == 1


async def test_a_refusal_is_none_of_that(bare: Command, http: httpx.AsyncClient) -> None:
    await fork(http, "mine")
    taken = await bare("fork", "toy/four", "--name", "mine", "-y")
    assert (taken.code, taken.error["type"], taken.error["outcome"]) == (1, "conflict", "not_done")
    unknown = await bare("head", "mine", "--set", "nope", "-y")
    assert (unknown.code, unknown.error["outcome"]) == (2, "not_done")
    read = await bare("head", "nope")
    assert read.error["outcome"] is None


async def test_a_run_that_is_followed_is_said_to_be_submitted_when_the_service_goes(
    bare: Command, http: httpx.AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await fork(http, "mine")
    engine.rest_after(1)

    async def submit_and_give_up(
        client: HudClient, body: SubmitJob, source: TaskSource
    ) -> submit.Submission:
        monkeypatch.setattr(watch, "PATIENCE_S", 0.0)
        monkeypatch.setattr(watch, "WATCH_S", 0.01)
        return await submit.submit(client, body, source)

    monkeypatch.setattr(runs, "submit", submit_and_give_up)
    flags = ("--steps", "100000", "--learning-rate", "0.000001")
    lost = await bare("run", "arith", "-m", "mine", *flags, "--follow", "-y")
    job = (await http.get(f"/v1/training/jobs/{model['id']}/raw-status")).json()
    assert (lost.code, lost.error["type"], lost.error["outcome"]) == (3, "unreachable", "done")
    assert f"job {job['id']} is submitted" in lost.error["hint"]


async def test_a_command_that_was_halted_gives_the_service_time_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "WATCH_S", 0.01)
    looks, feed = list[float](), SimpleNamespace(trouble="", heard_at=monotonic() - 3600)
    listener = watch.Listener(cast(Any, feed), lambda: looks.append(0.0), "")

    async def events() -> AsyncGenerator[Any, None]:
        await until(lambda: len(looks) > 1)
        yield "an event"

    assert await listener.next(events()) == "an event"
