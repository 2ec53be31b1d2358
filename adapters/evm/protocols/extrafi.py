"""Extra Finance: shares of pairs farmed with borrowed tokens, numbered by vault and, in it, by position."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

# Of the vault's struct what is needed: gauge, pair, both tokens.
VAULT = "getVault(uint256)(address,address,address,address)"
# Manager, three facts about its age, first supplies (3), what stayed outside the pair (2), what is inside (2), shares
# of the pair, debts (2).
POSITION = (
    "getVaultPosition(uint256,uint256)(address,bool,bool,uint64,uint64,"
    "uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256,uint256)"
)


def position(match: ProtocolMatch) -> DecoderPlan:
    """The account's among the positions whose numbers are in the file: option `positions`, as "vault/position …".

    No contract says which positions an account has; they are only numbered in events. So somebody who met the
    protocol and is the manager of none that is listed may have some: that is said, and not taken for nothing, unless
    only a token that nobody lists says that they met.
    """
    listed = [tuple(map(int, each.split("/"))) for each in match.options.get("positions", "").split()]
    told = yield [
        *(Call(match.contract, POSITION, number) for number in listed),
        *(Call(match.contract, VAULT, (vault,)) for vault, _ in listed),
    ]
    pairs = zip(told[: len(listed)], told[len(listed) :], strict=True)
    found = [_found(match.contract, state, vault) for state, vault in pairs if state[0] == match.account]
    if not found and match.is_sure:
        return DecodedPosition("LEVERAGED FARMING", unknown="positions whose numbers are not in the protocol's file")
    return found


def _found(contract: str, state: tuple[int, ...], vault: tuple[str, ...]) -> DecodedPosition:
    _, pair, token0, token1 = vault
    left0, left1, _, _, shares, debt0, debt1 = state[8:15]
    return DecodedPosition(
        "LEVERAGED FARMING",
        supplied=(TokenAmount(pair, shares), TokenAmount(token0, left0), TokenAmount(token1, left1)),
        borrowed=(TokenAmount(token0, debt0), TokenAmount(token1, debt1)),
        pool=contract,
    )


FAMILY = Family("extrafi", rules=(Counterparty("position_manager"),), position=position, options=("positions",))
