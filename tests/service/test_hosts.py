"""`hud-tui --host URL`: a service elsewhere, over TLS, by a key of its own."""

import io
import json
import os
import socket
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.cli.connect import command_of
from hud_tui.cli.main import choose_host
from hud_tui.client.client import HudClient
from hud_tui.client.look import look_at_host
from hud_tui.errors import HudInsecure, HudNoKey, HudUnreachable, HudUsage
from hud_tui.events import TreeRead
from hud_tui.hosts import (
    chosen_host,
    forget_login,
    host_settings,
    read_logins,
    settings_with,
    usable_host,
    write_login,
)
from hud_tui.rollouts.process import variables
from hud_tui.rollouts.run_files import Order
from hud_tui.rollouts.service import connect_to
from hud_tui.service.service import Service
from hud_tui.service.tls import RenewedTls, TlsFiles
from hud_tui.settings import Paths
from tests.certificates import Authority
from tests.conftest import Served, on_socket
from tests.service.headless import Command, runner

URL = "https://gpu.example.com:8443"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUD_TUI_HOST", "HUD_TUI_KEY", "HUD_TUI_INSECURE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HUD_API_KEY", "the key of HUD, which goes to no other host")


@pytest.fixture
async def far(service: Service, box: TlsFiles) -> AsyncIterator[Served]:
    """A service with TLS."""
    async with on_socket(service, tls=RenewedTls(box)) as url:
        yield Served(url, service.api_key, service)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def types(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


async def test_who_has_logged_in_uses_it_for_everything(
    far: Served, run: Command, authority: Authority, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types(monkeypatch, f"{far.api_key}\n")
    done = await run("login", far.url, "--ca", str(authority.certificate))
    assert (done.code, done.data["url"], done.data["ca"]) == (0, far.url, True)
    assert (done.data["key"], done.data["role"]) == ("admin", "admin")
    for file in [state / "logins.json", *(state / "trust").iterdir()]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    base = (await run("--host", far.url, "models")).data["models"][0]["model_name"]
    monkeypatch.setenv("HUD_TUI_HOST", far.url)
    forked = await run("fork", base, "--name", "far", "-y")
    assert forked.code == 0
    status = await run("status", "far")
    assert status.data["service"] == {"label": far.url.partition("://")[2], "url": far.url}
    [entry] = (await run("log")).data["entries"]
    assert entry["host"] == far.url
    assert entry["commands"]["hud_tui"].startswith(f"hud-tui --headless --host {far.url} fork")
    assert "$HUD_TUI_KEY" in entry["commands"]["curl"]
    assert (await run("--read-only", "fork", base, "--name", "b", "-y")).error[
        "type"
    ] == "read_only"
    told = json.dumps([done.documents, forked.documents, status.documents]) + done.err
    assert far.api_key not in told
    async with aclosing(HudClient(host_settings(far.url, state))) as client:
        model = next(m for m in await client.models() if m.model_name == "far")
        assert client.settings.embedded
        async for event in client.feed(model.id):
            assert isinstance(event, TreeRead)
            break
        order = order_on(client.settings.host, model.id)
        again = connect_to(order, Paths(state, state, state))
        assert await again.service_id() == far.service.id
        await again.aclose()
    out = await run("logout", far.url)
    assert out.data["forgotten"]
    assert not list((state / "trust").iterdir())
    assert (await run("status")).error["type"] == "no_key"


def order_on(host: str, model_id: str) -> Order:
    """The order of a run on a service elsewhere."""
    return Order(
        job_id="0" * 8, name="n", model_id=model_id, model="m", mode="host", host=host, data_dir="",
        source="/env.py", parameters={},
    )  # fmt: skip


async def test_a_key_that_is_not_accepted_is_not_stored(
    far: Served, run: Command, authority: Authority, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = ("--ca", str(authority.certificate))
    for typed, code, kind in (("other\n", 4, "unauthorized"), ("", 4, "no_key"), ("ä", 2, "usage")):
        types(monkeypatch, typed)
        refused = await run("login", far.url, *ca)
        assert (refused.code, refused.error["type"]) == (code, kind)
    types(monkeypatch, far.api_key)
    assert (await run("login", far.url, "--ca", str(state / "none"))).error["type"] == "usage"
    assert (await run("login")).error["type"] == "usage"
    assert not (state / "logins.json").exists()


async def test_each_failure_says_what_to_do(
    far: Served, served: Served, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, ca = httpx.URL(served.url).port, str(authority.certificate)
    other = RenewedTls(authority.sign("other-name", "DNS:other.test"))
    async with on_socket(far.service, tls=other) as other_url:
        await _failures(far, other_url, plain, ca, monkeypatch)


def _unknown(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def _failures(
    far: Served, other: str, plain: int | None, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, trusted, message, hint in (
        (far.url, "", "certificate is not accepted", f"hud-tui login {far.url} --ca FILE"),
        (other, ca, "certificate is not accepted", "by a name that its"),
        (f"https://127.0.0.1:{plain}", ca, "it does not speak TLS", "--cert and --key"),
        ("https://127.0.0.1:1", ca, "nothing listens there", "check the port"),
        ("https://none.invalid", ca, "no such host", "check the name"),
    ):
        monkeypatch.setattr("hud_tui.client.transport.retry_delay", lambda *given: None)
        if url == "https://none.invalid":  # whatever this machine's name server says
            monkeypatch.setattr("socket.getaddrinfo", _unknown)
        async with aclosing(HudClient(settings_with(url, far.api_key, trusted))) as client:
            with pytest.raises(HudUnreachable) as failed:
                await client.whoami()
        assert message in failed.value.message
        assert hint in failed.value.hint
    with pytest.raises(HudInsecure, match=r"in clear text to 192\.0\.2\.1"):
        HudClient(settings_with("http://192.0.2.1", "key"))


async def test_a_trusted_file_of_the_environment_and_the_services_own_certificate_do(
    far: Served, box: TlsFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(
        HudClient(settings_with(far.url, far.api_key, str(box.certificate)))
    ) as own:
        await own.whoami()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    async with aclosing(HudClient(settings_with(far.url, far.api_key))) as client:
        await client.whoami()
    for path, why in (("/none.pem", "No such file"), (str(box.key), "has no certificate")):
        monkeypatch.setenv("SSL_CERT_FILE", path)
        with pytest.raises(HudUsage, match=f"SSL_CERT_FILE {path}: .*{why}"):
            HudClient(settings_with(far.url, far.api_key))


async def test_doctor_says_what_it_finds(
    far: Served, run: Command, authority: Authority, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_login(state, far.url, far.api_key, authority.certificate.read_bytes())
    looked = await look_at_host(host_settings(far.url, state))
    assert looked.certificate.issuer == "The tests' authority"
    assert "box.test" in looked.certificate.names
    assert looked.ahead_s is not None
    monkeypatch.setattr("hud_tui.cli.sinks._try_sdk", str)
    found = await run("doctor", "--host", far.url)
    said = [finding["message"] for finding in found.data["findings"]]
    assert "the key is accepted as admin, role admin" in said
    assert any("by The tests' authority" in text and "valid for 2" in text for text in said)
    assert found.data["host"]["reachable"]
    assert far.api_key not in json.dumps(found.documents)
    monkeypatch.setenv("HUD_TUI_KEY", "wrong")
    refused = await run("doctor", "--host", far.url)
    assert refused.code == 4
    assert refused.data["host"]["reachable"]


# Which service, and by which key.


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("gpu.example.com", "https://gpu.example.com"),
        ("https://GPU.example.com:8443/", URL),
        ("http://127.0.0.1:8900", "http://127.0.0.1:8900"),
        ("https://example.com/hud/", "https://example.com/hud"),
    ],
)
def test_the_url_of_a_service(text: str, url: str) -> None:
    assert usable_host(text) == url


@pytest.mark.parametrize(
    "text", ["", "ftp://gpu", "https://", "https://u:p@gpu", "https://gpu?key=1", "https://gpu:x"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(HudUsage):
        usable_host(text)


def test_which_service_is_used() -> None:
    named = {"HUD_TUI_HOST": URL}
    assert chosen_host(None, False, named) == URL
    assert chosen_host(None, True, named) == ""
    assert chosen_host("https://other", False, named) == "https://other"
    assert chosen_host(None, False, {"HUD_TUI_HOST": " "}) == ""
    with pytest.raises(HudUsage, match="--local"):
        chosen_host(URL, True, {})


def test_a_key_goes_to_its_own_host_alone(state: Path) -> None:
    key = {"HUD_TUI_KEY": "typed"}
    write_login(state, URL, "stored")
    assert host_settings(URL, state, {}).api_key == "stored"
    assert host_settings(URL, state, key).api_key == "typed"
    assert host_settings(URL, state, key | {"HUD_TUI_HOST": "https://other"}).api_key == "stored"
    assert host_settings("https://other", state, key).api_key == "typed"
    for environ in ({}, key | {"HUD_TUI_HOST": URL}, {"HUD_API_KEY": "of HUD"}):
        with pytest.raises(HudNoKey, match="no key for https://other"):
            host_settings("https://other", state, environ)
    settings = host_settings(URL, state, {})
    assert {settings.api_url, settings.rl_url, settings.gateway_url, settings.host} == {URL}
    assert settings.telemetry_url == f"{URL}/telemetry/v3/api"
    assert settings.command("models") == f"hud-tui --host {URL} models"
    assert "stored" not in repr(settings)


def test_keys_that_others_can_read_are_not_used(state: Path) -> None:
    write_login(state, URL, "stored")
    write_login(state, "https://other", "second")
    assert set(read_logins(state)) == {URL, "https://other"}
    (state / "logins.json").chmod(0o644)
    with pytest.raises(HudUsage, match="others can access it"):
        read_logins(state)
    (state / "logins.json").chmod(0o600)
    assert forget_login(state, URL)
    assert not forget_login(state, URL)
    (state / "logins.json").write_text("[]")
    with pytest.raises(HudUsage, match="not as hud-tui login writes it"):
        read_logins(state)


def test_a_worker_trusts_the_stored_authority_and_all_that_is_trusted_without(
    state: Path, authority: Authority
) -> None:
    ca = authority.certificate.read_bytes()
    write_login(state, URL, "stored", ca)
    set_ = variables(host_settings(URL, state, {}), [], {"HUD_TUI_KEY": "x", "PATH": os.defpath})
    assert set_["HUD_API_KEY"] == "stored"
    assert "HUD_TUI_KEY" not in set_
    trusted = ssl.create_default_context(cafile=set_["SSL_CERT_FILE"]).get_ca_certs()
    assert len(trusted) > 50
    assert any("authority" in str(row["subject"]) for row in trusted)


async def test_what_is_about_this_machine_takes_no_host(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (("stop",), ("serve",), ("run", "arith", "--gpus", "1xH100")):
        assert (await run("--host", URL, *words)).error["type"] == "usage"
    assert (await run("--host", URL, "--local", "status")).error["type"] == "usage"
    monkeypatch.setenv("HUD_TUI_HOST", URL)
    assert (await run("stop")).code == 0
    args: Any = type("Args", (), {"command": "status", "service_url": None, "local": False})()
    args.state_dir = args.data_dir = None
    choose_host(args)
    assert command_of(args, "head", "m") == f"hud-tui --host {URL} head m"
