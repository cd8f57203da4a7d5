"""Draft: the run that is being prepared, and what the screen says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from textual.content import Content

from hud_tui.errors import HudBadTasks, HudError
from hud_tui.keys import keyed
from hud_tui.rl.counts import counted
from hud_tui.rl.preflight import Finding, verdict
from hud_tui.rl.progress import like_seconds
from hud_tui.rl.run import Run
from hud_tui.rl.run_form import Cost, Value, cost
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.submitting import about
from hud_tui.tui.trial import Trial
from hud_tui.tui.widgets.findings import worst

WAITING = "submits as soon as the checks pass · {launch.leave} withdraws"
LEADS = {
    "choose": "{^launch.choose} checks the taskset under the cursor; {launch.path} takes a file.",
    "type": "This service lists no tasksets: {launch.path} takes a taskset's name, or a file.",
    "checked": "{^launch.choose} submits the run below; {launch.form} edits it; "
    "{launch.leave} takes another taskset.",
    "replay": "This is a replay: nothing can be checked or launched in it. "
    "{app.view.live} shows its run.",
    "first": "Step 2 of 3: {^launch.choose} checks these tasks against the service.",
    "first checked": "Step 3 of 3: {^launch.choose} submits the run below. "
    "{launch.form} edits it first.",
}


@dataclass(frozen=True)
class Draft:
    """A taskset, what preflight found in it, and whether it is still looking."""

    source: str | None = None
    """A file's path or a taskset's name, as it was chosen; None before."""
    tasks: tuple[Task, ...] = ()
    findings: tuple[Finding, ...] = ()
    checking: bool = False
    taskset_id: str | None = None
    """Of a taskset of the service."""
    trial: Trial = field(default_factory=Trial)
    waiting: bool = False
    """Whether it is to be submitted as soon as the checks have passed."""

    def found(self, finding: Finding) -> Draft:
        """With one more finding."""
        return replace(self, findings=(*self.findings, finding))

    def unread(self, error: HudError) -> Draft:
        """With why the source cannot be read: each problem of its rows is a finding."""
        problems = error.problems if isinstance(error, HudBadTasks) else ()
        said = [str(problem) for problem in problems] or [error.message]
        found = [Finding("rows", "failure", message) for message in said]
        found[-1] = replace(found[-1], fix=error.hint)
        return replace(self, findings=(*self.findings, *found))

    @property
    def chosen(self) -> tuple[Task, ...]:
        """The tasks that are submitted: those that are not left out."""
        return self.trial.chosen(self.tasks)

    @property
    def found_in_all(self) -> tuple[Finding, ...]:
        """What the checks and the trial found."""
        return (*self.findings, *self.trial.findings())

    @property
    def failed(self) -> bool:
        return verdict(self.found_in_all) == "failure"

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.found_in_all if finding.level == "warning"]

    def blocked(self, run: Run, faults: Sequence[str]) -> str:
        """Why it cannot be submitted, in one clean line; empty when it can.

        Args:
            run: The model's.
            faults: Labels of the fields that are wrong.
        """
        if run.model is None:
            return keyed("no model is chosen: {app.view.models} shows them")
        if self.source is None:
            return keyed("choose a taskset: {^launch.choose} checks it")
        if self.checking:
            return "checking …"
        if self.failed:
            problem = worst(self.found_in_all)
            return one_line(f"not submitted: {problem.message if problem else ''}", 300)
        if self.tasks and all(task.heldout for task in self.chosen):
            return keyed(
                "every task to train on is left out: {launch.leave_out} takes one in again"
            )
        return f"correct {', '.join(faults)}" if faults else ""

    def lead(self, first: bool, listed: bool) -> str:
        """What Enter does now, in a line; `listed` is whether there are tasksets to choose."""
        if self.trial.running:
            return self.trial.bar
        ready = self.source is not None and not self.failed
        if first:
            return keyed(LEADS["first checked" if ready else "first"])
        return keyed(LEADS["checked" if ready else "choose" if listed else "type"])

    def cost(self, run: Run, values: Mapping[str, Value]) -> Cost | None:
        """What it costs, at the pace of a run like it, else of the trial."""
        train = {task.slug for task in self.tasks if not task.heldout}
        seen = self.trial.pace
        rollout_s = seen.seconds / seen.rollouts if seen is not None and seen.rollouts else None
        return cost(values, self.chosen, like_seconds(run, values, train), rollout_s)

    def summary(self, run: Run, values: Mapping[str, Value] | None, blocked: str) -> Content:
        """The line above the button: what it will do, or why it cannot."""
        if self.waiting:
            return Content.styled(keyed(WAITING), "$accent")
        if blocked or values is None:
            return Content.styled(blocked, "$warning" if self.source else "")
        busy = "a run trains this model already · " if run.training else ""
        return Content.assemble((busy, "$warning"), *self._size(self.cost(run, values)))

    def _size(self, size: Cost | None) -> list[str | tuple[str, str]]:
        held, out = sum(task.heldout for task in self.chosen), len(self.tasks) - len(self.chosen)
        apart = f" · {held} tasks held out" if held else ""
        apart += f" · {out} left out" if out else ""
        if size is None:
            return [f"{len(self.chosen)} tasks · HUD decides how many rollouts"]
        count = counted(size.rollouts, "rollout")
        return [(count, "bold"), (f"{about(size)}{apart}", "$text-muted")]
