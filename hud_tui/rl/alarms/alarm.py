"""Alarms with their evidence, the report of all detectors, and who is notified of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import monotonic
from typing import Annotated
from urllib.parse import urlsplit

from annotated_types import Ge, Le

from hud_tui.errors import TABLE, BadTuning
from hud_tui.rl.metrics import short
from hud_tui.rl.text import counted, one_line
from hud_tui.wire import WorkState


class Level(StrEnum):
    INFO = "info"
    WARN = "warn"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """1 for info, 2 for warn, 3 for critical."""
        return RANKS[self]

    @property
    def word(self) -> str:
        """What the screens call it."""
        return "warning" if self is Level.WARN else self.value


RANKS = {Level.INFO: 1, Level.WARN: 2, Level.CRITICAL: 3}


@dataclass(frozen=True)
class Evidence:
    """One number behind an alarm."""

    name: str
    value: float
    limit: float | None = None
    """The threshold it is compared with; None if it is context only."""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (limit {short(self.limit)})"
        return f"{self.name} {short(self.value)}{limit}"


@dataclass(frozen=True)
class Alarm:
    """One episode of one detector, from its onset to its end."""

    name: str
    """The detector's name, as in the config file: ``entropy_collapse``."""
    title: str
    level: Level
    """Highest level reached."""
    active: bool
    """Whether it still holds at the newest step."""
    row: int
    """Row of the update it began with, in the head's lineage, from 0. For metrics of rollouts
    this is the update before the step that first showed it, because its weights sampled
    those rollouts."""
    onset: int
    """Step number of that update."""
    checkpoint_id: str | None
    """Checkpoint made by that update."""
    before_id: str | None
    """The last checkpoint before that update whose own metrics were healthy (see
    `hud_tui.rl.alarms.monitor.last_good_checkpoint`); None if there is none."""
    shown: int
    """The step whose metrics showed it first."""
    shown_id: str | None
    """That step's checkpoint."""
    raised: int
    """The step at which it had held long enough to be raised."""
    ended: int | None
    """The step at which it ended; None while it holds."""
    evidence: tuple[Evidence, ...]
    meaning: str
    advice: str
    metric: str = ""
    """Canonical key of the metric that it concerns; empty if there is none."""
    limit: float | None = None
    """The metric's warn limit as of the newest evidence; None if the limit is on something else,
    e.g. a slope."""
    calm: int = 0
    """Consecutive steps below its lowest level's limit, while it holds."""
    release: int = 0
    """How many of those end it."""
    cause: str = ""
    """Name of the alarm that it follows from; empty if there is none. Its advice is then
    that of the cause."""
    cause_title: str = ""
    """That alarm's title."""

    @property
    def id(self) -> str:
        """Stable while the alarm lasts, even if the tree is read again."""
        return f"{self.name}@{self.checkpoint_id or self.onset}"

    @property
    def headline(self) -> str:
        """E.g. ``warning: gradient norm since step 40``."""
        return f"{self.level.word}: {self.title} since step {self.onset}"

    @property
    def summary(self) -> str:
        """What it follows from, and the evidence, in one line."""
        cause = (f"follows from {self.cause_title}",) if self.cause else ()
        return " · ".join((*cause, *map(str, self.evidence)))

    @property
    def easing(self) -> str:
        """Why it holds although its evidence is below the limit; empty if that is not so."""
        if not (self.active and self.calm):
            return ""
        return f"ending: below the limit for {self.calm} of {self.release} steps"

    @property
    def evidence_text(self) -> str:
        """The evidence, and whether the alarm is about to end, in one line."""
        return " · ".join(part for part in (self.summary, self.easing) if part)


@dataclass(frozen=True)
class Skipped:
    """A detector whose metric is not reported."""

    name: str
    title: str
    needs: str
    """The metric that is not reported."""

    @property
    def summary(self) -> str:
        return f"not evaluated: {self.lacking}"

    @property
    def lacking(self) -> str:
        """What is missing, for a list that already says "not evaluated"."""
        return f"metric {self.needs} not reported"


