"""Where a run stores its checkpoints, and how much they take: shown before it is submitted."""

from urllib.parse import urlsplit

from hud_tui.rl.cost import RunSize, tokens_text
from hud_tui.rl.findings import Finding
from hud_tui.rl.text import counted, one_line, size
from hud_tui.wire import Model

AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Units of time with their seconds, longest first."""


def engine_place(model: Model | None) -> str:
    """Where a model is sampled and trained, e.g. ``tinker @ trainer:8000``; empty if that is this
    machine or unknown."""
    state = model.engine if model is not None else None
    if state is None or state.server is None:
        return ""
    if state.place:
        return f"{one_line(state.engine, 20)} @ {one_line(state.place, 60)}"
    parts = urlsplit(state.server if "//" in state.server else f"//{state.server}")
    host = parts.netloc.rpartition("@")[2]  # without user and password
    return f"{one_line(state.engine, 20)} @ {one_line(host, 40)}"


def retention_text(ttl_s: int | None) -> str:
    """How long a server keeps a checkpoint, e.g. ``for 7 d``."""
    if ttl_s is None:
        return "until deleted"
    for length, unit in AGES:
        if ttl_s % length == 0:
            return f"for {ttl_s // length} {unit}"
    return f"for {ttl_s} s"


def where_stored(
    model: Model, steps: int | None, size: RunSize | None = None
) -> list[tuple[str, str]]:
    """What a run sends to a server and stores there, or stores on this disk: labels and texts.
    `size`: of a run whose tokens are to be told, too."""
    place, state = engine_place(model), model.engine
    if not place or state is None:
        use = disk_use(model, steps)
        return [("disk", use)] if use else []
    facts = [("server", f"{place}: receives prompts, completions and weights; may cost money")]
    if size is not None and size.max_tokens is not None:
        most = size.max_tokens
        amount = None if state.prices is None else size.dollars(state.prices, 0, most)
        text = tokens_text(size.sampled * most, size.rollouts * most, amount)
        facts.append(("tokens", text))
    count = _steps(model, steps)
    if state.saves_per_step and count is not None:
        saved = counted(count * state.saves_per_step, "checkpoint")
        left = f"{saved} on the server, kept {retention_text(state.ttl_s)}"
        facts.append(("stored", f"{left}; the tree, metrics and rollouts on this machine"))
    return facts


def disk_use(model: Model, steps: int | None) -> str:
    """E.g. ``1.2 GB: 600 checkpoints of 2.1 MB; beyond 10 GB in total (now 83 MB) the oldest are
    thinned out``; empty if the service does not report disk space.

    Args:
        steps: Steps of the run; None for the model's default.
    """
    disk, steps = model.disk, _steps(model, steps)
    if disk is None or steps is None:
        return ""
    most = f"{size(steps * disk.checkpoint_bytes)}: {counted(steps, 'checkpoint')}"
    bound = f"beyond {size(disk.max_bytes)} in total (now {size(disk.used_bytes)})"
    return f"{most} of {size(disk.checkpoint_bytes)}; {bound} the oldest are thinned out"


def check_room(model: Model, steps: int | None) -> list[Finding]:
    """A finding on whether a run fits on the disk; empty if the service does not report disk
    space."""
    disk, made = model.disk, _steps(model, steps)
    if disk is None or disk.free_bytes is None or made is None:
        return []
    free = size(disk.free_bytes)
    grows = max(disk.max_bytes - disk.used_bytes, disk.checkpoint_bytes)  # the rest is thinned out
    if disk.free_bytes >= min(made * disk.checkpoint_bytes, grows):
        return [Finding("disk", "ok", f"enough space for its checkpoints: {free} free")]
    fits = disk.free_bytes // disk.checkpoint_bytes
    message = f"the disk has room for at most {fits} of {made} checkpoints: {free} free"
    fix = "free disk space, use fewer steps, or serve with a lower --max-disk"
    return [Finding("disk", "warning" if fits else "failure", message, fix=fix)]


def _steps(model: Model, steps: int | None) -> int | None:
    if steps is None and model.training_defaults is not None:
        return model.training_defaults.steps
    return steps
