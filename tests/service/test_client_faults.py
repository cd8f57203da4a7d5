"""What the client makes of a server that does what no good server does."""

import asyncio
import socket
from contextlib import suppress

import httpx
import pytest

from hud_tui.client import transport as client_http
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Poller
from hud_tui.errors import (
    HudError,
    HudMalformed,
    HudNotFound,
    HudRefused,
    HudUnauthorized,
    HudUnreachable,
)
from hud_tui.events import TreeRead
from hud_tui.settings import DEFAULTS, local_settings, read_settings
from hud_tui.wire_runs import JobDataset, SubmitJob
from hud_tui.wire_training import Chat, OptimStep
from tests.service.clients import KEY, answered

pytestmark = pytest.mark.usefixtures("hurried")
SETTINGS = local_settings("https://x", KEY, "https://x/telemetry")
PAGE = {"items": [{"id": "1", "model_name": "a/b"}], "total": 1}


class Server:
    """Answers with a list of answers, the last one for ever, and counts."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def busy(status: int = 503) -> httpx.Response:
    return httpx.Response(status, json={"detail": "busy"}, headers={"Retry-After": "0"})


async def test_a_read_is_sent_again_until_it_is_answered_and_given_up_after_four() -> None:
    for status in (408, 429, 500, 502, 503, 504):
        server = Server(busy(status), busy(status), httpx.Response(200, json=PAGE))
        async with answered(server) as client:
            assert len(await client.models()) == 1
        assert len(server.requests) == 3
    server = Server(busy())
    async with answered(server) as client:
        with pytest.raises(HudRefused, match="busy"):
            await client.models()
    assert len(server.requests) == 4
    for status in (401, 404, 422, 501):  # nothing that fares better
        server = Server(busy(status))
        async with answered(server) as client:
            with pytest.raises(HudRefused):
                await client.models()
        assert len(server.requests) == 1


async def test_no_answer_is_tried_again_and_a_server_that_hangs_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(client_http.asyncio, "sleep", sleep)
    for failure, attempts in ((httpx.ConnectError("refused"), 4), (httpx.ReadTimeout("60 s"), 1)):
        server = Server(failure)
        async with answered(server) as client:
            with pytest.raises(HudUnreachable) as error:
                await client.models()
        assert len(server.requests) == attempts
        assert error.value.hint
    assert waits == sorted(waits)
    assert 0.3 < waits[0] <= 0.5


LOST = [httpx.ReadError("cut"), httpx.ReadTimeout("slow"), httpx.ConnectError("refused")]


@pytest.mark.parametrize("failure", [busy(503), busy(429), *LOST])
async def test_writes_and_samplings_are_sent_once(failure: httpx.Response | Exception) -> None:
    """A sampling request costs. After an unclear failure of a write the service is asked, and
    looked at; nothing is sent again."""
    server = Server(failure)
    job = SubmitJob(model_id="m", dataset=JobDataset(tasks=[{}]))
    async with answered(server) as client:
        for call in (
            client.set_head("m", "c"),
            client.runs.submit(job),
            client.training.optim_step("m", OptimStep(learning_rate=1)),
            client.fork("m", "n"),
            client.cancel_job("j"),
            client.training.chat(Chat(model="m", messages=[{"role": "user", "content": "hi"}])),
        ):
            with pytest.raises(HudError):
                await call
    sent = [request.url.path for request in server.requests if request.method != "GET"]
    assert len([path for path in sent if not path.endswith("/settle")]) == 6


async def test_a_body_that_is_not_the_wire_s_is_malformed() -> None:
    for body in (
        *(b"<html>hello</html>", b"", b"[]", b"\xff\xfe"),
        b'{"items": [{"id": 3}], "total": 1}',
        b'{"items": [null], "total": 1}',
        b'{"items": [], "total": 5}',
    ):
        server = Server(httpx.Response(200, content=body))
        async with answered(server) as client:
            with pytest.raises(HudMalformed):
                await client.models()
        assert len(server.requests) == 1


async def test_an_answer_of_any_length_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_http, "MAX_BODY", 1000)
    server = Server(httpx.Response(200, content=b"[" + b" " * 1000 + b"]"))
    async with answered(server) as client:
        with pytest.raises(HudUnreachable, match="larger"):
            await client.set_head("m", "c")


async def test_errors_say_what_the_server_says() -> None:
    for status, body, kind, text in (
        (401, {"detail": "missing key"}, HudUnauthorized, "missing key"),
        (404, {"detail": "no such model"}, HudNotFound, "no such model"),
        (422, {"detail": [{"loc": ["body", "a"], "msg": "bad"}]}, HudRefused, "body.a: bad"),
        (400, {"error": {"message": "openai says no"}}, HudRefused, "openai says no"),
        (418, {"other": 1}, HudRefused, '{"other": 1}'),
        (302, {"detail": "moved"}, HudRefused, "moved"),
    ):
        async with answered(Server(httpx.Response(status, json=body))) as client:
            with pytest.raises(kind) as error:
                await client.whoami()
        assert text in error.value.message
        assert error.value.status == status


async def test_hostile_detail_is_cleaned_and_bounded_and_never_holds_the_key() -> None:
    detail = f"\x1b]0;owned\x07 your key {KEY} " + "x" * 100_000
    for answer in (
        httpx.Response(400, json={"detail": detail}),
        httpx.Response(400, text=detail),
        httpx.ConnectError(f"could not send Bearer {KEY}"),
    ):
        async with answered(Server(answer)) as client:
            with pytest.raises(HudError) as error:
                await client.set_head("m", "c")
        said = error.value.message + error.value.hint
        assert KEY not in said
        assert "\x1b" not in said
        assert len(said) < 1000


async def test_the_key_goes_to_its_own_hosts_only() -> None:
    urls = {
        "HUD_API_URL": "https://api",
        "HUD_RL_URL": "https://rl",
        "HUD_GATEWAY_URL": "https://gw",
    }
    server = Server(httpx.Response(200, json=PAGE))
    async with answered(server, read_settings(KEY, urls)) as client:
        await client.models()
        await client.wire.read("https://elsewhere/v2/models")
        await client.wire.read("https://api@elsewhere/v2/models")
        await client.wire.read("https://api:81/v2/models")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert all(KEY not in str(request.headers.raw) for request in server.requests[1:])


async def test_no_proxy_gets_what_is_sent_to_this_machine_in_clear_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = HudClient(read_settings(KEY, dict.fromkeys(DEFAULTS, url)))
        assert await client.checkpoints("m") == []
        await client.aclose()


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that closes it at that moment would swallow a write."""
    assert client_http.IDLE_S < 5.0  # uvicorn's and Node's own
    monkeypatch.setattr(client_http, "IDLE_S", 0.0)
    connections: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = HudClient(local_settings(url, KEY, url))
        assert [await client.checkpoints("m"), await client.checkpoints("m")] == [[], []]
        await client.aclose()
        for writer in connections:
            writer.close()
            await writer.wait_closed()
    assert len(connections) == 2


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_service_that_knows_no_run_may_say_so_in_its_own_way(status: int) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/raw-status"):
            return httpx.Response(status, json={"detail": "no job"})
        return httpx.Response(200, json=[])

    async with answered(answer) as client:
        assert await client.known_job("m") is None
        assert await Poller(client, "m").news() == [TreeRead(checkpoints=())]
    async with answered(Server(busy(501))) as client:
        with pytest.raises(HudRefused, match="busy"):
            await client.known_job("m")


