"""The palette: what is found first, and that Enter goes there, for everything that has a name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partialmethod

import pytest
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.tui import places
from hud_tui.tui.keys import doable
from hud_tui.tui.name_search import BLOCK, MOST, PER_SECTION, Place, Section, search
from hud_tui.tui.places import HIDDEN, IN_RUN
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.jobs import Level
from hud_tui.tui.screens.palette import COLUMNS, Palette, PlaceLine
from hud_tui.tui.screens.set_head import HistoryPanel
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.table import item_row
from hud_tui.wire import Job
from tests.conftest import Served
from tests.tui.cockpit import Cockpit, cockpit, grow
from tests.tui.conftest import Connector, caller, forked, opened, trained
from tests.tui.test_jobs import HOSTILE

JOB_IDS = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)]


async def nowhere() -> None:
    """Where a place of these tests leads."""


def section(kind: str, names: list[str], ids: list[str] | None = None, within: str = "") -> Section:
    made = Section(kind, lambda at: Place(names[at], nowhere), within)
    made.add(names, ids or [])
    return made


def found(text: str, *sections: Section) -> list[str]:
    hits = [one for one in search(sections, text) if one is not None]
    return [one.place(at).name for one, at in hits]


def test_the_best_match_comes_first() -> None:
    names = ["salt a-b c", "xab", "x ab", "a cab b", "abc", "ab", "b then a"]
    assert found("ab", section("model", names)) == [
        "ab",
        "abc",
        "x ab",
        "xab",
        "a cab b",
        *names[:1],
    ]
    assert found("B A", section("model", names))[0] == "salt a-b c"
    assert "b then a" in found("b a", section("model", names))
    assert found("zz", section("model", names)) == []
    assert found("", section("model", names)) == []


def test_an_id_is_found_by_its_beginning() -> None:
    jobs = section("job", ["one", "two"], ["0a1b-22", "ffee-33"])
    assert found("ffee", jobs) == ["two"]
    assert found("ffe", jobs) == []


@pytest.mark.parametrize("text", ["42", "sp42", "step 42", "mixed-rl 42", "mixed sp42", "042"])
def test_a_step_is_found_by_its_number(text: str) -> None:
    names = [f"step-{at:06}" for at in range(600, 0, -1)]
    own = Section("checkpoint", lambda at: Place(names[at], nowhere), "mixed-RL")
    own.add(names)
    assert found(text, own)[0] == "step-000042"
    assert found("mixed", own) == []
    named = text if "mixed" in text else f"mixed {text}"
    assert found(named, section("checkpoint", names, within="mixed-RL"))[0] == "step-000042"


def test_a_kind_is_asked_for_by_its_name() -> None:
    runs = section("run", ["mixed a", "words b"])
    tasks, heldout = section("task", ["red-fox"]), section("held-out task", ["blue-owl"])
    steps = section("checkpoint", ["base", "step-000001"])
    sections = (runs, tasks, heldout, steps)
    for text in ("runs", "run"):
        assert found(text, *sections) == ["mixed a", "words b"]
    assert found("runs words", *sections) == ["words b"]
    for text in ("tasks", "task", "tas"):
        assert found(text, *sections) == ["red-fox", "blue-owl"]
    assert found("held-out tasks owl", *sections) == ["blue-owl"]
    assert found("steps", *sections) == ["base", "step-000001"]
    assert found("tasksets", *sections) == []


def test_a_description_is_searched_by_its_words_after_all_names() -> None:
    actions = Section("action", lambda at: Place(["quit", "help"][at], nowhere))
    actions.add(["quit", "help"], descriptions=["", "All keys of this view; Enter runs one."])
    assert found("enter runs", actions) == ["help"]
    assert found("runs", actions, section("run", ["a"])) == ["a", "help"]
    assert found("aek", actions) == []  # no letters in this order
    assert found("qt", actions) == ["quit"]


def test_results_are_bounded_and_every_block_is_searched() -> None:
    names = [f"step-{at:06}" for at in range(3 * BLOCK)]
    many = section("checkpoint", names)
    assert found("step", many) == names[:PER_SECTION]
    assert found(names[-1], many)[0] == names[-1]
    assert found(names[-1][-5:], many)[0] == names[-1]


def test_a_name_with_a_line_break_is_one_name() -> None:
    assert found("second", section("model", ["first\nsecond", "third"])) == ["first\nsecond"]
    assert found("third", section("model", ["first\nsecond", "third"])) == ["third"]


@dataclass
class Ids:
    """Two models, and a run of the first."""

    model: str
    other: str
    job: str


@asynccontextmanager
async def reach(served: Served, view: str = "live") -> AsyncIterator[tuple[Cockpit, Ids]]:
    other = await forked(served, "words rl")
    model, job = await trained(served, 5)
    async with caller(served) as http:
        await grow(http, other, 3)
    async with cockpit(served, Start(view, model=model)) as flown:
        await flown.until(lambda: flown.run.loaded and len(flown.run.tree) == 5)
        yield flown, Ids(model, other, job)


async def typed(flown: Cockpit, text: str) -> Palette:
    shown = await flown.open(Palette, "colon")
    shown.field.value = text
    return shown


def kinds(shown: Palette) -> list[str]:
    return [kind for _, kind in shown.listed]


async def go(flown: Cockpit, text: str, kind: str, then: str = "") -> None:
    """Type a name, and go to the first place of this kind."""
    shown = await typed(flown, text)
    await flown.until(lambda: shown._listed_for == text and kind in kinds(shown))
    while away := kinds(shown).index(kind) - shown.list.cursor:  # what is read late comes between
        await flown.press("down" if away > 0 else "up")
    await flown.press("enter", then=then)


async def test_checkpoints_runs_and_bases_are_gone_to_though_a_filter_hides_them(
    served: Served,
) -> None:
    async with reach(served) as (flown, ids):
        await flown.press("5", then="runs")
        runs = flown.view
        await flown.until(lambda: runs.table.row is not None)
        await flown.press("slash", *"nothing", "enter", "4")
        await go(flown, ids.job[:8], "run", then="runs")
        await flown.until(lambda: runs.table.row is not None)
        assert (runs.table.row.id, runs.filter_field.value) == (ids.job, "")
        await go(flown, "000002", "checkpoint", then="checkpoints")
        view = flown.view
        await flown.until(lambda: view.selected and view.selected.name == "step-000002")
        await go(flown, "4", "checkpoint")
        await flown.until(lambda: view.selected and view.selected.name == "step-000004")
        await flown.press("1", then="models")
        models = flown.view
        await flown.until(lambda: models.rows.rows)
        await flown.press("slash", *"arith", "enter", "4", then="checkpoints")
        await go(flown, "toy", "model")
        await flown.until_dialog()
        assert models.chosen.is_trainable
        assert models.filter_field.value == ""


@pytest.mark.parametrize("older", [False, True])
async def test_a_job_is_gone_to_and_opened_where_it_is_not_listed(
    served: Served, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    async with caller(served) as http:
        for job_id in JOB_IDS:
            name = {"name": f"reported {job_id[-1]}"}
            assert (await http.post(f"/v2/trace/job/{job_id}/enter", json=name)).is_success
    async with reach(served) as (flown, _):
        if older:  # the view lists fewer than there are
            read = HudClient.jobs
            fewer = partialmethod(lambda one, most=1: read(one, most))
            monkeypatch.setattr(HudClient, "jobs", fewer)
        await go(flown, "reported 1", "job", then="jobs")
        view = flown.view
        await flown.until(lambda: view.job is not None and view.job.id == JOB_IDS[0])
        await flown.until(lambda: view.level is (Level.TRACES if older else Level.JOBS))


async def test_tasks_are_gone_to_in_the_groups_and_held_out_ones_in_the_newest_evaluation(
    served: Served,
) -> None:
    async with reach(served) as (flown, _):
        run = flown.view.run
        slug = run.tree[0].groups[-1].task_slug
        await go(flown, slug, "task", then="live")
        view = flown.view
        groups = view.groups
        await flown.until(lambda: groups.has_focus and groups.slugs)
        await flown.until(lambda: groups.slugs[groups.index] == slug)
        [(position, found)] = run.tree.evaluations()
        heldout = (await flown.view.session.evaluations.get(found.id or "")).groups
        slug = heldout[-1].task_slug
        trained = {group.task_slug for node in run.tree for group in node.groups}
        assert slug not in trained
        await go(flown, slug, "held-out task")
        screen = await flown.until_screen(GroupScreen)
        assert screen.group.task_slug == slug
        assert len(screen.group.rewards) == found.samples == len(screen.group.trace_ids)
        shown = screen.query_one("#group-facts", Static)
        await flown.until(lambda: str(run.tree[position].name) in str(shown.render()))


async def test_a_taskset_is_gone_to_and_checked_and_a_task_of_it_where_its_text_is(
    served: Served,
) -> None:
    """Also for a model that has no step and no evaluation."""
    async with cockpit(served, Start("models", model=await forked(served))) as flown:
        await flown.until(lambda: flown.run.loaded)
        await go(flown, "arith", "taskset", then="launch")
        view = flown.view
        await flown.until(lambda: view.draft.source == "arith" and not view.draft.checking)
        assert view.sources.key == "arith"
        tasks = read_rows((await flown.view.session.client.tasks.taskset("arith")).tasks)
        for kind in ("task", "held-out task"):
            slugs = [task.slug for task in tasks if task.heldout is (kind != "task")]
            await go(flown, f"arith {slugs[-1]}", kind, then="launch")
            await flown.until(lambda: view.tasks.has_focus and view.task_index is not None)
            task = slugs[-1]
            await flown.until(lambda task=task: view.draft.tasks[view.task_index].slug == task)
            assert view.draft.source == "arith"
        await flown.press("slash", *"nothing", "enter", "1")
        await go(flown, f"arith {slugs[-2]}", kind, then="launch")
        await flown.until(lambda: view.task_index is not None and view.filter_field.value == "")


async def test_it_says_that_nothing_matches_and_what_is_searched_and_hostile_names_are_text(
    served: Served,
) -> None:
    async with caller(served) as http:
        await http.post(f"/v2/trace/job/{JOB_IDS[0]}/enter", json={"name": HOSTILE})
    async with reach(served) as (flown, _):
        shown = await typed(flown, "zzzz [b]")
        await flown.until(lambda: "checkpoints. A kind lists" in str(shown.nothing.render()))
        assert "nothing matches “zzzz [b]”" in str(shown.nothing.render())
        assert shown.nothing.display
        assert not shown.list.display
        shown.field.value = "arith"
        await flown.until(lambda: shown.list.display and shown.listed)
        assert not shown.nothing.display
        shown.field.value = "not markup"
        await flown.until(lambda: "job" in kinds(shown))
        name = shown.list.rows[kinds(shown).index("job")].cells[0].plain
        assert "[red]not markup[/]" in name
        assert name.isprintable()


def named(place: Place, kind: str, room: int) -> str:
    """A place's name in the list, beside its note."""
    return item_row(COLUMNS, "", PlaceLine(place, kind, room)).cells[0].plain


