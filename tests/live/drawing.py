"""What drawing tasks by signal, and filling batches, save: rollouts and seconds to a held-out
reward.

Run: python -m tests.live.drawing [--tasksets flat long late] [--seeds 3]

Trains ``tiny/mixed-0.2M`` without a service, with each way to draw. `flat` is a taskset of which
four in five tasks are hopeless or solved; `long` the built-in one; `late` goes on where `--late`
steps of `mixed` ended. Held-out rewards are means of 48 tasks × 8 rollouts per point and seed.
Seconds are processor time of sampling and training, without evaluations. The held-out curves of
all seeds together are compared at rewards that every way reaches. About ten minutes of one core.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from hud_tui.rl.drawing import Drawing, draw
from hud_tui.rl.groups import has_signal
from hud_tui.rl.metrics import SIGNAL
from hud_tui.service.batches import make_batch
from hud_tui.service.engine_rollouts import Rollout, grade_all, training_requests
from hud_tui.service.engines.base import Adam, Handle
from hud_tui.service.engines.tiny.engine import CONTEXT, TinyEngine
from hud_tui.service.environments import (
    PAIRS,
    SHORT,
    TASKSETS,
    WORDS,
    TaskRow,
    _letters,
    _numbers,
    each,
    rows,
)
from hud_tui.service.run_plan import Plan, Planned, make_plan
from hud_tui.wire import BASE as NOBODY

BASE = "tiny/mixed-0.2M"
FILL = "fill"
WAYS = ("uniform", SIGNAL, FILL, f"{SIGNAL}+{FILL}")
ROUNDS = 3
"""Most further rounds that fill a batch up."""
HELDOUT, SAMPLES = 48, 8


def flat_tasks() -> list[TaskRow]:
    """42 tasks that teach, 80 hopeless and 80 solved ones; 48 held-out ones that teach."""
    teach = [*each("arith", PAIRS, 7, 8), *each("text", SHORT, 7, 8)]
    hopeless = [
        *rows("arith", "add", lambda random: _numbers(random, 10**7), 40),
        *rows("text", "reverse", lambda random: {"text": "".join(random.sample(WORDS, 5))}, 40),
    ]
    return [*teach, *hopeless, *rows("text", "uppercase", _letters(1, 3), 80)]


@dataclass
class Point:
    rollouts: float
    seconds: float
    reward: float


@dataclass
class Trial:
    """One run."""

    engine: TinyEngine
    plan: Plan
    tokens: Any
    way: str
    directory: Path
    handle: Handle = ""
    iteration: int = 0
    rollouts: int = 0
    flat: int = 0
    """Groups without variance."""
    seconds: float = 0.0
    state: str = ""
    """The file of its last step."""
    batches: list[list[tuple[str, list[float]]]] = field(default_factory=list)
    """The groups of each iteration: task and rewards."""

    def __post_init__(self) -> None:
        by = {"draw": SIGNAL if SIGNAL in self.way else "uniform"}
        self.drawing = Drawing({**self.plan.parameters, **by})

    def go_on_after(self, other: "Trial") -> None:
        """Begin where another one ended."""
        self.iteration = other.iteration
        for iteration, groups in enumerate(other.batches):
            self.saw(iteration, groups)

    def saw(self, iteration: int, groups: list[tuple[str, list[float]]]) -> None:
        self.batches.append(groups)
        self.drawing.saw(iteration, groups)

    async def sample(self, tasks: Sequence[Planned], size: int, iteration: int) -> list[Rollout]:
        wanted = [(task, index) for task in tasks for index in range(size)]
        requests = training_requests(wanted, self.plan.parameters, iteration, CONTEXT)
        sampled = await self.engine.sample(self.handle, requests)
        return grade_all(wanted, sampled, self.tokens, lambda task, j: f"{task.slug} {j}")

    async def batch(self) -> list[Rollout]:
        """Sample a batch; with `fill`, more tasks until enough groups have variance."""
        parameters = self.plan.parameters
        size, missing = parameters["group_size"], parameters["tasks_per_step"]
        tasks = self.drawing.tasks_of(self.plan.train, self.iteration)
        rollouts: list[Rollout] = []
        groups: list[tuple[str, list[float]]] = []
        for number in range(1, 2 + ROUNDS * (FILL in self.way)):
            made = await self.sample(tasks, size, self.iteration)
            rollouts += made
            for first, task in zip(range(0, len(made), size), tasks, strict=True):
                rewards = [rollout.reward for rollout in made[first : first + size]]
                groups.append((task.slug, rewards))
                missing -= has_signal(rewards)
                self.flat += not has_signal(rewards)
            drawn = {slug for slug, _ in groups}
            rest = [task for task in self.plan.train if task.slug not in drawn]
            if missing <= 0 or not rest:
                break
            weights = [self.drawing.weight(t.slug) if self.drawing.by else 1.0 for t in rest]
            random = Random(f"{parameters['seed']} {self.iteration} {number}")
            tasks = draw(rest, weights, missing, random)
        self.rollouts += len(rollouts)
        self.saw(self.iteration, groups)
        self.iteration += 1
        return rollouts

    async def step(self) -> None:
        start = processor()
        parameters = self.plan.parameters
        rollouts = await self.batch()
        trajectories = [rollout.trajectory(1.0, NOBODY) for rollout in rollouts]
        batch = make_batch(trajectories, parameters["group_size"], "importance_sampling")
        if batch.datums():
            await self.engine.forward_backward(
                self.handle, batch.all_datums(), "importance_sampling", {}
            )
            adam = Adam(learning_rate=parameters["learning_rate"])
            saved = await self.engine.optim_step(self.handle, adam, self.directory)
            self.state = saved.state_path
        self.seconds += processor() - start

    async def heldout(self) -> float:
        tasks = self.plan.heldout[:: max(1, len(self.plan.heldout) // HELDOUT)][:HELDOUT]
        rollouts = await self.sample(tasks, SAMPLES, 10**6)
        return fmean(rollout.reward for rollout in rollouts)

    async def points(self, steps: int, every: int) -> list[Point]:
        found = [Point(0, 0.0, await self.heldout())]
        for number in range(1, steps + 1):
            await self.step()
            if number % every == 0:
                found.append(Point(self.rollouts, self.seconds, await self.heldout()))
        return found


def processor() -> float:
    """Seconds of processor that this process and those below it took."""
    below: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    waiting, total = [os.getpid()], 0.0
    while waiting:
        pid = waiting.pop()
        total += seconds[pid]
        waiting += below.get(pid, [])
    return total


async def measured(taskset: str, args: argparse.Namespace) -> None:
    task_rows = (
        flat_tasks()
        if taskset == "flat"
        else TASKSETS["mixed" if taskset == "late" else taskset].tasks
    )
    curves: dict[str, list[list[Point]]] = {way: [] for way in args.ways}
    engine = TinyEngine()
    await engine.start()
    [base] = [base for base in engine.bases() if base.name == BASE]
    tokens = await engine.tokenizer(BASE)
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(args.seeds):
            parameters = {
                **{"seed": seed, "group_size": 8, "tasks_per_step": args.tasks_per_step},
                **{"temperature": 1.0, "max_tokens": 20, "learning_rate": args.lr},
            }
            plan = make_plan(parameters, list(task_rows), base, tokens)
            before = Trial(engine, plan, tokens, "uniform", Path(directory))
            if taskset == "late":
                before.handle = await engine.open(BASE)
                for _ in range(args.late):
                    await before.step()
                await engine.close(before.handle)
            for way in args.ways:
                trial = Trial(engine, plan, tokens, way, Path(directory))
                trial.go_on_after(before)
                trial.handle = await engine.open(Path(before.state) if before.state else BASE)
                points = await trial.points(args.steps, args.every)
                await engine.close(trial.handle)
                curves[way].append(points)
                text = " ".join(f"{point.reward:.3f}" for point in points)
                share = trial.flat * 8 / trial.rollouts
                print(
                    f"{taskset} {seed} {way:12} flat {share:.2f} rollouts {trial.rollouts}"
                    f" {trial.seconds:.1f} s: {text}",
                    flush=True,
                )
    await engine.stop()
    report(taskset, {way: together(found) for way, found in curves.items()})


def together(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean of several seeds, point by point."""
    return [
        Point(
            *(fmean(getattr(p, name) for p in points) for name in ("rollouts", "seconds", "reward"))
        )
        for points in zip(*curves, strict=True)
    ]


