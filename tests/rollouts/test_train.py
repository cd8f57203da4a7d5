"""``train``, ``eval`` and ``jobs`` on an environment of one's own, with a real driver."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from shlex import split
from typing import Any

import httpx
import pytest

from hud_tui.audit_log import CommandLog, as_hud_tui
from hud_tui.cli.train import _Command
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import check_update
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.own_numbers import conditions, pooled
from hud_tui.rollouts.control import exited, known_runs, require_absent_run, works_of
from hud_tui.rollouts.environment import setting_of
from hud_tui.rollouts.run_files import DriverFolder, evaluation_folder
from hud_tui.service.routes import training
from hud_tui.service.store import jobs
from hud_tui.sinks.orders import SinkFolder
from hud_tui.storage import tail
from hud_tui.wire import BASE, Evaluation, Model
from tests.conftest import PATIENCE_S, Served, pointed_at, until
from tests.rollouts.driving import SUMS, begun, check_tree, order_for, settings_of, write_sums
from tests.service.calls import Json
from tests.service.clients import answered, over_socket
from tests.service.headless import Command, Text
from tests.service.test_wandb import Memory, sink, started

__all__ = ["started"]

FLAGS = ("--group-size", "4", "--tasks-per-step", "3", "--lr", "0.3", "--max-tokens", "20")


async def test_check_says_what_is_in_it_and_how_some_rollouts_went(
    hud: Command, source: Path
) -> None:
    done = await hud("train", str(source), "-m", "arith-rl", "--check", *FLAGS)
    assert (done.code, done.kind, done.data["tasks"]) == (0, "train", 12)
    assert done.data["environments"][0]["templates"][0]["id"] == "add"
    assert done.data["interpreter"]["found"].startswith(".venv of")
    run = done.data["rollout"]["run"]
    assert (run["turns"], run["tokens"] > 0, "samples" in run) == (1, True, False)
    [warned] = [one for one in done.data["findings"] if "called a tool" in one["message"]]
    assert warned["check"] == "rollout"
    assert warned["level"] == done.data["verdict"] == "warning"
    assert warned["message"] == "the environment has tools, and 0 of 16 rollouts called a tool"
    assert warned["fix"].startswith("its prompt must name the tools")
    assert warned["message"] in done.err
    signal = done.data["signal"]
    assert (signal["sampled"], signal["rollouts"], signal["calls"]["made"]) == (4, 16, 0)
    assert len(signal["tasks"][0]["rewards"]) == 4
    assert done.data["estimate"].startswith("a step 12 rollouts, ")


async def test_a_check_without_signal_fails_unless_the_user_goes_on_anyway(
    hud: Command, text: Text, source: Path
) -> None:
    write_sums(source.parent, [{"args": {"a": 1, "b": n, "fault": "dull"}} for n in range(3)])
    words = ["train", str(source), "-m", "arith-rl", "--check", *FLAGS]
    done = await hud(*words, "--check-rollouts", "2")
    [found] = [one for one in done.data["findings"] if one["check"] == "signal"]
    assert (done.code, found["level"], done.data["signal"]["rollouts"]) == (5, "failure", 6)
    said = "no group would have a gradient: 0 of 6 rollouts called a tool"
    assert found["message"] == said
    assert f"play {source}; --anyway" in found["fix"]
    named = await hud(*words, "--check-rollouts", "1", "--python", str(source.parent / ".venv"))
    [found] = [one for one in named.data["findings"] if one["check"] == "signal"]
    assert f"play {source} --python {source.parent}/.venv/bin/python; " in found["fix"]
    code, out, _ = await text(*words, "--anyway")
    lines = out.splitlines()
    assert (code, lines[-1]) == (0, "verdict      warning")
    assert lines[-2].startswith("estimate     a step 12 rollouts, ")
    refused = await hud(*words, "--check-rollouts", "0")
    assert (refused.code, refused.err) == (2, "hud-tui: --check-rollouts 0 (from 1 to 256)\n")


def test_hud_s_runtime_needs_hud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUD_RUNTIME_URL", raising=False)
    model = Model(id="1", name="a", model_name="arith-rl", is_trainable=True)
    order = order_for(model, write_sums(tmp_path / "env"), tmp_path, runtime="hud")
    with pytest.raises(HudUsage, match="needs a key of HUD's"):
        setting_of(order, settings_of("http://127.0.0.1:1", "hudtui-local"), tmp_path / "log")
    monkeypatch.setenv("HUD_RUNTIME_URL", "http://127.0.0.1:2")  # a server of their own
    setting = setting_of(order, settings_of("http://127.0.0.1:1", "local"), tmp_path / "log")
    assert setting.variables["HUD_RUNTIME_URL"] == "http://127.0.0.1:2"


async def test_what_fails_a_check_ends_it_before_anything_is_spent(
    hud: Command, tmp_path: Path, source: Path
) -> None:
    async def failed(*flags: str) -> dict[str, Any]:
        done = await hud("train", str(source), "-m", "arith-rl", "-y", *FLAGS, *flags)
        assert (done.code, done.data["rollout"]) == (5, None)
        [found] = [finding for finding in done.data["findings"] if finding["level"] == "failure"]
        return dict(found)

    ppo = ("--loss-fn", "ppo", "--loss-fn-config")
    for flags, said, fix in (
        (("--loss-fn", "magic"), "there is no loss magic", "choose from importance_sampling, ppo"),
        (
            (*ppo, "clip=1"),
            "ppo has no config key 'clip'",
            "its keys, with their defaults: clip_low_threshold (0.8), clip_high_threshold (1.2)",
        ),
        (
            (*ppo, "clip_low_threshold=7"),
            "clip_low_threshold must not exceed clip_high_threshold: 7 is above 1.2",
            "its keys, with their defaults: ",
        ),
        (
            ("--loss-fn", "dro", "--loss-fn-config", "beta=-3"),
            "beta must be a finite number from 0, not -3",
            "its keys, with their defaults: beta (0.05)",
        ),
    ):
        found = await failed(*flags)
        assert (found["message"], found["fix"][: len(fix)]) == (said, fix)
    assert (await failed("--leave-out", "no-such-task"))["where"] == "no-such-task"
    write_sums(source.parent, [{"args": {"a": "three", "b": 1}}])
    assert "invalid args" in (await failed())["message"]
    assert known_runs(tmp_path / "state") == {}


async def test_a_service_that_lists_no_losses_decides_itself() -> None:
    for status, body in ((404, None), (200, ["ppo"]), (200, {"losses": []})):
        answer = httpx.Response(status, json=body)
        async with answered(lambda request, answer=answer: answer) as client:
            assert await check_update(client, "1", {"loss_fn": "its own"}) == []


async def test_a_run_that_the_service_refuses_says_why(
    hud: Command, text: Text, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CONFIG_DEFAULTS", None)  # it does not list the losses' keys
    wrong = ("--loss-fn", "ppo", "--loss-fn-config", "clip_low_threshold=2")
    words = ["train", str(source), "-m", "arith-rl", "-y", "--no-trial", *FLAGS, *wrong]
    why = "HTTP 422: body.parameters.loss_fn_config: clip_low_threshold must not exceed"
    for flags in ([], ["--follow"]):
        code, said, _ = await text(*words, *flags)
        assert code == 1
        assert re.search(r"^job \S+  failed  step 0 of", said)
        assert f"why  {why}" in said


async def test_a_driver_that_does_not_begin_is_told_with_all_that_it_printed(
    hud: Command, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'hud_tui.rollouts.driver' in sys.orig_argv:\n"
        "    print('printed by a library', flush=True)\n"
        "    print('it ended', file=sys.stderr, flush=True)\n"
        "    os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    hours = count()

    def clock() -> float:
        """Runs out once the driver has ended."""
        folders = known_runs(tmp_path / "state").values()
        has_ended = any("it ended" in tail(folder.driver_log) for folder in folders)
        return 3600.0 * next(hours) if has_ended else 0.0

    monkeypatch.setattr("hud_tui.patience.monotonic", clock)
    done = await hud("train", str(source), "-m", "arith-rl", "-y", "--no-trial", *FLAGS)
    assert done.code == 1
    why = "the run's driver did not begin: printed by a library · it ended"
    assert done.error["message"] == why


async def test_a_run_on_an_environment_is_logged_to_weights_and_biases(
    hud: Command, source: Path, served: Served, started: list[list[str]], tmp_path: Path
) -> None:
    flags = ("-y", "--no-trial", *FLAGS, "--steps", "2", "--follow", "--wandb", "p")
    job = (await hud("train", str(source), "-m", "arith-rl", *flags)).data["job_id"]
    assert [module[2] for module in started] == [job]
    folder = SinkFolder(tmp_path / "state", job)
    order = folder.order()
    assert order is not None
    to = Memory(folder)
    async with over_socket(served) as client:
        assert await sink(client, tmp_path / "state", folder, order, to).run()
    assert [row.values["step"] for row in to.rows if row.histograms] == [1, 2]
    assert to.rows[-1].values["status"] == "succeeded"
    assert to.described["config"]["parameters"]["group_size"] == 4


async def test_a_check_that_may_not_write_makes_no_rollout(hud: Command, source: Path) -> None:
    done = await hud("--read-only", "train", str(source), "-m", "arith-rl", "--check", *FLAGS)
    assert (done.code, done.kind, done.data["rollout"]) == (0, "train", None)
    [found] = [finding for finding in done.data["findings"] if finding["check"] == "rollout"]
    assert found["message"] == "no rollout was tried: started with --read-only"
    assert (found["level"], found["fix"]) == ("warning", "start without it to change something")


async def test_a_check_whose_rollout_failed_shows_no_reward(
    hud: Command, text: Text, source: Path
) -> None:
    write_sums(source.parent, [{"args": {"a": 1, "b": 1, "fault": "error"}}])
    words = ["train", str(source), "-m", "arith-rl", "--check", *FLAGS]
    code, out, _ = await text(*words)
    assert code == 5
    [line] = [one for one in out.splitlines() if one.startswith("rollout ")]
    failed = "failed in grade: sums.py:12 in add: KeyError: 'shelf'"
    assert line == f'rollout      add(a=1, b=1, fault="error"): {failed}'


async def _has_driven_runs(self: _Command) -> bool:
    return True


@pytest.mark.parametrize("is_told_of", [False, True], ids=["by its files", "by the service"])
async def test_it_trains_follows_to_the_end_and_says_what_it_came_to(
    hud: Command,
    served: Served,
    source: Path,
    text: Text,
    monkeypatch: pytest.MonkeyPatch,
    is_told_of: bool,
) -> None:
    if is_told_of:
        monkeypatch.setattr(_Command, "_has_driven_runs", _has_driven_runs)
    held = [{**row, "columns": {"split": "heldout"}} for row in SUMS[:2]]
    write_sums(source.parent, [*held, *SUMS[2:]])
    flags = ("--follow", "--no-trial", "--steps", "2", "--eval-every", "1", *FLAGS)
    done = await hud("train", str(source), "-m", "arith-rl", "-y", *flags)
    assert (done.code, done.kind) == (0, "job"), done.err
    assert (done.data["status"]["status"], done.data["status"]["step"]) == ("succeeded", 2)
    if not is_told_of:
        assert re.search(r"step 2 of 2: reward \S+ \(12 rollouts\)", done.err)
    assert (done.data["failed_rollouts"], done.data["failures"]) == (0, [])
    assert ("event" in {document["kind"] for document in done.documents}) == is_told_of
    result = done.data["result"]
    assert (result["checkpoint"], result["rollouts"]) == ("step-000002", 12)
    assert (result["heldout_tasks"], result["heldout_rollouts"]) == (2, 2)
    async with over_socket(served) as client:
        model_id = (await client.model("arith-rl")).id
        await check_tree(client, model_id, 2)
        tree = Tree.of(await client.checkpoints(model_id))
    evaluation = tree.evaluation(len(tree) - 1)
    assert evaluation is not None, "as Runs and `eval` show it"
    assert evaluation.mean is not None
    assert (result["low"], result["high"]) == (evaluation.mean.low, evaluation.mean.high)
    if is_told_of:
        return
    code, out, _ = await text("train", str(source), "-m", "arith-rl", "-y", *flags)
    last = out.splitlines()[-1]
    assert code == 0
    assert re.fullmatch(
        r"result  step-000004: reward \d?\.?\d+ \(12 rollouts\),"
        r" held-out \d?\.?\d+ \[\d?\.?\d+, \d?\.?\d+\] \(2 tasks × 1\)",
        last,
    ), last


async def test_a_line_of_the_command_log_orders_the_same_again(
    hud: Command, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "sk-4711")
    flags = (*FLAGS, "--steps", "1", "--turns", "4", "--failed", "stop:3", "--env", "SHOP_TOKEN")
    flags += ("--rollout-timeout", "60", "--at-once", "2", "--eval-every", "5", "--no-trial")
    flags += ("--leave-out", "add-bfb36f31")
    flags += ("--loss-fn", "ppo", "--loss-fn-config", "clip_high_threshold=1.3")
    done = await hud("train", str(source), "-m", "arith-rl", "-y", "--follow", *flags)
    assert done.code == 0, done.err
    [logged] = [one for one in CommandLog(tmp_path / "state").read()[0] if one.verb == "train"]
    words = split(as_hud_tui(logged))
    again = await hud(*words[words.index("train") :], "--no-trial", "--follow")
    assert again.code == 0, again.err
    first, second = (run.order() for run in known_runs(tmp_path / "state").values())
    apart = {"job_id", "start"}
    assert first.model_dump(exclude=apart) == second.model_dump(exclude=apart)
    assert BASE in (first.start, second.start), "each from the head of its time"


async def test_a_driver_has_the_variables_of_the_env_file_that_it_was_started_beside(
    hud: Command, served: Served, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = pointed_at(served.url, served.api_key)
    for name in named:
        monkeypatch.delenv(name)
    (tmp_path / ".env").write_text("".join(f"{name}={named[name]}\n" for name in named))
    monkeypatch.chdir(tmp_path)
    done = await hud(
        "train", str(source), "-m", "arith-rl", "-y", "--no-trial", "--steps", "1", *FLAGS
    )
    assert done.code == 0, done.err
    [folder] = known_runs(tmp_path / "state").values()
    await until(lambda: folder.state().status == "succeeded")


async def test_one_that_cannot_be_resumed_says_why_and_stays_as_it_is(
    hud: Command, text: Text, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "sk-4711")
    flags = ("-y", "--no-trial", "--steps", "400", *FLAGS, "--lr", "1e-6", "--env", "SHOP_TOKEN")
    begun = await hud("train", str(source), "-m", "arith-rl", *flags)
    job_id = begun.data["job_id"]
    folder = known_runs(tmp_path / "state")[job_id]
    await hud("jobs", job_id, "--cancel", "-y")
    resume, before = ("jobs", job_id, "--resume", "-y"), folder.state()
    monkeypatch.delenv("SHOP_TOKEN")
    done = await hud(*resume)
    assert (done.code, done.error["message"]) == (2, "--env SHOP_TOKEN: not set here")
    monkeypatch.setenv("SHOP_TOKEN", "sk-4711")
    with folder.starting():  # as another program that resumes it
        done = await hud(*resume)
    assert (done.code, "is running: nothing to resume" in done.error["message"]) == (1, True)
    assert folder.state() == before
    order = folder.order()
    folder.save_order(order.model_copy(update={"source": "/no/such/env.py"}))
    done = await hud(*resume)
    assert (done.code, done.error["message"]) == (2, "/no/such/env.py: no such file or directory")
    assert folder.state() == before
    folder.save_order(order.model_copy(update={"service": "https://api.hud.ai"}))
    done = await hud(*resume)
    assert (done.code, done.error["hint"]) == (2, "connect to that service")
    assert folder.state() == before
    wrong = {"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": 2}}
    folder.save_order(order.model_copy(update={"parameters": {**order.parameters, **wrong}}))
    code, said, _ = await text(*resume)
    assert code == 1
    assert said.startswith(f"could not resume job {job_id}: failed, at step {before.step} of 400: ")
    assert "clip_low_threshold must not exceed" in said


async def test_a_driver_that_is_killed_is_told_with_how_to_go_on(
    hud: Command, text: Text, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, to the service too: it need not wait until its reports are overdue."""
    monkeypatch.setattr(jobs, "LEASE_S", inf)
    monkeypatch.setattr(_Command, "_has_driven_runs", _has_driven_runs)
    flags = ("-y", "--no-trial", "--steps", "400", *FLAGS, "--lr", "1e-6", "--follow")
    following = asyncio.create_task(text("train", str(source), "-m", "arith-rl", *flags))

    def stepped() -> bool:
        return any(folder.state().step for folder in known_runs(tmp_path / "state").values())

    await until(stepped)
    [(job_id, folder)] = known_runs(tmp_path / "state").items()
    pid = folder.driver_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    code, said, _ = await following
    assert code == 1
    assert re.search(rf"^job {job_id}  interrupted  step \d+ of 400$", said, re.MULTILINE)
    why = "its driver ended; finished rollouts are kept; resume: hud-tui"
    assert f"why  {why}" in said
    status = (await hud("jobs", job_id)).data["status"]
    assert status["status"] == "interrupted"
    assert why in status["error"]["message"]
    assert f"jobs {job_id} --resume" in status["error"]["message"]
    listed = [run for run in (await hud("runs")).data["runs"] if run["id"] == job_id]
    assert [one["status"] for one in listed] == ["interrupted"]
    traces = (await hud("traces", job_id)).data["traces"]
    assert "running" not in {trace["status"] for trace in traces}


