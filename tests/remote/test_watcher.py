"""The watcher on a pod: what ends the pod, whatever clocks, kills and Prime's API do."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from hud_tui.remote import watcher
from hud_tui.remote.engines import Engine
from hud_tui.remote.ssh import Ssh
from hud_tui.remote.watcher import install_watcher, read_heartbeat
from tests.conftest import until
from tests.prime_server import KEY, PrimeServer
from tests.remote.far import Far
from tests.remote.test_commands import ADD
from tests.remote.test_pods import RENT
from tests.service.headless import Command

pytestmark = pytest.mark.usefixtures("near")
NOWHERE = "http://127.0.0.1:9"
LONG_S = 10**6


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, far: Far) -> None:
    """A heartbeat per second, and a machine that only notes that it is to shut down."""
    monkeypatch.setattr(watcher, "EVERY_S", 1)
    far.tool("shutdown", 'echo "$@" >> "$HOME/shut"')


def files(far: Far) -> Path:
    return far.home / ".hud-tui/watcher"


async def is_shut(far: Far) -> None:
    await until(lambda: (far.home / "shut").exists() and bool((far.home / "shut").read_text()))
    assert (far.home / "shut").read_text().splitlines()[0] == "-h now"


async def killed(far: Far, ssh: Ssh) -> None:
    """Kill it as nobody can prevent, and wait until its heartbeat is old."""
    owner = int((files(far) / "owner").read_text().split()[0])
    await ssh.check(f"kill -{signal.SIGKILL:d} {owner}")
    await until(lambda: age_s(far) >= watcher.MISSED)
    heartbeat = await read_heartbeat(ssh)
    assert heartbeat is not None
    assert not heartbeat.alive


def age_s(far: Far) -> float:
    """Seconds since the last heartbeat: the far machine's uptime is this machine's."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - int((files(far) / "heartbeat").read_text().split()[2])


async def test_a_pod_ends_itself_after_its_hours(far: Far, ssh: Ssh) -> None:
    await install_watcher(ssh, "pod1", 1.0, LONG_S, NOWHERE)
    await is_shut(far)
    assert "its hours are spent" in (files(far) / "log").read_text()
    heartbeat = await read_heartbeat(ssh)
    assert heartbeat is not None
    assert (heartbeat.does, heartbeat.left_s <= 0) == ("ending: its hours are spent", True)


@pytest.mark.parametrize("root", ["", "disk"])
async def test_a_pod_that_is_not_used_ends_itself(
    hud: Command, far: Far, ssh: Ssh, light: Engine, root: str
) -> None:
    """Signs of use count wherever the machine's root is."""
    where = ("--root", str(far.place / root)) if root else ()
    made = await hud(*ADD, *where)
    assert made.code == 0, made.err
    used = (far.place / root if root else far.home / ".hud-tui/far") / "used"
    used.touch()
    await install_watcher(ssh, "pod1", LONG_S, 6, NOWHERE)
    for _ in range(10):
        await asyncio.sleep(1)
        used.unlink()
        used.touch()
    assert not (far.home / "shut").exists(), "it was in use"
    await is_shut(far)
    assert "not used for" in (files(far) / "log").read_text()
    assert (await hud("remote", "remove", "far", "-y")).code == 0
    assert [one.name for one in (far.home / ".hud-tui").iterdir()] == ["watcher"]


@pytest.mark.parametrize("jump_s", [10**8, -(10**8)])
async def test_its_count_goes_by_the_boot_clock(far: Far, ssh: Ssh, jump_s: int) -> None:
    """A wall clock that jumps by years takes nothing from the budget, and adds nothing."""
    date = shutil.which("date")
    far.tool("date", f'[ "$*" = +%s ] && echo $(($({date} +%s) + {jump_s})) || exec {date} "$@"')
    heartbeat = await install_watcher(ssh, "pod1", 3600, LONG_S, NOWHERE)
    assert 3590 <= heartbeat.left_s <= 3600
    await killed(far, ssh)
    (far.home / "bin/date").unlink()
    await ssh.check('sh "$HOME/.hud-tui/watcher/run" >/dev/null 2>&1 &')
    await until(lambda: "watching" in (files(far) / "heartbeat").read_text())
    again = await read_heartbeat(ssh)
    assert again is not None
    assert 3500 <= again.left_s <= heartbeat.left_s
    assert not (far.home / "shut").exists()


