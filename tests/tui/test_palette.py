"""The palette: what is found first, and that Enter goes there, for everything that has a name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partialmethod

import pytest
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.settings import Start
from hud_tui.tui.app import HudApp
from hud_tui.tui.keys import doable
from hud_tui.tui.screens import palette
from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.jobs import JobsScreen, Level
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.screens.palette import (
    BLOCK,
    HIDDEN,
    IN_RUN,
    MOST,
    PER_SECTION,
    Palette,
    Place,
    Section,
    _row,
    search,
)
from hud_tui.tui.screens.runs import RunsScreen
from hud_tui.tui.screens.set_head import HistoryPanel
from hud_tui.wire import Job
from tests.conftest import Served, ended, fork, submit
from tests.tui.cockpit import Cockpit, cockpit, grow
from tests.tui.conftest import Connector, caller
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


def test_checkpoints_of_another_model_are_found_with_its_name_only() -> None:
    other = section("checkpoint", ["step-000001", "step-000012"], within="words-RL")
    assert found("step", other) == []
    assert found("12", other) == []
    assert found("words 12", other) == ["step-000012"]
    assert found("rl step", other) == ["step-000001", "step-000012"]


@pytest.mark.parametrize("text", ["42", "sp42", "step 42", "mixed-rl 42", "mixed sp42", "042"])
def test_a_step_is_found_by_its_number(text: str) -> None:
    names = [f"step-{at:06}" for at in range(600, 0, -1)]
    own = Section("checkpoint", lambda at: Place(names[at], nowhere), "mixed-RL", required=False)
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
class Reach:
    """The app, two models and a run of the first."""

    flown: Cockpit
    model_id: str
    other_id: str
    job_id: str

    @property
    def palette(self) -> Palette:
        assert isinstance(self.flown.screen, Palette)
        return self.flown.screen

    @property
    def listed(self) -> list[tuple[str, str]]:
        """Names and kinds, as they are listed."""
        return [(place.name, kind) for place, kind in self.palette.listed]

    async def go(self, text: str, kind: str) -> None:
        """Type a name, and go to the first place of this kind."""
        await self.flown.press("colon")
        await self.flown.until(lambda: isinstance(self.flown.screen, Palette))
        self.palette.field.value = text
        await self.flown.until(lambda: kind in [one for _, one in self.listed])
        for _ in range([one for _, one in self.listed].index(kind)):
            await self.flown.press("down")
        await self.flown.press("enter")


@asynccontextmanager
async def reach(served: Served, view: str = "live") -> AsyncIterator[Reach]:
    async with caller(served) as http:
        model_id = str((await fork(http, "arith rl"))["id"])
        other_id = str((await fork(http, "words rl"))["id"])
        await grow(http, other_id, 3)
        job_id = await submit(http, model_id, steps=5, learning_rate=1e-6)
        await ended(http, job_id)
    async with cockpit(served, Start(view, model=model_id)) as flown:
        await flown.until(lambda: flown.view.run.loaded and len(flown.view.run.tree) == 5)
        yield Reach(flown, model_id, other_id, job_id)


async def test_checkpoints_runs_and_bases_are_gone_to_though_a_filter_hides_them(
    served: Served,
) -> None:
    async with reach(served) as at:
        await at.flown.press("5")
        await at.flown.until_view("runs")
        runs = at.flown.view
        assert isinstance(runs, RunsScreen)
        await at.flown.until(lambda: runs.table.row is not None)
        await at.flown.press("slash", *"nothing", "enter", "4")
        await at.go(at.job_id[:8], "run")
        await at.flown.until_view("runs")
        await at.flown.until(lambda: runs.table.row is not None)
        assert runs.table.row is not None
        assert (runs.table.row.id, runs.filter_field.value) == (at.job_id, "")
        await at.go("000002", "checkpoint")
        await at.flown.until_view("checkpoints")
        view = at.flown.view
        assert isinstance(view, CheckpointsScreen)
        await at.flown.until(lambda: view.selected and view.selected.name == "step-000002")
        await at.go("4", "checkpoint")
        await at.flown.until(lambda: view.selected and view.selected.name == "step-000004")
        await at.go("words 2", "checkpoint")  # of another model, by both names
        await at.flown.until(lambda: view.run.model and view.run.model.id == at.other_id)
        await at.flown.until(lambda: view.selected and view.selected.name == "step-000002")
        await at.flown.press("1")
        await at.flown.until_view("models")
        models = at.flown.view
        assert isinstance(models, ModelsScreen)
        await at.flown.until(lambda: models.rows.rows)
        await at.flown.press("slash", *"arith", "enter", "4")
        await at.flown.until_view("checkpoints")
        await at.go("toy", "model")
        await at.flown.until_dialog()
        assert models.chosen is not None
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
    async with reach(served) as at:
        if older:  # the view lists fewer than there are
            read = HudClient.jobs
            fewer = partialmethod(lambda one, most=1: read(one, most))
            monkeypatch.setattr(HudClient, "jobs", fewer)
        await at.go("reported 1", "job")
        await at.flown.until_view("jobs")
        view = at.flown.view
        assert isinstance(view, JobsScreen)
        await at.flown.until(lambda: view.job is not None and view.job.id == JOB_IDS[0])
        await at.flown.until(lambda: view.level is (Level.TRACES if older else Level.JOBS))


async def test_hostile_names_are_plain_text(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller(served) as http:
        await http.post(
            "/v2/trace/job/00000000-0000-4000-8000-000000000001/enter", json={"name": HOSTILE}
        )
    async with reach(served) as at:
        await at.flown.press("colon")
        await at.flown.until(lambda: isinstance(at.flown.screen, Palette))
        at.palette.field.value = "not markup"
        await at.flown.until(lambda: "job" in [kind for _, kind in at.listed])
        [name] = [row.cells[0].plain for row in at.palette.list.rows if row.cells[1].plain == "job"]
        assert "[red]not markup[/]" in name
        assert name.isprintable()


async def test_tasks_are_gone_to_in_the_groups_and_held_out_ones_in_the_newest_evaluation(
    served: Served,
) -> None:
    async with reach(served) as at:
        run = at.flown.view.run
        slug = run.tree[0].groups[-1].task_slug
        assert slug is not None
        await at.go(slug, "task")
        await at.flown.until_view("live")
        view = at.flown.view
        assert isinstance(view, LiveScreen)
        groups = view.groups
        await at.flown.until(lambda: groups.has_focus and groups.slugs)
        await at.flown.until(lambda: groups.slugs[groups.index] == slug)
        [(position, found)] = run.tree.evaluations()
        heldout = (await at.flown.view.session.evaluations.get(found.id or "")).groups
        slug = heldout[-1].task_slug
        assert slug
        trained = {group.task_slug for node in run.tree for group in node.groups}
        assert slug not in trained
        await at.go(slug, "held-out task")
        await at.flown.until(lambda: isinstance(at.flown.screen, GroupScreen))
        screen = at.flown.screen
        assert isinstance(screen, GroupScreen)
        assert screen.group.task_slug == slug
        assert len(screen.group.rewards) == found.samples == len(screen.group.trace_ids)
        shown = screen.query_one("#group-facts", Static)
        await at.flown.until(lambda: str(run.tree[position].name) in str(shown.render()))


@pytest.mark.parametrize("kind", ["task", "held-out task"])
async def test_a_task_of_a_taskset_is_gone_to_where_its_text_is(served: Served, kind: str) -> None:
    """Also for a model that has no step and no evaluation."""
    async with caller(served) as http:
        model = await fork(http)
    async with cockpit(served, Start("models", model=str(model["id"]))) as flown:
        await flown.until(lambda: flown.view.run.loaded)
        at = Reach(flown, "", "", "")
        tasks = read_rows((await flown.view.session.client.taskset("arith")).tasks)
        slug, other, *_ = [task.slug for task in tasks if task.heldout is (kind != "task")][::-1]
        await at.go(f"arith {slug}", kind)
        await flown.until_view("launch")
        view = flown.view
        assert isinstance(view, LaunchScreen)
        await flown.until(lambda: view.tasks.has_focus and view.place is not None)
        assert view.place is not None
        assert view.draft.source == "arith"
        assert view.draft.tasks[view.place].slug == slug
        await flown.press("slash", *"nothing", "enter", "1")
        await at.go(f"arith {other}", kind)
        await flown.until_view("launch")
        await flown.until(lambda: view.place is not None and view.filter_field.value == "")


async def test_a_taskset_is_gone_to_and_checked(served: Served) -> None:
    async with reach(served) as at:
        await at.go("arith", "taskset")
        await at.flown.until_view("launch")
        view = at.flown.view
        assert isinstance(view, LaunchScreen)
        await at.flown.until(lambda: view.draft.source == "arith" and not view.draft.checking)
        assert view.sources.key == "arith"


async def test_it_says_that_nothing_matches_and_what_is_searched(served: Served) -> None:
    async with reach(served) as at:
        await at.flown.press("colon")
        await at.flown.until(lambda: isinstance(at.flown.screen, Palette))
        at.palette.field.value = "zzzz [b]"
        nothing = at.palette.nothing
        await at.flown.until(lambda: "tasksets and tasks" in str(nothing.render()))
        assert "nothing matches “zzzz [b]”" in str(nothing.render())
        assert nothing.display
        assert not at.palette.list.display
        at.palette.field.value = "arith"
        await at.flown.until(lambda: at.palette.list.display and at.listed)
        assert not nothing.display


def test_a_name_has_the_room_that_no_note_needs() -> None:
    long, note = "a-" * 30, "completed 0a1b2c3d"
    assert _row("k", Place(long, nowhere), "model", 60).cells[0].plain == long
    assert _row("k", Place(long, nowhere, note), "run", 62).cells[0].plain == long
    both = _row("k", Place(long, nowhere, note), "run", 90).cells[0].plain
    assert both == f"{long}{' ' * 12}{note}"
    some = _row("k", Place(long, nowhere, "what it does, which is long"), "action", 76)
    assert some.cells[0].plain == f"{long}  what it does,…"
    keyed = _row("k", Place(long, nowhere, "^s"), "action", 40).cells[0].plain
    assert (len(keyed), keyed[-4:]) == (40, "  ^s")


async def test_kinds_are_listed_and_equal_tasks_are_told_apart(served: Served) -> None:
    async with reach(served) as at:
        await at.flown.press("colon")
        await at.flown.until(lambda: isinstance(at.flown.screen, Palette))
        for text, kind in (("tasksets", "taskset"), ("runs", "run"), ("steps", "checkpoint")):
            at.palette.field.value = text
            await at.flown.until(lambda kind=kind: kind in [one for _, one in at.listed])
            kinds = [one for _, one in at.listed]
            named = [
                place.name.split(":")[0] for place, _ in at.palette.listed[: kinds.index(kind)]
            ]
            assert all(text in name.casefold() for name in named)
            assert not any(name.startswith("Quit") for name in named)
        slug = at.flown.view.run.tree[0].groups[0].task_slug
        assert slug is not None
        at.palette.field.value = slug
        await at.flown.until(lambda: [one for _, one in at.listed].count("task") > 1)
        await at.flown.until(lambda: not at.palette._gathering)
        notes = [place.note for place, kind in at.palette.listed if place.name == slug]
        assert notes[0] == IN_RUN
        assert "of arith" in notes
        assert len(set(notes)) == len(notes)
        [run] = [row for row in at.palette.list.rows if IN_RUN in row.cells[0].plain]
        assert slug in run.cells[0].plain


async def test_actions_of_other_views_are_found_and_done_there(served: Served) -> None:
    async with reach(served) as at:

        async def find(text: str, name: str) -> Place:
            await at.flown.press("colon")
            await at.flown.until(lambda: isinstance(at.flown.screen, Palette))
            assert name not in [place.name for place, _ in at.palette.listed]
            at.palette.field.value = text
            await at.flown.until(lambda: name in [place.name for place, _ in at.palette.listed])
            names = [place.name for place, _ in at.palette.listed]
            for _ in range(names.index(name)):
                await at.flown.press("down")
            return at.palette.listed[names.index(name)][0]

        place = await find("evaluate", "Evaluate · 4 Checkpoints · E")
        assert place.is_dim
        await at.flown.press("enter")
        await at.flown.until_view("checkpoints")
        await at.flown.until(lambda: len(at.flown.app._notifications) > 0)
        said = [one.message for one in at.flown.app._notifications]
        assert any(one.startswith("E  evaluate: ") for one in said)
        assert not at.flown.app.screen.is_modal  # it changes something: its key is told
        await at.flown.press("3")
        await at.flown.until_view("live")
        await find("checkpoints history", "Head history · 4 Checkpoints · V")
        await at.flown.press("enter")
        await at.flown.until(lambda: isinstance(at.flown.screen, HistoryPanel))


async def test_a_model_is_opened_as_enter_in_models_does(served: Served) -> None:
    """One's own is followed in Live, one without steps in Launch; a base asks for a fork's name."""
    async with caller(served) as http:
        fresh = await fork(http, "letters rl")
    async with reach(served, "checkpoints") as at:
        session = at.flown.view.session
        await at.go("words", "model")
        await at.flown.until_view("live")
        await at.flown.until(lambda: session.run.model and session.run.model.id == at.other_id)
        await at.go("letters-rl", "model")
        await at.flown.until_view("launch")
        await at.flown.until(lambda: session.run.model and session.run.model.id == fresh["id"])
        await at.go("toy", "model")
        assert "A copy of toy/four" in await at.flown.until_dialog()
        await at.flown.press("escape")
        await at.flown.until_view("models")


async def test_what_is_listed_can_be_done_and_a_name_typed_at_once_is_gone_to(
    served: Served,
) -> None:
    async with reach(served) as at:
        await at.flown.press("colon")
        await at.flown.until(lambda: isinstance(at.flown.screen, Palette) and at.listed)
        kinds = list(dict.fromkeys(kind for _, kind in at.listed))
        assert kinds == ["view", "action", "theme"]
        assert len(at.listed) < MOST
        await at.flown.press("escape")
        await at.flown.until_view("live")
        for view in ("models", "launch", "live", "checkpoints", "runs", "jobs"):
            await at.flown.app.switch_mode(view)
            await at.flown.until_view(view)
            await at.flown.until(lambda: at.flown.screen.is_mounted)
            listed = [one for one in doable(at.flown.screen) if one.action.name not in HIDDEN]
            assert len(listed) > 10
            for one in listed:  # by the name of a method that the screen, or the app, has
                name, _, _ = one.action.name.partition("(")
                owner, _, method = name.rpartition(".")
                where = at.flown.app if owner == "app" else one.where
                assert callable(getattr(where, f"action_{method}", None)), one.action
        await at.flown.press("colon", *"chec", "enter")  # not to what fewer letters list
        await at.flown.until_view("checkpoints")
        await at.flown.press("colon", *"theme light", "enter")
        await at.flown.until(lambda: at.flown.app.theme == "hud-light")


async def test_what_comes_late_leaves_the_cursor_where_it_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reach(served) as at:
        gate: list[Callable[[], None]] = []
        at.flown.net.free = lambda: bool(gate)
        await at.flown.press("colon")
        await at.flown.until(lambda: isinstance(at.flown.screen, Palette))
        at.palette.field.value = "arith"
        await at.flown.until(lambda: ("arith-rl", "model") in at.listed)
        await at.flown.press("down", "down")
        chosen = at.listed[at.palette.list.cursor]
        gate.append(lambda: None)
        await at.flown.until(lambda: "run" in [kind for _, kind in at.listed])
        assert at.listed[at.palette.list.cursor] == chosen


async def test_before_there_is_a_service_it_has_the_actions_alone(served: Served) -> None:
    app = HudApp(Connector(served), None, Start())
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert isinstance(app.screen, Palette)
        assert {row.cells[1].plain for row in app.screen.list.rows} == {"action", "theme"}
        await pilot.press(*"zzzz")
        await pilot.pause()
        said = str(app.screen.nothing.render())
        assert "nothing matches “zzzz”" in said
        assert "once there is a service" in said


async def test_jobs_are_read_once_and_then_only_the_newest(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reach(served) as at:
        asked: list[int] = []
        read = HudClient.jobs

        async def jobs(client: HudClient, limit: int = 200) -> list[Job]:
            asked.append(limit)
            return await read(client, limit)

        monkeypatch.setattr(HudClient, "jobs", jobs)
        for _ in range(2):
            await at.go(at.job_id[:8], "run")
            await at.flown.until_view("runs")
            await at.flown.until(lambda: asked)
        assert asked.count(palette.MOST_JOBS[True]) == 1
        assert palette.NEW_JOBS in asked
