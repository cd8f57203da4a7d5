"""How long 100 000 task rows take to read and check, as a multiple of json.loads alone.

The file has v6 rows with args, as long as common ones (170 bytes). The ratio is of two
timings in one process, the least of several; the memory is what a process of its own that
reads the file has at its peak, all of Python in it.
"""

import json
import subprocess
import sys

from hud_tui.rl.tasks.checks import check_fields, check_rows, check_slugs
from tests.bench.timing import best_s
from tests.task_files import read_file

ROWS = 100_000
GOAL, GOAL_S, GOAL_MB = 6.0, 3.0, 300
PEAK = """
import resource
from tests.bench.bench_task_files import body, check
check(body())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def main() -> int:
    text = body()
    lines = text.decode().splitlines()
    plain_s = best_s(lambda: [json.loads(line) for line in lines], 3)
    ours_s = best_s(lambda: check(text), 3)
    ratio = ours_s / plain_s
    peak = int(subprocess.run([sys.executable, "-c", PEAK], capture_output=True, check=True).stdout)
    print(
        f"{ROWS} task rows read and checked / json.loads: {ratio:.1f} (goal: at most {GOAL});"
        f" {ours_s:.2f} s (goal: {GOAL_S}); peak memory {peak} MB (goal: at most {GOAL_MB})"
    )
    return ratio > GOAL or peak > GOAL_MB


def body() -> bytes:
    return b"\n".join(json.dumps(_row(number)).encode() for number in range(ROWS))


def check(text: bytes) -> None:
    """What preflight does with it before it asks a service."""
    tasks = read_file("tasks.jsonl", text)
    for made in (check_rows, check_fields, check_slugs):
        assert all(finding.level == "ok" for finding in made(tasks))


def _row(number: int) -> dict[str, object]:
    args = {"a": number, "b": number * 7, "text": "how much is it, and is it more?", "x": 0.5}
    return {
        "env": "arith",
        "id": "add",
        "args": args,
        "slug": f"add-{number}-{number * 7}",
        "columns": {"split": "train", "difficulty": number % 5},
    }