def test_a_name_has_the_room_that_no_note_needs() -> None:
    long, note = "a-" * 30, "completed 0a1b2c3d"
    assert named(Place(long, nowhere), "model", 60) == long
    assert named(Place(long, nowhere, note), "run", 62) == long
    assert named(Place(long, nowhere, note), "run", 90) == f"{long}{' ' * 12}{note}"
    some = named(Place(long, nowhere, "what it does, which is long"), "action", 76)
    assert some == f"{long}  what it does,…"
    told = named(Place(long, nowhere, "0a1b2c3d completed", id="0a1b2c3d"), "job", 60)
    assert told == f"{long[:49]}…  0a1b2c3d"
    keyed = named(Place(long, nowhere, "^s"), "action", 40)
    assert (len(keyed), keyed[-4:]) == (40, "  ^s")


async def test_kinds_are_listed_and_equal_tasks_are_told_apart(served: Served) -> None:
    async with reach(served) as (flown, _):
        shown = await flown.open(Palette, "colon")
        for text, kind in (("tasksets", "taskset"), ("runs", "run"), ("steps", "checkpoint")):
            shown.field.value = text
            await flown.until(lambda kind=kind: kind in kinds(shown))
            before = shown.listed[: kinds(shown).index(kind)]
            named = [place.name.split(":")[0] for place, _ in before]
            assert all(text in name.casefold() for name in named)
            assert not any(name.startswith("Quit") for name in named)
        slug = flown.run.tree[0].groups[0].task_slug
        shown.field.value = slug
        await flown.until(lambda: kinds(shown).count("task") > 1 and not shown._gathering)
        notes = [place.note for place, kind in shown.listed if place.name == slug]
        assert notes[0] == IN_RUN
        assert "of arith" in notes
        assert len(set(notes)) == len(notes)
        [run] = [row for row in shown.list.rows if IN_RUN in row.cells[0].plain]
        assert slug in run.cells[0].plain


