"""The worker from the driver's side: interpreter, variables, requests and answers."""

import asyncio
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from hud_tui.errors import HudError, HudUsage
from hud_tui.hosts import trusted_too
from hud_tui.pipes import Pipe, ProcessEnded, kill_group
from hud_tui.rl.text import last_lines, one_line
from hud_tui.rollouts.host import command
from hud_tui.rollouts.watched import SECRETS, failure_text
from hud_tui.rollouts.worker import PROTOCOL
from hud_tui.settings import Settings
from hud_tui.storage import open_or_make, tail

HELLO_S = 120.0
"""Longest wait for the worker to import the SDK, seconds."""
VERSION_S = 30.0
"""Longest wait for an interpreter to tell its version, seconds."""
VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
BYE_S = 5.0
ALLOWED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("TERM", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "XDG_CACHE_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "XDG_RUNTIME_DIR"),
        *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH"),
        *("DOCKER_TLS_VERIFY", "HUD_RUNTIME_URL"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    }
)
"""Variables that the worker inherits, with `LC_*`; those of the service are set in addition."""


class EnvironmentFailed(HudError):
    """The user's environment, or its interpreter, cannot be used."""

    kind = "environment"

    def __init__(self, failure: Mapping[str, Any], hint: str = "") -> None:
        """`failure`: type, message and phase; for errors in the user's code also file, line and
        traceback."""
        super().__init__(failure_text(failure), hint)
        self.failure = dict(failure)
        self.details = {"failure": self.failure}


class WorkerGone(HudError):
    """The worker exited while it was needed; it is started again."""

    kind = "worker"


# The interpreter.


@dataclass(frozen=True)
class Interpreter:
    python: str
    why: str
    before: tuple[str, ...] = ()
    """Command words before it: ``uv run``."""

    def __str__(self) -> str:
        return f"{self.python} ({self.why})"


SDK = ("hud==0.6.21", "typer<0.29")
"""Requirements for pip to install the SDK; the extra `env` has the same."""
SDK_WORDS = " ".join(quote(word) for word in SDK)
"""The same in a command line."""
ANOTHER_PYTHON = "name another interpreter: --python PATH, or in Launch the row python"
SDK_PYTHONS = ("3.11", "3.12")
OLDEST = (3, 11)
"""First Python that runs the worker, so that it can say itself what it lacks."""


def how_to_get_the_sdk(python: str, version: str | None) -> str:
    """How to fix an interpreter without a usable SDK. `version`: its own, e.g. 3.11.7; None if it
    cannot be run."""
    if version is not None and version.rpartition(".")[0] in SDK_PYTHONS:
        return f"{python} -m pip install {SDK_WORDS}; or {ANOTHER_PYTHON}"
    has = f"hud needs Python {' or '.join(SDK_PYTHONS)}, and this is {version}: " if version else ""
    make = f"python3.11 -m venv .venv && .venv/bin/pip install {SDK_WORDS}"
    return f"{has}beside the environment, {make}; or {ANOTHER_PYTHON}"


def find_interpreter(source: Path, chosen: str | None, ours: str) -> Interpreter:
    """The interpreter for an environment: the chosen one, or virtual environment, else the nearest
    one with the SDK; `ours`, this program's own, is tried last. Raises HudUsage: the chosen one
    does not exist."""
    if chosen is not None:
        return Interpreter(python_at(chosen), "--python")
    without: Interpreter | None = None
    for directory in _directories(source):
        for name in (".venv", "venv"):
            python = directory / name / "bin" / "python"
            if python.exists():
                interpreter = Interpreter(str(python), f"{name} of {directory}")
                if _has_sdk(directory / name):
                    return interpreter
                without = without or interpreter
        is_uv = (directory / "uv.lock").exists() or "[tool.uv]" in tail(
            directory / "pyproject.toml"
        )
        if is_uv and (uv := shutil.which("uv")):
            before = (uv, "run", "--quiet", "--project", str(directory))
            return Interpreter("python", f"uv run in {directory}", before)
    own = Interpreter(ours, "this program's own")
    return own if without is None or _has_sdk(Path(ours).parent.parent) else without


def _directories(source: Path) -> Iterator[Path]:
    """The environment's directory, and those above it within its repository."""
    first = source if source.is_dir() else source.parent
    for directory in (first, *first.parents):
        yield directory
        if (directory / ".git").exists():
            return


def _has_sdk(venv: Path) -> bool:
    """Whether a virtual environment has the SDK, judged by its files."""
    return any(venv.glob("lib/python3*/site-packages/hud/__init__.py"))


def python_at(chosen: str) -> str:
    """The absolute path of an interpreter, given by its path or name, or by its virtual
    environment. Raises HudUsage: there is none."""
    path = Path(chosen).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    program = shutil.which(str(path)) or (str(path) if path.exists() else None)
    if program is None:
        raise HudUsage(f"--python {chosen}: no such interpreter", "give its path, or a venv's")
    return str(Path(program).absolute())


