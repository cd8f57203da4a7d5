"""One run, made up once and always the same: what the scenes show of it.

It has the shape of a real run on the `mixed` taskset: rewards that rise, hopeless and
saturated tasks, a branch that went wrong and was left, held-out tasks every few steps.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from math import exp
from statistics import fmean, pstdev
from typing import Any

from hud_tui.events import Act, Actor, HeadMoved
from hud_tui.remote.facts import Facts, Gpu
from hud_tui.remote.machines import Machine
from hud_tui.remote.ssh import Address
from hud_tui.rl.evaluation import summarize
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.timeline import FAILED, TIMEOUT, ZERO_VARIANCE
from hud_tui.service.engines.tiny.engine import BASES
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS
from hud_tui.service_file import Rental
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Job, Model, WorkState
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_runs import RunRecord, RunSteps
from hud_tui.wire_time import Discarded, RunTime, StepTime, TimedRollouts, TimedSpan
from hud_tui.wire_training import TraceEvent, TurnSample

NOW = 1_800_000_000.0
"""The clock of every scene, Unix seconds."""
STEP_S = 0.35
STEPS = 600
GROUP, WIDE = 8, 16
"""Rollouts a group, groups a step."""
LEFT, WRONG, TAKEN = 148, 14, 214
"""The step the wrong branch grew from, its length, and the steps taken in all but it."""
JOB_ID = "7f3a52c1-9d04-4c11-8f6e-2b1d90a4c7e3"
DEFAULTS = {
    "learning_rate": 2e-4,
    "group_size": GROUP,
    "max_tokens": 20,
    "tasks_per_step": WIDE,
    "steps": STEPS,
}


def noise(*seed: int) -> float:
    """A number in [0, 1) that looks random and never changes."""
    mixed = 2_166_136_261
    for part in seed:
        mixed = (mixed ^ (part + 0x9E37)) * 16_777_619 % 2**32
        mixed ^= mixed >> 13
    return (mixed * 2_654_435_761 % 2**32) / 2**32


def stamp(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).isoformat()


def model(number: int, slug: str, ago_s: float, base: str | None = None, steps: int = 0) -> Model:
    described = next((one.description for one in BASES if one.name == slug), None)
    return Model.model_validate(
        {
            "description": described,
            "id": f"0d4e{number:04}-0000-4000-8000-000000000000",
            "model_name": slug,
            "name": slug,
            "is_trainable": True,
            "sdk_agent_type": "openai_compatible",
            "provider": {"name": "tiny"},
            "created_at": stamp(ago_s),
            "checkpoint_count": steps,
            "training_defaults": DEFAULTS,
            "base_model": base or slug,
            "forked_from": base,
        }
    )


MIXED = model(1, "mixed-rl", 960, "tiny/mixed-0.2M", TAKEN + WRONG)
MODELS = (
    MIXED,
    model(2, "letters-first", 7200, "tiny/mixed-0.2M", 120),
    model(3, "arith-ppo", 90_000, "tiny/arith-0.2M", 24),
    model(4, "arith-rl", 260_000, "tiny/arith-0.2M", 60),
    model(5, "tiny/mixed-0.2M", 600_000),
    model(6, "tiny/arith-0.2M", 600_000),
    model(7, "tiny/agent-1M", 600_000),
)


@cache
def tasks() -> tuple[Task, ...]:
    """The tasks of `mixed` that are trained on."""
    rows = read_rows(TASKSETS["mixed"].tasks)
    return tuple(task for task in rows if not task.heldout)


def chosen(step: int) -> Sequence[int]:
    """Which tasks a step samples."""
    ranked = sorted(range(len(tasks())), key=lambda at: noise(at, step // 11))
    begin = step % 11 * WIDE % (len(ranked) - WIDE)
    return sorted(ranked[begin : begin + WIDE])


def skill(step: int, at: int) -> float:
    """How often a task is solved: some never, some always, most at a pace of their own."""
    if at >= len(tasks()) - 12:
        return 0.0 if at % 2 else 1.0
    top = 1.05 - 0.5 * noise(at, 7) ** 2
    return top - (top - 0.15) * exp(-step / (25 + 70 * noise(at)))


def rewards(step: int, at: int) -> list[float]:
    """One group's rewards: right, right but wordy, nearly right, or nothing."""
    drawn = [noise(step, at, rollout) for rollout in range(GROUP)]
    able = skill(step, at)
    return [
        1.0 if d < able else 0.2 if d < able + 0.3 * (1 - able) else 0.1 if able else 0.0
        for d in drawn
    ]


