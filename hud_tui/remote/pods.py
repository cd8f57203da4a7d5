"""Renting pods: each request is sent once, costs are limited, and what runs is always listed.

A rental is stored before it is requested, with the wanted set-up and the name that Prime will know
it by, which has a random part: no other pod is ever taken for it. If the answer is lost, or does
not fit, the pod is looked up by that name; if the program is killed, a later command continues.
A watcher on the pod ends it when its hours are over or nobody has used it for a while; in addition,
a process on this machine does (`hud_tui.remote.budget`).
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf
from pathlib import Path
from typing import Any

from hud_tui.client.transport import is_passing
from hud_tui.errors import (
    HudError,
    HudNotFound,
    HudProtected,
    HudRefused,
    HudUnclear,
    HudUnreachable,
    HudUsage,
)
from hud_tui.patience import Looks
from hud_tui.remote.clock import is_known, prime_now
from hud_tui.remote.engines import Wish
from hud_tui.remote.machines import Machines
from hud_tui.remote.prime import Offer, Offers, Pod, PodStatus, Prime, PrimeSettings
from hud_tui.remote.ssh import (
    PATIENCE_S,
    Address,
    LineLost,
    Ssh,
    forget_pod,
    patient,
    pod_address,
    read_public_key,
)
from hud_tui.remote.watcher import Heartbeat, install_watcher, read_heartbeat
from hud_tui.rl.text import age, counted, one_line, seconds
from hud_tui.service_file import Rental, add_rental, read_rentals, write_rental
from hud_tui.settings import REMOTES

HOURS, IDLE_MIN = 4.0, 60
"""Defaults: how many hours a pod may run, and how many minutes it may be unused."""
MOST_HOURS = 366 * 24
"""Most hours of a budget."""
POLL_S = 5.0
"""Seconds between two reads of a pod that is starting."""
READY_S = 40 * 60.0
"""Maximum seconds until ssh answers."""
LOOK_UP_S = 60.0
"""Seconds for which a pod whose answer was lost is looked up."""
FORGET_S = 15 * 60.0
"""Seconds after which a pod that Prime does not list counts as never rented."""
MISSES, MISSING_S = 3, 300.0
"""A pod is gone that so many lists in a row lack, over so many seconds."""
NEW_S = 60.0
"""Seconds for which Prime may not know a new pod yet."""
LATER_S = 300.0
"""Seconds after which one that was ended and is still listed counts as running."""
HEAR_S = 60.0
"""Maximum seconds to ask a pod's watcher, or to start it again."""
IMAGE = "ubuntu_22_cuda_12"
WORK = "rental"
"""Name of the lock of a pod that is being rented or set up."""
_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_GPUS = re.compile(r"(?:(\d{1,4})[x×])?([A-Za-z0-9_ -]{1,40})")


@dataclass(frozen=True)
class Filter:
    """Conditions on offers; an empty one accepts all."""

    count: int | None = None
    gpu: str = ""
    provider: str = ""
    regions: tuple[str, ...] = ()
    spot: bool | None = None
    """Whether the provider may end it at any time; None: either."""
    max_price: float | None = None
    """Dollars per hour."""
    disk: int | None = None
    """Minimum disk, GB."""

    def takes(self, offer: Offer) -> bool:
        """Whether an offer is in stock, and meets the conditions."""
        if "unavailable" in offer.stock_status.lower():
            return False
        if self.count not in (None, offer.gpu_count) or not is_gpu(self.gpu, offer.gpu_type):
            return False
        if self.provider and self.provider.lower() != (offer.provider or "").lower():
            return False
        if self.spot not in (None, bool(offer.is_spot)):
            return False
        if self.regions and not any(is_in(offer.country, region) for region in self.regions):
            return False
        most = offer.disk.max_count
        if self.disk is not None and most is not None and self.disk > most:
            return False
        return self.max_price is None or _price(offer, self.disk) <= self.max_price


