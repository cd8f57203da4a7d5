"""Whether training on tools that the base has never seen raises the reward: ``lookup``, some seeds.

Run: HUD_PYTHON=VENV/bin/python python -m tests.live.unseen_environment PATH/TO/hud-tui
     [--seeds 3] [--steps 10] [--kind lookup]

HUD_PYTHON names the Python of a virtual environment that has hud. For each seed a fresh fork of
``tiny/tools-1M`` trains on what ``init-env --kind lookup`` writes. Prints the mean reward of each
step's batch. Exits 1 where the batches of a seed's last three steps are not above its first one,
which the untrained base sampled, by `GAIN`; or the base begins above `SOLVED`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import fmean
from time import monotonic

from tests.live.main_job import Program, program_of

GAIN, SOLVED = 0.2, 0.8
SHAPE = ("--tasks-per-step", "6", "--group-size", "8", "--turns", "4", "--max-tokens", "32")
PATIENCE_S = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kind", default="lookup")
    args = parser.parse_args()
    python, curves = os.environ["HUD_PYTHON"], []
    with program_of(args.program, PATIENCE_S) as program:
        program.data("init-env", "shop", "--kind", args.kind, "-o", str(program.home))
        source = f"{program.home}/shop/env.py"
        for seed in range(args.seeds):
            curves.append(trained(program, source, python, seed, args.steps))
    risen = [rises(curve) for curve in curves]
    print(f"unseen tools: {sum(risen)} passed, {len(risen) - sum(risen)} failed")
    return int(not all(risen))


def trained(program: Program, source: str, python: str, seed: int, steps: int) -> Sequence[float]:
    """The mean rewards of the batches of a fresh fork's steps."""
    name = f"shop-{seed}"
    program.data("fork", "tiny/tools-1M", "--name", name, "-y")
    flags = ("--python", python, "--no-trial", "--steps", str(steps), "--seed", str(seed))
    begun = monotonic()
    program.lines("train", source, "-m", name, *SHAPE, *flags, "-y", "--follow")
    took = monotonic() - begun
    rows = program.data("checkpoints", name)["checkpoints"]
    rewards = [row["metrics"]["reward_mean"] for row in rows]
    shown = " ".join(f"{reward:.2f}" for reward in rewards)
    print(f"{name}: {took:.0f} s, mean reward {shown}", flush=True)
    return rewards


def rises(rewards: Sequence[float]) -> bool:
    return rewards[0] < SOLVED and fmean(rewards[-3:]) > rewards[0] + GAIN


if __name__ == "__main__":
    sys.exit(main())
