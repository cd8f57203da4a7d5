"""``hud-tui runs``: the table as text and as a document."""

from typing import Any

import pytest

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound
from tests.conftest import Served
from tests.service.headless import Command, Text, as_hud

SIZE = ("--steps", "2", "--group-size", "2", "--tasks-per-step", "2")


@pytest.fixture
async def two(hud: Command) -> list[str]:
    """Ids of two runs that have ended, on models of their own, the newest first."""
    base = (await hud("models")).data["models"][-1]["model_name"]
    ids = []
    for name, rate in (("slow", "0.1"), ("fast", "0.3")):
        await hud("fork", base, "--name", name, "-y")
        args = ("run", "arith", "-m", name, *SIZE, "--learning-rate", rate, "-y", "--follow")
        ids.append((await hud(*args)).data["job_id"])
    return ids[::-1]


async def test_the_table_is_a_document(hud: Command, two: list[str]) -> None:
    found = await hud("runs")
    assert (found.code, found.kind) == (0, "runs")
    data = found.data
    assert (data["total"], data["matched"], data["omitted"], data["source"]) == (2, 2, 0, "list")
    assert [row["id"] for row in data["runs"]] == two
    fast = data["runs"][0]
    assert (fast["model"], fast["lr"], fast["step"], fast["status"]) == (
        *("fast", 0.3, 2, "succeeded"),
    )
    assert fast["parameters"]["tasks_per_step"] == 2
    assert fast["evaluation"]["num_tasks"] == 36
    rows = (await hud("runs", "--sort", "lr", "--limit", "1", "--columns", "model,lr")).data
    assert rows["runs"] == [{"id": two[1], "model": "slow", "lr": 0.1}]
    assert rows["omitted"] == 1
    best = (await hud("runs", "--sort", "-lr", "--columns", "-age,+id")).data["runs"]
    assert ([row["lr"] for row in best], "age" in best[0]) == ([0.3, 0.1], False)
    some = (await hud("runs", "--filter", "lr>.2 is:ended fast")).data
    assert [row["id"] for row in some["runs"]] == two[:1]
    groups = (await hud("runs", "--group", "differs")).data["groups"]
    assert [group["keys"]["learning_rate"] for group in groups] == ["0.3", "0.1"]
    told = (await hud("runs", "slow", two[0][:8])).data["differences"]
    assert set(told["keys"]) == {"learning_rate", "model"}
    assert told["rows"][two[0]] == {"learning_rate": "0.3", "model": "fast"}
    assert told["same"]["tasks_per_step"] == "2"


async def test_columns_that_the_terminal_cuts_are_named(
    text: Text, two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "26")
    asked = ("runs", "--columns", "model,lr,state,steps,id")
    for group in ((), ("--group", "model")):
        _, out, err = await text(*asked, *group)
        assert all(len(line) <= 26 for line in out.splitlines())
        assert "2 columns cut at 26 characters: steps, id; --columns KEYS shows others" in err
    monkeypatch.setenv("COLUMNS", "200")
    assert (await text(*asked))[2] == ""


async def test_the_table_as_text_with_names_and_notes(
    hud: Command, text: Text, two: list[str]
) -> None:
    code, out, err = await text("runs", "--columns", "model,lr,reward,steps,state")
    head, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["model", "lr", "reward", "steps", "state"]
    assert first.split()[:2] == ["fast", "0.3"]
    assert second.split()[-2:] == ["2/2", "succeeded"]
    assert first.index("succeeded") == second.index("succeeded"), "columns stand under each other"
    _, out, err = await text("runs", "--limit", "1")
    assert len(out.splitlines()) == 2
    assert "1 older runs omitted" in err
    _, out, _ = await text("runs", "--group", "model", "--columns", "lr")
    heading, first, run, second, other = out.splitlines()
    assert (heading, run.strip(), other.strip()) == (" lr", "0.3", "0.1"), "one heading for all"
    for title, model in ((first, "fast"), (second, "slow")):
        assert title.startswith("▾ 1 run · reward ")
        assert title.endswith(f" · model {model}")
    _, out, _ = await text("runs", "slow", "fast")
    assert "differs in" in out
    _, out, _ = await text("runs", "--filter", "nothing-like-it")
    assert out == "no run matches\n"
    named = await hud("runs", two[0], "--name", "the \x1b[31mbest", "-y")
    assert (named.kind, named.data["run"]["name"]) == ("run", "the ␛[31mbest")
    assert (await hud("runs", "slow", "--note", "too low")).data["run"]["note"] == "too low"
    assert (await hud("runs", "--filter", "note:low")).data["matched"] == 1
    code, out, _ = await text("runs", "--columns", "name,note")
    assert code == 0
    assert out.splitlines()[1].split() == ["the", "␛[31mbest", "–"]
    refused = await hud("runs", two[0], "--name", "x")
    assert (refused.code, refused.error["outcome"]) == (2, "not_done")


async def test_what_is_not_there_is_named(hud: Command) -> None:
    for words, said in (
        ("--columns rewrad", "no column named rewrad"),
        ("--sort nothing", "no column named nothing"),
        ("--filter rewrad>1", "no run has rewrad"),
        ("--group nothing", "no column named nothing"),
        ("--limit 0", "expected 1 or more"),
        ("nope", "no run named nope"),
        ("--name x -y", "for one run"),
    ):
        found = await hud("runs", *words.split())
        assert (found.code, found.error["type"]) == (2, "usage")
        assert said in found.error["message"]


async def test_on_hud_it_says_what_it_has_read(
    hud: Command, two: list[str], monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    async def none(*args: Any, **kwargs: Any) -> Any:
        raise HudNotFound(404, "no such path")

    as_hud(monkeypatch)
    monkeypatch.setattr(HudClient, "run_page", none)
    data = (await hud("runs")).data
    assert [row["id"] for row in data["runs"]] == two
    assert data["source"] == "polls · ≤ 30 requests/min · 2 of 2 runs read"