async def test_what_cannot_be_is_refused_by_name(hud: Command, source: Path) -> None:
    for flags, said in (
        (("nowhere.py",), "no such file"),
        (("{}", "--runtime", "moon"), "no such runtime"),
        (("{}", "--runtime", "docker:"), "--runtime: docker: has no image: write docker:IMAGE"),
        (("{}", "--turns", "0"), "--turns: 0 is below the least, 1"),
        (("{}", "--env", "A-B"), "--env: A-B is no name of a variable"),
        (("{}", "--failed", "ignore"), "choose from drop"),
        (("{}", "--env", "NO_SUCH_VARIABLE"), "not set here"),
        (("{}", "--python", "/no/such/python"), "no such interpreter"),
        (("{}", "--lr", "0"), "learning-rate"),
        (("{}", "--lr", "1e-4,3e-4"), "sweeps are of hud-tui run"),
        (("{}", "--beta1", ".9,.95"), "sweeps are of hud-tui run"),
        (("{}", "--loss-fn", "ppo,cispo"), "sweeps are of hud-tui run"),
        (("{}", "--reward-scale", "0"), "--reward-scale: 0 leaves no gradient"),
        (("{}", "--fail-on", "critical"), "needs a run that is followed"),
    ):
        words = [word.format(source) for word in flags]
        done = await hud("train", *words, "-m", "arith-rl", "-y")
        assert done.code == 2
        assert said in done.error["message"] + done.error["hint"]


