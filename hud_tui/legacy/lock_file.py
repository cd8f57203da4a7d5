"""``hud.lock.yaml``: finding and reading it, and completing task rows from it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from hud_tui.errors import HudUsage
from hud_tui.legacy.yaml import MAX_BYTES, Document, KeyPath, read_yaml
from hud_tui.rl.tasks.task import kind_of
from hud_tui.rl.text import one_line
from hud_tui.storage import check_regular, open_regular

# ``hud.lock.yaml`` is the description of an environment that ``hud build`` writes.
#
# Its ``environment.variables.provided`` contains values of secrets; only their names are read.
#
# Source: files of hud 0.4.0 to 0.5 (versions 1.0, 1.1, 1.2, 1.3) in public repositories.


LOCK_NAME = "hud.lock.yaml"
FIX = "build the environment again: hud build"


@dataclass(frozen=True)
class Tool:
    """A tool of the environment."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of its arguments; None if the lock file has none (version 1.0)."""

    @property
    def parameters(self) -> tuple[dict[str, Any], list[str]]:
        """Its parameters with their schemas, and the names of the required ones."""
        schema = self.input_schema or {}
        properties, required = schema.get("properties"), schema.get("required")
        schemas = dict(properties) if isinstance(properties, Mapping) else {}
        names = required if isinstance(required, list) else []
        return schemas, [name for name in names if isinstance(name, str) and name in schemas]


@dataclass(frozen=True)
class Lock:
    """The content of a lock file."""

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


def image_name(image: str) -> str:
    """The bare name of an image: ``hud-text-2048`` for ``hudpython/hud-text-2048:0.1@sha256:…``."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


# Parsing a lock file; errors name the line and the field.


def read_lock(name: str, body: bytes) -> Lock:
    """Read a lock file of any version.

    Raises:
        HudUsage: Invalid; names file, line, field and the fix.
    """
    document = read_yaml(name, body)
    reader = _Reader(document)
    root = reader.mapping(())
    if not {"version", "image", "images", "tools"} & set(root):
        raise HudUsage(f"{document.name}: not a lock file of HUD", FIX)
    image, pushed = reader.image()
    return Lock(
        image=image,
        pushed=pushed,
        environment=reader.text(("build", "directory")) or image_name(image),
        tools=reader.tools(),
        scenarios=reader.names(("scenarios",)),
        variables=reader.variables(),
    )


T = TypeVar("T")


class _Reader:
    """Typed access to a document's fields; an invalid one is an error that names its line."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def get(self, path: KeyPath) -> Any:
        node = self.document.value
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node

    def typed(self, path: KeyPath, kind: type[T], expected: str) -> T | None:
        value = self.get(path)
        if value is not None and not isinstance(value, kind):
            raise self._expected(path, expected, value)
        return value

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        return self.typed(path, dict, "a mapping") or {}

    def text(self, path: KeyPath) -> str:
        return self.typed(path, str, "text") or ""

    def names(self, path: KeyPath) -> tuple[str, ...]:
        """Names in a list of texts, a list of mappings with ``name``, or the keys of a mapping."""
        value = self.get(path)
        if isinstance(value, dict):
            return tuple(value)
        listed = self.typed(path, list, "a list of names") or []
        parts = [part.get("name") if isinstance(part, dict) else part for part in listed]
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

    def tools(self) -> tuple[Tool, ...]:
        listed = self.typed(("tools",), list, "a list of tools") or []
        return tuple(self._tool(("tools", index), tool) for index, tool in enumerate(listed))

    def _tool(self, path: KeyPath, tool: object) -> Tool:
        if isinstance(tool, str):
            return Tool(tool)
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise self._expected(path, "a tool: {name, description}", tool)
        schema, description = tool.get("inputSchema"), tool.get("description")
        if schema is not None and not isinstance(schema, dict):
            raise self._expected((*path, "inputSchema"), "a JSON Schema", schema)
        if description is not None and not isinstance(description, str):
            raise self._expected((*path, "description"), "text", description)
        return Tool(tool["name"], description or "", schema)

    def variables(self) -> tuple[str, ...]:
        path: KeyPath = ("environment", "variables")
        kinds = [self.names((*path, kind)) for kind in ("required", "optional", "provided")]
        return tuple(dict.fromkeys(chain.from_iterable(kinds)))

    def _expected(self, path: KeyPath, expected: str, value: object) -> HudUsage:
        return self.document.wrong(path, f"expected {expected}, found {kind_of(value)}", FIX)


def find_lock(*directories: Path) -> Path | None:
    """The first lock file in these directories. FIFOs and devices are found too, so that reading
    them is refused with an error."""
    files = (directory / LOCK_NAME for directory in directories)
    return next((file for file in files if file.exists() and not file.is_dir()), None)


def load_lock(file: Path) -> Lock:
    """Read a lock file.

    Raises:
        HudUsage: It cannot be read, or is invalid.
    """
    return read_lock(str(file), read_bounded(file))


def read_bounded(file: Path) -> bytes:
    """A file's bytes, at most one more than MAX_BYTES.

    Raises:
        HudUsage: It cannot be read, or is not a regular file.
    """
    try:
        with open_regular(file) as opened:
            return opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HudUsage(f"{one_line(file)}: {one_line(reason)}", "check the path") from error


def replace_file(file: Path, body: bytes) -> None:
    """Replace a file atomically; a symbolic link stays a link to the same place.

    Raises:
        HudUsage: It cannot be written, or is not a regular file.
    """
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
GRADED_CALLS = ("setup_tool", "evaluate_tool")


def infer_servers(lock: Lock) -> dict[str, Any] | None:
    """The ``mcp_config`` of a task; None if the lock file has no image."""
    if not lock.image:
        return None
    if lock.pushed:
        headers = {"Authorization": "Bearer ${HUD_API_KEY}", "Mcp-Image": lock.image}
        return {"hud": {"url": URL, "headers": headers}}
    variables = [word for name in lock.variables for word in ("-e", name)]
    command = {"command": "docker", "args": ["run", "--rm", "-i", *variables, lock.image]}
    return {"local": command}


class Completion:
    """Adds the MCP servers of the lock file's image to v4 rows without any; the file is read when
    a row needs it."""

    def __init__(self, lock: Path | None) -> None:
        self._lock = lock

    def __call__(self, row: Any) -> Any:
        """The completed row; other rows unchanged.

        Raises:
            HudUsage: The lock file is needed but cannot be read.
        """
        if self._lock is None or not isinstance(row, dict) or row.get("mcp_config"):
            return row
        if not row.get("prompt") or not any(row.get(key) for key in GRADED_CALLS):
            return row
        return row if self.servers is None else {**row, "mcp_config": self.servers}

    @cached_property
    def servers(self) -> dict[str, Any] | None:
        return infer_servers(load_lock(self._lock)) if self._lock else None
