"""The table of runs: rows, columns, order, filter, groups, differences, and overlays."""

from dataclasses import replace
from math import inf, isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.cli.run_table import run_document
from hud_tui.errors import HudUsage
from hud_tui.rl.axes import Axis
from hud_tui.rl.compare import RunSeries, overlay_runs, value_at
from hud_tui.rl.own_numbers import HELDOUT
from hud_tui.rl.run_columns import (
    BY_PARAMETER,
    COLUMNS,
    DEFAULT_COLUMNS,
    column,
    columns,
    evaluation_text,
    meaning_of,
    offered,
    parse_filter,
    sort_rows,
    sparkline,
)
from hud_tui.rl.run_groups import differences, group_rows
from hud_tui.rl.runs import (
    MOST_POINTS,
    eta_s,
    find_run,
    run_of,
    run_of_job,
    silent_s,
    steps_at_ends,
    thinned,
)
from hud_tui.rl.work import Work
from hud_tui.tui.screens.base import loop_parts
from hud_tui.tui.widgets.run_curves import Compared
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Job, Model, WorkState
from hud_tui.wire_runs import RunRecord

NOW = 1_000_000.0


def run(id_: str, **fields: Any) -> Work:
    return Work(**{"id": id_, "model_id": "m", "model": "arith-rl", "done": 0, **fields})


ROWS = [
    run("a", reward=0.5, lr=1e-4, group_size=8, status="running", created_at=NOW - 60, done=10),
    run("b", reward=0.9, lr=3e-4, group_size=8, status="succeeded", taskset="mixed", note="good"),
    run("c", lr=3e-4, group_size=16, status="failed", name="Third", alarms=2, alarm="critical"),
    run("d", reward=0.9, lr=1e-3, status="running", kind="reported", tokens=2_000_000),
]


def ids(rows: list[Work]) -> str:
    return "".join(row.id for row in rows)


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("", "abcd"),
        ("reward", "abdc"),
        ("-reward", "bdac"),
        ("-lr", "dbca"),
        ("group", "abcd"),
        ("-group,lr", "cabd"),
        ("state,-reward", "cdab"),
        ("-alarms", "cabd"),
        ("age", "abcd"),
        ("note", "bacd"),
        ("param.none", "abcd"),
    ],
)
def test_rows_are_sorted_stably_with_what_is_missing_last(by: str, wanted: str) -> None:
    assert ids(sort_rows(ROWS, by, NOW)) == wanted


def test_names_are_sorted_as_people_read_them() -> None:
    rows = [run(name, taskset=name) for name in ("beta", "Gamma", "Alpha")]
    assert [row.id for row in sort_rows(rows, "taskset", NOW)] == ["Alpha", "beta", "Gamma"]


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0])), max_size=30))
def test_any_order_has_the_same_rows(rewards: list[float | None]) -> None:
    rows = [run(str(n), reward=reward) for n, reward in enumerate(rewards)]
    for by in ("reward", "-reward"):
        found = sort_rows(rows, by, NOW)
        assert sorted(map(id, found)) == sorted(map(id, rows))
        known = [row.reward for row in found if row.reward is not None]
        assert known == sorted(known, reverse=by[0] == "-")
        assert all(row.reward is None for row in found[len(known) :])
        for value in (0.0, 0.5, 1.0):
            alike = [int(row.id) for row in found if row.reward == value]
            assert alike == sorted(alike), "equal ones stay in their order"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", "abcd"),
        ("lr:3e-4", "bc"),
        ("lr:3e-4 reward>.8", "b"),
        ("lr:3e-4 reward>.8 state:succeeded mixed", "b"),
        ("state:running", "ad"),
        ("mixed", "b"),
        ("!mixed", "acd"),
        ("third", "c"),
        ("reward>=.5 group:8..16", "ab"),
        ("!reward>.6", "a"),
        ("is:alarm", "c"),
        ("alarm:critical", "c"),
        ("is:running", "ad"),
        ("is:reported", "d"),
        ("is:ended", "bc"),
        ("is:failed", "c"),
        ("!is:active", "bc"),
        ("note:good", "b"),
        ("is:noted", "b"),
        ("age<2m", "a"),
        ("age<30s", ""),
        ("tokens>1M", "d"),
        ("steps:10", "a"),
        ("kind=reported", "d"),
        ("param.max_tokens>1", ""),
    ],
)
def test_rows_are_filtered_by_what_the_tree_s_filter_takes(expression: str, wanted: str) -> None:
    keep = parse_filter(expression, NOW)
    assert ids([row for row in ROWS if keep(row)]) == wanted


