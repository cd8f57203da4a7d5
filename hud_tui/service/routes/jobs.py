"""Jobs: list, read, rename; the table of all runs; and reports from clients that run their own
loop."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from statistics import fmean
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from hud_tui.errors import HudUsage
from hud_tui.events import RolloutDone
from hud_tui.rl.own_numbers import HELDOUT
from hud_tui.rl.progress import pace
from hud_tui.rl.runs import steps_at_ends
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import seconds
from hud_tui.rl.timeline import why_failed
from hud_tui.rl.work import EVALUATION, REPORTED, TRAINING, Work, trouble
from hud_tui.service.context import ServiceContext
from hud_tui.service.engines.base import About, EngineError, Tokenizer
from hud_tui.service.environments import find_scenario
from hud_tui.service.http import (
    Refused,
    canonical,
    canonical_id,
    iso,
    now,
    number,
    page,
    read,
    reply,
    window,
)
from hud_tui.service.routes import Route, absent, parts_of, path, service_of
from hud_tui.service.service import Service
from hud_tui.service.store import (
    access,
    evaluations,
    events,
    jobs,
    models,
    runs,
    times,
    traces,
    works,
)
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.traces import payload
from hud_tui.service.works import Works
from hud_tui.wire_access import Role
from hud_tui.wire_changes import RenameJob
from hud_tui.wire_rollouts import JobEnter, TraceEnter, TraceExit
from hud_tui.wire_runs import RunRecord
from hud_tui.wire_time import RunTime
from hud_tui.wire_training import content_text

# Traces in the wire's format: a row, and the conversation as events.


TRACE = (
    *("id", "job_id", "status", "task_slug", "reward", "stop_reason", "error", "group_id", "step"),
    *("attempt", "rollout", "completion", "num_tokens", "evaluates", "checkpoint_id", "model"),
    "sampled_from",
)
"""Columns of a trace that the wire has under the same name."""


def trace_record(row: sqlite3.Row) -> dict[str, Any]:
    began, heldout = iso(row["created_at"]), row["heldout"]
    return {name: row[name] for name in TRACE} | {
        "created_at": began,
        "start_time": began,
        "ended_at": iso(row["ended_at"]) if row["ended_at"] else None,
        "heldout": None if heldout is None else bool(heldout),
        "played": bool(row["played"]),
    }


def turn_events(turns: Sequence[sqlite3.Row], tokens: Tokenizer | None) -> list[dict[str, Any]]:
    """The conversation as a user_message and an agent_message per turn that the service sampled.
    What a prompt repeats of the turn before is left out. `tokens`: tokenizer of the sampled base;
    None if no engine here has it."""
    events: list[dict[str, Any]] = []
    read: list[int] = []
    for turn in turns:
        times = {"started_at": iso(turn["started_at"]), "ended_at": iso(turn["ended_at"])}
        sample = traces.sample_of(turn).model_dump(exclude_unset=True)
        answer = {"kind": "agent_message", "text": turn["completion"], "sample": sample, **times}
        prompt, text = sample.get("prompt_token_ids") or [], turn["prompt"]
        if tokens is not None:
            answer["tokens"] = tokens.pieces(sample["output_token_ids"])
            if read and prompt[: len(read)] == read:
                text = tokens.decode(prompt[len(read) :]).strip("\n")
        read = [*prompt, *sample["output_token_ids"]]
        events += [{"kind": "user_message", "text": text, **times}, answer]
    return numbered(events)


def span_events(spans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation from a client's uploaded spans."""
    events = []
    for span in spans:
        name, body = str(span.get("name") or ""), payload(span)
        step = name.removeprefix("step.")
        event = _EVENTS[step](body) if step in _EVENTS else _span(name)
        event |= {"started_at": span.get("start_time"), "ended_at": span.get("end_time")}
        if body.get("error"):
            event["error"] = body["error"]
        events.append(event)
    return numbered(events)


