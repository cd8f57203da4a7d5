"""Training calls on one model: gradients accumulate, and optim-step makes a checkpoint of them.

`num_substeps` is accepted and ignored: a step is one optim-step. For several steps on one batch, a
loop sends forward-backward and optim-step several times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hud_tui.rl.metrics import TASK_COUNTS
from hud_tui.rl.timeline import REASONS
from hud_tui.rl.work import EVALUATION
from hud_tui.service.batches import (
    Batch,
    check_groups,
    check_loss,
    check_scale,
    check_trajectories,
    finite,
    make_batch,
    resolve,
)
from hud_tui.service.context import ServiceContext, trainable
from hud_tui.service.engines.base import CONFIG_DEFAULTS, LOSSES, Adam
from hud_tui.service.gateway import demonstrated
from hud_tui.service.http import (
    LONG,
    Refused,
    bad_field,
    beside,
    canonical,
    canonical_id,
    dumps,
    not_found,
    read,
    read_bytes,
    reply,
)
from hud_tui.service.routes import Route, find_model, log_about, parts_of, path, service_of
from hud_tui.service.routes.idempotency import Keep, answer, driven_by, once
from hud_tui.service.session import Session, kl_of, output_weights
from hud_tui.service.store import evaluations, jobs, models, replies, works
from hud_tui.service.store.checkpoints import Node
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import Asked, StoredReply
from hud_tui.wire import WorkState
from hud_tui.wire_access import Role
from hud_tui.wire_runs import DriveReport, DriveRun, KeepEvaluation, SubmitEvaluation, SubmitJob
from hud_tui.wire_time import DriverTime
from hud_tui.wire_training import Backward, Demonstration, Forward, ForwardBackward, OptimStep

# Managed runs: submit, read, resume.


async def submit(request: Request) -> Response:
    body, store = await read(request, SubmitJob), parts_of(request).store
    model = trainable(await store.read(models.find, body.model_id))
    log_about(request, model=model.slug)
    runner = service_of(request).runner

    async def act(keep: Keep) -> dict[str, Any]:
        async with runner.submitting:
            return _submitted(
                await runner.submit(model, body, lambda db, run: keep(db, _submitted(run)))
            )

    return await once(request, model.id, act, 201)


def _submitted(run: WorkState) -> dict[str, Any]:
    return {"job_id": run.id, "model": {"id": run.model_id}}


async def raw_status(request: Request) -> Response:
    """By the job's id; or the latest run of a model, by any of its names."""
    store, ref = parts_of(request).store, path(request, "ref")
    id_ = canonical(ref)
    try:
        job = await store.read(jobs.training, id_ or (await store.read(models.find, ref)).id)
    except Refused as refused:
        raise not_found("training job", ref[:200]) from refused
    return reply(service_of(request).works.state(job))


async def resume(request: Request) -> Response:
    """Of a run or an evaluation."""
    service, ref = service_of(request), path(request, "job_id")
    request.state.body = await read_bytes(request)
    row = await service.parts.store.read(works.get, ref)
    resumer = service.evaluator if row["kind"] == EVALUATION else service.runner
    return await once(request, row["id"], partial(resumer.resume, row["id"]))


# Evaluations: submit, list, read; they are cancelled and resumed like any job.


async def evaluate(request: Request) -> Response:
    body, model = await read(request, SubmitEvaluation), await find_model(request)
    log_about(request, checkpoint=body.checkpoint_id)

    async def act(keep: Keep) -> Any:
        return await service_of(request).evaluator.submit(model, body, keep)

    return await once(request, model.id, act, 201)


async def list_evaluations(request: Request) -> Response:
    """All of a model, oldest first, without their rewards by task."""
    model, store = await find_model(request), parts_of(request).store
    rows = await store.read(evaluations.of_model, model.id)
    return reply([service_of(request).works.state(row) for row in rows])


async def usual_tasks(request: Request) -> Response:
    evaluator = service_of(request).evaluator
    return reply(await evaluator.usual_tasks(await find_model(request)))


async def get_evaluation(request: Request) -> Response:
    """``?groups=0`` leaves out the rewards by task."""
    evaluation_id, store = path(request, "evaluation_id"), parts_of(request).store
    if request.query_params.get("groups") == "0":
        row = await store.read(evaluations.get, evaluation_id)
        return reply(service_of(request).works.state(row))
    return reply(await store.read(evaluations.whole, evaluation_id))