@pytest.mark.parametrize(("off_s", "counted"), [(100, True), (10**7, False)])
async def test_it_counts_on_after_a_reboot(far: Far, ssh: Ssh, off_s: int, counted: bool) -> None:
    """The heartbeat before is of another boot; a clock's word on the time between is believed up
    to five minutes."""
    await install_watcher(ssh, "pod1", 10**7, LONG_S, NOWHERE)
    await killed(far, ssh)
    beat = (files(far) / "heartbeat").read_text().split()
    up, wall = int(beat[2]), int(beat[3])
    booted = wall - up  # the far machine "starts" at this machine's own boot
    beat[1:5] = ["another-boot", "50", str(booted - off_s), "1000"]
    (files(far) / "heartbeat").write_text(" ".join(beat) + "\n")
    await ssh.check('sh "$HOME/.hud-tui/watcher/run" again >/dev/null 2>&1 &')
    await until(lambda: "another-boot" not in (files(far) / "heartbeat").read_text())
    spent = int((files(far) / "heartbeat").read_text().split()[4])
    least = 1000 + up + (off_s if counted else 0)
    assert least - 5 <= spent <= least + 600
    log = files(far) / "log"
    assert (log.exists() and "not counted" in log.read_text()) is not counted


async def test_cron_starts_it_again_after_a_kill(far: Far, ssh: Ssh) -> None:
    first = await install_watcher(ssh, "pod1", LONG_S, LONG_S, NOWHERE)
    assert (first.again, first.alive) == ("cron", True)
    await install_watcher(ssh, "pod1", LONG_S, LONG_S, NOWHERE)
    [line] = (far.home / "crontab").read_text().splitlines()
    command = line.removeprefix("* * * * * ")
    await ssh.check(command, timeout_s=10)  # one that lives: it ends at once
    await killed(far, ssh)
    owner = (files(far) / "owner").read_text()
    await ssh.check(f"{command} &")
    await until(lambda: (files(far) / "owner").read_text() != owner)
    await until(lambda: age_s(far) < watcher.MISSED)


async def test_systemd_runs_it_where_it_is(far: Far, ssh: Ssh) -> None:
    far.tool(
        "systemctl",
        'echo "$*" >> "$HOME/systemctl"; case "$*" in *is-system-running) echo running ;;\n'
        '*restart*) sh "$HOME/.hud-tui/watcher/run" >/dev/null 2>&1 </dev/null & ;; esac',
    )
    heartbeat = await install_watcher(ssh, "pod1", LONG_S, LONG_S, NOWHERE)
    assert heartbeat.again == "systemd"
    unit = (far.home / ".config/systemd/user/hud-tui-watcher.service").read_text()
    assert "Restart=always" in unit
    assert "enable hud-tui-watcher" in (far.home / "systemctl").read_text()
    assert not (far.home / "crontab").exists()


async def test_a_newer_budget_replaces_an_older_one(far: Far, ssh: Ssh) -> None:
    """As when a pod's hours are made longer: the older watcher ends, and ends nothing."""
    for left_s in (3, LONG_S):
        heartbeat = await install_watcher(ssh, "pod1", left_s, LONG_S, NOWHERE)
    assert heartbeat.left_s > LONG_S - 10
    await asyncio.sleep(5)
    assert not (far.home / "shut").exists()


async def test_it_asks_prime_until_prime_has_ended_the_pod(
    far: Far, ssh: Ssh, pod: PrimeServer
) -> None:
    """The key is in no command line, and a refusal is not the last word."""
    curl = shutil.which("curl") or pytest.fail("no curl here")
    far.tool("curl", f'echo "$@" >> "$HOME/curl"; exec {curl} "$@"')
    pod.runs()
    pod.refuse("DELETE /pods/pod1", 500)
    pod.refuse("DELETE /pods/pod1", 429)
    await install_watcher(ssh, "pod1", 0, LONG_S, f"{pod.url}/api/v1", KEY)
    await is_shut(far)
    assert pod.pods == {}
    assert KEY not in (far.home / "curl").read_text()
    log = (files(far) / "log").read_text()
    assert KEY not in log
    assert [log.count(f"Prime answered {code}") for code in (500, 429, 204)] == [1, 1, 1]


async def test_an_api_that_hangs_does_not_hold_up_the_shutdown(far: Far, ssh: Ssh) -> None:
    """curl is given a time limit, and its failure is not waited for for ever."""
    far.tool("curl", 'echo "$@" >> "$HOME/curl"; exit 28')
    far.tool("sleep", "exec /bin/sleep 0.1")
    await install_watcher(ssh, "pod1", 0, LONG_S, NOWHERE, KEY)
    await is_shut(far)
    tries = (far.home / "curl").read_text().splitlines()
    assert len(tries) >= 6
    assert all("-m 20" in one for one in tries)


async def test_a_bare_pod_gets_the_key_that_it_is_sent(
    hud: Command, far: Far, pod: PrimeServer
) -> None:
    made = await hud(*RENT, "--send", "PRIME_API_KEY")
    assert made.code == 0, made.err
    assert KEY in (files(far) / "key").read_text()
    assert (files(far) / "key").stat().st_mode & 0o77 == 0


async def test_a_heartbeat_that_is_none(far: Far, ssh: Ssh) -> None:
    assert await read_heartbeat(ssh) is None
    files(far).mkdir(parents=True)
    for text in ("", "x", "a b c d e f g", "\x00\xff" * 100, "1 " * 10**5, "1\n" * 6):
        (files(far) / "heartbeat").write_text(text)
        assert await read_heartbeat(ssh) is None
