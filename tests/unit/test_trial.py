"""What Launch shows of tasks that were tried, and which it submits."""

from dataclasses import replace
from pathlib import Path

import pytest

from hud_tui.client.preflight import choose_tasks
from hud_tui.rl.findings import Finding
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.signal import Outcome, Pace, Progress, Size, TaskSignal
from hud_tui.rl.tasks.task import HELD_OUT
from hud_tui.tui.run_draft import (
    BINS,
    COLUMNS,
    TASK_COLUMNS,
    Draft,
    Trial,
    bars,
    task_columns,
    task_rows,
)

SLUGS = ("even", "dead", "easy", "new", "held")
TASKS = tuple(
    read_rows(
        [
            {"env": "e", "id": "s", "args": {"n": n}, "slug": slug}
            | ({"columns": {"split": HELD_OUT}} if slug == "held" else {})
            for n, slug in enumerate(SLUGS)
        ]
    )
)
REWARDS = {"even": (0.0, 1.0), "dead": (0.0, 0.0), "easy": (1.0, 1.0)}
SIGNALS = {
    slug: TaskSignal(slug, tuple(Outcome(reward, 5) for reward in rewards))
    for slug, rewards in REWARDS.items()
}
TRIED = Trial(SIGNALS, Size(8, 2, 10, 4), Pace(6, 3.0), 6, 6)


def cells(trial: Trial) -> list[list[str]]:
    return [[cell.plain for cell in row.cells] for row in task_rows(TASKS, trial)]


def test_no_signal_tasks_are_left_out_together_and_taken_in_again() -> None:
    dead = TRIED.dead(TASKS)
    assert dead == {"dead", "easy"}
    out = TRIED.toggled(dead)
    assert [task.slug for task in out.chosen(TASKS)] == ["even", "new", "held"]
    assert out.toggled(dead) == TRIED
    one = TRIED.toggled(frozenset({"easy"}))
    assert one.toggled(dead).left_out == dead


def test_the_verdict_is_of_what_is_left_in_and_a_failure_blocks_until_the_dead_are_out() -> None:
    assert [finding.level for finding in TRIED.findings()] == ["warning"]
    assert [one.level for one in TRIED.toggled(frozenset({"dead", "easy"})).findings()] == ["ok"]
    assert Trial().findings() == []
    assert Trial(SIGNALS, TRIED.size, running=True).findings() == []

    signals = {slug: SIGNALS[slug] for slug in ("dead", "easy")}
    draft = Draft("s", TASKS, trial=Trial(signals, TRIED.size))
    assert draft.failed
    out = Draft("s", TASKS, trial=draft.trial.toggled(frozenset(signals)))
    assert not out.failed
    assert [task.slug for task in out.chosen] == ["even", "new", "held"]


def test_that_an_environment_s_trial_had_no_signal_is_asked_about_and_blocks_nothing() -> None:
    """It may be chance, and the check has said the reason, so it is not told twice."""
    signals = {slug: SIGNALS[slug] for slug in ("dead", "easy")}
    found = Finding("signal", "failure", "every reward is 0: low signal")
    ok = Finding("rollout", "ok", "16 rollouts")
    trial = Trial(signals, TRIED.size)
    draft = Draft("e.py", TASKS, (ok, found), trial=trial, environment=Path("e.py"))
    assert not draft.failed
    assert draft.warnings == [found]
    assert draft.found_in_all == (ok, found)
    broken = Finding("rollout", "failure", "every rollout failed")
    assert replace(draft, findings=(broken, found)).failed


def test_rows_say_what_was_seen_and_are_ordered_by_std_those_not_tried_last() -> None:
    assert TRIED.order(TASKS) == [0, 1, 2, 3, 4]
    by_std = Trial(SIGNALS, TRIED.size, by_std=True)
    assert by_std.order(TASKS) == [0, 1, 2, 3, 4]
    turned = TASKS[::-1]
    assert [turned[place].slug for place in by_std.order(turned)] == [
        "even", "easy", "dead", "held", "new",
    ]  # fmt: skip

    assert task_columns(Trial()) == TASK_COLUMNS
    assert task_columns(TRIED) == COLUMNS
    even, dead, easy, new, held = cells(TRIED.toggled(frozenset({"dead"})))
    assert even[:8] == ["even", "█      █", ".50", ".50", "1 %", "0 %", "5", "signal"]
    assert (dead[0], dead[7]) == ("✘ dead", "left out")
    assert easy[7] == "too easy"
    assert new[1:8] == [""] * 7
    assert held[7] == "held out"


@pytest.mark.parametrize(
    ("rewards", "shape"),
    [([0.0], "█       "), ([1.0, 1.0], "       █"), ([-1.0, 1.0], "█      █"), ([], "")],
)
def test_bars(rewards: list[float], shape: str) -> None:
    assert bars(rewards) == shape
    assert len(shape) in (0, BINS)


def test_the_bar_says_how_far_it_is() -> None:
    heard = Trial(size=TRIED.size, running=True).observe(
        Progress(5, 20, tuple(SIGNALS.values()), Pace(6, 1.0))
    )
    assert heard.signals == SIGNALS
    assert "━━━━━─" in heard.bar
    assert "5 of 20 rollouts" in Draft("s", TASKS, trial=heard).lead(False, True)


def test_what_is_submitted_is_named_as_the_command_line_can_name_it() -> None:
    """By the file's whole path, or the taskset's name; without the tasks that were left out."""
    trial = Trial(left_out=frozenset({"easy", "dead"}))
    file = Draft("tasks.jsonl", TASKS, trial=trial).task_source
    assert (file.origin, file.left_out) == (str(Path("tasks.jsonl").absolute()), ("dead", "easy"))
    origin = {"source": "tasks.jsonl", "loaded_from": "file"}
    chosen, same = choose_tasks(TASKS, origin, file.left_out, file.digest)
    assert ([task.slug for task in chosen], same) == (["even", "new", "held"], file)
    assert Draft("arith", TASKS, taskset_id="t1").task_source.origin == "arith"
