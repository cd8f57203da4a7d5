"""What an environment's image has: its MCP server is started in a container, asked, and removed.

Nothing that an image says is trusted: lines, bytes, tools and time are bounded, and what it says is
made printable where it is shown.

Source: MCP 2025-06-18, stdio transport; ``hud analyze`` of hud 0.4: ``analyze_environment`` and
``get_hub_tools``.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from hud_tui import __version__
from hud_tui.errors import HudError, HudUsage
from hud_tui.legacy.lock_file import Tool
from hud_tui.pipes import Codec, Document, Pipe, ProcessEnded, kill_group
from hud_tui.rl.text import clean, counted, last_lines, one_line

ENGINES = ("docker", "podman")
"""Programs that run containers, the preferred one first."""
IMAGE = re.compile(
    r"[a-z0-9][\w.-]*(?::\d{1,5})?(?:/[a-z0-9][\w.-]*)*(?::[\w][\w.-]{0,127})?(?:@\w+:[0-9a-f]{32,128})?",
    re.ASCII,
)
PULL_S, START_S, ANSWER_S, ALL_S = 1800.0, 60.0, 30.0, 150.0
"""Longest pull, start, answer, and everything but the pull, seconds."""
LOOK_S = 0.2
"""Seconds between two looks whether the program was killed."""
CLOSE_S, REMOVE_S = 3.0, 20.0
"""Seconds that a server may take to end once its stdin is closed, and its container to go."""
LONGEST_LINE, MOST_BYTES = 4 << 20, 16 << 20
"""Bytes of one line, and of all that a server says."""
MOST_LISTED, MOST_PAGES = 500, 50
MOST_SAID = 4096
"""Bytes at the end of its stderr that are kept."""
PROTOCOL = "2025-06-18"
TELEMETRY = "telemetry://live"
NO_ENGINE = "neither docker nor podman is here, so the image cannot be looked into"


class ImageFailed(HudError):
    kind = "image_failed"


@dataclass(frozen=True)
class Resource:
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True)
class ImageFacts:
    """What an image's server said of itself."""

    image: str
    engine: str
    """``docker`` or ``podman``."""
    server: str
    """Its name and version."""
    tools: tuple[Tool, ...] = ()
    resources: tuple[Resource, ...] = ()
    telemetry: Mapping[str, Any] | None = None
    """Addresses and the state of services, if it has them."""
    omitted: int = 0
    """Tools and resources beyond `MOST_LISTED`."""
    seconds: float = 0.0
    """How long it took from the start of the container."""


def is_image(text: str) -> bool:
    """Whether a text names an image and cannot name anything else: it has a registry, an owner, a
    tag or a digest."""
    return bool(IMAGE.fullmatch(text)) and any(mark in text for mark in "/:@")


def find_container_engine() -> str:
    """The program that runs containers. Raises HudUsage: there is none."""
    for name in ENGINES:
        if (program := shutil.which(name)) is not None:
            return program
    hint = "install one of them; or give a directory with hud.lock.yaml, which hud build writes"
    raise HudUsage(NO_ENGINE, hint)


async def analyze_image(
    image: str, variables: Mapping[str, str], report: Callable[[str], None]
) -> ImageFacts:
    """Start an image's MCP server, ask what it has, and remove its container, whatever happens.

    Args:
        variables: What the container gets, by name; the values stand in no command line.
        report: Called with what is being waited for.

    Raises:
        HudUsage: Not an image's name, or no program that runs containers.
        ImageFailed: It cannot be pulled or started, or says nothing that fits, in time.
    """
    if not IMAGE.fullmatch(image):
        raise HudUsage(f"not an image's name: {one_line(image, 100)}", "e.g. hudpython/text-2048:1")
    program = find_container_engine()
    await _pull(program, image, report)
    name = f"hud-tui-{secrets.token_hex(6)}"
    flags = [word for variable in variables for word in ("-e", variable)]
    words = [program, "run", "--rm", "-i", "--name", name, *flags, image]
    report(f"starting {image} by {program.rpartition('/')[2]}")
    try:
        async with asyncio.timeout(ALL_S):
            return await _Talk(image, program).run(words, name, variables)
    except TimeoutError:
        raise ImageFailed(f"{image}: not done within {ALL_S:.0f} s", HINT.format(image)) from None


HINT = "look at what it prints: docker run --rm -i {}"


async def _pull(program: str, image: str, report: Callable[[str], None]) -> None:
    """Pull an image that is not here. Raises ImageFailed."""
    if await _quiet(program, "image", "inspect", image) == 0:
        return
    report(f"pulling {image}, for up to {PULL_S / 60:.0f} min")
    process = await create_subprocess_exec(
        *(program, "pull", "--quiet", image),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        start_new_session=True,
    )
    said = _Tail(process)
    try:
        async with asyncio.timeout(PULL_S):
            code = await process.wait()
    except TimeoutError:
        what = f"{image}: not pulled within {PULL_S / 60:.0f} min"
        raise ImageFailed(what, f"pull it: docker pull {image}") from None
    finally:
        kill_group(process)
        text = await said.end()
    if code:
        why = f": {text}" if text else ""
        engine = program.rpartition("/")[2]
        hint = f"check its name, or build it; and see whether {engine} works: {engine} info"
        raise ImageFailed(f"{image} cannot be pulled{why}", hint)


