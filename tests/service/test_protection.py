"""Protected models and read-only: what is not to be changed is not, whoever asks."""

import inspect
from pathlib import Path

import httpx
import pytest

from hud_tui.client import transport
from hud_tui.client.guard import NAME, Guard, Protection
from hud_tui.config import ReadOnly, Safety, why_read_only
from hud_tui.errors import HudProtected, HudReadOnly, HudUsage
from hud_tui.service.service import Service
from hud_tui.wire_training import Chat, OptimStep
from tests.service.clients import answered, fork_of, in_process, run_of
from tests.service.headless import Command, Configure, model_of
from tests.tui.cockpit import grow


async def test_the_client_refuses_what_changes_a_protected_model(service: Service) -> None:
    guard = Guard()
    async with in_process(service, guard=guard) as client:
        model, other = await fork_of(client), await fork_of(client, "other")
        job = await client.runs.submit(
            await run_of(client, model, steps=10_000, learning_rate=1e-6)
        )
        guard.protection.protect(model.id, model.model_name, True)
        run = await run_of(client, model)
        for call in (
            client.set_head(model.id, "c"),
            client.runs.submit(run),
            client.cancel_job(job.job_id),
            client.resume_job(job.job_id),
            client.pin(model.id, "c", False),
            client.training.optim_step(model.id, OptimStep(learning_rate=0.1)),
        ):
            with pytest.raises(HudProtected, match="is protected on this machine") as refused:
                await call
            assert "--confirm" in refused.value.hint
            assert refused.value.exit_code == 2
        assert (await client.fork(model.id, "a copy")).id != model.id
        assert (await client.runs.submit(await run_of(client, other, steps=1))).job_id
        guard.allow(model.id)
        await client.cancel_job(job.job_id)
        with pytest.raises(HudProtected):
            await client.cancel_job(job.job_id)


async def test_headless_wants_the_name(
    hud: Command, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)
    protected = await hud("protect", "arith-rl")
    assert protected.kind == "protect"
    assert protected.data == {"protected": [{"id": model["id"], "name": model["model_name"]}]}
    for argv in (
        ("head", "arith-rl", "--back", "1", "-y"),
        ("run", "arith", "-m", "arith-rl", "--steps", "1", "-y"),
        ("head", "arith-rl", "--back", "1", "-y", "--confirm", "arith"),
    ):
        refused = await hud(*argv)
        assert (refused.code, refused.error["type"]) == (2, "protected"), argv
        assert f"--confirm {model['model_name']}" in refused.error["hint"]
    confirm = ("--confirm", model["model_name"])
    assert (await hud("head", "arith-rl", "--back", "1", "-y", *confirm)).code == 0
    assert (await hud("protect", "arith-rl", "--off")).error["type"] == "protected"
    assert (await hud("protect")).data == protected.data
    assert (await hud("protect", "arith-rl", "--off", *confirm)).data == {"protected": []}
    assert (await hud("head", "arith-rl", "--back", "1", "-y")).code == 2  # the base is no step
    assert (await hud("run", "arith", "-m", "arith-rl", "--steps", "1", "-y")).code == 0
    assert (tmp_path / "state" / NAME).exists()
    assert (await hud("protect", "--off")).code == 2


async def test_where_nobody_knows_which_are_protected_nothing_is_changed(
    hud: Command, tmp_path: Path
) -> None:
    model = await model_of(hud)
    (tmp_path / "state" / NAME).write_text("{")
    for argv in (("run", "arith", "-m", "arith-rl", "-y"), ("protect", "arith-rl")):
        refused = await hud(*argv)
        assert (refused.code, refused.error["type"]) == (2, "usage")
        assert NAME in refused.error["message"]
    assert (await hud("status", model["id"])).code == 0
    assert (await hud("fork", "arith-rl", "--name", "copy", "-y")).code == 0


def test_a_file_that_says_nothing_is_named(tmp_path: Path) -> None:
    kept = Protection(lambda: tmp_path)
    for text in ("", "[]", "{}", '{"models": []}', '{"models": 3}', "[" * 9999):
        (tmp_path / NAME).write_text(text)
        with pytest.raises(HudUsage, match="is not a valid list of protected models"):
            _ = kept.models
        with pytest.raises(HudUsage):
            kept.protect("m", "name", True)
        assert (tmp_path / NAME).read_text() == text