def groups(step: int, wrong: float = 0.0) -> list[Group]:
    """The step's groups; `wrong` is how far a bad branch has sunk."""
    return [
        Group(
            task_slug=tasks()[at].slug,
            rewards=[reward * (1 - wrong) for reward in rewards(step, at)],
            trace_ids=[trace_id(step, at, rollout) for rollout in range(GROUP)],
        )
        for at in chosen(step)
    ]


def trace_id(step: int, at: int, rollout: int) -> str:
    return f"{step:08x}-{at:04x}-4000-8000-{rollout:012x}"


def metrics(step: int, flat: Sequence[float], even: Sequence[bool]) -> dict[str, float]:
    """What the embedded service reports of a step."""
    fall = exp(-step / 90)
    found = {
        "reward_mean": fmean(flat),
        "reward_std": pstdev(flat),
        "reward_min": min(flat),
        "reward_max": max(flat),
        "loss:sum": -6 * fall + 2 * noise(step, 1),
        "kl_sample_train": 0.0012 + 0.0015 * noise(step, 2),
        "ratio_max": 1.1 + 0.3 * noise(step, 3),
        "clip_fraction": 0.03 + 0.05 * noise(step, 4),
        "entropy": 0.22 + 0.75 * fall + 0.05 * noise(step, 5),
        "grad_norm": 0.7 + 0.8 * fall + 0.4 * noise(step, 6),
        "learning_rate": 2e-4,
        "frac_reward_zero_std": fmean(even),
        "completion_length_mean": 4.2 + 3.1 * fall + 0.3 * noise(step, 7),
        "truncated_share": 0.06 * fall,
        "tokens": 640 + 300 * fall,
        "tokens_per_s": 38_000 + 5000 * noise(step, 8),
    }
    if step % 5 == 0:
        found["heldout_reward"] = 0.9 * fmean(flat) + 0.04 * noise(step, 9)
        found["num_heldout_traces"] = 48.0
    return found


def checkpoint(step: int, parent: int, ago_s: float, wrong: float = 0.0) -> Checkpoint:
    own = groups(step, wrong)
    flat = [reward for group in own for reward in group.rewards]
    even = [len(set(group.rewards)) == 1 for group in own]
    return Checkpoint(
        id=node_id(step),
        name=f"step-{step:06}",
        checkpoint_name=f"tiny://{node_id(step)}/sampler",
        prev_model_checkpoint_id=node_id(parent) if parent else None,
        is_active=step == TAKEN + WRONG,
        created_at=stamp(ago_s),
        num_traces=len(flat),
        num_datums=sum(len(g.rewards) for g, flat_ in zip(own, even, strict=True) if not flat_),
        num_tokens=int(640 + 300 * exp(-step / 90)),
        mean_reward=round(fmean(flat), 4),
        learning_rate=1e-3 if wrong else 2e-4,
        loss_fn="ppo" if wrong else "importance_sampling",
        metrics=metrics(step, flat, even),
        step=step,
        job_id=JOB_ID,
        groups=own,
    )


def node_id(step: int) -> str:
    return f"c0ffee00-0000-4000-8000-{step:012}"


