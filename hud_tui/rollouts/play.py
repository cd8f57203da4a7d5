"""Playing: a person is the policy of one rollout.

A `World` makes the rollout, and asks for each turn; `Play` has the person answer, or the policy.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from pydantic import ValidationError

from hud_tui.client.client import PASSED_ON
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.rl.checkpoint_tree import own_models
from hud_tui.rl.game import (
    PERSON,
    POLICY,
    RECORDED,
    Game,
    Grade,
    Move,
    Phase,
    completion_of,
    move_of,
)
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import names_text, one_line
from hud_tui.rollouts.control import order_of
from hud_tui.rollouts.environment import CALLS_TOOLS, load, rollout_of, setting_of
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_report import PlayReport, to_its_end
from hud_tui.rollouts.process import EnvironmentFailed, WorkerGone, WorkerProcess
from hud_tui.rollouts.run_files import Options, Order, environment_name, keep_order, log_of_checks
from hud_tui.rollouts.seat import SERVICE, Request, Seat
from hud_tui.rollouts.watched import error_text, failure_text
from hud_tui.wire import Model
from hud_tui.wire_rollouts import TraceEnter
from hud_tui.wire_training import Chat, ChatReply, Demonstration

LONGEST_S = 86_400.0
"""Longest rollout, seconds: the player's time does not count towards the order's limit."""
LOOK_S = 0.2
"""Seconds between two looks at how long the environment has been at work."""
LOST_S = 1.0
"""Seconds between two looks at whether the environment is still there."""
WHERE_S = 5.0
"""Longest wait for the place in the code of an environment that hangs, seconds."""
SENT = frozenset(Chat.model_fields) - {"prompt_token_ids", "continuation_from", "return_token_ids"}
"""Fields of an agent's request that go to the policy: turns that a person made have no tokens."""


class GameFailed(HudError):
    kind = "environment"

    def __init__(self, game: Game) -> None:
        super().__init__(game.trouble, game.advice)
        self.details = {"trace_id": game.trace_id, "turn": game.number}


class Result(NamedTuple):
    grade: Grade | None
    trouble: str
    trace_id: str
    advice: str = ""


class World(Protocol):
    """Where the rollout is made."""

    async def play(
        self, begun: Callable[[Task], object], asked: Callable[[Request], object]
    ) -> Result:
        """Make the rollout. `begun` is called with the task, once it is known; `asked` with each
        request for a turn, which `answer` answers. Raises HudError: it cannot begin."""

    def answer(self, completion: Mapping[str, Any]) -> None:
        """Answer the last request."""


class Play:
    """One game, from its beginning to its grade."""

    def __init__(
        self,
        link: PlayLink,
        world: World,
        game: Game,
        changed: Callable[[Game], object],
        policy: str = "",
    ) -> None:
        """`changed` is called with each new state of the game; `policy` is the slug of the model
        that may go on."""
        self.game, self.policy = game, policy
        self.is_kept = False
        """Whether `demonstrated` is collected: it grows with the square of the turns."""
        self.demonstrated: list[Demonstration] = []
        """The person's turns, each with the conversation before it."""
        self.error: HudError | None = None
        """Why it could not begin."""
        self.link, self._world, self._changed = link, world, changed
        self._request: Request = {}
        self._is_left = False
        """Whether the policy makes all further turns."""
        self._to_replay = 0
        """Recorded turns that are to be replayed without being asked for each."""
        self._policy: asyncio.Task[None] | None = None
        self.checkpoint: str | None = None
        """Whose weights go on: its id, or `BASE`; None for the model as it is served."""

    async def run(self) -> Game:
        """Play it to its end; nothing that happens in the environment is an error here."""
        try:
            ended = await self._world.play(self._begun, self._asked)
        except HudError as error:
            self.error = error
            self._show(self.game.failed(error.message, error.hint))
        else:
            if ended.grade is None:
                self._show(self.game.failed(ended.trouble, ended.advice, ended.trace_id))
            else:
                self._show(self.game.graded(ended.grade, ended.trace_id))
        finally:
            if self._policy is not None:
                self._policy.cancel()
                await asyncio.gather(self._policy, return_exceptions=True)
        return self.game

    def move(self, move: Move, by: str = PERSON) -> None:
        """Make this turn. Does nothing where no turn is waited for."""
        if not self.game.waits:
            return
        completion = completion_of(move, str(self._request.get("model")), self.game.number)
        if by == PERSON and self.is_kept:
            said = completion["choices"][0]["message"]
            messages, tools = self._request["messages"], self._request.get("tools")
            self.demonstrated.append(Demonstration(messages=[*messages, said], tools=tools))
        self._show(self.game.moved(move, by))
        self._world.answer(completion)

    def let_policy(self, to_the_end: bool = False) -> None:
        """Have the policy make this turn, or all that are left."""
        self._is_left = self._is_left or to_the_end
        if self.game.phase is Phase.YOURS:
            self._show(self.game.left_to_policy())
            self._begin_policy()

    def take_over(self) -> None:
        """Make the next turn yourself."""
        self._is_left, self._to_replay = False, 0

    def replay(self, turns: int) -> None:
        """Replay so many recorded turns, from this one or from the first; fewer if the environment
        answers otherwise."""
        self._to_replay = turns
        if self.game.phase is Phase.YOURS:
            self._replay_next()

    def _replay_next(self) -> None:
        if self._to_replay > 0 and self.game.upcoming:
            self._to_replay -= 1
            self.move(self.game.upcoming[0].move, RECORDED)

    def _begin_policy(self) -> None:
        self._policy = asyncio.get_running_loop().create_task(self._ask_policy())

    async def _ask_policy(self) -> None:
        fields = {key: value for key, value in self._request.items() if key in SENT}
        number = self.game.number
        try:
            reply = await self._sampled(fields)
            said = move_of(reply.choices[0].message.model_dump())
        except ValidationError as error:
            trouble = str(error.errors(include_url=False)[0]["msg"])
        except HudError as error:
            trouble = error.message
        except IndexError:
            trouble = "it gave no answer"
        else:
            if (Phase.POLICYS, number) == (self.game.phase, self.game.number):
                self.move(said, POLICY)
            return
        self._is_left = False
        if self.game.phase is Phase.POLICYS:
            notice = f"the policy cannot go on: {one_line(trouble, 300)}"
            self._show(self.game.given_back(notice))

    async def _sampled(self, fields: Mapping[str, Any]) -> ChatReply:
        """An answer of the policy; by its head, if the weights of a checkpoint are gone."""
        if self.checkpoint is not None:
            pinned = Chat.model_validate({**fields, "checkpoint": self.checkpoint})
            try:
                return await self.link.client.training.chat(pinned)
            except HudNotFound:
                self.checkpoint = None
        return await self.link.client.training.chat(Chat.model_validate(fields))

    def _begun(self, task: Task) -> None:
        self._show(replace(self.game, task=task.slug))

    def _asked(self, request: Request) -> None:
        self._request = request
        game = self.game.asked(request["messages"], request.get("tools"))
        if self._is_left:
            self._show(game.left_to_policy())
            self._begin_policy()
        else:
            self._to_replay = 0 if game.notice else self._to_replay
            self._show(game)
            self._replay_next()

    def _show(self, game: Game) -> None:
        self.game = game
        self._changed(game)