async def test_actions_of_other_views_are_found_and_done_there(served: Served) -> None:
    async with reach(served) as (flown, _):

        async def find(text: str, name: str) -> Place:
            shown = await flown.open(Palette, "colon")

            def names() -> list[str]:
                return [place.name for place, _ in shown.listed]

            assert name not in names()
            shown.field.value = text
            await flown.until(lambda: name in names())
            await flown.press(*["down"] * names().index(name))
            return shown.listed[names().index(name)][0]

        place = await find("evaluate", "Evaluate · 4 Checkpoints · E")
        assert place.is_dim
        await flown.press("enter", then="checkpoints")
        await flown.until_notice("E  evaluate: ")
        assert not flown.screen.is_modal  # it changes something: its key is told
        await flown.press("3", then="live")
        await find("checkpoints history", "Head history · 4 Checkpoints · V")
        await flown.open(HistoryPanel, "enter")


async def test_a_model_is_opened_as_enter_in_models_does(served: Served) -> None:
    """One's own is followed in Live, one without steps in Launch; a base asks for a fork's name."""
    fresh = await forked(served, "letters rl")
    async with reach(served, "checkpoints") as (flown, ids):
        session = flown.view.session
        await go(flown, "words", "model", then="live")
        await flown.until(lambda: session.run.model and session.run.model.id == ids.other)
        await go(flown, "letters-rl", "model", then="launch")
        await flown.until(lambda: session.run.model and session.run.model.id == fresh)
        await go(flown, "toy", "model")
        assert "A copy of toy/four" in await flown.until_dialog()
        await flown.press("escape", then="models")