def with_pieces(
    events: Sequence[dict[str, Any]], answered: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A client's events with the text of each token, if the service sampled the same ids itself.
    `answered`: `turn_events` of the same trace."""
    values = {
        tuple(event["sample"]["output_token_ids"]): event["tokens"]
        for event in answered
        if "tokens" in event
    }
    seen = []
    for event in events:
        sample = event.get("sample")
        ids: Any = sample.get("output_token_ids") if isinstance(sample, dict) else None
        is_sampled = isinstance(ids, list) and all(isinstance(token, int) for token in ids)
        pieces = values.get(tuple(ids)) if is_sampled else None
        seen.append(event if pieces is None else event | {"tokens": pieces})
    return seen


def numbered(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with their ids, which are their indices."""
    return [{"id": str(seq), "seq": seq, **event} for seq, event in enumerate(events)]


def _said(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "text": content_text(body.get("messages") or body.get("content"))}


def _agent(body: dict[str, Any]) -> dict[str, Any]:
    event = {"kind": "agent_message", "text": content_text(body.get("content"))}
    keys = ("reasoning", "tool_calls", "sample")
    return event | {key: body[key] for key in keys if body.get(key)}


def _tool(body: dict[str, Any]) -> dict[str, Any]:
    call, result = body.get("call"), body.get("result")
    call = call if isinstance(call, dict) else {}
    text = content_text(result)
    event = {
        "kind": "tool_call",
        "tool_name": call.get("name"),
        "arguments": call.get("arguments"),
        "result_text": text,
    }
    if isinstance(call.get("id"), str):
        event["call_id"] = call["id"]
    if isinstance(result, dict) and result.get("isError") is True:
        event["error"] = text or True
    return event


def _task(body: dict[str, Any]) -> dict[str, Any]:
    call = body.get("task_call")
    call = call if isinstance(call, dict) else {}
    phase, name = str(call.get("phase") or "task"), str(call.get("name") or "")
    more = {"arguments": call.get("arguments"), "result_text": content_text(call.get("result"))}
    return _span(f"{phase} {name}".strip()) | {"phase": phase, "name": name, **more}


def _span(name: str) -> dict[str, Any]:
    """What the environment did; no turn."""
    return {"kind": "system", "text": name.removeprefix("step."), "phase": name}


_EVENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "user": partial(_said, "user_message"),
    "agent": _agent,
    "system": partial(_said, "system"),
    "tool": _tool,
    "task": _task,
}


IN_THE_LIST = "GET /v2/jobs has every job with its status"


async def list_jobs(request: Request) -> Response:
    (limit, offset), store = window(request), parts_of(request).store
    taskset_id = canonical(request.query_params.get("taskset_id", ""))
    rows, total = await store.read(jobs.page, limit, offset, taskset_id)
    works = service_of(request).works
    return page([_record(row, works) for row in rows], total, limit, offset)


async def get_job(request: Request) -> Response:
    job = await parts_of(request).store.read(jobs.listed, path(request, "job_id"))
    return reply(_record(job, service_of(request).works))


async def job_traces(request: Request) -> Response:
    """Oldest first; ``?step=`` selects one step of a managed run."""
    job, (limit, offset) = await _find(request), window(request, 50, 10_000)
    step = number(request, "step", 0, 2**31) if "step" in request.query_params else None
    store = parts_of(request).store
    rows, total = await store.read(traces.of_job, job["id"], limit, offset, step)
    return page([trace_record(row) for row in rows], total, limit, offset)


async def summary(request: Request) -> Response:
    job = await _find(request)
    counts = dict(await parts_of(request).store.read(traces.summary, job["id"]))
    return reply({**counts, "initializing": 0, "cancelling": 0})


async def enter(request: Request) -> Response:
    job_id = canonical_id("job", path(request, "job_id"))
    body = await read(request, JobEnter)
    group = body.group if body.group is None else max(-(2**31), min(body.group, 2**31))
    taskset_id = canonical(body.taskset_id or "")
    steps = body.steps if body.steps is None or 1 <= body.steps < 2**31 else None
    await parts_of(request).store.write(jobs.enter, job_id, body.name, group, taskset_id, steps)
    return reply({"job_id": job_id})


async def rename(request: Request) -> Response:
    """PATCH changes the name; nothing else of a job can be changed."""
    body = await read(request, RenameJob)
    job = await _find(request)
    await parts_of(request).store.write(jobs.rename, job["id"], body.name)
    return await get_job(request)


