"""The app over a service that stands still: given trees, a fixed clock, nothing to wait for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from hud_tui.client.guard import Guard
from hud_tui.events import Event, JobChanged, TreeRead
from hud_tui.settings import Start
from hud_tui.tui import session
from hud_tui.tui.app import HudApp, Options
from hud_tui.wire import Checkpoint, Group, Job, JobStatus, Model, RunPage, Trace
from hud_tui.wire_training import (
    Forward,
    ForwardDatum,
    ForwardResult,
    TraceEvent,
    TraceEvents,
    TurnSample,
)
from tests.tui.conftest import asked

NOW = 1_800_000_000.0
"""The clock of every still, Unix seconds."""
MODEL = Model(
    id="m-1",
    model_name="arith-rl",
    name="arith-rl",
    is_trainable=True,
    base_model="tiny/mixed-0.2M",
    checkpoint_count=1,
)


class StillFeed:
    """Yields its events, then nothing more for ever."""

    source, trouble, retry_at, reading = "stream", "", None, None
    behind_s = 0.0

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    @property
    def heard_at(self) -> float:
        return session.monotonic() - 0.5

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
        await asyncio.Event().wait()


class StillClient:
    """What the views ask of a client, answered from memory."""

    def __init__(self, tree: Sequence[Checkpoint], job: JobStatus | None = None) -> None:
        self.settings = SimpleNamespace(
            label="HUD local", local=True, data_dir="", web_url="http://hud", api_url="http://hud"
        )
        self.wire = SimpleNamespace(guard=Guard(), get=self._get)
        self.tree, self.job_now = tree, job

    def feed(self, model_id: str) -> StillFeed:
        events: list[Event] = [TreeRead(checkpoints=tuple(self.tree))]
        if self.job_now is not None:
            events.append(JobChanged(job=self.job_now))
        return StillFeed(events)

    def rl(self, path: str, *names: str) -> str:
        return path.format(*names)

    async def _get(self, url: str, kind: object) -> Any:
        """The evaluations of the model."""
        return []

    async def models(self) -> list[Model]:
        return [MODEL]

    async def jobs(self, limit: int = 200) -> list[Any]:
        return []

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        return RunPage(items=[], total=0, revision=1)

    async def known_job(self, job_id: str) -> JobStatus | None:
        return None

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        return list(self.tree)

    async def aclose(self) -> None:
        pass


def still(
    client: Any, command: str = "checkpoints", options: Options | None = None, **start: Any
) -> HudApp:
    """The app on a command's view, over a client."""

    async def connect(mode: str, key: str | None, progress: Callable[[str], None]) -> Any:
        return client

    begun = asked(Start(command, model="arith-rl", **start))
    return HudApp(connect, "local", begun, clock=lambda: NOW, options=options)


def step(
    position: int, parent: int, reward: float, head: bool = False, **fields: Any
) -> Checkpoint:
    """A checkpoint as the embedded service writes it, one every 5 s up to NOW."""
    made = datetime.fromtimestamp(NOW - 5 * fields.pop("ago", 0), UTC)
    means = {"add-7": reward, "sub-31": reward**2, "count-e": 1 - reward, "rev": reward / 2}
    metrics = {
        "loss:sum": -3.0 - reward,
        "reward_std": 0.24,
        "reward_min": 0.0,
        "reward_max": 1.0,
        "kl_sample_train": 0.003 + position % 5 / 5000,
        "entropy": 1.6 - reward,
        "clip_fraction": 0.05,
        "grad_norm": 0.8 + position % 3 / 10,
        "frac_reward_zero_std": reward / 4,
        "completion_length_mean": 4 + reward,
    }
    return Checkpoint(
        id=f"3f2b7c1e-0000-4000-8000-{position:012}",
        name=f"step-{position + 1:06}",
        prev_model_checkpoint_id=None if parent < 0 else f"3f2b7c1e-0000-4000-8000-{parent:012}",
        is_active=head,
        created_at=made.isoformat(),
        num_traces=128,
        num_datums=118,
        num_tokens=4812,
        mean_reward=reward,
        metrics=metrics,
        step=position + 1,
        job_id="7f3a9c00-0000-4000-8000-000000000000",
        groups=[Group(task_slug=slug, rewards=[mean, mean]) for slug, mean in means.items()],
        **{"learning_rate": 3e-4, "loss_fn": "importance_sampling", **fields},
    )


def reward_at(depth: int) -> float:
    """A curve that rises as a run's does, with noise that is always the same."""
    return round(min(0.98, 0.3 + 0.6 * (1 - 0.985**depth) + (depth * 7919 % 13 - 6) / 200), 4)


def chain(length: int) -> list[Checkpoint]:
    """A run of `length` steps that went straight on."""
    return [
        step(i, i - 1, reward_at(i), head=i == length - 1, ago=length - i) for i in range(length)
    ]