def smooth(curve: Sequence[Point]) -> list[Point]:
    return [
        Point(p.rollouts, p.seconds, fmean(q.reward for q in curve[max(0, i - 1) : i + 2]))
        for i, p in enumerate(curve)
    ]


def reached(curve: Sequence[Point], reward: float) -> Point | None:
    """Where a curve first passes a reward, interpolated."""
    for a, b in pairwise(curve):
        if a.reward < reward <= b.reward:
            t = (reward - a.reward) / (b.reward - a.reward)
            return Point(
                a.rollouts + t * (b.rollouts - a.rollouts),
                a.seconds + t * (b.seconds - a.seconds),
                reward,
            )
    return None


def report(taskset: str, curves: dict[str, list[Point]]) -> None:
    smoothed = {way: smooth(curve) for way, curve in curves.items()}
    low = max(curve[0].reward for curve in smoothed.values())
    high = min(max(p.reward for p in curve) for curve in smoothed.values())
    for share in (0.5, 0.75, 0.9, 1.0):
        reward = low + share * (high - low)
        first = None
        for way, curve in smoothed.items():
            point = reached(curve, reward)
            if point is None:
                print(f"{taskset} to {reward:.3f}: {way} not reached")
                continue
            first = first or point
            print(
                f"{taskset} to {reward:.3f}: {way:12} {point.rollouts:7.0f} rollouts"
                f" ({point.rollouts / first.rollouts:.2f}) {point.seconds:6.1f} s"
                f" ({point.seconds / first.seconds:.2f})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasksets", nargs="+", default=["flat", "long", "late"])
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=6)
    parser.add_argument("--late", type=int, default=200)
    parser.add_argument("--tasks-per-step", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    args = parser.parse_args()
    for taskset in args.tasksets:
        asyncio.run(measured(taskset, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
