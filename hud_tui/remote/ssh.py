"""OpenSSH's own client: scripts over stdin, one shared connection, tunnels, typed errors.

The user's configuration, agent, jump hosts and known hosts apply. Nothing that is secret is ever
in a command line: scripts, and the secrets in them, travel over stdin.

Source: ssh(1), ssh_config(5) of OpenSSH 9; ssh exits with 255 for its own failures.
"""

import asyncio
import ctypes
import hashlib
import os
import re
import secrets
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from hud_tui.errors import HudError, HudMalformed, HudUnreachable, HudUsage
from hud_tui.patience import Patience, backoff, retried
from hud_tui.pipes import send_signal
from hud_tui.remote.shared import end_hung, greets, watched
from hud_tui.rl.text import clean, last_lines, one_line, size
from hud_tui.storage import change_atomic, read_regular

CONNECT_S = 10
ALIVE_S, ALIVE_COUNT = 5, 3
"""Seconds between keep-alive requests on a silent connection, and the number without an answer
after which it is closed."""
PERSIST_S = 60
"""Seconds without use after which the shared connection ends."""
MOST_BYTES = 1 << 20
"""Maximum size of a script's output, bytes; files are copied by `Ssh.stream`."""
KNOWN_HOSTS = "known_hosts"
"""File in the folder of the machines with the host keys of pods."""
SILENT_S = 60.0
"""Seconds without a byte after which a stream counts as broken."""


class LineLost(HudUnreachable):
    """The connection broke, or the host does not answer: a retry may help."""

    kind = "line_lost"


class HostKeyChanged(HudError):
    """The host's key is not the known one: another machine, or a man in the middle."""

    exit_code = 4
    kind = "host_key"


class SshDenied(HudError):
    exit_code = 4
    kind = "unauthorized"


class ScriptFailed(HudError):
    kind = "script_failed"

    def __init__(self, message: str, hint: str = "", output: str = "", code: int = 1) -> None:
        """`output`: the end of it; `code`: its exit code."""
        super().__init__(message, hint)
        self.output, self.code = output, code


_HOST = re.compile(r"(?:[A-Za-z0-9_.+-]+@)?[A-Za-z0-9_.:%\[\]-]+")


@dataclass(frozen=True)
class Address:
    """Address of a machine, as given to ssh."""

    host: str
    """Anything that ``ssh HOST`` understands: an alias, a name, ``user@name``."""
    port: int | None = None
    """None for the port in ssh's configuration."""
    key: str | None = None
    """Identity file; None for those in ssh's configuration and the agent."""
    rented: bool = False
    """A pod: its new host key is accepted once, into a known_hosts file of our own."""
    alias: str = ""
    """Name under which the host key of a pod is kept, since addresses are given to other pods
    later; empty for its address."""

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or self.host.startswith("-"):
            raise HudUsage(f"not a host that ssh understands: {one_line(self.host, 80)}")
        if self.port is not None and not 0 < self.port < 2**16:
            raise HudUsage(f"not a port: {self.port}", "ports are 1 to 65535")

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host} -p {self.port}"

    @property
    def key_name(self) -> str:
        """The name of its host key in a known_hosts file."""
        bare = self.host.rpartition("@")[2]
        return self.alias or (bare if self.port in (None, 22) else f"[{bare}]:{self.port}")


def read_address(text: str, key: str | None = None) -> Address:
    """Parse an address: ``HOST`` or ``HOST -p N``. Raises HudUsage: it is neither."""
    words = text.split()
    if len(words) == 3 and words[1] == "-p" and words[2].isascii() and words[2].isdigit():
        return Address(words[0], int(words[2][:6]), key)
    if len(words) != 1:
        raise HudUsage(f"not an ssh address: {one_line(text, 80)}", "HOST, or HOST -p PORT")
    return Address(words[0], None, key)


def pod_address(text: str, key: str, pod: str) -> Address:
    """The address of a rented machine, whose host key is kept under the pod's own name. Raises
    HudUsage: as `read_address`."""
    return replace(read_address(text, key), rented=True, alias=_pod_alias(pod))


def forget_pod(folder: Path, pod: str) -> None:
    """Remove the host key of a pod that has ended. `folder`: that of our known_hosts."""
    forget_host_key(folder / KNOWN_HOSTS, _pod_alias(pod))


