"""Prime Intellect's API as the `prime` package 0.18 uses it: pods that exist here only.

Strict about what it is sent. `tests/live/prime_cli` has the official CLI judge it:
``python -m tests.prime_server`` serves it and prints its URL.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Any

import uvicorn
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.conftest import until

KEY = "pit_test"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EnvVar(Strict):
    key: str
    value: str


class PodBody(Strict):
    name: str | None
    cloudId: str
    gpuType: str
    socket: str | None
    gpuCount: int
    diskSize: int | None = None
    vcpus: int | None = None
    memory: int | None = None
    image: str | None = None
    dataCenterId: str | None = None
    maxPrice: float | None = None
    country: str | None = None
    security: str | None = None
    jupyterPassword: str | None = None
    autoRestart: bool = False
    customTemplateId: str | None = None
    envVars: list[EnvVar] = []


class Provider(Strict):
    type: str


class Team(Strict):
    teamId: str


class Create(Strict):
    pod: PodBody
    provider: Provider
    disks: list[str] | None = None
    team: Team | None = None
    sharedWithTeam: bool = False


def offer(
    gpu: str, count: int, price: float, provider: str = "datacrunch", **more: Any
) -> dict[str, Any]:
    some = {"minCount": None, "defaultCount": None, "maxCount": None, "pricePerUnit": None}
    size = {**some, "step": None, "defaultIncludedInPrice": True, "additionalInfo": None}
    return {
        "cloudId": f"{count}{gpu}-{provider}",
        "gpuType": gpu,
        "socket": "SXM5",
        "provider": provider,
        "dataCenter": "FIN-01",
        "country": "FI",
        "gpuCount": count,
        "gpuMemory": 80,
        "disk": {**size, "defaultCount": 200, "maxCount": 1000, "pricePerUnit": 0.001},
        "vcpu": {**size, "defaultCount": 32},
        "memory": {**size, "defaultCount": 128},
        "internetSpeed": None,
        "interconnect": None,
        "interconnectType": None,
        "provisioningTime": 5,
        "stockStatus": "Available",
        "security": "secure_cloud",
        "prices": {
            "onDemand": price,
            "communityPrice": None,
            "isVariable": False,
            "currency": "USD",
        },
        "images": ["ubuntu_22_cuda_12", "cuda_12_4_pytorch_2_4"],
        "isSpot": False,
        "prepaidTime": None,
        **more,
    }


Fault = Callable[[Request], Response | None]


@dataclass
class PrimeServer:
    """What is for rent, what is rented, and what goes wrong."""

    offers: list[dict[str, Any]] = field(default_factory=list)
    clusters: list[dict[str, Any]] = field(default_factory=list)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    ssh: str = "root@127.0.0.1 -p 22"
    """Of every pod that is ready."""
    polls: int = 2
    """Looks at a pod until it is ready."""
    failure: str | None = None
    """Why the installation of every pod fails."""
    created: list[Create] = field(default_factory=list)
    lost: int = 0
    """So many of the next answers to POST and DELETE are lost, after they were carried out."""
    dropped: int = 0
    """So many of the next of them are lost before anything was done."""
    keys: list[str] = field(default_factory=list)
    """Public ssh keys of the account."""
    statuses: dict[str, list[tuple[int, Any, dict[str, str]]]] = field(default_factory=dict)
    """Refusals that come next, by ``METHOD /path``."""
    url: str = ""
    clock: Callable[[], float] = time
    """Unix seconds."""
    charged: float | None = None
    """Dollars per hour of what is rented, in place of its offer's price."""

    bend: Callable[[dict[str, Any]], object] = lambda pod: None
    """Changes the answer to the request of a pod."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each ``METHOD /path`` was called."""

    def seen(self, call: str) -> int:
        return self.calls[call]

    def refuse(self, call: str, status: int, detail: Any = "no", **headers: str) -> None:
        self.statuses.setdefault(call, []).append((status, detail, headers))

    def app(self) -> "Gate":
        api = "/api/v1"
        routes = [
            Route(f"{api}/availability/gpus", self._gpus),
            Route(f"{api}/availability/multi-node", self._clusters),
            Route(f"{api}/ssh_keys/", self._keys),
            Route(f"{api}/pods", self._list),
            Route(f"{api}/pods", self._create, methods=["POST"]),
            Route(f"{api}/pods/status", self._status),
            Route(f"{api}/pods/history", self._history),
            Route(f"{api}/pods/{{id}}", self._get),
            Route(f"{api}/pods/{{id}}", self._delete, methods=["DELETE"]),
        ]
        return Gate(self, Starlette(routes=routes))

    async def _gpus(self, request: Request) -> Response:
        return _page(request, self.offers)

    async def _clusters(self, request: Request) -> Response:
        return _page(request, self.clusters)

    async def _keys(self, request: Request) -> Response:
        each = enumerate(self.keys)
        keys = [
            {"id": f"key{n}", "name": "k", "publicKey": key, "isPrimary": True} for n, key in each
        ]
        return _window(request, keys)

    async def _list(self, request: Request) -> Response:
        return _window(request, list(self.pods.values()))

    async def _history(self, request: Request) -> Response:
        return _window(request, self.history)

    async def _create(self, request: Request) -> Response:
        try:
            body = Create.model_validate_json(await request.body())
        except ValidationError as error:
            return _unprocessable(
                [{"loc": ["body", *e["loc"]], "msg": e["msg"]} for e in error.errors()]
            )
        pod, found = body.pod, None
        for one in self.offers:
            if (one["cloudId"], one["gpuType"]) == (pod.cloudId, pod.gpuType):
                found = one
        if found is None:
            return _unprocessable([{"loc": ["body", "pod", "cloudId"], "msg": "no such offer"}])
        price = found["prices"]["onDemand"]
        if pod.maxPrice is not None and price > pod.maxPrice:
            return _unprocessable([{"loc": ["body", "pod", "maxPrice"], "msg": "too dear"}])
        self.created.append(body)
        id_ = f"pod{len(self.created):04}"
        price = price if self.charged is None else self.charged
        self.pods[id_] = _pod(id_, body, price, found["isSpot"]) | {"createdAt": self._now()}
        answer = dict(self.pods[id_])
        self.bend(answer)
        return JSONResponse(answer)

    async def _status(self, request: Request) -> Response:
        asked = request.query_params.getlist("pod_ids")
        return JSONResponse(
            {"data": [self._state(self.pods[id_]) for id_ in asked if id_ in self.pods]}
        )

    def _state(self, pod: dict[str, Any]) -> dict[str, Any]:
        pod["looks"] = looks = pod.get("looks", 0) + 1
        if self.failure is not None:
            pod |= {"status": "ERROR", "installationFailure": self.failure}
        elif looks > self.polls:
            pod |= {"status": "ACTIVE", "installationProgress": 100, "ip": "127.0.0.1"}
            pod["sshConnection"] = self.ssh
        elif looks == self.polls:
            pod |= {"status": "ACTIVE", "installationProgress": 40, "sshConnection": [None]}
        keys = ("providerType", "status", "sshConnection", "priceHr", "ip", "installationFailure")
        keys = (*keys, "installationProgress", "primePortMapping")  # type: ignore[assignment]
        return {"podId": pod["id"], **{key: pod[key] for key in keys}}

    async def _get(self, request: Request) -> Response:
        pod = self.pods.get(request.path_params["id"])
        return JSONResponse(pod) if pod else JSONResponse({"detail": "Pod not found"}, 404)

    async def _delete(self, request: Request) -> Response:
        pod = self.pods.pop(request.path_params["id"], None)
        if pod is None:
            return JSONResponse({"detail": "Pod not found"}, 404)
        self.end(pod)
        return Response(status_code=204)

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat()

    def runs(self, name: str = "p", id_: str = "pod1", **more: Any) -> None:
        """Have a pod run that was not rented by a request; `more`: what is odd about it."""
        texts = dict.fromkeys(("providerType", "type", "createdAt", "gpuName", "socket"), "")
        rest = {"gpuCount": 1, "priceHr": 1.0, "userId": None, "teamId": None, "status": "ACTIVE"}
        self.pods[id_] = {"id": id_, "name": name, **texts, **rest, **more}

    def end(self, pod: dict[str, Any], billed: float = 0.42) -> None:
        keys = ("id", "name", "providerType", "type", "createdAt", "gpuName", "gpuCount", "socket")
        kept = {key: pod[key] for key in (*keys, "priceHr", "userId", "teamId")}
        more = {"terminatedAt": self._now(), "totalBilledPrice": billed, "provisionedBy": None}
        self.history.insert(0, {**kept, **more})


