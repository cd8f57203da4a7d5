"""Whatever an environment does to its process ends that rollout: with its phase and its place, and
with everything that it started."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from subprocess import run
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import RootModel

from hud_tui.rollouts.host import _row
from hud_tui.rollouts.trial import Trial
from hud_tui.rollouts.watched import Doing, Watched, mend_messages
from hud_tui.rollouts.worker import _ended
from tests.conftest import PATIENCE_S

MISDEEDS = Path(__file__).parents[1] / "live" / "training" / "misdeeds.py"
ENVIRONMENT = """
import time
import misdeeds

def block_beside(started):
    started.set()
    time.sleep(1000)

async def template(when, kind):
    global tool
    async def do(phase):
        if phase == when:
            await misdeeds.do(kind)
    async def tool():
        await do("tool call")
    await do("setup")
    try:
        yield "prompt"
        await do("grade")
        yield 0.5
    finally:
        await do("teardown")
"""
HOST = """
import asyncio, sys, threading
from hud_tui.rollouts import host
from hud_tui.rollouts.watched import Watched

def serve(command, report, doing):
    if command["phase"] == "import":
        import misdeeds
        asyncio.run(misdeeds.do(command["kind"]))
    if command["kind"] == "hoards":
        kept = b"x" * (450 << 20)
        report({"port": 1} if command["phase"] == "ready" else {})
    import env
    asyncio.run(rollout(env, command, report, doing))

async def rollout(env, command, report, doing):
    '''As the SDK's; a thread and a task that are older than it are not what it waits for.'''
    older, started = asyncio.ensure_future(env.misdeeds.waits()), threading.Event()
    threading.Thread(target=env.block_beside, args=[started], daemon=True).start()
    started.wait()
    await asyncio.sleep(0)
    ended = asyncio.Event()
    host.end_at_sigterm(ended, doing)
    made = Watched(env.template(command["phase"], command["kind"]), doing)
    rolling_out = asyncio.create_task(roll_out(env, made, report))
    ending = asyncio.create_task(ended.wait())
    await asyncio.wait({rolling_out, ending}, return_when=asyncio.FIRST_COMPLETED)
    if rolling_out.done():
        await rolling_out

async def roll_out(env, made, report):
    await anext(made)
    await asyncio.create_task(env.tool())
    await made.asend("answer")
    await made.aclose()
    report({"graded": True})
    await asyncio.sleep(1000)

sys.path.insert(0, sys.argv[3])
host.MEMORY_EVERY_S = float(sys.argv[4])
host.DUTIES["serve"] = serve
host.main(*sys.argv[1:3])
"""
PHASES = ("import", "setup", "tool call", "grade", "teardown")
FATAL = {
    "raises": "KeyError",
    "quits": "exited with code 6",
    "leaves": "exited with code 5",
    "is_killed": "ended by SIGKILL",
    "is_terminated": "ended by SIGTERM",
    "crashes": "ended by SIGSEGV",
    "leaks": "MB of memory; 400 are allowed",
}
HANGING = ("blocks", "deadlocks", "waits", "hangs_in_a_thread")
HARMLESS = ("forks", "forks_and_leaves", "holds", "prints", "writes_anywhere")
WITHOUT_A_PLACE = ("is_killed", "is_terminated")


@dataclass
class Told:
    failure: dict[str, Any] | None = None
    where: dict[str, Any] | None = None
    exited: dict[str, Any] | None = None
    is_graded: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Hosted:
    def __init__(self, process: Process, source: Path) -> None:
        self._process, self._source = process, source
        self.told: list[Told] = []

    def begin(self, phase: str, kind: str) -> int:
        number = len(self.told)
        self.told.append(Told())
        request = {"do": "serve", "number": number, "source": str(self._source)}
        self.ask(**request, memory_mb=400, phase=phase, kind=kind)
        return number

    def ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            document = json.loads(line)
            if "number" in document:
                told = self.told[document["number"]]
                told.failure = told.failure or document.get("failure")
                told.where = document if document.get("where") else told.where
                told.exited = document if "exited" in document else told.exited
                told.is_graded |= "graded" in document
                told.news.set()

    async def exited(self, number: int) -> dict[str, Any]:
        told = self.told[number]
        while told.exited is None:
            told.news.clear()
            await told.news.wait()
        return told.exited

    async def graded(self, number: int) -> None:
        told = self.told[number]
        while not told.is_graded:
            assert told.exited is None, told
            told.news.clear()
            await told.news.wait()

    async def end(self, number: int) -> dict[str, Any]:
        self.ask(do="end", number=number)
        return await self.exited(number)


@asynccontextmanager
async def hosted(source: Path, look_every_s: float = 1.0) -> AsyncIterator[Hosted]:
    """A host; at the end nothing of its rollouts is left."""
    directory = str(source.parent)
    words = [sys.executable, "-c", HOST, str(source), str(source.parent / "log"), directory]
    words.append(str(look_every_s))
    process = await create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    host = Hosted(process, source)
    reading = asyncio.create_task(host.read())
    try:
        yield host
        assert list(left_in(directory)) == []
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await reading


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An environment in a directory of its own."""
    directory = tmp_path / "env"
    directory.mkdir()
    shutil.copy(MISDEEDS, directory)
    (directory / "env.py").write_text(ENVIRONMENT)
    return directory / "env.py"