def variables(
    settings: Settings, named: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The worker's variables: what every program needs, the service's, and those that the user
    names. Raises HudUsage: a named one is not set."""
    absent = [name for name in named if name not in environ]
    if absent:
        raise HudUsage(f"--env {absent[0]}: not set here", f"export {absent[0]}=…")
    allowed = {name: environ[name] for name in environ if name in ALLOWED or name[:3] == "LC_"}
    service = {
        "HUD_API_KEY": settings.api_key,
        "HUD_API_URL": settings.api_url,
        "HUD_RL_URL": settings.rl_url,
        "HUD_GATEWAY_URL": settings.gateway_url,
        "HUD_TELEMETRY_URL": settings.telemetry_url,
        "HUD_SKIP_VERSION_CHECK": "1",
        "HUD_CLI_ANALYTICS_ENABLED": "false",
        "PYTHONUNBUFFERED": "1",
        SECRETS: ",".join(named),
    }
    if settings.ca:
        service["SSL_CERT_FILE"] = trusted_too(settings.ca, environ)
    return allowed | {name: environ[name] for name in named} | service


# The process.


@dataclass(frozen=True)
class Setting:
    interpreter: Interpreter
    variables: Mapping[str, str]
    directory: Path
    """Working directory: the environment's."""
    log: Path
    """Log for the output of worker and environments."""
    at_once: int
    memory_mb: int
    """Memory limit of one rollout's processes; 0 for no limit."""


OnRollout = Callable[[Mapping[str, Any]], None]


class WorkerProcess:
    """One worker; call `start` first, `close` at the end."""

    def __init__(self, setting: Setting, on_rollout: OnRollout = lambda event: None) -> None:
        """`on_rollout` is called with every finished rollout: trace_id, reward, error …"""
        self.setting = setting
        self.about: dict[str, Any] = {}
        """Its answer to ``hello``: python, hud, pid."""
        self._on_rollout = on_rollout
        self._pipe: Pipe | None = None

    @property
    def pid(self) -> int | None:
        return self._pipe.pid if self._pipe else None

    async def start(self) -> None:
        """Start it, and check that it has the SDK.

        Raises:
            EnvironmentFailed: It has not, or its interpreter cannot be run.
            WorkerGone: It exited before it answered.
        """
        self._pipe = await self._launch()
        self.about = await self._hello()
        if self.about.get("protocol") != PROTOCOL:
            raise EnvironmentFailed({"type": "NoSDK", "message": "another version's worker"})

    async def _launch(self) -> Pipe:
        python, log = self.setting.interpreter.python, self.setting.log
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        log_end = open_or_make(log, os.O_APPEND)
        try:
            return await Pipe.start(
                self.words(),
                self._on_rollout,
                has_group=True,
                stoppable={"roll_out"},
                stderr=log_end,
                env=dict(self.setting.variables),
                cwd=self.setting.directory,
            )
        except OSError as error:
            what = f"{python} cannot be run: {error.strerror}"
            hint = how_to_get_the_sdk(python, None)
            raise EnvironmentFailed({"type": "NoSDK", "message": what}, hint) from error
        finally:
            os.close(log_end)

    async def _hello(self) -> dict[str, Any]:
        """Its first answer: what it runs. It is killed if it gives none."""
        interpreter = self.setting.interpreter
        try:
            async with asyncio.timeout(HELLO_S):
                return await self.call("hello")
        except WorkerGone as error:
            await self.kill()
            await self._refuse_version()
            lines = last_lines(tail(self.setting.log, 2000))
            last = f": {one_line(lines[0], 300)}" if lines else ""
            raise WorkerGone(f"{interpreter}: {error.message}{last}") from error
        except (EnvironmentFailed, TimeoutError) as error:
            await self.kill()
            what = f"{interpreter} has no usable hud: {error}"
            failure = error.failure if isinstance(error, EnvironmentFailed) else {}
            hint = how_to_get_the_sdk(interpreter.python, failure.get("python"))
            raise EnvironmentFailed({"type": "NoSDK", "message": what}, hint) from error

    async def _refuse_version(self) -> None:
        """Of an interpreter that ran no worker. Raises EnvironmentFailed: it is too old for the
        worker to say so itself, or no Python."""
        interpreter = self.setting.interpreter
        version = await self._version()
        if version is not None and tuple(map(int, version.split("."))) >= OLDEST:
            return
        why = "it is no Python" if version is None else f"it is Python {version}"
        what = f"{interpreter} has no usable hud: {why}"
        hint = how_to_get_the_sdk(interpreter.python, version)
        raise EnvironmentFailed({"type": "NoSDK", "message": what, "python": version}, hint)

    async def _version(self) -> str | None:
        """The interpreter's version, e.g. 3.8.18; None if it tells none. Any Python understands
        the question."""
        interpreter = self.setting.interpreter
        asked = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
        process = await create_subprocess_exec(
            *interpreter.before,
            *(interpreter.python, "-c", asked),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            env=dict(self.setting.variables),
            cwd=self.setting.directory,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(VERSION_S):
                said, _ = await process.communicate()
        except TimeoutError:
            return None
        finally:
            kill_group(process)
        match = VERSION.fullmatch(said.decode("utf-8", "replace").strip())
        return match[0] if match else None

    def words(self) -> list[str]:
        interpreter = self.setting.interpreter
        return [*interpreter.before, *command(interpreter.python, "worker")]

    async def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Send a request; returns its result.

        Raises:
            EnvironmentFailed: It failed in the user's code or settings.
            WorkerGone: The worker exited before it answered.
        """
        if self._pipe is None:
            raise WorkerGone("the worker is not running")
        try:
            answer = await self._pipe.ask(verb, **fields)
        except ProcessEnded as error:
            raise WorkerGone(f"the worker {error}") from error
        if "error" in answer:
            raise EnvironmentFailed(answer["error"])
        return dict(answer["result"])

    async def close(self) -> None:
        """Stop it with everything it started; its last reports are received first."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            await pipe.close(BYE_S)

    async def kill(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.kill()
            await pipe.wait()