def branched() -> list[Checkpoint]:
    """A run, a bad branch that was left, one on that, and the run that was continued."""
    tree = [step(i, i - 1, reward_at(i), ago=170 - i) for i in range(100)]
    tree += [
        step(
            i, i - 1, reward_at(100) - (i - 99) / 40, ago=170 - i, loss_fn="ppo", learning_rate=1e-3
        )
        for i in range(100, 112)
    ]
    tree += [
        step(i, 105 if i == 112 else i - 1, 0.5 + i % 3 / 50, ago=170 - i, loss_fn="cispo")
        for i in range(112, 116)
    ]
    tree += [
        step(i, 99 if i == 116 else i - 1, reward_at(i), head=i == 169, ago=170 - i)
        for i in range(116, 170)
    ]
    return tree


JOB_ID = "7f3a9c00-0000-4000-8000-000000000000"


class StillJobs(StillClient):
    """A client with a run that trains, one that ended, and one that a client reported."""

    async def jobs(self, limit: int = 200) -> list[Job]:
        return [self.run_of(JOB_ID, "running", 12), *self.older()]

    def older(self) -> list[Job]:
        made = datetime.fromtimestamp(NOW - 86_400, UTC).isoformat()
        ended = self.run_of("2b11d0e2-0000", "succeeded", 400, 7200)
        own = Job(id="c0ffee00-0000", name="my evaluation", status="completed", created_at=made)
        return [ended, own]

    def run_of(self, job_id: str, status: str, step: int, ago: float = 95.0) -> Job:
        return Job(
            id=job_id,
            name="mixed on arith-rl",
            status=status,
            created_at=datetime.fromtimestamp(NOW - ago, UTC).isoformat(),
            metadata={"kind": "training", "model": "arith-rl", "step": step, "steps": 400},
        )

    async def job(self, job_id: str) -> Job:
        return next(job for job in await self.jobs() if job.id == job_id)

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        tasks = {"add-86-34": "120", "reverse-ocean": "naeco", "count_letter-e-cheese": "3"}
        return [
            self.sampled(step or 0, slug, rollout, right)
            for slug, right in tasks.items()
            for rollout in range(8)
        ]

    def sampled(self, step: int, slug: str, rollout: int, right: str) -> Trace:
        wrong = (len(slug) * 3 + rollout * 5) % 8 < {"add-86-34": 3, "reverse-ocean": 0}.get(
            slug, 4
        )
        said = "\x1b[31m2\x1b[0m" if wrong and rollout == 7 else "121" if wrong else right
        return Trace(
            id=f"{slug}-{rollout}",
            task_slug=slug,
            step=step,
            rollout=rollout,
            reward=(0.4 if rollout % 2 else 0.0) if wrong else 1.0,
            completion=said,
            stop_reason="length" if wrong and rollout == 3 else "done",
            num_tokens=len(said) + 1,
        )

    async def trace(self, trace_id: str) -> Trace:
        [trace] = [t for t in await self.job_traces(JOB_ID, 13) if t.id == trace_id]
        parts = [{"name": "exact", "value": trace.reward, "weight": 1.0}]
        return trace.model_copy(update={"evaluation_result": {"subscores": parts}})

    async def forward(self, model_id: str, body: Forward) -> ForwardResult:
        """The policy of now finds every second token likelier, and the others less likely."""
        [events] = [await self.trace_events(str(trace_id)) for trace_id in body.inputs]
        sample = events.events[-1].sample
        assert sample is not None
        sampled = sample.output_logprobs
        now = [p + (0.3 if i % 2 else -0.5) for i, p in enumerate(sampled)]
        datum = ForwardDatum(
            reward=1.0, traj_idx=0, logprobs=now, sampling_logprobs=sampled, mask=[1.0] * len(now)
        )
        return ForwardResult(forward_id="f", data=[datum])

    async def trace_events(self, trace_id: str) -> TraceEvents:
        slug, _, rollout = trace_id.rpartition("-")
        [trace] = [t for t in await self.job_traces(JOB_ID, 13) if t.id == trace_id]
        answer = trace.completion or ""
        sample = TurnSample(
            output_token_ids=list(range(len(answer) + 1)),
            output_logprobs=[-0.02 - 0.31 * (i * int(rollout) % 5) for i in range(len(answer) + 1)],
        )
        asked = f"Answer with the result only.\n{slug.replace('-', ' ')} = ?"
        return TraceEvents(
            events=[
                TraceEvent(id="0", seq=0, kind="user_message", text=asked),
                TraceEvent(
                    id="1", seq=1, kind="agent_message", text=answer, sample=sample,
                    tokens=[*answer, "[end]"],
                ),
            ]
        )  # fmt: skip
