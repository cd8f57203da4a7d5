"""Checks of a taskset by itself: no service is asked.

Source: ``hud rl run`` and the hud 0.4 trainer (slugs, at least 10 tasks, no vision); the
``hud`` SDK 0.6.21 (runtime_config).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hud_tui.rl.args import judge_of
from hud_tui.rl.places import places
from hud_tui.rl.preflight import Finding, count
from hud_tui.rl.tasks import Task, digest
from hud_tui.rl.text import count_unsafe

LEAST = 10
"""Tasks that HUD's managed training wants."""
LONGEST_SLUG = 100
NUMBER = re.compile(r"\d{4}")
IMAGE_KINDS = frozenset({"image", "image_url", "input_image"})
IMAGE = re.compile(r"data:image/|[^\s]+\.(?:png|jpe?g|webp|gif|bmp)$", re.IGNORECASE)
IMAGE_NAME = re.compile(r"image|screenshot|picture|photo", re.IGNORECASE)


def _whole(least: int = 1) -> dict[str, Any]:
    return {"type": ["integer", "null"], "minimum": least}


def _closed(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": ["string", "null"], "minLength": 1}
_TOPOLOGY = {"type": "string", "pattern": r"^[1-9]\d*(?:x[1-9]\d*)+$"}
_GPU_TYPE = {"type": ["string", "array", "null"], "minLength": 1, "items": {"type": "string"}}
RUNTIME = _closed(
    image=_TEXT,
    compose={"type": ["string", "object", "null"]},
    resources=_closed(
        cpu={"type": ["number", "null"], "exclusiveMinimum": 0},
        memory_mb=_whole(),
        storage_mb=_whole(),
        gpu=_closed(type=_GPU_TYPE, count=_whole()),
        os=_TEXT,
        tpu=_closed(("type", "topology"), type={"type": "string"}, topology=_TOPOLOGY),
    ),
    limits=_closed(startup_timeout_s=_whole(), run_timeout_s=_whole()),
)
"""JSON Schema of ``runtime_config``."""


def check_slug_forms(tasks: Sequence[Task]) -> list[Finding]:
    """Whether HUD takes the slugs: 1 to 100 characters, not a bare 4-digit number."""
    faults: dict[str, Callable[[str], object]] = {
        f"longer than {LONGEST_SLUG} characters": lambda slug: len(slug) > LONGEST_SLUG,
        "of white space only": str.isspace,
        "a bare 4-digit number, which HUD takes for an index": NUMBER.fullmatch,
        "with characters that act on a terminal": count_unsafe,
    }
    found = []
    for fault, is_so in faults.items():
        bad = [task for task in tasks if is_so(task.slug)]
        if bad:
            message = f"{count(len(bad), 'slug')} {fault}"
            fix = "give each task a short slug in letters, digits and dashes"
            found.append(Finding("slugs", "failure", message, places(bad), fix))
    return found


def check_duplicates(tasks: Sequence[Task]) -> list[Finding]:
    """Whether several rows are one task under several slugs."""
    first: dict[str, Task] = {}
    twice: list[Task] = []
    for task in tasks:
        if first.setdefault(digest(_content(task)), task) is not task:
            twice.append(task)
    if not twice:
        return [Finding("duplicates", "ok", "no two tasks are the same")]
    message = f"{count(len(twice), 'task')} said before under another slug: each counts again"
    return [Finding("duplicates", "warning", message, places(twice), "remove those rows")]


def _content(task: Task) -> Any:
    if task.is_older:
        return {key: value for key, value in task.more.items() if key != "id"}
    return [task.env, task.scenario, task.args, task.more]


def check_count(tasks: Sequence[Task]) -> list[Finding]:
    """Whether there are as many tasks as HUD's managed training wants."""
    train = sum(not task.heldout for task in tasks)
    if train >= LEAST:
        return [Finding("count", "ok", f"{train} tasks to train on; a managed run wants {LEAST}")]
    message = f"{count(train, 'task')} to train on: HUD's managed training wanted {LEAST}"
    fix = "add tasks: a policy that sees few of them learns them by heart"
    return [Finding("count", "warning", message, fix=fix)]


def check_group_size(
    tasks: Sequence[Task], group_size: int | None, tasks_per_step: int | None
) -> list[Finding]:
    """Whether the run's batches fit the taskset; empty where its sizes are not known."""
    train = sum(not task.heldout for task in tasks)
    if not train or group_size is None:
        return []
    if group_size < 2:
        message = "a group of one has nobody to compare with: no gradient"
        return [Finding("group_size", "failure", message, fix="take a group size of 8")]
    each = min(tasks_per_step or train, train)
    if tasks_per_step is not None and tasks_per_step > train:
        message = f"{tasks_per_step} tasks a step are asked for, and {train} are there to train on"
        fix = f"add tasks, or take at most {train} a step"
        return [Finding("group_size", "warning", message, fix=fix)]
    message = f"{group_size} rollouts of each of {count(each, 'task')} a step"
    return [Finding("group_size", "ok", message)]


def check_vision(tasks: Sequence[Task]) -> list[Finding]:
    """Whether rows hold images."""
    seen = [task for task in tasks if any(map(_is_image, _parts(task)))]
    if not seen:
        return [Finding("vision", "ok", "no images in the rows")]
    message = f"{count(len(seen), 'task')} with images: a managed run trains on text"
    fix = "leave them out, or choose a model that is trained on images"
    return [Finding("vision", "warning", message, places(seen), fix)]


def _parts(task: Task) -> Iterator[tuple[str, object]]:
    """Every part of the args, or of the older row, with the name that it has."""
    waiting: list[tuple[str, object]] = [("", task.more if task.is_older else task.args)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, part) for part in value]


def _is_image(part: tuple[str, object]) -> bool:
    name, value = part
    if isinstance(value, dict):
        return value.get("type") in IMAGE_KINDS if isinstance(value.get("type"), str) else False
    if not isinstance(value, str):
        return False
    return value.startswith("data:image/") or bool(IMAGE_NAME.search(name) and IMAGE.match(value))


def check_runtime(tasks: Sequence[Task], embedded: bool) -> list[Finding]:
    """Whether each runtime_config is one that HUD understands; empty where no row has one."""
    having = [task for task in tasks if not task.is_older and "runtime_config" in task.more]
    if not having:
        return []
    judge, wrong = judge_of(RUNTIME, "runtime_config"), dict[str, list[Task]]()
    for task in having:
        config = task.more["runtime_config"]
        both = config.get("image") and config.get("compose")
        said = "runtime_config: image or compose, not both" if both else judge(config)
        if said:
            wrong.setdefault(said, []).append(task)
    fix = "it has image or compose, resources and limits, and nothing else"
    found = [Finding("runtime", "failure", said, places(bad), fix) for said, bad in wrong.items()]
    if embedded and not found:
        message = f"the embedded service passes over the runtime_config of {len(having)} rows"
        return [Finding("runtime", "warning", message, places(having), "remove it to run here")]
    return found or [Finding("runtime", "ok", f"{count(len(having), 'runtime_config')} understood")]


def local_checks(tasks: Sequence[Task], embedded: bool) -> list[Finding]:
    """All checks of the rows by themselves."""
    return [
        *check_slug_forms(tasks),
        *check_duplicates(tasks),
        *check_count(tasks),
        *check_vision(tasks),
        *check_runtime(tasks, embedded),
    ]
