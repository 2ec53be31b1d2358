"""Kamino's lending: deposits and debts of one owner in a market, with interest up to the slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_fields import address
from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.kamino import ReserveState, refreshed
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.lending_layouts import KaminoMarket, KaminoObligation, KaminoReserve
from chainfolio.adapters.solana.positions import (
    ACCOUNT,
    SHARED,
    AccountPlan,
    Claim,
    DecoderPlan,
    Family,
    Unreadable,
    require,
)
from chainfolio.adapters.solana.ranges import vault_balance
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

MARKET: Final = "market"  # the role of trusted markets in the protocol's file
DEPOSIT_SLOTS: Final = 8
DEPOSIT_SLOT: Final = Struct("<32sQ96x")  # reserve and shares
DEBTS_AT: Final = 1_112
DEBT_SLOTS: Final = 5
DEBT_SLOT: Final = Struct("<32s32s24x16s96x")  # reserve, borrow index and amount
NOT_COVERED: Final = "no file names its market, whose reserves do not have what it says was deposited"


class _Debt(NamedTuple):
    """A debt to a reserve in raw units times 2^60, as it was counted at a borrow index of the reserve."""

    reserve: str
    borrow_index_sf: int
    raw_sf: int


def position(claim: Claim) -> DecoderPlan:
    """Decode an obligation: the amounts that withdrawing and repaying everything pays and costs.

    Returns an empty list if the obligation is closed or empty.

    Raises:
        Unreadable: An account could not be read, or does not belong to the obligation.
    """
    [result] = yield [AccountRead(claim.program, "kamino_obligation", (claim.subject,))]
    if isinstance(result, Unknown) and result.cause == "absent":
        return []
    obligation: KaminoObligation = require(result)
    if obligation.owner != claim.account:
        raise Unreadable(f"it is an obligation of {obligation.owner}")
    deposits, debts = _deposits(obligation.slots), list(_debts(obligation.slots))
    if not deposits and not debts:
        return []
    addresses = sorted({*deposits, *(debt.reserve for debt in debts)})
    results = yield [
        AccountRead(claim.program, "kamino_market", (obligation.market,)),
        *(AccountRead(claim.program, "kamino_reserve", (reserve,)) for reserve in addresses),
    ]
    market: KaminoMarket = require(results[0])
    reserves: dict[str, KaminoReserve] = dict(zip(addresses, map(require, results[1:]), strict=True))
    vaults = yield [AccountRead("", "token_account", (reserves[reserve].vault,)) for reserve in deposits]
    if any(reserve.market != obligation.market for reserve in reserves.values()):
        raise Unreadable("it has something in a reserve of another market")
    states = {
        reserve: refreshed(record, claim.slot, claim.time_s, market.max_reward_rate_bps)
        for reserve, record in reserves.items()
    }
    supplied = {reserve: states[reserve].redeemable(shares) for reserve, shares in deposits.items()}
    is_covered = is_trusted = obligation.market in claim.contracts.get(MARKET, ())
    if not is_trusted:
        balances = {
            reserve: vault_balance(require(vault), reserves[reserve].mint)
            for reserve, vault in zip(deposits, vaults, strict=True)
        }
        is_covered = yield from _are_deposits_covered(claim, states, balances)
    return [
        DecodedPosition(
            "LENDING",
            supplied=tuple(TokenAmount(reserves[reserve].mint, raw) for reserve, raw in supplied.items()),
            borrowed=tuple(
                TokenAmount(reserves[debt.reserve].mint, states[debt.reserve].debt(debt.raw_sf, debt.borrow_index_sf))
                for debt in debts
            ),
            name="Lending market",
            pool=obligation.market,
            unverified="" if is_covered else NOT_COVERED,
            remark=SHARED if supplied and is_covered and not is_trusted else "",
        )
    ]


def _deposits(*obligations: bytes) -> dict[str, int]:
    """Return the deposited shares by reserve, summed over the slots of some obligations."""
    sums: dict[str, int] = {}
    for slots in obligations:
        for key, shares in DEPOSIT_SLOT.iter_unpack(slots[: DEPOSIT_SLOTS * DEPOSIT_SLOT.size]):
            if (reserve := address(key)) != SYSTEM and shares:
                sums[reserve] = sums.get(reserve, 0) + shares
    return sums


def _debts(slots: bytes) -> Iterator[_Debt]:
    for key, index, raw in DEBT_SLOT.iter_unpack(slots[DEBTS_AT : DEBTS_AT + DEBT_SLOTS * DEBT_SLOT.size]):
        if (reserve := address(key)) != SYSTEM and any(raw):
            yield _Debt(reserve, int.from_bytes(index, "little"), int.from_bytes(raw, "little"))


def _are_deposits_covered(
    claim: Claim, states: Mapping[str, ReserveState], balances: Mapping[str, int]
) -> AccountPlan[bool]:
    """Return True if the vaults hold all deposits of the account, in all of its obligations.

    Anybody can open a market and borrow from himself, so deposits count only as far as the vaults cover them. If the
    account has too many obligations to add, the vaults must cover all shares of the reserve.
    """
    obligations = yield from FAMILY.sibling_records(claim)
    deposits = _deposits(*(each.slots for each in obligations if each.owner == claim.account))
    return all(
        balance >= states[reserve].redeemable(deposits.get(reserve, states[reserve].shares))
        for reserve, balance in balances.items()
    )


# Instructions of the program's interface, which its SDK has: https://github.com/Kamino-Finance/klend-sdk
LEND, DEBT, BOTH, SHARES = CallRule("lend", 1), CallRule("debt", 1), CallRule("swap debt", 1), CallRule("share")
RULES: Final = by_name(
    init_obligation=CallRule("open", 2, 0, accounts=(2,)),
    deposit_reserve_liquidity=SHARES,
    redeem_reserve_collateral=SHARES,
    deposit_reserve_liquidity_and_obligation_collateral=LEND,
    deposit_reserve_liquidity_and_obligation_collateral_v2=LEND,
    withdraw_obligation_collateral_and_redeem_reserve_collateral=LEND,
    withdraw_obligation_collateral_and_redeem_reserve_collateral_v2=LEND,
    deposit_and_withdraw=LEND,
    borrow_obligation_liquidity=DEBT,
    borrow_obligation_liquidity_v2=DEBT,
    repay_obligation_liquidity=DEBT,
    repay_obligation_liquidity_v2=DEBT,
    repay_and_withdraw_and_redeem=BOTH,
    **trades("flash_borrow_reserve_liquidity", "flash_repay_reserve_liquidity"),  # nothing but a fee is left
    **trades("refresh_obligation", "request_elevation_group", "init_obligation_farms_for_reserve"),
    **trades("refresh_obligation_farms_for_reserve", "mark_obligation_for_deleveraging", "set_obligation_order"),
)

FAMILY = Family(
    "kamino_lending",
    position=position,
    role="lending",
    claim_kind=ACCOUNT,
    owner_field=("kamino_obligation", 64),
    roles=(MARKET,),
    instructions=RULES,
)
