"""Hostile files, for every reader that there is: of tasks, lock files, recordings, settings.

Each round makes a good file of one kind, spoils it by chance, and has the commands that read
such a file read it. Every command must end, with a result or a typed error: no traceback, no
byte that acts on a terminal, no key in what is said or written.
"""

import asyncio
import gzip
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.terminal import places
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.conftest import fork, pointed_at, serve_process
from tests.hostile import corpus
from tests.unit.legacy.locks import ALL as LOCKS

CPU_S = 10.0
"""Processor time that a command may take for one file."""
HANGS_S = 90.0
"""A command that has not ended by then never will; others may have the processor meanwhile."""
KEY = "sk-campaign-0123456789abcdef"
"""A key in the clear, which must be said and written nowhere."""
ACTS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
"""Bytes that act on a terminal: C0 but for tab and newline, DEL, and C1 in UTF-8."""
CODES = range(8)

PROGRAM = [sys.executable, "-P", str(Path(__file__).with_name("file_reader.py"))]
Spoil = Callable[[Random, bytes], bytes]

ROW = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
V4 = {
    "prompt": "Go.",
    "mcp_config": {"hud": {"url": "https://x.y/", "headers": {"Authorization": f"Bearer {KEY}"}}},
    "evaluate_tool": {"name": "evaluate"},
}
GYM = (
    "job: {name: mine}\nsystem_prompt: |\n  Go.\naction_mappings:\n  move:\n"
    "    _tool: move\n    _parser: {positional: [direction]}\n"
    "    direction: {from_arg: direction, transform: 'lambda x: x'}\n"
    "rubric: {weights: {task_completion: 1.0}}\n"
)
RECORDING = (
    '{"schema": "hud-tui-record/1", "kind": "session", "version": "1", "at": 1780000000.0}\n'
    '{"kind": "model", "at": 0.0, "data": {"id": "m", "model_name": "m"}}\n'
    '{"kind": "event", "at": 1.5, "data": {"type": "checkpoint", "checkpoint": {"id": "c",'
    ' "name": "step-1", "is_active": true, "step": 1, "metrics": {"kl": 0.1}}}}\n'
    '{"kind": "event", "at": 2.5, "data": {"type": "head", "checkpoint_id": "c"}}\n'
)
CONFIG = (
    '[alarms.zero_variance]\nwarn = 0.5\n[notify]\nbell = true\nlevel = "warn"\ncooldown_s = 60\n'
    '[export]\ndirectory = "here"\n[safety]\nread_only = false\n[keys]\n"app.help" = ["f2"]\n'
)
KEPT = json.dumps(
    {
        **{"version": 1, "theme": "dark", "view": "live", "model": "m", "at": 1.0, "format": 1},
        **{"notes": {"c": "good"}, "moves": [[None, "c", True, 1.0]], "models": {"m": "mine"}},
        **{"url": "http://127.0.0.1:9", "api_key": KEY, "telemetry_url": "http://127.0.0.1:9"},
        **{"pid": 1, "data_dir": "/nowhere", "verb": "fork", "service": "https://x", "tree": []},
    }
)


@dataclass(frozen=True)
class Slot:
    """A file that a user or this program has, and who reads it."""

    files: tuple[str, ...]
    """Names, seen from the round's directory; one of them is hostile."""
    good: tuple[bytes, ...]
    """What it may say, before it is spoilt."""
    commands: tuple[str, ...]
    """{file} is its path, {model} that of a model."""


def rows(*forms: dict[str, Any]) -> list[dict[str, Any]]:
    """A dozen tasks, in turns of these forms."""
    return [{**forms[n % len(forms)], "slug": f"s{n}"} for n in range(12)]


