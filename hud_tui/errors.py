"""Why something failed, what to do next, and the code ``hud-tui --headless`` then exits with."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Literal

NAMED = 10
"""Problems that one message names; the others are counted."""


UNCLEAR = "it may have happened: look at what the service says before you try again"
"""The hint where nobody knows whether a write happened."""
START_AGAIN = "start the service again: hud-tui --local, or serve"
"""The hint where the embedded service does not answer; the app can do it itself."""


class HudError(Exception):
    """Base of every failure shown to the user.

    The message says what happened; `hint` says what to do next.
    """

    exit_code = 1
    kind = "failure"
    """The error's name in ``--headless`` documents (``error.type``)."""
    status: int | None = None
    """The HTTP status; None if no answer came or none was asked for."""
    retry_after: float | None = None
    """Seconds the server asked to wait before the next attempt, if it did."""
    request_id: str = ""
    """The service's own id of the request, where it gives one."""
    outcome: Literal["done", "not_done", "unknown"] | None = None
    """What became of the change that was asked for; None if none was."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class HudRefused(HudError):
    """The server answered with an error."""

    kind = "refused"

    def __init__(
        self, status: int, detail: str, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"HTTP {status}: {detail}", hint)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after


class HudNotFound(HudRefused):
    """404 or 410: no such thing, or no longer."""

    kind = "not_found"


class HudConflict(HudRefused):
    """409: the state moved, or the name is taken."""

    kind = "conflict"


class HudUnauthorized(HudRefused):
    """401 or 403: no key, a wrong one, or one without this right."""

    exit_code = 4
    kind = "unauthorized"


class HudMalformed(HudError):
    """The server answered, but not what the wire says."""

    kind = "malformed"


class HudUnreachable(HudError):
    """No answer came; where a change was asked for, it was not made. See `HudUnclear`."""

    exit_code = 3
    kind = "unreachable"


class HudUnclear(HudUnreachable):
    """No answer came that says whether a write happened: none, half of one, a proxy's page or
    fault, or one that cannot be read. It is not to be repeated before somebody has looked."""

    exit_code = 7
    kind = "unclear"
    outcome = "unknown"

    def __init__(self, failure: HudError, key: str = "", hint: str = UNCLEAR) -> None:
        """`failure` is what came instead; `key` is the request's Idempotency-Key."""
        super().__init__(failure.message, hint)
        self.status, self.request_id = failure.status, failure.request_id
        self.key = key


class HudNoKey(HudError):
    """There is no key: of HUD, where the embedded service was not chosen; or of the Hub."""

    exit_code = 4
    kind = "no_key"


class HudUsage(HudError):
    """The command or its input cannot be acted on: a name, a flag, a file, a line, a field."""

    exit_code = 2
    kind = "usage"


class HudReadOnly(HudError):
    """This program was told to change nothing; the request was not sent."""

    kind = "read_only"

    def __init__(self, why: str, what: str, hint: str) -> None:
        """`why` says what told it so, `what` what was not sent."""
        super().__init__(f"read-only: {why}; not sent: {what}", hint)
        self.why = why


class HudProtected(HudUsage):
    """The model is protected, and nobody has typed its name; nothing was sent."""

    kind = "protected"

    def __init__(self, name: str, what: str) -> None:
        """`name` is the model's, in clean text; `what` would have been done."""
        hint = f"where that is meant, add --confirm with its name: --confirm {quote(name)}"
        super().__init__(f"{name} is protected on this machine; not done: {what}", hint)
        self.name = name


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a task file."""

    where: str
    """File, and the line or row from 1, e.g. ``tasks.jsonl line 3``."""
    field: str
    """Which field of the row, e.g. ``setup_tool[0].name``; empty if it is none."""
    message: str
    """What was expected, and what was found; never the value itself."""

    def __str__(self) -> str:
        return f"{self.where}: {f'field {self.field}: ' if self.field else ''}{self.message}"


class HudBadTasks(HudUsage):
    """Task rows that cannot be read; every problem of them is listed."""

    def __init__(self, problems: Sequence[Problem], hint: str = "") -> None:
        named = "; ".join(map(str, problems[:NAMED]))
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        count = f"{len(problems)} problems: " if len(problems) > 1 else ""
        super().__init__(f"{count}{named}{more}", hint)
        self.problems = tuple(problems)


class HudAmbiguous(HudUsage):
    """A name means several things; the hint lists them."""

    kind = "ambiguous"


class HudBadInput(HudUsage, ValueError):
    """A training call was given what cannot be trained on; nothing was sent."""


class HudPreflightFailed(HudError):
    """A preflight check failed; nothing was submitted."""

    exit_code = 5
    kind = "preflight_failed"


class HudAlarm(HudError):
    """An alarm is as bad as ``--fail-on`` says."""

    exit_code = 6
    kind = "alarm"


class HudGate(HudError):
    """An evaluation is not as good as ``--fail-under`` or ``--fail-if-worse-than`` says."""

    exit_code = 6
    kind = "gate"


class HudInternal(HudError):
    """A bug of this program."""

    kind = "internal"


def refused(
    status: int, detail: str, hint: str = "", retry_after: float | None = None
) -> HudRefused:
    """The error class that fits an HTTP status."""
    kinds: dict[int, type[HudRefused]] = {
        401: HudUnauthorized,
        403: HudUnauthorized,
        404: HudNotFound,
        409: HudConflict,
        410: HudNotFound,
    }
    return kinds.get(status, HudRefused)(status, detail, hint, retry_after)


class BadTuning(ValueError):
    """A value of the config file that cannot be used: which one, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}" if name else why)
        self.name, self.why = name, why
