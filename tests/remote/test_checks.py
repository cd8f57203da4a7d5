"""What ``hud-tui doctor`` says of machines."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import time

from hud_tui.processes import holding
from hud_tui.remote.checks import check_costs, check_keys, check_line, check_machines
from hud_tui.remote.engines import free_port
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.ssh import Address
from hud_tui.rl.findings import Finding
from hud_tui.service_file import BUDGET_LOCKS, Rental, keeper_lock, write_rental
from hud_tui.storage import held
from tests.remote.far import Far

BOX = Machine("box", Address("far"), "hud-tui", local_port=4711, done=("server", "health"))


def said(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.message) for finding in findings]


def test_machines_that_answer_and_those_that_do_not(machines: Machines, far: Far) -> None:
    machines.write(BOX)
    machines.write(replace(BOX, name="half", done=("folder",)))
    found = said(check_machines(machines))
    assert ("ok", "box · CPU answers, and is set up: hud-tui") in found
    assert ("warning", "half · CPU answers; its set-up is not complete") in found
    far.lead_to(free_port())
    found = said(check_machines(machines))
    assert [text for level, text in found if level == "warning" and "Connection refused" in text]


def test_keys_and_their_modes(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    key = tmp_path / "id"
    keyed = replace(BOX, address=Address("far", key=str(key)))
    assert f"box: no ssh key {key}" in said(check_keys(machines, keyed))[0][1]
    key.touch(0o644)
    [finding] = check_keys(machines, keyed)
    assert (finding.level, finding.fix) == ("failure", f"chmod 600 {key}")
    assert "open to others" in finding.message
    key.chmod(0o600)
    machines.key("box")
    assert list(check_keys(machines, keyed)) == []
    (machines.folder_of("box") / "key").chmod(0o644)
    assert "mode 0644" in said(check_keys(machines, keyed))[0][1]
    [(level, message)] = said(check_machines(Machines(tmp_path)))
    assert (level, message[:11]) == ("ok", "no machines")


def test_the_tunnel_of_the_machine_that_is_used(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    machines.write(BOX)
    assert list(check_line(machines, BOX)) == []
    machines.key("box")
    machines.use(BOX, "hud")
    assert "nothing keeps its tunnel" in said(check_line(machines, BOX))[0][1]
    line = {"pid": os.getpid(), "state": "up", "latency_s": 0.0234, "breaks": 2}
    machines.set_line("box", line)
    assert "nothing keeps its tunnel" in said(check_line(machines, BOX))[0][1], "an id is nothing"
    with holding(keeper_lock(tmp_path, "box")):
        assert said(check_line(machines, BOX)) == [
            ("ok", "box is used; its tunnel: up, 23 ms, 2 breaks")
        ]
        machines.set_line("box", {**line, "state": "broken", "why": "the line broke\x1b[2J"})
        [(level, message)] = said(check_line(machines, BOX))
    assert level == "warning"
    assert "the line broke␛[2J" in message


def test_what_costs_money(tmp_path: Path) -> None:
    now = time()
    rental = Rental("p", "pod1", "2×H100", price_hr=4.0, hours=2, at=now - 3600)
    write_rental(tmp_path, rental)
    write_rental(tmp_path, replace(rental, name="late", at=now - 3 * 3600))
    write_rental(tmp_path, replace(rental, name="lost", id=""))
    write_rental(tmp_path, replace(rental, name="over", ended_at=now))
    found = said(check_costs(tmp_path, now))
    assert any(
        text.startswith("p (2×H100) is rented: $4.00 per hour, $4.00 so far, until ")
        and text.endswith(", $8.00 at most; guarded by nothing")
        for _, text in found
    )
    assert any(
        level == "failure"
        and text.startswith("late (2×H100) is rented: $4.00 per hour, $12.00 so far, over its ")
        for level, text in found
    )
    assert ("warning", "lost: unknown whether it was rented") in found
    assert not [text for _, text in found if text.startswith("over")]
    assert ("warning", "p: not set up") in found
    assert ("warning", "no process here keeps the budget of what is rented") in found
    for why, level in (("", "ok"), ("Prime does not answer", "warning")):
        kept = {"at": now, "why": why, "lock": BUDGET_LOCKS[1]}
        (tmp_path / "remotes/budget.json").write_text(json.dumps(kept))
        with held(tmp_path / "remotes" / BUDGET_LOCKS[1]):
            [last] = said(check_costs(tmp_path, now))[-1:]
        assert last[0] == level
        assert why in last[1]
