"""What the user's code does in a rollout, and what is said when it fails: phase, file, line and the
user's part of the traceback, with the values of secret variables replaced, and text that cannot be
sent made visible.

Imported where the environment runs, so it uses the standard library alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import json
import os
import re
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import CORO_CREATED
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

LINE = 2000
"""Longest line that is kept, characters."""
AGENT = "tool call"
"""Phase from the prompt to the answer: the environment's code runs only as the model calls it."""
SECRETS = "HUD_TUI_SECRETS"
"""Names of the variables whose values are redacted, comma-separated."""
UNGRADED = "no grade"
"""In a grade's info: the place of a template that ended without a grade."""
MOST_UNAWAITED = 3
"""Most calls without await that a failure names."""
CONTROL = 3
"""File descriptor of a rollout's process for its reports, and for the stacks of its threads."""

Report = Callable[[dict[str, Any]], None]


_SECRET_VALUES = [
    (os.environ[name], f"<{name}>")
    for name in os.environ.get(SECRETS, "").split(",")
    if len(os.environ.get(name, "")) >= 4
]


LONE = re.compile("[\ud800-\udfff]")
"""Surrogates without their other half, which Python's text may have and UTF-8 has not."""


def sendable(value: Any) -> Any:
    """The value as it may leave a rollout: in every text in it secrets are replaced, and lone
    surrogates made visible, because what cannot be sent is waited for."""
    if isinstance(value, str):
        for secret, name in _SECRET_VALUES:
            value = value.replace(secret, name)
        return value if value.isascii() else LONE.sub(lambda half: f"⟨{ord(half[0]):04X}⟩", value)
    if isinstance(value, dict):
        return {sendable(key): sendable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [sendable(item) for item in value]
    if hasattr(value, "model_dump") and hasattr(type(value), "model_validate"):
        dumped = value.model_dump()
        cleaned = sendable(dumped)
        return value if cleaned == dumped else type(value).model_validate(cleaned)
    return value


def mend_messages() -> None:
    """Let messages of MCP, such as a tool's result, be written and read if a text in them has a
    lone surrogate. Else the one side drops the message, and the other waits for it."""
    try:
        from mcp.types import JSONRPCMessage
    except ImportError:  # of a later SDK
        return
    write, read = JSONRPCMessage.model_dump_json, JSONRPCMessage.model_validate_json

    def written(self: Any, **options: Any) -> str:
        try:
            return str(write(self, **options))
        except ValueError:
            return json.dumps(sendable(self.model_dump(mode="json", **options)))

    def parsed(document: str | bytes, **options: Any) -> Any:
        try:
            return read(document, **options)
        except ValueError:
            return JSONRPCMessage.model_validate(sendable(json.loads(document)))

    JSONRPCMessage.model_dump_json = written
    JSONRPCMessage.model_validate_json = parsed


def failure_of(error: BaseException, source: str, phase: str) -> dict[str, Any]:
    """An exception with its place in the user's files, None if it has none there; and the user's
    part of the traceback. `phase`: import, start, setup, tool call, grade or teardown."""
    trace = traceback.TracebackException.from_exception(error, compact=True)
    root = root_of(source)
    frames = [frame for frame in trace.stack if is_own(frame.filename, root)]
    frame = frames[-1] if frames else None
    shown = _shown(trace, root)
    file, line, function = (
        (frame.filename, frame.lineno, frame.name) if frame else (None, None, None)
    )
    kind, message = type(error).__name__, str(error)
    if isinstance(error, SyntaxError):
        message = error.msg
        if error.filename:
            file, line, function = error.filename, error.lineno, None
    elif isinstance(error, SystemExit):
        kind, message = "ProcessEnded", f"{phase}: {exited_with(exit_code(error))}"
    failure: dict[str, Any] = sendable(
        {
            "phase": phase,
            "type": kind,
            "message": message[:LINE] + missing_await(error, root),
            "file": file,
            "line": line,
            "function": function,
            "traceback": shown[-8 * LINE :],
        }
    )
    return failure


def error_text(run: Mapping[str, Any]) -> str:
    """Why a rollout failed, in one line."""
    return failure_text(run["failure"]) if run.get("failure") else str(run["error"])


def failure_text(failure: Mapping[str, Any]) -> str:
    """A failure in one line: ``env.py:12 in add: ValueError: no``."""
    where = ""
    if failure.get("file"):
        function = f" in {failure['function']}" if failure.get("function") else ""
        line = f":{failure['line']}" if failure.get("line") else ""
        where = f"{failure['file']}{line}{function}: "
    kind = failure.get("type", "Error")
    what = failure.get("message", "")
    is_plain = kind in ("ProcessEnded", "NoSDK", "NotServed", "Cancelled")
    return f"{where}{what}" if is_plain else f"{where}{kind}: {what}"


def wrong_type(value: object, hint: str) -> str:
    """What is wrong with a value of this type, and what to do; of a coroutine, that it was not
    awaited."""
    if not inspect.iscoroutine(value):
        return f"of type {type(value).__name__}: {hint}"
    value.close()  # the failure says it, no warning in the log
    return f"a coroutine: yield await {value.cr_code.co_name}(…)"


def missing_await(error: BaseException, root: str) -> str:
    """For an error about a coroutine, e.g. ``int + coroutine``: which await is missing; else
    empty."""
    if "coroutine" not in str(error) or not isinstance(error, (TypeError, AttributeError)):
        return ""
    names: dict[str, None] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if is_own(frame.f_code.co_filename, root):
            values = filter(inspect.iscoroutine, frame.f_locals.values())
            new = [call for call in values if inspect.getcoroutinestate(call) == CORO_CREATED]
            names |= dict.fromkeys(call.cr_code.co_name for call in new)
    of = f" before the call of {', '.join(names)}" if names else ""
    return f"; an await is missing{of}"


def process_ended(why: str, phase: str) -> dict[str, Any]:
    return {"phase": phase, "type": "ProcessEnded", "message": f"{phase}: {why}"}


def exited_with(code: object) -> str:
    """What is said of a process that exited by itself."""
    return f"its process exited with code {code}"


def ended_by(number: int) -> str:
    """What is said of a process that a signal ended."""
    return f"its process was ended by {signal.Signals(number).name}"


def exit_code(error: SystemExit) -> int:
    """As Python's own: none is success, and a message is a failure."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _shown(trace: traceback.TracebackException, root: str) -> str:
    """A traceback from the user's first frame to their last. A syntax error's place is the file
    that it names, so only the user's imports that led there are shown with it."""
    is_syntax = issubclass(trace.exc_type or Exception, SyntaxError)
    error: traceback.TracebackException | None = trace
    while error is not None:
        own = [index for index, frame in enumerate(error.stack) if is_own(frame.filename, root)]
        if is_syntax:
            error.stack[:] = [error.stack[index] for index in own]
        elif own:
            error.stack[:] = [
                frame
                for frame in error.stack[own[0] : own[-1] + 1]
                if not frame.filename.startswith("<frozen importlib")
            ]
        error = error.__cause__ or error.__context__
    return "".join(trace.format() if trace.stack else trace.format_exception_only())


def root_of(source: str) -> str:
    path = Path(source)
    return str(path if path.is_dir() else path.parent)


def is_own(file: str, root: str) -> bool:
    return file.startswith(root + os.sep) and "site-packages" not in file


def source_line_of(frame: FrameType | None, source: str) -> dict[str, Any] | None:
    """The place of a running frame in the user's files; None if it is in none of them."""
    return _place_in(traceback.extract_stack(frame) if frame else [], source)


def _is_in_a_loop(frame: FrameType | None, source: str) -> bool:
    """Whether an event loop stands between a frame and the user's frame: it runs tasks of theirs,
    or waits for them."""
    root = root_of(source)
    while frame is not None and not is_own(frame.f_code.co_filename, root):
        if frame.f_code.co_filename.endswith("asyncio/base_events.py"):
            return True
        frame = frame.f_back
    return False


def place_awaited(awaited: Any, source: str) -> dict[str, Any] | None:
    """The place in the user's files where a coroutine or an asynchronous generator is suspended;
    None if it is in none of them."""
    frames: list[tuple[FrameType, int]] = []
    while awaited is not None:
        kind = next((p for p in ("cr", "ag", "gi") if hasattr(awaited, f"{p}_frame")), None)
        if kind is None:
            break
        frame = getattr(awaited, f"{kind}_frame")
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return _place_in(traceback.StackSummary.extract(iter(frames)), source)


def _place_in(stack: Sequence[traceback.FrameSummary], source: str) -> dict[str, Any] | None:
    """The innermost of the user's frames, and the stack from the user's outermost on."""
    root = root_of(source)
    own = [index for index, frame in enumerate(stack) if is_own(frame.filename, root)]
    if not own:
        return None
    inner = stack[own[-1]]
    shown = "".join(traceback.format_list(stack[own[0] :]))
    source_line = {"file": inner.filename, "line": inner.lineno, "function": inner.name}
    placed: dict[str, Any] = sendable({**source_line, "traceback": shown[-8 * LINE :]})
    return placed


STACK_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def source_line_in_stack(lines: Iterable[str], source: str) -> dict[str, Any] | None:
    """The place of a thread in the user's files, of the one that was interrupted, else of the
    newest; None if none is in them. `lines`: as `faulthandler` writes them: threads from the newest
    on, each with a heading and its frames, most recent call first."""
    threads: list[tuple[str, list[traceback.FrameSummary]]] = []
    for line in lines:
        if frame := STACK_FRAME.match(line):
            file, number, function = frame.groups()
            if threads:
                threads[-1][1].insert(0, traceback.FrameSummary(file, int(number), function))
        elif "hread 0x" in line:
            threads.append((line, []))
    threads.sort(key=lambda thread: not thread[0].startswith("Current"))
    return next(filter(None, (_place_in(frames, source) for _, frames in threads)), None)


class Doing:
    """What a rollout's process does now: its phase, and its place in the user's files."""

    def __init__(self, source: str, report: Report) -> None:
        self.source, self.phase = source, "import"
        self._report, self._made = report, list[Any]()
        self._unawaited: list[str] = []
        """Calls without await that Python has warned of, with their places."""
        self._older: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._older_threads: set[int] = set()

    def answer(self) -> None:
        """Tell the place when the host asks, and where the process is made to exit.

        The threads' stacks are written first, by a handler that needs no interpreter: code in C
        that never returns to Python keeps the other one from running. So are those of a crash.
        """
        signal.signal(signal.SIGUSR1, self._report_place)
        faulthandler.register(signal.SIGUSR1, file=CONTROL, chain=True)
        faulthandler.enable(file=CONTROL)
        self._report_exits()
        self._note_unawaited()

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

    def report_error(self, error: BaseException) -> None:
        """Report an exception in the present phase."""
        failure = failure_of(error, self.source, self.phase)
        if self._unawaited and "an await is missing" not in failure["message"]:
            before = "; ".join(self._unawaited[:MOST_UNAWAITED])
            failure["message"] += f" (before that, {before})"
        self._report({"failure": failure})

    def report_value(self, message: str, made: Any) -> None:
        """Report a wrong value, with the line of the generator's yield."""
        failure = {"phase": self.phase, "type": "ValueError", "message": message}
        self._report({"failure": {**failure, **(place_awaited(made, self.source) or {})}})

    def report_terminated(self) -> None:
        """Report SIGTERM, which the host sends, too; the host knows whether it did."""
        self._report({"terminated": self.phase})

    def _report_place(self, number: int, frame: FrameType | None) -> None:
        source_line = next(filter(None, self._places(frame)), None)
        self._report({"phase": self.phase, "where": source_line})

    def _places(self, frame: FrameType | None) -> Iterator[dict[str, Any] | None]:
        """Of what blocks the process, of a template that does not wait for the model, of threads,
        and of what is awaited."""
        blocked = source_line_of(frame, self.source)
        is_waiting = _is_in_a_loop(frame, self.source)
        yield None if is_waiting else blocked
        if self.phase != AGENT:
            yield from (place_awaited(generator, self.source) for generator in reversed(self._made))
        for thread, source_line in self._threads().items():
            yield None if thread in self._older_threads else source_line
        with contextlib.suppress(RuntimeError):  # no loop is running
            for task in asyncio.all_tasks():
                is_known = task in self._older
                yield None if is_known else place_awaited(task.get_coro(), self.source)
        yield blocked

    def _threads(self) -> dict[int, dict[str, Any]]:
        """The other threads that are in the user's files, and their places."""
        own, frames = threading.main_thread().ident, sys._current_frames()
        source_lines = {
            id_: source_line_of(frame, self.source) for id_, frame in frames.items() if id_ != own
        }
        return {thread: line for thread, line in source_lines.items() if line is not None}

    def _note_unawaited(self) -> None:
        """Keep Python's warnings of coroutines that were never awaited, for a later failure."""
        show, root = warnings.showwarning, root_of(self.source)

        def note(
            message: Any, category: Any, filename: str, lineno: int, *more: Any, **named: Any
        ) -> None:
            if "was never awaited" in str(message) and is_own(filename, root):
                self._unawaited.append(f"{filename}:{lineno}: {message}")
            show(message, category, filename, lineno, *more, **named)

        warnings.showwarning = note

    def _report_exits(self) -> None:
        """Report ``os._exit`` too, which no handler sees."""
        leave = os._exit

        def report_and_exit(status: int) -> NoReturn:
            failure = process_ended(exited_with(status), self.phase)
            source_line = source_line_of(sys._getframe(1), self.source)
            self._report({"failure": {**failure, **(source_line or {})}})
            leave(status)

        os._exit = report_and_exit


class Watched:
    """Wraps a template's generator and reports exceptions before the SDK turns them into one
    line, or drops them."""

    def __init__(self, made: Any, doing: Doing) -> None:
        self._made, self._doing = made, doing
        doing.begin(made)

    async def __anext__(self) -> Any:
        with self._telling("setup"):
            prompt = await self._made.__anext__()
        if not isinstance(prompt, (str, list, dict, type(None))):
            wrong = wrong_type(prompt, "yield text, or a list of messages")
            self._refuse(f"the prompt is {wrong}")
        self._doing.enter(AGENT)
        return sendable(prompt)

    async def asend(self, answer: Any) -> Any:
        try:
            with self._telling("grade"):
                result = await self._made.asend(answer)
        except StopAsyncIteration:  # the SDK takes it for 0, without a word
            code = self._made.ag_code
            return {"score": 0.0, "info": {UNGRADED: f"{code.co_filename}:{code.co_firstlineno}"}}
        if wrong := wrong_grade(result):
            self._refuse(wrong)
        return sendable(finite(result))

    async def aclose(self) -> None:
        with self._telling("teardown"):
            await self._made.aclose()

    def _refuse(self, message: str) -> NoReturn:
        """End the rollout for a wrong value."""
        self._doing.report_value(message, self._made)
        raise ValueError(message)

    @contextlib.contextmanager
    def _telling(self, phase: str) -> Iterator[None]:
        self._doing.enter(phase)
        try:
            yield
        except (StopAsyncIteration, asyncio.CancelledError):
            raise
        except BaseException as error:
            self._doing.report_error(error)
            if phase == "teardown":  # which the SDK drops
                traceback.print_exc()
            message = sendable(str(error))
            if message != str(error):
                raise RuntimeError(message) from None
            raise


def wrong_grade(result: Any) -> str | None:
    """What is wrong with a template's grade, which is a number, an EvaluationResult, or a dict with
    ``score``; None if nothing is."""
    reward = getattr(result, "reward", result)
    if isinstance(result, dict):
        if "score" not in result:
            return f"the grade is a dict without 'score', with {list(result)[:5]}"
        reward = result["score"]
    if not isinstance(reward, (int, float)):
        hint = "yield a number, an EvaluationResult, or a dict with a numeric 'score'"
        return f"the reward is {wrong_type(reward, hint)}"
    if abs(reward) <= sys.float_info.max:  # not for nan
        return None
    return f"the reward is {reward if isinstance(reward, float) else 'too large'}: not finite"


def finite(value: Any) -> Any:
    """The value with None for each nan and infinity in it: JSON has neither."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(info := getattr(value, "info", None), dict):
        value.info = finite(info)
    return value


def watch(env: Any, doing: Doing) -> None:
    """Watch every template of an environment."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Watched]:
        return lambda *args, **kwargs: Watched(function(*args, **kwargs), doing)

    for template in env.tasks.values():
        template.func = wrap(template.func)
