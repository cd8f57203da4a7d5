"""Where a model lives: its engine and server, what the queue does, and how long all is kept."""

from textual.content import Content

from hud_tui.rl.counts import counted
from hud_tui.rl.disk import kept_for
from hud_tui.rl.text import one_line
from hud_tui.wire import EngineState, Model


def engine_line(model: Model | None) -> Content:
    """One line about a model on a server; empty for one on this machine."""
    state = model.engine if model is not None else None
    if state is None or state.server is None:
        return Content()
    server = f"{one_line(state.engine, 20)} on {one_line(state.server, 60)}"
    return Content.assemble(
        (server, "$text-muted"),
        (" · ", "$text-muted"),
        _queue(state),
        (f" · {_slots(state.slots)} · checkpoints kept {kept_for(state.ttl_s)}", "$text-muted"),
    )


def _queue(state: EngineState) -> Content:
    if state.queue == "active":
        return Content.styled("queue active", "$text-muted")
    return Content.styled(f"⚠ {one_line(state.queue, 100)}", "bold $warning")


def _slots(count: int) -> str:
    return f"{counted(count, 'adapter slot')} in use"
