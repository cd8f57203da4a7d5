"""TLS by files: what is refused before anything is bound, who can connect, and renewed files."""

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.cli.main import main
from hud_tui.errors import HudBadCertificate
from hud_tui.local_service import connect_local
from hud_tui.service import connections, tls
from hud_tui.service.service import Service
from hud_tui.service.tls import RenewedTls, TlsFiles, read_pair
from hud_tui.settings import Paths
from tests.certificates import Authority, openssl
from tests.conftest import PATIENCE_S, Process, bearer, on_socket, serve_process, until

Make = Callable[[Authority], TlsFiles]


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


def mismatched(authority: Authority) -> TlsFiles:
    return TlsFiles(authority.sign("one").certificate, authority.sign("other").key)


def swapped(authority: Authority) -> TlsFiles:
    files = authority.sign("again")
    return TlsFiles(files.key, files.certificate)


def keyless(authority: Authority) -> TlsFiles:
    files = authority.sign("again")
    return TlsFiles(files.certificate, files.certificate)


def missing(authority: Authority) -> TlsFiles:
    return TlsFiles(authority.folder / "none.pem", authority.sign("again").key)


def encrypted(authority: Authority) -> TlsFiles:
    files, key = authority.sign("again"), authority.folder / "encrypted.key"
    openssl("pkey", "-in", files.key, "-aes256", "-passout", "pass:abcd", "-out", key)
    return TlsFiles(files.certificate, key)


def damaged(authority: Authority) -> TlsFiles:
    files = authority.sign("damaged")
    lines = files.certificate.read_text().splitlines(keepends=True)
    files.certificate.write_text("".join((lines[0], *lines[3:])))
    return files


