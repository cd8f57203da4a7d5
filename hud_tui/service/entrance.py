"""How the service is called: its address, TLS, the names that it answers to, and the proxies that
it believes. The flags are those of ``hud-tui serve`` and of ``python -m hud_tui.service``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")


@dataclass(frozen=True)
class Entrance:
    """How the service is called."""

    host: str = "127.0.0.1"
    """The address to bind."""
    port: int = 0
    """0 picks a free one."""
    certificate: Path | None = None
    """With it the address speaks TLS, and programs of this machine have one of their own on
    loopback."""
    key: Path | None = None
    """Of the certificate; there if and only if that is."""
    names: tuple[str, ...] = ()
    """Host headers that are answered to, beside loopback, the address and the certificate's."""
    proxies: tuple[Network, ...] = ()
    """From where X-Forwarded-For and X-Forwarded-Proto are believed."""


def add_flags(parser: argparse.ArgumentParser, whole_number: Callable[[str], int] = int) -> None:
    """Add the flags that `entrance_of` reads. `whole_number`: reads one, as argparse's `type`."""
    parser.add_argument("--host", default="127.0.0.1", help="address; default: loopback")
    parser.add_argument(
        "--port", type=whole_number, default=0, metavar="N", help="0 picks a free port"
    )
    about = "serve with TLS by this certificate (PEM, followed by those that signed it); a renewed"
    about += " file is taken without a restart"
    parser.add_argument("--cert", type=Path, metavar="FILE", help=about)
    about = "the certificate's private key (PEM)"
    parser.add_argument("--key", type=Path, metavar="FILE", help=about)
    about = "answer to this host name, too, as behind a proxy; may be repeated"
    parser.add_argument("--allowed-host", action="append", metavar="NAME", help=about)
    about = "believe X-Forwarded-For and X-Forwarded-Proto of this address or network; may be"
    about += " repeated"
    parser.add_argument("--trusted-proxy", action="append", metavar="ADDRESS", help=about)


def entrance_of(args: argparse.Namespace) -> Entrance:
    """What the flags say. Raises HudUsage: they make no sense."""
    if (args.cert is None) != (args.key is None):
        flag, other = ("--cert", "--key") if args.key is None else ("--key", "--cert")
        raise HudUsage(f"{flag} needs {other}", f"add {other} FILE: the other file of the pair")
    return Entrance(
        host=args.host,
        port=args.port,
        certificate=None if args.cert is None else args.cert.expanduser().absolute(),
        key=None if args.key is None else args.key.expanduser().absolute(),
        names=tuple(_name(text) for text in args.allowed_host or ()),
        proxies=tuple(_network(text) for text in args.trusted_proxy or ()),
    )


def _name(text: str) -> str:
    """A host name or address, as a Host header has it without the port."""
    name = text.strip().casefold().removeprefix("[").removesuffix("]")
    if address_of(name) is None and not _NAME.fullmatch(name):
        what = f"--allowed-host {one_line(text, 100)} is not a host name"
        raise HudUsage(what, "e.g. gpu.example.com: no scheme, no port, no *")
    return name


def _network(text: str) -> Network:
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError as error:
        what = f"--trusted-proxy {one_line(text, 100)} is neither an address nor a network"
        raise HudUsage(what, "e.g. 127.0.0.1, or 10.0.0.0/24") from error
    if network.prefixlen == 0:
        what = f"--trusted-proxy {one_line(text, 100)} believes everybody"
        raise HudUsage(what, "name the proxy's address: any client could pretend to be another")
    return network


def address_of(text: str) -> Address | None:
    """The IP address that a text is; that of IPv4 where IPv6 has it mapped. None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_in(address: Address, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    return any(address in network for network in networks)
