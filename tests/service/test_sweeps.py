"""Sweeps against the service: a fork each, so many at once, cancelled, resumed, never twice."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from hud_tui.client import submit, sweep_files
from hud_tui.client.client import HudClient
from hud_tui.client.starting import read_start
from hud_tui.client.submit import SweepDriver, cancel_sweep, plan_sweep, refreshed, requeued
from hud_tui.client.sweep_files import SweepFiles
from hud_tui.errors import HudConflict, HudMalformed, HudRefused, HudUnreachable, HudUsage
from hud_tui.rl.sweep import Member, Sweep, members_of
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.rollouts.control import works_of
from hud_tui.wire import BASE, Checkpoint, Model
from hud_tui.wire_runs import DriveRun
from tests.conftest import fork, until
from tests.service.calls import fork_from, step
from tests.service.clients import fork_of, run_of, trained
from tests.service.headless import Command, Text
from tests.toy_engine import ToyEngine

SMALL = {"steps": 2, "tasks_per_step": 2, "group_size": 2}
FEW = {"tasks_per_step": 2, "group_size": 2}


pytestmark = pytest.mark.usefixtures("hurried")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "LOCAL_S", 0.01)


async def tasks_of(client: HudClient) -> list[Task]:
    return read_rows((await client.tasks.taskset("arith")).tasks)


def planned(
    client: HudClient, model: Model, at_once: int = 2, **swept: tuple[object, ...]
) -> Sweep:
    return Sweep(
        id="0123456789abcdef",
        name="s",
        service=client.settings.api_url,
        model_id=model.id,
        model=model.model_name,
        source="arith",
        digest="",
        parameters={**SMALL, "sweep": "s"},
        at_once=at_once,
        members=members_of("s", swept),
    )


async def test_a_sweep_runs_so_many_at_once_each_on_a_fork(
    client: HudClient, engine: ToyEngine, tmp_path: Path
) -> None:
    files, seen = SweepFiles(tmp_path), list[int]()

    def told(sweep: Sweep, member: Member) -> None:
        seen.append(sum(member.running for member in sweep.members))

    model = await fork_of(client)
    sweep = planned(client, model, learning_rate=(0.1, 0.2), seed=(0, 1, 2))
    driver = SweepDriver(works_of(client, tmp_path), sweep, await tasks_of(client), told)
    ended = await driver.run(follow=True)
    assert ended.status == "succeeded"
    assert max(seen) == 2
    runs = (await client.runs.run_page()).items
    assert {run.model_id for run in runs} == {member.model_id for member in ended.members}
    assert {(run.learning_rate, run.parameters["seed"]) for run in runs if run.parameters} == {
        (rate, seed) for rate in (0.1, 0.2) for seed in (0, 1, 2)
    }
    assert {run.parameters["sweep"] for run in runs if run.parameters} == {"s"}
    (tmp_path / "sweeps" / "x.json").write_text("{")
    assert files.all() == [ended], "a file that makes no sense is no sweep"
    with pytest.raises(HudUsage, match="no sweep named x"):
        files.find("x")
    assert files.find("s") == ended
    assert set(files.names().values()) == {"s"}
    assert files.names().keys() == {run.id for run in runs}


async def test_all_runs_of_a_sweep_start_where_its_plan_says(
    client: HudClient, tmp_path: Path
) -> None:
    """Also where the head moves between the plan and the forks, or between two of them."""
    model = await trained(client, steps=3, **FEW)
    first, _, last = await client.checkpoints(model.id)
    tasks, swept = await tasks_of(client), {"seed": (0, 1, 2)}
    plan = await plan_sweep(
        works_of(client, tmp_path), model, ("arith", tasks), SMALL, swept, 1, ()
    )
    assert (plan.checkpoint_id, plan.start) == (last.id, "step-000003")

    async def moves() -> None:
        for node in (first, last, first):
            await client.set_head(model.id, node.id)

    await moves()
    driver = SweepDriver(works_of(client, tmp_path), plan, tasks)
    ended, _ = await asyncio.gather(driver.run(follow=True), moves())
    assert ended.status == "succeeded"
    runs = [run for run in (await client.runs.run_page()).items if run.model_id != model.id]
    assert {run.start or run.forked_from for run in runs} == {"arith-rl@step-000003"}
    assert len(runs) == 3


async def test_a_start_is_said_and_is_where_the_run_starts(client: HudClient) -> None:
    model = await trained(client, steps=2, **FEW)
    first, last = await client.checkpoints(model.id)
    at_base = await client.fork(model.id, "from base", BASE)
    assert at_base.forked_from == "arith-rl"
    body = (await run_of(client, model, steps=1, **FEW)).model_copy(update={"start": first.id})
    with pytest.raises(HudConflict, match=f"the head is step-000002 .{last.id}., not {first.id}"):
        await client.runs.submit(body)
    with pytest.raises(HudConflict, match="not base, where the run was to start"):
        await client.runs.submit(body.model_copy(update={"start": BASE}))
    drive = DriveRun(model_id=model.id, name="own", driver="here", parameters={"steps": 1})
    with pytest.raises(HudRefused, match="start: this model has checkpoints: name the one"):
        await client.runs.drive(str(uuid4()), drive)
    with pytest.raises(HudConflict, match="the head is step-000002"):
        await client.runs.drive(str(uuid4()), drive.model_copy(update={"start": first.id}))
    await client.runs.drive(str(uuid4()), drive.model_copy(update={"start": last.id}))


async def test_a_fork_that_leaves_its_start_open_is_refused_unless_it_is_hud_s_own(
    http: httpx.AsyncClient,
) -> None:
    """HUD's SDK has no word for it; null is somebody who does not know the head."""
    model = await fork(http)
    await step(http, model)
    silent = await fork_from(http, model["id"], "silent", checkpoint_id=None)
    assert silent.status_code == 422
    assert "name the one to start from" in silent.text
    plain = (await fork_from(http, model["id"], "plain")).json()
    assert plain["forked_from"].endswith("@step-000001")