async def _find(request: Request) -> sqlite3.Row:
    job_id = path(request, "job_id")
    return await parts_of(request).store.read(jobs.get, job_id)


def _metadata(row: sqlite3.Row, works: Works) -> dict[str, Any] | None:
    """What only a managed run, an evaluation or a failed job has; None for any other job."""
    if row["kind"] == TRAINING:
        return {
            "kind": TRAINING,
            "model_id": row["model_id"],
            "model": row["slug"],
            "step": row["step"],
            "steps": row["steps"],
            "attempt": row["attempt"],
            "sampled_step": row["sampled_step"],
            "reason": Work.of(works.state(row)).why or None,
        }
    if row["kind"] == EVALUATION:
        evaluation = works.state(row)
        mean = None if evaluation.result is None else evaluation.result.mean
        return {
            "kind": EVALUATION,
            "model": evaluation.model,
            "checkpoint_id": evaluation.checkpoint_id,
            "done": evaluation.done,
            "total": evaluation.total,
            "tasks": evaluation.num_tasks,
            "samples": evaluation.samples,
            "mean": None if mean is None else mean.model_dump(exclude_none=True),
            "reason": trouble(evaluation) or None,
        } | ({"run_id": row["run_id"]} if row["run_id"] else {})
    if row["shown_status"] == "error":
        return {"kind": row["kind"], "reason": row["first_error"]}
    return None


def _record(row: sqlite3.Row, works: Works) -> dict[str, Any]:
    """One row in the wire's format (`hud_tui.wire.Job`)."""
    return {
        "id": row["id"],
        "name": row["name"],
        "status": works.shown(row),
        "created_at": iso(row["created_at"]),
        "group_size": row["group_size"],
        "is_remote": False,
        "taskset_id": row["taskset_id"],
        "taskset_name": row["taskset_name"],
        "num_traces": row["num_traces"],
        "by": row["by"],
        "resumed_by": row["resumed_by"],
        "metadata": _metadata(row, works),
    }


JOB_ROUTES = [
    Route("/v2/jobs", list_jobs),
    *(Route(f"/v2/jobs/{name}", absent(IN_THE_LIST)) for name in ("active", "enriched")),
    Route("/v2/jobs/{job_id}", get_job),
    Route("/v2/jobs/{job_id}", rename, ["PATCH"], Role.TRAIN, "rename a job"),
    Route("/v2/jobs/{job_id}/traces", job_traces),
    Route("/v2/jobs/{job_id}/summary", summary),
    Route("/v2/trace/job/{job_id}/enter", enter, ["POST"], Role.TRAIN, "report a job"),
]


# Traces: a client reports its rollouts here.


async def enter_trace(request: Request) -> Response:
    body = await read(request, TraceEnter)
    job_id, parts = canonical(body.job_id or ""), parts_of(request)
    trained = await parts.store.write(_enter, _id(request), job_id, body)
    if trained is not None:
        model, run_id = trained
        watch = parts.session(model).stopwatch
        if watch.hears and watch.run_id == run_id:
            watch.enter(_id(request), body.task_slug or "")
    return reply({"trace_id": _id(request)})


async def leave(request: Request) -> Response:
    """A repeated request changes nothing."""
    body, parts = await read(request, TraceExit), parts_of(request)
    await parts.store.write(_leave, _id(request), body)
    watch = parts.stopwatch_of(_id(request))
    if watch is not None:
        watch.leave(_id(request), why_failed(body.status, body.stop_reason, body.error))
    return reply({"trace_id": _id(request)})


async def get(request: Request) -> Response:
    """The row, its grading, and what became of it."""
    row, discarded, tasks = await parts_of(request).store.read(_told, _id(request))
    result = row["evaluation_result"]
    more = {
        "evaluation_result": json.loads(result) if result else None,
        "discarded": discarded,
        **_known(tasks, row["task_slug"]),
    }
    return reply(trace_record(row) | more)


def _told(db: Db, trace_id: str) -> tuple[sqlite3.Row, str | None, list[dict[str, Any]]]:
    """A trace, why it was discarded, and the rows of its job's tasks. Raises Refused, 404."""
    row = traces.get(db, trace_id)
    job_id = row["job_id"] or ""
    return row, times.why_discarded(db, job_id, trace_id), works.known_tasks(db, job_id)