def _pod_alias(pod: str) -> str:
    return "pod-" + re.sub(r"[^a-z0-9-]", "-", pod.lower())[:80]


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str


class Ssh:
    """Runs scripts on one machine."""

    def __init__(
        self, address: Address, known_hosts: Path, config: Path | None = None, shared: bool = True
    ) -> None:
        """`known_hosts`: a file of our own, for rented machines only; `config` replaces the user's
        ssh_config. `shared`: whether all scripts go over one connection, which lives on for a
        while; if not, each has its own, for which the host's key is checked anew."""
        self.address, self._known_hosts, self._config = address, known_hosts, config
        self._shared = shared
        self._control: Path | None = None

    def command(self, *options: str, shared: bool = True, greeter: Path | None = None) -> list[str]:
        """The command line up to the host, with further options of ssh. `shared`: whether it uses
        the shared connection; `greeter`: a socket at which an ssh with a connection of its own
        greets, as `greets`."""
        ssh_options = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_S,
            "ServerAliveInterval": ALIVE_S,
            "ServerAliveCountMax": ALIVE_COUNT,
            "RemoteCommand": "none",
            "RequestTTY": "no",
            "PermitLocalCommand": "no",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            **_sharing(shared and self._shared, greeter),
        }
        if self.address.rented:
            ssh_options |= {"StrictHostKeyChecking": "accept-new", "HashKnownHosts": "no"}
            ssh_options |= {"UserKnownHostsFile": _quoted(self._known_hosts)}
            ssh_options |= {"HostKeyAlias": self.address.alias} if self.address.alias else {}
        words = ["ssh", *(["-F", str(self._config)] if self._config else [])]
        words += [word for name, value in ssh_options.items() for word in ("-o", f"{name}={value}")]
        words += ["-p", str(self.address.port)] if self.address.port is not None else []
        if self.address.key is not None:
            words += ["-i", os.path.expanduser(self.address.key), "-o", "IdentitiesOnly=yes"]
        return [*words, *options, "--", self.address.host]

    @property
    def client(self) -> str:
        """Differs between state directories."""
        return hashlib.sha256(str(self._known_hosts).encode()).hexdigest()[:12]

    async def _socket(self) -> Path:
        """The socket of the shared connection, whose name ssh makes."""
        if not self._shared:
            return sockets() / "none"
        if self._control is None:
            _, text = await _output_of(*self.command("-G"))
            named = [line for line in text.splitlines() if line.startswith("controlpath ")]
            self._control = Path(named[0].partition(" ")[2] if named else sockets() / "none")
        return self._control

    @property
    def by_hand(self) -> str:
        """What a person types after ``ssh`` or ``ssh-copy-id`` to reach it in the same way."""
        return f"-F {quote(self._config)} {self.address}" if self._config else str(self.address)

    async def run(self, script: str, timeout_s: float = 60.0) -> Output:
        """Run a POSIX shell script; one that was cut off on its way does nothing.

        Raises:
            LineLost: The host does not answer, or the connection broke: whether it ran is unknown.
            SshDenied, HostKeyChanged: ssh could not log in.
            HudMalformed: The output is longer than MOST_BYTES, or not that of a shell.
        """
        async with watched(await self._socket()):
            return await self._run(script, timeout_s)

    async def _run(self, script: str, timeout_s: float) -> Output:
        mark = f"@hud-tui-{secrets.token_hex(8)}"
        process = await _start([*self.command(), "sh", "-s"])
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await _exchange(process, _whole(script, mark), complete=True)
        except TimeoutError:
            raise LineLost(
                f"{self.address}: no answer within {timeout_s:.0f} s", "try again"
            ) from None
        except _TooMuchOutput:
            raise self._too_much() from None
        finally:
            await _ended(process)
        _, begun, output = out.partition(f"\n{mark} begin\n")
        ended = re.search(rf"\n{mark} (\d{{1,3}})\n", output)
        if ended is not None:
            return Output(int(ended[1]), output[: ended.start()], _after(err, mark))
        raise self._incomplete(out, _after(err, mark), process.returncode, bool(begun))

    async def stream(self, script: str, count: int, sink: Callable[[bytes], object]) -> None:
        """Pass the first `count` bytes that a script prints to `sink`, as they arrive.

        Raises:
            LineLost: The connection broke, or nothing came for SILENT_S; what was passed on until
                then is good.
            HudMalformed: The script printed less, or it is not the output of a shell.
            SshDenied, HostKeyChanged: ssh could not log in.
        """
        async with watched(await self._socket()):
            await self._stream(script, count, sink)

    async def _stream(self, script: str, count: int, sink: Callable[[bytes], object]) -> None:
        mark = f"@hud-tui-{secrets.token_hex(8)}"
        process = await _start([*self.command(), "sh", "-s"])
        stdin, stdout, stderr = _pipes(process)
        giving = asyncio.create_task(_give(stdin, _whole(script, mark)))
        erring = asyncio.create_task(_read(stderr, complete=True))
        erring.add_done_callback(partial(_fail_too, stdout))
        try:
            ahead, begun = await self._until(stdout, f"\n{mark} begin\n".encode())
            held = b""  # it may be the line that says that the script has ended
            while begun and count > len(held):
                async with asyncio.timeout(SILENT_S):
                    piece = await stdout.read(min(count - len(held), 1 << 16))
                if not piece:
                    break
                whole = held + piece
                sink(whole[:-_LONGEST_END])
                held = whole[-_LONGEST_END:]
                count -= len(whole) - len(held)
            if re.search(rf"\n{mark} \d{{1,3}}\n\Z".encode(), held):
                why = f"{self.address}: a file there ended before its size"
                raise HudMalformed(why, "does something write it now? try again")
            sink(held)
            if count > len(held):
                async with asyncio.timeout(SILENT_S):
                    err, _ = await asyncio.gather(erring, process.wait())
                raise self._incomplete(ahead, _after(err, mark), process.returncode, begun)
        except TimeoutError:
            why = f"{self.address}: nothing came for {SILENT_S:.0f} s"
            raise LineLost(why, "try again") from None
        except _TooMuchOutput:
            raise self._too_much() from None
        finally:
            giving.cancel()
            erring.cancel()
            await _ended(process)

    async def _until(self, stdout: asyncio.StreamReader, mark: bytes) -> tuple[str, bool]:
        """Read until a line; returns what came before it, and whether the line came."""
        try:
            async with asyncio.timeout(SILENT_S):
                return (await stdout.readuntil(mark)).decode("utf-8", "replace"), True
        except asyncio.IncompleteReadError as error:
            return error.partial.decode("utf-8", "replace"), False
        except asyncio.LimitOverrunError:
            why = f"{self.address}: its output does not begin"
            raise HudMalformed(why, self._no_shell_hint()) from None

    def _incomplete(self, out: str, err: str, code: int | None, begun: bool) -> HudError:
        """The error for an output without its end. `begun`: whether the script had begun, so that
        what is in `err` may be its own."""
        if not begun and code is not None and 0 <= code < 255:
            last = _last_line(f"{err}\n{out}", f"exit code {code}")
            why = f"{self.address}: it does not run a shell's script: {last}"
            return HudMalformed(why, self._no_shell_hint())
        if begun:
            last = _last_line(err, f"ssh ended with exit code {code}")
            return LineLost(f"{self.address}: the line broke: {last}", "try again")
        return self.failure(err, code or 0)

    def _too_much(self) -> HudMalformed:
        much = f"{self.address}: more than {size(MOST_BYTES)} of output"
        return HudMalformed(much, self._no_shell_hint())

    def _no_shell_hint(self) -> str:
        return (
            f"'ssh {self.by_hand} sh -s' must be a POSIX shell there: look at its login files,"
            " and at a command that its key is bound to"
        )

    async def check(self, script: str, timeout_s: float = 60.0) -> str:
        """`run` a script that must succeed; returns its output.

        Raises:
            ScriptFailed: It did not succeed.
            HudError: As `run`.
        """
        output = await self.run(script, timeout_s)
        if output.code:
            raise script_failed(str(self.address), output.err or output.out, output.code)
        return output.out

    async def aclose(self) -> None:
        """Close the shared connection once nobody uses it any more; what runs there continues.

        It takes no new sessions from here on: one that came while it exits would be cut.
        """
        if not self._shared or await end_hung(await self._socket()):
            return
        process = await _start(self.command("-O", "stop"))
        with suppress(TimeoutError):
            await asyncio.wait_for(_exchange(process, b""), CONNECT_S)
        await _ended(process)

    def failure(self, err: str, code: int) -> HudError:
        """The error for ssh's own message, with what to do."""
        where = str(self.address)
        last = _last_line(err, f"ssh ended with exit code {code}")
        if "IDENTIFICATION HAS CHANGED" in err:
            return HostKeyChanged(
                f"{where}: the host's key has changed since it was last seen",
                f"if the machine was made anew, forget the old key: {self._forget_key(err)}",
            )
        if "Host key verification failed" in err:
            hint = f"connect once by hand and compare its key: ssh {self.by_hand}"
            return HostKeyChanged(f"{where}: the host's key is not known yet", hint)
        if "Permission denied" in err or "Too many authentication failures" in err:
            copy = f"ssh-copy-id {self.by_hand}"
            hint = f"let ssh in without a password: {copy}, or ssh-add your key, or -i"
            return SshDenied(f"{where}: {last}", hint)
        if "Bad configuration" in err or "Bad owner or permissions" in err:
            return HudUsage(f"ssh's configuration: {last}", "correct that file")
        for words, hint in _HINTS.items():
            if words in err:
                return LineLost(f"{where}: {last}", hint)
        return LineLost(f"{where}: the line broke: {last}", "try again")

    def _forget_key(self, err: str) -> str:
        """The command that ssh suggests for removing the key, else our own."""
        match = re.search(r"ssh-keygen -f .{1,400}? -R \S{1,300}", err)
        if match:
            return one_line(match[0], 600)
        file = f" -f {quote(self._known_hosts)}" if self.address.rented else ""
        return f"ssh-keygen{file} -R {quote(self.address.key_name)}"