def policy_of(
    models: Sequence[Model], model: Model | None = None, needs_tools: bool = True
) -> Model:
    """The model that may go on: the given one, else the only one of the user's own, else a base,
    one that calls tools if they are needed. Raises HudUsage: there is none."""
    own = own_models(models)
    bases = [each for each in models if each.model_name == CALLS_TOOLS and needs_tools]
    candidates = own if len(own) == 1 else [*bases, *models]
    if model is not None or candidates:
        return model or candidates[0]
    raise HudUsage("the service has no model", "a game is reported as a rollout of one")


def task_named(tasks: Sequence[Task], name: str | None) -> Task:
    """The task of this slug, else the first one of this template; without a name the first one.
    Raises HudUsage: there is none."""
    matches = [task for task in tasks if name in (None, task.slug)]
    matches += [task for task in tasks if name == task.scenario]
    if not matches:
        slugs = names_text([task.slug for task in tasks], 8)
        raise HudUsage(f"no task named {one_line(name, 100)}", f"the tasks: {slugs}")
    return matches[0]


# On an environment of the user's own.


async def own_play(
    link: PlayLink,
    source: Path,
    state: Path,
    changed: Callable[[Game], object],
    task: str | None = None,
    model: Model | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Play:
    """A game on an environment, which is not begun. `task`: as `task_named` takes it; `model`: as
    `policy_of` takes it; `options`: fields of `Options`, and how the policy is sampled, by their
    wire names. Raises HudError: an option is invalid, or the service does not answer."""
    policy = policy_of(await link.client.models(), model)
    of_rollouts = {key: value for key, value in options.items() if key in Options.model_fields}
    sampled = {key: value for key, value in options.items() if key not in of_rollouts}
    order = order_of(link.client, policy, source, sampled, **of_rollouts)
    game = Game(environment_name(order.source), most=order.turns)
    world = OwnWorld(link, order, state, task)
    return Play(link, world, game, changed, order.model)


class OwnWorld:
    """The worker makes one rollout, as it does for training; its agent asks the seat."""

    def __init__(self, link: PlayLink, order: Order, state: Path, task: str | None) -> None:
        """Arguments: `task` as `task_named` takes it; `state`: the state directory."""
        self._link, self._order, self._state, self._task = link, order, state, task
        self._seat = Seat(link.client.settings.api_key, self._take, self._pass_on)
        self._asked: Callable[[Request], object] = lambda request: None
        self._works_since: float | None = None
        """When the environment began to work, by the clock of `monotonic`; None while the player
        thinks."""
        self._looked = 0.0
        """When it was last asked whether the environment is still there, by the same clock."""

    async def play(
        self, begun: Callable[[Task], object], asked: Callable[[Request], object]
    ) -> Result:
        client = self._link.client
        client.wire.guard.check("play")
        self._asked, order = asked, self._order
        if order.runtime == "hosted":
            message = "--runtime hosted has HUD ask the model, and nobody else"
            raise HudUsage(message, "leave it out, or --runtime hud")
        log = log_of_checks(self._state, order.source)
        async with self._seat.listening() as url:
            setting = setting_of(order, client.settings, log)
            variables = seated(setting.variables, url, client.settings.local)
            worker = WorkerProcess(replace(setting, variables=variables))
            try:
                await worker.start()
                loaded = await load(worker, client, order)
                task = task_named(loaded.tasks, self._task)
                begun(task)
                return await self._roll_out(worker, task)
            finally:
                await to_its_end(worker.close())

    def answer(self, completion: Mapping[str, Any]) -> None:
        self._works_since = monotonic()
        self._seat.answer(completion)

    def _take(self, request: Request) -> None:
        self._works_since = None
        self._asked(request)

    async def _pass_on(self, method: str, target: str, body: bytes) -> bytes:
        """Pass a request of the worker's on to the service, wherever that is now."""
        return await self._link.call(lambda client: client.pass_on(method, target, body))

    async def _roll_out(self, worker: WorkerProcess, task: Task) -> Result:
        order, job_id = self._order, str(uuid4())
        client = self._link.client
        is_hud = await client.service_id() == client.settings.api_url
        entered: dict[str, Any] = {} if is_hud else {"played": True}
        name = f"played: {environment_name(order.source)} {task.slug}"
        told = TraceEnter(task_slug=task.slug, model=order.model, **entered)
        report = PlayReport(self._link, job_id, name, told)
        trace_id = report.trace_id
        request = rollout_of(order, job_id, task, 1)
        request |= {"timeout": LONGEST_S, "trace_id": trace_id, "entered": entered}
        async with report.running():
            await asyncio.to_thread(keep_order, self._state, job_id, order)
            why, run = await self._ended(worker, request)
            if run is None:
                await report.end_early("error", why)
        if run is not None and run["error"] is not None:
            why = error_text(run)
        if run is None or why:
            printed = f"what it printed is in {worker.setting.log}"
            return Result(None, why, trace_id, printed)
        graded = {key: run.get(key) for key in ("subscores", "info")}
        return Result(Grade(run["reward"], graded, run["stop_reason"] or ""), "", trace_id)

    async def _ended(
        self, worker: WorkerProcess, request: dict[str, Any]
    ) -> tuple[str, dict[str, Any] | None]:
        """The worker's report of the rollout; without one, why there is none."""
        self._works_since = monotonic()
        rolling = asyncio.ensure_future(worker.call("roll_out", **request))
        try:
            while not rolling.done():
                await asyncio.wait([rolling], timeout=LOOK_S)
                if self._link.is_away and self._works_since is not None:
                    self._works_since = monotonic()  # it may wait for the service
                since = self._works_since
                if since is not None and monotonic() - since > self._order.rollout_timeout:
                    return await self._hung(worker), None
                if why := await self._lost(worker):
                    return why, None
            [run] = rolling.result()["runs"]
        except (WorkerGone, EnvironmentFailed) as error:
            return error.message, None
        finally:
            rolling.cancel()
            await asyncio.gather(rolling, return_exceptions=True)
        return "", run

    async def _lost(self, worker: WorkerProcess) -> str:
        """Why the environment is gone, which its agent may not notice; empty if it is not."""
        if monotonic() - self._looked < LOST_S:
            return ""
        self._looked = monotonic()
        return await _failure(worker, "lost")

    async def _hung(self, worker: WorkerProcess) -> str:
        """What is said of an environment that has worked for too long, with its place in the
        code."""
        why = ""
        with suppress(HudError):
            why = await _failure(worker, "where")
        return why or f"the environment has done nothing for {self._order.rollout_timeout:g} s"


async def _failure(worker: WorkerProcess, verb: str) -> str:
    """The first failure that the worker knows of, in one line; empty if it knows none, or does not
    answer in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WHERE_S):
            for failure in (await worker.call(verb))["failures"]:
                return failure_text(failure)
    return ""


def seated(variables: Mapping[str, str], url: str, is_local: bool) -> dict[str, str]:
    """A worker's variables with the seat as its gateway, which no proxy can reach. `is_local`:
    whether the service's address may change, so that the seat passes on what it is told."""
    direct = {
        name: ",".join(filter(None, (variables.get(name), "127.0.0.1")))
        for name in ("NO_PROXY", "no_proxy")
    }
    hosts = {f"HUD_{name.upper()}_URL": f"{url}{SERVICE}{name}" for name in PASSED_ON}
    return {**variables, **direct, "HUD_GATEWAY_URL": url, **(hosts if is_local else {})}
