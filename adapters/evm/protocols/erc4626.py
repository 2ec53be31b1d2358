"""ERC-4626 vaults: a share stands for the assets that the vault says it would pay for it.

Anybody can deploy a contract that says so. A share of a vault that no file names counts only if the account deposited
into it, with at most its part of the assets in the vault, and only if these cover most of what the vault promises for
all shares. A share of a listed vault with unreviewed code counts if it came to the account by its own action.
"""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, is_backed
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import AnnotatedShare, TokenAmount, UnlistedShare, UnverifiedShare

KIND = "VAULT"
NOT_DEPOSITED = "no file names this vault, and the account never deposited its asset into it"
NOT_COVERED = "no file names this vault, and the assets in it do not cover what it promises for all its shares"
LAGS = "no file names this vault, and less lies there than it promises: the account's part of what lies there counts"
# A vault that mints its interest from time to time promises more than it has until it does. A tenth is half a year's
# interest at 20 % a year; a vault with less than nine tenths keeps its assets elsewhere, so its balance says nothing.
MIN_PART = (9, 10)


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the asset that redeeming `raw` shares pays now, less the vault's fees.

    A vault whose redemptions go through a queue refuses to preview them; the amount that the shares stand for then
    counts. A vault that no file lists counts as unverified unless the account deposited or it lies in another share,
    and pays at most its part of what it has.
    """
    vault = match.contract
    is_listed, has_deposited = match.is_listed("vault"), match.has_deposited(match.answer)
    if not (is_listed or has_deposited or match.is_inner):
        return UnverifiedShare(NOT_DEPOSITED)
    asset, converted, preview, *totals = yield [
        Call(vault, "asset()(address)"),
        Call(vault, "convertToAssets(uint256)(uint256)", (raw,)),
        MayRefuse(Call(vault, "previewRedeem(uint256)(uint256)", (raw,))),
        *([] if is_listed else [Call(vault, "totalSupply()(uint256)"), balance_of(match.answer, vault)]),
    ]
    promised = converted if preview is None else preview
    payout = promised if is_listed else payable(promised, raw, supply=totals[0], assets=totals[1])
    if payout is None or (not is_listed and asset != match.answer):
        return UnverifiedShare(NOT_COVERED)
    is_trusted = has_deposited or (is_listed and not match.is_fork)
    parts = (TokenAmount(asset, payout),)
    share = parts if is_trusted else UnlistedShare(parts)
    return share if payout == promised else AnnotatedShare(share, LAGS)


def payable(promised: int, raw: int, supply: int, assets: int) -> int | None:
    """Return how much of `promised` a vault can pay for `raw` of `supply` shares out of its `assets`.

    The other holders keep their part. None if the payable part is too small to be the share's value.
    """
    if is_backed(promised, raw, assets, supply):
        return promised
    if not 0 < raw <= supply:
        return None
    part, (numerator, denominator) = assets * raw // supply, MIN_PART
    return part if part * denominator >= promised * numerator else None


FAMILY = Family(
    "erc4626",
    rules=(Token(role="vault"), Token(question="asset()(address)", everywhere=True)),
    unwrap=unwrap,
    position_type=KIND,
)