_HINTS = {
    "Connection refused": "is sshd running there, on that port?",
    "Could not resolve hostname": "check the name, or ssh's configuration",
    "No route to host": "is the machine on, and are you on its network?",
    "banner": "is it sshd that listens there, on that port?",
    "timed out": "is the machine on, and are you on its network?",
}


def script_failed(where: str, output: str, code: int) -> ScriptFailed:
    """The error for a failed script, with the end of its output."""
    hint = ""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        hint = "its disk is full: free some, then try again"
    end = "\n".join(last_lines(clean(output[-4000:]), 20))
    return ScriptFailed(f"{where}: {_last_line(end, f'exit code {code}')}", hint, end, code)


def _last_line(output: str, without: str) -> str:
    """The last line of an output; `without`: what stands for it where there is none."""
    lines = last_lines(clean(output[-4000:].replace("\r\n", "\n")))  # ssh ends its own so
    return one_line([without, *lines][-1].strip(), 300)


def forget_host_key(known_hosts: Path, name: str) -> None:
    """Remove the keys of a host from a known_hosts file of our own, whose names are not hashed.

    A file that cannot be read or written stays as it is.
    """

    def without() -> bytes | None:
        lines = read_regular(known_hosts, MOST_BYTES).splitlines(keepends=True)
        forgotten = name.lower().encode()
        kept = [line for line in lines if forgotten not in line.partition(b" ")[0].split(b",")]
        return b"".join(kept) if len(kept) < len(lines) else None

    with suppress(OSError):
        change_atomic(known_hosts, without)


