"""Runs: the table of all of them, what changed in it, and one run's steps as columns."""

import json
import sqlite3
from math import isfinite
from statistics import fmean
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hud_tui.rl.text import seconds
from hud_tui.service.engines.base import About
from hud_tui.service.http import Refused, number, reply, window
from hud_tui.service.routes import parts_of, path, service_of
from hud_tui.service.runner import Runner
from hud_tui.service.store import runs

MOST = 2000
"""Rows of a page, and steps of one answer: as much as keeps nobody else waiting for long."""
MOST_KEYS = 16
LONGEST_KEY = 100


async def list_runs(request: Request) -> Response:
    """``?since=`` a revision leaves out what has not changed."""
    parts, service = parts_of(request), service_of(request)
    limit, offset = window(request, MOST, MOST)
    since = number(request, "since", 0, 2**62)
    rows, total, newest = await parts.store.read(runs.page, since, limit, offset)
    bases, about = set(parts.bases()), parts.engine.about()
    items = [record(row, service.runner, bases, about) for row in rows]
    page = {"items": items, "total": total, "limit": limit, "offset": offset, "revision": newest}
    return reply(page)


async def get_run(request: Request) -> Response:
    parts = parts_of(request)
    row = await parts.store.read(runs.get, path(request, "run_id"))
    bases, about = set(parts.bases()), parts.engine.about()
    return reply(record(row, service_of(request).runner, bases, about))


async def run_steps(request: Request) -> Response:
    """``?after=`` leaves out the first so many; ``?keys=`` names metrics, with commas."""
    after, limit = number(request, "after", 0, 2**31), number(request, "limit", MOST, MOST)
    keys = _keys(request.query_params.get("keys", "reward_mean"))
    run_id = path(request, "run_id")
    found, total = await parts_of(request).store.read(runs.steps, run_id, after, limit, keys)
    columns = list(zip(*found, strict=True)) if found else [()] * (3 + len(keys))
    return reply(
        {
            "step": list(range(after + 1, after + 1 + len(found))),
            "at": [seconds(stamp) for stamp in columns[1]],
            "tokens": [int(count or 0) for count in columns[2]],
            "checkpoint_id": columns[0],
            "metrics": dict(zip(keys, columns[3:], strict=True)),
            "total": total,
        }
    )


def _keys(text: str) -> list[str]:
    """Raises Refused, 422: too many, or no metric's."""
    keys = list(dict.fromkeys(filter(None, text.split(","))))
    odd = [key for key in keys if len(key) > LONGEST_KEY or '"' in key or "\\" in key]
    if odd or len(keys) > MOST_KEYS:
        said = f"expected at most {MOST_KEYS} metrics with commas between"
        raise Refused(422, [{"type": "value_error", "loc": ["query", "keys"], "msg": said}])
    return keys


def record(row: sqlite3.Row, runner: Runner, bases: set[str], about: About) -> dict[str, Any]:
    """One row as the wire has it (`hud_tui.wire.RunRecord`)."""
    rewards = orjson.loads(row["rewards"])
    points, part = rewards.get("points", []), rewards.get("part", [0.0, 0])
    managed, slug = row["kind"] == "training", row["slug"]
    busy = row["busy_s"] if managed else (row["last_at"] or 0.0) - (row["first_at"] or 0.0)
    evaluation = row["evaluation"]
    return {
        "id": row["id"],
        "kind": row["kind"] or "reported",
        "name": row["name"] or f"loop on {slug}",
        "status": None if row["shown_status"] is None else runner.shown(row),
        "model_id": row["model_id"],
        "model": slug,
        "base": row["base"],
        "engine": about.engine if row["base"] in bases else None,
        "forked_from": row["forked_from"],
        "start": row["start"],
        "taskset": row["taskset"] or row["taskset_name"],
        "parameters": orjson.Fragment(row["parameters"])
        if row["parameters"]
        else {"group_size": row["group_size"]},
        "learning_rate": row["learning_rate"],
        "loss_fn": row["loss_fn"],
        "step": row["steps"],
        "steps": row["wanted"] if managed else row["loop_steps"],
        "created_at": row["created_at"] or row["first_at"],
        "stepped_at": row["last_at"],
        "finished_at": row["finished_at"],
        "busy_s": busy,
        "reward_first": _mean(rewards.get("first", [])),
        "reward_last": _mean(rewards.get("last", [])),
        "points": [*points, part[0] / part[1]] if part[1] else points,
        "stride": rewards.get("stride", 1),
        "heldout": _heldout(row),
        "evaluation": orjson.Fragment(evaluation) if evaluation else None,
        "rollouts": row["rollouts"],
        "no_gradient": row["idle"] / row["rollouts"] if row["rollouts"] else None,
        "tokens": row["tokens"],
        "alarms": row["alarms"],
        "alarm": row["alarm"],
        "alarm_title": row["alarm_title"],
        "revision": row["revision"],
    }


def _mean(rewards: list[float]) -> float | None:
    mean = fmean(rewards) if rewards else None
    return mean if mean is not None and isfinite(mean) else None


def _heldout(row: sqlite3.Row) -> float | None:
    """Of its newest evaluated checkpoint, where that was on the held-out tasks."""
    evaluation = json.loads(row["evaluation"]) if row["evaluation"] else {}
    if evaluation.get("split", "heldout") == "heldout" and "mean_reward" in evaluation:
        return float(evaluation["mean_reward"])
    heldout: float | None = row["heldout"]
    return heldout


ROUTES = [
    Route("/v1/runs", list_runs),
    Route("/v1/runs/{run_id}/steps", run_steps),
    Route("/v1/runs/{run_id}", get_run),
]
