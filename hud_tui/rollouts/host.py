"""Forks a process for each rollout, which loads the environment, serves it, and is killed with
everything it started when the rollout ends.

So each rollout has a fresh environment, as with the SDK's SubprocessRuntime, without its seconds to
start; and whatever an environment does to its process ends one rollout. `hud_tui.rollouts.worker`
starts it and speaks with it: one JSON document a line. It does not have the service's key.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import importlib
import json
import logging
import os
import random
import selectors
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from hud_tui.pipes import write_all, write_document
from hud_tui.rollouts.descendants import (
    HAS_PROC,
    MARK,
    PR_SET_PDEATHSIG,
    Descendants,
    prctl,
    resident,
)
from hud_tui.rollouts.rehearsal import rehearse
from hud_tui.rollouts.watched import (
    CONTROL,
    LINE,
    Doing,
    Report,
    ended_by,
    exit_code,
    is_own,
    mend_messages,
    process_ended,
    root_of,
    sendable,
    source_line_in_stack,
    watch,
)

try:
    from hud.environment import Environment, load_environment
    from hud.environment.server import bind
    from hud.eval import Taskset
    from hud.utils.modules import iter_modules
except ImportError as error:  # told by the worker's `hello`
    missing: str | None = f"{type(error).__name__}: {error}"
else:
    missing = None

GRACE_S = 2.0
"""Seconds between asking a rollout's process to end, and killing it."""
POLL_S = 0.25
STACK_S = 0.5
"""Seconds that Python has to tell its place, before it is read off the threads' stacks."""
MEMORY_EVERY_S = 1.0
LOG_BYTES = 8 << 20
"""Size at which the environment's log is rotated, bytes; one older file is kept."""
TAIL = 20
LAST_MESSAGES = 20
"""Number of the SDK's last messages that are not repeated in the log."""
MOST_PROCESSES = 256
STACK_LINES = 400

BEGIN = """
import sys, types
for name, path in (("hud_tui", sys.argv[1]), ("hud_tui.rollouts", sys.argv[1] + "/rollouts")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from hud_tui.rollouts import {0}
{0}.main(*sys.argv[2:])
"""
"""The environment's interpreter may not have `hud_tui`: of this copy of it, only what runs there
is imported."""


def command(python: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this directory with an interpreter."""
    package = Path(__file__).absolute().parents[1]
    return [python, "-P", "-c", BEGIN.format(module), f"{package}", *arguments]


# Log messages of the SDK at the end of a rollout that are no errors, or repeat one.


class _HungUp(logging.Filter):
    """Drops messages about an MCP client that closed its stream: every rollout ends with one."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[0] if record.exc_info else None
        return raised is None or raised.__name__ not in ("ClosedResourceError", "CancelledError")


class _Once(logging.Filter):
    """Drops what was among the last messages: where an environment ended, each of its rollouts
    fails alike, and the run's failures have the cause."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: deque[str] = deque(maxlen=LAST_MESSAGES)

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # its arguments do not fit: the handler says so
            return True
        if message in self._logged:
            return False
        self._logged.append(message)
        return True


def keep_endings_out_of_the_log() -> None:
    """Log no traceback for connections that are cut because their rollout ended."""
    logging.getLogger("hud.eval.run").addFilter(_Once())
    logging.getLogger("mcp.server.streamable_http").addFilter(_HungUp())
    asyncio.get_running_loop().set_exception_handler(_log_unless_cancelled)


def _log_unless_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Python before 3.11.8 reports each connection whose task was cancelled
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


# A rollout's process: loads the environment and serves it, or reports its content.


def _serve(command: dict[str, Any], report: Report, doing: Doing) -> None:
    source, last = command["source"], next(reversed(sys.modules))
    env = load_environment(Path(source), name=command["env"])
    watch(env, doing)
    try:
        with asyncio.Runner() as runner:
            try:
                runner.run(_served(env, report, doing))
            except BaseException as error:  # such as a tool's sys.exit: told before it stops
                doing.report_error(error)
                raise
    finally:
        report({"modules": _installed(last, source)})


def _installed(last: str, source: str) -> list[str]:
    """Modules that this process imported after the last one before it, except the user's own. The
    older ones are not looked at: that alone would copy a thousand pages of memory."""
    root, names = root_of(source), list[str]()
    with contextlib.suppress(RuntimeError):  # a thread imports something now
        for name in reversed(sys.modules):
            if name == last:
                break
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not name.startswith("_hud_mod_") and not is_own(file, root):
                names.append(name)
    return names[::-1]


def end_at_sigterm(ended: asyncio.Event, doing: Doing) -> None:
    """Let a rollout's process end in its own time."""

    def end() -> None:
        doing.report_terminated()
        ended.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)


