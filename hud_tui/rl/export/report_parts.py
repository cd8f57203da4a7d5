"""The parts of a report that tell what went wrong, and what people did about it."""

from collections.abc import Mapping, Sequence

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.export.names import code, escaped
from hud_tui.rl.export.pages import moment, scored, section, table
from hud_tui.rl.moves import Move
from hud_tui.rl.run import Run
from hud_tui.rl.tree import label
from hud_tui.rl.waste import AT_ONCE, Waste

WORST = 10
"""Tasks of the table of waste."""
MOST = 100
"""Alarms, moves and notes that are listed; the rest is counted."""


def waste_part(run: Run) -> str:
    """What was sampled without effect, and on which tasks."""
    waste = Waste()
    while not waste.follow(run, AT_ONCE):
        pass
    total, tasks = waste.total(), [task for task in waste.tasks() if task.idle]
    if not total.rollouts:
        return ""
    about = "" if waste.exact else "about "
    said = (
        f"{total.share:.1%} of {total.rollouts:.0f} rollouts and {about}{total.token_share:.1%} of "
        f"{total.tokens:.0f} tokens had no gradient: all rewards of their group were equal."
    )
    rows = [
        (
            *(code(task.task_slug, 80), f"{task.share:.0%}", f"{task.idle} of {task.rollouts}"),
            *(f"{task.idle_tokens:.0f}", str(task.all_good), str(task.all_bad)),
        )
        for task in tasks[:WORST]
    ]
    names = ("task", "no gradient", "rollouts", "tokens", "groups all good", "groups all bad")
    worst = [f"The worst of {len(tasks)} such tasks:", table(names, rows)] if rows else []
    return section("Waste", [said, *worst])


def alarms_part(run: Run) -> str:
    """What the detectors said, with evidence and advice."""
    report = run.alarms
    listed = [*report.alarms, *report.left]
    parts = [_alarm(alarm, alarm in report.left) for alarm in listed[:MOST]]
    if len(listed) > MOST:
        parts.append(f"And {len(listed) - MOST} more.")
    if not listed:
        parts.append(f"None in {report.steps} steps.")
    if report.skipped:
        said = ", ".join(f"{code(one.name)} ({escaped(one.needs, 80)})" for one in report.skipped)
        parts.append(f"Detectors without their data: {said}.")
    return section("Alarms", parts)


def _alarm(alarm: Alarm, left: bool) -> str:
    seen = f" (first seen at step {alarm.shown})" if alarm.shown != alarm.onset else ""
    until = "now" if alarm.active else "–" if alarm.ended is None else f"step {alarm.ended}"
    where = ", on steps that the head has left" if left else f", until {until}"
    return (
        f"### {alarm.level}: {escaped(alarm.title, 80)}\n\n"
        f"Since step {alarm.onset}{seen}{where}. {escaped(alarm.said)}.\n\n"
        f"{escaped(alarm.meaning)}\n\n→ {escaped(alarm.advice)}"
    )


def moves_part(run: Run, moves: Sequence[Move]) -> str:
    """Where the head was set."""
    if not moves:
        said = "Not set by hand, as far as this machine knows; steps move it too."
        return section("Where the head was set", [said])
    rows = [
        (
            *(moment(move.at), _called(run, move.before), _called(run, move.after)),
            "here" if move.ours else "by somebody else",
        )
        for move in moves[-MOST:]
    ]
    return section("Where the head was set", [table(("when", "from", "to", "by"), rows)])


def kept_part(run: Run, notes: Mapping[str, str]) -> str:
    """Notes and pins, by checkpoint."""
    tree = run.tree
    rows = [
        (scored(tree, position), "pinned" if position in tree.pinned else "", escaped(note))
        for position in range(len(tree))
        if (note := notes.get(tree[position].id, "")) or position in tree.pinned
    ]
    more = [f"And {len(rows) - MOST} more."] if len(rows) > MOST else []
    listed = table(("checkpoint", "", "note"), rows[:MOST])
    return section("Notes and pins", [listed, *more] if rows else [])


def _called(run: Run, checkpoint_id: str | None) -> str:
    position = run.tree.find(checkpoint_id)
    if position is None and checkpoint_id is not None:
        return code(checkpoint_id[:8])
    return code(label(None if position is None else run.tree[position]))