def read_gpus(text: str) -> tuple[int | None, str]:
    """Parse a number and type of GPUs: ``2xH100``, ``H100``. Raises HudUsage: neither of these
    forms."""
    match = _GPUS.fullmatch(text.strip())
    if match is None:
        raise HudUsage(f"not GPUs: {one_line(text, 40)}", "e.g. --gpus 2xH100, or --gpus A100")
    return int(match[1]) if match[1] else None, match[2].strip()


def is_gpu(wanted: str, offered: str) -> bool:
    """Whether an offered GPU type is the wanted one: ``h100`` matches ``H100_80GB``, not
    ``GH200``."""
    short, whole = (re.sub(r"[ _-]", "", text).lower() for text in (wanted, offered))
    words = [word.lower() for word in offered.split("_")]
    return not wanted or short == whole or wanted.lower() in words or words[0] == short


EUROPE = """AL AT BA BE BG CH CY CZ DE DK EE ES FI FR GB GR HR HU IE IS IT LT LU LV MD ME MK MT NL
NO PL PT RO RS SE SI SK UA UK"""
COUNTRIES: Mapping[str, str] = {
    "united_states": "US USA",
    "canada": "CA",
    "australia": "AU NZ",
    "africa": "DZ EG ET GH KE MA NG RW TN ZA",
    "asia": "BD CN HK ID IN JP KR KZ LK MN MY PH PK SG TH TW UZ VN",
    "middle_east": "AE BH IL JO KW OM QA SA TR",
    "south_america": "AR BO BR CL CO EC PE PY UY VE",
    "eu": EUROPE,
}
"""Countries of Prime's regions, by the beginning of the region's name (``eu_west``,
``asia_south``)."""


def is_in(country: str | None, region: str) -> bool:
    """Whether a country is in a region, or equals it; True if the region or the country is unknown
    here, because Prime has filtered by region already."""
    code, name = (country or "").upper(), region.strip()
    if len(name) == 2 and name.lower() != "eu":
        return code == name.upper()
    begins = [region for region in COUNTRIES if name.lower().startswith(region)]
    countries = " ".join(COUNTRIES.values()).split()
    return not begins or code not in countries or code in COUNTRIES[begins[0]].split()


async def available(prime: Prime, conditions: Filter) -> Offers:
    """Offers in stock that meet the conditions, cheapest first."""
    regions = [region for region in conditions.regions if len(region.strip()) != 2]
    listed = await prime.offers(
        conditions.count, regions if len(regions) == len(conditions.regions) else ()
    )
    matches = sorted(
        filter(conditions.takes, listed.offers), key=lambda offer: _price(offer, conditions.disk)
    )
    return replace(listed, offers=tuple(matches))


FLAGS: Mapping[str, Callable[[Filter], Filter]] = {
    "--max-price": lambda wanted: replace(wanted, max_price=None),
    "--region": lambda wanted: replace(wanted, regions=()),
    "--provider": lambda wanted: replace(wanted, provider=""),
    "--spot": lambda wanted: replace(wanted, spot=None),
    "--disk": lambda wanted: replace(wanted, disk=None),
    "--gpus": lambda wanted: replace(wanted, count=None),
}
"""How to drop the condition of each flag."""


async def loosened(prime: Prime, conditions: Filter) -> list[str]:
    """Advice if nothing matches: which flag to omit, and what would then be available."""
    advice = []
    for name, loosen in FLAGS.items():
        if (looser := loosen(conditions)) == conditions:
            continue
        if offers := (await available(prime, looser)).offers:
            what = "with another number of GPUs" if name == "--gpus" else f"without {name}"
            price = offers[0].price(looser.disk)
            least = "" if price is None else f", from ${price:.2f} per hour ({offers[0].label})"
            advice.append(f"{what}: {counted(len(offers), 'offer')}{least}")
    if conditions.gpu:
        any_type = replace(conditions, count=None, gpu="")
        offers = (await available(prime, any_type)).offers
        types = sorted({one_line(offer.gpu_type, 40) for offer in offers})
        if types and not any(is_gpu(conditions.gpu, kind) for kind in types):
            asked = one_line(conditions.gpu, 40)
            advice.append(f"no {asked} fits; types that there are: {', '.join(types)}")
    return advice or ["no single flag is the cause: hud-tui pods shows everything there is"]


