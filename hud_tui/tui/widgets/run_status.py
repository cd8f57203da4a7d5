"""RunStatus: how far the run is, and how much to trust what the screen says of it."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.rl.progress import Liveness, Progress, State, progress, step_seconds
from hud_tui.rl.run import Run, trouble
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.top_line import bar, duration
from hud_tui.wire import JobStatus

LEAST_BAR = 8
NARROW = 60
"""Cells across below which all is well in few words."""


class RunStatus(Widget):
    """One line; it repaints only when its text changes."""

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), repaint=False
    )
    frozen_at: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The step that the screen was frozen at; None while it follows."""
    line: reactive[Content] = reactive(Content())
    """What is on the screen."""

    def watch_run(self) -> None:
        self._write()

    def watch_freshness(self) -> None:
        self._write()

    def watch_frozen_at(self) -> None:
        self._write()

    def on_resize(self) -> None:
        self._write()

    def _write(self) -> None:
        self.line = status_line(self.run, self.freshness, self.frozen_at, self.size.width)

    def render(self) -> Content:
        return self.line


def status_line(run: Run, freshness: Liveness, frozen_at: int | None, width: int) -> Content:
    """The line, `width` cells at most: the job, how far it is, how fresh this is."""
    right = (
        _frozen(run, frozen_at) if frozen_at is not None else trust(run, freshness, width < NARROW)
    )
    right = right.truncate(max(0, width - 20), ellipsis=True)
    room = max(0, width - right.cell_length - 4)
    left = _job(run.job, named=True)
    going = progress(run)
    if going is not None and going.fraction is not None:
        steps = Content(f"  step {going.step}/{going.steps}  ")
        after = Content(f"  {going.fraction:.0%}{_left(run, going)}")
        if left.cell_length + steps.cell_length + after.cell_length + LEAST_BAR > room:
            left = _job(run.job, named=False)
        if left.cell_length + steps.cell_length + after.cell_length > room:
            after = Content(f"  {going.fraction:.0%}")
        wide = min(width // 3, room - left.cell_length - steps.cell_length - after.cell_length)
        middle = bar(going.fraction, wide) if wide >= LEAST_BAR else Content()
        left = Content.assemble(left, steps, middle, after)
    left = left.truncate(room, ellipsis=True)
    return Content.assemble(" ", left, " " * (room + 2 - left.cell_length), right, " ")


def _left(run: Run, going: Progress) -> str:
    return f"  {duration(going.eta_s)} left" if run.training and going.eta_s is not None else ""


def trust(run: Run, freshness: Liveness, brief: bool = False) -> Content:
    """Where the news comes from and how old they are; what is wrong where something is."""
    age = duration(freshness.age_s) if freshness.age_s is not None else "never"
    match freshness.state:
        case State.CONNECTING:
            return Content.styled("… connecting", "$text-muted")
        case State.LIVE:
            text = f"↻ {age}" if brief else f"↻ {freshness.source}, heard {age} ago"
            return Content.styled(text, "$text-muted")
        case State.STALLED:
            usual = step_seconds(run)
            pace = f", usual step {usual:.1f} s" if usual is not None else ""
            return Content.styled(f"⚠ stalled: no event for {age}{pace}", "bold $warning")
        case State.RECONNECTING:
            wait = duration(freshness.retry_s or 0)
            trouble = one_line(freshness.trouble, 80)
            return Content.styled(f"⚠ reconnecting in {wait}: {trouble}", "bold $warning")


def _frozen(run: Run, frozen_at: int) -> Content:
    behind = run.series.length - frozen_at
    late = f" · {behind} steps behind" if behind > 0 else ""
    return Content.styled(f"⏸ frozen at step {frozen_at}{late} · f follows", "bold $warning")


def _job(job: JobStatus | None, named: bool) -> Content:
    if job is None:
        return Content.styled("no run under way", "$text-muted")
    name = one_line(job.name, 32) if job.name else f"job {one_line(job.id or '', 8)}".strip()
    error = trouble(job)
    return Content.assemble(
        (f"{name} " if named else "", "$text-muted"),
        (one_line(job.status, 20), "bold"),
        (f": {one_line(error, 120)}" if error else "", "$error"),
    )
