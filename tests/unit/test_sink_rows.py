"""The rows that a sink is given: of steps, moves of the head, alarms, evaluations and the end."""

from dataclasses import replace

from hud_tui.events import Act, Actor, HeadMoved, MovesRead, TreeRead
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.metrics import canonical, is_known
from hud_tui.rl.run import Run
from hud_tui.rl.sink_rows import STEP, SinkRow, rows_of_evaluation, rows_of_run, settings_of
from hud_tui.rl.stopwatch import time_metrics
from hud_tui.rl.timeline import WAITS
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, WorkState
from hud_tui.wire_time import StepTime, TimedSpan
from tests.unit.trees import chain

HELD = Evaluation(
    id="e1",
    job_id="job",
    mean_reward=0.5,
    num_tasks=2,
    num_traces=4,
    mean=Estimate(value=0.5, low=0.2, high=0.8),
    pass_at={1: Estimate(value=0.5, low=0.2, high=0.8)},
)


def groups(*rewards: list[float]) -> list[Group]:
    return [Group(task_slug=f"t{n}", rewards=row) for n, row in enumerate(rewards)]


def steps() -> list[Checkpoint]:
    return chain(
        {"step": 1, "job_id": "other", "mean_reward": 0.1},
        {"step": 2, "job_id": "job", "metrics": {"actor/entropy": 0.7}, "mean_reward": 0.2},
        {
            **{"step": 3, "job_id": "job", "mean_reward": 0.3, "evaluations": [HELD]},
            "groups": groups([0, 1], [1, 1]),
        },
    )


def job(status: str = "running", **fields: object) -> WorkState:
    known = {"status": status, "id": "job", "created_at": 100.0, "step": 2}
    return WorkState.model_validate(known | fields)


def run_of(*events: object, **fields: object) -> Run:
    return replace(Run().fold(TreeRead(checkpoints=tuple(steps()))), **fields)  # type: ignore[arg-type]


def by_record(run: Run, work: WorkState) -> dict[str, SinkRow]:
    rows = list(rows_of_run(run, work))
    assert len({row.record for row in rows}) == len(rows)
    return {row.record: row for row in rows}


def test_a_step_is_a_row_under_the_fields_names_with_its_groups() -> None:
    rows = by_record(run_of(), job())
    assert [record for record in rows if record.startswith("c")] == ["c1", "c2"]
    assert rows["c1"].values["entropy"] == 0.7, "named as verl does"
    third = rows["c2"]
    assert (third.values["step"], third.values["checkpoint_id"]) == (3, "c2")
    assert third.values["reward_mean"] == 0.3
    assert third.histograms["groups/reward"] == [0, 1, 1, 1]
    assert third.histograms["groups/mean"] == [0.5, 1]
    assert third.histograms["groups/std"][1] == 0


def test_a_group_whose_rewards_are_not_all_known_is_in_no_histogram() -> None:
    made = chain({"job_id": "job", "groups": groups([0, float("nan")], [1, 0])})
    [row] = rows_of_run(Run().fold(TreeRead(checkpoints=tuple(made))), job())
    assert row.histograms["groups/reward"] == [1, 0]
    ended = WorkState(
        status="succeeded", kind="evaluation", id="e", groups=groups([0, float("nan")], [1, 0])
    )
    [row] = rows_of_evaluation(ended)
    assert row.histograms == {"rewards": [1, 0]}


def test_steps_are_those_made_meanwhile_where_nobody_says_whose_they_are() -> None:
    made = chain(*({"created_at": f"1970-01-01T00:0{n}:00+00:00"} for n in range(1, 5)))
    run = Run().fold(TreeRead(checkpoints=tuple(made)))
    rows = rows_of_run(run, job(finished_at=200.0))
    assert [row.record for row in rows] == ["c1", "c2"], "at 120 and 180 s"


def test_what_is_written_is_not_made_again() -> None:
    rows = rows_of_run(run_of(), job(), {"c1"})
    assert "c1" not in [row.record for row in rows]


