"""Preflight: checks of rows, model and services before a run is submitted.

Source: ``hud rl run`` (hud 0.5) takes a model that is trainable, ready and not public; the
``hud`` SDK 0.6.21 samples a trainable one through its openai_compatible agent only.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from hud_tui.rl.findings import Finding
from hud_tui.rl.names import is_shared
from hud_tui.rl.tasks.legacy import VARIABLE, find_variables, has_variable, server_texts
from hud_tui.rl.tasks.task import NAMED, Task, digest, locations, split_text, validator
from hud_tui.rl.text import (
    command_line,
    count_unsafe,
    counted,
    names_text,
    one_line,
    wrong_loss_config,
)
from hud_tui.wire import Model, WorkState
from hud_tui.wire_runs import JobParameters
from hud_tui.wire_training import Losses

# Problems of a run, found before it costs anything. Each check is a pure function from data to
# findings.
#
# Source: the order and the rules of ``hud rl run`` (hud 0.5): rows load, a model that is
# trainable and not shared, each environment exists, each scenario is among its own.


def check_rows(tasks: Sequence[Task]) -> list[Finding]:
    """Whether there are rows, and whether some of them are not held out."""
    if not tasks:
        fix = "add rows, or choose another taskset"
        return [Finding("rows", "failure", "the taskset is empty", fix=fix)]
    train = sum(not task.heldout for task in tasks)
    forms = Counter(task.form for task in tasks)
    rows = Finding("rows", "ok", f"{counted(len(tasks), 'task')}, format {next(iter(forms))}")
    if len(forms) > 1:
        mixed = ", ".join(f"{number} {form}" for form, number in sorted(forms.items()))
        message = f"{counted(len(tasks), 'task')}, {mixed}"
        rows = Finding("rows", "warning", message, fix="write all of them in one form")
    if not train:
        fix = 'remove "split": "heldout" from the columns of some tasks'
        return [rows, Finding("train", "failure", "every task is held out", fix=fix)]
    return [rows, Finding("train", "ok", split_text(tasks))]


def check_fields(tasks: Sequence[Task]) -> list[Finding]:
    """Whether rows have unknown fields, which usually are misspelt ones."""
    holders: dict[str, list[Task]] = {}
    for task in tasks:
        for name in task.unknown:
            holders.setdefault(one_line(name, 40), []).append(task)
    fix = "remove or rename it; further data of a task belongs into columns"
    return [
        Finding("fields", "warning", f"unknown field {name}", locations(rows), fix)
        for name, rows in list(holders.items())[:NAMED]
    ]


def check_slugs(tasks: Sequence[Task]) -> list[Finding]:
    """Whether slugs are unique."""
    counts = Counter(task.slug for task in tasks)
    twice = {slug for slug, count in counts.items() if count > 1}
    if not twice:
        return [Finding("slugs", "ok", "every slug is used once")]
    where = locations([task for task in tasks if task.slug in twice])
    message = f"used more than once: {names_text(sorted(twice))}"
    return [Finding("slugs", "failure", message, where, "give each task a slug of its own")]


def check_scenarios(env: str, offered: object, tasks: Sequence[Task]) -> list[Finding]:
    """Whether an environment has the scenarios that its tasks name.

    Args:
        offered: Names of its scenarios as the service lists them; not a list if it cannot.
    """
    if not isinstance(offered, list):
        message = f"scenarios not checked: {one_line(env)} does not list them"
        return [Finding("scenarios", "warning", message, one_line(env))]
    offers = {str(name).removeprefix(f"{env}:") for name in offered}
    unknown = [task for task in tasks if task.scenario not in offers]
    required = {task.scenario for task in tasks}
    if not unknown:
        message = (
            f"{one_line(env)} has {counted(len(required), 'scenario')} of {len(required)} required"
        )
        return [Finding("scenarios", "ok", message, one_line(env))]
    message = f"{one_line(env)} has no {names_text(sorted(required - offers))}"
    fix = f"it has {names_text(sorted(offers))}" if offers else "it has no scenarios"
    return [Finding("scenarios", "failure", message, locations(unknown), fix)]


def missing_environment(env: str, tasks: Sequence[Task], close: str = "") -> Finding:
    """The failure for an unknown environment; `close` suggests similar names."""
    message = f"no environment named {one_line(env)}"
    fix = close or "correct env in those rows, or deploy that environment"
    return Finding("environments", "failure", message, locations(tasks), fix)


def check_args(
    env: str, schemas: Mapping[str, Mapping[str, Any]], tasks: Sequence[Task]
) -> list[Finding]:
    """Whether the args of each task are valid for its scenario, if that publishes a schema.

    Args:
        schemas: JSON Schema of the args, by scenario.
    """
    checked = [task for task in tasks if task.scenario in schemas]
    validators = {name: validator(schemas[name]) for name in {task.scenario for task in checked}}
    wrong: dict[tuple[str, str], list[Task]] = {}
    for task in checked:
        for problem in validators[task.scenario](task.args):
            wrong.setdefault((task.scenario, problem), []).append(task)
    if not checked:
        return []
    if not wrong:
        return [Finding("args", "ok", f"args are valid in {one_line(env)}", one_line(env))]
    findings = []
    for (scenario, problem), rows in list(wrong.items())[:NAMED]:
        have = "has" if len(rows) == 1 else "have"
        message = f"{counted(len(rows), 'task')} of {one_line(env)} {have} invalid args: {problem}"
        fix = f"check the args of {one_line(scenario)} and fix those rows"
        findings.append(Finding("args", "failure", message, locations(rows), fix))
    if further := [task for rows in list(wrong.values())[NAMED:] for task in rows]:
        message = f"{counted(len(wrong) - NAMED, 'further kind')} of invalid args"
        rows = list({id(task): task for task in further}.values())
        findings.append(Finding("args", "failure", message, locations(rows), "fix those rows, too"))
    return findings


def by_environment(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Tasks by environment, in the order of first mention; rows up to v4 name no environment and
    are left out."""
    tasks_by: dict[str, list[Task]] = {}
    for task in tasks:
        if task.is_legacy:
            continue
        tasks_by.setdefault(task.env, []).append(task)
    return tasks_by


