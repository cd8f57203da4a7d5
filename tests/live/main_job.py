"""The main job, headless, by an installed ``hud-tui`` and nothing else of this project.

Run: python3 tests/live/main_job.py PATH/TO/hud-tui [--steps 20] [--engine tinker --taskset text]

Forks a base, checks the taskset, trains, rolls the head back and trains on, in a home
of its own, and stops the service. Standard library only: it drives the program as a
user's script would. Exits 1 at the first thing that is not as it should be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Program:
    """The program under test, with a home and directories of its own."""

    def __init__(self, path: str, home: Path, timeout_s: float = 600.0) -> None:
        self.path, self.home, self.timeout_s = path, home, timeout_s
        hud = ("HUD_", "XDG_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(hud)}
        self.env = inherited | {
            "HOME": str(home),
            "HUD_TUI_STATE_DIR": str(home / "state"),
            "HUD_TUI_DATA_DIR": str(home / "data"),
            "HUD_TUI_CONFIG_DIR": str(home / "config"),
        }

    def serve(self, engine: str) -> None:
        """Start a service with an engine, which `--local` then finds; `stop` ends it."""
        command = [self.path, "serve", "--engine", engine]
        service = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE)
        if service.stdout is None or not service.stdout.readline():
            fail(f"serve --engine {engine} ended with {service.wait()}")

    def lines(self, *argv: str, code: int = 0) -> list[dict[str, Any]]:
        """Every document a command printed; its exit code must be `code`."""
        command = [self.path, "--headless", "--local", *argv]
        done = subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )
        if done.returncode != code:
            fail(f"{argv}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        bad = [d for d in documents if d.get("schema") != "hud-tui/1" or "kind" not in d]
        if bad or not documents:
            fail(f"{argv}: not a document: {bad[:1]}")
        return documents

    def data(self, *argv: str, code: int = 0) -> dict[str, Any]:
        """The `data` of a command's last document."""
        data: dict[str, Any] = self.lines(*argv, code=code)[-1].get("data", {})
        return data


@contextmanager
def program_of(path: str, timeout_s: float = 600.0, engine: str = "tiny") -> Iterator[Program]:
    """A program with a home that is removed in the end, and a service that is stopped then."""
    with tempfile.TemporaryDirectory(prefix="hud-tui-") as home:
        program = Program(path, Path(home), timeout_s)
        if engine != "tiny":
            program.serve(engine)
        try:
            yield program
        finally:
            program.lines("stop")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--steps", default="20")
    parser.add_argument("--engine", default="tiny", help="serve this one first; tiny needs no word")
    parser.add_argument(
        "--taskset", default="arith", help="a model that knows nothing finds spread in text alone"
    )
    args = parser.parse_args()
    with program_of(args.program, engine=args.engine) as program:
        main_job(program, args.taskset, args.steps)
    print("main job: 1 passed, 0 failed")
    return 0


def main_job(program: Program, taskset: str, steps: str) -> None:
    base = next(m for m in program.data("models")["models"] if m["is_trainable"])
    say("base", base["model_name"])
    fork = program.data("fork", base["model_name"], "--name", "main-job", "-y")
    say("fork", fork["model"]["model_name"])
    program.data("fork", base["model_name"], "--name", "main-job", "-y", code=1)
    verdict = program.data("preflight", taskset, "-m", "main-job")
    say("preflight", verdict["verdict"])
    run = ["run", taskset, "-m", "main-job", "--steps", steps, "-y", "--follow"]
    last = program.lines(*run)[-1]
    expect(last["kind"] == "job", "the last document is the job's result", last)
    tree = program.data("checkpoints", "main-job")["checkpoints"]
    expect(len(tree) == int(steps), "one checkpoint a step", len(tree))
    rewards = [node["mean_reward"] for node in tree]
    say("rewards", " ".join(f"{reward:.2f}" for reward in rewards))
    back = int(steps) // 2
    program.data("head", "main-job", "--back", str(back), "-y")
    head = program.data("head", "main-job")["head"]
    expect(head["id"] == tree[-1 - back]["id"], "the head is the chosen node", head)
    program.lines("run", taskset, "-m", "main-job", "--steps", "1", "-y", "--follow")
    grown = program.data("checkpoints", "main-job")["checkpoints"]
    parent = grown[-1]["prev_model_checkpoint_id"]
    expect(parent == head["id"], "the next step branches from it", grown[-1])
    program.data("head", "main-job", "--set", "no-such-checkpoint", "-y", code=2)


def expect(held: bool, what: str, seen: object) -> None:
    if not held:
        fail(f"{what}: {seen}")
    say("ok", what)


def say(what: str, seen: object) -> None:
    print(f"{what:12} {seen}", flush=True)


def fail(text: str) -> None:
    sys.exit(f"main job: {text}")


if __name__ == "__main__":
    sys.exit(main())
