"""Fluid's vaults: positions as ERC-721 tokens, each with collateral and debt in one token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import (
    Collection,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
    ReadError,
)
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount

POSITIONS = "getPositionsForNftIds(uint256[])((uint256,address,uint256,uint256)[])"
# Two releases: in the older one, words 5 and 6 are the tokens, and words 7 and 8 their decimals. In the newer one,
# words 9 to 12 are two tokens each for collateral and debt.
CONSTANTS = f"constantsView()({','.join(['uint256'] * 12)})"
MAX_DECIMALS = 255
NATIVE = "0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
OPERATED: Final = parse_event("LogOperate(address,uint256,int256,int256,address)").topic  # of a vault
MOVED: Final = parse_event(  # of the liquidity layer, for a vault: token, supplied and borrowed amount
    "LogOperate(address indexed,address indexed,int256,int256,address,address,uint256,uint256)"
).topic
TWO_TOKENS: Final = "a vault moved tokens that are no collateral and no debt of its own"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position: collateral and debt with interest up to the block.

    None if the account does not own the NFT, or if the position is empty.

    Raises:
        ReadError: Collateral or debt of the vault is a share of a pool of two tokens.
    """
    number = match.id
    (positions_resolver,), (resolver,) = (match.contracts[role] for role in ("positions_resolver", "vault_resolver"))
    rows, vault = yield [
        MayRefuse(Call(positions_resolver, POSITIONS, ((number,),))),
        Call(resolver, "vaultByNftId(uint256)(address)", (number,)),
    ]
    if not rows or rows[0][1] != match.account or not (rows[0][2] or rows[0][3]):
        return None
    (words,) = yield [Call(vault, CONSTANTS)]
    is_older = max(words[6], words[7]) <= MAX_DECIMALS
    if not is_older and (words[9] or words[11]):
        raise ReadError(f"the vault {vault} has collateral or debt of two tokens, which this decoder does not read")
    supplied, borrowed = map(_token_address, (words[4], words[5]) if is_older else (words[8], words[10]))
    return DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(supplied, rows[0][2]),),
        borrowed=(TokenAmount(borrowed, rows[0][3]),),
        name=f"Position {number}",
        pool=vault,
    )


def _token_address(word: int) -> str:
    """Return the address in a word; the zero address for the native coin."""
    address = f"0x{word % (1 << 160):040x}"
    return ZERO_ADDRESS if address == NATIVE else address


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the changes of positions: the user of a vault, and what the liquidity layer lent to it.

    A change without a token has collateral alone. Vaults that the layer did not name in the transaction do not count:
    anyone can deploy a contract with the same event.

    Raises:
        ValueError: Collateral or debt of a vault is a share of a pool of two tokens.
    """
    layer, changes = contracts.get("liquidity", ()), list[VaultChange]()
    layer_logs = [log for log in logs if log.contract in layer and log.topics[:1] == (MOVED,) and len(log.topics) == 3]
    for log in logs if layer_logs else ():
        if log.topics != (OPERATED,) or len(log.data) != 5 * 32:
            continue
        user, _, collateral, debt, _ = (_int(log.data, i) for i in range(5))
        of_vault = [each for each in layer_logs if each.topics[1][-40:] == log.contract[2:]]
        if not of_vault or not (collateral or debt):
            continue
        supplied = [each for each in of_vault if _int(each.data, 0) == collateral]
        lent = [each for each in of_vault if _int(each.data, 1) == debt]
        if (collateral and not supplied) or (debt and not lent):
            raise ValueError(TWO_TOKENS)
        token = _token_address(int(lent[0].topics[2], 16)) if debt else ""
        vault = f"{log.contract}{user % (1 << 160):040x}"
        changes.append(VaultChange("loan", layer_logs[0].contract, vault, None, token, debt, log.contract))
    return changes


def _int(data: bytes, word: int) -> int:
    """Return a word of the data of a log, with its sign."""
    return int.from_bytes(data[32 * word : 32 * word + 32], "big", signed=True)


FAMILY = Family(
    "fluid_vault",
    rules=(Collection("vault_factory"),),
    position=position,
    roles=("positions_resolver", "vault_resolver", "liquidity"),
    vault_changes=vault_changes,
    is_proven=False,
)
