"""Names: text from a server made safe for file names and Markdown; models, checkpoints and jobs
found by name."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.text import names_text, one_line
from hud_tui.wire import Checkpoint, Job, Model

_ODD = re.compile(r"[^0-9A-Za-z._-]+")
_TICKS = re.compile("`+")
_MARKS = re.compile(r"([\\`*_\[\]<>|~$#&]|(?<=[a-z]):(?=//)|(?<=www)\.|!(?=\[))")
LONGEST = 60
"""Maximum characters of a file name made from server text."""


def plain_name(text: str) -> str:
    """A file name made from any text: without path separators, leading dots or leading dashes."""
    safe = _ODD.sub("-", text[: 4 * LONGEST]).strip("-.")[:LONGEST].rstrip("-.")
    return safe or "unnamed"


def code(text: object, limit: int = 200) -> str:
    """A text as a Markdown code span; a dash if it is empty.

    A bar ends a table cell even in a code span, so it is escaped.
    """
    safe = one_line("" if text is None else text, limit).strip()
    if not safe:
        return "–"
    longest = max((len(ticks) for ticks in _TICKS.findall(safe)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{safe}{space}{fence}".replace("|", "\\|")


def escaped(text: object, limit: int = 600) -> str:
    """A text as plain Markdown: no links, images, HTML, emphasis or table cells."""
    return _MARKS.sub(r"\\\1", one_line(text, limit))


# Resolving a name to a model, checkpoint or job.
#
# Source: the ``hud`` SDK compares id, name, slug and the slug's last part, case-
# insensitively. It takes the first of several matches. Here that is an error, because acting
# on the wrong model costs more than typing a longer name.


T = TypeVar("T")
SHORTEST_PREFIX = 4
"""Minimum length of an id prefix that is accepted."""


def find_model(name: str, models: Sequence[Model]) -> Model:
    """A model by id, by name or slug, by the last part of its slug, or by a prefix of its id; in
    this order.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists similar names.
    """
    folded = name.strip().casefold()
    ranks: tuple[Callable[[Model], Iterable[str | None]], ...] = (
        lambda m: (m.id,),
        lambda m: (m.name, m.model_name),
        lambda m: (m.model_name.rpartition("/")[2],),
    )
    for rank in ranks:
        matches = [m for m in models if folded in (_fold(text) for text in rank(m))]
        if matches:
            return _only(matches, "model", name, lambda m: m.model_name)
    if matches := _with_prefix(folded, models):
        return _only(matches, "model", name, lambda m: f"{m.id} ({m.model_name})", "have ids like")
    names = {text: None for m in models for text in (m.model_name, m.name) if text}
    raise HudUsage(f"no model named {one_line(name)}", close_names(name, names))


def find_checkpoint(name: str, tree: Sequence[Checkpoint]) -> Checkpoint:
    """A checkpoint by id, name, or a prefix of its id.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists similar names.
    """
    folded = name.strip().casefold()
    by_id = [c for c in tree if folded == c.id.casefold()]
    named = [c for c in tree if folded in (_fold(c.name), _fold(c.checkpoint_name))]
    if matches := by_id or named:
        return _only(matches, "checkpoint", name, lambda c: c.id)
    if matches := _with_prefix(folded, tree):
        return _only(matches, "checkpoint", name, lambda c: f"{c.id} ({c.name})", "have ids like")
    newest = [c.name or c.id for c in reversed(tree)]
    raise HudUsage(f"no checkpoint named {one_line(name)}", close_names(name, newest))


class _Named(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=_Named)


def find_job(name: str, jobs: Sequence[Job]) -> Job:
    """A job by id or a prefix of it.

    Args:
        jobs: Newest first.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists ids.
    """

    def label(job: Job) -> str:
        return one_line(f"{job.id} ({job.name})" if job.name else job.id, 80)

    return find_by_id(name, jobs, "job", label)


def find_by_id(
    name: str,
    items: Sequence[N],
    kind: str,
    label: Callable[[N], str],
    name_of: Callable[[N], str | None] = lambda item: None,
) -> N:
    """One of a `kind` of things by id, by name if there are names, or by a prefix of its id; other
    arguments and errors as of `find_job`."""
    plain, folded = _plain(name.strip()), name.strip().casefold()
    if matches := [item for item in items if plain == _plain(item.id)]:
        exact = [item for item in matches if item.id == name.strip()]  # dashes tell two apart
        return _only(exact or matches, kind, name, label, "have the id")
    if matches := [item for item in items if folded == _fold(name_of(item))]:
        return _only(matches, kind, name, label)
    if matches := _with_prefix(plain, items):
        return _only(matches, kind, name, label, "have ids like")
    if hint := short_prefix(name, items):
        raise HudUsage(f"no {kind} named {one_line(name)}", hint)
    newest = [label(item) for item in items[:5]]
    hint = "the newest are " + ", ".join(newest) if newest else "there are none yet"
    raise HudUsage(f"no {kind} named {one_line(name)}", hint)


def close_names(name: str, names: Iterable[str]) -> str:
    """A hint with similar names, else with the first known ones."""
    from difflib import get_close_matches  # only for a name that is wrong

    names = list(names)
    folded = {text.casefold(): text for text in names}
    close = [folded[text] for text in get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(one_line(text) for text in close) + "?"
    if not names:
        return "there are none yet"
    return f"known: {names_text(names, 5)}"


def short_prefix(name: str, items: Iterable[_Named]) -> str:
    """A hint if a name begins an id but is too short; else empty."""
    plain = _plain(name.strip())
    if 0 < len(plain) < SHORTEST_PREFIX and any(
        _plain(item.id).startswith(plain) for item in items
    ):
        return f"give at least {SHORTEST_PREFIX} characters of an id"
    return ""


def _with_prefix(prefix: str, items: Iterable[N]) -> list[N]:
    """Items whose id begins with `prefix`; dashes are ignored."""
    plain = prefix.replace("-", "")
    enough = len(plain) >= SHORTEST_PREFIX
    return [item for item in items if enough and _plain(item.id).startswith(plain)]


def _only(
    matches: Sequence[T], kind: str, name: str, label: Callable[[T], str], how: str = "are named"
) -> T:
    if len(matches) == 1:
        return matches[0]
    several = ", ".join(one_line(label(match)) for match in matches[:5])
    raise HudAmbiguous(f"{len(matches)} {kind}s {how} {one_line(name)}", f"say which: {several}")


def canonical_id(name: str) -> str:
    """The canonical form of a name that is a UUID; else empty."""
    try:
        return str(UUID(name))
    except ValueError:
        return ""


def _plain(id_: str) -> str:
    return id_.casefold().replace("-", "")


def _fold(text: str | None) -> str | None:
    return text.casefold() if text else None


def is_shared(model: Model) -> bool:
    """Whether the model serves other users too: a public model, or a base of the embedded
    service."""
    public = (model.model_extra or {}).get("public") is True
    return public or (model.base_model is not None and model.forked_from is None)
