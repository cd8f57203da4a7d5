"""A complete training loop: a small model learns to add two numbers below 100.

Run: python -m tests.live.training_loop

It starts the embedded service where none runs, and trains a fork of a base that ships with
it. Watch it meanwhile with ``hud-tui --local``. To train on HUD, set HUD_API_KEY and give
`TrainingClient` the name of a model of yours and no client.
"""

import asyncio
from contextlib import aclosing
from random import Random
from statistics import fmean
from uuid import uuid4

from hud_tui.client import TrainingClient
from hud_tui.local_service import connect_local
from hud_tui.settings import read_paths


async def train(trainer: TrainingClient, steps: int) -> list[float]:
    """Twelve new sums per step, eight answers each; returns the mean reward of every step."""
    random, means = Random(0), []
    for _ in range(steps):
        batch = []
        for _ in range(12):
            a, b = random.randrange(100), random.randrange(100)
            group = await trainer.sample(f"{a} + {b} = ?", group_size=8, max_tokens=20)
            for rollout in group:
                rollout.reward = 1.0 if rollout.text.strip() == str(a + b) else 0.0
            batch += group
        step = await trainer.step(batch, learning_rate=3e-4, group_size=8)
        means.append(fmean(rollout.reward for rollout in batch))
        print(f"step {step.step:2}  mean reward {means[-1]:.2f}")
    return means


async def main() -> list[float]:
    async with aclosing(await connect_local(read_paths(), print)) as client:
        base = await client.model("tiny/arith-0.2M")
        fork = await client.fork(base.id, f"sums-{uuid4().hex[:6]}")
        async with TrainingClient(fork.id, client) as trainer:
            return await train(trainer, steps=15)


if __name__ == "__main__":
    asyncio.run(main())
