"""A game in the app: from the command line and from Launch, by keys."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from textual.app import App, ComposeResult
from textual.widgets import Input

from hud_tui.client.client import HudClient
from hud_tui.client.rollout_calls import RolloutCalls
from hud_tui.errors import HudUnreachable, HudUsage
from hud_tui.rl.game import RECORDED, BadMove, Call, Game, Grade, Move, Phase, Tool, Turn
from hud_tui.rl.rollouts import Rollout
from hud_tui.rollouts import control, play_link
from hud_tui.rollouts.play import Play, Result
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.tui.games import game_of_start
from hud_tui.tui.keys import GAMES, FootLine, doable
from hud_tui.tui.rollout_reader import TRACES
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.play import PlayScreen, said_of, transcript_of_game
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import Picker
from hud_tui.tui.widgets.tool_form import ToolForm
from hud_tui.tui.widgets.transcript import TranscriptView
from tests.conftest import Served, on_socket, until
from tests.rollouts.driving import make_venv, write_sums
from tests.service.clients import answered, fork_of, over_socket, train
from tests.service.headless import point_at
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import forked

ROWS = [{"args": {"a": a, "b": 3, "tool": True}, "slug": f"task-{a}"} for a in (2, 4)]


@asynccontextmanager
async def seated(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    taskset: str | None = None,
    **start: Any,
) -> AsyncIterator[Cockpit]:
    """The app on Launch, with a model and a taskset, or an environment with a tool."""
    point_at(monkeypatch, served.url, served.api_key)
    monkeypatch.setattr(control, "mode_of", lambda client: "hud")
    source = write_sums(tmp_path / "env", ROWS)
    make_venv(tmp_path / "env" / ".venv")
    await forked(served)
    begin = Start(view="launch", source=taskset or str(source), **start)
    async with cockpit(served, begin, state=lambda: tmp_path / "state") as flown:
        await flown.until(lambda: flown.view.VIEW == "launch")
        yield flown


def game(flown: Cockpit) -> Game:
    screen = flown.screen
    return screen.game if isinstance(screen, PlayScreen) else Game("none")


def said(flown: Cockpit) -> str:
    return str(flown.screen.query_one("#play-said").render())


async def your_turn(flown: Cockpit, number: int) -> None:
    await flown.until(lambda: (game(flown).phase, game(flown).number) == (Phase.YOURS, number))
    await flown.pilot.pause()


async def test_a_game_is_played_by_keys(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seated(served, tmp_path, monkeypatch, command="play", task="task-4") as flown:
        await your_turn(flown, 1)
        await flown.until(lambda: flown.screen.focused is not None)
        assert said(flown) == "turn 1 of 10: your turn"
        await flown.until(lambda: getattr(flown.screen.focused, "id", "") == "argument-0")
        await flown.pilot.resize_terminal(80, 24)
        await flown.press("4", "enter", "x", "enter")
        assert [field.has_class("wrong") for field in flown.screen.query(".field.wide")] == [
            *(False, True)
        ]
        await flown.press("backspace", "3", "enter")
        await your_turn(flown, 2)
        assert '→ plus {"a": 4, "b": 3}' in flown.screen.query_one(TranscriptView).plain
        await flown.until(lambda: getattr(flown.screen.focused, "id", "") == "argument-0")
        assert "← 7" in flown.drawn
        assert [field.value for field in flown.screen.query(".field Input")] == ["", ""]
        await flown.press("enter", "enter")
        assert game(flown).number == 2, "a second Enter does not repeat the call"
        played = flown.screen
        await flown.press("ctrl+q")
        await flown.until(lambda: isinstance(flown.screen, ConfirmDialog))
        assert flown.screen.heading == "Leave the game", "as escape asks"
        await flown.press("escape")
        await flown.until(lambda: flown.screen is played)
        flown.screen.query_one("#play-answer", Input).focus()
        await flown.press("7", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        await flown.until(lambda: said(flown) == "reward 1  =  answer 1 × 1")
        async with over_socket(served) as client:
            trace = await client.rollouts.trace(game(flown).trace_id)
            assert (trace.played, trace.reward, trace.task_slug) == (True, 1.0, "task-4")
        await flown.press("escape")
        await flown.until(lambda: flown.screen is flown.view)


async def test_a_game_of_the_command_line_is_kept(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "demos.jsonl"
    start = {"command": "play", "keep": str(file)}
    async with seated(served, tmp_path, monkeypatch, **start) as flown:
        await your_turn(flown, 1)
        flown.screen.query_one("#play-answer", Input).focus()
        await flown.press("5", "enter")
        await flown.until(lambda: bool(file.read_text()))
        await flown.press("escape")
        await flown.until(lambda: flown.screen is flown.view)
        await flown.press("r")
        await flown.pilot.pause()
        assert flown.screen is flown.view, "it is begun once"
    start["keep"] = str(tmp_path / "no" / "file")
    async with cockpit(
        served, Start(view="launch", source="arith", **start), state=lambda: tmp_path / "state"
    ) as flown:
        await flown.until(lambda: "cannot be written" in str(list(flown.app._notifications)))
        assert flown.screen is flown.view


async def test_a_task_of_launch_is_played_and_the_policy_goes_on(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seated(served, tmp_path, monkeypatch, command="run") as flown:
        view: Any = flown.view
        await flown.until(lambda: view.draft.findings and not view.draft.checking)
        assert view.reach("task-4")
        await flown.press("ctrl+t")
        await your_turn(flown, 1)
        assert game(flown).task == "task-4"
        assert "4 + 3 = ?" in game(flown).prompt[0]["text"]
        await flown.press("escape", "T", "right", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        assert [turn.by for turn in game(flown).turns] == ["policy"]


async def test_a_task_of_the_service_is_played(served: Served) -> None:
    await forked(served)
    async with cockpit(served, Start("run", view="launch", source="arith")) as flown:
        view: Any = flown.view
        await flown.until(lambda: view.draft.findings and not view.draft.checking)
        await flown.press("ctrl+t")
        await your_turn(flown, 1)
        await flown.until(lambda: getattr(flown.screen.focused, "id", "") == "play-answer")
        await flown.press("1", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        assert game(flown).grade is not None
        assert game(flown).most == 1


@pytest.mark.parametrize("is_own", [False, True], ids=["of the service", "own environment"])
async def test_a_game_goes_on_when_the_service_comes_back_at_another_address(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    monkeypatch.setattr(play_link, "RETRY_S", 0.02)
    leaving = AsyncExitStack()
    url = await leaving.enter_async_context(on_socket(served.service))
    first = replace(served, url=url)
    start = {"command": "play", "task": "task-4" if is_own else None}
    source = None if is_own else "arith"
    async with seated(first, tmp_path, monkeypatch, source, **start) as flown:
        await your_turn(flown, 1)
        await leaving.aclose()
        flown.screen.query_one("#play-answer", Input).focus()
        await flown.press("7", "enter")
        await flown.until(lambda: "the service does not answer: ^r connects again" in said(flown))
        assert game(flown).phase is Phase.WORKING
        flown.connector.served = served
        await flown.press("ctrl+r")
        await flown.until(lambda: game(flown).is_over)
        assert game(flown).grade is not None, game(flown).trouble
        assert "does not answer" not in said(flown)
        reward = game(flown).grade.reward
        async with over_socket(served) as client:
            trace = await client.rollouts.trace(game(flown).trace_id)
        assert (trace.status, trace.reward, trace.played) == ("completed", reward, True)


async def test_the_policy_goes_on_after_a_reconnect(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seated(served, tmp_path, monkeypatch, "arith", command="play") as flown:
        await your_turn(flown, 1)
        await flown.press("ctrl+r")
        await flown.until_notice("reconnected")
        await flown.press("escape", "T", "right", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        assert [turn.by for turn in game(flown).turns] == ["policy"]


@pytest.mark.parametrize("keys", [("escape", "escape"), ("ctrl+q",)])
async def test_leaving_a_game_ends_its_rollout(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    exit_trace = RolloutCalls.exit_trace

    async def slowly(calls: RolloutCalls, *told: Any) -> None:
        await asyncio.sleep(0.2)  # the app has closed all else meanwhile
        await exit_trace(calls, *told)

    monkeypatch.setattr(RolloutCalls, "exit_trace", slowly)
    await forked(served)
    start = Start("play", view="launch", source="arith")
    async with cockpit(served, start, state=lambda: tmp_path / "state") as flown:
        await your_turn(flown, 1)
        await flown.press(*keys)
        if keys[0] == "escape":
            await flown.until(lambda: flown.screen is flown.view)
            await flown.until(lambda: not any(w.group == GAMES for w in flown.app.workers))
    async with over_socket(served) as client:
        [job] = await client.jobs()
        [trace] = await client.rollouts.job_traces(job.id)
    assert (trace.status, trace.played, job.status) == ("cancelled", True, "completed")
    stop = next(column for column in TRACES if column.title == "stop")
    assert str(stop.cell(Rollout(trace, None))) == "cancelled"


async def test_a_rollout_in_jobs_is_replayed_and_taken_over(served: Served, tmp_path: Path) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client)
        await train(client, model, steps=1, group_size=2)
        [job] = await client.jobs()
        trace = (await client.rollouts.job_traces(job.id))[0]
    async with cockpit(
        served, Start("jobs", view="jobs"), state=lambda: tmp_path / "state"
    ) as flown:
        view: Any = flown.view
        await flown.until(lambda: bool(view.jobs))
        await flown.press("enter")
        await flown.until(lambda: view.part is not None)
        view.list.select(trace.id)
        await flown.press("enter")
        await flown.until(lambda: getattr(flown.screen, "transcript", None) is not None)
        await flown.press("ctrl+t")
        await your_turn(flown, 1)
        assert [turn.move.text for turn in game(flown).upcoming] != []
        assert "1 recorded" in flown.screen.query_one(TranscriptView).plain
        foot = str(flown.screen.query_one(FootLine).render())
        assert ". replay  @ to a turn" in foot
        await flown.press("full_stop")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        grade = game(flown).grade
        assert grade.reward == trace.reward
        assert [turn.by for turn in game(flown).turns] == ["recorded"]
        await flown.press("comma")
        await your_turn(flown, 1)
        await flown.press("at", "1", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        await flown.press("comma")
        await your_turn(flown, 1)
        flown.screen.query_one("#play-answer", Input).focus()
        await flown.press("0", "enter")
        await flown.until(lambda: game(flown).phase is Phase.GRADED)
        assert [turn.by for turn in game(flown).turns] == ["person"]
        await flown.press("escape", "escape", "ctrl+t")
        await your_turn(flown, 1)
        assert game(flown).upcoming, "also from the list of rollouts"


class Halting:
    """A world that never answers."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.tools: list[Any] = []
        self.messages: list[Any] = [GO]
        self.is_over = asyncio.Event()

    async def play(self, begun: Any, asked: Callable[[Any], object]) -> Result:
        asked({"model": "m", "messages": self.messages, "tools": self.tools})
        await self.is_over.wait()
        return Result(Grade(0.5), "", "t")

    def answer(self, completion: Any) -> None:
        self.answers.append(completion["choices"][0]["message"]["content"])