async def _served(env: Any, report: Report, doing: Doing) -> None:
    ended = asyncio.Event()
    keep_endings_out_of_the_log()
    end_at_sigterm(ended, doing)
    try:
        doing.enter("start")
        try:
            await env.start()
        except BaseException as error:
            doing.report_error(error)
            raise
        server = await bind(env, "127.0.0.1", 0)
        report({"port": server.sockets[0].getsockname()[1]})
        await ended.wait()
    finally:
        doing.enter("teardown")
        await env.stop()


def _inspect(command: dict[str, Any], report: Report, doing: Doing) -> None:
    source = Path(command["source"])
    modules = list(iter_modules(source))
    rows = list(Taskset.from_module(source))
    by_id: dict[int, Any] = {
        id(value): value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Environment)
    }
    by_id |= {id(task._env): task._env for task in rows if task._env is not None}
    if command.get("tasks"):
        rows = list(Taskset.from_file(command["tasks"]))
    environments = [
        {
            "name": env.name,
            "templates": [template.manifest_entry() for template in env.tasks.values()],
        }
        for env in {env.name: env for env in by_id.values()}.values()
    ]
    try:
        tasks = [_row(task) for task in rows]
    except ValueError as error:
        failure = {"phase": "import", "type": "ValueError", "message": str(error)}
        report({"failure": failure | {"file": command["source"]}})
    else:
        report({"found": {"environments": environments, "tasks": tasks}})


def _row(task: Any) -> dict[str, Any]:
    """A task as JSON. Raises ValueError: it has what JSON has not, such as nan."""
    try:
        row: dict[str, Any] = task.model_dump(mode="json", exclude_none=True)
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"task {task.slug}: {error}") from None
    return row


DUTIES: dict[str, Callable[[dict[str, Any], Report, Doing], None]] = {
    "serve": _serve,
    "inspect": _inspect,
}


# The host: forks a process per rollout, passes its reports on, and kills what is left of it.


@dataclass
class Child:
    """A forked process, until it and everything that it started are gone."""

    number: int
    pid: int
    control: int
    output: int
    label: str
    memory: int
    """Limit of resident memory of all its processes, bytes."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    unprinted: bytes = b""
    """The beginning of a line of its output."""
    unparsed: bytes = b""
    """The beginning of a line of its reports."""
    kill_at: float | None = None
    status: int | None = None
    is_asked: bool = False
    """Whether it was asked to end."""
    why: str | None = None
    """Why the host kills it; None if it was asked to end."""
    phase: str = "import"
    """As it reported last."""
    is_dying: bool = False
    """It is killed as soon as it has told its place."""
    source_line: dict[str, Any] | None = None
    """Where it was when it died, in the user's files."""
    stack: deque[str] = field(default_factory=lambda: deque(maxlen=STACK_LINES))
    """Its threads' stacks, in `faulthandler`'s lines."""
    stack_at: float | None = None
    """When its place is read off its stack, as Python does not tell it."""


