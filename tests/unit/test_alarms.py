"""The detectors on synthetic curves, and the monitor over a head's lineage, wherever it goes."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import exp, inf, isfinite, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.config import read_table
from hud_tui.rl.alarms.alarm import CAUSES, Alarm, Level, Report
from hud_tui.rl.alarms.demos import BEGAN, HEALTHY, PATHOLOGIES, STEP_S, Pathology, healthy, noise
from hud_tui.rl.alarms.detector import DETECTORS, Detector
from hud_tui.rl.alarms.monitor import AlarmMonitor, DetectorSet, usual_thresholds
from hud_tui.rl.alarms.statistics import Row
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.alarms.throughput import stall
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.wire import Checkpoint, Group, WorkState
from tests.unit.inspecting import inspect, inspect_lineage, row, rows_of
from tests.unit.trees import chain, named

BY_ROWS = [pathology for pathology in PATHOLOGIES.values() if pathology.name != "stall"]
LATE = {"component_dominance": 200, "reward_plateau": 100, "truncation": 70}
"""Steps after a pathology's onset by which its alarm's own onset lies, where it is not 50."""


def alarms(report: Report, name: str) -> list[Alarm]:
    return [alarm for alarm in report.alarms if alarm.name == name]


def test_there_are_twelve_pathologies_and_each_detector_has_one() -> None:
    assert len(PATHOLOGIES) >= 12
    tripped = {name for pathology in PATHOLOGIES.values() for name in pathology.trips}
    assert tripped == set(DETECTORS) | {"stall"}


def test_a_healthy_run_trips_nothing_and_a_long_one_at_most_stands_still() -> None:
    report = inspect(rows_of(HEALTHY))
    assert [(alarm.name, alarm.onset, alarm.summary) for alarm in report.alarms] == []
    assert report.skipped == ()
    report = inspect(rows_of(HEALTHY, 2000))
    assert {alarm.name for alarm in report.alarms} == {"reward_plateau"}


@pytest.mark.parametrize("pathology", BY_ROWS, ids=lambda pathology: pathology.name)
def test_each_pathology_trips_its_detectors_near_its_onset_and_nothing_before(
    pathology: Pathology,
) -> None:
    """And an alarm's own onset stays where it is as the run goes on."""
    watch, onsets = DetectorSet(steps=pathology.steps), dict[tuple[str, int], int]()
    for one in rows_of(pathology):
        watch.read(one)
        is_last_before = one.step == pathology.onset - 1
        for alarm in watch.report().alarms if is_last_before or one.step % 4 == 0 else ():
            assert one.step >= pathology.onset, (alarm.name, alarm.onset)
            assert onsets.setdefault((alarm.name, alarm.raised), alarm.row) == alarm.row
    report = watch.report()
    for name in pathology.trips:
        found = alarms(report, name)
        assert found, f"{name} did not go off"
        first = min(found, key=lambda alarm: alarm.onset)
        known = (Level.INFO,) if pathology.name == "saturation" else (Level.WARN, Level.CRITICAL)
        assert first.level in known
        assert pathology.onset - 5 <= first.onset <= pathology.onset + LATE.get(name, 50)
        assert first.before_id == f"c{first.onset - 1}"
        assert first.raised >= first.onset
        assert first.evidence
        assert first.meaning
        assert first.advice


Change = Callable[[int], Mapping[str, float]]


def names(change: Change) -> set[str]:
    """The detectors that warn where a healthy run is changed so."""
    alarms = changed(change, 300).alarms
    return {alarm.name for alarm in alarms if alarm.level is not Level.INFO}


def changed(change: Change, steps: int) -> Report:
    """What is said of a healthy run of so many steps that is changed so."""
    run = [row(step, healthy(step) | dict(change(step))) for step in range(1, steps + 1)]
    return inspect(run, steps=steps)


def rising(step: int) -> float:
    return 0.2 + 0.002 * step


NO_VARIANCE = {
    "grad_norm": 0.0,
    "frac_reward_zero_std": 1.0,
    "frac_groups_all_solved": 0.95,
    "frac_groups_all_failed": 0.05,
}


