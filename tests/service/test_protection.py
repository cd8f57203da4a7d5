"""Protected models: nothing changes one unless its name was given, whoever asks."""

from pathlib import Path

import httpx
import pytest

from hud_tui.client.guard import NAME, Guard, Protection
from hud_tui.errors import HudProtected, HudUsage
from hud_tui.service.service import Service
from hud_tui.wire_training import OptimStep
from tests.service.clients import fork_of, in_process, run_of
from tests.service.headless import Command, model_of
from tests.tui.cockpit import grow


async def test_the_client_refuses_what_changes_a_protected_model(service: Service) -> None:
    guard = Guard()
    async with in_process(service, guard=guard) as client:
        model, other = await fork_of(client), await fork_of(client, "other")
        job = await client.submit(await run_of(client, model, steps=10_000, learning_rate=1e-6))
        guard.protection.protect(model.id, model.model_name, True)
        run = await run_of(client, model)
        for call in (
            client.set_head(model.id, "c"),
            client.submit(run),
            client.cancel_job(job.job_id),
            client.resume_job(job.job_id),
            client.pin(model.id, "c", False),
            client.optim_step(model.id, OptimStep(learning_rate=0.1)),
        ):
            with pytest.raises(HudProtected, match="is protected on this machine") as refused:
                await call
            assert "--confirm" in refused.value.hint
            assert refused.value.exit_code == 2
        assert (await client.fork(model.id, "a copy")).id != model.id
        assert (await client.submit(await run_of(client, other, steps=1))).job_id
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
