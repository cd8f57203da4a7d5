"""``hud.lock.yaml``: finding and reading it, changing its primary data set, checking tasks with
it."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.legacy.yaml import MAX_BYTES, Document, KeyPath, library, read_yaml, round_trip
from hud_tui.rl.findings import Finding
from hud_tui.rl.tasks.legacy import CALLS
from hud_tui.rl.tasks.task import Task, kind_of, locations
from hud_tui.rl.text import counted, names_text, one_line
from hud_tui.storage import check_regular, open_regular

# ``hud.lock.yaml`` is the description of an environment that ``hud build`` writes.
#
# Its ``environment.variables.provided`` contains values of secrets; only their names are read.
#
# Source: files of hud 0.4.0 to 0.5 (versions 1.0, 1.1, 1.2, 1.3) in public repositories;
# ``primary_dataset`` as ``hud hf`` of 0.4 writes it.


LOCK_NAME = "hud.lock.yaml"
VERSIONS = ("1.0", "1.1", "1.2", "1.3")
FIX = "build the environment again: hud build"


@dataclass(frozen=True)
class Tool:
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of its arguments; None if the lock file has none (version 1.0)."""
    internal: tuple[str, ...] = ()
    """Functions that it calls by name, e.g. those of ``setup`` and ``evaluate``."""

    @property
    def parameters(self) -> tuple[dict[str, Any], list[str]]:
        """Its parameters with their schemas, and the names of the required ones."""
        schema = self.input_schema or {}
        properties, required = schema.get("properties"), schema.get("required")
        schemas = dict(properties) if isinstance(properties, Mapping) else {}
        names = required if isinstance(required, list) else []
        return schemas, [name for name in names if isinstance(name, str) and name in schemas]


@dataclass(frozen=True)
class PrimaryDataset:
    name: str
    task_count: int | None = None
    updated_at: str = ""
    path: str = ""
    """Where hud-tui wrote it, relative to the lock file; empty if another program did."""


@dataclass(frozen=True)
class Lock:
    file: str
    version: str
    image: str
    """The image to run: the pushed one, else the local one."""
    pushed: bool
    """Whether the image is in a registry, so that others can run it."""
    environment: str
    """Name of the environment: of its directory, else of its image."""
    tools: tuple[Tool, ...] = ()
    scenarios: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Names of variables that it requires, accepts or was given."""
    dataset: PrimaryDataset | None = None
    notes: tuple[str, ...] = field(default=())
    """Warnings about the file."""

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


def image_name(image: str) -> str:
    """The bare name of an image: ``hud-text-2048`` for ``hudpython/hud-text-2048:0.1@sha256:…``."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


# Parsing a lock file; errors name the line and the field.


def read_lock(name: str, body: bytes) -> Lock:
    """Read a lock file of any version. Raises HudUsage: invalid; names file, line, field and the
    fix."""
    document = read_yaml(name, body)
    reader = _Reader(document)
    root = reader.mapping(())
    if not {"version", "image", "images", "tools"} & set(root):
        raise HudUsage(f"{document.name}: not a lock file of HUD", FIX)
    version = str(root.get("version", "1.0"))
    notes = [] if version in VERSIONS else [f"version {version[:20]} is newer than this reader"]
    image, pushed = reader.image()
    hubs = {name: reader.names(("hubTools", name)) for name in reader.mapping(("hubTools",))}
    return Lock(
        file=document.name,
        version=version[:20],
        image=image,
        pushed=pushed,
        environment=reader.text(("build", "directory")) or image_name(image),
        tools=reader.tools(hubs),
        scenarios=reader.names(("scenarios",)),
        variables=reader.variables(),
        dataset=reader.dataset(),
        notes=tuple(notes),
    )


