"""The addresses that hold an account's positions in Maker: the account and its proxies."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, ProtocolMatch
from chainfolio.adapters.evm.reads import Call

PROXIES = Event(
    "proxy_factory", "Created(address indexed sender, address indexed owner, address proxy, address cache)", 1, (2,)
)


def holders(match: ProtocolMatch) -> DecoderPlan:
    """Return the account; if the proxy factory was matched, the account's proxies that it still owns."""
    if not match.is_listed(PROXIES.role):
        return (match.account,)
    proxies = [proxy for (proxy,) in match.values]
    owners = yield [Call(proxy, "owner()(address)") for proxy in proxies]
    return tuple(proxy for proxy, owner in zip(proxies, owners, strict=True) if owner == match.account)
