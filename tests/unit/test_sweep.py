"""Sweeps: combinations, names, sizes, and what a sweep's members say of it."""

from dataclasses import replace
from typing import Any

import pytest

from hud_tui.errors import HudUsage
from hud_tui.rl.cost import Prices, run_size
from hud_tui.rl.sweep import (
    Member,
    Sweep,
    SweepSize,
    combinations,
    members_of,
    paced_like,
    rollout_seconds,
    run_costs,
    size_of_runs,
    sweep_facts,
    sweep_name,
)
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.work import Work
from hud_tui.wire import Disk, EngineState, Model, TokenPrices, TrainingDefaults

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


def size_of(planned: Sweep, *given: Any) -> SweepSize:
    return size_of_runs(planned.runs, planned.at_once, *given)


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


@pytest.mark.parametrize(
    ("statuses", "cancelled", "status", "may_cancel", "may_resume"),
    [
        (("running", "waiting"), False, "running", True, True),
        (("running", "running"), False, "running", True, False),
        (("succeeded", "running"), False, "running", True, False),
        (("running", "waiting"), True, "cancelled", True, True),
        (("succeeded", "running"), True, "cancelled", True, False),
        (("cancelled", "waiting"), True, "cancelled", False, True),
        (("cancelled", "succeeded"), True, "cancelled", False, True),
        (("waiting", "waiting"), False, "waiting", True, True),
        (("succeeded", "waiting"), False, "waiting", True, True),
        (("succeeded", "refused"), False, "failed", False, True),
        (("succeeded", "failed"), False, "failed", False, False),
        (("succeeded", "interrupted"), False, "failed", False, True),
        (("succeeded", "succeeded"), False, "succeeded", False, False),
    ],
)
def test_a_sweep_stands_as_its_runs_do_and_is_resumed_if_something_is_left(
    statuses: tuple[str, str], cancelled: bool, status: str, may_cancel: bool, may_resume: bool
) -> None:
    members = [Member(name=s, differs={}, job_id=s, status=s) for s in statuses]
    found = sweep(members=members, cancelled=cancelled)
    assert (found.status, found.may_cancel, found.may_resume) == (status, may_cancel, may_resume)


def test_a_sweep_takes_over_the_statuses_of_the_runs_it_has_started() -> None:
    statuses = ("queued", "waiting", "refused", "submitting", "failed", "waiting")
    members = [Member(name=s, differs={}, job_id=s, status=s) for s in statuses]
    members[3] = members[3].model_copy(update={"job_id": ""})
    members[5] = members[5].model_copy(update={"job_id": "resumed alone"})
    now = sweep(members=members).with_statuses(
        {
            "queued": "succeeded",
            "waiting": "cancelled",
            "refused": "failed",
            "resumed alone": "succeeded",
        }
    )
    assert [member.status for member in now.members] == [
        "succeeded", "waiting", "refused", "submitting", "failed", "succeeded",
    ]  # fmt: skip


def test_forks_are_named_after_what_differs() -> None:
    members = members_of("arith-rl-sweep", SWEPT)
    assert members[0].name == "arith-rl-sweep-lr1e-4-group8"
    assert members[3].values_text == "lr 3e-4 · group 16"
    [spaced] = members_of("s", {"max_tokens": (20,), "eval_every": (5,), "beta1": (0.8,)})
    assert spaced.name == "s-max-tokens20-eval-every5-beta10.8", "no spaces in the name of a model"
    assert spaced.values_text == "max tokens 20 · eval every 5 · beta1 0.8"
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


def test_the_size_counts_what_every_run_does_unless_hud_decides_how_long_it_is() -> None:
    size = size_of(sweep(parameters={"steps": 10}), MODEL, TASKS)
    assert (size.runs, size.steps) == (4, 40)
    assert size.rollouts == 10 * 4 * (8 + 16 + 8 + 16)
    assert size.trained_tokens == size.sampled_tokens == 20 * (size.rollouts or 0)
    assert "4 runs, 2 at once · 40 steps · 1 920 training rollouts" in size.summary
    assert "time unknown" in size.summary

    size = size_of(sweep(), Model(id="m", model_name="m"), TASKS)
    assert (size.rollouts, size.sampled_tokens, size.seconds) == (None, None, None)
    assert "the service decides" in size.summary
    facts = sweep_facts(sweep(), size, Model(id="m", model_name="m"), TASKS)
    assert ("in total", "4 runs, 2 at once") in facts