def nobody() -> HudClient:
    raise HudUnreachable("there is no service")


class Table(App[None]):
    """A game without a service."""

    def __init__(self) -> None:
        super().__init__()
        self.world: Halting = Halting()

    def on_mount(self) -> None:
        async def begin(changed: Callable[[Game], object]) -> Play:
            return Play(PlayLink(nobody), self.world, Game("world", most=3), changed, "m")

        self.push_screen(PlayScreen("world", begin))


GO = {"role": "user", "content": "Go."}


@asynccontextmanager
async def playing(*messages: Any, tools: Sequence[Any] = ()) -> AsyncIterator[Any]:
    """A game whose environment asks so, and its screen."""
    app = Table()
    app.world.messages, app.world.tools = [*(messages or (GO,))], [*tools]
    async with app.run_test(size=(100, 40)) as pilot:
        await until(lambda: isinstance(app.screen, PlayScreen) and bool(app.screen.game.prompt))
        await pilot.pause()
        yield app.screen, pilot


async def test_a_turn_is_made_once_and_leaving_a_game_asks() -> None:
    async with playing() as (screen, pilot):
        app = screen.app
        assert screen.focused is screen.answer
        foot = screen.query_one(FootLine)
        assert "answer (ends the game)" in str(foot.render())
        await pilot.press("enter")
        assert app.screen is not screen, "an empty answer is asked about"
        await pilot.press("escape")
        assert (app.screen, app.world.answers) == (screen, [])
        await pilot.press("a", "enter", "b", "enter")
        assert app.world.answers == ["a"]
        assert screen.game.phase is Phase.WORKING
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert app.screen is not screen, "it asks"
        await pilot.press("escape")
        assert app.screen is screen
        app.world.is_over.set()
        await until(lambda: screen.game.phase is Phase.GRADED)
        app.world.is_over.clear()
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: (screen.game.phase, screen.game.turns) == (Phase.YOURS, ()))
        await pilot.pause()
        await pilot.press("c", "enter", "escape", "escape", "y")
        await pilot.pause()
        assert app.screen is not screen


