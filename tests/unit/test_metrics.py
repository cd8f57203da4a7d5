"""Numbers as the screen writes them, and the order that metrics come in."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.axes import step_marks
from hud_tui.rl.curves import Curves
from hud_tui.rl.metrics import (
    METRICS,
    Movement,
    Series,
    canonical,
    change,
    distance,
    healthy,
    metric,
    ranked,
    reading,
    short,
    signed,
    title,
    translate,
    with_sign,
)
from hud_tui.wire import Checkpoint


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (nan, "–"),
        (inf, "∞"),
        (-inf, "-∞"),
        (0.0, "0"),
        (-0.0, "0"),
        (8.9e-16, "0"),
        (-8.9e-16, "0"),
        (1.0, "1"),
        (0.8472, ".847"),
        (-0.25, "-.250"),
        (0.99999, "1.00"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (128.4, "128"),
        (41_234.0, "41k"),
        (-3653.2, "-3.7k"),
        (0.0031, ".0031"),
        (0.003, ".003"),
        (0.0097, ".0097"),
        (0.00996, ".010"),
        (0.00099, "9.9e-4"),
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


@pytest.mark.parametrize(("value", "text"), [(0.021, "▲ .021"), (-0.3, "▼ .300"), (0.0, "=0")])
def test_a_change_says_its_direction_first(value: float, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0.0071, ".007"), (0.0005, ".001"), (0.0004, "4e-4"), (0.069, ".069")]
)
def test_a_distance_has_the_decimals_of_what_it_is_beside(size: float, text: str) -> None:
    assert distance(size) == text


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.1 + 0.2, 0.3, "=0"),
        (0.0, 4.4e-16, "=0"),
        (0.62910, 0.62914, "=0"),
        (0.8998, 0.9002, "=0"),
        (0.6295 - 1e-15, 0.6295 + 1e-15, "=0"),
        (0.629, 0.630, "▲ .001"),
        (0.0100, 0.0104, "▲ 4e-4"),
        (41_000.0, 41_450.0, "▲ 450"),
        (3e-4, 1e-4, "▼ 2e-4"),
        (1e-9, 3e-9, "▲ 2e-9"),
        (-0.5, 0.5, "▲ 1"),
        (nan, 0.5, ""),
        (inf, inf, ""),
    ],
)
def test_a_change_that_cannot_be_seen_is_none(before: float, after: float, said: str) -> None:
    assert signed(change(before, after)) == said


def test_what_is_no_change_has_a_plus_or_a_minus() -> None:
    assert [*map(with_sign, (0.339, -0.524, 0.0))] == ["+.339", "-.524", "0"]


def test_known_metrics_come_first_and_each_has_a_meaning_and_names_of_its_own() -> None:
    keys = ["zeta", "entropy", "alpha", "reward_mean"]
    assert ranked(keys) == ["reward_mean", "entropy", "zeta", "alpha"]
    assert metric("zeta").title == "zeta"
    assert all(known.meaning.endswith(".") and known.title for known in METRICS.values())
    names = [name for known in METRICS.values() for name in (known.key, *known.names)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("reward_mean", "reward_mean"),
        ("frac_reward_zero_std", "frac_reward_zero_std"),  # TRL
        ("sampling/sampling_logp_difference/mean", "kl_sample_train"),
        ("actor/pg_clipfrac", "clip_fraction"),  # verl
        ("val-core/gsm8k/reward/acc/mean@16", "heldout_reward"),
        ("optim/kl_sample_train_v1", "kl_sample_train"),  # tinker-cookbook
        ("tinker.optim/entropy", "entropy"),  # the same, behind HUD
        ("train/agg/effective/solver/reward/mean", "reward_mean"),  # prime-rl
        ("mismatch_kl/all/mean", "kl_sample_train"),
        ("off_policy/max", "staleness_max"),
        ("my/own", "my/own"),
        ("tinker.own", "tinker.own"),
    ],
)
def test_trainers_names_mean_one_key(name: str, key: str) -> None:
    assert canonical(name) == key


def test_the_best_known_of_equal_names_is_taken_and_none_is_dropped() -> None:
    row = {"critic/rewards/mean": 1.0, "critic/score/mean": 2.0, "own": 3.0}
    assert translate(row) == {"critic/rewards/mean": 1.0, "reward_mean": 2.0, "own": 3.0}
    assert translate({"reward": 0.0, "reward_mean": 4.0}) == {"reward": 0.0, "reward_mean": 4.0}
    assert title("critic/rewards/mean") == "critic/rewards/mean"
    assert metric("critic/rewards/mean").title == title("reward_mean") == "mean reward"
    assert signed(None) == signed(nan) == ""


@pytest.mark.parametrize(
    ("key", "text"),
    [("kl_sample_train", "≤.010"), ("frac_groups_mixed", "≥.100"), ("grad_norm", ""), ("mine", "")],
)
def test_a_healthy_range_reads_as(key: str, text: str) -> None:
    assert healthy(metric(key)) == text


def test_rounding_of_a_kl_or_a_ratio_is_no_change_no_curve_and_no_number() -> None:
    series = Series()
    for step in range(20):
        noise = (-1) ** step * 1e-8 * step
        metrics = {"kl_sample_train": noise, "trained/ratio_max": 1 + abs(noise), "entropy": noise}
        series = series.add(Checkpoint(id=f"c{step}", metrics=metrics))
    assert Movement().of(series) == {"entropy"}
    for key in ("kl_sample_train", "trained/ratio_max"):
        curve = Curves().of(series, key, 0.9)
        assert curve.is_constant
        assert signed(curve.readout(20).delta) == "=0"
    assert not Curves().of(series, "entropy", 0.9).is_constant
    assert (reading("kl_sample_train", 1.9e-7), reading("entropy", 1.9e-7)) == ("0", "1.9e-7")
    assert reading("kl_sample_train", 0.002) == ".002"
    assert change(1e-8, 3e-7, "optim/kl_sample_train_v1") == 0.0
    assert change(8e-11, 4e-11, "tasks_unseen") == 0.0, "a moving average of a count"
    assert change(1e-3, 3e-3, "kl_sample_train") == pytest.approx(2e-3)


def test_a_step_has_its_number_where_its_lineage_left_others_out() -> None:
    line = [*range(1, 5), *range(9, 12)]
    series = Series.of(Checkpoint(id=f"c{n}", step=n) for n in line)
    assert [series.step_at(row) for row in range(9)] == [*line, 12, 13]
    after = Series.of(Checkpoint(id=f"c{n}", step=n) for n in [*range(1, 111), *range(118, 461)])
    marks = [(1.0, "1"), (193.0, "200"), (393.0, "400"), (593.0, "600")]
    assert step_marks(after.step_at, 1, 599, 5) == marks
    assert step_marks(after.step_at, 1.2, 1.8, 4) == []
    far = Series.of(Checkpoint(id=f"c{n}", step=n) for n in (1, 2, 2**60, 2**60 + 1))
    assert step_marks(far.step_at, 1, 4, 4)[0] == (1.0, "1")
    assert Series.of([Checkpoint(id="a"), Checkpoint(id="b", step=2**80)]).step_at(0) == 1
    assert series.truncate(5).step_at(5) == 10
    grown = series.truncate(5).add(Checkpoint(id="x", step=20))
    assert (grown.step_at(5), series.step_at(5)) == (20, 10)
