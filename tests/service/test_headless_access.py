"""``access``, ``log --server``, ``protect --for-all`` and proposals on the command line."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from hud_tui.cli import access
from hud_tui.cli.access import read_time
from hud_tui.errors import HudUsage
from tests.conftest import Served
from tests.service.headless import Command, Result, commands, model_of
from tests.tui.cockpit import grow

Person = Callable[[str, str], Awaitable[Command]]


@pytest.fixture
def person(
    hud: Command,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Person:
    """Makes a key with a role; runs commands with it."""

    async def make(name: str, role: str) -> Command:
        made = await hud("access", "add", name, "--role", role, "-y")
        theirs = replace(served, api_key=made.data["key"]["key"])

        async def run(*argv: str) -> Result:
            with monkeypatch.context() as patched:
                return await commands(theirs, patched, capsys)(*argv)

        return run

    return make


async def test_keys_are_made_listed_and_revoked(hud: Command) -> None:
    made = await hud("access", "add", "ana", "--role", "train", "--expires", "30d", "-y")
    assert (made.code, made.kind) == (0, "key")
    assert made.data["key"]["key"].startswith("hud-tui-")
    assert "key" not in (await hud("access")).data["keys"][0]
    assert (await hud("access")).data["keys"][0]["state"] == "valid"
    assert (await hud("access", "revoke", "ana", "-y")).code == 0
    assert (await hud("access")).data["keys"][0]["state"] == "revoked"
    logged = (await hud("log")).data["entries"]
    assert [entry["verb"] for entry in logged][-2:] == ["make key", "revoke key"]
    assert made.data["key"]["key"] not in str(logged)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("add", "-y"), "no name given"),
        (("add", "ana", "-y"), "no --role"),
        (("add", "Ana", "--role", "read", "-y"), "'Ana' is no name"),
        (("add", "ana", "--role", "read", "--expires", "soon", "-y"), "--expires"),
        (("add", "ana", "--role", "read", "--expires", "99999w", "-y"), "--expires"),
        (("add", "ana", "--role", "read", "--disk", "much", "-y"), "--disk is not a size"),
        (("add", "ana", "--role", "read", "--runs", "0", "-y"), "--runs"),
        (("add", "ana", "--role", "read"), "-y"),
    ],
)
async def test_what_cannot_be_a_key_is_refused(
    hud: Command, argv: tuple[str, ...], said: str
) -> None:
    refused = await hud("access", *argv)
    assert refused.code == 2
    assert said in refused.error["message"] + refused.error["hint"]
    assert (await hud("access")).data["keys"] == []


async def test_who_may_not_is_told_which_role_that_needs(person: Person) -> None:
    refused = await (await person("ana", "train"))("access")
    assert refused.code == 4
    assert refused.error["message"] == (
        "key ana may not list keys: its role is train, and that needs admin: ask an admin"
    )


async def test_a_head_is_proposed_and_approved(
    hud: Command, person: Person, http: httpx.AsyncClient
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)
    as_sue, as_sam = await person("sue", "steer"), await person("sam", "steer")
    asks = await hud("protect", "arith-rl", "--for-all")
    assert (asks.code, "needs confirmation" in asks.error["message"]) == (2, True)
    done = await hud("protect", "arith-rl", "--for-all", "-y")
    assert done.data["protection"]["protected_by"]
    assert (await hud("protect", "--for-all")).data["protected"][0]["name"] == "arith-rl"
    refused = await hud("head", "arith-rl", "--back", "1", "-y")
    assert (refused.code, "--propose ID" in refused.error["message"]) == (4, True)
    nothing = await hud("head", "arith-rl", "--approve", "-y")
    assert (nothing.code, "nothing is proposed" in nothing.error["message"]) == (2, True)
    words = ("head", "arith-rl", "--propose", "step-000001", "--note", "why", "-y")
    would = await hud(*words, "--dry-run")
    assert (would.code, would.data["dry_run"], would.data["model"]) == (0, True, "arith-rl")
    assert would.data["proposal"] is None
    assert (await hud("head", "arith-rl")).data["proposals"] == [], "nothing is sent"
    assert (await hud(*words)).data["proposal"]["status"] == "open"
    assert (await hud(*words, "--dry-run")).data["proposal"]["note"] == "why", "it is already"
    would = await hud("head", "arith-rl", "--withdraw", "-y", "--dry-run")
    assert (would.code, would.data["proposal"]["note"]) == (0, "why")
    for words in ("--back", "1"), ("--approve",):
        would = await hud("head", "arith-rl", *words, "-y", "--dry-run")
        assert would.code == (await hud("head", "arith-rl", *words, "-y")).code == 4
    shown = (await hud("head", "arith-rl")).data
    assert (shown["protected_by"], shown["proposals"][0]["note"]) == ("admin", "why")
    own = await hud("head", "arith-rl", "--approve", "-y")
    assert (own.code, "another person" in own.error["message"]) == (4, True)
    assert (await as_sue("head", "arith-rl", "--propose", "step-000001", "-y")).code == 0
    several = await as_sam("head", "arith-rl", "--approve", "-y")
    assert (several.code, several.error["message"].partition(":")[0]) == (
        2,
        "2 heads are proposed for arith-rl",
    )
    withdrawn = await as_sue("head", "arith-rl", "--withdraw", "-y")
    assert withdrawn.data["proposal"]["by"] == "sue", "not what somebody else proposed"
    approved = await as_sue("head", "arith-rl", "--approve", "-y")
    assert approved.data["proposal"]["decided_by"] == "sue"
    assert (await as_sue("head", "arith-rl")).data["head"]["name"] == "step-000001"
    history = (await as_sue("head", "arith-rl", "--history")).data["lines"]
    assert history[-1]["by"].startswith("sue: ")
    assert history[-1]["by"].endswith("proposed by admin")
    lines = (await as_sue("log", "--server", "head")).data["lines"]
    assert [(line["key"], line["what"], line["status"]) for line in lines] == [
        ("admin", "move a head", 403),
        ("admin", "propose a head", 201),
        ("admin", "move a head", 403),
        ("admin", "approve a head", 403),
        ("admin", "approve a head", 403),
        ("sue", "propose a head", 201),
        ("sue", "approve a head", 200),
    ]
    assert (await as_sue("protect", "arith-rl", "--for-all", "--off", "-y")).code == 4


async def test_a_dry_run_of_a_proposal_is_refused_as_the_proposal(
    hud: Command, person: Person, http: httpx.AsyncClient
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)
    as_tim = await person("tim", "train")

    async def both(command: Command, name: str) -> tuple[int, str]:
        words = ("head", "arith-rl", "--propose", name, "-y")
        would, done = await command(*words, "--dry-run"), await command(*words)
        assert would.code == done.code
        assert all(would.error[key] == done.error[key] for key in ("type", "message", "status"))
        return would.code, would.error["message"]

    refused = await both(hud, "step-000001")
    assert refused == (1, "this model is not protected: set its head, nobody has to approve it")
    await hud("protect", "arith-rl", "--for-all", "-y")
    assert (await both(hud, "head"))[1] == "step-000002 is the head already"
    assert "key tim may not propose a head" in (await both(as_tim, "step-000001"))[1]


async def test_a_dry_run_of_a_move_or_a_decision_is_refused_as_that(
    hud: Command, person: Person, http: httpx.AsyncClient
) -> None:
    model = await model_of(hud)
    await grow(http, model["id"], 2)
    as_tim = await person("tim", "train")

    async def both(command: Command, *words: str) -> str:
        words = ("head", "arith-rl", *words, "-y")
        would, done = await command(*words, "--dry-run"), await command(*words)
        assert (would.code, would.error["type"]) == (done.code, done.error["type"])
        assert would.error["message"] in done.error["message"]
        return str(would.error["message"])

    await hud("protect", "arith-rl")
    assert await both(hud, "--back", "1") == (
        "arith-rl is protected on this machine; not done: set head"
    )
    would = await hud(
        "--read-only", "head", "arith-rl", "--back", "1", "--dry-run", "--confirm", "arith-rl"
    )
    assert would.code == 0, "it sends nothing"
    await hud("protect", "arith-rl", "--off", "--confirm", "arith-rl")
    assert "key tim may not move a head" in await both(as_tim, "--back", "1")
    await hud("protect", "arith-rl", "--for-all", "-y")
    await hud("head", "arith-rl", "--propose", "step-000001", "-y")
    assert "key tim may not approve a head" in await both(as_tim, "--approve")
    assert "key tim may not withdraw a proposal" in await both(as_tim, "--withdraw")


async def test_the_whole_log_is_searched_and_no_more_of_it_than_needed(
    hud: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(access, "PAGE", 3)
    for name in ("first", "second"):
        await hud("access", "add", name, "--role", "read", "-y")
    for number in range(8):
        await hud("fork", "toy/four", "--name", f"fork {number}", "-y")
    found = await hud("log", "--server", "first")
    assert [line["about"]["name"] for line in found.data["lines"]] == ["first"]
    assert (found.data["searched"], found.data["incomplete"]) == (11, False)
    assert "3 lines of the log searched, back to" in found.err
    newest = (await hud("log", "--server", "fork", "--limit", "2")).data
    assert [line["about"]["name"] for line in newest["lines"]] == ["fork 6", "fork 7"]
    assert newest["searched"] == 3
    assert (await hud("log", "--server", "nobody")).data == {**newest, "lines": [], "searched": 11}


@pytest.mark.parametrize(("text", "length"), [("90m", 5400), ("1.5h", 5400), ("2 w", 1_209_600)])
def test_a_length_of_time(text: str, length: float) -> None:
    assert read_time(text, "--expires") == length


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(HudUsage, match="--expires"):
        read_time(text, "--expires")
