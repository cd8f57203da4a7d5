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
import ctypes
import importlib
import json
import logging
import os
import random
import selectors
import signal
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, NoReturn

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
LOOK_S = 0.25
MEMORY_EVERY_S = 1.0
LOG_BYTES = 8 << 20
"""Size at which the environment's log is rotated, bytes; one older file is kept."""
LINE = 2000
TAIL = 20
MOST_PROCESSES = 256
"""Most processes of one rollout."""
AGENT = "tool call"
"""Phase from the prompt to the answer: the environment's code runs only as the model calls it."""
MARK = "HUD_TUI_ROLLOUT"
"""Environment variable of a rollout's processes, to find those that left its process group."""
SECRETS = "HUD_TUI_SECRETS"
"""Names of the variables whose values are redacted, comma-separated."""

Report = Callable[[dict[str, Any]], None]

BEGIN = """
import sys, types
for name, path in (("hud_tui", []), ("hud_tui.rollouts", [sys.argv[1]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from hud_tui.rollouts import {0}
{0}.main(*sys.argv[2:])
"""
"""The environment's interpreter may not have `hud_tui`: only this directory of it is imported."""


def command(python: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this directory with an interpreter."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [python, "-P", "-c", BEGIN.format(module), here, *arguments]


# Errors in the user's code: their place, and the user's part of the traceback.


class Redactor:
    """Replaces the values of some variables in all output."""

    def __init__(self) -> None:
        names = filter(None, os.environ.get(SECRETS, "").split(","))
        found = [(name, os.environ.get(name, "")) for name in names]
        self._values = [(value, f"<{name}>") for name, value in found if len(value) >= 4]

    def __call__(self, value: Any) -> Any:
        """The value, with secrets replaced in every text in it."""
        if not self._values:
            return value
        if isinstance(value, str):
            for secret, name in self._values:
                value = value.replace(secret, name)
            return value
        if isinstance(value, dict):
            return {self(key): self(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(one) for one in value]
        if hasattr(value, "model_dump") and hasattr(type(value), "model_validate"):
            told = value.model_dump()
            cleaned = self(told)
            return value if cleaned == told else type(value).model_validate(cleaned)
        return value


redact = Redactor()


def failure_of(error: BaseException, source: str, phase: str) -> dict[str, Any]:
    """An exception with its place in the user's files, and the user's part of the traceback.

    Args:
        error: With its traceback.
        source: The environment's file or directory.
        phase: import, start, setup, tool call, grade or teardown.
    """
    told = traceback.TracebackException.from_exception(error, compact=True)
    root = _root(source)
    frames = [frame for frame in told.stack if _is_own(frame.filename, root)]
    frame = frames[-1] if frames else (told.stack[-1] if told.stack else None)
    shown = _shown(told, root)
    file, line, function = (
        (frame.filename, frame.lineno, frame.name) if frame else (None, None, None)
    )
    kind, message = type(error).__name__, str(error)
    if isinstance(error, SyntaxError):
        message = error.msg
        if error.filename:
            file, line, function = error.filename, error.lineno, None
    elif isinstance(error, SystemExit):
        kind, message = "ProcessEnded", exited_with(_exit_code(error), phase)
    failure: dict[str, Any] = redact(
        {
            "phase": phase,
            "type": kind,
            "message": message[:LINE],
            "file": file,
            "line": line,
            "function": function,
            "traceback": shown[-8 * LINE :],
        }
    )
    return failure


def exited_with(code: object, phase: str) -> str:
    """What is said of a process that exited by itself."""
    return f"{phase}: its process exited with code {code}"


def _exit_code(error: SystemExit) -> int:
    """As Python's own: none is success, and a message is a failure."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _shown(told: traceback.TracebackException, root: str) -> str:
    """A traceback from the user's first frame on. A syntax error's place is the file that it names,
    so only the user's imports that led there are shown with it."""
    is_syntax = issubclass(told.exc_type or Exception, SyntaxError)
    one: traceback.TracebackException | None = told
    while one is not None:
        own = [place for place, frame in enumerate(one.stack) if _is_own(frame.filename, root)]
        if is_syntax:
            one.stack[:] = [one.stack[place] for place in own]
        elif own:
            one.stack[:] = [
                frame
                for frame in one.stack[own[0] :]
                if not frame.filename.startswith("<frozen importlib")
            ]
        one = one.__cause__ or one.__context__
    return "".join(told.format() if told.stack else told.format_exception_only())


def _root(source: str) -> str:
    path = Path(source)
    return str(path if path.is_dir() else path.parent)


def _is_own(file: str, root: str) -> bool:
    return file.startswith(root + os.sep) and "site-packages" not in file


def place_of(frame: FrameType | None, source: str) -> dict[str, Any] | None:
    """The place of a running frame in the user's files; None if it is in none of them."""
    return _place_in(traceback.extract_stack(frame) if frame else [], source)


def place_awaited(awaited: Any, source: str) -> dict[str, Any] | None:
    """The place in the user's files where a coroutine or an asynchronous generator is suspended;
    None if it is in none of them."""
    frames: list[tuple[FrameType, int]] = []
    while awaited is not None:
        kind = next((one for one in ("cr", "ag", "gi") if hasattr(awaited, f"{one}_frame")), None)
        if kind is None:
            break
        frame = getattr(awaited, f"{kind}_frame")
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return _place_in(traceback.StackSummary.extract(iter(frames)), source)


def _place_in(stack: Sequence[traceback.FrameSummary], source: str) -> dict[str, Any] | None:
    """The innermost of the user's frames, and the stack from the user's outermost on."""
    root = _root(source)
    own = [place for place, one in enumerate(stack) if _is_own(one.filename, root)]
    if not own:
        return None
    inner = stack[own[-1]]
    shown = "".join(traceback.format_list(stack[own[0] :]))
    place = {"file": inner.filename, "line": inner.lineno, "function": inner.name}
    told: dict[str, Any] = redact({**place, "traceback": shown[-8 * LINE :]})
    return told


class Doing:
    """What a rollout's process does now: its phase, and its place in the user's files."""

    def __init__(self, source: str, report: Report) -> None:
        self.source, self.phase = source, "import"
        self._report, self._made = report, list[Any]()
        self._older: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._older_threads: set[int] = set()

    def answer(self) -> None:
        """Tell the place when the host asks, and where the process is made to exit."""
        signal.signal(signal.SIGUSR1, self._tell_where)
        self._tell_exits()

    def enter(self, phase: str) -> None:
        """From now on; the host keeps the last one, for a process that is killed."""
        self.phase = phase
        if phase == AGENT:  # what has begun before is no tool call
            self._older.update(asyncio.all_tasks())
            self._older_threads.update(self._threads())
        self._report({"phase": phase})

    def begin(self, made: Any) -> None:
        """Look into a template's generator too."""
        self._made.append(made)

    def tell(self, error: BaseException) -> None:
        """Report an exception in the present phase."""
        self._report({"failure": failure_of(error, self.source, self.phase)})

    def tell_value(self, message: str, made: Any) -> None:
        """Report a wrong value, with the line of the generator's yield."""
        told = {"phase": self.phase, "type": "ValueError", "message": message}
        self._report({"failure": {**told, **(place_awaited(made, self.source) or {})}})

    def _tell_where(self, number: int, frame: FrameType | None) -> None:
        place = next(filter(None, self._places(frame)), None)
        self._report({"phase": self.phase, "where": place})

    def _places(self, frame: FrameType | None) -> Iterator[dict[str, Any] | None]:
        """Of what blocks the process, of a template that does not wait for the model, of threads,
        and of what is awaited."""
        yield place_of(frame, self.source)
        if self.phase != AGENT:
            yield from (place_awaited(one, self.source) for one in reversed(self._made))
        for thread, place in self._threads().items():
            yield None if thread in self._older_threads else place
        with contextlib.suppress(RuntimeError):  # no loop is running
            for task in asyncio.all_tasks():
                is_known = task in self._older
                yield None if is_known else place_awaited(task.get_coro(), self.source)

    def _threads(self) -> dict[int, dict[str, Any]]:
        """The other threads that are in the user's files, and their places."""
        own, frames = threading.main_thread().ident, sys._current_frames()
        places = {one: place_of(frame, self.source) for one, frame in frames.items() if one != own}
        return {one: place for one, place in places.items() if place is not None}

    def _tell_exits(self) -> None:
        """Report ``os._exit`` too, which no handler sees; a fork of the user's may end so."""
        leave, own = os._exit, os.getpid()

        def tell_and_leave(status: int) -> NoReturn:
            if os.getpid() == own:
                told = {"phase": self.phase, "type": "ProcessEnded"}
                told |= {"message": exited_with(status, self.phase)}
                place = place_of(sys._getframe(1), self.source)
                self._report({"failure": {**told, **(place or {})}})
            leave(status)

        os._exit = tell_and_leave


class Watched:
    """Wraps a template's generator and reports exceptions before the SDK turns them into one
    line, or drops them."""

    def __init__(self, made: Any, doing: Doing) -> None:
        self._made, self._doing = made, doing
        doing.begin(made)

    async def __anext__(self) -> Any:
        with self._telling("setup"):
            prompt = redact(await self._made.__anext__())
        self._doing.enter(AGENT)
        return prompt

    async def asend(self, answer: Any) -> Any:
        with self._telling("grade"):
            result = await self._made.asend(answer)
        reward = getattr(result, "reward", result)
        if isinstance(reward, float) and not isfinite(reward):
            self._doing.tell_value(f"the reward is {reward}: yield a finite number", self._made)
        return redact(result)

    async def aclose(self) -> None:
        with self._telling("teardown"):
            await self._made.aclose()

    @contextlib.contextmanager
    def _telling(self, phase: str) -> Iterator[None]:
        self._doing.enter(phase)
        try:
            yield
        except (StopAsyncIteration, asyncio.CancelledError):
            raise
        except BaseException as error:
            self._doing.tell(error)
            if phase == "teardown":  # which the SDK drops
                traceback.print_exc()
            told = redact(str(error))
            if told != str(error):
                raise RuntimeError(told) from None
            raise


def watch(env: Any, doing: Doing) -> None:
    """Watch every template of an environment."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Watched]:
        return lambda *args, **kwargs: Watched(function(*args, **kwargs), doing)

    for template in env.tasks.values():
        template.func = wrap(template.func)


# Log messages of the SDK at the end of a rollout that are no errors.


class _HungUp(logging.Filter):
    """Drops messages about an MCP client that closed its stream: every rollout ends with one."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[0] if record.exc_info else None
        return raised is None or raised.__name__ not in ("ClosedResourceError", "CancelledError")


def keep_endings_out_of_the_log() -> None:
    """Log no traceback for connections that are cut because their rollout ended."""
    logging.getLogger("mcp.server.streamable_http").addFilter(_HungUp())
    asyncio.get_running_loop().set_exception_handler(_tell_unless_cancelled)


def _tell_unless_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Python before 3.11.8 reports each connection whose task was cancelled
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


# A rollout's process: loads the environment and serves it, or reports its content.


def _serve(command: dict[str, Any], report: Report, doing: Doing) -> None:
    source, before = command["source"], frozenset(sys.modules)
    env = load_environment(Path(source), name=command["env"])
    watch(env, doing)
    try:
        with asyncio.Runner() as runner:
            try:
                runner.run(_served(env, report, doing))
            except BaseException as error:  # such as a tool's sys.exit: told before it stops
                doing.tell(error)
                raise
    finally:
        report({"modules": _installed(before, source)})


def _installed(before: Collection[str], source: str) -> list[str]:
    """Modules that this process imported, except the user's own."""
    root = _root(source)
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in before
        and not name.startswith("_hud_mod_")
        and not _is_own(getattr(module, "__file__", None) or "", root)
    ]


async def _served(env: Any, report: Report, doing: Doing) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    keep_endings_out_of_the_log()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    try:
        doing.enter("start")
        await env.start()
        server = await bind(env, "127.0.0.1", 0)
        report({"port": server.sockets[0].getsockname()[1]})
        await ended.wait()
    finally:
        doing.enter("teardown")
        await env.stop()


def _inspect(command: dict[str, Any], report: Report, doing: Doing) -> None:
    """Report the environments, templates and tasks."""
    source = Path(command["source"])
    modules = list(iter_modules(source))
    rows = list(Taskset.from_module(source))
    found: dict[int, Any] = {
        id(value): value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Environment)
    }
    found |= {id(task._env): task._env for task in rows if task._env is not None}
    if command.get("tasks"):
        rows = list(Taskset.from_file(command["tasks"]))
    environments = [
        {
            "name": env.name,
            "templates": [one.manifest_entry() for one in env.tasks.values()],
        }
        for env in {env.name: env for env in found.values()}.values()
    ]
    tasks = [task.model_dump(mode="json", exclude_none=True) for task in rows]
    report({"found": {"environments": environments, "tasks": tasks}})


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
    rest: bytes = b""
    said: bytes = b""
    kill_at: float | None = None
    status: int | None = None
    why: str | None = None
    """Why the host killed it; None if it did not."""
    phase: str | None = None
    """What it last said that it does."""
    is_overdue: bool = False
    """It was asked to end, and did not: it is asked for its place before it is killed."""