@pytest.mark.parametrize(
    ("expression", "said", "hint"),
    [
        ("rewrad>.8", "no run has rewrad", "did you mean reward"),
        ("reward>x", "x is not a number", ""),
        ("model>3", "model is text", ""),
        ("is:blue", "unknown", "running"),
        ("reward>", "no value after the operator", ""),
    ],
)
def test_a_term_that_says_nothing_is_named(expression: str, said: str, hint: str) -> None:
    with pytest.raises(HudUsage) as failed:
        parse_filter(expression, NOW)
    assert said in failed.value.message
    assert hint in failed.value.hint


def test_columns_are_chosen_and_ordered_added_and_taken_away() -> None:
    assert [column.key for column in columns("")] == list(DEFAULT_COLUMNS)
    assert [column.key for column in columns("reward, name,param.max_tokens")] == [
        *("reward", "name", "param.max_tokens"),
    ]
    assert [column.key for column in columns("-age,+tokens")] == [
        *(key for key in DEFAULT_COLUMNS if key != "age"),
        "tokens",
    ]
    with pytest.raises(HudUsage) as failed:
        columns("rewards")
    assert "did you mean reward" in failed.value.hint


@pytest.mark.parametrize("key", COLUMNS)
def test_every_column_shows_an_empty_row_and_a_full_one(key: str) -> None:
    full = run_of(RECORD, {"r": "mine"})
    assert COLUMNS[key].text(run("x"), NOW) in ("–", "x", "arith-rl", "0", "")
    assert COLUMNS[key].text(full, NOW) not in ("–", "")


def test_how_long_a_run_took_is_written_as_the_time_that_it_has_left() -> None:
    done = replace(run_of(RECORD, {}), duration_s=135.0)
    assert COLUMNS["duration"].text(done, NOW) == "2m15s"
    assert COLUMNS["by"].text(run("a", by="tim", resumed_by="sue"), NOW) == "tim → sue"


@pytest.mark.parametrize("key", COLUMNS)
def test_every_column_is_filtered(key: str) -> None:
    full, shown = run_of(RECORD, {"r": "mine"}), COLUMNS[key]
    value = shown.value(full, NOW)
    assert value is not None
    if shown.is_text:
        assert parse_filter(f"{key}:{str(value).split()[0]}", NOW)(full)
        return
    number = shown.compared(full, NOW)
    assert number is not None
    assert parse_filter(f"{key}>={number!r}", NOW)(full)
    assert not parse_filter(f"{key}>{number!r}", NOW)(full)


def test_a_column_of_a_parameter_stands_for_it() -> None:
    rows = [run("a", parameters={"learning_rate": 1e-4, "beta1": 0.9})]
    assert offered(rows) == [*COLUMNS, "param.beta1"]
    assert {name: each.key for name, each in BY_PARAMETER.items()} == {
        "loss_fn": "loss",
        "learning_rate": "lr",
        "group_size": "group",
        "seed": "seed",
    }


def test_a_column_may_be_a_parameter_and_an_evaluation_may_have_no_interval() -> None:
    tokens, row = column("param.max_tokens"), run("a", parameters={"max_tokens": 20})
    assert (tokens.value(row, NOW), tokens.text(row, NOW)) == (20, "20")
    assert tokens.text(run("b"), NOW) == "–"
    assert evaluation_text(Evaluation(mean_reward=0.5, num_tasks=3, num_traces=6)) == ".500 3×2"
    assert evaluation_text(None) == "–"


