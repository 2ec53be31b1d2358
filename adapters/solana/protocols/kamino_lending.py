"""Kamino's lending: what somebody deposited and owes in a market, with interest up to the slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from adapters.solana.account_fields import address
from adapters.solana.account_reads import AccountRead, ListRead
from adapters.solana.kamino import Counted, counted
from adapters.solana.layouts import SYSTEM
from adapters.solana.lending_layouts import KaminoMarket, KaminoObligation, KaminoReserve
from adapters.solana.positions import ACCOUNT, SHARED, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import held
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

MARKET: Final = "market"  # the role of the markets that are relied on
DEPOSITS: Final = (0, 8, Struct("<32sQ96x"))  # where they lie, how many, and each: its reserve, and how many shares
DEBTS: Final = (
    1_112,
    5,
    Struct("<32s32s24x16s96x"),
)  # each: its reserve, how debts had grown, and how much
NOT_COVERED: Final = "no file names its market, whose reserves do not have what it says was deposited"


class _Debt(NamedTuple):
    """What is owed to a reserve, times 2^60, counted when debts there had grown so much."""

    reserve: str
    grown: int
    raw: int


def position(claim: Claim) -> DecoderPlan:
    """What withdrawing and repaying everything gives and takes."""
    [said] = yield [AccountRead(claim.program, "kamino_obligation", (claim.subject,))]
    if isinstance(said, Unknown) and said.cause == "absent":
        return []
    stored: KaminoObligation = sure(said)
    if stored.owner != claim.account:
        raise Unreadable(f"it is an obligation of {stored.owner}")
    deposits, debts = _deposits(stored.content), list(_debts(stored.content))
    if not deposits and not debts:
        return []
    addresses = sorted({*deposits, *(each.reserve for each in debts)})
    told = yield [
        AccountRead(claim.program, "kamino_market", (stored.market,)),
        *(AccountRead(claim.program, "kamino_reserve", (each,)) for each in addresses),
    ]
    market: KaminoMarket = sure(told[0])
    reserves: dict[str, KaminoReserve] = dict(zip(addresses, map(sure, told[1:]), strict=True))
    vaults = yield [AccountRead("", "token_account", (reserves[each].vault,)) for each in deposits]
    if any(each.market != stored.market for each in reserves.values()):
        raise Unreadable("it has something in a reserve of another market")
    now = {at: counted(each, claim.slot, claim.time_s, market.rewards_bps) for at, each in reserves.items()}
    supplied = {at: now[at].redeemed(shares) for at, shares in deposits.items()}
    covered = named = stored.market in claim.contracts.get(MARKET, ())
    if not covered:
        there = {at: held(sure(vault), reserves[at].mint) for at, vault in zip(deposits, vaults, strict=True)}
        covered = yield from _covered(claim, now, there)
    return [
        DecodedPosition(
            "LENDING", supplied=tuple(TokenAmount(reserves[at].mint, raw) for at, raw in supplied.items()),
            borrowed=tuple(TokenAmount(reserves[each.reserve].mint, _owed(now, each)) for each in debts),
            name="Lending market", pool=stored.market, unverified="" if covered else NOT_COVERED,
            remark=SHARED if supplied and covered and not named else "",
        )
    ]  # fmt: skip


def _deposits(*contents: bytes) -> dict[str, int]:
    """How many shares of each reserve were deposited."""
    found: dict[str, int] = {}
    for reserve, shares in (each for content in contents for each in _places(content, *DEPOSITS)):
        if reserve != SYSTEM and shares:
            found[reserve] = found.get(reserve, 0) + shares
    return found


def _debts(content: bytes) -> Iterator[_Debt]:
    for reserve, grown, raw in _places(content, *DEBTS):
        if reserve != SYSTEM and any(raw):
            yield _Debt(reserve, int.from_bytes(grown, "little"), int.from_bytes(raw, "little"))


def _places(content: bytes, at: int, count: int, place: Struct) -> Iterator[tuple[Any, ...]]:
    for first, *rest in place.iter_unpack(content[at : at + count * place.size]):
        yield address(first), *rest


def _owed(now: Mapping[str, Counted], debt: _Debt) -> int:
    return now[debt.reserve].owed(debt.raw, debt.grown)


def _covered(
    claim: Claim, now: Mapping[str, Counted], there: Mapping[str, int]
) -> Plan[AccountRead | ListRead, Any, bool]:
    """Whether all that the account has in the reserves, by this obligation and others, could be taken out now, by what
    lies in their vaults: anybody can open a market, and borrow from himself."""
    alike = yield from FAMILY.alike(claim)
    own = _deposits(*(each.content for each in alike if each.owner == claim.account))
    return all(raw >= now[at].redeemed(own.get(at, now[at].shares)) for at, raw in there.items())


FAMILY = Family(
    "kamino_lending", position=position, role="lending", stands=ACCOUNT, owned=("kamino_obligation", 64),
    roles=(MARKET,),
)  # fmt: skip
