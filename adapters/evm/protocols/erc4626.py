"""ERC-4626 vaults: a share is worth what the vault says it would give for it.

Anybody can deploy a contract that says so. A share of one that no file names counts for who deposited into it, with at
most its part of the assets that lie there, and only if they cover most of what the vault promises for all shares. A
share of one that is listed, but whose code nobody read, counts for who came by it in an act of its own.
"""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, covered
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import Remarked, TokenAmount, Unlisted, Unverified

KIND = "VAULT"
NOT_DEPOSITED = "no file names this vault, and the account never deposited its asset into it"
NOT_COVERED = "no file names this vault, and the assets in it do not cover what it promises for all its shares"
LAGS = "no file names this vault, and less lies there than it promises: the account's part of what lies there counts"
# A vault that mints its interest from time to time promises more than it has until it does. A tenth is what a rate of
# 20 % a year makes in half a year; who has less than nine tenths keeps its assets elsewhere, and its part says nothing.
LEAST_PART = (9, 10)


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
    promised = whole if paid is None else paid
    assets = promised if listed else payable(promised, raw, supply=own[0], held=own[1])
    if assets is None or (not listed and asset != match.answer):
        return Unverified(NOT_COVERED)
    is_known = deposited or (listed and not match.is_fork)
    parts = (TokenAmount(asset, assets),)
    given = parts if is_known else Unlisted(parts)
    return given if assets == promised else Remarked(given, LAGS)


def payable(promised: int, raw: int, supply: int, held: int) -> int | None:
    """Return how much of `promised` a vault can pay for `raw` of `supply` shares out of the `held` assets, so that the
    other holders get their part; None if that is too little to be the share's worth."""
    if covered(promised, raw, held, supply):
        return promised
    if not 0 < raw <= supply:
        return None
    part, (least, whole) = held * raw // supply, LEAST_PART
    return part if part * whole >= promised * least else None


FAMILY = Family(
    "erc4626",
    rules=(Token(role="vault"), Token(question="asset()(address)", everywhere=True)),
    unwrap=unwrap,
    position_type=KIND,
)