TASKS = json.dumps(rows(ROW, V4)).encode()
LINES = "\n".join(map(json.dumps, rows(ROW))).encode()
HOSTILE = [one.body for one in corpus()]
"""Each has an error of its own."""
SLOTS = {
    "tasks": Slot(
        ("tasks.json", "tasks.jsonl", "tasks", "tasks.parquet", "more/tasks.json", "Tasks.JSON"),
        (*[TASKS, LINES] * len(HOSTILE), *HOSTILE),
        (
            "--headless preflight {file} -m {model}",
            "--headless run {file} -m {model} --steps 1 -y --fail-on warning",
            "--headless convert {file} --name org/tasks --no-push -o out",
            "--headless preflight {folder} -m {model}",
        ),
    ),
    "lock": Slot(
        ("hud.lock.yaml",),
        tuple(lock.encode() for lock in LOCKS.values()),
        (
            "--headless preflight good.json -m {model}",
            "init {file} -o made.yaml",
            "--headless init --show {file}",
            "--headless convert good.json --name org/tasks --no-push -o out",
            "--headless preflight -m {model}",
        ),
    ),
    "gym": Slot(
        ("gym.yaml",), (GYM.encode(),), ("init --show {file}", "--headless init --show {file}")
    ),
    "recording": Slot(
        ("r.jsonl",), (RECORDING.encode(),), ("replay {file}", "replay {file} --speed 1")
    ),
    "config": Slot(
        ("config/config.toml",),
        (CONFIG.encode(),),
        (
            "config {folder}",
            "--headless fork none --name n -y --read-only",
            "--headless export none",
        ),
    ),
    "env": Slot(
        (".env", "home/.hud/.env"),
        (f"# mine\nHUD_API_KEY={KEY}\nexport HUD_WEB_URL='https://x.y'\n".encode(),),
        ("--headless preflight good.json -m {model}", "--headless status {model}"),
    ),
    "kept": Slot(
        tuple(
            f"state/{name}"
            for name in (
                *("look.json", "layout-0.json", "notes.json", "known.json", "accounts.salt"),
                *("protected.json", "commands.jsonl", "service.json"),
            )
        ),
        (KEPT.encode(),),
        ("kept {folder}", "--headless protect", "--headless log", "--headless stop", "log"),
    ),
}


# --- what is done to a good file ---


def same(random: Random, body: bytes) -> bytes:
    return body


def cut(random: Random, body: bytes) -> bytes:
    return body[: random.randrange(len(body) + 1)]