def learned(step: int) -> dict[str, float]:
    """Nearly all groups are solved from step 100 on."""
    solved = min(0.95, 0.0095 * step)
    return {
        "reward_mean": 0.3 + 0.7 * solved,
        "frac_reward_zero_std": solved + 0.02,
        "frac_groups_all_solved": solved,
        "frac_groups_all_failed": 0.02,
    }


HARMLESS: dict[str, Change] = {
    "entropy falls while the reward climbs": lambda n: {
        "entropy": 1.2 * exp(-n / 40),
        "reward_mean": rising(n),
        "heldout_reward": rising(n) - 0.02,
    },
    "entropy is near 0 where all is solved": lambda n: {
        "entropy": 1.2 * exp(-n / 40),
        "reward_mean": min(0.97, 0.3 + n / 100),
        "heldout_reward": min(0.95, 0.3 + n / 100),
    },
    "length grows and the held-out reward with it": lambda n: {
        "completion_length_mean": 60.0 + n,
        "reward_mean": rising(n),
        "heldout_reward": rising(n) - 0.02,
    },
    "length grows and is not what is paid": lambda n: {
        "completion_length_mean": 60 + n + 20 * noise(3 * n)
    },
    "kl is 0 because nothing measures it": lambda n: {"kl_reference": 0.0},
    "kl is high once": lambda n: {"kl_sample_train": 0.04 if n == 100 else 0.002},
    "kl falls from a high start": lambda n: {"kl_reference": 0.45 * exp(-n / 50)},
    "the gradient is twice as large now and then": lambda n: {"grad_norm": 2.0 - (n % 9 > 0)},
    "a base truncates, and learns not to": lambda n: {"truncated_share": 0.6 * exp(-n / 15)},
    "one step takes a pause": lambda n: {"rollout_s": 400.0 if n == 150 else 1.4},
    "correctness is all of the reward": lambda n: {
        "reward/correct": 0.5 + 0.3 * noise(n),
        "reward/format": 0.1,
    },
    "what is learned has the gradient of a group or two": lambda n: (
        learned(n) | {"grad_norm": 1.0 if n < 100 else 0.1 if noise(5 * n) < 0.5 else 0.8}
    ),
    "some steps of what is learned have no gradient": lambda n: (
        learned(n) | (NO_VARIANCE if n > 100 and n % 3 else {})
    ),
    "the held-out reward varies as a mean of so few rollouts does": lambda n: {
        "num_heldout_traces": 36.0,
        "heldout_reward": 0.9 + 0.1 * noise(7 * n),
        "reward_mean": 0.95 + 0.02 * noise(n),
    },
    "an evaluation's row is padded": lambda n: (
        dict.fromkeys(healthy(n), nan) | {"heldout_reward": 0.5} if n % 50 == 0 else {}
    ),
    "the loss is about 0, as it is in GRPO": lambda n: {"loss:sum": 1e-9 * noise(n)},
    "a third of the groups is flat for some steps": lambda n: (
        {"frac_reward_zero_std": 0.35} if n % 40 < 3 else {}
    ),
    "rewards are far from 0…1": lambda n: {
        "reward_mean": 100 * rising(n) - 300,
        "reward_max": -150.0,
        "heldout_reward": 100 * rising(n) - 300,
    },
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_looks_bad_and_is_not_trips_nothing(name: str) -> None:
    assert names(HARMLESS[name]) == set()


FLAT = ("frac_reward_zero_std", "frac_groups_all_solved", "frac_groups_all_failed")

HARMFUL: dict[str, tuple[Change, str]] = {
    "residue is zero variance": (
        lambda n: dict.fromkeys(FLAT, nan) | {"reward_std": 1e-7},
        "zero_variance",
    ),
    "tinker's shares of solved and failed groups": (
        lambda n: dict(zip(FLAT, (nan, 0.1, 0.7), strict=True)),
        "zero_variance",
    ),
    "prime-rl's share of groups that teach": (
        lambda n: dict.fromkeys(FLAT, nan) | {"frac_groups_mixed": 0.1},
        "zero_variance",
    ),
    "rollouts dropped as too old": (lambda n: {"off_policy/dropped": 40.0}, "staleness"),
    "kl that grows step by step": (
        lambda n: {"kl_sample_train": 0.002 + 0.0002 * max(0, n - 100)},
        "kl_sampler",
    ),
    "kl at many times what it was": (
        lambda n: {"kl_reference": 0.02 + 0.002 * max(0, n - 100)},
        "kl_reference",
    ),
    "some left out": (lambda n: {"errored_share": 0.0, "traces_without_samples": 30}, "errored"),
    "traces left out": (lambda n: {"errored_share": nan, "traces_without_samples": 30}, "errored"),
    "a reward that is infinite": (lambda n: {"reward_mean": inf if n == 200 else 0.5}, "non_fin"),
    "a spike where nearly all is solved": (
        lambda n: learned(n) | {"grad_norm": 5.0 if n == 200 else 1.0 if n < 100 else 0.2},
        "grad_norm",
    ),
    "steps without gradient although groups have variance": (
        lambda n: {"grad_norm": 0.0} if n > 100 else {},
        "zero_gradient",
    ),
    "few are solved, and most never are": (
        lambda n: dict(zip(FLAT, (0.9, 0.2, 0.7), strict=True)),
        "zero_variance",
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_is_bad_is_seen_by_other_signs_too(name: str) -> None:
    change, detector = HARMFUL[name]
    assert any(found.startswith(detector) for found in names(change))


def test_a_gap_to_another_metric_has_no_limit_of_its_own_metric() -> None:
    """The training reward moves, and so would a line below it over the whole history."""

    def apart(step: int) -> dict[str, float]:
        return {"reward_mean": rising(step), "heldout_reward": 0.2}

    [gap] = shown(apart, "heldout_gap", 300)
    assert gap.active
    assert gap.evidence[0].limit == 0.15
    assert gap.limit is None


@pytest.mark.parametrize("kind", DETECTORS.values(), ids=lambda kind: kind.NAME)
def test_a_detector_without_its_data_says_what_it_needs(kind: type[Detector[Any]]) -> None:
    report = inspect([row(step, {"unknown": 1.0}) for step in range(1, 50)])
    assert report.alarms == ()
    said = {skipped.name: skipped.summary for skipped in report.skipped}
    timed = {"throughput"}  # rows have times
    assert (kind.NAME in said) == (kind.NAME not in timed)
    assert (kind.NEEDS or kind.READS) in said.get(kind.NAME, kind.NEEDS or kind.READS)


def test_waiting_says_what_to_change_and_leaves_short_steps_alone() -> None:
    def waits(step: int, seconds: float) -> dict[str, float]:
        return {"step_s": seconds, "wait_share": 0.7, "wait/engine": 0.2, "wait/queue": 0.5}

    [alarm] = inspect([row(step, waits(step, 5.0)) for step in range(1, 9)]).alarms
    assert (alarm.name, alarm.onset, alarm.active) == ("waiting", 4, True)
    assert "another machine" in alarm.advice
    assert [(each.name, each.value) for each in alarm.evidence] == [
        ("waiting", 0.7),
        ("for the queue", 0.5),
    ]
    assert inspect([row(step, waits(step, 0.2)) for step in range(1, 9)]).alarms == ()


def test_a_detector_can_be_turned_off_and_its_limits_moved() -> None:
    off, high = {"enabled": False, "warn": 0.5}, {"info": 0.98, "warn": 0.99}
    for table in (off, high):
        limits = read_table(usual_thresholds(), {"zero_variance": {**table, "critical": 1.5}})
        assert inspect(rows_of(PATHOLOGIES["zero-variance"]), limits).alarms == ()


def test_other_trainers_names_are_read_and_rewards_of_groups_alone_too() -> None:
    groups = [Group(task_slug="a", rewards=[0.0] * 4), Group(task_slug="b", rewards=[0.0, 1.0])]
    each = {"metrics": {"tinker.optim/kl_sample_train_v1": 0.02}, "groups": groups}
    tree = Tree.of(chain(*[each] * 60))
    found = {alarm.name: alarm for alarm in inspect_lineage(tree).report().alarms}
    assert set(found) == {"kl_sampler", "zero_variance"}
    assert found["zero_variance"].level is Level.WARN
    assert (found["kl_sampler"].checkpoint_id, found["kl_sampler"].onset) == ("c9", 10)
    assert (found["kl_sampler"].shown_id, found["kl_sampler"].shown) == ("c10", 11)


def test_the_update_behind_a_metric_of_stale_rollouts_is_the_one_that_sampled_them() -> None:
    metrics = {"kl_sample_train": 0.02, "staleness_mean": 2.0}
    tree = Tree.of(chain(*[{"metrics": metrics}] * 60))
    [alarm] = [a for a in inspect_lineage(tree).report().alarms if a.name == "kl_sampler"]
    assert (alarm.shown, alarm.shown_id) == (11, "c10")
    assert (alarm.onset, alarm.checkpoint_id, alarm.before_id) == (8, "c7", "c6")


def test_hostile_steps_and_times_are_taken_for_what_can_be() -> None:
    nodes = [
        Checkpoint(id="a", step=2**80, created_at="0001-01-01T00:00:00", metrics={"entropy": 1.0}),
        Checkpoint(id="b", prev_model_checkpoint_id="a", step=-(2**80), created_at="9999-12-31"),
        Checkpoint(id="c", prev_model_checkpoint_id="b", created_at="x", is_active=True),
    ]
    watch = inspect_lineage(Tree.of(nodes))
    assert watch.report().steps == 3
    assert watch.last is not None


@pytest.mark.parametrize(
    ("silent_s", "step_s", "level"),
    [
        (5.0, 0.1, None),
        (29.0, 10.0, None),
        (31.0, 10.0, Level.WARN),
        (61.0, 10.0, Level.CRITICAL),
        (901.0, 800.0, Level.CRITICAL),
        (901.0, None, Level.CRITICAL),
        (100.0, None, None),
    ],
)
def test_a_silent_run_is_stalled(silent_s: float, step_s: float | None, level: str | None) -> None:
    alarm = stall(row(7, {}), silent_s, step_s, Thresholds().stall)
    assert (alarm and alarm.level) == level
    if alarm is not None:
        assert (alarm.onset, alarm.before_id) == (7, "c7")


KEYS = [
    *HEALTHY.metrics(5),
    *("clip_fraction_low", "clip_fraction_high", "ratio_outside", "frac_groups_mixed", "step_s"),
    *("num_heldout_traces", "off_policy/dropped", "traces_without_samples", "wait/engine"),
]
"""What detectors read."""
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e-320, 1e308, -1e308, 0.5, 1.0]),
)
METRICS = st.dictionaries(
    st.sampled_from([*KEYS, "reward/a", "reward/format/std", "rewards/b/mean"]),
    NUMBERS,
    max_size=12,
)