async def test_a_hint_is_a_command_for_the_same_service(served: Served, tmp_path: Path) -> None:
    settings = settings_of(served.url, served.api_key)
    local, elsewhere = HudClient(settings), HudClient(replace(settings, local=False))
    async with aclosing(local), aclosing(elsewhere):
        model = (await local.models())[0]
        folder = begun(tmp_path, order_for(model, tmp_path / "sums.py", tmp_path))
        with folder.driving():
            for client, program in ((local, "hud-tui --local"), (elsewhere, "hud-tui")):
                with pytest.raises(HudUsage) as refused:
                    await require_absent_run(client, tmp_path, model.id)
                assert refused.value.hint == (
                    f"cancel it first: {program} jobs {folder.path.name} --cancel"
                )


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
    assert done.err.index("loading") < done.err.index("tasks from")  # which takes seconds
    *both, compared = [document["data"] for document in done.documents]
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
        rollouts = await works_of(client, None).evaluations.rollouts(
            next(each for each in node.evaluations or () if each.id == wanted[1]),
            node,
            "add-bfb36f31",
            2,
        )
        assert len(rollouts.rewards) == 2


async def test_what_the_model_started_from_is_evaluated_too(hud: Command, source: Path) -> None:
    before = await hud("eval", str(source), *EVAL, "--checkpoint", "base", "--samples", "4")
    assert before.code == 0, before.err
    await trained(hud, source)
    names = ("--checkpoint", "base", "--checkpoint", "head", "--fail-if-worse-than", "base")
    done = await hud("eval", str(source), *EVAL, *names, "--samples", "4")
    assert done.code in (0, 6), done.err
    base, head, compared = [document["data"] for document in done.documents]
    found = base["evaluation"]
    assert (found["checkpoint_id"], found["status"], found["done"]) == (None, "succeeded", 48)
    assert head["gates"][0]["than"] == found["id"] == compared["before"]["id"]
    traces = (await hud("traces", found["id"])).data["traces"]
    assert {trace["model"] for trace in traces} == {"arith-rl"}
    listed = (await hud("eval", *MODEL, "--list")).data["evaluations"]
    kept = [one["id"] for one in listed if one["checkpoint_id"] is None]
    assert kept == [before.data["evaluation"]["id"], found["id"]]


