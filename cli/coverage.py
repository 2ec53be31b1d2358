"""`chainfolio coverage ADDRESS`: the share of an address's past in decoded protocols."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from chainfolio.amounts import text
from chainfolio.cli.common import Commands, add_rpc, show_issues, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.engine.requests.transactions import joined_pages, transaction_filter, transaction_pages
from chainfolio.engine.service import Engine
from chainfolio.portfolio.document import UNKNOWN

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument, Transactions

PAGE = 250  # transactions that are read together
# Transactions that are no interaction with a protocol: tokens moved, allowed, or wrapped.
PLAIN = frozenset({"TRANSFERIN", "TRANSFEROUT", "SELFTRANSFER", "APPROVAL", "WRAP", "UNWRAP", "SPAM", "FAILED"})
COLUMNS = (("chain", ""), ("contract", ""), ("protocol", ""), ("calls", "right"), ("fees", "right"), ("USD", "right"))
MAX_SHOWN = 25


@dataclass(slots=True)
class Weight:
    """The number of interactions, their fees and the value that they moved, in USD as far as it is known."""

    calls: int = 0
    fees: Decimal = Decimal(0)
    value: Decimal = Decimal(0)

    def add(self, transaction: TransactionDocument) -> None:
        """Add one transaction: of what came in and what went out, the larger value counts."""
        self.calls += 1
        self.fees += _usd(transaction.fees_fiat)
        self.value += max(_sum(transaction.assets_in), _sum(transaction.assets_out))


@dataclass(slots=True)
class Coverage:
    """The weight of all interactions and of decoded ones, and that of each contract that is not decoded."""

    total: Weight = field(default_factory=Weight)
    decoded: Weight = field(default_factory=Weight)
    undecoded: dict[tuple[str, str], Weight] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, transaction: TransactionDocument, decoded: Collection[str], wrapped: Collection[str]) -> None:
        """Add one transaction to the sums; USD values and fees are its weight.

        Only calls that the account sent count: not plain transfers, approvals, failures, or calls of `wrapped`, the
        wrapped native coins. `decoded` are the keys of protocols with a decoder; other calls count by contract.
        """
        contract, chain = transaction.recipient, transaction.chain.key
        is_own = transaction.sender == transaction.user.address and bool(contract)
        if not is_own or transaction.type in PLAIN or contract in wrapped:
            return
        self.total.add(transaction)
        if transaction.protocol.key in decoded:
            self.decoded.add(transaction)
            return
        self.undecoded.setdefault((chain, contract), Weight()).add(transaction)
        self.names[chain, contract] = transaction.protocol.name

    def heaviest(self) -> list[tuple[str, str, Weight]]:
        """Return chain, contract and weight of undecoded contracts, by value, then fees, then calls."""
        rows = [(*key, weight) for key, weight in self.undecoded.items()]
        return sorted(rows, key=lambda row: (-row[2].value, -row[2].fees, -row[2].calls, row[0], row[1]))


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("coverage", parents=[common], help=GROUPS["coverage"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="only this chain, by its key")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read all transactions of an account; print the shares and the undecoded contracts, or --json."""

    async def read(system: System) -> tuple[Account, Coverage, Transactions]:
        owner = await account_of(system, options.address, options.chain)
        question = transaction_filter(options.chain, PAGE, 0, None, None)
        pages = transaction_pages(Engine(system, max_lookups=None), [owner], question, all_pages=True)
        joined = joined_pages([page async for page in pages])
        return owner, coverage_of(system, joined.transactions), joined

    owner, coverage, transactions = with_system(options, read, shares_answers=True)
    if options.json:
        show_json(document(owner.address, coverage, transactions))
    else:
        show(owner.address, coverage)
        show_issues(document(owner.address, coverage, transactions)["issues"])
    return 0


def coverage_of(system: System, transactions: Iterable[TransactionDocument]) -> Coverage:
    """Return the coverage of some transactions by the installed decoders."""
    decoded = {each.key for each in system.registry.protocols if any(name in system.families for name in each.families)}
    wrapped = {system.chain(key).info.wrapped for key in system.settings.chains}
    coverage = Coverage()
    for transaction in transactions:
        coverage.add(transaction, decoded, {each.reference for each in wrapped if each is not None})
    return coverage


def document(address: str, coverage: Coverage, transactions: Transactions) -> dict[str, Any]:
    """Return the coverage for --json: USD and shares are decimal text, a share of nothing is null.

    Keys are `address`, `share` (by name), `total`, `decoded`, `undecoded` (the heaviest contract first),
    `completeness` and `issues`.
    """
    return {
        "address": address,
        "share": {name: None if share is None else text(share) for name, share in shares(coverage)},
        "total": _weight(coverage.total),
        "decoded": _weight(coverage.decoded),
        "undecoded": [
            {"chain": chain, "contract": contract, "protocol": coverage.names[chain, contract], **_weight(weight)}
            for chain, contract, weight in coverage.heaviest()
        ],
        "completeness": transactions.completeness,
        "issues": transactions.issues,
    }


def shares(coverage: Coverage) -> Iterator[tuple[str, Decimal | None]]:
    """Yield the decoded part of calls, fees and value, between 0 and 1 with four digits; None of nothing."""
    for name in ("calls", "fees", "value"):
        total, part = Decimal(getattr(coverage.total, name)), Decimal(getattr(coverage.decoded, name))
        yield name, (part / total).quantize(Decimal("0.0001")) if total else None


def show(address: str, coverage: Coverage) -> None:
    """Print the shares and the MAX_SHOWN heaviest undecoded contracts; --json has all of them."""
    parts = [f"{name} {'none' if share is None else f'{share:.1%}'}" for name, share in shares(coverage)]
    print(f"{address}: decoded of {coverage.total.calls} calls: {', '.join(parts)}")
    rows = [
        (chain, contract, coverage.names[chain, contract], str(w.calls), f"{w.fees:.2f}", f"{w.value:.2f}")
        for chain, contract, w in coverage.heaviest()[:MAX_SHOWN]
    ]
    if rows:
        show_table("not decoded", COLUMNS, rows)


def _weight(weight: Weight) -> dict[str, Any]:
    return {"calls": weight.calls, "fees": text(weight.fees), "value": text(weight.value)}


def _sum(assets: Iterable[TransactionAssetDocument]) -> Decimal:
    """Return the sum of known values in USD."""
    return sum((_usd(each.value) for each in assets), Decimal(0))


def _usd(value: str) -> Decimal:
    """Return a value in USD; 0 if it is unknown."""
    return Decimal(0) if value == UNKNOWN else Decimal(value)
