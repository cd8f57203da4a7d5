"""How far behind what is heard is, by the service's clock."""

from collections.abc import Callable

import pytest

from hud_tui.client import feed
from hud_tui.client.feed import FRESH_S, Lag

DATE = "Sat, 21 Nov 2026 18:00:00 GMT"
THERE = 1_795_284_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 100.0
    monkeypatch.setattr(feed, "monotonic", lambda: now)

    def go_on(seconds: float) -> None:
        nonlocal now
        now += seconds

    return go_on


def test_an_event_is_as_late_as_the_service_s_clock_says_where_it_has_a_time(
    clock: Callable[[float], None],
) -> None:
    found = Lag()
    found.opened({"date": DATE})
    clock(50.0)
    found.update(THERE + 10.0)
    assert found.behind_s == pytest.approx(40.0)
    found.update(THERE + 50.0)
    assert found.behind_s == pytest.approx(0.0)

    found = Lag()
    found.opened({"date": DATE})
    found.update(0.0)
    assert found.behind_s == 0


def test_what_was_late_is_told_only_while_more_of_it_comes(clock: Callable[[float], None]) -> None:
    found = Lag()
    found.opened({"date": DATE})
    clock(50.0)
    found.update(THERE)
    assert found.behind_s > 0
    clock(FRESH_S)
    assert found.behind_s == 0


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 18:00:00 GMT"])
def test_without_a_time_nothing_is_late(date: str, clock: Callable[[float], None]) -> None:
    found = Lag()
    found.opened({"date": date})
    found.update(1.0)
    assert found.behind_s == 0