async def test_enter_goes_on_to_the_next_field_also_where_one_is_picked() -> None:
    async with playing(tools=[{"name": "call", "parameters": SCHEMA}]) as (screen, pilot):
        await until(lambda: bool(screen.form._fields))
        await pilot.pause()
        fields = {argument.name: field.field for argument, field in screen.form._fields}
        for here, after in (("deep", "how"), ("how", "rows"), ("rows", "any")):
            fields[here].focus()
            await pilot.press("enter")
            assert screen.focused is fields[after]


async def test_help_lists_keys_that_replay_where_turns_are_recorded() -> None:
    async with playing() as (screen, pilot):

        def replaying() -> set[str]:
            return {each.action.id for each in doable(screen) if "replay" in each.action.name}

        assert not replaying()
        await pilot.press("escape", "full_stop", "comma", "at")
        assert screen.app.screen is screen
        assert not screen.app._notifications
        screen.take(replace(screen.game, upcoming=(Turn(Move("as then"), "recorded"),)))
        assert len(replaying()) == 3
        screen.take(replace(screen.game, upcoming=(), turns=(Turn(Move("a"), RECORDED),)))
        assert len(replaying()) == 3, "one goes back to what was replayed"


class Replayed(Halting):
    """A world that asks when it is told to."""

    async def play(self, begun: Any, asked: Callable[[Any], object]) -> Result:
        await self.is_over.wait()
        return await super().play(begun, asked)