EVALUATION = Evaluation(
    mean_reward=0.71,
    num_tasks=48,
    num_traces=192,
    samples=4,
    mean=Estimate(value=0.71, low=0.66, high=0.76),
)
RECORD = RunRecord(
    id="r",
    by="ana",
    name="mixed on \x1b[31mrl",
    status="running",
    model_id="m",
    model="arith-rl",
    base="tiny/arith-0.2M",
    engine="tiny",
    forked_from="tiny/arith-0.2M",
    start="step-000012",
    taskset="mixed",
    parameters={
        **{"group_size": 8, "learning_rate": 3e-4, "loss_fn": "ppo", "seed": 3},
        **{"loss_fn_config": {"clip_high_threshold": 1.28}, "sweep": "s1", "max_tokens": None},
    },
    step=30,
    steps=60,
    created_at=NOW - 300,
    stepped_at=NOW - 1,
    busy_s=150.0,
    step_s=3.0,
    reward_first=0.4,
    reward_last=0.8,
    points=[0.4, 0.6, 0.8],
    heldout=0.71,
    num_heldout_traces=192,
    evaluation=EVALUATION,
    no_gradient=0.25,
    tokens=12_345,
    alarms=1,
    alarm="warn",
)


HELD = {"heldout_reward": 0.6, "num_heldout_traces": 20.0}
"""Metrics of a step that sampled held-out tasks."""


def test_the_service_s_record_becomes_a_row() -> None:
    row = run_of(RECORD, {"r": "mine"})
    assert row.name == "mixed on ␛[31mrl", "what a server says cannot act on the terminal"
    assert (row.start, row.sweep, row.note) == ("step-000012", "s1", "mine")
    assert (row.lr, row.seed) == (3e-4, 3)
    assert row.parameters["loss_fn_config.clip_high_threshold"] == 1.28
    assert not row.parameters.keys() & {"max_tokens", "sweep", "loss_fn_config"}
    assert (row.step_s, eta_s(row)) == (3.0, 90.0)
    assert eta_s(run_of(RECORD.model_copy(update={"waits": "paused"}))) is None
    shown = {key: COLUMNS[key].text(row, NOW) for key in DEFAULT_COLUMNS}
    assert shown["reward"] == ".400 → .800"
    assert shown["eval"] == ".710 [.660, .760] 48×4"
    assert shown["heldout"] == ".710", "its size is beside it"
    assert (shown["steps"], shown["nograd"], shown["alarms"]) == ("30/60", "25 %", "warn")
    more = run_of(RECORD.model_copy(update={"alarms": 3}))
    assert COLUMNS["alarms"].text(more, NOW) == "warn +2", "only the worst is known"
    assert (shown["spark"], shown["lr"], shown["age"]) == ("▁▄█", "3e-4", "5 m")
    assert "first 5 steps → of its newest 5" in meaning_of(COLUMNS["reward"], row)


def test_a_run_of_one_step_has_one_reward_and_no_trend() -> None:
    row = replace(run_of(RECORD), reward_first=0.031, reward=0.031, points=(0.031,))
    assert COLUMNS["reward"].text(row, NOW) == ".031"
    assert COLUMNS["spark"].text(row, NOW) == "–"
    assert "→" not in meaning_of(COLUMNS["reward"], row)


def test_a_held_out_reward_that_was_never_evaluated_says_of_how_many_rollouts_it_is() -> None:
    told = RECORD.model_copy(update={"evaluation": None, "num_heldout_traces": 36})
    row, unsaid = run_of(told), run_of(told.model_copy(update={"num_heldout_traces": None}))
    assert COLUMNS["heldout"].text(row, NOW) == ".710 (36)"
    assert COLUMNS["heldout"].value(row, NOW) == 0.71
    assert COLUMNS["heldout_n"].text(row, NOW) == "36"
    assert COLUMNS["heldout"].text(unsaid, NOW) == ".710"
    assert COLUMNS["heldout_n"].text(unsaid, NOW) == "–"
    keep = parse_filter("heldout>.7 heldout_n>=36 !is:evaluated", NOW)
    assert [keep(one) for one in (row, unsaid, run_of(RECORD))] == [True, False, False]


