"""Every command, headless, against the embedded service."""

import json
from pathlib import Path
from platform import node
from uuid import uuid4

import pytest

from hud_tui.cli import models as models_module
from hud_tui.cli import traces as headless_traces
from hud_tui.client import TrainingClient, rollout_search
from hud_tui.client.client import HudClient
from hud_tui.client.evaluation_files import StoredEvaluation
from hud_tui.rl.tasks.task import HELD_OUT
from hud_tui.rl.work import Work
from hud_tui.rollouts.evaluate import evaluation_files
from hud_tui.service.store.jobs import enter
from hud_tui.settings import read_paths
from hud_tui.wire import Model, WorkState
from hud_tui.wire_runs import DriveReport, DriveRun, KeepEvaluation
from tests.conftest import Served
from tests.service.clients import fork_of, over_socket
from tests.service.headless import Command, as_hud, forked, model_of

RUN = ("run", "arith", "-y", "--follow", "--group-size", "2", "--steps")


async def test_a_service_without_a_fork_and_with_one(bare: Command) -> None:
    empty = await bare("status")
    assert (empty.code, empty.kind, empty.data["model"]) == (0, "status", None)
    assert empty.data["service"]["label"] == "HUD"
    model = await forked(bare)
    result = await bare("models", "--headless")
    assert (result.code, result.kind, len(result.documents)) == (0, "models", 1)
    assert model in result.data["models"]
    assert result.err == ""
    assert (await bare("--version")).data["version"]


async def test_a_fork_and_a_move_of_the_head_are_tried_without_doing_them(hud: Command) -> None:
    model = await model_of(hud)
    before = (await hud("models")).data
    dry = await hud("models", "fork", model["base_model"], "-n", "other", "--dry-run")
    assert (dry.code, dry.kind, dry.data["name"]) == (0, "fork", "other")
    same = await hud("fork", model["base_model"], "--name", "arith-rl", "--if-not-exists", "-y")
    assert (same.code, same.data["model"]["id"]) == (0, model["id"])
    assert (await hud("models")).data == before
    await hud(*RUN, "2")
    head = (await hud("head", "arith-rl")).data["head"]["id"]
    dry = await hud("head", "arith-rl", "--back", "1", "--dry-run")
    assert (dry.data["head"], dry.data["would_be"] != head) == (head, True)
    assert (await hud("head", "arith-rl")).data["head"]["id"] == head


