"""Makes rollouts of a user's environment with the official ``hud`` SDK.

Runs in the environment's interpreter (Python 3.11 or 3.12), so it imports only the standard
library, `hud`, `hud_tui.pipes` and `hud_tui.rollouts.host`. `hud_tui.rollouts.process` starts it,
sends it requests, and takes its answers and events.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial, wraps
from math import isfinite
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from time import localtime, monotonic, strftime, time
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from hud_tui import pipes
from hud_tui.pipes import Pipe, ProcessEnded
from hud_tui.rollouts.host import GRACE_S, POLL_S, STACK_S, command, keep_endings_out_of_the_log
from hud_tui.rollouts.tls import share_contexts
from hud_tui.rollouts.watched import (
    AGENT,
    LINE,
    SECRETS,
    Doing,
    ended_by,
    exited_with,
    failure_of,
    mend_messages,
    process_ended,
    sendable,
    watch,
)

try:
    from hud.agents import create_agent
    from hud.capabilities import MCPClient
    from hud.clients import client as channel
    from hud.clients import connect
    from hud.environment import load_environment
    from hud.eval import (
        DockerRuntime,
        HostedRuntime,
        HUDRuntime,
        LocalRuntime,
        Run,
        Runtime,
        SubprocessRuntime,
        Task,
        rollout,
    )
    from hud.eval import job as reports
    from hud.telemetry import flush
    from hud.telemetry.context import get_current_trace_id, set_trace_context
    from hud.version import __version__ as hud_version
except ImportError as error:  # told by `hello`
    missing: str | None = f"{type(error).__name__}: {error}"
else:
    missing = None

PROTOCOL = 1
READY_S = 120.0
"""Longest start of an environment, seconds."""
SERVED_S = 15.0
"""Longest wait for one that is already served elsewhere, seconds; the SDK's own is 240."""
PROBE_S = 3.0
"""Longest wait for a connection to one that may be gone, seconds."""
WHERE_S = 2.0
"""Seconds that a hanging process has to report its place in the code."""
REPORT_S = 600.0
"""Longest request to the platform, seconds, as the SDK has it."""
REPORTS_OPEN_S = 4.0
"""Longest time that a connection for reports stays open unused, seconds; uvicorn closes it at 5."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def not_served(runtime: str, error: OSError, answered: float | None = None) -> dict[str, Any]:
    """The failure to connect to an environment that somebody else should serve at ``tcp://…``.
    `answered`: when it answered last, Unix seconds; None if it never did."""
    address = runtime.removeprefix("tcp://")
    why = f"{address} does not answer: {error.strerror or error or 'timed out'}"
    if isinstance(error, ConnectionRefusedError):
        why = f"nothing listens on {address}"
    start = f"python -m hud.environment.server ENV.py --port {address.rpartition(':')[2]}"
    advice = f"start it: {start}"
    if answered is not None:
        why += f" any more; it answered last at {strftime('%H:%M:%S', localtime(answered))}"
        advice = f"start it again: {start}; the run goes on, or is resumed"
    return {"phase": "start", "type": "NotServed", "message": f"{why} ({advice})"}


async def probe(runtime: str, answered: float | None = None) -> dict[str, Any] | None:
    """The failure of a server at ``tcp://…`` that takes no connections; None if it takes them."""
    parts = urlsplit(runtime)
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError as error:
        return not_served(runtime, error, answered)
    writer.close()
    return None


# The worker's side of the host: a provider, in the SDK's terms, which places a rollout.


class EnvironmentFailed(RuntimeError):
    """The environment did not start."""


