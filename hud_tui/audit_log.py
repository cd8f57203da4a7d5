"""The command log: every change sent from this machine, as JSON lines in the state directory; and
the commands that repeat an entry.

Lines are appended under a lock, so that several programs can share the file. Unreadable lines are
skipped. A full file is rotated once.
"""

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from shlex import join, quote
from typing import Any
from urllib.parse import urlsplit

from hud_tui.parameters import (
    EVALUATION_PARAMETERS,
    RUN,
    RUN_PARAMETERS,
    TRAIN,
    Parameter,
    taken_by,
)
from hud_tui.rl.text import write_loss_config
from hud_tui.storage import PRIVATE, locked, open_or_make, open_regular

# AuditEntry: one request that changed something, as a line of JSON in the command log.


LINE_MOST = 20_000
"""Maximum characters of a line."""


COMMAND = "command"
"""Field of the body that contains the words of a command."""


@dataclass(frozen=True)
class AuditEntry:
    """One request and its outcome, as text without the API key."""

    at: float
    """Time of sending, Unix seconds."""
    verb: str
    model: str = ""
    """The model's id."""
    name: str = ""
    """Name of the model at that time; empty if unknown."""
    subject: str = ""
    before: str = ""
    after: str = ""
    outcome: str = "unknown"
    """``done``, ``refused`` (not done) or ``unknown`` (no answer)."""
    message: str = ""
    """The service's message, if it was not done."""
    service: str = ""
    """E.g. ``HUD local``."""
    local: bool = False
    host: str = ""
    """URL of the service elsewhere, if it is one."""
    by: str = ""
    """Sender: ``app``, ``headless`` or ``python``."""
    method: str = ""
    url: str = ""
    body: str = ""
    """The JSON body without omitted fields."""
    omitted: tuple[str, ...] = ()
    """Fields of the body that are not logged."""
    source: str = ""
    """File, directory or taskset of omitted tasks."""
    digest: str = ""
    """Digest of the tasks that were sent."""
    left_out: tuple[str, ...] = ()
    """Slugs of the source's tasks that were not sent."""
    request_id: str = ""
    key: str = ""
    """The request's Idempotency-Key."""
    act: str = ""
    """As of `Change`."""

    @property
    def sent(self) -> dict[str, Any]:
        """The logged fields of the body; empty without a JSON body."""
        try:
            body = json.loads(self.body) if self.body else {}
        except (ValueError, RecursionError):
            return {}
        return body if isinstance(body, dict) else {}


def local_time(entry: AuditEntry) -> str:
    """When it was sent, by this machine's clock; a dash if no calendar has that."""
    try:
        return datetime.fromtimestamp(entry.at).isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return "–"


def command_entry(at: float, words: Sequence[str]) -> AuditEntry:
    """A command that was done here, and sent nothing to the service, e.g. ``remote add``. `words`:
    what follows ``hud-tui``: the command, its action, its subject, its flags."""
    body = json.dumps({COMMAND: [*words]})
    verb, subject = " ".join(words[:2]), words[2] if len(words) > 2 else ""
    return AuditEntry(at, verb, subject=subject, outcome="done", service="here", body=body)


def to_line(written: AuditEntry) -> str:
    """The entry as a line; non-ASCII is escaped, so that it contains no control characters."""
    return json.dumps(asdict(written), separators=(",", ":"), allow_nan=False) + "\n"


def read_lines(lines: Iterable[str]) -> tuple[list[AuditEntry], int]:
    """Entries of the lines, in order, and the number of unreadable lines."""
    entries: list[AuditEntry] = []
    bad = 0
    for line in lines:
        if not line.strip():
            continue
        entry = _read(line)
        if entry is None:
            bad += 1
        else:
            entries.append(entry)
    return entries, bad


def matching(log: Sequence[AuditEntry], text: str) -> list[AuditEntry]:
    """Entries whose displayed fields contain every word."""
    words, matches = text.casefold().split(), []
    for entry in log:
        parts = (entry.verb, entry.name, entry.model, entry.subject, entry.before, entry.after)
        more = (entry.outcome, entry.message, entry.service, entry.by, entry.request_id)
        shown = " ".join((*parts, *more)).casefold()
        if all(word in shown for word in words):
            matches.append(entry)
    return matches


