"""``hud-tui bisect``: ends first, then what tells the most; cut short and resumed."""

from contextlib import aclosing
from pathlib import Path

import pytest

from hud_tui.client.bisection import Bisector, Lineage
from hud_tui.client.client import HudClient
from hud_tui.client.records import Asked
from hud_tui.rl.bisect import path_between
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rollouts.control import works_of
from hud_tui.wire import Model
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation
from tests.conftest import Served
from tests.service.calls import Json, stepped
from tests.service.clients import trained as trained_by
from tests.service.headless import Command, Text

HELDOUT = 36


@pytest.fixture
async def trained(hud: Command, served: Served) -> list[Json]:
    return await stepped(served, 3)


async def test_without_a_fall_it_ends_with_both_ends(hud: Command, trained: list[Json]) -> None:
    words = ("--good", "base", "--bad", "head", "--source", "arith")
    result = await hud("bisect", "arith-rl", *words)
    assert (result.code, result.kind) == (0, "bisect"), result.err
    assert (result.data["good"], result.data["bad"]) == ("base", "step-000003")
    assert result.data["verdict"] == "none"
    assert result.data["step"] is None
    assert [each["name"] for each in result.data["evaluated"]] == ["base", "step-000003"]
    assert result.data["rollouts"] == 2 * 8 * HELDOUT
    assert "3 steps, 36 tasks, at most 2 000 rollouts" in result.err
    listed = (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"]
    assert [each["samples"] for each in listed] == [4, 4, 4, 4]
    seeds = [each["result"]["seed"] for each in listed]
    assert seeds == [1, 1, 2, 2]  # the same random numbers for both
    again = await hud("bisect", "arith-rl", "--good", "base", "--show")
    assert again.data == result.data
    resumed = await hud("bisect", "arith-rl", "--good", "base", "--resume")
    assert resumed.data == result.data
    assert len((await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"]) == 4


async def test_people_get_a_table_and_the_verdict(text: Text, trained: list[Json]) -> None:
    words = ("--good", "step-000001", "--source", "arith", "--budget", "288")
    code, out, _ = await text("bisect", "arith-rl", *words)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["checkpoint", "mean", "reward"]
    assert [line.split()[0] for line in lines[1:3]] == ["step-000001", "step-000003"]
    assert "288 rollouts of at most 288" in lines


async def test_what_is_wrong_is_told_and_nothing_is_sampled(
    hud: Command, trained: list[Json]
) -> None:
    for words, problem in (
        (("--good", "head"), "step-000003 does not come after step-000003"),
        (("--good", "head", "--bad", "step-000001"), "does not come after"),
        (("--good", "nowhere"), "no checkpoint named nowhere"),
        (("--good", "base", "--resume"), "was not bisected yet"),
        (("--good", "base", "--source", "arith", "--budget", "287"), "too small"),
        (("--good", "base"), "say which tasks"),
    ):
        refused = await hud("bisect", "arith-rl", *words)
        assert refused.code == 2, words
        assert problem in refused.error["message"], words
    assert (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"] == []


# Cut short, and gone on with.


async def begun(client: HudClient, model: Model, state: Path) -> Lineage:
    nodes = Tree.of(await client.checkpoints(model.id))
    tasks = (await client.tasks.taskset("arith")).tasks
    body = SubmitEvaluation(tasks=tasks, parameters=EvaluationParameters())
    positions = path_between(nodes, ROOT, 2)
    bisector = Bisector(works_of(client, state), state)
    return await bisector.begin(model, nodes, positions, Asked(body=body), 2 * 8 * HELDOUT)


@pytest.mark.parametrize("evaluations", [1, 2])
async def test_cut_short_after_any_evaluation_it_goes_on_with_what_is_missing(
    client: HudClient, tmp_path: Path, evaluations: int
) -> None:
    few = {"steps": 3, "group_size": 2, "tasks_per_step": 1, "learning_rate": 1e-6}
    model = await trained_by(client, **few)
    works = works_of(client, tmp_path)
    before = await works.evaluations.of_model(model)
    lineage = await begun(client, model, tmp_path)
    bisector, seen = Bisector(works, tmp_path), set[str]()
    async with aclosing(bisector.spend(lineage)) as states:
        async for now in states:
            seen.add(now.id)
            if len(seen) > evaluations:
                break
    again = Bisector(works_of(client, tmp_path), tmp_path)
    stored = await again.newest(model, lineage.path)
    assert stored is not None
    assert not stored.is_complete
    async with aclosing(again.spend(stored)) as states:
        seen |= {now.id async for now in states}
    assert stored.is_complete
    listed = (await works.evaluations.of_model(model))[len(before) :]
    assert {each.id for each in listed} == seen
    assert {each.status for each in listed} == {"succeeded"}
    bisection = await again.state(stored)
    assert bisection.rollouts == sum(each.total for each in listed)
    assert bisection.asks(stored.budget) == []
