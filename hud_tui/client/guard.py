"""Guard: every request that is not a read passes here, and nowhere else, before it is sent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import time
from urllib.parse import urlsplit, urlunsplit

from hud_tui.audit_log import Change, Written
from hud_tui.config import ReadOnly
from hud_tui.errors import HudError, HudProtected, HudReadOnly, HudUnclear, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_regular

# Protection: models that are changed only by who types their name; kept on this machine.
#
# One JSON file in the state directory. It is read whenever it matters, so that what one
# program protects is protected in all of them at once.


NAME = "protected.json"
MOST_BYTES = 4_000_000
"""Of the largest file that is read."""


class Protection:
    def __init__(self, find: Callable[[], Path] | None = None) -> None:
        """`find` says which directory; None remembers for the session."""
        self._find = find
        self._models: dict[str, str] = {}

    @cached_property
    def _file(self) -> Path | None:
        return None if self._find is None else self._find() / NAME

    @property
    def models(self) -> Mapping[str, str]:
        """What each protected model was called when it was protected, by its id.

        Raises:
            HudUsage: The file cannot be read, so that nobody knows which are.
        """
        if self._file is None:
            return self._models
        try:
            found = json.loads(read_regular(self._file, MOST_BYTES))["models"]
            return {str(id_): str(name) for id_, name in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{one_line(self._file, 300)} does not say which models are protected"
            raise HudUsage(what, "correct it, or remove it to protect none") from error

    def protect(self, model_id: str, name: str, on: bool) -> None:
        """Protect a model, or no longer.

        Raises:
            HudUsage: The file cannot be read, or cannot be written.
        """

        def changed() -> dict[str, str]:
            others = {id_: known for id_, known in self.models.items() if id_ != model_id}
            return {**others, model_id: name} if on else others

        if self._file is None:
            self._models = changed()
            return
        try:
            change_atomic(self._file, lambda: json.dumps({"models": changed()}))
        except OSError as error:
            what = f"{one_line(self._file, 300)} cannot be written: {one_line(error, 200)}"
            raise HudUsage(what, "make room there, or give another --state-dir") from error


GUARDED = frozenset(
    {
        *("set head", "submit", "cancel", "resume", "unpin"),
        *("forward-backward", "backward", "optim step"),
    }
)
"""What changes a model that is there. Forks leave their source as it is; pins only keep."""


class Guard:
    """Refuses what may not be sent. A client has one of its own that refuses nothing."""

    def __init__(
        self,
        find: Callable[[], ReadOnly | None] = lambda: None,
        protection: Protection | None = None,
        confirmed: str | None = None,
    ) -> None:
        """
        Args:
            find: Says why nothing may be changed; it is asked once, when that matters.
            protection: Says which models are protected; None protects for the session.
            confirmed: The name of a protected model that may be changed all the same.
        """
        self._find, self.protection = find, protection or Protection()
        self._confirmed = confirmed
        self._allowed: set[str] = set()
        self._offline: ReadOnly | None = None
        """What to say while the service does not answer; None while it does."""

    @cached_property
    def read_only(self) -> ReadOnly | None:
        """Why nothing is sent but what reads; None where everything may be sent."""
        return self._find()

    @property
    def shut(self) -> ReadOnly | None:
        """Why nothing is sent now: told so from the start, or because nobody would answer."""
        return self.read_only or self._offline

    @property
    def protected(self) -> Mapping[str, str]:
        """Names of protected models, by id.

        Raises:
            HudUsage: Nobody knows which are.
        """
        return self.protection.models

    def set_offline(self, why: ReadOnly | None) -> None:
        """The service does not answer, so nothing is sent; or, with None, it does again."""
        self._offline = why

    def allow(self, model_id: str) -> None:
        """Let the next change of a protected model through: somebody has typed its name."""
        self._allowed.add(model_id)

    def check(self, what: str, change: Change | None = None) -> None:
        """Let a request through, e.g. ``PUT /v2/models/m/head``.

        Raises:
            HudReadOnly: Read-only mode.
            HudProtected: It changes a protected model, and nobody has typed its name.
            HudUsage: Nobody knows which models are protected.
        """
        if self.shut is not None:
            raise HudReadOnly(self.shut.why, what, self.shut.cure)
        if change is None or change.verb not in GUARDED:
            return
        name = self.protected.get(change.model)
        if name is None or self._confirmed in (name, change.model):
            return
        if change.model in self._allowed:
            self._allowed.remove(change.model)
            return
        raise HudProtected(one_line(name, 100), change.verb)


# Writing: what is told of a request that changes something, however it ends.


BODY_MOST = 4000
"""Characters of a body that is kept."""
TEXT_MOST = 300


def untold(written: Written) -> None:
    """Nobody asked to be told."""


@dataclass
class Writing:
    """Tells an observer of each write, once. What it tells has no key in it."""

    service: str
    local: bool
    without_key: Callable[[str], str]
    observe: Callable[[Written], None]
    """Is told of each request that changed something, or may have."""
    names: dict[str, str] = field(default_factory=dict)
    """What models are called, by id, as far as anybody has asked."""

    def know(self, names: Mapping[str, str]) -> None:
        """What models are called, by id."""
        self.names |= names

    def begin(self, change: Change, method: str, url: str, body: bytes, key: str) -> Written:
        """What is known before it is sent."""
        kept, left_out = _kept(body, change.left_out)
        clean = self._clean
        return Written(
            at=time(),
            verb=change.verb,
            model=clean(change.model),
            name=clean(self.names.get(change.model, "")),
            subject=clean(change.subject),
            before=clean(change.before),
            after=clean(change.after),
            service=clean(self.service),
            local=self.local,
            method=method,
            url=self.without_key(_without_user(url)),
            body=self.without_key(kept),
            left_out=left_out,
            key=key,
        )

    def failed(self, written: Written, error: BaseException) -> None:
        """It was not done; or it ended without an answer that says so, and may have happened."""
        said, request_id = type(error).__name__, ""
        if isinstance(error, HudError):
            said, request_id = error.message, error.request_id
        outcome = "unknown"
        if isinstance(error, HudError) and not isinstance(error, HudUnclear):
            outcome = "refused"
        said, request_id = self._clean(said), self._clean(request_id)
        self.observe(replace(written, outcome=outcome, said=said, request_id=request_id))

    def done(self, written: Written, answer: object, made: str, request_id: str) -> None:
        """The service has done it."""
        after = str(getattr(answer, made, "") or "") if made else written.after
        after, request_id = self._clean(after), self._clean(request_id)
        self.observe(replace(written, outcome="done", after=after, request_id=request_id))

    def _clean(self, text: str) -> str:
        return self.without_key(one_line(text, TEXT_MOST))


def _kept(body: bytes, left_out: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A body without what is left out, and what that is; nothing of it where it is too long."""
    found = json.loads(body)
    gone = tuple(name for name in left_out if name in found)
    kept = json.dumps({name: value for name, value in found.items() if name not in gone})
    if len(kept) > BODY_MOST:
        return "", ("all of it",)
    return ("" if kept == "{}" and not gone else kept), gone


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
