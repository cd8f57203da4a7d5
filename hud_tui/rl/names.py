"""Which model, or which checkpoint, a name means.

Source: the ``hud`` SDK compares id, name, slug and the slug's last part, in any
case. Where it takes the first of several matches, this refuses: acting on the
wrong model costs more than typing a longer name.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, Model

T = TypeVar("T")
SHORTEST_PREFIX = 4
"""Characters of an id that are enough to name it where only one begins so."""


def find_model(name: str, models: Sequence[Model]) -> Model:
    """One model by id, then name or slug, then the slug's part after the last ``/``.

    Raises:
        HudUsage: None or several match; the hint lists close names, or the several.
    """
    wanted = name.strip().casefold()
    ranks: tuple[Callable[[Model], Iterable[str | None]], ...] = (
        lambda m: (m.id,),
        lambda m: (m.name, m.model_name),
        lambda m: (m.model_name.rpartition("/")[2],),
    )
    for rank in ranks:
        found = [m for m in models if wanted in (_fold(text) for text in rank(m))]
        if found:
            return _only(found, "model", name, lambda m: m.model_name)
    known = {text: None for m in models for text in (m.model_name, m.name) if text}
    raise HudUsage(f"no model is called {one_line(name)}", close_names(name, known))


def find_checkpoint(name: str, tree: Sequence[Checkpoint]) -> Checkpoint:
    """One checkpoint by id, by name, or by how its id begins.

    Raises:
        HudUsage: None or several match.
    """
    wanted = name.strip().casefold()
    ranks: tuple[Callable[[Checkpoint], bool], ...] = (
        lambda c: wanted == c.id.casefold(),
        lambda c: wanted in (_fold(c.name), _fold(c.checkpoint_name)),
        lambda c: len(wanted) >= SHORTEST_PREFIX and c.id.casefold().startswith(wanted),
    )
    for rank in ranks:
        if found := [c for c in tree if rank(c)]:
            return _only(found, "checkpoint", name, lambda c: c.id)
    newest = [c.name or c.id for c in reversed(tree)]
    raise HudUsage(f"no checkpoint is called {one_line(name)}", close_names(name, newest))


def close_names(name: str, known: Iterable[str]) -> str:
    """A hint that names what was probably meant, or what there is."""
    from difflib import get_close_matches  # only a mistake needs it

    known = list(known)
    folded = {text.casefold(): text for text in known}
    close = [folded[text] for text in get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(one_line(text) for text in close) + "?"
    if not known:
        return "there are none yet"
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return "there are " + ", ".join(one_line(text) for text in known[:5]) + more


def _only(found: Sequence[T], kind: str, name: str, label: Callable[[T], str]) -> T:
    if len(found) == 1:
        return found[0]
    several = ", ".join(one_line(label(match)) for match in found[:5])
    raise HudUsage(f"{len(found)} {kind}s are called {one_line(name)}", f"say which: {several}")


def _fold(text: str | None) -> str | None:
    return text.casefold() if text else None
