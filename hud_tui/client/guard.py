"""The guard, which checks every write before it is sent; protected models; reports of writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from hud_tui.change import Change, TaskSource
from hud_tui.errors import HudError, HudProtected, HudReadOnly, HudUnclear, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.storage import change_atomic, read_regular, stored_in

if TYPE_CHECKING:  # every command makes a guard, and few write
    from hud_tui.audit_log import AuditEntry
    from hud_tui.config import ReadOnly

# Protected models: changing one requires typing its name.
#
# They are stored in a JSON file in the state directory, which is read before every change, so
# that protection applies to all programs on this machine.


NAME = "protected.json"
MOST_BYTES = 4_000_000
"""Maximum size of a file that is read."""


class Protection:
    def __init__(self, find: Callable[[], Path] | None = None) -> None:
        """`find` returns the directory; None stores protection for this session only."""
        self._find = find
        self._models: dict[str, str] = {}

    @cached_property
    def _file(self) -> Path | None:
        return None if self._find is None else self._find() / NAME

    @property
    def models(self) -> Mapping[str, str]:
        """Names of protected models by id, as of when they were protected. Raises HudUsage: the
        file is unreadable."""
        if self._file is None:
            return self._models
        try:
            models = json.loads(read_regular(self._file, MOST_BYTES))["models"]
            return {str(id_): str(name) for id_, name in models.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{one_line(self._file, 300)} is not a valid list of protected models"
            raise HudUsage(what, "fix it, or remove it to protect none") from error

    def protect(self, model_id: str, name: str, on: bool) -> None:
        """Protect or unprotect a model. Raises HudUsage: the file cannot be read or written."""

        def changed() -> dict[str, str]:
            others = {id_: kept for id_, kept in self.models.items() if id_ != model_id}
            return {**others, model_id: name} if on else others

        if self._file is None:
            self._models = changed()
            return
        with stored_in(self._file):
            change_atomic(self._file, lambda: json.dumps({"models": changed()}))


GUARDED = frozenset(
    {
        *("set head", "approve", "submit", "cancel", "resume", "unpin"),
        *("forward-backward", "backward", "optim step"),
    }
)
"""Changes of an existing model. Not forks, which leave their source unchanged, nor pins, which only
keep state."""


class Guard:
    """Blocks writes in read-only mode and to protected models. By default nothing is blocked."""

    def __init__(
        self,
        find: Callable[[], ReadOnly | None] = lambda: None,
        protection: Protection | None = None,
        confirmed: str | None = None,
    ) -> None:
        """
        Args:
            find: Returns the source of read-only mode; called once, before the first write.
            protection: The protected models; None keeps them for the session only.
            confirmed: Name of a protected model that may be changed.
        """
        self._find, self.protection = find, protection or Protection()
        self._confirmed = confirmed
        self._allowed: set[str] = set()
        self._offline: ReadOnly | None = None
        """Read-only mode while the service does not answer; None while it does."""

    @cached_property
    def read_only(self) -> ReadOnly | None:
        """Read-only mode as configured; None if writes are allowed."""
        return self._find()

    @property
    def shut(self) -> ReadOnly | None:
        """Read-only mode as configured, or because the service does not answer; None if writes are
        allowed."""
        return self.read_only or self._offline

    @property
    def protected(self) -> Mapping[str, str]:
        """Names of protected models by id. Raises HudUsage: the list is unreadable."""
        return self.protection.models

    def set_offline(self, why: ReadOnly | None) -> None:
        """Set or clear (None) read-only mode while the service does not answer."""
        self._offline = why

    def allow(self, model_id: str) -> None:
        """Allow the next change of a protected model, because its name was typed."""
        self._allowed.add(model_id)

    def check(self, what: str, change: Change | None = None) -> None:
        """Check a request, e.g. ``PUT /v2/models/m/head``.

        Raises:
            HudReadOnly: Read-only mode.
            HudProtected: It changes a protected model whose name was not typed.
            HudUsage: The list of protected models is unreadable.
        """
        if self.shut is not None:
            raise HudReadOnly(self.shut.why, what, self.shut.cure)
        if change is not None:
            self.check_protected(change)

    def check_protected(self, change: Change) -> None:
        """As `check`, also in read-only mode, in which a dry run is allowed."""
        if change.verb not in GUARDED:
            return
        name = self.protected.get(change.model)
        if name is None or self._confirmed in (name, change.model):
            return
        if change.model in self._allowed:
            self._allowed.remove(change.model)
            return
        raise HudProtected(one_line(name, 100), change.verb)


# Reporting each write with its outcome to an observer.


BODY_MOST = 4000
"""Maximum characters of a logged body."""
TEXT_MOST = 300
PLACE_MOST, SLUGS_MOST = 4096, 6000
"""Maximum characters of a task source's path, and of the slugs of all tasks that were left out."""