def _price(offer: Offer, disk: int | None) -> float:
    price = offer.price(disk)
    return inf if price is None else price


@dataclass(frozen=True)
class RentalRequest:
    offer: Offer
    price_hr: float
    """Dollars per hour, as displayed."""
    hours: float = HOURS
    idle_min: int = IDLE_MIN
    max_price: float | None = None
    disk: int | None = None
    image: str = ""
    name: str = ""
    """Name of the pod; empty: derived from its GPUs."""
    key: str = ""
    """Identity file for ssh."""
    wish: Mapping[str, str] = field(default_factory=dict)
    """How to set it up; empty: only rent it."""

    @property
    def most(self) -> float:
        """Maximum cost, dollars: of its hours, or of those that the provider bills whatever it
        runs."""
        return self.price_hr * max(self.hours, self.offer.prepaid_time or 0)

    def dearer(self, rental: Rental) -> str:
        """A warning if Prime's price is higher than the displayed one; else empty."""
        if rental.price_hr <= self.price_hr + 0.01:
            return ""
        asked = f"${self.price_hr:.2f}"
        most = max(rental.most, rental.price_hr * (self.offer.prepaid_time or 0))
        ends = f"it ends after {age(rental.at, rental.deadline)}, for ${most:.2f} at most"
        return f"{rental.name} costs {rental.price}, not {asked} as shown: {ends}"

    def lines(self) -> list[str]:
        """What will be rented and what it costs, as lines of text."""
        offer = self.offer
        where = ", ".join(filter(None, (offer.data_center, offer.country)))
        spot = "spot: it may be taken away at any time" if offer.is_spot else "on demand"
        disk = self.disk or offer.disk.default_count
        idle = f"or after {self.idle_min} min without use" if self.idle_min else "used or not"
        lines = [
            f"rent    {offer.label} at {offer.provider} ({where or 'anywhere'}), {spot}",
            f"disk    {disk:g} GB" if disk else "disk    the provider's",
            f"image   {self.image}",
            f"costs   ${self.price_hr:.2f} per hour; at most ${self.most:.2f}",
            f"ends    after {self.hours:g} h, {idle}",
        ]
        if offer.prepaid_time:
            prepaid = f"${self.price_hr * offer.prepaid_time:.2f}"
            lines.append(f"note    the provider bills {offer.prepaid_time} h in advance: {prepaid}")
        if offer.prices.is_variable:
            lines.append("note    its price may change while it runs")
        return [one_line(line, 200) for line in lines]


async def choose(
    prime: Prime, query: Filter, key: str = "", image: str = "", **how: Any
) -> tuple[RentalRequest, list[str]]:
    """The cheapest offer, with an ssh key that Prime knows; also returns warnings. `key`: identity
    file; empty for the one in Prime's settings; `how`: further fields of the request. Raises
    HudUsage: nothing matches, or the key cannot be used."""
    answer = await available(prime, query)
    warnings = [answer.warning] if answer.warning else []
    if not answer.offers:
        hint = "; ".join([*warnings, *await loosened(prime, query)])
        raise HudUsage("nothing to be rented fits", hint)
    offer = answer.offers[0]
    price = offer.price(query.disk)
    if price is None:
        raise HudUsage("the provider does not say what it costs", "another --provider")
    image, key = choose_image(offer, image), key or prime.settings.ssh_key
    if warning := await check_key(prime, key):
        warnings.append(warning)
    how |= {"max_price": query.max_price, "disk": query.disk}
    return RentalRequest(offer, price, image=image, key=key, **how), warnings


def begun(machines: Machines, at_work: Collection[str] = ()) -> Rental | None:
    """The newest pod that is rented, not set up, and that nobody is at work on. `at_work`: names of
    those that this program is."""
    left = [rental for rental in read_rentals(machines.state) if rental.unfinished]
    free = (rental for rental in reversed(left) if rental.name not in at_work)
    return next((rental for rental in free if not machines.busy(rental.name, WORK)), None)


def wish_of(rental: Rental) -> Wish:
    wish = {name: text for name, text in rental.wish.items() if name != "package"}
    return Wish(rental.name, **wish, pod=rental.id)