def line_of(kind: str) -> int | None:
    lines = MISDEEDS.read_text().splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.endswith(f"# line: {kind}")), None)


def left_in(directory: str) -> Iterator[str]:
    """The processes that work there: those of the rollouts."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{entry}/cwd") == directory:
                yield Path(f"/proc/{entry}/cmdline").read_text()


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@needs_proc
async def test_a_fault_ends_its_rollout_and_says_where_it_is(source: Path) -> None:
    async with hosted(source) as host:
        kinds = {(phase, kind) for phase in PHASES for kind in FATAL}
        kinds -= {(phase, "leaks") for phase in PHASES[2:]}  # each takes 400 MB
        for (phase, kind), number in {kind: host.begin(*kind) for kind in kinds}.items():
            exited = await host.exited(number)
            failure = host.told[number].failure or _ended(exited, phase)
            assert FATAL[kind] in f"{failure['type']} {failure['message']}", (phase, kind)
            line = None if kind in WITHOUT_A_PLACE else line_of(kind)
            assert (failure["phase"], failure.get("line")) == (phase, line), (kind, failure)
            assert not exited["is_expected"], (phase, kind)


@needs_proc
async def test_what_hangs_is_told_with_its_line_and_killed(source: Path) -> None:
    async def hang(host: Hosted, phase: str, kind: str) -> None:
        number = host.begin(phase, kind)
        told = host.told[number]
        places = [(phase, line_of(kind))]
        places += [(phase, line_of("blocks"))] if kind == "hangs_in_a_thread" else []  # is awaited
        place: tuple[str, int] | None = None
        async with asyncio.timeout(PATIENCE_S):
            while place not in places:
                host.ask(do="where", number=number)  # it may not have come to it yet
                told.news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(told.news.wait(), 1.0)
                if told.where is not None:
                    place = told.where["phase"], told.where["where"]["line"]
        exited = await host.end(number)
        assert (exited["is_expected"], exited["why"]) == (True, None), (phase, kind)

    async with hosted(source) as host:
        await asyncio.gather(*(hang(host, phase, kind) for phase in PHASES for kind in HANGING))
    log = (source.parent / "log").read_text()
    for phase in PHASES[1:]:
        line = f"{source.parent}/misdeeds.py:{line_of('deadlocks')} in deadlocks"
        assert f"{phase}: killed, as it had not ended in 2 s at {line}" in log


@needs_proc
async def test_what_costs_nothing_is_graded_and_leaves_nothing(source: Path) -> None:
    async with hosted(source) as host:
        kinds = [(phase, kind) for phase in PHASES for kind in HARMLESS]
        for (phase, kind), number in {kind: host.begin(*kind) for kind in kinds}.items():
            await host.graded(number)
            await host.end(number)
            assert host.told[number].failure is None, (phase, kind)
    assert "a line of the environment" in (source.parent / "log").read_text()


@needs_proc
async def test_memory_is_looked_at_when_it_is_ready_and_when_it_ends(source: Path) -> None:
    said = "MB of memory; 400 are allowed (--memory-mb N)"
    async with hosted(source, look_every_s=inf) as host:
        async with asyncio.timeout(PATIENCE_S):
            exited = await host.exited(host.begin("ready", "hoards"))
        assert said in exited["why"]
        number = host.begin("end", "hoards")
        await host.graded(number)
        exited = await host.end(number)
        assert (exited["is_expected"], exited["why"]) == (True, None)
    assert (source.parent / "log").read_text().count(said) == 2


class Reward:
    def __init__(self, reward: object) -> None:
        self.reward = reward


async def price() -> int:
    return 3


async def test_a_wrong_prompt_or_reward_is_told_with_its_line() -> None:
    for *values, said in (
        (nan, "the prompt is of type float"),
        (7, "the prompt is of type int"),
        (object(), "the prompt is of type object"),
        (price(), "the prompt is a coroutine: yield await price(…)"),
        ("prompt", nan, "the reward is nan: not finite"),
        ("prompt", Reward(-inf), "the reward is -inf: not finite"),
        ("prompt", 10**400, "the reward is too large: not finite"),
        ("prompt", "0.5", "the reward is of type str: yield a number"),
        ("prompt", None, "the reward is of type NoneType: yield a number"),
        ("prompt", {"reward": 1.0}, "a dict without 'score', with ['reward']"),
        ("prompt", {"score": "high"}, "the reward is of type str"),
        ("prompt", {"score": nan}, "the reward is nan"),
        ("prompt", price(), "the reward is a coroutine: yield await price(…)"),
    ):
        assert str(said) in (await _refused(*values))["message"]


async def test_an_error_about_a_coroutine_says_which_await_is_missing() -> None:
    calls = []

    async def template() -> AsyncIterator[object]:
        cost = price()
        calls.append(cost)
        yield cost + 1

    told: list[dict[str, Any]] = []
    made = Watched(template(), Doing(__file__, told.append))
    with pytest.raises(TypeError, match="coroutine"):
        await anext(made)
    [failure] = [one["failure"] for one in told if "failure" in one]
    calls[0].close()
    assert failure["message"].endswith("'int'; an await is missing before the call of price")


def test_a_call_without_await_is_told_with_the_failure_that_follows(tmp_path: Path) -> None:
    """In a process of its own, as a rollout is: what Python warns of is the process's."""
    (tmp_path / "shop.py").write_text(
        "shelf = {}\n"
        "async def reset():\n"
        "    shelf['nut'] = 1\n"
        "def setup():\n"
        "    reset()\n"
        "    return shelf['nut']\n"
    )
    code = (
        "import os, sys\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 3)\n"
        "from hud_tui.rollouts.watched import Doing\n"
        "found = []\n"
        "doing = Doing(sys.argv[1] + '/shop.py', found.append)\n"
        "doing.answer()\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import shop\n"
        "try:\n"
        "    shop.setup()\n"
        "except KeyError as error:\n"
        "    doing.report_error(error)\n"
        "print(found[-1]['failure']['message'])\n"
    )
    done = run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    place = f"{tmp_path}/shop.py:5"
    assert done.stdout == f"'nut' (before that, {place}: coroutine 'reset' was never awaited)\n"
    assert "never awaited" in done.stderr, "the log has it, too"