async def _quiet(*words: str) -> int | None:
    """Run a command without output; its exit code, None if it takes too long."""
    process = await create_subprocess_exec(
        *words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    try:
        async with asyncio.timeout(REMOVE_S):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        kill_group(process)


def _remove_now(program: str, name: str) -> None:
    """Remove a container, and wait for that."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [program, "rm", "-f", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=REMOVE_S,
        )


class _Tail:
    """The end of what a process says on stderr."""

    def __init__(self, process: Process) -> None:
        self._process, self._said = process, bytearray()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(MOST_SAID):
            self._said += piece
            del self._said[:-MOST_SAID]

    async def end(self) -> str:
        """Its last line, once it has ended."""
        await asyncio.wait([self._reading], timeout=1.0)
        self._reading.cancel()
        text = clean(self._said.decode("utf-8", "replace"), MOST_SAID)
        return one_line(" · ".join(last_lines(text, 3)), 400)


class _Answers:
    """How requests become JSON-RPC, and answers are read; what is no answer is let be."""

    def __init__(self) -> None:
        self.left = MOST_BYTES
        """Bytes that it may still say; less than 0: it has said too much."""

    def dumps(self, document: Document) -> bytes:
        message = {"jsonrpc": "2.0", **document}
        if "verb" in message:
            message["method"] = message.pop("verb")
        return json.dumps(message).encode()

    def loads(self, line: bytes) -> Document:
        self.left -= len(line)
        if self.left < 0:
            raise ValueError("too much")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(message, dict):
            return {}
        if "method" in message:
            return {"event": message}
        is_answer = type(message.get("id")) is int
        return message if is_answer else {}


class _Talk:
    def __init__(self, image: str, program: str) -> None:
        self._image, self._program = image, program
        self._answers = _Answers()
        self._pipe: Pipe
        self._omitted = 0

    async def run(
        self, words: Sequence[str], name: str, variables: Mapping[str, str]
    ) -> ImageFacts:
        began, codec = monotonic(), Codec(self._answers.dumps, self._answers.loads)
        options: dict[str, Any] = {"stderr": PIPE, "limit": LONGEST_LINE}
        options["env"] = {**os.environ, **variables}
        pipe = self._pipe = await Pipe.start(words, self._said, codec, has_group=True, **options)
        said = _Tail(pipe.process)
        try:
            facts = await self._ask_everything()
            return ImageFacts(**facts, omitted=self._omitted, seconds=monotonic() - began)
        except (ProcessEnded, TimeoutError) as error:
            why = await self._why(error, said)
            raise ImageFailed(f"{self._image}: {why}", HINT.format(self._image)) from error
        finally:
            await self._remove(name)
            await said.end()

    async def _why(self, error: Exception, said: _Tail) -> str:
        if self._answers.left < 0:
            return f"it said more than {MOST_BYTES >> 20} MB"
        if isinstance(error, TimeoutError):
            return "its MCP server does not answer in time"
        if (self._pipe.process.returncode or 0) < 0:
            return f"it said a line of more than {LONGEST_LINE >> 20} MB, or was killed"
        text = await said.end()
        return f"it ended before it answered{f': {text}' if text else ''}"

    async def _remove(self, name: str) -> None:
        """End the server, and remove its container unless it went by itself. A second interruption
        does not keep the container."""
        ending, interrupted = asyncio.ensure_future(self._end(name)), False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                interrupted = True
        if interrupted:
            raise asyncio.CancelledError

    async def _end(self, name: str) -> None:
        process, is_gone = self._pipe.process, False
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await process.wait()
            is_gone = process.returncode is not None and process.returncode >= 0  # by --rm
            if not is_gone:
                is_gone = await _quiet(self._program, "rm", "-f", name) == 0
        finally:
            if not is_gone:  # interrupted again: this process may not wait any more
                _remove_now(self._program, name)
        self._pipe.kill()
        with suppress(TimeoutError, RuntimeError):  # the latter: the pipe still reads it itself
            async with asyncio.timeout(CLOSE_S):
                while await process.stdout.read(LONGEST_LINE):
                    pass
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._pipe.wait()

    def _said(self, document: Document) -> None:
        """A request of the server's is answered: a ping, and nothing else."""
        message = document.get("event") or {}
        if type(message.get("id")) is not int and not isinstance(message.get("id"), str):
            return
        answer: Document = {"result": {}}
        if message.get("method") != "ping":
            answer = {"error": {"code": -32601, "message": "not served"}}
        self._pipe.tell(id=message["id"], **answer)

    async def _ask(
        self, verb: str, within_s: float | None = None, **params: Any
    ) -> Mapping[str, Any]:
        """The result; empty if it is an error. Raises ProcessEnded, TimeoutError."""
        async with asyncio.timeout(within_s or ANSWER_S):
            asked = asyncio.ensure_future(self._pipe.ask(verb, params=params))
            try:
                while not asked.done():
                    await asyncio.wait([asked], timeout=LOOK_S)
                    code = self._pipe.process.returncode
                    if code is not None and code < 0 and not asked.done():
                        raise ProcessEnded(code)  # what it started may hold its stdout
            finally:
                asked.cancel()
        result = asked.result().get("result")
        return result if isinstance(result, dict) else {}

    async def _ask_everything(self) -> dict[str, Any]:
        about = {"name": "hud-tui", "version": __version__}
        asked = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        hello = await self._ask("initialize", START_S, **asked)
        if not isinstance(hello.get("serverInfo"), dict):
            what = f"{self._image}: no MCP server answers on its stdin"
            raise ImageFailed(what, HINT.format(self._image))
        self._pipe.tell(verb="notifications/initialized")
        server = [_text(hello["serverInfo"].get(key)) for key in ("name", "version")]
        listed = await self._list("tools/list", "tools")
        tools = [tool for each in listed if (tool := _tool(each)) is not None]
        tools = [await self._with_functions(tool) for tool in tools]
        offered = hello.get("capabilities")
        has = isinstance(offered, dict) and "resources" in offered
        resources = await self._list("resources/list", "resources") if has else []
        return {
            "image": self._image,
            "engine": self._program.rpartition("/")[2],
            "server": " ".join(filter(None, server)),
            "tools": tuple(tools),
            "resources": tuple(found for each in resources if (found := _resource(each))),
            "telemetry": await self._read(TELEMETRY) if has else None,
        }

    async def _list(self, verb: str, key: str) -> list[Any]:
        """All pages of a list; of too many the first."""
        found: list[Any] = []
        params: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            page = await self._ask(verb, **params)
            found += page[key] if isinstance(page.get(key), list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) > MOST_LISTED:
                break
            params = {"cursor": cursor}
        self._omitted += max(0, len(found) - MOST_LISTED)
        return found[:MOST_LISTED]

    async def _with_functions(self, tool: Tool) -> Tool:
        """A tool that calls others by name, with their names."""
        about = tool.description.lower()
        if "internal" not in about or "functions" not in about:
            return tool
        names = await self._read(f"file:///{tool.name}/functions")
        if not isinstance(names, list):
            return tool
        internal = tuple(name for name in names[:MOST_LISTED] if isinstance(name, str))
        return Tool(tool.name, tool.description, tool.input_schema, internal)

    async def _read(self, uri: str) -> Any:
        """A resource's JSON; None if it has none."""
        contents = (await self._ask("resources/read", uri=uri)).get("contents")
        for part in contents if isinstance(contents, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                with suppress(ValueError, RecursionError):
                    return json.loads(part["text"])
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tool(listed: object) -> Tool | None:
    if not isinstance(listed, dict) or not _text(listed.get("name")):
        return None
    schema = listed.get("inputSchema")
    return Tool(
        listed["name"],
        _text(listed.get("description")),
        schema if isinstance(schema, dict) else None,
    )


def _resource(listed: object) -> Resource | None:
    if not isinstance(listed, dict) or not _text(listed.get("uri")):
        return None
    keys = ("uri", "name", "description", "mimeType")
    return Resource(*(_text(listed.get(key)) for key in keys))


def image_lines(facts: ImageFacts, signature: Callable[[Tool], str]) -> list[str]:
    """What an image has, as lines of text. `signature`: a tool with its arguments."""
    parts = [counted(len(facts.tools), "tool"), counted(len(facts.resources), "resource")]
    parts.append(f"{facts.seconds:.1f} s")
    lines = [f"{facts.image} by {facts.engine}: {facts.server or 'a server'}, {', '.join(parts)}"]
    for tool in facts.tools:
        about = tool.description.strip().partition("\n")[0]
        lines.append(f"  {signature(tool)}" + (f": {about}" if about else ""))
        lines += [f"    {one_line(tool.name, 60)}.{one_line(name, 60)}" for name in tool.internal]
    for resource in facts.resources:
        words = filter(None, (resource.uri, resource.name, resource.mime_type))
        lines.append(f"  resource {' · '.join(words)}")
    if isinstance(facts.telemetry, dict):
        said = ", ".join(f"{key} {value}" for key, value in list(facts.telemetry.items())[:10])
        lines.append(f"  telemetry {said}")
    if facts.omitted:
        lines.append(f"  and {facts.omitted} more, which are left out")
    return [one_line(line, 300) for line in lines]
