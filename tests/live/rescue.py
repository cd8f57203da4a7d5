"""Whether the rescue of a spoilt run is what was good before, by the command line alone.

Run: python3 -m tests.live.rescue PATH/TO/hud-tui [tiny | tinker] [--taskset arith --steps 60]

Trains a fork, spoils it by one step at learning rate .02 (tinker: .2), and trains on at 1e-5.
An alarm must begin with that step or later, and what it offers to serve must be from before
it, with an own reward near the level before. Bisection must find the step. For `tinker`,
TINKER_BASE_URL says where.
"""

import argparse
import sys
from statistics import median
from typing import Any

from tests.live.main_job import Program, expect, program_of, say

SPOILING = {"tiny": "0.02", "tinker": "0.2"}
"""A learning rate that no policy survives."""
TIMEOUT_S = {"tiny": 600.0, "tinker": 7200.0}
"""For one command: a server without a GPU takes many seconds a step."""
AFTER = 40
LEVEL = 20
NEAR = 0.1
"""Of the reward's level: how far below it a good checkpoint may be."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("engine", nargs="?", default="tiny", choices=list(SPOILING))
    parser.add_argument("--taskset", help="default: arith; text for tinker")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    taskset = args.taskset or ("arith" if args.engine == "tiny" else "text")
    with program_of(args.program, TIMEOUT_S[args.engine], args.engine) as program:
        tree = spoilt(program, taskset, args.steps, SPOILING[args.engine])
        judge(tree, program.data("status", "spoilt")["alarms"], args.steps)
        bisect(program, tree, args.steps)
    print("rescue: 1 passed, 0 failed")
    return 0


def spoilt(program: Program, taskset: str, steps: int, rate: str) -> list[dict[str, Any]]:
    """The tree of a fork after good steps, one that spoils it, and some more."""
    models = [m for m in program.data("models")["models"] if m["is_trainable"]]
    named = [m for m in models if taskset in m["model_name"]]
    base = (named or models)[0]["model_name"]
    say("base", base)
    program.data("fork", base, "--name", "spoilt", "-y")
    for count, flags in (
        (steps, ()),
        (1, ("--learning-rate", rate)),
        (AFTER, ("--learning-rate", "1e-5")),
    ):
        run = ("run", taskset, "-m", "spoilt", "--steps", str(count), *flags, "-y", "--follow")
        program.lines(*run)
    return list(program.data("checkpoints", "spoilt")["checkpoints"])


def judge(tree: list[dict[str, Any]], alarms: list[dict[str, Any]], good: int) -> None:
    """Fail where what an alarm offers is not from before the bad update, and as good."""
    places = {node["id"]: place for place, node in enumerate(tree, 1)}
    level = median(node["own_reward"] for node in tree[good - LEVEL : good])
    late = [alarm for alarm in alarms if alarm["onset"] > good]
    expect(bool(late), "an alarm begins with the bad update or later", alarms)
    for alarm in late:
        rescue = places[alarm["before_id"]]
        own = tree[rescue - 1]["own_reward"]
        say(alarm["name"], f"since {alarm['onset']}, serve {rescue}: {own:.3f} of {level:.3f}")
        expect(rescue <= good, "the rescue is from before the bad update", rescue)
        expect(own >= level - NEAR * abs(level), "and its own reward is as good", own)


def bisect(program: Program, tree: list[dict[str, Any]], good: int) -> None:
    """Fail where bisection does not find the bad update, to within a step."""
    first = tree[max(0, good - LEVEL)]["name"]
    verdict = program.data("bisect", "spoilt", "--good", first, "--bad", "head")
    say("bisect", "; ".join(verdict["summary"]))
    expect(verdict["verdict"] == "step", "one step did it", verdict["verdict"])
    names = [node["name"] for node in tree]
    say("explain", verdict["explain"])
    expect(abs(names.index(verdict["step"]) - good) <= 1, "and it is the bad one", verdict["step"])


if __name__ == "__main__":
    sys.exit(main())