class Forked:
    """Places each rollout in a process that the host forks for it."""

    def __init__(self, source: str, log: str, memory_mb: int) -> None:
        self._source, self._log, self._memory_mb = source, log, memory_mb
        self._pipe: Pipe | None = None
        self._telling_end: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._number = 0
        self._reports: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._running: dict[str, int] = {}
        self._listening: dict[str, asyncio.Task[None]] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        """Errors in rollouts' processes by trace id, until they are fetched."""

    async def _ask(self, request: dict[str, Any]) -> None:
        async with self._starting:
            if self._pipe is None or not self._pipe.runs:
                await self._start()
        assert self._pipe is not None
        self._pipe.tell(**request)
        await self._pipe.drain()

    async def _start(self) -> None:
        without = {"HUD_API_KEY"} - set(os.environ.get(SECRETS, "").split(","))
        self._pipe = await Pipe.start(
            command(sys.executable, "host", self._source, self._log),
            self._pass_on,
            env={name: value for name, value in os.environ.items() if name not in without},
        )
        self._telling_end = asyncio.create_task(self._tell_end(self._pipe))

    def _pass_on(self, report: dict[str, Any]) -> None:
        number = report.get("number", 0)
        if number in self._reports:
            self._reports[number].put_nowait(report)
        if "exited" in report:
            self._reports.pop(number, None)

    async def _tell_end(self, pipe: Pipe) -> None:
        await pipe.wait()
        for queue in self._reports.values():
            queue.put_nowait({"exited": None, "why": "the environments' host ended", "tail": []})

    @asynccontextmanager
    async def _forked(
        self, **request: Any
    ) -> AsyncIterator[tuple[int, asyncio.Queue[dict[str, Any]]]]:
        """A forked process for one task; yields its number and the queue of its reports."""
        self._number += 1
        number = self._number
        queue = self._reports[number] = asyncio.Queue()
        try:
            common = {"number": number, "source": self._source, "memory_mb": self._memory_mb}
            await self._ask({**common, **request})
            yield number, queue
        finally:
            with contextlib.suppress(RuntimeError, ProcessEnded):
                await self._ask({"do": "end", "number": number})

    async def inspect(self, tasks: str | None, longest: float) -> dict[str, Any]:
        """Environments, templates and tasks. Raises Failed: an error in the user's code."""
        async with self._forked(do="inspect", tasks=tasks, label="import") as (number, queue):
            failure: dict[str, Any] | None = None
            try:
                async with asyncio.timeout(longest):
                    while True:
                        report = await queue.get()
                        if "found" in report:
                            return dict(report["found"])
                        failure = report.get("failure", failure)
                        if "exited" in report:
                            raise Failed(failure or _ended(report, "import"))
            except TimeoutError:
                report = await self._place(number, queue)
                raise Failed(_hung("import", longest, report.get("where"))) from None

    async def _place(self, number: int, queue: asyncio.Queue[dict[str, Any]]) -> dict[str, Any]:
        """Phase and place of a process that nobody listens to; empty if it does not tell."""
        await self._ask({"do": "where", "number": number})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WHERE_S):
                while "where" not in (report := await queue.get()):
                    if "exited" in report:
                        return {}
                return report
        return {}

    @asynccontextmanager
    async def __call__(self, task: Any) -> AsyncIterator[Any]:
        if task.runtime_config is not None:
            raise ValueError(
                "the task's runtime_config needs --runtime docker:IMAGE, hud or hosted"
            )
        trace_id = get_current_trace_id() or uuid4().hex
        label = trace_id.replace("-", "")[:8]
        async with self._forked(do="serve", env=task.env, label=label) as (number, queue):
            self._running[trace_id] = number
            try:
                try:
                    port = await self._port(number, queue, trace_id)
                except asyncio.CancelledError:  # at the time limit: where it is may yet be told
                    self._listen_to(queue, trace_id)
                    raise
                self._listen_to(queue, trace_id)
                yield Runtime(f"tcp://127.0.0.1:{port}")
            finally:
                self._running.pop(trace_id, None)

    async def _port(self, number: int, queue: asyncio.Queue[dict[str, Any]], trace_id: str) -> int:
        try:
            async with asyncio.timeout(READY_S):
                while True:
                    report = await queue.get()
                    if "port" in report:
                        return int(report["port"])
                    self._note(trace_id, report)
                    if "exited" in report:
                        failure = self.failures[trace_id]
                        raise EnvironmentFailed(failure["message"])
        except TimeoutError:
            report = await self._place(number, queue)
            failure = _hung(report.get("phase", "start"), READY_S, report.get("where"))
            self.failures[trace_id] = failure
            raise EnvironmentFailed(failure["message"]) from None

    def _listen_to(self, queue: asyncio.Queue[dict[str, Any]], trace_id: str) -> None:
        self._listening[trace_id] = asyncio.create_task(self._listen(queue, trace_id))

    async def _listen(self, queue: asyncio.Queue[dict[str, Any]], trace_id: str) -> None:
        """Read reports until the rollout's process is gone: the error may come after the connection
        closed."""
        while True:
            report = await queue.get()
            if "exited" not in report or report["why"] or not report["is_expected"]:
                self._note(trace_id, report)
            if "exited" in report:
                return

    async def failure(self, trace_id: str, is_needed: bool) -> dict[str, Any] | None:
        """The error of a rollout that has ended; it is waited for if one `is_needed`."""
        listening = self._listening.pop(trace_id, None)
        if listening is not None and is_needed and trace_id not in self.failures:
            await asyncio.wait([listening], timeout=GRACE_S + WHERE_S)
        if listening is not None and not is_needed:
            listening.cancel()
        return self.failures.pop(trace_id, None)

    def _note(self, trace_id: str, report: dict[str, Any]) -> None:
        """Only the first error of a rollout is kept: it is the cause."""
        if "failure" in report:
            self.failures.setdefault(trace_id, report["failure"])
        elif "where" in report and (report["where"] or report["phase"] != AGENT):
            self.failures.setdefault(trace_id, _hung(report["phase"], 0.0, report["where"]))
        elif "exited" in report:
            self.failures.setdefault(trace_id, _ended(report, "rollout"))

    async def where(self, trace_id: str) -> None:
        """Ask a rollout's process for its place in the code; the answer goes to `failures`."""
        number = self._running.get(trace_id)
        if number is None:
            return
        await self._ask({"do": "where", "number": number})
        for _ in range(20):
            if trace_id in self.failures:
                return
            await asyncio.sleep(WHERE_S / 20)

    def lost(self) -> list[dict[str, Any]]:
        """The errors of rollouts whose processes have ended, which their agents do not know yet."""
        return [self.failures[name] for name in self._running if name in self.failures]

    async def places(self) -> list[dict[str, Any]]:
        """Where the processes of running rollouts are in the code; the errors of those that have
        ended."""
        ids = list(self._running)
        await asyncio.gather(*map(self.where, ids))
        return [self.failures[trace_id] for trace_id in ids if trace_id in self.failures]

    async def close(self) -> None:
        """Stop the host with everything it forked."""
        if self._pipe is not None:
            await self._pipe.close(GRACE_S)