class _Reader:
    """Typed access to a document's fields; an invalid one is an error that names its line."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def get(self, path: KeyPath, kind: Any, expected: str) -> Any:
        """A value of this type; None if there is none."""
        value = self.document.value
        for step in path:
            if isinstance(step, int):
                value = value[step]
            else:
                value = value.get(step) if isinstance(value, dict) else None
        if value is None or isinstance(value, kind):
            return value
        raise self._expected(path, expected, value)

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        return self.get(path, dict, "a mapping") or {}

    def text(self, path: KeyPath) -> str:
        return self.get(path, str, "text") or ""

    def names(self, path: KeyPath) -> tuple[str, ...]:
        """Names in a list of texts, a list of mappings with ``name``, or the keys of a mapping."""
        value = self.get(path, dict | list, "a list of names")
        if isinstance(value, dict):
            return tuple(value)
        parts = [part.get("name") if isinstance(part, dict) else part for part in value or []]
        for index, part in enumerate(parts):
            if not isinstance(part, str):
                raise self._expected((*path, index), "a name", part)
        return tuple(map(str, parts))

    def image(self) -> tuple[str, bool]:
        """The image to run, and whether it was pushed."""
        pushed = self.text(("images", "pushed")) or self.text(("push", "image_with_tag"))
        if pushed:
            return pushed, True
        image = self.text(("image",))
        if image:
            has_owner = "/" in image.partition("@")[0] and not image.startswith("local/")
            return image, bool(self.mapping(("push",))) or has_owner
        return self.text(("images", "full")) or self.text(("images", "local")), False

    def tools(self, hubs: dict[str, tuple[str, ...]]) -> tuple[Tool, ...]:
        listed = self.get(("tools",), list, "a list of tools") or []
        tools = [self._tool(index, tool, hubs) for index, tool in enumerate(listed)]
        named = {tool.name for tool in tools}
        hidden = [Tool(hub, internal=parts) for hub, parts in hubs.items() if hub not in named]
        return (*tools, *hidden)

    def _tool(self, index: int, tool: object, hubs: dict[str, tuple[str, ...]]) -> Tool:
        path: KeyPath = ("tools", index)
        if isinstance(tool, str):
            return Tool(tool, internal=hubs.get(tool, ()))
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise self._expected(path, "a tool: {name, description}", tool)
        schema = self.get((*path, "inputSchema"), dict, "a JSON Schema")
        description = self.text((*path, "description"))
        internal = self.get((*path, "internalTools"), list, "a list of names") or []
        if not all(isinstance(name, str) for name in internal):
            raise self._expected((*path, "internalTools"), "a list of names", internal)
        internals = tuple(internal or hubs.get(tool["name"], ()))
        return Tool(tool["name"], description, schema, internals)

    def variables(self) -> tuple[str, ...]:
        path: KeyPath = ("environment", "variables")
        kinds = [self.names((*path, kind)) for kind in ("required", "optional", "provided")]
        return tuple(dict.fromkeys(chain.from_iterable(kinds)))

    def dataset(self) -> PrimaryDataset | None:
        path: KeyPath = ("primary_dataset",)
        value = self.get(path, dict | str, "a mapping")
        if not value and not isinstance(value, dict):
            return None
        if isinstance(value, str):
            return PrimaryDataset(value)
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise self._expected((*path, "name"), "the data set's name", name)
        count = self.get((*path, "task_count"), int, "a whole number")
        if isinstance(count, bool):
            raise self._expected((*path, "task_count"), "a whole number", count)
        texts = (self.text((*path, key)) for key in ("updated_at", "path"))
        return PrimaryDataset(name, count, *texts)

    def _expected(self, path: KeyPath, expected: str, value: object) -> HudUsage:
        return self.document.wrong(path, f"expected {expected}, found {kind_of(value)}", FIX)


# Replacing ``primary_dataset`` in a lock file's text without changing anything else.
#
# Only that block is rewritten, by ruamel.yaml, which keeps the comments within it. A file
# that is one flow mapping (JSON) is rewritten as a whole.


KEY = "primary_dataset"
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as in YAML 1.2 (5.4), where Unicode's other line breaks are text."""