def _read(line: str) -> AuditEntry | None:
    """Parse a line; unknown fields are ignored."""
    if len(line) > LINE_MOST:
        return None
    try:
        row = json.loads(line)
        at = float(row["at"])
        if not isfinite(at) or not isinstance(row["verb"], str):
            raise ValueError("not a time, or no verb")
        lists = {name: tuple(map(str, row.get(name) or ())) for name in LISTS}
        texts = {
            field.name: str(row[field.name])
            for field in fields(AuditEntry)
            if field.name not in ("at", "local", *LISTS) and row.get(field.name) is not None
        }
        values: dict[str, Any] = {**texts, **lists}
        return AuditEntry(at=at, local=bool(row.get("local")), **values)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


LISTS = ("omitted", "left_out")


def change_text(entry: AuditEntry) -> str:
    """The change in a few words."""
    before, subject, after = (short_id(id_) for id_ in (entry.before, entry.subject, entry.after))
    match entry.verb:
        case "set head":
            return _arrow(before or "–", after)
        case "fork":
            return _arrow("", f"{subject} at {before}" if before else subject)
        case "submit" | "train":
            return _arrow("", f"job {after}") if after else ""
        case "evaluate":
            return _arrow(before or "base", f"evaluation {after}" if after else "")
        case "cancel" | "resume":
            return _arrow(f"job {subject}", after)
    return _arrow(subject, after)


def _arrow(before: str, after: str) -> str:
    """``before → after``, of which either may be empty."""
    if not after:
        return before
    return f"{before} → {after}" if before else f"→ {after}"


def short_id(text: str) -> str:
    """The first eight characters of an id; another text unchanged."""
    digits = text.replace("-", "")
    is_id = len(digits) >= 16 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
    return text[:8] if is_id else text


NAME = "commands.jsonl"
MOST = 1_000_000
"""Size at which the file is rotated; the previous rotated file is deleted."""

REPORTS = frozenset({"enter trace", "exit trace"})
"""Reports of each rollout of a training loop; not logged, they change no model."""


class CommandLog:
    """Appends to and reads the log file."""

    def __init__(self, directory: Path, by: str = "") -> None:
        """`by`: the program that sends, e.g. ``app``."""
        self.file, self._by = directory / NAME, by
        self._rotated = self.file.with_suffix(".jsonl.1")

    def add(self, written: AuditEntry) -> str:
        """Append an entry; returns why that failed, else an empty text. It is no error, since the
        request was sent already."""
        if written.verb in REPORTS:
            return ""
        line = to_line(replace(written, by=self._by)).encode("ascii")
        try:
            try:
                with locked(self.file.parent):
                    self._append(line)
                    if self.file.stat().st_size > MOST:
                        self.file.replace(self._rotated)
            except TimeoutError:  # a line is whole without the lock too
                self._append(line)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def read(self) -> tuple[list[AuditEntry], int]:
        """All entries, oldest first, and the number of unreadable lines."""
        lines: list[str] = []
        for file in (self._rotated, self.file):
            with suppress(OSError), open_regular(file) as opened:
                body = opened.read(2 * MOST)
                lines += body.decode("utf-8", "replace").split("\n")
        return read_lines(lines)

    @property
    def stamp(self) -> tuple[int, int]:
        """A value that changes whenever something is added."""
        try:
            status = self.file.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_size

    def _append(self, line: bytes) -> None:
        descriptor = open_or_make(self.file, os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, PRIVATE)
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            whole = (b"\n" if torn else b"") + line
            if os.write(descriptor, whole) < len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Commands that repeat an entry: with hud-tui, the ``hud`` CLI, curl, or Python.
#
# They are meant to be pasted into a shell, so every value is quoted with shlex or is an ASCII
# literal of Python. They never contain the key.


HUD_ORIGINS = ("https://api.hud.ai", "https://rl.hud.ai")


def as_hud_tui(entry: AuditEntry, flags: str = "") -> str:
    """The ``hud-tui`` command that repeats it; empty if there is none. `flags`: those for
    directories, as of `Settings.flags`: the log is in one of them."""
    words = _hud_tui(entry)
    service = ["--local"] if entry.local else ["--host", quote(entry.host)] if entry.host else []
    start = ["hud-tui", "--headless", *service, *([flags] * bool(flags))]
    return f"{' '.join(start)} {join(words)}" if words else ""


