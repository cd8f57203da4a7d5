"""Replay of a recording behind HUD's wire, so that whatever reads a service can read it.

It answers the reads that the app makes, and streams the events at the times at which they were
recorded, or faster. It is read-only: every write is refused. Also the recorder of sessions.
"""

import asyncio
import json
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from time import monotonic, time
from typing import Any

import httpx

from hud_tui import __version__
from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly
from hud_tui.errors import HudUsage
from hud_tui.events import Event, RolloutDone, StepTaken, TreeRead, WorkChanged
from hud_tui.patience import rest
from hud_tui.rl.alarms.demos import demo
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.recording import MOST_LINE, Moment, Recording, first_line, read_recording, to_line
from hud_tui.rl.run import fold_tree
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings
from hud_tui.storage import open_regular
from hud_tui.wire import Model, WorkState
from hud_tui.wire_time import Discarded, RunTime, StepTime

# Recording a session's events to a file as they arrive, up to a maximum size.


MOST = 512 * 1024 * 1024
"""Maximum bytes of a recording."""


class Recorder:
    """Writes one recording. An error is reported once, and ends the recording."""

    def __init__(self, path: Path, on_end: Callable[[str], None]) -> None:
        """`on_end` is called with a line that says why the recording has ended."""
        self._on_end = on_end
        self._path, self._written, self._began = path, 0, time()
        try:
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError:
            hint = "give another name, or remove it"
            raise HudUsage(f"--record {one_line(path)}: the file exists", hint) from None
        except OSError as error:
            what = f"--record {one_line(path)}: {error.strerror or error}"
            raise HudUsage(what, "give the name of a file that can be written") from error
        self._write(first_line(__version__, self._began))

    def model(self, model: Model) -> None:
        """Record that this model was selected."""
        self._write(to_line("model", time() - self._began, model))

    def event(self, event: Event) -> None:
        """Record an event of the selected model."""
        self._write(to_line("event", time() - self._began, event))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self._end(f"{error.strerror or error}")
            return
        self._written += len(line)
        if self._written > MOST:
            self._end(f"it has {MOST // 2**20} MB")

    def _end(self, why: str) -> None:
        self._on_end(f"The recording {one_line(self._path, 120)} ends here: {why}.")
        with suppress(OSError):  # closing writes what is buffered, which fails again
            self._file.close()


URL = "http://replay.invalid"
"""Never resolved, because the transport answers itself."""
REFUSED = "a replay changes nothing"
READ_ONLY = ReadOnly(REFUSED, "hud-tui --local starts a service in which everything can be changed")
ALIVE_S = 5.0
"""Seconds between two keep-alives."""
SLOWEST, FASTEST = 1 / 8, 10_000.0
FEW = 8
"""Maximum number of events that belong to a step."""
MOST_BYTES = 1024 * 1024 * 1024
"""Maximum size of a file that is read."""


class ReplayClient(HudClient):
    """A client of a recording. It is read-only; `playback` controls which part is played."""

    def __init__(self, transport: "ReplayTransport") -> None:
        settings = Settings(URL, URL, URL, URL, URL, "no key is needed", local=True, name="replay")
        super().__init__(settings, transport, Guard(lambda: READ_ONLY))
        self.playback = transport.playback


class Player:
    """Connects the app to a recording, as `hud_tui.cli.connect.Connector` does to a service."""

    def __init__(self, recording: Recording, speed: float) -> None:
        self._recording, self._speed = recording, speed
        self._begin()

    def _begin(self) -> None:
        self._transport = ReplayTransport(self._recording, self._speed)
        self._client = ReplayClient(self._transport)

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        """The client; if it was closed, a new one that plays from the start."""
        if self._client.wire.http.is_closed:
            self._begin()
        return self._client

    def clock(self) -> float:
        """Unix seconds of the playback position, so that ages are those at the time of the
        recording."""
        return self._transport.present


def player(demo_name: str | None, file: str | None, speed: float) -> Player:
    """A player of a demo or of a file. Raises HudUsage: there is no such demo; the file cannot be
    read, or is not a recording; or the speed is invalid."""
    if demo_name is not None and file is not None:
        raise HudUsage("--demo plays no file", "leave out one of the two")
    if not 0 < speed <= FASTEST:  # before reading a file, which may be large
        raise HudUsage(f"--speed {speed:g}: expected more than 0, at most {FASTEST:g}")
    recording = read_file(Path(file)) if file is not None else demo(demo_name or "", time())
    return Player(recording, speed)


def read_file(path: Path) -> Recording:
    """Read a recording. Raises HudUsage: it cannot be read, or is not a recording."""
    name = one_line(path)
    try:
        with open_regular(path) as opened, TextIOWrapper(opened, "utf-8") as text:
            if os.fstat(opened.fileno()).st_size > MOST_BYTES:
                what = f"{name}: larger than {MOST_BYTES // 2**20} MB"
                raise HudUsage(what, "replay a shorter one")
            return read_recording(iter(partial(text.readline, MOST_LINE + 1), ""), name)
    except OSError as error:
        raise HudUsage(
            f"{name}: {error.strerror or error}", "give a file that --record wrote"
        ) from error
    except ValueError as error:
        what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else one_line(error)
        raise HudUsage(f"{name}: {what}", "give a file that --record wrote") from error


