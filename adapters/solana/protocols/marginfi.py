"""MarginFi: deposits and debts in the banks of a group, with interest up to the slot's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_fields import address
from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.lending_layouts import MarginfiAccount, MarginfiBank, MarginfiGroup
from chainfolio.adapters.solana.marginfi import ONE, ShareValues, updated
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

GROUP: Final = "group"  # the role of trusted groups in the protocol's file
BALANCE_SLOTS: Final = 16
BALANCE_SLOT: Final = Struct("<?32s3xI16s16s32x")  # in use, bank, premium rate, deposit shares, debt shares
EXTERNAL_TAG: Final = 3  # banks with this asset tag or a higher one deposit into another protocol
NOT_COVERED: Final = "no file names its group, which owes or does not have what it says was deposited"


class _Balance(NamedTuple):
    """Deposit and debt shares in a bank, times 2^48, and the rate of a premium on the debt."""

    bank: str
    assets: int
    debts: int
    premium: int


def position(claim: Claim) -> DecoderPlan:
    """Decode an account: the amounts that withdrawing and repaying everything pays and costs.

    Returns an empty list if the account is closed or empty. Debts of less than one share are left out. If no file names
    the group, the position is unverified unless it has no debts and the vaults cover all deposits of the owner.

    Raises:
        Unreadable: An account could not be read, does not belong to this one, or has terms that are not supported.
    """
    [result] = yield [AccountRead(claim.program, "marginfi_account", (claim.subject,))]
    if isinstance(result, Unknown) and result.cause == "absent":
        return []
    account: MarginfiAccount = require(result)
    if account.owner != claim.account:
        raise Unreadable(f"it is an account of {account.owner}")
    balances = _balances(account.slots)
    if not balances:
        return []
    addresses = sorted({balance.bank for balance in balances})
    results = yield [
        AccountRead(claim.program, "marginfi_group", (account.group,)),
        *(AccountRead(claim.program, "marginfi_bank", (bank,)) for bank in addresses),
    ]
    group: MarginfiGroup = require(results[0])
    banks: dict[str, MarginfiBank] = dict(zip(addresses, map(require, results[1:]), strict=True))
    vaults = yield [AccountRead("", "token_account", (bank.vault,)) for bank in banks.values()]
    values = {bank_address: updated(bank, group, claim.time_s) for bank_address, bank in banks.items()}
    _check_banks(account, balances, banks)
    supplied = {each.bank: values[each.bank].redeemable(each.assets) for each in balances if each.assets}
    borrowed = {each.bank: values[each.bank].repayable(each.debts) for each in balances if each.debts >= ONE}
    is_covered = is_trusted = account.group in claim.contracts.get(GROUP, ())
    if not is_trusted and not borrowed:
        raws = {
            bank_address: vault_balance(require(vault), bank.mint)
            for (bank_address, bank), vault in zip(banks.items(), vaults, strict=True)
        }
        is_covered = yield from _are_deposits_covered(claim, values, banks, raws)
    return [
        DecodedPosition(
            "LENDING",
            supplied=tuple(TokenAmount(banks[bank].mint, raw) for bank, raw in supplied.items()),
            borrowed=tuple(TokenAmount(banks[bank].mint, raw) for bank, raw in borrowed.items()),
            name="Lending market",
            pool=account.group,
            unverified="" if is_covered else NOT_COVERED,
            remark=SHARED if supplied and is_covered and not is_trusted else "",
        )
    ]


def _balances(slots: bytes) -> list[_Balance]:
    """Return the balances in use, or raise Unreadable if two are in one bank or one is negative."""
    balances = [
        _Balance(address(bank), _signed(assets), _signed(debts), premium)
        for in_use, bank, premium, assets, debts in BALANCE_SLOT.iter_unpack(slots[: BALANCE_SLOTS * BALANCE_SLOT.size])
        if in_use and (any(assets) or any(debts))
    ]
    is_negative = any(min(balance.assets, balance.debts) < 0 for balance in balances)
    if len({balance.bank for balance in balances}) < len(balances) or is_negative:
        raise Unreadable("it has less than nothing in a bank, or two places for one")
    return balances


def _signed(content: bytes) -> int:
    return int.from_bytes(content, "little", signed=True)


def _check_banks(account: MarginfiAccount, balances: Sequence[_Balance], banks: Mapping[str, MarginfiBank]) -> None:
    """Raise Unreadable if a balance contradicts its bank, or has terms that are not supported."""
    if any(bank.group != account.group for bank in banks.values()):
        raise Unreadable("it has something in a bank of another group")
    if any(bank.asset_tag >= EXTERNAL_TAG for bank in banks.values()):
        raise Unreadable("it has something in a bank that lends to another protocol, which is not read")
    pairs = [(balance, banks[balance.bank]) for balance in balances]
    if any(balance.assets > bank.asset_shares or balance.debts > bank.debt_shares for balance, bank in pairs):
        raise Unreadable("it has or owes more than there is in a bank")
    if any(balance.premium and balance.debts for balance in balances):
        raise Unreadable("it owes a premium beside interest, which is not read")


def _are_deposits_covered(
    claim: Claim,
    values: Mapping[str, ShareValues],
    banks: Mapping[str, MarginfiBank],
    vault_balances: Mapping[str, int],
) -> AccountPlan[bool]:
    """Return True if the vaults hold all deposits of the owner, including those of its other accounts.

    If the owner has too many accounts to add, the vaults must cover all deposit shares of the bank.

    Args:
        vault_balances: Raw balances by bank.
    """
    shares: dict[str, int] = {}
    for account in (yield from FAMILY.sibling_records(claim)):
        for balance in _balances(account.slots) if account.owner == claim.account else ():
            shares[balance.bank] = shares.get(balance.bank, 0) + balance.assets
    return all(
        raw >= values[bank].redeemable(shares.get(bank, banks[bank].asset_shares))
        for bank, raw in vault_balances.items()
    )


# Instructions of the program's interface, which its SDK has: https://github.com/mrgnlabs/marginfi-v2
LEND, DEBT = CallRule("lend", 1), CallRule("debt", 1)
OPEN = CallRule("open", 1, 2, accounts=(1,))
RULES: Final = by_name(
    marginfi_account_initialize=OPEN,
    marginfi_account_initialize_pda=OPEN,
    lending_account_deposit=LEND,
    lending_account_withdraw=LEND,
    lending_account_borrow=DEBT,
    lending_account_repay=DEBT,
    lending_account_withdraw_emissions=CallRule("earn", 1),
    lending_account_withdraw_emissions_permissionless=CallRule("earn", 1),
    **trades("marginfi_account_close", "lending_account_close_balance", "lending_account_sort_balances"),
    **trades("lending_account_start_flashloan", "lending_account_end_flashloan", "lending_account_pulse_health"),
    **trades("lending_account_settle_emissions", "marginfi_account_update_emissions_destination_account"),
)

FAMILY = Family(
    "marginfi",
    position=position,
    role="lending",
    claim_kind=ACCOUNT,
    owner_field=("marginfi_account", 40),
    roles=(GROUP,),
    instructions=RULES,
)