async def test_what_is_listed_can_be_done_and_a_name_typed_at_once_is_gone_to(
    served: Served,
) -> None:
    async with reach(served) as (flown, _):
        shown = await flown.open(Palette, "colon")
        await flown.until(lambda: shown.listed)
        assert list(dict.fromkeys(kinds(shown))) == ["view", "action", "theme"]
        assert len(shown.listed) < MOST
        await flown.press("escape", then="live")
        for view in ("models", "launch", "live", "checkpoints", "runs", "jobs"):
            await flown.app.switch_mode(view)
            await flown.until_view(view)
            await flown.until(lambda: flown.screen.is_mounted)
            listed = [one for one in doable(flown.screen) if one.action.name not in HIDDEN]
            assert len(listed) > 10
            for one in listed:  # by the name of a method that the screen, or the app, has
                name, _, _ = one.action.name.partition("(")
                owner, _, method = name.rpartition(".")
                where = flown.app if owner == "app" else one.where
                assert callable(getattr(where, f"action_{method}", None)), one.action
        await flown.press("colon", *"chec", "enter")  # not to what fewer letters list
        await flown.until_view("checkpoints")
        await flown.press("colon", *"theme light", "enter")
        await flown.until(lambda: flown.app.theme == "hud-light")


async def test_what_comes_late_leaves_the_cursor_where_it_is(served: Served) -> None:
    async with reach(served) as (flown, _):
        flown.net.free = lambda: False
        shown = await typed(flown, "arith")

        def listed() -> list[tuple[str, str]]:
            return [(place.name, kind) for place, kind in shown.listed]

        await flown.until(lambda: ("arith-rl", "model") in listed())
        await flown.press("down", "down")
        chosen = listed()[shown.list.cursor]
        flown.net.free = lambda: True
        await flown.until(lambda: "run" in kinds(shown))
        assert listed()[shown.list.cursor] == chosen


async def test_before_there_is_a_service_it_has_the_actions_alone(served: Served) -> None:
    async with opened(Connector(served), mode=None) as app:
        shown = await app.open(Palette, "ctrl+p")
        assert {row.cells[1].plain for row in shown.list.rows} == {"action", "theme"}
        await app.press(*"zzzz")
        await app.until(lambda: "nothing matches “zzzz”" in str(shown.nothing.render()))
        assert "once there is a service" in str(shown.nothing.render())


async def test_jobs_are_read_once_and_then_only_the_newest(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reach(served) as (flown, ids):
        asked: list[int] = []
        read = HudClient.jobs

        async def jobs(client: HudClient, limit: int = 200) -> list[Job]:
            asked.append(limit)
            return await read(client, limit)

        monkeypatch.setattr(HudClient, "jobs", jobs)
        for _ in range(2):
            await go(flown, ids.job[:8], "run", then="runs")
            await flown.until(lambda: asked)
        assert asked.count(places.MOST_JOBS[True]) == 1
        assert places.NEW_JOBS in asked