def test_a_loop_outside_the_service_without_a_step_is_stalled_and_has_no_end_in_sight() -> None:
    """Nobody reports that it was killed: its rollouts stay open."""
    loop = run("l", kind="reported", status="running", done=10, total=20, step_s=5.0)
    loop = replace(loop, stepped_at=NOW)
    eta = COLUMNS["eta"]
    assert (silent_s(loop, NOW + 14), eta.text(loop, NOW + 14)) == (None, "50 s")
    assert loop_parts(loop, NOW + 14)[-1][1].plain == "50 s left"
    assert (silent_s(loop, NOW + 180), eta.text(loop, NOW + 180)) == (180, "stalled")
    assert loop_parts(loop, NOW + 180)[-1][1].plain == "no step for 3m00s"
    going = replace(loop, id="g", stepped_at=NOW + 170, done=9, step_s=6.0)
    for now, order, within, left in (
        (NOW, "lg", "lg", [50, 66]),
        (NOW + 180, "gl", "g", [66, None]),
    ):
        found = sort_rows([going, loop], "eta", now)
        assert ids(found) == order
        assert ids([one for one in (loop, going) if parse_filter("eta<90", now)(one)]) == within
        assert [eta.value(one, now) for one in found] == left
        assert [run_document(one, now)["eta_s"] for one in found] == left
    [group] = group_rows([loop], "eta", NOW + 180)
    assert dict(group.keys) == {"ETA": "–"}
    assert run_document(loop, NOW + 180)["silent_s"] == 180
    for other in ({"status": "completed"}, {"kind": "training"}, {"stepped_at": None}):
        assert silent_s(replace(loop, **other), NOW + 180) is None


def test_hud_s_words_become_the_same_row() -> None:
    job = Job(
        id="j",
        name="mixed",
        status="running",
        created_at="2026-01-01T00:00:00Z",
        group_size=8,
        metadata={"kind": "training", "model_id": "m", "step": 3, "steps": 10},
    )
    model = Model(id="m", model_name="arith-rl", forked_from="base@step-000002")
    bare = run_of_job(job, model)
    assert (bare.model, bare.start) == ("arith-rl", "base@step-000002")
    assert (bare.step, bare.steps) == (3, 10)
    assert not bare.whole
    parent = Checkpoint(id="p", name="step-000007")
    steps = [
        Checkpoint(
            id=str(n),
            created_at=f"2026-01-01T00:0{n}:00Z",
            mean_reward=n / 10,
            num_traces=16,
            num_tokens=100,
            learning_rate=1e-4,
            loss_fn="ppo",
            metrics={"frac_reward_zero_std": 0.5, **({1: HELD, 2: HELD}.get(n, {}))},
        )
        for n in (1, 2, 3)
    ]
    row = run_of_job(job, model, None, steps, parent)
    assert (row.start, row.lr, row.loss, row.tokens) == ("step-000007", 1e-4, "ppo", 300)
    assert (row.reward_first, row.points) == (pytest.approx(0.1), (0.1, 0.2, 0.3))
    assert (row.no_gradient, row.duration_s) == (0.5, 180.0)
    assert (row.step_s, eta_s(row)) == (60.0, 420.0)
    assert (row.heldout, row.heldout_rollouts, row.evaluation) == (0.6, 20, None)
    assert row.whole
    evaluated = steps[-1].model_copy(update={"evaluations": [EVALUATION]})
    row = run_of_job(job, model, None, [*steps[:-1], evaluated], parent)
    assert (row.heldout, row.heldout_rollouts, row.evaluation) == (0.71, 192, EVALUATION)


def test_a_job_s_model_is_known_by_its_row_or_by_the_job() -> None:
    job = Job(id="j", metadata={"model_id": "of the job"})
    assert run_of_job(job, Model(id="m", model_name="arith-rl")).model_id == "m"
    assert run_of_job(job, None).model_id == "of the job"