BURST_S = 0.1
"""Seconds after a step within which the events that belong to it arrive: its checkpoint, its job's
state."""


class Playback:
    """The position in a recording: it advances, pauses, or is moved.

    It starts with the first stream. Steps are those that the recording's events report.
    """

    def __init__(self, recording: Recording, speed: float, clock: Callable[[], float]) -> None:
        """`speed`: seconds of the recording per second; `clock`: monotonic seconds."""
        self.speed, self.paused = speed, False
        self.seconds = recording.seconds
        self._steps = list(_steps(recording.moments))
        self.last_step = max((step for _, step in self._steps), default=0)
        """The highest number of a step in the recording; 0 if it has none."""
        self._clock, self._at = clock, 0.0
        self._since: float | None = None
        """The clock's time when the position was `_at`; None before the first stream."""
        self._changed = asyncio.Event()

    @property
    def now(self) -> float:
        """Seconds into the recording, at most all of it."""
        if self._since is None or self.paused:
            return self._at
        return min(self.seconds, self._at + (self._clock() - self._since) * self.speed)

    @property
    def ended(self) -> bool:
        """Whether all of it has been played."""
        return self.now >= self.seconds

    @property
    def steps_played(self) -> int:
        """Number of steps that have been played."""
        return bisect_right(self._steps, self.now, key=lambda step: step[0])

    @property
    def step(self) -> int:
        """Number of the last step that has been played; 0 before the first."""
        return self._steps[self.steps_played - 1][1] if self.steps_played else 0

    @property
    def state_text(self) -> str:
        """State as text, e.g. ``▶ 4× · step 120/600``."""
        sign = "■" if self.ended else "⏸" if self.paused else "▶"
        speed = float(f"{self.speed:.3g}")
        return f"{sign} {speed:g}× · step {self.step}/{self.last_step}"

    def begin(self) -> None:
        """Start, unless it has started."""
        if self._since is None:
            self._since = self._clock()

    def toggle(self) -> None:
        """Pause or continue; at the end, start over."""
        ended = self.ended
        self._put(0.0 if ended else self.now)
        self.paused = not (ended or self.paused)

    def faster(self, times: int) -> None:
        """Multiply the speed by 2 ** `times`; negative slows down."""
        self._put(self.now)
        self.speed = min(FASTEST, max(min(SLOWEST, self.speed), self.speed * 2.0**times))

    def move(self, steps: int) -> None:
        """Pause `steps` steps further, or back if negative."""
        self._go(self.steps_played + steps)

    def go_to(self, number: int) -> None:
        """Pause after the step with this number, or else with the highest one below it; after the
        first of them where numbers repeat, because a head was set back and trained again."""
        steps = [step for _, step in self._steps]
        passed = [step for step in steps if step <= number]
        self._go(steps.index(max(passed)) + 1 if passed else 0)

    async def until(self, second: float) -> bool:
        """Wait until the position is `second`, something changes, or ALIVE_S have passed; return
        whether the position is reached."""
        if self.now >= second:
            return True
        wait = ALIVE_S if self.paused else min(ALIVE_S, (second - self.now) / self.speed)
        await rest(wait, self._changed)
        return self.now >= second

    def _go(self, number: int) -> None:
        number = max(0, min(len(self._steps), number))
        self._put(self._steps[number - 1][0] if number else 0.0)
        self.paused = True

    def _put(self, second: float) -> None:
        self._at = min(second, self.seconds)
        if self._since is not None:
            self._since = self._clock()
        self._changed.set()
        self._changed = asyncio.Event()


def _steps(moments: Sequence[Moment]) -> Iterator[tuple[float, int]]:
    """For each step, the time at which all of its events have arrived, and its number."""
    for number, moment in enumerate(moments):
        if isinstance(moment.event, StepTaken):
            with_it = takewhile(
                lambda other, time=moment.at: (
                    other.at <= time + BURST_S  # type: ignore[misc]
                    and not isinstance(other.event, RolloutDone)
                ),
                moments[number : number + FEW],
            )
            yield max(other.at for other in with_it), moment.event.step