def ignore_write(written: AuditEntry) -> None:
    """Default observer: ignores writes."""


@dataclass
class Writing:
    """Reports each write to an observer once, never with the API key."""

    service: str
    local: bool
    host: str
    """As of `Settings`."""
    without_key: Callable[[str], str]
    observe: Callable[[AuditEntry], object]
    """Called with each request that changed something, or may have."""
    names: dict[str, str] = field(default_factory=dict)
    """Known names of models, by id."""

    def begin(self, change: Change, method: str, url: str, body: bytes, key: str) -> AuditEntry:
        """The log entry of a write that is about to be sent."""
        from hud_tui.audit_log import AuditEntry

        text, omitted = _loggable(body, change.omitted)
        clean = self._clean
        return AuditEntry(
            at=time(),
            verb=change.verb,
            model=clean(change.model),
            name=clean(self.names.get(change.model, "")),
            subject=clean(change.subject),
            before=clean(change.before),
            after=clean(change.after),
            service=clean(self.service),
            local=self.local,
            host=clean(self.host),
            method=method,
            url=self.without_key(_without_user(url)),
            body=self.without_key(text),
            omitted=omitted,
            source=self.without_key(one_line(change.source.origin, PLACE_MOST)),
            digest=change.source.digest,
            left_out=self._slugs(change.source),
            key=key,
            act=change.act,
        )

    def failed(self, written: AuditEntry, error: BaseException) -> None:
        """Report a refused write, or one with an unknown outcome."""
        message, request_id = type(error).__name__, ""
        if isinstance(error, HudError):
            message, request_id = error.message, error.request_id
        outcome = "unknown"
        if isinstance(error, HudError) and not isinstance(error, HudUnclear):
            outcome = "refused"
        message, request_id = self._clean(message), self._clean(request_id)
        self.observe(replace(written, outcome=outcome, message=message, request_id=request_id))

    def done(
        self, written: AuditEntry, answer: object, made: str, request_id: str, replaced: str = ""
    ) -> None:
        """Report a completed write; `made` and `replaced` as in `Change`."""
        before = written.before
        if replaced in getattr(answer, "model_fields_set", ()):
            before = str(getattr(answer, replaced) or "")
        after = str(getattr(answer, made, "") or "") if made else written.after
        told = replace(written, outcome="done", before=self._clean(before))
        after, request_id = self._clean(after), self._clean(request_id)
        self.observe(replace(told, after=after, request_id=request_id))

    def _slugs(self, source: TaskSource) -> tuple[str, ...]:
        """Slugs of the tasks that were left out; none if they are too long for a line. The digest
        then shows a repeated command that its tasks differ."""
        slugs = tuple(self.without_key(slug) for slug in source.left_out)
        return slugs if sum(map(len, slugs)) <= SLUGS_MOST else ()

    def _clean(self, text: str) -> str:
        return self.without_key(one_line(text, TEXT_MOST))


def _loggable(body: bytes, omitted: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The body without omitted fields, and the names of those; empty if the body is too long."""
    document = json.loads(body)
    gone = tuple(name for name in omitted if name in document)
    text = json.dumps({name: value for name, value in document.items() if name not in gone})
    if len(text) > BODY_MOST:
        return "", ("all of it",)
    return ("" if text == "{}" and not gone else text), gone


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