def with_dataset(name: str, text: str, entry: Mapping[str, str | int]) -> str:
    """The text of a lock file with another ``primary_dataset``; other keys of that block are kept.
    `name`: of the file, for messages. Raises HudUsage: the text is not YAML, or in a form that
    cannot be changed."""
    document = read_yaml(name, text.encode())
    block = document.value.get(KEY)
    changed = {**block, **entry} if isinstance(block, dict) else dict(entry)
    try:
        spliced = _spliced(document, entry)
        if spliced is not None and _same(name, spliced, {**document.value, KEY: changed}):
            return spliced
        document.source[KEY] = changed
        return _dump(document.source)
    except (library().error.YAMLError, NotImplementedError) as error:  # raised while writing
        what = f"{document.name}: {KEY} cannot be changed in this form"
        raise HudUsage(what, f"write it plainly, or put {entry['name']} there yourself") from error


def _spliced(document: Document, entry: Mapping[str, str | int]) -> str | None:
    """The text with the block replaced or added; None if the root is a flow mapping."""
    root, text = document.source, document.text
    if root.fa.flow_style():
        return None
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = LINE.findall(text)
    if KEY not in root:
        return _appended(lines, newline, {KEY: dict(entry)})
    first = root.lc.key(KEY)[0]
    last = _end(root, first, lines)
    block = round_trip().load("".join(lines[first:last]).replace("\r\n", "\n"))
    held: Any = block[KEY]
    if isinstance(held, dict):
        for key, value in entry.items():
            held[key] = value
    else:
        block[KEY] = dict(entry)
    return "".join([*lines[:first], _dump(block, newline), *lines[last:]])


def _appended(lines: list[str], newline: str, block: dict[str, Any]) -> str:
    """The text with the block at its end, or before the line that ends the document."""
    end = next((i for i, line in enumerate(lines) if line.rstrip() == "..."), len(lines))
    before = "".join(lines[:end])
    if before and not before.endswith("\n"):
        before += newline
    return before + _dump(block, newline) + "".join(lines[end:])


def _end(root: Any, first: int, lines: list[str]) -> int:
    """The line after the block; comments and blank lines at its end do not belong to it."""
    starts = [root.lc.key(key)[0] for key in root if key in root.lc.data]
    last = min((line for line in starts if line > first), default=len(lines))
    while last > first + 1 and _is_between(lines[last - 1]):
        last -= 1
    return last


def _is_between(line: str) -> bool:
    stripped = line.rstrip()
    return not stripped or stripped.startswith("#") or stripped == "..."


def _same(name: str, text: str, target: Mapping[str, Any]) -> bool:
    """Whether a text has this content. Rewriting may lose something, e.g. an anchor in the
    block."""
    try:
        return bool(read_yaml(name, text.encode()).value == target)
    except HudUsage:
        return False


def _dump(root: Any, newline: str = "\n") -> str:
    out = StringIO()
    round_trip().dump(root, out)
    return out.getvalue().replace("\n", newline)


def find_lock(*directories: Path) -> Path | None:
    """The first lock file in these directories. FIFOs and devices are found too, so that reading
    them is refused with an error."""
    files = (directory / LOCK_NAME for directory in directories)
    return next((file for file in files if file.exists() and not file.is_dir()), None)


def load_lock(file: Path) -> Lock:
    """Read a lock file. Raises HudUsage: it cannot be read, or is invalid."""
    return read_lock(str(file), read_bounded(file))


def primary_source(directory: Path) -> str:
    """The primary data set of a directory's lock file: the folder that it names if that exists,
    else the data set's name. Raises HudUsage: there is no lock file, or it has no primary data
    set."""
    file = find_lock(directory)
    if file is None:
        raise HudUsage(
            "give SOURCE: a file, a directory or a taskset", f"there is no {LOCK_NAME} here"
        )
    dataset = load_lock(file).dataset
    if dataset is None:
        hint = "hud-tui convert writes a data set and records it there"
        raise HudUsage(f"give SOURCE: {one_line(file)} names no primary_dataset", hint)
    folder = file.parent / dataset.path
    return str(folder) if dataset.path and folder.exists() else dataset.name