async def keep_evaluation(request: Request) -> Response:
    """Said twice, it changes nothing."""
    body = await read(request, KeepEvaluation)
    evaluation_id = canonical_id("evaluation", path(request, "evaluation_id"))
    return reply(await service_of(request).works.hear(evaluation_id, evaluations.keep, body))


_OF_MODEL, _ONE = "/v1/models/{model_id:path}/evaluations", "/v1/evaluations/{evaluation_id}"
EVALUATION_ROUTES = [
    Route(_OF_MODEL, evaluate, ["POST"], Role.TRAIN, "evaluate a checkpoint"),
    Route(_OF_MODEL, list_evaluations),
    Route(f"{_OF_MODEL}/tasks", usual_tasks),
    Route(_ONE, get_evaluation),
    Route(_ONE, keep_evaluation, ["PUT"], Role.TRAIN, "report an evaluation", False),
]

# Runs whose steps a client takes begin here; they and evaluations that a client makes report here.


async def drive(request: Request) -> Response:
    """A repeated request changes nothing."""
    body, job_id = await read(request, DriveRun), canonical_id("job", path(request, "job_id"))
    model = trainable(await parts_of(request).store.read(models.find, body.model_id))
    body = body.model_copy(update={"model_id": model.id})
    log_about(request, model=model.slug)
    return reply(await service_of(request).runner.drive(job_id, body))


async def report(request: Request) -> Response:
    body, parts = await read(request, DriveReport), parts_of(request)
    work_id = canonical_id("run or evaluation", path(request, "job_id"))
    if body.time is not None:
        body = body.model_copy(update={"time": _with_ids(body.time)})
    state = await service_of(request).works.hear(work_id, jobs.report, body)
    watch = parts.measured(work_id)
    if watch is not None and body.time is not None:
        watch.hear(body.time)
    if watch is not None and body.status != "running":
        watch.end()
    return reply(state)


def _with_ids(time: DriverTime) -> DriverTime:
    """With the ids of traces as they are stored; others are left out."""
    graded = {canonical(id_) or "": stretch for id_, stretch in time.graded.items()}
    ids = {
        reason: [known for known in map(canonical, trace_ids) if known]
        for reason, trace_ids in time.discarded.items()
        if reason in REASONS
    }
    return time.model_copy(update={"graded": graded, "discarded": ids})


_RUNS = "/v1/training/jobs"
_RUN = _RUNS + "/{job_id}"
RUN_ROUTES = [
    Route(_RUNS, submit, ["POST"], Role.TRAIN, "submit a run"),
    Route(_RUN + "/drive", drive, ["PUT"], Role.TRAIN, "drive a run"),
    Route(_RUN + "/drive", report, ["PATCH"], Role.TRAIN, "report on a run", False),
    Route(_RUNS + "/{ref:path}/raw-status", raw_status),
    Route(_RUN + "/resume", resume, ["POST"], Role.TRAIN, "resume a run or an evaluation"),
]


ADAM = {"learning_rate": (1e-12, 10.0), "eps": (1e-16, 1.0), "weight_decay": (0.0, 10.0)}
"""Smallest and largest parameters of the optimizer: beyond them 32 bits overflow, or it divides by
0."""


async def losses(request: Request) -> Response:
    await find_model(request)
    return reply({"losses": list(LOSSES), "config": CONFIG_DEFAULTS})


async def demonstration(request: Request) -> Response:
    """What somebody else said, as tokens of the policy; nothing is stored."""
    parts, body = parts_of(request), await read(request, Demonstration)
    tokens = await parts.tokenizer(await find_model(request))
    prompt, output = await beside(request, LONG, demonstrated, body, tokens)
    return reply({"prompt_token_ids": prompt, "output_token_ids": output})


async def forward_backward(request: Request) -> Response:
    parts, body = parts_of(request), await read(request, ForwardBackward)
    model = trainable(await find_model(request))
    check_loss(body.loss_fn)

    async def act(session: Session, asked: Asked | None) -> Any:
        batch = await _batch(parts, model, body, body.loss_fn)
        session.refuse_full(batch)
        kl = kl_of({"kl_coef": body.kl_coef, "kl_reference": body.kl_reference})
        passed = await session.forward_backward(batch, body.loss_fn, body.loss_fn_config, kl)
        return _passed(session, asked, *passed)

    return await answer(request, model, act)


async def forward(request: Request) -> Response:
    parts, body = parts_of(request), await read(request, Forward)
    model = trainable(await find_model(request))

    async def act(session: Session, asked: Asked | None) -> Any:
        batch = await _batch(parts, model, body, "custom")
        forward_id, logprobs = await session.forward(batch)
        return {"forward_id": forward_id, "data": _rows(batch, logprobs)}

    return await answer(request, model, act)


