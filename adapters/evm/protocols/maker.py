"""Whose things in Maker are an account's: its own, and those of the proxies through which most of its users go."""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Event, ProtocolMatch
from adapters.evm.reads import Call

PROXIES = Event(
    "proxy_factory", "Created(address indexed sender, address indexed owner, address proxy, address cache)", 1, (2,)
)


def holders(match: ProtocolMatch) -> DecoderPlan:
    """The account, or where its proxies are what was met, those of them that are still its own."""
    if match.contract not in match.contracts.get(PROXIES.role, ()):
        return (match.account,)
    proxies = [proxy for (proxy,) in match.values]
    owners = yield [Call(proxy, "owner()(address)") for proxy in proxies]
    return tuple(proxy for proxy, owner in zip(proxies, owners, strict=True) if owner == match.account)
