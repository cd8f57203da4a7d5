"""Outcome: what is known of a rollout's reward.

What it is made of, the expected answer, the advantage, and what became of the rollout: trained on,
evaluated, or discarded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.rl.text import one_line
from hud_tui.rl.timeline import REASONS
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import content_text, value_text

EXPECTED = (
    *("expected", "expected_answer", "expected_output", "correct_answer", "ground_truth"),
    *("target", "reference", "gold", "solution", "answer"),
)
"""Keys of a grading's ``info`` that hold the expected answer; the first with a value is used."""


@dataclass(frozen=True)
class Subscore:
    """One part of a reward."""

    name: str
    value: float
    weight: float | None = None


def subscores(result: object) -> list[Subscore]:
    """The parts of a grading result, given as a list or a mapping; empty if it has none.

    Source: the ``hud`` SDK's EvaluationResult (``subscores``: name, value, weight), and servers
    that send a mapping from name to number.
    """
    subscores = result.get("subscores") if isinstance(result, Mapping) else None
    if isinstance(subscores, Mapping):
        return [Subscore(str(name), float(v)) for name, v in subscores.items() if _number(v)]
    if isinstance(subscores, list):
        return [part for row in subscores if (part := _subscore(row)) is not None]
    return []


STOPS = {
    "done": "end of turn",
    "stop": "end of turn",
    "length": "max tokens",
    "timeout": "time limit",
    "max_steps": "turn limit",
}
"""Why a rollout stopped, by what services report."""


def stop_text(reason: str | None) -> str:
    """Why a rollout stopped, in words; empty if it did not, or nobody says."""
    return STOPS.get(reason or "") or one_line(reason or "", 20)


FAILED_KEYS = ("isError", "is_error")
"""Keys of a grading that say whether the grader failed."""
PLAYED = "played by a person: not trained on"
CANCELLED = "cancelled"
"""Status of a rollout that somebody ended; its error says who."""

MOST_NOTES, NOTE_MOST = 24, 500
"""Maximum number of a grader's notes that are shown, and characters of each."""


def grade_notes(result: object) -> list[tuple[str, str]]:
    """What a grader reports beside the reward, as (name, text): whether it failed, its text, and
    each entry of its ``info``; bounded.

    Source: the ``hud`` SDK's EvaluationResult (``isError``, ``content``, ``info``).
    """
    if not isinstance(result, Mapping):
        return []
    failed = any(result.get(key) is True for key in FAILED_KEYS)
    notes = [("grader", "reported an error")] if failed else []
    if text := content_text(result.get("content")):
        notes.append(("grader", text))
    info = result.get("info")
    rows = info.items() if isinstance(info, Mapping) else [("info", info)] if info else ()
    notes += [(str(name), value_text(value)) for name, value in rows if value is not None]
    more = [("…", f"{len(notes) - MOST_NOTES} more")] if len(notes) > MOST_NOTES else []
    return [*notes[:MOST_NOTES], *more]


def _subscore(row: Any) -> Subscore | None:
    if not isinstance(row, Mapping):
        return None
    value: Any = row.get("value", row.get("score"))
    weight: Any = row.get("weight")
    if not _number(value):
        return None
    return Subscore(
        str(row.get("name") or "?"), float(value), float(weight) if _number(weight) else None
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Outcome:
    """What is known of a rollout's reward."""

    reward: float | None = None
    subscores: Sequence[Subscore] = ()
    notes: Sequence[tuple[str, str]] = ()
    """Of the grader: (name, text)."""
    expected: str = ""
    """The expected answer; empty if nobody says."""
    advantage: float | None = None
    """In the reward's unit; None if the rollout is not trained on."""
    formula_end: str = ""
    """As `Advantages.formula_end`."""
    fate: str = ""
    """What became of it, e.g. ``trained on at step 12``; empty if that is not known."""
    error: str = ""
    """Why the rollout failed; empty if it did not."""


def outcome_of(
    trace: Trace, advantage: float | None = None, formula_end: str = "", evaluated: bool = False
) -> Outcome:
    """What is known of a rollout's reward.

    Args:
        trace: With its grading, as GET /v2/trace/{id} has it.
        advantage: Ignored if it is evaluated.
        evaluated: Whether its job is an evaluation.
    """
    grade = trace.evaluation_result
    expected = trace.expected or expected_of(grade)
    is_evaluated = evaluated or is_evaluated_only(trace)
    why = content_text(trace.error) if trace.error else ""
    is_cancelled = trace.status == CANCELLED
    ended = ": ".join(filter(None, (CANCELLED, one_line(why, 200)))) if is_cancelled else ""
    return Outcome(
        trace.reward,
        subscores(grade),
        [note for note in grade_notes(grade) if note[0] not in EXPECTED or note[1] != expected],
        expected,
        None if is_evaluated else advantage,
        "" if is_evaluated else formula_end,
        "  ·  ".join(filter(None, (fate_of(trace, is_evaluated), ended))),
        "" if is_cancelled else why,
    )


def is_evaluated_only(trace: Trace) -> bool:
    """Whether the trace itself says that it is not sampled to train on."""
    return trace.evaluates is not None or bool(trace.heldout)


def expected_of(grade: object) -> str:
    """The expected answer, if a grading's ``info`` has it; else empty."""
    info = grade.get("info") if isinstance(grade, Mapping) else None
    if not isinstance(info, Mapping):
        return ""
    return next((value_text(info[key]) for key in EXPECTED if info.get(key) is not None), "")


def fate_of(trace: Trace, evaluated: bool = False) -> str:
    """What became of a rollout; empty if that is not known."""
    if trace.played:
        return PLAYED
    if evaluated:
        return "held out: not trained on" if trace.heldout else "evaluated"
    if trace.discarded:
        why = REASONS.get(trace.discarded, "not trained on")
        return f"discarded, {one_line(trace.discarded, 40)}: {why}"
    if trace.checkpoint_id is not None:
        return "trained on" if trace.step is None else f"trained on at step {trace.step}"
    return ""
