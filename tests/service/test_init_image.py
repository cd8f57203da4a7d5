"""``hud-tui init IMAGE``: what an image has is asked in a container, which is removed."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hud_tui.cli.main import main
from hud_tui.legacy import image
from hud_tui.legacy.image import is_image
from tests.conftest import until
from tests.service import containers
from tests.service.headless import Command, runner

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Path) -> Install:
    """Put a program of this name on PATH, which has nothing else; its folder."""
    place = tmp_path / "engine"
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.delenv("HUD_API_KEY", raising=False)

    def put(name: str) -> Path:
        place.mkdir(exist_ok=True)
        kinds = ("shop", "hostile", "quiet", "flood", "long_line", "broken", "stays", "echo")
        kinds += ("official",)
        (place / "images").write_text(" ".join(f"org/{kind}:1" for kind in kinds))
        shutil.copy(containers.__file__, place / name)
        (place / name).write_text(f"#!{sys.executable} -S\n{(place / name).read_text()}")
        (place / name).chmod(0o755)
        return place

    return put


@pytest.fixture
def docker(install: Install) -> Path:
    return install("docker")


@pytest.fixture
def hud(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


def asked(place: Path) -> list[list[str]]:
    return [json.loads(line) for line in (place / "asked").read_text().splitlines()]


def left(place: Path) -> list[str]:
    """Containers that still run."""
    return [mark.name for mark in (place / "running").glob("*")]


async def test_tools_resources_and_a_file_to_start_from(
    hud: Command, docker: Path, here: Path
) -> None:
    done = await hud("init", "org/shop:1")
    assert (done.code, done.kind, done.data["file"]) == (0, "gym_config", "configs/shop.yaml")
    assert done.data["actions"] == ["move", "done"]
    found = done.data["image"]
    assert (found["engine"], found["server"], found["omitted"]) == ("docker", "text-2048 1.2", 0)
    assert [tool["name"] for tool in found["tools"]] == ["move", "setup"]
    assert found["tools"][1]["internal"] == ["board", "preset"]
    assert found["resources"][0]["uri"] == "telemetry://live"
    assert found["telemetry"]["status"] == "running"
    text = (here / "configs/shop.yaml").read_text()
    assert "- move(direction: 'up' | 'down', times?: any): Slide all tiles." in text
    assert "image: org/shop:1" in text
    [inspect, run] = asked(docker)
    assert inspect == ["image", "inspect", "org/shop:1"]
    assert run[:4] == ["run", "--rm", "-i", "--name"]
    assert run[5:] == ["org/shop:1"]
    assert left(docker) == []
    exists = await hud("init", "org/shop:1")
    assert "configs/shop.yaml exists" in exists.error["message"]
    assert len(asked(docker)) == 2, "nothing is started for a file that cannot be written"


def test_people_are_told_and_a_dry_run_writes_nothing(
    docker: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "org/shop:1"]) == 0
    out, err = capsys.readouterr()
    first, *lines = out.splitlines()
    assert first.startswith("org/shop:1 by docker: text-2048 1.2, 2 tools, 1 resource, ")
    assert lines == [
        "  move(direction: 'up' | 'down', times?: any): Slide all tiles.",
        "  setup(): Call internal functions.",
        "    setup.board",
        "    setup.preset",
        "  resource telemetry://live · Live · application/json",
        "  telemetry live_url http://127.0.0.1:8080/vnc, status running",
    ]
    assert "starting org/shop:1 by docker" in err
    assert not (here / "configs").exists()
    assert main(["init", "org/shop:1"]) == 0
    assert "wrote configs/shop.yaml: 2 actions" in capsys.readouterr().out


async def test_podman_does_as_well_and_docker_comes_first(hud: Command, install: Install) -> None:
    place = install("podman")
    assert (await hud("init", "org/shop:1", "--dry-run")).data["engine"] == "podman"
    install("docker")
    assert (await hud("init", "org/shop:1", "--dry-run")).data["engine"] == "docker"
    assert left(place) == []


async def test_without_either_one_line_says_what_to_do(
    hud: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(here))
    done = await hud("init", "org/shop:1")
    assert (done.code, done.error["type"]) == (2, "usage")
    said = "neither docker nor podman is here, so the image cannot be looked into (install one of"
    assert done.err.startswith(f"hud-tui: {said}")
    assert len(done.err.splitlines()) == 1


async def test_what_an_image_says_does_no_harm(
    hud: Command, docker: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = await hud("init", "org/hostile:1")
    assert (done.code, done.data["image"]["omitted"]) == (0, 308)
    assert len(done.data["image"]["tools"]) == 500 - 4 - 4 + 1 + 1
    assert await asyncio.to_thread(main, ["init", "org/hostile:1", "--dry-run"]) == 0
    out = capsys.readouterr().out + (here / "configs/hostile.yaml").read_text()
    assert not any(character in out for character in "\x1b\x07\u202e")
    assert "and 308 more, which are left out" in out


async def test_what_goes_wrong_is_said_in_time_and_nothing_is_left(
    hud: Command, docker: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "CLOSE_S", 0.2)
    for kind, message in (
        ("quiet", "its MCP server does not answer in time"),
        ("flood", "it said more than 16 MB"),
        ("long_line", "it said a line of more than 4 MB, or was killed"),
        ("broken", "it ended before it answered: Traceback · ModuleNotFoundError: no shop␛[2J"),
        ("echo", "no MCP server answers on its stdin"),
        ("stays", "its MCP server does not answer in time"),
    ):
        patience_s = 0.6 if "in time" in message else 60.0
        for name in ("START_S", "ANSWER_S"):
            monkeypatch.setattr(image, name, patience_s)
        done = await hud("init", f"org/{kind}:1")
        assert (done.code, done.error["type"]) == (1, "image_failed"), kind
        assert done.error["message"] == f"org/{kind}:1: {message}"
        assert done.error["hint"] == f"look at what it prints: docker run --rm -i org/{kind}:1"
        assert left(docker) == [], kind
    assert sum(words[0] == "rm" for words in asked(docker)) >= 3
    assert not (here / "configs").exists()


async def test_an_image_that_is_not_here_is_pulled(hud: Command, docker: Path) -> None:
    gone = await hud("init", "org/nowhere:1")
    why = "org/nowhere:1 cannot be pulled: Error: manifest unknown␛[2J"
    assert (gone.code, gone.error["message"]) == (1, why)
    done = await hud("init", "org/shop:far")
    assert done.code == 0
    assert "pulling org/shop:far, for up to 30 min" in done.err


async def test_variables_reach_the_container_and_no_command_line(
    hud: Command, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = await hud("init", "org/shop:1", "--env", "SHOP_TOKEN")
    assert absent.error["message"] == "--env SHOP_TOKEN: not set here"
    monkeypatch.setenv("SHOP_TOKEN", "s3cret")
    done = await hud("init", "org/shop:1", "--env", "SHOP_TOKEN", "--dry-run")
    assert done.data["server"] == "text-2048 s3cret"
    assert asked(docker)[-1][5:] == ["-e", "SHOP_TOKEN", "org/shop:1"]


async def test_an_interrupted_one_leaves_no_container(docker: Path, here: Path) -> None:
    words = ("from hud_tui.cli.main import script; script()", "init", "org/quiet:1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", *words),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    await until((docker / "waits").exists)
    assert len(left(docker)) == 1
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)  # people press it again
    assert await process.wait() == 130
    assert left(docker) == []


@pytest.mark.skipif("HUD_PYTHON" not in os.environ, reason="HUD_PYTHON has no MCP SDK")
async def test_a_server_by_the_mcp_sdk_is_asked(hud: Command, docker: Path) -> None:
    found = (await hud("init", "org/official:1", "--dry-run")).data
    assert (found["server"], found["omitted"]) == ("game 2.0", 0)
    move, setup = found["tools"]
    assert move["input_schema"]["properties"]["direction"]["enum"] == ["up", "down"]
    assert setup["internal"] == ["board"]
    assert [resource["uri"] for resource in found["resources"]] == ["file:///setup/functions"]
    assert left(docker) == []


def test_which_texts_are_images() -> None:
    for text in ("a:1", "org/a", "host.io:5000/org/a:1.2", "a@sha256:" + "0" * 64):
        assert is_image(text), text
    for text in ("a", "./a", "../a:1", "-v:1", "a b:1", "A:1", "--rm/x", "a:1\n", "/a/b:1", "a//b"):
        assert not is_image(text), text
