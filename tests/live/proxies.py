"""The service reached by TLS: by itself, and behind Caddy and nginx with the files of docs/team.md.

usage: python -m tests.live.proxies PATH/TO/hud-tui

Tries with curl, a browser's fetch and `hud-tui --host`: that keys, names and origins count as they
do without a proxy; that the client's own address is logged, whatever it claims; that bodies of
32 MB, chats and events pass as they come. HUD_PYTHON names the Python of a venv with hud 0.6.21;
with it the official SDK and CLI are driven, too (acceptance/). What is not installed is left out
and said. Exits 1 where a check fails. The certificates are made by openssl, for this machine's
name.
"""

import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.certificates import Authority

PAGE = Path(__file__).parents[2] / "docs" / "team.md"
NAME = "gpu.example.com"
"""In the page; here it is this machine's name."""
PATIENCE_S = 60.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGE = 32_000_000
SLOWEST_S = 2.0
"""Within which the first bytes of a stream must come."""
SCRIPT = """<body><pre id=out>waiting</pre><script>
const send = (method) => fetch("URL", {method, headers: {Authorization: "Bearer KEY"}, BODY})
  .then(answer => answer.text().then(text => answer.status + " " + text), error => String(error));
send("POST").then(text => { document.getElementById("out").textContent = "said: " + text; });
</script></body>"""


class Checks:
    """What was tried, and how it went."""

    def __init__(self) -> None:
        self.failed = 0

    def that(self, what: str, holds: bool, found: object = "") -> None:
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'}  {what}{'' if holds else f': {found}'}", flush=True)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def running(command: list[str], **more: Any) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, text=True, **more) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit("it does not answer")
        time.sleep(0.1)


class Way:
    """How the service is reached: a URL, its key, and what to trust."""

    def __init__(self, url: str, key: str, authority: Authority, log: Path) -> None:
        self.url, self.key, self.authority, self.log = url, key, authority, log

    def curl(self, path: str, *words: str, key: str | None = None) -> tuple[int, str]:
        """Status and body; status 0 without an answer."""
        sent = self.key if key is None else key
        command = ["curl", "-sS", "--cacert", str(self.authority.certificate), "-m", "60"]
        command += ["-H", f"Authorization: Bearer {sent}", "-w", "\n%{http_code}", *words]
        done = subprocess.run([*command, self.url + path], capture_output=True, text=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status or 0), body or done.stderr

    def json(self, path: str, body: Any = None) -> Any:
        words = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else []
        status, text = self.curl(path, *words)
        if not 200 <= status < 300:
            raise SystemExit(f"{path}: {status} {text}")
        return json.loads(text)

    def arrivals(self, path: str, seconds: float, *words: str) -> list[tuple[float, bytes]]:
        """What a stream brings, with the seconds since it was asked."""
        command = ["curl", "-sSN", "--cacert", str(self.authority.certificate), *words]
        command += ["-H", f"Authorization: Bearer {self.key}", "-m", str(seconds), self.url + path]
        began, arrived = time.monotonic(), []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as curl:
            assert curl.stdout is not None
            while piece := os.read(curl.stdout.fileno(), 65536):
                arrived.append((time.monotonic() - began, piece))
        return arrived


def try_way(checks: Checks, way: Way, name: str, scratch: Path) -> None:
    """Everything that must be so, however the service is reached."""
    status, body = way.curl("/v2/auth/me")
    checks.that(f"{name}: the key is accepted", status == 200, (status, body))
    checks.that(f"{name}: another is not", way.curl("/v2/auth/me", key="x")[0] == 401)
    status, body = way.curl("/v2/auth/me", "-H", "Host: other.example")
    checks.that(f"{name}: by another name nothing is told", "user_id" not in body, (status, body))
    own, post = way.url, ("-X", "POST", "-d", "{}")
    by_http = own.replace("https", "http")
    for origin, wanted in ((own, 422), (by_http, 403), ("https://a.test", 403)):
        status, body = way.curl("/v2/models/fork", "-H", f"Origin: {origin}", *post)
        checks.that(f"{name}: a page of {origin} gets {wanted}", status == wanted, (status, body))
    body_file = scratch / "large"
    body_file.write_bytes(b" " * (LARGE - 2) + b"{}")
    status, body = way.curl("/v2/models/fork", "--data-binary", f"@{body_file}")
    checks.that(f"{name}: 32 MB pass", status == 422, (status, body[:200]))
    base = next(m for m in way.json("/v2/models")["items"] if m["model_name"] == "tiny/mixed-0.2M")
    model = way.json("/v2/models/fork", {"source_model_id": base["id"], "name": f"of {name}"})
    claimed = ("-H", "X-Forwarded-For: 6.6.6.6", "-H", "X-Forwarded-Proto: http")
    fork = json.dumps({"source_model_id": base["id"], "name": f"claimed by {name}"})
    way.curl("/v2/models/fork", *claimed, "--interface", "127.0.0.9", "-d", fork)
    logged = [json.loads(line) for line in way.log.read_text().splitlines()]
    address = logged[-1].get("address")
    checks.that(f"{name}: the client's address is its own", address == "127.0.0.9", logged[-1])
    try_streams(checks, way, name, model)


