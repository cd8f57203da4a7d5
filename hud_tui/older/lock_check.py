"""Whether tasks and the lock file beside them speak of the same environment."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.older.lock import FIX, Lock, image_name
from hud_tui.older.lock_file import load_lock
from hud_tui.older.mcp import images_of
from hud_tui.rl.places import places
from hud_tui.rl.preflight import Finding, count, names
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line

CALLS = ("setup_tool", "evaluate_tool", "integration_test_tool")


def check_lock(lock: Lock, tasks: Sequence[Task]) -> list[Finding]:
    """
    Args:
        lock: The lock file beside the tasks.
        tasks: Of any form; those of other environments are not judged by it.

    Returns:
        A finding for each disagreement, or one that there is none. None fails a run: the
        service's registry, not this file, decides what can run.
    """
    older = [task for task in tasks if task.form == "v4"]
    same = [task for task in tasks if not task.is_older and _normal(task.env) in _called(lock)]
    own = [task for task in older if _is_of(lock, task)]
    found = [*_images(lock, own), *_tools(lock, own), *_scenarios(lock, same)]
    found += [Finding("lock", "warning", note, lock.file, FIX) for note in lock.notes]
    if older and not own and not same:
        return [*found, _another(lock, older)]
    if found or not (own or same):
        return found
    what = names([part for part in (lock.environment, lock.image) if part])
    return [Finding("lock", "ok", f"the lock file agrees: {what}", lock.file)]


def lock_findings(file: Path, tasks: Sequence[Task]) -> list[Finding]:
    """`check_lock` of a file; one that cannot be read is a finding too."""
    try:
        return check_lock(load_lock(file), tasks)
    except HudUsage as error:
        return [Finding("lock", "warning", error.message, one_line(file), error.hint)]


def _is_of(lock: Lock, task: Task) -> bool:
    """Whether a v4 task runs the lock file's image, of any build; one that names none does."""
    images = [image_name(image) for image in images_of(task.more.get("mcp_config"))]
    return not images or not lock.image or image_name(lock.image) in images


def _another(lock: Lock, tasks: Sequence[Task]) -> Finding:
    """All of the tasks run something else."""
    images = (image for task in tasks for image in images_of(task.more.get("mcp_config")))
    message = f"no task runs {one_line(lock.image, 90)}, which the lock file names:"
    message += f" they run {names(list(dict.fromkeys(images)))}"
    fix = "name the image that is meant in mcp_config, or keep the tasks beside their own lock file"
    return Finding("lock", "warning", message, places(tasks), fix)


def _images(lock: Lock, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Tasks that run another build of the lock file's image."""
    if not lock.image:
        return
    name = image_name(lock.image)
    others: dict[str, list[Task]] = {}
    for task in tasks:
        for image in images_of(task.more.get("mcp_config")):
            if image_name(image) == name and image != lock.image:
                others.setdefault(image, []).append(task)
    for image, rows in others.items():
        message = f"{count(len(rows), 'task')} run {one_line(image, 90)}"
        message += f", the lock file names {one_line(lock.image, 90)}"
        fix = "name the image that is meant in mcp_config, or build again: hud build"
        yield Finding("lock", "warning", message, places(rows), fix)


def _tools(lock: Lock, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Tools that calls name and the environment has not."""
    if not lock.tools:
        return
    missing: dict[str, list[Task]] = {}
    for task in tasks:
        for name in _unknown(lock, task):
            missing.setdefault(name, []).append(task)
    for name, rows in missing.items():
        message = f"the lock file has no tool {one_line(name, 80)}"
        has = names([tool.name for tool in lock.tools])
        yield Finding("lock", "warning", message, places(rows), f"it has {has}; or {FIX}")


def _unknown(lock: Lock, task: Task) -> Iterator[str]:
    for key in CALLS:
        for call in task.more.get(key) or ():
            tool = lock.tool(call["name"])
            inner = call["arguments"].get("name")
            if tool is None:
                yield call["name"]
            elif tool.internal and isinstance(inner, str) and inner not in tool.internal:
                yield f"{call['name']}.{inner}"


def _scenarios(lock: Lock, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Scenarios that tasks of this environment name and the lock file has not."""
    known = {name.rpartition(":")[2] for name in lock.scenarios}
    unknown = [task for task in tasks if task.scenario.rpartition(":")[2] not in known]
    if known and unknown:
        missing = sorted({task.scenario for task in unknown})
        message = f"the lock file has no scenario {names(missing)}"
        fix = f"it has {names(sorted(known))}; or {FIX}"
        yield Finding("lock", "warning", message, places(unknown), fix)


def _called(lock: Lock) -> set[str]:
    """What the environment may be called in a task."""
    return {_normal(name) for name in (lock.environment, image_name(lock.image)) if name}


def _normal(name: str) -> str:
    return name.strip().casefold().replace("_", "-").replace(" ", "-")