def as_hud(entry: AuditEntry) -> str:
    """The command of the ``hud`` CLI that repeats it; empty if there is none."""
    command = _hud(entry)
    if not command:
        return ""
    origin = _origin(entry.url)
    home = "" if origin in HUD_ORIGINS else f"HUD_API_URL={quote(origin)} "
    key = 'HUD_API_KEY="$HUD_TUI_KEY" ' if entry.host else ""
    return key + home + join(command)


def as_curl(entry: AuditEntry, rest: Mapping[str, Any] | None = None) -> str:
    """Lines for a POSIX shell that repeat it, with the key from `key_variable`; empty if no single
    request does, or the body is not known. `rest`: the omitted fields of the body, if the caller
    has them."""
    is_complete = set(entry.omitted) <= (rest or {}).keys()
    if not entry.url or entry.verb == "train" or "options" in entry.sent or not is_complete:
        return ""
    key = f'-H "Authorization: Bearer ${key_variable(entry)}"'
    start = ["curl", "-X", quote(entry.method), key]
    if not entry.omitted:
        return " ".join([*start, *_data(entry), quote(entry.url)])
    body = json.dumps({**entry.sent, **{name: (rest or {})[name] for name in entry.omitted}})
    line = " ".join([*start, JSON, "--data-binary @-", quote(entry.url)])
    return f"{line} <<'{BODY}'\n{body}\n{BODY}\n"


def key_variable(entry: AuditEntry) -> str:
    """Name of the variable that has the service's key."""
    return "HUD_TUI_KEY" if entry.host else "HUD_API_KEY"


def as_python(entry: AuditEntry) -> str:
    """A program with this package's client that repeats it; empty if the body was not logged."""
    call = _call(entry)
    if not call:
        return ""
    imports, make = _client(entry)
    return PROGRAM.format(imports=imports, make=make, call=call)


BODY = "BODY"
"""End of a here-document; a body cannot contain it, because it is one line of JSON."""
PROGRAM = """\
import asyncio
from contextlib import aclosing

{imports}


async def main() -> None:
    async with aclosing({make}) as client:
        print({call})


asyncio.run(main())
"""


def _client(entry: AuditEntry) -> tuple[str, str]:
    client, paths = "client.client import HudClient", "settings import read_paths"
    if entry.local:
        modules = ["local_service import connect_local", paths]
        make = "await connect_local(read_paths(), print)"
    elif entry.host:
        modules = [client, "hosts import host_settings", paths]
        make = f"HudClient(host_settings({entry.host!a}, read_paths().state))"
    else:
        modules, make = [client, "settings import read_settings"], "HudClient(read_settings())"
    return "\n".join(f"from hud_tui.{module}" for module in modules), make


def _call(entry: AuditEntry) -> str:
    """The client's call for the same request."""
    model = ascii(entry.model)
    match entry.verb:
        case "set head":
            return f"await client.set_head({model}, {entry.after!a})"
        case "fork":
            start = entry.sent.get("checkpoint_id")
            start_argument = f", {str(start)!a}" if start is not None else ""
            return f"await client.fork({model}, {entry.subject!a}{start_argument})"
        case "pin" | "unpin":
            return f"await client.pin({model}, {entry.subject!a}, {entry.verb == 'pin'})"
        case "cancel":
            return f"await client.cancel_job({entry.subject!a})"
        case "resume":
            return f"await client.resume_job({entry.subject!a})"
    return ""


def _hud(entry: AuditEntry) -> list[str]:
    """The words of the ``hud`` CLI, version 0.6.21."""
    match entry.verb:
        case "set head":
            return ["hud", "models", "head", f"--set={entry.after}", "--yes", *_place(entry.model)]
        case "fork" if "checkpoint_id" not in entry.sent:
            name = f"--name={entry.subject}"
            return ["hud", "models", "fork", name, "--yes", *_place(entry.model)]
        case "cancel":
            return ["hud", "jobs", "cancel", "--yes", *_place(entry.subject)]
    return []


