"""Maker's vaults: collateral against which Dai was drawn, each vault by itself."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from adapters.evm.positions.rules import Always, DecoderPlan, Family, MayRefuse, ProtocolMatch
from adapters.evm.protocols.maker import PROXIES, holders
from adapters.evm.reads import Call
from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD, RAY = 10**18, 10**27
WAD_DECIMALS = 18
VAULTS = "getCdpsAsc(address,address)(uint256[],address[],bytes32[])"
URN = "urns(bytes32,address)(uint256,uint256)"
ILK = "ilks(bytes32)(uint256,uint256,uint256,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """One position for each vault of the account's or its proxies', with what closing it pays and takes now.

    The core contracts know the collateral by a name only: which token that is stands in the file's `ilk_registry`;
    without one the collateral is said to be unknown.
    """
    (manager,), (reader,), (vat,) = (match.contracts[role] for role in ("cdp_manager", "get_cdps", "vat"))
    registry = match.contracts.get("ilk_registry", ())
    owners = yield from holders(match)
    counts = yield [MayRefuse(Call(manager, "count(address)(uint256)", (owner,))) for owner in owners]
    # Where there is no manager yet at this block, it does not say how many there are.
    having = [owner for owner, count in zip(owners, counts, strict=True) if count]
    if not having:
        return None
    listed = yield [Call(reader, VAULTS, (manager, owner)) for owner in having]
    numbers, urns, ilks = ([each for vaults in listed for each in vaults[at]] for at in range(3))
    reads = [
        ask
        for urn, ilk in zip(urns, ilks, strict=True)
        for ask in (
            Call(vat, URN, (ilk, urn)),
            Call(vat, ILK, (ilk,)),
            Call(vat, "gem(bytes32,address)(uint256)", (ilk, urn)),
            Call(vat, "dai(address)(uint256)", (urn,)),
            *(Call(each, "gem(bytes32)(address)", (ilk,)) for each in registry),
            *(Call(each, "dec(bytes32)(uint256)", (ilk,)) for each in registry),
        )
    ]
    told = yield reads
    width = len(reads) // len(urns)
    return [
        _found(match, number, ilk, told[at : at + width])
        for number, ilk, at in zip(numbers, ilks, range(0, len(told), width), strict=True)
    ]


def _found(match: ProtocolMatch, number: int, ilk: bytes, told: Sequence[Any]) -> DecodedPosition:
    (ink, art), (_, rate, spot, *_), loose, kept, *listed = told
    (dai,) = match.contracts["dai"]
    token, decimals = listed or (ZERO_ADDRESS, 0)
    known = token != ZERO_ADDRESS and decimals <= WAD_DECIMALS
    collateral, owed = ink + loose, art * rate - kept  # Dai that is kept there pays for a part of the debt
    return DecodedPosition(
        "LENDING",
        supplied=(
            *((TokenAmount(token, collateral // 10 ** (WAD_DECIMALS - decimals)),) if known else ()),
            TokenAmount(dai, max(-owed, 0) // RAY),
        ),
        borrowed=(TokenAmount(dai, -(min(-owed, 0) // RAY)),),
        name=f"{ilk.rstrip(bytes(1)).decode(errors='replace')} vault {number}",
        health=_health(ink * spot, art * rate),
        pool=match.contracts["vat"][0],
        unknown="its collateral" if collateral and not known else "",
    )


def _health(covered: int, owed: int) -> Decimal | None:
    """How many times over what may be owed covers what is: below one it can be liquidated."""
    return amounts.amount(covered * WAD // owed, WAD_DECIMALS) if owed else None


FAMILY = Family(
    "maker_vaults",
    rules=(Always("cdp_manager"), PROXIES),
    position=position,
    roles=("get_cdps", "vat", "dai", "ilk_registry"),
)
