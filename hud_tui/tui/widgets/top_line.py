"""TopLine: where we are, what is happening, how fresh it is.

Parts are dropped from the least important until the rest fits, so nothing is cut in two.
"""

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.keys import key
from hud_tui.rl.alarms.alarm import Level
from hud_tui.rl.disk import engine_place
from hud_tui.rl.metrics import short
from hud_tui.rl.progress import Liveness, State, progress
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.clickable import clicked, does

BAR = 16
"""Cells of the progress bar."""
OWN_STATUS = frozenset({"live"})
"""Views with a line of their own for the job and for how fresh the news are."""
ALARMING = {Level.CRITICAL: "bold $error", Level.WARN: "bold $warning"}
"""Levels that are said here."""
MOST = 10
"""The rank of what is dropped first."""


class TopLine(Widget):
    """One line at the top of every view; it repaints only when its text changes.

    A click on a part goes to the view that has more of it.
    """

    ALLOW_SELECT = False

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), repaint=False
    )
    line: reactive[Content] = reactive(Content())
    """What is on the screen."""

    def __init__(self, view: str, service: str, read_only: bool = False) -> None:
        """
        Args:
            view: The name of the view.
            service: What we are connected to, e.g. ``HUD local``.
            read_only: Whether nothing may be changed there.
        """
        super().__init__()
        self.view, self.service, self.read_only = view, service, read_only
        self.auto_links = False

    def watch_run(self) -> None:
        self._write()

    def watch_freshness(self) -> None:
        self._write()

    def on_resize(self) -> None:
        self._write()

    def _write(self) -> None:
        width = self.size.width
        said = top_line(self.view, self.service, self.run, self.freshness, width, self.read_only)
        self.line = said

    def render(self) -> Content:
        return self.line


def top_line(
    view: str,
    service: str,
    run: Run,
    freshness: Liveness,
    width: int,
    read_only: bool = False,
) -> Content:
    """The line, `width` cells at most; that it is read-only always fits."""
    where = engine_place(run.model) or service
    title = Content.styled(f" {view.capitalize()} ", "bold $background on $primary")
    name = title.stylize(does("app.views"))
    guarded = [(1, Content.styled("read-only", "bold $warning"))] if read_only else []
    left = [(1, name), *guarded, (8, Content.styled(where, "$text-muted")), *_model(run)]
    right = [*_alarms(run), *_job(run, freshness), (2, _fresh(freshness))]
    if run.model is None or view in OWN_STATUS:
        right = _alarms(run)
    for least in range(MOST, 1, -1):
        if _length(left) + _length(right) + 3 <= width:
            break
        left = [part for part in left if part[0] != least]
        right = [part for part in right if part[0] != least]
    gap = " " * max(1, width - _length(left) - _length(right) - 1)
    return Content.assemble(_join(left), gap, _join(right), " ")


Part = tuple[int, Content]
"""(rank, text): of parts that do not fit, the highest rank goes first."""


def _model(run: Run) -> list[Part]:
    if run.model is None:
        return []
    name = Content.styled(one_line(run.model.model_name, 40), "bold")
    parts = [(3, clicked(name, "app.view.models"))]
    if run.loaded:
        head = f"▶ {one_line(label(run.head), 24)}"
        served = Content.assemble((head, "$accent"), (f" {_scored(run)}".rstrip(), "$text-muted"))
        parts.append((4, clicked(served, "app.view.checkpoints")))
    return parts


def _scored(run: Run) -> str:
    """What the head's own weights scored; else what its step was trained on, called that."""
    tree = run.tree
    if tree.head is None:
        return ""
    own, step = tree.own(tree.head), tree[tree.head].mean_reward
    if own.heldout is not None:
        return f"(held-out {short(own.heldout)})"
    if own.reward is not None:
        return f"({short(own.reward)})"
    return "" if step is None else f"(step {short(step)})"


def _alarms(run: Run) -> list[Part]:
    """How many alarms nobody has acknowledged, the worst first, and the key that shows them."""
    loud = run.alarms.loud
    counts = [(level, sum(one.level is level for one in loud)) for level in ALARMING]
    said = [f"{count} {level}" for level, count in counts if count]
    if not said:
        return []
    style = ALARMING[Level.CRITICAL if counts[0][1] else Level.WARN]
    flag = Content.styled(f"⚑ {', '.join(said)} · {key('app.alarms')}", style)
    return [(2, clicked(flag, "app.alarms"))]


def _job(run: Run, freshness: Liveness) -> list[Part]:
    if run.job is None:
        return []
    status = "waits" if run.waits else one_line(run.job.status, 20)
    name = Content.styled(f"job {(run.job.id or '')[:4]} {status}", "$text-muted")
    going = progress(run)
    if going is None or not run.training:
        return [(7, clicked(name, "app.view.jobs"))]
    step = Content(f"step {going.step}/{going.steps or '?'}")
    parts = [(9, clicked(name, "app.view.jobs")), (5, step)]
    if going.fraction is not None:
        parts.append((MOST, bar(going.fraction)))
        parts.append((7, Content(f"{going.fraction:.0%}")))
    if run.waits:
        parts.append((4, Content.styled(f"⚠ {one_line(run.waits, 60)}", "bold $warning")))
    elif going.eta_s is not None and freshness.state is State.LIVE:
        parts.append((6, Content(f"{duration(going.eta_s)} left")))
    return parts


def bar(fraction: float, width: int = BAR) -> Content:
    """A progress bar of half cells."""
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    done = "━" * (halves // 2) + ("╸" if halves % 2 else "")
    return Content.assemble((done, "$accent"), ("─" * (width - len(done)), "$border"))


def _fresh(liveness: Liveness) -> Content:
    text = fresh(liveness)
    calm = liveness.state in (State.LIVE, State.CONNECTING) and not liveness.behind_s
    return Content.styled(text, "$text-muted" if calm else "bold $warning")


def fresh(liveness: Liveness) -> str:
    """Freshness in a few words, e.g. ``↻ stream 3 s``."""
    age = duration(liveness.age_s) if liveness.age_s is not None else ""
    match liveness.state:
        case State.CONNECTING:
            return "… connecting"
        case State.RECONNECTING:
            wait = f", again in {duration(liveness.retry_s)}" if liveness.retry_s else ""
            said = liveness.advice or f"no answer {age}{wait}"
            return f"⚠ {said}".replace("  ", " ")
        case State.STALLED:
            return f"⚠ stalled {age}"
        case State.LIVE if liveness.behind_s:
            return f"⚠ {liveness.source} {duration(liveness.behind_s)} behind"
        case State.LIVE:
            return f"↻ {liveness.arriving or f'{liveness.source} {age}'}"


def duration(seconds: float) -> str:
    """Seconds in a few characters: ``41 s``, ``1m12s``, ``2h05m``, ``3d04h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def _join(parts: Sequence[Part]) -> Content:
    return Content("  ").join(text for _, text in parts)


def _length(parts: Sequence[Part]) -> int:
    return _join(parts).cell_length if parts else 0
