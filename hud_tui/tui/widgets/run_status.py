"""RunStatus: how far the run is, and how much to trust what the screen says of it."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.keys import key
from hud_tui.rl.progress import Liveness, State, progress, step_seconds
from hud_tui.rl.run import Run, trouble
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.widgets.top_line import bar, duration

LEAST_BAR = 8
NARROW = 60
"""Cells across below which all is well in few words."""


class RunStatus(Widget):
    """One line; it repaints only when its text changes."""

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), repaint=False
    )
    frozen: reactive[Run | None] = reactive[Run | None](None, repaint=False)
    """What the screen was frozen at; None while it follows."""
    line: reactive[Content] = reactive(Content())
    """What is on the screen."""

    def watch_run(self) -> None:
        self._write()

    def watch_freshness(self) -> None:
        self._write()

    def watch_frozen(self) -> None:
        self._write()

    def on_resize(self) -> None:
        self._write()

    def _write(self) -> None:
        self.line = status_line(self.run, self.freshness, self.frozen, self.size.width)

    def render(self) -> Content:
        return self.line


def status_line(run: Run, freshness: Liveness, frozen: Run | None, width: int) -> Content:
    """The line, `width` cells at most: the job, how far it is, how fresh this is."""
    right = _held(run, frozen) if frozen is not None else trust(run, freshness, width < NARROW)
    right = right.truncate(max(0, width - 20), ellipsis=True)
    room = max(0, width - right.cell_length - 4)
    left = _job(run, named=True)
    going = progress(run)
    if going is not None and going.fraction is not None:
        steps = Content(f"  step {going.step}/{going.steps}  ")
        left_s = going.eta_s if run.training and freshness.state is State.LIVE else None
        after = Content(f"  {going.fraction:.0%}{_left(left_s)}")
        if left.cell_length + steps.cell_length + after.cell_length + LEAST_BAR > room:
            left = _job(run, named=False)
        if left.cell_length + steps.cell_length + after.cell_length > room:
            after = Content(f"  {going.fraction:.0%}")
        wide = min(width // 3, room - left.cell_length - steps.cell_length - after.cell_length)
        middle = bar(going.fraction, wide) if wide >= LEAST_BAR else Content()
        left = Content.assemble(left, steps, middle, after)
    left = left.truncate(room, ellipsis=True)
    return Content.assemble(" ", left, " " * (room + 2 - left.cell_length), right, " ")


def _left(eta_s: float | None) -> str:
    return f"  {duration(eta_s)} left" if eta_s is not None else ""


def trust(run: Run, freshness: Liveness, brief: bool = False) -> Content:
    """Where the news comes from and how old they are; that something is wrong where it is."""
    if run.waits and freshness.state in (State.LIVE, State.STALLED):
        return Content.styled(f"⚠ waits: {one_line(run.waits, 100)}", "bold $warning")
    age = duration(freshness.age_s) if freshness.age_s is not None else "never"
    match freshness.state:
        case State.CONNECTING:
            return Content.styled("… connecting", "$text-muted")
        case State.LIVE if freshness.behind_s:
            text = f"⚠ {freshness.source}, {duration(freshness.behind_s)} behind"
            return Content.styled(text, "bold $warning")
        case State.LIVE:
            heard = f"↻ {age}" if brief else f"↻ {freshness.source}, heard {age} ago"
            text = f"↻ {freshness.arriving}" if freshness.arriving else heard
            return Content.styled(text, "$text-muted")
        case State.STALLED:
            usual = step_seconds(run)
            pace = f", usual step {usual:.1f} s" if usual is not None else ""
            return Content.styled(f"⚠ stalled: no event for {age}{pace}", "bold $warning")
        case State.RECONNECTING:
            said = freshness.advice or f"reconnecting in {duration(freshness.retry_s or 0)}"
            return Content.styled(f"⚠ {said}", "bold $warning")


def _held(run: Run, frozen: Run) -> Content:
    steps = run.series.length - frozen.series.length
    late = f" · {steps} steps behind" if steps > 0 else ""
    if frozen.head is not None and run.tree.find(frozen.head.id) is not None:
        left = not run.tree.is_ancestor(run.tree.find(frozen.head.id) or 0, run.tree.head)
        late = f" · now at {one_line(label(run.head), 24)}" if left else late
    at = one_line(label(frozen.head), 24)
    return Content.styled(f"⏸ frozen at {at}{late} · {key('live.freeze')} follows", "bold $warning")


def _no_job(run: Run) -> str:
    if run.model is not None and not run.loaded:
        return "reading the run …"
    loop = run.head is not None and run.head.job_id is None
    return "trained by a loop" if loop else "no run under way"


def _job(run: Run, named: bool) -> Content:
    job = run.job
    if job is None:
        return Content.styled(_no_job(run), "$text-muted")
    name = one_line(job.name, 32) if job.name else f"job {one_line(job.id or '', 8)}".strip()
    failed = "bold $error" if trouble(job) else "bold"
    return Content.assemble(
        (f"{name} " if named else "", "$text-muted"),
        ("waits", "bold $warning") if run.waits else (one_line(job.status, 20), failed),
    )