@cache
def tree() -> tuple[Checkpoint, ...]:
    """The run: straight on, a wrong branch, then on from before it."""
    nodes = []
    for step in range(1, TAKEN + WRONG + 1):
        on_branch = LEFT < step <= LEFT + WRONG
        parent = LEFT if step == LEFT + WRONG + 1 else step - 1
        wrong = 0.04 * (step - LEFT) if on_branch else 0.0
        nodes.append(checkpoint(step, parent, 0.2 + STEP_S * (TAKEN + WRONG - step), wrong))
    return tuple(nodes)


def moves() -> tuple[HeadMoved, ...]:
    """Moves of the head: one that was undone, then the one back from the wrong branch."""
    app, other = Actor(program="app", host="laptop"), Actor(program="headless", host="tower")
    return (
        moved(100, 60, 0.3, app),
        moved(60, 100, 0.6, app, Act.UNDO),
        moved(LEFT + WRONG, LEFT, 0.5, other),
    )


def moved(before: int, to: int, later: float, by: Actor, act: Act = Act.SET) -> HeadMoved:
    """A move so many steps' time after the newer of its ends."""
    ago_s = 0.2 + STEP_S * (TAKEN + WRONG - max(before, to) - later)
    ends = tree()[before - 1].id, tree()[to - 1].id
    return HeadMoved(
        at=NOW - ago_s, previous=ends[0], checkpoint_id=ends[1], cause="set", act=act, by=by
    )


EVALUATED = {0: -0.2, LEFT: 0.1, LEFT + WRONG + 20: 0.42, TAKEN + WRONG: 0.0}
"""Steps that were evaluated, 0 for the base, and how much more often each solves a task."""
SAMPLES = 4


@cache
def evaluations() -> tuple[WorkState, ...]:
    """What was evaluated, with the rewards by task."""
    held = [task for task in read_rows(TASKSETS["mixed"].tasks) if task.heldout]
    return tuple(
        evaluation(number, step, gain, [task.slug for task in held])
        for number, (step, gain) in enumerate(EVALUATED.items())
    )


def evaluation(number: int, step: int, gain: float, slugs: Sequence[str]) -> WorkState:
    """One evaluation of a step; the same random numbers for the same task in each."""
    groups = [
        Group(
            task_slug=slug,
            rewards=[
                1.0 if noise(at, rollout, 77) < 0.35 + 0.5 * noise(at, 91) + gain else 0.2
                for rollout in range(SAMPLES)
            ],
        )
        for at, slug in enumerate(slugs)
    ]
    id_ = f"e7a1{number:04}-0000-4000-8000-000000000000"
    told = {"id": id_, "job_id": id_, "name": "mixed", "max_tokens": 20, "temperature": 1.0}
    found = summarize(groups).model_copy(update={**told, "created_at": stamp(40 - number)})
    return WorkState(
        kind="evaluation",
        id=id_,
        job_id=id_,
        model_id=MIXED.id,
        model="mixed-rl",
        checkpoint_id=node_id(step) if step else None,
        checkpoint=f"step-{step:06}" if step else None,
        status="succeeded",
        name="mixed",
        samples=SAMPLES,
        num_tasks=len(slugs),
        done=SAMPLES * len(slugs),
        total=SAMPLES * len(slugs),
        mean_reward=found.mean_reward,
        parameters={"max_tokens": 20, "temperature": 1.0, "seed": 0, "solved_at": 1.0},
        created_at=found.created_at,
        finished_at=found.created_at,
        seconds=6.4,
        result=found,
        groups=groups,
    )


def other_tree(model_id: str) -> list[Checkpoint]:
    """The tree of a model that is not followed: the beginning of the same run."""
    steps = next(min(m.checkpoint_count or 0, LEFT) for m in MODELS if m.id == model_id)
    nodes = list(tree()[:steps])
    reward = round(0.9 * (nodes[-1].mean_reward or 0), 4)
    ended = [Evaluation(mean_reward=reward, num_tasks=48, num_traces=48)]
    last = nodes[-1].model_copy(update={"is_active": True, "evaluations": ended})
    return [*nodes[:-1], last]


