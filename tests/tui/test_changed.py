"""What changed, by one key: at a step or between two in Live, between two runs, and what then."""

from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.evaluate import EvaluateDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import Picker
from tests.conftest import Served, caller, ended, fork, submit
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import trained
from tests.tui.stage import staged
from tests.tui.test_evaluating import text


def said(flown: Cockpit) -> str:
    return text(flown, "#compare-said")


async def test_a_step_in_live_is_explained_without_an_evaluation(served: Served) -> None:
    model_id, _ = await trained(served, 3, heldout_every=1, tasks_per_step=96, group_size=2)
    async with cockpit(served, Start("status", model=model_id)) as flown:
        await flown.until(lambda: flown.run.series.length == 3)
        panel = await flown.open(ComparePanel, "left", "B")
        assert panel.heading == "A step-000001   B step-000002"
        assert "36 tasks × 1" in said(flown)
        assert "Sampled from A step-000001 (36 rollouts, in training)" in said(flown)
        assert "96 tasks × 2" in said(flown)
        await flown.pilot.resize_terminal(80, 24)
        panel.sentences.update("\n".join("abcdefghijk"))  # as many lines as two runs need
        await flown.until(lambda: panel.sentences.size.height == 11)
        assert panel.tasks.size.height > 2
        keys = [row.key for row in panel.tasks.rows if not row.heading]
        assert len([key for key in keys if key.startswith("training ")]) == 96
        panel.tasks.select(next(key for key in keys if key.startswith("training ")))
        group = await flown.open(GroupScreen, "enter")
        assert group.step.sides == (("A step-000001", 2), ("B step-000002", 2))
        rewards = [answer.reward for answer in group.columns.answers]
        assert [rewards[0] >= rewards[2], rewards[1] >= rewards[3]] == [True, True]
        assert "not trained on" not in flown.drawn
        await flown.until(lambda: all(answer.text for answer in group.columns.answers))
        reader = await flown.open(RolloutScreen, "c")
        await flown.until(lambda: reader.view.blocks)
        sides = [side.name.partition(",")[0] for side in reader.view.sides]
        assert sides == ["A step-000001", "B step-000002"]
        assert "advantage" not in reader.view.plain
        await flown.press("escape", "escape")
        await flown.until_screen(ComparePanel)
        reader = await flown.open(RolloutScreen, "c")
        await flown.until(lambda: len(reader.view.sides) == 2 and reader.view.blocks)
        assert reader.beside is not None
        await flown.press("escape")
        await flown.until_screen(ComparePanel)
        batch = await panel._opened(next(key for key in keys if key.startswith("step ")))
        assert batch is not None
        assert (batch.name, len(batch.groups)) == ("step-000002", 96)
        assert not [sent for sent in flown.net.sent if not sent.startswith("GET")]
        await flown.press("E")
        dialog = await flown.until_screen(EvaluateDialog)
        await flown.until(lambda: "rollouts" in text(flown, "#dialog-problem"))
        picker = dialog.query_one("#evaluate-of", Picker)
        assert picker.value == "A step-000001 and B step-000002"


async def test_a_marked_step_is_compared_with_another() -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        live = stage.live
        assert isinstance(live, LiveScreen)
        await pilot.press("home", "m", "end")
        assert live._pair() == (-1, 28), "the rewards of steps 1 and 30"
        assert "A marked" in "\n".join(
            strip.text for strip in stage.screen._compositor.render_strips()
        )
        await pilot.press("left", "left", "m")
        assert live._pair() == (26, 27), "the marked one itself: what it changed"
        await pilot.press("m")
        assert live.marked is None


async def test_two_runs_are_explained_by_their_last_checkpoints(served: Served) -> None:
    async with caller(served) as http:
        jobs = []
        for name, rate in (("one", 1e-6), ("other", 3e-6)):
            model_id = str((await fork(http, name))["id"])
            jobs.append(await submit(http, model_id, steps=2, learning_rate=rate))
            assert (await ended(http, jobs[-1]))["status"] == "succeeded"
    async with cockpit(served, Start("models")) as flown:
        await flown.press("5", then="runs")
        view = flown.view
        await flown.until(lambda: len(view.rows or ()) == 2)
        await flown.until_notice("Mark two runs to see what changed", "B")
        panel = await flown.open(ComparePanel, "end", "space", "up", "B")
        assert panel.heading == "A one step-000002   B other step-000002"
        assert "36 tasks × 1" in said(flown)
        assert "evaluate both" not in flown.drawn, "they are of two models"
        assert said(flown).startswith(
            "They are of different models. Their runs differ in model one →"
        )
        await flown.until(lambda: "learning rate" in panel.pane.plain)
