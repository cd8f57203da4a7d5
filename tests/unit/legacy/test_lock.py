"""Lock files: every version, and what is inferred from them."""

from pathlib import Path

import pytest

from hud_tui.errors import HudUsage
from hud_tui.legacy.lock_file import Completion, find_lock, infer_servers, read_lock
from tests.unit.legacy.locks import ALL, V1_0, V1_1, V1_2, V1_3


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


def test_the_details_of_versions() -> None:
    old = read_lock("f", V1_0.encode())
    assert old.tools[2].input_schema is None
    assert old.variables == ("OPENAI_API_KEY", "ANCHOR_API_KEY")
    assert "not-to-be-shown" not in repr(old)
    schema = read_lock("f", V1_1.encode()).tools[0].input_schema
    assert schema is not None
    assert schema["required"] == ["action"]
    assert read_lock("f", V1_3.encode()).scenarios == ("cards:blackjack", "cards:poker")
    newer = read_lock("f", V1_3.replace("1.3", "'2.0'").encode())
    assert newer.environment == "cards"


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
        ("image: a\nscenarios: {a: 1}\ntools:\n- name: b\n  description: 3", "line 5: field"),
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

    lock = read_lock("f", V1_1.replace("required: []", "required: [TOKEN]").encode())
    servers = infer_servers(lock)
    assert servers == {
        "local": {
            "command": "docker",
            "args": ["run", "--rm", "-i", "-e", "TOKEN", "browser:0.1.0@sha256:5612"],
        }
    }
    assert infer_servers(read_lock("f", b"version: '1.0'")) is None


def test_rows_are_completed_from_the_file_beside_them_which_must_be_whole_only_then(
    tmp_path: Path,
) -> None:
    (tmp_path / "hud.lock.yaml").write_text(V1_0)
    complete = Completion(find_lock(tmp_path / "none", tmp_path))
    row = {"prompt": "p", "evaluate_tool": {"name": "evaluate"}}
    assert complete(row)["mcp_config"]["hud"]["headers"]["Mcp-Image"].startswith("hudpython/")
    untouched = [{"prompt": "p"}, {**row, "mcp_config": {"x": {}}}, {"env": "e", "id": "i"}, 3]
    assert [complete(row) for row in untouched] == untouched
    assert Completion(None)(row) == row

    (tmp_path / "hud.lock.yaml").write_text("version: [")
    complete = Completion(tmp_path / "hud.lock.yaml")
    assert complete({"env": "e", "id": "i"}) == {"env": "e", "id": "i"}
    with pytest.raises(HudUsage, match=r"hud\.lock\.yaml line 1"):
        complete({"prompt": "p", "setup_tool": {"name": "setup"}})


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
