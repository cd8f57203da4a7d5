"""Waiting: for an answer, until something is so, and before the next attempt."""

import asyncio
from itertools import count

import pytest

from hud_tui import patience
from hud_tui.errors import HudUnreachable
from hud_tui.patience import Looks, Patience, backoff, in_time, rest, retried
from hud_tui.rollouts.service import PATIENCE_S, ServiceLink


def test_each_wait_is_longer_up_to_a_limit_and_not_the_same_for_all() -> None:
    waits = [backoff(failures) for failures in (1, 2, 3, 40)]
    for wait, most in zip(waits, (0.5, 1.0, 2.0, 8.0), strict=True):
        assert 0.75 * most <= wait <= most
    assert len({backoff(1) for _ in range(20)}) > 1


async def test_a_call_is_repeated_until_it_succeeds_or_is_given_up() -> None:
    calls, failures = count(1), list[tuple[str, int]]()

    async def call() -> int:
        number = next(calls)
        if number < 4:
            raise KeyError(number)
        return number

    def pause(error: KeyError, number: int) -> float | None:
        failures.append((str(error), number))
        return 0.0

    assert await retried(call, KeyError, pause) == 4
    assert failures == [("1", 1), ("2", 2), ("3", 3)]
    calls = count(1)
    with pytest.raises(KeyError, match="2"):
        await retried(call, KeyError, lambda error, number: 0.0 if number < 2 else None)
    with pytest.raises(KeyError, match="3"):
        await retried(call, ValueError, lambda error, number: 0.0)


async def test_one_looks_at_once_and_after_each_pause_until_time_is_over() -> None:
    assert [passed async for passed in Looks(3600.0, 0.0)] == [0.0]
    looks = list[float]()
    async for passed in Looks(0.001):
        looks.append(passed)
        if len(looks) == 3:
            break
    assert looks[0] == 0.0
    assert looks[1] >= 0.001
    assert looks[2] >= looks[1] + 0.001


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(patience, "monotonic", lambda: seconds[0])
    return seconds


def test_a_halt_uses_up_no_patience(clock: list[float]) -> None:
    waiting = Patience(60.0)
    counted = []
    for halt in (180.0, 5.0, 180.0, 15.0, 10.0):
        clock[0] += halt
        counted.append(waiting.count())
        assert waiting.is_over() == (waiting.count() >= 60.0)
    assert counted == [15.0, 20.0, 35.0, 50.0, 60.0]
    waiting.renew()
    assert waiting.count() == 0.0


async def test_after_a_halt_one_looks_on(clock: list[float]) -> None:
    looks = 0
    async for _ in Looks(0.0, 60.0):
        looks += 1
        clock[0] += 180.0 if looks == 1 else 10.0
    assert looks == 6


async def test_a_driver_that_was_halted_waits_for_its_service_on(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.rollouts.service.RETRY_S", 0.0)
    looks = 0

    def none_runs() -> None:
        nonlocal looks
        looks += 1
        clock[0] += 2 * PATIENCE_S if looks == 1 else 100.0

    async def never(client: object) -> None:
        raise AssertionError("there is none")

    with pytest.raises(HudUnreachable):
        await ServiceLink(none_runs, lambda: False).call(never)
    assert looks == 6, "the halt counts as one look"


async def test_an_answer_is_awaited_for_a_time() -> None:
    waited, never = list[int](), asyncio.get_running_loop().create_future()
    assert await in_time(asyncio.sleep(0, "said"), 1, waited.append) == "said"
    assert waited == []
    with pytest.raises(TimeoutError, match="did not answer for 1 s"):
        await in_time(never, 1, waited.append)
    assert waited == [1]
    assert never.cancelled()


async def test_one_rests_until_it_is_over_or_something_ends_it() -> None:
    ends = asyncio.Event()
    assert not await rest(0.01, ends)
    ends.set()
    assert await rest(3600.0, ends)
