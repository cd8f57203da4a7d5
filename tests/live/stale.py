"""What sampling ahead does to learning: `mixed` with every staleness, several seeds.

Run: python3 -m tests.live.stale PATH/TO/hud-tui [--seeds 3] [--steps 200]

For each seed, forks of ``tiny/mixed-0.2M`` train on ``mixed`` with ``--max-staleness`` 0, 1 and 2.
The held-out reward of each last checkpoint is measured with 8 rollouts a task; that of 1 and 2 has
to be within the 95 % interval of 0, all seeds together. Exits 1 if it is not.
"""

import argparse
import sys
from statistics import fmean
from typing import Any

from tests.live.main_job import Program, program_of

STALENESS = ("0", "1", "2")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", default="200")
    args = parser.parse_args()
    means: dict[str, list[dict[str, Any]]] = {most: [] for most in STALENESS}
    with program_of(args.program) as program:
        for seed in range(args.seeds):
            for most in STALENESS:
                means[most].append(trained(program, most, seed, args.steps))
    together = {most: fmean(one["value"] for one in found) for most, found in means.items()}
    lower, upper = (fmean(one[end] for one in means["0"]) for end in ("low", "high"))
    misses = [most for most, mean in together.items() if not lower <= mean <= upper]
    shown = ", ".join(f"{most}: {mean:.3f}" for most, mean in together.items())
    print(f"held-out reward by staleness: {shown}; 0 is within [{lower:.3f}, {upper:.3f}]")
    return bool(misses)


def trained(program: Program, most: str, seed: int, steps: str) -> dict[str, Any]:
    """Train one fork, and evaluate its last checkpoint: its mean with its interval."""
    name = f"stale-{most}-{seed}"
    program.data("fork", "tiny/mixed-0.2M", "--name", name, "-y")
    flags = ("--steps", steps, "--seed", str(seed), "--max-staleness", most, "-y", "--follow")
    program.lines("run", "mixed", "-m", name, *flags)
    asked = ("--samples", "8", "--seed", "77", "--checkpoint", "head")
    evaluation = program.data("eval", "mixed", "-m", name, *asked)["evaluation"]
    mean = evaluation["result"]["mean"]
    print(f"{name:12} {mean['value']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]", flush=True)
    return dict(mean)


if __name__ == "__main__":
    sys.exit(main())
