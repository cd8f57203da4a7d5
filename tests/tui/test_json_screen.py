"""The JSON viewer: folded, searched, copied from, and left."""

from textual.content import Content

from hud_tui.rl.json_tree import Line
from hud_tui.settings import Start
from hud_tui.tui.screens.json import JsonScreen, JsonView, content_of
from tests.conftest import Served, fork, submit
from tests.conftest import ended as run_ended
from tests.tui.conftest import Connector, Opened, caller, forked, opened


def screen(app: Opened) -> JsonScreen:
    shown = app.app.screen
    assert isinstance(shown, JsonScreen)
    return shown


def view(app: Opened) -> JsonView:
    return screen(app).query_one(JsonView)


def keys(app: Opened) -> list[object]:
    return [line.path[-1] for line in view(app).tree_of.lines]


def path(app: Opened) -> str:
    return str(screen(app).query_one("#json-path").render()).strip()


async def test_a_job_s_status_is_folded_searched_and_copied(served: Served) -> None:
    async with caller(served) as http:
        model = await fork(http, "arith rl")
        job_id = await submit(http, model["id"], steps=2, group_size=2)
        await run_ended(http, job_id)
    start = Start("status", ref=job_id, verbose=True)
    async with opened(Connector(served), start) as app:
        await app.until_screen(JsonScreen)
        assert keys(app) == ["job", "model", "checkpoints"]
        assert job_id in str(screen(app).query_one("#json-title").render())
        await app.press("enter")
        assert "trained_tokens" in keys(app)
        assert "estimated_finish" in keys(app)
        await app.press("left")
        assert keys(app) == ["job", "model", "checkpoints"]
        await app.press("/", *"loss_fn", "enter")
        await app.until(lambda: path(app) == "job.parameters.loss_fn")
        await app.press("n", "n", "n", "N")
        assert path(app) == "checkpoints[0].loss_fn"
        assert "3 of 4 matches" in str(screen(app).query_one("#json-title").render())
        await app.press("y")
        assert app.app.clipboard == "checkpoints[0].loss_fn"
        await app.press("Y")
        assert app.app.clipboard == "importance_sampling"
        await app.press("h", "Y")
        assert '"loss_fn": "importance_sampling"' in app.app.clipboard
        await app.press("escape", then="live")


async def test_the_followed_model_is_shown_from_any_view(served: Served) -> None:
    await forked(served, "arith rl")
    async with opened(Connector(served), Start("models", model="arith rl")) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.model is not None)
        await app.open(JsonScreen, "J")
        await app.press("down", "a")
        assert "model_name" in keys(app)
        await app.until_notice("no match for", "/", *"nowhere to be found", "enter")
        await app.press("end", "q", then="models")


def test_what_a_server_says_cannot_act() -> None:
    text = content_of(Line(("a\x1b[2J", "[b]x[/b]"), "\x1b]0;title\x07[red]"))
    assert isinstance(text, Content)
    assert "\x1b" not in text.plain
    assert "[red]" in text.plain
