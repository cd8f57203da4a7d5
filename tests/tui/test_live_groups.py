"""The groups of a run: by reward, step by step, by waste, and one of them read in full."""

from asyncio import Event
from dataclasses import replace

from textual.widgets import Static

from hud_tui.errors import HudUnreachable
from hud_tui.events import TreeRead
from hud_tui.rl.run import Run
from hud_tui.tui.screens.dialogs import HelpScreen
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.theme import ALL_FAILED, ALL_SOLVED
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.rollout_columns import GAP, answers
from hud_tui.tui.widgets.run_status import EventLog
from hud_tui.wire import Group
from hud_tui.wire_rollouts import CheckpointTrace
from hud_tui.wire_training import TraceEvents
from tests.conftest import until
from tests.tui import runs
from tests.tui.conftest import helped
from tests.tui.stage import Stage, staged
from tests.tui.still import StillClient
from tests.tui.test_live import text_of


def readout_of(stage: Stage) -> str:
    chart = stage.live.query_one(FocusChart)
    return chart.heading(chart.width).text


def groups_of(stage: Stage) -> GroupGrid:
    return stage.live.query_one(GroupGrid)


async def opened(stage: Stage) -> GroupScreen:
    """The group that opens, once every rollout is read."""
    await until(lambda: isinstance(stage.screen, GroupScreen) and stage.screen.is_mounted)
    screen = stage.screen
    assert isinstance(screen, GroupScreen)
    await until(lambda: all(answer.text is not None for answer in screen.columns.answers))
    return screen


async def test_groups_without_gradient_are_a_texture_step_by_step() -> None:
    async with staged(runs.run_of(60), size=(120, 50)) as (stage, pilot):
        await pilot.press("tab", "v")
        grid = groups_of(stage)
        assert grid.face is Face.STRIP
        lines = text_of(grid).splitlines()
        assert lines[2][1:61] == lines[2][1] * 3 + ALL_SOLVED * 57  # upper-05, from step 4 on
        assert any(line[1:61] == ALL_FAILED * 60 for line in lines)
        assert "step-000001 … step-000060" in text_of(grid)
        await pilot.press("shift+left")
        assert lines[1].strip() == ""
        assert text_of(grid).splitlines()[1].index("▼") == 51


async def test_the_strip_shows_groups_step_by_step_and_is_clicked() -> None:
    async with staged(runs.run_of(60)) as (stage, pilot):
        await pilot.press("tab", "v")
        await pilot.click(GroupGrid, offset=(21, 4))
        await until(lambda: stage.live.cursor == 20)
        await pilot.press("enter")
        assert groups_of(stage).face is Face.REWARDS
        assert "step-000021" in text_of(groups_of(stage))

        await pilot.press("escape", "escape", "shift+tab")
        await until(lambda: stage.focused is stage.live.metrics)
        small = stage.live.metrics.size.height
        await pilot.press("enter")
        await until(lambda: stage.live.metrics.size.height > small)
        await pilot.press("tab")
        await until(lambda: groups_of(stage).size.height > 30)
        assert not stage.live.query_one(FocusChart).display
        await pilot.press("tab")
        await until(lambda: stage.live.query_one(EventLog).size.height > 30)
        await pilot.press("left", "escape")
        await until(lambda: stage.live.metrics.size.height == small)
        assert stage.live.cursor is not None
        await pilot.press("escape")
        assert stage.live.cursor is None


async def test_a_long_strip_puts_many_steps_into_a_column_and_says_so() -> None:
    run = runs.with_metrics({"reward_mean": [0.5] * 10_000})
    async with staged(run) as (stage, pilot):
        await pilot.press("tab", "v")
        grid = groups_of(stage)
        assert "a column is 100 steps, of which the last is drawn" in str(grid.title(116))
        assert "step-000001 … step-010000" in text_of(grid)
        await pilot.press("home")
        await until(lambda: "▼ step-000001" in text_of(grid))
        await pilot.click(GroupGrid, offset=(1 + 41, 1))
        await until(lambda: stage.live.cursor == 4199)
        assert text_of(grid).splitlines()[1].index("▼ step-004200") == 42
        assert "step-004200" in readout_of(stage)
        await pilot.press("left")
        await until(lambda: "▼ step-004199" in text_of(grid))
        assert text_of(grid).splitlines()[1].index("▼") == 42
        await pilot.press("end", "left")
        await until(lambda: "▼ step-010000" in text_of(grid))


