"""Lock files: every version, what is inferred from them, and the one change that is made."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.legacy.lock_file import (
    Completion,
    PrimaryDataset,
    check_lock,
    find_lock,
    images_of,
    infer_servers,
    load_lock,
    read_lock,
    with_dataset,
    write_dataset,
)
from hud_tui.legacy.yaml import read_yaml, round_trip, writable
from hud_tui.rl.tasks.formats import read_row
from hud_tui.rl.tasks.task import Task
from tests.unit.legacy.locks import ALL, V1_0, V1_1, V1_2, V1_3
from tests.unit.legacy.test_yaml import TEXT, VALUES

NAMES = st.from_regex(r"[a-z0-9._-]{1,20}/[a-z0-9._-]{1,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "image", "pushed", "environment", "tools"),
    [
        (V1_0, "hudpython/hud-text-2048@sha256:3a67", True, "text_2048", "setup evaluate move"),
        (V1_1, "browser:0.1.0@sha256:5612", False, "browser", "playwright"),
        (V1_2, "someone/browser:0.1.0", True, "browser", "setup playwright"),
        (V1_3, "registry.example/org/cards:0.2", True, "cards", "evaluate deal"),
    ],
    ids=list(ALL),
)
def test_every_version(text: str, image: str, pushed: bool, environment: str, tools: str) -> None:
    lock = read_lock("hud.lock.yaml", text.encode())
    assert (lock.image, lock.pushed, lock.environment) == (image, pushed, environment)
    assert " ".join(tool.name for tool in lock.tools) == tools
    assert lock.notes == ()


def test_the_details_of_versions_and_a_note_on_a_newer_one() -> None:
    old = read_lock("f", V1_0.encode())
    assert (old.version, old.tools[2].input_schema) == ("1.0", None)
    assert old.variables == ("OPENAI_API_KEY", "ANCHOR_API_KEY")
    assert "not-to-be-shown" not in repr(old)
    schema = read_lock("f", V1_1.encode()).tools[0].input_schema
    assert schema is not None
    assert schema["required"] == ["action"]
    assert read_lock("f", V1_2.encode()).tools[0].internal == ("load",)
    new = read_lock("f", V1_3.encode())
    assert (new.version, new.tools[0].internal) == ("1.3", ("score",))
    assert new.scenarios == ("cards:blackjack", "cards:poker")
    assert new.dataset == PrimaryDataset("org/cards", 40, "2026-03-01T10:00:00")
    lock = read_lock("f", V1_3.replace("1.3", "'2.0'").encode())
    assert (lock.environment, lock.notes) == ("cards", ("version 2.0 is newer than this reader",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a lock file"),
        ("- 1", "expected a mapping"),
        ("a: 1", "not a lock file"),
        ("version: '1.0'\nimage: [x]", "line 2: field image: expected text, found a list"),
        ("version: '1.0'\ntools:\n- {}", "line 3: field tools[0]: expected a tool"),
        ("tools:\n- name: a\n  inputSchema: 3", "line 3: field tools[0].inputSchema"),
        ("tools: {}", "line 1: field tools: expected a list of tools"),
        ("image: a/b\npush: true", "line 2: field push: expected a mapping"),
        ("image: a\nprimary_dataset: {name: 3}", "line 2: field primary_dataset.name"),
        ("image: a\nprimary_dataset:\n  name: b\n  task_count: true", "line 4: field"),
        ("image: a\nscenarios: [1]", "line 2: field scenarios[0]: expected a name"),
        ("image: a\nenvironment: 3", ""),
    ],
)
def test_what_is_no_lock_file(text: str, message: str) -> None:
    if not message:
        assert read_lock("f", text.encode()).variables == ()
        return
    with pytest.raises(HudUsage) as error:
        read_lock("f", text.encode())
    assert message in str(error.value)
    assert error.value.hint


# MCP servers


def test_a_pushed_image_runs_on_hud_a_local_one_in_docker_and_keys_are_only_named() -> None:
    servers = infer_servers(read_lock("f", V1_0.encode()))
    assert servers is not None
    assert servers["hud"]["headers"] == {
        "Authorization": "Bearer ${HUD_API_KEY}",
        "Mcp-Image": "hudpython/hud-text-2048@sha256:3a67",
    }
    assert list(images_of(servers)) == ["hudpython/hud-text-2048@sha256:3a67"]

    lock = read_lock("f", V1_1.replace("required: []", "required: [TOKEN]").encode())
    servers = infer_servers(lock)
    assert servers == {
        "local": {
            "command": "docker",
            "args": ["run", "--rm", "-i", "-e", "TOKEN", "browser:0.1.0@sha256:5612"],
        }
    }
    assert list(images_of(servers)) == ["browser:0.1.0@sha256:5612"]
    assert infer_servers(read_lock("f", b"version: '1.0'")) is None


@pytest.mark.parametrize(
    "servers",
    [None, [], {"a": 1}, {"a": {"command": "docker", "args": ["run", 3]}}, {"a": {"headers": {}}}],
)
def test_servers_without_an_image(servers: object) -> None:
    assert list(images_of(servers)) == []


def test_rows_are_completed_from_the_file_beside_them_which_must_be_whole_only_then(
    tmp_path: Path,
) -> None:
    (tmp_path / "hud.lock.yaml").write_text(V1_0)
    complete = Completion(find_lock(tmp_path / "none", tmp_path))
    row = {"prompt": "p", "evaluate_tool": {"name": "evaluate"}}
    assert complete(row)["mcp_config"]["hud"]["headers"]["Mcp-Image"].startswith("hudpython/")
    untouched = [{"prompt": "p"}, {**row, "mcp_config": {"x": {}}}, {"env": "e", "id": "i"}, 3]
    assert [complete(row) for row in untouched] == untouched
    assert complete.used == 1
    assert Completion(None)(row) == row

    (tmp_path / "hud.lock.yaml").write_text("version: [")
    complete = Completion(tmp_path / "hud.lock.yaml")
    assert complete({"env": "e", "id": "i"}) == {"env": "e", "id": "i"}
    with pytest.raises(HudUsage, match=r"hud\.lock\.yaml line 1"):
        complete({"prompt": "p", "setup_tool": {"name": "setup"}})


# agreement


def v4(image: str, **calls: Any) -> Task:
    servers = {"hud": {"url": "https://mcp.hud.ai", "headers": {"mcp-image": image}}}
    calls.setdefault("evaluate_tool", {"name": "evaluate", "arguments": {"name": "score"}})
    return read_row({"prompt": "p", "mcp_config": servers, **calls}, "t row 1")


CARDS = "registry.example/org/cards:0.2"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (v4(CARDS), []),
        (v4("registry.example/org/cards:0.1"), ["run registry.example/org/cards:0.1"]),
        (v4("org/other:1", evaluate_tool={"name": "nothing"}), ["they run org/other:1"]),
        (v4(CARDS, setup_tool={"name": "shuffle"}), ["no tool shuffle"]),
        (v4(CARDS, evaluate_tool={"evaluate": {"win": {}}}), ["no tool evaluate.win"]),
        (read_row({"env": "cards", "id": "poker"}), []),
        (read_row({"env": "cards", "id": "bridge"}), ["no scenario bridge"]),
        (read_row({"env": "arith", "id": "add"}), []),
    ],
)
def test_agreement(task: Task, said: list[str]) -> None:
    findings = check_lock(read_lock("hud.lock.yaml", V1_3.encode()), [task])
    warnings = [finding for finding in findings if finding.level != "ok"]
    assert len(warnings) == len(said)
    assert all(text in finding.message for text, finding in zip(said, warnings, strict=True))
    assert all(finding.check == "lock" and finding.fix for finding in warnings)


def test_tasks_of_several_images_are_judged_by_their_own_and_hubs_are_known_too() -> None:
    others = v4("org/other:1", evaluate_tool={"name": "nothing"})
    [finding] = check_lock(read_lock("f", V1_3.encode()), [v4(CARDS), others])
    assert (finding.level, "agrees" in finding.message) == ("ok", True)
    text = "version: '1.3'\ntools: [{name: play}]\nhubTools: {evaluate: [won]}\n"
    lock = read_lock("f", text.encode())
    assert [tool.name for tool in lock.tools] == ["play", "evaluate"]
    right, wrong = (v4("a/b:1", evaluate_tool={"evaluate": {name: {}}}) for name in ("won", "lost"))
    [finding] = check_lock(lock, [right, wrong])
    assert finding.message == "the lock file has no tool evaluate.lost"


def test_a_lock_file_of_another_environment_says_nothing_and_a_newer_one_something() -> None:
    other = read_row({"env": "arith", "id": "add"})
    assert check_lock(read_lock("f", V1_3.encode()), [other]) == []
    newer = read_lock("f", V1_3.replace("1.3", "9").encode())
    [finding] = check_lock(newer, [other])
    assert (finding.level, "newer" in finding.message) == ("warning", True)


# the one change

ENTRY = {"name": "org/new", "task_count": 12, "updated_at": "2026-11-21T10:00:00+00:00"}


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_data_set_changes(version: str, newline: str) -> None:
    text = ALL[version].replace("\n", newline)
    changed = with_dataset("f", text, ENTRY)
    before, after = text.split(newline), changed.split(newline)
    kept = [line for line in before if line in after]
    lost = [line for line in before if line not in after]
    assert kept == [line for line in after if line in before]
    assert all(word in "".join(lost) for word in ("org/cards", "40")) or not lost
    assert read_lock("f", changed.encode()).dataset == PrimaryDataset(
        "org/new", 12, ENTRY["updated_at"]
    )
    assert with_dataset("f", changed, ENTRY) == changed


def test_comments_stay_in_the_block_and_around_it_and_within_a_key_are_refused() -> None:
    changed = with_dataset("f", V1_3 + "# last words\nnotes: mine  # kept\n", ENTRY)
    for comment in ("# chosen in spring", "# the good one", "# last words", "# kept"):
        assert comment in changed
    odd = V1_3.replace("  name: org/cards", "  nam\n\ne: org/cards")
    with pytest.raises(HudUsage, match=r"^f: unsupported comment or blank line within a key"):
        read_lock("f", odd.encode())
    with pytest.raises(HudUsage, match=r"^f: unsupported comment or blank line within a key"):
        with_dataset("f", odd, {"name": "a/b"})


@pytest.mark.parametrize(
    "text",
    [
        "image: a",
        "image: a\nprimary_dataset: org/old  # a bare name\n# end\n",
        "image: a\nprimary_dataset:\nz: 1\n",
        '{"image": "a", "primary_dataset": {"name": "old"}}',
        "---\nimage: a\nprimary_dataset: &x {name: b}\nz: *x\n...\n",
        "image: a\n...\n",
        "image: a\nprimary_dataset: {share: 9.931989868184955e-29}\nb: 6.621006819496579e+90",
        "image: a\n\n\nprimary_dataset: {name: b, more: 1}\n\n\nz: 1\n",
    ],
)
def test_unusual_shapes(text: str) -> None:
    old, new = (read_yaml("f", t.encode()).value for t in (text, with_dataset("f", text, ENTRY)))
    block = old.pop("primary_dataset", None)
    kept = block if isinstance(block, dict) else {}
    assert new.pop("primary_dataset") == {**kept, **ENTRY}
    assert new == old


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.dictionaries(TEXT, VALUES, max_size=5), VALUES, st.integers(0, 5), NAMES)
def test_everything_else_is_as_it_was(more: Any, block: Any, at: int, name: str) -> None:
    items = [*more.items()]
    items.insert(at, ("primary_dataset", block))
    root = {"version": "1.0", **dict(items)}
    out = StringIO()
    round_trip().dump(writable(root), out)
    entry = {"name": name, "task_count": 1, "updated_at": "now"}
    found = read_yaml("f", with_dataset("f", out.getvalue(), entry).encode()).value
    kept = root["primary_dataset"] if isinstance(root["primary_dataset"], dict) else {}
    assert found == {**root, "primary_dataset": {**kept, **entry}}


def test_the_file_is_replaced_whole_a_link_stays_one_and_what_is_none_is_not_changed(
    tmp_path: Path,
) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "hud.lock.yaml"
    real.write_bytes(V1_3.encode())
    real.chmod(0o640)
    link.symlink_to(real)
    write_dataset(link, "org/new", 3, "now", tmp_path / "out" / "new")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert load_lock(link).dataset == PrimaryDataset("org/new", 3, "now", "out/new")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    file = tmp_path / "hud.lock.yaml"
    file.write_text("a: 1\n")
    with pytest.raises(HudUsage, match="not a lock file"):
        write_dataset(file, "n", 1, "now", tmp_path)
    assert file.read_text() == "a: 1\n"
    with pytest.raises(HudUsage, match="a directory, not a file"):
        load_lock(tmp_path)


@pytest.mark.parametrize(
    ("image", "pushed", "name"),
    [
        ("local/cards:0.2", False, "cards"),
        ("local/cards@sha256:9f/0", False, "cards"),
        ("cards:0.2", False, "cards"),
        ("cards@sha256:3a67", False, "cards"),
        ("cards@sha256:3a/67", False, "cards"),
        ("org/cards@sha256:3a67", True, "cards"),
        ("org/cards:0.2@sha256:3a67", True, "cards"),
        ("registry.example:5000/org/cards:0.2", True, "cards"),
        ("localhost/cards:0.2", True, "cards"),
    ],
)
def test_whether_an_image_was_pushed_and_what_it_is_called(
    image: str, pushed: bool, name: str
) -> None:
    """`local/` is where ``hud build`` puts what nobody has pushed; a digest is no part of it."""
    lock = read_lock("f", f"version: '1.0'\nimage: {image}\n".encode())
    assert (lock.image, lock.pushed, lock.environment) == (image, pushed, name)
    servers = infer_servers(lock)
    assert servers is not None
    assert list(servers) == ["hud" if pushed else "local"]
    assert list(images_of(servers)) == [image]


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\r"])
def test_breaks_that_are_none_to_yaml_do_not_move_the_block(odd: str) -> None:
    """Python's own splitlines() counts more breaks than YAML, in which they are text."""
    text = (
        f"version: '1.0'\nimage: org/env:1\ntools:\n- a{odd}b\nprimary_dataset:\n  name: org/old\n"
    )
    if odd == "\r":
        text = text.replace("a\rb", "a\r- b")
    changed = with_dataset("f", text, {"name": "org/new"})
    assert changed == text.replace("org/old", "org/new")