def read_bounded(file: Path) -> bytes:
    """A file's bytes, at most one more than MAX_BYTES. Raises HudUsage: it cannot be read, or is
    not a regular file."""
    try:
        with open_regular(file) as opened:
            return opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HudUsage(f"{one_line(file)}: {one_line(reason)}", "check the path") from error


def write_dataset(file: Path, name: str, task_count: int, updated_at: str, folder: Path) -> None:
    """Record a data set as the primary one; everything else in the file is kept. `updated_at`: when
    it was made, ISO 8601; `folder` is recorded relative to the lock file. Raises HudUsage: the file
    cannot be read or written, or is not a lock file."""
    body = read_bounded(file)
    read_lock(str(file), body)
    text = body.decode("utf-8")
    entry: dict[str, str | int] = {"name": name, "task_count": task_count}
    entry |= {"updated_at": updated_at, "path": os.path.relpath(folder, file.parent)}
    replace_file(file, with_dataset(str(file), text, entry).encode())


def replace_file(file: Path, body: bytes) -> None:
    """Replace a file atomically; a symbolic link stays a link to the same place. Raises HudUsage:
    it cannot be written, or is not a regular file."""
    target = file.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        mode = 0o644
        if target.exists():
            check_regular(target)
            mode = target.stat().st_mode & 0o777
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        message = f"{one_line(file)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "choose a writable directory") from error


# The MCP servers of a v4 task, inferred from a lock file's image.
#
# A pushed image runs on HUD, with the key as the variable ``${HUD_API_KEY}``, never in plain
# text. An image that only this machine has runs in its Docker.
#
# Source: ``hud hf`` and ``hud run`` of hud 0.4; the host is that of 0.5.


URL = "${HUD_MCP_URL:https://mcp.hud.ai/v3/mcp}"
HEADER = "Mcp-Image"
BARE_FLAGS = ("--rm", "-i", "-t", "-it", "-d", "--init", "--privileged")
"""Flags of ``docker run`` without a value."""


def infer_servers(lock: Lock) -> dict[str, Any] | None:
    """The ``mcp_config`` of a task; None if the lock file has no image."""
    if not lock.image:
        return None
    if lock.pushed:
        headers = {"Authorization": "Bearer ${HUD_API_KEY}", HEADER: lock.image}
        return {"hud": {"url": URL, "headers": headers}}
    variables = [word for name in lock.variables for word in ("-e", name)]
    command = {"command": "docker", "args": ["run", "--rm", "-i", *variables, lock.image]}
    return {"local": command}


def images_of(servers: object) -> Iterator[str]:
    """Images that an ``mcp_config`` runs: in the header, or the last word of ``docker run``."""
    if not isinstance(servers, Mapping):
        return
    for server in servers.values():
        if not isinstance(server, Mapping):
            continue
        headers, args = server.get("headers"), server.get("args")
        if isinstance(headers, Mapping):
            yield from (
                value
                for name, value in headers.items()
                if str(name).casefold() == HEADER.casefold() and isinstance(value, str)
            )
        if server.get("command") == "docker" and isinstance(args, list) and "run" in args:
            image = _docker_image(args)
            if image:
                yield image


def _docker_image(args: list[Any]) -> str | None:
    """The first word of ``docker run`` that is neither a flag nor a flag's value."""
    words = iter(args[args.index("run") + 1 :])
    for word in words:
        if not isinstance(word, str):
            return None
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in BARE_FLAGS:
            next(words, None)
    return None


# Checking tasks against the lock file beside them.


def check_lock(lock: Lock, tasks: Sequence[Task]) -> list[Finding]:
    """A finding for each difference between tasks and the lock file beside them, or one if there is
    none; tasks of other environments are not checked. All are warnings: the service's registry, not
    this file, decides what can run."""
    older = [task for task in tasks if task.form == "v4"]
    same = [task for task in tasks if not task.is_legacy and _normal(task.env) in _called(lock)]
    own = [task for task in older if _is_of(lock, task)]
    differences = [*_images(lock, own), *_tools(lock, own), *_scenarios(lock, same)]
    differences += [Finding("lock", "warning", note, lock.file, FIX) for note in lock.notes]
    if not own and not same:
        return [*differences, _another(lock, older)] if older else differences
    if differences:
        return differences
    what = names_text(list(filter(None, (lock.environment, lock.image))))
    return [Finding("lock", "ok", f"the lock file agrees: {what}", lock.file)]


