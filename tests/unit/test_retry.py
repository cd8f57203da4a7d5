"""Which requests are sent again, and after how long."""

import pytest

from hud_tui.client.transport import LONGEST_S, read_retry_after, retry_delay


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 0.0), (7.0, 7.0), (900.0, LONGEST_S)])
def test_a_server_that_asks_for_a_wait_gets_it(asked: float, waited: float) -> None:
    assert retry_delay(1, 429, asked) == waited


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        (None, None),
    ],
)
def test_only_seconds_are_read_from_retry_after(header: str | None, seconds: float | None) -> None:
    assert read_retry_after(header) == seconds