async def evaluating(source: Path, samples: str = "1") -> Process:
    """A command that evaluates the head, and waits for the result."""
    words = (sys.executable, "-m", "hud_tui", "--headless", "eval", str(source), *EVAL)
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    return await asyncio.create_subprocess_exec(*words, "--samples", samples, **pipes)


async def end_of(command: Process) -> tuple[int | None, str, str]:
    """Its exit code, and what it printed."""
    out, err = await asyncio.wait_for(command.communicate(), PATIENCE_S)
    return command.returncode, out.decode(), err.decode()


@dataclass(frozen=True)
class Halfway:
    """An evaluation of 12 rollouts of which 4 wait, and the command that waits for it."""

    works: WorkClient
    client: HudClient
    id: str
    command: Process
    process: DriverFolder
    """Of the process that makes the rollouts."""

    async def graded(self) -> list[str | None]:
        """Tasks of the rollouts that the service has rewards of."""
        traces = await self.client.rollouts.job_traces(self.id)
        return [trace.task_slug for trace in traces if trace.reward is not None]

    async def has_each_once(self) -> bool:
        graded = await self.graded()
        return len(graded) == len(set(graded)) == 12


@pytest.fixture
async def halfway(
    hud: Command, served: Served, tmp_path: Path, source: Path
) -> AsyncIterator[Halfway]:
    rows = [*SUMS[:8], *({"args": {**row["args"], "fault": "wait"}} for row in SUMS[8:])]
    write_sums(source.parent, rows)
    state = tmp_path / "state"
    folder = state / "evaluations"
    command = await evaluating(source)
    try:
        async with over_socket(served) as client:
            works = works_of(client, state)
            await until(lambda: any(folder.glob("*.json")))
            [id_] = [file.stem for file in folder.glob("*.json")]

            async def is_halfway() -> bool:
                return (await works.evaluations.get(id_)).done == 8

            await until(is_halfway)
            yield Halfway(works, client, id_, command, evaluation_folder(state, id_))
    finally:
        with suppress(ProcessLookupError):
            command.kill()
        await command.communicate()