async def _refused(*values: object) -> dict[str, Any]:
    """The failure of a template at its last yield, of a prompt or a reward."""

    async def template() -> AsyncIterator[object]:
        for value in values:
            yield value

    told: list[dict[str, Any]] = []
    made = Watched(template(), Doing(__file__, told.append))
    for _ in values[1:]:
        await anext(made)
    with pytest.raises(ValueError, match=r"yield|finite|dict"):
        await (made.asend("answer") if values[1:] else anext(made))
    [failure] = [one["failure"] for one in told if "failure" in one]
    line = template.__code__.co_firstlineno + 2
    assert (failure["file"], failure["line"]) == (__file__, line)
    return dict(failure)


@dataclass
class Row:
    slug: str
    args: dict[str, Any]

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {"slug": self.slug, "args": self.args}


def test_a_task_that_is_no_json_is_named() -> None:
    for value in (nan, -inf, object()):
        with pytest.raises(ValueError, match=r"^task prices: .*JSON"):
            _row(Row("prices", {"price": value}))


async def _graded(template: AsyncIterator[object]) -> Any:
    made = Watched(template, Doing(__file__, lambda told: None))
    await anext(made)
    return await made.asend("answer")


async def test_a_template_that_ends_without_a_grade_scores_nothing_and_says_so() -> None:
    async def template() -> AsyncIterator[object]:
        yield "prompt"

    grade = await _graded(template())
    place = f"{__file__}:{template.__code__.co_firstlineno}"
    assert grade == {"score": 0.0, "info": {"no grade": place}}
    made_so = {"turns": 1, "tokens": 1, "tool_calls": 0, "reward": 0.0, "seconds": 1.0}
    rollout = {"error": None, **made_so, "info": grade["info"]}
    [finding] = Trial("j", [("t", rollout)], 1.0)._ungraded()
    assert finding.level == "warning"
    assert place in finding.message


