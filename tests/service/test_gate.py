"""Who is let in, and how errors look."""

import threading
from types import ModuleType
from typing import Any

import httpx
import pytest

from hud_tui.service import http as http_module
from hud_tui.service.app import create_app
from hud_tui.service.completions import STOP_LENGTH
from hud_tui.service.http import MAX_BYTES, MOST_ERRORS, MOST_VALUES
from hud_tui.service.routes import tasksets
from hud_tui.service.service import Service
from hud_tui.wire_training import MOST_INPUTS
from tests.conftest import bearer, fork
from tests.service.calls import detail, request_of


async def test_analytics_need_no_key(http: httpx.AsyncClient) -> None:
    url = "/telemetry/v3/api/sdk-events/cli"
    answer = await http.post(url, json={"events": []}, headers={"Authorization": ""})
    assert answer.status_code == 202
    assert (await http.get(url, headers={"Authorization": ""})).status_code == 401
    other = await http.post("/v1/models/sdk-events/cli", headers={"Authorization": ""})
    assert other.status_code == 401


async def test_other_names_are_refused(http: httpx.AsyncClient) -> None:
    for host, status in (
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:9", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.localhost", 421),
        ("evil-127.0.0.1", 421),
        ("evil.example/::1", 421),
        ("[::1", 421),
        ("", 421),
    ):
        answer = await http.get("/v2/auth/me", headers={"Host": host})
        assert answer.status_code == status


async def test_pages_of_other_origins_are_refused(http: httpx.AsyncClient) -> None:
    for origin, status in (
        ("http://127.0.0.1", 200),
        ("HTTP://127.0.0.1", 200),
        ("http://127.0.0.1:8000", 403),
        ("https://127.0.0.1", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ):
        answer = await http.get("/v2/auth/me", headers={"Origin": origin})
        assert answer.status_code == status
        events = "/telemetry/v3/api/sdk-events/cli"
        keyless = {"Origin": origin, "Authorization": ""}
        answer = await http.post(events, json={}, headers=keyless)
        assert answer.status_code == (202 if status == 200 else 403)


async def test_analytics_are_not_read(service: Service) -> None:
    """Who sends them needs no key, so that they may not cost anything."""
    path = "/telemetry/v3/api/sdk-events/cli"
    said: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        said.append(message)

    request = request_of("POST", path, content_length="900000000")
    await create_app(service)(request, receive, send)
    assert said[0]["status"] == 202


async def test_the_bound_address_is_known(service: Service) -> None:
    for bound, host, status in (
        ("192.0.2.7", "192.0.2.7:80", 200),
        ("192.0.2.7", "192.0.2.8", 421),
        ("0.0.0.0", "192.0.2.8", 200),
        ("0.0.0.0", "evil.example", 421),
    ):
        transport = httpx.ASGITransport(create_app(service, bound))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            headers = {**bearer(service.api_key), "Host": host}
            assert (await http.get("/v2/auth/me", headers=headers)).status_code == status


async def test_unknown_paths_and_methods_have_details(http: httpx.AsyncClient) -> None:
    missing = await http.get("/v2/nothing/here")
    assert (missing.status_code, "/v2/nothing/here" in detail(missing)) == (404, True)
    for path in ("models/x/results", "models/a/b/logs", "jobs/active", "jobs/enriched"):
        lacked = await http.get(f"/v2/{path}")
        assert lacked.status_code == 404
        assert detail(lacked).startswith(f"this service has no /v2/{path}: GET /v2/")
    for method, path, instead in (
        ("POST", "/v2/builds/upload-url", "hud-tui train ENV.py"),
        ("POST", "/v2/builds/trigger", "--runtime docker:IMAGE"),
        ("POST", "/v2/qa/runs", "hud-tui preflight"),
        ("GET", "/v2/qa/checks", "hud-tui --headless status"),
        ("POST", "/runtime/sessions", "LocalRuntime"),
        ("POST", "/v1/messages", "POST /v1/chat/completions"),
        ("POST", "/responses", "POST /v1/chat/completions"),
    ):
        lacked = await http.request(method, path)
        assert lacked.status_code == 404
        assert detail(lacked).startswith(f"this service has no {path}: ")
        assert instead in detail(lacked)
    other = {"Authorization": "", "x-api-key": "k"}
    wrong = await http.post("/v1/messages", headers=other)
    assert wrong.status_code == 401
    assert detail(wrong).endswith("send Authorization: Bearer KEY; x-api-key is not read")
    wrong = await http.delete("/v2/models")
    assert (wrong.status_code, "DELETE" in detail(wrong)) == (405, True)


async def test_a_body_must_be_json_and_fit(http: httpx.AsyncClient) -> None:
    fork_ = "/v2/models/fork"
    broken = await http.post(fork_, content=b"{not json")
    assert (broken.status_code, "not JSON" in detail(broken)) == (400, True)
    assert (await http.post(fork_, content=b"")).status_code == 400
    unfit = await http.post(fork_, json={"source_model_id": "x", "nome": "y"})
    assert unfit.status_code == 422
    places = {tuple(row["loc"]) for row in unfit.json()["detail"]}
    assert places == {("body", "name"), ("body", "nome")}
    many = await http.post(fork_, json=dict.fromkeys(map(str, range(MOST_ERRORS + 1)), 1))
    assert many.status_code == 422
    [row] = many.json()["detail"]
    assert f"{MOST_ERRORS + 3} values do not fit" in row["msg"]
    for query in ("limit=x", "limit=-1", "offset=1.5"):
        answer = await http.get(f"/v2/models?{query}")
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["query", query.partition("=")[0]]


async def test_a_body_too_large_is_refused(http: httpx.AsyncClient) -> None:
    url = f"/v1/models/{(await fork(http))['id']}/train/forward-backward"
    inputs = b'{"inputs": [' + b",".join([b'""'] * (MOST_INPUTS + 1)) + b"]}"
    values = b'{"inputs": [{"samples": [{"output_token_ids": [' + b"0," * MOST_VALUES + b"0]}]}]}"
    for body, status, said in (
        (b'{"inputs": ["' + b"0" * MAX_BYTES + b'"]}', 413, "32 MB"),
        (inputs, 422, str(MOST_INPUTS)),
        (values, 413, f"more than {MOST_VALUES} values"),
    ):
        answer = await http.post(url, content=body)
        assert (answer.status_code, said in detail(answer)) == (status, True)


async def test_of_a_long_list_the_first_misfit_is_said(http: httpx.AsyncClient) -> None:
    for url, field in (
        ("/v1/models/x/train/forward-backward", "inputs"),
        ("/v1/models/x/train/forward", "inputs"),
        ("/v1/models/x/train/backward", "weights"),
        ("/v1/training/jobs", "dataset.tasks"),
        ("/v2/tasks/upload", "tasks"),
        (f"/telemetry/v3/api/trace/{'0' * 32}/telemetry-upload", "telemetry"),
        ("/chat/completions", "messages"),
    ):
        outer, _, inner = field.partition(".")
        many = [7] * 1000
        answer = await http.post(url, json={outer: {inner: many} if inner else many})
        assert answer.status_code == 422
        places = [row["loc"] for row in answer.json()["detail"]]
        assert any(0 in place for place in places)
        assert not any(1 in place for place in places)


async def test_a_large_body_is_read_beside_the_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def on(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def noted(*args: Any) -> Any:
            threads.append(threading.current_thread())
            return original(*args)

        monkeypatch.setattr(module, name, noted)

    on(http_module, "_parse")
    on(tasksets, "_slugged")
    row = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2, "note": "x" * http_module.LARGE}}
    body = {"taskset_name": "large", "tasks": [row]}
    assert (await http.post("/v2/tasks/upload", json=body)).status_code == 201
    assert len(threads) == 2
    assert threading.current_thread() not in threads


