"""``play``: a person, here a script, is the policy of one rollout."""

import asyncio
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from hud_tui.cli import play as cli_play
from hud_tui.client import TrainingClient
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import load_source
from hud_tui.errors import HudNotFound, HudRefused, HudUsage
from hud_tui.rl.game import Game, Grade, Move, Phase
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.transcript import transcript_of
from hud_tui.rollouts import play, play_link, run_files, seat
from hud_tui.rollouts.play import Play, Result
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_service import ServiceWorld
from hud_tui.rollouts.run_files import keep_order, kept_order
from hud_tui.rollouts.seat import Seat
from hud_tui.service.engines.tiny.tokenizer import CharTokenizer
from hud_tui.service.store import models
from hud_tui.service.store.db import Db
from hud_tui.wire_rollouts import JobEnter, TraceEnter, TraceExit
from hud_tui.wire_training import Demonstration
from tests.conftest import Served, until
from tests.rollouts.driving import begun, order_for, write_sums
from tests.service.clients import answered, over_socket, train
from tests.service.headless import Command
from tests.service.headless import Result as Done

TOOL = [{"args": {"a": 2, "b": 3, "tool": True}, "slug": "two"}]
WALK = {"id": "1", "type": "function", "function": {"name": "walk", "arguments": "{}"}}
CALL = {"call": "plus", "arguments": {"a": 2, "b": 3}}
Plays = Callable[..., Any]
NOWHERE = "http://127.0.0.1:9"
"""Where nobody listens."""


