"""Transfers over chains as rows of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.pnl.entries import AssetFacts, Entry, iso_time


class OwnTransfer(NamedTuple):
    """A departure from one chain and its arrival at another.

    One of both is None if it is not known, and `reason` says why.
    """

    departure: Entry | None
    arrival: Entry | None
    reason: str = ""

    @property
    def first_us(self) -> int:
        """The time at which it left; of an arrival without a departure, that at which it arrived."""
        entry = self.departure or self.arrival
        assert entry is not None, "a transfer has a side that is known"
        return entry.time_us


class TransferDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A transfer over chains: what left `wallet` on `chain`, and what arrived at `toWallet` on `toChain`.

    If it arrived at an own account, it is no disposal, and `fee` is what did not arrive. If the other side is not
    known, its fields are empty, and `reason` says why: what left stays deposited, what arrived has no known cost.
    """

    symbol: str
    time: str
    chain: str
    contract: str
    wallet: str
    transaction: str
    amount: str
    to_time: str
    to_chain: str
    to_contract: str
    to_wallet: str
    to_transaction: str
    arrived: str
    fee: str
    reason: str


def transfer_document(transfer: OwnTransfer, facts: Mapping[str, AssetFacts]) -> TransferDocument:
    """Return a transfer as it is shown; a side that is not known is empty, and then so is the fee."""
    departure, arrival = transfer.departure, transfer.arrival
    asset_facts = next(facts[each.asset] for each in (departure, arrival) if each is not None)

    def sides(entry: Entry | None) -> tuple[str, str, str, str, str, str]:
        if entry is None:
            return "", "", "", "", "", ""
        quantity = amounts.text(amounts.amount(entry.quantity, facts[entry.asset].decimals))
        place = facts[entry.asset].chain, facts[entry.asset].contract, entry.wallet
        return iso_time(entry.time_us), *place, entry.transaction, quantity

    fee = ""
    if departure is not None and arrival is not None:
        fee = amounts.text(amounts.amount(departure.quantity - arrival.quantity, asset_facts.decimals))
    return TransferDocument(
        **dict(zip(("time", "chain", "contract", "wallet", "transaction", "amount"), sides(departure), strict=True)),
        **dict(
            zip(
                ("to_time", "to_chain", "to_contract", "to_wallet", "to_transaction", "arrived"),
                sides(arrival),
                strict=True,
            )
        ),
        symbol=asset_facts.symbol,
        fee=fee,
        reason=transfer.reason,
    )