def check_model(model: Model, program: str = "hud-tui") -> list[Finding]:
    """Whether the user can train the model. `program`: how commands for this service begin."""
    name = one_line(model.model_name)
    if is_shared(model):
        fix = f"fork it: {command_line(program, 'fork', name, '--name', 'NAME')}"
        return [Finding("model", "failure", f"{name} is a shared base", name, fix)]
    if not model.is_trainable:
        fix = f"choose a model that is trainable: {command_line(program, 'models')}"
        return [Finding("model", "failure", f"{name} is not trainable", name, fix)]
    return [Finding("model", "ok", f"{name} is trainable", name)]


def check_loss(
    loss_fn: str | None, config: Mapping[str, float] | None, offered: Losses
) -> list[Finding]:
    """Whether the service has the loss, and the loss its config's keys and values.

    Args:
        loss_fn: None for the default, which is listed first.
        offered: What the service lists; at least one loss.
    """
    loss_fn = loss_fn or offered.losses[0]
    if loss_fn not in offered.losses:
        message, fix = f"there is no loss {one_line(loss_fn, 60)}", ", ".join(offered.losses)
        return [Finding("model", "failure", message, "loss-fn", f"choose from {one_line(fix)}")]
    usual = (offered.config or {}).get(loss_fn)
    if usual is None or not (wrong := wrong_loss_config(loss_fn, config or {}, usual)):
        return []
    keys = ", ".join(f"{key} ({value:g})" for key, value in usual.items())
    fix = one_line(f"its keys, with their defaults: {keys or 'none'}")
    return [Finding("model", "failure", one_line(wrong), "loss-fn-config", fix)]


def check_ready(model: Model, job: WorkState | None, program: str = "hud-tui") -> list[Finding]:
    """Whether the model can be trained now; empty if the service does not report that.

    Args:
        program: How commands for this service begin.
    """
    name, status = one_line(model.model_name), (model.model_extra or {}).get("status")
    if job is not None:
        which = one_line(job.id[:8] if job.id else job.name or "", 60)
        message = f"a run already trains {name}"
        cancel = command_line(program, "jobs", which or "JOB", "--cancel")
        fix = f"wait until it ends, or cancel it: {cancel}"
        return [Finding("ready", "warning", message, which, fix)]
    if status == "ready":
        return [Finding("ready", "ok", f"{name} is ready", name)]
    if not isinstance(status, str):
        return []
    message = f"{name} is {one_line(status, 40)}, not ready"
    return [Finding("ready", "failure", message, name, "wait until it is ready, or choose another")]


