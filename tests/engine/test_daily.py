"""Daily income and expense of a real node, wherever its rows lie; unknown if the day is not indexed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace as changed

from chainfolio.addresses import EVM
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Snapshot, Token
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots.day_flows import DAY_US, Flows, add_transfers
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.localchain.airdrop import PhishingToken, _creation, _drop, airdrop
from chainfolio.localchain.evm import Tx, created_address, selector, topic_of, tx, words
from chainfolio.localchain.hostile import TRANSFER
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, wallet_only
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.valuation import valuate
from chainfolio.pricing.fixed import build_fixed
from tests.chains.account_rows import flows_of
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, Index, index

ALL = (*EVERYTHING, "internal")
ETHER = 10**18
CHAINS = {"local": ChainFacts("local", "Local", 31337)}
USD = {"ETH": "2000.01", "USDC": "0.999", "DAI": "1.5", "WETH": "1999"}


@dataclass(frozen=True)
class Today:
    """The chain, the first block of its day, and two priced spam tokens.

    No account holds `unheld` at the end of the day.
    """

    subject: EvmSubject
    first: int
    spam: str
    unheld: str = ""

    def account(self, name: str) -> str:
        return self.subject.deployment.accounts[name].lower()

    @property
    def fees(self) -> int:
        """Return the fees that Alice paid since the start of the day, from the receipts."""
        node = self.subject.node
        receipts = [
            receipt
            for height in range(self.first, self.subject.height + 1)
            for receipt in node.rpc("eth_getBlockReceipts", hex(height))
        ]
        sent_receipts = [receipt for receipt in receipts if receipt["from"] == self.account("alice")]
        return sum(int(each["gasUsed"], 16) * int(each["effectiveGasPrice"], 16) for each in sent_receipts)


def details(subject: EvmSubject, *transactions: Tx) -> int:
    with subject.node.by_hand():
        for transaction in transactions:
            subject.node.send(transaction)
        return subject.node.mine()


def transfer(subject: EvmSubject, symbol: str, sender: str, recipient: str, raw: int) -> Tx:
    accounts = subject.deployment.accounts
    return tx(accounts[sender], subject.token(symbol), "transfer(address,uint256)", accounts[recipient], raw)


def pay(subject: EvmSubject, sender: str, recipient: str, raw: int) -> Tx:
    return Tx(subject.deployment.accounts[sender], subject.deployment.accounts[recipient], value=raw, gas=21_000)


def dai_of_bob(subject: EvmSubject) -> int:
    balance = subject.balance(subject.deployment.accounts["bob"], subject.token("DAI"), subject.height)
    assert balance
    return balance


@pytest.fixture(scope="module")
def today() -> Iterator[Today]:
    with evm(0) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        spam = airdrop(subject.node, subject.deployment)["USD\u0421"].lower()
        details(subject, pay(subject, "bob", "alice", 5 * ETHER), transfer(subject, "USDC", "alice", "bob", 100))
        time_s = int(subject.node.block()["timestamp"], 16)
        midnight_s = time_s - time_s % 86_400 + 86_400
        subject.node.rpc("evm_setNextBlockTimestamp", hex(midnight_s - 1))
        before = details(subject, pay(subject, "bob", "alice", 6 * ETHER))
        subject.node.rpc("evm_setNextBlockTimestamp", hex(midnight_s))
        details(
            subject, pay(subject, "bob", "alice", 2 * ETHER), transfer(subject, "USDC", "bob", "alice", 250_000_000)
        )
        all_dai = subject.balance(alice, subject.token("DAI"), subject.height) or 0
        details(
            subject,
            transfer(subject, "DAI", "bob", "alice", 10 * ETHER),
            transfer(subject, "DAI", "alice", "carol", all_dai + 10 * ETHER),  # not held any more
            transfer(subject, "USDC", "alice", "carol", 40_000_000),
            pay(subject, "alice", "carol", ETHER),
            pay(subject, "alice", "alice", 7 * ETHER),
            transfer(subject, "USDC", "alice", "alice", 9_000_000),
            transfer(subject, "USDC", "alice", "carol", 10**30),  # fails: only its fee is paid
            transfer(subject, "WBTC", "bob", "alice", 3),
            tx(alice, weth, "deposit()", value=4 * ETHER),
            tx(alice, weth, "withdraw(uint256)", ETHER // 2),  # comes back inside the transaction
        )
        details(subject, Tx(subject.deployment.accounts["ivan"], spam, log_of(alice), gas=1_000_000))
        unheld = dropped(subject, PhishingToken("USD\u0421", "USD Coin", 6, 0), 10**9)
        subject.mine(70)
        yield Today(subject, before + 1, spam, unheld)


def dropped(subject: EvmSubject, kind: PhishingToken, raw: int) -> str:
    """Deploy a spam token that logs transfers to many accounts, Alice too, but reports no balances."""
    accounts, node = subject.deployment.accounts, subject.node
    sender = accounts["ivan"]
    token = created_address(sender, int(node.rpc("eth_getTransactionCount", sender, "pending"), 16))
    lucky = [accounts["alice"], *(f"0x{0xFEED0000 + number:040x}" for number in range(30))]
    node.settle([_creation(sender, kind), _drop(sender, token, subject.deployment.contracts["Multicall3"], lucky, raw)])
    return token.lower()


def log_of(account: str) -> str:
    """Return call data that makes a spam token log one more transfer to `account`."""
    topics = [bytes.fromhex(topic[2:]) for topic in (TRANSFER, topic_of("0x" + "00" * 20), topic_of(account))]
    arguments = words(["bytes32[]", "bytes"], topics, bytes.fromhex(words(["uint256"], 10**9)))
    return selector("log(bytes32[],bytes)") + arguments


def snapshotter(indexed: Index, today: Today) -> Snapshotter:
    facts = indexed.chain.facts
    prices = {str(facts.token_asset(today.subject.token(each))): usd for each, usd in USD.items() if each != "ETH"}
    prices |= {str(facts.native_asset): USD["ETH"], str(facts.token_asset(today.spam)): "1"}
    prices |= {str(facts.token_asset(today.unheld)): "1"} if today.unheld else {}
    pegs = {str(facts.token_asset(today.subject.token(each))): "1" for each in ("USDC", "DAI")}
    sources = build_fixed(prices, "test"), build_fixed(pegs, "test", name="peg")
    book = TokenBook(facts.key, indexed.lake, {})
    return Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, sources)


async def take_snapshot(
    indexed: Index, today: Today, names: Sequence[str] = ("alice",), block: Block | None = None
) -> Snapshot:
    return await snapshotter(indexed, today).take([today.account(name) for name in names], block)


def document(snapshot: Snapshot, account: str, *, spam: bool = False) -> Portfolio:
    return portfolio(account, valuate([snapshot]), CHAINS, updated_ms=0, options=Options(spam=spam))


def expected_flows(today: Today) -> tuple[str, str]:
    """Compute Alice's income and expense by hand, with the fees of the receipts."""
    ether, usdc, dai, weth = (Decimal(USD[symbol]) for symbol in ("ETH", "USDC", "DAI", "WETH"))
    dai_before = today.subject.balance(today.account("alice"), today.subject.token("DAI"), today.first - 1) or 0
    assert dai_before >= 0
    income = ether * Decimal("2.5") + usdc * 250 + dai * 10 + weth * 4
    fees = Decimal(today.fees).scaleb(-18)
    expense = ether * (1 + 4 + fees) + usdc * 40 + dai * (Decimal(dai_before).scaleb(-18) + 10) + weth / 2
    return f"{income.normalize():f}", f"{expense.normalize():f}"


