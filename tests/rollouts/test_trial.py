"""The trial before a run on an environment of one's own: what a few rollouts say of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hud_tui.rl.cost import Prices
from hud_tui.rl.findings import Finding, verdict
from hud_tui.rl.tasks.signal import Size
from hud_tui.rollouts.trial import Trial, prices_of
from hud_tui.rollouts.worker import calls_of
from hud_tui.service_file import Rental, write_rental
from hud_tui.wire import Model, TokenPrices

SIZE = Size(group_size=8, tasks_per_step=4, steps=20, train_tasks=12)
TOOLS = ["tools (mcp)"]
NONE = {"made": 0, "known": 0, "fit": 0, "unknown": []}


def report(reward: float = 0.0, **more: Any) -> dict[str, Any]:
    """A worker's report of a rollout."""
    usual = {"error": None, "failure": None, "stop_reason": "done", "info": None, "calls": NONE}
    counts = {"turns": 2, "tool_calls": 0, "tokens": 10, "prompt_tokens": 90}
    return {"reward": reward, "seconds": 1.0} | counts | usual | more


def called(*unknown: str, made: int = 2, fit: int = 0) -> dict[str, Any]:
    """Fields of a report of so many tool calls."""
    counts = {"made": made, "known": made - len(unknown), "fit": fit}
    return {"tool_calls": made, "calls": {**counts, "unknown": list(unknown)}}


def said_of(
    *runs: dict[str, Any], capabilities: list[str] = TOOLS, base: str = "tiny/agent-1M"
) -> dict[str, Finding]:
    """Its findings, by their check; the last one where a check has several."""
    model = Model(id="1", name="a", model_name="sums-rl", is_trainable=True, base_model=base)
    trial = Trial("j", [(f"task-{i // 2}", run) for i, run in enumerate(runs)], 4.0, capabilities)
    found = trial.findings(model, SIZE, Path("log"), "hud-tui", "hud-tui play env.py")
    return {finding.check: finding for finding in found}


def test_findings_call_a_task_by_its_title() -> None:
    runs = [("total-6e636a7f", report(1.0, info={"no grade": "total"})) for _ in range(4)]
    trial = Trial("j", runs, 4.0, titles={"total-6e636a7f": "total(a=2, b=3)"})
    model = Model(id="1", name="a", model_name="sums-rl", is_trainable=True)
    found = trial.findings(model, SIZE, Path("log"), "hud-tui", "hud-tui play env.py")
    assert {finding.where for finding in found} - {""} == {"total(a=2, b=3)"}
    assert (trial.first["task"], trial.first["title"]) == ("total-6e636a7f", "total(a=2, b=3)")
    assert trial.signals[0].slug == "total-6e636a7f", "what reads documents goes by it"


def test_rewards_that_differ_are_signal_and_a_run_s_cost_follows() -> None:
    runs = [report(i % 2, **called(fit=2)) for i in range(8)]
    found = said_of(*runs)
    assert verdict(list(found.values())) == "ok"
    assert found["signal"].message.startswith("4 of 4 tasks with signal at group size 8")
    assert found["rollout"].message == "16 of 16 tool calls name a tool there is, and fit it"
    trial = Trial("j", [(f"task-{i // 2}", run) for i, run in enumerate(runs)], 4.0, TOOLS)
    assert trial.estimate(SIZE) == (
        "a step 32 rollouts, 320 tokens, 16 s;"
        " the run 640 rollouts, 6 400 tokens, 5m20s, without its optimizer steps"
    )
    prices = TokenPrices(prompt=0.1, sampled=0.4, trained=0.5)
    a_step = 32 * (90 * (0.1 + 0.5) + 10 * (0.4 + 0.5)) / 1e6
    assert 0.0020 < a_step < 0.0021
    assert trial.estimate(SIZE, Prices(prices)) == (
        "a step 32 rollouts, 320 tokens, 16 s, about $0.002;"
        " the run 640 rollouts, 6 400 tokens, 5m20s, about $0.04, without its optimizer steps"
    )
    some = 36 * (90 * 0.1 + 10 * 0.4) / 1e6
    assert 0.00046 < some < 0.00047
    rented = trial.estimate(SIZE, Prices(prices, hourly=4.2), 36)
    assert rented.split("; ")[2:] == [
        "its evaluations 36 rollouts, 360 tokens, 18 s, about $0.00047",
        "the rented machine about $0.39 at $4.20 per hour",
    ]
    document = trial.document(SIZE)
    assert (document["rollouts"], document["errors"], document["overflows"]) == (8, 0, 0)
    assert document["calls"] == {"made": 16, "known": 16, "fit": 16, "unknown": []}
    assert document["expected_share"]["8"] > 0.9


def test_a_rented_machine_is_charged_by_the_hour_while_it_runs(tmp_path: Path) -> None:
    def hourly(data: str, ended_at: float | None = None) -> float:
        write_rental(tmp_path, Rental("pod-1", price_hr=4.2, ended_at=ended_at))
        client: Any = SimpleNamespace(settings=SimpleNamespace(data_dir=data))
        return prices_of(client, Model(id="m", model_name="m"), tmp_path).hourly

    assert hourly("/data/remotes/pod-1") == 4.2
    assert hourly("/data/remotes/pod-1", ended_at=1.0) == 0
    assert hourly("/data/remotes/gpubox") == hourly("/data") == hourly("") == 0


