"""Prime Intellect's API: offers, renting and terminating pods.

Reads are retried; a pod is requested once, and a lost answer is an unknown outcome.

Source: the `prime` package 0.18 (its CLI and client); the same paths, bodies and settings.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from hud_tui import __version__
from hud_tui.client.transport import read_retry_after, retry_delay
from hud_tui.errors import (
    HudError,
    HudMalformed,
    HudNoKey,
    HudRefused,
    HudUnclear,
    HudUnreachable,
    HudUsage,
    refused,
)
from hud_tui.patience import retried
from hud_tui.remote.clock import hear
from hud_tui.rl.text import counted, one_line
from hud_tui.settings import every_variable, is_loopback
from hud_tui.storage import read_object
from hud_tui.wire import Body, first_misfit

BASE = "https://api.primeintellect.ai"
SSH_KEY = "~/.ssh/id_rsa"
API = "/api/v1"
PAGE = 100
MOST_PAGES = 100
MOST_BYTES = 32_000_000
"""Maximum size of an answer, bytes."""
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
HINTS = {
    401: "check PRIME_API_KEY, or run prime login",
    402: "check your balance: https://app.primeintellect.ai/dashboard/billing",
    404: "hud-tui pods list shows what there is",
    422: "another offer, disk or image: hud-tui pods",
    429: "try again in a minute",
}


@dataclass(frozen=True)
class PrimeSettings:
    """As the ``prime`` CLI reads them."""

    url: str
    """With the API's path, without a trailing slash."""
    key: str = field(repr=False)
    team: str | None = None
    ssh_key: str = SSH_KEY
    shares: bool = False
    """Whether the team's members may use what is rented."""


def read_prime(environ: Mapping[str, str]) -> PrimeSettings:
    """Settings from the environment, else from ``~/.prime/config.json``.

    Raises:
        HudNoKey: There is no key.
        HudUsage: An address or a key that cannot be used.
    """
    stored = read_object(Path(expanduser("~/.prime/config.json")))

    def setting(field: str, *variables: str) -> str:
        for value in (*map(environ.get, variables), stored.get(field)):
            if text := str(value or "").strip():
                return text
        return ""

    key = setting("api_key", "PRIME_API_KEY")
    if not key:
        raise HudNoKey("no key for Prime Intellect", "set PRIME_API_KEY, or run prime login")
    if not (key.isascii() and key.isprintable()):
        raise HudUsage("PRIME_API_KEY has invalid characters", "copy the key again")
    return PrimeSettings(
        _api_url(setting("base_url", "PRIME_API_BASE_URL", "PRIME_BASE_URL") or BASE),
        key,
        team=setting("team_id", "PRIME_TEAM_ID") or None,
        ssh_key=setting("ssh_key_path", "PRIME_SSH_KEY_PATH") or SSH_KEY,
        shares=setting("share_resources_with_team").lower() == "true",
    )


def _api_url(base: str) -> str:
    """URL of the API; `base` is with or without its path. Raises HudUsage: it is not safe."""
    url = base.rstrip("/").removesuffix(API)
    with suppress(ValueError):  # brackets that hold no address
        scheme = urlsplit(url).scheme
        if scheme == "https" or (scheme == "http" and is_loopback(url)):
            return url + API
    raise HudUsage("PRIME_API_BASE_URL is not an https URL", f"e.g. {BASE}")


class Read(Body):
    """An answer of the API; unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", allow_inf_nan=False
    )


MOST_DOLLARS = 1e6
"""An hour of a machine costs no more: larger numbers are errors."""
Amount = Annotated[float, Field(ge=0, le=1e9)]
Price = Annotated[float, Field(ge=0, le=MOST_DOLLARS)]


class Size(Read):
    """How much of something is included in an offer."""

    min_count: Amount | None = None
    default_count: Amount | None = None
    max_count: Amount | None = None
    price_per_unit: Price | None = None
    step: Amount | None = None
    default_included_in_price: bool | None = None

    def extra(self, count: int | None = None) -> float:
        """Dollars per hour of so much beside the offer's price; None: of the usual amount."""
        usual = self.default_count or 0.0
        included = 0.0 if self.default_included_in_price is False else usual
        return max(0.0, (count or usual) - included) * (self.price_per_unit or 0.0)


class Prices(Read):
    on_demand: Price | None = None
    community_price: Price | None = None
    is_variable: bool | None = None
    currency: Literal["USD"] | None = None


