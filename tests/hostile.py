"""200 task files that must be refused, each with the error that it must get.

Every file is made from a seed, the same on every machine: good rows of a random form, one
of them spoiled. ``python -m tests.hostile DIR`` writes them there, to look at.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

SEEDS = 10
"""Files of each kind."""
Row = dict[str, Any]


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


@dataclass(frozen=True)
class Place:
    """Good rows, and which of them is to be spoiled."""

    random: Random
    suffix: str
    rows: list[Row]
    bad: int

    @property
    def where(self) -> str:
        unit = "line" if self.suffix == "jsonl" else "row"
        return f"tasks.{self.suffix} {unit} {self.bad + 1}"

    def file(self, texts: list[str] | None = None) -> bytes:
        """The rows as a file; `texts` are their JSON, where that is spoiled itself."""
        texts = texts or [json.dumps(row) for row in self.rows]
        if self.suffix == "jsonl":
            return "\n".join(texts).encode("utf-8", "surrogatepass")
        return ("[\n" + ",\n".join(texts) + "\n]").encode("utf-8", "surrogatepass")

    def with_row(self, row: object) -> bytes:
        """With the bad row replaced."""
        return self.with_text(json.dumps(row))

    def with_text(self, text: str) -> bytes:
        texts = [json.dumps(one) for one in self.rows]
        texts[self.bad] = text
        return self.file(texts)


Spoil = Callable[[Place], tuple[bytes, str, str, str]]
"""A place → body, where, field, message."""


def v6(random: Random) -> Row:
    return {"env": "arith", "id": "add", "args": {"a": random.randrange(99), "b": 1}}


def v5(random: Random) -> Row:
    args = {"a": random.randrange(99)}
    return {"env": {"name": "arith"}, "scenario": "arith:add", "args": args}


def v4(random: Random) -> Row:
    servers = {"hud": {"url": "https://mcp.hud.ai/v3/mcp"}}
    evaluate = {"name": "evaluate", "arguments": {"n": random.randrange(99)}}
    return {"prompt": "Do it.", "mcp_config": servers, "evaluate_tool": evaluate}


def v3(random: Random) -> Row:
    return {"prompt": "Do it.", "gym": "hud-browser", "evaluate": ["page", f"{random.random()} x"]}


def row_with(value: str) -> str:
    """The JSON of a v6 row with one arg, which is given as JSON."""
    return f'{{"env": "e", "id": "s", "args": {{"x": {value}}}}}'


FORMS = (v6, v5, v4, v3)


def corpus() -> Iterator[Hostile]:
    """All 200, in a fixed order."""
    for kind in KINDS:
        for seed in range(SEEDS):
            place = _place(Random(f"{kind.__name__} {seed}"), seed)
            body, where, field, message = kind(place)
            yield Hostile(f"tasks.{place.suffix}", body, where, field, message)


def _place(random: Random, seed: int) -> Place:
    form = random.choice(FORMS)
    rows = [form(random) for _ in range(random.randrange(2, 9))]
    return Place(random, "jsonl" if seed % 2 else "json", rows, random.randrange(len(rows)))


def nul_byte(place: Place) -> tuple[bytes, str, str, str]:
    body = place.file()
    at = place.random.randrange(8, len(body))
    line = body[:at].count(b"\n") + 1
    return body[:at] + b"\0" + body[at:], f"tasks.{place.suffix}", "", f"line {line}: NUL byte"


def other_encoding(place: Place) -> tuple[bytes, str, str, str]:
    codec = place.random.choice(["utf-16", "utf-32"])
    body = place.file().decode().encode(codec)
    return body, f"tasks.{place.suffix}", "", f"found {codec.upper()}"


def no_text(place: Place) -> tuple[bytes, str, str, str]:
    mark, kind = place.random.choice(
        [(b"PAR1", "Parquet"), (b"PK\x03\x04", "zip"), (b"\x1f\x8b", "gzip")]
    )
    return mark + place.random.randbytes(50), f"tasks.{place.suffix}", "", kind


def latin_1(place: Place) -> tuple[bytes, str, str, str]:
    body = place.with_row({**v6(place.random), "slug": "MARK"})
    line = body[: body.index(b"MARK")].count(b"\n") + 1
    byte = place.random.choice([b"\xe9", b"\xfc", b"\xff"])
    where = f"tasks.{place.suffix}"
    return body.replace(b"MARK", b"caf" + byte), where, "", f"line {line}: byte"


def no_number(place: Place) -> tuple[bytes, str, str, str]:
    name = place.random.choice(["NaN", "Infinity", "-Infinity"])
    text = row_with(name)
    return place.with_text(text), place.where, "", f"{name} is not JSON"


def overflow(place: Place) -> tuple[bytes, str, str, str]:
    number, said = place.random.choice(
        [("1e999", "too large"), ("-2e4000", "too large"), ("9" * 5000, "5000 digits")]
    )
    text = row_with(number)
    return place.with_text(text), place.where, "", said


def deep(place: Place) -> tuple[bytes, str, str, str]:
    depth = place.random.choice([65, 100, 900, 20_000])
    nest = "[" * depth + "]" * depth
    text = row_with(nest)
    return place.with_text(text), place.where, "", "nested more than 64 deep"


def broken(place: Place) -> tuple[bytes, str, str, str]:
    text = place.random.choice(
        ["{'env': 'e'}", '{"env" "e"}', '{"env": "e",}', '{"env": "e"', "{env: 1}", "tru"]
    )
    return place.with_text(text), place.where, "", "not JSON"


def control_character(place: Place) -> tuple[bytes, str, str, str]:
    character = chr(place.random.choice([1, 7, 8, 27, 31]))
    text = row_with(f'"{character}"')
    return place.with_text(text), place.where, "", "Invalid control character"


def no_row(place: Place) -> tuple[bytes, str, str, str]:
    value, kind = place.random.choice(
        [(7, "a number"), ("text", "text"), (None, "nothing"), (True, "true or false")]
    )
    return place.with_row(value), place.where, "", f"expected a task object, found {kind}"


def missing(place: Place) -> tuple[bytes, str, str, str]:
    row, field = place.random.choice(
        [
            ({"id": "s"}, "env"),
            ({"env": "e"}, "id"),
            ({"id": "s", "args": {}}, "env"),
            ({"prompt": "p"}, "mcp_config"),
        ]
    )
    return place.with_row(row), place.where, field, "expected"


def wrong_type(place: Place) -> tuple[bytes, str, str, str]:
    field, value, wanted = place.random.choice(
        [
            ("args", [1], "an object, found a list"),
            ("args", "{}", "an object, found text"),
            ("columns", 3, "an object, found a number"),
            ("slug", ["a"], "text, found a list"),
            ("env", 3, "the environment's name, found a number"),
            ("validation", {}, "a list, found an object"),
            ("runtime_config", "gpu", "an object, found text"),
            ("agent_config", True, "an object, found true or false"),
        ]
    )
    return place.with_row({**v6(place.random), field: value}), place.where, field, wanted


def of_v5(place: Place) -> tuple[bytes, str, str, str]:
    field, value, said = place.random.choice(
        [
            ("evaluate_tool", {"name": "x"}, "unexpected field"),
            ("mcp_config", {"a": {}}, "unexpected field"),
            ("env", {"include": []}, "the environment's name"),
            ("scenario", "arith:", "after env:"),
        ]
    )
    field_said = "env.name" if field == "env" else field
    return place.with_row({**v5(place.random), field: value}), place.where, field_said, said


def bad_call(place: Place) -> tuple[bytes, str, str, str]:
    value, at, said = place.random.choice(
        [
            (7, "", "found a number"),
            ([{}], "[0]", "an empty object"),
            ("evaluate(", "", "is not JSON"),
            ([{"name": "a"}, 3], "[1]", "found a number"),
            ({"name": ""}, ".name", "the tool's name"),
            ({"name": 3}, ".name", "the tool's name"),
            ({"name": "a", "arguments": [1]}, ".arguments", "an object, found a list"),
            ({"name": "a", "arguments": "{x"}, ".arguments", "is not JSON"),
            ({"click": "here"}, ".click", "the call's arguments"),
        ]
    )
    field = place.random.choice(["setup_tool", "evaluate_tool", "integration_test_tool"])
    return place.with_row({**v4(place.random), field: value}), place.where, field + at, said


def bad_servers(place: Place) -> tuple[bytes, str, str, str]:
    value, field, said = place.random.choice(
        [
            ("{not json", "mcp_config", "not JSON"),
            ("[1]", "mcp_config", "found a list"),
            ([1], "mcp_config", "found a list"),
            ({"hud": {}}, "mcp_config.hud", "found neither"),
            ({"hud": "https://x"}, "mcp_config.hud", "an object with url or command"),
            ({"hud": {"url": 7}}, "mcp_config.hud.url", "text, found a number"),
            ('{"hud": {"url": NaN}}', "mcp_config", "NaN is not JSON"),
        ]
    )
    return place.with_row({**v4(place.random), "mcp_config": value}), place.where, field, said


def bad_gym(place: Place) -> tuple[bytes, str, str, str]:
    field, value, at, said = place.random.choice(
        [
            ("gym", 3, "gym", "found a number"),
            ("gym", {"location": "moon"}, "gym.location", "local or remote"),
            ("gym", {"image_or_build_context": 3}, "gym.image_or_build_context", "text"),
            ("setup", 3, "setup", "a function"),
            ("evaluate", [{"args": []}], "evaluate[0]", "a function"),
            ("prompt", [], "prompt", "the instruction"),
            ("config", [], "config", "an object"),
        ]
    )
    return place.with_row({**v3(place.random), field: value}), place.where, at, said


def half_a_pair(place: Place) -> tuple[bytes, str, str, str]:
    half = place.random.choice(["\\ud800", "\\uDFFF", "x\\udc80y"])
    text = row_with(f'[{{"t": "{half}"}}]')
    return place.with_text(text), place.where, "args.x[0].t", "lone surrogate"


def nested_verifier(place: Place) -> tuple[bytes, str, str, str]:
    good = v6(place.random)
    verifier, field, said = place.random.choice(
        [
            (
                {**v6(place.random), "verifier": v6(place.random)},
                "verifier.verifier",
                "no verifier",
            ),
            ({"env": "e"}, "verifier.id", "the scenario's name"),
            ([], "verifier", "an object, found a list"),
        ]
    )
    return place.with_row({**good, "verifier": verifier}), place.where, field, said


def no_list(place: Place) -> tuple[bytes, str, str, str]:
    value, kind = place.random.choice([(3, "a number"), ("x", "text"), (None, "nothing")])
    body = json.dumps({"name": "set", "tasks": value}, indent=1).encode()
    return body, f"tasks.{place.suffix}", "tasks", f"expected a list of tasks, found {kind}"


def follows(place: Place) -> tuple[bytes, str, str, str]:
    rest = place.random.choice(["}", "]", "x", "7"])
    texts = [json.dumps(row) for row in place.rows]
    if place.suffix == "jsonl":
        texts[place.bad] += rest
        return place.file(texts), place.where, "", "extra data after the row"
    where = f"tasks.json line {len(texts) + 3} column 1"
    return place.file() + b"\n" + rest.encode(), where, "", "extra data after the list"


KINDS: tuple[Spoil, ...] = (
    nul_byte,
    other_encoding,
    no_text,
    latin_1,
    no_number,
    overflow,
    deep,
    broken,
    control_character,
    no_row,
    missing,
    wrong_type,
    of_v5,
    bad_call,
    bad_servers,
    bad_gym,
    half_a_pair,
    nested_verifier,
    no_list,
    follows,
)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, hostile in enumerate(corpus()):
        (folder / f"{number:03}-{hostile.name}").write_bytes(hostile.body)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