class Host:
    """Single-threaded, so that it can fork."""

    def __init__(self, source: str, log: str) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._source, self._log = source, Log(log)
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._asked = b""
        self._is_over = False
        self._looked_at = 0.0

    def run(self) -> None:
        """Run until stdin is closed."""
        _preload(self._source)
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a child may be asked before it can answer
        signal.set_wakeup_fd(woken)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
        self._selector.register(0, selectors.EVENT_READ, self._read_requests)
        self._tell({"ready": True})
        while not self._is_over:
            for key, _ in self._selector.select(LOOK_S):
                key.data()
            self._reap()
            self._watch_memory()
        for child in list(self._children.values()):
            _kill(child)

    def _tell(self, document: dict[str, Any]) -> None:
        write_all(self._out, json.dumps(document, default=str).encode() + b"\n")

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
        """``where`` asks for the present place in the code; ``end`` allows a clean-up, ``kill``
        does not."""
        with contextlib.suppress(ProcessLookupError):
            if how == "where":
                os.kill(child.pid, signal.SIGUSR1)
            elif how == "end":
                os.kill(child.pid, signal.SIGTERM)
                child.kill_at = monotonic() + GRACE_S
            else:
                child.why = child.why or "ended"
                _kill(child)

    def _fork(self, request: dict[str, Any]) -> None:
        control, told = os.pipe()
        output, printed = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_child(request, told, printed)
        os.close(told)
        os.close(printed)
        number, memory = request["number"], request.get("memory_mb") or 0
        label = request.get("label", "")
        child = Child(number, pid, control, output, label, memory << 20)
        self._children[number] = child
        for end, read in ((control, self._hear), (output, self._print)):
            os.set_blocking(end, False)
            self._selector.register(end, selectors.EVENT_READ, _bound(read, child))

    def _hear(self, child: Child) -> None:
        data = _read_some(child.control)
        if not data:
            self._selector.unregister(child.control)
            return
        *lines, child.said = (child.said + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            child.phase = told.get("phase", child.phase)
            if "modules" in told:
                _import_all(told["modules"])
            elif "where" in told and child.is_overdue:
                self._log_overdue(child, told["where"])
            elif told.keys() != {"phase"}:
                self._tell({"number": child.number, **told})

    def _log_overdue(self, child: Child, place: dict[str, Any] | None) -> None:
        """The rollout is over, so that no failure of it can tell this."""
        where = f" at {place['file']}:{place['line']} in {place['function']}" if place else ""
        said = f"{child.phase}: killed, as it had not ended in {GRACE_S:g} s: still running{where}"
        self._log.add(f"{child.label} | {said}")

    def _print(self, child: Child) -> None:
        data = _read_some(child.output)
        if not data:
            self._selector.unregister(child.output)
        *lines, child.rest = (child.rest + data).split(b"\n")
        if len(child.rest) > LINE or (not data and child.rest):
            lines, child.rest = [*lines, child.rest], b""
        for line in lines:
            text = redact(line.decode("utf-8", "replace"))[:LINE]
            child.tail.append(text)
            self._log.add(f"{child.label} | {text}" if child.label else text)

    def _reap(self) -> None:
        now = monotonic()
        for child in list(self._children.values()):
            if child.kill_at is not None and now > child.kill_at:
                self._end_overdue(child, now)
            done, status = os.waitpid(child.pid, os.WNOHANG)
            if done:
                child.status = os.waitstatus_to_exitcode(status)
                self._bury(child)

    def _end_overdue(self, child: Child, now: float) -> None:
        if child.is_overdue:
            _kill(child)
        else:
            child.is_overdue, child.kill_at = True, now + LOOK_S
            self._end(child, "where")

    def _bury(self, child: Child) -> None:
        """After the process exited: kill what it left behind, and read its last report."""
        _kill(child)
        for end, read in ((child.control, self._hear), (child.output, self._print)):
            with contextlib.suppress(KeyError):
                read(child)
                self._selector.unregister(end)
            os.close(end)
        del self._children[child.number]
        exited = {"exited": child.status, "why": child.why, "tail": list(child.tail)}
        exited["phase"] = child.phase
        self._tell({"number": child.number, **exited})

    def _watch_memory(self) -> None:
        now = monotonic()
        if now - self._looked_at < MEMORY_EVERY_S or not Path("/proc/self/statm").exists():
            return
        self._looked_at = now
        for child in self._children.values():
            pids = list(_marked(child.pid))
            used = sum(map(_resident, pids))
            if child.memory and used > child.memory:
                child.why = f"it used {used >> 20} MB of memory; {child.memory >> 20} are allowed"
            elif len(pids) > MOST_PROCESSES:
                child.why = f"it started {len(pids)} processes; {MOST_PROCESSES} are allowed"
            else:
                continue
            _kill(child)


def _import_all(names: Iterable[str]) -> None:
    """Import what a rollout's process had to import, so that later ones find it loaded."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _bound(read: Callable[[Child], None], child: Child) -> Callable[[], None]:
    return lambda: read(child)


def _read_some(end: int) -> bytes:
    try:
        return os.read(end, 1 << 16)
    except BlockingIOError:
        return b""


def _preload(source: str) -> None:
    """Import the SDK, and the installed packages that the environment's files import at their top,
    so that each rollout's process finds them loaded. Errors are ignored: they occur again there,
    and are reported."""
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


def _be_child(request: dict[str, Any], control: int, printed: int) -> None:
    """Do one task in a forked process, and exit. Never returns."""
    code, leave = 0, os._exit
    doing = Doing(request["source"], lambda told: _report(control, told))
    try:
        _settle_child(request, control, printed)
        doing.answer()
        DUTIES[request["do"]](request, lambda told: _report(control, told), doing)
    except BaseException as error:
        code = _exit_code(error) if isinstance(error, SystemExit) else 1
        doing.tell(error)
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
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, Linux
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for end, stream in ((null, 0), (printed, 1), (printed, 2)):
        os.dup2(end, stream)
    os.dup2(control, 3, inheritable=False)
    os.closerange(4, 1024)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", 1, errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ[MARK] = f"{os.getpid()}"
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    os.chdir(_root(request["source"]))


def _report(control: int, told: dict[str, Any]) -> None:
    # the control pipe is file descriptor 3 of a child, whatever it was in the host
    write_all(3 if control > 3 else control, json.dumps(told, default=str).encode() + b"\n")


def write_all(end: int, data: bytes) -> None:
    """Write to a blocking file descriptor."""
    while data:
        data = data[os.write(end, data) :]


def _marked(pid: int) -> Iterator[int]:
    """The living processes of a rollout: its group, and those that left it."""
    mark = f"{MARK}={pid}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            is_own = int(entry) == pid or os.getpgid(int(entry)) == pid
            if is_own or mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                yield int(entry)


def _resident(pid: int) -> int:
    """Resident memory of the process itself, bytes."""
    try:
        fields = Path("/proc", str(pid), "statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def _kill(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if Path("/proc").is_dir():
        for pid in _marked(child.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


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
    Host(source, log).run()