async def test_of_programs_that_fork_at_once_each_gets_the_one_there_is(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked before one of them forked it."""
    model, looks = await model_of(hud), iter([False])
    existing = models_module._existing

    async def looked(client: HudClient, name: str) -> Model | None:
        return await existing(client, name) if next(looks, True) else None

    monkeypatch.setattr(models_module, "_existing", looked)
    same = await hud("fork", model["base_model"], "--name", "arith-rl", "--if-not-exists", "-y")
    assert (same.code, same.data["model"]["id"]) == (0, model["id"])
    taken = await hud("fork", model["base_model"], "--name", "arith-rl", "-y")
    assert (taken.code, taken.error["type"]) == (1, "conflict")


async def test_rollouts_of_a_loop_outside_are_listed_by_its_model(
    hud: Command, served: Served
) -> None:
    async with over_socket(served) as client:
        model = await fork_of(client, "loop-rl")
        async with TrainingClient(model.id, client) as trainer:
            for _ in range(2):
                batch = await trainer.sample("1 + 1 = ?", group_size=3, task_slug="easy")
                for number, rollout in enumerate(batch):
                    rollout.reward = float(number % 2)
                await trainer.step(batch, learning_rate=0.1, group_size=3)
    listed = (await hud("traces", "loop-rl")).data
    assert (listed["job_id"], listed["total"], len(listed["traces"])) == (None, 6, 6)
    assert [row["step"] for row in listed["traces"]] == [1, 1, 1, 2, 2, 2]
    assert {row["task_slug"] for row in listed["traces"]} == {"easy"}
    newest = (await hud("traces", "loop-rl", "--limit", "2")).data
    assert (newest["total"], [row["step"] for row in newest["traces"]]) == (None, [2, 2])
    first = (await hud("traces", "loop-rl", "--step", "1")).data
    assert [row["checkpoint"] for row in first["traces"]] == ["step-000001"] * 3
    assert (await hud("traces", "loop-rl", "--filter", "error")).code == 2


async def test_a_run_is_followed_to_its_result(hud: Command) -> None:
    model = await model_of(hud)
    result = await hud(*RUN, "2")
    ended = result.data["result"]
    assert (ended["checkpoint"], ended["rollouts"]) == ("step-000002", 8)
    assert result.code == 0
    assert {document["kind"] for document in result.documents[:-1]} == {"event"}
    steps = [d["data"] for d in result.documents[:-1] if d["data"]["type"] == "step"]
    assert [step["step"] for step in steps] == [1, 2]
    assert result.kind == "job"
    assert result.data["status"]["status"] == "succeeded"
    status = (await hud("status")).data
    assert status["model"]["id"] == model["id"]
    assert status["head"]["id"] == steps[-1]["checkpoint_id"]
    assert status["metrics"]["reward_mean"] == steps[-1]["metrics"]["reward_mean"]
    assert status["job"]["id"] == result.data["job_id"]
    by_job = await hud("status", result.data["job_id"])
    assert by_job.data["model"]["id"] == model["id"]


async def test_the_head_goes_back_and_is_set_and_the_tree_branches(hud: Command) -> None:
    await hud(*RUN, "3")
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    first, second, third = (checkpoint["id"] for checkpoint in tree)
    assert (await hud("head", "arith-rl")).data["head"]["id"] == third
    back = await hud("head", "arith-rl", "--back", "2", "-y")
    assert (back.code, back.data["previous"], back.data["head"]["id"]) == (0, third, first)
    assert back.data["verified"] is True
    history = (await hud("head", "arith-rl", "--history")).data
    assert (history["complete"], history["since"]) == (True, 0.0)
    ends = [(line["what"], line["before"], line["after"]) for line in history["lines"]]
    assert ends == [("3 steps", "base", "step-000003"), ("head set", "step-000003", "step-000001")]
    assert history["lines"][1]["by"] == f"command line on {node()}"
    assert history["lines"][1]["checkpoint_id"] == first
    await hud(*RUN, "1")
    tree = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    assert tree[-1]["prev_model_checkpoint_id"] == first
    put = await hud("head", "arith-rl", "--set", tree[1]["name"], "-y")
    assert put.data["head"]["id"] == second
    best = (await hud("checkpoints", "arith-rl")).data["best"]
    put = await hud("head", "arith-rl", "--set", "best", "-y")
    assert best["text"] in put.err
    if best["checkpoint_id"] is None:
        assert put.code == 2
    else:
        assert put.data["head"]["id"] == best["checkpoint_id"]
    base = await hud("head", "arith-rl", "--set", "base", "-y")
    assert (base.code, base.error["message"]) == (2, "the base weights cannot be the head")


async def test_of_many_rollouts_the_newest_are_printed_and_the_rest_is_named(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headless_traces, "PAGE", 7)
    job_id = (await hud(*RUN, "2")).data["job_id"]
    whole = await hud("traces", job_id, "--all")
    traces = [trace for page in whole.documents for trace in page["data"]["traces"]]
    ids = [trace["id"] for trace in traces]
    sizes = [len(page["data"]["traces"]) for page in whole.documents]
    assert {trace["job_id"] for trace in traces} == {job_id}
    assert sizes[:-1] == [7] * (len(sizes) - 1)
    assert (len(ids), len(set(ids))) == (whole.data["total"], whole.data["total"])
    assert [page["data"]["offset"] for page in whole.documents[:2]] == [0, 7]
    newest = await hud("traces", job_id)
    assert (newest.code, newest.kind) == (0, "traces")
    assert [trace["id"] for trace in newest.data["traces"]] == ids[-7:]
    assert newest.data["omitted"] == newest.data["offset"] == len(ids) - 7
    assert f"{len(ids) - 7} older rollouts omitted" in newest.err
    last = await hud("traces", job_id, "--limit", "10")
    assert [trace["id"] for trace in last.data["traces"]] == ids[-10:]
    step = await hud("traces", job_id, "--step", "1", "--limit", "1000")
    assert {trace["step"] for trace in step.data["traces"]} == {1}
    total = len(step.data["traces"])
    assert (step.data["total"], step.data["omitted"], step.err) == (total, 0, "")
    pages = await hud("traces", job_id, "--step", "1", "--all")
    assert sum(len(page["data"]["traces"]) for page in pages.documents) == total
    kept = await hud("traces", job_id, "--filter", "reward>.9", "--limit", "1000")
    right = [trace["id"] for trace in traces if trace["reward"] > 0.9]
    assert [trace["id"] for trace in kept.data["traces"]] == right
    assert (kept.data["total"], kept.data["matched"]) == (len(ids), len(right))
    words = await hud("traces", job_id, "--step", "1", "--filter", '" = ?" is:trained')
    assert (words.code, words.data["searched"]) == (0, total)
    for trace in words.data["traces"]:
        assert trace["where"] == "prompt"
        assert " = ?" in trace["excerpt"]
        assert trace["advantage"] is not None
    assert words.data["traces"]
    wrong = await hud("traces", job_id, "--filter", "rewrad<1")
    assert (wrong.code, wrong.error["message"]) == (2, "rewrad<1: no rollout has rewrad")
    monkeypatch.setattr(rollout_search, "MOST_ROLLOUTS", 5)
    newest = await hud("traces", job_id, "--filter", "reward>.9")
    assert (newest.data["searched"], newest.data["total"]) == (5, len(ids))
    assert f"only the newest 5 of {len(ids)} searched" in newest.err
    none = await hud("traces", job_id, "--step", "99")
    assert (none.code, none.data["traces"], none.data["total"]) == (0, [], 0)


async def test_a_job_is_named_by_how_its_id_begins_or_by_its_model(
    hud: Command, served: Served
) -> None:
    model = await model_of(hud)
    job_id = (await hud(*RUN, "1")).data["job_id"]
    for ref in (job_id[:8], job_id.replace("-", ""), job_id[:13].upper(), "arith-rl"):
        assert (await hud("jobs", ref)).data["job"]["id"] == job_id, ref
        assert (await hud("traces", ref)).data["job_id"] == job_id, ref
        assert (await hud("status", ref)).data["model"]["id"] == model["id"], ref
    assert (await hud("status", model["id"][:8])).data["model"]["id"] == model["id"]
    assert (await hud("checkpoints", model["id"][:8])).code == 0
    assert (await hud("jobs", job_id[:8], "--cancel", "-y")).data["job_id"] == job_id
    store = served.service.parts.store
    for last in "01":
        await store.write(enter, f"abcdabcd-0000-4000-8000-00000000000{last}", "mine", 1, None)
    for command in ("jobs", "traces", "status"):
        several = await hud(command, "abcdabcd")
        assert (several.code, several.error["type"]) == (2, "ambiguous")
        assert "abcdabcd-0000-4000-8000-000000000001 (mine)" in several.error["hint"]
        assert (await hud(command, "dcbadcba")).code == 2


async def test_a_run_is_submitted_seen_and_cancelled(hud: Command) -> None:
    submitted = await hud("run", "arith", "-y", "--steps", "5000", "--seed", "3")
    assert (submitted.code, submitted.kind, len(submitted.documents)) == (0, "job", 1)
    job_id = submitted.data["job_id"]
    assert job_id in submitted.data["watch"]
    assert (await hud("jobs", job_id)).data["status"]["parameters"]["seed"] == 3
    assert [job["id"] for job in (await hud("jobs")).data["jobs"]] == [job_id]
    result = await hud("jobs", job_id, "--cancel", "-y")
    assert (result.code, result.data["cancelled"]) == (0, 1)
    again = await hud("jobs", job_id, "--cancel", "-y")
    assert (again.code, again.data["cancelled"]) == (0, 0)
    assert f"nothing to cancel: job {job_id} had already ended (cancelled)" in again.err


async def test_preflight_of_a_good_set_and_of_a_bad_one(hud: Command, tmp_path: Path) -> None:
    good = await hud("preflight", "arith")
    assert (good.code, good.data["verdict"], good.data["format"]) == (0, "ok", "export")
    rows = [
        {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}, "slug": "twice"},
        {"env": "arith", "id": "add", "args": {"a": 1}, "slug": "twice"},
        {"env": "arith", "id": "divide", "slug": "c"},
        {"env": "nowhere", "id": "add", "slug": "d", "columns": {"split": HELD_OUT}},
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    bad = await hud("preflight", str(file))
    assert (bad.code, bad.data["verdict"], bad.data["tasks"]) == (5, "failure", 4)
    failed = {f["check"]: f["where"] for f in bad.data["findings"] if f["level"] == "failure"}
    assert failed == {
        "slugs": "tasks.jsonl lines 1-2",
        "environments": "tasks.jsonl line 4",
        "scenarios": "tasks.jsonl line 3",
        "args": "tasks.jsonl line 2",
    }


async def test_a_busy_model_is_refused_with_the_command_that_cancels_its_run(hud: Command) -> None:
    job = (await hud("run", "arith", "--steps", "9000", "-y")).data["job_id"]
    refused = await hud("run", "arith", "--steps", "1", "-y")
    cancel = f"hud-tui jobs {job} --cancel"
    assert (refused.code, refused.error["type"], refused.error["status"]) == (1, "conflict", 409)
    assert refused.error["message"].startswith(f"job {job} (")
    assert refused.error["hint"] == cancel
    assert f"wait until it ends, or cancel it: {cancel.replace(job, job[:8])}" in refused.err
    assert (await hud(*cancel.split()[1:], "-y")).code == 0


async def test_a_job_has_a_status_of_its_own_and_the_whole_tree(hud: Command) -> None:
    first = (await hud(*RUN, "1")).data["job_id"]
    second = (await hud(*RUN, "2")).data["job_id"]
    assert (await hud("status", "arith-rl")).data["job"]["id"] == second
    result = await hud("status", first, "-v")
    assert (result.code, result.data["job"]["id"]) == (0, first)
    assert [node["step"] for node in result.data["tree"]] == [1, 2, 3]
    assert "tree" not in (await hud("status", first)).data


def test_an_error_is_always_code_message_and_param() -> None:
    said = {"code": None, "message": "out of memory", "param": None}
    for given, told in (
        ("out of memory", said),
        ({**said, "code": "oom"}, {**said, "code": "oom"}),
        (None, None),
    ):
        job = WorkState.model_validate({"status": "failed", "error": given})
        assert job.model_dump(mode="json")["error"] == told


async def test_hud_is_told_an_effort_and_what_it_does_not_define_is_warned_of(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begun(*flags: str) -> tuple[str, str | None]:
        """What is said of a run, and the effort that it has."""
        result = await hud("run", "arith", "-m", "arith-rl", "-y", *flags)
        assert result.code == 0
        job_id = result.data["job_id"]
        status = (await hud("jobs", job_id)).data["status"]
        await hud("jobs", job_id, "--cancel", "-y")
        return result.err, status["parameters"]["reasoning_effort"]

    err, effort = await begun("--steps", "1")
    assert ("HUD defines" in err, effort) == (False, None), "the embedded service defines them all"
    as_hud(monkeypatch)
    err, effort = await begun("--fail-on", "warning")
    assert ("HUD defines" in err, effort) == (False, "medium")
    beyond = ("run", "arith", "-m", "arith-rl", "-y", "--steps", "1", "--reasoning-effort", "low")
    strict = await hud(*beyond, "--seed", "3", "--fail-on", "warning")
    assert (strict.code, strict.kind) == (5, "preflight")
    said = "HUD defines reasoning_effort only; it may refuse or ignore steps, seed"
    assert f"warning: {said}" in strict.err
    assert said in [finding["message"] for finding in strict.data["findings"]]


async def test_a_value_beyond_its_flag_s_bound_is_refused_with_the_bound(hud: Command) -> None:
    for flags, said in (
        (("--lr", "3"), "--learning-rate: 3 is above the most, 1 (write e.g. 1e-4)"),
        (("--lr", "0"), "--learning-rate: 0 is not above 0 (write e.g. 1e-4)"),
        (("--beta1", "1"), "--beta1: 1 is not below 1 (write e.g. .9)"),
        (("--group-size", "1"), "--group-size: 1 is below the least, 2 (write e.g. 8)"),
        (("--temperature", "9", "--steps", "3"), "--temperature: 9 is above the most, 5"),
    ):
        refused = await hud("run", "arith", "-m", "arith-rl", *flags, "-y")
        assert (refused.code, refused.error["type"]) == (2, "usage")
        assert said in refused.err


async def test_an_evaluation_of_a_driven_run_is_not_cancelled_but_its_run(
    hud: Command, client: HudClient
) -> None:
    """Also one that a driver of an older version makes, which does not name itself."""
    model = (await client.models())[-1]
    run_id, evaluation_id = str(uuid4()), str(uuid4())
    run = DriveRun(model_id=model.id, name="own", driver="here:1", parameters={"steps": 2})
    await client.runs.drive(run_id, run)
    about = {"model_id": model.id, "run_id": run_id, "samples": 1, "num_tasks": 2}
    told = await client.runs.keep_evaluation(evaluation_id, KeepEvaluation.model_validate(about))
    assert (told.status, told.driver, told.job_id) == ("running", None, run_id)
    cancelled = await hud("jobs", evaluation_id, "--cancel", "-y")
    assert (cancelled.code, cancelled.data["cancelled"]) == (0, 0)
    assert f"is part of run {run_id}: cancel that: " in cancelled.err
    assert f"jobs {run_id} --cancel" in cancelled.err
    [job] = [job for job in await client.jobs() if job.id == evaluation_id]
    assert Work.of(job).why_no_cancel.endswith(f"is part of run {run_id}: cancel that.")


async def test_an_evaluation_that_ended_while_the_service_was_away_has_one_state(
    hud: Command, client: HudClient
) -> None:
    model, evaluation_id = (await client.models())[-1], str(uuid4())
    about = {"model_id": model.id, "samples": 1, "num_tasks": 2, "driver": "here:1"}
    await client.runs.keep_evaluation(evaluation_id, KeepEvaluation.model_validate(about))
    await client.runs.report(evaluation_id, DriveReport(status="interrupted"))

    async def listed() -> list[str | None]:
        jobs = (await hud("jobs")).data["jobs"]
        return [job["status"] for job in jobs if job["id"] == evaluation_id]

    assert await listed() == ["interrupted"]
    ended = WorkState(**about, kind="evaluation", id=evaluation_id, status="cancelled", split="all")
    service = await client.service_id()
    stored = StoredEvaluation(service=service, evaluation=ended, tasks=[], environment={})
    evaluation_files(read_paths().state).write(stored)
    assert await listed() == ["cancelled"]
    [job] = [job for job in await client.jobs() if job.id == evaluation_id]
    assert job.status == "cancelled", "the service was told"
