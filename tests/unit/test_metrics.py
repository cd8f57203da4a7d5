"""Numbers as the screen writes them, and the order that metrics come in."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.metrics import METRICS, metric, ranked, short, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (nan, "–"),
        (inf, "∞"),
        (-inf, "-∞"),
        (0.0, "0"),
        (1.0, "1"),
        (0.8472, ".847"),
        (-0.25, "-.250"),
        (0.99999, "1.00"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (128.4, "128"),
        (41_234.0, "41k"),
        (-3653.2, "-3.7k"),
        (0.0031, "3.1e-3"),
        (3e-4, "3e-4"),
    ],
)
def test_a_number_reads_as(value: float | None, text: str) -> None:
    assert short(value) == text


@given(st.floats(min_value=1e-9, max_value=1e14) | st.floats(min_value=-1e14, max_value=-1e-9))
def test_a_number_keeps_its_sign_and_its_size(value: float) -> None:
    text = short(value)
    assert len(text) <= 7
    units = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    read = float(text.rstrip("kMGT")) * units.get(text[-1], 1.0)
    assert read == pytest.approx(value, rel=0.06)


@pytest.mark.parametrize(("value", "text"), [(0.021, "▲+.021"), (-0.3, "▼-.300"), (0.0, "=0")])
def test_a_change_says_its_direction_first(value: float, text: str) -> None:
    assert signed(value) == text


def test_an_unknown_change_says_nothing() -> None:
    assert signed(None) == signed(nan) == ""


def test_known_metrics_come_first_and_unknown_ones_stay() -> None:
    keys = ["zeta", "entropy", "alpha", "reward_mean"]
    assert ranked(keys) == ["reward_mean", "entropy", "zeta", "alpha"]
    assert metric("zeta").title == "zeta"


def test_every_known_metric_says_what_it_means() -> None:
    assert all(known.meaning.endswith(".") and known.title for known in METRICS.values())