@dataclass(frozen=True)
class Report:
    """Result of all detectors on one lineage."""

    alarms: tuple[Alarm, ...] = ()
    """As `ordered` gives them: active ones first, a consequence after its cause."""
    skipped: tuple[Skipped, ...] = ()
    steps: int = 0
    """Steps of the lineage that were evaluated."""
    left: tuple[Alarm, ...] = ()
    """Alarms on steps that are no longer in the head's lineage."""
    waiting: int = 0
    """Steps not evaluated yet."""
    quiet: frozenset[str] = frozenset()
    """Ids of acknowledged and snoozed alarms."""

    @property
    def active(self) -> tuple[Alarm, ...]:
        return tuple(alarm for alarm in self.alarms if alarm.active)

    @property
    def loud(self) -> tuple[Alarm, ...]:
        """Active alarms that are neither acknowledged nor snoozed, in the order of `alarms`."""
        return tuple(alarm for alarm in self.active if alarm.id not in self.quiet)

    @property
    def warnings(self) -> tuple[Alarm, ...]:
        """Those of `alarms` that ask for something: warnings and critical ones."""
        return tuple(alarm for alarm in self.alarms if alarm.level is not Level.INFO)

    @property
    def by_metric(self) -> dict[str, Alarm]:
        """The first warning or critical alarm of `loud` for each metric, by canonical key."""
        newest: dict[str, Alarm] = {}
        for alarm in self.loud:
            if alarm.metric and alarm.level is not Level.INFO:
                newest.setdefault(alarm.metric, alarm)
        return newest

    def of_metric(self, key: str, opened: str = "") -> Alarm | None:
        """The alarm to draw with a metric: the one with the id `opened` if it concerns the metric,
        even if it has ended; else the most severe of `loud`."""
        opened_alarms = (alarm for alarm in (*self.alarms, *self.left) if alarm.id == opened)
        alarm_of_metric = next((alarm for alarm in opened_alarms if alarm.metric == key), None)
        return alarm_of_metric or self.by_metric.get(key)

    @property
    def onsets(self) -> frozenset[str]:
        """Ids of the checkpoints at which warnings and critical alarms began, including ended and
        left ones."""
        left = (alarm for alarm in self.left if alarm.level is not Level.INFO)
        ids = (alarm.checkpoint_id for alarm in (*self.warnings, *left))
        return frozenset(id_ for id_ in ids if id_ is not None)


# What follows from what: a consequence is shown after its cause and with its cause's advice, since
# its own may feed the cause: more tokens feed a policy that is paid for length.


CAUSES: Mapping[str, tuple[str, ...]] = {
    "truncation": ("length_blow_up",),
    "throughput": ("length_blow_up",),
    "zero_gradient": ("zero_variance",),
    "zero_variance": ("reward_collapse", "entropy_collapse", "errored_rollouts"),
    "reward_plateau": ("reward_collapse", "entropy_collapse", "zero_variance"),
    "kl_sampler": ("staleness",),
    "clip_fraction": ("staleness", "kl_sampler"),
    "reward_collapse": ("non_finite", "grad_norm", "kl_sampler", "errored_rollouts"),
    "heldout_collapse": ("reward_collapse", "grad_norm", "kl_reference"),
    "heldout_gap": ("length_blow_up", "component_dominance"),
    "non_finite": ("grad_norm",),
}
"""By detector: those whose alarm may have caused its own, the likeliest first."""
NEAR = 20
"""Steps by which a cause may be raised after its consequence, or have ended before it began:
detectors differ in delay, and a spike ends long before the reward that it cost comes back."""


