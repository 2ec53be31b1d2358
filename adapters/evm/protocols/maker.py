"""Whose things in Maker are an account's: its own, and those of the proxies through which most of its users go."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Decoding, Event, Met

PROXIES = Event(
    "proxy_factory", "Created(address indexed sender, address indexed owner, address proxy, address cache)", 1, (2,)
)


def holders(met: Met) -> Decoding:
    """The account, or where its proxies are what was met, those of them that are still its own."""
    if met.contract not in met.contracts.get(PROXIES.role, ()):
        return (met.account,)
    proxies = [proxy for (proxy,) in met.values]
    owners = yield [Call(proxy, "owner()(address)") for proxy in proxies]
    return tuple(proxy for proxy, owner in zip(proxies, owners, strict=True) if owner == met.account)