def flip(random: Random, body: bytes) -> bytes:
    changed = bytearray(body or b"x")
    for _ in range(random.randrange(1, 9)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def insert(random: Random, body: bytes) -> bytes:
    """Something within it, mostly within a text."""
    at = random.randrange(len(body) + 1)
    return body[:at] + random.choice(PIECES) + body[at:]


def in_a_name(random: Random, body: bytes) -> bytes:
    """Something in the place of a word."""
    words = list(re.finditer(rb"[A-Za-z_]{3,}", body))
    if not words:
        return body
    word = random.choice(words)
    return body[: word.start()] + random.choice(PIECES) + body[word.end() :]


def numbers(random: Random, body: bytes) -> bytes:
    found = list(re.finditer(rb"\d+(\.\d+)?", body))
    if not found:
        return body
    number = random.choice(found)
    return body[: number.start()] + random.choice(NUMBERS) + body[number.end() :]


def encoded(random: Random, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    codec = random.choice(["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "latin-1", "cp037"])
    return text.encode(codec, "replace")


def packed(random: Random, body: bytes) -> bytes:
    return random.choice([gzip.compress(body), b"PK\x03\x04" + body, b"PAR1" + body, b"\x7fELF"])


def nested(random: Random, body: bytes) -> bytes:
    depth = random.choice([60, 70, 1000, 100_000])
    return random.choice(
        [
            b"[" * depth + b"]" * depth,
            b'{"a":' * depth + b"1" + b"}" * depth,
            b"a = " + b"[" * depth + b"]" * depth,
            b"\n".join(b" " * level + b"a:" for level in range(min(depth, 500))),
            b'[{"env": "e", "id": "s", "args": {"x": ' + b"[" * depth + b"]" * depth + b"}}]",
            b"- " * depth,
            b"{a: " * depth,
        ]
    )


def many(random: Random, body: bytes) -> bytes:
    """Keys, rows, lines, merges, anchors or comments without end."""
    count = random.choice([1000, 30_000, 300_000])
    keys = b",".join(b'"k%d":%d' % (number, number) for number in range(count))
    return random.choice(
        [
            b'[{"env": "e", "id": "s", "args": {' + keys + b"}}]",
            b"{" + keys + b"}",
            body
            + b"\n"
            + (body.split(b"\n")[0] + b"\n") * min(count, 3_000_000 // (len(body) + 1)),
            b"\n".join(b"k%d: &a%d 1" % (number, number) for number in range(count)),
            b"a: &a {x: 1}\n" + b"".join(b"b%d:\n  <<: *a\n" % n for n in range(count // 10)),
            body + b"\n" + b"# comment\n" * count,
            body + b"\n" + b"\n" * count,
            b"".join(b"HUD_X%d=1\n" % number for number in range(count)),
            b"".join(b"[t%d]\nx = 1\n" % number for number in range(count // 10)),
            b"[" + b"0," * count + b"0]",
        ]
    )


def long(random: Random, body: bytes) -> bytes:
    """One line, text or comment that is large."""
    size = random.choice([10_000, 300_000, 2_000_000])
    filler = random.choice([b"x", b" ", b"\\u0000", "é".encode(), b'\\"', b"9"]) * (size // 2)
    return random.choice(
        [
            b"# " + filler + b"\n" + body,
            body + b" #" + filler,
            b'[{"env": "e", "id": "s", "args": {"x": "' + filler + b'"}}]',
            b'{"prompt": "' + filler + b'", "mcp_config": "' + filler + b'"}',
            filler,
            b"a: '" + filler + b"'",
            b'a = "' + filler + b'"',
            b"HUD_WEB_URL=" + filler,
        ]
    )


def bomb(random: Random, body: bytes) -> bytes:
    """Aliases of aliases, tags that name code, entities."""
    levels = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    return random.choice(
        [
            b"a0: &a0 [x,x,x]\n" + levels.encode(),
            b"a: !!python/object/apply:os.system [touch hacked]",
            b"a: &a [*a]",
            b"%YAML 9.9\n---\n" + body,
            body + b"\n---\n" + body,
            b"? [a]\n: 1\n",
            b"a: !!binary eA==\nb: 2025-99-99\n",
        ]
    )


def other(random: Random, body: bytes) -> bytes:
    """Some other value than the one that is expected."""
    return random.choice(
        [b"", b"null", b"[]", b"{}", b"3", b'"x"', b"true", b"\n", b"\xff", b"---"]
    )


PIECES = [
    *(b"\x1b[2J\x1b]0;owned\x07", b"\x00", b"\x9b31m", "\u202e\u2066".encode(), b"\r", b"\x7f"),
    *(b"\\ud800", b"\\u001b[31m", b"\\u009b", b"\\u0000", b"\xed\xa0\x80", b"\xc2\x9b"),
    *(b"NaN", b"1e999", b"{", b"]", b'"', b"'", b"\\", b",,", b":", b"\t", b"$", b"${", b"$$"),
    *(b"\n\n", b"<<: *x", b"&a *b", b"[red]", b"%s", b"\xef\xbb\xbf", b"\xff", "\u2028".encode()),
]
NUMBERS = [
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"-1e999", b"9" * 400, b"9" * 5000, b"0x10", b"1_0"),
    *(b"1.5", b"true", b'"1"', b"null", b".nan", b".inf", b"-0", b"1e-400", b"2025-99-99", b"nan"),
]
SPOILS: tuple[Spoil, ...] = (
    *(same, cut, flip, flip, insert, insert, in_a_name, in_a_name, numbers, numbers, encoded),
    *(packed, nested, many, long, bomb, other),
)
SPECIAL = ("fifo", "socket", "zero", "full", "tty", "loop", "nowhere", "directory", "unreadable")
"""What is no file at all; one round in eight."""


def put(random: Random, file: Path, body: bytes) -> str:
    """Put a file there, or something that is none; says which."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.name == "state" and random.random() < 0.7:
        file.touch(0o600)
    if random.randrange(8):
        file.write_bytes(body)
        return "file"
    with suppress(FileNotFoundError):
        file.unlink()
    kind = random.choice(SPECIAL)
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.relpath(file))
        case "zero" | "full" | "tty":
            file.symlink_to(f"/dev/{kind}")
        case "loop":
            file.symlink_to(file.name)
        case "nowhere":
            file.symlink_to("nowhere")
        case "directory":
            file.mkdir()
        case _:
            file.write_bytes(body)
            file.chmod(0)
    return kind


# --- who reads it ---


@dataclass
class Reader:
    """A process that runs commands, and another one where it has hung or ended."""

    environ: dict[str, str]
    process: asyncio.subprocess.Process | None = None
    slowest: tuple[float, str] = (0.0, "")
    commands: int = 0
    accepted: int = 0
    """Of the commands, those that ended with a result."""

    async def ask(self, argv: list[str], place: Path) -> dict[str, Any] | None:
        """What a command did; None where it hung. Its directories are in the round's."""
        if self.process is None:
            self.process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 28,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        environ = {**self.environ, **places(str(place)), "HOME": str(place / "home")}
        asked = {"argv": argv, "cwd": str(place), "environ": environ}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), HANGS_S)
            done: dict[str, Any] = json.loads(line)
        except (TimeoutError, ValueError):
            await self.end()
            return None
        self.slowest = max(self.slowest, (done["cpu_s"], " ".join(argv)))
        self.commands += 1
        self.accepted += done["code"] == 0
        return done

    async def end(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        self.process = None


def faults(done: dict[str, Any], argv: list[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with what a command did: its kind, and how it shows."""
    out, err = (done[name].encode("latin-1") for name in ("out", "err"))
    if done["code"] not in CODES or b"Traceback" in err or b'"internal"' in out:
        yield "tracebacks", err.decode("utf-8", "replace")[-1500:]
    if done["cpu_s"] > CPU_S:
        yield "hangs", f"{done['cpu_s']:.1f} s of processor time"
    if (acting := ACTS.search(out)) or (acting := ACTS.search(err)):
        yield "control bytes", repr(acting[0])
    if KEY.encode() in out + err:
        yield "keys", "said"
    if "--headless" in argv and not all(map(_is_document, out.splitlines())):
        yield "tracebacks", f"no document: {out[:200]!r}"


def _is_document(line: bytes) -> bool:
    try:
        return dict(json.loads(line)).keys() >= {"schema", "kind"}
    except ValueError:
        return False


def written_keys(place: Path, hostile: Path) -> Iterator[Path]:
    """Files that commands have written, with a key in them; what was put aside is the user's."""
    for file in (one for one in place.rglob("*") if one.suffix != ".unreadable"):
        if (
            file.is_file()
            and not file.is_symlink()
            and file != hostile
            and os.access(file, os.R_OK)
        ):
            body = file.read_bytes()
            if KEY.encode() in body:
                yield file.relative_to(place)


@dataclass
class Round:
    number: int
    random: Random
    place: Path
    model: str
    what: str = ""
    file: Path = field(default_factory=Path)

    def begin(self) -> tuple[str, ...]:
        """Make the file; the commands that read it."""
        name = self.random.choice(sorted(SLOTS))
        slot = SLOTS[name]
        body = self.random.choice(slot.good)
        spoils = self.random.choices(SPOILS, k=self.random.choice([1, 1, 1, 2, 3]))
        for spoil in spoils:
            body = spoil(self.random, body)
        os.chdir(self.place)
        (self.place / "good.json").write_text(json.dumps(rows(ROW)))
        self.file = self.place / self.random.choice(slot.files)
        kind = put(self.random, self.file, body)
        told = kind if kind != "file" else "+".join(spoil.__name__ for spoil in spoils)
        self.what = f"round {self.number}: {name} {self.file.name}, {told}"
        return slot.commands

    async def play(self, reader: Reader, report: Report) -> None:
        for command in self.begin():
            words = {
                "{file}": str(self.file),
                "{folder}": str(self.file.parent),
                "{model}": self.model,
            }
            argv = [words.get(word, word) for word in command.split()]
            done = await reader.ask(argv, self.place)
            if done is None:
                report.found("hangs", f"{self.what}: {command}")
                continue
            for kind, how in faults(done, argv):
                report.found(kind, f"{self.what}: {command}: {how}")
        for file in written_keys(self.place, self.file):
            report.found("keys", f"{self.what}: written to {file}")


@asynccontextmanager
async def reading(data: Path) -> AsyncIterator[tuple[Reader, str]]:
    """A reader beside a service with a model, by its name."""
    async with serve_process(data) as service, service.client() as http:
        model = await fork(http, "arith-rl")
        reader = Reader(pointed_at(service.ready.url, service.ready.api_key))
        try:
            yield reader, str(model["model_name"])
        finally:
            await reader.end()


@contextmanager
def _place(top: str) -> Iterator[Path]:
    place = Path(top, "round")
    place.mkdir()
    yield place
    shutil.rmtree(place)


async def play(plan: Plan, report: Report) -> None:
    here = Path.cwd()
    with TemporaryDirectory() as top:
        async with reading(Path(top, "service")) as (reader, model):
            try:
                for number in plan.rounds(report):
                    with _place(top) as place:
                        chance = Random(f"{plan.seed} {number}")
                        await Round(number, chance, place, model).play(reader, report)
            finally:
                os.chdir(here)
            print(
                f"{reader.accepted} of {reader.commands} commands ended with a result; the slowest"
                f" took {reader.slowest[0]:.1f} s of processor time: {reader.slowest[1]}",
                file=sys.stderr,
            )


CAMPAIGN = Campaign(
    "files", "files", count=1000, small=12, play=play,
    kinds=("tracebacks", "hangs", "control bytes", "keys"),
)  # fmt: skip
