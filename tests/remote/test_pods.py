"""Renting machines from Prime: once, within a budget, and never left running unsaid."""

import asyncio
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hud_tui.cli.main import main
from hud_tui.errors import HudUsage
from hud_tui.remote.engines import Engine, free_port
from hud_tui.remote.machines import Machines
from hud_tui.remote.pods import IMAGE, Filter, choose_image, find_rental, is_gpu, is_in, read_gpus
from hud_tui.remote.prime import Offer, PodStatus, Prime, read_prime
from hud_tui.service_file import Rental, read_rentals, write_rental
from tests import prime_server
from tests.prime_server import PrimeServer, offer
from tests.remote.conftest import OFFERS
from tests.remote.far import Far
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near")
RENT = ("pods", "create", "--gpus", "2xH100", "--bare", "-y")


def before(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Let something happen at Prime before each call of this name."""
    known = getattr(Prime, name)

    async def called(self: Prime, *given: Any) -> Any:
        act()
        return await known(self, *given)

    monkeypatch.setattr(Prime, name, called)


# What can be rented.


async def test_offers_cheapest_first(hud: Command, prime: PrimeServer, state: Path) -> None:
    found = await hud("pods", "--gpus", "2xH100")
    assert found.kind == "offers"
    prices = [(offer["price_hr"], offer["provider"]) for offer in found.data["offers"]]
    assert prices == [(2.1, "runpod"), (4.2, "datacrunch"), (5.0, "hyperstack")]
    for flags, left in (
        (("--no-spot",), 2),
        (("--spot",), 1),
        (("--max-price", "4.5"), 2),
        (("--provider", "hyperstack"), 1),
        (("--disk", "2000"), 0),
    ):
        assert len((await hud("pods", "--gpus", "2xH100", *flags)).data["offers"]) == left
    with_disk = await hud("pods", "available", "--gpus", "2xH100", "--disk", "700", "--no-spot")
    assert with_disk.data["offers"][0]["price_hr"] == pytest.approx(4.7)
    assert len((await hud("pods")).data["offers"]) == len(OFFERS) - 1
    prime.offers = [offer("H100_80GB", 1, 1 + n / 1000, f"p{n}") for n in range(250)]
    prime.clusters = [offer("H100_80GB", 16, 40.0)]
    assert len((await hud("pods")).data["offers"]) == 251, "of every page"


ODD_OFFERS: list[tuple[dict[str, Any], str]] = [
    ({"gpuMemory": None}, "gpuMemory: "),
    ({"cloudId": 7}, "cloudId: "),
    ({"disk": []}, "disk: "),
    ({"prices": {"onDemand": "free"}}, "prices.onDemand: "),
    ({"prices": {"onDemand": -1}}, "prices.onDemand: "),
    ({"prices": {"onDemand": 1e308}}, "prices.onDemand: "),
    ({"prices": {"onDemand": 1.0, "currency": "JPY"}}, "prices.currency: "),
]


async def test_an_odd_offer_hides_no_other_and_is_told(
    hud: Command, pod: PrimeServer, state: Path
) -> None:
    usual = pod.offers[0]
    for odd, said in ODD_OFFERS:
        pod.offers[0] = {**usual, **odd}
        answer = await hud("pods", "--gpus", "2xH100")
        assert [offer["provider"] for offer in answer.data["offers"]] == ["runpod", "datacrunch"], (
            odd
        )
        [why] = answer.data["unread"]
        assert why.startswith(said)
        assert f"1 offer could not be read: {said}" in answer.err
    assert f"1 offer could not be read: {said}" in (await hud(*RENT, "--dry-run")).err
    assert (await hud(*RENT)).code == 0


async def test_what_a_price_leaves_out_is_in_what_is_said(
    hud: Command, pod: PrimeServer, state: Path
) -> None:
    """An example of Prime's API has a disk of 80 GB that its price does not include."""
    apart = {"defaultCount": 80, "pricePerUnit": 0.01, "defaultIncludedInPrice": False}
    beside = {"disk": apart, "vcpu": apart, "prices": {"onDemand": 1.0}}
    pod.offers = [{**pod.offers[0], **beside}]
    for flags, disk in ((), 80), (("--disk", "100"), 100):
        [priced] = (await hud("pods", "--gpus", "2xH100", *flags)).data["offers"]
        assert priced["price_hr"] == pytest.approx(1.0 + disk * 0.01 + 80 * 0.01)
    pod.offers[0]["prepaidTime"] = 24
    said = await hud("pods", "create", "--gpus", "2xH100", "--hours", "2", "--dry-run")
    assert "costs   $2.60 per hour; at most $62.40" in said.err
    assert "the provider bills 24 h in advance: $62.40" in said.err
    assert said.data["most"] == pytest.approx(62.4)
    pod.offers[0]["prepaidTime"] = 10**400
    assert "prepaidTime" in (await hud("pods")).data["unread"][0]


async def test_odd_offers_of_every_page_are_counted(
    hud: Command, prime: PrimeServer, state: Path
) -> None:
    prime.offers = [offer("H100_80GB", 1, 1 + n / 1000, f"p{n}") for n in range(250)]
    prime.offers[3]["gpuCount"] = prime.offers[120]["cloudId"] = None
    found = await hud("pods")
    assert len(found.data["offers"]) == 248
    assert "2 offers could not be read: gpuCount: " in found.err


async def test_what_costs_nothing_is_not_rented(
    hud: Command, pod: PrimeServer, state: Path
) -> None:
    """A price of 0 is one that is not said."""
    pod.offers = [offer("H100_80GB", 2, 0.0)]
    assert [offer["price_hr"] for offer in (await hud("pods")).data["offers"]] == [None]
    assert "does not say what it costs" in (await hud(*RENT)).error["message"]
    assert pod.created == []


def test_which_gpu_is_meant_and_how_many() -> None:
    for wanted, offered, same in (
        ("h100", "H100_80GB", True),
        ("H100_80GB", "H100_80GB", True),
        ("h100 80gb", "H100_80GB", True),
        ("H100", "GH200_96GB", False),
        ("A100", "RTX_A100", True),
        ("RTX4090", "RTX4090_24GB", True),
        ("", "anything", True),
    ):
        assert is_gpu(wanted, offered) is same, wanted
    written = {"2xH100": (2, "H100"), "8×A100_80GB": (8, "A100_80GB"), "A100": (None, "A100")}
    assert {text: read_gpus(text) for text in written} == written
    with pytest.raises(HudUsage, match="not GPUs"):
        read_gpus("two!")


@pytest.mark.parametrize(
    ("images", "name", "chosen"),
    [
        (None, "", IMAGE),
        ([], "mine", "mine"),
        (["cuda_13", IMAGE], "", IMAGE),
        (["plain", "cuda_12_4"], "", "cuda_12_4"),
        (["plain", "bare"], "", "plain"),
        (["plain", "bare"], "bare", "bare"),
    ],
)
def test_the_image_that_a_machine_starts_with(
    images: list[str] | None, name: str, chosen: str
) -> None:
    some = Offer.model_validate(offer("H100_80GB", 1, 1.0, images=images))
    assert choose_image(some, name) == chosen
    if images:
        with pytest.raises(HudUsage, match="no image windows"):
            choose_image(some, "windows")


# Renting, once.


async def test_rent_set_up_use_up_and_terminate(
    hud: Command, pod: PrimeServer, machines: Machines, far: Far, light: Engine
) -> None:
    flags = ("--no-spot", "--max-price", "6", "--hours", "3", "--engine", "hud-tui")
    made = await hud(*RENT[:4], "-y", *flags, "--env", sys.prefix)
    assert made.code == 0, made.err
    assert "costs   $4.20 per hour; at most $12.60" in made.err
    [body] = pod.created
    assert (body.pod.cloudId, body.provider.type) == ("2H100_80GB-datacrunch", "datacrunch")
    assert (body.pod.image, body.pod.maxPrice) == ("ubuntu_22_cuda_12", 4.2), "what was shown"
    name = str(body.pod.name)
    assert (made.data["name"], made.data["ready"], made.data["pod"]) == (name, True, "pod0001")
    budget = (far.home / ".hud-tui/watcher/budget").read_text()
    assert "POD=pod0001" in budget
    [known] = (await hud("pods", "list")).data["pods"]
    assert (known["name"], known["most"], known["runs"]) == (name, 12.6, True)
    assert 0 <= known["spent"] < 1
    status = await hud("pods", "status", name[:8])
    assert status.data["prime"]["status"] == "ACTIVE"
    assert (await hud("pods", "log", name)).data["lines"]
    refused = await hud("remote", "remove", name, "-y")
    assert f"hud-tui pods terminate {name}" in refused.error["hint"]
    assert f"rented and costing money: {name}" in (await hud("remote")).err
    ended = await hud("pods", "terminate", name, "-y")
    assert (ended.data["runs"], ended.data["billed"], ended.data["spent"]) == (False, 0.42, 0.42)
    assert (pod.pods, machines.names()) == ({}, [])
    assert "costing money" not in (await hud("remote")).err
    assert (await hud("pods", "terminate", name, "-y")).code == 0, "it can be repeated"


async def test_a_lost_answer_is_looked_up_by_name(
    hud: Command, pod: PrimeServer, machines: Machines
) -> None:
    pod.lost = 1
    made = await hud(*RENT)
    assert made.code == 0, made.err
    assert len(pod.created) == len(pod.pods) == 1
    assert [rental.id for rental in read_rentals(machines.state)] == ["pod0001"]


async def test_a_pod_that_turns_up_later(hud: Command, pod: PrimeServer, state: Path) -> None:
    """The answer is lost, and lists lag behind: it is not asked for again."""
    pod.lost = 1
    for _ in range(60):
        pod.refuse("GET /pods", 400)
    made = await hud(*RENT)
    assert (made.code, made.error["type"], made.error["outcome"]) == (7, "unclear", "unknown")
    assert "hud-tui pods list" in made.error["hint"]
    pod.statuses.clear()
    listed = await hud("pods", "list")
    assert [(pod["id"], pod["runs"]) for pod in listed.data["pods"]] == [("pod0001", True)]
    assert len(pod.created) == 1


async def test_a_request_that_never_arrived(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.dropped = 1
    assert (await hud(*RENT)).code == 7
    assert (await hud("pods", "list")).data["pods"][0]["runs"]
    for name in ("FORGET_S", "MISSING_S", "MISSES"):
        monkeypatch.setattr(f"hud_tui.remote.pods.{name}", 0)
    [gone] = (await hud("pods", "list")).data["pods"]
    assert (gone["runs"], gone["spent"], gone["why"]) == (False, 0, "Prime never heard of it")
    assert pod.created == []


async def test_a_price_that_rises_between_list_and_rental(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = iter((4.2, 5.2))
    before(monkeypatch, "offers", lambda: pod.offers[1]["prices"].update(onDemand=next(prices)))
    refused = await hud(*RENT, "--no-spot")
    assert (refused.code, refused.error["type"]) == (2, "usage")
    assert "risen from $4.20 to $5.20 per hour; nothing was rented" in refused.error["message"]
    assert pod.created == []
    assert read_rentals(state) == []


async def test_a_price_that_rises_as_it_is_rented(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the second look: Prime is told what was shown, and refuses."""

    def dearer() -> None:
        for one in pod.offers:
            one["prices"]["onDemand"] += 1

    before(monkeypatch, "create", dearer)
    refused = await hud(*RENT)
    assert (refused.code, refused.error["status"]) == (1, 422)
    assert "pod.maxPrice: too dear" in refused.error["message"]
    assert [rental.runs for rental in read_rentals(state)] == [False]
    assert pod.created == []


async def test_a_price_that_is_not_the_one_that_was_shown(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = prime_server._pod
    monkeypatch.setattr(prime_server, "_pod", lambda *given: known(*given) | {"priceHr": 3.5})
    for each in pod.offers:
        each["prepaidTime"] = 24
    made = await hud(*RENT)
    assert "costs $3.50 per hour, not $2.10 as shown" in made.err
    assert "for $84.00 at most" in made.err, "what is billed in advance, too"


async def test_a_pod_that_vanishes_while_it_starts(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, "status", pod.pods.clear)
    monkeypatch.setattr("hud_tui.remote.pods.NEW_S", 0.0)
    failed = await hud(*RENT)
    assert (failed.code, failed.error["type"]) == (1, "pod_failed")
    assert "Prime no longer has it" in failed.error["message"]
    assert not (await hud("pods", "list")).data["pods"][0]["runs"]


async def test_a_pod_whose_ssh_refuses_is_waited_for_and_says_why(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.ssh = f"nobody@127.0.0.1 -p {free_port()}"
    looks, hours = itertools.count(), itertools.count(monotonic(), 3600.0)

    def waited_for() -> None:
        if next(looks) > pod.polls:  # the one before found it ready, and ssh refused
            monkeypatch.setattr("hud_tui.patience.monotonic", lambda: next(hours))

    before(monkeypatch, "status", waited_for)
    failed = await hud(*RENT)
    assert (failed.code, failed.error["type"]) == (1, "pod_failed")
    assert "ACTIVE, 100 % installed, nobody@127.0.0.1" in failed.err
    assert "Connection refused" in failed.err
    assert f"go on: hud-tui pods setup {read_rentals(state)[0].name}" in failed.error["hint"]


REFUSALS: list[tuple[int, Any, int, str]] = [
    (401, "Invalid token", 4, "prime login"),
    (402, "Insufficient balance", 1, "billing"),
    (422, [{"loc": ["body", "pod", "diskSize"], "msg": "too small"}], 1, "hud-tui pods"),
    (429, "slow down", 1, "try again"),
]


async def test_a_rental_that_is_refused(hud: Command, pod: PrimeServer, state: Path) -> None:
    for count, (status, detail, code, said) in enumerate(REFUSALS, 1):
        pod.refuse("POST /pods", status, detail)
        refused = await hud(*RENT, "--name", f"pod-{count}")
        assert (refused.code, refused.error["status"]) == (code, status)
        assert said in refused.error["hint"]
        shown = "pod.diskSize: too small" if status == 422 else detail
        assert shown in refused.error["message"]
        assert [rental.runs for rental in read_rentals(state)] == [False] * count
    assert pod.created == []


async def test_reads_are_tried_again(hud: Command, pod: PrimeServer, state: Path) -> None:
    pod.refuse("GET /availability/gpus", 429, **{"retry-after": "0"})
    pod.refuse("GET /availability/gpus", 503)
    assert (await hud("pods")).code == 0
    pod.refuse("GET /availability/gpus", 401)
    assert (await hud("pods")).code == 4


async def test_a_pod_that_fails_to_install(hud: Command, pod: PrimeServer, state: Path) -> None:
    pod.failure = "no drivers\x1b[2J"
    failed = await hud(*RENT)
    assert (failed.code, failed.error["type"]) == (1, "pod_failed")
    assert "its installation failed: no drivers␛[2J" in failed.error["message"]
    [rental] = read_rentals(state)
    assert rental.runs
    assert f"hud-tui pods terminate {rental.name}" in failed.error["hint"]


async def test_a_set_up_that_fails_says_what_still_costs(
    hud: Command, pod: PrimeServer, state: Path
) -> None:
    failed = await hud(*RENT[:4], "-y", "--engine", "hud-tui", "--env", "/tmp")
    assert failed.error["type"] == "script_failed"
    assert "runs and costs $2.10 per hour: hud-tui pods terminate" in failed.error["hint"]
    assert "is not installed in" in failed.err  # the end of its log
    unfit = await hud(*RENT[:4], "--name", "other", "--engine", "skyrl-gpu", "-y")
    assert "needs an NVIDIA GPU" in unfit.error["message"]
    assert "runs and costs $2.10 per hour: hud-tui pods terminate other" in unfit.error["hint"]


async def test_a_pod_that_vanishes(hud: Command, pod: PrimeServer, state: Path) -> None:
    assert (await hud(*RENT)).code == 0
    pod.end(pod.pods.pop("pod0001"), 1.5)
    [gone] = (await hud("pods", "list")).data["pods"]
    assert (gone["runs"], gone["spent"], gone["why"]) == (False, 1.5, "it is no longer there")


async def test_a_pod_is_listed_protected_and_ended_by_its_name(
    hud: Command, pod: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hud(*RENT)).code == 0
    [rental] = read_rentals(state)
    kept = pod.pods.pop("pod0001")
    [new] = (await hud("pods", "list")).data["pods"]
    assert new["runs"], "Prime may not know a new one yet"
    monkeypatch.setattr("hud_tui.remote.pods.NEW_S", 0.0)
    [gone] = (await hud("pods", "list")).data["pods"]
    assert not gone["runs"]
    pod.pods["pod0001"] = kept  # half an answer has no say over what is paid for
    [back] = (await hud("pods", "list")).data["pods"]
    assert (back["runs"], back["why"]) == (True, "")
    file = state / "remotes/rentals.json"
    written = file.read_text()
    file.unlink()
    listed = await hud("pods", "list")
    assert [one["id"] for one in listed.data["others"]] == ["pod0001"], "what others rented"
    file.write_text(written)
    assert (await hud("pods", "protect", rental.name)).data["protected"]
    refused = await hud("pods", "terminate", rental.name, "-y")
    assert (refused.code, refused.error["type"]) == (2, "protected")
    assert pod.pods
    pod.lost = 1
    end = ("pods", "terminate", rental.name, "-y", "--confirm", rental.name)
    unclear = await hud(*end)
    assert (unclear.code, unclear.error["outcome"]) == (7, "unknown")
    again = await hud(*end)
    assert (again.code, again.data["runs"]) == (0, False)
    assert not pod.pods


UNFIT = {
    "which GPUs": ("--gpus", "H100"),
    "nothing to be rented fits": ("--gpus", "2xB900"),
    "nothing to be rented fits ": ("--gpus", "2xH100", "--max-price", "1"),
    "more than 0": ("--gpus", "2xH100", "--hours", "0"),
    "not be less than 0": ("--gpus", "2xH100", "--idle", "-5"),
    "a year at most": ("--gpus", "2xH100", "--hours", "8785"),
    "of a year at most": ("--gpus", "2xH100", "--idle", "527041"),
    "no image windows": ("--gpus", "2xH100", "--image", "windows"),
    "no engine named": ("--gpus", "2xH100", "--engine", "nope"),
}


async def test_what_cannot_be_rented_or_without_consent(
    hud: Command, prime: PrimeServer, state: Path
) -> None:
    for said, flags in UNFIT.items():
        refused = await hud("pods", "create", "-y", *flags)
        assert refused.code == 2
        assert said.strip() in refused.error["message"]
    assert (await hud(*RENT[:-1])).error["hint"] == "add -y"
    assert (await hud("--read-only", *RENT)).error["type"] == "read_only"
    assert prime.created == []


async def test_people_get_a_table(
    prime: PrimeServer, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["pods", "--gpus", "2xH100"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["2.10", "2×H100_80GB", "runpod"]
    assert await asyncio.to_thread(main, ["pods", "list"]) == 0
    assert capsys.readouterr().out.startswith("nothing is rented, and nothing was")
    argv = ["pods", "--gpus", "2xH100", "--max-price", "1", "--provider", "hyperstack"]
    assert await asyncio.to_thread(main, argv) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "nothing that can be rented matches",
        "without --max-price: 1 offer, from $5.00 per hour (2×H100_80GB)",
    ]


async def test_a_type_that_nobody_offers_is_said_with_those_there_are(
    hud: Command, prime: PrimeServer, state: Path
) -> None:
    for gpus in ("1xH200", "foo"):
        found = await hud("pods", "--gpus", gpus)
        asked = gpus.removeprefix("1x")
        said = f"no {asked} fits; types that there are: A100_80GB, GH200_96GB, H100_80GB"
        assert found.data["advice"] == [said]


def test_confirm_is_only_where_something_is_protected(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("pods", "terminate"), "name of a protected pod"),
        (("pods", "create"), ""),
        (("remote", "add"), ""),
    ):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        helped = " ".join(capsys.readouterr().out.split())
        assert ("--confirm" in helped) is bool(said)
        assert said in helped


async def test_regions_are_looked_at_here_too(
    hud: Command, prime: PrimeServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prime.offers[0]["country"] = "US"
    flags = ("pods", "--gpus", "2xH100", "--no-spot")
    found = await hud(*flags, "--region", "united_states")
    assert [offer["provider"] for offer in found.data["offers"]] == ["hyperstack"]
    monkeypatch.setattr("tests.prime_server.REGIONS", {"united_states": {"US", "FI"}})
    found = await hud(*flags, "--region", "united_states")
    assert [offer["provider"] for offer in found.data["offers"]] == ["hyperstack"]
    found = await hud(*flags, "--region", "fi")
    assert [offer["provider"] for offer in found.data["offers"]] == ["datacrunch"]
    refused = await hud(*flags, "--region", "atlantis")
    assert (refused.error["status"], "not a region" in refused.error["message"]) == (422, True)
    none = await hud(*flags, "--region", "NO")
    assert none.data["advice"] == ["without --region: 2 offers, from $4.20 per hour (2×H100_80GB)"]


def test_countries_of_regions() -> None:
    for country, region, inside in (
        ("FI", "eu_north", True),
        ("FI", "europe_west", True),
        ("FI", "united_states", False),
        ("US", "united_states", True),
        ("IN", "asia_south", True),
        (None, "canada", True),  # Prime has looked
        ("FI", "atlantis", True),
        (None, "FI", False),
    ):
        assert is_in(country, region) is inside, (country, region)
    some = Offer.model_validate(offer("H100_80GB", 1, 1.0))
    for regions, taken in ((("us", "fi"), True), (("us", "no"), False), ((), True)):
        assert Filter(regions=regions).takes(some) is taken


# Small things.


def test_settings_as_the_prime_cli_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".prime").mkdir()
    (tmp_path / ".prime/config.json").write_text(
        json.dumps({"api_key": "k", "team_id": "t", "ssh_key_path": "~/.ssh/p"})
    )
    found = read_prime({"PRIME_API_BASE_URL": "https://x.example/api/v1/"})
    assert (found.url, found.key, found.team) == ("https://x.example/api/v1", "k", "t")
    assert found.ssh_key == "~/.ssh/p"
    assert "'k'" not in repr(found)
    for url in ("http://x.example", "https://[", "x.example"):
        with pytest.raises(HudUsage, match="not an https URL"):
            read_prime({"PRIME_API_BASE_URL": url})


@pytest.mark.parametrize(
    ("connection", "first"),
    [("a -p 1", "a -p 1"), (["a -p 1", "b -p 2"], "a -p 1"), ([None], None), ([], None)],
)
def test_connections_of_one_node_and_of_several(connection: Any, first: str | None) -> None:
    given = {"podId": "p", "status": "ACTIVE", "sshConnection": connection}
    assert PodStatus.model_validate(given).ssh_connection == first


def test_pods_by_name_id_and_beginning(tmp_path: Path) -> None:
    both = [Rental("hud-a-1", "x1"), Rental("hud-a-2", "x2")]
    assert find_rental(both, "x2") is find_rental(both, "hud-a-2") is both[1]
    for rentals, name, what, hint in (
        (both, "hud-a", "several pods named hud-a", "known: hud-a-1, hud-a-2"),
        (both, "hud-a-2x", "no pod named hud-a-2x", "known: hud-a-1, hud-a-2"),
        (both[:1], "", "several pods named ", "known: hud-a-1"),
        ([], "x1", "no pod named x1", "known: none"),
    ):
        with pytest.raises(HudUsage) as refused:
            find_rental(rentals, name)
        assert (refused.value.message, refused.value.hint) == (what, hint)
    write_rental(tmp_path, both[0])
    write_rental(tmp_path, replace(both[0], why="changed"))
    assert [rental.why for rental in read_rentals(tmp_path)] == ["changed"]
    (tmp_path / "remotes/rentals.json").write_text("{")
    with pytest.raises(HudUsage, match="not a list of rentals"):
        read_rentals(tmp_path)
