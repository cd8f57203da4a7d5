"""Which models are whose: bases to fork, forks to train, models that are only served."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from hud_tui.rl.model_checks import is_shared
from hud_tui.wire import Model

NAME_LIMIT = 100
"""Characters of a model's name, as the wire limits it."""
_SIZE = re.compile(r"[-_ ]\d+(\.\d+)?[kmb]$")


class Kind(StrEnum):
    """What can be done with a model."""

    OWN = "own"
    """Ours to train."""
    BASE = "base"
    """Shared: fork it to train it."""
    SERVED = "served"
    """Neither; the gateway serves it."""


def kind(model: Model) -> Kind:
    """What can be done with a model of the catalog."""
    if not model.is_trainable:
        return Kind.SERVED
    return Kind.BASE if is_shared(model) else Kind.OWN


def own(models: Iterable[Model]) -> list[Model]:
    """Models that are ours to train, newest first."""
    mine = [model for model in models if kind(model) is Kind.OWN]
    return sorted(mine, key=lambda model: model.created_at or "", reverse=True)


def origin(model: Model) -> str:
    """Where a fork starts: ``forked from mixed-rl step-000017``.

    Empty where the service does not say, and for a fork of the base that it names anyway.
    """
    told = model.forked_from or ""
    if told in ("", model.base_model):
        return ""
    return f"forked from {' '.join(told.rsplit('@', 1))}"


def free_name(source: str, models: Iterable[Model]) -> str:
    """A name for a fork that nobody has: ``mixed-rl`` for ``tiny/mixed-0.2M``, or ``mixed-rl-2``.

    Args:
        source: Slug of the model to fork.
        models: The catalog.
    """
    tail = source.rpartition("/")[2].casefold()
    stem = re.sub(r"-rl(-\d+)?$", "", _SIZE.sub("", tail))[: NAME_LIMIT - 10] or "model"
    taken = _names(models)
    number = 1
    while (name := f"{stem}-rl" if number == 1 else f"{stem}-rl-{number}") in taken:
        number += 1
    return name


def slug_of(name: str) -> str:
    """What the embedded service makes of a name, where nobody has that slug already."""
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-.")[:60] or "model"


def name_problem(name: str, models: Sequence[Model]) -> str:
    """Why a fork cannot have this name, in one line; empty when it can."""
    if not name.strip():
        return "type a name"
    if len(name) > NAME_LIMIT:
        return f"at most {NAME_LIMIT} characters"
    if not name.isprintable():
        return "only characters that can be seen"
    if name.strip().casefold() in _names(models):
        return "a model has this name already"
    return ""


def _names(models: Iterable[Model]) -> set[str]:
    return {text.casefold() for model in models for text in (model.name, model.model_name) if text}
