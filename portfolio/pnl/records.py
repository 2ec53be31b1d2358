"""Converts records of transactions to entries: purchases, sales, deposits and loans, with values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.pnl.call_movements import CallMovements, own_changes, split_changes
from chainfolio.portfolio.pnl.containers import Containers, divided, paid_for_rents, settle, split_rents
from chainfolio.portfolio.pnl.entries import DISPOSED, EARNED, Entry, Kind, share
from chainfolio.portfolio.pnl.moved_positions import MovedPositions, moved_positions
from chainfolio.portfolio.pnl.operations import gas_movements
from chainfolio.portfolio.pnl.position_changes import (
    NO_MOVEMENTS,
    Movements,
    Net,
    Position,
    PositionMovements,
    net_units,
)
from chainfolio.portfolio.pnl.record_kinds import (
    DEPOSITS,
    INCOME,
    LOANS,
    PAYMENTS,
    REPAYMENTS,
    UNREAD_CHANGES,
    UNTYPED,
    WITHDRAWALS,
    default_kinds,
    with_unread_changes,
    without_trust,
)
from chainfolio.portfolio.pnl.record_rows import RecordEntries, RecordRows, Treatment, money_of
from chainfolio.portfolio.pnl.record_shares import RecordShares
from chainfolio.portfolio.pnl.requests import claimed, requested, wait
from chainfolio.portfolio.pnl.trade_value import Side, equalise, leave_unexplained, net_off
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord
from chainfolio.position_changes import CallChange, PositionChange

BRIDGED: Final = "it came over a bridge: its cost belongs to another chain"
OF_OTHERS: Final = "others sent it: its cost is not known"
NO_FEE_PRICE: Final = "the fee of its transaction has no price"


def entries_of(
    records: Sequence[TransactionRecord],
    own_wallets: Collection[str],
    treatment: Treatment,
    changes: Mapping[tuple[str, str], Sequence[PositionChange | CallChange] | None] | None = None,
) -> RecordEntries:
    """Return the entries of an account from all records of `own_wallets`, the oldest first.

    Each record counts once.

    Args:
        changes: The changes of positions, by chain and transaction; None if they are not known.
    """
    result, containers = RecordEntries([], {}, []), Containers()
    positions: dict[str, Position] = {}
    unread, calls = split_changes(changes or {})
    distinct = list({(*record.key, record.wallet): record for record in records}.values())
    lent_or_bought = moved_positions(distinct, unread, own_wallets, treatment)
    for order, record in enumerate(distinct):
        chain, is_sender = record.chain, record.sender in own_wallets
        of_record = unread.get((chain, record.hash), ())
        if of_record is not None:
            unread[chain, record.hash] = ()  # once, if several wallets took part
        first, wallet = len(result.entries), record.wallet
        of_calls = calls.get((chain, record.hash), ())
        if of_calls:
            of_calls = own_changes(of_calls, chain, wallet, own_wallets, positions, is_sender=is_sender)
        if any(each.kind not in ("rent", "cost") for each in of_calls):
            record = msgspec.structs.replace(record, type="INTERACTION")  # the calls say what it was
        rows = RecordRows(record, own_wallets, treatment, result)
        borrowers = {row.sender for row in record.assets_in if (row.key, order) in lent_or_bought.lent}
        shares = RecordShares(rows, containers, borrowers, order, lent_or_bought.takers)
        _Record(
            record,
            rows,
            order,
            own_wallets,
            treatment,
            result,
            containers,
            shares,
            positions,
            of_record or (),
            lent_or_bought,
            of_calls,
        ).add()
        if of_record is None:
            result.issues.append(IssueDocument("pnl", record.hash, UNREAD_CHANGES))
            result.entries[first:] = [with_unread_changes(each) for each in result.entries[first:]]
    result.shares.update(containers.by_share)
    result.contents.update((key, each.contents) for key, each in containers.by_share.items() if each.units)
    result.pools.extend(containers.pools())
    result.rents.update(containers.rent_sums())
    result.pools.extend(position.pool() for position in positions.values() if position.container.units)
    return result


@dataclass(slots=True)
class _Record:
    """One transaction of one wallet."""

    record: TransactionRecord
    rows: RecordRows
    order: int
    own_wallets: Collection[str]
    treatment: Treatment
    result: RecordEntries
    containers: Containers
    shares: RecordShares
    positions: dict[str, Position]
    changes: Sequence[PositionChange]
    lent_or_bought: MovedPositions
    calls: Sequence[CallChange]

    def add(self) -> None:
        """Add the entries of this record to the result."""
        record = self.record
        fee, fee_value = self._fee()
        if record.type == "SPAM":
            self.result.entries.extend(fee)
            return
        self._open_positions()
        moves = list(self._moves())
        incoming, outgoing = self._net("in"), self._net("out")
        for asset in [each for each in incoming if each in outgoing]:
            net_off(incoming, outgoing, asset)
        untrusted = self.rows.untrusted_assets(self.containers.holders)
        for side in (*incoming.values(), *outgoing.values()):
            side.value = None if side.asset in untrusted or self.shares.has_unknown_burner(side.asset) else side.value
        in_positions = self._position_movements(incoming, outgoing) if self.changes else NO_MOVEMENTS
        in_calls = self._call_movements(incoming, outgoing) if self.calls else NO_MOVEMENTS
        kinds = self._kinds(list(incoming.values()), list(outgoing.values()))
        received_shares, returned_shares = (self.shares.quantities(direction) for direction in ("in", "out"))
        if (requests := requested(self.rows, self.containers, self.treatment.burn_addresses)) is not None:
            kinds, settlements = [], requests
        elif returned_shares and not incoming and not outgoing:
            kinds, settlements = [], wait(self.rows, returned_shares, self.containers)
        elif returned_shares:
            kinds, settlements = self._redeemed(kinds, returned_shares)
        else:
            kinds, payments = claimed(
                kinds, self.containers, self.shares.waiting_contract, self.treatment.trade_value, untrusted
            )
            kinds, settlements = self._opened(self._unstaked(kinds))
            settlements = [*settlements, *payments]
        kinds = [*kinds, *in_positions.traded, *in_calls.traded]
        settlements = [*settlements, *in_positions.settlements]
        bought, sold = ([side for kind, side in kinds if kind == trade_kind] for trade_kind in ("buy", "sell"))
        equalise(bought, sold, self.treatment.trade_value)
        entries = [*self._with_fee(kinds, fee_value), *self._settlement_entries(settlements)]
        entries = [without_trust(each) if each.asset in untrusted else each for each in entries]
        entries = [*moves, *entries, *self._staked(), *fee]
        if not self.changes:
            self._fill_containers(received_shares, entries)
        entries += self._settlement_entries([*gas_movements(self.rows, self.containers), *in_calls.settlements])
        for asset in (entry.asset for entry in entries if entry.kind == "income"):
            farms = self.rows.senders(asset) & self.containers.farms.keys()
            self.containers.rewards |= {(farm, asset) for farm in farms}
        self.containers.add(entries, record.type, self.rows.called)
        self.result.entries.extend(entries)

    def _open_positions(self) -> None:
        """Add the positions that this transaction brought or lent, and keep the changes of own ones."""
        chain = self.record.chain
        for opened in (each for each in self.calls if each.kind == "open"):
            key = f"{chain}:{opened.position}"
            if key not in self.positions or not self.positions[key].container.units:
                self.positions[key] = Position(span=opened.span)
        changed = {change.key(chain) for change in self.changes}
        for row in self.record.assets_in:
            key = row.key
            if key in changed and row.sender in self.treatment.burn_addresses:
                self.positions.setdefault(key, Position())
            elif (liquidity := self.lent_or_bought.bought.get((key, self.order))) is not None:
                self.positions[key] = Position.bought(liquidity)
        for row in self.record.assets_out:
            if row.key in self.positions and (row.key, self.order) in self.lent_or_bought.lent:
                self.containers.stake(row.recipient, row.key, 1)
                self.containers.stakes.add(row.recipient)
        own = ((self.positions.get(change.key(chain)), change) for change in self.changes)
        self.changes = [change for position, change in own if position is not None and position.accepts(change)]

    def _position_movements(self, incoming: dict[str, Side], outgoing: dict[str, Side]) -> Movements:
        """Apply the changes of own positions, and leave what they do not explain in `incoming` and `outgoing`."""
        chain, treatment = self.record.chain, self.treatment
        value_at = self.rows.value_reader(has_coins=bool(self.calls))
        result = PositionMovements(
            self.rows.token_key,
            value_at,
            treatment.trade_value,
            treatment.liquidity_is_disposal,
            self.rows.gross("in"),
            self.rows.gross("out"),
        )
        for change in self.changes:
            if change.has_amounts:
                result.add(change.key(chain), self.positions[change.key(chain)], change)
        leave_unexplained(incoming, outgoing, result.explained, value_at)
        if units := net_units(self.changes, chain):
            result.add_net(units, self.positions, Net(incoming, outgoing), self.rows.native)
        if result.problem:
            self.result.issues.append(IssueDocument("pnl", self.record.hash, result.problem))
        return Movements(result.traded, result.settlements)

    def _call_movements(self, incoming: dict[str, Side], outgoing: dict[str, Side]) -> Movements:
        """Apply the calls, and leave what they do not explain in `incoming` and `outgoing`."""
        chain, treatment = self.record.chain, self.treatment
        result = CallMovements(
            chain,
            self.record.wallet,
            self.own_wallets,
            self.rows.token_key,
            self.rows.value_reader(has_coins=True),
            self.positions,
            self.containers,
            self._redeemed,
            treatment.trade_value,
            treatment.deposits_are_disposals,
            treatment.liquidity_is_disposal,
            {f"{chain}:{each.position}" for each in self.calls if each.kind == "close"},
        )
        for change in sorted(self.calls, key=lambda each: each.kind in ("rent", "cost")):
            result.add(change)
        result.leave_unexplained(incoming, outgoing)
        if result.problem:
            self.result.issues.append(IssueDocument("pnl", self.record.hash, result.problem))
        return Movements(result.traded, result.settlements)

    def _settlement_entries(self, kinds: Iterable[tuple[Kind, Side]]) -> Iterator[Entry]:
        """Yield entries without a part of the transaction's fee: what positions return was not traded."""
        for kind, side in kinds:
            yield self._entry(kind, side.asset, side.quantity, side.value, wallet=side.wallet)

    def _fill_containers(self, shares: Mapping[str, int], entries: Sequence[Entry]) -> None:
        """Put what was deposited into the container of its share, or of the contract that took it."""
        deposited = {entry.asset: entry.quantity for entry in entries if entry.kind == "deposit" and not entry.reason}
        if shares:
            self.containers.put(shares, deposited)
            self.containers.stakes |= shares.keys() if self.record.type == "STAKE" else set()
            return
        for asset, quantity in deposited.items() if self.record.type != "BRIDGEOUT" else ():
            rows = [row for row in self.rows.external("out") if self.rows.asset_of(row) == asset]
            taker = max(rows, key=lambda row: self.rows.quantity(row) or 0).recipient
            self.containers.stake(taker, asset, quantity, self.record.protocol)
            is_known = self.record.type not in PAYMENTS and not any(map(self.rows.is_doubtful, rows))
            if is_known and taker not in self.treatment.burn_addresses:
                self.containers.stakes.add(taker)

    def _entry(
        self, kind: Kind, asset: str, quantity: int, value: int | None, reason: str = "", wallet: str = ""
    ) -> Entry:
        """Return an entry of this transaction; by default of the wallet of the record."""
        record = self.record
        return Entry(
            record.time_us,
            kind,
            asset,
            quantity,
            value,
            wallet=wallet or record.wallet,
            transaction=record.hash,
            order=self.order,
            reason=reason,
        )

    def _fee(self) -> tuple[list[Entry], int | None]:
        """Return the fee as an entry, if this wallet paid it, and its value in money; None if not known."""
        record = self.record
        quantity = self.rows.quantity(record.fee) if record.sender == record.wallet else None
        if not quantity:
            return [], 0
        value = money_of(record.fee)
        return [self._entry("fee", self.rows.asset_of(record.fee), quantity, value)], value

    def _moves(self) -> Iterator[Entry]:
        """Yield transfers to the account's other wallets, whose own records repeat them."""
        for asset in self.record.assets_out:
            key = asset.key
            is_lot = key not in self.positions and (
                key not in self.containers.by_share or self.containers.lots.get(key)
            )
            is_own = asset.recipient in self.own_wallets and asset.recipient != self.record.wallet
            if is_own and is_lot and (quantity := self.rows.quantity(asset)):
                yield self._entry("move", self.rows.asset_of(asset), quantity, None)._replace(to=asset.recipient)

    def _staked(self) -> Iterator[Entry]:
        """Yield rewards that stay in their stake, as if they were deposited there."""
        kind: Kind = "sent" if self.treatment.deposits_are_disposals else "deposit"
        reason = EARNED if kind == "deposit" else ""
        for asset in self.record.assets_in:
            if asset.stays_staked and (quantity := self.rows.quantity(asset)):
                yield self._entry(kind, self.rows.asset_of(asset), quantity, money_of(asset), reason)

    def _net(self, direction: str) -> dict[str, Side]:
        """Return the movements between wallet and others, by asset, without shares of deposits."""
        external = self.rows.external(direction)
        sides: dict[str, Side] = {}
        for asset in external:
            if self._is_position(asset):  # before its amount: a destroyed NFT has no decimals
                continue
            key = self.rows.asset_of(asset)
            quantity = 1 if asset.key in self.positions else self.rows.quantity(asset)
            if not quantity or self.shares.is_share(key, direction):
                continue
            value, strength = money_of(asset), self.rows.strength(asset)
            quantity = (direction == "in" and self.lent_or_bought.bought.get((key, self.order))) or quantity
            side = sides.setdefault(key, Side(key, 0, 0, strength))
            side.quantity, side.strength = side.quantity + quantity, min(side.strength, strength)
            side.value = None if side.value is None or value is None else side.value + value
        return self.rows.without_debt(external, sides) if self.record.type in LOANS | REPAYMENTS else sides

    def _is_position(self, row: MovedAsset) -> bool:
        """Return True if a position was created, destroyed or lent: it is a container, and no asset."""
        burn_addresses = self.treatment.burn_addresses
        issuers = {*burn_addresses, row.contract}
        is_burnt_or_new = not issuers.isdisjoint((row.sender, row.recipient))
        is_lent = (row.key, self.order) in self.lent_or_bought.lent
        return row.key in self.positions and (is_burnt_or_new or is_lent)

    def _redeemed(
        self, kinds: Sequence[tuple[Kind, Side]], shares: Mapping[str, int], is_pool: bool = False
    ) -> tuple[list[tuple[Kind, Side]], list[tuple[Kind, Side]]]:
        """Split the movements of a withdrawal: outside of containers, and of the redeemed containers.

        Bought shares are sold for their part of the payment.
        """
        contents, bought, part = self.containers.redeem(shares)
        outside: list[tuple[Kind, Side]] = [("sell", Side(asset, quantity, None)) for asset, quantity in bought.items()]
        payments = list[Side]()
        for kind, side in kinds:
            for_bought = int(side.quantity * part) if kind in ("withdraw", "income") else 0
            if for_bought:
                outside.append(("buy", side.part(for_bought)))
                side = side.without(for_bought)
            if side.quantity and contents and kind in ("withdraw", "income"):
                payments.append(side)
            elif side.quantity:
                outside.append((kind, side))
        for side in payments:  # what was added to a lock without a share
            beyond = max(side.quantity - contents.get(side.asset, 0), 0)
            if added := self.containers.unstake(sorted(self.rows.senders(side.asset)), side.asset, beyond):
                contents[side.asset] = contents.get(side.asset, 0) + added
        is_pool = is_pool or self.record.type == "REMOVELIQUIDITY"
        return outside, settle(contents, payments, self.treatment.trade_value, self.rows.native, is_pool=is_pool)

    def _unstaked(self, kinds: Sequence[tuple[Kind, Side]]) -> Iterator[tuple[Kind, Side]]:
        """Split what comes back from contracts that gave no shares: first the deposit, then income."""
        for kind, side in kinds:
            senders = self.rows.senders(side.asset)
            returned = self.containers.unstake(sorted(senders), side.asset, side.quantity) if kind == "withdraw" else 0
            yield kind, side.part(returned or side.quantity)
            if 0 < returned < side.quantity:
                yield "income", side.without(returned)

    def _opened(self, kinds: Iterable[tuple[Kind, Side]]) -> tuple[list[tuple[Kind, Side]], list[tuple[Kind, Side]]]:
        """Replace shares that were sold or given away by what went into their positions.

        If they were exchanged for an asset that went in, they were redeemed on a market.
        """
        movements = list(kinds)
        bought = [side for kind, side in movements if kind == "buy"]
        outside, settlements = list[tuple[Kind, Side]](), list[tuple[Kind, Side]]()
        for kind, side in movements:
            remainder, contents, rents = self._dispose(side) if kind in DISPOSED else (side, [], [])
            outside += [(kind, remainder)] if remainder else []
            settlements += [("withdraw", each.without_value()) for each in rents]
            if remainder is None and {each.asset for each in contents} & {each.asset for each in bought}:
                outside += [(kind, each) for each in rents]
                outside += [("buy", each) for each in paid_for_rents(bought, rents)]
                went_in = {each.asset: each.quantity for each in contents}
                settlements += settle(went_in, bought, self.treatment.trade_value)
                bought.clear()
                continue
            outside += [(kind, each) for each in (*contents, *rents)]
            settlements += [("withdraw", each.without_value()) for each in contents]
        was_settled = {id(side) for kind, side in movements if kind == "buy"} - {id(side) for side in bought}
        return [each for each in outside if id(each[1]) not in was_settled], settlements

    def _dispose(self, side: Side) -> tuple[Side | None, list[Side], list[Side]]:
        """Return the part of a loss outside positions (None if there is none), contents and rents."""
        position = self.positions.pop(side.asset, None)
        if position is None:
            return *self.containers.dispose(side), []
        by_wallet = self.containers.take_rents(side.asset)
        rents = split_rents(side, [replace(self.rows.coins(raw), wallet=each) for each, raw in by_wallet.items()])
        if self.treatment.liquidity_is_disposal or position.is_bought:
            units = position.container.units + position.sold
            return Side(side.asset, units, side.value) if units else None, [], rents
        return None, divided(side.value, position.close()), rents

    def _kinds(self, gains: Sequence[Side], losses: Sequence[Side]) -> list[tuple[Kind, Side]]:
        """Return the kind of each net movement, by the type of the transaction."""
        type_ = self.record.type
        incoming, outgoing = default_kinds(bool(gains), bool(losses))
        if not self.shares.is_disposal and type_ in DEPOSITS:
            outgoing = "deposit"
        if type_ in LOANS:
            incoming, outgoing = "borrow", "deposit"
        elif type_ in REPAYMENTS:
            incoming, outgoing = "withdraw", "repay"
        elif type_ in INCOME and gains and self._are_grants({side.asset for side in losses}):
            is_new = type_ != "MINT" or not self.containers.may_return(gains)
            incoming, outgoing = ("income" if is_new else "received"), "taken"
            for side in losses:  # a grant that paid all
                side.value = 0
        elif type_ == "DONATION" and not gains:
            outgoing = "donate"
        if type_ in WITHDRAWALS and not self.shares.is_disposal:
            incoming_kinds = [(self.shares.kind_of_withdrawn(side, gains), side) for side in gains]
        elif type_ in DEPOSITS and not self.shares.is_disposal:
            incoming_kinds = [("income" if self.shares.is_reward(side.asset) else incoming, side) for side in gains]
        elif incoming == "received" and type_ in UNTYPED:
            incoming_kinds = [(self.shares.kind_of_untyped(side.asset), side) for side in gains]
        else:
            incoming_kinds = [(incoming, side) for side in gains]
        repaid = self.shares.repaid(losses)
        outgoing_kinds = [("repay" if side.asset in repaid else outgoing, side) for side in losses]
        kind_of = self.lent_or_bought.kind_of
        return [*incoming_kinds, *((kind_of(kind, side.asset, self.order), side) for kind, side in outgoing_kinds)]

    def _are_grants(self, assets: set[str]) -> bool:
        """Return True if all assets are destroyed collectibles for which nothing went in or was paid."""
        grants = self.rows.burnt(is_collectible=True) - self.containers.by_share.keys() - self.positions.keys()
        return assets <= grants - self.containers.bought

    def _with_fee(self, kinds: Sequence[tuple[Kind, Side]], fee: int | None) -> Iterator[Entry]:
        """Yield entries with the fee: in the costs of purchases, else in the proceeds of sales."""
        bought = [side for kind, side in kinds if kind == "buy"]
        bearers = bought or [side for kind, side in kinds if kind == "sell"]
        for kind, side in kinds:
            entry = self._entry(kind, side.asset, side.quantity, side.value, wallet=side.wallet)
            if kind == "received" and (self.record.type == "BRIDGEIN" or not self.treatment.received_at_spot):
                entry = entry._replace(value=None, reason=BRIDGED if self.record.type == "BRIDGEIN" else OF_OTHERS)
            if any(side is bearer for bearer in bearers):
                if fee is None:
                    entry = entry._replace(value=None, reason=NO_FEE_PRICE)
                else:
                    part = share(fee, 1, len(bearers))
                    fee, bearers = fee - part, bearers[1:]
                    entry = entry._replace(fee=part)
            yield entry