async def test_what_is_not_finite_beside_a_reward_is_left_out() -> None:
    async def template() -> AsyncIterator[object]:
        yield "prompt"
        yield {"score": 0.5, "info": {"loss": nan, "each": [1.0, inf]}}

    grade = await _graded(template())
    assert grade == {"score": 0.5, "info": {"loss": None, "each": [1.0, None]}}


LONE = "a lone \ud800 surrogate"
SHOWN = "a lone ⟨D800⟩ surrogate"


async def test_text_that_cannot_be_sent_is_made_visible_wherever_it_comes_from() -> None:
    async def template() -> AsyncIterator[object]:
        yield [{"role": "user", "content": LONE}]
        yield {"score": 0.5, "info": {LONE: [LONE, "\U0001f600"]}}

    told: list[dict[str, Any]] = []
    made = Watched(template(), Doing(__file__, told.append))
    assert await anext(made) == [{"role": "user", "content": SHOWN}]
    assert await made.asend("x") == {"score": 0.5, "info": {SHOWN: [SHOWN, "\U0001f600"]}}

    async def fails() -> AsyncIterator[object]:
        raise ValueError(LONE)
        yield

    with pytest.raises(RuntimeError, match=SHOWN):
        await anext(Watched(fails(), Doing(__file__, told.append)))
    assert told[-1]["failure"]["message"] == SHOWN


def test_a_message_of_a_tool_that_cannot_be_sent_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    class JSONRPCMessage(RootModel[dict[str, Any]]):
        """As of the package mcp, which only an environment's interpreter has."""

    monkeypatch.setitem(sys.modules, "mcp.types", SimpleNamespace(JSONRPCMessage=JSONRPCMessage))
    message = JSONRPCMessage({"id": 1, "result": LONE})
    with pytest.raises(ValueError, match="surrogates not allowed"):
        message.model_dump_json()
    mend_messages()
    sent = message.model_dump_json(by_alias=True, exclude_none=True)
    assert json.loads(sent) == {"id": 1, "result": SHOWN}
    escaped = json.dumps({"id": 1, "result": LONE})
    assert JSONRPCMessage.model_validate_json(escaped).root["result"] == SHOWN
    assert JSONRPCMessage({"id": 2}).model_dump_json() == '{"id":2}'
    with pytest.raises(ValueError):  # noqa: PT011  (of either parser)
        JSONRPCMessage.model_validate_json("{")