def test_what_neither_a_job_nor_its_steps_say_is_left_out() -> None:
    job, status = Job(id="j"), WorkState(status="running", step=7, trained_tokens=50)
    bare = run_of_job(job, None)
    assert (bare.step, bare.tokens, bare.lr, bare.whole) == (0, 0, None, False)
    status = status.model_copy(update={"parameters": {"learning_rate": 2e-4}})
    step, parent = Checkpoint(id="c", learning_rate=1e-4), Checkpoint(id="p")
    told = run_of_job(job, None, status, [step], parent)
    assert (told.step, told.tokens, told.lr, told.start) == (7, 50, 2e-4, "p")
    assert (told.points, told.whole, run_of_job(job, None, None, []).whole) == ((), True, True)
    for rate in (inf, "fast", None):
        odd = status.model_copy(update={"parameters": {"learning_rate": rate}})
        assert run_of_job(job, None, odd).lr is None


@pytest.mark.parametrize("odd", [["x"], {"x": 1}, 10**400], ids=["list", "map", "huge"])
def test_odd_values_of_a_service_are_shown_or_left_out(odd: object) -> None:
    parameters = {"sweep": odd, "loss_fn": odd, "learning_rate": odd}
    row = run_of(RunRecord(id="r", model_id="m", status="running", parameters=parameters))
    assert (row.lr, bool(row.sweep), bool(row.loss)) == (None, True, True)
    assert run_of_job(Job(id="j", metadata={"kind": odd, "model": odd}), None).kind


def test_a_run_is_found_by_its_model_too_and_a_near_name_is_told() -> None:
    rows = [run("r2", name="second"), run("r1", name="first", model="Mixed")]
    assert find_run("arith-RL", rows) is rows[0]
    assert find_run("mixed", rows) is find_run("first", rows) is rows[1]
    for name in ("arith-rr", "firzt"):
        with pytest.raises(HudUsage, match=f"no run named {name}") as unknown:
            find_run(name, rows)
        assert ("arith-rl" if name == "arith-rr" else "first") in unknown.value.hint


def test_a_share_without_a_gradient_is_of_rollouts_and_not_of_steps() -> None:
    steps = [
        Checkpoint(id=f"{share}", num_traces=traces, metrics={"frac_reward_zero_std": share})
        for share, traces in ((0.5, 16), (1.0, 48))
    ]
    assert run_of_job(Job(id="j"), None, None, steps).no_gradient == pytest.approx(56 / 64)


def test_a_mean_over_tasks_that_were_chosen_says_so() -> None:
    given = {"reward_first": 0.4, "points": (0.4, 0.8), "reward": 0.8}
    chosen = run("a", parameters={"draw": "signal"}, **given)
    assert COLUMNS["reward"].text(chosen, NOW) == ".400 → .800 signal"
    assert meaning_of(COLUMNS["reward"], chosen).endswith("of tasks chosen by signal")
    fair = run("b", parameters={"draw": "uniform"}, **given)
    assert COLUMNS["reward"].text(fair, NOW) == ".400 → .800"
    assert "chosen" not in meaning_of(COLUMNS["reward"], fair)
    [group] = group_rows([chosen], "sweep", NOW)
    assert "reward .800 of tasks chosen by signal" in group.title


@pytest.mark.parametrize(("steps", "ends"), [(0, 1), (1, 1), (3, 1), (8, 4), (10, 5), (999, 5)])
def test_the_ends_of_a_short_run_do_not_overlap(steps: int, ends: int) -> None:
    assert steps_at_ends(steps) == ends


def test_groups_are_settings_and_their_repetitions() -> None:
    rows = [
        run(f"{lr}{seed}", parameters={"learning_rate": lr, "seed": seed}, reward=reward)
        for lr, seed, reward in ((1e-4, 0, 0.5), (3e-4, 0, 0.8), (1e-4, 1, 0.7), (3e-4, 1, None))
    ]
    first, second = group_rows(rows, "differs", NOW)
    assert [dict(group.keys)["learning_rate"] for group in (first, second)] == ["1e-4", "3e-4"]
    assert [len(group.rows) for group in (first, second)] == [2, 2]
    assert (first.mean, second.mean, second.std) == (pytest.approx(0.6), 0.8, None)
    assert first.std == pytest.approx(0.1414, abs=1e-4)
    assert first.title == "2 runs · reward .600 ± .141 between runs · lr 1e-4"
    assert second.title == "2 runs · reward .800 of 1 run · lr 3e-4"
    states = ("running", "succeeded", "failed")
    groups = group_rows(ROWS, "state", NOW)
    assert [group.keys for group in groups] == [(("state", s),) for s in states]


