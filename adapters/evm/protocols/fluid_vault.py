"""Fluid's vaults: positions as ERC-721 tokens, each with collateral and debt in one token."""

from __future__ import annotations

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
from chainfolio.protocols import DecodedPosition, TokenAmount

POSITIONS = "getPositionsForNftIds(uint256[])((uint256,address,uint256,uint256)[])"
# Two releases: in the older one, words 5 and 6 are the tokens, and words 7 and 8 their decimals. In the newer one,
# words 9 to 12 are two tokens each for collateral and debt.
CONSTANTS = f"constantsView()({','.join(['uint256'] * 12)})"
MAX_DECIMALS = 255
NATIVE = "0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"


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
    supplied, borrowed = map(_token, (words[4], words[5]) if is_older else (words[8], words[10]))
    return DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(supplied, rows[0][2]),),
        borrowed=(TokenAmount(borrowed, rows[0][3]),),
        name=f"Position {number}",
        pool=vault,
    )


def _token(word: int) -> str:
    """Return the address in a word; the zero address for the native coin."""
    address = f"0x{word % (1 << 160):040x}"
    return ZERO_ADDRESS if address == NATIVE else address


FAMILY = Family(
    "fluid_vault",
    rules=(Collection("vault_factory"),),
    position=position,
    roles=("positions_resolver", "vault_resolver"),
    is_proven=False,
)
