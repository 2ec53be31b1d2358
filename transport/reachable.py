"""Check addresses of other hosts: public ones may be connected to, and those that the operator allows."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from chainfolio.errors import BadRequest, BadSettings

AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]
MAX_URL: Final = 2000
_NAT64: Final = ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ip_network("::/96")


class Forbidden(OSError):
    """A host resolves to an address that may not be connected to."""


def check_url(url: str) -> None:
    """Check the URL of a new webhook. The addresses of its host are checked at each connection.

    Raises:
        BadRequest: It is no URL of HTTP or too long, or has a user, a space, a fragment or an invalid port.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise BadRequest("url", "not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > MAX_URL or not url.isprintable():
        raise BadRequest("url", "not a URL of http or https")
    if " " in url or parts.username is not None or parts.fragment:
        raise BadRequest("url", "it has a space, a user or a fragment", remedy="scheme, host, path and query only")


class Reachable:
    """The addresses that may be connected to.

    Args:
        allowed: Host names, addresses and networks that are allowed although they are not public.

    Raises:
        BadSettings: An entry is neither.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._names: set[str] = set()
        self._networks = []
        for each in allowed:
            try:
                self._networks.append(ip_network(each))
            except ValueError:
                if "/" in each or not each.replace("-", "").replace(".", "").replace("_", "").isalnum():
                    reason = f"`{each}` is no host, address or network"
                    raise BadSettings("alerts.allow_hosts", reason, remedy="as hooks.internal or 10.0.0.0/8") from None
                self._names.add(each.lower())

    def names(self, host: str) -> bool:
        """Return True if the operator allows a host by its name, whatever its address."""
        return host.lower().rstrip(".") in self._names

    def allows(self, text: str) -> bool:
        """Return True if an IP address is public or allowed, False for other texts.

        Addresses of IPv4 inside IPv6 count as IPv4.
        """
        try:
            address = _embedded(ip_address(text.partition("%")[0]))
        except ValueError:
            return False
        if any(address.version == each.version and address in each for each in self._networks):
            return True
        if isinstance(address, IPv6Address) and address.is_site_local:
            return False  # private until 2004; some networks still use it
        return address.is_global and not address.is_multicast and not address.is_reserved

    def new_socket(self, info: AddressInfo) -> socket.socket:
        """Return a socket for an address that is about to be connected to.

        Raises:
            Forbidden: The address is neither public nor allowed.
        """
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise Forbidden("the host has a private address")
        return socket.socket(family, kind, protocol)


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address contains, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