def _known(tasks: Sequence[dict[str, Any]], slug: str | None) -> dict[str, Any]:
    """The row of a task of an environment of the service, and the right answer; None for any other
    task."""
    rows = [row for row in tasks if row.get("slug", slug) == slug]  # without one it is derived
    try:
        task = next(task for task in read_rows(rows) if task.slug == slug)
        answer = find_scenario(task.env, task.scenario).answer(task.args)
    except (StopIteration, HudUsage, LookupError, ValueError):
        return {"task": None, "expected": None}
    return {"task": task.row(), "expected": answer}


async def trace_events(request: Request) -> Response:
    """``?since_seq=`` leaves out earlier events; the default is all."""
    parts, trace_id = parts_of(request), _id(request)
    since = request.query_params.get("since_seq", "-1")
    trace = await parts.store.read(traces.get, trace_id)
    events_of_trace = await _events(parts, trace_id)
    try:
        shown = [event for event in events_of_trace if event["seq"] > int(since[:18])]
    except ValueError as error:
        raise Refused(422, "since_seq must be a whole number") from error
    return reply(
        {
            "events": shown,
            "latest_seq": len(events_of_trace) - 1,
            "status": trace["status"],
            "reward": trace["reward"],
        }
    )


async def _events(parts: ServiceContext, trace_id: str) -> list[dict[str, Any]]:
    """The client's uploaded events, else those of the turns that the service sampled."""
    uploaded = await parts.store.read(traces.spans_of, trace_id)
    sampled = await parts.store.read(traces.turns_of, trace_id)
    tokens = None
    if sampled and sampled[0]["base"] in parts.bases():  # else another engine sampled
        with suppress(EngineError):  # the texts are stored
            tokens = await parts.engine.tokenizer(sampled[0]["base"])
    answered = turn_events(sampled, tokens)
    if any(str(span.get("name")).startswith("step.") for span in uploaded):
        return with_pieces(span_events(uploaded), answered)
    return answered


def _enter(
    db: Db, trace_id: str, job_id: str | None, body: TraceEnter
) -> tuple[ModelRow, str | None] | None:
    """Store the begin of a rollout; returns the model that is trained on it, and the run if its
    driver has told of it. None for an evaluation, for a game, and if no such model is known."""
    traces.refuse_of_others(db, trace_id, job_id)
    access.refuse_more_disk(db)
    traces.enter(db, trace_id, job_id, body)
    if traces.is_played(db, trace_id):  # whoever enters it again
        return None
    with suppress(Refused):  # nobody has told of it
        job = works.get(db, job_id or "")
        return (models.find(db, job["model_id"]), job["id"]) if job["kind"] == TRAINING else None
    with suppress(Refused):  # another service's model
        model = models.find(db, body.model or "")
        return None if model.is_base else (model, None)
    return None


def _leave(db: Db, trace_id: str, body: TraceExit) -> None:
    """Store the end of a rollout, as an event of the model that it was sampled from. Raises
    Refused, 507: it has no begin, and the caller may store no more."""
    traces.refuse_of_others(db, trace_id)
    if traces.status(db, trace_id) is None:
        access.refuse_more_disk(db)
    first = traces.leave(db, trace_id, body)
    trace = traces.get(db, trace_id)
    if not first or not trace["model"] or trace["played"]:
        return
    evaluation_id = evaluations.known(db, trace["job_id"] or "")
    if evaluation_id is not None:
        evaluations.count(db, evaluation_id, trace["reward"])
    try:
        model = models.find(db, trace["model"])
    except Refused:
        return  # another service's model
    done = RolloutDone(
        at=now(),
        job_id=trace["job_id"],
        trace_id=trace_id,
        step=model.checkpoint_count + 1,
        task_slug=trace["task_slug"],
        rollout=traces.index_in_group(db, trace),
        reward=trace["reward"],
        status=trace["status"],
        heldout=evaluation_id is not None,
        num_tokens=trace["num_tokens"],
    )
    events.append(db, model.id, [done])