def try_streams(checks: Checks, way: Way, name: str, model: Any) -> None:
    """Chats and events come as they are made."""
    chat = {"model": model["model_name"], "max_tokens": 400, "stream": True, "n": 8}
    chat["temperature"] = 2.0  # answers that do not end
    chat["messages"] = [{"role": "user", "content": "Add 2 and 3."}]
    words = ("-H", "Content-Type: application/json", "-d", json.dumps(chat))
    tries = [way.arrivals("/v1/chat/completions", 60.0, *words) for _ in range(4)]
    pieces = max(tries, key=len)  # answers may end at once
    whole = b"".join(piece for _, piece in pieces)
    checks.that(f"{name}: a chat comes in pieces", len(pieces) > 3 and b"[DONE]" in whole, pieces)
    path = f"/v1/models/{model['id']}/train/events"
    found: list[tuple[float, bytes]] = []
    reading = threading.Thread(target=lambda: found.extend(way.arrivals(path, 9.0)))
    reading.start()
    time.sleep(1.0)
    rename = {"source_model_id": model["id"], "name": f"again {model['name']}"}
    way.json("/v2/models/fork", rename)
    reading.join()
    first = found[0][0] if found else 99.0
    beats = [at for at, piece in found if b"still here" in piece]
    checks.that(f"{name}: events are open at once", first < SLOWEST_S, found)
    checks.that(f"{name}: events come unbuffered", bool(beats) and beats[0] < 5 + SLOWEST_S, found)


# A browser, on pages of the service's own origin and of another.


def html(way: Way, url: str) -> bytes:
    text = SCRIPT.replace("URL", url).replace("KEY", way.key).replace("BODY", 'body: "{}"')
    return text.encode()


@contextmanager
def other_origin(page: bytes) -> Iterator[str]:
    """A web server of somebody else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def browse(url: str, pin: str, scratch: Path) -> str:
    """What a page shows once its request was answered."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return ""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--timeout=15000"]
    flags += ["--virtual-time-budget=15000", f"--user-data-dir={scratch / 'browser'}"]
    flags += [f"--ignore-certificate-errors-spki-list={pin}"]
    done = subprocess.run([browser, *flags, url], capture_output=True, text=True, timeout=120)
    found = re.search(r"<pre id=\"out\">(.*?)</pre>", done.stdout, re.DOTALL)
    return found[1] if found else f"no page: {done.stdout[-300:]} {done.stderr[-300:]}"


def try_browser(checks: Checks, way: Way, name: str, pin: str, scratch: Path, own: bool) -> None:
    if not any(map(shutil.which, BROWSERS)):
        print(f"left out: {name} in a browser: there is no {' or '.join(BROWSERS)}")
        return
    with other_origin(html(way, way.url + "/v2/models/fork")) as url:
        said = browse(url, pin, scratch)
    checks.that(f"{name}: a page of another origin gets nothing", "TypeError" in said, said)
    if own:
        said = browse(way.url + "/page.html", pin, scratch)
        checks.that(f"{name}: its own is answered", said.startswith("said: 422"), said)


def pin_of(certificate: Path) -> str:
    """The digest of a certificate's public key, as Chromium takes it."""
    call = partial(subprocess.run, capture_output=True, check=True)
    key = call(["openssl", "x509", "-in", certificate, "-pubkey", "-noout"]).stdout
    der = call(["openssl", "pkey", "-pubin", "-outform", "der"], input=key).stdout
    return b64encode(sha256(der).digest()).decode()


# The proxies, with the files of the page.


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"{PAGE} has no {language} block"
    return found[1]


