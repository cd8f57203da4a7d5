"""Which server, by the environment; what it offers, as bases and while it is away; the doctor."""

import asyncio
import json
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from hud_tui import patience
from hud_tui.cli import doctor
from hud_tui.cli.doctor import check_tinker
from hud_tui.client.probe import Host
from hud_tui.service.engines.base import EngineError, PolicyLost
from hud_tui.service.engines.tinker import engine as engine_module
from hud_tui.service.engines.tinker import link
from hud_tui.service.engines.tinker import server as server_module
from hud_tui.service.engines.tinker.engine import VOCABULARY, Offer, TinkerEngine, make_base, names
from hud_tui.service.engines.tinker.link import Presence
from hud_tui.service.engines.tinker.server import Calls
from hud_tui.settings import is_loopback_host
from hud_tui.tinker_options import CLOUD, BadOption, Options, read_options
from tests.conftest import until


def test_a_folder_goes_by_its_last_part_unless_two_have_it_and_its_config_is_read(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = {"vocab_size": 264, "hidden_size": 64, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    named = names({str(folder): None, "Qwen/Qwen3-8B": 32768})
    assert named == {"local/tiny": str(folder), "Qwen/Qwen3-8B": "Qwen/Qwen3-8B"}
    base = make_base("local/tiny", str(folder), None)
    assert (base.context, base.vocabulary) == (512, 264)
    assert base.defaults.learning_rate == pytest.approx(3e-3)
    assert names({"/a/m": None, "/b/m": None}) == {"local/m": "/a/m", "/b/m": "/b/m"}


def test_the_hub_s_cache_is_looked_into_and_a_config_that_is_not_whole_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    base = make_base("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", 32768)
    assert (base.context, base.vocabulary) == (32768, VOCABULARY)
    assert base.defaults.learning_rate == pytest.approx(1e-4)
    snapshot = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"text_config": {"vocab_size": 151936}}')
    assert make_base("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", 32768).vocabulary == 151_936
    (tmp_path / "config.json").write_text("[")
    assert make_base("local/x", str(tmp_path), None).context == 4096


@pytest.fixture
def nobody() -> str:
    """The URL of a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_an_offer_is_one_server_s(tmp_path: Path) -> None:
    Offer(tmp_path / "offer", "http://a").write({"Qwen/Qwen3-8B": 32768, "/m": None})
    assert Offer(tmp_path / "offer", "http://a").read() == {"Qwen/Qwen3-8B": 32768, "/m": None}
    assert Offer(tmp_path / "offer", "http://b").read() == {}
    (tmp_path / "offer").write_text("[1]")
    assert Offer(tmp_path / "offer", "http://a").read() == {}


async def test_a_server_that_never_answered_is_said(
    tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "START_S", 0.0)
    engine = TinkerEngine(Options(nobody, False), tmp_path / "tinker")
    with pytest.raises(EngineError, match="has not answered"):
        await engine.start()
    assert engine._link.pid is None


async def test_one_that_is_away_leaves_its_trees_readable(
    tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "START_S", 0.0)
    (tmp_path / "tinker").mkdir()
    Offer(tmp_path / "tinker" / "offer.json", nobody).write({"Qwen/Qwen3-8B": 32768})
    engine = TinkerEngine(Options(nobody, False), tmp_path / "tinker")
    await engine.start()
    assert [base.name for base in engine.bases()] == ["Qwen/Qwen3-8B"]
    assert "has not answered" in engine.about().queue
    await engine.stop()


LOCAL = {"TINKER_BASE_URL": "http://127.0.0.1:8765/"}


def test_a_server_of_this_machine_needs_no_key_and_others_have_their_own() -> None:
    options = read_options(LOCAL)
    assert (options.url, options.rank, options.ttl_s) == ("http://127.0.0.1:8765", 32, None)
    assert not options.keeps_samplers
    assert options.environment() == {
        "TINKER_API_KEY": "tml-local",
        "TINKER_TELEMETRY": "0",
        "TINKER_BASE_URL": "http://127.0.0.1:8765",
    }

    options = read_options({"TINKER_API_KEY": "tml-x"})
    assert options.url == CLOUD
    assert options.keeps_samplers
    assert options.environment() == {"TINKER_BASE_URL": CLOUD}

    options = read_options({"TINKER_BASE_URL": "https://trainer.example", "TINKER_API_KEY": "k"})
    assert not options.is_loopback
    assert not options.keeps_samplers
    assert "TINKER_TELEMETRY" not in options.environment()


@pytest.mark.parametrize(
    "host", ["notlocalhost", "evil-127.0.0.1", "127.0.0.1.evil.example", "evil.localhost.example"]
)
def test_a_host_with_a_loopback_name_in_it_is_not_this_machine(host: str) -> None:
    options = read_options({"TINKER_BASE_URL": f"https://{host}:1", "TINKER_API_KEY": "k"})
    assert not options.is_loopback
    assert not is_loopback_host(host)


def test_rank_and_lifetime_are_read() -> None:
    given = {**LOCAL, "HUD_TUI_TINKER_RANK": "8", "HUD_TUI_TINKER_TTL": "36h"}
    assert (read_options(given).rank, read_options(given).ttl_s) == (8, 36 * 3600)
    assert read_options({**LOCAL, "HUD_TUI_TINKER_TTL": "7d"}).ttl_s == 7 * 86_400


def test_prices_are_read_and_told_by_the_engine(tmp_path: Path) -> None:
    options = read_options({**LOCAL, "HUD_TUI_TINKER_PRICES": "0.13, .40,1"})
    assert options.prices == {"prompt": 0.13, "sampled": 0.4, "trained": 1.0}
    assert TinkerEngine(options, tmp_path).about().prices == options.prices


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "TINKER_API_KEY"),
        ({"TINKER_BASE_URL": "trainer:80"}, "TINKER_BASE_URL"),
        ({"TINKER_BASE_URL": "http://trainer:x"}, "not an http or https URL"),
        ({"TINKER_BASE_URL": "http://me:secret@trainer"}, "contains a password"),
        ({**LOCAL, "HUD_TUI_TINKER_RANK": "many"}, "HUD_TUI_TINKER_RANK"),
        ({**LOCAL, "HUD_TUI_TINKER_RANK": "0"}, "HUD_TUI_TINKER_RANK"),
        ({**LOCAL, "HUD_TUI_TINKER_TTL": "10m"}, "HUD_TUI_TINKER_TTL"),
        ({**LOCAL, "HUD_TUI_TINKER_TTL": "0h"}, "HUD_TUI_TINKER_TTL"),
        ({**LOCAL, "HUD_TUI_TINKER_PRICES": "0.1,0.2"}, "HUD_TUI_TINKER_PRICES"),
        ({**LOCAL, "HUD_TUI_TINKER_PRICES": "1,2,-3"}, "HUD_TUI_TINKER_PRICES"),
    ],
)
def test_what_cannot_be_used_is_named(
    given: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadOption, match=told):
        read_options(given)


URL = "https://trainer:8000"
AWAY = f"{URL} does not answer"


class Server:
    """One that answers or does not."""

    def __init__(self) -> None:
        self.up = True
        self.told: list[str | None] = []
        self.presence = Presence(URL, self.told.append)
        self.calls = Calls(URL, self.presence, lambda: None, lambda: None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setattr(link, "_answers", lambda url: server.up)
    for module in (link, server_module):
        monkeypatch.setattr(module, "PROBE_S", 0.005)
    monkeypatch.setattr(server_module, "AWAY_S", 0.05)
    yield server
    server.calls._threads.shutdown(wait=False)


async def test_it_is_said_in_the_middle_of_a_call(server: Server) -> None:
    """For most of an outage no call waits to be sent: one is under way, and then is repeated."""
    never_done = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(server.calls._until_done(never_done, 60))
    await until(lambda: server.presence._answered_at > 0)
    server.up = False
    with pytest.raises(PolicyLost, match="stopped answering"):
        await call
    assert set(server.told) == {AWAY}


async def test_a_halt_of_this_process_is_no_delay_of_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0.0, 3600.0)
    monkeypatch.setattr(patience, "monotonic", lambda: next(clock))
    done = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(server.calls._until_done(done, 600))
    await until(lambda: server.presence._answered_at > 0)
    done.set_result(None)
    await call


async def test_all_samplers_share_one_session(server: Server) -> None:
    made = count()
    shared = server_module.Server(URL, True, lambda state: None)
    shared._presence = shared.call._presence = server.presence
    shared._tinker = SimpleNamespace(ServiceClient=lambda: next(made))
    assert await asyncio.gather(*(shared.sampling_service() for _ in range(3))) == [0, 0, 0]
    shared.renew_sampling()
    assert await shared.sampling_service() == 1
    shared.call._threads.shutdown(wait=False)


async def test_a_call_that_is_repeated_says_it_before_it_has_looked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.up = False
    await server.presence.check()
    server.told.clear()  # as where the queue is cleared between two calls
    said: list[list[str | None]] = []

    def answers(url: str) -> bool:
        said.append(list(server.told))
        return True

    monkeypatch.setattr(link, "_answers", answers)
    await server.presence.wait()
    assert (said, server.told) == ([[AWAY]], [AWAY, None])


async def test_it_is_over_once_anything_is_answered(server: Server) -> None:
    server.up = False
    await server.presence.check()
    server.presence.observe()
    server.presence.observe()
    assert server.told == [AWAY, None]


async def test_patience_ends(server: Server) -> None:
    server.up = False
    with pytest.raises(EngineError, match="has not answered for 0 s: start the server again"):
        await server.presence.wait(0.02)
    assert server.told[-1] == AWAY


@pytest.fixture(autouse=True)
def nobody_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_engine_that_is_not_used_is_well_and_a_setting_that_cannot_be_is_named() -> None:
    finding = check_tinker({})
    assert finding.level == "ok"
    assert "not set up" in finding.message
    finding = check_tinker({"TINKER_BASE_URL": "http://me:secret@trainer"})
    assert finding.level == "warning"
    assert "TINKER_BASE_URL" in finding.message
    assert "secret" not in finding.message


@pytest.mark.parametrize(
    ("host", "level", "said"),
    [
        (Host(("tinker",), URL, False, detail="refused"), "warning", "does not answer: refused"),
        (Host(("tinker",), URL, True, 503, 0.1), "warning", "HTTP 503"),
        (Host(("tinker",), URL, True, 404, 0.1), "ok", "rank 32, checkpoints kept for 36 h"),
    ],
)
def test_what_the_server_s_answer_means(
    host: Host, level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    async def answer(name: str, url: str, local: bool) -> Host:
        asked.append((url, local))
        return host

    monkeypatch.setattr(doctor, "probe_url", answer)
    environ = {"TINKER_BASE_URL": URL, "TINKER_API_KEY": "tml-x", "HUD_TUI_TINKER_TTL": "36h"}
    finding = check_tinker(environ)
    assert asked == [(f"{URL}/api/v1/healthz", False)]
    assert finding.level == level
    assert said in finding.message
    assert bool(finding.fix) == (level != "ok")