def test_what_a_loop_outside_the_service_does_not_report_is_no_difference() -> None:
    usual = {"norm_adv_by_std": True, "beta1": 0.9}
    managed = [
        run(f"m{lr}", parameters={"learning_rate": lr, **usual}, reward=0.5, taskset="arith")
        for lr in (1e-4, 3e-4)
    ]
    loops = [run(f"l{n}", kind="reported", lr=1e-4, reward=n / 10) for n in (1, 2)]
    assert [group.title for group in group_rows([*managed, *loops], "differs", NOW)] == [
        "1 run · reward .500 · taskset arith · lr 1e-4",
        "1 run · reward .500 · taskset arith · lr 3e-4",
        "2 runs · not averaged: tasksets unknown · no taskset · lr 1e-4",
    ]
    left_out = run("m", parameters={"learning_rate": 1e-4, "beta1": 0.9}, taskset="arith")
    titles = [group.title for group in group_rows([*managed[:1], left_out], "differs", NOW)]
    assert titles == [
        "1 run · reward .500 · norm adv by std yes",
        "1 run",
    ]
    [unset, *_] = group_rows(loops, "taskset,param.beta1", NOW)
    assert unset.title == "2 runs · not averaged: tasksets unknown · no taskset"
    [alone] = group_rows(loops[:1], "sweep", NOW)
    assert alone.title == "1 run · reward .100 · no sweep"


def test_a_group_says_its_reward_first_where_there_is_a_mean() -> None:
    """The end of a title is cut in a narrow terminal."""
    rows = [
        run(f"{n}", start="2", reward=n / 2, parameters={"learning_rate": 1e-4, **more})
        for n, more in enumerate(({"eval_every": 5, "norm_adv_by_std": True}, {}))
    ]
    first, second = group_rows(rows, "start,param.eval_every,param.norm_adv_by_std", NOW)
    assert first.title == "1 run · reward 0 · from 2 · eval every 5 · norm adv by std yes"
    assert second.title == ("1 run · reward .500 · from 2")
    assert dict(second.keys) == {"from": "2", "eval_every": "–", "norm_adv_by_std": "–"}
    rows = [
        run(t, taskset=t, sweep="one", reward=r) for t, r in (("digits", 0.5), ("letters", 0.9))
    ]
    [group] = group_rows(rows, "sweep", NOW)
    assert (group.mean, group.std) == (None, None)
    assert group.title == "2 runs · not averaged: taskset differs · sweep one"
    assert [group.mean for group in group_rows(rows, "taskset", NOW)] == [0.5, 0.9]
    arms = [
        run(f"{lr}{seed}", parameters={"learning_rate": lr, "seed": seed}, sweep="one", reward=0.5)
        for lr, seed in ((1e-4, 0), (1e-4, 1), (3e-4, 0))
    ]
    [group] = group_rows(arms, "sweep", NOW)
    assert (group.mean, group.std) == (None, None), "no setting has a mean over several"
    assert group.title == "3 runs · not averaged: lr differs · sweep one"
    [group] = group_rows(arms[:2], "sweep", NOW)
    assert group.title == "2 runs · reward .500 ± 0 between runs · sweep one"
    [unrewarded] = group_rows([run("a", taskset="x"), run("b", taskset="y")], "sweep", NOW)
    assert unrewarded.title == "2 runs · no sweep"