def choose_image(offer: Offer, name: str) -> str:
    """The image to start with: the wanted one, else one with CUDA. Raises HudUsage: the offer does
    not have the wanted one."""
    images = offer.images or []
    if name and images and name not in images:
        choices = ", ".join(images[:10])
        raise HudUsage(f"no image {one_line(name, 60)} with this offer", f"choose from {choices}")
    if name or IMAGE in images or not images:
        return name or IMAGE
    return next((image for image in images if "cuda" in image), images[0])


GONE, NEVER = "it is no longer there", "Prime never heard of it"
"""Reasons of rentals that count as ended because Prime does not have their pod. They are revived
if Prime lists it again."""
COSTLY = frozenset({"PROVISIONING", "PENDING", "ACTIVE", "STOPPED"})
"""States of a pod that cost money, or may."""
ENDED = frozenset({"TERMINATED", "DELETED"})


def account(settings: PrimeSettings) -> str:
    """What differs between accounts and their keys; nothing can be read from it."""
    whole = f"{settings.url} {settings.key}"
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def too_dear(rental: Rental) -> str:
    """Why a pod is to end at once for its price; empty if it is not."""
    if rental.max_price is None or rental.price_hr <= rental.max_price + 1e-9:
        return ""
    return f"it costs {rental.price}, more than --max-price ${rental.max_price:.2f}"