@pytest.mark.slow("the same rows in one place or the other", fast=["within"])
@pytest.mark.node
@pytest.mark.parametrize("sorted_to", ["nothing", "before", "within", "all"])
async def test_a_day_is_what_came_and_what_left_with_the_fees_wherever_the_rows_lie(
    today: Today, tmp_path: Path, sorted_to: str
) -> None:
    last = {"nothing": -1, "before": today.first - 1, "within": today.first, "all": today.first + 4}[sorted_to]
    async with index(today.subject, tmp_path, datasets=ALL) as indexed:
        if last >= 0:
            await indexed.fill(0, last)
            await indexed.materialise()
        await indexed.fill_final()
        await indexed.follower().step()
        snapshot = await take_snapshot(indexed, today, ("alice", "bob", "grace"))
        portfolio = document(snapshot, today.account("alice"))
        assert (portfolio.daily_income, portfolio.daily_expense) == expected_flows(today)
        grace = document(snapshot, today.account("grace"))
        assert (grace.daily_income, grace.daily_expense) == ("0", "0")
        alone = await take_snapshot(indexed, today)
        assert document(alone, today.account("alice")) == portfolio
        without_positions = wallet_only(portfolio)
        assert (without_positions.daily_income, without_positions.daily_expense, without_positions.cash_balance) == (
            portfolio.daily_income,
            portfolio.daily_expense,
            portfolio.cash_balance,
        )


