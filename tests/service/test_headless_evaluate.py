"""``hud-tui eval``: as documents and as text, with its gates, interrupted and resumed; on a service
that makes no evaluations, too."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from hud_tui.client.client import HudClient
from hud_tui.client.evaluation_ledger import EvaluationLedger
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudConflict, HudUnauthorized, HudUsage
from hud_tui.rollouts.control import works_of
from hud_tui.rollouts.evaluate import evaluation_files
from hud_tui.service import engine_rollouts
from hud_tui.service.engines.base import EngineError
from hud_tui.service.service import Service
from hud_tui.wire import Model, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation
from tests.conftest import PATIENCE_S, Served, calling, fork, on_socket, tasks_of
from tests.service.calls import Held, Json, step, stepped, tree
from tests.service.clients import fork_of, in_process
from tests.service.headless import Command, Text, commands
from tests.toy_engine import ToyEngine

HELDOUT = 36
TOTAL = 4 * HELDOUT


@pytest.fixture
async def trained(hud: Command, served: Served) -> list[Json]:
    return await stepped(served, 2)


def text_of(file: str) -> str:
    return Path(file).read_text("utf-8")


async def test_the_head_is_evaluated_on_the_held_out_tasks(
    hud: Command, trained: list[Json]
) -> None:
    result = await hud("eval", "arith", "-m", "arith-rl")
    assert (result.code, result.kind) == (0, "evaluation")
    found = result.data["evaluation"]
    assert found["checkpoint_id"] == trained[-1]["id"]
    assert (found["status"], found["num_tasks"], found["samples"]) == ("succeeded", HELDOUT, 4)
    assert (len(found["groups"]), found["result"]["name"]) == (HELDOUT, "arith")
    assert sorted(found["result"]["pass_at"]) == ["1", "2", "4"]
    assert result.data["gates"] == []
    assert f"of {TOTAL} rollouts" in result.err
    row = (await hud("checkpoints", "arith-rl")).data["checkpoints"][-1]
    assert row["evaluations"] == [found["result"]]
    assert row["own_heldout_reward"] == found["result"]["mean_reward"]
    status = (await hud("status", "arith-rl")).data
    assert status["head"]["evaluations"][0]["mean"] == found["result"]["mean"]


async def test_several_checkpoints_are_compared_with_the_first(
    hud: Command, trained: list[Json]
) -> None:
    flags = ("--checkpoint", "base", "--checkpoint", "best", "--checkpoint", trained[0]["name"])
    result = await hud("eval", "arith", "-m", "arith-rl", *flags, "--samples", "2")
    kinds = [document["kind"] for document in result.documents]
    assert kinds == ["evaluation", "evaluation", "comparison", "evaluation", "comparison"]
    first, best, compared, *_ = (document["data"] for document in result.documents)
    assert (first["evaluation"]["checkpoint_id"], best["evaluation"]["total"]) == (None, 72)
    assert compared["before"] == {"id": first["evaluation"]["id"], "checkpoint": "base"}
    assert (compared["tasks"], compared["samples"]) == (HELDOUT, [2, 2])
    means = [one["evaluation"]["result"]["mean_reward"] for one in (first, best)]
    assert compared["reward"]["value"] == pytest.approx(means[1] - means[0])
    assert "36 tasks × 2" in compared["summary"][0]


async def test_without_a_source_the_latest_run_s_tasks_are_taken(hud: Command) -> None:
    missing = await hud("eval", "-m", "arith-rl")
    assert missing.code == 1
    assert "no managed run" in missing.error["message"]
    run = ("run", "arith", "-m", "arith-rl", "--steps", "2", "--follow", "-y")
    assert (await hud(*run, "--eval-every", "1", "--eval-samples", "2", "--baseline")).code == 0
    listed = (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"]
    assert [one["checkpoint"] for one in listed] == [None, "step-000001", "step-000002"]
    assert {one["samples"] for one in listed} == {2}
    found = (await hud("eval", "-m", "arith-rl", "--split", "train", "--samples", "1")).data
    assert (found["evaluation"]["name"], found["evaluation"]["split"]) == ("arith", "train")


async def test_a_build_fails_under_a_reward_and_on_what_is_worse(
    hud: Command, trained: list[Json]
) -> None:
    evaluate = ("eval", "arith", "-m", "arith-rl", "--samples", "1")
    assert (await hud(*evaluate, "--fail-under", "0.01")).code == 0
    failed = await hud(*evaluate, "--fail-under", ".999")
    assert (failed.code, failed.data["gates"][0]["passed"]) == (6, False)
    assert "is under 0.999" in failed.err
    unknown = await hud(*evaluate, "--fail-if-worse-than", "base")
    assert (unknown.code, unknown.error["hint"]) == (
        2, "evaluate it first: hud-tui eval arith -m arith-rl --checkpoint base --samples 1",
    )  # fmt: skip
    head = failed.data["evaluation"]["id"]
    for ref in (head[:8], "head", trained[-1]["name"]):
        same = await hud(*evaluate, "--fail-if-worse-than", ref)
        [gate] = same.data["gates"]
        assert (same.code, gate["passed"], gate["reward"]["value"]) == (0, True, 0.0)
    other = await hud(*evaluate, "--split", "train", "--fail-if-worse-than", head)
    assert (other.code, "shares no task" in other.error["message"]) == (2, True)


async def test_a_build_fails_on_what_is_worse_than_what_the_command_evaluates_too(
    hud: Command, trained: list[Json]
) -> None:
    names = (trained[-1]["name"], "base")
    for order in (names, names[::-1]):
        given = [word for name in order for word in ("--checkpoint", name)]
        flags = ("-m", "arith-rl", "--samples", "1", "--fail-if-worse-than", "base")
        done = await hud("eval", "arith", *given, *flags)
        assert done.code in (0, 6), done.err
        *shown, compared = [document["data"] for document in done.documents]
        assert [one["evaluation"]["checkpoint"] or "base" for one in shown] == list(order)
        by = {one["evaluation"]["checkpoint"] or "base": one for one in shown}
        [gate] = by[names[0]]["gates"]
        assert gate["than"] == by["base"]["evaluation"]["id"]
        assert by["base"]["gates"] == [], "nothing is worse than itself"
        assert (done.code == 6) != gate["passed"]
        assert compared["before"]["id"] == shown[0]["evaluation"]["id"]


async def test_one_is_resumed_by_the_id_that_the_list_shows(hud: Command) -> None:
    evaluate = ("eval", "arith", "-m", "arith-rl", "--samples", "1")
    made = (await hud(*evaluate)).data["evaluation"]["id"]
    found = await hud("eval", "--resume", made[:8])
    assert (found.code, found.data["evaluation"]["id"]) == (0, made), found.err
    short = await hud("eval", "--resume", made[:2])
    assert (short.code, short.error["hint"]) == (2, "give at least 4 characters of an id")
    for ref in ("zzzz", "00000000-0000-4000-8000-000000000000"):
        unknown = await hud("eval", "--resume", ref)
        assert (unknown.code, unknown.error["message"]) == (2, f"no evaluation named {ref}")
        assert unknown.error["hint"] == f"the newest are {made} (base of arith-rl)"


async def test_the_best_to_compare_with_is_the_best_that_was_evaluated_on_these_tasks(
    hud: Command, trained: list[Json]
) -> None:
    """A run's steps report a held-out reward, so ★ need not have been evaluated."""
    evaluate = ("eval", "arith", "-m", "arith-rl", "--samples", "1")
    none = await hud(*evaluate, "--fail-if-worse-than", "best")
    assert none.code == 2
    assert re.search("--checkpoint (base|step-0000)", none.error["hint"])
    for node in trained:
        known = (await hud(*evaluate, "--checkpoint", node["name"])).data["evaluation"]["id"]
        gated = await hud(*evaluate, "--checkpoint", node["name"], "--fail-if-worse-than", "best")
        assert gated.code in (0, 6)
        assert gated.data["gates"][0]["than"]
        assert known
    text = ("eval", "text", "-m", "arith-rl", "--samples", "1", "--fail-if-worse-than", "best")
    other = await hud(*text)
    assert (other.code, "has no finished evaluation" in other.error["message"]) == (2, True)


