"""Short ways to say what the service's tests say often."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import pytest
from httpx import AsyncClient, Response

from hud_tui.service.data_dir import MARK
from hud_tui.service.engines.base import Sampled, SampleRequest
from hud_tui.service.service import Service
from hud_tui.service.store import events
from tests.conftest import Served, blank, calling, ended, fork, submit, until
from tests.toy_engine import ToyEngine

Json = dict[str, Any]
Made = TypeVar("Made")
QUESTION = "3 + 4 = ?"


async def new_key(http: AsyncClient, name: str, role: str, **more: Any) -> str:
    """Have an admin make a key."""
    answer = await http.post("/v1/keys", json={"name": name, "role": role, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


async def ask(http: AsyncClient, model: str, **body: Any) -> Response:
    """POST a chat completion of QUESTION, or of other messages."""
    headers = body.pop("headers", None)
    asked = {"model": model, "messages": [{"role": "user", "content": QUESTION}], **body}
    return await http.post("/chat/completions", json=asked, headers=headers)


async def chat(http: AsyncClient, model: str, **body: Any) -> Json:
    answer = await ask(http, model, **body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def payloads(http: AsyncClient, model: str, rewards: Sequence[float]) -> list[Json]:
    """One sampled rollout a reward."""
    reply = await chat(http, model, n=len(rewards), return_token_ids=True, seed=1)
    return [
        {"samples": [sample_of(choice)], "reward": reward}
        for choice, reward in zip(reply["choices"], rewards, strict=True)
    ]


def sample_of(choice: Json) -> Json:
    """A choice's turn as training takes it."""
    return {
        "prompt_token_ids": choice["prompt_token_ids"],
        "output_token_ids": choice["token_ids"],
        "output_logprobs": [token["logprob"] for token in choice["logprobs"]["content"]],
    }


async def pass_(http: AsyncClient, model_id: str, inputs: Any, **body: Any) -> Response:
    path = f"/v1/models/{model_id}/train/forward-backward"
    return await http.post(path, json={"inputs": inputs, **body})


async def optim(http: AsyncClient, model_id: str, learning_rate: float = 0.1) -> Response:
    path = f"/v1/models/{model_id}/train/optim-step"
    return await http.post(path, json={"learning_rate": learning_rate})


async def step(http: AsyncClient, model: Json) -> Json:
    passed = await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    assert passed.status_code == 200, passed.text
    stepped = await optim(http, model["id"])
    assert stepped.status_code == 200, stepped.text
    return dict(stepped.json())


async def stepped(served: Served, count: int) -> list[Json]:
    """arith-rl after so many steps: its tree."""
    async with calling(served.service) as http:
        model = (await http.get("/v2/models/arith-rl")).json()
        for _ in range(count):
            await step(http, model)
        return await tree(http, model["id"])


async def steps(http: AsyncClient, model: Json, count: int) -> list[str]:
    return [(await step(http, model))["checkpoint_id"] for _ in range(count)]


_MADE: dict[str, tuple[TemporaryDirectory[str], Any]] = {}


async def made_once(name: str, folder: Path, make: Callable[[Path], Awaitable[Made]]) -> Made:
    """Have in a folder what `make` leaves in one, which it is called for once in this process."""
    if name not in _MADE:
        kept = TemporaryDirectory()
        _MADE[name] = kept, await make(Path(kept.name))
    kept, result = _MADE[name]
    copytree(kept.name, folder, dirs_exist_ok=True)
    return cast(Made, deepcopy(result))


async def trained_in(data: Path, count: int) -> tuple[Json, list[str]]:
    """A model in a data directory that is served without a limit, and some steps of it."""

    async def train(data: Path) -> tuple[Json, list[str]]:
        async with Service(blank(data), ToyEngine()) as service, calling(service) as http:
            model = await fork(http)
            return model, await steps(http, model, count)

    return await made_once(f"{count} steps", data, train)


async def tree(http: AsyncClient, model_id: str) -> list[Json]:
    return list((await http.get(f"/v2/models/{model_id}/checkpoints")).json())


def leftovers(data: Path) -> list[Path]:
    """Where starts have moved files that the database does not know, oldest first."""
    return sorted(path for path in data.glob("leftovers-*") if path.is_dir())


def saved_steps(data_dir: Path) -> list[Path]:
    """The directories that hold checkpoints' files."""
    return [path for path in (data_dir / "checkpoints").iterdir() if path.name != MARK]


async def set_head(http: AsyncClient, model_id: str, checkpoint_id: str) -> Response:
    return await http.put(f"/v2/models/{model_id}/head", json={"checkpoint_id": checkpoint_id})


