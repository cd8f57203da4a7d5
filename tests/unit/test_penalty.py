"""The KL penalty, beside its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.batches import with_penalties
from hud_tui.service.engines.base import Datum, advantages

LOGPROB = st.floats(-8, 0)
ROWS = st.lists(st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=5), min_size=1)


@given(ROWS, st.floats(0, 10))
def test_a_token_is_worth_less_the_farther_it_is_from_the_reference(
    rows: list[list[tuple[float, float]]], coef: float
) -> None:
    datums = [Datum([1], [2] * len(row), [ours for ours, _ in row], 0.5) for row in rows]
    penalised, mean = with_penalties(datums, [[theirs for _, theirs in row] for row in rows], coef)
    differences = [ours - theirs for row in rows for ours, theirs in row]
    assert mean == pytest.approx(sum(differences) / len(differences))
    worth = [value for row in advantages(penalised) for value in row]
    expected = [0.5 + coef * (mean - difference) for difference in differences]
    assert worth == pytest.approx(expected)
    assert sum(worth) == pytest.approx(0.5 * len(worth), abs=1e-6), "the mean is not moved"
