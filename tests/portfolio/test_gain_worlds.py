"""Gains, reports and tax years of accounts with random records of every type equal recorded ones.

Each process has another hash seed: no result depends on it. `python -m tests.portfolio.test_gain_worlds` prints what
is recorded in gain_worlds.txt; with a world and a part, such as `3 report fifo`, it prints the text of that part.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from chainfolio import amounts
from chainfolio.contracts import TRADE_VALUES
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.in_transactions import transaction_gains, with_gains
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import RecordEntries, Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.report import document
from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS, TaxYear, converted, tax_year_document
from chainfolio.portfolio.pnl.transaction_records import record_of
from chainfolio.portfolio.transactions import (
    NamedEntity,
    Nft,
    TransactionAssetDocument,
    TransactionDocument,
    TransactionUser,
)

RECORDED = Path(__file__).parent / "gain_worlds.txt"
WORLDS = range(16)
ME, MINE, OTHER, NOBODY = "me", "mine", "other", "nobody"
POOLS = ("pool", "farm", "vault", "shop")
TOKENS = {"coin": 3, "wcoin": 3, "usd": 2, "dust": 0}
SHARES = {"lp": 1, "stoken": 2, "dtoken": 0}
NFT = "nft"
TYPES = (
    *("DEPOSIT", "LEND", "STAKE", "ADDLIQUIDITY", "BRIDGEOUT", "WITHDRAW", "UNSTAKE", "REMOVELIQUIDITY", "BORROW"),
    *("OPENVAULT", "REPAYVAULT", "CLOSEVAULT", "CLAIM", "AIRDROP", "COLLECT", "MINT", "INTERACTION", "UNDEFINED"),
    *("TRANSFEROUT", "TRANSFERIN", "SWAP", "BRIDGEIN", "DONATION", "SPAM", "APPROVAL", "FAILED", "BUY", "SELL"),
)
DAY_S = 86_400
BEGIN_S = 1_680_000_000
METHODS = ("fifo", "lifo", "hifo", "lofo", "average", "uk", "ca")


def treatment(chance: random.Random) -> Treatment:
    """Decisions of an owner."""
    return Treatment(
        deposits_are_disposals=chance.random() < 0.2,
        liquidity_is_disposal=chance.random() < 0.2,
        received_at_spot=chance.random() < 0.7,
        aliases={"chain:wcoin": "chain:coin"},
        coins={"chain:coin": "coin"},
        burn_addresses=frozenset({NOBODY}),
        gas_holders=frozenset({"farm"}),
        is_trusted=lambda contract: contract != "chain:dust",
        is_priced=lambda contract: contract not in ("chain:lp", "chain:stoken"),
        trade_value=chance.choice(TRADE_VALUES),
    )


def row(chance: random.Random, symbol: str, *, wallet: str, comes: bool) -> TransactionAssetDocument:
    """One movement of a wallet."""
    decimals = {**TOKENS, **SHARES, NFT: 0}[symbol]
    raw = 1 if symbol == NFT else chance.choice((0, 1, 10, 10, 25, 250, 1000, chance.randrange(1, 9999)))
    balance = Decimal(raw).scaleb(-decimals)
    usd = Fraction(raw * chance.randrange(1, 500), 100) if chance.random() < 0.85 else None
    peer = chance.choice((OTHER, NOBODY, NOBODY, *POOLS, *POOLS, MINE if wallet == ME else ME, symbol))
    number = str(chance.randrange(3)) if symbol == NFT else None
    facts: dict[str, Any] = {
        "symbol": symbol,
        "name": symbol,
        "balance": amounts.text(balance),
        "price": UNKNOWN,
        "value": UNKNOWN if usd is None else str(Decimal(usd.numerator) / Decimal(usd.denominator)),
        "contract": symbol,
        "chain_contract": f"chain:{symbol}",
        "chain_key": "chain",
        "decimal": UNKNOWN if chance.random() < 0.01 else str(decimals),
        "sender": peer if comes else wallet,
        "recipient": wallet if comes else peer,
        "is_asset_in": comes,
    }
    if number is not None:
        facts["nft"] = Nft(token_id=number)
    if comes and chance.random() < 0.03:
        facts["stays_staked"] = True
    return TransactionAssetDocument(**facts)


def record(chance: random.Random, number: int, time_s: int) -> TransactionDocument:
    """One transaction of a wallet."""
    wallet = chance.choice((ME, ME, ME, MINE))
    type_ = chance.choice(TYPES)
    symbols = [*TOKENS, *TOKENS, *SHARES, NFT]

    def rows(*, comes: bool) -> tuple[TransactionAssetDocument, ...]:
        count = chance.choice((0, 1, 1, 1, 2, 3))
        return tuple(row(chance, chance.choice(symbols), wallet=wallet, comes=comes) for _ in range(count))

    fee = chance.choice(("0", "0.001", "0.25"))
    fee_usd = UNKNOWN if chance.random() < 0.1 else str(Decimal(fee) * chance.randrange(1, 9))
    gas = msgspec.structs.replace(
        row(chance, "coin", wallet=wallet, comes=False), balance=fee, value=fee_usd, decimal="3"
    )
    facts: dict[str, Any] = {
        "hash": f"0x{number:02}",
        "timestamp": str(time_s),
        "block_number": 100 + number,
        "chain": NamedEntity(key="chain", name="Chain"),
        "sender": chance.choice((wallet, wallet, OTHER)),
        "recipient": chance.choice((*POOLS, OTHER, "lp")),
        "type": type_,
        "value": "0",
        "value_fiat": "0",
        "fees": fee,
        "fees_fiat": fee_usd,
        "native_asset_fees": gas,
        "assets_in": rows(comes=True),
        "assets_out": rows(comes=False),
        "user": TransactionUser(address=wallet),
    }
    return TransactionDocument(**facts)


def records(chance: random.Random) -> list[TransactionDocument]:
    """The records of an account, the oldest first."""
    time_s, result = BEGIN_S, []
    for number in range(48):
        time_s += chance.choice((0, 60, DAY_S, DAY_S, 9 * DAY_S, 40 * DAY_S))
        result.append(record(chance, number, time_s))
    return result


def parts(world: int) -> Iterator[tuple[str, str]]:
    """Yield each result of one account with its name."""
    chance = random.Random(world)
    rules = treatment(chance)
    of_account = records(chance)
    read = entries_of(list(map(record_of, of_account)), (ME, MINE), rules)
    yield "entries", "\n".join(map(repr, read.entries))
    results = (read.facts, sorted(read.issues, key=repr), read.first_blocks, read.last_blocks, sorted(read.shares))
    yield "facts", "\n".join(map(repr, (*results, read.pools)))
    for method in METHODS:
        yield from _of_method(world, method, read, rules, of_account)
    for key, zone in (("us", "America/New_York"), ("uk", "Europe/London"), ("ca", "America/Toronto"), ("de", "UTC")):
        yield f"tax {key}", "\n".join(_tax_years(read, key, ZoneInfo(zone)))


def _of_method(
    world: int, method: str, read: RecordEntries, rules: Treatment, of_account: Sequence[TransactionDocument]
) -> Iterator[tuple[str, str]]:
    prices = {"chain:coin": Decimal(3), "chain:usd": Decimal("1.01"), "chain:lp": Decimal(0)}
    per_wallet = world % 2 == 1 and method not in ("uk", "ca")
    gains = gains_of(list(read.entries), method, per_wallet=per_wallet)
    yield f"gains {method}", "\n".join(map(repr, (*gains.gains, *gains.remaining)))
    report = document(gains, read.facts, prices, method=method, addresses=(ME, MINE), issues=read.issues)
    yield f"report {method}", msgspec.json.encode(report).decode()
    gains_by_transaction = transaction_gains(read.entries, gains.gains, rules.aliases, frozenset(read.shares))
    filled = [with_gains(each, gains_by_transaction) for each in of_account]
    yield (
        f"transactions {method}",
        "\n".join(f"{msgspec.json.encode(each).decode()} {faults}" for each, faults in filled),
    )


def _tax_years(read: RecordEntries, key: str, zone: ZoneInfo) -> Iterator[str]:
    rules = JURISDICTIONS[key]
    rated: list[Entry] = list(converted(read.entries, lambda time_us: Decimal("0.9") + Decimal(time_us % 7) / 1000))
    gains = gains_of(rated, rules.methods[0], zone=zone).gains
    types = {("chain", each.transaction, each.wallet): "CLAIM" for each in gains[::2]}
    for year in (2022, 2023, 2024):
        by = TaxYear(rules, year, zone, rules.currency, rules.methods[0], lots_by_wallet=year > 2023)
        yield msgspec.json.encode(tax_year_document(gains, read.facts, by, (ME, MINE), types=types)).decode()


def digests(world: int) -> list[str]:
    """Lines of the world, the name of each part, and the beginning of its digest."""
    return [f"{world} {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}" for name, text in parts(world)]


@pytest.mark.parametrize("world", WORLDS)
def test_all_that_is_computed_of_an_account_is_as_recorded(world: int) -> None:
    recorded = [line for line in RECORDED.read_text().splitlines() if line.startswith(f"{world} ")]
    assert digests(world) == recorded, "compare the texts of the changed parts before and after the change"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(dict(parts(int(sys.argv[1])))[" ".join(sys.argv[2:])])
    else:
        print(*(line for world in WORLDS for line in digests(world)), sep="\n")
