"""``run --gpus``: one plan of three parts, gone on with wherever it was cut."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hud_tui.cli import rent_run
from hud_tui.cli.main import main
from hud_tui.client.client import HudClient
from hud_tui.client.run_calls import RunCalls
from hud_tui.remote import keeper
from hud_tui.remote.engines import FIRST_MODEL, SMALL_MODEL
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.pods import Pods, RentalRequest, check_name, find_rental
from hud_tui.remote.prime import Offer, Prime
from hud_tui.remote.rent_plan import RentFacts, RentPlan, installed, plan_name, plan_rental
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address
from hud_tui.service_file import Rental, read_rentals, write_rental
from hud_tui.storage import held
from tests.prime_server import PrimeServer, offer
from tests.remote.test_renting import cut
from tests.service.headless import Command
from tests.service.test_gym_run import put_tasks
from tests.unit.legacy.test_gym_served import GAME

RUN = ("run", "arith", "-m", "there", "--gpus", "2xH100", "--max-price", "6", "--no-spot")
THERE = ("--engine", "hud-tui", "--base", "tiny/arith-0.2M", "--steps", "1")
pytestmark = pytest.mark.usefixtures("near")


@pytest.fixture
async def plan(
    hud: Command, pod: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PrimeServer]:
    """Every pod has this Python; nothing of a plan outlives the test."""
    made = rent_run._pod_flags

    def with_python(args: argparse.Namespace, name: str) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(made(args, name)), "env": sys.prefix})

    monkeypatch.setattr(rent_run, "_pod_flags", with_python)
    yield pod
    for machine in machines.all():
        machines.use(None)
        await keeper.end(machines, machine.name)
        setup = Setup(machines, machine)
        await setup.stop()
        await setup.aclose()
    await hud("stop")


CUTS = (
    (Prime, "create", True),
    (Prime, "status", True),
    (Pods, "reach", True),
    (Setup, "port", False),
    (Setup, "run", True),
    (keeper, "use", False),
    (keeper, "use", True),
    (HudClient, "fork", True),
    (RunCalls, "submit", True),
)
"""What is called as a plan is cut, in the order of its parts, and whether it is done first."""


async def test_a_plan_that_is_cut_at_every_part_rents_one_pod_and_begins_one_run(
    hud: Command, plan: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, after in CUTS:
        await cut(monkeypatch, owner, name, after, hud(*RUN, *THERE, "-y"))
    done = await hud(*RUN, *THERE, "-y", "--follow")
    assert (done.code, done.kind, done.data["reason"]) == (0, "watch", "done"), done.err
    once = await hud(*RUN, *THERE, "-y")
    jobs = (await hud("--local", "jobs")).data["jobs"]
    assert [job["id"] for job in jobs] == [once.data["job_id"]]
    assert len(plan.created) == 1
    [rental] = read_rentals(machines.state)
    assert (rental.done, rental.max_price, rental.hours, rental.dollars) == (True, 6.0, 4.0, 16.8)
    assert machines.used() == rental.name


async def test_a_dry_run_says_the_three_parts_with_their_costs(
    hud: Command, plan: PrimeServer, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    done = await hud(*RUN, *THERE, "--dry-run")
    assert (done.code, done.kind, done.data["next"]) == (0, "plan", "rent")
    assert (done.data["price_hr"], done.data["most"]) == (4.2, 16.8)
    said = {part["part"]: "\n".join(part["lines"]) for part in done.data["parts"]}
    assert list(said) == ["rent", "set up", "run"]
    assert "ends    after 4 h, or after 60 min without use" in said["rent"]
    assert "5 to 20 min until it answers: $0.35 to $1.40" in said["set up"]
    assert "then $0.07 for each minute" in said["set up"]
    assert "model   there, forked there" in said["run"]
    assert "steps   1" in said["run"]
    assert "costs   the hours that are left; $16.80 at most for all three" in said["run"]
    assert "costs   $4.20 per hour; at most $16.80" in said["rent"]
    assert await asyncio.to_thread(main, [*RUN, *THERE, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line[:1] != " "] == ["rent", "set up", "run"]
    assert "nothing was rented" in err
    assert (plan.created, read_rentals(machines.state)) == ([], [])


async def test_what_is_wrong_is_said_before_anything_is_rented(
    hud: Command, plan: PrimeServer, tmp_path: Path
) -> None:
    (tmp_path / "tasks.json").write_text('[{"env": "nowhere", "id": "a", "args": {}}]')
    (tmp_path / "c.yaml").write_text("rubric: {weights: {luck: 1}}")
    tasks = ("run", "tasks.json", *RUN[2:])
    for words, message in (
        (("run", "arith", "--gpus", "H100", "-m", "a"), "which GPUs, and how many?"),
        (("run", "arith", "--gpus", "2xH100"), "name the model that is trained there"),
        (("run", "arith", "--max-price", "6"), "--max-price is of a machine that is rented"),
        (("run", "arith", "-o", "x"), "--output is of an environment"),
        ((*RUN, "--lr", "1e-4,3e-4"), "--gpus takes one value of learning_rate"),
        ((*RUN, "--steps", "0"), "steps"),
        ((*RUN, "--engine", "warp"), "no engine named 'warp'"),
        ((*RUN, "--engine", "hud-tui"), "hud-tui has several bases"),
        ((*RUN, "--send", "HOME"), "HOME is not sent"),
        ((*RUN, "--provider", "nobody"), "nothing to be rented fits"),
        ((*tasks, "--config", "c.yaml"), "c.yaml line 1: field rubric.weights.luck"),
    ):
        refused = await hud(*words, "-y")
        assert (refused.code, message in refused.error["message"]) == (2, True), refused.error
    failed = await hud(*tasks, "-y")
    assert (failed.code, failed.kind, failed.data["verdict"]) == (5, "preflight", "failure")
    assert "needs confirmation" in (await hud(*RUN)).error["message"]
    assert (await hud("--read-only", *RUN, "-y")).error["type"] == "read_only"
    assert plan.created == []


async def test_one_that_prime_never_heard_of_is_looked_for_and_then_begun_again(
    hud: Command, plan: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cut(monkeypatch, Prime, "create", False, hud(*RUN, *THERE, "-y"))
    unclear = await hud(*RUN, *THERE, "-y")
    assert (unclear.code, unclear.error["type"]) == (7, "unclear")
    assert unclear.error["hint"].endswith("the same command goes on with it")
    for name in ("FORGET_S", "MISSING_S", "MISSES"):
        monkeypatch.setattr(f"hud_tui.remote.pods.{name}", 0)
    gone = await hud(*RUN, *THERE, "-y")
    assert "was not rented: Prime never heard of it" in gone.error["message"]
    await cut(monkeypatch, Prime, "status", True, hud(*RUN, *THERE, "-y"))
    assert len(plan.created) == 1
    assert [rental.runs for rental in read_rentals(machines.state)] == [False, True]


async def test_one_whose_pod_has_ended_says_so(
    hud: Command, plan: PrimeServer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(*given: Any, **named: Any) -> int:
        [rental] = read_rentals(machines.state)
        write_rental(machines.state, rental, ended_at=rental.at, why="its hours are spent")
        return 0

    monkeypatch.setattr(rent_run, "carry_on", ends)
    done = await hud(*RUN, *THERE, "-y")
    assert done.error["message"].endswith(" has ended: its hours are spent")
    assert "begins again, with another pod" in done.error["hint"]


async def test_a_second_program_waits_for_the_first(
    hud: Command, plan: PrimeServer, machines: Machines
) -> None:
    machines.folder.mkdir(parents=True)
    beginning = plan_name("there", 2, "H100").rpartition("-")[0]
    with held(machines.folder / f"{beginning}.lock"):
        refused = await hud(*RUN, *THERE, "-y")
    assert "another hud-tui is at work on this plan" in refused.error["message"]
    assert plan.created == []


async def test_a_configuration_is_checked_first_and_trained_on_there(
    hud: Command,
    plan: PrimeServer,
    machines: Machines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "c.yaml").write_text(GAME)
    put_tasks(tmp_path)
    calls: list[argparse.Namespace] = []

    async def run_config(client: HudClient, args: argparse.Namespace) -> int:
        calls.append(args)
        return 0

    def is_set_up(self: Any, name: str) -> RentFacts:
        return RentFacts(find_rental(read_rentals(machines.state), name), True, True)

    monkeypatch.setattr(rent_run, "run_config", run_config)
    monkeypatch.setattr(rent_run._RentedRun, "_facts", is_set_up)
    pod = Machine("pod", Address("far"), "hud-tui")
    monkeypatch.setattr(Machines, "get", lambda self, name: pod)
    words = ("run", "tasks.json", *RUN[2:], "--base", "tiny/arith-0.2M", "--config", "c.yaml")
    done = await hud(*words, "-y")
    assert (done.code, done.kind) == (0, "model"), done.err
    [_, _, ran] = done.documents[0]["data"]["parts"]
    assert "actions left(), go(where, times, note)" in ran["lines"]
    [args] = calls
    assert (args.config, args.model, args.gpus, args.yes) == ("c.yaml", "there", None, True)


# The plan alone.


def test_what_is_next() -> None:
    facts = RentFacts()
    done = []
    for changes in (
        {"rental": Rental("a")},
        {"is_ready": True},
        {"is_used": True},
        {"job_id": "j"},
        {},
    ):
        done.append(RentPlan.next(facts))
        facts = replace(facts, **changes)  # type: ignore[arg-type]
    assert done == ["rent", "set up", "use", "run", "done"]


def test_a_plan_is_found_by_its_model_and_gpus_while_its_pod_runs() -> None:
    rentals = [Rental(plan_name("my_model", 2, "H100")) for _ in range(2)]
    assert plan_rental(rentals, "my_model", 2, "h100") == rentals[1]
    ended = replace(rentals[1], ended_at=1.0)
    assert plan_rental([rentals[0], ended], "my_model", 2, "H100") == rentals[0]
    for model, count, gpu in (
        ("my-model", 2, "H100"),
        ("my_model", 4, "H100"),
        ("my_model", 2, "A100"),
    ):
        assert plan_rental(rentals, model, count, gpu) is None
    check_name(plan_name("Ü" * 80, 16, "RTX PRO 6000 Blackwell"))


def test_engine_and_model_are_those_that_the_machine_will_choose() -> None:
    def chosen(gpu: str, count: int, memory: int, **more: str) -> tuple[str, str]:
        rented = Offer.model_validate(offer(gpu, count, 1.0, gpuMemory=memory))
        engine, model = installed(rented, more.get("engine", ""), more.get("base", ""))
        return engine.name, model

    assert chosen("H100_80GB", 2, 80) == ("skyrl-ray", FIRST_MODEL)
    assert chosen("RTX4090_24GB", 1, 24) == ("skyrl-gpu", SMALL_MODEL)
    assert chosen("H100_80GB", 1, 80, base="me/mine") == ("skyrl-gpu", "me/mine")
    assert chosen("H100_80GB", 1, 80, engine="hud-tui", base="tiny/x") == ("hud-tui", "")
    plan = RentPlan(RentalRequest(Offer.model_validate(offer("H100_80GB", 2, 4.2)), 4.2))
    said = dict(plan.parts)["set up"]
    assert f"model   {FIRST_MODEL}" in said
    assert f"to do   fetch {FIRST_MODEL} from the Hub" in said