def quote(value: object) -> str:
    """A value as one word of a POSIX shell script."""
    return shlex.quote(str(value))


def _sharing(shared: bool, greeter: Path | None) -> dict[str, object]:
    """Options about connections that several commands share."""
    if greeter is not None:
        return {"ControlMaster": "yes", "ControlPath": _quoted(greeter), "ControlPersist": "no"}
    if not shared:
        return {"ControlMaster": "no", "ControlPath": "none"}
    path = _quoted(sockets() / "%C")
    more = {"ControlPersist": PERSIST_S, "ClearAllForwardings": "yes"}
    return {"ControlMaster": "auto", "ControlPath": path, **more}


def sockets() -> Path:
    """The directory of shared connections, private to the user. Its path is short, since a socket's
    path has at most 104 characters. Raises HudUsage: it belongs to somebody else."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    parent = Path(runtime) if runtime and len(runtime) < 30 else Path("/tmp")
    folder = parent / f"hud-tui-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    stat = folder.lstat()
    if stat.st_uid != os.getuid() or folder.is_symlink() or stat.st_mode & 0o077:
        raise HudUsage(f"{folder} is not yours alone", f"remove it, or chmod 700 {folder}")
    return folder


def _quoted(path: Path) -> str:
    """A path as ssh_config reads it."""
    return f'"{path}"'


_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Have this process killed when its parent ends, however that ends; for a child before it runs
    its program. Where the system cannot do that, nothing happens (Linux: prctl(2))."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


async def _start(
    words: Sequence[str], first: Callable[[], None] | None = None
) -> asyncio.subprocess.Process:
    """Start one of OpenSSH's programs; `first` runs in its process, before it does."""
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, "LC_ALL": "C"},
            preexec_fn=first,
            start_new_session=True,  # an interrupt ends this program, which then stops ssh
        )
    except FileNotFoundError:
        raise HudUsage("ssh is not installed here", "install OpenSSH's client") from None


