"""``hud-tui convert``: real Parquet files, and a Hub that may misbehave."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import pytest

from hud_tui.cli.main import main
from hud_tui.errors import HudPreflightFailed
from hud_tui.legacy import dataset
from tests.service.clients import documents
from tests.service.headless import Command, Result
from tests.unit.legacy.locks import V1_3


@dataclass
class Hub:
    """What it was asked, and how it answers."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    created: dict[str, Any] | None = None
    committed: bytes = b""
    existing: dict[str, Any] | None = None
    """The data set that is there already."""
    fail: dict[str, int] = field(default_factory=dict)
    """Part of a path → the status it is answered with."""
    silent: str = ""
    """Part of a path that is never answered."""
    closed: Event = field(default_factory=Event)


@contextmanager
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def log_message(self, *args: Any) -> None:
        """Keep the terminal quiet."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        hub = self.hub
        hub.asked.append((self.command, self.path))
        hub.tokens.add(self.headers.get("authorization"))
        if hub.silent and hub.silent in self.path:
            hub.closed.wait()
            return
        status = next((code for part, code in hub.fail.items() if part in self.path), None)
        if status is not None:
            self._answer(status, {"error": f"no, says the Hub: {self.headers['authorization']}"})
        else:
            self._answer(*self._reply(body))

    do_POST = do_GET

    def _reply(self, body: bytes) -> tuple[int, dict[str, Any]]:
        hub = self.hub
        if self.path.endswith("/repos/create"):
            hub.created = json.loads(body)
            return 200, {"url": f"{hub.url}/datasets/org/tasks", "name": "org/tasks"}
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            return 200, {
                "files": [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in files
                ]
            }
        if "/commit/" in self.path:
            hub.committed = body
            url = f"{hub.url}/datasets/org/tasks/commit/abc"
            return 200, {"commitUrl": url, "commitOid": "abc", "success": True}
        if self.command == "GET" and self.path.startswith("/api/datasets/"):
            return (200, hub.existing) if hub.existing else (404, {"error": "not found"})
        return 200, {}

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


pytestmark = pytest.mark.skipif(find_spec("datasets") is None, reason="needs hud-tui[hf]")
ROWS = [
    {
        "id": f"beat-{n}",
        "prompt": f"Beat the dealer in {n} hands",
        "setup_tool": [{"name": "deal", "arguments": {"hands": n}}, {"name": "deal"}],
        "evaluate_tool": {"name": "evaluate", "arguments": {"name": "score"}},
    }
    for n in range(12)
]
NOTE = "org/tasks"
Convert = Callable[..., Result]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    (tmp_path / "hud.lock.yaml").write_text(V1_3)
    write(tmp_path, ROWS)
    return tmp_path


@pytest.fixture
def the_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        yield state


def write(folder: Path, rows: Any) -> None:
    (folder / "tasks.json").write_text(json.dumps(rows))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Convert:
    def run(*argv: str) -> Result:
        capsys.readouterr()
        code = main(["--headless", "convert", *argv])
        out, err = capsys.readouterr()
        return Result(code, documents(out), err)

    return run


LOCAL = ("tasks.json", "--name", NOTE, "--no-push", "-o", "out")


def test_the_parquet_file_is_what_datasets_reads_and_the_lock_file_notes_it(
    place: Path, run: Convert
) -> None:
    result = run(*LOCAL)
    assert (result.code, result.kind, result.data["verdict"]) == (0, "dataset", "ok")
    assert result.data["file"] == "out/data/train-00000-of-00001.parquet"
    assert (result.data["name"], result.data["tasks"], result.data["pushed"]) == (NOTE, 12, None)
    from datasets import Dataset

    found = Dataset.from_parquet(result.data["file"], cache_dir=str(place / "cache"))
    assert found.column_names[:5] == ["id", "prompt", "mcp_config", "setup_tool", "evaluate_tool"]
    row = found[3]
    assert row["id"] == "beat-3"
    assert json.loads(row["mcp_config"])["hud"]["headers"]["Mcp-Image"].endswith("cards:0.2")
    assert [call["arguments"] for call in json.loads(row["setup_tool"])] == [{"hands": 3}, {}]
    assert json.loads(row["evaluate_tool"])["name"] == "evaluate"
    assert "load_dataset" in (place / "out" / "README.md").read_text()
    lock = (place / "hud.lock.yaml").read_text()
    assert "name: org/tasks  # the good one" in lock
    assert "# chosen in spring" in lock
    assert "task_count: 12" in lock
    assert "path: out" in lock


async def test_it_is_the_taskset_where_none_is_named(place: Path, bare: Command) -> None:
    hud = bare
    arith = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
    write(place, [{**arith, "args": {"a": n, "b": 2}, "slug": f"s{n}"} for n in range(12)])
    base = (await hud("models")).data["models"][0]["model_name"]
    await hud("fork", base, "--name", "m", "-y")
    assert (await hud("convert", *LOCAL)).code == 0
    result = await hud("preflight", "-m", "m")
    assert (result.code, result.data["format"], result.data["tasks"]) == (0, "v6", 12)
    assert result.data["source"] == "out"
    one = await hud("preflight", "out/data/train-00000-of-00001.parquet", "-m", "m")
    assert (one.data["tasks"], one.data["format"]) == (12, "v6")
    (place / "hud.lock.yaml").write_text("image: org/x:1")
    nothing = await hud("preflight", "-m", "m")
    assert (nothing.code, "no primary_dataset" in nothing.error["message"]) == (2, True)
    (place / "hud.lock.yaml").unlink()
    assert "give SOURCE" in (await hud("run", "-y")).error["message"]


def test_twice_replaces_it_and_nothing_else_is_replaced(place: Path, run: Convert) -> None:
    assert run(*LOCAL).code == 0
    write(place, ROWS[:11])
    again = run(*LOCAL)
    assert (again.code, again.data["tasks"]) == (0, 11)
    (place / "out" / "thesis.tex").write_text("years of work")
    refused = run(*LOCAL)
    assert (refused.code, "contains other files" in refused.error["message"]) == (2, True)
    (place / "file").write_text("")
    for folder in ("file", "file/below"):
        assert run(*LOCAL[:-1], folder).code == 2
    assert [path.name for path in place.iterdir() if path.name.startswith(".hud")] == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, {**ROWS[0]}], "used more than once: beat-0"),
        ([{**ROWS[0], "evaluate_tool": None}], "no grader in 1 task"),
        ([], "the taskset is empty"),
        ([*ROWS, {"env": "arith", "id": "add"}], "several forms"),
        ([{**ROWS[0], "prompt": "my hf_0123456789abcdef"}], "contain the value of HF_TOKEN"),
    ],
)
def test_a_useless_or_telling_set_is_not_written(
    rows: Any, message: str, place: Path, run: Convert
) -> None:
    write(place, rows)
    result = run(*LOCAL)
    assert (result.code, result.data["verdict"]) == (5, "failure")
    assert message in json.dumps(result.data["findings"])
    assert "hf_0123456789abcdef" not in json.dumps(result.documents) + result.err
    assert not (place / "out").exists()
    assert (place / "hud.lock.yaml").read_text() == V1_3


def test_what_cannot_be(place: Path, run: Convert) -> None:
    (place / "t.parquet").write_bytes(b"PAR1 and nothing more PAR1")
    for words, message in (
        ("nothing.json --name a/b --no-push", "nothing.json"),
        ("arith --name a/b --no-push", "no such file"),
        ("t.parquet --name a/b --no-push", "not a Parquet file"),
        ("tasks.json --name a/b/c --no-push", "not a data set's name"),
        ("tasks.json --name ../b --no-push", "not a data set's name"),
        ("tasks.json --name b -y", "needs its owner"),
        ("tasks.json --name a/b", "needs confirmation"),
        ("tasks.json", "--name"),
    ):
        result = run(*words.split())
        assert (result.code, result.kind) == (2, "error"), words
        assert message in result.error["message"]
    assert "not a data set's name" in run("tasks.json", "--name", "a b").error["message"]
    write(place, [{"prompt": "p", "evaluate_tool": 3}, {"prompt": ""}, 7])
    result = run(*LOCAL)
    assert result.code == 2
    places = [problem["where"] for problem in result.error["problems"]]
    assert list(dict.fromkeys(places)) == [f"tasks.json row {number}" for number in (1, 2, 3)]


def test_a_parquet_file_that_swells(
    place: Path, monkeypatch: pytest.MonkeyPatch, run: Convert
) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    monkeypatch.setattr(dataset, "MAX_MEMORY", 2**20)
    table = pyarrow.table({"env": ["x" * 2**16] * 20, "id": ["i"] * 20})
    write_table(table, place / "t.parquet", use_dictionary=False, compression="zstd")
    assert (place / "t.parquet").stat().st_size < 2**16
    result = run("t.parquet", *LOCAL[1:])
    assert (result.code, "larger than it looks" in result.error["message"]) == (2, True)
    rows = pyarrow.table({"id": ["i"] * 200_001})
    write_table(rows, place / "t.parquet")
    assert "more than 200000 rows" in run("t.parquet", *LOCAL[1:]).error["message"]


# the Hub

PUSH = ("tasks.json", "--name", NOTE, "-o", "out", "-y")


def test_it_is_pushed_once(the_hub: Hub, place: Path, run: Convert) -> None:
    result = run(*PUSH, "--private")
    assert (result.code, result.data["pushed"]) == (0, f"{the_hub.url}/datasets/org/tasks")
    assert the_hub.created is not None
    assert "private" in json.dumps(the_hub.created)  # a flag or, since 2.0, a visibility
    lines = [json.loads(line) for line in the_hub.committed.splitlines()]
    sent = {line["value"]["path"]: line["value"] for line in lines if line["key"] == "file"}
    assert sorted(sent) == ["README.md", "data/train-00000-of-00001.parquet"]
    body = base64.b64decode(sent["data/train-00000-of-00001.parquet"]["content"])
    assert body == (place / result.data["file"]).read_bytes()
    assert "Bearer hf_0123456789abcdef" in the_hub.tokens
    commits = [path for _, path in the_hub.asked if "/commit/" in path]
    assert commits == ["/api/datasets/org/tasks/commit/main"]


def test_what_was_to_be_private_is_not_pushed_where_all_can_read(
    the_hub: Hub, run: Convert
) -> None:
    the_hub.existing = {"id": "org/tasks", "private": False}
    result = run(*PUSH, "--private")
    assert (result.code, "is public" in result.error["message"]) == (2, True)
    assert the_hub.committed == b""
    assert run(*PUSH).code == 0
    assert the_hub.created is None


@pytest.mark.parametrize(
    ("part", "status", "code", "kind"),
    [
        ("/repos/create", 401, 4, "unauthorized"),
        ("/repos/create", 403, 4, "unauthorized"),
        ("/preupload/", 400, 1, "refused"),
        ("/commit/", 409, 1, "conflict"),
        ("/commit/", 501, 7, "unclear"),  # it may have been pushed; others are tried again
    ],
)
def test_the_hub_says_no(
    the_hub: Hub, place: Path, run: Convert, part: str, status: int, code: int, kind: str
) -> None:
    the_hub.fail = {part: status}
    result = run(*PUSH)
    assert (result.code, result.error["type"], result.error["status"]) == (code, kind, status)
    assert "hf_0123456789abcdef" not in json.dumps(result.documents) + result.err
    assert (place / "out" / "README.md").exists()
    assert (place / "hud.lock.yaml").read_text() == V1_3


def test_no_answer(the_hub: Hub, monkeypatch: pytest.MonkeyPatch, run: Convert) -> None:
    monkeypatch.setattr(dataset, "PUSH_S", 1.0)
    the_hub.silent = "/repos/create"
    result = run(*PUSH)
    assert (result.code, result.error["outcome"]) == (7, "unknown")
    assert "has not answered" in result.error["message"]
    assert "check the Hub" in result.error["hint"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run(*PUSH).code == 3, "nothing listens"


@pytest.mark.parametrize("kept", ["", "hf_kept"])
def test_without_a_token_nothing_is_asked_or_written(
    kept: str, place: Path, the_hub: Hub, monkeypatch: pytest.MonkeyPatch, run: Convert
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: kept or None)
    result = run(*PUSH)
    assert result.code == (0 if kept else 4)
    assert (place / "out").exists() == bool(the_hub.asked) == bool(kept)
    if not kept:
        assert result.error["type"] == "no_key"
        assert "hf auth login" in result.error["hint"]


def test_people_are_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *LOCAL]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote out/data/train-00000-of-00001.parquet: 12 tasks; "
        "id, prompt, mcp_config, setup_tool, evaluate_tool, metadata",
        "noted as primary_dataset in hud.lock.yaml",
    ]
    write(place, [])
    assert main(["convert", *LOCAL]) == 5
    assert capsys.readouterr().out == "nothing was written\n"


def test_a_key_in_the_clear_is_written_to_no_file_here_either(place: Path, run: Convert) -> None:
    key = "sk-hud-0123456789abcdef"
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    rows[3]["mcp_config"] = {"hud": {"url": "https://x.y", "headers": {"Authorization": key}}}
    write(place, rows)
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    result = run(*LOCAL)
    assert (result.code, result.data["verdict"]) == (HudPreflightFailed.exit_code, "failure")
    assert key not in json.dumps(result.data) + result.err
    assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before
    rows[3]["mcp_config"]["hud"]["headers"]["Authorization"] = "Bearer $HUD_API_KEY"
    write(place, rows)
    assert run(*LOCAL).code == 0