def _hud_tui(entry: AuditEntry) -> list[str]:
    """The words of the ``hud-tui`` command."""
    words = entry.sent.get(COMMAND)
    if isinstance(words, list) and not entry.url:
        return [str(word) for word in words]
    match entry.verb:
        case "fork":
            start = entry.sent.get("checkpoint_id")
            start_words = [] if start is None else [f"--checkpoint={start}"]
            return ["fork", f"--name={entry.subject}", *start_words, "-y", *_place(entry.model)]
        case "set head":
            return ["head", f"--set={entry.after}", "-y", *_place(entry.model)]
        case "submit" if entry.source:
            return ["run", *_submitted(entry), "-y", *_place(entry.source)]
        case "train" if entry.source:
            return ["train", *_trained(entry), "-y", *_place(entry.source)]
        case "cancel":
            return ["jobs", "--cancel", "-y", *_place(entry.subject)]
        case "resume":
            return ["jobs", "--resume", "-y", *_place(entry.subject)]
        case "rename":
            return ["runs", f"--name={entry.after}", "-y", *_place(entry.subject)]
        case "evaluate":
            return ["eval", *_evaluated(entry)]
    return []


def _tasks(entry: AuditEntry) -> list[str]:
    """Flags for the tasks of the source: those left out, and the digest of the others."""
    left_out = [f"--leave-out={slug}" for slug in entry.left_out]
    return [*left_out, *([f"--digest={entry.digest}"] if entry.digest else [])]


def _submitted(entry: AuditEntry) -> list[str]:
    parameters = _object(_object(entry.sent, "config"), "parameters")
    flags = as_flags(_given(parameters, taken_by(RUN, RUN_PARAMETERS)))
    return [f"--model={entry.model}", *flags, *_tasks(entry)]


def _trained(entry: AuditEntry) -> list[str]:
    """The words of the ``train`` command; it uses the file in its present state."""
    parameters, options = (_object(entry.sent, name) for name in ("parameters", "options"))
    values = _given(parameters, taken_by(TRAIN, RUN_PARAMETERS)) | options
    left_out = [f"--leave-out={slug}" for slug in entry.left_out]
    return [f"--model={entry.model}", *as_flags(values), *left_out]


def _evaluated(entry: AuditEntry) -> list[str]:
    """The words of the ``eval`` command; without a source, the tasks are those of the model's
    latest run."""
    checkpoint, split = entry.before or "base", entry.sent.get("split")
    by_flag = {"model": entry.model, "checkpoint": checkpoint, "split": split}
    by_flag |= _given(_object(entry.sent, "parameters"), EVALUATION_PARAMETERS)
    by_flag |= _object(entry.sent, "options")
    return [*as_flags(by_flag), *(_tasks(entry) + _place(entry.source) if entry.source else ())]


def _object(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object of a body; empty if it is none."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _given(values: Mapping[str, Any], rows: Iterable[Parameter]) -> dict[str, Any]:
    """The values of these parameters, by their names; None for what is not there."""
    return {row.name: values.get(row.name) for row in rows}


def as_flags(values: Mapping[str, object]) -> list[str]:
    """Flags with these values; a list gives one for each of its values, None none."""
    flags = []
    for name, value in values.items():
        each = value if isinstance(value, list) else [value]
        flags += [_flag(name, one) for one in each if one is not None]
    return flags


def _flag(name: str, value: object) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    if isinstance(value, dict):
        value = write_loss_config(value)
    return f"--{flag}={value}"


def _place(word: str) -> list[str]:
    """A positional argument, even if it begins with a dash."""
    return ["--", word] if word.startswith("-") else [word]


def _data(entry: AuditEntry) -> list[str]:
    return [JSON, "--data-raw", quote(entry.body)] if entry.body else []


JSON = "-H 'Content-Type: application/json'"


def sent_to(entry: AuditEntry, origin: str) -> AuditEntry:
    """The entry as if it was sent to another address: an embedded service has a port of its own
    each time it starts."""
    if not entry.url:
        return entry
    return replace(entry, url=origin + entry.url.removeprefix(_origin(entry.url)))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def document(entry: AuditEntry, flags: str = "") -> dict[str, object]:
    """The entry as a JSON document. `flags`: as of `as_hud_tui`."""
    forms = {"hud": as_hud, "curl": as_curl, "python": as_python}
    commands = {"hud_tui": as_hud_tui(entry, flags)}
    return {
        **{name: value for name, value in vars(entry).items() if name != "body"},
        "body": json.loads(entry.body) if entry.sent else entry.body,
        "commands": commands | {name: form(entry) for name, form in forms.items()},
    }