def run_status() -> WorkState:
    return WorkState(
        status="running",
        model="mixed-rl",
        id=JOB_ID,
        name="mixed on mixed-rl",
        model_id=MIXED.id,
        created_at=NOW - STEP_S * TAKEN,
        step=TAKEN,
        steps=STEPS,
        parameters={**DEFAULTS, "loss_fn": "importance_sampling", "temperature": 1.0, "seed": 0},
    )


def job(number: int, name: str, status: str, ago_s: float, step: int, steps: int) -> Job:
    return Job.model_validate(
        {
            "id": JOB_ID
            if number == 0
            else f"{0x41C2 + number * 0x1F35:04x}52c1-9d04-4c11-8f6e-{number:012}",
            "name": name,
            "status": status,
            "created_at": stamp(ago_s),
            "group_size": GROUP,
            "metadata": {
                "kind": "training",
                "model": name.rpartition(" ")[2],
                "model_id": MIXED.id,
                "step": step,
                "steps": steps,
            },
        }
    )


JOBS = (
    job(0, "mixed on mixed-rl", "running", STEP_S * TAKEN, TAKEN, STEPS),
    job(1, "mixed on mixed-rl", "cancelled", 400, LEFT + WRONG, STEPS),
    job(2, "text on letters-first", "succeeded", 7000, 120, 120),
    job(3, "arith on arith-ppo", "interrupted", 88_000, 24, 120),
    job(4, "arith on arith-rl", "succeeded", 259_000, 60, 60),
)


def traces(step: int) -> list[Trace]:
    return [
        Trace(
            id=trace_id(step, at, rollout),
            job_id=JOB_ID,
            status="completed",
            created_at=stamp(1.0),
            task_slug=tasks()[at].slug,
            reward=reward,
            stop_reason="stop",
            group_id=f"{step}-{at}",
            step=step,
            rollout=rollout,
            completion=completion(at, reward, rollout),
            num_tokens=len(completion(at, reward, rollout)) + 1,
            heldout=False,
        )
        for at in chosen(step)
        for rollout, reward in enumerate(rewards(step, at))
    ]


TIMED_S = 12.0
"""Seconds of a step whose time is shown, as of a run on an environment."""


def step_time(step: int) -> StepTime:
    """Where the time of a step went: rollouts of different lengths, some without a gradient, with
    an evaluation at every sixth."""
    bars, start = [], NOW - TIMED_S * (TAKEN + 1 - step)
    for place, at in enumerate(chosen(step)[:12]):
        own = rewards(step, at)
        flat = ZERO_VARIANCE if len(set(own)) == 1 else ""
        for rollout in range(len(own)):
            seconds = 1.6 + 0.31 * ((7 * at + 5 * rollout + step) % 11) + 0.5 * (rollout == 7)
            begin = 0.3 + 0.04 * place + 0.1 * (rollout % 4)
            slug, id_ = tasks()[at].slug, trace_id(step, at, rollout)
            reason = TIMEOUT if (at + step) % 13 == 0 and rollout == 7 else flat
            bars.append(
                TimedRollouts(id_, slug, begin, seconds, 1, reason, 0.4 * seconds, 0.1 * seconds)
            )
    spans = [
        TimedSpan("wait_disk", 0.0, 0.25),
        TimedSpan("wait_engine", 0.25, 0.35),
        *(TimedSpan("sampling", 0.6 + 0.4 * n, 0.3, 4 + (n * 7 + step) % 20) for n in range(13)),
        TimedSpan("environment", 0.4, 6.1, 14),
        TimedSpan("grading", 2.4, 4.0, 3),
        TimedSpan("forward_backward", 6.8, 2.4),
        TimedSpan("optim_step", 9.2, 0.5),
        TimedSpan("saving", 9.7, 0.4),
        TimedSpan("evaluating" if step % 6 == 0 else "wait_queue", 10.1, 1.8),
    ]
    return StepTime(
        run_id=JOB_ID,
        step=step,
        checkpoint_id=f"step-{step}",
        start=start,
        end=start + TIMED_S,
        spans=spans,
        rollouts=bars,
    )


