"""A lock file's text as a `Lock`; every wrong field is an error that names its line."""

from collections.abc import Iterable
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.older.lock import FIX, VERSIONS, Lock, PrimaryDataset, Tool, image_name
from hud_tui.older.yaml_text import Document, Path, read_yaml
from hud_tui.rl.fields import kind_of


def read_lock(name: str, body: bytes) -> Lock:
    """Read a lock file of any version.

    Raises:
        HudUsage: Not one; names file, line, field and what to do.
    """
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
    """Fields of the document, each with its type, or an error that names its line."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def get(self, path: Path) -> Any:
        node = self.document.value
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node

    def mapping(self, path: Path) -> dict[str, Any]:
        value = self.get(path)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._expected(path, "a mapping", value)
        return value

    def text(self, path: Path) -> str:
        value = self.get(path)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._expected(path, "text", value)
        return value

    def names(self, path: Path) -> tuple[str, ...]:
        """Names in a list: of text, or of mappings with a ``name``."""
        value = self.get(path)
        if isinstance(value, dict):
            return tuple(value)
        if value is not None and not isinstance(value, list):
            raise self._expected(path, "a list of names", value)
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
            return image, bool(self.mapping(("push",))) or _has_registry(image)
        return self.text(("images", "full")) or self.text(("images", "local")), False

    def tools(self, hubs: dict[str, tuple[str, ...]]) -> tuple[Tool, ...]:
        value = self.get(("tools",))
        if value is not None and not isinstance(value, list):
            raise self._expected(("tools",), "a list of tools", value)
        tools = [self._tool(index, part, hubs) for index, part in enumerate(value or [])]
        named = {tool.name for tool in tools}
        hidden = [Tool(hub, internal=parts) for hub, parts in hubs.items() if hub not in named]
        return (*tools, *hidden)

    def _tool(self, index: int, tool: object, hubs: dict[str, tuple[str, ...]]) -> Tool:
        path: Path = ("tools", index)
        if isinstance(tool, str):
            return Tool(tool, internal=hubs.get(tool, ()))
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise self._expected(path, "a tool: {name, description}", tool)
        schema, description = tool.get("inputSchema"), tool.get("description")
        if schema is not None and not isinstance(schema, dict):
            raise self._expected((*path, "inputSchema"), "a JSON Schema", schema)
        if description is not None and not isinstance(description, str):
            raise self._expected((*path, "description"), "text", description)
        internal = tool.get("internalTools")
        if internal is not None and not _is_names(internal):
            raise self._expected((*path, "internalTools"), "a list of names", internal)
        known = tuple(internal or hubs.get(tool["name"], ()))
        return Tool(tool["name"], description or "", schema, known)

    def variables(self) -> tuple[str, ...]:
        path: Path = ("environment", "variables")
        kinds = [self.names((*path, kind)) for kind in ("required", "optional", "provided")]
        return tuple(dict.fromkeys(_flat(kinds)))

    def dataset(self) -> PrimaryDataset | None:
        path: Path = ("primary_dataset",)
        value = self.get(path)
        if value is None or isinstance(value, str):
            return PrimaryDataset(value) if value else None
        name = self.mapping(path).get("name")
        if not isinstance(name, str) or not name:
            raise self._expected((*path, "name"), "the data set's name", name)
        count = self.get((*path, "task_count"))
        if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
            raise self._expected((*path, "task_count"), "a whole number", count)
        texts = (self.text((*path, key)) for key in ("updated_at", "path"))
        return PrimaryDataset(name, count, *texts)

    def _expected(self, path: Path, wanted: str, value: object) -> HudUsage:
        return self.document.wrong(path, f"expected {wanted}, found {kind_of(value)}", FIX)


def _has_registry(image: str) -> bool:
    """Whether an image's name has an owner, as those in a registry do."""
    return "/" in image.partition("@")[0] and not image.startswith("local/")


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _flat(lists: Iterable[Iterable[str]]) -> list[str]:
    return [part for one in lists for part in one]
