"""A real SkyRL server to test against, that can be killed and started again.

HUD_TUI_SKYRL names the folder that ``tests/live/skyrl/setup`` made. What the server says is
in ``server.log`` beside its state.
"""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

SERVE = Path(__file__).parents[1] / "live" / "skyrl" / "serve"
START_S = 180.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def answers(url: str) -> bool:
    """Whether a server of this kind does."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


class SkyRL:
    """One server on a state directory and a port of its own."""

    def __init__(self, state: Path, slots: int = 16) -> None:
        self.state = state
        self.slots = slots
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, again on the same state, and wait until it answers."""
        folder = os.environ.get("HUD_TUI_SKYRL")
        assert folder, "HUD_TUI_SKYRL must name the folder that tests/live/skyrl/setup made"
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [SERVE, folder, str(self.port)], stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "STATE": str(self.state), "SLOTS": str(self.slots)},
            )  # fmt: skip
        until = time.monotonic() + START_S
        while not answers(self.url):
            said = (self.state / "server.log").read_text()[-2000:]
            assert time.monotonic() < until, said
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
                raise AssertionError(said)

    def kill(self) -> None:
        """SIGKILL, to it and to its engine."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
