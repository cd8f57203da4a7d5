"""Wrong inputs: each a typed error and an exit code, and nothing lost."""

import json
from pathlib import Path

import httpx
import pytest

from hud_tui import patience
from hud_tui.client import submit
from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound
from tests.conftest import Served
from tests.service.clients import in_process
from tests.service.headless import Command, forked, meddle, point_at

pytestmark = pytest.mark.usefixtures("hurried")
ROW = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}, "slug": "one"}


@pytest.fixture
async def hud(bare: Command, here: Path) -> Command:
    """A service with a model, and nothing to wait for."""
    await forked(bare, "mine")
    return bare


@pytest.fixture
async def trained(hud: Command) -> None:
    """A run has taken three steps of it."""
    run = ("run", "arith", "--steps", "3", "--tasks-per-step", "2", "--group-size", "2")
    assert (await hud(*run, "-y", "--follow")).code == 0


async def everything(served: Served) -> object:
    """All that a wrong input could spoil."""
    async with in_process(served.service) as client:
        free = {"disk": None}  # how much room the machine has is others' doing too
        models = [model.model_copy(update=free) for model in await client.models()]
        trees = [await client.checkpoints(model.id) for model in models]
        return models, trees, await client.jobs(), await client.tasks.tasksets()


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


def rows(*rows: object) -> str:
    return "\n".join(json.dumps(row) for row in rows)


WRONG = [
    (("checkpoints", "mien"), "", 2, "usage", "no model named mien|did you mean mine"),
    (("status", "nothing"), "", 2, "usage", "no model or job named nothing"),
    (("run", "gone.jsonl", "-y"), "", 2, "usage", "gone.jsonl: No such file"),
    (("run", "no-such-set", "-y"), "", 2, "usage", "no file or taskset named|arith"),
    (("run", "t.jsonl", "-y"), rows(ROW) + "\n{x", 2, "usage", "line 2 column 2"),
    (("preflight", "t.jsonl"), rows(ROW, {"id": "a"}), 2, "usage", "line 2: field env"),
    (("run", "arith", "-m", "nobody", "-y"), "", 2, "usage", "no model named nobody"),
    (("run", "arith", "--steps", "0", "-y"), "", 2, "usage", "--steps: 0 is below the least"),
    (("run", "arith", "--steps", "0"), "", 2, "usage", "--steps: 0 is below the least, 1"),
    (("run", "arith", "--at-once", "65"), "", 2, "usage", "--at-once: 65 is above the most, 64"),
    (("preflight", "arith", "--sample", "0"), "", 2, "usage", "--sample: 0 is below the least, 1"),
    (("run", "arith"), "", 2, "usage", "add -y"),
    (("run", "arith", "--speed", "3", "-y"), "", 2, "usage", "--speed"),
    (("frobnicate",), "", 2, "usage", "frobnicate"),
    (("fork", "mine", "--name", "mine", "-y"), "", 1, "conflict", "mine exists"),
    (("head", "mine", "--set", "step-9", "-y"), "", 2, "usage", "no checkpoint named"),
    (("head", "mine", "--back", "3", "-y"), "", 2, "usage", "only 2 checkpoints before the head"),
    (("head", "mine", "--back", "0", "-y"), "", 2, "usage", "--back: 0 is below the least, 1"),
    (("head", "mine", "--back", "1"), "", 2, "usage", "add -y"),
    (("jobs", "no-such-job"), "", 2, "usage", "no job named no-such-job|mine"),
    (("jobs", "no-such-job", "--resume", "-y"), "", 2, "usage", "no job named"),
    (("jobs", "--cancel", "-y"), "", 2, "usage", "no job given"),
    (("fork", "mine", "--name", "", "-y"), "", 2, "usage", "the name ''|enter a name"),
    (("fork", "mine", "--name", "x" * 101, "-y"), "", 2, "usage", "at most 100"),
    (("fork", "mine", "--name", "a\udcffb", "-y"), "", 2, "usage", "argument 5 is not UTF-8"),
    (("traces", "\udcff"), "", 2, "usage", "argument 3 is not UTF-8"),
    (("preflight", "t.jsonl"), rows({**ROW, "env": "\ud800"}), 2, "usage", "1: field env"),
    (
        ("run", "t.jsonl", "-y"),
        rows({**ROW, "args": {"text": ["\ud800"]}}),
        2,
        "usage",
        "line 1: field args.text[0]: lone surrogate",
    ),
    (("run", "t.jsonl", "-y"), rows({**ROW, "args": {"\ud800": 1}}), 2, "usage", "field args:"),
    (("traces", "no-such-job"), "", 2, "usage", "no job named"),
    (("traces", "mine", "--limit", "0"), "", 2, "usage", "--limit: 0 is below the least, 1"),
    (("traces", "mine", "--limit", "1", "--all"), "", 2, "usage", "not allowed with"),
]
"""A command, what t.jsonl holds, the exit code, the kind of error, what it says."""


