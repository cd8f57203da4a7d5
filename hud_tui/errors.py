"""Errors shown to the user: message, hint, and exit code of ``hud-tui --headless``."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from types import MappingProxyType
from typing import Any, Literal

NAMED = 10
"""Maximum problems named in one message; the others are counted."""


UNCLEAR = "the outcome is unknown: check the service before you try again"
"""Hint for a write with an unknown outcome."""
UNLOGGED = "done, but not in the command log, which cannot be written: "
ALL_THE_SAME = "all the same: --insecure, or HUD_TUI_INSECURE=1"
"""How a key is sent in clear text."""
START_AGAIN = "start the service again: "
"""Beginning of the hint when the embedded service does not answer, before the command that starts
it; the app offers a key for it."""
BY_ITSELF = "the tunnel to it is broken; it is opened again by itself"
"""Hint when a service behind a tunnel does not answer."""


class HudError(Exception):
    """Base of every failure shown to the user.

    The message says what happened; `hint` says what to do next.
    """

    exit_code = 1
    kind = "failure"
    """The error's name in ``--headless`` documents (``error.type``)."""
    status: int | None = None
    """The HTTP status; None without an HTTP response."""
    retry_after: float | None = None
    """Retry-After of the response, seconds."""
    request_id: str = ""
    """The service's id of the request, if it sends one."""
    outcome: Literal["done", "not_done", "unknown"] | None = None
    """Outcome of the requested change; None if the request was a read."""
    details: Mapping[str, Any] = MappingProxyType({})
    """Further fields of the error's document."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def in_one(self) -> str:
        """Message and hint in one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class HudRefused(HudError):
    """The server answered with an error."""

    kind = "refused"

    def __init__(
        self, status: int, detail: str, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(self._text(status, detail), hint)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after

    def _text(self, status: int, detail: str) -> str:
        return f"HTTP {status}: {detail}"


class HudNotFound(HudRefused):
    """404 or 410: it does not exist, or no longer."""

    kind = "not_found"


class HudConflict(HudRefused):
    """409: the state has changed, or the name is taken."""

    kind = "conflict"

    def _text(self, status: int, detail: str) -> str:
        """The detail alone if it is a sentence; a bare reason such as "Conflict" gets the
        status."""
        return detail if " " in detail else super()._text(status, detail)


class HudUnauthorized(HudRefused):
    """401 or 403: no key, an invalid key, or missing rights."""

    def _text(self, status: int, detail: str) -> str:
        """Why the embedded service forbids something is a sentence."""
        return detail if status == 403 and " " in detail else super()._text(status, detail)

    exit_code = 4
    kind = "unauthorized"


class HudMalformed(HudError):
    """The response does not match the wire protocol."""

    kind = "malformed"


class HudUnreachable(HudError):
    """No answer; a requested change was not made. See `HudUnclear`."""

    exit_code = 3
    kind = "unreachable"


class HudUnclear(HudUnreachable):
    """The outcome of a write is unknown: no answer, an incomplete or unreadable one, or a proxy's
    error. It must not be repeated before the state has been checked."""

    exit_code = 7
    kind = "unclear"
    outcome = "unknown"

    def __init__(self, failure: HudError, key: str = "", hint: str = UNCLEAR) -> None:
        """`failure`: the error that occurred; `key`: the request's Idempotency-Key."""
        super().__init__(failure.message, hint)
        self.status, self.request_id = failure.status, failure.request_id
        self.retry_after = failure.retry_after
        self.key = key


class HudNoKey(HudError):
    """No API key for HUD, or no token for the Hugging Face Hub."""

    exit_code = 4
    kind = "no_key"


class HudNotStored(HudError):
    """A file of this program cannot be written; the message says what was done before."""

    kind = "not_stored"


class HudUsage(HudError):
    """Invalid command or input: a name, flag, file, line or field."""

    exit_code = 2
    kind = "usage"


class HudInsecure(HudUsage):
    """A key would travel in clear text to another machine; nothing was sent."""

    kind = "insecure"

    def __init__(self, what: str, instead: str) -> None:
        """`what`: what would send it; `instead`: what does not."""
        super().__init__(what, f"{instead}; {ALL_THE_SAME}")


class HudBadCertificate(HudUsage):
    """A certificate or its key cannot be served."""

    kind = "bad_certificate"


class HudReadOnly(HudError):
    """Blocked by read-only mode; the request was not sent."""

    kind = "read_only"

    def __init__(self, why: str, what: str, hint: str) -> None:
        """`why`: source of read-only mode; `what`: the blocked request."""
        super().__init__(f"read-only: {why}; not sent: {what}", hint)
        self.why = why


class HudProtected(HudUsage):
    """The model is protected and its name was not given; nothing was sent."""

    kind = "protected"

    def __init__(self, name: str, what: str) -> None:
        """`name`: the model's cleaned name; `what`: the blocked request."""
        hint = f"to do it anyway, add its name: --confirm {quote(name)}"
        super().__init__(f"{name} is protected on this machine; not done: {what}", hint)
        self.name = name


@dataclass(frozen=True)
class Problem:
    """One error in a task file."""

    where: str
    """File, and line or row from 1, e.g. ``tasks.jsonl line 3``."""
    field: str
    """Field of the row, e.g. ``setup_tool[0].name``; empty for the whole row."""
    message: str
    """Expected and found; never the value itself, which may be a key."""

    def __str__(self) -> str:
        return f"{self.where}: {f'field {self.field}: ' if self.field else ''}{self.message}"


class HudBadTasks(HudUsage):
    """Invalid task rows; all problems are listed."""

    def __init__(self, problems: Sequence[Problem], hint: str = "") -> None:
        named = "; ".join(map(str, problems[:NAMED]))
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        count = f"{len(problems)} problems: " if len(problems) > 1 else ""
        super().__init__(f"{count}{named}{more}", hint)
        self.problems = tuple(problems)


class HudTasksChanged(HudUsage):
    """The tasks differ from the intended ones; nothing was sent."""

    kind = "tasks_changed"

    def __init__(self, source: str, found: str, expected: str) -> None:
        """`source`: the file, directory or taskset; `found`, `expected`: digests of its tasks."""
        hint = (
            f"restore {source} as it was, or leave out --digest {expected} to use its tasks as they"
            f" are now (--digest {found})"
        )
        super().__init__(f"the tasks of {source} have digest {found}, not {expected}", hint)


class HudAmbiguous(HudUsage):
    """A name matches several items; the hint lists them."""

    kind = "ambiguous"


class HudBadInput(HudUsage, ValueError):
    """Invalid inputs of a training call; nothing was sent."""


class HudPreflightFailed(HudError):
    """A preflight check failed; nothing was submitted."""

    exit_code = 5
    kind = "preflight_failed"


class HudAlarm(HudError):
    """An alarm of level ``--fail-on``."""

    exit_code = 6
    kind = "alarm"


class HudGate(HudError):
    """An evaluation is below ``--fail-under``, or significantly worse than
    ``--fail-if-worse-than``."""

    exit_code = 6
    kind = "gate"


class HudInternal(HudError):
    """A bug of this program."""

    kind = "internal"


def refused(
    status: int, detail: str, hint: str = "", retry_after: float | None = None
) -> HudRefused:
    """The error class for an HTTP status."""
    kinds: dict[int, type[HudRefused]] = {
        401: HudUnauthorized,
        403: HudUnauthorized,
        404: HudNotFound,
        409: HudConflict,
        410: HudNotFound,
    }
    return kinds.get(status, HudRefused)(status, detail, hint, retry_after)


TABLE = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
"""Pydantic configuration of dataclasses for tables of the config file."""


class BadTuning(ValueError):
    """An invalid value in the config file: its name, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}" if name else why)
        self.name, self.why = name, why


BEYOND = {
    "gt": "is not above",
    "ge": "is below the least,",
    "lt": "is not below",
    "le": "is above the most,",
}
"""What is said of a number beyond each kind of bound."""


def refuse_beyond(flag: str, value: float | None, bounds: Mapping[str, float]) -> None:
    """Raises HudUsage: the number of a flag, if it was given, is beyond its bounds."""
    for name, end in bounds.items():
        if value is not None and not getattr(operator, name)(value, end):
            raise HudUsage(f"{flag}: {value:g} {BEYOND[name]} {end:g}")