async def test_the_strip_names_the_step_under_the_crosshair_and_shows_those_of_the_charts() -> None:
    async with staged(runs.run_of(112)) as (stage, pilot):
        await pilot.press("tab", "v", "left")
        await until(lambda: " step-000112 ▼" in text_of(groups_of(stage)))
        assert text_of(groups_of(stage)).splitlines()[1].index("▼") == 112
        stage.play(runs.run_of(300))
        await pilot.resize_terminal(80, 24)
        await pilot.press("home", "plus", "plus")
        await until(lambda: "step-000001 … step-000075" in text_of(groups_of(stage)))
        assert "colour: mean · height: std · ═ ┄ no signal" in text_of(groups_of(stage))
        assert "a column" not in groups_of(stage).title(80)
        await pilot.press("ctrl+right")
        await until(lambda: "step-000038 … step-000112" in text_of(groups_of(stage)))


async def test_waste_is_summed_up_worst_task_first() -> None:
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("enter", "tab", "v", "v")
        grid = groups_of(stage)
        for size in ((80, 24), (120, 40), (40, 12)):
            await pilot.resize_terminal(*size)
            await until(lambda size=size: grid.width <= size[0] and "mul-02" in text_of(grid))
            await pilot.pause()
            text = text_of(grid)
            if size[0] >= 80:
                assert "no gradient from 32 % of 5.8k rollouts, 32 % of 29k tokens" in text
                assert "480 of 480" in text
                assert f"{ALL_SOLVED} solved  {ALL_FAILED} failed" in text
            assert text.index("mul-02") < text.index("upper-05") < text.index("add-00")
            assert all(strip.cell_length == grid.size.width for strip in grid.shown)
        await pilot.resize_terminal(120, 40)
        await pilot.press("home")  # of the steps up to the crosshair
        await until(lambda: "of 96 rollouts" in text_of(grid))


async def test_enter_opens_a_group_with_its_task_and_rollouts_best_first() -> None:
    async with staged(runs.run_of(60)) as (stage, pilot):
        await pilot.press("shift+left", "enter")
        await until(lambda: stage.focused is groups_of(stage))
        await pilot.press("down", "down", "enter")
        screen = await opened(stage)
        assert "count-01  step-000051  .719 ± .195" in facts_of(screen)
        assert "count 01 = ?" in str(screen.query_one("#group-prompt").render())
        shown = text_of(screen.columns)
        rewards = [answer.reward for answer in screen.columns.answers]
        assert rewards == sorted(rewards, reverse=True)
        assert "8 rollouts, best first ━" in shown  # none is out of sight
        numbers = [answer.number for answer in screen.columns.answers]
        assert all(f" {n} " in shown or f"▸{n} " in shown for n in numbers)
        assert len(numbers) == 8
        assert "reward 1" in shown
        assert "advantage +.281" in shown
        assert "I think it is 13." in shown


async def test_every_key_of_a_group_works() -> None:
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await opened(stage)
        columns = screen.columns
        await pilot.press("right", "l", "right", "left", "h")
        assert columns.picked == 1
        place = next(at for at, one in enumerate(columns.answers) if one.number == 6)
        await pilot.press(*["right"] * (place - 1), "y")
        assert columns.picked == place
        assert stage.clipboard.startswith("The answer is ␛[1m")
        assert "␛ removed ×1" in text_of(columns)
        await pilot.press("down", "j", "up", "k", "pagedown", "ctrl+d", "pageup", "ctrl+u")
        await pilot.press("right_parenthesis")
        await until(lambda: "add-06" in facts_of(screen))
        assert columns.picked == 0
        await pilot.press("left_parenthesis", "left_parenthesis")
        await until(lambda: "add-00" in facts_of(screen))
        assert all(strip.cell_length == columns.size.width for strip in columns.shown)
        await pilot.press("question_mark", "escape", "escape")
        await until(lambda: stage.screen is stage.live)


async def test_rollouts_too_long_for_one_another_go_by_in_one_row() -> None:
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("shift+left", "tab", "down", "down", "enter")
        columns = (await opened(stage)).columns
        short = columns.answers
        assert "1–4 shown" in text_of(columns)
        await pilot.click(columns, offset=(columns.cell + GAP, 2 + columns.tall))
        assert columns.picked == 3
        columns.answers = [replace(one, text="many words " * 40) for one in short]
        await until(lambda: "shown" in text_of(columns))
        assert columns.banks == 1
        assert "3–4 shown" in text_of(columns)
        await pilot.press("left", "left")
        await until(lambda: "1–2 shown" in text_of(columns))