@pytest.fixture
def plays(hud: Command, source: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Plays a game by lines; `rows` are the environment's tasks."""

    async def run(*lines: Any, rows: Any = TOOL, flags: tuple[str, ...] = ()) -> Done:
        write_sums(source.parent, rows)
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        return await by_lines(hud, monkeypatch, text, str(source), *flags)

    return run


async def test_a_script_plays_a_game(plays: Plays, served: Served) -> None:
    done = await plays(CALL, {"answer": "5"})
    assert (done.code, [each["kind"] for each in done.documents]) == (0, ["turn", "turn", "played"])
    first, second, played = (each["data"] for each in done.documents)
    assert (first["turn"], first["of"], first["task"]) == (1, 10, "two")
    assert first["prompt"] == [{"role": "user", "text": "2 + 3 = ?"}]
    assert (first["tools"][0]["name"], first["last"]) == ("plus", None)
    made = {"name": "plus", "arguments": {"a": 2, "b": 3}}
    assert second["last"] == {"by": "person", "text": "", "calls": [made], "replies": ["5"]}
    assert (played["reward"], played["subscores"][0]["name"]) == (1.0, "answer")
    assert [turn["text"] for turn in played["turns"]] == ["", "5"]
    async with over_socket(served) as client:
        trace = await client.rollouts.trace(played["trace_id"])
        assert (trace.played, trace.reward, trace.status) == (True, 1.0, "completed")


async def test_a_line_that_is_no_turn_names_its_field_and_the_turn_is_still_yours(
    plays: Plays,
) -> None:
    no_text = '{"answer": "\udcff"}'  # a byte that is no UTF-8
    wrong = ["{", no_text, {"call": "plus", "arguments": {"a": 2, "b": "3"}}, {"policy": "maybe"}]
    done = await plays(*wrong, "", CALL, {"answer": "5"})
    errors = [each["error"] for each in done.documents if each["kind"] == "error"]
    assert [error["field"] for error in errors] == ["", "", "arguments.b", "policy"]
    assert {error["type"] for error in errors} == {"usage"}
    assert (done.code, done.data["reward"]) == (0, 1.0)


async def test_the_policy_goes_on_from_there(plays: Plays, served: Served) -> None:
    done = await plays(CALL, {"policy": "rest"})
    assert (done.code, [turn["by"] for turn in done.data["turns"]]) == (0, ["person", "policy"])
    async with over_socket(served) as client:
        events = (await client.rollouts.trace_events(done.data["trace_id"])).events
    assert not events  # the service has no turn of it that could be trained on


async def test_a_turn_that_the_policy_cannot_make_is_yours_again(plays: Plays) -> None:
    rows = [{"args": {"a": 2, "b": 3, "tool": "long"}, "slug": "two"}]
    done = await plays(CALL, {"policy": "rest"}, {"answer": "5"}, rows=rows)
    [error] = [each["error"] for each in done.documents if each["kind"] == "error"]
    assert error["message"].startswith("the policy cannot go on: HTTP 400")
    assert (done.code, [turn["by"] for turn in done.data["turns"]]) == (0, ["person", "person"])


class Rounds:
    """A world that asks for three turns, and grades their number."""

    def __init__(self) -> None:
        self.answers = asyncio.Queue[Any]()

    async def play(self, begun: Callable[[Task], object], asked: Callable[[Any], object]) -> Result:
        begun(Task("world", "walk", slug="walk"))
        messages: list[Any] = [{"role": "user", "content": "Walk."}]
        for _ in range(3):
            asked({"model": "m", "messages": messages, "return_token_ids": True})
            said = (await self.answers.get())["choices"][0]["message"]
            messages = [*messages, said, {"role": "tool", "content": "walked"}]
        return Result(Grade(3.0), "", "t")

    def answer(self, completion: Any) -> None:
        self.answers.put_nowait(completion)


@pytest.mark.parametrize(
    ("takes_over", "made"), [(False, ["policy"] * 3), (True, ["policy", "person", "person"])]
)
async def test_the_policy_goes_on_to_the_end_unless_the_player_takes_over(
    takes_over: bool, made: list[str]
) -> None:
    sent: list[Any] = []

    def walks(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        message = {"role": "assistant", "content": None, "tool_calls": [WALK]}
        choice = {"index": 0, "message": message, "token_ids": [1]}
        return httpx.Response(200, json={"id": "1", "model": "m", "choices": [choice]})

    states: list[Game] = []

    def changed(game: Game) -> None:
        states.append(game)
        if game.phase is Phase.YOURS and not game.turns:
            session.let_policy(to_the_end=True)
        elif takes_over and game.phase is Phase.WORKING:
            session.take_over()
        elif game.phase is Phase.YOURS:
            session.move(Move("on"))

    async with answered(walks) as client:
        session = Play(PlayLink(lambda: client), Rounds(), Game("world"), changed)
        game = await session.run()
    assert (game.grade, [turn.by for turn in game.turns]) == (Grade(3.0), made)
    assert [turn.replies for turn in game.turns] == [("walked",), ("walked",), ()]
    assert (states[0].phase, states[-1].phase) == (Phase.STARTING, Phase.GRADED)
    assert len(sent) == made.count("policy")
    assert "return_token_ids" not in sent[0], "what is said in a game has no tokens to train on"


async def test_lines_that_end_before_the_game_leave_a_rollout_that_was_left(
    plays: Plays, served: Served
) -> None:
    done = await plays(CALL)
    assert (done.code, done.error["type"]) == (2, "usage")
    assert "stdin ended at turn 2" in done.error["message"]
    async with over_socket(served) as client:
        [job] = await client.jobs()
        [trace] = await client.rollouts.job_traces(job.id)
    assert (trace.status, trace.played, job.name) == ("cancelled", True, "played: sums two")


async def test_leaving_while_the_environment_starts_ends_the_rollout(
    served: Served, source: Path, tmp_path: Path
) -> None:
    write_sums(source.parent, [{"args": {"a": 2, "b": 3, "fault": "wait"}, "slug": "two"}])
    async with over_socket(served) as client:
        session = await play.own_play(
            PlayLink(lambda: client), source, tmp_path / "state", lambda game: None
        )
        running = asyncio.ensure_future(session.run())
        await until(lambda: bool(list((tmp_path / "state" / "driven" / "checks").glob("*.json"))))
        for _ in range(3):  # as often as an app that ends may do it
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running])
        [job] = await client.jobs()
        [trace] = await client.rollouts.job_traces(job.id)
    assert (trace.status, trace.played, job.status) == ("cancelled", True, "completed")


