"""``eval`` on an environment of one's own: kept beside the checkpoint, cancelled and resumed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hud_tui.client.evaluate import Evaluations
from hud_tui.errors import HudUsage
from hud_tui.rl.own_numbers import conditions, pooled
from hud_tui.rollouts.evaluate import roll_out_in
from hud_tui.wire import Evaluation
from tests.conftest import Served
from tests.rollouts.driving import SUMS, write_sums
from tests.rollouts.test_train import FLAGS
from tests.service.calls import Json
from tests.service.clients import over_socket
from tests.service.headless import Command

MODEL = ("-m", "arith-rl")
EVAL = (*MODEL, "--max-tokens", "20")


async def trained(hud: Command, source: Path, *flags: str) -> None:
    """Two steps, or what the flags say; the checkpoints are step-000001 and step-000002."""
    train = ("train", str(source), *MODEL, "-y", "--follow", "--no-trial", "--steps", "2")
    done = await hud(*train, *FLAGS, *flags)
    assert done.code == 0, done.err


async def evaluated(hud: Command, source: Path, *flags: str) -> Json:
    """One evaluation of the head."""
    done = await hud("eval", str(source), *EVAL, "--samples", "1", *flags)
    assert done.code == 0, done.err
    return dict(done.data["evaluation"])


def edit(file: Path, **evaluation: Any) -> None:
    """Write something else of an evaluation into the file that keeps it."""
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"evaluation": told["evaluation"] | evaluation}))


async def test_any_checkpoint_is_evaluated_and_compared_by_task(
    hud: Command, served: Served, source: Path
) -> None:
    await trained(hud, source)
    names = ("--checkpoint", "step-000001", "--checkpoint", "step-000002")
    done = await hud("eval", str(source), *EVAL, *names, "--samples", "2")
    assert done.code == 0, done.err
    *both, compared = [one["data"] for one in done.documents]
    for one, name in zip(both, names[1::2], strict=True):
        found = one["evaluation"]
        assert (found["status"], found["checkpoint"]) == ("succeeded", name)
        assert (found["samples"], found["num_tasks"], found["done"]) == (2, 12, 24)
        assert len(found["groups"]) == 12
        assert found["result"]["mean_reward"] == pytest.approx(found["mean_reward"])
    assert compared["tasks"] == 12
    listed = (await hud("eval", *MODEL, "--list")).data["evaluations"]
    wanted = [one["evaluation"]["id"] for one in both]
    sums = [one["id"] for one in listed if one["name"] == "sums"]
    assert sums == wanted, "each of them once, oldest first"
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    kept = [one["id"] for node in tree for one in node["evaluations"] or ()]
    assert set(wanted) <= set(kept), "beside the checkpoints"
    job = (await hud("jobs", wanted[0])).data
    assert json.dumps(job).count("succeeded") >= 1
    failed = await hud("eval", str(source), *EVAL, "--samples", "1", "--fail-under", "1.5")
    assert failed.code == 6
    async with over_socket(served) as client:
        run = await client.model("arith-rl")
        [node] = [n for n in await client.checkpoints(run.id) if n.name == "step-000002"]
        rollouts = await Evaluations(client, lambda: None).rollouts(
            next(one for one in node.evaluations or () if one.id == wanted[1]), node, "add-bfb36f31"
        )
        assert len(rollouts.rewards) == 2


async def test_what_the_model_started_from_is_evaluated_too(hud: Command, source: Path) -> None:
    before = await hud("eval", str(source), *EVAL, "--checkpoint", "base", "--samples", "4")
    assert before.code == 0, before.err
    await trained(hud, source)
    names = ("--checkpoint", "base", "--checkpoint", "head", "--fail-if-worse-than", "base")
    done = await hud("eval", str(source), *EVAL, *names, "--samples", "4")
    assert done.code in (0, 6), done.err
    base, head, compared = [one["data"] for one in done.documents]
    found = base["evaluation"]
    assert (found["checkpoint_id"], found["status"], found["done"]) == (None, "succeeded", 48)
    assert head["gates"][0]["than"] == found["id"] == compared["before"]["id"]
    traces = (await hud("traces", found["id"])).data["traces"]
    assert {one["model"] for one in traces} == {"arith-rl"}
    listed = (await hud("eval", *MODEL, "--list")).data["evaluations"]
    kept = [one["id"] for one in listed if one["checkpoint_id"] is None]
    assert kept == [before.data["evaluation"]["id"], found["id"]]


async def test_one_that_fails_is_resumed_and_samples_what_is_missing(
    hud: Command, tmp_path: Path, source: Path
) -> None:
    await trained(hud, source)
    write_sums(source.parent, [*SUMS[:3], {"args": {"a": 1, "b": 1, "fault": "error"}}])
    failed = await hud("eval", str(source), *EVAL, "--samples", "2")
    assert failed.code == 1
    assert "sums.py:12 in add: KeyError" in failed.error["message"]
    assert "2 of 8 rollouts failed" in failed.error["message"]
    [kept] = (tmp_path / "state" / "evaluations").glob("*.json")
    told = json.loads(kept.read_text())
    told["tasks"][-1]["args"].pop("fault")
    kept.write_text(json.dumps(told))
    done = await hud("eval", "--resume", kept.stem[:8])
    assert done.code == 0, done.err
    found = done.data["evaluation"]
    assert (found["status"], found["done"], found["total"]) == ("succeeded", 8, 8)


async def test_one_that_is_left_is_cancelled_and_goes_on_where_it_was(
    hud: Command, served: Served, tmp_path: Path, source: Path
) -> None:
    await trained(hud, source)
    begun = await evaluated(hud, source)
    state = tmp_path / "state"
    id_ = "3f2a91bc-0000-4000-8000-000000000000"
    file = state / "evaluations" / f"{id_}.json"
    shutil.copy(file.with_name(f"{begun['id']}.json"), file)
    edit(file, id=id_, status="queued", done=0, groups=[], result=None)
    told = json.loads(file.read_text())
    for task in told["tasks"][-4:]:
        task["args"]["fault"] = "wait"
    file.write_text(json.dumps(told))
    async with over_socket(served) as client:
        evaluations = Evaluations(client, lambda: file.parent, roll_out_in(state))
        following = evaluations.follow(id_)
        async for now in following:
            if now.done >= 3:
                break
        await following.aclose()
        left = await evaluations.get(id_)
        assert left.status == "cancelled"
        assert 3 <= left.done <= 8
        source.with_name("go").touch()
        await evaluations.resume(id_)
        done = [now.done async for now in evaluations.follow(id_)]
        assert done[0] >= left.done
        assert done[-1] == 12
        traces = await client.job_traces(id_)
        graded = [one for one in traces if one.reward is not None]
        assert 12 <= len(graded) <= 12 + 8, "those that were under way were lost at most"


async def test_one_whose_program_was_killed_goes_on_with_what_the_service_has(
    hud: Command, served: Served, tmp_path: Path, source: Path
) -> None:
    await trained(hud, source)
    id_ = (await evaluated(hud, source))["id"]
    file = tmp_path / "state" / "evaluations" / f"{id_}.json"
    edit(file, status="running", done=3, groups=[], result=None)
    async with over_socket(served) as client:
        made = len(await client.job_traces(id_))
        done = await hud("eval", "--resume", id_)
        assert (done.code, done.data["evaluation"]["done"]) == (0, 12), done.err
        assert len(await client.job_traces(id_)) == made, "none is made twice"


async def test_what_cannot_be_evaluated_is_refused(
    hud: Command, served: Served, tmp_path: Path, source: Path
) -> None:
    await trained(hud, source)
    for flags, said in (
        (("arith", "--turns", "4"), "--turns is for an environment"),
        (("{}", "--runtime", "moon"), "no such runtime"),
        (("{}", "--split", "heldout"), "is in heldout"),
    ):
        refused = await hud("eval", *(word.format(source) for word in flags), *EVAL)
        assert refused.code == 2
        assert said in refused.error["message"] + refused.error["hint"]
    id_ = (await evaluated(hud, source))["id"]
    folder = tmp_path / "state" / "evaluations"
    edit(folder / f"{id_}.json", status="queued", done=0)
    async with over_socket(served) as client:
        following = Evaluations(client, lambda: folder).follow(id_)
        with pytest.raises(HudUsage, match="on an environment"):  # nobody to roll it out
            await anext(following)


HELD = [*SUMS, *({"args": {"a": 8, "b": b}, "columns": {"split": "heldout"}} for b in range(4))]


async def test_without_a_source_it_is_on_the_environment_of_the_latest_run(
    hud: Command, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trained(hud, source)
    done = await hud("eval", *MODEL, "--samples", "1", "--turns", "3")
    assert done.code == 0, done.err
    found = done.data["evaluation"]
    assert (found["name"], found["num_tasks"], found["done"]) == ("sums", 12, 12)
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path / "another"))
    refused = await hud("eval", *MODEL)
    assert refused.code == 1
    said = "the latest run was on sums.py: hud-tui --local eval sums.py -m arith-rl"
    assert said in refused.error["message"]


async def test_it_counts_with_what_the_run_evaluated_itself_and_is_listed_after_it(
    hud: Command, source: Path
) -> None:
    write_sums(source.parent, HELD)
    await trained(hud, source, "--steps", "1", "--turns", "4", "--temperature", "0.5")
    done = await hud("eval", str(source), *MODEL, "--samples", "4")
    parameters = done.data["evaluation"]["parameters"]
    assert (parameters["max_tokens"], parameters["temperature"]) == (20, 0.5)
    [node] = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    own, asked = map(Evaluation.model_validate, node["evaluations"])
    assert conditions(own) == conditions(asked)
    assert pooled([own, asked]).num_traces == 4 * 5
    made = [asked.id, (await evaluated(hud, Path("arith")))["id"]]
    listed = (await hud("eval", *MODEL, "--list")).data["evaluations"]
    assert [one["id"] for one in listed[-2:]] == made
