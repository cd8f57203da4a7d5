"""Alarms headless: in the status, while a run is followed, and what is waited for."""

from contextlib import aclosing
from typing import Any

import pytest

from hud_tui.cli import watch as sentries
from hud_tui.cli.watch import AlarmPrinter
from hud_tui.client.replay import ReplayClient, ReplayTransport
from hud_tui.errors import HudAlarm
from hud_tui.events import CheckpointAdded, HeadMoved, TreeRead, WorkChanged
from hud_tui.rl.alarms.demos import PATHOLOGIES
from hud_tui.rl.alarms.detector import DETECTORS
from hud_tui.rl.alarms.monitor import usual_thresholds
from hud_tui.rl.recording import Moment, Recording
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, WorkState
from tests.service.clients import documents
from tests.service.headless import Command, Configure

EASY = "[alarms.zero_variance]\ninfo = 1e-9\nwarn = 2e-9\ncritical = 3e-9\nwarmup = 0\nhold = 1\n"
"""Limits that the toy engine's groups are beyond from the first step on."""
RUN = ("run", "arith", "-y", "--group-size", "2", "--steps")
EVALUATED = list(DETECTORS)
"""The detectors that evaluate rows, in the order of their tables."""


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in found]


async def test_the_status_has_alarms_and_says_which_detectors_were_skipped(
    hud: Command, configure: Configure
) -> None:
    status = (await hud("status")).data
    assert status["alarms"] == []
    assert names(status["not_evaluated"]) == EVALUATED
    assert {"name": "entropy_collapse", "needs": "entropy"} in status["not_evaluated"]
    configure(EASY)
    assert (await hud(*RUN, "2", "--follow")).code == 0
    status = (await hud("status")).data
    assert names(status["not_evaluated"]) != EVALUATED
    [alarm] = [alarm for alarm in status["alarms"] if alarm["name"] == "zero_variance"]
    assert (alarm["active"], alarm["onset"]) == (True, 1)
    assert alarm["level"] in ("warn", "critical")
    assert alarm["before_id"] is None
    assert alarm["evidence"][0]["limit"] == 2e-9
    assert alarm["meaning"]
    assert alarm["advice"]


async def test_a_config_that_cannot_be_used_is_named(hud: Command, configure: Configure) -> None:
    configure("[alarms.truncation]\nwarn = 'low'\n")
    for argv in (("status",), (*RUN, "1", "--follow"), ("watch", "arith-rl")):
        result = await hud(*argv)
        assert (result.code, result.error["type"]) == (2, "usage")
        assert "config.toml: alarms.truncation.warn: expected a number" in result.error["message"]
        assert result.error["hint"]


async def test_a_followed_run_prints_its_alarms_and_fails_on_them(
    hud: Command, configure: Configure
) -> None:
    configure(EASY)
    followed = await hud(*RUN, "2", "--follow")
    assert followed.code == 0
    assert "zero_variance" in names([d["data"] for d in followed.documents if d["kind"] == "alarm"])
    configure("")
    assert (await hud(*RUN, "1", "--follow", "--fail-on", "critical")).code == 0
    await hud("fork", "arith-rl", "--name", "fresh", "-y")
    configure(EASY.replace("warmup = 0", "warmup = 3"))
    failed = await hud(*RUN, "50", "-m", "fresh", "--follow", "--fail-on", "warn")
    assert (failed.code, failed.error["type"]) == (6, "alarm")
    assert ": zero-variance groups since step " in failed.error["message"]
    assert failed.documents[-2]["kind"] == "alarm"
    job = (await hud("jobs")).data["jobs"][0]["id"]
    assert (await hud("jobs", job)).data["status"]["status"] in ("running", "succeeded")


async def test_a_followed_run_prints_no_status_of_the_run_before(hud: Command) -> None:
    await hud(*RUN, "1", "--follow")
    followed = await hud(*RUN, "1", "--follow")
    told = [d["data"] for d in followed.documents if d["kind"] == "event"]
    work = [one["work"] for one in told if one["type"] == "work"]
    runs = {one["id"] for one in work if one["kind"] == "training"}
    assert runs == {followed.data["job_id"]}


async def test_watching_ends_with_the_run(hud: Command) -> None:
    job = (await hud(*RUN, "3")).data["job_id"]
    result = await hud("watch", job)
    assert (result.code, result.kind) == (0, "watch")
    data = result.data
    assert (data["until"], data["reason"], data["reached"]) == ("done", "done", True)
    assert (data["step"], data["job"]["status"]) == (3, "succeeded")
    assert {document["kind"] for document in result.documents} <= {"event", "alarm", "watch"}
    assert (await hud("watch", "arith-rl")).data["step"] == 3


async def test_watching_ends_with_a_step_or_tells_that_it_never_came(hud: Command) -> None:
    await hud(*RUN, "500")
    result = await hud("watch", "arith-rl", "--until", "step=2")
    assert (result.code, result.data["reason"]) == (0, "step")
    assert result.data["step"] >= 2
    await hud("jobs", result.data["job"]["id"], "--cancel", "-y")
    result = await hud("watch", "arith-rl", "--until", "step=999")
    assert (result.code, result.data["reason"], result.data["reached"]) == (1, "done", False)
    cancelled = await hud("watch", "arith-rl")
    assert (cancelled.code, cancelled.data["reached"]) == (1, False)


