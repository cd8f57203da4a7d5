"""Filters of rollouts, and where in a transcript what was searched for stands.

The grammar is that of `hud_tui.rl.filter`, e.g. ``tool:order error reward<.2``:

    warehouse          any text of the rollout contains it; "two words" together
    error              also: a call, a turn or the rollout failed
    tool:order         a tool of this name was called; said:, result: texts of either side
    task:add stop:length status:error
    reward<.2          reward, advantage, tokens, step, attempt, rollout; turns, calls, errors
    is:trained         error, trained, discarded, evaluated, heldout, cut, played

Some terms can be decided by a rollout's row, others only by its transcript; `split_filter` tells
them apart, so that no more is read than is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hud_tui.errors import HudUsage
from hud_tui.rl.filter import Fields, bare_words, compared_name, parse_terms, terms_of
from hud_tui.rl.outcome import STOPS, is_evaluated_only
from hud_tui.rl.rollouts import Rollout
from hud_tui.rl.text import one_line
from hud_tui.rl.transcript import ASSISTANT, Transcript, Turn, part_texts, turn_texts
from hud_tui.wire_rollouts import Trace

ERROR = "error"
BEFORE, LONGEST = 24, 160
"""Characters of an excerpt before what was found, and in all."""


@dataclass(frozen=True)
class Sought:
    """A rollout that a filter is asked about."""

    rollout: Rollout
    transcript: Transcript | None = None
    """None if it has not been read."""

    @property
    def trace(self) -> Trace:
        return self.rollout.trace

    @property
    def read(self) -> Transcript:
        return self.transcript or Transcript()

    @property
    def failed(self) -> bool:
        trace = self.trace
        return bool(trace.error) or trace.status == ERROR or self.read.has_error


Keep = Callable[[Sought], bool]


@dataclass(frozen=True)
class Place:
    """Where in a transcript something stands."""

    where: str
    """``turn 3``, ``setup`` or ``grading``."""
    excerpt: str
    """The text around it, in one line."""


def _stop(trace: Trace) -> str:
    """Why it stopped, as the service says and in words."""
    reason = trace.stop_reason or ""
    return f"{reason} {STOPS.get(reason, '')}".strip()


def _row_text(sought: Sought) -> str:
    trace = sought.trace
    shown = (trace.task_slug, trace.completion, _stop(trace), trace.status, trace.id)
    return " ".join(filter(None, (*shown, one_line(trace.error or "", LONGEST))))


def _words(sought: Sought) -> str:
    return "\n".join((_row_text(sought), *sought.read.texts(), ERROR * sought.failed))


ROW_TEXTS: Mapping[str, Callable[[Sought], str]] = {
    "task": lambda sought: sought.trace.task_slug or "",
    "stop": lambda sought: _stop(sought.trace),
    "status": lambda sought: sought.trace.status or "",
    "id": lambda sought: sought.trace.id,
}
TEXTS: Mapping[str, Callable[[Sought], str]] = {
    "tool": lambda sought: "\n".join(call.name for call in sought.read.calls),
    "result": lambda sought: "\n".join(call.answer for call in sought.read.calls),
    "said": lambda sought: "\n".join(t.text for t in sought.read.turns if t.role == ASSISTANT),
}
ROW_TRAITS: Mapping[str, Callable[[Sought], bool]] = {
    "trained": lambda sought: sought.trace.checkpoint_id is not None,
    "evaluated": lambda sought: is_evaluated_only(sought.trace),
    "heldout": lambda sought: bool(sought.trace.heldout),
    "cut": lambda sought: sought.trace.stop_reason in ("length", "timeout", "max_steps"),
    "played": lambda sought: bool(sought.trace.played),
}
TRAITS: Mapping[str, Callable[[Sought], bool]] = {
    ERROR: lambda sought: sought.failed,
    "discarded": lambda sought: sought.trace.discarded is not None,
}
ROW_NUMBERS: Mapping[str, Callable[[Sought], float | None]] = {
    "reward": lambda sought: sought.trace.reward,
    "advantage": lambda sought: sought.rollout.advantage,
    "tokens": lambda sought: sought.trace.num_tokens,
    "step": lambda sought: sought.trace.step,
    "attempt": lambda sought: sought.trace.attempt,
    "rollout": lambda sought: sought.rollout.number,
}
NUMBERS: Mapping[str, Callable[[Sought], float | None]] = {
    "turns": lambda sought: sought.read.said,
    "calls": lambda sought: len(sought.read.calls),
    "errors": lambda sought: sum(bool(call.error) for call in sought.read.calls),
}
_ROW: Fields[[Sought]] = Fields(
    "rollout", _row_text, ROW_TEXTS, ROW_TRAITS, ROW_NUMBERS.get, [*ROW_NUMBERS]
)
_ALL_TEXTS, _ALL_TRAITS = {**ROW_TEXTS, **TEXTS}, {**ROW_TRAITS, **TRAITS}
_ALL_NUMBERS = {**ROW_NUMBERS, **NUMBERS}
_ALL: Fields[[Sought]] = Fields(
    "rollout", _words, _ALL_TEXTS, _ALL_TRAITS, _ALL_NUMBERS.get, [*_ALL_NUMBERS]
)


def parse_row_filter(expression: str) -> Keep:
    """A filter of rollouts by their rows alone; words are looked for in what a row shows.

    Raises:
        HudUsage: An invalid term, or one that only the conversation decides.
    """
    parse_terms(expression, _ALL)
    for term in terms_of(expression):
        if compared_name(term) and _needs_transcript(term):
            what = f"{one_line(term, 40)}: only the conversations tell"
            raise HudUsage(what, "the search in all rollouts reads them")
    return parse_terms(expression, _ROW)


def split_filter(expression: str) -> tuple[Keep, Keep | None]:
    """A filter in two parts: what the rows decide, and the whole, if that needs transcripts.

    Raises:
        HudUsage: An invalid term.
    """
    whole = parse_terms(expression, _ALL)
    terms = terms_of(expression)
    by_row = [term for term in terms if not _needs_transcript(term)]
    return parse_terms(" ".join(by_row), _ALL), whole if len(by_row) < len(terms) else None


def _needs_transcript(term: str) -> bool:
    key = compared_name(term)
    if key == "is":
        return term.removeprefix("!").partition(":")[2].casefold() not in ROW_TRAITS
    return key not in ROW_TEXTS and key not in ROW_NUMBERS


@dataclass(frozen=True)
class Needles:
    """What a filter looks for in transcripts, casefolded."""

    words: Sequence[str] = ()
    tools: Sequence[str] = ()

    @classmethod
    def of(cls, expression: str) -> "Needles":
        words = [word.casefold() for word in bare_words(expression) if word]
        terms = (term for term in terms_of(expression) if compared_name(term) == "tool")
        tools = [term.partition(":")[2].casefold() for term in terms if not term.startswith("!")]
        return cls(words, tools)


def where_found(transcript: Transcript, needles: Needles) -> Place | None:
    """Where the first of the words stands, else the first call of a tool; None if none does."""
    for where, text in _texts(transcript):
        folded = text.casefold()
        for needle in needles.words:
            start = folded.find(needle)
            if start >= 0:
                begin = max(0, start - BEFORE)
                excerpt = one_line(text[begin : begin + LONGEST], LONGEST)
                return Place(where, f"…{excerpt}" if begin else excerpt)
    if ERROR in needles.words and (error := _first_error(transcript)):
        return error
    for where, turn in _turns(transcript):
        for call in turn.calls:
            if any(tool in call.name.casefold() for tool in needles.tools):
                return Place(where, one_line(f"{call.text} ← {call.answer}", LONGEST))
    return None


def _first_error(transcript: Transcript) -> Place | None:
    for where, turn in _turns(transcript):
        for text in (turn.error, *(call.error for call in turn.calls)):
            if text:
                return Place(where, one_line(text, LONGEST))
    return None


def _texts(transcript: Transcript) -> Iterator[tuple[str, str]]:
    for where, turn in _turns(transcript):
        yield from ((where, text) for text in turn_texts(turn))
    for part in (*transcript.setup, *transcript.grading):
        yield from ((part.phase, text) for text in part_texts(part))


def _turns(transcript: Transcript) -> Iterator[tuple[str, Turn]]:
    """The turns with their place: the prompt, the policy's by number, and what came after each."""
    number = 0
    for turn in transcript.turns:
        number += turn.role == ASSISTANT
        after = f"after turn {number}" if number else "prompt"
        yield f"turn {number}" if turn.role == ASSISTANT else after, turn
