"""Match transfers between accounts of one owner over chains, which are no disposals.

A departure and an arrival belong together if they move the same asset, no more arrives than left, and no other pairs
are possible. Nothing on a chain proves it, so both sides have conditions that strangers cannot meet cheaply: the owner
sent the departure, and a trusted asset of nearly the same amount arrived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.portfolio.pnl.entries import AssetFacts, Entry, share
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.pnl.transfer_rows import OwnTransfer

FEE_PARTS: Final = 50  # one of so many parts of what left may be a fee: bridges and relayers take less
WINDOW_US: Final = 14 * 86_400_000_000  # optimistic rollups pay a withdrawal after 7 days, when the owner asks for it
MAX_PRICE_RATIO: Final = 2  # in these days; a listed token with the symbol of another has another price
CALLS: Final = frozenset({"INTERACTION", "UNDEFINED"})  # of a contract that may be a bridge
MADE: Final = frozenset({"MINT", "AIRDROP"})  # types of arrivals that a bridge of the chain itself makes
NOT_OWN: Final = "another account sent it over a bridge"
NOTHING_ARRIVED: Final = "nothing like it arrived at an own account on another chain within 14 days"
NOTHING_LEFT: Final = "nothing like it left an own account on another chain in the 14 days before"
AMBIGUOUS: Final = "several transfers fit: it is not known which ones belong together"


@dataclass(frozen=True, slots=True)
class _Leg:
    """One side of a possible transfer, with the index of its entry.

    `is_bridge`: its transaction says that it is one.
    """

    index: int
    entry: Entry
    chain: str
    decimals: int
    price: Fraction | None
    is_coin: bool
    is_bridge: bool

    def fits(self, arrival: _Leg) -> bool:
        """Return True if this departure may be what arrived: elsewhere, soon, for a small fee, at a like price."""
        departed, arrived = self.entry.quantity, arrival.entry.quantity
        if not departed * (FEE_PARTS - 1) <= arrived * FEE_PARTS <= departed * FEE_PARTS:
            return False
        if not 0 <= arrival.entry.time_us - self.entry.time_us <= WINDOW_US:
            return False
        if self.chain == arrival.chain or self.decimals != arrival.decimals:
            return False
        if not (self.is_bridge or arrival.is_bridge):
            return False
        if self.price is None or arrival.price is None:
            return self.is_coin and arrival.is_coin
        low, high = sorted((self.price, arrival.price))
        return low * MAX_PRICE_RATIO >= high


@dataclass(frozen=True, slots=True)
class _Legs:
    """The possible sides of transfers of one asset."""

    departures: list[_Leg]
    arrivals: list[_Leg]


def match_transfers(
    entries: Sequence[Entry],
    records: Iterable[TransactionRecord],
    own_wallets: Collection[str],
    treatment: Treatment,
    facts: Mapping[str, AssetFacts],
) -> tuple[list[Entry], list[OwnTransfer]]:
    """Replace transfers to own accounts on other chains by movements of their lots, and a fee.

    Returns:
        The entries, in any order, and all transfers over bridges, by time: also those whose other side is not known.
    """
    by_key = {(*each.key, each.wallet): each for each in records}
    legs, transfers = _legs(entries, by_key, own_wallets, treatment, facts)
    replaced: dict[int, list[Entry]] = {}
    for of_asset in legs.values():
        pairs, left_over = _pairs(of_asset)
        transfers += left_over
        for departure, arrival in pairs:
            transfers.append(OwnTransfer(departure.entry, arrival.entry))
            replaced[departure.index], replaced[arrival.index] = _movement_entries(departure.entry, arrival.entry)
    result = [part for i, entry in enumerate(entries) for part in replaced.get(i, (entry,))]
    return result, sorted(transfers, key=_order)


def _order(transfer: OwnTransfer) -> tuple[tuple[int, int, bool, str, str, str, str, int], bool]:
    entry = transfer.departure or transfer.arrival
    assert entry is not None, "a transfer has a side that is known"
    return entry.sort_key, transfer.departure is None


def _legs(
    entries: Sequence[Entry],
    records: Mapping[tuple[str, str, str], TransactionRecord],
    own_wallets: Collection[str],
    treatment: Treatment,
    facts: Mapping[str, AssetFacts],
) -> tuple[dict[str, _Legs], list[OwnTransfer]]:
    """Return the possible sides of transfers by identity, and bridge transfers that cannot be matched.

    A trusted asset has one identity on all chains. A bridge transfer cannot be matched if another account sent it, or
    if its asset is not trusted.
    """
    legs: defaultdict[str, _Legs] = defaultdict(lambda: _Legs([], []))
    foreign: list[OwnTransfer] = []
    for i, entry in enumerate(entries):
        chain = entry.asset.partition(":")[0]
        record = records.get((chain, entry.transaction, entry.wallet))
        if record is None or not (leaves := _direction(entry, record, own_wallets)):
            continue
        is_bridge = record.type in ("BRIDGEOUT", "BRIDGEIN")
        identity = _identity(entry.asset, treatment, facts)
        if leaves == "out" and record.sender not in own_wallets:
            foreign += [OwnTransfer(entry, None, NOT_OWN)] if is_bridge else []
        elif not identity:
            foreign += [_without_other(entry, leaves)] if is_bridge else []
        else:
            is_coin = entry.asset in treatment.coins
            price = _price(entry.asset, record, treatment)
            leg = _Leg(i, entry, chain, facts[entry.asset].decimals, price, is_coin, is_bridge)
            (legs[identity].departures if leaves == "out" else legs[identity].arrivals).append(leg)
    return legs, foreign


def _direction(entry: Entry, record: TransactionRecord, own_wallets: Collection[str]) -> str:
    """Return "out" for a possible departure, "in" for a possible arrival, or an empty text."""
    if entry.kind == "deposit":
        return "out" if record.type == "BRIDGEOUT" else ""
    if entry.kind == "sent":
        return "out" if record.type in CALLS and record.sender in own_wallets else ""
    if entry.kind == "received":
        return "in" if record.type == "BRIDGEIN" or record.sender in own_wallets else ""
    return "in" if entry.kind == "income" and record.type in MADE else ""


def _identity(asset: str, treatment: Treatment, facts: Mapping[str, AssetFacts]) -> str:
    """Return a name that an asset has on all chains; empty if the asset is not trusted.

    A wrapped coin is the coin, and a bridged token (`.e`) the token.
    """
    coins = {coin.upper() for coin in treatment.coins.values()}
    if asset in treatment.coins:
        return treatment.coins[asset].upper()
    if not treatment.is_trusted(asset):
        return ""
    symbol = facts[asset].symbol.upper().removesuffix(".E")
    coin = symbol.removeprefix("W")
    return coin if coin in coins else symbol


def _price(asset: str, record: TransactionRecord, treatment: Treatment) -> Fraction | None:
    """Return the price of an asset in USD at the block of its transaction; None if it is not known."""
    for row in (*record.assets_in, *record.assets_out):
        key = treatment.aliases.get(row.chain_contract, row.chain_contract)
        if key == asset and row.value is not None and row.raw and row.decimals is not None:
            return Fraction(row.value) / Fraction(row.raw, 10**row.decimals)
    return None


def _pairs(legs: _Legs) -> tuple[list[tuple[_Leg, _Leg]], list[OwnTransfer]]:
    """Return the pairs of departure and arrival, and the transfers over bridges without a certain partner.

    Several possible pairings count as none.
    """
    arrivals = sorted(legs.arrivals, key=lambda leg: leg.entry.quantity)  # strangers' dust costs no time then
    quantities = [leg.entry.quantity for leg in arrivals]
    graph: dict[int, list[_Leg]] = {leg.index: [] for leg in (*legs.departures, *arrivals)}
    for departure in legs.departures:
        most = departure.entry.quantity
        least = most * (FEE_PARTS - 1) // FEE_PARTS
        for arrival in arrivals[bisect_left(quantities, least) : bisect_right(quantities, most)]:
            if departure.fits(arrival):
                graph[departure.index].append(arrival)
                graph[arrival.index].append(departure)
    is_departure = {leg.index: True for leg in legs.departures}
    pairs: list[tuple[_Leg, _Leg]] = []
    left_over: list[OwnTransfer] = []
    for component in _components((*legs.departures, *arrivals), graph):
        found = _only_pairs(component, graph)
        pairs += [(a, b) if is_departure.get(a.index) else (b, a) for a, b in found]
        for leg in () if found else component:
            if not leg.is_bridge:
                continue
            leaves = "out" if is_departure.get(leg.index) else "in"
            unknown = _without_other(leg.entry, leaves)
            left_over.append(unknown if len(component) == 1 else unknown._replace(reason=AMBIGUOUS))
    return pairs, left_over


def _without_other(entry: Entry, direction: str) -> OwnTransfer:
    if direction == "out":
        return OwnTransfer(entry, None, NOTHING_ARRIVED)
    return OwnTransfer(None, entry, NOTHING_LEFT)


def _components(legs: Iterable[_Leg], graph: Mapping[int, Sequence[_Leg]]) -> Iterator[list[_Leg]]:
    """Yield the legs that are connected by possible pairs."""
    seen: set[int] = set()
    for leg in legs:
        if leg.index in seen:
            continue
        seen.add(leg.index)
        component = [leg]
        for each in component:  # grows while it is read
            fresh = [other for other in graph[each.index] if other.index not in seen]
            seen.update(other.index for other in fresh)
            component += fresh
        yield component


def _only_pairs(component: Sequence[_Leg], graph: Mapping[int, Sequence[_Leg]]) -> list[tuple[_Leg, _Leg]]:
    """Return the pairs if exactly one way to pair all legs exists, else nothing.

    If there is only one way, a leg with a single possible partner exists at each step.
    """
    by_index = {leg.index: leg for leg in component}
    partners = {leg.index: {other.index for other in graph[leg.index]} for leg in component}
    single = [index for index, partner_indexes in partners.items() if len(partner_indexes) == 1]
    pairs: list[tuple[_Leg, _Leg]] = []
    while single:
        index = single.pop()
        if index not in partners:
            continue
        if not partners[index]:
            return []
        (other,) = partners[index]
        pairs.append((by_index[index], by_index[other]))
        for neighbour in partners[other] - {index}:
            partners[neighbour].discard(other)
            if len(partners[neighbour]) <= 1:
                single.append(neighbour)
        del partners[index], partners[other]
    return [] if partners else pairs


def _movement_entries(departure: Entry, arrival: Entry) -> tuple[list[Entry], list[Entry]]:
    """Return the entries of a departure and of its arrival: what did not arrive is a fee."""
    key = f"{departure.transaction} {departure.asset} {departure.wallet}"
    fee = departure.quantity - arrival.quantity
    departures = [departure._replace(kind="depart", quantity=arrival.quantity, value=None, fee=0, to=key, reason="")]
    if fee:
        value = None if departure.value is None else share(departure.value, fee, departure.quantity)
        departures.append(departure._replace(kind="fee", quantity=fee, value=value, fee=0))
    order = arrival.order if arrival.time_us > departure.time_us else max(arrival.order, departure.order + 1)
    return departures, [arrival._replace(kind="arrive", value=None, fee=0, to=key, order=order, reason="")]
