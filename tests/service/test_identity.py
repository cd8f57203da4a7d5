"""A service is known by its data directory's id, whatever its address is."""

from pathlib import Path

from httpx import Response

from hud_tui.client.client import HudClient
from hud_tui.service.service import Service
from hud_tui.settings import Settings
from tests.service.clients import answered, in_process
from tests.toy_engine import ToyEngine


async def test_a_data_directory_keeps_its_id_and_no_other_has_it(tmp_path: Path) -> None:
    async def id_of(data: Path) -> str:
        async with Service(data, ToyEngine()) as service, in_process(service) as client:
            assert await client.service_id() == service.id
            return await client.service_id()

    first, other = await id_of(tmp_path / "a"), await id_of(tmp_path / "b")
    assert first != other
    (tmp_path / "a").rename(tmp_path / "moved")
    assert await id_of(tmp_path / "moved") == first


async def test_what_older_versions_stored_is_of_the_embedded_service(client: HudClient) -> None:
    for service, is_here in (
        (await client.service_id(), True),
        ("http://127.0.0.1:40123", True),
        ("http://[::1]:40123", True),
        ("https://api.hud.ai", False),
        ("http://[::1", False),
        ("3f2a91bc-0000-4000-8000-000000000000", False),
    ):
        assert await client.is_of(service) == is_here, service


async def test_hud_is_known_by_its_url() -> None:
    hud = Settings("http://hud", "http://rl", "http://g", "http://t", "http://w", "sk-k")
    told = {"user_id": "u", "team_id": "t"}
    for reply in (Response(200, json=told), Response(404, json={"detail": "no such path"})):
        async with answered(lambda request, reply=reply: reply, hud) as client:
            assert await client.service_id() == "http://hud"
            assert await client.is_of("http://hud")
            assert not await client.is_of("http://127.0.0.1:1")
