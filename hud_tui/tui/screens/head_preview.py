"""What setting the head would do: what is served now beside what will be, and what that means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.content import Content

from hud_tui.rl.ages import age
from hud_tui.rl.counts import counted
from hud_tui.rl.head import WEIGHTS, HeadChange, Relation, name
from hud_tui.rl.metrics import metric, ranked, short, signed
from hud_tui.rl.own import HELDOUT, REWARD
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.wire import Checkpoint

COMPARED = 6
"""Own metrics that are compared, after the rewards, where both have them."""
LEFT_OUT = frozenset(
    {
        *("num_traces", "num_datums", "num_tokens", "tokens", "tokens_per_s"),
        *("rollout_s", "train_s", "loss:sum", "reward_min", "reward_max"),
        *("ratio_max", "sampling_logprob_mean", REWARD, HELDOUT),
    }
)
"""Metrics that say nothing of which weights are better, or that have lines of their own."""
UNSAMPLED = "not sampled"

Compared = tuple[str, str, str, str]
"""What is compared, served now, will be served, the difference."""


def preview(
    change: HeadChange, note: str, now: float, narrow: bool = False, compared: int = COMPARED
) -> Content:
    """What setting the head will do, as lines.

    Args:
        note: Shown first, in a warning's colour; may be empty.
        now: Unix seconds, for the checkpoints' ages.
        narrow: Whether there is no room for a table.
        compared: Metrics to compare at most, beside the reward.
    """
    rows = [("checkpoint", name(change.now), name(change.then), "")]
    rows.append(("made", _age(change.now, now), _age(change.then, now), ""))
    rows += [*_rewards(change), *_metrics(change, compared)]
    warning = [Content.styled(f"⚠ {note}\n", "bold $warning")] if note else []
    said = Content("\n".join(consequences(change)))
    if narrow:
        head, *rest = _narrow(rows)
        return Content("\n").join([*warning, head, said, *rest])
    return Content("\n").join([*warning, *_wide(rows), Content(), said])


def _wide(rows: list[Compared]) -> Iterator[Content]:
    yield Content.styled(f"{'served now':>32}{'will be served':>18}", "$text-muted")
    for number, (title, before, after, delta) in enumerate(rows):
        yield Content.assemble(
            (f"{title:<16}", "$text-muted"),
            f"{before:>16}",
            (f"{after:>18}", "" if number else "bold $accent"),
            f"   {delta}",
        )


def _narrow(rows: list[Compared]) -> Iterator[Content]:
    _, now, then, _ = rows[0]
    yield Content.assemble((now, ""), (" → ", "$text-muted"), (then, "bold $accent"))
    for title, before, after, delta in rows[2:]:
        yield Content.assemble((f"{title[:11]:<12}", "$text-muted"), f"{before}→{after} {delta}")


def consequences(change: HeadChange) -> list[str]:
    """What it means for the tree and for a run that trains, in words."""
    leaving, joining = counted(change.leaving, "step"), counted(change.joining, "step")
    said = {
        Relation.SAME: "This is the head already.",
        Relation.ANCESTOR: f"An ancestor: {leaving} out of service; nothing leaves the tree.",
        Relation.DESCENDANT: f"A descendant: {joining} more in service.",
        Relation.BRANCH: f"On another branch, parted at {name(change.parted)}: "
        f"{leaving} out of service, {joining} in; nothing leaves the tree.",
    }
    lines = [said[change.relation]]
    if change.then.state == WEIGHTS:
        lines.append("Only its weights are kept: training from it starts with fresh Adam moments.")
    if change.training is not None:
        job = one_line((change.training.id or "")[:8], 8)
        lines.append(f"Job {job} is training: its next step branches from {name(change.then)}.")
    return lines


def _rewards(change: HeadChange) -> Iterator[Compared]:
    """What the weights of both scored, and in how many rollouts; what nobody sampled says so."""
    now, then = change.own_now, change.own_then
    delta = change.deltas.get
    unknown = "–" if change.now is None else UNSAMPLED
    for title, key in (("held-out", HELDOUT), ("reward", REWARD)):
        before, after = change.before.get(key), change.after.get(key)
        if key == HELDOUT and before is None and after is None:
            continue
        yield title, _own(before, unknown), _own(after), signed(delta(key))
    if change.now is not None and None in (now.reward, then.reward):
        steps = _trained_on(change.now), _trained_on(change.then)
        yield "trained on", *steps, ""


def _own(mean: float | None, unknown: str = UNSAMPLED) -> str:
    return unknown if mean is None else short(mean)


def _trained_on(checkpoint: Checkpoint | None) -> str:
    return short(None if checkpoint is None else checkpoint.mean_reward)


def _metrics(change: HeadChange, compared: int) -> list[Compared]:
    before, after = change.before, change.after
    keys = [key for key in ranked(list(change.deltas)) if key not in LEFT_OUT]
    return [
        (
            one_line(metric(key).title, 15),
            short(before.get(key)),
            short(after[key]),
            signed(change.deltas[key]),
        )
        for key in keys[:compared]
    ]


def _age(checkpoint: Checkpoint | None, now: float) -> str:
    return "–" if checkpoint is None else f"{age(checkpoint.created_at, now)} ago"