async def test_watching_ends_with_an_alarm(hud: Command, configure: Configure) -> None:
    configure(EASY.replace("warmup = 0", "warmup = 2"))
    await hud(*RUN, "500")
    result = await hud("watch", "arith-rl", "--until", "alarm")
    assert (result.code, result.data["reason"]) == (0, "alarm")
    assert "zero_variance" in names(result.data["alarms"])
    failed = await hud("watch", "arith-rl", "--fail-on", "warn")
    assert (failed.code, failed.error["type"]) == (6, "alarm")


async def test_what_cannot_be_waited_for_is_said(hud: Command) -> None:
    for argv, said in (
        (("watch", "arith-rl", "--until", "step=x"), "--until step=x: expected done, step=N or"),
        (("watch", "arith-rl", "--until", "never\x1b"), "--until never␛: expected"),
        (("watch", "arith-rl"), "arith-rl has no run"),
        ((*RUN, "1", "--fail-on", "warn"), "--fail-on warn needs --follow"),
    ):
        result = await hud(*argv)
        assert result.code == 2
        assert said in result.error["message"]


def node(step: int, metrics: dict[str, float]) -> Checkpoint:
    parent = f"c{step - 1}" if step > 1 else None
    return Checkpoint(id=f"c{step}", prev_model_checkpoint_id=parent, metrics=metrics, step=step)


def test_each_alarm_is_printed_once_and_again_when_it_gets_worse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pathology, printer = PATHOLOGIES["zero-variance"], AlarmPrinter(usual_thresholds(), None)
    printer.begin(TreeRead(checkpoints=()), news=False)
    for step in range(1, 301):
        printer.process(CheckpointAdded(checkpoint=node(step, pathology.metrics(step))))
        printer.process(HeadMoved(checkpoint_id=f"c{step}", cause="step"))
    told = [document["data"] for document in documents(capsys.readouterr().out)]
    assert [one["level"] for one in told] == ["info", "warn", "critical"]
    assert len({one["id"] for one in told}) == 1


async def test_the_same_events_leave_the_same_tree_headless_in_the_app_and_replayed() -> None:
    """A step's event that a reading of the tree overtook moves no head, wherever it is heard."""
    nodes = [node(step, {}) for step in (1, 2, 3)]
    read = TreeRead(checkpoints=(*nodes[:2], nodes[2].model_copy(update={"is_active": True})))
    stale, moved = (HeadMoved(checkpoint_id="c2", cause=cause) for cause in ("step", "set"))
    printer, run = AlarmPrinter(usual_thresholds(), None), Run()
    printer.begin(read, news=True)
    run = run.fold(read)
    moments = [Moment(0.0, "m", read)]
    again = CheckpointAdded(checkpoint=nodes[2])
    for event, head in ((stale, "c3"), (moved, "c2"), (again, "c2")):
        printer.process(event)
        run = run.fold(event)
        moments.append(Moment(0.0, "m", event))
        async with aclosing(
            ReplayClient(ReplayTransport(Recording((), tuple(moments)), 1.0))
        ) as client:
            rows = await client.checkpoints("m")
        assert [row.id for row in rows if row.is_active] == [head]
        for tree in (printer.run.tree, run.tree):
            assert tree.served.id == head


def test_a_stall_is_printed_though_no_event_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(sentries, "monotonic", lambda: now)
    printer = AlarmPrinter(usual_thresholds(), "critical")
    printer.begin(TreeRead(checkpoints=()), news=True)
    printer.process(WorkChanged(work=WorkState(status="running", step=0, steps=9)))
    now += 60
    printer.wait()
    assert capsys.readouterr().out == ""
    now += 900
    with pytest.raises(HudAlarm, match="stalled"):
        printer.wait()
    [told] = documents(capsys.readouterr().out)
    assert (told["kind"], told["data"]["name"]) == ("alarm", "stall")


@pytest.mark.parametrize(("before", "fails"), [(60, True), (64, False)])
def test_only_an_alarm_that_began_in_the_run_that_is_followed_fails(
    capsys: pytest.CaptureFixture[str], before: int, fails: bool
) -> None:
    """The reward falls at step 61; the run that is followed begins after step `before`."""
    nodes = [
        node(step, {"reward_mean": 0.9 if step <= 60 else 0.4, "grad_norm": 1.0}).model_copy(
            update={"job_id": "a" if step <= before else "b", "is_active": step == before}
        )
        for step in range(1, 121)
    ]
    printer = AlarmPrinter(usual_thresholds(), "warn")
    printer.begin(TreeRead(checkpoints=tuple(nodes[:before])), news=False)
    printer.follow("b")
    failed = False
    for one in nodes[before:]:
        try:
            printer.process(CheckpointAdded(checkpoint=one))
            printer.process(HeadMoved(checkpoint_id=one.id, cause="step"))
        except HudAlarm:
            failed = True
    assert failed == fails
    assert "reward_collapse" in names([one["data"] for one in documents(capsys.readouterr().out)])


async def test_a_run_on_another_taskset_is_not_compared_with_the_one_before(hud: Command) -> None:
    for taskset in ("arith", "text", "text"):
        assert (await hud("run", taskset, *RUN[2:], "1", "-m", "arith-rl", "--follow")).code == 0
    rows = (await hud("checkpoints", "arith-rl")).data["checkpoints"]
    one, other, again = (row["tasks_digest"] for row in rows)
    assert one
    assert one != other == again