def test_the_time_is_that_of_a_run_like_it() -> None:
    row = Work(
        id="r",
        model_id="other",
        model="b",
        name="before",
        taskset="arith",
        engine="tiny",
        group_size=8,
        parameters={"tasks_per_step": 4},
        step_s=3.2,
    )
    assert rollout_seconds(row) == pytest.approx(0.1)
    assert paced_like([row], MODEL, "arith") is row
    assert paced_like([row], MODEL, "mixed") is None
    own = Work(**{f: getattr(row, f) for f in row.__slots__} | {"model_id": "m", "taskset": ""})
    assert paced_like([row, own], MODEL, "mixed") is own
    asked = {**own.parameters, "rollout_timeout": 300.0}
    driven = replace(own, parameters=asked)
    assert paced_like([driven, row], MODEL, "mixed") is None, "an environment has its own pace"
    size = size_of(sweep(parameters={"steps": 10}), MODEL, TASKS, row)
    assert size.seconds == pytest.approx(192.0)
    assert "about 3m12s, estimated from before" in size.summary


HELD = [*TASKS, *(Task("arith", "add", slug=f"h{n}", columns={"split": "heldout"}) for n in "ab")]


def test_dollars_count_evaluations_and_the_rented_machine() -> None:
    charged = TokenPrices(prompt=1, sampled=2, trained=4)
    like = Work("r", "training", "once", group_size=8, parameters={"tasks_per_step": 4}, step_s=32)
    given = {"steps": 10, "eval_every": 5, "eval_samples": 4, "baseline": True}
    size = size_of_runs([given], 1, MODEL, HELD, like, Prices(charged, hourly=3.6))
    sampled, trained = size.sampled_tokens, size.trained_tokens
    assert sampled == trained + (24 + 6) * 20
    assert size.dollars == pytest.approx((2 * sampled + 4 * trained) / 1e6)
    assert size.seconds == 320 + 24
    costs = dict(run_costs(size))
    assert costs["tokens"].endswith(f"trained, ${size.dollars:.2f}; plus prompts")
    assert costs["time"].endswith("estimated from once; about $0.34 at $3.60 per hour")
    assert size.document["machine_dollars"] == pytest.approx(0.344)
    unknown = size_of_runs([given], 1, MODEL, HELD, like)
    assert (unknown.dollars, unknown.machine_dollars) == (None, None)


def test_evaluations_are_counted_as_the_service_runs_them() -> None:
    """At 4, 8 and at the end; held-out tasks are sampled for steps 1, 6 and the last."""
    given = {"steps": 10, "eval_every": 4, "eval_samples": 3, "baseline": True}
    size = run_size(MODEL, given, HELD)
    assert size is not None
    assert (size.rollouts, size.heldout) == (10 * 4 * 8, 2 * 3)
    assert (size.evaluations, size.evaluation, size.baseline) == (3, 6, 6)
    assert (size.evaluated, size.sampled) == (24, 320 + 6 + 24)
    once = run_size(MODEL, {"steps": 8, "eval_every": 4}, HELD)
    assert once is not None
    assert (once.evaluations, once.evaluation, once.baseline) == (2, 2, 0), "at 4 and at the end"


def test_a_sweep_says_what_each_run_and_all_of_them_do() -> None:
    disk = Disk(checkpoint_bytes=2_000_000, used_bytes=0, max_bytes=10**10)
    model = MODEL.model_copy(update={"disk": disk})
    given = {"steps": 10, "eval_every": 5, "eval_samples": 4, "baseline": True, "sweep": "s"}
    wanted = sweep(parameters=given, start="step-000041")
    facts = sweep_facts(wanted, size_of(wanted, model, HELD), model, HELD)
    said = dict(facts)
    assert [*said].index("baseline") < [*said].index("per run"), "in sight in a dialog of 24 lines"
    assert said["start from"] == "step-000041"
    assert said["taskset"] == "arith: 10 training tasks, 2 held out"
    assert said["evaluation"] == "2 tasks × 4 = 8 rollouts, at the end and every 5 steps: 2 times"
    assert said["baseline"] == "2 tasks × 4 = 8 rollouts, before the first step"
    assert said["per run"] == ("10 steps · 320 to 640 training rollouts · 24 evaluation rollouts")
    assert said["in total"] == (
        "4 runs, 2 at once · 40 steps · 1 920 training rollouts · 96 evaluation rollouts"
    )
    assert said["held-out reward"] == ("6 rollouts per run, every 5 steps; 24 in total")
    alone = dict(run_costs(size_of_runs([{**given, "heldout_every": 1}], 1, model, HELD, None)))
    assert alone["rollouts"] == "320 training · 24 evaluation"
    assert alone["held-out reward"] == "20 rollouts, every step"
    assert said["tokens"] == (
        "per run at most 7 000 to 13 400 sampled, 6 400 to 12 800 trained; "
        "in total 40 800 and 38 400; plus prompts"
    )
    assert said["disk"].startswith("80 MB: 40 checkpoints of 2.0 MB")
    assert said["time"].startswith("unknown: ")
    assert facts.count(("steps", "10")) == 1
    every = sweep(members=members_of("s", {"eval_every": (5, 3)}), parameters={"steps": 10})
    [of] = [text for label, text in sweep_facts(every, size_of(every, model, HELD), model, HELD)
            if label == "evaluation"]  # fmt: skip
    assert of.count("; or ") == 1, "where runs differ each way is said"