async def test_a_grade_that_is_not_told_ends_the_rollout_as_an_error() -> None:
    told: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "status" in body:
            told.append(body["status"])
        if "answer" in body:
            return httpx.Response(500, json={"detail": "the grader broke"})
        return httpx.Response(200, json={"prompt": "?"})

    def changed(game: Game) -> None:
        if game.phase is Phase.YOURS:
            session.move(Move("5"))

    async with answered(answers) as client:
        link = PlayLink(lambda: client)
        world = ServiceWorld(link, Task("arith", "add", slug="add"), {"model": "m"})
        session = Play(link, world, Game("arith"), changed)
        game = await session.run()
    assert (game.phase, "the grader broke" in game.trouble) == (Phase.FAILED, True)
    assert told == ["error"]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("error", "sums.py:12 in add: KeyError: 'shelf'"),
        ("exit", "the worker ended with code 7"),
        ("wait", "sums.py:3: Timeout: setup: still running"),
    ],
)
async def test_whatever_an_environment_does_ends_the_game_alone(
    plays: Plays, fault: str, why: str
) -> None:
    rows = [{"args": {"a": 2, "b": 3, "fault": fault}, "slug": "two"}]
    done = await plays({"answer": "5"}, rows=rows, flags=("--rollout-timeout", "0.5"))
    assert (done.code, done.error["type"]) == (1, "environment")
    assert why in done.error["message"]
    assert done.error["hint"].startswith("what it printed is in ")


@pytest.mark.parametrize("fault", ["leave", "vanish"])
async def test_an_environment_that_is_gone_ends_the_game_whoever_is_waited_for(
    hud: Command, source: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    is_over = Event()

    def lines() -> Iterator[bytes]:
        is_over.wait()
        yield b""

    monkeypatch.setattr(play, "LOOK_S", 0.02)
    monkeypatch.setattr(play, "LOST_S", 0.02)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines()))
    write_sums(source.parent, [{"args": {"a": 2, "b": 3, "fault": fault}, "slug": "two"}])
    done = await hud("play", str(source), "--rollout-timeout", "5")
    is_over.set()
    assert (done.code, done.error["message"]) == (1, "it has left")


async def test_the_player_s_time_is_not_the_environment_s(
    plays: Plays, hud: Command, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, is_asked, take = [0.0], Event(), play.OwnWorld._take

    def taken(world: play.OwnWorld, request: Any) -> None:
        take(world, request)
        is_asked.set()

    def lines() -> Iterator[bytes]:
        is_asked.wait()
        clock[0] += 1000.0  # more than the limit
        sleep(3 * play.LOOK_S)
        yield b'{"answer": "5"}\n'

    monkeypatch.setattr(play.OwnWorld, "_take", taken)
    monkeypatch.setattr(play, "monotonic", lambda: clock[0])
    monkeypatch.setattr(play, "LOOK_S", 0.05)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines()))
    write_sums(source.parent, TOOL)
    done = await hud("play", str(source))
    assert (done.code, done.kind) == (0, "played")


async def test_a_game_is_begun_by_name_and_only_where_changes_are_allowed(plays: Plays) -> None:
    rows = [{"args": {"a": a, "b": 1}, "slug": f"add-{a}"} for a in (1, 2)]
    for name in ("add-2", "add"):
        done = await plays({"answer": "3"}, rows=rows, flags=(name,))
        assert done.data["task"] == ("add-2" if name == "add-2" else "add-1")
    done = await plays(rows=rows, flags=("nothing",))
    assert (done.code, done.error["message"]) == (2, "no task named nothing")
    assert "add-1, add-2" in done.error["hint"]
    done = await plays(rows=rows, flags=("--runtime", "hosted"))
    assert (done.code, "nobody else" in done.error["message"]) == (2, True)
    done = await plays(rows=rows, flags=("--read-only",))
    assert (done.code, done.error["type"]) == (1, "read_only")


# The service's own environments.