def test_what_differs_is_a_table_and_what_does_not_is_said_once() -> None:
    rows = [
        run("a", parameters={"learning_rate": 1e-4, "steps": 60, "beta1": 0.9}, start="step-1"),
        run("b", parameters={"learning_rate": 3e-4, "steps": 60}, start="step-1", engine="tiny"),
    ]
    found = differences(rows)
    assert found.keys == ("learning_rate", "beta1", "engine")
    assert found.rows == (("a", ("1e-4", "0.9", "–")), ("b", ("3e-4", "–", "tiny")))
    assert ("steps", "60") in found.same
    assert ("start", "step-1") in found.same
    assert differences([]).keys == ()
    named = {"taskset": "long", "model": "y", "start": "step-2", "parameters": {"steps": 9}}
    apart = differences([rows[0], run("c", **named)])
    assert apart.keys[:4] == ("taskset", "model", "start", "learning_rate"), "the tasks first"
    assert [text.partition(":")[0] for text in apart.warnings] == [
        "different tasksets",
        "different starting points",
    ]
    assert found.warnings == ()
    rows = [run(id_, start=f"m@step-{id_}", reward=0.5) for id_ in "89"]
    [arms] = group_rows(rows, "taskset", NOW)
    assert arms.title == "2 runs · not averaged: starting point differs · no taskset"


def series(rewards: list[float], seconds: float = 1.0, tokens: int = 10) -> RunSeries:
    made = RunSeries()
    for n, reward in enumerate(rewards):
        made.add(str(n), NOW + n * seconds, tokens, {"reward_mean": reward})
    return made


def test_runs_are_laid_over_each_other_from_their_own_beginning() -> None:
    slow, fast = series([0.1, 0.2, 0.3], 10.0, 5), series([0.5, 0.6, 0.7, 0.9], 1.0, 20)
    runs = [(run("slow"), slow), (run("fast"), fast)]
    by_step = overlay_runs(runs, "reward_mean", Axis.STEP, 4)
    assert [line.row.id for line in by_step.lines] == ["fast", "slow"], "the best first"
    assert (by_step.low, by_step.high, by_step.extent) == (1.0, 4.0, (0.1, 0.9))
    assert [bucket.column for bucket in by_step.lines[1].buckets] == [0, 1, 2]
    by_time = overlay_runs(runs, "reward_mean", Axis.TIME, 21)
    assert (by_time.low, by_time.high) == (0.0, 20.0)
    assert [bucket.column for bucket in by_time.lines[0].buckets] == [0, 1, 2, 3]
    by_tokens = overlay_runs(runs, "reward_mean", Axis.TOKENS, 10)
    assert (by_tokens.low, by_tokens.high) == (5.0, 80.0)
    assert value_at(fast, "reward_mean", Axis.TIME, 2.5) == 0.7
    assert isnan(value_at(slow, "reward_mean", Axis.STEP, 4.0)), "it has no such step"


def test_a_smoothed_overlay_draws_the_average_alone() -> None:
    made = series([0.0, 1.0, 1.0, 1.0])
    [line] = overlay_runs([(run("a"), made)], "reward_mean", width=4, weight=0.5).lines
    assert [bucket.smooth for bucket in line.buckets] == pytest.approx([0, 2 / 3, 6 / 7, 14 / 15])
    assert all(bucket.low == bucket.high == bucket.smooth for bucket in line.buckets)
    assert line.last == line.buckets[-1].smooth
    late = RunSeries()
    late.add("a", None, 1, {})
    late.add("b", None, 1, {"entropy": 0.5})
    [line] = overlay_runs([(run("b"), late)], "entropy", width=2, weight=0.5).lines
    assert [bucket.column for bucket in line.buckets] == [1]


def test_what_comes_late_is_drawn_the_best_first_and_nothing_where_there_is_nothing() -> None:
    made = series([0.5, 0.6])
    made.add("x", None, 0, {"kl_sample_train": 0.1})
    made.add("y", NOW, 0, {"reward_mean": None})
    assert list(made.x(Axis.TIME)) == [0.0, 1.0, 1.0, 1.0], "time never goes back"
    near = RunSeries()
    near.add("a", None, 1, {"kl_sample_train": 0.01})
    runs = [(run("far"), made), (run("near"), near), (run("none"), RunSeries())]
    shown = overlay_runs(runs, "kl_sample_train", width=4)
    assert [line.row.id for line in shown.lines] == ["near", "far", "none"], "the lowest"
    assert [bucket.column for bucket in shown.lines[1].buckets] == [2]
    made.add("z", NOW + 9, 5, {"reward_mean": 0.9})
    assert overlay_runs(runs[:1], "reward_mean").lines[0].last == 0.9
    empty = overlay_runs(runs, "entropy")
    assert [line.buckets for line in empty.lines] == [(), (), ()]
    assert all(map(isnan, empty.extent))
    assert overlay_runs([], "reward_mean").lines == []