@given(st.lists(METRICS, max_size=40), st.integers(1, 4), st.one_of(st.none(), NUMBERS))
def test_no_data_makes_a_detector_raise(
    found: list[dict[str, float]], times: int, at: float | None
) -> None:
    watch = DetectorSet(steps=100)
    for place, metrics in enumerate(found * times):
        watch.read(Row(place, metrics, place + 1, f"c{place}", at))
    report = watch.report()
    assert report.steps == len(found) * times
    for alarm in report.alarms:
        assert 0 <= alarm.row < report.steps
        assert all(isfinite(one.value) for one in alarm.evidence)
        assert alarm.summary


@given(st.lists(NUMBERS, min_size=1, max_size=300), st.sampled_from(KEYS))
def test_no_curve_of_one_metric_makes_a_detector_raise(values: list[float], key: str) -> None:
    steps = [row(step, healthy(step) | {key: value}) for step, value in enumerate(values * 3, 1)]
    assert inspect(steps).steps == len(steps)


def shown(change: Change, name: str, steps: int = 150) -> list[Alarm]:
    """A detector's alarms where a healthy run is changed so."""
    return alarms(changed(change, steps), name)


@pytest.mark.parametrize(
    ("name", "metric", "value", "level"),
    [
        ("kl_sampler", "kl_sample_train", 0.0099, None),
        ("kl_sampler", "kl_sample_train", 0.0101, Level.WARN),
        ("kl_sampler", "kl_sample_train", 0.0499, Level.WARN),
        ("kl_sampler", "kl_sample_train", 0.0501, Level.CRITICAL),
        ("clip_fraction", "clip_fraction", 0.199, None),
        ("clip_fraction", "clip_fraction", 0.201, Level.WARN),
        ("clip_fraction", "clip_fraction", 0.399, Level.WARN),
        ("clip_fraction", "clip_fraction", 0.401, Level.CRITICAL),
        # Once, by how many times the median it is.
        ("grad_norm", "grad_norm", 2.9, None),
        ("grad_norm", "grad_norm", 3.1, Level.WARN),
        ("grad_norm", "grad_norm", 99.0, Level.WARN),
        ("grad_norm", "grad_norm", 101.0, Level.CRITICAL),
    ],
)
def test_the_default_limits_are_those_that_are_documented(
    name: str, metric: str, value: float, level: Level | None
) -> None:
    once, whole = name == "grad_norm", {"frac_reward_zero_std": 0.0}
    found = shown(lambda step: whole | {metric: value if step == 100 or not once else 1.0}, name)
    assert [alarm.level for alarm in found] == ([] if level is None else [level])


