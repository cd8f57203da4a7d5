"""When to send a request again, decided without sending anything.

Only reads are. A repeated training call counts a batch twice, and a repeated
set_head can undo a step that landed in between, so whoever loses the answer to
a write reads the checkpoint tree to see what became of it.
"""

from random import random

ATTEMPTS = 4
LONGEST_S = 30.0
"""A server that asks for a longer wait than this gets this one."""


def retry_delay(
    method: str, attempt: int, status: int | None, retry_after: float | None = None
) -> float | None:
    """Seconds to wait before the next attempt, or None to give up.

    Args:
        method: The request's HTTP method.
        attempt: How often it was sent so far, from 1.
        status: The answer's HTTP status; None where none came.
        retry_after: Seconds the server asked for.
    """
    if method != "GET" or attempt >= ATTEMPTS or not _passing(status):
        return None
    if retry_after is not None:
        return min(LONGEST_S, retry_after)
    return backoff(attempt)


def backoff(attempt: int, longest_s: float = 8.0) -> float:
    """0.5 s doubling to `longest_s`, less up to a quarter so that clients spread out."""
    return min(longest_s, 0.5 * 2.0 ** min(attempt - 1, 16)) * (1 - 0.25 * random())


def read_retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; None for a date, a negative or nonsense."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _passing(status: int | None) -> bool:
    """Whether another attempt may fare better: no answer, too busy, or broken."""
    return status is None or status in (408, 429) or (500 <= status < 600 and status != 501)