def _pod(id_: str, body: Create, price: float, spot: bool) -> dict[str, Any]:
    return {
        "id": id_,
        "name": body.pod.name,
        "gpuName": body.pod.gpuType,
        "gpuCount": body.pod.gpuCount,
        "status": "PROVISIONING",
        "createdAt": _now(),
        "providerType": body.provider.type,
        "installationStatus": "PENDING",
        "installationFailure": None,
        "installationProgress": None,
        "teamId": body.team.teamId if body.team else None,
        "resources": {},
        "attachedResources": None,
        "primePortMapping": None,
        "sshConnection": None,
        "ip": None,
        "priceHr": price,
        "stoppedPriceHr": 0.05,
        "environmentType": body.pod.image,
        "socket": body.pod.socket,
        "type": "HOSTED",
        "userId": "user1",
        "walletId": "wallet1",
        "updatedAt": _now(),
        "isSpot": spot,
        "autoRestart": body.pod.autoRestart,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat()


QUERY = {"page", "page_size", "gpu_type", "gpu_count", "regions", "disks"}
REGIONS = {
    **{"united_states": {"US"}, "canada": {"CA"}, "australia": {"AU"}, "africa": {"ZA"}},
    **{"eu_north": {"FI", "SE", "NO"}, "eu_west": {"FR", "GB", "NL"}, "eu_east": {"PL", "CZ"}},
    **{"asia_south": {"IN"}, "asia_northeast": {"JP", "KR"}, "middle_east": {"AE"}},
    "south_america": {"BR"},
}


def _page(request: Request, items: list[dict[str, Any]]) -> Response:
    asked = request.query_params
    if unknown := {*asked.keys()} - QUERY:
        return _unprocessable([{"loc": ["query", one], "msg": "unknown"} for one in unknown])
    regions = [word for text in asked.getlist("regions") for word in text.split(",")]
    if wrong := [region for region in regions if region not in REGIONS]:
        return _unprocessable([{"loc": ["query", "regions"], "msg": f"not a region: {wrong[0]}"}])
    if regions:
        items = [one for one in items if any(one["country"] in REGIONS[word] for word in regions)]
    size, page = int(asked.get("page_size", 100)), int(asked.get("page", 1))
    if not 1 <= size <= 100:
        return _unprocessable([{"loc": ["query", "page_size"], "msg": "1 to 100"}])
    if kind := asked.get("gpu_type"):
        items = [item for item in items if item["gpuType"] == kind]
    if count := asked.get("gpu_count"):
        items = [item for item in items if item["gpuCount"] == int(count)]
    shown = items[(page - 1) * size : page * size]
    return JSONResponse({"items": shown, "totalCount": len(items)})


def _window(request: Request, items: list[dict[str, Any]]) -> Response:
    offset = int(request.query_params.get("offset", 0))
    limit = int(request.query_params.get("limit", 100))
    shown = [
        {k: v for k, v in item.items() if k != "looks"} for item in items[offset : offset + limit]
    ]
    return JSONResponse(
        {"total_count": len(items), "offset": offset, "limit": limit, "data": shown}
    )


def _unprocessable(problems: list[dict[str, Any]]) -> Response:
    return JSONResponse({"detail": problems}, 422)


class Gate:
    """ASGI: wants the key, and has go wrong what is to go wrong."""

    def __init__(self, server: PrimeServer, app: Callable[..., Awaitable[None]]) -> None:
        self._server, self._app = server, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        server, headers = self._server, dict(scope["headers"])
        call = f"{scope['method']} {scope['path'].removeprefix('/api/v1')}"
        server.calls[call] += 1
        if headers.get(b"authorization") != f"Bearer {KEY}".encode():
            return await JSONResponse({"detail": "Invalid token"}, 401)(scope, receive, send)
        if queue := server.statuses.get(call):
            status, detail, more = queue.pop(0)
            answer = JSONResponse({"detail": detail}, status, more)
            return await answer(scope, receive, send)
        writes = scope["method"] in ("POST", "DELETE")
        if writes and server.dropped:
            server.dropped -= 1
            return await _broken(send)
        if writes and server.lost:
            server.lost -= 1

            async def nowhere(message: Any) -> None:
                return

            await self._app(scope, receive, nowhere)
            return await _broken(send)
        await self._app(scope, receive, send)


async def _broken(send: Send) -> None:
    """An answer that ends in the middle."""
    headers = [(b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{", "more_body": True})


@contextmanager
def serving(server: PrimeServer, port: int = 0) -> Iterator[PrimeServer]:
    """Serve it in a thread, on a free port, until the block ends."""
    config = uvicorn.Config(server.app(), port=port, log_level="critical", lifespan="off")
    one = uvicorn.Server(config)
    started = threading.Event()

    async def serve() -> None:
        going = asyncio.ensure_future(one.serve())
        await until(lambda: one.started)
        bound = one.servers[0].sockets[0].getsockname()[1]
        server.url = f"http://127.0.0.1:{bound}"
        started.set()
        await going

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait(30)
    try:
        yield server
    finally:
        one.should_exit = True
        thread.join(30)


def main() -> None:
    """Serve some offers until stdin ends."""
    given = [offer("H100_80GB", 2, 4.2), offer("A100_80GB", 1, 1.1), offer("RTX4090_24GB", 1, 0.3)]
    with serving(PrimeServer(given)) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