async def test_long_texts_are_made_tokens_beside_the_loop(
    http: httpx.AsyncClient, service: Service
) -> None:
    """Else one of 32 MB would stop everybody for seconds."""
    model = await fork(http)
    tokens, threads = await service.parts.engine.tokenizer(model["base_model"]), []
    encode = type(tokens).encode

    def noted(self: Any, text: str) -> list[int]:
        threads.append(threading.current_thread())
        return encode(self, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(tokens), "encode", noted)
        for length, is_beside in ((10, False), (http_module.LONG, True)):
            text = {"role": "user", "content": "1" * length}
            answer = {"role": "assistant", "content": "2"}
            asked = {"model": model["id"], "max_tokens": 1}
            path = f"/v1/models/{model['id']}/train/demonstration"
            for url, body in (
                ("/chat/completions", {**asked, "messages": [text]}),
                ("/completions", {**asked, "prompt": "1" * length}),
                (path, {"messages": [text, answer]}),
            ):
                threads.clear()
                await http.post(url, json=body)
                assert threads, url
                assert (threading.current_thread() not in threads) is is_beside, url


async def test_a_stop_sequence_is_short(http: httpx.AsyncClient) -> None:
    """It would be made tokens for each of 4096 answers, in which nobody else is answered."""
    model = await fork(http)
    for length, status in ((STOP_LENGTH, 200), (STOP_LENGTH + 1, 400)):
        asked = {"model": model["id"], "prompt": "1", "max_tokens": 1, "stop": "1" * length}
        answer = await http.post("/completions", json=asked)
        assert (answer.status_code, status == 200 or "characters" in detail(answer)) == (
            status,
            True,
        )


async def test_the_unexpected_is_a_500_with_a_detail(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service.parts, "bases", explode)
    transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    headers = bearer(service.api_key)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as http:
        answer = await http.get("/v2/models")
    assert (answer.status_code, "ZeroDivisionError" in detail(answer)) == (500, True)


async def test_who_hangs_up_in_a_body_is_no_failure(service: Service) -> None:
    """Nothing is raised, which the server would log as a bug."""
    sent = []

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    key = f"Bearer {service.api_key}"
    request = request_of("POST", "/v2/models/fork", content_length="9", authorization=key)
    await create_app(service)(request, receive, send)
    assert sent[0]["status"] == 499