def test_two_programs_see_the_same(tmp_path: Path) -> None:
    one, other = Protection(lambda: tmp_path / "state"), Protection(lambda: tmp_path / "state")
    one.protect("m", "me/ärith", True)
    other.protect("n", "two", True)
    assert one.models == other.models == {"m": "me/ärith", "n": "two"}
    other.protect("m", "", False)
    assert one.models == {"n": "two"}
    assert (tmp_path / "state" / NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (tmp_path / "state").iterdir()] == [NAME]


WHY = ReadOnly("started with --read-only", "start without it to change something")


async def test_every_write_of_the_client_is_refused_before_it_is_sent() -> None:
    sent: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    async with answered(handler, guard=Guard(lambda: WHY)) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            with pytest.raises(HudReadOnly, match=r"not sent: .* /v2/x"):
                await client.wire.write(method, client.wire.api("/v2/x"), dict, None)
        with pytest.raises(HudReadOnly) as refused:
            await client.training.chat(Chat(model="m", messages=[]))
        assert refused.value.hint == WHY.cure
        assert refused.value.exit_code == 1
    assert sent == []


def test_only_write_sends_anything_but_a_get() -> None:
    """The connection has no other way out than these: a read, a write, a stream, and what another
    program asks for, which the guard is asked about."""
    source = inspect.getsource(transport)
    assert source.count("self.http.stream(") == source.count('self.http.stream("GET"') + 1 == 2
    assert source.count("self._send_once(") == source.count('self._send_once("GET"') + 2 == 3
    passing = inspect.getsource(transport.Connection.pass_on)
    assert passing.index("self.guard.check(") < passing.index("self._send_once(")


async def test_a_headless_write_is_refused_and_a_read_is_not(hud: Command) -> None:
    model = await model_of(hud)
    for argv in (
        ("fork", "arith-rl", "--name", "other", "-y"),
        ("head", "arith-rl", "--back", "1", "-y"),
        ("run", "arith", "-m", "arith-rl"),
        ("jobs", "nothing", "--cancel", "-y"),
        ("eval", "arith", "-m", "arith-rl"),
        ("preflight", "arith", "-m", "arith-rl", "--sample", "1", "--fresh"),
    ):
        result = await hud("--read-only", *argv)
        assert (result.code, result.error["type"]) == (1, "read_only"), argv
        assert "started with --read-only" in result.error["message"]
        assert result.error["hint"] == "start without it to change something"
    pushed = await hud("convert", "tasks.json", "--name", "me/tasks", "-y", "--read-only")
    stopped = await hud("stop", "--read-only")
    assert pushed.error["type"] == stopped.error["type"] == "read_only"
    assert (await hud("serve", "--read-only")).code == 2, "it wants no such flag"
    result = await hud("models", "--read-only")
    assert result.code == 0
    own = [model["id"] for model in result.data["models"] if model["is_trainable"]]
    assert model["id"] in own
    assert len([model for model in result.data["models"] if model["model_name"] == "other"]) == 0


async def test_the_environment_and_the_config_file_say_it_too(
    hud: Command, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = ("fork", "arith-rl", "--name", "other", "-y")
    monkeypatch.setenv("HUD_TUI_READ_ONLY", "1")
    assert "HUD_TUI_READ_ONLY is set" in (await hud(*fork)).error["message"]
    monkeypatch.setenv("HUD_TUI_READ_ONLY", "0")
    configure("[safety]\nread_only = true\n")
    assert "[safety]" in (await hud(*fork)).error["message"]
    for text, said in (
        ("[safety]\nread_onyl = true\n", "safety.read_onyl: unknown setting"),
        ("safety = 1\n", "safety: expected a table"),
        ("[safety]\nread_only = 1\n", "safety.read_only: expected true or false"),
        ("[safety]\nread_only = 'no'\n", "safety.read_only: expected true or false"),
    ):
        configure(text)
        broken = await hud(*fork)
        assert (broken.code, broken.error["type"]) == (2, "usage")
        assert said in broken.error["message"]
    configure("")
    assert (await hud(*fork)).code == 0
    for value in ("", "0", "false", "No", "off "):
        assert why_read_only(False, {"HUD_TUI_READ_ONLY": value}, Safety()) is None