def _whole(script: str, mark: str) -> bytes:
    """The script as it is sent: it is read completely before any of it runs. Lines with `mark` say
    where its outputs begin, after whatever the host says at a login, and where they end."""
    begin = f"printf '\\n{mark} begin\\n'"
    return (
        f"main() {{\n:\n{script}\n}}\n{begin}; {begin} >&2\n(main) </dev/null\n"
        f"printf '\\n{mark} %s\\n' $?\n"
    ).encode()


_LONGEST_END = 40
"""Bytes of the longest line that says that a script has ended."""


def _after(err: str, mark: str) -> str:
    """A script's own stderr."""
    before, begun, own = err.partition(f"\n{mark} begin\n")
    return own if begun else before


class _TooMuchOutput(Exception):
    """A stream has more than MOST_BYTES."""


def _fail_too(stream: asyncio.StreamReader, reading: "asyncio.Task[str]") -> None:
    """Have who reads a stream get the error of who read another."""
    error = None if reading.cancelled() else reading.exception()
    if isinstance(error, Exception):
        stream.set_exception(error)


Pipes = tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]


def _pipes(process: asyncio.subprocess.Process) -> Pipes:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


async def _exchange(
    process: asyncio.subprocess.Process, script: bytes, complete: bool = False
) -> tuple[str, str]:
    """Both outputs; of long ones the end. Raises _TooMuchOutput instead if `complete`."""
    stdin, stdout, stderr = _pipes(process)
    outs = asyncio.create_task(_read(stdout, complete))
    errs = asyncio.create_task(_read(stderr, complete))
    giving = asyncio.create_task(_give(stdin, script))
    try:
        out, err, _ = await asyncio.gather(outs, errs, giving)
        await process.wait()
    finally:
        for task in (outs, errs, giving):
            task.cancel()
    return out, err