def _hung(phase: str, seconds: float, source_line: dict[str, Any] | None = None) -> dict[str, Any]:
    how = f"nothing for {seconds:.0f} s" if seconds else "still running at the timeout"
    return {"phase": phase, "type": "Timeout", "message": f"{phase}: {how}", **(source_line or {})}


def _ended(report: dict[str, Any], phase: str) -> dict[str, Any]:
    """The error for a process that exited unexpectedly."""
    code, why = report["exited"], report["why"]
    if why is None:
        why = ended_by(-code) if code is not None and code < 0 else exited_with(code)
    failure = process_ended(why, report.get("phase") or phase)
    return failure | {"traceback": "\n".join(report["tail"])} | (report.get("source_line") or {})


# The worker: requests on stdin, answers and events on stdout.


class Failed(Exception):
    """A request that failed because of the user's code or settings."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class Worker:
    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._forked: Forked | None = None
        self._source = ""
        self._slots: asyncio.Semaphore | None = None
        self._agents: dict[str, Any] = {}
        self._local_failures: dict[str, dict[str, Any]] = {}
        self._providers: dict[str, Any] = {}
        self._answered: dict[str, float] = {}
        """When a server at ``tcp://…`` answered last, Unix seconds."""

    def send(self, document: dict[str, Any]) -> None:
        """Write one line; exits if the reader is gone."""
        pipes.reply(self._answers, document)

    async def run(self) -> None:
        """Run until stdin is closed."""
        keep_endings_out_of_the_log()
        await pipes.answer_requests(sys.stdin.buffer, self._answer, self._tasks)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._forked is not None:
            await self._forked.close()

    async def _answer(self, request: dict[str, Any]) -> None:
        id_ = request["id"]
        try:
            verb = getattr(self, f"_{request['verb']}")
            self.send({"id": id_, "result": await verb(request)})
        except Failed as error:
            self.send({"id": id_, "error": error.failure})
        except asyncio.CancelledError:
            self.send({"id": id_, "error": {"type": "Cancelled", "message": "cancelled"}})
        except Exception as error:
            self.send({"id": id_, "error": failure_of(error, self._source or "/", "worker")})

    async def _hello(self, request: dict[str, Any]) -> dict[str, Any]:
        python = ".".join(map(str, sys.version_info[:3]))
        if missing is not None:
            raise Failed({"type": "NoSDK", "phase": "start", "message": missing, "python": python})
        return {"protocol": PROTOCOL, "python": python, "hud": hud_version, "pid": os.getpid()}

    async def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load an environment and report its content; repeated after the files changed."""
        if self._forked is not None:
            await self._forked.close()
        self._source = request["source"]
        self._slots = asyncio.Semaphore(request["at_once"])
        self._providers.clear()
        self._forked = Forked(self._source, request["log"], request["memory_mb"])
        return await self._forked.inspect(request.get("tasks"), request["timeout"])

    async def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start an environment once, and report what it publishes."""
        provider, trace_id = self._provider(request["runtime"]), uuid4().hex
        task = Task.model_validate(request["task"])
        began = monotonic()
        is_served = request["runtime"].startswith("tcp:")  # by somebody else, already
        ready_s = SERVED_S if is_served else READY_S
        with set_trace_context(trace_id):
            try:
                async with provider(task) as env, connect(env, ready_timeout=ready_s) as client:
                    bindings = client.manifest.bindings if client.manifest else []
                    names = [f"{binding.name} ({binding.protocol})" for binding in bindings]
            except Exception as error:
                failure = await self._failure(trace_id, True)
                if is_served and isinstance(error, OSError):
                    failure = not_served(request["runtime"], error)
                raise Failed(failure or failure_of(error, self._source, "start")) from error
        self._answered[request["runtime"]] = time()
        return {"capabilities": names, "seconds": monotonic() - began}

    async def _where(self, request: dict[str, Any]) -> dict[str, Any]:
        """Where in the user's code rollouts are that do not go on."""
        return {"failures": [] if self._forked is None else await self._forked.places()}

    async def _lost(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which rollouts cannot go on, although their agents wait for the model."""
        return {"failures": [] if self._forked is None else self._forked.lost()}

    async def _roll_out(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a group of rollouts of one task."""
        task = Task.model_validate(request["task"])
        agent = await asyncio.to_thread(self._agent, request)
        group_id = request.get("group_id") or uuid4().hex
        runs = await asyncio.gather(
            *(self._one(request, task, agent, group_id) for _ in range(request["group"]))
        )
        return {"group_id": group_id, "runs": runs}

    async def _one(
        self, request: dict[str, Any], task: Any, agent: Any, group_id: str
    ) -> dict[str, Any]:
        assert self._slots is not None
        async with self._slots:
            began, trace_id = monotonic(), request.get("trace_id") or uuid4().hex
            tools: dict[str, Any] = {}
            TOOLS.set(tools)
            run = await self._rollout(request, task, agent, group_id, trace_id)
            answer = summary(run, trace_id) | {"seconds": monotonic() - began}
            if request.get("is_trial"):
                answer["calls"] = calls_of(run.trace.steps, tools)
            answer["failure"] = await self._failure(trace_id, answer["error"] is not None)
            if request["runtime"].startswith("tcp:"):
                await self._check_served(request["runtime"], answer)
            shown = {key: value for key, value in answer.items() if key != "samples"}
            event = {"event": "rollout", "id": request["id"], "group_id": group_id}
            self.send({**event, "task_slug": task.slug, "run": shown})
            return answer

    async def _check_served(self, runtime: str, run: dict[str, Any]) -> None:
        """Name the server as the cause of a rollout's failure if it is gone."""
        if run["error"] is None:
            self._answered[runtime] = time()
        elif failure := await probe(runtime, self._answered.get(runtime)):
            run["failure"] = failure

    async def _rollout(
        self, request: dict[str, Any], task: Any, agent: Any, group_id: str, trace_id: str
    ) -> Any:
        timeout, job_id = request["timeout"], request["job_id"]
        ids = {"job_id": job_id, "group_id": group_id, "trace_id": trace_id}
        ENTERED.set(request.get("entered"))
        IS_HERE.set(request["runtime"] in ("subprocess", "local"))
        provider = self._provider(request["runtime"])
        asking = asyncio.get_running_loop().call_later(
            ask_where_after(timeout), self._ask_where, trace_id
        )
        try:
            if isinstance(provider, HostedRuntime):
                return await provider.run(task, agent, rollout_timeout=timeout, **ids)
            return await rollout(task, agent, runtime=provider, rollout_timeout=timeout, **ids)
        except Exception as error:  # of the SDK's own checks
            return Run.failed(f"{type(error).__name__}: {error}")
        finally:
            asking.cancel()

    def _ask_where(self, trace_id: str) -> None:
        if self._forked is not None:
            task = asyncio.create_task(self._forked.where(trace_id))
            self._tasks[-hash(trace_id)] = task
            task.add_done_callback(lambda done: self._tasks.pop(-hash(trace_id), None))

    async def _failure(self, trace_id: str, is_needed: bool) -> dict[str, Any] | None:
        failure = self._local_failures.pop(trace_id, None)
        if failure is None and self._forked is not None:
            failure = await self._forked.failure(trace_id, is_needed)
        return failure if is_needed else None

    def _agent(self, request: dict[str, Any]) -> Any:
        """The SDK's agent for a model; reads the service's catalog once."""
        sampled = {key: request.get(key) for key in ("max_tokens", "temperature")}
        options = {key: request.get(key) for key in ("model", "max_steps", "checkpoint")}
        name = json.dumps({**options, **sampled})
        if name not in self._agents:
            kwargs: dict[str, Any] = {"extra_body": {"return_token_ids": True}}
            kwargs |= {key: value for key, value in sampled.items() if value is not None}
            more = {"checkpoint": options["checkpoint"]} if options["checkpoint"] else {}
            self._agents[name] = create_agent(
                request["model"], max_steps=request["max_steps"], completion_kwargs=kwargs, **more
            )
        return self._agents[name]

    def _provider(self, runtime: str) -> Any:
        if runtime not in self._providers:
            self._providers[runtime] = self._make_provider(runtime)
        return self._providers[runtime]

    def _make_provider(self, runtime: str) -> Any:
        """What places a rollout: a fork of the host, or one of the SDK's own providers."""
        kind, _, more = runtime.partition(":")
        if kind == "subprocess":
            return self._forked if sys.platform == "linux" else SubprocessRuntime(self._source)
        if kind == "local":
            return LocalRuntime(self._local)
        if kind == "docker":
            named = filter(None, os.environ.get(SECRETS, "").split(","))
            variables = {name: os.environ[name] for name in named if name in os.environ}
            return DockerRuntime(more or None, env_vars=variables)
        if kind == "tcp":
            return Runtime(runtime, params={"ready_timeout": SERVED_S})
        return HUDRuntime() if kind == "hud" else HostedRuntime()

    def _local(self, task: Any) -> Any:
        """Load the environment into this process, for one rollout."""
        trace_id = get_current_trace_id() or ""

        def report(document: dict[str, Any]) -> None:
            if "failure" in document:
                self._local_failures.setdefault(trace_id, document["failure"])

        try:
            env = load_environment(Path(self._source), name=task.env)
        except BaseException as error:
            report({"failure": failure_of(error, self._source, "import")})
            raise RuntimeError(sendable(f"{type(error).__name__}: {error}")) from None
        watch(env, Doing(self._source, report))
        return env


def ask_where_after(timeout: float) -> float:
    """Seconds after which a rollout's process is asked for its place, so that it can still tell
    before the time limit ends it."""
    return min(0.98 * timeout, max(timeout / 2, timeout - STACK_S - 2 * POLL_S))


def clean_what_is_received() -> None:
    """Let the model, and so the service, see of an environment only what may be sent: no secret in
    what a tool says, as an error may be one; and no text that a request cannot have."""
    mend_messages()
    call, read = MCPClient.call_tool, channel.read_frame

    async def called(self: Any, name: str, arguments: dict[str, Any]) -> Any:
        return sendable(await call(self, name, arguments))

    async def frame(*given: Any, **options: Any) -> Any:
        return sendable(await read(*given, **options))

    MCPClient.call_tool, channel.read_frame = called, frame


ENTERED: ContextVar[dict[str, Any] | None] = ContextVar("entered", default=None)
"""What the present rollout says to the service as it begins, beside what the SDK says."""


def say_more_on_entering() -> None:
    """Let each rollout's report of its beginning say which step and attempt it is made for."""
    report = reports._report

    async def reported(path: str, payload: dict[str, Any]) -> None:
        is_entering = path.startswith("/trace/") and path.endswith("/enter") and "/job/" not in path
        await report(path, payload | (ENTERED.get() or {} if is_entering else {}))

    reports._report = reported


TOOLS: ContextVar[dict[str, Any]] = ContextVar("tools")
"""JSON Schemas of the tools that the present rollout's environment offers, by name."""


def note_tools() -> None:
    """Let each rollout know which tools its environment offers."""
    list_tools = MCPClient.list_tools

    async def listed(client: Any) -> Any:
        tools = await list_tools(client)
        TOOLS.get({}).update({tool.name: tool.inputSchema for tool in tools})
        return tools

    MCPClient.list_tools = listed


IS_HERE: ContextVar[bool] = ContextVar("is_here", default=False)
"""Whether the present rollout's environment is on this machine, with all its ports."""


def reach_directly() -> None:
    """Let the agent connect to what an environment on this machine serves. The SDK's tunnel through
    the control channel is for places of which only one port can be reached: it doubles the
    connections, and passes every byte through both sides once more."""
    binding = channel.HudClient.binding

    def bound(client: Any, ref: str) -> Any:
        capability = binding(client, ref)
        return direct(capability, client.manifest.bindings) if IS_HERE.get() else capability

    channel.HudClient.binding = bound


def report_over_one_client() -> None:
    """Make the requests to the platform, two for each rollout, over connections that stay open; the
    SDK opens one for each."""
    from httpx import AsyncClient, Limits
    from hud.utils import platform

    limits = Limits(max_connections=None, keepalive_expiry=REPORTS_OPEN_S)
    make_client = partial(AsyncClient, timeout=REPORT_S, limits=limits)
    platform.make_request = over_one_client(platform.make_request, make_client)


def over_one_client(request: Any, make_client: Callable[[], Any]) -> Any:
    """A function that makes requests, with one client for all that are not given theirs."""
    clients = list[Any]()

    @wraps(request)
    async def requested(*given: Any, client: Any = None, **options: Any) -> Any:
        if client is None:
            clients[:] = clients or [make_client()]
            client = clients[0]
        return await request(*given, client=client, **options)

    return requested


def direct(capability: Any, published: Sequence[Any]) -> Any:
    """A capability with the address that its environment published, if that is on loopback; else as
    it was."""
    for each in published:
        if each.name == capability.name and urlsplit(each.url).hostname in LOOPBACK:
            return each
    return capability


def summary(run: Any, trace_id: str) -> dict[str, Any]:
    """A finished rollout: its reward with its parts, and its turns' tokens.

    Of one that `HostedRuntime` placed only the reward comes back: its turns are None, and it is
    trained on by its trace id.
    """
    steps = [step for step in run.trace.steps if getattr(step, "source", "") == "agent"]
    samples = samples_of(steps)
    calls = sum(len(getattr(step, "tool_calls", ())) for step in steps)
    is_elsewhere = not steps and str(run.runtime or "").startswith("hud://")
    evaluation = run.evaluation
    rollout: dict[str, Any] = sendable(
        {
            "trace_id": trace_id,
            "reward": run.reward,
            "error": error_of(run),
            "stop_reason": run.trace.stop_reason,
            "turns": None if is_elsewhere else len(steps),
            "tool_calls": calls,
            "tokens": sum(len(sample.output_token_ids) for sample in samples),
            "prompt_tokens": sum(len(sample.prompt_token_ids or ()) for sample in samples),
            "content": (run.trace.content or "")[:LINE],
            "graded": graded_at(run.trace.steps),
            "subscores": evaluation.get("subscores"),
            "info": evaluation.get("info"),
        }
    )
    tokens = [sample.model_dump(mode="json", exclude_none=True) for sample in samples]
    return rollout | {"samples": tokens}


def calls_of(steps: Sequence[Any], tools: Mapping[str, Any]) -> dict[str, Any]:
    """How a rollout called its tools: the calls made, those that name a tool there is, those of
    them whose arguments fit its schema; and the names of tools that there are not."""
    calls = [step for step in steps if getattr(step, "call", None) is not None]
    named = [step for step in calls if not is_unknown(step)]
    return {
        "made": len(calls),
        "known": len(named),
        "fit": sum(fits(step.call.arguments, tools.get(step.call.name)) for step in named),
        "unknown": sendable([step.call.name[:LINE] for step in calls if is_unknown(step)]),
    }


def is_unknown(step: Any) -> bool:
    """Whether the agent found no tool of that name."""
    texts = [str(getattr(block, "text", "")) for block in getattr(step.result, "content", ())]
    return step.result.isError and texts[0:1] == [f"unknown tool: {step.call.name!r}"]


def fits(arguments: Any, schema: Any) -> bool:
    """Whether a call's arguments are what a tool takes; what has no schema takes any object."""
    if isinstance(arguments, str):  # cut off, or no JSON
        return False
    if not isinstance(schema, dict):
        return True
    try:
        from jsonschema.validators import validator_for

        return bool(validator_for(schema)(schema).is_valid(arguments or {}))
    except Exception:  # a schema that is none, or an SDK without the package
        return True


def graded_at(steps: Sequence[Any]) -> tuple[float, float] | None:
    """When the answer was graded, Unix seconds: begin and end; None if it was not."""
    for step in steps:
        call = getattr(step, "task_call", None)
        if call is not None and call.phase == "evaluate" and step.started_at and step.ended_at:
            began, ended = map(datetime.fromisoformat, (step.started_at, step.ended_at))
            return began.timestamp(), ended.timestamp()
    return None


def samples_of(steps: Sequence[Any]) -> list[Any]:
    """What the model sampled in each of its turns; turns without tokens are left out."""
    samples = (getattr(step, "sample", None) for step in steps)
    return [sample for sample in samples if sample is not None and sample.output_token_ids]


def error_of(run: Any) -> str | None:
    """Why the SDK's TrainingClient would refuse to train on a rollout; None if it would not."""
    if run.trace.stop_reason == "timeout":
        return run.trace.error or "timed out"
    if run.trace.is_error or run.trace.status == "cancelled":
        return run.trace.error or f"the rollout ended as {run.trace.status}"
    if run.grade.is_error:
        return run.grade.content or "the grade is an error"
    if not isfinite(run.reward):
        return f"the reward is {run.reward}"
    return None


def main() -> None:
    """Answer requests until stdin is closed."""
    signal(SIGINT, SIG_IGN)  # the terminal's: the driver decides
    answers = os.dup(1)
    os.dup2(2, 1)  # anything printed goes to the log
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    if missing is None:
        clean_what_is_received()
        say_more_on_entering()
        note_tools()
        for save in (share_contexts, reach_directly, report_over_one_client):
            with contextlib.suppress(ImportError, AttributeError):
                save()  # in another SDK, which may lack what it needs, rollouts cost more
        gc.collect()
        gc.freeze()  # no later collection looks at what is loaded
    asyncio.run(Worker(answers).run())
    if missing is None:
        flush(timeout=30.0)
