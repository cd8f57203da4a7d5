"""The catalog's rows: one's own models first, then bases to fork, then what is only served."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from textual.content import Content

from hud_tui.rl.ages import age, seconds
from hud_tui.rl.catalog import Kind, kind
from hud_tui.rl.metrics import short
from hud_tui.rl.own import NONE, Own
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import Tree, label
from hud_tui.tui.widgets.palette import LOCK, RAMP, eighth, ramp_index
from hud_tui.tui.widgets.row_list import Column, Row
from hud_tui.wire import Model

COLUMNS = (
    Column("", 1),
    Column("model"),
    Column("train", 5, rank=7),
    Column("head", 13, rank=3),
    Column("steps", 6, right=True, rank=1),
    Column("held-out", 8, right=True, rank=2),
    Column("reward", 7, right=True, rank=4),
    Column("age", 5, right=True, rank=5),
    Column("base", 16, rank=6),
)
HEADINGS = {
    Kind.OWN: "yours to train",
    Kind.BASE: "bases to fork",
    Kind.SERVED: "served, not trainable",
}


@dataclass(frozen=True)
class Facts:
    """What a model's tree says, in a row."""

    head: str
    steps: int
    own: Own
    """What the head's own weights scored."""

    @classmethod
    def of(cls, tree: Tree) -> "Facts":
        own = NONE if tree.head is None else tree.own(tree.head)
        return cls(one_line(label(tree.served), 40), len(tree), own)


def model_rows(
    models: Iterable[Model],
    facts: Mapping[str, Facts],
    followed: str | None,
    text: str,
    now: float,
    protected: Collection[str] = (),
) -> list[Row]:
    """Rows under a heading each kind.

    Args:
        models: The catalog.
        facts: What is known of trees, by model id.
        followed: Id of the model that the other views show.
        text: Only models with each of these words in a name, base or provider.
        now: Unix seconds, for ages.
        protected: Ids of those that are changed only by who types their name.
    """
    words = text.casefold().split()
    shown = sorted(
        (model for model in models if _matches(model, words)),
        key=lambda model: seconds(model.created_at) or 0.0,
        reverse=True,
    )
    rows: list[Row] = []
    for one, heading in HEADINGS.items():
        members = [model for model in shown if kind(model) is one]
        if one is Kind.BASE:
            members.reverse()
        if members and rows:
            rows.append(Row(f"gap {one}", (), heading=True))
        if members:
            rows.append(Row(f"heading {one}", (Content(heading),), heading=True))
        for model in members:
            is_shut = model.id in protected
            rows.append(_row(model, facts.get(model.id), model.id == followed, now, is_shut))
    return rows


def _matches(model: Model, words: list[str]) -> bool:
    provider = model.provider.name if model.provider is not None else ""
    text = f"{model.model_name} {model.name} {_base(model)} {provider}".casefold()
    return all(word in text for word in words)


def _row(model: Model, facts: Facts | None, followed: bool, now: float, is_shut: bool) -> Row:
    known = facts or Facts("", model.checkpoint_count or 0, NONE)
    train = "✔" if model.is_trainable else "–"
    own = kind(model) is Kind.OWN
    cells = (
        Content.styled("●" if followed else " ", "$accent"),
        Content.assemble(
            (one_line(model.model_name, 80), "bold" if followed else ""),
            (f" {LOCK}" if is_shut else "", "$warning"),
        ),
        Content.styled(train, "$text-muted"),
        Content.styled(f"▶ {known.head}" if known.head else "", "$accent"),
        Content(str(known.steps) if own else ""),
        reward(known.own.heldout, known.head) if own else Content(),
        reward(known.own.reward, known.head) if own else Content(),
        Content.styled(age(model.created_at, now), "$text-muted"),
        Content.styled(_base(model) if _base(model) != model.model_name else "", "$text-muted"),
    )
    return Row(model.id, cells)


def reward(value: float | None, head: str) -> Content:
    """A reward as everywhere: a cell filled and coloured on the scale 0 to 1, and the number;
    a dash where there is a head that nobody sampled yet."""
    if value is None:
        return Content.styled("–" if head else "", "$text-muted")
    mark = (eighth(value), RAMP[ramp_index(value, 0.0, 1.0)])
    return Content.assemble(mark, f"{short(value):>6}")


def _base(model: Model) -> str:
    provider = model.provider.name if model.provider is not None else None
    return one_line(model.base_model or provider or "", 40)