class Offer(Read):
    """A machine that can be rented."""

    cloud_id: str
    gpu_type: str
    """E.g. ``H100_80GB``."""
    gpu_count: Annotated[int, Field(gt=0)]
    socket: str | None = None
    provider: str | None = None
    data_center: str | None = None
    country: str | None = None
    gpu_memory: int = 0
    """GB of one GPU."""
    disk: Size = Size()
    vcpu: Size = Size()
    memory: Size = Size()
    stock_status: str = ""
    security: str | None = None
    prices: Prices = Prices()
    images: list[str] | None = None
    is_spot: bool | None = None
    prepaid_time: Annotated[int, Field(ge=0, le=10**6)] | None = None
    """Hours that are billed, also if it runs for fewer."""

    def price(self, disk: int | None = None) -> float | None:
        """Dollars per hour, with a disk of this size in GB; None if unknown, as where it is 0."""
        base = self.prices.community_price
        if base is None:
            base = self.prices.on_demand
        if not base:
            return None
        return base + self.disk.extra(disk) + self.vcpu.extra() + self.memory.extra()

    @property
    def label(self) -> str:
        """E.g. ``2×H100_80GB``."""
        return f"{self.gpu_count}×{one_line(self.gpu_type, 30)}"

    def is_same(self, other: "Offer") -> bool:
        """Whether it is the same offer, at any price."""
        return all(getattr(self, name) == getattr(other, name) for name in IDENTITY)


IDENTITY = (
    *("cloud_id", "gpu_type", "gpu_count", "socket", "provider", "data_center"),
    *("is_spot", "security"),
)
"""Fields that identify an offer."""


@dataclass(frozen=True)
class Offers:
    offers: tuple[Offer, ...]
    """Cheapest first."""
    unread: tuple[str, ...] = ()
    """Why others could not be read: the field, and what is wrong with it."""

    @property
    def warning(self) -> str:
        """What was left out, e.g. ``1 offer could not be read: gpuCount: …``; else empty."""
        if not self.unread:
            return ""
        more = "" if len({*self.unread}) == 1 else ", …"
        return f"{counted(len(self.unread), 'offer')} could not be read: {self.unread[0]}{more}"


ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What may stand in a path of the API."""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dollars(value: object) -> float | None:
    """A price; None if it is none, since an odd one must not hide the pod that it is of."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_DOLLARS else None


Text = Annotated[str, BeforeValidator(_text)]
Dollars = Annotated[float | None, BeforeValidator(_dollars)]


class Pod(Read):
    """A rented machine, or an entry of the history. Only its id is needed: what costs money counts,
    whatever else is said of it."""

    id: str
    name: Text = ""
    status: Text = ""
    gpu_name: Text = ""
    created_at: Text = ""
    terminated_at: Text = ""
    price_hr: Dollars = None
    stopped_price_hr: Dollars = None
    total_billed_price: Dollars = None

    @field_validator("id")
    @classmethod
    def _is_id(cls, value: str) -> str:
        if not ID.fullmatch(value):
            raise ValueError("not an id")
        return value


@dataclass(frozen=True)
class Listing:
    pods: tuple[Pod, ...]
    whole: bool
    """Whether it is all of them: only then a pod that is not in it may be gone."""


class PodStatus(Read):
    pod_id: str
    status: Text = ""
    ssh_connection: str | None = None
    """To its first node, e.g. ``root@1.2.3.4 -p 1234``."""
    price_hr: Dollars = None
    installation_failure: str | None = None
    installation_progress: int | None = None

    @field_validator("ssh_connection", mode="before")
    @classmethod
    def _first(cls, value: object) -> object:
        """Pods with several nodes have a list; one without address yet has ``[null]``."""
        return (value[0] if value else None) if isinstance(value, list) else value

    @property
    def is_ready(self) -> bool:
        progress = self.installation_progress
        return self.status == "ACTIVE" and bool(self.ssh_connection) and progress in (None, 100)

    @property
    def why_failed(self) -> str:
        """Why it will never be ready; empty otherwise."""
        if self.installation_failure:
            return f"its installation failed: {one_line(self.installation_failure, 300)}"
        if self.status in ("ERROR", "TERMINATED", "STOPPED", "DELETED"):
            return f"it is {self.status}"
        return ""


class SshKey(Read):
    public_key: str = ""


M = TypeVar("M", bound=Read)


