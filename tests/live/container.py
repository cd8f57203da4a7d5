"""``hud-tui serve`` in a container, as docs/install.md says; by podman or docker.

Run: python3 tests/live/container.py IMAGE [--program podman] [--port 8900]

With a root file system that is read only, no capability and no root: refuses clear text, serves on
loopback, is healthy, trains, keeps its key out of the logs, stops cleanly in the middle of a run,
and goes on after that and after a kill; then serves with TLS by a certificate that openssl makes.
Standard library only. Exits 1 at the first thing that is not as it should be.
"""

import argparse
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HARDENED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")
NAME = "hud-tui-try"
SOON_S = 60.0


class Engine:
    """What runs containers, with one container and its volume."""

    def __init__(self, program: str, image: str, port: int) -> None:
        self.program, self.image, self.port = program, image, port

    def __call__(self, *words: str, code: int | None = 0) -> str:
        """What a command printed, on both streams; its exit code must be `code`."""
        done = subprocess.run(
            [self.program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if code is not None and done.returncode != code:
            fail(f"{' '.join(words)}: exit {done.returncode}, not {code}: {done.stdout[-2000:]}")
        return done.stdout

    def run(
        self, how: str, *words: str, name: str = NAME, mounts: tuple[str, ...] = (), code: int = 0
    ) -> str:
        where = () if name != NAME else ("-p", f"127.0.0.1:{self.port}:8900")
        options = (how, "--name", name, *HARDENED, "-v", f"{NAME}:/data", *mounts, *where)
        return self("run", *options, self.image, *words, code=code)

    def hud(self, *words: str) -> dict[str, Any]:
        """The last document of a command in the container."""
        said = self("exec", NAME, "hud-tui", "--headless", "--local", *words)
        lines = [line for line in said.splitlines() if line.startswith('{"schema"')]
        data: dict[str, Any] = json.loads(lines[-1])["data"]
        return data

    def until_healthy(self) -> float:
        began = time.monotonic()
        while time.monotonic() - began < SOON_S:
            if self("exec", NAME, *self._check(), code=None) == "":
                return time.monotonic() - began
            time.sleep(0.2)
        fail(f"not healthy: {self('logs', NAME)}")

    def _check(self) -> list[str]:
        """The image's health check, which podman repeats only where systemd runs."""
        [facts] = json.loads(self("image", "inspect", self.image))
        check = facts.get("Healthcheck") or facts["Config"]["Healthcheck"]
        words: list[str] = check["Test"][1:]
        return words

    def stop(self) -> float:
        began = time.monotonic()
        self("stop", "--time", "30", NAME)
        return time.monotonic() - began

    def exit_code(self) -> str:
        return self("inspect", NAME, "--format", "{{.State.ExitCode}}").strip().splitlines()[-1]

    def remove(self) -> None:
        self("rm", "-f", NAME)

    def clean_up(self) -> None:
        self("rm", "-f", NAME, f"{NAME}-2", code=None)
        self("volume", "rm", "-f", NAME, code=None)


def status_of(port: int, key: str) -> int:
    call = urllib.request.Request(f"http://127.0.0.1:{port}/v2/auth/me")
    if key:
        call.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(call, timeout=10) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        return error.code


def tried(engine: Engine) -> None:
    refused = engine.run("--rm", code=2)
    expect("in clear text" in refused, "without TLS and --insecure it refuses", refused[-200:])
    engine.run("-d", "--insecure")
    say("healthy", f"after {engine.until_healthy():.1f} s")
    key = engine("exec", NAME, "cat", "/data/service.key").strip()
    expect((status_of(engine.port, key), status_of(engine.port, "")) == (200, 401), "key", "")
    expect(engine("exec", NAME, "id", "-u").strip() == "1000", "not root", "")
    expect(engine("exec", NAME, "cat", "/proc/1/cmdline").count("serve") == 1, "PID 1 serves", "")
    second = engine.run("--rm", "--insecure", name=f"{NAME}-2", code=1)
    expect("served by another process" in second, "one service on a volume", second[-200:])
    model = engine.hud("fork", "tiny/arith-0.2M", "--name", "boxed", "-y")["model"]["model_name"]
    engine.hud("run", "arith", "-m", model, "--steps", "3", "-y", "--follow")
    expect(len(engine.hud("checkpoints", model)["checkpoints"]) == 3, "it trains", model)
    run = engine.hud("run", "arith", "-m", model, "--steps", "500", "-y")["job_id"]
    say("stopped", f"in {engine.stop():.1f} s, in the middle of a run")
    expect(engine.exit_code() == "0", "the stop is clean", engine.exit_code())
    engine("start", NAME)
    say("healthy", f"after {engine.until_healthy():.1f} s, again")
    kept = len(engine.hud("checkpoints", model)["checkpoints"])
    expect(kept >= 3, "checkpoints are kept", kept)
    status = engine.hud("jobs", run)["job"]["status"]
    expect(status == "interrupted", "the run was interrupted", status)
    engine.hud("jobs", run, "--resume", "-y")
    status = engine.hud("jobs", run)["job"]["status"]
    expect(status in ("queued", "running"), "and is resumed", status)
    engine("kill", "-s", "KILL", NAME)
    engine("start", NAME)
    say("healthy", f"after {engine.until_healthy():.1f} s, killed before")
    expect(len(engine.hud("checkpoints", model)["checkpoints"]) >= kept, "and are kept", kept)
    expect(key not in engine("logs", NAME), "no key in the log", "")
    expect(status_of(engine.port, key) == 200, "the key stays the same", "")


def tried_with_tls(engine: Engine, folder: Path) -> None:
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", *words, *names, *files], check=True, capture_output=True)
    for file in (folder, *folder.iterdir()):
        os.chown(file, 1000, 1000)
    flags = ("--cert", "/tls/cert.pem", "--key", "/tls/key.pem")
    engine.remove()
    engine.run("-d", *flags, mounts=("-v", f"{folder}:/tls:ro"))
    say("healthy", f"after {engine.until_healthy():.1f} s, with TLS")
    key = engine("exec", NAME, "cat", "/data/service.key").strip()
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    call = urllib.request.Request(f"https://localhost:{engine.port}/v2/auth/me")
    call.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(call, timeout=10, context=context) as answer:
        expect(answer.status == 200, "it answers by TLS", answer.status)
    try:
        fail(f"in clear text it answers {status_of(engine.port, key)}")
    except OSError:
        say("ok", "and not in clear text")


def expect(held: bool, what: str, seen: object) -> None:
    if not held:
        fail(f"{what}: {seen}")
    say("ok", what)


def say(what: str, seen: object) -> None:
    print(f"{what:12} {seen}", flush=True)


def fail(text: str) -> Any:
    sys.exit(f"container: {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image")
    parser.add_argument("--program", default="podman")
    parser.add_argument("--port", type=int, default=8900)
    args = parser.parse_args()
    engine = Engine(args.program, args.image, args.port)
    engine.clean_up()
    try:
        tried(engine)
        with TemporaryDirectory(prefix="hud-tui-tls-") as folder:
            tried_with_tls(engine, Path(folder))
    finally:
        engine.clean_up()
    print("container: 1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