def check_tokens(model: Model) -> list[Finding]:
    """Whether its agent type records the sampled token ids, which training needs."""
    name, kind = one_line(model.model_name), model.sdk_agent_type
    if kind == "openai_compatible":
        return [Finding("tokens", "ok", "its agent type records token ids", name)]
    message = f"the agent type is {one_line(kind or 'unknown', 40)}"
    fix = "choose a model whose sdk_agent_type is openai_compatible: only that records token ids"
    return [Finding("tokens", "failure" if kind else "warning", message, name, fix)]


def check_parameters(model: Model, asked: JobParameters) -> list[Finding]:
    """Whether the model and the service support the run's parameters; empty if they do.

    HUD's reference has only reasoning_effort; the embedded service, which publishes its training
    defaults, takes the others too.
    """
    context = model.context_length
    if context is not None and asked.max_tokens is not None and asked.max_tokens >= context:
        message = (
            f"max_tokens {asked.max_tokens} is above the most, {context - 1}:"
            f" prompt and answer together have {context} tokens"
        )
        return [Finding("model", "failure", message, "max_tokens", f"at most {context - 1}")]
    parameters = asked.model_dump(exclude_none=True).keys() - {"reasoning_effort"}
    if model.training_defaults is not None or not parameters:
        return []
    listed = ", ".join(name for name in JobParameters.model_fields if name in parameters)
    message = f"HUD defines reasoning_effort only; it may refuse or ignore {listed}"
    return [Finding("model", "warning", message, listed, "remove it")]


# Checks of rows up to v4: grading, gyms, variables, keys, remote MCP servers.
#
# Source: the ``hud`` SDK 0.4, whose remote training required MCP servers with remote URLs.


PRIVATE = ("localhost", ".local", ".internal", ".localhost")
"""Suffixes of host names that are local to a machine or network."""
_SECRET = "authorization|api.?key|token|secret|passw"
SECRET = re.compile(_SECRET, re.IGNORECASE)
ASSIGNED = re.compile(rf"[\w-]*(?:{_SECRET})[\w-]*[\"']?\s*[=:]\s*(?P<value>[^&]+)", re.IGNORECASE)
"""A secret assigned by name within a text: in a URL's query, or an argument such as ``-e
API_KEY=…``."""
SCHEME = re.compile(r"^\s*(?:bearer|basic|token)\b", re.IGNORECASE)
SHORTEST_KEY = 8
"""Minimum characters of a key; shorter values under such a name are not reported."""


def check_legacy(tasks: Sequence[Task], names: Collection[str], embedded: bool) -> list[Finding]:
    """All checks of rows up to v4; empty if there are none.

    Args:
        tasks: Of any form.
    """
    older = [task for task in tasks if task.is_legacy]
    if not older:
        return []
    findings = [*graded(older), *_variables(older, names), *_keys(older)]
    return findings + (_embedded(older) if embedded else [*_gyms(older), *_remote(older)])


def _embedded(tasks: Sequence[Task]) -> list[Finding]:
    message = (
        f"{counted(len(tasks), 'task')} in the legacy form of hud 0.4 or older;"
        " the embedded service runs environments with scenarios only"
    )
    fix = "convert them to rows of an environment, or run them on HUD"
    return [Finding("environments", "failure", message, locations(tasks), fix)]


def graded(tasks: Sequence[Task]) -> list[Finding]:
    """Whether every row up to v4 has a grader."""
    blind = [task for task in tasks if not task.scenario]
    if not blind:
        return [Finding("graded", "ok", "every task has a grader")]
    message = f"no grader in {counted(len(blind), 'task')}: all rewards would be equal"
    fix = "name a call in evaluate_tool (v4) or evaluate (v1 to v3)"
    return [Finding("graded", "failure", message, locations(blind), fix)]


def _gyms(tasks: Sequence[Task]) -> list[Finding]:
    gyms = [task for task in tasks if task.form == "v3"]
    if not gyms:
        return []
    message = (
        f"{counted(len(gyms), 'task')} in a gym of hud 0.3 or older, which is no longer supported"
    )
    fix = "convert them to rows of an environment"
    return [Finding("environments", "failure", message, locations(gyms), fix)]


