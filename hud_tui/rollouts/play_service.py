"""Playing a task of the service's own environments: one question, one answer."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from hud_tui.client.preflight import load_source
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.rl.game import Game, Grade, move_of
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rollouts.environment import check_source
from hud_tui.rollouts.play import Play, Result, own_play, policy_of, task_named
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_report import PlayReport
from hud_tui.rollouts.seat import Request
from hud_tui.wire import Json, Model
from hud_tui.wire_rollouts import TraceEnter, TraceExit
from hud_tui.wire_tasks import PlayedTask, PlayTask

NOT_HERE = "an environment of your own is played from its files: hud-tui play ENV.py"
STEP = "hud.step.v1"
"""Schema of a span's payload; the SDK's."""


async def service_play(
    link: PlayLink,
    task: Task,
    changed: Callable[[Game], object],
    model: Model | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Play:
    """A game on a task of the service's own environments, which is not begun. `model`: as
    `policy_of` takes it; `options`: how the policy is sampled, by their wire names. Raises
    HudError: the service does not answer."""
    policy = policy_of(await link.client.models(), model, needs_tools=False)
    usual = policy.training_defaults
    sampled = {"max_tokens": usual.max_tokens} if usual is not None else {}
    sampled |= {key: options[key] for key in ("max_tokens", "temperature") if key in options}
    world = ServiceWorld(link, task, {"model": policy.model_name, **sampled})
    return Play(link, world, Game(task.env, most=1), changed, policy.model_name)


async def play_of(
    link: PlayLink,
    source: str | None,
    state: Path,
    changed: Callable[[Game], object],
    task: str | None = None,
    model: Model | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Play:
    """A game on whatever a source names: an environment of the user's own (a Python file, or a
    directory with one), else a taskset or a file of tasks. Arguments as of `own_play`. Raises
    HudError: no source is named, or there is no such source or task; or as `own_play`."""
    if not source:
        raise HudUsage("what is to be played?", "name an environment, or a rollout: --rollout ID")
    if await asyncio.to_thread(_is_python, source):
        own = check_source(source)
        return await own_play(link, own, state, changed, task, model, options)
    tasks, _ = await load_source(link.client, source)
    return await service_play(link, task_named(tasks, task), changed, model, options)


def _is_python(source: str) -> bool:
    """Whether a source names a Python file, or a directory with one."""
    path = Path(source).expanduser()
    return path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))


class ServiceWorld:
    """The service asks and grades; the rollout is reported as any client's."""

    def __init__(self, link: PlayLink, task: Task, request: Request) -> None:
        """`request`: of the policy, without its messages."""
        self._link, self._task, self._request = link, task, request
        self._answers = asyncio.Queue[Mapping[str, Any]]()

    async def play(
        self, begun: Callable[[Task], object], asked: Callable[[Request], object]
    ) -> Result:
        self._link.client.wire.guard.check("play")
        task, body = self._task, PlayTask(scenario=self._task.scenario, args=self._task.args)
        try:
            prompt = (await self._ask(body)).prompt
        except HudNotFound as error:
            raise HudUsage(f"{one_line(task.slug)}: {error.detail}", NOT_HERE) from error
        begun(task)
        name, model = f"played: {task.env} {task.slug}", str(self._request["model"])
        entered = TraceEnter(task_slug=task.slug, model=model, played=True)
        report = PlayReport(self._link, uuid4().hex, name, entered)
        trace_id = report.trace_id
        async with report.running():
            await report.enter()
            spans = [_span(trace_id, "user", messages=[{"role": "user", "content": prompt}])]
            asked({**self._request, "messages": [{"role": "user", "content": prompt}]})
            said = move_of((await self._answers.get())["choices"][0]["message"])
            played = await self._ask(body.model_copy(update={"answer": said.text}))
            reward, info = played.reward or 0.0, {"expected": played.expected}
            spans.append(_span(trace_id, "agent", content=said.text, model=model, done=True))
            result = {"score": reward, **info}
            graded = {"phase": "evaluate", "name": task.scenario, "result": result}
            spans.append(_span(trace_id, "task", task_call=graded))
            told = TraceExit(reward=reward, stop_reason="done", evaluation_result={"info": info})
            await report.exit(told)
            with suppress(HudError):  # a report that is lost costs no grade
                await self._link.client.rollouts.upload_spans(trace_id, spans)
        return Result(Grade(reward, {"info": info}, "done"), "", trace_id)

    def answer(self, completion: Mapping[str, Any]) -> None:
        self._answers.put_nowait(completion)

    async def _ask(self, body: PlayTask) -> PlayedTask:
        env = self._task.env
        return await self._link.call(lambda client: client.tasks.play(env, body))


def _span(trace_id: str, source: str, **payload: Any) -> Json:
    """A step of a rollout, as the SDK reports it."""
    now = datetime.now(UTC).isoformat()
    attributes = {"hud.schema": STEP, "hud.task_run_id": trace_id, "hud.payload": payload}
    return {
        "name": f"step.{source}",
        "trace_id": trace_id,
        "span_id": uuid4().hex[:16],
        "start_time": now,
        "end_time": now,
        "attributes": attributes,
    }
