"""Scripts over ssh, and what is said where ssh fails."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from hud_tui.errors import HudError, HudMalformed, HudUsage
from hud_tui.processes import alive
from hud_tui.remote.engines import free_port
from hud_tui.remote.facts import Gpu, fetch_facts, read_facts, short_gpu
from hud_tui.remote.machines import Machines
from hud_tui.remote.shared import end_hung
from hud_tui.remote.ssh import (
    Address,
    HostKeyChanged,
    LineLost,
    ScriptFailed,
    Ssh,
    SshDenied,
    _ended,
    _start,
    forget_host_key,
    patient,
    quote,
    read_address,
)
from tests.conftest import until
from tests.remote.far import Far, cut_line

FAR = Address("far")


async def test_a_script_s_output_and_its_exit_code(ssh: Ssh, far: Far) -> None:
    said = await ssh.run("echo $HOME; echo no >&2; false")
    assert (said.out.strip(), said.code) == (str(far.home), 1)
    with pytest.raises(ScriptFailed, match="far: no"):
        await ssh.check("echo no >&2; exit 3")
    assert await ssh.check("cat; echo done") == "done\n"  # it cannot read the script
    word = 'a\'b "c" $HOME `id` \\ \x1b[2J é'
    assert await ssh.check(f"printf %s {quote(word)}") == word


async def test_a_script_that_is_cut_on_its_way_does_nothing(far: Far) -> None:
    """The whole of it is read before any of it runs."""
    process = await asyncio.create_subprocess_exec(
        "ssh", "-F", str(far.config), "far", "sh", "-s", stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"main() {\ntouch $HOME/done\necho cut he")
    process.stdin.close()
    await process.wait()
    assert not (far.home / "done").exists()


async def test_what_a_machine_is_even_where_it_says_nonsense(ssh: Ssh, far: Far) -> None:
    far.tool("nvidia-smi", _NVIDIA)
    facts = await fetch_facts(ssh)
    assert (facts.os, facts.home) == ("Linux", str(far.home))
    assert facts.free_bytes is not None
    assert facts.gpus == (Gpu("NVIDIA H100 80GB HBM3", "570.1", 81_559, 1_024, 97),) * 2
    assert (facts.gpu_label, facts.cuda) == ("2×H100", "12.8")
    facts = read_facts("os=\x1b]0;x\ngpu=a,b\ngpu=x,1,a,b,c\nfree_kb=-1\ncores=many\n=\nhome")
    assert (facts.os, facts.free_bytes, facts.cores) == ("␛]0;x", None, None)
    assert facts.gpus == (Gpu("x", "1", 0, 0, 0),)


_NVIDIA = """case $1 in --query*) for n in 1 2; do
echo "NVIDIA H100 80GB HBM3, 570.1, 81559, 1024, 97"; done;;
*) echo "| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 12.8  |";; esac"""


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_short_names_of_gpus(name: str, short: str) -> None:
    assert short_gpu(name) == short


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "a b", "far -p x", "far -p 0", "", "a;b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(HudUsage):
        read_address(text)
    assert read_address("root@1.2.3.4 -p 1234") == Address("root@1.2.3.4", 1234)
    assert str(read_address("gpubox")) == "gpubox"


async def test_nothing_listens(ssh: Ssh, far: Far) -> None:
    far.lead_to(free_port())
    with pytest.raises(LineLost, match=r"Connection refused$") as caught:
        await ssh.run("true")
    assert "sshd" in caught.value.hint
    assert caught.value.exit_code == 3
    with pytest.raises(LineLost):  # and patience ends
        await patient(lambda: ssh.run("true"), lambda text: None, 0)


async def test_a_host_key_that_changed(ssh: Ssh, far: Far) -> None:
    await ssh.run("true")
    await ssh.aclose()
    far.new_host_key()
    with pytest.raises(HostKeyChanged, match="has changed") as caught:
        await ssh.run("true")
    assert "ssh-keygen" in caught.value.hint
    assert f"{far.place}/near/known_hosts" in caught.value.hint


async def test_a_host_key_that_nobody_accepted(ssh: Ssh, far: Far) -> None:
    text = far.config.read_text().replace("accept-new", "yes")
    far.config.write_text(text)
    with pytest.raises(HostKeyChanged, match="not known yet") as caught:
        await ssh.run("true")
    assert f"by hand and compare its key: ssh -F {far.config} far" in caught.value.hint


async def test_a_rented_machine_is_known_in_a_file_of_our_own(machines: Machines, far: Far) -> None:
    address = Address("127.0.0.1", far.port, str(far.place / "near/id"), rented=True)
    ssh = machines.ssh_to(address)
    await ssh.run("true")
    await ssh.aclose()
    known = (machines.folder / "known_hosts").read_text()
    assert known.startswith(f"[127.0.0.1]:{far.port} ")
    assert not (far.place / "near/known_hosts").exists()


def test_names_of_host_keys(tmp_path: Path) -> None:
    assert Address("me@Box").key_name == "Box"
    assert Address("10.0.0.7", 2222).key_name == "[10.0.0.7]:2222"
    assert Address("10.0.0.7", 22).key_name == "10.0.0.7"
    known = tmp_path / "known_hosts"
    forget_host_key(known, "box")
    assert not known.exists()
    known.write_bytes(b"box,[box]:7 ssh-ed25519 A\n[box]:2 ssh-ed25519 B\n\xff\n")
    forget_host_key(known, "Box")
    assert known.read_bytes() == b"[box]:2 ssh-ed25519 B\n\xff\n"


def bind(far: Far, command: str) -> None:
    """Have the machine run this whatever it is asked to run."""
    key = (far.place / "near/id.pub").read_text()
    (far.place / "authorized_keys").write_text(f'command="{command}" {key}')


async def test_what_a_host_says_at_a_login_is_not_output(ssh: Ssh, far: Far) -> None:
    bind(far, r"printf 'Welcome!\\n\\377\\0 42'; echo hello >&2; sh -s; echo bye")
    said = await ssh.run("echo 8765; echo no >&2; false")
    assert (said.out, said.err, said.code) == ("8765\n", "no\n", 1)
    with pytest.raises(ScriptFailed, match="far: exit code 3"):
        await ssh.check("exit 3")


GARBAGE = (
    ("echo Hi, you do not get a shell.", "far: it does not run a shell's script: Hi, you do"),
    ("printf '\\377\\376\\0'; exit 7", "far: it does not run a shell's script"),
    ("yes", "far: more than 1.0 MB of output"),
    ("yes >&2", "far: more than 1.0 MB of output"),
    ("cat /dev/urandom", "far: more than 1.0 MB of output"),
)


async def test_a_host_that_answers_garbage(ssh: Ssh, far: Far) -> None:
    """At once, with what to do; it is not tried again, as a broken line is."""
    for command, why in GARBAGE:
        bind(far, command)
        await ssh.aclose()
        with pytest.raises(HudMalformed, match=why) as caught:
            await patient(lambda: ssh.run("true"), pytest.fail, 60)
        assert f"ssh -F {far.config} far sh -s" in caught.value.hint
        with pytest.raises(HudError):
            await patient(lambda: ssh.stream("true", 10, lambda piece: None), pytest.fail, 60)


async def test_an_output_that_would_be_cut_is_an_error(ssh: Ssh, far: Far) -> None:
    assert len(await ssh.check("head -c 1000000 /dev/zero")) == 1_000_000
    with pytest.raises(HudMalformed, match=r"more than 1.0 MB of output"):
        await ssh.run("head -c 1100000 /dev/zero")
    bind(far, "sh -s; yes")
    await ssh.aclose()
    with pytest.raises(HudMalformed, match=r"more than 1.0 MB of output"):
        await ssh.run("true")


async def test_a_port_where_something_else_listens(ssh: Ssh, far: Far) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\xff\0\r\n\r\n" * 2000)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        far.lead_to(server.sockets[0].getsockname()[1])
        with pytest.raises(LineLost) as caught:
            await ssh.run("true")
        assert caught.value.hint


async def test_what_a_script_said_is_not_taken_for_ssh_s_own_word(ssh: Ssh, far: Far) -> None:
    """Where the line breaks after it began."""
    async with cut_line(far.port) as line:
        far.lead_to(line.port)
        running = asyncio.create_task(ssh.run("echo Permission denied >&2; echo x; sleep 60"))
        started = "pgrep -f 'slee[p] 60' >/dev/null"
        other = far.place / "ssh_config_2"
        other.write_text(far.config.read_text().replace(str(line.port), str(far.port)))
        there = Ssh(FAR, far.place / "none", other)
        while (await there.run(started)).code:
            pass
        await there.aclose()
        line.cut()
        with pytest.raises(LineLost, match="the line broke"):
            await running


async def test_a_line_that_breaks_is_tried_again(
    ssh: Ssh, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.ssh.backoff", lambda failures: 0.01)
    told: list[str] = []
    async with cut_line(far.port) as line:
        far.lead_to(line.port)
        line.lengths = [10, 1000, 2200, 2600]
        with pytest.raises(LineLost):
            await ssh.run("echo whole")
        said = await patient(lambda: ssh.run("echo whole"), told.append, 60)
        assert said.out == "whole\n"
        assert len(told) == line.broken - 1


async def test_a_machine_that_says_nothing(ssh: Ssh) -> None:
    with pytest.raises(LineLost, match=r"no answer within"):
        await ssh.run("sleep 60", timeout_s=0.5)


async def test_a_key_that_is_not_let_in(ssh: Ssh, far: Far) -> None:
    (far.place / "authorized_keys").write_text("")
    with pytest.raises(SshDenied, match="Permission denied") as caught:
        await ssh.run("true")
    assert f"ssh-copy-id -F {far.config} far" in caught.value.hint
    assert caught.value.exit_code == 4


def test_where_ssh_is_not_installed(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HudUsage, match="not installed"):
        asyncio.run(machines.ssh_to(FAR).run("true"))


async def test_a_shared_connection_that_hangs_is_replaced(
    ssh: Ssh, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.shared.HUNG_S", 1.0)
    assert (await ssh.run("echo one")).out == "one\n"
    socket = await ssh._socket()
    [master] = titled(f"ssh: {socket} [mux]")
    assert not await end_hung(socket), "it answers"
    os.kill(master, signal.SIGSTOP)
    assert (await ssh.run("echo two", timeout_s=30)).out == "two\n"
    assert not alive(master)
    await ssh.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_shared_connection_that_hangs_in_a_command_ends_it(
    ssh: Ssh, far: Far, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Long before the command's own time is up, and the next one has another."""
    monkeypatch.setattr("hud_tui.remote.shared.HUNG_S", 1.0)
    monkeypatch.setattr("hud_tui.remote.shared.WATCH_S", 0.1)
    await ssh.run("true")
    [master] = titled(f"ssh: {await ssh._socket()} [mux]")
    script = f"touch {far.home}/begun; sleep 600"
    waiting = ssh.stream(script, 10, lambda piece: None) if stream else ssh.run(script, 600)
    command = asyncio.ensure_future(waiting)
    await until((far.home / "begun").exists)
    os.kill(master, signal.SIGSTOP)
    with pytest.raises(LineLost):
        await asyncio.wait_for(command, 30)
    assert not alive(master)
    assert (await ssh.run("echo two")).out == "two\n"
    await ssh.aclose()


async def test_a_shared_connection_that_hangs_is_closed_too(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.shared.HUNG_S", 1.0)
    await ssh.run("true")
    [master] = titled(f"ssh: {await ssh._socket()} [mux]")
    os.kill(master, signal.SIGSTOP)
    await ssh.aclose()
    await until(lambda: not alive(master))


def titled(title: str) -> list[int]:
    """The processes that call themselves so."""
    ids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes().rstrip(b"\0 ") == title.encode():
                ids.append(int(file.parent.name))
    return ids


async def test_the_exit_code_of_an_ssh_is_left_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who else looks for it takes it away, of which asyncio complains on stderr."""
    looks: list[int] = []
    process = await _start(["sleep", "600"])
    monkeypatch.setattr(subprocess.Popen, "poll", lambda popen: looks.append(popen.pid))
    await _ended(process)
    assert (process.returncode, looks) == (-signal.SIGKILL, [])
