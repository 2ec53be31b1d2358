"""ERC-4626 vaults: a share is worth what the vault says it would give for it.

Anybody can deploy a contract that says so. A share of one that no file names counts for who deposited into it, and only
if the assets that lie in it cover what it promises for all shares. A share of one that is listed, but whose code nobody
read, counts for who came by it in an act of its own.
"""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, covered
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import TokenAmount, Unlisted, Unverified

KIND = "VAULT"
NOT_DEPOSITED = "no file names this vault, and the account never deposited its asset into it"
NOT_COVERED = "no file names this vault, and the assets in it do not cover what it promises for all its shares"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """The asset that redeeming so many shares gives now, fees taken off where the vault takes any.

    A vault whose redemption goes through a queue refuses to preview it; what its shares stand for is then its answer.
    """
    vault = match.contract
    listed, deposited = match.is_listed("vault"), match.deposited(match.answer)
    if not (listed or deposited or match.is_inner):
        return Unverified(NOT_DEPOSITED)
    asset, whole, paid, *own = yield [
        Call(vault, "asset()(address)"),
        Call(vault, "convertToAssets(uint256)(uint256)", (raw,)),
        MayRefuse(Call(vault, "previewRedeem(uint256)(uint256)", (raw,))),
        *([] if listed else [Call(vault, "totalSupply()(uint256)"), balance_of(match.answer, vault)]),
    ]
    assets = whole if paid is None else paid
    if not listed and (asset != match.answer or not covered(assets, raw, held=own[1], supply=own[0])):
        return Unverified(NOT_COVERED)
    is_known = deposited or (listed and not match.is_fork)
    return (TokenAmount(asset, assets),) if is_known else Unlisted((TokenAmount(asset, assets),))


FAMILY = Family(
    "erc4626",
    rules=(Token(role="vault"), Token(question="asset()(address)", everywhere=True)),
    unwrap=unwrap,
    position_type=KIND,
)