def still(step: int, entropy: float) -> dict[str, float]:
    """A reward that does not climb, and an entropy that falls from 1 over 40 steps, and stays."""
    rewards = dict.fromkeys(("reward_mean", "heldout_reward"), 0.4)
    return rewards | {"entropy": max(entropy, 1.0 - (1.0 - entropy) * max(0, step - 50) / 40)}


@pytest.mark.parametrize(("entropy", "fallen"), [(0.105, False), (0.095, True)])
def test_entropy_has_collapsed_at_a_tenth_of_its_start(entropy: float, fallen: bool) -> None:
    found = shown(lambda step: still(step, entropy), "entropy_collapse", 250)
    assert (Level.CRITICAL in [alarm.level for alarm in found]) == fallen


CLIPPED, NEAR, BELOW = 0.3, 0.19, 0.18
"""Of the clip fraction: above the warning's limit of .2; within the slack below it; beyond that."""


@pytest.mark.parametrize(("then", "holds"), [(NEAR, True), (BELOW, False)])
def test_an_alarm_ends_clearly_below_its_limit(then: float, holds: bool) -> None:
    """15 % of a level, so that a number on its limit is one alarm and not many."""
    found = shown(lambda n: {"clip_fraction": CLIPPED if n < 50 else then}, "clip_fraction", 200)
    assert [alarm.active for alarm in found] == [holds]
    assert shown(lambda step: {"clip_fraction": then}, "clip_fraction") == [], "it starts none"