@pytest.mark.node
async def test_spam_and_what_nobody_priced_are_in_neither_and_the_holdings_stay_as_they_are(
    today: Today, tmp_path: Path
) -> None:
    async with index(today.subject, tmp_path, datasets=ALL) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        alice = today.account("alice")
        snapshot = await take_snapshot(indexed, today, block=indexed.tail.top(indexed.key))
        inflow_tokens = {each.token.asset.shown_contract for each in snapshot.day_flows[0].inflows}
        assert {today.spam, today.unheld, today.subject.token("WBTC")} <= inflow_tokens
        assert {(alice, today.spam), (alice, today.unheld)} <= {
            (owner, asset.reference) for owner, asset in snapshot.spam
        }
        assert today.unheld not in {each.token.asset.shown_contract for each in snapshot.holdings}
        plain, all_ = document(snapshot, alice), document(snapshot, alice, spam=True)
        assert (plain.daily_income, plain.daily_expense) == expected_flows(today)
        assert Decimal(all_.daily_income) - Decimal(plain.daily_income) == 2000  # 10^9 of six decimals twice, at 1
        assert "daily" not in {issue.adapter for issue in plain.issues}
        without = replace(snapshot, day_flows=())
        assert document(without, alice) == replace_daily(plain, "N/A")
        # Dai is held no more: its price is learned with those of what is held, in no further request.
        async with index(today.subject, tmp_path / "less", datasets=EVERYTHING) as less:
            await less.fill_final()
            await less.follower().step()
            partial = await take_snapshot(less, today, block=snapshot.block)
            assert partial.requests == snapshot.requests
            unknown = document(partial, alice)
            reason = "dailyIncome and dailyExpense are not known: `internal` is not indexed from block 0 on"
            added = set(unknown.issues) - set(plain.issues)
            assert [(issue.adapter, issue.reason) for issue in added] == [("daily", reason)]
            assert changed(unknown, issues=plain.issues) == replace_daily(plain, "N/A"), "as complete as before"


def replace_daily(portfolio: Portfolio, text: str) -> Portfolio:
    return changed(portfolio, daily_income=text, daily_expense=text)


