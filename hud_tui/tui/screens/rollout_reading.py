"""RolloutReading: the keys with which one rollout is read, searched and copied."""

from __future__ import annotations

from textual import work

from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.jobs import job_model_id
from hud_tui.rl.token_shades import Shade
from hud_tui.tui.rollout_copy import FORMS
from hud_tui.tui.screens.dialogs import ChoiceDialog
from hud_tui.tui.screens.jobs_reading import JobsReading
from hud_tui.tui.widgets.jobs_browser import Level
from hud_tui.tui.widgets.rollout_text import Reading
from hud_tui.wire import Forward, Trace

NEXT = {
    Shade.LOGPROB: Shade.RATIO,
    Shade.RATIO: Shade.ADVANTAGE,
    Shade.ADVANTAGE: Shade.LOGPROB,
}

NOT_SEARCHED = "Nothing is searched for: {jobs.filter} begins."
NOT_FOUND = "This rollout does not have the text."


class RolloutReading(JobsReading):
    def __init__(self) -> None:
        super().__init__()
        self.shade = Shade.LOGPROB
        self._now: dict[str, dict[int, list[float]]] = {}
        """Logprobs under the policy of now, by trace and turn; empty while they are asked for."""

    @property
    def reading(self) -> Reading:
        """How the rollout that is shown is read."""
        trace, part = self.trace, self.part
        if trace is None or part is None:
            return Reading(self.shade)
        group = part.group_of(trace)
        own = next((r.advantage for r in group.rollouts if r.trace.id == trace.id), None)
        most = max((abs(r.advantage) for r in group.rollouts if r.advantage is not None), default=0)
        grade = None if self.whole is None else (self.whole.model_extra or {})
        return Reading(
            self.shade,
            own,
            most,
            self._now.get(trace.id, {}),
            None if grade is None else grade.get("evaluation_result"),
        )

    def action_shade(self) -> None:
        """Shade the tokens by logprob, by the ratio to the policy of now, or by advantage."""
        self.shade = NEXT[self.shade]
        self.redraw()
        self.read_ratios()

    def redraw(self) -> None:
        """Draw the rollout again, as it is read now."""
        if self.level is Level.ROLLOUT and self.part is not None and self.trace is not None:
            self.browser.show_rollout(self.part, self.trace, self.turns, self.reading)

    def read_ratios(self) -> None:
        """Ask for the logprobs of now, where they are wanted and not known."""
        trace = self.trace
        if self.shade is Shade.RATIO and trace is not None and trace.id not in self._now:
            self._read_now(trace)

    @work(exclusive=True, group="ratios")
    async def _read_now(self, trace: Trace) -> None:
        """One forward pass over this rollout: it trains nothing."""
        job = self.job
        model_id = job_model_id(job) if job is not None else None
        followed = self.run.model
        if model_id is None and followed is not None:
            model_id = followed.id
        if model_id is None:
            said = keyed("No policy is followed to compare with: {app.view.models} chooses one.")
            self.notify(said, markup=False)
            return
        try:
            passed = await self.client.forward(str(model_id), Forward(inputs=[trace.id]))
        except HudError as error:
            self.tell(error)
            return
        self._now[trace.id] = {
            turn: [p for p, mask in zip(datum.logprobs, datum.mask, strict=False) if mask > 0]
            for turn, datum in enumerate(passed.data)
        }
        self.redraw()

    def action_match(self, way: int) -> None:
        """The next place where the text was found, or the one before."""
        pane = self.browser.pane
        if not pane.hits:
            said = keyed(NOT_SEARCHED) if not pane.wanted else NOT_FOUND
            self.notify(said, markup=False, timeout=3)
        pane.next_hit(way)
        self.redraw()

    @work(exclusive=True, group="copy")
    async def action_copy_as(self) -> None:
        """Ask as what, and copy the whole rollout."""
        trace, turns = self.trace, self.turns
        if trace is None:
            return
        choices = [(name, label) for name, (label, _) in FORMS.items()]
        lines = ["The whole rollout: its turns, its tool calls, its reward."]
        form = await self.app.push_screen_wait(
            ChoiceDialog("Copy the rollout as", lines, choices, "text", safe=True)
        )
        if form is not None:
            self.hud.copy_to_clipboard(FORMS[form][1](trace, turns))
