"""MarginFi: what somebody has and owes in the banks of a group, with interest up to the time of the slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from adapters.solana.account_fields import address
from adapters.solana.account_reads import AccountRead, ListRead
from adapters.solana.lending_layouts import MarginfiAccount, MarginfiBank, MarginfiGroup
from adapters.solana.marginfi import ONE, Values, counted
from adapters.solana.positions import ACCOUNT, SHARED, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import held
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

GROUP: Final = "group"  # the role of the groups that are relied on
# A place: whether it is in use, its bank, the rate of a premium, and the shares of what is there and of what is owed.
PLACES, PLACE = 16, Struct("<?32s3xI16s16s32x")
ELSEWHERE: Final = 3  # banks of this kind and above lend to another protocol
NOT_COVERED: Final = "no file names its group, which owes or does not have what it says was deposited"


class _Balance(NamedTuple):
    """What somebody has or owes in a bank, in shares times 2^48."""

    bank: str
    assets: int
    debts: int
    premium: int


def position(claim: Claim) -> DecoderPlan:
    """What withdrawing and repaying everything gives and takes."""
    [said] = yield [AccountRead(claim.program, "marginfi_account", (claim.subject,))]
    if isinstance(said, Unknown) and said.cause == "absent":
        return []
    stored: MarginfiAccount = sure(said)
    if stored.owner != claim.account:
        raise Unreadable(f"it is an account of {stored.owner}")
    balances = _balances(stored.content)
    if not balances:
        return []
    addresses = sorted({each.bank for each in balances})
    told = yield [
        AccountRead(claim.program, "marginfi_group", (stored.group,)),
        *(AccountRead(claim.program, "marginfi_bank", (each,)) for each in addresses),
    ]
    group: MarginfiGroup = sure(told[0])
    banks: dict[str, MarginfiBank] = dict(zip(addresses, map(sure, told[1:]), strict=True))
    vaults = yield [AccountRead("", "token_account", (each.vault,)) for each in banks.values()]
    now = {at: counted(each, group, claim.time_s) for at, each in banks.items()}
    _check(stored, balances, banks)
    supplied = {each.bank: now[each.bank].redeemed(each.assets) for each in balances if each.assets}
    borrowed = {each.bank: now[each.bank].owed(each.debts) for each in balances if each.debts >= ONE}
    covered = named = stored.group in claim.contracts.get(GROUP, ())
    if not covered and not borrowed:
        there = {at: held(sure(vault), bank.mint) for (at, bank), vault in zip(banks.items(), vaults, strict=True)}
        covered = yield from _covered(claim, now, banks, there)
    return [
        DecodedPosition(
            "LENDING", supplied=tuple(TokenAmount(banks[at].mint, raw) for at, raw in supplied.items()),
            borrowed=tuple(TokenAmount(banks[at].mint, raw) for at, raw in borrowed.items()),
            name="Lending market", pool=stored.group, unverified="" if covered else NOT_COVERED,
            remark=SHARED if supplied and covered and not named else "",
        )
    ]  # fmt: skip


def _balances(content: bytes) -> list[_Balance]:
    """The places that are in use; Unreadable where a bank has two."""
    found = [
        _Balance(address(bank), _signed(assets), _signed(debts), premium)
        for used, bank, premium, assets, debts in PLACE.iter_unpack(content[: PLACES * PLACE.size])
        if used and (any(assets) or any(debts))
    ]
    if len({each.bank for each in found}) < len(found) or any(min(each.assets, each.debts) < 0 for each in found):
        raise Unreadable("it has less than nothing in a bank, or two places for one")
    return found


def _signed(content: bytes) -> int:
    return int.from_bytes(content, "little", signed=True)


def _check(stored: MarginfiAccount, balances: Sequence[_Balance], banks: Mapping[str, MarginfiBank]) -> None:
    """Unreadable where something in it is not its own, or is not known here."""
    if any(each.group != stored.group for each in banks.values()):
        raise Unreadable("it has something in a bank of another group")
    if any(each.kind >= ELSEWHERE for each in banks.values()):
        raise Unreadable("it has something in a bank that lends to another protocol, which is not read")
    own = [(each, banks[each.bank]) for each in balances]
    if any(each.assets > bank.asset_shares or each.debts > bank.debt_shares for each, bank in own):
        raise Unreadable("it has or owes more than there is in a bank")
    if any(each.premium and each.debts for each in balances):
        raise Unreadable("it owes a premium beside interest, which is not read")


def _covered(
    claim: Claim, now: Mapping[str, Values], banks: Mapping[str, MarginfiBank], there: Mapping[str, int]
) -> Plan[AccountRead | ListRead, Any, bool]:
    """Whether all that somebody has in the banks, by this account and others, could be taken out now, by what lies in
    their vaults."""
    own: dict[str, int] = {}
    for each in (yield from FAMILY.alike(claim)):
        for balance in _balances(each.content) if each.owner == claim.account else ():
            own[balance.bank] = own.get(balance.bank, 0) + balance.assets
    return all(raw >= now[at].redeemed(own.get(at, banks[at].asset_shares)) for at, raw in there.items())


FAMILY = Family(
    "marginfi", position=position, role="lending", stands=ACCOUNT, owned=("marginfi_account", 40), roles=(GROUP,)
)