@pytest.mark.node
async def test_cash_is_what_lies_loose_and_is_pegged_whoever_prices_it(today: Today, tmp_path: Path) -> None:
    async with index(today.subject, tmp_path, datasets=ALL) as indexed:
        await indexed.fill_final()
        snapshot = await take_snapshot(
            indexed, today, ("alice", "bob"), await indexed.chain.block(today.subject.height)
        )
        for name in ("alice", "bob"):
            account, cash = today.account(name), Decimal(0)
            for symbol, decimals in (("USDC", 6), ("DAI", 18)):
                raw = today.subject.balance(account, today.subject.token(symbol), today.subject.height) or 0
                cash += Decimal(raw).scaleb(-decimals) * Decimal(USD[symbol])
            assert Decimal(document(snapshot, account).cash_balance) == cash > 0


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
async def test_a_day_that_is_not_indexed_whole_is_unknown_and_the_reason_is_told(today: Today, tmp_path: Path) -> None:
    top = today.subject.height - 64
    accounts = [today.account("alice")]

    async def read_flows(indexed: Index, height: int) -> tuple[dict[str, Flows], str]:
        block = await indexed.chain.block(height)
        return flows_of(ChainIndex(indexed.lake, indexed.tail, indexed.key), indexed.chain, accounts, block)

    async def of(indexed: Index, height: int = top) -> dict[str, Flows]:
        flows, missing_reason = await read_flows(indexed, height)
        assert flows or missing_reason
        return flows

    for missing in ("transfers", "native", "internal", "transactions"):
        without = tuple(name for name in ALL if name != missing)
        async with index(today.subject, tmp_path / missing, datasets=without) as indexed:
            await indexed.fill(0, top)
            assert await read_flows(indexed, top) == ({}, f"`{missing}` is not indexed from block 0 on")
            await indexed.fill(0, 3, (missing,))
            assert await read_flows(indexed, top) == ({}, f"`{missing}` is not indexed from block 4 on")
            await indexed.fill(0, top, (missing,))
            assert await of(indexed) != {}, missing
    async with index(today.subject, tmp_path / "from the day on", datasets=ALL) as indexed:
        await indexed.fill(today.first + 1, top)
        assert await of(indexed) == {}
        await indexed.fill(today.first, today.first)
        unknown_start = f"the day may have begun before block {today.first}, from which on "
        missing_datasets = "`transactions`, `native`, `transfers`, `internal` are indexed"
        assert await read_flows(indexed, top) == ({}, unknown_start + missing_datasets), "nobody knows that it did not"
        await indexed.fill(today.first - 1, today.first - 1)
        complete = await of(indexed)
        assert complete[accounts[0]].outgoing
        assert await of(indexed, top + 1) == {}
    async with index(today.subject, tmp_path / "all", datasets=ALL) as indexed:
        await indexed.fill(0, top)
        assert await of(indexed) == complete
        earlier = await of(indexed, today.first - 1)
        day_us = (await indexed.chain.block(today.first)).time_us
        assert day_us % DAY_US == 0
        assert earlier != complete
        assert earlier[accounts[0]].incoming[indexed.chain.info.native.asset] >= 6 * ETHER
    async with index(today.subject, tmp_path / "none", datasets=ALL) as indexed:
        assert document(await take_snapshot(indexed, today), accounts[0]).daily_income == "N/A"


@pytest.mark.node
async def test_a_reorg_takes_back_what_came(tmp_path: Path) -> None:
    with evm(0) as subject:
        today = Today(subject, 0, subject.token("WBTC"))
        subject.mine(70)
        async with index(subject, tmp_path, datasets=ALL) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            await follower.step()
            grace = today.account("grace")

            async def coins() -> int:
                snapshot = await take_snapshot(indexed, today, ("grace",))
                assert snapshot.block.height == subject.height
                return sum(each.raw for each in snapshot.day_flows[0].inflows if each.token.asset.is_native)

            before = await coins()
            details(subject, pay(subject, "bob", "grace", 5))
            await follower.step()
            removed_block = await indexed.chain.block(subject.height)
            assert await coins() == before + 5
            subject.node.reorg(1, [pay(subject, "bob", "grace", 3)])
            await follower.step()
            assert await coins() == before + 3
            reason = f"the index has another block {removed_block.height}"
            assert flows_of(
                ChainIndex(indexed.lake, indexed.tail, indexed.key), indexed.chain, [grace], removed_block
            ) == (
                {},
                reason,
            )


def test_what_a_chain_tells_twice_of_its_coin_counts_once_and_what_it_tells_once_counts_too() -> None:
    me, stranger, also_at = "0x" + "11" * 20, "0x" + "22" * 20, "0x" + "10" * 20
    schema = {
        "account": pl.String,
        "height": pl.Int64,
        "tx_index": pl.Int32,
        "log_index": pl.Int32,
        "item": pl.Int32,
        "direction": pl.String,
        "counterparty": pl.String,
        "token": pl.String,
        "token_id": pl.Binary,
        "raw": pl.Binary,
    }

    def row(tx_index: int, token: str | None, raw: int, token_id: bytes | None = None) -> tuple[object, ...]:
        return (me, 1, tx_index, 0, 0, "in", stranger, token, token_id, raw.to_bytes(32, "big"))

    rows = [
        row(0, also_at, 7),
        row(0, None, 7),
        row(1, also_at, 5),
        row(2, stranger, 1, bytes(32)),
    ]
    flows = {me: Flows()}
    coin = Asset("eip155:1", "slip44", "60")
    info = ChainInfo(
        "Twice", 1, Token(coin, "ETH", "Ether", 18), "erc20", 1, also_at=Asset("eip155:1", "erc20", also_at)
    )
    add_transfers(flows, pl.DataFrame(rows, schema=schema, orient="row"), info, EVM.burn_addresses)
    assert flows == {me: Flows(incoming={coin: 12})}