def test_runs_are_ranked_by_what_they_have_under_the_crosshair() -> None:
    runs = (run("late"), series([0.1, 0.2, 0.9])), (run("early"), series([0.5, 0.6]))
    newest = Compared(runs=runs, smoothing=0)
    assert [(row.id, value) for row, value in newest.ranked] == [("late", 0.9), ("early", 0.6)]
    there = replace(newest, crosshair=2.0)
    assert [(row.id, value) for row, value in there.ranked] == [("early", 0.6), ("late", 0.2)]
    past = replace(newest, crosshair=3.0).ranked
    assert [row.id for row, _ in past] == ["late", "early"], "one that has ended before is last"
    assert isnan(past[1][1])


def evaluation(mean: float, half: float = 0.1, **more: object) -> Evaluation:
    given = {"value": mean, "low": mean - half, "high": mean + half}
    fields = {"mean_reward": mean, "num_tasks": 48, "num_traces": 192, "samples": 4, "mean": given}
    return Evaluation.model_validate({**fields, **more})


def held(rewards: dict[int, float], steps: int) -> RunSeries:
    """A run whose steps report these held-out rewards, by step from 1."""
    made = RunSeries()
    for n in range(1, steps + 1):
        made.add(f"c{n}", NOW + n, 10, {"reward_mean": 0.5, HELDOUT: rewards.get(n)})
    return made


def test_evaluations_are_points_with_their_interval_and_not_averaged() -> None:
    made = held({1: 0.9, 6: 0.2, 11: 0.4}, 12)
    assert {place: score.value for place, score in made.scores.items()} == {4: 0.2, 9: 0.4}, (
        "a step's is of the checkpoint that was sampled, the one before it"
    )
    made.score({"c10": [evaluation(0.7)], "c12": [evaluation(0.8), evaluation(0.1, split="train")]})
    assert {place: score.value for place, score in made.scores.items()} == {4: 0.2, 9: 0.7, 11: 0.8}
    found = overlay_runs([(run("a"), made)], HELDOUT, width=12, weight=0.9)
    [line] = found.lines
    assert line.points
    assert [(b.column, b.smooth) for b in line.buckets] == [(4, 0.2), (9, 0.7), (11, 0.8)]
    assert [b.low for b in line.buckets] == pytest.approx([0.2, 0.6, 0.7])
    assert [b.high for b in line.buckets] == pytest.approx([0.2, 0.8, 0.9])
    assert line.last == 0.8
    assert value_at(made, HELDOUT, Axis.STEP, 11.0, 0.9) == 0.7, "the newest up to there"
    assert isnan(value_at(made, HELDOUT, Axis.STEP, 3.0, 0.9)), "none was evaluated yet"
    assert overlay_runs([(run("a"), RunSeries())], HELDOUT).lines[0].buckets == []
    tree = [
        Checkpoint(
            id="x", name="x", created_at="2026-01-01T00:00:00Z", evaluations=[evaluation(0.3)]
        )
    ]
    assert RunSeries.of(tree).scores[0].over == "48 tasks × 4"


@given(st.lists(st.floats(-1e6, 1e6), max_size=300))
def test_thinned_rewards_are_means_of_neighbours(values: list[float]) -> None:
    found = thinned(values)
    assert len(found) <= MOST_POINTS
    assert len(found) == len(values) or len(values) > MOST_POINTS
    assert all(min(values) - 1e-6 <= one <= max(values) + 1e-6 for one in found)
    assert len(sparkline(values)) == min(len(thinned(values, 12)), 12)


def test_rewards_that_hardly_differ_are_bars_too() -> None:
    assert sparkline([0.0, 5e-324]) == "▁█"
    assert sparkline([0.5, 0.5]) == "▁▁"
