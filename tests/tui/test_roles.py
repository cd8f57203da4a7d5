"""The app with keys of several people: as whom, what a role may not do, and heads that two move."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from httpx import AsyncClient
from textual.app import App
from textual.widgets import Button

from hud_tui.client.access_calls import AccessCalls
from hud_tui.errors import HudNotFound
from hud_tui.keys import ACTIONS, STEERING, WRITES
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens import checkpoints
from hud_tui.tui.screens.base import TopLine, WritePolicy
from hud_tui.tui.screens.machines import MachinesScreen
from hud_tui.tui.start import Start
from hud_tui.wire import Identity
from hud_tui.wire_access import Proposals, Role
from tests.conftest import Served
from tests.service.calls import new_key, tree
from tests.tui.cockpit import cockpit, grown
from tests.tui.conftest import caller


async def served_as(http: AsyncClient, served: Served, name: str, role: str) -> Served:
    """The service for a person with a new key."""
    return replace(served, api_key=await new_key(http, name, role))


CHANGES = re.compile(
    r"asks (first|how)|\b(Evaluat|Fork\b|Submit|Cancel|Resume|Sample\b|Set the|Train\b|Terminat)"
    r"|Preview|policy of|Go on with|take over at|Stop (sampl|eval)|Keep its|Edit its name",
    re.IGNORECASE,
)
"""What the help says of a key that changes something, or has the service compute."""
ELSEWHERE = {
    **dict.fromkeys(("app.view.models", "app.view.launch", "app.view.checkpoints"), "where it is"),
    **dict.fromkeys(("alarms.bisect", "checkpoints.history", "rollout.search"), "where it is"),
    "app.reset_layout": "on this machine",
    "models.choose": "selects a model; to fork a base is refused",
    "runs.edit": "its note is on this machine; another name is refused",
    "head.evaluate": "in a dialog that is only for who may more",
    "submit.baseline": "in a dialog that is only for who may more",
}
"""Keys that change nothing themselves though their help says such a word, and why."""


def test_what_moves_a_head_changes_something() -> None:
    assert STEERING < WRITES


def test_each_key_that_says_that_it_changes_something_is_for_roles_that_may() -> None:
    saying = {action.id for action in ACTIONS if CHANGES.search(action.help)}
    assert saying == WRITES | ELSEWHERE.keys()


@pytest.mark.parametrize("role", list(Role))
def test_each_key_is_for_the_roles_that_the_service_lets_do_it(role: Role) -> None:
    identity = Identity(user_id="u", team_id="t", key="rea", role=role)
    client: Any = SimpleNamespace(
        wire=SimpleNamespace(guard=SimpleNamespace(shut=None)), identity=identity
    )
    policy = WritePolicy(App(), lambda: client)
    for action in ACTIONS:
        needed = Role.READ
        if action.id in WRITES:
            needed = Role.STEER if action.id in STEERING else Role.TRAIN
        why = policy.why_not_do(action.id)
        assert (why is None) == role.may(needed), action.id
        assert why is None or f"its role is {role}" in why.why, action.id


async def test_what_a_role_may_not_do_is_dim_and_says_why(served: Served) -> None:
    async with caller(served) as http:
        model_id = (await grown(http, "arith rl", 3))["id"]
        tim = await served_as(http, served, "tim", "train")
    async with cockpit(tim, Start("checkpoints", model=model_id)) as app:
        assert "as tim (train)" in str(app.view.query_one(TopLine).render())
        footer = app.view.query_one(KeyLine)
        await app.until(lambda: footer.dim)
        assert "checkpoints.set_head" in footer.dim
        assert "checkpoints.evaluate" not in footer.dim
        await app.until_notice("key tim may not move a head: its role is train", "H")
        await app.until_notice("not allowed", "b")
        assert app.net.sent == []
        await app.agree("p")
        await app.until(lambda: app.view.run.tree[2].pinned)


async def test_who_only_reads_changes_nothing(served: Served, tmp_path: Path) -> None:
    async with caller(served) as http:
        model_id = (await grown(http, "arith rl", 2))["id"]
        rea = await served_as(http, served, "rea", "read")
        await http.put(f"/v2/models/{model_id}/protection")
        body = {"checkpoint_id": (await tree(http, model_id))[0]["id"]}
        await http.post(f"/v2/models/{model_id}/head/proposals", json=body)
    start = Start("checkpoints", model=model_id)
    async with cockpit(rea, start, state=lambda: tmp_path) as app:
        footer = app.view.query_one(KeyLine)
        await app.until(lambda: {"checkpoints.set_head", "checkpoints.evaluate"} <= footer.dim)
        for key in ("p", "F", "E", "H"):
            app.app.clear_notifications()
            await app.until_notice("key rea may not", key)
        await app.until(lambda: "admin proposes step-000001" in app.drawn)
        assert "on it approves" not in app.drawn
        machines = await app.open(MachinesScreen, "8")
        line = machines.query_one(KeyLine)
        await app.until(lambda: "machines.add" in line.dim)
        app.app.clear_notifications()
        await app.until_notice("key rea may not", "i")
        assert app.app.screen is machines
        assert app.net.sent == []


async def test_the_single_key_of_a_service_is_nobody_in_particular(served: Served) -> None:
    async with caller(served) as http:
        model_id = (await grown(http, "arith rl", 2))["id"]
    async with cockpit(served, Start("checkpoints", model=model_id)) as app:
        assert " as " not in str(app.view.query_one(TopLine).render())
        assert not app.view.query_one(KeyLine).dim


async def test_one_proposes_a_head_and_another_approves_it(served: Served) -> None:
    async with caller(served) as http:
        model_id = (await grown(http, "arith rl", 3))["id"]
        sue = await served_as(http, served, "sue", "steer")
        sam = await served_as(http, served, "sam", "steer")
        await http.put(f"/v2/models/{model_id}/protection")
    start = Start("checkpoints", model=model_id)
    async with cockpit(sue, start) as app:
        before = await app.head(model_id)
        asked = await app.ask("down", "H")
        assert "Protected by admin: another person has to approve it" in asked
        assert str(app.screen.query_one("#confirm", Button).label) == "Propose  (y)"
        await app.press("y")
        await app.until(lambda: "proposed step-000002" in app.drawn)
        assert await app.head(model_id) == before
        await app.ask("H")  # one's own proposal is not one's own to approve
        assert str(app.screen.query_one("#confirm", Button).label) == "Propose  (y)"
        await app.press("escape")
    async with cockpit(sam, start) as app:
        await app.until(lambda: "sue proposes step-000002: H on it approves" in app.drawn)
        await app.press("down")
        await app.pilot.pause()
        assert "sue proposes step-000002" in app.drawn, "until it is decided"
        asked = await app.ask("H")
        assert "Protected by admin, proposed by sue." in asked
        assert str(app.screen.query_one("#confirm", Button).label) == "Approve  (y)"
        await app.press("y")
        await app.until(lambda: "verified" in app.drawn)
        assert await app.head(model_id) != before
        await app.press("up")
        await app.until(lambda: "verified" not in app.drawn)
        assert "proposes" not in app.drawn
        assert not app.notices


async def propose(http: AsyncClient, model_id: str) -> str:
    """Protect a model, and propose its first step; the proposal's URL."""
    await http.put(f"/v2/models/{model_id}/protection")
    body = {"checkpoint_id": (await tree(http, model_id))[0]["id"]}
    asked = await http.post(f"/v2/models/{model_id}/head/proposals", json=body)
    return f"/v2/models/{model_id}/head/proposals/{asked.json()['id']}"


