"""``hud-tui doctor``: on services and hosts that misbehave, and on the embedded service's data."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.cli import sinks
from hud_tui.cli.main import main
from hud_tui.client.probe import probe
from hud_tui.processes import holding
from hud_tui.service.data_dir import examine
from hud_tui.service.http import new_id
from hud_tui.service.service import Service
from hud_tui.service_file import LOCK, ServiceReady, register
from hud_tui.settings import Settings, local_settings, read_paths
from tests.conftest import Served
from tests.service.calls import saved_steps, trained_in
from tests.service.clients import documents
from tests.service.headless import Command, Text
from tests.service.test_data_dir import contents
from tests.toy_engine import ToyEngine

SETTINGS = Settings(
    "https://api", "https://rl", "https://gw/v1", "https://t/v3", "https://web", "K3Y"
)


@pytest.fixture(autouse=True)
def home(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "HUD_TUI_STATE_DIR", "HUD_TUI_DATA_DIR", "HUD_TUI_CONFIG_DIR"):
        monkeypatch.setenv(name, str(here / name))
    monkeypatch.setattr(sinks, "_try_sdk", str)  # where it is installed, it takes seconds
    return here


async def test_a_service_that_answers_and_takes_the_key(
    bare: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_BASE_URL", "https://prime.example")
    result = await bare("doctor")
    assert (result.code, result.kind, result.data["verdict"]) == (0, "doctor", "ok")
    [host] = result.data["hosts"]
    assert host["names"] == ["api", "rl", "gateway", "telemetry", "web"]
    assert (host["status"], host["reachable"], host["seconds"] > 0) == (200, True, True)
    origins = {setting["name"]: setting["origin"] for setting in result.data["settings"]}
    assert origins["HUD_API_KEY"] == origins["PRIME_API_BASE_URL"] == "process environment"
    assert served.api_key not in json.dumps(result.documents)


def leave_a_key_open(home: Path) -> None:
    (home / ".env").write_text("PRIME_API_KEY=w\n")
    (home / ".env").chmod(0o644)


async def test_a_warning_counts_where_asked_and_a_key_or_a_host_always(
    bare: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_key_open(home)
    assert (await bare("doctor")).code == 0
    assert (await bare("doctor", "--fail-on", "warning")).code == 1
    with monkeypatch.context() as patch:
        patch.setenv("HUD_API_KEY", "not-the-key")
        refused = await bare("doctor")
    assert (refused.code, refused.data["verdict"]) == (4, "failure")
    assert "not-the-key" not in json.dumps(refused.documents)
    monkeypatch.setenv("HUD_RL_URL", "http://127.0.0.1:9")
    assert (await bare("doctor")).code == 3, "nothing listens"


async def test_the_embedded_service_needs_no_key(
    bare: Command, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HUD_API_KEY")
    assert (await bare("doctor")).code == 4
    nothing = await bare("doctor", "--local")
    assert (nothing.code, nothing.data["service"]["running"]) == (0, False)
    pid, data = os.getpid(), str(tmp_path)
    ready = ServiceReady(
        url=served.url, api_key=served.api_key, telemetry_url=served.url, pid=pid, data_dir=data
    )
    register(read_paths().service_file, ready)
    left = (await bare("doctor", "--local")).data["service"]
    assert not left["running"], "an id is nothing"
    with holding(tmp_path / LOCK):
        without = (await bare("doctor")).data["findings"][0]
        assert without["fix"].endswith("for the embedded service: hud-tui doctor --local")
        there = await bare("doctor", "--local")
    assert (there.code, there.data["service"]) == (
        0,
        {"running": True, "pid": pid, "url": served.url},
    )
    assert there.data["hosts"][0]["status"] == 200


async def test_a_service_that_ended_without_a_word(bare: Command, served: Served) -> None:
    ready = ServiceReady(
        url=served.url, api_key="k", telemetry_url=served.url, pid=2**22 + 1, data_dir="/d"
    )
    register(read_paths().service_file, ready)
    result = await bare("doctor", "--local", "--fail-on", "warning")
    assert (result.code, result.data["verdict"]) == (1, "warning")


async def test_people_get_a_table(bare: Command, text: Text, served: Served, home: Path) -> None:
    leave_a_key_open(home)
    code, out, _ = await text("doctor")
    assert code == 0
    assert served.api_key not in out
    assert "HTTP 200" in out
    assert "→ chmod 600 .env" in out
    assert out.endswith("0 failures, 1 warning\n")
    assert "\x1b" not in out


# hosts that misbehave


async def asked(answer: Any) -> dict[str, Any]:
    hosts = await probe(SETTINGS, httpx.MockTransport(answer))
    return {host.names[0]: host for host in hosts}


async def test_the_key_goes_to_the_api_only_and_credentials_in_a_url_are_not_shown() -> None:
    seen: dict[str, str | None] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        seen[request.url.host] = request.headers.get("authorization")
        return httpx.Response(200, json={})

    await asked(answer)
    assert seen == {"api": "Bearer K3Y", "rl": None, "gw": None, "t": None, "web": None}
    settings = local_settings("http://user:pass@h:1/x?token=t", "k", "http://h:1")
    hosts = await probe(settings, httpx.MockTransport(answer))
    assert [host.url for host in hosts] == ["http://h:1/x"]


async def test_an_echoed_key_and_control_characters_do_not_get_through() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, json={"detail": "no K3Y here \x1b]0;x\x07"})

    hosts = await asked(answer)
    assert hosts["api"].detail == "no *** here ␛]0;x␇"
    assert hosts["rl"].status == 401


async def test_endless_bodies_and_lost_connections_are_answers() -> None:
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                yield b"x" * 1024

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "rl":
            raise httpx.RemoteProtocolError("closed early")
        return httpx.Response(500, stream=Endless())

    hosts = await asked(answer)
    assert (hosts["api"].status, hosts["api"].reachable) == (500, True)
    assert (hosts["rl"].reachable, hosts["rl"].detail) == (False, "closed early")


async def test_commands_in_hints_have_the_flags_for_directories(bare: Command, home: Path) -> None:
    given = ("--state-dir", f"{home}/my state", "--data-dir", f"{home}/data")
    program = f"hud-tui --state-dir '{home}/my state' --data-dir {home}/data"
    found = (await bare(*given, "doctor", "--local")).data["findings"]
    [machines] = [one["message"] for one in found if "no machines" in one["message"]]
    assert machines.endswith(f": {program} remote add HOST")
    refused = await bare(*given, "remote", "use", "nope")
    assert refused.error["hint"] == f"known: none; {program} remote add HOST"
    assert refused.err.count(program) == 1


@pytest.fixture
async def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with two checkpoints, served by nobody."""
    for name in ("HOME", "HUD_TUI_STATE_DIR", "HUD_TUI_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    data = tmp_path / "data"
    monkeypatch.setenv("HUD_TUI_DATA_DIR", str(data))
    await trained_in(data, 2)
    return data


def doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of the service, with its level."""
    code = main(["--headless", "doctor", "--local"])
    [document] = documents(capsys.readouterr().out)
    found = [finding for finding in document["data"]["findings"] if finding["check"] == "service"]
    return code, {f"{one['message']} → {one['fix']}": one["level"] for one in found}


def said(findings: dict[str, str], words: str) -> str:
    """The level of the one that says so."""
    [level] = [level for text, level in findings.items() if words in text]
    return level


async def test_one_that_is_whole_and_one_that_would_not_start(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [whole] = examine(data)
    assert (whole.level, whole.message) == ("ok", "database and checkpoints match")
    (data / "service.db").write_bytes(b"")
    before = contents(data)
    code, findings = doctor(capsys)
    assert (code, said(findings, "would not start")) == (1, "failure")
    assert said(findings, "the database is empty → Nothing was changed. Restore the") == "failure"
    assert contents(data) == before


async def test_damage_and_what_is_left_over(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(saved_steps(data)[0].iterdir()).unlink()
    async with Service(data, ToyEngine()):
        pass
    (stray := data / "checkpoints" / new_id()).mkdir()
    (stray / "half.tmp").write_text("…")
    (data / "leftovers-2026-01-01" / "step").mkdir(parents=True)
    code, findings = doctor(capsys)
    assert (code, said(findings, "1 damaged checkpoint: files")) == (0, "warning")
    assert said(findings, "files of 1 checkpoint that service.db does not know") == "warning"
    assert said(findings, "leftovers-2026-01-01 holds") == "warning"
    assert stray.exists()


def test_a_directory_that_was_never_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"HUD_TUI_{kind}_DIR", str(tmp_path / kind))
    code, findings = doctor(capsys)
    assert (code, list(findings.values())) == (0, ["ok"])
