"""The wire of a run's time: where the seconds of its steps went, and the rollouts that no step was
trained on (embedded).

Source: none; HUD's wire does not have it.
"""

from typing import NamedTuple, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hud_tui.wire import Count, Many, Page, Request, Response, Reward, no_items


class TimedSpan(NamedTuple):
    """A stretch of time in which one thing was done, or waited for. In JSON a list."""

    kind: str
    """One of `hud_tui.rl.timeline.LOOP_PARTS`."""
    start: float
    """Seconds since the step began."""
    seconds: float
    number: float = 1.0
    """How many of them at a time, on average; 0: only what lies behind the others."""


class TimedRollouts(NamedTuple):
    """Rollouts of one task that began and ended together; mostly one. In JSON a list."""

    trace_id: str
    """Of the first."""
    task_slug: str
    start: float
    """Seconds since the step began; negative if it began before."""
    seconds: float
    number: Count = 1
    reason: str = ""
    """Why they were discarded, one of `hud_tui.rl.timeline.REASONS`; empty: trained on."""
    sampling_s: float | None = None
    """Seconds of each in which the model sampled; None if nobody knows."""
    grading_s: float | None = None


class StepTime(Response):
    """Where the time of one step went: from the step before, or the begin of the run, to this."""

    run_id: str = ""
    step: Count = 0
    """Number within the run, from 1. What came after the last step has the next number."""
    checkpoint_id: str | None = None
    """None: the step is not taken yet, or never was."""
    start: float
    """Unix seconds, as is `end`."""
    end: float
    is_outside: bool = False
    """Whether the loop runs outside the service, which does not see what it does."""
    spans: list[TimedSpan] = Field(default_factory=no_items)
    """In order of their beginning; long lists are summarized."""
    rollouts: list[TimedRollouts] = Field(default_factory=no_items)
    """Those that ended in it, in order of their beginning, or are under way."""


MOST = 1e12
"""Largest number of a driver's report: the year 33658 in Unix seconds."""


class DriverTime(Request):
    """What only the driver of a run knows of its time since its last report."""

    at: float
    """Unix seconds by the driver's clock, which may differ from the service's."""
    doing: str | None = None
    """Part of the loop that goes on until the next report says otherwise."""
    spans: Many[TimedSpan] = Field(default_factory=no_items, max_length=2000)
    """Their starts are Unix seconds by that clock."""
    graded: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """When rollouts were graded, by trace id: begin and end by that clock."""
    discarded: dict[str, list[str]] = Field(default_factory=dict)
    """Trace ids of rollouts that are not trained on, by reason."""

    @model_validator(mode="after")
    def _is_plausible(self) -> Self:
        """What is added up of it could not be sent as JSON otherwise."""
        spans = (number for span in self.spans for number in span[1:])
        graded = (stamp for times in self.graded.values() for stamp in times)
        if not all(abs(number) <= MOST for number in (self.at, *spans, *graded)):
            raise PydanticCustomError("time", f"a number is not finite, or beyond {MOST:g}")
        return self


class RunTime(Response):
    """GET /v1/runs/{id}/time?last=N, ?step=N or ?checkpoint=ID: the newest steps of a run, or
    one."""

    run_id: str
    steps: list[StepTime] = Field(default_factory=no_items)
    """Oldest first. The last one may be under way."""
    total: Count = 0
    """Steps of the run whose time is known."""
    discarded: dict[str, int] = Field(default_factory=dict)
    """Rollouts of the whole run that no step was trained on, by reason."""

    @property
    def taken(self) -> int:
        """How many of `steps` were taken; at least 1. What came after the last is none."""
        return max(1, sum(step.checkpoint_id is not None for step in self.steps))


class Discarded(Response):
    """A rollout that no step was trained on."""

    trace_id: str
    reason: str
    """One of `hud_tui.rl.timeline.REASONS`."""
    step: Count | None = None
    """The step that it was sampled for, within the run."""
    attempt: Count | None = None
    task_slug: str | None = None
    rollout: Count | None = None
    """Index in its group, from 0."""
    reward: Reward | None = None
    num_tokens: Count | None = None
    error: str | None = None
    seconds: float | None = None
    """From its begin to its end."""
    ended_at: float | None = None
    """Unix seconds."""


class DiscardedPage(Page[Discarded]):
    """GET /v1/runs/{id}/discarded, newest first."""