@pytest.mark.parametrize(
    ("runs", "base", "reason", "fix"),
    [
        ([report()] * 4, "tiny/mixed-0.2M", "0 of 4 rollouts called a tool", "fork tiny/tools-1M"),
        ([report()] * 4, "tiny/agent-1M", "0 of 4 rollouts called a tool", "its prompt must name"),
        ([report(**called("plus", "plus"))] * 4, "", "none of 8 tool calls fits", "say in the"),
        ([report(stop_reason="length", **called(fit=2))] * 4, "", "was cut off", "more --"),
        (
            [report(**called(fit=2))] * 4,
            "",
            "every reward of 4 rollouts is 0",
            "give partial credit",
        ),
        ([report(1.0, **called(fit=2))] * 4, "", "low signal: 0 of 2 tasks", "use harder tasks"),
    ],
)
def test_without_signal_it_fails_with_the_likeliest_reason(
    runs: list[dict[str, Any]], base: str, reason: str, fix: str
) -> None:
    found = said_of(*runs, base=base)["signal"]
    assert found.level == "failure"
    assert reason in found.message
    assert fix in found.fix
    assert "--anyway" in found.fix or "use harder tasks" in found.fix


def test_tasks_that_differ_from_each_other_only_are_a_warning() -> None:
    """Four rollouts of a task may be equal by chance."""
    found = said_of(*[report(float(i < 4), **called(fit=2)) for i in range(8)])["signal"]
    assert (found.level, found.message[:11]) == ("warning", "low signal:")


def test_calls_that_name_no_tool_are_warned_of_by_name() -> None:
    found = said_of(*[report(i % 2, **called("plus", made=3, fit=1)) for i in range(4)])["rollout"]
    assert found.level == "warning"
    assert found.message == (
        "4 of 12 tool calls name a tool there is, and fit it; there is no “plus”;"
        " 4 with arguments that do not fit"
    )


def test_an_environment_without_tools_is_not_asked_for_calls() -> None:
    found = said_of(*[report(i % 2) for i in range(4)], capabilities=[])
    assert found["rollout"].message.startswith("4 rollouts of 2 tasks: mean reward .500, 2 turns")
    assert found["rollout"].level == "ok"
    assert said_of(*[report()] * 4, capabilities=[])["signal"].message.endswith(
        "every reward of 4 rollouts is 0"
    )


def test_answers_cut_off_are_counted() -> None:
    runs = [report(i % 2, stop_reason=("length", "done", "done")[i % 3]) for i in range(6)]
    found = said_of(*runs, capabilities=[])["rollout"]
    assert (found.level, found.message) == ("warning", "2 of 6 rollouts ended in an answer cut off")


def test_a_quarter_cut_off_is_a_warning_and_half_of_the_calls_that_fit_are_none() -> None:
    runs = [report(i % 2, stop_reason="done" if i else "length") for i in range(4)]
    assert said_of(*runs, capabilities=[])["rollout"].level == "warning"
    runs = [report(i % 2, stop_reason="done" if i else "length") for i in range(5)]
    assert said_of(*runs, capabilities=[])["rollout"].level == "ok"
    for fit, level in ((2, "ok"), (1, "warning")):
        runs = [report(i % 2, **called(made=4, fit=fit)) for i in range(4)]
        assert said_of(*runs)["rollout"].level == level


def test_where_some_rollouts_fail_a_run_may_begin_and_where_all_do_it_may_not() -> None:
    error = {"error": "KeyError: 'shelf'", "failure": {"phase": "grade", "message": "'shelf'"}}
    some = said_of(report(1.0), report(0.0), report(**error), report(1.0), capabilities=[])
    assert verdict(list(some.values())) == "warning"
    every = said_of(*[report(**error)] * 4)
    assert every["rollout"].level == "failure"
    assert every["rollout"].message.startswith("4 of 4 rollouts failed: ")
    assert "signal" not in every
    too_long = said_of(*[report(error="400: context_length_exceeded: the prompt has 3000 tokens")])
    assert "longer context" in too_long["rollout"].fix


def test_of_rollouts_that_the_service_made_only_the_reward_is_known() -> None:
    found = said_of(*[report(i % 2, turns=None, tokens=0) for i in range(4)])["rollout"]
    assert found.message == "4 rollouts of 2 tasks: mean reward .500, made by the service; 4.0 s"


def test_a_call_fits_if_there_is_the_tool_and_it_takes_the_arguments() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = {"add": schema, "broken": {"type": 7}}

    def call(name: str, arguments: Any, error: str = "") -> Any:
        result = SimpleNamespace(isError=bool(error), content=[SimpleNamespace(text=error)])
        return SimpleNamespace(call=SimpleNamespace(name=name, arguments=arguments), result=result)

    steps = [
        SimpleNamespace(source="agent"),
        call("add", {"a": 1}),
        call("add", {"a": "1"}, "a tool's own error"),
        call("add", {}, "missing"),
        call("add", '{"a": 1', "incomplete"),
        call("broken", {"x": 1}),
        call("elsewhere", {"x": 1}),
        call("elsewhere", '{"x": 1', "incomplete"),
        call("plus", {"a": 1}, "unknown tool: 'plus'"),
    ]
    assert calls_of(steps, tools) == {"made": 8, "known": 7, "fit": 3, "unknown": ["plus"]}
