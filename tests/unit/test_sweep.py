"""Sweeps: combinations, names, sizes, and what a sweep's members say of it."""

import pytest

from hud_tui.errors import HudUsage
from hud_tui.rl.runs import RunRow
from hud_tui.rl.sweep import (
    Member,
    Sweep,
    combinations,
    members_of,
    paced_like,
    rollout_seconds,
    size_of,
    sweep_name,
)
from hud_tui.rl.tasks.task import Task
from hud_tui.wire import EngineState, Model, TrainingDefaults

MODEL = Model(
    id="m",
    model_name="arith-rl",
    engine=EngineState(engine="tiny"),
    training_defaults=TrainingDefaults(
        learning_rate=2e-4, group_size=8, max_tokens=20, tasks_per_step=4, steps=60
    ),
)
TASKS = [Task("arith", "add", slug=str(n)) for n in range(10)]
SWEPT = {"learning_rate": (1e-4, 3e-4), "group_size": (8, 16)}


def sweep(**more: object) -> Sweep:
    fields = {"members": members_of("s", SWEPT), "service": "x", "model_id": "m", "model": "a"}
    given = {"id": "i", "name": "s", "source": "arith", "digest": "d", **fields, **more}
    return Sweep.model_validate(given)


def test_every_combination_comes_once_the_last_parameter_fastest() -> None:
    assert combinations(SWEPT) == [
        {"learning_rate": 1e-4, "group_size": 8},
        {"learning_rate": 1e-4, "group_size": 16},
        {"learning_rate": 3e-4, "group_size": 8},
        {"learning_rate": 3e-4, "group_size": 16},
    ]
    with pytest.raises(HudUsage, match="a value comes twice"):
        combinations({"seed": (1, 1)})
    with pytest.raises(HudUsage, match="at most 200"):
        combinations({"seed": tuple(range(201))})


def test_forks_are_named_after_what_differs() -> None:
    members = members_of("arith-rl-sweep", SWEPT)
    assert members[0].name == "arith-rl-sweep-lr1e-4-group8"
    assert members[3].said == "lr 3e-4 · group 16"
    close = members_of("s" * 99, {"seed": (1, 2)})
    assert len({member.name for member in close}) == 2
    assert all(len(member.name) <= 100 for member in close)


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "arith-rl-sweep"),
        (["arith-rl-sweep"], "arith-rl-sweep-2"),
        (["Arith-RL-sweep-lr1e-4"], "arith-rl-sweep-2"),
        (["arith-rl-sweep-2-lr1e-4"], "arith-rl-sweep"),
        (["arith-rl-sweep", "arith-rl-sweep-2-lr1e-4"], "arith-rl-sweep-3"),
    ],
)
def test_a_sweep_s_name_is_free(taken: list[str], name: str) -> None:
    assert sweep_name("team/arith-rl", taken) == name


def test_the_size_counts_what_every_run_does() -> None:
    size = size_of(sweep(parameters={"steps": 10}), MODEL, TASKS)
    assert (size.runs, size.steps) == (4, 40)
    assert size.rollouts == 10 * 4 * (8 + 16 + 8 + 16)
    assert size.tokens == 20 * (size.rollouts or 0)
    assert "4 runs, 2 at once · 40 steps · 1 920 training rollouts" in size.said
    assert "time unknown" in size.said


def test_the_time_is_that_of_a_run_like_it() -> None:
    row = RunRow(
        id="r",
        model_id="other",
        model="b",
        name="before",
        taskset="arith",
        engine="tiny",
        group_size=8,
        parameters={"tasks_per_step": 4},
        step=10,
        duration_s=32.0,
    )
    assert rollout_seconds(row) == pytest.approx(0.1)
    assert paced_like([row], MODEL, "arith") is row
    assert paced_like([row], MODEL, "mixed") is None
    own = RunRow(**{f: getattr(row, f) for f in row.__slots__} | {"model_id": "m", "taskset": ""})
    assert paced_like([row, own], MODEL, "mixed") is own
    size = size_of(sweep(parameters={"steps": 10}), MODEL, TASKS, row)
    assert size.seconds == pytest.approx(192.0)
    assert "about 3 min, judging by before" in size.said


def test_hud_decides_how_long_a_run_is() -> None:
    size = size_of(sweep(), Model(id="m", model_name="m"), TASKS)
    assert (size.rollouts, size.tokens, size.seconds) == (None, None, None)
    assert "the service decides" in size.said


@pytest.mark.parametrize(
    ("statuses", "cancelled", "status"),
    [
        (("waiting", "waiting"), False, "waiting"),
        (("succeeded", "waiting"), False, "waiting"),
        (("succeeded", "running"), False, "running"),
        (("succeeded", "running"), True, "cancelled"),
        (("succeeded", "succeeded"), False, "succeeded"),
        (("succeeded", "refused"), False, "failed"),
        (("cancelled", "succeeded"), True, "cancelled"),
    ],
)
def test_a_sweep_stands_as_its_runs_do(
    statuses: tuple[str, str], cancelled: bool, status: str
) -> None:
    members = tuple(Member(name=s, differs={}, status=s, job_id="j") for s in statuses)
    assert sweep(members=members, cancelled=cancelled).status == status