def lock_findings(file: Path, tasks: Sequence[Task]) -> list[Finding]:
    """`check_lock` of a file; a finding if it cannot be read."""
    try:
        return check_lock(load_lock(file), tasks)
    except HudUsage as error:
        return [Finding("lock", "warning", error.message, one_line(file), error.hint)]


def _is_of(lock: Lock, task: Task) -> bool:
    """Whether a v4 task runs any build of the lock file's image; True if it names no image."""
    images = [image_name(image) for image in images_of(task.more.get("mcp_config"))]
    return not images or not lock.image or image_name(lock.image) in images


def _another(lock: Lock, tasks: Sequence[Task]) -> Finding:
    """The finding if all tasks run another image."""
    images = (image for task in tasks for image in images_of(task.more.get("mcp_config")))
    message = f"no task runs {one_line(lock.image, 90)}, the image of the lock file:"
    message += f" they run {names_text(list(dict.fromkeys(images)))}"
    fix = "set the right image in mcp_config, or keep the tasks beside their own lock file"
    return Finding("lock", "warning", message, locations(tasks), fix)


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
        message = f"{counted(len(rows), 'task')} run {one_line(image, 90)}"
        message += f", the lock file names {one_line(lock.image, 90)}"
        fix = "set the right image in mcp_config, or build again: hud build"
        yield Finding("lock", "warning", message, locations(rows), fix)


def _tools(lock: Lock, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Tools that are called by tasks and are not in the lock file."""
    if not lock.tools:
        return
    missing: dict[str, list[Task]] = {}
    for task in tasks:
        for name in _unknown(lock, task):
            missing.setdefault(name, []).append(task)
    for name, rows in missing.items():
        message = f"the lock file has no tool {one_line(name, 80)}"
        has = names_text([tool.name for tool in lock.tools])
        yield Finding("lock", "warning", message, locations(rows), f"it has {has}; or {FIX}")


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
    """Scenarios that are named by tasks and are not in the lock file."""
    scenarios = {name.rpartition(":")[2] for name in lock.scenarios}
    unknown = [task for task in tasks if task.scenario.rpartition(":")[2] not in scenarios]
    if scenarios and unknown:
        missing = sorted({task.scenario for task in unknown})
        message = f"the lock file has no scenario {names_text(missing)}"
        fix = f"it has {names_text(sorted(scenarios))}; or {FIX}"
        yield Finding("lock", "warning", message, locations(unknown), fix)


def _called(lock: Lock) -> set[str]:
    """Normalised names that tasks may use for the environment."""
    return {_normal(name) for name in (lock.environment, image_name(lock.image)) if name}


def _normal(name: str) -> str:
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


# Completing task rows from the lock file beside them, which is only read if a row needs it.


GRADED_CALLS = ("setup_tool", "evaluate_tool")


class Completion:
    """Adds the MCP servers of the lock file's image to v4 rows without any."""

    def __init__(self, lock: Path | None) -> None:
        self._lock = lock
        self.used = 0
        """Number of rows that were completed."""

    def __call__(self, row: Any) -> Any:
        """The completed row; other rows unchanged. Raises HudUsage: the lock file is needed but
        cannot be read."""
        if self._lock is None or not isinstance(row, dict) or row.get("mcp_config"):
            return row
        if not row.get("prompt") or not any(row.get(key) for key in GRADED_CALLS):
            return row
        if self.servers is None:
            return row
        self.used += 1
        return {**row, "mcp_config": self.servers}

    @cached_property
    def servers(self) -> dict[str, Any] | None:
        return infer_servers(load_lock(self._lock)) if self._lock else None