async def test_a_tree_without_a_head_is_not_taken_for_base(
    client: HudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await trained(client, steps=1, **FEW)
    [only] = await client.checkpoints(model.id)

    async def headless(model_id: str) -> list[Checkpoint]:
        return [only.model_copy(update={"is_active": False})]

    monkeypatch.setattr(client, "checkpoints", headless)
    with pytest.raises(HudMalformed, match="of none that it is the head"):
        await read_start(client, model)


async def test_a_sweep_is_cancelled_and_gone_on_with(
    client: HudClient, engine: ToyEngine, tmp_path: Path
) -> None:
    files = SweepFiles(tmp_path)
    model = await fork_of(client)
    sweep = planned(client, model, seed=(0, 1, 2))
    engine.rest_after(0)
    tasks = await tasks_of(client)
    driver = SweepDriver(works_of(client, tmp_path), sweep, tasks)
    running = asyncio.create_task(driver.run(follow=True))
    await until(lambda: sum(member.running for member in driver.sweep.members) == 2)
    with pytest.raises(HudUsage, match="another process drives"):
        await SweepDriver(works_of(client, tmp_path), sweep, tasks).run(follow=False)
    stopped = await cancel_sweep(works_of(client, tmp_path), files.find("s"))
    assert (await running).cancelled, "who drives it ends by itself"
    statuses = [member.status for member in stopped.members]
    assert statuses == ["cancelled", "cancelled", "waiting"]
    assert stopped.status == "cancelled"
    engine.go_on()
    going = requeued(await refreshed(works_of(client, tmp_path), files.find("s")))
    files.keep(going, cancelled=False)
    ended = await SweepDriver(works_of(client, tmp_path), going, tasks).run(follow=True)
    assert [member.status for member in ended.members] == ["succeeded"] * 3
    assert len((await client.runs.run_page()).items) == 3, "what was stopped was resumed"
    assert [m.job_id for m in ended.members[:2]] == [m.job_id for m in stopped.members[:2]]


@pytest.mark.parametrize("moment", ["forking", "submitting", "queued"])
async def test_no_run_goes_on_that_begins_as_its_sweep_is_cancelled(
    client: HudClient, engine: ToyEngine, tmp_path: Path, moment: str
) -> None:
    """Whoever cancels knows only the runs that were stored by then."""
    files, model = SweepFiles(tmp_path), await fork_of(client)
    sweep = files.keep(planned(client, model, at_once=1, seed=(0, 1)))
    engine.rest_after(0)

    def told(now: Sweep, member: Member) -> None:
        if member.status == moment:
            files.cancel(sweep)

    driver = SweepDriver(works_of(client, tmp_path), sweep, await tasks_of(client), told)
    ended = await driver.run(follow=True)
    assert (ended.status, ended, ended.running) == ("cancelled", files.find("s"), 0)
    runs = [run.status for run in (await client.runs.run_page()).items]
    assert runs == ([] if moment == "forking" else ["cancelled"])


async def test_who_resumes_a_sweep_goes_on_from_where_another_has_brought_it(
    client: HudClient, tmp_path: Path
) -> None:
    """Between the question and its answer, another process may have driven it."""
    works, tasks = works_of(client, tmp_path), await tasks_of(client)
    sweep = works.sweeps.keep(planned(client, await fork_of(client), seed=(0, 1)))
    asked = requeued(await refreshed(works, sweep))
    driven = await SweepDriver(works, sweep, tasks).run(follow=True)
    again = asked.model_copy(update={"at_once": 1})
    ended = await SweepDriver(works, again, tasks, again=True).run(follow=True)
    assert ended == driven.model_copy(update={"at_once": 1})
    assert len((await client.runs.run_page()).items) == 2


async def test_a_sweep_is_cancelled_as_it_is_stored(client: HudClient, tmp_path: Path) -> None:
    works = works_of(client, tmp_path)
    old = works.sweeps.keep(planned(client, await fork_of(client), seed=(0, 1)))
    named = old.with_member(0, old.members[0].model_copy(update={"model_id": "m1"}))
    works.sweeps.keep(named)
    assert (await cancel_sweep(works, old)).members == named.members
    assert works.sweeps.find("s") == named.model_copy(update={"cancelled": True})


class Dying(httpx.AsyncBaseTransport):
    """A network that is gone after so many writes, the last of which arrived."""

    def __init__(self, inner: httpx.AsyncBaseTransport, writes: int) -> None:
        self.inner, self.left = inner, writes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.left <= 0:
            raise httpx.ConnectError("gone", request=request)
        answer = await self.inner.handle_async_request(request)
        if request.method == "POST":
            self.left -= 1
            if not self.left:
                await answer.aread()
                raise httpx.ReadError("gone", request=request)
        return answer


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
async def test_wherever_it_was_cut_off_nothing_is_made_twice(
    client: HudClient, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes are fork, submit, fork, submit."""
    files = SweepFiles(tmp_path)
    model, tasks = await fork_of(client), await tasks_of(client)
    sweep = files.keep(planned(client, model, seed=(0, 1)))
    before = client.wire.http._transport
    client.wire.http._transport = Dying(before, writes)
    with pytest.raises(HudUnreachable):
        await SweepDriver(works_of(client, tmp_path), sweep, tasks).run(follow=True)
    client.wire.http._transport = before
    going = requeued(await refreshed(works_of(client, tmp_path), files.find("s")))
    ended = await SweepDriver(works_of(client, tmp_path), going, tasks).run(follow=True)
    assert [member.status for member in ended.members] == ["succeeded"] * 2
    runs = (await client.runs.run_page()).items
    assert sorted(run.parameters["seed"] for run in runs if run.parameters) == [0, 1]
    forks = [m for m in await client.models() if m.forked_from == model.model_name]
    assert len(forks) == 2


async def test_a_run_that_is_refused_does_not_stop_the_others(
    client: HudClient, tmp_path: Path
) -> None:
    model = await fork_of(client)
    sweep = planned(client, model, loss_fn=("ppo", "nonsense"))
    driver = SweepDriver(works_of(client, tmp_path), sweep, await tasks_of(client))
    ended = await driver.run(follow=True)
    assert [member.status for member in ended.members] == ["succeeded", "refused"]
    assert "unknown loss" in ended.members[1].error
    assert ended.status == "failed"


FLAGS = ("--steps", "1", "--tasks-per-step", "2", "--lr", "0.1,0.3", "--group-size", "2,4")


async def test_several_values_on_the_command_line_are_a_sweep(hud: Command) -> None:
    dry = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--dry-run")
    assert (dry.code, dry.kind) == (0, "sweep")
    assert (dry.data["sent"], dry.data["size"]["rollouts"]) == (False, 2 * (2 + 4 + 2 + 4))
    size = dry.data["size"]
    held = size["each"][0]["evaluation"]
    assert held > 0
    assert size["trained_tokens"] == 24 * 20
    assert size["evaluated"] == 4 * held, "at the end of each run"
    assert size["sampled_tokens"] == (24 + 2 * 4 * held) * 20, "and once while it trains"
    assert dry.data["start"] == "base weights"
    for said in ("4 runs, 2 at once", "start from       base weights", "evaluation", "per run"):
        assert said in dry.err
    assert (await hud("sweep")).data["sweeps"] == []
    done = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "-y", "--follow")
    assert (done.code, done.data["status"]) == (0, "succeeded")
    kinds = [document["kind"] for document in done.documents]
    assert kinds[0] == kinds[-1] == "sweep"
    assert set(kinds[1:-1]) == {"sweep_run"}
    table = (await hud("runs", "--group", "sweep")).data
    assert [group["keys"] for group in table["groups"]] == [{"sweep": "arith-rl-sweep"}]
    assert len({row["model"] for row in table["runs"]}) == 4
    again = await hud("run", "arith", "-m", "arith-rl", *FLAGS, "--dry-run")
    assert again.data["name"] == "arith-rl-sweep-2"
    assert "estimated from arith on" in again.err


@pytest.mark.parametrize("writes", [0, 2, 5])
async def test_a_full_state_directory_is_told_with_what_was_made(
    hud: Command, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    base = (await hud("models")).data["models"][0]["model_name"]
    await hud("fork", base, "--name", "mine", "-y")
    left, write = [writes], sweep_files.change_atomic

    def full(file: Path, change: Callable[[], str]) -> None:
        if file.parent.name == "sweeps":
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
        write(file, change)

    monkeypatch.setattr(sweep_files, "change_atomic", full)
    flags = ("--lr", "0.1,0.2", "--steps", "1", "--group-size", "2", "-y", "--follow")
    done = await hud("run", "arith", "-m", "mine", *flags)
    assert (done.code, done.error["type"]) == (1, "not_stored")
    assert "No space left on device. mine-sweep: " in done.error["message"]
    assert " of 2 forks were made, " in done.error["message"]
    assert "bug" not in done.err
    monkeypatch.setattr(sweep_files, "change_atomic", write)
    if not writes:
        assert done.error["hint"] == "make room, then submit it again"
    else:
        assert "hud-tui --local sweep mine-sweep --resume" in done.error["hint"]
        resumed = await hud("sweep", "mine-sweep", "--resume", "-y", "--follow")
        assert resumed.code == 0, resumed.err
        names = [model["model_name"] for model in (await hud("models")).data["models"]]
        assert sorted(name for name in names if name.startswith("mine-sweep")) == [
            "mine-sweep-lr0.1",
            "mine-sweep-lr0.2",
        ], "each fork is made once"


async def test_one_run_is_said_without_being_sent_too(hud: Command) -> None:
    dry = await hud("run", "arith", "-m", "arith-rl", "--steps", "2", "--dry-run")
    assert (dry.code, dry.kind, dry.data["sent"]) == (0, "run", False)
    assert dry.data["rollouts"] == dry.data["size"]["rollouts"] == 2 * 8 * 4
    assert dry.data["start"] == "base weights"
    size = dry.data["size"]
    assert size["max_tokens"] == 20
    assert "tokens" not in size
    assert (size["trained_tokens"], size["seconds"]) == (64 * 20, None)
    assert size["sampled_tokens"] == (64 + size["heldout"] + size["evaluation"]) * 20
    for said in (
        "starts from      base weights",
        "evaluation  ",
        "baseline         no",
        "group size 8",
        "rollouts         64 training",
        "sampled, 1 280 trained; plus prompts",
        "time             unknown: nothing",
    ):
        assert said in dry.err
    ended = await hud("run", "arith", "-m", "arith-rl", "--steps", "2", "-y", "--follow")
    assert ended.code == 0
    again = await hud("run", "arith", "-m", "arith-rl", "--steps", "2", "--dry-run")
    assert again.data["size"]["seconds"] > 0
    assert "estimated from arith on" in again.err
    assert len((await hud("jobs")).data["jobs"]) == 1


async def test_as_text_a_dry_run_is_the_plan_and_a_state_is_said_once(
    hud: Command, text: Text
) -> None:
    one = ("run", "arith", "-m", "arith-rl", "--steps", "2")
    for argv, said in ((one, "rollouts         64 training"), ((*one[:4], *FLAGS), "4 runs, 2 ")):
        code, out, err = await text(*argv, "--dry-run")
        assert code == 0
        for part in (said, "starts from" if argv == one else "start from", "nothing was submitted"):
            assert part in out
        assert said not in err
    assert (await hud("jobs")).data["jobs"] == []
    code, out, _ = await text(*one[:4], *FLAGS[:-2], "-y", "--follow")
    lines = out.splitlines()
    assert code == 0
    assert sum(line.split()[0] == "forking" for line in lines) == 2
    assert sum(line.split()[0] == "succeeded" for line in lines) == 2
    assert len(lines) == len(set(lines))


async def test_a_sweep_that_makes_no_sense_is_refused_before_anything_is_sent(hud: Command) -> None:
    for flags, said in (
        ("--lr 0.1,0.1", "a value comes twice"),
        ("--lr 0.1,2", "--learning-rate: 2 is above the most, 1"),
        ("--lr 0.1,x", "expected a finite number"),
        ("--lr 0.1,0.2 --at-once 0", "--at-once: 0 is below the least, 1"),
        ("--lr 0.1,0.2 --fail-on warn --follow", "is for one run"),
        ("--reasoning-effort low,huge", "choose from low, medium, high"),
    ):
        found = await hud("run", "arith", "-m", "arith-rl", *flags.split(), "-y")
        assert (found.code, said in found.error["message"]) == (2, True)
    assert len((await hud("models")).data["models"]) == 2


async def test_one_that_has_ended_is_neither_cancelled_nor_resumed_nor_with_other_tasks(
    hud: Command, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    row = '{"env": "arith", "id": "add", "args": {"a": %d, "b": 2}, "slug": "add-%d"}\n'
    file.write_text("".join(row % (n, n) for n in range(12)))
    flags = ("--steps", "1", "--tasks-per-step", "2", "--group-size", "2", "--seed", "0,1")
    begun = await hud("run", str(file), "-m", "arith-rl", *flags, "-y")
    for member in begun.data["members"]:
        assert (await hud("watch", member["name"], "--until", "done")).code == 0
    assert [sweep["status"] for sweep in (await hud("sweep")).data["sweeps"]] == ["succeeded"]
    for flag in ("--cancel", "--resume"):
        again = await hud("sweep", "arith-rl-sweep", flag, "-y")
        assert again.code == 0
        assert (again.data["status"], again.data["cancelled"]) == ("succeeded", False)
    assert "nothing to resume" in again.err
    file.write_text("".join(row % (n, n) for n in range(11)))
    changed = await hud("sweep", "arith-rl-sweep", "--resume", "-y")
    assert (changed.code, changed.error["outcome"]) == (2, "not_done")
    assert "has other tasks" in changed.error["message"]
    assert (await hud("sweep", "arith-rl-sweep")).data["status"] == "succeeded"