def ordered(alarms: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """Alarms in display order: active ones, most severe first, a consequence after its cause and
    with its advice; then ended ones, newest first."""
    ranked = sorted(alarms, key=lambda a: (not a.active, -a.level.rank * a.active, -a.row))
    chains = {alarm: _chain(alarm, ranked) for alarm in ranked if alarm.active}
    causes_first = (alarm for chain in chains.values() for alarm in reversed(chain) if alarm.active)
    shown = [_explained(chains[alarm]) for alarm in dict.fromkeys(causes_first)]
    return (*shown, *(alarm for alarm in ranked if not alarm.active))


def _chain(alarm: Alarm, alarms: Sequence[Alarm]) -> list[Alarm]:
    """An alarm, its cause, the cause's cause, and so on."""
    chain = [alarm]
    while (cause := _cause(chain[-1], alarms)) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _cause(alarm: Alarm, alarms: Sequence[Alarm]) -> Alarm | None:
    """The warning or critical alarm that an alarm follows from; active ones are given first."""
    for name in CAUSES.get(alarm.name, ()):
        for other in alarms:
            if other.name == name and other.level is not Level.INFO and _overlap(other, alarm):
                return other
    return None


def _overlap(cause: Alarm, alarm: Alarm) -> bool:
    lasted = cause.ended is None or cause.ended >= alarm.onset - NEAR
    return lasted and cause.raised <= alarm.raised + NEAR


def _explained(chain: Sequence[Alarm]) -> Alarm:
    """The first of the chain, with what it follows from."""
    alarm, *causes = chain
    if not causes:
        return alarm
    advice = f"Follows from {causes[-1].title}: {causes[-1].advice}"
    return replace(alarm, cause=causes[0].name, cause_title=causes[0].title, advice=advice)


# Notifications by bell, desktop and webhook, as configured in the table ``[notify]``.


LEVELS = (Level.WARN, Level.CRITICAL)
MOST_S = 7 * 86_400.0


@dataclass(frozen=True)
class Notify:
    """Settings of notifications about alarms and ended runs: the table ``[notify]``."""

    __pydantic_config__ = TABLE

    bell: bool = True
    """Ring the terminal's bell."""
    osc9: bool = True
    """Send a desktop notification through the terminal (OSC 9); terminals without it ignore
    that."""
    webhook: str = ""
    """URL to POST a JSON document to; empty for none."""
    level: Level = Level.WARN
    """Lowest level that is sent."""
    cooldown_s: Annotated[float, Ge(0), Le(MOST_S)] = 300.0
    """Seconds before an alarm of the same detector is sent again, unless it is more severe."""

    def __post_init__(self) -> None:
        if self.webhook and not _is_url(self.webhook):
            raise BadTuning("webhook", "expected an http or https URL")
        if self.level not in LEVELS:
            raise BadTuning("level", "expected warn or critical")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(usable) and text.isascii() and text.isprintable() and " " not in text


TOLD = 200
"""Maximum characters of a desktop notification."""


class Notifier:
    """Sends notifications to the terminal, and builds the webhook's documents, which the caller
    sends."""

    def __init__(
        self,
        notify: Notify | None,
        ring: Callable[[], None],
        write: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            notify: The config file's settings; None for the defaults.
            clock: Monotonic seconds.
        """
        self.notify = notify or Notify()
        self._ring, self._write, self._clock = ring, write, clock
        self._sent: dict[str, tuple[float, int]] = {}
        """When each detector's alarm of a model was sent last, and its rank."""
        self._failed = False

    def alarm(self, alarm: Alarm, model: str) -> dict[str, object] | None:
        """Notify about an alarm; return the document for the webhook, or None if there is none to
        send."""
        rank = alarm.level.rank
        if rank < self.notify.level.rank:
            return None
        name, now = f"{model} {alarm.name}", self._clock()
        sent_at, sent_rank = self._sent.get(name, (-MOST_S, 0))
        if now - sent_at < self.notify.cooldown_s and rank <= sent_rank:
            return None
        self._sent[name] = now, rank
        line = one_line(f"{alarm.headline} of {model}: {alarm.summary}", 300)
        facts = {"name": alarm.name, "level": alarm.level, "onset": alarm.onset, "id": alarm.id}
        return self._send(line, {"kind": "alarm", "model": model, **facts, "advice": alarm.advice})

    def ended(self, job: WorkState, model: str) -> dict[str, object] | None:
        """Notify about the end of a run; return the document for the webhook, or None."""
        line = one_line(f"{model}: run {job.status} after {counted(job.step or 0, 'step')}", 300)
        facts = {"job": job.id, "status": job.status, "step": job.step}
        return self._send(line, {"kind": "ended", "model": model, **facts})

    def failed(self, why: str) -> str:
        """The message about a failed webhook; empty after the first failure."""
        if self._failed:
            return ""
        self._failed = True
        return f"The webhook failed: {why}. It is tried again with the next alarm."

    def _send(self, line: str, facts: dict[str, object]) -> dict[str, object] | None:
        if self.notify.bell:
            self._ring()
        if self.notify.osc9:
            self._write(f"\x1b]9;{one_line(line, TOLD)}\x1b\\")
        return {"text": line, **facts} if self.notify.webhook else None
