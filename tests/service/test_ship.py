"""``hud-tui ship``: what is known, rounds within a budget, cut short and resumed."""

from contextlib import aclosing
from pathlib import Path

import pytest

from hud_tui.client.client import HudClient
from hud_tui.client.records import Asked
from hud_tui.client.selection import Entry, Selection, Selector
from hud_tui.errors import HudError, HudUsage
from hud_tui.rollouts.control import works_of
from hud_tui.wire import Model
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation
from tests.conftest import Served, calling, fork
from tests.service.calls import Json, step, stepped
from tests.service.clients import trained as trained_by
from tests.service.headless import Command, Text

HELDOUT = 36


@pytest.fixture
async def trained(hud: Command, served: Served) -> list[Json]:
    return await stepped(served, 3)


async def evaluations(hud: Command) -> list[Json]:
    listed: list[Json] = (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"]
    return listed


async def test_what_is_known_is_compared_without_a_rollout(
    hud: Command, trained: list[Json]
) -> None:
    nothing = await hud("ship", "arith-rl", "--candidates", "head", "base")
    assert (nothing.code, nothing.kind) == (0, "ship")
    assert nothing.data["may_be_best"] == []
    assert nothing.data["summary"] == ["No rollouts of step-000003 and base to compare"]
    await hud("eval", "arith", "-m", "arith-rl", "--checkpoint", "head", "--checkpoint", "base")
    compared = await hud("ship", "arith-rl", "--candidates", "head", "base")
    assert [row["rollouts"] for row in compared.data["candidates"]] == [144, 144]
    assert compared.data["reference"] == "base"
    assert compared.data["selection"] is None
    assert len(await evaluations(hud)) == 2
    [head, base] = sorted(compared.data["candidates"], key=lambda row: row["name"], reverse=True)
    assert head["over_reference"]["value"] == pytest.approx(
        head["reward"]["value"] - base["reward"]["value"]
    )
    assert base["over_reference"] is None


async def test_a_budget_is_spent_in_rounds_on_fresh_seeds(
    hud: Command, trained: list[Json]
) -> None:
    await hud("eval", "arith", "-m", "arith-rl", "--checkpoint", "head", "--samples", "1")
    names = ["step-000001", "step-000002", "head", "base"]
    spent = await hud(
        "ship", "arith-rl", "--candidates", *names, "--budget", "500", "--source", "arith"
    )
    assert spent.code == 0, spent.err
    made = [each for each in await evaluations(hud)][1:]
    # 4 candidates × 1 of 36 tasks, then 2 × 4
    assert [(each["samples"], each["result"]["seed"]) for each in made] == [(1, 1)] * 4 + [
        (4, 2)
    ] * 2
    assert sum(each["total"] for each in made) == 432
    assert (
        "432 rollouts on 36 tasks: 4 candidates × 1 rollout of each task, then 2 × 4" in spent.err
    )
    rollouts = [row["rollouts"] for row in spent.data["candidates"]]
    assert sorted(rollouts) == [HELDOUT, HELDOUT, 5 * HELDOUT, 5 * HELDOUT]
    means = {each["checkpoint_id"]: each["mean_reward"] for each in made[:4]}
    assert {each["checkpoint_id"] for each in made[4:]} <= means.keys()
    left = {each["checkpoint_id"] for each in made[4:]}
    assert min(means[id_] for id_ in left) >= max(
        mean for id_, mean in means.items() if id_ not in left
    )
    assert (spent.data["budget"], spent.data["complete"]) == (500, True)
    again = await hud("ship", "arith-rl", "--candidates", *names)
    assert again.data["candidates"] == spent.data["candidates"]
    logged = (await hud("log", "evaluate")).data["entries"]
    assert len(logged) == 7
    assert {entry["source"] for entry in logged} == {"arith"}
    turned = await hud("ship", "arith-rl", "--candidates", *names[::-1], "--reference", "head")
    rows = {row["name"]: row for row in turned.data["candidates"]}
    assert turned.data["reference"] == "step-000003"
    assert rows["step-000003"]["over_reference"] is None
    for row in spent.data["candidates"]:
        for key in ("checkpoint_id", "rollouts", "reward"):
            assert rows[row["name"]][key] == row[key]
    whole = await hud("ship", "arith-rl", "--candidates", *names, "--resume")
    assert whole.data["candidates"] == spent.data["candidates"]
    assert len(await evaluations(hud)) == 7


async def test_without_names_it_goes_on_with_those_of_the_newest_selection(
    hud: Command, served: Served, trained: list[Json]
) -> None:
    """☆ may have moved with the rollouts; a model that was trained since has other candidates."""
    words = ("--candidates", "step-000001", "step-000002", "--budget", "72", "--source", "arith")
    spent = await hud("ship", "arith-rl", *words)
    for again in (await hud("ship", "arith-rl"), await hud("ship", "arith-rl", "--resume")):
        assert again.data["candidates"] == spent.data["candidates"]
    async with calling(served.service) as http:
        model = (await http.get("/v2/models/arith-rl")).json()
        await step(http, model)
    names = {row["name"] for row in (await hud("ship", "arith-rl")).data["candidates"]}
    assert {"step-000004", "base"} <= names
    resumed = await hud("ship", "arith-rl", "--resume")
    assert resumed.data["candidates"] == spent.data["candidates"]


async def test_an_undecided_one_fails_a_build_that_asks(hud: Command, trained: list[Json]) -> None:
    asked = ("ship", "arith-rl", "--candidates", "head", "step-000002", "--source", "arith")
    undecided = await hud(*asked, "--budget", "72", "--fail-if-undecided")
    assert undecided.code == 6
    assert undecided.data["decided"] is False
    assert len(undecided.data["may_be_best"]) == 2
    assert undecided.data["reference"] == "step-000003"
    assert "difference" in undecided.data["summary"][-1]


async def test_what_is_wrong_is_told_and_nothing_is_sampled(
    hud: Command, trained: list[Json]
) -> None:
    for words, problem in (
        (("--candidates", "head"), "1 candidate"),
        (("--candidates", "head", "step-000003"), "1 candidate"),
        (("--candidates", "head", "nowhere"), "no checkpoint named nowhere"),
        (("--candidates", "head", "other:head"), "other"),
        (("--candidates", "head", "base", "--reference", "step-000001"), "is no candidate"),
        (("--candidates", "head", "base", "--resume"), "no selection"),
        (("--candidates", "head", "base", "--budget", "71", "--source", "arith"), "too small"),
        (("--candidates", "head", "base", "--budget", "500"), "say which tasks"),
    ):
        refused = await hud("ship", "arith-rl", *words)
        assert refused.code == 2, words
        assert problem in refused.error["message"], words
    assert await evaluations(hud) == []


async def test_candidates_of_two_models_are_compared(
    hud: Command, served: Served, trained: list[Json]
) -> None:
    async with calling(served.service) as http:
        other = await fork(http, name="other-rl")
        await step(http, other)
    names = ["head", "other-rl:head"]
    result = await hud(
        "ship", "arith-rl", "--candidates", *names, "--budget", "72", "--source", "arith"
    )
    assert result.code == 0, result.err
    assert {(row["model"], row["name"]) for row in result.data["candidates"]} == {
        ("arith-rl", "step-000003"),
        ("other-rl", "other-rl:step-000001"),
    }


async def test_people_get_a_table_and_the_verdict(
    text: Text, trained: list[Json], tmp_path: Path
) -> None:
    words = ("ship", "arith-rl", "--candidates", "head", "base", "--source", "arith")
    code, out, _ = await text(*words, "--budget", "72")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["candidate", "mean", "reward"]
    assert {line.split()[0] for line in lines[1:3]} == {"step-000003", "base"}
    assert "reference: base" in lines
    assert lines[-1] == "72 fresh rollouts: 2 candidates × 1 rollout of each task."
    [file] = (tmp_path / "state" / "selections").glob("*.json")
    file.write_text(file.read_text().replace('"is_complete":true', '"is_complete":false'))
    _, out, _ = await text(*words)
    assert out.splitlines()[-1].startswith("Cut short of 72 fresh rollouts: ")
    assert out.splitlines()[-1].endswith(" --resume goes on.")
    file.unlink()
    _, out, _ = await text(*words)
    assert "--budget N samples fresh rollouts" in out.splitlines()[-1]


async def test_read_only_no_selection_is_begun_that_hides_what_is_known(
    hud: Command, trained: list[Json]
) -> None:
    words = ("ship", "arith-rl", "--candidates", "head", "base")
    await hud("eval", "arith", "-m", "arith-rl", "--checkpoint", "head", "--checkpoint", "base")
    refused = await hud("--read-only", *words, "--budget", "72", "--source", "arith")
    assert (refused.code, refused.error["type"]) == (1, "read_only")
    assert "is kept" not in refused.err
    compared = await hud(*words)
    assert compared.data["selection"] is None
    assert [row["rollouts"] for row in compared.data["candidates"]] == [144, 144]


async def test_what_is_known_is_shown_while_a_selection_has_not_sampled_two(
    client: HudClient, tmp_path: Path
) -> None:
    model = await of_three(client)
    selection = await begun(client, model, tmp_path)
    selector = Selector(works_of(client, tmp_path), tmp_path)
    ranking = await selector.ranking(selection.entries, 0, selection)
    assert ranking.leader is None
    async with aclosing(selector.spend(selection)) as states:
        assert [now async for now in states]
    empty = selection.model_copy(update={"evaluations": {}})
    compared = await selector.ranking(selection.entries, 0, empty)
    assert compared.order == (await selector.fresh(selection)).order


# The selection on disk: cut short, and gone on with.


async def of_three(client: HudClient) -> Model:
    """A model with three checkpoints."""
    return await trained_by(client, steps=3, group_size=2, tasks_per_step=1, learning_rate=1e-6)


async def begun(client: HudClient, model: Model, state: Path) -> Selection:
    """A selection of the model's checkpoints: 3 × 1 of 36 tasks, then 2 × 1."""
    tasks = (await client.tasks.taskset("arith")).tasks
    selector = Selector(works_of(client, state), state)
    body = SubmitEvaluation(tasks=tasks, parameters=EvaluationParameters())
    entries = [Entry.of(model, node) for node in await client.checkpoints(model.id)]
    return await selector.begin(entries, 0, Asked(body=body), 5 * HELDOUT)


@pytest.mark.parametrize("evaluations", [0, 3])
async def test_cut_short_after_any_evaluation_it_goes_on_with_what_is_missing(
    client: HudClient, tmp_path: Path, evaluations: int
) -> None:
    model = await of_three(client)
    before = await works_of(client, tmp_path).evaluations.of_model(model)
    selection = await begun(client, model, tmp_path)
    selector = Selector(works_of(client, tmp_path), tmp_path)
    seen: set[str] = set()
    async with aclosing(selector.spend(selection)) as states:
        async for now in states:
            seen.add(now.id)
            if len(seen) > evaluations:
                break
    again = Selector(works_of(client, tmp_path), tmp_path)
    stored = await again.newest(selection.entries[::-1])
    assert not stored.is_complete
    async with aclosing(again.spend(stored)) as states:
        seen |= {now.id async for now in states}
    assert stored.is_complete
    listed = (await works_of(client, tmp_path).evaluations.of_model(model))[len(before) :]
    assert {each.id for each in listed} == seen
    assert [each.status for each in listed] == ["succeeded"] * 5
    ranking = await again.fresh(stored)
    rollouts = [candidate.scores.rollouts for candidate in ranking.candidates if candidate.scores]
    assert sorted(rollouts) == [HELDOUT, 2 * HELDOUT, 2 * HELDOUT]


async def test_one_process_samples_for_a_selection_at_a_time(
    client: HudClient, tmp_path: Path
) -> None:
    selection = await begun(client, await of_three(client), tmp_path)
    selector = Selector(works_of(client, tmp_path), tmp_path)
    async with aclosing(selector.spend(selection)) as states:
        await anext(states)
        with pytest.raises(HudUsage, match="another hud-tui"):
            await anext(aiter(Selector(works_of(client, tmp_path), tmp_path).spend(selection)))


async def test_who_goes_on_samples_nothing_that_another_process_has_sampled(
    client: HudClient, tmp_path: Path
) -> None:
    works = works_of(client, tmp_path)
    selection = await begun(client, await of_three(client), tmp_path)
    shown = selection.model_copy(deep=True)  # as an app has it in sight meanwhile
    for record in (selection, shown):
        async with aclosing(Selector(works, tmp_path).spend(record)) as states:
            assert [now.status async for now in states][-1] == "succeeded"
    assert shown == selection
    made = {id_ for ids in selection.evaluations.values() for id_ in ids}
    listed = await works.evaluations.of_model(await client.model("arith-rl"))
    assert len([each for each in listed if each.id in made]) == len(listed) - 1


async def test_a_cancelled_evaluation_stops_it_and_is_resumed(
    client: HudClient, tmp_path: Path
) -> None:
    works = works_of(client, tmp_path)
    selection = await begun(client, await of_three(client), tmp_path)
    selector = Selector(works, tmp_path)

    async def spend(cancels: bool) -> None:
        async with aclosing(selector.spend(selection)) as states:
            async for now in states:
                if cancels:
                    await works.cancel(now.id)

    with pytest.raises(HudError, match="cancelled"):
        await spend(cancels=True)
    assert len(selection.evaluations) == 1
    await spend(cancels=False)
    assert selection.is_complete


async def test_a_damaged_file_is_no_selection_and_a_full_disk_is_told(
    client: HudClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await of_three(client)
    selection = await begun(client, model, tmp_path)
    [file] = (tmp_path / "selections").glob("*.json")
    file.write_text(file.read_text()[:-9])
    selector = Selector(works_of(client, tmp_path), tmp_path)
    assert await selector.newest(selection.entries) is None

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hud_tui.client.records.write_atomic", full)
    with pytest.raises(HudUsage, match="cannot be written: No space left"):
        await begun(client, model, tmp_path)