async def test_one_goes_on_when_its_command_is_killed_and_is_followed_again(
    hud: Command, source: Path, halfway: Halfway
) -> None:
    halfway.command.kill()
    await end_of(halfway.command)
    found = await halfway.works.evaluations.get(halfway.id)
    assert (found.status, found.done) == ("running", 8)
    assert halfway.process.is_driven
    listed = (await hud("eval", *MODEL, "--list")).data["evaluations"]
    assert [(one["id"], one["status"]) for one in listed] == [(halfway.id, "running")]
    source.with_name("go").touch()
    done = await hud("eval", "--resume", halfway.id)
    assert (done.code, done.data["evaluation"]["done"]) == (0, 12), done.err
    assert await halfway.has_each_once()


async def test_ctrl_c_cancels_it_and_resumed_it_makes_the_rest(
    hud: Command, source: Path, halfway: Halfway
) -> None:
    halfway.command.send_signal(signal.SIGINT)
    code, out, err = await end_of(halfway.command)
    assert (code, out) == (130, "")
    assert "cancelled after 8 of 12 rollouts, which are kept: hud-tui" in err
    works, id_ = halfway.works, halfway.id
    found = await works.evaluations.get(id_)
    assert (found.status, found.done) == ("cancelled", 8)
    assert not halfway.process.is_driven
    assert sorted(map(str, await halfway.graded())) == sorted(g.task_slug for g in found.groups)
    for words in ((str(source), *MODEL), ("--resume", id_)):
        refused = await hud("--read-only", "eval", *words)
        assert (refused.code != 0, "read-only" in refused.err) == (True, True)
    [kept] = await works.evaluations.of_model(await halfway.client.model(MODEL[1]))
    assert (kept.id, kept.status, halfway.process.is_driven) == (id_, "cancelled", False)
    await works.resume(id_)
    with pytest.raises(HudUsage, match=r"(running|queued)"):
        await works.resume(id_)
    source.with_name("go").touch()
    ended = [now async for now in works.follow(id_)][-1]
    assert (ended.status, ended.done) == ("succeeded", 12)
    assert await halfway.has_each_once()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_one_that_is_cancelled_as_a_job_ends(
    hud: Command, halfway: Halfway, elsewhere: bool
) -> None:
    """Also by a program that does not have its files."""
    if elsewhere:
        assert (await halfway.client.cancel_job(halfway.id)).cancelled == 1
    else:
        cancelled = await hud("jobs", halfway.id, "--cancel", "-y")
        assert cancelled.code == 0, cancelled.err
    assert (await end_of(halfway.command))[0] == 1
    assert (await halfway.works.evaluations.get(halfway.id)).status == "cancelled"
    await exited(halfway.process)
    assert not halfway.process.is_driven


