"""The palette over 100 000 checkpoints and 10 000 jobs: one key, and the longest wait for another.

Every beginning of each text is searched, as it is typed.
"""

from time import thread_time

from hud_tui.tui.name_search import MOST, Place, Section, search
from tests.bench.timing import REPAINT, Goal, missed

CHECKPOINTS, JOBS = 100_000, 10_000
TYPED = ("step-099", "arith 36", "step 9 7 1", "sp99", "mxd", "nothing has this", "00000007")
WAIT = Goal(1.0, 0.2)
"""The longest part between two of its looks for another key."""


async def nowhere() -> None:
    """No place of the bench is gone to."""


def sections() -> list[Section]:
    checkpoints = Section("checkpoint", lambda at: Place(str(at), nowhere))
    checkpoints.add(
        [f"step-{at:06}" for at in range(CHECKPOINTS, 0, -1)],
        [f"{at * 7919:032x}" for at in range(CHECKPOINTS)],
    )
    jobs = Section("run", lambda at: Place(str(at), nowhere))
    jobs.add(
        [f"mixed on arith-rl-{at % 37}" for at in range(JOBS)],
        [f"{at * 104_729:032x}" for at in range(JOBS)],
    )
    return [checkpoints, jobs]


def key(there: list[Section], text: str) -> tuple[float, float]:
    """Processor seconds of a search, and of its longest part."""
    began = last = thread_time()
    longest, found = 0.0, 0
    for one in search(there, text):
        now = thread_time()
        longest, last = max(longest, now - last), now
        found += one is not None
        if found == MOST:
            break
    return thread_time() - began, longest


def main() -> int:
    there = sections()
    typed = [text[:end] for text in TYPED for end in range(1, len(text) + 1)]
    timed = [[key(there, text) for text in typed] for _ in range(7)]
    best = [tuple(map(min, zip(*times, strict=True))) for times in zip(*timed, strict=True)]
    whole, longest = (max(times) for times in zip(*best, strict=True))
    return missed(
        [
            (f"palette, a key over {CHECKPOINTS + JOBS} names", whole, REPAINT),
            ("palette, longest wait for the next key", longest, WAIT),
        ]
    )