def run_time(last: int, checkpoint_id: str | None) -> RunTime:
    steps = range(TAKEN - last + 1, TAKEN + 1)
    if checkpoint_id is not None:
        steps = range(TAKEN, TAKEN + 1)
    reasons = {ZERO_VARIANCE: 9_212, TIMEOUT: 61, FAILED: 24}
    times = [step_time(step) for step in steps]
    return RunTime(run_id=JOB_ID, steps=times, total=TAKEN, discarded=reasons)


def discarded() -> list[Discarded]:
    return [
        Discarded(
            trace_id=bar.trace_id,
            reason=bar.reason,
            step=time.step,
            attempt=1,
            task_slug=bar.task_slug,
            reward=0.0 if bar.reason == TIMEOUT else 1.0,
            num_tokens=40 + len(bar.task_slug),
            seconds=bar.seconds,
        )
        for time in reversed(run_time(8, None).steps)
        for bar in time.rollouts
        if bar.reason
    ]


def completion(at: int, reward: float, rollout: int) -> str:
    """A text that would earn about this reward."""
    task = tasks()[at]
    answer = ENVIRONMENTS[task.env].scenarios[task.scenario].answer(task.args)
    if reward == 1.0:
        return answer
    if reward == 0.2:
        return f"It is {answer}."
    return answer[:-1] + str(rollout) if len(answer) > 1 else "I do not know."


def turns(id_: str) -> list[TraceEvent]:
    """The prompt and the completion of a rollout."""
    step, at, rollout = int(id_[:8], 16), int(id_[9:13], 16), int(id_[-12:], 16)
    task = tasks()[at]
    prompt = ENVIRONMENTS[task.env].scenarios[task.scenario].prompt(task.args)
    said = completion(at, rewards(step, at)[rollout], rollout)
    letters = [*said, "⏎"]
    logprobs = [-0.02 - 0.9 * noise(step, at, rollout, place) ** 4 for place in range(len(letters))]
    sample = TurnSample(
        prompt_token_ids=[ord(letter) % 128 for letter in prompt],
        output_token_ids=[ord(letter) % 128 for letter in letters],
        output_logprobs=logprobs,
    )
    return [
        TraceEvent(id="1", seq=0, kind="user_message", text=prompt),
        TraceEvent(id="2", seq=1, kind="agent_message", text=said, tokens=letters, sample=sample),
    ]


def environment(name: str) -> dict[str, Any] | None:
    found = ENVIRONMENTS.get(name)
    return found and {"registry_id": name, "scenarios": list(found.scenarios)}


def run_reward(number: int, step: int) -> float:
    """Mean reward of a step of one of the runs in the table."""
    pace, top = 18.0 + 9 * (number % 4), 0.9 - 0.07 * (number % 5)
    return round(0.2 + (top - 0.2) * (1 - exp(-step / pace)) + 0.06 * noise(number, step) - 0.03, 4)


