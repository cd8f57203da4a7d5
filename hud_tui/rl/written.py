"""Written: one request that changed something, as the command log keeps it, a line of JSON each."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

LINE_MOST = 20_000
"""Characters of a line that is read; longer ones are not ours."""


@dataclass(frozen=True)
class Change:
    """What a request is meant to change, said by the call that sends it."""

    verb: str
    """E.g. ``set head``; see `VERBS`."""
    model: str = ""
    """Id of the model that it changes, or that is forked; empty where that is not known."""
    subject: str = ""
    """What it acts on where that is no model: a job's id, the name of a fork."""
    before: str = ""
    """What was there before, where that is known, e.g. the id of the head."""
    after: str = ""
    """What will be, where that is known before the answer."""
    made: str = ""
    """The field of the answer that says what came of it, e.g. ``job_id``."""
    left_out: tuple[str, ...] = ()
    """Fields of the body that are not kept: they are large, or may have others' secrets."""


@dataclass(frozen=True)
class Written:
    """One request, and what became of it. All of it is text, and has no key in it."""

    at: float
    """Unix seconds at which it was sent."""
    verb: str
    model: str = ""
    """The model's id."""
    name: str = ""
    """What the model was called then; empty where nobody had asked."""
    subject: str = ""
    before: str = ""
    after: str = ""
    outcome: str = "unknown"
    """``done``, ``refused`` (it was not done) or ``unknown`` (no answer says)."""
    said: str = ""
    """What the service said where it was not done."""
    service: str = ""
    """E.g. ``HUD local``."""
    local: bool = False
    by: str = ""
    """What sent it: ``app``, ``headless`` or ``python``."""
    method: str = ""
    url: str = ""
    body: str = ""
    """The JSON that was sent, without what is left out."""
    left_out: tuple[str, ...] = ()
    request_id: str = ""
    """The service's, where it gives one."""
    key: str = ""
    """The request's Idempotency-Key."""

    @property
    def sent(self) -> dict[str, Any]:
        """The body's fields that were kept; empty where it is none."""
        try:
            found = json.loads(self.body) if self.body else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def to_line(written: Written) -> str:
    """A line, with its end. Everything but ASCII is escaped, so nothing in it acts anywhere."""
    return json.dumps(asdict(written), separators=(",", ":"), allow_nan=False) + "\n"


def read_lines(lines: Iterable[str]) -> tuple[list[Written], int]:
    """What the lines say, in their order, and how many say nothing that can be read."""
    found: list[Written] = []
    bad = 0
    for line in lines:
        if not line.strip():
            continue
        one = _read(line)
        if one is None:
            bad += 1
        else:
            found.append(one)
    return found, bad


def matching(log: Sequence[Written], text: str) -> list[Written]:
    """Those with each of these words in any field that is shown."""
    words = text.casefold().split()
    return [one for one in log if all(word in _said(one) for word in words)]


def _said(one: Written) -> str:
    parts = (one.verb, one.name, one.model, one.subject, one.before, one.after)
    more = (one.outcome, one.said, one.service, one.by, one.request_id)
    return " ".join((*parts, *more)).casefold()


def _read(line: str) -> Written | None:
    """A line of ours; fields of a newer version are passed over."""
    if len(line) > LINE_MOST:
        return None
    try:
        row = json.loads(line)
        return _typed(row)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _typed(row: Mapping[str, Any]) -> Written:
    """Raises one of what `_read` catches where it is not one."""
    at = float(row["at"])
    if not isfinite(at) or not isinstance(row["verb"], str):
        raise ValueError("not a time, or no verb")
    texts = {
        field.name: str(row[field.name])
        for field in fields(Written)
        if field.name not in ("at", "local", "left_out") and row.get(field.name) is not None
    }
    left_out = tuple(str(name) for name in row.get("left_out") or ())
    return Written(at=at, local=bool(row.get("local")), left_out=left_out, **texts)


def change_text(one: Written) -> str:
    """What it changed, in a few words."""
    subject = short_id(one.subject)
    after = short_id(one.after) if one.after else ""
    match one.verb:
        case "set head":
            return f"{short_id(one.before) or '–'} → {after}"
        case "fork":
            start = f" at {short_id(one.before)}" if one.before else ""
            return f"→ {subject}{start}"
        case "submit":
            return f"→ job {after}" if after else ""
        case "cancel" | "resume":
            return f"job {subject}" + (f" → {after}" if after else "")
    return (
        f"{subject} → {after}" if subject and after else subject or (f"→ {after}" if after else "")
    )


def short_id(text: str) -> str:
    """The first eight of an id, as everywhere; another text as it is."""
    digits = text.replace("-", "")
    is_id = len(digits) >= 16 and all(one in "0123456789abcdefABCDEF" for one in digits)
    return text[:8] if is_id else text
