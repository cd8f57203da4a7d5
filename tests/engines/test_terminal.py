"""`serve --engine tinker` as a process: it answers, and nothing of the SDK meets its terminal."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from hud_tui.service_file import ServiceReady
from tests.conftest import PATIENCE_S, bearer, fork
from tests.engines.skyrl import SkyRL
from tests.service.calls import chat, step

pytestmark = pytest.mark.skyrl


async def test_nothing_of_the_sdk_reaches_the_terminal(skyrl: SkyRL, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hud_tui.service", "--engine", "tinker", "--data-dir", str(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TINKER_BASE_URL": skyrl.url},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    ready = ServiceReady.model_validate_json(line)
    async with httpx.AsyncClient(
        base_url=ready.url, headers=bearer(ready.api_key), timeout=300.0
    ) as http:
        model = await fork(http)
        taken = await step(http, model)
        assert taken["sampler_path"].startswith("tinker://")
        reply = await chat(http, model["id"], return_token_ids=True, max_tokens=6)
        again = await chat(
            http,
            model["id"],
            prompt_token_ids=[*reply["choices"][0]["prompt_token_ids"], 65],
            continuation_from=1,
            return_token_ids=True,
            max_tokens=6,
        )
        given = reply["choices"][0]["prompt_token_ids"]
        assert again["choices"][0]["prompt_token_ids"][: len(given) + 1] == [*given, 65]
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert "TrainingClient initialized" in (tmp_path / "tinker" / "worker.log").read_text()
