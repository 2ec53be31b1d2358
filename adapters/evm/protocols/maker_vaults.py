"""Maker's vaults: collateral against which Dai was drawn, one position a vault."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from chainfolio import amounts
from chainfolio.adapters.evm.positions.rules import DecoderPlan, EveryAccount, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.protocols.maker import PROXIES, holders, vault_changes
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD, RAY = 10**18, 10**27
WAD_DECIMALS = 18
VAULTS = "getCdpsAsc(address,address)(uint256[],address[],bytes32[])"
URN = "urns(bytes32,address)(uint256,uint256)"
ILK = "ilks(bytes32)(uint256,uint256,uint256,uint256,uint256)"


class VaultReads(NamedTuple):
    """The reads of one vault; `token` and `decimals` of its collateral need an `ilk_registry`."""

    urn: tuple[int, int]  # locked collateral, normalised debt
    ilk: tuple[int, int, int, int, int]  # normalised debt of all, rate, price with safety margin, ceiling, minimum
    unlocked: int  # collateral that is not locked in the vault
    dai: int  # Dai of the vault's address, times 10^45
    token: str = ZERO_ADDRESS
    decimals: int = 0


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode each vault of the account or its proxies: what closing it pays and takes now.

    The core contracts know a collateral by name only; its token is in the file's `ilk_registry`. Without a registry,
    the collateral is reported as unknown. None if there are no vaults.
    """
    (manager,), (reader,), (vat,) = (match.contracts[role] for role in ("cdp_manager", "get_cdps", "vat"))
    registry = match.contracts.get("ilk_registry", ())
    owners = yield from holders(match)
    counts = yield [MayRefuse(Call(manager, "count(address)(uint256)", (owner,))) for owner in owners]
    # The count is None if the manager does not exist yet at this block.
    vault_owners = [owner for owner, count in zip(owners, counts, strict=True) if count]
    if not vault_owners:
        return None
    vault_lists = yield [Call(reader, VAULTS, (manager, owner)) for owner in vault_owners]
    numbers, urns, ilks = ([item for lists in vault_lists for item in lists[index]] for index in range(3))
    reads = [
        call
        for urn, ilk in zip(urns, ilks, strict=True)
        for call in (
            Call(vat, URN, (ilk, urn)),
            Call(vat, ILK, (ilk,)),
            Call(vat, "gem(bytes32,address)(uint256)", (ilk, urn)),
            Call(vat, "dai(address)(uint256)", (urn,)),
            *(Call(contract, "gem(bytes32)(address)", (ilk,)) for contract in registry),
            *(Call(contract, "dec(bytes32)(uint256)", (ilk,)) for contract in registry),
        )
    ]
    results = yield reads
    width = len(reads) // len(urns)
    return [
        _vault_position(match, number, ilk, VaultReads(*results[start : start + width]))
        for number, ilk, start in zip(numbers, ilks, range(0, len(results), width), strict=True)
    ]


def _vault_position(match: ProtocolMatch, number: int, ilk: bytes, vault: VaultReads) -> DecodedPosition:
    """Return one vault: its collateral and spare Dai as supplied, its debt as borrowed.

    The collateral is unknown if its token is, or if the token has more than 18 decimals.
    """
    (ink, art), (_, rate, spot, *_) = vault.urn, vault.ilk
    (dai,) = match.contracts["dai"]
    is_known = vault.token != ZERO_ADDRESS and vault.decimals <= WAD_DECIMALS
    collateral, debt = ink + vault.unlocked, art * rate - vault.dai  # the vault's own Dai pays a part of the debt
    return DecodedPosition(
        "LENDING",
        supplied=(
            *((TokenAmount(vault.token, collateral // 10 ** (WAD_DECIMALS - vault.decimals)),) if is_known else ()),
            TokenAmount(dai, max(-debt, 0) // RAY),
        ),
        borrowed=(TokenAmount(dai, -(min(-debt, 0) // RAY)),),
        name=f"{ilk.rstrip(bytes(1)).decode(errors='replace')} vault {number}",
        health=_health(ink * spot, art * rate),
        pool=match.contracts["vat"][0],
        unknown="its collateral" if collateral and not is_known else "",
    )


def _health(limit: int, debt: int) -> Decimal | None:
    """Return the allowed debt divided by the debt, None without debt; below 1 it can be liquidated."""
    return amounts.amount(limit * WAD // debt, WAD_DECIMALS) if debt else None


FAMILY = Family(
    "maker_vaults",
    rules=(EveryAccount("cdp_manager"), PROXIES),
    position=position,
    roles=("get_cdps", "vat", "dai", "ilk_registry"),
    vault_changes=vault_changes,
)
