"""Batches: what a training loop has in hand, checked and given the wire's form.

Groups are runs of `group_size` consecutive inputs, and each is compared with its own
mean: one rollout too few, or one of another task, and every advantage of its group is
wrong. So the groups are checked here, before anything is sent.

Source: the rules are those of the ``hud`` SDK's TrainingClient, 0.6.21.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from hud_tui.client.trainer_inputs import Input, Item, read_input
from hud_tui.errors import HudBadInput
from hud_tui.rl.advantage import has_signal
from hud_tui.rl.text import one_line
from hud_tui.wire import Payload

LOG = logging.getLogger(__name__)
NAMED = 5
"""Groups that one message names."""


def to_inputs(
    inputs: Iterable[Input], group_size: int | None, compared: bool = True
) -> list[str | Payload]:
    """Check a batch, and give it the wire's form.

    Args:
        inputs: N rollouts, each group's together.
        group_size: Rollouts in a group; None makes the whole batch one.
        compared: Whether the loss compares rollouts within their group. Then a batch without
            spread is warned of in the log, once: it is sent, and accumulates nothing.

    Raises:
        HudBadInput: Nothing to train on, a rollout without a usable reward, or groups that
            are not whole or not consecutive; it names the input and its group.
    """
    if isinstance(inputs, (str, bytes)):
        raise HudBadInput("the inputs are one string", "give a list of trace ids")
    given = list(inputs)
    _check_sizes(len(given), group_size)
    items = [
        read_input(item, _where(index, getattr(item, "group_id", None), group_size))
        for index, item in enumerate(given)
    ]
    if group_size is not None:
        _check_groups(items, group_size)
        _check_whole(len(items), group_size)
    if compared:
        _warn_flat(items, group_size or len(items))
    return [item.sent for item in items]


def _check_sizes(count: int, group_size: int | None) -> None:
    if not count:
        raise HudBadInput("no inputs: there is nothing to train on", "give at least one rollout")
    if group_size is None:
        return
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise HudBadInput(f"group_size is {one_line(group_size, 40)}", "it must be at least 1")


def _check_groups(items: Sequence[Item], group_size: int) -> None:
    """Where every input says which group it is of, each slice must be one whole group."""
    ids = [item.group_id for item in items if item.group_id is not None]
    if len(ids) < len(items):
        return
    broken = [(id_, count) for id_, count in Counter(ids).items() if count != group_size]
    if broken:
        named = ", ".join(f"{_quoted(id_)} has {count}" for id_, count in broken[:NAMED])
        more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
        raise HudBadInput(
            f"groups that do not have {group_size} rollouts: {named}{more}",
            "leave out a group that is not whole, or sample its missing rollouts",
        )
    for start in range(0, len(ids), group_size):
        mixed = list(dict.fromkeys(ids[start : start + group_size]))
        if len(mixed) > 1:
            raise HudBadInput(
                f"inputs[{start}:{start + group_size}] mixes the groups"
                f" {' and '.join(map(_quoted, mixed[:NAMED]))}",
                "keep the rollouts of a group together: groups are consecutive inputs",
            )


def _check_whole(count: int, group_size: int) -> None:
    left = count % group_size
    if left:
        raise HudBadInput(
            f"{count} inputs do not divide into groups of {group_size}:"
            f" the last group, inputs[{count - left}:{count}], has {left}",
            "every group must be whole: its rollouts are compared with their mean",
        )


def _warn_flat(items: Sequence[Item], size: int) -> None:
    """Say that no group moves the policy, as far as every reward can be seen here."""
    rewards = [item.reward for item in items if item.reward is not None]
    if len(rewards) < len(items) or len(items) < 2:
        return
    groups = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    if not any(map(has_signal, groups)):
        LOG.warning(
            "no group has reward spread (groups: %d, rollouts in each: %d), so every advantage"
            " is 0 and this batch accumulates no gradient",
            len(groups),
            size,
        )


def _where(index: int, group_id: object, group_size: int | None) -> str:
    """E.g. ``inputs[5] (group 'add-3')``, or the group's own place where it has no name."""
    if group_id is not None:
        return f"inputs[{index}] (group {_quoted(group_id)})"
    if group_size is None:
        return f"inputs[{index}]"
    start = index - index % group_size
    return f"inputs[{index}] (group inputs[{start}:{start + group_size}])"


def _quoted(group_id: object) -> str:
    return f"'{one_line(group_id, 60)}'"
