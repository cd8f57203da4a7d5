"""What a run's checkpoints take on disk, in words, before it is agreed to."""

from hud_tui.wire import Model

UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def disk_use(model: Model, steps: int | None) -> str:
    """E.g. ``1.2 GB: 600 checkpoints of 2.1 MB; beyond 10 GB in all (now 83 MB) the oldest are
    thinned``; empty where the service does not say.

    Args:
        model: The one that is trained.
        steps: How many are asked for; None takes the model's own number.
    """
    if steps is None and model.training_defaults is not None:
        steps = model.training_defaults.steps
    disk = model.disk
    if disk is None or steps is None:
        return ""
    most = f"{size(steps * disk.checkpoint_bytes)}: {steps} checkpoints"
    bound = f"beyond {size(disk.max_bytes)} in all (now {size(disk.used_bytes)})"
    return f"{most} of {size(disk.checkpoint_bytes)}; {bound} the oldest are thinned"


def size(count: float) -> str:
    """Bytes to two digits or more, e.g. ``2.1 MB``."""
    for unit, name in UNITS:
        if count >= unit:
            number = count / unit
            return f"{number:.1f} {name}" if number < 9.95 else f"{number:.0f} {name}"
    return f"{count:.0f} bytes"