@pytest.mark.parametrize("as_job", [False, True])
async def test_killed_it_is_interrupted_and_makes_nothing_again_that_was_graded(
    hud: Command, source: Path, halfway: Halfway, as_job: bool
) -> None:
    pid = halfway.process.driver_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    code, out, _ = await end_of(halfway.command)
    assert code == 1
    assert "interrupted after 8 of 12 rollouts" in out
    assert f"eval --resume {halfway.id}" in out
    source.with_name("go").touch()
    if as_job:
        told = (await hud("jobs", halfway.id)).data["status"]
        assert (told["status"], told["done"]) == ("interrupted", 8)
        assert told["error"]["message"].endswith(f"jobs {halfway.id} --resume")
        [listed] = (await hud("jobs")).data["jobs"]
        assert listed["status"] == "interrupted", "the service was told"
        assert listed["metadata"]["reason"] == told["error"]["message"]
        again = await hud("jobs", halfway.id, "--resume", "-y")
        assert (again.code, again.data["status"]["status"]) == (0, "queued"), again.err
        await until(lambda: not halfway.process.is_driven)
    done = await hud("eval", "--resume", halfway.id)
    assert (done.code, done.data["evaluation"]["done"]) == (0, 12), done.err
    assert await halfway.has_each_once()


async def test_one_makes_rollouts_at_a_time_and_the_next_waits(
    tmp_path: Path, source: Path, halfway: Halfway
) -> None:
    state, second = tmp_path / "state", await evaluating(source, "2")
    folder = state / "evaluations"
    await until(lambda: len(list(folder.glob("*.json"))) == 2)
    [other] = {file.stem for file in folder.glob("*.json")} - {halfway.id}
    await until(lambda: evaluation_folder(state, other).is_driven)
    assert (await halfway.works.evaluations.get(other)).status == "queued"
    source.with_name("go").touch()
    assert [(await end_of(one))[0] for one in (halfway.command, second)] == [0, 0]


async def test_one_whose_program_was_killed_goes_on_with_what_the_service_has(
    hud: Command, served: Served, tmp_path: Path, source: Path
) -> None:
    id_ = (await evaluated(hud, source))["id"]
    file = tmp_path / "state" / "evaluations" / f"{id_}.json"
    edit(file, status="running", done=3, groups=[], result=None)
    async with over_socket(served) as client:
        made = len(await client.rollouts.job_traces(id_))
        done = await hud("eval", "--resume", id_)
        assert (done.code, done.data["evaluation"]["done"]) == (0, 12), done.err
        assert len(await client.rollouts.job_traces(id_)) == made, "none is made twice"


async def test_what_cannot_be_evaluated_is_refused(hud: Command, source: Path) -> None:
    for flags, said in (
        (("arith", "--turns", "4"), "--turns is for an environment"),
        (("{}", "--runtime", "moon"), "no such runtime"),
        (("{}", "--split", "heldout"), "is in heldout"),
    ):
        refused = await hud("eval", *(word.format(source) for word in flags), *EVAL)
        assert refused.code == 2
        assert said in refused.error["message"] + refused.error["hint"]


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
    said = "on the environment sums; give its file: hud-tui --local eval FILE -m arith-rl"
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