def nginx(scratch: Path, host: str, port: int, service: int, files: tuple[Path, Path]) -> list[str]:
    folder = f"/etc/letsencrypt/live/{NAME}"
    text = block("nginx")
    for old, new in (
        (f"{folder}/fullchain.pem", str(files[0])),
        (f"{folder}/privkey.pem", str(files[1])),
        (NAME, host),
        ("listen 443 ssl", f"listen {port} ssl"),
        ("127.0.0.1:8900", f"127.0.0.1:{service}"),
        ("location / {", f"location = /page.html {{ root {scratch}; }}\n    location / {{"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    paths = " ".join(
        f"{kind}_temp_path {scratch}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    types = "types { text/html html; }"
    file = scratch / "nginx.conf"
    file.write_text(
        f"pid {scratch}/nginx.pid;\nerror_log {scratch}/nginx.log;\nevents {{}}\n"
        f"http {{ access_log off; {types} {paths}\n{text}}}\n"
    )
    shown = ["-c", str(file), "-e", f"{scratch}/nginx.log", "-g", "daemon off; user root;"]
    return ["nginx", *(shown if os.geteuid() == 0 else [*shown[:-1], "daemon off;"])]


def caddy(scratch: Path, host: str, port: int, service: int, files: tuple[Path, Path]) -> list[str]:
    text = block("caddy")
    page = f"root * {scratch}\n\thandle /page.html {{\n\t\tfile_server\n\t}}\n\t"
    for old, new in (
        (f"{NAME} {{", f"{host}:{port} {{\n\ttls {files[0]} {files[1]}\n\t{page}"),
        ("127.0.0.1:8900", f"127.0.0.1:{service}"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    file = scratch / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


Make = Callable[[Path, str, int, int, tuple[Path, Path]], list[str]]
PROXIES: dict[str, Make] = {"caddy": caddy, "nginx": nginx}


def serve(stack: ExitStack, program: str, data: Path, *flags: str) -> Any:
    """What a service says when it is ready."""
    command = [program, "serve", "--data-dir", str(data), *flags]
    process = stack.enter_context(running(command, stdout=subprocess.PIPE))
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def try_program(checks: Checks, program: str, way: Way, name: str, scratch: Path) -> None:
    """`hud-tui --host` with the stored key, and the official SDK."""
    state = ["--state-dir", str(scratch / f"state of {name}")]
    call = partial(subprocess.run, capture_output=True, text=True)
    login = [program, "login", way.url, "--ca", str(way.authority.certificate), *state]
    done = call(login, input=way.key)
    checks.that(f"{name}: hud-tui login", done.returncode == 0, done.stderr)
    done = call([program, "--headless", "doctor", "--host", way.url, *state])
    checks.that(f"{name}: hud-tui doctor", "the key is accepted" in done.stdout, done.stdout)
    model = f"of-{name}"
    run = [program, "--host", way.url, "--headless", "run", "mixed", "-m", model, *state]
    few = ["--steps", "2", "--group-size", "2", "--tasks-per-step", "2"]
    done = call([*run, *few, "-y", "--follow"])
    checks.that(f"{name}: hud-tui run --follow", done.returncode == 0, done.stdout[-500:])
    if python := os.environ.get("HUD_PYTHON"):
        os.environ["SSL_CERT_FILE"] = str(way.authority.certificate)
        told = {"url": way.url, "api_key": way.key, "telemetry_url": way.url + "/telemetry/v3/api"}
        drive = runpy.run_path(str(Path(__file__).with_name("run_acceptance")))["drive"]
        checks.that(f"{name}: the official SDK and CLI", drive(python, told) == 0)
        del os.environ["SSL_CERT_FILE"]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program, checks, host = sys.argv[1], Checks(), socket.gethostname()
    with tempfile.TemporaryDirectory(prefix="hud-tui-proxies-") as folder, ExitStack() as stack:
        scratch = Path(folder)
        authority = Authority(scratch)
        files = authority.sign("box", f"DNS:{host},DNS:localhost,IP:127.0.0.1")
        pair, pin = (files.certificate, files.key), pin_of(files.certificate)
        flags = ("--host", "0.0.0.0", "--cert", str(pair[0]), "--key", str(pair[1]))
        ready = serve(stack, program, scratch / "data of tls", *flags)
        log = scratch / "data of tls" / "log.jsonl"
        way = Way(ready["tls_url"], ready["api_key"], authority, log)
        try_all(checks, program, way, "tls", pin, scratch, own=False)
        for name, make in PROXIES.items():
            if shutil.which(name) is None:
                print(f"left out: {name} is not installed")
                continue
            data, port = scratch / f"data of {name}", free_port()
            flags = ("--allowed-host", host, "--trusted-proxy", "127.0.0.1")
            ready = serve(stack, program, data, *flags)
            service = int(ready["url"].rpartition(":")[2])
            way = Way(f"https://{host}:{port}", ready["api_key"], authority, data / "log.jsonl")
            (scratch / "page.html").write_bytes(html(way, "/v2/models/fork"))
            command = make(scratch, host, port, service, pair)
            with running(command, stderr=(scratch / f"{name}.err").open("w")):
                until(partial(_answers, way))
                try_all(checks, program, way, name, pin, scratch, own=True)
    print(f"{checks.failed} failed" if checks.failed else "all passed")
    return int(bool(checks.failed))


def _answers(way: Way) -> bool:
    return way.curl("/v2/auth/me")[0] == 200


def try_all(
    checks: Checks, program: str, way: Way, name: str, pin: str, scratch: Path, own: bool
) -> None:
    try_way(checks, way, name, scratch)
    try_browser(checks, way, name, pin, scratch, own)
    try_program(checks, program, way, name, scratch)


if __name__ == "__main__":
    sys.exit(main())
