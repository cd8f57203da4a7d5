"""Host keys of pods: addresses are given to other pods, and keys are not."""

from pathlib import Path

import pytest

from hud_tui.remote.machines import Machines
from hud_tui.service_file import read_rentals
from tests.prime_server import PrimeServer
from tests.remote.far import Far
from tests.remote.test_pods import RENT
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("light")


def known(machines: Machines) -> list[str]:
    file: Path = machines.folder / "known_hosts"
    return [line.split()[0] for line in file.read_text().splitlines()]


async def test_a_new_pod_at_the_address_of_an_ended_one_is_reached(
    hud: Command, pod: PrimeServer, machines: Machines, far: Far
) -> None:
    first = await hud(*RENT, "--name", "one")
    assert first.code == 0, first.err
    assert known(machines) == ["pod-pod0001"]
    assert (await hud("pods", "terminate", "one", "-y")).code == 0
    assert known(machines) == []
    far.new_host_key()
    second = await hud(*RENT, "--name", "two")
    assert second.code == 0, second.err
    pod.pods.clear()  # it ended by itself
    far.new_host_key()
    third = await hud(*RENT, "--name", "three")
    assert third.code == 0, third.err
    await hud("pods", "terminate", "three", "-y")


async def test_how_a_changed_key_is_forgotten_is_said_with_what_it_costs(
    hud: Command, pod: PrimeServer, machines: Machines, far: Far
) -> None:
    assert (await hud(*RENT, "--name", "one")).code == 0
    far.new_host_key()
    for _ in range(2):
        refused = await hud("pods", "setup", "one", "-y")
        assert refused.error["type"] == "host_key"
        hint = refused.error["hint"]
        forget = f"ssh-keygen -f '{machines.folder}/known_hosts' -R 'pod-pod0001'"
        assert forget in hint.replace('"', "'"), "as ssh quotes it"
        assert "one runs and costs $2.10 per hour: hud-tui pods terminate one" in hint
    [rental] = read_rentals(machines.state)
    assert rental.runs
    await hud("pods", "terminate", "one", "-y")
    assert known(machines) == []