async def fork_from(http: AsyncClient, model_id: str, name: str, **body: Any) -> Response:
    body |= {"source_model_id": model_id, "name": name}
    return await http.post("/v2/models/fork", json=body)


async def catalog(http: AsyncClient) -> list[Json]:
    return list((await http.get("/v2/models")).json()["items"])


async def told(service: Service, model_id: str, kind: str | None = None) -> list[Json]:
    """The events of a model in the log, or those of one type."""
    logged = await service.parts.store.read(events.after, model_id, 0, 10_000)
    return [json.loads(event.body) for event in logged if kind in (None, event.type)]


async def ran(http: AsyncClient, model_id: str, **parameters: Any) -> str:
    """Submit a run on the arith taskset; its id, once it has succeeded."""
    job_id = await submit(http, model_id, **parameters)
    assert (await ended(http, job_id))["status"] == "succeeded"
    return job_id


async def reach(http: AsyncClient, job_id: str, step: int = 1) -> None:
    """Wait until a run has taken so many steps."""

    async def reached() -> bool:
        status = await status_of(http, job_id)
        assert status["status"] in ("queued", "running", "succeeded"), status
        return bool((status["step"] or 0) >= step)

    await until(reached)


async def status_of(http: AsyncClient, job_id: str) -> Json:
    """The status of a run, by its own id or its model's."""
    answer = await http.get(f"/v1/training/jobs/{job_id}/raw-status")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def cancel(http: AsyncClient, job_id: str) -> Response:
    return await http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})


async def resume(http: AsyncClient, job_id: str) -> Response:
    return await http.post(f"/v1/training/jobs/{job_id}/resume")


async def traces_of(http: AsyncClient, job_id: str, **where: Any) -> list[Json]:
    params = {"limit": 10_000, **where}
    return list((await http.get(f"/v2/jobs/{job_id}/traces", params=params)).json()["items"])


async def conversation(http: AsyncClient, trace_id: str) -> list[Json]:
    return list((await http.get(f"/v2/trace/{trace_id}/events")).json()["events"])


async def report(http: AsyncClient, trace_id: str, *spans: Json) -> None:
    path = f"/telemetry/v3/api/trace/{trace_id}/telemetry-upload"
    answer = await http.post(path, json={"telemetry": list(spans)})
    assert answer.status_code == 200, answer.text


async def leave(http: AsyncClient, trace_id: str, reward: Any, **more: Any) -> None:
    """End a rollout, as a client does; completed unless something else is said."""
    body = {"status": "completed", "reward": reward, **more}
    answer = await http.post(f"/v2/trace/{trace_id}/exit", json=body)
    assert answer.status_code == 200, answer.text


def request_of(method: str, path: str, **headers: str) -> Json:
    """A request to this machine, as a server hands it to the app."""
    sent = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    about = {"type": "http", "method": method, "path": path, "query_string": b""}
    return {**about, "headers": [(b"host", b"127.0.0.1"), *sent]}


def detail(answer: Response) -> str:
    """What a refusal says, as one text."""
    return str(answer.json()["detail"])


def says(engine: Any, monkeypatch: pytest.MonkeyPatch, ids: Sequence[int], reason: Any) -> None:
    """From now on the policy answers with these tokens."""

    async def sample(handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        return [Sampled(list(ids), [-0.1] * len(ids), reason) for _ in requests]

    monkeypatch.setattr(engine, "sample", sample)


class Held:
    """Calls of one verb of an engine's, from now on: they begin, and wait until they may go on."""

    def __init__(
        self, engine: Any, verb: str, only: Callable[..., bool] = lambda *given: True
    ) -> None:
        """`only`: which calls are held; the others pass."""
        self.begun, self.go_on, self.calls, self.waiting = asyncio.Event(), asyncio.Event(), 0, 0
        self._call, self._only = getattr(engine, verb), only
        setattr(engine, verb, self)

    async def __call__(self, *given: Any) -> Any:
        if self._only(*given):
            self.calls += 1
            self.waiting += 1
            self.begun.set()
            await self.go_on.wait()
            self.waiting -= 1
        return await self._call(*given)


CLOCK = {"rollout_s", "tokens_per_s", "train_s", "step_s", "wait_share"}


def timeless(metrics: Mapping[str, float]) -> dict[str, float]:
    """A step's metrics without those of the clock."""
    return {
        key: value
        for key, value in metrics.items()
        if key not in CLOCK and not key.startswith("wait/")
    }