def test_an_alarm_below_its_limit_says_how_far_it_is_from_its_end() -> None:
    """Of a metric that is not smoothed."""
    release = usual_thresholds().of("staleness").release

    def easing(steps: int) -> str:
        found = shown(
            lambda step: {"staleness_mean": 5.0 if step < 60 else 1.0}, "staleness", steps
        )
        return found[-1].easing

    assert easing(59) == ""
    assert easing(61) == f"ending: below the limit for 2 of {release} steps"
    assert easing(59 + release) == ""


@pytest.mark.parametrize(
    ("quiet", "age", "count"),
    [(15, 5.0, 1), (25, 5.0, 2), (15, 9.0, 2)],
    ids=["in the cool-down", "after it", "worse, in the cool-down"],
)
def test_an_alarm_that_ended_keeps_quiet_for_twenty_steps_unless_it_gets_worse(
    quiet: int, age: float, count: int
) -> None:
    """Of a metric that is not smoothed: it has ended with the fifth step below its limit."""
    ended = 60 + usual_thresholds().of("staleness").release - 1

    def change(step: int) -> dict[str, float]:
        late = ended + quiet - 3 <= step < ended + quiet + 1
        return {"staleness_mean": 5.0 if 40 <= step < 60 else age if late else 1.0}

    assert len(shown(change, "staleness")) == count


def test_the_tail_of_an_average_is_no_share_of_groups() -> None:
    def learned(step: int) -> dict[str, float]:
        good = 0.95 if step > 20 else 0.05
        return {
            "frac_reward_zero_std": 0.95,
            "frac_groups_all_solved": good,
            "frac_groups_all_failed": 0.95 - good,
        }

    found = shown(learned, "zero_variance", 50)[-1]
    assert "all solved .950 · all failed 0" in found.evidence_text


def test_a_learned_taskset_is_an_info_that_no_chart_and_no_flag_shows() -> None:
    report = changed(learned, 200)
    [alarm] = report.active
    assert (alarm.name, alarm.level) == ("zero_variance", Level.INFO)
    assert "solved every time" in alarm.advice
    assert report.by_metric == {}
    assert report.onsets == frozenset()


