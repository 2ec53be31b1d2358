"""Look-ups of single facts for tools: validators, tokens and protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from chainfolio.agents.compact import Answer, Row, quoted
from chainfolio.assets import account
from chainfolio.engine.prices.reasons import find_asset
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.engine.service import Engine

MAX_NAME: Final = 100


async def validator_answer(engine: Engine, identifier: str) -> Answer:
    """Return the state of a validator of the beacon chain, by its index or public key."""
    name = identifier.strip().lower()
    details = await engine.validators().details(int(name) if name.isascii() and name.isdigit() else name)
    summary: Row = {
        "index": details.validator.index,
        "status": details.validator.status,
        "slashed": details.validator.slashed,
        "balanceWei": details.balance.actual,
        "effectiveWei": details.balance.effective,
        "activationEpoch": details.lifecycle.activation_epoch,
        "exitEpoch": details.lifecycle.exit_epoch,
        "withdrawalAddress": details.withdrawal_credentials.address,
    }
    return Answer(summary, {}, "complete")


async def token_answer(engine: Engine, asset: str, at: dict[str, Any]) -> Answer:
    """Return the names and decimals of a token, and if a token list has it; partial if no token is there.

    The asset is a symbol, an address or CAIP-19. The chain is read at its newest block. Raises BadRequest for an asset
    of no configured chain, SourceError if the chain cannot be read.
    """
    chain, target = find_asset(engine.system, engine.snapshotter, asset)
    snapshotter = engine.snapshotter(chain)
    head = (await engine.heads.latest(chain)).block
    token = (await snapshotter.token_context({target}, head)).tokens.get(target)
    summary: dict[str, object] = {"asset": str(target), "chain": chain.key}
    if token is None:
        summary["known"] = False
    else:
        summary |= {"symbol": quoted(token.symbol or ""), "name": quoted(token.name or ""), "decimals": token.decimals}
        summary["listed"] = target in snapshotter.book.listed
    return Answer(summary, at, "complete" if token is not None else "partial")


def protocol_answer(engine: Engine, name: str) -> Answer:
    """Return protocols by a part of their name, by key, or by the address of a contract.

    Raises:
        BadRequest: The name is empty or too long.
    """
    if not 1 <= len(name.strip()) <= MAX_NAME:
        raise BadRequest("name", f"1 to {MAX_NAME} characters")
    rows = [*_protocols(engine, name.strip())]
    summary: Row = {"protocols": len(rows)}
    return Answer(summary, {}, "complete", rows)


def _protocols(engine: Engine, name: str) -> Iterator[Row]:
    """Yield the protocols that have a key, a part of a name, or a contract on any chain.

    `chains` has at most 20 chains of a protocol.
    """
    registry = engine.protocols()
    try:
        contract = account(name).address
    except BadRequest:
        text = name.casefold()
        for each in registry.protocols:
            if text in each.name.casefold() or text == each.key:
                chains = sorted({chain for chain, _, _ in each.deployments})
                yield {"key": each.key, "name": each.name, "chains": chains[:20]}
        return
    chains = [chain.key for chain in engine.system.chains]
    for chain, protocol in registry.of(contract, chains):
        yield {"key": protocol.key, "name": protocol.name, "chains": [chain]}
