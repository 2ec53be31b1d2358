"""Extra Finance: liquidity farmed with borrowed tokens, numbered by vault and, in it, by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount

# The first fields of the vault's struct: gauge, pair, both tokens.
VAULT = "getVault(uint256)(address,address,address,address)"
# Manager, two flags and a time, first supplies (3), amounts outside the pair (2), amounts inside (2), shares of the
# pair, debts (2).
POSITION = (
    "getVaultPosition(uint256,uint256)(address,bool,bool,uint64,uint64,"
    "uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256)"
)


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's positions among those in option `positions`, as "vault/position …".

    No contract says which positions an account has; they are numbered in events only. So an account that used the
    protocol and manages no listed position may have an unlisted one: that is reported as unknown, unless only an
    unlisted token links the account to the protocol.
    """
    listed_positions = [tuple(map(int, text.split("/"))) for text in match.options.get("positions", "").split()]
    results = yield [
        *(Call(match.contract, POSITION, number) for number in listed_positions),
        *(Call(match.contract, VAULT, (vault,)) for vault, _ in listed_positions),
    ]
    pairs = zip(results[: len(listed_positions)], results[len(listed_positions) :], strict=True)
    positions = [
        _leveraged_position(match.contract, state, vault) for state, vault in pairs if state[0] == match.account
    ]
    if not positions and match.is_confirmed:
        return DecodedPosition("LEVERAGED FARMING", unknown="positions whose numbers are not in the protocol's file")
    return positions


def _leveraged_position(contract: str, state: tuple[int, ...], vault: tuple[str, ...]) -> DecodedPosition:
    """Return the position: LP shares and idle tokens as supplied, debts as borrowed."""
    _, pair, token0, token1 = vault
    outside0, outside1, _, _, shares, debt0, debt1 = state[8:15]
    return DecodedPosition(
        "LEVERAGED FARMING",
        supplied=(TokenAmount(pair, shares), TokenAmount(token0, outside0), TokenAmount(token1, outside1)),
        borrowed=(TokenAmount(token0, debt0), TokenAmount(token1, debt1)),
        pool=contract,
    )


UNREAD: Final = "liquidity that is farmed with borrowed tokens returns others than it took"


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return no changes: those of a position cannot be read, so that gains of what it moved are unknown.

    A position buys one token with the other one and with loans, and no event says at which value.

    Raises:
        ValueError: A position manager of the file changed a position.
    """
    if any(log.contract in contracts.get("position_manager", ()) for log in logs):
        raise ValueError(UNREAD)
    return []


FAMILY = Family(
    "extrafi",
    rules=(Counterparty("position_manager"),),
    position=position,
    options=("positions",),
    vault_changes=vault_changes,
)