def _variables(tasks: Sequence[Task], names: Collection[str]) -> list[Finding]:
    asked = find_variables(tasks, names)
    missing = [variable.name for variable in asked if variable.missing]
    if not asked:
        return []
    if not missing:
        message = f"{counted(len(asked), 'variable')} of the MCP servers set or with default"
        return [Finding("variables", "ok", message, names_text([v.name for v in asked]))]
    message = f"not set and without default: {names_text(missing)}"
    fix = f"export {one_line(missing[0], 60)}=…, or put it into .env; $$ is a dollar sign"
    return [Finding("variables", "failure", message, names_text(missing), fix)]


def _keys(tasks: Sequence[Task]) -> list[Finding]:
    """Warn about plain-text keys, which tend to end up in a repository."""
    counts = {field: counted(len(holders), "task") for field, holders in bare_keys(tasks).items()}
    return [
        Finding("variables", "warning", f"plain-text key in {count}", field, NAME_INSTEAD)
        for field, count in counts.items()
    ]


NAME_INSTEAD = "write ${NAME} instead, and set NAME in the environment or in .env"


def bare_keys(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Places in MCP servers that contain a plain-text key, each with its tasks."""
    tasks_by: dict[str, list[Task]] = {}
    for task in tasks:
        for field, text in server_texts(task):
            named = SECRET.search(field.rpartition(".")[2]) is not None
            values = [text] if named else [match["value"] for match in ASSIGNED.finditer(text)]
            if any(map(_is_key, values)):
                tasks_by.setdefault(one_line(f"mcp_config{field}", 120), []).append(task)
    return tasks_by


def _is_key(value: str) -> bool:
    """Whether the value of a secret is a literal; a variable's default counts as one."""
    written = VARIABLE.sub(lambda match: match["default"] or match["dollar"] or "", value)
    written = SCHEME.sub("", written).strip()
    return len(written) >= SHORTEST_KEY and not written.isdecimal()


def _remote(tasks: Sequence[Task]) -> list[Finding]:
    """Whether the platform can reach every MCP server."""
    near: dict[str, list[Task]] = {}
    for task in tasks:
        for name, why in _near(task.more.get("mcp_config", {})):
            near.setdefault(f"{one_line(name, 40)} {why}", []).append(task)
    findings = []
    for server, holders in near.items():
        message = f"the MCP server {server}, which a remote run cannot reach"
        fix = "give it a URL that the platform can reach, e.g. https://mcp.hud.ai/v3/mcp"
        findings.append(Finding("remote", "failure", message, locations(holders), fix))
    servers = any(task.form == "v4" for task in tasks)
    return findings or [Finding("remote", "ok", "every MCP server has a remote URL")] * servers


def _near(servers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, server in servers.items():
        url = str(server.get("url") or "")
        if not url:
            yield name, "is started on this machine"
        elif not VARIABLE.match(url) and not url.lower().startswith(("http://", "https://")):
            yield name, "has a URL that is neither http nor https"
        elif _is_near(url):
            yield name, "has a URL of this machine or its network"


def _is_near(url: str) -> bool:
    """Whether a URL's host is local; a host with a variable counts as public."""
    if has_variable(url):
        return False
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "" or host.endswith(PRIVATE) or "." not in host


# Checks of the taskset that need no service.
#
# Source: ``hud rl run`` and the hud 0.4 trainer (slugs, at least 10 tasks, no vision); the
# ``hud`` SDK 0.6.21 (runtime_config).


LEAST = 10
"""Minimum number of tasks for HUD's managed training."""
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
    """Whether HUD accepts the slugs: 1 to 100 characters, not a bare 4-digit number."""
    faults: dict[str, Callable[[str], object]] = {
        f"longer than {LONGEST_SLUG} characters": lambda slug: len(slug) > LONGEST_SLUG,
        "consisting of white space": str.isspace,
        "a bare 4-digit number, which HUD reads as an index": NUMBER.fullmatch,
        "with control characters": count_unsafe,
    }
    findings = []
    for fault, is_so in faults.items():
        bad = [task for task in tasks if is_so(task.slug)]
        if bad:
            message = f"{counted(len(bad), 'slug')} {fault}"
            fix = "give each task a short slug in letters, digits and dashes"
            findings.append(Finding("slugs", "failure", message, locations(bad), fix))
    return findings


def check_duplicates(tasks: Sequence[Task]) -> list[Finding]:
    """Whether equal tasks occur under different slugs."""
    first: dict[str, Task] = {}
    twice: list[Task] = []
    for task in tasks:
        if first.setdefault(digest(_content(task)), task) is not task:
            twice.append(task)
    if not twice:
        return [Finding("duplicates", "ok", "no duplicates")]
    message = f"{counted(len(twice), 'duplicate')} of another task, under another slug"
    return [Finding("duplicates", "warning", message, locations(twice), "remove the duplicates")]


def _content(task: Task) -> Any:
    if task.is_legacy:
        return {key: value for key, value in task.more.items() if key != "id"}
    return [task.env, task.scenario, task.args, task.more]


def check_count(tasks: Sequence[Task]) -> list[Finding]:
    """Whether there are enough tasks for HUD's managed training."""
    train = sum(not task.heldout for task in tasks)
    if train >= LEAST:
        return [Finding("count", "ok", f"{train} training tasks, at least {LEAST} recommended")]
    message = f"{counted(train, 'training task')}: HUD's managed training requires {LEAST}"
    fix = "add tasks: with few of them the policy overfits"
    return [Finding("count", "warning", message, fix=fix)]


def check_group_size(
    tasks: Sequence[Task], group_size: int | None, tasks_per_step: int | None
) -> list[Finding]:
    """Whether the run's batches fit the taskset; empty if the group size is unknown."""
    train = sum(not task.heldout for task in tasks)
    if not train or group_size is None:
        return []
    if group_size < 2:
        message = "a group of one rollout has no advantage, so no gradient"
        return [Finding("group_size", "failure", message, fix="use a group size of 8")]
    each = min(tasks_per_step or train, train)
    if tasks_per_step is not None and tasks_per_step > train:
        message = f"{tasks_per_step} tasks per step, but only {counted(train, 'training task')}"
        fix = f"add tasks, or use at most {train} per step"
        return [Finding("group_size", "warning", message, fix=fix)]
    message = f"{group_size} rollouts of each of {counted(each, 'task')} per step"
    return [Finding("group_size", "ok", message)]


def check_vision(tasks: Sequence[Task]) -> list[Finding]:
    """Whether rows contain images."""
    seen = [task for task in tasks if any(map(_is_image, _parts(task)))]
    if not seen:
        return [Finding("vision", "ok", "no images in the rows")]
    message = f"{counted(len(seen), 'task')} with images: a managed run trains on text only"
    fix = "remove them, or choose a vision model"
    return [Finding("vision", "warning", message, locations(seen), fix)]


def _parts(task: Task) -> Iterator[tuple[str, object]]:
    """Every value nested in the args, or in the legacy row, with its name."""
    waiting: list[tuple[str, object]] = [("", task.more if task.is_legacy else task.args)]
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
    """Whether each runtime_config is valid for HUD; empty if no row has one."""
    having = [task for task in tasks if not task.is_legacy and "runtime_config" in task.more]
    if not having:
        return []
    validate, wrong = validator(RUNTIME, "runtime_config"), dict[str, list[Task]]()
    for task in having:
        config = task.more["runtime_config"]
        both = config.get("image") and config.get("compose")
        for problem in ["runtime_config: image or compose, not both"] if both else validate(config):
            wrong.setdefault(problem, []).append(task)
    fix = "use image or compose, resources and limits only"
    findings = [
        Finding("runtime", "failure", problem, locations(bad), fix)
        for problem, bad in wrong.items()
    ]
    if embedded and not findings:
        message = (
            f"the embedded service ignores the runtime_config of {counted(len(having), 'row')}"
        )
        return [Finding("runtime", "warning", message, locations(having), "remove it")]
    return findings or [Finding("runtime", "ok", f"{counted(len(having), 'runtime_config')} valid")]


def local_checks(tasks: Sequence[Task], embedded: bool) -> list[Finding]:
    """All checks of the rows that need no service."""
    return [
        *check_slug_forms(tasks),
        *check_duplicates(tasks),
        *check_count(tasks),
        *check_vision(tasks),
        *check_runtime(tasks, embedded),
    ]