@pytest.mark.usefixtures("trained")
async def test_wrong_inputs(hud: Command, served: Served) -> None:
    before = await everything(served)
    for argv, file, code, kind, said in WRONG:
        write("t.jsonl", file)
        result = await hud(*argv)
        assert (result.code, len(result.documents)) == (code, 1), argv
        assert result.error["type"] == kind, argv
        for text in said.split("|"):
            assert text in result.error["message"] + result.error["hint"], argv
        assert result.err.startswith("hud-tui: "), argv
        assert await everything(served) == before, argv


FAILING = [
    ([], "rows"),
    ([{**ROW, "env": "nowhere"}], "environments"),
    ([{**ROW, "id": "divide"}], "scenarios"),
    ([ROW, ROW], "slugs"),
    ([{**ROW, "args": {"a": "x", "b": 1}}], "args"),
    ([{**ROW, "columns": {"split": "heldout"}}], "train"),
]
"""Tasks, and the check that they fail."""


async def test_a_run_that_fails_preflight_is_not_submitted(hud: Command, served: Served) -> None:
    before = await everything(served)
    for tasks, check in FAILING:
        write("t.json", json.dumps(tasks))
        result = await hud("run", "t.json", "-m", "mine", "-y")
        assert (result.code, result.kind, result.data["verdict"]) == (5, "preflight", "failure")
        failed = [f["check"] for f in result.data["findings"] if f["level"] == "failure"]
        assert failed == [check]
        assert "failure: " in result.err
        assert await everything(served) == before


async def test_a_loss_that_the_service_has_not_fails_preflight(
    hud: Command, served: Served
) -> None:
    before = await everything(served)
    ppo = ("--loss-fn", "ppo", "--loss-fn-config")
    for flags, message in (
        (("--loss-fn", "nope"), "there is no loss nope"),
        (("--loss-fn", "ppo,nope"), "there is no loss nope"),
        (("--loss-fn-config", "beta=1"), "importance_sampling has no config key 'beta'"),
        (
            (*ppo, "clip_low_threshold=7"),
            "clip_low_threshold must not exceed clip_high_threshold: 7 is above 1.2",
        ),
    ):
        for last in ("--dry-run", "-y"):
            result = await hud("run", "arith", "-m", "mine", *flags, last)
            assert (result.code, result.kind) == (5, "preflight")
            [failed] = [f for f in result.data["findings"] if f["level"] == "failure"]
            assert failed["message"] == message
    assert await everything(served) == before


async def test_a_fork_needs_a_name_that_reads_as_one(hud: Command, served: Served) -> None:
    before = await everything(served)
    for name in ("2", "007", "0.2", "-", " "):
        refused = await hud("fork", "mine", f"--name={name}", "-y")
        assert (refused.code, refused.error["type"]) == (2, "usage")
        problem = "use at least one letter, e.g. arith-rl" if name.strip() else "enter a name"
        assert refused.error["message"] == f"the name {name!r}: {problem}"
    assert await everything(served) == before


async def test_a_model_must_be_named_where_there_are_several_and_a_base_is_not_trained(
    hud: Command,
) -> None:
    await hud("fork", "mine", "--name", "other", "-y")
    result = await hud("run", "arith", "-y")
    assert (result.code, result.error["type"]) == (2, "usage")
    assert "mine" in result.error["hint"]
    base = (await hud("models")).data["models"][0]["model_name"]
    result = await hud("preflight", "arith", "-m", base)
    [failed] = [f for f in result.data["findings"] if f["level"] == "failure"]
    assert (result.code, failed["check"]) == (5, "model")
    assert "hud-tui fork" in failed["fix"]