async def test_what_is_worse_beyond_chance_fails_the_gate(
    hud: Command, served: Served, trained: list[Json], engine: ToyEngine
) -> None:
    evaluate = ("eval", "arith", "-m", "arith-rl")
    await hud(*evaluate, "--checkpoint", "base")
    engine.flatten()  # from now on nothing is answered right
    worse = await hud(*evaluate, "--fail-if-worse-than", "base")
    [gate] = worse.data["gates"]
    assert (worse.code, gate["passed"]) == (6, False)
    assert gate["reward"]["high"] < 0
    assert gate["alike"]
    assert "step-000002 − " in worse.err


async def test_what_cannot_be_asked_is_named_and_nothing_is_sent(hud: Command) -> None:
    for words, said in (
        ("arith --samples 0", "--samples: 0 is below the least, 1"),
        ("arith --samples 300", "--samples: 300 is above the most, 256"),
        ("arith --temperature 9", "--temperature: 9 is above the most, 5"),
        ("arith --checkpoint nope", "no checkpoint named nope"),
        ("--resume x --checkpoint head", "--resume takes no SOURCE"),
        ("arith --checkpoint best", "no checkpoint is the best yet"),
    ):
        result = await hud("eval", *words.split(), "-m", "arith-rl")
        assert (result.code, said in result.error["message"]) == (2, True)
    assert (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"] == []


async def test_as_text(text: Text, trained: list[Json]) -> None:
    words = ["eval", "arith", "-m", "arith-rl", "--checkpoint", "base", "--checkpoint", "head"]
    code, out, err = await text(*words)
    assert code == 0
    assert "arith-rl base on arith: heldout, 36 tasks × 4, evaluation " in out
    assert "95 % interval" in out
    assert "pass@4" in out
    assert "16 more; --headless has all" in out
    assert "on 36 tasks × 4" in out or "with 36 tasks × 4" in out
    assert f"{TOTAL} of {TOTAL} rollouts of step-000002" in err
    code, out, _ = await text("eval", "-m", "arith-rl", "--list")
    assert [line.split()[1] for line in out.splitlines()] == ["checkpoint", "base", "step-000002"]


async def test_a_single_task_is_counted_in_the_singular(
    hud: Command, text: Text, trained: list[Json], engine: ToyEngine, tmp_path: Path
) -> None:
    source = tmp_path / "one.json"
    row = {"env": {"name": "arith"}, "id": "add", "args": {"a": 1, "b": 2}, "slug": "one"}
    source.write_text(json.dumps([row]))
    evaluate = ["eval", str(source), "-m", "arith-rl", "--split", "all", "--samples", "8"]
    assert (await hud(*evaluate, "--checkpoint", "base")).code == 0
    engine.flatten()
    _, out, _ = await text(*evaluate, "--fail-if-worse-than", "base")
    assert re.search("^1 task (regressed|within chance, each by itself)$", out, re.M)


async def test_interrupted_it_is_cancelled_and_resumed_with_what_is_missing(
    hud: Command, http: AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C in a terminal, when some rollouts are there."""
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 10)
    passed = iter(range(2))
    sampling = Held(engine, "sample", lambda *given: next(passed, None) is None)
    words = ("eval", "arith", "-m", "arith-rl", "--split", "all", "--samples", "1")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui", "--headless", *words), stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        assert b"rollouts of base" in await child.stderr.readline()
        await sampling.begun.wait()
        child.send_signal(signal.SIGINT)
        out, err = await child.communicate()
    assert (child.returncode, out) == (130, b"")
    assert b"which are kept: hud-tui eval --resume" in err
    id_ = err.split(b"--resume ")[1].split()[0].decode()
    cancelled = (await http.get(f"/v1/evaluations/{id_}")).json()
    assert (cancelled["status"], 0 < cancelled["done"] < 132) == ("cancelled", True)
    sampling.go_on.set()
    resumed = await hud("eval", "--resume", id_)
    found = resumed.data["evaluation"]
    assert (resumed.code, found["id"]) == (0, id_)
    assert (found["done"], found["status"]) == (132, "succeeded")


async def test_exports_and_reports_show_what_was_found(
    hud: Command, trained: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--checkpoint", "base", "--checkpoint", "head", "--samples", "2")
    await hud("eval", "arith", "-m", "arith-rl", *flags)
    file = str(tmp_path / "evaluations.json")
    what = ("--what", "evaluations", "--format", "json", "-o", file)
    assert (await hud("export", "arith-rl", *what)).data["rows"] == 2
    base, head = json.loads(text_of(file))["rows"]
    assert (base["checkpoint"], base["checkpoint_id"]) == ("base", None)
    assert (head["checkpoint"], head["checkpoint_id"]) == ("step-000002", trained[-1]["id"])
    assert (head["tasks"], head["samples"], head["tasks_name"]) == (HELDOUT, 2, "arith")
    assert head["pass@2_low"] <= head["pass@2"] <= head["pass@2_high"]
    report = (await hud("report", "arith-rl", "-o", str(tmp_path))).data["file"]
    page = text_of(report)
    assert "## Evaluations" in page
    assert "| `base` | heldout | `arith` | 36 tasks × 2 | " in page
    assert "| `step-000002` | heldout | `arith` | 36 tasks × 2 | " in page


async def test_an_evaluation_is_looked_at_and_resumed_as_a_job(
    hud: Command, trained: list[Json], engine: ToyEngine
) -> None:
    engine.fail_next["sample"] = EngineError("it cannot")
    failed = await hud("eval", "arith", "-m", "arith-rl")
    assert (failed.code, "failed after 0 of 144 rollouts" in failed.error["message"]) == (1, True)
    [job] = (await hud("jobs")).data["jobs"][:1]
    assert (job["status"], job["metadata"]["reason"]) == ("failed", "it cannot")
    resumed = await hud("jobs", job["id"], "--resume", "-y")
    assert resumed.data["status"]["status"] == "queued"
    for _ in range(2):  # whether it goes on or is whole by now
        found = await hud("eval", "--resume", job["id"])
        assert found.data["evaluation"]["status"] == "succeeded"
        assert found.data["evaluation"]["done"] == 144


# A service that makes no evaluations, as HUD.


@pytest.fixture
async def elsewhere(evaluates_nothing: None, service: Service) -> AsyncIterator[Served]:
    async with on_socket(service) as url:
        yield Served(url, service.api_key, service)


async def test_from_here_each_rollout_is_pinned_and_kept_by_the_job_s_id(
    elsewhere: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    hud = commands(elsewhere, monkeypatch, capsys)
    async with calling(elsewhere.service) as http:
        model = await fork(http, "arith-rl")
        for _ in range(2):
            await step(http, model)
        first, _ = await tree(http, model["id"])
    flags = ("--checkpoint", first["name"], "--samples", "1")
    result = await hud("eval", "arith", "-m", "arith-rl", *flags)
    found = result.data["evaluation"]
    assert (result.code, found["status"], found["done"]) == (0, "succeeded", HELDOUT)
    assert (found["checkpoint_id"], found["checkpoint"]) == (first["id"], "step-000001")
    assert found["result"]["num_tasks"] == HELDOUT
    assert (tmp_path / "state" / "evaluations" / f"{found['id']}.json").exists()
    job = (await hud("jobs", found["id"])).data["job"]
    assert job["name"] == "evaluation of step-000001 of arith-rl on arith"
    listed = (await hud("eval", "-m", "arith-rl", "--list")).data["evaluations"]
    assert [one["id"] for one in listed] == [found["id"]]
    worse = ("--samples", "1", "--fail-if-worse-than", "step-000001")
    other = await hud("eval", "arith", "-m", "arith-rl", *worse)
    assert other.data["gates"][0]["tasks"] == HELDOUT
    base = await hud("eval", "arith", "-m", "arith-rl", "--checkpoint", "base")
    assert (base.code, "not what a model started from" in base.error["message"]) == (2, True)
    again = (await hud("eval", "-m", "arith-rl", "--samples", "1")).data["evaluation"]
    assert (again["name"], again["total"]) == ("arith", HELDOUT)  # the tasks of the last one
    refused = await hud("jobs", again["id"], "--resume", "-y")
    assert f"eval --resume {again['id']}" in refused.error["hint"]
    async with calling(elsewhere.service) as http:
        await fork(http, "unasked")
    assert "say which tasks" in (await hud("eval", "-m", "unasked")).error["message"]


@pytest.fixture
async def from_here(
    evaluates_nothing: None, service: Service, tmp_path: Path
) -> AsyncIterator[tuple[WorkClient, Model, SubmitEvaluation]]:
    async with in_process(service) as client, calling(service) as http:
        await step(http, await fork(http, "arith-rl"))
        model = await client.model("arith-rl")
        head = (await client.checkpoints(model.id))[-1]
        body = SubmitEvaluation(
            checkpoint_id=head.id,
            tasks=await tasks_of(http),
            parameters=EvaluationParameters(samples=2),
        )
        yield works_of(client, tmp_path), model, body


FromHere = tuple[WorkClient, Model, SubmitEvaluation]


async def last_of(works: WorkClient, id_: str) -> WorkState:
    return [one async for one in works.follow(id_)][-1]


async def test_from_here_it_goes_on_after_who_followed_it_has_left(from_here: FromHere) -> None:
    works, model, body = from_here
    evaluations = works.evaluations
    begun = await evaluations.submit(model, body, "step-000001")
    assert (begun.status, begun.total) == ("queued", 72)
    followed = works.follow(begun.id)
    while (await anext(followed)).done < 10:
        pass
    await followed.aclose()
    left = await evaluations.get(begun.id)
    assert left.status == "cancelled"
    assert 10 <= left.done < 72
    assert (await works.resume(begun.id)).status == "queued"
    ended = await last_of(works, begun.id)
    assert (ended.status, ended.done) == ("succeeded", 72)
    assert {len(group.rewards) for group in ended.groups} == {2}
    with pytest.raises(HudUsage, match=r"has ended \(succeeded\): nothing to resume"):
        await works.resume(begun.id)
    assert [one.groups for one in await evaluations.of_model(model)] == [[]]


async def test_from_here_what_failed_is_said_and_can_be_repeated(
    from_here: FromHere, engine: ToyEngine
) -> None:
    works, model, body = from_here
    evaluations = works.evaluations
    begun = await evaluations.submit(model, body)
    sampled, failing = engine.sample, iter(range(3))

    async def sample(*given: Any) -> Any:
        if next(failing, None) is not None:
            raise RuntimeError("the box is gone")
        return await sampled(*given)

    engine.sample = sample  # type: ignore[method-assign]
    ended = await last_of(works, begun.id)
    assert (ended.status, ended.done) == ("failed", 69)
    assert "3 of 72 rollouts failed" in (ended.error.message or "")
    assert ended.result is not None
    await works.resume(begun.id)
    assert (await last_of(works, begun.id)).status == "succeeded"


async def test_from_here_an_end_that_the_service_refuses_stays_as_it_is(
    from_here: FromHere, tmp_path: Path
) -> None:
    works, model, body = from_here
    begun, files = await works.evaluations.submit(model, body), evaluation_files(tmp_path)
    stored = files.read(begun.id)
    assert stored is not None
    ledger = EvaluationLedger(files, stored, lambda ask: ask(None))

    async def end() -> None:
        async with ledger.ending():
            ledger.write(stored.ended("succeeded"))
            raise HudUsage("refused")

    with pytest.raises(HudUsage):
        await end()
    assert (await works.evaluations.get(begun.id)).status == "succeeded"


async def test_from_here_a_queued_one_is_cancelled_and_other_files_are_passed_over(
    from_here: FromHere, tmp_path: Path
) -> None:
    works, model, body = from_here
    evaluations = works.evaluations
    begun = await evaluations.submit(model, body)
    await works.cancel(begun.id)
    assert (await evaluations.get(begun.id)).status == "cancelled"
    assert (await last_of(works, begun.id)).done == 0
    folder = tmp_path / "evaluations"
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text('{"service": "x"}')
    stored = (folder / f"{begun.id}.json").read_text()
    for id_, service in (("c", "http://other"), ("d", "http://127.0.0.1:1")):  # d: as once stored
        told = json.loads(stored)
        told |= {"service": service, "evaluation": told["evaluation"] | {"id": id_}}
        (folder / f"{id_}.json").write_text(json.dumps(told))
    assert {one.id for one in await evaluations.of_model(model)} == {begun.id, "d"}
    assert (await evaluations.get("d")).status == "cancelled"


# On a service that makes them: the client's own ways.


async def test_the_service_s_own_are_followed_cancelled_and_resumed(
    service: Service,
    client: HudClient,
    engine: ToyEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_rollouts, "AT_ONCE", 10)
    sampling, model = Held(engine, "sample"), await fork_of(client)
    works = works_of(client, tmp_path)
    evaluations = works.evaluations
    tasks = (await client.tasks.taskset("arith")).tasks
    begun = await evaluations.submit(model, SubmitEvaluation(tasks=tasks))
    await sampling.begun.wait()
    await works.cancel(begun.id)
    assert (await last_of(works, begun.id)).status == "cancelled"
    sampling.go_on.set()
    await works.resume(begun.id)
    ended = await last_of(works, begun.id)
    assert (ended.status, len(ended.groups)) == ("succeeded", HELDOUT)
    with pytest.raises(HudConflict):
        await works.resume(begun.id)
    assert [one.id for one in await evaluations.of_model(model)] == [begun.id]
    assert not (tmp_path / "evaluations").exists()
    async with in_process(service, "wrong") as stranger:
        with pytest.raises(HudUnauthorized):
            await works_of(stranger, tmp_path).evaluations.of_model(model)