def _id(request: Request) -> str:
    return canonical_id("trace", path(request, "trace_id"))


REPORTS = "report a rollout"
TRACE_ROUTES = [
    Route("/v2/trace/{trace_id}/enter", enter_trace, ["POST"], Role.TRAIN, REPORTS, False),
    Route("/v2/trace/{trace_id}/exit", leave, ["POST"], Role.TRAIN, REPORTS, False),
    Route("/v2/trace/{trace_id}", get),
    Route("/v2/trace/{trace_id}/events", trace_events),
]


# Runs: the table of all runs, its changes, and one run's steps as columns.


MOST = 2000
"""Most rows of a page, and most steps of one answer."""
MOST_TIMES = 500
"""Most steps whose time one answer has."""
MOST_KEYS = 16
LONGEST_KEY = 100


async def list_runs(request: Request) -> Response:
    """``?since=REVISION`` leaves out what has not changed."""
    limit, offset = window(request, MOST, MOST)
    since, store = number(request, "since", 0, 2**62), parts_of(request).store
    rows, total, newest = await store.read(runs.page, since, limit, offset)
    items = run_records(service_of(request), rows)
    page = {"items": items, "total": total, "limit": limit, "offset": offset, "revision": newest}
    return reply(page)


async def get_run(request: Request) -> Response:
    row = await parts_of(request).store.read(runs.get, path(request, "run_id"))
    [shown] = run_records(service_of(request), [row])
    return reply(shown)


async def run_steps(request: Request) -> Response:
    """``?after=N`` leaves out the first N steps; ``?keys=`` lists metrics, comma-separated."""
    after, limit = number(request, "after", 0, 2**31), number(request, "limit", MOST, MOST)
    keys = _keys(request.query_params.get("keys", "reward_mean"))
    run_id = path(request, "run_id")
    steps, total = await parts_of(request).store.read(runs.steps, run_id, after, limit, keys)
    columns = list(zip(*steps, strict=True)) if steps else [()] * (3 + len(keys))
    scored = {}
    if HELDOUT in keys:
        scored = await parts_of(request).store.read(runs.evaluations, run_id)
    return reply(
        {
            "step": list(range(after + 1, after + 1 + len(steps))),
            "at": [seconds(stamp) for stamp in columns[1]],
            "tokens": [int(count or 0) for count in columns[2]],
            "checkpoint_id": columns[0],
            "metrics": dict(zip(keys, columns[3:], strict=True)),
            "total": total,
            "evaluations": scored,
        }
    )


def _keys(text: str) -> list[str]:
    """The metric names in a query. Raises Refused, 422: too many, or an invalid one."""
    keys = list(dict.fromkeys(filter(None, text.split(","))))
    odd = [key for key in keys if len(key) > LONGEST_KEY or '"' in key or "\\" in key]
    if odd or len(keys) > MOST_KEYS:
        message = f"expected at most {MOST_KEYS} metrics with commas between"
        raise Refused(422, [{"type": "value_error", "loc": ["query", "keys"], "msg": message}])
    return keys


def run_records(service: Service, rows: Sequence[sqlite3.Row]) -> list[dict[str, Any]]:
    """Rows in the wire's format (`hud_tui.wire_runs.RunRecord`)."""
    bases, about = set(service.parts.bases()), service.parts.engine.about()
    return [_run_record(row, service.works, bases, about) for row in rows]


def _run_record(row: sqlite3.Row, works: Works, bases: set[str], about: About) -> dict[str, Any]:
    managed = row["kind"] == TRAINING
    busy = row["busy_s"] if managed else (row["last_at"] or 0.0) - (row["first_at"] or 0.0)
    heldout, of = _heldout(row)
    columns = {*row.keys()}
    return {name: row[name] for name in RunRecord.model_fields if name in columns} | {
        "kind": TRAINING if managed else REPORTED,
        "name": row["name"] or f"loop on {row['slug']}",
        "status": "" if row["shown_status"] is None else works.shown(row),
        "model": row["slug"],
        "engine": about.engine if row["base"] in bases else None,
        "taskset": row["taskset"] or row["taskset_name"],
        "parameters": _json(row["parameters"]) or {"group_size": row["group_size"]},
        "step": row["steps"],
        "steps": row["wanted"] if managed else row["loop_steps"],
        "created_at": row["created_at"] or row["first_at"],
        "stepped_at": row["last_at"],
        "busy_s": busy,
        "step_s": pace(orjson.loads(row["times"])),
        **_rewards(row),
        "heldout": heldout,
        "num_heldout_traces": of,
        "evaluation": _json(row["evaluation"]),
        "no_gradient": row["idle"] / row["rollouts"] if row["rollouts"] else None,
    }


