"""Task files that must be refused, each with the error that it must get: good rows, one of them
spoiled. ``python -m tests.hostile DIR`` writes them there, to look at."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

V6 = {"env": "arith", "id": "add", "args": {"a": 12, "b": 1}}
V5 = {"env": {"name": "arith"}, "scenario": "arith:add", "args": {"a": 7}}
V4 = {
    "prompt": "Do it.",
    "mcp_config": {"hud": {"url": "https://mcp.hud.ai/v3/mcp"}},
    "evaluate_tool": {"name": "evaluate", "arguments": {"n": 4}},
}
V3 = {"prompt": "Do it.", "gym": "hud-browser", "evaluate": ["page", "0.5 x"]}
GOOD: list[dict[str, Any]] = [V6, V5, V4, V3]


@dataclass(frozen=True)
class Hostile:
    """A file, and what must be said of it."""

    name: str
    body: bytes
    where: str
    """How the problem's place begins."""
    field: str
    message: str
    """A part of what is said."""


def with_arg(value: str) -> str:
    """The JSON of a row with one arg, which is given as JSON."""
    return f'{{"env": "e", "id": "s", "args": {{"x": {value}}}}}'


TEXTS = {
    **{with_arg(name): f"{name} is not JSON" for name in ("NaN", "Infinity", "-Infinity")},
    **{with_arg(number): "too large" for number in ("1e999", "-2e4000")},
    with_arg("9" * 5000): "5000 digits",
    **{with_arg("[" * n + "]" * n): "nested more than 64 deep" for n in (65, 100, 900, 20_000)},
    **{with_arg(f'"{chr(n)}"'): "Invalid control character" for n in (1, 7, 8, 27, 31)},
    **dict.fromkeys(("{'env': 'e'}", '{"env" "e"}', '{"env": "e",}', "{env: 1}"), "not JSON"),
    **dict.fromkeys(('{"env": "e"', "tru"), "not JSON"),
    "7": "expected a task object, found a number",
    '"text"': "expected a task object, found text",
    "null": "expected a task object, found nothing",
    "true": "expected a task object, found true or false",
}
"""JSON in the place of a row, and what is said of it."""

CHANGED: list[tuple[dict[str, Any], str, Any, str, str]] = [
    (V6, "args", [1], "args", "an object, found a list"),
    (V6, "args", "{}", "args", "an object, found text"),
    (V6, "args", {"x": [{"t": "\ud800"}]}, "args.x[0].t", "lone surrogate"),
    (V6, "args", {"x": [{"t": "x\udc80y"}]}, "args.x[0].t", "lone surrogate"),
    (V6, "columns", 3, "columns", "an object, found a number"),
    (V6, "slug", ["a"], "slug", "text, found a list"),
    (V6, "env", 3, "env", "the environment's name, found a number"),
    (V6, "validation", {}, "validation", "a list, found an object"),
    (V6, "runtime_config", "gpu", "runtime_config", "an object, found text"),
    (V6, "agent_config", True, "agent_config", "an object, found true or false"),
    (V6, "verifier", {**V6, "verifier": V6}, "verifier.verifier", "no verifier"),
    (V6, "verifier", {"env": "e"}, "verifier.id", "the scenario's name"),
    (V6, "verifier", [], "verifier", "an object, found a list"),
    ({"id": "s"}, "args", {}, "env", "expected"),
    ({"env": "e"}, "args", {}, "id", "expected"),
    ({}, "prompt", "p", "mcp_config", "expected"),
    (V5, "evaluate_tool", {"name": "x"}, "evaluate_tool", "unexpected field"),
    (V5, "mcp_config", {"a": {}}, "mcp_config", "unexpected field"),
    (V5, "env", {"include": []}, "env.name", "the environment's name"),
    (V5, "scenario", "arith:", "scenario", "after env:"),
    (V4, "setup_tool", 7, "setup_tool", "found a number"),
    (V4, "evaluate_tool", [{}], "evaluate_tool[0]", "an empty object"),
    (V4, "setup_tool", "evaluate(", "setup_tool", "is not JSON"),
    (V4, "integration_test_tool", [{"name": "a"}, 3], "integration_test_tool[1]", "a number"),
    (V4, "evaluate_tool", {"name": ""}, "evaluate_tool.name", "the tool's name"),
    (V4, "setup_tool", {"name": 3}, "setup_tool.name", "the tool's name"),
    (V4, "evaluate_tool", {"name": "a", "arguments": [1]}, "evaluate_tool.arguments", "a list"),
    (V4, "setup_tool", {"name": "a", "arguments": "{x"}, "setup_tool.arguments", "is not JSON"),
    (V4, "evaluate_tool", {"click": "here"}, "evaluate_tool.click", "the call's arguments"),
    (V4, "mcp_config", "{not json", "mcp_config", "not JSON"),
    (V4, "mcp_config", "[1]", "mcp_config", "found a list"),
    (V4, "mcp_config", [1], "mcp_config", "found a list"),
    (V4, "mcp_config", {"hud": {}}, "mcp_config.hud", "found neither"),
    (V4, "mcp_config", {"hud": "https://x"}, "mcp_config.hud", "an object with url or command"),
    (V4, "mcp_config", {"hud": {"url": 7}}, "mcp_config.hud.url", "text, found a number"),
    (V4, "mcp_config", '{"hud": {"url": NaN}}', "mcp_config", "NaN is not JSON"),
    (V3, "gym", 3, "gym", "found a number"),
    (V3, "gym", {"location": "moon"}, "gym.location", "local or remote"),
    (V3, "gym", {"image_or_build_context": 3}, "gym.image_or_build_context", "text"),
    (V3, "setup", 3, "setup", "a function"),
    (V3, "evaluate", [{"args": []}], "evaluate[0]", "a function"),
    (V3, "prompt", [], "prompt", "the instruction"),
    (V3, "config", [], "config", "an object"),
]
"""A row, the field that is another, its value, the field that is named, and what is said of it."""


