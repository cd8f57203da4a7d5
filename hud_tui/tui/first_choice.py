"""What the catalog suggests: where the cursor begins, and what Enter does to a model."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from hud_tui.keys import key, keyed
from hud_tui.rl.catalog import Kind, free_name, kind, origin, own
from hud_tui.rl.text import one_line
from hud_tui.wire import Model

FIRST_BASE = "mixed"
"""The base a first start begins with, where its name has this word."""
WELCOME = """\
[b]Welcome.[/b] This machine now runs a small service of its own, which samples and trains a tiny \
language model on the CPU. Nothing leaves this machine, and nothing costs anything.
"""
WELCOME_ON_SERVER = """\
[b]Welcome.[/b] This machine now runs a small service of its own, which samples and trains \
language models on a Tinker server. Prompts and completions go there, and it may cost money.
"""
NO_MATCH = "no model has this text · {models.leave} shows all"
WAY = """
[b $accent]1[/]  {^models.choose} forks a base: a copy that is yours to train     \
[$text-muted]you are here[/]
[b]2[/]  {^launch.choose} checks the tasks it will learn from, and shows the run
[b]3[/]  {^launch.choose} submits the run, and you watch the reward rise"""


def first_choice(models: Sequence[Model]) -> Model | None:
    """The model that Enter is wanted for most likely: the newest fork, else a base."""
    bases = [model for model in models if kind(model) is Kind.BASE]
    first = [model for model in bases if FIRST_BASE in model.model_name]
    return next(iter([*own(models), *first, *bases]), None)


def enter_does(model: Model | None, models: Sequence[Model], first_start: bool) -> Content:
    """What Enter does to the model under the cursor, in a line.

    Args:
        model: None where the filter leaves none.
        models: The catalog.
        first_start: Whether Enter forks without asking.
    """
    if model is None:
        return Content(keyed(NO_MATCH) if models else "no models")
    name, enter = one_line(model.model_name, 50), key("models.choose")
    match kind(model):
        case Kind.OWN:
            told = one_line(origin(model), 100)
            began = (f"   {told}", "$text-muted") if told else ""
            return Content.assemble((enter, "bold"), f"  follows {name}", began)
        case Kind.BASE if first_start:
            forks = Content.assemble((enter, "bold $accent"), f"  forks {name} as ")
            new = (free_name(model.model_name, models), "bold")
            return Content.assemble(
                forks, new, "   ", (key("models.fork"), "bold"), "  another name"
            )
        case Kind.BASE:
            return Content.assemble((enter, "bold"), f"  forks {name}: a copy to train")
        case Kind.SERVED:
            return Content(f"{name} is served, but cannot be trained or forked")