class Pods:
    """Rented pods, as stored on this machine and as listed by Prime."""

    def __init__(
        self,
        prime: Prime,
        state: Path,
        report: Callable[[str], None] = lambda text: None,
        keep: Callable[[], None] = lambda: None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`report` is called with a line about what is being waited for; `keep` starts the process
        that enforces budgets, after a rental is stored and before it is requested; `now` is Unix
        seconds by Prime's clock, None: `prime_now`."""
        self._prime, self._state, self._report, self._keep = prime, state, report, keep
        self._now = now or partial(prime_now, state)

    async def rent(self, request: RentalRequest) -> Rental:
        """Rent a pod. The request is sent once.

        Raises:
            HudUsage: The offer is gone, its price has risen, or the name is taken; nothing was
                rented.
            PodFailed: It costs more than `max_price`, and was ended at once.
            HudRefused: Prime refused; nothing was rented.
            HudUnclear: It is unknown whether it was rented; `reconcile` finds out.
        """
        await self._check_again(request)
        offer, most = request.offer, ceil(request.price_hr * 100 - 1e-6) / 100
        rental = add_rental(self._state, self._planned(request))
        self._keep()
        try:
            pod = await self._prime.create(offer, rental.asked, request.image, request.disk, most)
        except HudUnclear as error:
            rental = await self._look_up(rental, error)
        except HudRefused as error:
            # What lies between may have sent it twice, of which the second was refused.
            listed = await self._find_asked(rental)
            if listed is None:
                write_rental(self._state, rental, ended_at=rental.at, why=error.message)
                raise
            rental = listed
        else:
            rental = await self._first(rental, pod)
        if why := too_dear(rental):
            await self.terminate(rental, why, rental.name)
            raise PodFailed(rental, f"{why}: it was ended", ended=True)
        return rental

    def _planned(self, request: RentalRequest) -> Rental:
        """The rental to store before the request."""
        short = re.sub(r"[^a-z0-9]", "", request.offer.gpu_type.lower())[:12]
        name = request.name or f"hud-{short}-{secrets.token_hex(4)}"
        return Rental(
            name,
            asked=f"{name[:54]}-{secrets.token_hex(4)}" if request.name else name,
            gpus=request.offer.label,
            provider=request.offer.provider or "",
            price_hr=request.price_hr,
            dollars=request.most,
            max_price=request.max_price,
            hours=request.hours,
            idle_min=request.idle_min,
            at=self._now(),
            timed=is_known(self._state),
            account=account(self._prime.settings),
            key=request.key,
            wish=dict(request.wish),
        )

    async def _first(self, rental: Rental, pod: Pod) -> Rental:
        """Store what was rented; another price than the agreed one is asked for again. Its hours
        begin when Prime created it: this process may have been halted before the request."""
        created_at = seconds(pod.created_at)
        if created_at is None or not rental.at < created_at <= self._now():
            created_at = rental.at
        rental = write_rental(self._state, rental, id=pod.id, at=created_at)
        if pod.price_hr is not None and abs(pod.price_hr - rental.price_hr) > 0.005:
            with suppress(HudError):
                pod = await self._prime.pod(pod.id)
        price = rental.price_hr if pod.price_hr is None else pod.price_hr
        return write_rental(self._state, rental, price_hr=price)

    def _listed(self, rental: Rental, pod: Pod) -> Rental:
        """Store what Prime says of a pod that it has."""
        now = self._now()
        changes: dict[str, Any] = {
            **{"id": pod.id, "status": pod.status, "stopped_hr": pod.stopped_price_hr},
            **{"missing": 0, "ended_at": None, "why": ""},
        }
        if not rental.timed and is_known(self._state):
            stamp = seconds(pod.created_at)
            if stamp is not None and stamp <= now + LATER_S:
                changes |= {"at": stamp, "timed": True}
        if pod.price_hr is not None:
            changes |= self._priced(rental, pod.price_hr, now)
        return write_rental(self._state, rental, **changes)

    def _priced(self, rental: Rental, price: float, now: float) -> Mapping[str, Any]:
        """Another price counts as Prime says it a second time."""
        if abs(price - rental.price_hr) <= 0.005:
            return {"price_seen": None}
        if rental.price_seen is None or abs(price - rental.price_seen) > 0.005:
            return {"price_seen": price}
        paid = replace(rental, ended_at=None, billed=None).spent(now)
        return {"price_hr": price, "paid": paid, "priced_at": now, "price_seen": None}

    async def _check_again(self, request: RentalRequest) -> None:
        """Make sure that the price is still the displayed one. Raises HudUsage."""
        listed = await self._prime.offers(request.offer.gpu_count)
        now = [offer for offer in listed.offers if request.offer.is_same(offer)]
        if not now:
            hint = "; ".join(filter(None, (listed.warning, "look again: hud-tui pods")))
            raise HudUsage("the offer is gone; nothing was rented", hint)
        price = _price(now[0], request.disk)
        limit = min(request.price_hr, request.max_price or inf)
        if price > limit + 1e-9:
            raise HudUsage(
                f"the price has risen from ${request.price_hr:.2f} to ${price:.2f} per hour;"
                " nothing was rented",
                "look again: hud-tui pods",
            )

    async def _look_up(self, rental: Rental, error: HudUnclear) -> Rental:
        """Find a pod whose answer was lost or did not fit, by the random part of its name."""
        async for _ in Looks(POLL_S, LOOK_UP_S):
            self._report(f"it is unknown whether it was rented: looking for {rental.asked}")
            if (listed := await self._find_asked(rental)) is not None:
                return listed
        error.hint = (
            f"it may have been rented; it is looked for by the name {rental.asked}:"
            " hud-tui pods list"
        )
        raise error

    async def _find_asked(self, rental: Rental) -> Rental | None:
        """Store the pod that Prime lists under the random part of a rental's name; None if it lists
        none, or does not answer."""
        with suppress(HudError):
            for pod in (await self._prime.pods()).pods:
                if pod.name == rental.asked:
                    return await self._first(rental, pod)
        return None

    async def reconcile(self) -> tuple[list[Rental], list[Pod]]:
        """Update the stored rentals with Prime's list; return them, and the account's other pods.

        A rental has ended if Prime says so of its id, or has it in its history, or if it was
        missing in MISSES lists over MISSING_S. One whose answer was lost gets its pod's id.
        """
        listing = await self._prime.pods()
        rentals = read_rentals(self._state)
        by_id = {pod.id: pod for pod in listing.pods if pod.status not in ENDED}
        taken = {rental.id for rental in rentals}
        unlisted = []
        for rental in rentals:
            pod = by_id.get(rental.id)
            if pod is None and not rental.id:  # its answer was lost
                pod = next(iter(_asked(rental, by_id.values(), taken)), None)
            if pod is None:
                unlisted.append(rental)
                continue
            taken.add(pod.id)
            if rental.runs or self._is_back(rental, pod):
                self._listed(rental, pod)
        await self._unlisted(unlisted, listing.whole)
        for rental in rentals:  # one request that something between has sent twice
            for pod in _asked(rental, by_id.values(), taken):
                taken.add(pod.id)
                double = replace(rental, name=f"{rental.name}-{pod.id[-4:]}", asked="", billed=None)
                self._listed(write_rental(self._state, double), pod)
        ours = read_rentals(self._state)
        stored = {rental.id for rental in ours}  # ended ones that Prime lists again are revived
        return ours, [pod for pod in listing.pods if pod.id not in stored]

    def _is_back(self, rental: Rental, pod: Pod) -> bool:
        """Whether a pod that counts as ended costs money after all."""
        late = self._now() - (rental.ended_at or 0.0) > LATER_S
        return pod.status in COSTLY and (late or rental.why in (GONE, NEVER))

    def _is_account(self, rental: Rental) -> bool:
        """Whether it was rented with this key: what another account's list lacks may run on."""
        return rental.account in ("", account(self._prime.settings))

    async def _past(self) -> dict[str, Pod]:
        """The history by id; empty if Prime does not answer."""
        with suppress(HudError):
            return {pod.id: pod for pod in await self._prime.history()}
        return {}

    async def _unlisted(self, rentals: Iterable[Rental], whole: bool) -> None:
        """Decide about rentals that were not in a list; `whole`: as `Listing`."""
        unsure = [
            rental for rental in rentals if rental.runs or (rental.id and rental.billed is None)
        ]
        history = await self._past() if unsure else {}
        for rental in unsure:
            past = history.get(rental.id) if rental.id else None
            if past is not None:
                self._ended(rental, past)
                continue
            if not rental.runs or not self._is_account(rental):
                continue
            if not await self._answered(rental) and whole:
                self._missed(rental)

    async def _answered(self, rental: Rental) -> bool:
        """Ask for a rental by its id, and store the answer; False: Prime does not decide."""
        if not rental.id or self._now() - rental.at < NEW_S:
            return False
        try:
            pod = await self._prime.pod(rental.id)
        except HudNotFound:
            self._ended(rental, None)
            return True
        except HudError:
            return False
        if pod.status in ENDED:
            self._ended(rental, None)
        else:
            self._listed(rental, pod)
        return True

    def _missed(self, rental: Rental) -> None:
        """Count one more list that lacks a rental."""
        now = self._now()
        missing, first = rental.missing + 1, rental.missing_at if rental.missing else now
        rental = write_rental(self._state, rental, missing=missing, missing_at=first)
        if missing < MISSES or now - first < MISSING_S:
            return
        if rental.id:
            self._ended(rental, None)
        elif now - rental.at > FORGET_S:
            write_rental(self._state, rental, ended_at=rental.at, why=NEVER)

    def _ended(self, rental: Rental, past: Pod | None) -> None:
        stamp = seconds(past.terminated_at) if past is not None else None
        if stamp is None or not rental.at <= stamp <= self._now() + LATER_S:
            stamp = self._now()
        ended = rental.ended_at or stamp
        billed = past.total_billed_price if past is not None else None
        why = rental.why or GONE
        changes: dict[str, Any] = {} if billed is None else {"billed": billed}
        write_rental(self._state, rental, ended_at=ended, why=why, **changes)
        forget_pod(self._state / REMOTES, rental.id)

    async def reach(
        self, rental: Rental, ssh_to: Callable[[Address], Ssh], key: str, api_key: str = ""
    ) -> Address:
        """Wait until a pod answers, and start its watcher; return its address. Can be repeated,
        also if it is unknown whether the pod was rented. `key`: identity file that Prime knows;
        `api_key`: Prime's key for the watcher, so that it can terminate the pod there.

        Raises:
            HudUnclear: It is still unknown whether it was rented.
            HudUsage: It was not rented.
            PodFailed: As `wait`.
        """
        if not rental.id:
            rental = await self.find(rental)
            if not rental.id:
                what = f"{rental.name} was not rented: {rental.why}"
                raise HudUsage(what, "hud-tui pods create rents one")
        address = await self.wait(rental, ssh_to, key)
        ssh = ssh_to(address)
        async with aclosing(ssh):
            await patient(lambda: self._watch(ssh, rental, api_key), self._report, PATIENCE_S)
        where = {"address": f"{address}", "key": rental.key or key}
        write_rental(self._state, rental, watched=True, heard_at=self._now(), heard="", **where)
        return address

    async def _watch(self, ssh: Ssh, rental: Rental, api_key: str) -> Heartbeat:
        left_s, idle_s = rental.deadline - self._now(), rental.idle_min * 60
        url = self._prime.settings.url
        return await install_watcher(ssh, rental.id, left_s, idle_s, url, api_key)

    async def hear(self, rental: Rental, ssh_to: Callable[[Address], Ssh]) -> Rental:
        """Ask a pod's watcher whether it lives; start it again if it does not, or if it counts to
        a later end than the budget's. What is wrong is stored."""
        try:
            ssh = ssh_to(pod_address(rental.address, rental.key, rental.id))
            async with aclosing(ssh):
                async with asyncio.timeout(HEAR_S):
                    beat = await read_heartbeat(ssh)
                    late = beat is not None and beat.left_s > rental.deadline - self._now() + 60
                    if beat is None or not beat.alive or late:
                        beat = await self._watch(ssh, rental, "")
        except (HudError, TimeoutError) as error:
            why = error.message if isinstance(error, HudError) else "its ssh does not answer"
            return write_rental(self._state, rental, heard=one_line(why, 200))
        return write_rental(self._state, rental, heard_at=self._now() - beat.age_s, heard="")

    async def find(self, rental: Rental) -> Rental:
        """Look up a rental whose answer was lost; the result has an id, or has ended. Raises
        HudUnclear: Prime does not list it, which may be because the list lags behind."""
        ours, _ = await self.reconcile()
        stored = find_rental(ours, rental.name)
        if stored.runs and not stored.id:
            minutes = max(1, (stored.at + FORGET_S - self._now()) / 60)
            unclear = HudUnreachable(f"{stored.name} is not listed by Prime")
            hint = f"try again; if it is not listed within {minutes:.0f} min, it was not rented"
            raise HudUnclear(unclear, hint=hint)
        return stored

    async def wait(self, rental: Rental, ssh_to: Callable[[Address], Ssh], key: str) -> Address:
        """Wait until ssh answers for a rental with an id; return the address. `key`: the same
        identity file as in `reach`. Raises PodFailed: it failed, or is not ready in time. It still
        costs money."""
        async for _ in Looks(POLL_S, READY_S):
            status = await self._status(rental)
            refused = ""
            if status is not None and status.is_ready:
                try:
                    address = pod_address(status.ssh_connection or "", key, rental.id)
                    await ssh_to(address).run("true", timeout_s=20)
                    return address
                except (LineLost, HudUsage) as error:
                    refused = f", {error.message}"
            shown = "unknown" if status is None else status.status
            part = status.installation_progress if status is not None else None
            more = f", {part} % installed" if part is not None else ""
            self._report(f"{rental.name}: {shown}{more}{refused}")
        raise PodFailed(rental, f"not ready after {READY_S / 60:.0f} min")

    async def _status(self, rental: Rental) -> PodStatus | None:
        """Its state; None if Prime cannot report it now. Raises PodFailed."""
        try:
            status = await self._prime.status(rental.id)
        except HudNotFound as error:
            if self._now() - rental.at < NEW_S:
                return None
            raise PodFailed(rental, "Prime no longer has it") from error
        except HudError as error:
            if isinstance(error, HudRefused) and not is_passing(error.status):
                raise
            self._report(f"{rental.name}: {error.message}")
            return None
        if status.why_failed:
            raise PodFailed(rental, status.why_failed)
        return status

    async def end(self, rental: Rental, confirmed: str | None) -> Rental:
        """Terminate a pod on request, as `terminate`; Prime is asked for an id that is unknown."""
        if rental.runs and not rental.id:
            rental = await self.find(rental)
        if rental.id:  # even if it counts as ended, because it may still be running
            rental = await self.terminate(rental, "terminated", confirmed)
        return rental

    async def terminate(self, rental: Rental, why: str, confirmed: str | None = None) -> Rental:
        """Terminate a pod, which ends its costs; can be repeated.

        Raises:
            HudProtected: It is protected, and its name was not given.
            HudUnclear: It is unknown whether it was terminated; it counts as running.
            HudUsage: Prime does not know it, and it was rented with another key.
        """
        if rental.protected and confirmed != rental.name:
            raise HudProtected(rental.name, "terminate")
        if rental.id:
            there = await self._prime.terminate(rental.id)
            if not there and not self._is_account(rental):
                what = f"{rental.name} was rented with another key of Prime: this one cannot end it"
                raise HudUsage(what, "set PRIME_API_KEY to the one that it was rented with")
        stamp = rental.ended_at or self._now()
        ended = write_rental(self._state, rental, ended_at=stamp, why=why)
        forget_pod(self._state / REMOTES, rental.id)
        past = (await self._past()).get(rental.id)
        if past is not None:
            self._ended(ended, past)
        return find_rental(read_rentals(self._state), rental.name)


def _asked(rental: Rental, pods: Iterable[Pod], taken: Collection[str]) -> list[Pod]:
    """The pods of a request that belong to no rental yet, by the random part of its name: a name
    alone may be a colleague's."""
    if not rental.asked:
        return []
    return [pod for pod in pods if pod.name == rental.asked and pod.id not in taken]


def check_name(name: str) -> None:
    """Raises HudUsage if it is not a valid name of a pod."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits and dashes, 63 at most, at least one letter"
        raise HudUsage(f"not a pod's name: {one_line(name, 80)}", hint)


KEYS_AT = "https://app.primeintellect.ai/dashboard/tokens"


async def check_key(prime: Prime, key: str) -> str:
    """Check the ssh key that a pod will need, before anything costs money. Returns a warning if
    Prime does not report which keys it knows; else empty. Raises HudUsage: ssh cannot use the key,
    or Prime does not know its public half."""
    public = await read_public_key(key)
    try:
        public_keys = await prime.ssh_keys()
    except HudRefused as error:
        if error.status not in (403, 404, 405):
            raise
        return f"Prime does not say whether it knows {key}: it must, or ssh will not get in"
    if public not in {" ".join(line.split()[:2]) for line in public_keys}:
        hint = f"add it there, or -i another: {KEYS_AT}; it is: {public}"
        raise HudUsage(f"Prime does not know the public half of {one_line(key, 200)}", hint)
    return ""


class PodFailed(HudError):
    """A rented pod cannot be used; it costs money until it is terminated."""

    kind = "pod_failed"

    def __init__(self, rental: Rental, why: str, ended: bool = False) -> None:
        """`ended`: whether it was terminated."""
        hint = f"it still costs money: hud-tui pods terminate {rental.name}"
        hint = "look again: hud-tui pods" if ended else hint
        super().__init__(f"{rental.name}: {why}", hint)
        self.rental = rental


def find_rental(rentals: Iterable[Rental], name: str) -> Rental:
    """A rental by name, id, or a prefix of either. Raises HudUsage if none or several match."""
    listed = list(rentals)
    exact = [rental for rental in listed if name in (rental.name, rental.id)]
    matches = exact or [
        rental for rental in listed if rental.name.startswith(name) or rental.id.startswith(name)
    ]
    if len(matches) != 1 or not name:
        shown = ", ".join(rental.name for rental in (matches or listed)[-10:]) or "none"
        what = "several pods" if matches else "no pod"
        raise HudUsage(f"{what} named {one_line(name, 60)}", f"known: {shown}")
    return matches[0]


def totals(rentals: Sequence[Rental], now: float) -> dict[str, float]:
    """Dollars: spent on running pods, per hour now, and spent on all pods rented from this
    machine."""
    running = [rental for rental in rentals if rental.runs]
    return {
        "running": round(sum(rental.spent(now) for rental in running), 2),
        "per_hour": round(sum(rental.price_hr for rental in running), 2),
        "all": round(sum(rental.spent(now) for rental in rentals), 2),
    }