async def test_a_service_that_is_down_or_refuses_the_key_or_finds_none(
    hud: Command, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point_at(monkeypatch, "http://127.0.0.1:9", "k")
    down = await hud("status")
    assert (down.code, down.error["type"], down.error["status"]) == (3, "unreachable", None)
    assert down.error["hint"]
    point_at(monkeypatch, served.url, "wrong-key")
    wrong = await hud("models")
    assert (wrong.code, wrong.error["type"], wrong.error["status"]) == (4, "unauthorized", 401)
    assert "wrong-key" not in json.dumps(wrong.documents) + wrong.err
    monkeypatch.delenv("HUD_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    none = await hud()
    assert (none.code, none.error["type"]) == (4, "no_key")
    assert "HUD_API_KEY" in none.error["hint"]
    point_at(monkeypatch, served.url, served.api_key)
    meddle(monkeypatch, lambda request: httpx.Response(200, text="<html>", request=request))
    page = await hud("models")
    assert (page.code, page.error["type"]) == (1, "malformed")


async def test_a_directory_that_cannot_be_used(hud: Command, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for place in ("--state-dir", "--data-dir"):
        places = {"--state-dir": tmp_path / "s", "--data-dir": tmp_path / "d"}
        places[place] = blocked / "x"
        flags = (str(part) for pair in places.items() for part in pair)
        result = await hud("--local", "models", *flags)
        assert (result.code, result.error["type"]) == (2, "usage")
        assert f"{blocked / 'x'}: " in result.error["message"]
        assert "Traceback" not in result.err


async def test_a_bug_is_a_document_too(hud: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: object) -> None:
        raise ZeroDivisionError("a\x1b[2Jb")

    monkeypatch.setattr(HudClient, "models", broken)
    result = await hud("models")
    assert (result.code, result.error["type"]) == (1, "internal")
    assert "ZeroDivisionError: a" in result.error["message"]
    assert "Traceback" in result.err
    assert "\x1b" not in result.err


@pytest.mark.usefixtures("trained")
async def test_a_head_that_is_set_late_is_looked_for_again(
    hud: Command, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request arrives after its sender has given up on an answer, and looked once; the
    service is one that keeps no keys."""
    monkeypatch.setattr(patience, "OUTCOME_PAUSES_S", (0.0, 0.0))
    held: list[httpx.Request] = []
    looks = 0

    def late(request: httpx.Request) -> None:
        nonlocal looks
        if request.url.path.endswith("/settle"):
            request.url = request.url.copy_with(path="/v1/no-such-path")
        if request.method == "PUT":
            held.append(request)
            raise httpx.ReadError("cut", request=request)
        looks += bool(held) and request.url.path.endswith("/checkpoints")
        if looks == 2:
            [put] = held
            httpx.put(put.url, content=put.read(), headers=put.headers).raise_for_status()

    meddle(monkeypatch, before=late)
    result = await hud("head", "mine", "--back", "1", "-y")
    assert (result.code, result.data["verified"], looks) == (0, True, 2)


@pytest.mark.usefixtures("trained")
async def test_a_head_that_moves_meanwhile(hud: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = (await hud("checkpoints", "mine")).data["checkpoints"]

    def move(request: httpx.Request) -> None:
        if request.method == "PUT":
            body = {"checkpoint_id": tree[0]["id"]}
            key = {"Authorization": request.headers["authorization"]}
            httpx.put(request.url, json=body, headers=key).raise_for_status()

    meddle(monkeypatch, move)
    result = await hud("head", "mine", "--set", tree[1]["id"], "-y")
    assert (result.code, result.error["type"]) == (1, "conflict")
    assert "the head is step-000001, not step-000002" in result.error["message"]


async def test_a_submission_that_never_arrived_says_so(
    hud: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(request: httpx.Request) -> None:
        if request.method == "POST":
            raise httpx.WriteError("cut", request=request)

    monkeypatch.setattr(submit, "LOOK_S", 0.0)
    before = (await hud("jobs")).data["jobs"]
    meddle(monkeypatch, before=lose)
    result = await hud("run", "arith", "--steps", "1", "-y")
    assert (result.code, result.error["type"]) == (7, "unclear")
    assert (result.error["outcome"], "no new run" in result.error["hint"]) == ("unknown", True)
    assert (await hud("jobs")).data["jobs"] == before


@pytest.mark.usefixtures("trained")
async def test_what_the_service_no_longer_has_is_not_found(hud: Command, served: Served) -> None:
    """A checkpoint whose file is gone is answered with 410."""
    first = (await hud("checkpoints", "mine")).data["checkpoints"][0]
    (served.service.data_dir / first["checkpoint_name"]).unlink()
    result = await hud("head", "mine", "--set", first["id"], "-y")
    assert (result.code, result.error["type"]) == (HudNotFound.exit_code, "not_found")
    assert result.error["status"] == 410