class Host:
    """Single-threaded, so that it can fork."""

    def __init__(self, source: str, log: str) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._source, self._log = source, Log(log)
        self._children: dict[int, Child] = {}
        """Rollouts' processes by number."""
        self._descendants = Descendants()
        self._selector = selectors.DefaultSelector()
        self._asked = b""
        self._is_over = False
        self._looked_at = 0.0

    def run(self) -> None:
        """Run until stdin is closed."""
        packages = _preload(self._source)
        rehearse("fastmcp" in packages)
        _keep_out_of_collections()
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a child may be asked before it can answer
        signal.set_wakeup_fd(woken)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
        self._selector.register(0, selectors.EVENT_READ, self._read_requests)
        self._send({"ready": True})
        while not self._is_over:
            for key, _ in self._selector.select(POLL_S):
                key.data()
            self._reap()
            self._watch_memory()
        for child in list(self._children.values()):
            self._kill(child)

    def _send(self, document: dict[str, Any]) -> None:
        write_document(self._out, document)

    def _read_requests(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self._is_over = True
            return
        *lines, self._asked = (self._asked + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["do"] in DUTIES:
                self._fork(request)
            elif request["number"] in self._children:
                self._end(self._children[request["number"]], request["do"])

    def _end(self, child: Child, how: str) -> None:
        """``where`` asks for the present place in the code, ``end`` to clean up and exit."""
        with contextlib.suppress(ProcessLookupError):
            if how == "where":
                child.stack.clear()
                child.stack_at = monotonic() + STACK_S
                os.kill(child.pid, signal.SIGUSR1)
            else:
                if child.why is None and (why := self._excess(child)):
                    self._log.add(f"{child.label} | {child.phase}: {why}")
                child.is_asked, child.kill_at = True, monotonic() + GRACE_S
                os.kill(child.pid, signal.SIGTERM)

    def _fork(self, request: dict[str, Any]) -> None:
        control, reports = os.pipe()
        output, printed = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_child(request, reports, printed)
        os.close(reports)
        os.close(printed)
        number, memory = request["number"], request.get("memory_mb") or 0
        label = request.get("label", "")
        child = Child(number, pid, control, output, label, memory << 20)
        self._children[number] = child
        for end, read in ((control, self._read_reports), (output, self._print)):
            os.set_blocking(end, False)
            self._selector.register(end, selectors.EVENT_READ, partial(read, child))

    def _read_reports(self, child: Child) -> None:
        """Read what the process has reported by now."""
        data = _read_some(child.control)
        if data == b"":
            self._forget(child.control)
        *lines, child.unparsed = (child.unparsed + (data or b"")).split(b"\n")
        for line in lines:
            self._take(child, line)

    def _take(self, child: Child, line: bytes) -> None:
        """One line of a process: a report, or a line of its threads' stacks."""
        report = _document(line)
        if report is None:
            child.stack.append(line.decode("utf-8", "replace")[:LINE])
            return
        if child.why is None:  # else it is the phase in which it came to that
            child.phase = report.get("phase", child.phase)
        if "modules" in report:
            if report["modules"]:
                _import_all(report["modules"])
                _keep_out_of_collections()
        elif "terminated" in report:
            if not child.is_asked and child.why is None:
                child.why, child.phase = ended_by(signal.SIGTERM), report["terminated"]
                failure = process_ended(child.why, child.phase)
                self._send({"number": child.number, "failure": failure})
        elif "where" in report:
            self._place(child, report)
        elif report.keys() != {"phase"}:
            self._send({"number": child.number, **report})
            if "port" in report:
                self._end_excess(child, self._excess(child))

    def _place(self, child: Child, report: dict[str, Any]) -> None:
        """What a process answers when it is asked for its place."""
        child.stack_at = None
        if child.is_dying:
            child.source_line, child.kill_at = child.source_line or report["where"], monotonic()
        else:
            self._send({"number": child.number, **report})

    def _print(self, child: Child) -> None:
        data = _read_some(child.output)
        if data == b"":
            self._forget(child.output)
        *lines, child.unprinted = (child.unprinted + (data or b"")).split(b"\n")
        if len(child.unprinted) > LINE or (not data and child.unprinted):
            lines, child.unprinted = [*lines, child.unprinted], b""
        for line in lines:
            text = sendable(line.decode("utf-8", "replace"))[:LINE]
            child.tail.append(text)
            self._log.add(f"{child.label} | {text}" if child.label else text)

    def _forget(self, end: int) -> None:
        """Look no longer whether there is something to read."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(end)

    def _reap(self) -> None:
        now = monotonic()
        for child in list(self._children.values()):
            if child.stack_at is not None and now > child.stack_at:
                child.stack_at = None
                if where := source_line_in_stack(child.stack, self._source):
                    self._place(child, {"phase": child.phase, "where": where})
            if child.kill_at is not None and now > child.kill_at:
                self._end_dying(child, now)
        by_pid = {child.pid: child for child in self._children.values()}
        for pid, status in _exits():
            if pid in by_pid:  # else it was adopted
                by_pid[pid].status = os.waitstatus_to_exitcode(status)
                self._bury(by_pid[pid])

    def _end_dying(self, child: Child, now: float) -> None:
        if child.is_dying:
            self._kill(child)
        else:
            child.is_dying, child.kill_at = True, now + STACK_S
            self._end(child, "where")

    def _bury(self, child: Child) -> None:
        """After the process exited: kill what it left behind, and read its last report."""
        self._kill(child)
        for end, read in ((child.control, self._read_reports), (child.output, self._print)):
            read(child)
            self._forget(end)
            os.close(end)
        del self._children[child.number]
        is_expected = child.is_asked and child.status in (0, -15, -9 if child.is_dying else 0)
        if not is_expected or child.is_dying:
            child.source_line = child.source_line or source_line_in_stack(child.stack, self._source)
        if child.is_dying:
            why = child.why or f"killed, as it had not ended in {GRACE_S:g} s"
            line = child.source_line
            where = "at {file}:{line} in {function}".format_map(line) if line else ""
            self._log.add(f"{child.label} | {child.phase}: {why} {where}".rstrip())
        self._send(
            {
                "number": child.number,
                "exited": child.status,
                "is_expected": is_expected,
                "why": child.why,
                "phase": child.phase,
                "source_line": child.source_line,
                "tail": list(child.tail),
            }
        )

    def _watch_memory(self) -> None:
        now = monotonic()
        if now - self._looked_at < MEMORY_EVERY_S:
            return
        self._looked_at = now
        for child in self._children.values():
            why = self._excess(child)
            self._read_reports(child)  # else it is told with the phase before
            self._end_excess(child, why)

    def _end_excess(self, child: Child, why: str | None) -> None:
        """Kill a rollout that uses more than is allowed, once it has told its place."""
        if why is not None and not child.is_dying:
            child.why = why
            self._end_dying(child, monotonic())

    def _started_by(self, child: Child) -> list[int]:
        return self._descendants.of(child.pid, [each.pid for each in self._children.values()])

    def _excess(self, child: Child) -> str | None:
        """What a rollout's processes use at this moment beyond what is allowed; None if nothing, or
        where there is no /proc."""
        if not HAS_PROC:
            return None
        pids = [child.pid, *self._started_by(child)]
        used = sum(map(resident, pids))
        if child.memory and used > child.memory:
            allowed = f"{child.memory >> 20} are allowed (--memory-mb N)"
            return f"it used {used >> 20} MB of memory; {allowed}"
        if len(pids) > MOST_PROCESSES:
            return f"it started {len(pids)} processes; {MOST_PROCESSES} are allowed"
        return None

    def _kill(self, child: Child) -> None:
        """Kill a rollout's process, if it has not been waited for, and everything it started."""
        started = self._started_by(child)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        for pid in [*([child.pid] if child.status is None else []), *started]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _exits() -> Iterator[tuple[int, int]]:
    """The children that have exited, each once, and their statuses."""
    with contextlib.suppress(ChildProcessError):
        while (exited := os.waitpid(-1, os.WNOHANG))[0]:
            yield exited


def _document(line: bytes) -> dict[str, Any] | None:
    """A JSON object; None for any other line."""
    with contextlib.suppress(ValueError):
        document = json.loads(line)
        return document if isinstance(document, dict) else None
    return None


def _import_all(names: Iterable[str]) -> None:
    """Import what a rollout's process had to import, so that later ones find it loaded."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _keep_out_of_collections() -> None:
    """Have no garbage collection in a rollout's process look at what is loaded here: it would copy
    every page of it."""
    gc.collect()
    gc.freeze()


def _read_some(end: int) -> bytes | None:
    """Empty at the pipe's end; None where nothing has been written since."""
    try:
        return os.read(end, 1 << 16)
    except BlockingIOError:
        return None


def _preload(source: str) -> set[str]:
    """Import the SDK, and the installed packages that the environment's files import at their top,
    so that each rollout's process finds them loaded; returns their names. Errors are ignored: they
    occur again there, and are reported."""
    path = Path(source)
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    local = {file.stem for file in files[0].parent.glob("*")} if files else set()
    names: dict[str, None] = {}
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            for node in ast.parse(file.read_bytes()).body:
                if isinstance(node, ast.Import):
                    names |= {each.name: None for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names[node.module] = None
    _import_all(name for name in names if name.partition(".")[0] not in local)
    return {name.partition(".")[0] for name in names} - local


def _be_child(request: dict[str, Any], control: int, printed: int) -> None:
    """Do one task in a forked process, and exit. Never returns."""
    code, leave, own = 0, os._exit, os.getpid()

    def report(document: dict[str, Any]) -> None:
        if os.getpid() == own:  # not a fork of the user's, which may end as it likes
            write_document(min(control, CONTROL), document)  # whatever it was in the host

    doing = Doing(request["source"], report)
    try:
        _settle_child(request, control, printed)
        doing.answer()
        DUTIES[request["do"]](request, report, doing)
    except BaseException as error:
        code = exit_code(error) if isinstance(error, SystemExit) else 1
        doing.report_error(error)
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        leave(code)


def _settle_child(request: dict[str, Any], control: int, printed: int) -> None:
    """Give the process its own session, streams, random seed and memory limit; it ends with the
    host."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for end, stream in ((null, 0), (printed, 1), (printed, 2)):
        os.dup2(end, stream)
    os.dup2(control, CONTROL, inheritable=False)
    os.closerange(CONTROL + 1, 1024)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", 1, errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ[MARK] = f"{os.getpid()}"
    random.seed()
    if "numpy.random" in sys.modules:  # else it is seeded when it is imported
        sys.modules["numpy.random"].seed()
    os.chdir(root_of(request["source"]))


class Log:
    """The environments' output, limited in size."""

    def __init__(self, path: str) -> None:
        self._path, self._end = path, _append(path)

    def add(self, line: str) -> None:
        """Append a line; a full file replaces ``.1``."""
        if os.fstat(self._end).st_size > LOG_BYTES:
            os.close(self._end)
            os.replace(self._path, f"{self._path}.1")
            self._end = _append(self._path)
        write_all(self._end, line.encode("utf-8", "replace") + b"\n")


def _append(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def main(source: str, log: str) -> None:
    """Fork as the worker requests, until it exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mend_messages()
    Host(source, log).run()
