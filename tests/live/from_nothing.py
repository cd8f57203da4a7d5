"""Whether reinforcement alone teaches what the base cannot do: ``long``, several seeds.

Run: python3 -m tests.live.from_nothing PATH/TO/hud-tui [--seeds 3] [--steps 200] [--env text]

For each seed a fresh fork of ``tiny/mixed-0.2M`` trains on ``long``. Held-out tasks are sampled
four times each: the base must solve fewer than 0.05 of them, the last checkpoint at least
0.6, at temperature 1 and greedily. Exits 1 on a miss. With ``--env text`` the same tasks
are graded as `text` grades its own, with little for an answer that is partly right.
"""

import argparse
import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from hud_tui.service.environments import TASKSETS
from tests.live.main_job import Program, program_of

START, END = 0.05, 0.6
EVERY = "25"
"""Steps between two evaluations of the curve, once a task."""
SAMPLING = {"sampled": ("--samples", "4"), "greedy": ("--samples", "1", "--temperature", "0.01")}
PATIENCE_S = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", default="200")
    parser.add_argument("--env", default="letters", help="letters, or text for its grading")
    args = parser.parse_args()
    misses = 0
    with program_of(args.program, PATIENCE_S) as program:
        source = "long" if args.env == "letters" else in_env(args.env, program.home)
        for seed in range(args.seeds):
            misses += not learns(program, source, seed, args.steps)
    print(f"from nothing: {args.seeds - misses} passed, {misses} failed")
    return misses > 0


def in_env(env: str, home: Path) -> str:
    """A file with the tasks of ``long`` in another environment."""
    path = home / "long.json"
    path.write_text(json.dumps([{**row, "env": env} for row in TASKSETS["long"].tasks]))
    return str(path)


def learns(program: Program, source: str, seed: int, steps: str) -> bool:
    """Train one fork; print its pass rates and their curve; whether both bounds hold."""
    name = f"long-{seed}"
    program.data("fork", "tiny/mixed-0.2M", "--name", name, "-y")
    run = ("run", source, "-m", name, "--steps", steps, "--seed", str(seed))
    begun = monotonic()
    program.lines(*run, "--eval-every", EVERY, "--baseline", "-y", "--follow")
    took = monotonic() - begun
    listed = program.data("eval", "-m", name, "--list")["evaluations"]
    curve = " ".join(f"{pass_rate(one)['value']:.2f}" for one in listed)
    print(f"{name}: {took:.0f} s, held-out pass rate every {EVERY} steps {curve}", flush=True)
    return all([improves(program, source, name, how) for how in SAMPLING])


def improves(program: Program, source: str, name: str, how: str) -> bool:
    """Whether base and head, sampled like this, keep to START and END; print what they score."""
    ask = ("eval", source, "-m", name, *SAMPLING[how], "--checkpoint")
    before, after = (
        pass_rate(program.data(*ask, checkpoint)["evaluation"]) for checkpoint in ("base", "head")
    )
    held = before["value"] < START and after["value"] >= END
    print(f"  {how:8} {said(before)} → {said(after)}  {'ok' if held else 'MISS'}", flush=True)
    return held


def pass_rate(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Its pass rate with the interval: value, low and high."""
    return dict(evaluation["result"]["pass_at"]["1"])


def said(rate: dict[str, Any]) -> str:
    return f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
