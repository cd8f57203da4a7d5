"""Whether a hud-vf-gym configuration trains by the official SDK, from an image to a reward.

Run: HUD_PYTHON=VENV/bin/python python -m tests.live.gym_configuration PATH/TO/hud-tui [--steps 6]

HUD_PYTHON names the Python of a virtual environment that has hud. A program that stands for docker
starts `SERVER`, which speaks MCP by the SDK. ``init`` asks it and writes a configuration, ``run
--config`` makes an environment of that and of tasks as hud 0.4 had them, its own tests are run, and
a fork of ``tiny/tools-1M`` trains on it. Prints the mean reward of each step's batch. Exits 1 where
something fails, a rollout included, or the last three steps are not above the first three.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from tests.live.main_job import Program, program_of

SERVER = """
from fastmcp import FastMCP

CODES = {"hinge": 417, "walnut": 62, "lantern": 8350, "violin": 29, "gravel": 906, "marble": 53}
server, said = FastMCP("shop"), []

@server.tool
def setup(name: str) -> str:
    "Call internal setup functions."
    said.clear()
    return ""

@server.tool
def lookup(item: str) -> str:
    "Look a thing up."
    if item not in CODES:
        raise ValueError(f"no {item}")
    said.append(item)
    return str(CODES[item])

@server.tool
def evaluate(name: str, item: str) -> dict:
    "Call internal evaluate functions."
    return {"grade": float(item in said)}

server.run(show_banner=False)
"""
ITEMS = ("hinge", "walnut", "lantern", "violin", "gravel", "marble")
PROMPTS = ("Use the lookup tool for {}.", "Call lookup with item {}.", "Use lookup to find {}.")
SHAPE = ("--tasks-per-step", "4", "--group-size", "6", "--max-tokens", "24", "--seed", "0")
IMAGE = "org/shop:1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    python = os.environ["HUD_PYTHON"]
    with program_of(os.path.abspath(args.program), 3600.0) as program:
        stand_in(program.home, python)
        program.env["PATH"] = f"{program.home}:{program.env['PATH']}"
        os.chdir(program.home)
        rewards = trained(program, python, args.steps)
    print(f"mean reward {' '.join(f'{reward:.2f}' for reward in rewards)}")
    return int(fmean(rewards[-3:]) <= fmean(rewards[:3]))


def stand_in(home: Path, python: str) -> None:
    """What is run in place of docker, the tasks, and an interpreter where `train` looks for it."""
    (home / "server.py").write_text(SERVER)
    (home / "docker").write_text(
        f'#!/bin/sh\n[ "$1" = run ] && exec {python} {home}/server.py\nexit 0\n'
    )
    (home / "docker").chmod(0o755)
    (home / ".venv").symlink_to(Path(python).parents[1])
    server = {"command": "docker", "args": ["run", "--rm", "-i", IMAGE]}
    rows = [
        {
            "id": f"{item}-{kind}",
            "prompt": prompt.format(item),
            "mcp_config": {"shop": server},
            "setup_tool": {"name": "setup", "arguments": {"name": "board"}},
            "evaluate_tool": {"name": "evaluate", "arguments": {"name": "found", "item": item}},
        }
        for item in ITEMS
        for kind, prompt in enumerate(PROMPTS)
    ]
    (home / "tasks.json").write_text(json.dumps(rows))


def trained(program: Program, python: str, steps: int) -> list[float]:
    """The mean reward of each step's batch."""
    found = program.data("init", IMAGE)
    file = program.home / found["file"]
    text = file.read_text()
    short, rest = text.index("system_prompt:"), text.index("defaults:")
    file.write_text(f"{text[:short]}{text[rest:]}".replace("max_turns: 30", "max_turns: 3"))
    program.data("fork", "tiny/tools-1M", "--name", "shop", "-y")
    words = ("run", "tasks.json", "--config", str(file), "-m", "shop", "--steps", str(steps))
    documents = program.lines(*words, *SHAPE, "-y", "--follow")
    assert documents[0]["kind"] == "config", documents[0]
    assert documents[-1]["data"]["failed_rollouts"] == 0, documents[-1]
    subprocess.run([python, "-m", "unittest", "discover", "-q", "shop/tests"], check=True)
    rows = program.data("checkpoints", "shop")["checkpoints"]
    return [row["metrics"]["reward_mean"] for row in rows]


if __name__ == "__main__":
    sys.exit(main())