class Prime:
    """One account at Prime Intellect."""

    def __init__(
        self,
        settings: PrimeSettings,
        heard: Callable[[str], None] = lambda date: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`heard` is called with the ``Date`` of each answer; `transport` replaces the network."""
        self.settings, self._heard = settings, heard
        self._http = httpx.AsyncClient(
            headers={
                "Authorization": f"Bearer {settings.key}",
                "User-Agent": f"hud-tui/{__version__}",
            },
            timeout=TIMEOUT,
            trust_env=not is_loopback(settings.url),
            verify=not is_loopback(settings.url),
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._http.aclose()

    async def offers(self, count: int | None = None, regions: Sequence[str] = ()) -> Offers:
        """All offers that can be read; an odd one is left out, and so noted. Raises HudError: as
        all calls here."""
        query: dict[str, Any] = {}
        if regions:
            query["regions"] = list(regions)
        if count:
            query["gpu_count"] = str(count)
        offers, unread = list[Offer](), list[str]()
        for kind in ("gpus", "multi-node"):
            for item in await self._pages(f"/availability/{kind}", query):
                try:
                    offers.append(Offer.model_validate(item))
                except ValidationError as error:
                    unread.append(one_line(first_misfit(error), 200))
        offers.sort(key=lambda offer: (offer.price() is None, offer.price() or 0.0))
        return Offers(tuple(offers), tuple(unread))

    async def _pages(self, path: str, query: Mapping[str, Any]) -> list[Any]:
        items: list[Any] = []
        for page in range(1, MOST_PAGES + 1):
            answer = await self._read(path, {**query, "page": page, "page_size": PAGE})
            added, total = _list(answer, "items"), answer.get("totalCount")
            items += added
            if not added or (type(total) is int and len(items) >= total):
                break
        return items

    async def pods(self) -> Listing:
        """All pods that can be read; an entry that cannot be is left out, and so noted."""
        pods: dict[str, Pod] = {}
        whole, offset, total = True, 0, 0
        for _ in range(MOST_PAGES):
            answer = await self._read("/pods", {"offset": offset, "limit": PAGE})
            items, stated = _list(answer, "data"), answer.get("total_count")
            total = stated if type(stated) is int else -1
            offset += len(items)
            for item in items:
                try:
                    pod = _as(Pod, item)
                except HudMalformed:
                    whole = False
                else:
                    whole = whole and pod.id not in pods  # a page that comes twice hides another
                    pods.setdefault(pod.id, pod)
            if not items or (total >= 0 and offset >= total):
                break
        return Listing(tuple(pods.values()), whole and total == offset)

    async def pod(self, pod_id: str) -> Pod:
        """One pod. Raises HudNotFound: there is none."""
        pod = _as(Pod, await self._read(f"/pods/{pod_id}", {}))
        if pod.id != pod_id:
            raise HudMalformed("Prime's answer is about another pod")
        return pod

    async def history(self) -> list[Pod]:
        """The newest pods that have ended, those that can be read."""
        answer = await self._read("/pods/history", {"offset": 0, "limit": PAGE})
        ended = []
        for item in _list(answer, "data"):
            with suppress(HudMalformed):
                ended.append(_as(Pod, item))
        return ended

    async def ssh_keys(self) -> list[str]:
        """Public keys that new pods accept, as lines of authorized_keys.

        Source: the API's reference, "Get Ssh Keys".
        """
        answer = await self._read("/ssh_keys/", {"offset": 0, "limit": PAGE})
        return [_as(SshKey, item).public_key for item in _list(answer, "data")]

    async def status(self, pod_id: str) -> PodStatus:
        """Progress of a pod. Raises HudNotFound: there is no such pod."""
        answer = await self._read("/pods/status", {"pod_ids": pod_id})
        for item in _list(answer, "data"):
            if (status := _as(PodStatus, item)).pod_id == pod_id:
                return status
        raise refused(404, "no such pod", HINTS[404])

    async def create(
        self, offer: Offer, name: str, image: str, disk: int | None, max_price: float | None
    ) -> Pod:
        """Rent a pod, which costs money from then on. Sent once.

        Args:
            name: Unique: a lost answer is looked up by it.
            disk: GB; None for the offer's own.
            max_price: Dollars per hour above which the API refuses.

        Raises:
            HudUnclear: Whether it was rented is unknown: no answer, or one that does not fit.
            HudRefused: It was not rented.
        """
        pod: dict[str, Any] = {
            "name": name,
            "cloudId": offer.cloud_id,
            "gpuType": offer.gpu_type,
            "socket": offer.socket,
            "gpuCount": offer.gpu_count,
            "diskSize": disk or _whole(offer.disk.default_count),
            "vcpus": _whole(offer.vcpu.default_count),
            "memory": _whole(offer.memory.default_count),
            "image": image,
            "dataCenterId": offer.data_center,
            "maxPrice": max_price,
            "country": None,
            "security": None,
            "jupyterPassword": None,
            "autoRestart": False,
            "customTemplateId": None,
            "envVars": [],
        }
        team = {"teamId": self.settings.team} if self.settings.team else None
        provider = {"type": offer.provider} if offer.provider else {}
        body: dict[str, Any] = {"pod": pod, "provider": provider, "disks": [], "team": team}
        if team and self.settings.shares:
            body["sharedWithTeam"] = True
        answer = await self._send("POST", "/pods", body)
        try:
            rented = _as(Pod, answer)
        except HudMalformed as error:
            raise HudUnclear(error) from error
        if rented.name not in ("", name):
            raise HudUnclear(HudMalformed("Prime's answer is about another pod"))
        return rented

    async def terminate(self, pod_id: str) -> bool:
        """Terminate a pod, and its costs; safe to repeat, also for one that has ended. False if
        Prime does not know it. Raises HudUnclear: whether it ended is unknown."""
        try:
            await self._send("DELETE", f"/pods/{pod_id}", None)
        except HudRefused as error:
            if error.status != 404:
                raise
            return False
        return True

    async def _read(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A GET, retried if that may help."""

        def pause(error: HudError, failures: int) -> float | None:
            if not isinstance(error, HudUnreachable | HudRefused):
                return None
            return retry_delay(failures, error.status, error.retry_after)

        return await retried(lambda: self._call("GET", path, params=asked), HudError, pause)

    async def _send(
        self, method: Literal["POST", "DELETE"], path: str, body: object
    ) -> dict[str, Any]:
        """A write, sent once; raises HudUnclear if its outcome is unknown."""
        try:
            return await self._call(method, path, json=body)
        except (HudUnreachable, HudMalformed) as error:
            raise HudUnclear(error) from error
        except HudRefused as error:
            if not 400 <= (error.status or 0) < 500 or error.status == 408:
                raise HudUnclear(error) from error
            raise

    async def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            async with self._http.stream(method, self.settings.url + path, **options) as answer:
                body: bytes = b""
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise HudMalformed("Prime's answer is too large")
        except httpx.HTTPError as error:
            what = one_line(error, 200) or type(error).__name__
            raise HudUnreachable(f"Prime does not answer: {what}", "try again later") from error
        status = answer.status_code
        if status >= 300:
            raise self._refusal(answer, body)
        self._heard(answer.headers.get("date", ""))
        try:
            document = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise HudMalformed("Prime's answer is not a JSON object")
        return document

    def _refusal(self, answer: httpx.Response, body: bytes) -> HudError:
        """The error of an unsuccessful answer. A 404, or a refusal of a write, that is not written
        as Prime's are comes from something between: it is no word about a pod."""
        status, stated = answer.status_code, _detail(body)
        said = stated or body[:300].decode("utf-8", "replace")
        detail = one_line(said.replace(self.settings.key, "…"), 400)
        decides = status == 404 or (answer.request.method != "GET" and 400 <= status < 500)
        if decides and stated is None:
            return HudMalformed(f"HTTP {status}, and not in Prime's words: {detail}")
        after = read_retry_after(answer.headers.get("retry-after"))
        return refused(status, detail, HINTS.get(status, ""), after)


def open_prime(state: Path) -> Prime:
    """The account of this machine's settings; its clock is noted in the state directory. Raises
    HudNoKey, HudUsage: as `read_prime`."""
    return Prime(read_prime(every_variable()), partial(hear, state))


def _detail(body: bytes) -> str | None:
    """The message of a refusal; None if it is not written as Prime's are."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if isinstance(detail, list):
        return "; ".join(_problem(problem) for problem in detail[:10])
    return str(detail)


def _problem(problem: object) -> str:
    """One line of a 422: the field, and what is wrong with it."""
    if not isinstance(problem, dict):
        return str(problem)
    location = problem.get("loc")
    names = [str(word) for word in location if word != "body"] if isinstance(location, list) else []
    return f"{'.'.join(names)}: {problem.get('msg', '')}"


def _list(answer: Mapping[str, Any], name: str) -> list[Any]:
    values = answer.get(name)
    if not isinstance(values, list):
        raise HudMalformed(f"Prime's answer has no list of {name}")
    return values


def _as(kind: type[M], item: object) -> M:
    try:
        return kind.model_validate(item)
    except ValidationError as error:
        problem = one_line(first_misfit(error), 200)
        what = f"Prime's answer is not a {kind.__name__.lower()}: {problem}"
        raise HudMalformed(what) from error


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