BAD: dict[str, tuple[Make, str, str]] = {
    "missing": (missing, "none.pem: No such file", "PEM"),
    "not a certificate": (swapped, "again.key has no certificate", "it is a key"),
    "not a key": (keyless, "again.pem has no private key", "privkey.pem"),
    "of another certificate": (mismatched, "other.key is not the key of", "both files of one"),
    "encrypted": (encrypted, "encrypted.key is encrypted", "openssl pkey -in"),
    "damaged": (damaged, "damaged.pem with --key", "openssl x509"),
    "expired": (lambda ca: ca.sign("old", days=-1), "old.pem has expired", "renew it"),
    "for no host": (lambda ca: ca.sign("bare", ""), "bare.pem names no host", "subjectAltName"),
    "for clients": (
        lambda ca: ca.sign("client", use="clientAuth"), "client.pem is not for servers",
        "serverAuth",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_files_that_cannot_be_served_are_named_with_what_to_do(
    what: str, authority: Authority
) -> None:
    make, message, hint = BAD[what]
    with pytest.raises(HudBadCertificate) as refused:
        read_pair(make(authority))
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_a_file_of_another_user_is_named(box: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(file: Path, most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(tls, "read_regular", denied)
    with pytest.raises(HudBadCertificate, match=r"box\.pem: Permission denied") as refused:
        read_pair(box)
    assert "let the user that serves read it" in refused.value.hint


def test_nothing_is_bound_or_made_before_the_files_are_good(
    tmp_path: Path, authority: Authority, box: TlsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    data, old = tmp_path / "data", authority.sign("older", days=-1)
    serve = ["--headless", "serve", "--data-dir", str(data)]
    for flags, kind in (
        (["--cert", str(old.certificate), "--key", str(old.key)], "bad_certificate"),
        (["--cert", str(box.certificate)], "usage"),
        (["--key", str(box.key)], "usage"),
        (["--allowed-host", "https://box"], "usage"),
        (["--trusted-proxy", "0.0.0.0/0"], "usage"),
        (["--trusted-proxy", "proxy"], "usage"),
    ):
        assert main([*serve, *flags]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["type"] == kind
    assert not data.exists()


def test_a_key_that_others_can_read_and_a_near_end_are_warned_of(authority: Authority) -> None:
    files = authority.sign("soon", days=3)
    files.key.chmod(0o640)
    [soon] = RenewedTls(files).warnings()
    assert "soon.pem is valid for" in soon
    files.key.chmod(0o644)
    open_to_others, _ = RenewedTls(files).warnings()
    assert "chmod 600" in open_to_others


# Over a real socket.


@pytest.fixture
async def over_tls(
    tmp_path: Path, authority: Authority, box: TlsFiles
) -> AsyncIterator[tuple[Process, TlsFiles]]:
    """A service in a process of its own, and its files, which may be replaced."""
    files = TlsFiles(tmp_path / "live.pem", tmp_path / "live.key")
    files.certificate.write_bytes(box.certificate.read_bytes())
    files.key.write_bytes(box.key.read_bytes())
    files.key.chmod(0o600)
    flags = ("--cert", str(files.certificate), "--key", str(files.key), "--host", "0.0.0.0")
    async with serve_process(tmp_path / "data", *flags) as process:
        yield process, files


async def certificate_of(url: str, context: ssl.SSLContext) -> Any:
    """The fields of what a service shows a new connection."""
    port = httpx.URL(url).port
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="box.test"
    )
    shown = writer.get_extra_info("peercert")
    writer.close()
    return shown


async def test_other_machines_call_it_by_tls_and_this_one_finds_it_as_ever(
    over_tls: tuple[Process, TlsFiles], authority: Authority, tmp_path: Path
) -> None:
    process, _ = over_tls
    ready, context = process.ready, trusting(authority)
    assert ready.tls_url.startswith("https://box.test:")
    assert ready.url.startswith("http://127.0.0.1:"), "this machine's own programs"
    port = httpx.URL(ready.tls_url).port
    url, key = f"https://127.0.0.1:{port}/v2/auth/me", bearer(ready.api_key)
    async with httpx.AsyncClient(verify=context, headers=key, timeout=PATIENCE_S) as client:
        for host, origin, status in (
            ("box.test", f"https://box.test:{port}", 200),
            ("box.test", f"http://box.test:{port}", 403),
            ("other.test", "", 421),
        ):
            sent = {"Host": f"{host}:{port}", **({"Origin": origin} if origin else {})}
            assert (await client.get(url, headers=sent)).status_code == status
        large = await client.post(url, content=b" " * 32_000_000)
        assert large.status_code == 405, "a body of 32 MB arrives"
    for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context = trusting(authority)
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            context.minimum_version, context.maximum_version = old, old
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(OSError):  # noqa: PT011
            await certificate_of(ready.tls_url, context)
    async with httpx.AsyncClient() as stranger:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.get(url)
    local = await connect_local(Paths(tmp_path, tmp_path, tmp_path / "data"), lambda text: None)
    assert local.settings.api_url == ready.url
    await local.whoami()
    await local.aclose()


async def test_renewed_files_are_taken_without_a_restart_and_halves_of_them_are_not(
    over_tls: tuple[Process, TlsFiles], authority: Authority
) -> None:
    process, files = over_tls
    url, context = process.ready.tls_url, trusting(authority)
    before = await certificate_of(url, context)
    renewed = authority.sign("renewed")
    files.certificate.write_bytes(renewed.certificate.read_bytes())
    os.kill(process.ready.pid, signal.SIGHUP)
    await asyncio.sleep(0.2)
    assert await certificate_of(url, context) == before, "its key is not there yet"
    files.key.write_bytes(renewed.key.read_bytes())
    os.kill(process.ready.pid, signal.SIGHUP)

    async def is_new() -> bool:
        return bool(await certificate_of(url, context) != before)

    await until(is_new)
    assert process.process.returncode is None


def test_a_look_takes_what_has_changed(authority: Authority, box: TlsFiles) -> None:
    files = authority.sign("looked")
    renewed = RenewedTls(files)
    first = renewed.pair
    renewed.look()
    assert renewed.pair is first
    files.key.write_bytes(box.key.read_bytes())
    renewed.look()
    assert renewed.pair is first, "not the key of that certificate"
    files.certificate.write_bytes(box.certificate.read_bytes())
    renewed.look()
    assert renewed.pair is not first


async def test_who_begins_no_handshake_is_let_go_and_counts(
    service: Service, box: TlsFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = RenewedTls(box)
    monkeypatch.setattr(connections, "HEADERS_S", 0.3)
    async with on_socket(service, tls=secure) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
    monkeypatch.undo()
    monkeypatch.setattr(connections, "YOUNG_S", 0.0)
    async with on_socket(service, tls=secure, most=4) as url:
        port = httpx.URL(url).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        async with httpx.AsyncClient(verify=trusting(authority), timeout=PATIENCE_S) as client:
            headers = bearer(service.api_key)
            assert (await client.get(f"{url}/v2/auth/me", headers=headers)).status_code == 200
        async with asyncio.timeout(PATIENCE_S):
            assert await silent[0][0].read() == b"", "the oldest made room"
        for _, writer in silent:
            writer.close()
    monkeypatch.setattr(connections, "HANDSHAKES", 4)
    async with on_socket(service, tls=secure) as url:
        port = httpx.URL(url).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        async with asyncio.timeout(5):  # before any has been silent for too long
            assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


async def test_an_answer_is_never_sent_in_clear_text(
    service: Service, box: TlsFiles, authority: Authority
) -> None:
    """A request that comes with the end of the handshake waits for the transport that encrypts."""
    async with on_socket(service, tls=RenewedTls(box)) as url:
        context = trusting(authority)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", httpx.URL(url).port, ssl=context, server_hostname="box.test"
            )
            writer.write(
                b"GET /v2/auth/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            async with asyncio.timeout(PATIENCE_S):
                assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
            writer.close()
