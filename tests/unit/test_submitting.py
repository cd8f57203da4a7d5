"""What the app's dialog says before a run is submitted."""

from hud_tui.rl.tasks.checks import Finding
from hud_tui.tui.run_draft import what_is_sent
from hud_tui.wire import Disk, Model

DISK = Disk(checkpoint_bytes=2_000_000, used_bytes=0, max_bytes=10**10, free_bytes=15 * 10**6)
EARLIER = Finding("disk", "warning", "room for at most 7 of 600 checkpoints")
OTHER = Finding("slugs", "warning", "used more than once: add-1")


def said(disk: Disk | None, steps: int) -> list[str]:
    model = Model(id="1", model_name="m", disk=disk)
    lines = what_is_sent(model, "arith", [], {"steps": steps}, None, [EARLIER, OTHER])
    return [line.plain for line in lines if line.plain.startswith("⚠")]


def test_room_is_judged_by_the_steps_of_the_form() -> None:
    assert said(DISK, 60) == [f"⚠ {OTHER.message}", _room(60)]
    assert said(DISK, 5) == [f"⚠ {OTHER.message}"]
    assert said(None, 5) == [f"⚠ {EARLIER.message}", f"⚠ {OTHER.message}"]


def _room(steps: int) -> str:
    return f"⚠ the disk has room for at most 7 of {steps} checkpoints: 15 MB free"