def test_moves_of_the_head_and_alarms_are_events() -> None:
    by = Actor(program="app", host="laptop")
    moves = tuple(
        HeadMoved(at=at, checkpoint_id="c0", previous="c2", cause="set", act=act, by=by)
        for at, act in ((50.0, Act.SET), (150.0, Act.UNDO))
    )
    alarm = Alarm(
        **{"name": "entropy_collapse", "title": "entropy collapse", "level": Level.WARN},
        **{"active": False, "row": 1, "onset": 2, "checkpoint_id": "c1", "before_id": "c0"},
        **{"shown": 3, "shown_id": "c2", "raised": 3, "ended": 4, "evidence": ()},
        **{"meaning": "", "advice": "Lower lr."},
    )  # type: ignore[arg-type]
    elsewhere = replace(alarm, shown_id="c0", checkpoint_id="c0")
    run = run_of(alarms=Report((alarm, elsewhere))).fold(MovesRead(moves=moves))
    rows = by_record(run, job("succeeded", finished_at=300.0))
    events = [row for row in rows.values() if "event" in row.values]
    assert [row.record for row in events] == [
        "head 150.0",
        "alarm entropy_collapse@c1 warn",
        "alarm entropy_collapse@c1 ended",
    ]
    assert events[0].values["text"] == "head undo: c2 → c0, by app on laptop"
    assert "Lower lr." in str(events[1].values["text"])
    table = rows["end succeeded 300.0"].tables["events"]
    assert [dict(zip(table.columns, row, strict=True))["event"] for row in table.rows] == [
        *("head", "alarm", "alarm")
    ]


def test_evaluations_are_rows_and_at_the_end_a_table() -> None:
    rows = by_record(run_of(), job("failed", finished_at=300.0, error={"message": "no disk"}))
    held = rows["eval e1"].values
    assert (held["step"], held["eval/heldout/mean_reward"]) == (3, 0.5)
    assert (held["eval/heldout/pass@1_low"], held["eval/heldout/rollouts"]) == (0.2, 4)
    end = rows["end failed 300.0"]
    assert (end.values["status"], end.values["reason"]) == ("failed", "no disk")
    assert [row[1] for row in end.tables["evaluations"].rows] == ["c2"]


def test_an_evaluation_is_one_row_at_its_end_with_its_tasks() -> None:
    fields = {"kind": "evaluation", "done": 4, "mean_reward": 0.5, "checkpoint": "c2"}
    going = job(**fields)
    assert list(rows_of_evaluation(going)) == []
    ended = job("succeeded", result=HELD, groups=groups([0, 1], [1, 0]), **fields)
    [row] = rows_of_evaluation(ended)
    assert (row.values["mean_reward"], row.values["pass@1_high"]) == (0.5, 0.8)
    assert row.tables["tasks"].rows[0] == ("t0", 2, 0.5, 0.5, "0.0 1.0")
    assert settings_of(ended, None)["checkpoint"] == "c2"


def test_the_names_that_are_written_are_known_when_they_are_imported() -> None:
    fields = {"kind": "evaluation", "done": 4, "mean_reward": 0.5, "result": HELD}
    rows = [*rows_of_run(run_of(), job("succeeded")), *rows_of_evaluation(job("failed", **fields))]
    cells = [cell for row in rows for cell in row.values.items()]
    numbers = {name for name, cell in cells if isinstance(cell, int | float)}
    waits = [TimedSpan(kind, float(n), 1.0) for n, kind in enumerate(WAITS)]
    names = {*numbers, *time_metrics(StepTime(start=0.0, end=len(WAITS), spans=waits))}
    assert {"eval/heldout/pass@1_low", "wait/disk"} <= names
    assert not [name for name in names - {STEP} if not is_known(canonical(name))]


def test_parameters_are_told_but_those_that_are_not_set() -> None:
    given = settings_of(job(parameters={"steps": 3, "seed": None}), None)
    assert (given["parameters"], given["job_id"]) == ({"steps": 3}, "job")
