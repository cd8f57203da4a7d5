"""Whether the policy learns: every policy loss, several seeds, through the command line.

Run: python3 -m tests.live.learning PATH/TO/hud-tui [--seeds 5] [--steps 60]

For each loss and seed a fresh fork of ``tiny/arith-0.2M`` trains on ``arith``. It must
start below 0.6 mean reward (first 2 steps) and end above 0.85 (last 5). Exits 1 on a miss.
"""

import argparse
import sys
from statistics import fmean

from tests.live.main_job import Program, program_of

LOSSES = ("importance_sampling", "ppo", "cispo", "dro")
START, END = 0.6, 0.85


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", default="60")
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    args = parser.parse_args()
    misses = 0
    with program_of(args.program) as program:
        for loss in args.losses:
            for seed in range(args.seeds):
                misses += not learns(program, loss, seed, args.steps)
    runs = len(args.losses) * args.seeds
    print(f"learning: {runs - misses} passed, {misses} failed")
    return misses > 0


def learns(program: Program, loss: str, seed: int, steps: str) -> bool:
    """Train one fork; print its first and last rewards; whether both bounds hold."""
    name = f"{loss}-{seed}"
    program.data("fork", "tiny/arith-0.2M", "--name", name, "-y")
    flags = ("--steps", steps, "--seed", str(seed), "--loss-fn", loss, "-y", "--follow")
    program.lines("run", "arith", "-m", name, *flags)
    tree = program.data("checkpoints", name)["checkpoints"]
    rewards = [node["mean_reward"] for node in tree]
    first, last = fmean(rewards[:2]), fmean(rewards[-5:])
    held = first < START and last > END
    print(f"{name:24} {first:.3f} → {last:.3f}  {'ok' if held else 'MISS'}", flush=True)
    return held


if __name__ == "__main__":
    sys.exit(main())