CHAINS = {
    "length-hack": ["length_blow_up", "truncation", "heldout_gap"],
    "off-policy": ["staleness", "clip_fraction", "kl_sampler"],
    "entropy-collapse": ["entropy_collapse", "reward_plateau"],
    "nan-loss": ["grad_norm", "non_finite"],
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_consequence_stands_after_its_cause_and_has_its_advice(name: str) -> None:
    report = inspect(rows_of(PATHOLOGIES[name]), steps=300)
    first, *others = report.active
    assert [alarm.name for alarm in report.active] == CHAINS[name]
    assert (first.cause, first.advice) == ("", DETECTORS[first.name].ADVICE)
    for alarm in others:
        assert alarm.cause == first.name
        assert alarm.advice == f"Follows from {first.title}: {first.advice}"
        assert alarm.summary.startswith(f"follows from {first.title} · ")


def test_truncation_alone_has_its_own_advice_and_length_does_not_hide_it_later() -> None:
    def cut(step: int) -> dict[str, float]:
        return {"truncated_share": 0.3 if step > 100 else 0.01}

    [alone] = changed(cut, 200).active
    assert (alone.cause, alone.advice[:16]) == ("", "Raise max_tokens")
    length = PATHOLOGIES["length-hack"]
    later = changed(lambda step: {**length.differs(step), **cut(step)}, 300)
    assert [alarm.cause for alarm in later.active if alarm.name == "truncation"] == [""]


def test_a_spike_that_has_ended_is_the_cause_of_the_fall_after_it() -> None:
    report = inspect(rows_of(PATHOLOGIES["gradient-explosion"]), steps=300)
    [fall] = [alarm for alarm in report.active if alarm.name == "reward_collapse"]
    assert fall.cause == "grad_norm"
    assert not any(alarm.active for alarm in report.alarms if alarm.name == "grad_norm")


def test_causes_are_detectors_and_lead_in_no_circle() -> None:
    names = set(CAUSES).union(*CAUSES.values())
    assert names <= set(DETECTORS)
    for name in CAUSES:
        reached, queue = set[str](), list(CAUSES[name])
        while queue:
            reached.add(cause := queue.pop())
            queue += [one for one in CAUSES.get(cause, ()) if one not in reached]
        assert name not in reached


BAD = PATHOLOGIES["zero-variance"]


def tree_of(pathology: Pathology, steps: int) -> Tree:
    return grow(Tree(), pathology, 1, steps)


def grow(tree: Tree, pathology: Pathology, first: int, last: int, line: str = "c") -> Tree:
    parent = None if tree.head is None else tree[tree.head].id
    for n in range(first, last + 1):
        at, metrics = datetime.fromtimestamp(BEGAN + STEP_S * n, UTC), pathology.metrics(n)
        more = {"metrics": metrics, "created_at": at.isoformat(), "is_active": True}
        tree, parent = tree.add(named(f"{line}{n}", parent, **more)), f"{line}{n}"
    return tree


def test_read_in_slices_or_anew_it_says_what_it_says_at_once() -> None:
    tree, monitor = tree_of(BAD, 200), AlarmMonitor()
    assert monitor.follow(tree, most=70)
    assert (monitor.behind, monitor.report().waiting, monitor.report().steps) == (130, 130, 70)
    tree = grow(tree, BAD, 201, 260)
    while monitor.follow(tree, most=70):
        assert monitor.report().steps + monitor.behind == 260
    assert monitor.behind == 0
    assert monitor.report() == inspect_lineage(tree).report()

    monitor = AlarmMonitor()
    assert monitor.follow(tree_of(BAD, 200))
    assert not monitor.follow(tree_of(BAD, 200))
    assert monitor.follow(tree_of(BAD, 201))
    assert monitor.report().steps == 201


def test_when_the_head_is_set_back_what_was_left_is_kept_apart() -> None:
    tree, monitor = tree_of(BAD, 200), AlarmMonitor()
    monitor.follow(tree)
    [alarm] = monitor.report().alarms
    assert alarm.active
    monitor.follow(tree.with_head(alarm.before_id))
    report = monitor.report()
    assert report.alarms == ()
    assert [(left.id, left.active) for left in report.left] == [(alarm.id, False)]
    assert report.steps == alarm.onset - 1
    branch = grow(tree.with_head(alarm.before_id), BAD, alarm.onset, 200, "d")
    monitor.follow(branch)
    assert [found.checkpoint_id for found in monitor.report().alarms] == [f"d{alarm.onset}"]


def test_base_weights_have_nothing_to_judge_and_a_silent_run_is_among_the_alarms() -> None:
    monitor = AlarmMonitor()
    assert not monitor.follow(Tree())
    assert monitor.report().steps == 0
    monitor.follow(tree_of(BAD, 20))
    assert monitor.follow(tree_of(BAD, 20).with_head(None))
    assert monitor.report().steps == 0

    monitor = AlarmMonitor()
    monitor.follow(tree_of(BAD, 20), WorkState(status="running", step=20, steps=100))
    assert monitor.report(5.9).alarms == ()
    [alarm] = monitor.report(15.0).alarms
    assert (alarm.name, alarm.onset, alarm.before_id) == ("stall", 20, "c20")


def runs_of(*runs: tuple[str, str, int, float], says: bool) -> Tree:
    """Runs on one line.

    Args:
        runs: Each one's id, its tasks, its steps and their mean reward.
        says: Whether the service names a run's tasks, or only those of its rollouts.
    """
    taken = [(run, tasks, mean) for run, tasks, steps, mean in runs for _ in range(steps)]
    steps = []
    for n, (run, tasks, mean) in enumerate(taken, 1):
        metrics = {
            "reward_mean": mean + 0.01 * noise(n),
            "heldout_reward": mean + 0.01 * noise(n + 1),
            "entropy": 2 * (1.01 - mean),
            "grad_norm": 1.2 - mean,
        }
        groups = [Group(task_slug=f"{tasks}-{(n + i) % 9}", rewards=[0, 1]) for i in range(3)]
        known = {"job_id": run, "tasks_digest": tasks if says else None, "groups": groups}
        steps.append({**known, "metrics": HEALTHY.metrics(40) | metrics})
    return Tree.of(chain(*steps, first=1))


@pytest.mark.parametrize("says", [True, False])
def test_rewards_on_other_tasks_are_no_collapse(says: bool) -> None:
    """Nor is a gradient or an entropy that is usual there; and the way back is none either."""
    tree = runs_of(("a", "long", 200, 0.98), ("b", "mixed", 60, 0.6), says=says)
    assert inspect_lineage(tree).report().active == ()
    tree = runs_of(
        ("a", "mixed", 60, 0.6), ("b", "long", 60, 0.98), ("c", "mixed", 60, 0.5), says=says
    )
    assert inspect_lineage(tree).report().active == ()


@pytest.mark.parametrize("says", [True, False])
def test_a_further_run_on_the_same_tasks_is_compared_with_the_one_before(says: bool) -> None:
    tree = runs_of(("a", "long", 60, 0.9), ("b", "long", 60, 0.4), says=says)
    found = {alarm.name: alarm for alarm in inspect_lineage(tree).report().active}
    assert {"reward_collapse", "heldout_collapse"} <= set(found)
    assert found["reward_collapse"].shown == 61


def test_a_collapse_on_other_tasks_is_found_and_ends_where_others_begin() -> None:
    tree = runs_of(
        *(("a", "long", 60, 0.98), ("b", "mixed", 60, 0.6), ("c", "mixed", 60, 0.1)), says=True
    )
    monitor = AlarmMonitor()
    monitor.follow(tree)
    alarm = next(one for one in monitor.report().active if one.name == "reward_collapse")
    assert (alarm.shown, alarm.before_id) == (121, "c118")
    [peak] = [one.value for one in alarm.evidence if one.name == "peak"]
    assert 0.5 < peak < 0.7

    fell = (("a", "long", 60, 0.9), ("b", "long", 60, 0.4))
    tree = runs_of(*fell, ("c", "mixed", 30, 0.4), says=True)
    ended = {alarm.name: alarm for alarm in inspect_lineage(tree).report().alarms}
    assert (ended["reward_collapse"].active, ended["reward_collapse"].ended) == (False, 121)
    assert ended["reward_collapse"].evidence