async def backward(request: Request) -> Response:
    body = await read(request, Backward)
    model = trainable(await find_model(request))

    async def act(session: Session, asked: Asked | None) -> Any:
        passed = session.passed(body.forward_id)
        session.refuse_full(passed.batch)
        weights = output_weights(passed.datums, body.weights)
        return _passed(session, asked, *await session.backward(passed, weights, body.metrics))

    return await answer(request, model, act)


async def optim_step(request: Request) -> Response:
    body = await read(request, OptimStep)
    model = trainable(await find_model(request))
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(body, name) < 1:
            raise bad_field(name, "must be at least 0 and below 1")
    for name, (least, most) in ADAM.items():
        if not least <= getattr(body, name) <= most:
            raise bad_field(name, f"must be a number from {least} to {most}")
    adam = Adam(**body.model_dump(exclude={"draw", "tasks"}))
    tasks = {key: count for key, count in (body.tasks or {}).items() if key in TASK_COUNTS}
    driven = driven_by(request)

    async def act(session: Session, asked: Asked | None) -> Any:
        job = await parts_of(request).store.read(works.active, model.id) if driven else None
        run = driven if job is not None and job["id"] == driven else None

        def keep(db: Db, node: Node) -> None:
            if asked is not None:
                replies.keep(db, model.id, StoredReply(asked, dumps(_stepped(node, model))))
            if run is not None:
                jobs.stepped(db, run, node.id)

        node = await session.optim_step(adam, run, finite(tasks), also=keep, draw=body.draw)
        return _stepped(node, model)

    return await answer(request, model, act)


def _passed(
    session: Session, asked: Asked | None, metrics: Mapping[str, float], count: int
) -> dict[str, Any]:
    """The answer to a gradient pass, kept with the gradients if it has a key."""
    body = {"metrics": metrics, "num_datums": count}
    if asked is not None:
        session.keep_answer(StoredReply(asked, dumps(body)))
    return body


def _stepped(node: Node, model: ModelRow) -> dict[str, Any]:
    return {
        "step": node.step,
        "checkpoint_id": node.id,
        "sampler_path": node.sampler_path,
        "state_path": node.state_path,
        "model": model.slug,
    }


async def _batch(
    parts: ServiceContext, model: ModelRow, body: ForwardBackward | Forward, loss_fn: str
) -> Batch:
    """The inputs, validated and weighted. Raises Refused, 400 or 422."""
    base = parts.base(model)
    check_scale(body.reward_scale)
    check_groups(len(body.inputs), body.group_size)
    trajectories, left_out = await parts.store.read(
        resolve, body.inputs, base.id, parts.origins, body.group_size
    )
    check_trajectories(trajectories, base, loss_fn)
    batch = make_batch(trajectories, body.group_size, loss_fn, body.reward_scale)
    return replace(batch, without_samples=left_out, reported=True)


def _rows(batch: Batch, logprobs: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """One row per turn, with lists over prompt and output that are 0 on the prompt."""
    rows, remaining = [], iter(logprobs)
    for index, trajectory in enumerate(batch.trajectories):
        for turn in trajectory.turns:
            zeros = [0.0] * len(turn.prompt)
            rows.append(
                {
                    "reward": trajectory.reward,
                    "traj_idx": index,
                    "group_idx": index // batch.group_size if batch.grouped else None,
                    "logprobs": [*zeros, *next(remaining)],
                    "sampling_logprobs": [*zeros, *turn.logprobs],
                    "mask": [*zeros, *([1.0] * len(turn.output))],
                }
            )
    return rows


_TRAIN = "/v1/models/{model_id:path}/train"
GRADIENTS = {"forward-backward": forward_backward, "forward": forward, "backward": backward}

TRAINING_ROUTES = [
    Route(f"{_TRAIN}/losses", losses),
    Route(f"{_TRAIN}/demonstration", demonstration, ["POST"]),
    *(
        Route(f"{_TRAIN}/{name}", call, ["POST"], Role.TRAIN, "compute gradients", False)
        for name, call in GRADIENTS.items()
    ),
    Route(f"{_TRAIN}/optim-step", optim_step, ["POST"], Role.TRAIN, "take a step"),
]

ROUTES = [*RUN_ROUTES, *EVALUATION_ROUTES, *TRAINING_ROUTES]