async def test_what_is_recorded_can_be_replayed_before_the_game_has_begun() -> None:
    app = Table()
    app.world = Replayed()
    async with app.run_test() as pilot:
        await pilot.pause()
        screen = app.screen
        await pilot.press("at")
        assert [each.message for each in app._notifications] == ["starting world …"]
        screen._play.game = replace(screen.game, upcoming=(Turn(Move("as then"), "recorded"),))
        screen.take(screen._play.game)
        await pilot.press("at", "1", "enter")
        app.world.is_over.set()
        await until(lambda: screen.game.phase is Phase.GRADED)
        assert app.world.answers == ["as then"]


# The form.


class FormApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.form = ToolForm(id="form")

    def compose(self) -> ComposeResult:
        yield self.form


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "of the file"},
        "times": {"type": "integer", "default": 3},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "how": {"enum": ["up", 2]},
        "rows": {"type": "array", "items": {"type": "integer"}},
        "any": {},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "boolean"]},
    },
    "required": ["name", "deep"],
}


async def test_each_kind_of_argument_has_a_field() -> None:
    async with shown(Tool("call", "", SCHEMA)) as form:
        for typed, read in (
            ({"name": ""}, {"name": ""}),
            ({"name": r"a\nb", "deep": "yes"}, {"name": "a\nb", "deep": True}),
            ({"name": "x", "times": "4", "ratio": "1"}, {"name": "x", "times": 4, "ratio": 1}),
            ({"name": "x", "how": "2", "rows": "[1, 2]"}, {"name": "x", "how": 2, "rows": [1, 2]}),
            ({"name": "5", "any": "5"}, {"name": "5", "any": 5}),
            ({"name": "5", "any": r"a\nb"}, {"name": "5", "any": "a\nb"}),
            ({"name": "x", "perhaps": "5"}, {"name": "x", "perhaps": 5}),
            ({"name": "x", "either": "5"}, {"name": "x", "either": "5"}),
            ({"name": "x", "either": "true"}, {"name": "x", "either": True}),
        ):
            fill(form, typed)
            [call] = form.read().calls
            assert call.arguments == {"deep": False, **read}


async def test_what_does_not_fit_is_marked() -> None:
    async with shown(Tool("call", "", SCHEMA)) as form:
        misfits = {"times": "x", "ratio": '"1"', "rows": '[1, "a"]', "perhaps": "x"}
        for wrong, typed in misfits.items():
            fill(form, {"name": "x", wrong: typed})
            with pytest.raises(BadMove):
                form.read()
            marked = [each.name for each, field in form._fields if field.has_class("wrong")]
            assert marked == [wrong]
            fill(form, {"name": "x"})
            assert form.read()
            assert not form.query(".wrong")


async def test_what_is_to_be_played_must_be_named(tmp_path: Path) -> None:
    async with answered(lambda request: httpx.Response(200, json={})) as client:
        screen = game_of_start(lambda: client, Start("play"), None, tmp_path)
        with pytest.raises(HudUsage, match="what is to be played"):
            await screen._begin(lambda game: None)