async def by_lines(hud: Command, monkeypatch: pytest.MonkeyPatch, lines: str, *words: str) -> Done:
    stdin = io.BytesIO(lines.encode(errors="surrogateescape"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    return await hud("play", *words)


async def test_a_task_of_the_service_is_one_question_and_one_answer(
    hud: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUD_TELEMETRY_URL", f"{served.url}/telemetry/v3/api")
    done = await by_lines(hud, monkeypatch, '{"answer": "It is 3."}\n', "arith", "add")
    first, played = (each["data"] for each in done.documents)
    a, b = (int(part) for part in first["task"].split("-")[1:])
    assert (first["of"], first["tools"]) == (1, [])
    assert first["prompt"] == [{"role": "user", "text": f"{a} + {b} = ?"}]
    assert (done.code, played["reward"]) == (0, 0.0)
    assert (played["info"], played["model"]) == ({"expected": str(a + b)}, "arith-rl")
    right = json.dumps({"answer": str(a + b)})
    done = await by_lines(hud, monkeypatch, right, "arith", first["task"])
    assert done.data["reward"] == 1.0
    async with over_socket(served) as client:
        trace = await client.rollouts.trace(done.data["trace_id"])
        assert (trace.played, trace.reward, trace.status) == (True, 1.0, "completed")
        events = (await client.rollouts.trace_events(trace.id)).events
        transcript = transcript_of(events)
        assert (transcript.prompt, transcript.answer) == (f"{a} + {b} = ?", str(a + b))
        [graded] = transcript.grading
        assert (graded.phase, graded.name) == ("grading", "add")
        model = await client.model("arith-rl")
    parts = served.service.parts
    assert "rollout" not in await parts.store.read(kinds_of_events, model.id)
    row = await parts.store.read(models.find, model.id)
    assert not parts.session(row).stopwatch.rollouts, "it takes no time of a loop"


def documented() -> set[str]:
    """The tasks of arith that are played in examples."""
    files = [*Path("docs").glob("*.md"), Path("README.md"), Path("hud_tui/cli/run_flags.py")]
    return {name for file in files for name in re.findall(r"play arith ([\w-]+)", file.read_text())}


async def test_what_is_documented_can_be_played(served: Served) -> None:
    async with over_socket(served) as client:
        tasks, _ = await load_source(client, "arith")
    named = documented()
    assert named
    assert named <= {task.slug for task in tasks}


async def test_a_source_must_be_named(
    hud: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.py").touch()
    monkeypatch.chdir(tmp_path)
    for words in ((), ("",)):
        done = await by_lines(hud, monkeypatch, "", *words)
        assert (done.code, "what is to be played?" in done.error["message"]) == (2, True)


async def test_a_task_that_the_service_cannot_make_says_so(
    hud: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row, said in (
        ({"env": "shop", "id": "sell"}, "x: no such environment: shop"),
        ({"env": "arith", "id": "divide"}, "x: arith has no scenario divide"),
        ({"env": "arith", "id": "add", "args": {"a": 1}}, "args.b is missing"),
    ):
        file = tmp_path / "tasks.json"
        file.write_text(json.dumps([{**row, "slug": "x"}]))
        done = await by_lines(hud, monkeypatch, "", str(file))
        assert done.code in (1, 2)
        assert said in done.error["message"]


async def test_a_report_that_is_lost_costs_no_grade(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUD_TELEMETRY_URL", "http://127.0.0.1:9")
    done = await by_lines(hud, monkeypatch, '{"answer": "3"}', "arith")
    assert (done.code, done.data["reward"] < 1.0) == (0, True)


async def test_a_game_with_the_service_that_is_left_is_cancelled(
    hud: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await by_lines(hud, monkeypatch, "", "arith")
    assert done.code == 2
    async with over_socket(served) as client:
        [job] = await client.jobs()
        [trace] = await client.rollouts.job_traces(job.id)
    assert (trace.status, trace.played) == ("cancelled", True)


# From a policy's rollout.


@pytest.fixture
async def rolled_out(hud: Command, served: Served, source: Path, tmp_path: Path) -> str:
    """A rollout of a run that was begun here, with three turns; its id."""
    write_sums(source.parent, TOOL)
    trace_id = uuid4().hex
    async with over_socket(served) as client:
        model = await client.model("arith-rl")
        order = order_for(model, source, tmp_path, mode="hud", turns=3)
        begun(tmp_path / "state", order)
        job_id = order.job_id.replace("-", "")
        await client.rollouts.enter_job(job_id, JobEnter(name="a run", group=1))
        entered = TraceEnter(job_id=job_id, task_slug="two", model="arith-rl")
        await client.rollouts.enter_trace(trace_id, entered)
        calls = [[{"name": "plus", "arguments": {"a": 2, "b": b}}] for b in (3, 5)]
        steps: list[tuple[str, dict[str, Any]]] = [
            ("user", {"messages": [{"role": "user", "content": "2 + 3 = ?"}]}),
            ("agent", {"content": "", "tool_calls": calls[0]}),
            ("tool", {"call": calls[0][0], "result": "5"}),
            ("agent", {"content": "", "tool_calls": calls[1]}),
            ("tool", {"call": calls[1][0], "result": "8"}),
            ("agent", {"content": "7"}),
        ]
        spans: list[Any] = [
            {
                "name": f"step.{name}",
                "span_id": f"{number:016x}",
                "start_time": f"2026-01-01T00:00:0{number}Z",
                "attributes": {"hud.payload": payload},
            }
            for number, (name, payload) in enumerate(steps)
        ]
        await client.rollouts.exit_trace(trace_id, TraceExit(reward=0.0))
    headers = {"Authorization": f"Bearer {served.api_key}"}
    url = f"{served.url}/telemetry/v3/api/trace/{trace_id}/telemetry-upload"
    async with httpx.AsyncClient(headers=headers, verify=False) as http:
        assert (await http.post(url, json={"telemetry": spans})).is_success
    return trace_id


async def test_a_rollout_is_replayed_until_somebody_takes_over(
    hud: Command, rolled_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, asked = '{"replay": 1}\n{"answer": "5"}\n{"replay": 1}\n', play.OwnWorld._take
    requests: list[Any] = []

    def taken(world: play.OwnWorld, request: Any) -> None:
        requests.append(request)
        asked(world, request)

    monkeypatch.setattr(play.OwnWorld, "_take", taken)
    flags = ("--rollout", rolled_out, "--max-tokens", "7")
    done = await by_lines(hud, monkeypatch, lines, *flags)
    assert {request["max_tokens"] for request in requests} == {7}
    first, second, played = (each["data"] for each in done.documents)
    assert (first["task"], first["of"]) == ("two", 3)
    assert first["recorded"]["calls"] == [{"name": "plus", "arguments": {"a": 2, "b": 3}}]
    assert second["last"]["by"] == "recorded"
    assert (done.code, played["reward"]) == (0, 1.0)
    assert [turn["by"] for turn in played["turns"]] == ["recorded", "person"]


async def test_replaying_stops_where_the_environment_answers_otherwise(
    hud: Command, rolled_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = '{"replay": "all"}\n{"replay": "rest"}\n'
    flags = ("--rollout", rolled_out, "--replay", "3")
    done = await by_lines(hud, monkeypatch, lines, *flags)
    told, *_, played = done.documents
    kinds = [each["kind"] for each in done.documents]
    assert kinds == ["turn", "turn", "turn", "error", "error", "played"]
    assert done.documents[2]["data"]["last"]["replies"] == ["7"], "what it answers is told"
    errors = [each["error"]["message"] for each in done.documents if each["kind"] == "error"]
    assert told["data"]["turn"] == 1
    assert "answers otherwise" in errors[0], "2 + 5 was recorded as 8"
    assert errors[1].startswith("replay: expected a number of turns, or rest")
    assert (done.code, played["data"]["reward"]) == (0, 0.1)
    assert [turn["by"] for turn in played["data"]["turns"]] == ["recorded"] * 3


async def test_after_another_turn_nothing_is_left_to_replay(
    hud: Command, rolled_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f'{json.dumps(CALL)}\n{{"replay": 1}}\n{{"policy": "turn"}}\n'
    done = await by_lines(hud, monkeypatch, lines, "--rollout", rolled_out)
    [error] = [each["error"] for each in done.documents if each["kind"] == "error"]
    assert error["field"] == "replay"
    assert [turn["by"] for turn in done.data["turns"]] == ["person", "policy"]


async def test_a_rollout_of_a_managed_run_is_replayed_with_the_service(
    hud: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_socket(served) as client:
        await train(client, await client.model("arith-rl"), steps=1, group_size=2)
        [job] = await client.jobs()
        traces = await client.rollouts.job_traces(job.id)
        told = await client.rollouts.trace(traces[0].id)
    assert told.task is not None
    lines = '{"replay": "rest"}\n'
    done = await by_lines(hud, monkeypatch, lines, "--rollout", traces[0].id)
    assert (done.code, done.data["reward"]) == (0, traces[0].reward)
    assert (done.data["task"], done.data["model"]) == (traces[0].task_slug, "arith-rl")


async def test_the_policy_goes_on_with_the_weights_that_sampled_the_rollout() -> None:
    asked: list[str | None] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content).get("checkpoint"))
        if asked[-1] is not None and len(asked) > 1:
            return httpx.Response(410, json={"detail": "expired"})
        message = {"role": "assistant", "content": "", "tool_calls": [WALK]}
        choice = {"index": 0, "message": message}
        return httpx.Response(200, json={"id": "1", "model": "m", "choices": [choice]})

    def changed(game: Game) -> None:
        if game.phase is Phase.YOURS:
            session.let_policy()

    async with answered(answers) as client:
        session = Play(PlayLink(lambda: client), Rounds(), Game("world"), changed)
        session.checkpoint = "c1"
        await session.run()
    assert asked == ["c1", "c1", None, None], "an expired one gives way to the head"


async def test_a_rollout_of_a_trial_is_played_where_it_was_made(
    hud: Command,
    served: Served,
    rolled_out: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.rmtree(tmp_path / "state")
    monkeypatch.setattr(run_files, "MOST_ORDERS", 2)
    async with over_socket(served) as client:
        order = order_for(await client.model("arith-rl"), source, tmp_path, mode="hud", turns=2)
        job_id = (await client.rollouts.trace(rolled_out)).job_id or ""
    for number, name in enumerate(("one", "two", job_id)):
        keep_order(tmp_path / "state", name, order)
        file = tmp_path / "state" / "driven" / "checks" / f"{name}.json"
        os.utime(file, (number, number))
    assert kept_order(tmp_path / "state", "one") is None, "the oldest is forgotten"
    assert kept_order(tmp_path / "state", "two") == order
    done = await by_lines(hud, monkeypatch, '{"replay": "rest"}\n', "--rollout", rolled_out)
    assert (done.documents[0]["data"]["of"], done.documents[0]["data"]["task"]) == (2, "two")


async def test_a_rollout_that_cannot_be_played_says_why(
    hud: Command, served: Served, rolled_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(tmp_path / "state")
    done = await by_lines(hud, monkeypatch, "", "--rollout", rolled_out)
    assert (done.code, "is not known here" in done.error["message"]) == (2, True)
    assert f"play ENV.py --rollout {UUID(rolled_out)}" in done.error["hint"]
    async with over_socket(served) as client:
        empty = uuid4().hex
        await client.rollouts.enter_trace(empty, TraceEnter())
    done = await by_lines(hud, monkeypatch, "", "--rollout", empty)
    assert "has no turns" in done.error["message"]


# As a demonstration.


async def test_a_game_is_kept_as_a_demonstration_if_that_is_asked(
    plays: Plays, served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "demos.jsonl"
    for _ in range(2):
        done = await plays(CALL, {"answer": "5"}, flags=("--keep", str(file)))
        assert f"kept in {file}" in done.err
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 2
    [first, second] = lines[0]["samples"]
    assert lines[0]["reward"] == 1.0
    assert "trace_id" not in lines[0]
    tokens = CharTokenizer()
    said = ["".join(tokens.pieces(each["output_token_ids"])) for each in (first, second)]
    assert said == ['[call]plus{"a":2,"b":3}[end]', "5[end]"]
    asked = "".join(tokens.pieces(second["prompt_token_ids"]))
    assert asked.endswith(f"{said[0]}[tool]5[end][assistant]")
    async with over_socket(served) as client:
        model = await client.model("arith-rl")
        async with TrainingClient(model.id, client) as trainer:
            step = await trainer.step(lines, learning_rate=1e-3, loss_fn="cross_entropy")
    assert step.step == 1


async def test_what_is_kept_are_turns_of_the_person_alone(plays: Plays, tmp_path: Path) -> None:
    file = tmp_path / "demos.jsonl"
    done = await plays({"policy": "rest"}, flags=("--keep", str(file)))
    assert (done.code, file.read_text()) == (0, "")
    assert "nothing is kept: you made no turn" in done.err
    done = await plays(CALL, {"answer": "6"}, flags=("--keep", str(tmp_path / "no" / "file")))
    assert (done.code, "cannot be written" in done.error["message"]) == (2, True)


async def test_a_grade_is_told_before_it_is_kept_and_nothing_is_kept_of_hud(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> str:
        raise HudUsage("the disk is full")

    flags = ("--keep", str(tmp_path / "demos.jsonl"))
    monkeypatch.setattr(cli_play, "keep", fails)
    done = await plays(CALL, {"answer": "5"}, flags=flags)
    assert [each["kind"] for each in done.documents][-2:] == ["played", "error"]
    assert done.code == 2

    async def of_hud(client: HudClient) -> str:
        return client.settings.api_url

    monkeypatch.setattr(HudClient, "service_id", of_hud)
    done = await plays(CALL, flags=flags)
    assert (done.code, [each["kind"] for each in done.documents]) == (2, ["error"])
    assert "only the embedded service" in done.error["message"]


async def test_a_demonstration_is_the_assistant_s_last_message(served: Served) -> None:
    async with over_socket(served) as client:
        model = (await client.models())[0]
        for messages, status in (([], 400), ([{"role": "user", "content": "hi"}], 400)):
            with pytest.raises(HudRefused) as refused:
                await client.training.demonstration(model.id, Demonstration(messages=messages))
            assert refused.value.status == status


# Its trace is kept apart from what a policy has done.


async def test_what_was_played_is_not_trained_on_and_counts_nowhere(
    plays: Plays, served: Served
) -> None:
    done = await plays(CALL, {"answer": "5"})
    async with over_socket(served) as client:
        model = await client.model("arith-rl")
        trace_id = done.data["trace_id"]
        assert done.data["model"] == "arith-rl"
        sample = {"prompt_token_ids": [1], "output_token_ids": [2], "output_logprobs": [-1.0]}
        payload = {"trace_id": trace_id, "reward": 1.0, "samples": [sample]}
        told = {"job_id": None, "model": model.id, "task_slug": "two"}  # by a client of another
        assert (await post(served, f"/v2/trace/{trace_id}/enter", told)).status_code == 200
        training = f"/v1/models/{model.id}/train/forward-backward"
        for inputs in ([trace_id], [payload]):
            body = {"inputs": inputs, "loss_fn": "cross_entropy"}
            refused = await post(served, training, body)
            assert refused.status_code == 422
            assert "was played by a person: it is never trained on" in refused.text
    parts = served.service.parts
    assert "rollout" not in await parts.store.read(kinds_of_events, model.id)
    row = await parts.store.read(models.find, model.id)
    assert not parts.session(row).stopwatch.rollouts, "it takes no time of a loop"


def kinds_of_events(db: Db, model_id: str) -> set[str]:
    rows = db.execute("SELECT type FROM event WHERE model_id = ?", (model_id,)).fetchall()
    return {row["type"] for row in rows}


async def post(served: Served, path: str, body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {served.api_key}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, verify=False) as http:
        return await http.post(path, json=body)


# The seat, where the model stands.


async def test_the_seat_waits_as_long_as_the_player_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat, "BREATH_S", 0.01)
    asked: list[Any] = []
    held = Seat("key", asked.append)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with held.listening() as url, httpx.AsyncClient(timeout=0.2, verify=False) as http:
        url, key = f"{url}/chat/completions", {"Authorization": "Bearer key"}
        asking = asyncio.create_task(http.post(url, json=body, headers=key))
        await until(lambda: held.request is not None)
        await asyncio.sleep(0.4)  # longer than the client waits for a byte
        again = asyncio.create_task(http.post(url, json=body, headers=key))
        await asyncio.sleep(0.05)
        held.answer({"said": "ö"})
        assert [(await each).json() for each in (asking, again)] == [{"said": "ö"}] * 2
        assert (asked, held.request) == ([body], None)
        held.answer({"said": "too late"})


async def test_the_seat_passes_on_what_is_for_the_service_once_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seat, "BREATH_S", 0.01)
    is_back, told = asyncio.Event(), list[tuple[str, str, bytes]]()

    async def pass_on(method: str, target: str, body: bytes) -> bytes:
        told.append((method, target, body))
        if target.endswith("none"):
            raise HudNotFound(404, "no such trace")
        await is_back.wait()
        return b'{"stored": true}'

    held = Seat("key", lambda request: None, pass_on)
    headers = {"Authorization": "Bearer key"}
    async with held.listening() as url, httpx.AsyncClient(timeout=0.2, headers=headers) as http:
        assert (await http.get(f"{url}/service/api/none")).status_code == 404
        sent = http.post(f"{url}/service/api/v2/trace/t/exit?a=1", content=b"{}")
        telling = asyncio.create_task(sent)
        await asyncio.sleep(0.4)  # longer than the client waits for a byte
        is_back.set()
        answered = await telling
    assert (answered.status_code, answered.json()) == (200, {"stored": True})
    assert told == [("GET", "api/none", b""), ("POST", "api/v2/trace/t/exit?a=1", b"{}")]


async def test_waiting_for_the_service_is_no_time_of_the_environment(
    served: Served, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_link, "RETRY_S", 0.02)
    monkeypatch.setattr(play, "LOOK_S", 0.02)
    write_sums(source.parent, [{"args": {"a": 2, "b": 3}, "slug": "two"}])
    gone: list[bool] = []

    def changed(game: Game) -> None:
        if game.phase is Phase.YOURS:
            gone.append(True)
            session.move(Move("5"))

    async with over_socket(served) as client, over_socket(replace(served, url=NOWHERE)) as away:
        link = PlayLink(lambda: away if gone else client, waits=True)
        options = {"rollout_timeout": 0.3}
        session = await play.own_play(link, source, tmp_path / "state", changed, options=options)
        playing = asyncio.ensure_future(session.run())
        await until(lambda: link.is_away)
        await asyncio.sleep(0.6)
        assert session.game.phase is Phase.WORKING
        gone.clear()
        assert (await playing).grade == Grade(1.0, {"subscores": None, "info": None}, "done")
        assert not link.is_away


async def test_the_seat_is_for_completions_with_the_key_alone() -> None:
    held = Seat("key", lambda request: None)
    async with held.listening() as url, httpx.AsyncClient() as http:
        for path, key, content, status in (
            ("/chat/completions", "other", b"[", 401),
            ("/models", "key", b"[", 404),
            ("/chat/completions", "key", b"[", 400),
            ("/chat/completions", "key", b"[" * 100_000, 400),
        ):
            headers = {"Authorization": f"Bearer {key}"}
            refused = await http.post(url + path, content=content, headers=headers)
            assert (refused.status_code, "message" in refused.json()["error"]) == (status, True)
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"no http\r\n\r\n")
        assert b"401" in await reader.readline()
        writer.close()