def _json(text: str | None) -> orjson.Fragment | None:
    return orjson.Fragment(text) if text else None


def _rewards(row: sqlite3.Row) -> dict[str, Any]:
    """Of its first and its last steps, and a curve of all."""
    ends, rewards = steps_at_ends(row["steps"]), orjson.loads(row["rewards"])
    points, part = rewards.get("points", []), rewards.get("part", [0.0, 0])
    return {
        "reward_first": _mean(rewards.get("first", [])[:ends]),
        "reward_last": _mean(rewards.get("last", [])[-ends:]),
        "points": [*points, part[0] / part[1]] if part[1] else points,
        "stride": rewards.get("stride", 1),
    }


def _mean(rewards: list[float]) -> float | None:
    mean = fmean(rewards) if rewards else None
    return mean if mean is not None and isfinite(mean) else None


def _heldout(row: sqlite3.Row) -> tuple[float | None, int | None]:
    """Of its newest evaluated checkpoint, where that was on the held-out tasks, else as reported by
    a step; and of how many rollouts it is."""
    evaluation = json.loads(row["evaluation"]) if row["evaluation"] else {}
    if evaluation.get("split", "heldout") == "heldout" and "mean_reward" in evaluation:
        return float(evaluation["mean_reward"]), evaluation.get("num_traces")
    return row["heldout"], row["heldout_traces"]


async def run_time(request: Request) -> Response:
    """``?last=N`` steps, of which the last one may be under way; ``?step=N`` alone; or
    ``?checkpoint=ID``: the step that made it, also of another run."""
    parts, run_id = parts_of(request), path(request, "run_id")
    step = number(request, "step", 0, 2**31) or None
    last = number(request, "last", 20, MOST_TIMES)
    checkpoint = canonical(request.query_params.get("checkpoint", ""))
    told = await parts.store.read(_run_time, run_id, last, step, checkpoint)
    watch = parts.measured(told.run_id)
    if watch is not None and step is None and checkpoint is None:
        ids = {"run_id": told.run_id, "step": told.steps[-1].step + 1 if told.steps else 1}
        steps = [*told.steps, watch.so_far().model_copy(update=ids)]
        told = told.model_copy(update={"steps": steps[-last or len(steps) :]})
    return reply(told.model_dump(mode="json"))


def _run_time(db: Db, run_id: str, last: int, step: int | None, checkpoint: str | None) -> RunTime:
    """The steps that were taken. Raises Refused, 404."""
    id_ = runs.get(db, run_id)["id"]
    if checkpoint is not None:
        steps = times.of_checkpoint(db, checkpoint)
    else:
        steps = times.newest(db, id_, last) if step is None else times.of_step(db, id_, step)
    total, counts = times.known(db, id_), times.counts(db, id_)
    return RunTime(run_id=id_, steps=steps, total=total, discarded=counts)


async def run_discarded(request: Request) -> Response:
    """Newest first."""
    (limit, offset), store = window(request, 200, MOST), parts_of(request).store
    run_id = (await store.read(runs.get, path(request, "run_id")))["id"]
    rows = await store.read(times.discarded, run_id, limit, offset)
    total = sum((await store.read(times.counts, run_id)).values())
    return page(rows, total, limit, offset)


RUN_ROUTES = [
    Route("/v1/runs", list_runs),
    Route("/v1/runs/{run_id}/time", run_time),
    Route("/v1/runs/{run_id}/discarded", run_discarded),
    Route("/v1/runs/{run_id}/steps", run_steps),
    Route("/v1/runs/{run_id}", get_run),
]

ROUTES = [*JOB_ROUTES, *TRACE_ROUTES, *RUN_ROUTES]