def corpus() -> Iterator[Hostile]:
    """All of them, as lines and as a list, in a fixed order."""
    rows = [(text, "", said) for text, said in TEXTS.items()]
    for row, name, value, field, said in CHANGED:
        rows.append((json.dumps(row | {name: value}), field, said))
    for number, (text, field, said) in enumerate(rows):
        texts = [json.dumps(row) for row in GOOD]
        texts.insert(number % 5, text)
        for suffix, unit in (("json", "row"), ("jsonl", "line")):
            where = f"tasks.{suffix} {unit} {number % 5 + 1}"
            yield Hostile(f"tasks.{suffix}", _file(suffix, texts), where, field, said)
    for suffix in ("json", "jsonl"):
        for body, field, said in _no_rows(_file(suffix, [json.dumps(row) for row in GOOD])):
            yield Hostile(f"tasks.{suffix}", body, f"tasks.{suffix}", field, said)
    for rest in ("}", "]", "x", "7"):
        lines, said = [json.dumps(row) for row in GOOD], "extra data after the "
        body = f"{_file('json', lines).decode()}\n{rest}".encode()
        yield Hostile("tasks.json", body, "tasks.json line 7 column 1", "", f"{said}list")
        body = _file("jsonl", [*lines, lines[0] + rest])
        yield Hostile("tasks.jsonl", body, "tasks.jsonl line 5", "", f"{said}row")


def _file(suffix: str, texts: list[str]) -> bytes:
    """Rows as a file; `texts` are their JSON."""
    text = "\n".join(texts) if suffix == "jsonl" else "[\n" + ",\n".join(texts) + "\n]"
    return text.encode()


def _no_rows(good: bytes) -> Iterator[tuple[bytes, str, str]]:
    """What is no text, or no list of rows, made of a good file; the field, and what is said."""
    for at in (8, len(good) // 2):
        line = good[:at].count(b"\n") + 1
        yield good[:at] + b"\0" + good[at:], "", f"line {line}: NUL byte"
    for codec in ("UTF-16", "UTF-32"):
        yield good.decode().encode(codec), "", f"found {codec}"
    for mark, kind in ((b"PAR1", "Parquet"), (b"PK\x03\x04", "zip"), (b"\x1f\x8b", "gzip")):
        yield mark + bytes(range(50, 100)), "", kind
    for byte in (b"\xe9", b"\xfc", b"\xff"):
        body = good.replace(b"Do it.", b"caf" + byte)
        line = good[: good.index(b"Do it.")].count(b"\n") + 1
        yield body, "", f"line {line}: byte"
    for value, kind in ((3, "a number"), ("x", "text"), (None, "nothing")):
        body = json.dumps({"name": "set", "tasks": value}, indent=1).encode()
        yield body, "tasks", f"expected a list of tasks, found {kind}"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, hostile in enumerate(corpus()):
        (folder / f"{number:03}-{hostile.name}").write_bytes(hostile.body)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