async def test_another_tool_has_other_fields() -> None:
    other = Tool("other", "Says it.", {"properties": {"word": {"type": "string"}}})
    async with shown(Tool("call", "", SCHEMA), other) as form:
        form.query_one("#play-tool", Picker).action_pick(1)
        await until(lambda: [argument.name for argument, _ in form._fields] == ["word"])
        assert form.read().calls == (Call("other", {}),)


@asynccontextmanager
async def shown(*tools: Tool) -> AsyncIterator[ToolForm]:
    app = FormApp()
    async with app.run_test() as pilot:
        await app.form.show(tools)
        await pilot.pause()
        yield app.form


def fill(form: ToolForm, typed: dict[str, str]) -> None:
    """Fill in these arguments, and no others."""
    form.clear()
    for argument, field in form._fields:
        if argument.name in typed:
            field.field.value = typed[argument.name]


# What is said.


@pytest.mark.parametrize(
    ("game", "text"),
    [
        (Game("sums"), "starting sums … 4 s"),
        (Game("sums", phase=Phase.WORKING, most=3, turns=(Turn(Move("x"), "person"),)), ""),
        (Game("sums", phase=Phase.FAILED, trouble="it\x1bhung"), "no grade: it␛hung"),
        (Game("sums").failed("it hung", "see its log"), "no grade: it hung\nsee its log"),
        (Game("sums", phase=Phase.YOURS, notice="no"), "no  ·  turn 1: your turn"),
    ],
)
def test_what_a_game_waits_for_is_said(game: Game, text: str) -> None:
    text = text or "turn 1 of 3: waiting for the environment … 4 s"
    assert said_of(game, 4.0).plain == text


async def test_texts_of_a_game_are_cleaned() -> None:
    async with playing({"role": "user", "content": "\x1b[2J [bold]x"}) as (screen, _):
        assert [line.rstrip() for line in screen.view.plain.split("\n")] == [
            *("▾ user", "  ␛[2J [bold]x")
        ]


async def test_a_text_is_shown_as_the_policy_gets_it() -> None:
    async with playing({"role": "user", "content": "x" * 300_000}) as (screen, _):
        assert screen.view.plain.count("x") == 300_000
        assert screen.view.cursor == screen.view.count - 1
        assert screen.view.in_sight, "the end is shown"


async def test_a_conversation_is_folded_and_laid_out_as_in_the_reader() -> None:
    made = Move(calls=(Call("f", {}), Call("g", {"rows": list(range(40))})))
    async with playing() as (screen, pilot):
        screen._play.move(made)
        turn = Turn(made, "person", ("Error calling tool 'f': no", '{"n": 1}'))
        screen.take(replace(screen.game, turns=(turn,)))
        await pilot.pause()
        lines = screen.view.plain.split("\n")
        assert [line.split("  ")[0] for line in lines if line[:1] == "▾"] == ["▾ user", "▾ 1 you"]
        assert "      0," in lines, "JSON is laid out"
        assert "  ⚠ error Error calling tool 'f': no" in lines
        assert '  ← {"n": 1}' in lines
        screen.view.focus()
        await pilot.press("a")
        assert screen.view.plain.split("\n")[1].startswith("▸ 1 you       ⚠ → f {} ⚠ Error calling")
        await pilot.press("enter")
        assert '  ← {"n": 1}' in screen.view.plain
        screen.take(screen.game.graded(Grade(0.5, {"info": {"expected": 7}}, "done")))
        await pilot.pause()
        grading = "environment grading   expected: 7 stopped: end of turn"
        assert screen.view.plain.split("\n")[-1] == f"▸ {grading}"
        await pilot.press("a")
        assert screen.view.plain.endswith("  expected: 7\n  stopped: end of turn")


def test_turns_are_called_by_their_number_and_who_made_them() -> None:
    turns = tuple(Turn(Move("x"), by) for by in ("recorded", "policy", "person"))
    game = Game("s", phase=Phase.YOURS, turns=turns, upcoming=(Turn(Move("y"), "recorded"),))
    roles = [turn.role for turn in transcript_of_game(game).turns]
    assert roles == ["1 replayed", "2 policy", "3 you", "4 recorded"]
    assert [turn.role for turn in transcript_of_game(replace(game, phase=Phase.WORKING)).turns] == (
        roles[:3]
    )