async def test_the_keys_of_a_group_are_listed_over_it_and_done() -> None:
    async with staged(runs.run_of(60), size=(80, 24), notifications=True) as (stage, pilot):
        await pilot.press("tab", "enter")
        group = await opened(stage)
        assert "? help" in str(group.query_one("#group-foot").render())
        for keys in (["escape"], [*"next rollout", "enter"]):
            await pilot.press("question_mark")
            await until(lambda: isinstance(stage.screen, HelpScreen) and stage.screen.is_mounted)
            listed = "\n".join(helped(stage.screen))
            assert "The step's next group." in listed
            assert "Watch the run." not in listed
            await pilot.press(*keys)
            await until(lambda: stage.screen is group)
        await until(lambda: group.columns.picked == 1)
        await pilot.press("left_parenthesis", "left_parenthesis")
        said = [notice.message for notice in stage._notifications]
        assert said == ["This is the first group of the step."]


async def test_a_zero_variance_group_says_that_it_gave_no_gradient() -> None:
    async with staged(runs.run_of(60)) as (stage, pilot):
        await pilot.press("tab", "o", *["down"] * 4, "enter")
        screen = await opened(stage)
        assert "all failed: every advantage is 0" in facts_of(screen)
        assert "advantage 0" in text_of(screen.columns)


class Refusing(StillClient):
    async def trace_events(self, trace_id: str) -> TraceEvents:
        raise HudUnreachable("no answer \x1b[31m", "")


async def test_a_rollout_that_cannot_be_read_says_so() -> None:
    async with staged(runs.run_of(60), client=Refusing()) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await opened(stage)
        assert "Cannot be read: no" in text_of(screen.columns)
        await pilot.press("escape")


class Listing(StillClient):
    """A service whose checkpoints do not name their traces, but list them when asked."""

    asked = 0

    async def checkpoint_traces(self, model_id: str, checkpoint_id: str) -> list[CheckpointTrace]:
        self.asked += 1
        step = int(checkpoint_id.removeprefix("c"))
        return [
            CheckpointTrace(
                trace_id=f"{step}/{task}/{rollout}",
                reward=reward if task else 0.123,
                task_slug=runs.slug(task),
                rollout=rollout,
            )
            for task in range(12)
            for rollout, reward in reversed([*enumerate(runs.rewards(step, task, 8))])
        ]


def unnamed(run: Run) -> Run:
    nodes = [
        node.model_copy(
            update={"groups": [g.model_copy(update={"trace_ids": []}) for g in node.groups]}
        )
        for node in run.tree
    ]
    return Run(model=runs.MODEL).fold(TreeRead(checkpoints=tuple(nodes)))


async def test_traces_are_asked_for_where_the_checkpoint_does_not_name_them() -> None:
    client = Listing()
    async with staged(unnamed(runs.run_of(60)), client=client) as (stage, pilot):
        await pilot.press("tab", "down", "enter")
        screen = await opened(stage)
        assert "add-06" in facts_of(screen)
        for one in screen.columns.answers:
            step, task, rollout = map(int, str(one.trace_id).split("/"))
            assert (step, task, rollout + 1) == (60, 6, one.number)
            assert one.reward == runs.rewards(60, 6, 8)[rollout]
        await pilot.press("left_parenthesis")  # whose listed rewards are others
        await until(lambda: "The service does not say" in text_of(screen.columns))
        assert client.asked == 1


async def test_a_rollout_of_a_group_is_read_alone_or_beside_another() -> None:
    async with staged(runs.run_of(5)) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await opened(stage)
        await pilot.press("right", "enter")
        await until(lambda: isinstance(stage.screen, RolloutScreen))
        reader = stage.screen
        assert isinstance(reader, RolloutScreen)
        assert reader.trace_id == screen.columns.answers[1].trace_id
        await until(lambda: reader.transcript is not None)
        assert "advantage" in reader.view.plain
        await pilot.press("right", "escape")
        await until(lambda: stage.screen is screen)
        shown = screen.columns.answers[screen.columns.picked].trace_id
        assert shown == reader.trace_id
        await pilot.press("c")
        await until(lambda: getattr(stage.screen, "beside", None) is not None)


async def test_a_replay_has_nothing_to_read() -> None:
    async with staged(runs.run_of(5)) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await opened(stage)
        screen.client = None
        await pilot.press("enter", "c")
        assert stage.screen is screen


async def group_screen(stage: Stage) -> GroupScreen:
    await until(lambda: isinstance(stage.screen, GroupScreen) and bool(stage.screen.focused))
    screen = stage.screen
    assert isinstance(screen, GroupScreen)
    return screen


def facts_of(screen: GroupScreen) -> str:
    return str(screen.query_one("#group-facts").render())