async def _give(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(OSError):
        stdin.write(data)
        await stdin.drain()
    with suppress(OSError):
        stdin.close()
        await stdin.wait_closed()


async def _read(stream: asyncio.StreamReader, complete: bool = False) -> str:
    """All of a stream; the end of a long one. Raises _TooMuchOutput instead if `complete`."""
    tail = b""
    while piece := await stream.read(1 << 16):
        tail += piece
        if len(tail) > MOST_BYTES and complete:
            raise _TooMuchOutput
        tail = tail[-MOST_BYTES:]
    return tail.decode("utf-8", "replace")


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs.

    The shared connection holds its pipes, too, until the script ends there, and `wait` waits for
    them: so they are closed here.
    """
    if process.returncode is None:
        send_signal(process, signal.SIGKILL)
        transport: asyncio.SubprocessTransport = vars(process)["_transport"]
        for number in range(3):
            if (pipe := transport.get_pipe_transport(number)) is not None:
                pipe.close()
    await process.wait()


# The key that ssh uses.


async def read_public_key(key: str) -> str:
    """Type and value of a private key's public half, e.g. ``ssh-ed25519 AAAA…``. Raises HudUsage:
    there is no such key, others can read it, or its passphrase is not available."""
    file = usable_key(key)
    shown = one_line(file, 300)
    code, output = await _output_of("ssh-keygen", "-y", "-P", "", "-f", str(file))
    if code == 0:
        return " ".join(output.split()[:2])
    public = _beside(file)
    if not public:
        hint = f"its public half must stand beside it: {shown}.pub; or name another: -i FILE"
        raise HudUsage(f"not a private ssh key, or one with a passphrase: {shown}", hint)
    _, held = await _output_of("ssh-add", "-L")
    if public not in {" ".join(line.split()[:2]) for line in held.splitlines()}:
        hint = f"ssh-add {quote(shown)}"
        raise HudUsage(f"the ssh key {shown} has a passphrase, and no agent holds it", hint)
    return public


def usable_key(key: str) -> Path:
    """The file of a private key. Raises HudUsage: ssh would not use it."""
    file = Path(os.path.expanduser(key))
    shown = one_line(file, 300)
    if not file.is_file():
        make, then = quote(shown), "or name another: -i FILE"
        if file.name == "id_rsa":  # the usual one, which nobody named: ed25519 is not RSA
            make, then = "~/.ssh/prime", "then -i ~/.ssh/prime, or PRIME_SSH_KEY_PATH"
        hint = f"make one: ssh-keygen -t ed25519 -f {make}; {then}"
        raise HudUsage(f"no ssh key {shown}", hint)
    if file.stat().st_mode & 0o077:
        hint = f"chmod 600 {quote(shown)}"
        raise HudUsage(f"the ssh key {shown} is open to others: ssh refuses it", hint)
    return file


def _beside(file: Path) -> str:
    try:
        text = file.with_name(f"{file.name}.pub").read_text("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(text[:20_000].split()[:2])


async def _output_of(*words: str) -> tuple[int, str]:
    """Exit code and output of one of OpenSSH's tools, without prompts."""
    process = await _start(words)
    try:
        async with asyncio.timeout(CONNECT_S):
            out, _ = await _exchange(process, b"")
    except TimeoutError:
        return 1, ""
    finally:
        await _ended(process)
    return process.returncode or 0, out


# A broken connection: retries, for a limited time.


PATIENCE_S = 120.0
"""Seconds that a machine may be unreachable before a set-up stops; it can be resumed."""

T = TypeVar("T")
Report = Callable[[str], None]


async def patient(call: Callable[[], Awaitable[T]], report: Report, patience_s: float) -> T:
    """Repeat a repeatable call while the connection is broken. Raises LineLost: it was broken for
    `patience_s`."""
    patience = Patience(patience_s, patience_s / 2)  # a look may take a minute

    def pause(error: LineLost, failures: int) -> float | None:
        if patience.is_over():
            return None
        pause_s = backoff(failures)
        report(f"{error.message}: trying again in {pause_s:.1f} s")
        return pause_s

    return await retried(call, LineLost, pause)


# Tunnels: a local port forwarded to a port of the other machine's loopback.


class Tunnel:
    """One ssh process that forwards a port, until it is closed or its connection breaks."""

    def __init__(self, ssh: Ssh, local: int, remote: int) -> None:
        """`local`, `remote`: ports of the loopback on this machine and on the other."""
        self._ssh, self._local, self._remote = ssh, local, remote
        self._process: asyncio.subprocess.Process | None = None
        self._greeter = sockets() / f"tunnel-{ssh.client}-{local}"

    async def run(self, started: Callable[[int], object] = lambda pid: None) -> HudError:
        """Forward until the connection breaks; returns why it did. `started` is called with the id
        of ssh's process, which ends with this one where the system can do that."""
        forward = f"127.0.0.1:{self._local}:127.0.0.1:{self._remote}"
        options = ("-N", "-o", "ExitOnForwardFailure=yes", "-L", forward)
        command = self._ssh.command(*options, greeter=self._greeter)
        self._greeter.unlink(missing_ok=True)
        process = self._process = await _start(command, _end_with_parent)
        started(process.pid)
        try:
            _, err = await _exchange(process, b"")
        finally:
            await _ended(process)
            self._process = None
        if "Address already in use" in err or "cannot listen to port" in err:
            hint = f"end the program that listens on 127.0.0.1:{self._local} of this machine"
            return HudUsage(f"port {self._local} of this machine is taken", hint)
        return self._ssh.failure(err, process.returncode or 0)

    async def works(self, wait_s: float) -> bool:
        """Whether its ssh has logged in, and does not hang: it greets within `wait_s` seconds. A
        line that is dead ends it by ServerAliveInterval."""
        try:
            async with asyncio.timeout(wait_s):
                return await greets(self._greeter)
        except TimeoutError:
            return False

    def close(self) -> None:
        if self._process is not None:
            send_signal(self._process, signal.SIGTERM)