async def test_a_proposal_is_of_the_model_that_is_shown(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller(served) as http:
        one, other = [(await grown(http, name, 2))["id"] for name in ("one", "other")]
        sam = await served_as(http, served, "sam", "steer")
        await propose(http, one)
    asked, there, read = asyncio.Event(), asyncio.Event(), AccessCalls.proposals

    async def slow(self: AccessCalls, model_id: str) -> Proposals:
        answer = await read(self, model_id)
        if model_id == one:
            asked.set()
            await there.wait()
        return answer

    monkeypatch.setattr(AccessCalls, "proposals", slow)
    async with cockpit(sam, Start("checkpoints", model=one)) as app:
        await asked.wait()
        app.app.workspace.session.choose(await app.view.client.model(other))
        await app.until(lambda: app.view.run.model.id == other and len(app.view.run.tree))
        there.set()
        await app.pilot.pause(0.2)
        assert "proposes" not in app.drawn
        app.app.workspace.session.choose(await app.view.client.model(one))
        await app.until(lambda: "admin proposes step-000001: H" in app.drawn)


async def test_a_refreshed_tree_is_said_where_proposals_cannot_be_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: AccessCalls, model_id: str) -> Proposals:
        raise HudNotFound(404, "no such endpoint")

    async with caller(served) as http:
        one = (await grown(http, "one", 2))["id"]
    monkeypatch.setattr(AccessCalls, "proposals", fails)
    async with cockpit(served, Start("checkpoints", model=one)) as app:
        await app.until(lambda: len(app.view.run.tree))
        await app.press("r")
        await app.until(lambda: "tree refreshed" in app.drawn)


async def test_a_proposal_is_shown_as_it_is_now(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PROPOSALS_S", 0.1)
    async with caller(served) as http:
        one = (await grown(http, "one", 2))["id"]
        sam = await served_as(http, served, "sam", "steer")
        async with cockpit(sam, Start("checkpoints", model=one)) as app:
            await app.until(lambda: len(app.view.run.tree))
            asked = await propose(http, one)  # the catalog was read before the protection
            await app.until(lambda: "admin proposes step-000001: H" in app.drawn)
            await http.post(f"{asked}/withdraw")
            await app.until(lambda: "proposes" not in app.drawn)