async def test_a_group_that_is_sampled_is_read_as_its_rollouts_come() -> None:
    before = runs.run_of(5)
    async with staged(runs.sampling(before, 3)) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await opened(stage)
        assert "add-00  step 6" in facts_of(screen)
        assert len(screen.columns.answers) == 3
        picked = screen.columns.answers[2].number
        await pilot.press("right", "right")
        stage.play(runs.sampling(before, 20))
        await until(lambda: len(screen.columns.answers) == 8)
        assert screen.columns.answers[screen.columns.picked].number == picked
        await opened(stage)
        assert "6/0/7" in {answer.trace_id for answer in screen.columns.answers}
        stage.play(runs.run_of(6))
        await until(lambda: "add-00  step-000006" in facts_of(screen))
        await stage.show(runs.sampling(runs.run_of(6), 20))
        assert "add-00  step-000006" in facts_of(screen)


async def test_a_task_of_the_step_that_is_sampled_is_no_other_step_s() -> None:
    async with staged(runs.sampling(runs.run_of(5), 20)) as (stage, pilot):
        await pilot.press("tab", "o", *["down"] * 8, "enter")
        screen = await group_screen(stage)
        assert "step 6  no rollouts yet" in facts_of(screen)
        await pilot.press("y", "right", "escape")


async def test_rewards_without_rollouts_are_shown_alone() -> None:
    run = replace(runs.sampling(runs.run_of(5), 20), rollout_ids={})
    async with staged(run) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await group_screen(stage)
        assert "The service does not say" in text_of(screen.columns)


async def test_a_cursor_that_was_moved_stays_in_its_step() -> None:
    async with staged(runs.run_of(5)) as (stage, pilot):
        await pilot.press("tab")
        await until(lambda: stage.focused is groups_of(stage))
        for newest, move, again in ((6, "down", "escape"), (8, "up", "end"), (10, "down", "tab")):
            stage.play(runs.run_of(newest))
            await until(lambda n=newest: f"step-{n:06}" in text_of(groups_of(stage)))
            await pilot.press(move)
            stage.play(runs.run_of(newest + 1))
            await until(lambda: groups_of(stage).run is stage.scene)
            pinned = f"step-{newest:06} · pinned, esc unpins"
            assert pinned in text_of(groups_of(stage))
            await pilot.press("enter")
            screen = await opened(stage)
            assert f"  step-{newest:06}" in facts_of(screen)
            await pilot.press("escape", again)
            await until(lambda n=newest + 1: f"step-{n:06}" in text_of(groups_of(stage)))


async def test_a_step_that_is_sampled_is_pinned_until_it_is_given_up() -> None:
    before = runs.run_of(5)
    async with staged(runs.sampling(before, 20)) as (stage, pilot):
        await pilot.press("tab", "down")
        await until(lambda: "step 6 · pinned" in text_of(groups_of(stage)))
        stage.play(runs.sampling(runs.run_of(6), 20))
        await until(lambda: "step-000006 · pinned" in text_of(groups_of(stage)))
        await pilot.press("escape", "down")
        await until(lambda: "step 7 · pinned" in text_of(groups_of(stage)))
        stage.play(runs.run_of(6, status="cancelled"))
        await until(lambda: "step-000006 · 12 groups" in text_of(groups_of(stage)))


async def test_the_waste_of_a_task_opens_its_last_group() -> None:
    *nodes, last = runs.checkpoints(60)
    last = last.model_copy(update={"groups": last.groups[:2]})
    run = Run(model=runs.MODEL).fold(TreeRead(checkpoints=(*nodes, last)))
    async with staged(run) as (stage, pilot):
        await pilot.press("tab", "v", "v", "enter")
        assert "mul-02  step-000059" in facts_of(await opened(stage))


def test_rollouts_without_ids_are_not_told_by_the_wrong_ones() -> None:
    found = answers(Group(task_slug="a", rewards=[0.0, 1.0], trace_ids=["only-one"]))
    assert [(one.number, one.reward, one.trace_id) for one in found] == [
        (2, 1.0, None),
        (1, 0.0, None),
    ]
    assert [one.advantage for one in found] == [0.5, -0.5]


class Silent(Listing):
    """A service that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = Event()

    async def checkpoint_traces(self, model_id: str, checkpoint_id: str) -> list[CheckpointTrace]:
        await self.answers.wait()
        return await super().checkpoint_traces(model_id, checkpoint_id)


async def test_a_group_that_is_read_says_so_until_it_is() -> None:
    client = Silent()
    async with staged(unnamed(runs.run_of(60)), client=client) as (stage, pilot):
        await pilot.press("tab", "enter")
        screen = await group_screen(stage)
        prompt = screen.query_one("#group-prompt", Static)
        await until(lambda: "reading …" in text_of(screen.columns))
        assert "does not say" not in text_of(screen.columns), "nobody has asked yet"
        assert str(prompt.render()) == "reading 8 rollouts …"
        client.answers.set()
        await until(lambda: "does not say" in text_of(screen.columns))
        assert "reading" not in f"{prompt.render()}{text_of(screen.columns)}"