def run_record(number: int, **more: Any) -> RunRecord:
    steps = more.get("step", 120)
    points = [run_reward(number, 1 + step) for step in range(0, steps, max(1, steps // 30))]
    mean = points[-1] - 0.04
    evaluation = Evaluation(
        mean_reward=mean,
        num_tasks=48,
        num_traces=192,
        samples=4,
        mean=Estimate(value=mean, low=mean - 0.05, high=mean + 0.05),
    )
    ended = more.get("status", "succeeded") == "succeeded"
    return RunRecord.model_validate(
        {
            "id": f"{0x51C2 + number * 0x1F35:04x}52c1-9d04-4c11-8f6e-{number:012}",
            "name": f"mixed on sweep-{number}",
            "status": "succeeded",
            "model_id": f"run-model-{number}",
            "model": f"mixed-rl-sweep-{number}",
            "base": "tiny/mixed-0.2M",
            "engine": "tiny",
            "start": "mixed-rl@step-000060",
            "taskset": "mixed",
            "step": 120,
            "steps": 120,
            "created_at": NOW - 3600 * number - 300,
            "stepped_at": NOW - 3600 * number,
            "busy_s": 42.0 + number,
            "step_s": (42.0 + number) / 120,
            "reward_first": points[0],
            "reward_last": points[-1],
            "points": points,
            "heldout": mean if ended else None,
            "evaluation": evaluation if ended else None,
            "rollouts": 15_360,
            "no_gradient": 0.08 * (number % 4),
            "tokens": 190_000,
            "alarms": 0,
            **more,
        }
    )


def _given(lr: float, group: int, seed: int = 0, **more: Any) -> dict[str, Any]:
    given = {"steps": 120, "tasks_per_step": WIDE, "loss_fn": "ppo", "seed": seed}
    return {**given, "learning_rate": lr, "group_size": group, **more}


def _swept(number: int, lr: float, group: int) -> RunRecord:
    named = f"mixed-rl-sweep-lr{lr:g}-group{group}"
    given = _given(lr, group, sweep="mixed-rl-sweep")
    return run_record(number, name=f"mixed on {named}", model=named, parameters=given)


RUNS = (
    run_record(
        0,
        id=JOB_ID,
        name="mixed on mixed-rl",
        model_id=MIXED.id,
        model="mixed-rl",
        status="running",
        step=TAKEN,
        steps=STEPS,
        parameters=_given(2e-4, GROUP),
        alarms=1,
        alarm="warn",
        alarm_title="entropy",
        start=None,
    ),
    _swept(1, 1e-4, 8),
    _swept(2, 3e-4, 8),
    _swept(3, 1e-4, 16),
    _swept(4, 3e-4, 16),
    run_record(5, name="baseline", parameters=_given(2e-4, GROUP, 1), model="letters-first"),
    run_record(
        6, parameters=_given(1e-3, GROUP), status="failed", step=31, alarms=2, alarm="critical"
    ),
    run_record(7, kind="reported", name=None, status="", model="own-loop", steps=None, alarms=None),
)
"""The table of runs, newest first."""

GPUS = Facts(
    os="Linux",
    arch="x86_64",
    cores=52,
    memory_bytes=450 << 30,
    free_bytes=800 << 30,
    cuda="12.8",
    gpus=(Gpu("NVIDIA H100 80GB HBM3", "570", 81_559, 0, 0),) * 2,
)
HOST = Machine(
    "gpubox", Address("gpubox"), "skyrl-ray", "Qwen/Qwen3-4B", root="/r", local_port=4711,
    facts=GPUS, done=("server", "health", "tokenizer"),
)  # fmt: skip
"""Set up, and in use."""
POD = Rental("hud-a100-1", "pod1", "1×A100", price_hr=1.5, hours=4, at=NOW - 7200)
LINE = {
    "pid": 1,
    "state": "up",
    "since": NOW - 5000,
    "latency_s": 0.0231,
    "breaks": 1,
    "pulse": {"gpus": ["90,40960,81920", "80, 20480, 81920"], "free_kb": 800_000_000},
}
"""The tunnel to the host, as its process last wrote it."""


def run_steps(run_id: str, after: int, keys: Sequence[str]) -> RunSteps:
    number, record = next((n, one) for n, one in enumerate(RUNS) if one.id == run_id)
    steps = range(after + 1, record.step + 1)
    return RunSteps(
        step=list(steps),
        at=[NOW - 3600 * number - STEP_S * (record.step - step) for step in steps],
        tokens=[1580 + number for _ in steps],
        checkpoint_id=[f"{number}-{step}" for step in steps],
        metrics={key: [run_reward(number, step) for step in steps] for key in keys},
        total=record.step,
    )