async def test_a_catalog_that_changes_between_pages_lists_nothing_twice() -> None:
    def server(request: httpx.Request) -> httpx.Response:
        offset = int(request.url.params["offset"])
        rows = [{"id": str(n), "model_name": f"m{n}"} for n in range(max(0, offset - 1), 150)]
        return httpx.Response(200, json={"items": rows[:100], "total": 150})

    async with answered(server) as client:
        assert len(await client.models()) == 150


@pytest.mark.parametrize(
    ("url", "fault", "why"),
    [
        ("http://127.0.0.1:1", None, "nothing listens there"),
        ("https://none.invalid", socket.EAI_NONAME, "no such host"),
        ("https://none.invalid", socket.EAI_AGAIN, "its name cannot be resolved now"),
    ],
)
async def test_who_does_not_answer_is_said_in_the_same_words_of_any_service(
    url: str, fault: int | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(fault, "as the system says it")

    client = HudClient(local_settings(url, KEY, f"{url}/telemetry"))
    if fault is not None:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(HudUnreachable) as failed:
        await client.models()
    assert failed.value.message == f"no answer from {url}: {why}"
    await client.aclose()


async def test_a_client_that_was_closed_says_so_as_any_failure() -> None:
    """httpx raises a bare RuntimeError, which nobody who awaits a call expects."""
    client = HudClient(SETTINGS)
    await client.aclose()
    with pytest.raises(HudUnreachable, match="closed"):
        await client.models()
    with pytest.raises(HudUnreachable, match="closed"):
        await client.fork("m1", "mine")
    with pytest.raises(HudUnreachable, match="closed"):
        async with client.wire.stream("https://x/events", {}, 1.0):
            pass


async def test_a_bug_in_reading_a_stream_stays_what_it_is() -> None:
    client = HudClient(SETTINGS, httpx.MockTransport(lambda request: httpx.Response(200)))
    with pytest.raises(RuntimeError, match="a bug"):
        async with client.wire.stream("https://x/events", {}, 1.0):
            raise RuntimeError("a bug")
    await client.aclose()


async def test_a_read_that_waits_for_another_attempt_ends_with_its_client() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        asked.set()
        raise httpx.ConnectError("nobody listens", request=request)

    asked = asyncio.Event()
    client = HudClient(SETTINGS, httpx.MockTransport(refuse))
    reading = asyncio.create_task(client.models())
    await asked.wait()
    await client.aclose()
    with pytest.raises(HudUnreachable, match="closed"):
        await reading
