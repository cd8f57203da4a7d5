"""The URL that `serve` prints, by the address that it is bound to."""

import json
import sys
from asyncio import create_subprocess_exec, subprocess
from pathlib import Path

import httpx
import pytest

from hud_tui.cli.main import main
from hud_tui.service_file import ServiceReady
from tests.conftest import bearer


@pytest.mark.parametrize(
    ("host", "named"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", "localhost")]
)
async def test_it_can_be_called_and_warns_of_other_machines(
    host: str, named: str, tmp_path: Path
) -> None:
    flags = ("--host", host, "--data-dir", str(tmp_path), "--insecure")
    command = (sys.executable, "-m", "hud_tui", "serve", *flags)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    service = await create_subprocess_exec(*command, **pipes)
    try:
        ready = ServiceReady.model_validate_json(await service.stdout.readline())
        assert ready.url.startswith(f"http://{named}:")
        async with httpx.AsyncClient(headers=bearer(ready.api_key)) as client:
            assert (await client.get(f"{ready.url}/v1/models")).status_code == 200
    finally:
        service.terminate()
        _, errors = await service.communicate()
    assert (b"can be reached from other machines" in errors) is (host != "localhost")


FAR = ["0.0.0.0", "0", "", "::", "192.0.2.1", "::ffff:192.0.2.1", "box.example"]


@pytest.mark.parametrize("host", FAR)
def test_other_machines_are_not_let_in_by_http_unless_it_is_asked_for(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main(["--headless", "serve", "--host", host, "--data-dir", str(data)]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "insecure"
    for way in ("--cert", "--allowed-host", "ssh -L", "--insecure"):
        assert way in error["hint"]
    assert not data.exists()