class ReplayTransport(httpx.AsyncBaseTransport):
    """Answers requests from a recording. Playback starts with the first stream."""

    def __init__(
        self, recording: Recording, speed: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._recording = recording
        self.playback = Playback(recording, speed, clock)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            return httpx.Response(405, json={"detail": REFUSED}, request=request)
        *_, before, last = ["", *request.url.path.split("/")]
        if last == "models":
            return _json([model.model_dump() for model in self._recording.models], paged=True)
        if last in ("jobs", "tasksets", "environments"):
            return _json([], paged=True)
        if last == "losses":
            return _json({"losses": []})
        if last == "checkpoints":
            return _json(
                [checkpoint.model_dump() for checkpoint in self._tree(before).checkpoints()]
            )
        if last == "raw-status" and (job := self._job(before)) is not None:
            return _json(job.model_dump())
        if last in ("time", "discarded"):
            times = [time for time in self._times(before) if time.checkpoint_id is not None]
            return _time(before, times, request) if last == "time" else _discarded(times)
        if request.url.path.endswith("/train/events"):
            return self._stream(request)
        return httpx.Response(404, json={"detail": "a replay has no such thing"}, request=request)

    @property
    def present(self) -> float:
        """Unix seconds of the playback position; the real time if the recording's start is
        unknown."""
        began = self._recording.began
        return time() if began is None else began + self.playback.now

    def _tree(self, model_id: str) -> Tree:
        tree = Tree()
        for moment in self._recording.moments:
            if moment.at <= self.playback.now and moment.model_id == model_id:
                tree = fold_tree(tree, moment.event)
        return tree

    def _job(self, ref: str) -> WorkState | None:
        """The newest state of a job, by its id or its model's."""
        jobs = [
            (moment.model_id, moment.event.run)
            for moment in self._recording.moments
            if moment.at <= self.playback.now
            and isinstance(moment.event, WorkChanged)
            and moment.event.run is not None
        ]
        return next((job for model, job in reversed(jobs) if ref in (model, job.id)), None)

    def _times(self, run_id: str) -> list[StepTime]:
        """Where the time of a run's steps went, as the steps' events say."""
        now = self.playback.now
        events = (moment.event for moment in self._recording.moments if moment.at <= now)
        taken = (event.time for event in events if isinstance(event, StepTaken))
        return [time for time in taken if time is not None and time.run_id == run_id]

    def _stream(self, request: httpx.Request) -> httpx.Response:
        self.playback.begin()
        model_id = request.url.path.split("/")[-3]
        after = self._after(request.headers.get("last-event-id", ""))
        headers = {"content-type": "text/event-stream", "x-last-event-id": str(after)}
        body = self._messages(model_id, after)
        return httpx.Response(200, headers=headers, content=body, request=request)

    def _after(self, asked: str) -> int:
        """Index of the moment after which a stream continues: as requested, else the playback
        position."""
        if asked.removeprefix("-").isdecimal():
            return int(asked)
        moments, now = self._recording.moments, self.playback.now
        return bisect_left(moments, now, key=lambda moment: moment.at) - 1

    async def _messages(self, model_id: str, after: int) -> AsyncIterator[bytes]:
        """The events after an index, each at its time; then keep-alives forever."""
        for number, moment in enumerate(self._recording.moments):
            if moment.model_id != model_id or number <= after:
                continue
            while not await self.playback.until(moment.at):
                yield b": alive\n\n"
            if isinstance(moment.event, TreeRead):
                if moment.at > 0:
                    yield b"event: reset\ndata: {}\n\n"
                continue
            data = json.dumps(moment.event.model_dump())
            yield f"id: {number}\nevent: {moment.event.type}\ndata: {data}\n\n".encode()
        while True:
            yield b": alive\n\n"
            await asyncio.sleep(ALIVE_S)


def _time(run_id: str, times: Sequence[StepTime], request: httpx.Request) -> httpx.Response:
    """The answer to a read of `RunTime`."""
    asked, counts = request.url.params, Counter[str]()
    for bar in (bar for taken in times for bar in taken.rollouts if bar.reason):
        counts[bar.reason] += bar.number
    if "checkpoint" in asked:
        shown = [time for time in times if time.checkpoint_id == asked["checkpoint"]]
    elif "step" in asked:
        shown = [time for time in times if f"{time.step}" == asked["step"]]
    else:
        shown = list(times[-int(asked.get("last", 20)) :])
    told = RunTime(run_id=run_id, steps=shown, total=len(times), discarded=counts)
    return _json(told.model_dump())


def _discarded(times: Sequence[StepTime]) -> httpx.Response:
    """The discarded rollouts, newest first, as far as a recording has them."""
    rows = [
        Discarded(
            trace_id=bar.trace_id,
            reason=bar.reason,
            step=time.step,
            task_slug=bar.task_slug,
            seconds=bar.seconds,
            ended_at=time.start + bar.start + bar.seconds,
        )
        for time in reversed(times)
        for bar in reversed(time.rollouts)
        if bar.reason
    ]
    return _json([row.model_dump() for row in rows], paged=True)


def _json(value: list[Any] | dict[str, Any], paged: bool = False) -> httpx.Response:
    """A JSON answer; NaN is written as Python does, which the client's readers accept."""
    body = {"items": value, "total": len(value)} if paged else value
    headers = {"content-type": "application/json"}
    return httpx.Response(200, headers=headers, content=json.dumps(body).encode())
