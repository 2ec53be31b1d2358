"""Transactions of accounts as a real node mined them: each once, in order, exact and complete."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import pytest

from chainfolio.adapters.evm.kind import KIND
from chainfolio.assets import Asset
from chainfolio.engine.results import MAX_LOOKUPS, ListPosition, TransactionFilter
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.transactions.function_names import load
from chainfolio.engine.transactions.lookups import Lookups
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.engine.validators.stakes import Stakes
from chainfolio.errors import NotFound, NotIndexed, Unavailable
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.localchain.evm import Tx, tx, words
from chainfolio.localchain.hostile import TRANSFER, Log, deploy_hostile, log_tx
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.transactions import TransactionDocument, TransactionType, is_dust, may_be_dust
from chainfolio.settings import Settings
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, Index, index
from tests.chains.subject import Row

pytestmark = pytest.mark.node
LOGS = ("transfers", "approvals")
ZERO = "0x" + "00" * 20
FUNCTIONS = load(CONFIGS / "functions.toml", KIND.selector)
EVERYONE = 10_000


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(60) as chain:
        chain.trade(6, 1)
        yield chain


@pytest.fixture(scope="module")
def details(subject: EvmSubject) -> dict[str, list[Row]]:
    """The whole chain, read from its receipts by code that is not ours."""
    from chainfolio.blocks import Span

    rows_by_table = dict(subject.rows(Span(0, subject.height)))
    rows_by_table["receipts"] = [
        receipt
        for height in range(subject.height + 1)
        for receipt in subject.node.rpc("eth_getBlockReceipts", hex(height))
    ]
    return rows_by_table


def wallets(subject: EvmSubject) -> list[str]:
    return [account.lower() for account in subject.deployment.accounts.values()]


def transaction_filter(limit: int = EVERYONE, offset: int = 0, **more: Any) -> TransactionFilter:
    return TransactionFilter(limit=limit, offset=offset, **more)


async def ask(
    indexed: Index, accounts: list[str], question: TransactionFilter | None = None, **how: Any
) -> list[TransactionDocument]:
    """One page over one chain."""
    return (await page(indexed, accounts, question, **how))[0]


async def page(
    indexed: Index,
    accounts: list[str],
    question: TransactionFilter | None = None,
    *,
    max_rows: int = 100_000,
    protocols: tuple[Protocol, ...] = (),
    stakes: Stakes | None = None,
    max_lookups: int | None = MAX_LOOKUPS,
) -> tuple[list[TransactionDocument], ListPosition | None]:
    """One page over one chain, and how far it goes."""
    facts = indexed.chain.facts
    book = TokenBook(facts.key, indexed.lake, {})
    explorer_facts = ChainFacts(
        facts.key, facts.name, facts.chain_id, {"transaction": "https://scan.example/tx/{hash}"}
    )
    snapshotter = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (), stakes=stakes)
    statement = Statement(
        Registry(protocols), FUNCTIONS, max_rows, question or transaction_filter(), lookups=Lookups(max_lookups)
    )
    return await statement.page([Subject(snapshotter, explorer_facts, indexed.datasets, tuple(accounts))])


async def filled(indexed: Index) -> None:
    await indexed.fill_final()
    await indexed.materialise()
    await indexed.follower().step()


def send_all(subject: EvmSubject, *txs: Tx) -> list[str]:
    """Send transactions, each in a separate block, and return their hashes."""
    tx_hashes = []
    with subject.node.by_hand():
        for each in txs:
            tx_hashes.append(subject.node.send(each))
            subject.node.mine()
    return tx_hashes


def hashes(documents: list[TransactionDocument]) -> list[str]:
    return [each.hash for each in documents]


def expected(details: dict[str, list[Row]], account: str, *, events_only: bool = False) -> list[tuple[int, int, str]]:
    """Height, position and hash of everything that an account took part in, the newest first."""
    hash_by_position = {(t["height"], t["tx_index"]): t["hash"] for t in details["transactions"]}
    positions = {
        (row["height"], row["tx_index"])
        for row in details["transfers"]
        if account in (row["sender"], row["recipient"]) and not (events_only and row["standard"] == "native")
    }
    positions |= {(row["height"], row["tx_index"]) for row in details["approvals"] if row["owner"] == account}
    if not events_only:
        ends = ("sender", "recipient", "created")
        positions |= {
            (row["height"], row["tx_index"]) for row in details["transactions"] if account in [row[end] for end in ends]
        }
    return [(*position, hash_by_position[position]) for position in sorted(positions, reverse=True)]


def number(raw: object) -> int:
    assert isinstance(raw, bytes)
    return int.from_bytes(raw, "big")


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_everything_that_wallets_did_is_there_once_the_newest_first(
    subject: EvmSubject, details: dict[str, list[Row]], tmp_path: Path
) -> None:
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        assert indexed.tail.rows(indexed.key, "transfers", 0, 2**40)
        assert indexed.stored("account_transfers").num_rows
        for account in wallets(subject)[:4]:
            right = [tx_hash for *_, tx_hash in expected(details, account)]
            assert len(right) > 20
            assert hashes(await ask(indexed, [account])) == right
            assert hashes(await ask(indexed, [account], transaction_filter(newest_first=False))) == right[::-1]
        assert await ask(indexed, ["0x" + "12" * 20]) == []


async def test_what_a_record_says_is_what_the_receipt_says(
    subject: EvmSubject, details: dict[str, list[Row]], tmp_path: Path
) -> None:
    account = wallets(subject)[1]
    receipts = {receipt["transactionHash"]: receipt for receipt in details["receipts"]}
    rows = {row["hash"]: row for row in details["transactions"]}
    decimals = {token.address.lower(): token.decimals for token in subject.deployment.tokens.values()}
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        for document in await ask(indexed, [account]):
            receipt, row = receipts[document.hash], rows[document.hash]
            block = subject.node.block(document.block_number)
            assert document.block_number == int(receipt["blockNumber"], 16)
            assert document.timestamp == str(int(block["timestamp"], 16))
            assert (document.sender, document.recipient) == (
                receipt["from"],
                receipt["to"] or receipt["contractAddress"],
            )
            fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
            assert Decimal(document.fees) == Decimal(fee).scaleb(-18)
            assert Decimal(document.value) == Decimal(number(row["raw"])).scaleb(-18)
            assert (document.type == "FAILED") is (receipt["status"] == "0x0")
            assert document.user.address == account
            assert (document.value_fiat, document.fees_fiat, document.closed_pnl) == ("N/A", "N/A", "N/A")
            assert document.explorer_url == f"https://scan.example/tx/{document.hash}"
            fees = document.native_asset_fees
            assert (fees.balance, fees.symbol, fees.is_native_asset_fees) == (document.fees, "eth", True)
            moves = [row for row in details["transfers"] if row["tx_hash"] == document.hash]
            for assets, own_side in ((document.assets_in, "recipient"), (document.assets_out, "sender")):
                asset_moves = [
                    (
                        asset.contract,
                        asset.sender,
                        asset.recipient,
                        None if asset.nft is msgspec.UNSET else int(asset.nft.token_id),
                    )
                    for asset in assets
                ]
                assert asset_moves == [
                    (
                        row["token"] or ZERO,
                        row["sender"],
                        row["recipient"],
                        None if row["token_id"] is None else number(row["token_id"]),
                    )
                    for row in moves
                    if row[own_side] == account
                ]
                for asset, row in zip(assets, [row for row in moves if row[own_side] == account], strict=True):
                    decimal_places = decimals.get(asset.contract, 0 if row["token_id"] is not None else 18)
                    assert Decimal(asset.balance or "") == Decimal(number(row["raw"])).scaleb(-decimal_places)
                    assert (asset.decimal, asset.price, asset.value) == (str(decimal_places), "N/A", "N/A")


CALLED = {
    "Approve": {"APPROVAL"},
    "SetApprovalForAll": {"APPROVAL"},
    "Transfer": {"TRANSFERIN", "TRANSFEROUT"},
    "SafeTransferFrom": {"TRANSFERIN", "TRANSFEROUT"},
    "SwapExactTokensForTokens": {"SWAP"},
    "SwapExactETHForTokens": {"SWAP"},
    "ExactInputSingle": {"SWAP"},
    "AddLiquidity": {"ADDLIQUIDITY"},
    "RemoveLiquidity": {"REMOVELIQUIDITY"},
    "Supply": {"LEND"},
    "Redeem": {"WITHDRAW"},
}


@pytest.mark.slow("tests/portfolio/test_activity.py has an example of each type")
async def test_types_say_what_was_called(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        documents = [each for each in await ask(indexed, wallets(subject)) if each.type != "FAILED"]
        sent_documents = [each for each in documents if each.user.address == each.sender]
        function_names = set()
        for each in documents:
            assert each.type in get_args(TransactionType)
            if each.function_name in CALLED:
                function_names.add(each.function_name)
                assert each.type in CALLED[each.function_name], (each.function_name, each.type)
        assert {"Approve", "Transfer", "SwapExactTokensForTokens", "Supply"} <= function_names
        weth = subject.token("WETH")
        wrapping = [
            each for each in sent_documents if each.recipient == weth and each.function_name in ("Deposit", "Withdraw")
        ]
        assert {each.type for each in wrapping} == {"WRAP", "UNWRAP"}
        wraps = [each for each in wrapping if each.type == "WRAP"]
        assert all([asset.balance for asset in each.assets_out] == [each.value] for each in wraps)
        plain = [
            each
            for each in documents
            if not each.function_name and each.value != "0" and each.recipient in wallets(subject)
        ]
        assert {each.type for each in plain} == {"TRANSFERIN", "TRANSFEROUT"}


async def test_a_payment_between_two_wallets_is_there_for_each_and_one_to_oneself_once(tmp_path: Path) -> None:
    with evm(0) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        payment, self_payment = send_all(
            subject, Tx(alice, bob, value=7, gas=21_000), Tx(alice, alice, value=9, gas=21_000)
        )
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            documents = await ask(indexed, [alice.lower(), bob.lower()])
            payments = [
                (each.hash, each.user.address, each.type) for each in documents if each.hash in (payment, self_payment)
            ]
            assert sorted(payments) == sorted(
                [
                    (self_payment, alice.lower(), "SELFTRANSFER"),
                    (payment, alice.lower(), "TRANSFEROUT"),
                    (payment, bob.lower(), "TRANSFERIN"),
                ]
            )


@pytest.mark.slow("test_reconcile.py compares the same sums with balances")
async def test_native_balances_are_what_records_say_with_what_contracts_paid_inside(
    subject: EvmSubject, tmp_path: Path
) -> None:
    accounts = wallets(subject)
    async with index(subject, tmp_path, datasets=(*EVERYTHING, "internal")) as indexed:
        await filled(indexed)
        assert indexed.tail.rows(indexed.key, "transfers", 0, 2**40)
        documents = await ask(indexed, accounts)
    net = dict.fromkeys(accounts, Decimal(0))
    internal_payments = 0
    for each in documents:
        owner = each.user.address
        net[owner] -= Decimal(each.fees) if each.sender == owner else 0
        for asset in (*each.assets_in, *each.assets_out):
            if asset.contract == ZERO:
                net[owner] += Decimal(asset.balance) if asset.is_asset_in else -Decimal(asset.balance)
        internal_payments += any(asset.contract == ZERO and asset.sender != each.sender for asset in each.assets_in)
        unwrapped = each.type == "UNWRAP" and each.sender == owner
        assert not unwrapped or [asset.contract for asset in each.assets_in] == [ZERO]
    assert internal_payments > 5
    for account in accounts:
        before, now = (subject.native(account, height) for height in (0, subject.height))
        assert net[account] == Decimal(now - before).scaleb(-18), account


async def test_who_is_imitated_is_named_and_the_trick_is_left_out_only_when_asked(tmp_path: Path) -> None:
    with evm(0) as subject:
        alice, bob, eve = (subject.deployment.accounts[name] for name in ("alice", "bob", "carol"))
        dai = subject.token("DAI")
        false = bob[:6].lower() + "0" * 32 + bob[-4:].lower()
        (payment, trick, fallen) = send_all(
            subject,
            tx(alice, dai, "transfer(address,uint256)", bob, 10**18),
            tx(eve, dai, "transferFrom(address,address,uint256)", alice, false, 0),
            tx(alice, dai, "transfer(address,uint256)", false, 10**18),
        )
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            documents = {each.hash: each for each in await ask(indexed, [alice.lower()])}
            assert documents[payment].flags == ()
            assert [documents[each].type for each in (payment, trick, fallen)] == ["TRANSFEROUT", "SPAM", "TRANSFEROUT"]
            for each in (trick, fallen):
                flag = documents[each].flags[0]
                assert (flag.kind, flag.address, flag.resembles) == ("POISONING", false, bob.lower())
            visible = {each.hash for each in await ask(indexed, [alice.lower()], transaction_filter(hide_spam=True))}
            assert documents.keys() - visible == {trick}


async def test_a_transfer_that_a_token_only_logs_is_spam_that_can_be_hidden(tmp_path: Path) -> None:
    """The token has an honest name; its balances stay zero, and another account sent the transactions."""
    with evm(0) as subject:
        alice, eve = (subject.deployment.accounts[name] for name in ("alice", "carol"))
        forger = deploy_hostile(subject.node)["transfer with 64 kB"]
        log = Log(
            [TRANSFER, *("0x" + "00" * 12 + account[2:].lower() for account in (alice, eve))],
            words(["uint256"], 10**30),
        )
        (forged, payment) = send_all(
            subject, log_tx(eve, forger, log), tx(eve, subject.token("DAI"), "transfer(address,uint256)", alice, 5)
        )
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            documents = {each.hash: each for each in await ask(indexed, [alice.lower()])}
            visible = {each.hash for each in await ask(indexed, [alice.lower()], transaction_filter(hide_spam=True))}
    assert (documents[forged].type, documents[payment].type) == ("SPAM", "TRANSFERIN")
    assert "SPAM" in {flag.kind for flag in documents[forged].flags}
    assert forged not in visible
    assert payment in visible


@pytest.mark.parametrize(
    ("datasets", "unknown"),
    [(LOGS, ["transactions", "native", "internal"]), (EVERYTHING, ["internal"]), ((*EVERYTHING, "internal"), [])],
)
async def test_what_an_index_was_not_asked_for_is_said(
    subject: EvmSubject, tmp_path: Path, datasets: tuple[str, ...], unknown: list[str]
) -> None:
    async with index(subject, tmp_path, datasets=datasets) as indexed:
        source = Snapshotter(
            indexed.chain, indexed.lake, indexed.tail, TokenBook(indexed.chain.key, indexed.lake, {}), ()
        )
        issues = Subject(source, ChainFacts("local", "Local", 31337), datasets, ()).issues
        assert [issue.subject for issue in issues] == unknown
        assert {issue.adapter for issue in issues} <= {"local"}


async def test_what_an_account_did_is_found_without_reading_what_others_did(
    subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = wallets(subject)[1]
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        before = await ask(indexed, [alice])
        read: list[str] = []
        scan = indexed.lake.scan

        def recording_scan(table: Table, **more: Any) -> Any:
            read.append(table.name)
            return scan(table, **more)

        monkeypatch.setattr(indexed.lake, "scan", recording_scan)
        assert len(await ask(indexed, [alice], transaction_filter(20))) == 20
        # What moved something of hers and does not name her is looked up by height, in `transactions`; everything else
        # is sorted by account.
        assert set(read) <= {"transactions", "tokens"}
        assert read.count("transactions") <= 1
        rows = indexed.stored("account_transactions").to_pylist()
        own_rows = [row for row in rows if row["account"] == row["sender"] == alice]
        assert {row["tx_hash"] for row in own_rows} <= {each.hash for each in before}
        transactions = {
            row["hash"]: row for row in indexed.stored("transactions").to_pylist() if row["sender"] == alice
        }
        assert {row["tx_hash"]: row["fee"] for row in own_rows} == {
            name: row["fee"] for name, row in transactions.items()
        }
        assert all(row["selector"] == transactions[row["tx_hash"]]["input"][:4] for row in own_rows)


async def test_tokens_of_a_long_list_are_judged_once(
    subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.engine.transactions.pages.PIECE", 7)
    monkeypatch.setattr("chainfolio.engine.transactions.pages.MAX_PIECE", 20)
    judged: list[set[tuple[str, str]]] = []
    judge = Snapshotter.judge

    async def recording_judge(source: Snapshotter, pairs: Collection[tuple[str, Asset]], *others: Any) -> Any:
        judged.append({(account, asset.reference) for account, asset in pairs})
        return await judge(source, pairs, *others)

    monkeypatch.setattr(Snapshotter, "judge", recording_judge)
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        documents = await ask(indexed, wallets(subject))
    account_assets = {
        (record.user.address, asset.contract)
        for record in documents
        for asset in (*record.assets_in, *record.assets_out)
        if asset.contract != ZERO
    }
    assert len(documents) > 20
    assert judged == [account_assets]


@pytest.mark.slow("reads a history in pages of many sizes")
async def test_pages_of_any_size_are_the_whole(
    subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(3)
    monkeypatch.setattr("chainfolio.engine.transactions.pages.PIECE", 7)
    monkeypatch.setattr("chainfolio.engine.transactions.pages.MAX_PIECE", 20)
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        for _ in range(6):
            chosen = chance.sample(wallets(subject), chance.randrange(1, 4))
            question = transaction_filter(
                chance.randrange(7, 60),
                newest_first=chance.random() < 0.5,
                types=chance.choice([(), ("APPROVAL", "SWAP")]),
            )
            documents = await ask(indexed, chosen, replace(question, limit=EVERYONE))
            paged: list[TransactionDocument] = []
            while True:
                part = await ask(indexed, chosen, replace(question, offset=len(paged)))
                paged += part
                if len(part) < question.limit:
                    break
            assert paged == documents
            assert len({(each.hash, each.user.address) for each in paged}) == len(paged)
            order = [int(each.timestamp) for each in documents]
            assert order == sorted(order, reverse=question.newest_first)


async def test_filters_leave_exactly_what_fits(subject: EvmSubject, tmp_path: Path) -> None:
    alice, weth, usdc = wallets(subject)[1], subject.token("WETH"), subject.token("USDC")
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        documents = await ask(indexed, [alice])

        async def filter_by(**filters: Any) -> list[TransactionDocument]:
            filtered = await ask(indexed, [alice], transaction_filter(**filters))
            assert filtered
            assert len(filtered) < len(documents)
            return filtered

        assert await filter_by(types=("SWAP",)) == [each for each in documents if each.type == "SWAP"]
        with_weth = [e for e in documents if any(asset.contract == weth for asset in (*e.assets_in, *e.assets_out))]
        by_symbol, by_contract = await filter_by(search="weTH"), await filter_by(search=weth[:20].upper())
        assert [each for each in by_symbol if each.type != "APPROVAL" and each in with_weth] == [
            each for each in with_weth if each.type != "APPROVAL"
        ]
        assert set(hashes(with_weth)) <= set(hashes(by_contract))
        middle = int(documents[len(documents) // 2].timestamp) * 1_000_000
        assert await filter_by(since_us=middle) == [e for e in documents if int(e.timestamp) * 1_000_000 >= middle]
        assert await filter_by(until_us=middle - 1) == [e for e in documents if int(e.timestamp) * 1_000_000 < middle]
        bob = wallets(subject)[2]
        with_bob = await filter_by(counterparties=(bob,))
        assert all(
            bob
            in {
                each.sender,
                each.recipient,
                *(a.sender for a in each.assets_in),
                *(a.recipient for a in each.assets_out),
            }
            or each.type in ("APPROVAL", "FAILED")
            for each in with_bob
        )
        numbers = [a.nft.token_id for e in documents for a in e.assets_in if a.nft is not msgspec.UNSET]
        for each in await filter_by(token_id=int(numbers[0])):
            assets = (*each.assets_in, *each.assets_out)
            assert numbers[0] in [a.nft.token_id for a in assets if a.nft is not msgspec.UNSET]
        tiny = [each for each in documents if may_be_dust(each) and is_dust(each)]
        assert await ask(indexed, [alice], transaction_filter(hide_dust=True)) == [
            each for each in documents if each not in tiny
        ]
        assert await ask(indexed, [alice], transaction_filter(hide_spam=True)) == [
            e for e in documents if e.type != "SPAM"
        ]
        theirs = Protocol(key="usdc9", name="A protocol", contracts={indexed.key: {"token": [usdc]}})
        protocol_documents = await ask(
            indexed, [alice], transaction_filter(protocols=("usdc_v9",)), protocols=(theirs,)
        )
        assert protocol_documents
        assert {each.protocol.key for each in protocol_documents} == {"usdc9"}
        assert set(hashes(protocol_documents)) >= {each.hash for each in documents if each.recipient == usdc}


async def test_called_protocols_name_what_was_done(subject: EvmSubject, tmp_path: Path) -> None:
    contracts = subject.deployment.contracts
    shipped = {each.key: each for each in System(Settings()).registry.protocols}
    pool, router = contracts["Pool"].lower(), contracts["UniswapV2Router02"].lower()
    lending = msgspec.structs.replace(shipped["aave3"], contracts={"local": {"pool": [pool]}})
    pairs = msgspec.structs.replace(shipped["uniswap2"], contracts={"local": {"router": [router]}})
    types = {"Supply": "LEND", "Borrow": "BORROW", "AddLiquidity": "ADDLIQUIDITY", "RemoveLiquidity": "REMOVELIQUIDITY"}
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        documents = await ask(indexed, wallets(subject), protocols=(lending, pairs))
        sent_documents = [each for each in documents if each.user.address == each.sender and each.type != "FAILED"]
        called_there = [each for each in sent_documents if each.function_name]  # and not created
        at_pool = [each for each in called_there if each.recipient in (pool, router)]
        assert {each.protocol.key for each in at_pool} == {"aave3", "uniswap2"}
        called = {(each.function_name, each.type) for each in at_pool if each.function_name in types}
        assert ("Supply", "LEND") in called
        assert called <= set(types.items())


async def test_without_the_dataset_of_transactions_the_node_says_the_same(
    subject: EvmSubject, details: dict[str, list[Row]], tmp_path: Path
) -> None:
    alice = wallets(subject)[1]
    async with index(subject, tmp_path / "all") as complete:
        await filled(complete)
        complete_documents = {each.hash: each for each in await ask(complete, [alice])}
    async with index(subject, tmp_path / "logs", datasets=LOGS) as indexed:
        await filled(indexed)
        right = [tx_hash for *_, tx_hash in expected(details, alice, events_only=True)]
        documents = await ask(indexed, [alice])
        assert hashes(documents) == right
        for each in documents:
            tokens_only = tuple(asset for asset in complete_documents[each.hash].assets_out if asset.contract != ZERO)
            fields = (each.fees, each.value, each.sender, each.recipient, each.function_name, each.assets_in)
            complete_document = complete_documents[each.hash]
            assert fields == (
                complete_document.fees,
                complete_document.value,
                complete_document.sender,
                complete_document.recipient,
                complete_document.function_name,
                complete_document.assets_in,
            )
            assert each.assets_out == tokens_only
        await indexed.chain.heads()
        before = indexed.chain.requests
        assert len(await ask(indexed, [alice], transaction_filter(20, 3))) == 20
        assert indexed.chain.requests - before <= 4  # the head, unknown tokens, and one batch for the page


async def test_a_request_over_many_lookups_goes_on_where_the_last_one_ended(
    subject: EvmSubject, tmp_path: Path
) -> None:
    assert MAX_LOOKUPS >= 250
    alice = wallets(subject)[1]
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await filled(indexed)
        with pytest.raises(Unavailable, match="goes on there") as error:
            await ask(indexed, [alice], max_lookups=10)
        assert error.value.retry_after_s == 1
        pending = int(error.value.reason.split()[0])
        for pending_before in range(pending, 10, -10):
            with pytest.raises(Unavailable, match=rf"\b{pending_before - 10} of the"):
                await ask(indexed, [alice], max_lookups=10)
        documents = await ask(indexed, [alice], max_lookups=10)
        assert documents == await ask(indexed, [alice], max_lookups=0), "all of them are stored"
        assert len(documents) > 10


async def test_any_number_of_lookups_is_read_in_batches_that_are_stored(
    subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.engine.transactions.lookups.BATCH", 7)
    alice = wallets(subject)[1]
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await filled(indexed)
        documents = await ask(indexed, [alice], max_lookups=None)
        assert len(documents) > 2 * 7
        before = indexed.chain.requests
        assert await ask(indexed, [alice], max_lookups=0) == documents
        assert indexed.chain.requests - before <= 4


async def test_details_of_a_block_that_is_replaced_are_deleted_with_it(tmp_path: Path) -> None:
    with evm(0) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        usdc = subject.deployment.tokens["USDC"].address
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            subject.mine(5)
            await filled(indexed)
            follower = indexed.follower()
            payments = send_all(subject, *(tx(alice, usdc, "transfer(address,uint256)", bob, raw) for raw in (5, 6)))
            await follower.step()
            assert set(payments) <= set(hashes(await ask(indexed, [bob.lower()])))
            assert set(indexed.tail.lookups(indexed.key, payments)) == set(payments)
            subject.reorg(1)
            await follower.step()
            assert set(indexed.tail.lookups(indexed.key, payments)) == {payments[0]}
            assert payments[1] not in hashes(await ask(indexed, [bob.lower()]))


async def test_details_of_a_block_that_is_replaced_while_they_are_read_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evm(0) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        usdc = subject.deployment.tokens["USDC"].address
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            subject.mine(5)
            await filled(indexed)
            follower, look_up = indexed.follower(), indexed.chain.look_up
            [payment] = send_all(subject, tx(alice, usdc, "transfer(address,uint256)", bob, 5))
            await follower.step()

            async def look_up_and_replace(transactions: Any) -> Any:
                details = await look_up(transactions)
                subject.reorg(1)
                await follower.step()
                return details

            monkeypatch.setattr(indexed.chain, "look_up", look_up_and_replace)
            await ask(indexed, [bob.lower()])
            assert indexed.tail.lookups(indexed.key, [payment]) == {}


async def test_an_address_with_more_than_is_served_is_not_found(
    subject: EvmSubject, details: dict[str, list[Row]], tmp_path: Path
) -> None:
    alice = wallets(subject)[1]
    count = len(expected(details, alice))
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        assert len(await ask(indexed, [alice], max_rows=count)) == count
        with pytest.raises(NotFound, match="more than"):
            await ask(indexed, [alice], transaction_filter(1), max_rows=count - 1)
        with pytest.raises(NotFound):
            await ask(indexed, [alice], transaction_filter(1), max_rows=3)
        rows = indexed.stored("account_transfers").to_pylist()
        positions = {(row["height"], row["tx_index"]) for row in rows if row["account"] == alice}
        assert indexed.lake.count_transactions(ACCOUNT_TRANSFERS, indexed.key, alice, 10**6) == len(positions) > 4
        assert 3 < indexed.lake.count_transactions(ACCOUNT_TRANSFERS, indexed.key, alice, 3) <= len(positions)
        assert indexed.lake.count_transactions(ACCOUNT_TRANSFERS, indexed.key, "0x" + "12" * 20, 3) == 0
        assert indexed.lake.max_rows(ACCOUNT_TRANSFERS, indexed.key, alice) >= len(positions)


async def test_what_is_not_indexed_is_said_and_never_shown_as_nothing(
    subject: EvmSubject, details: dict[str, list[Row]], tmp_path: Path
) -> None:
    alice, stranger = wallets(subject)[1], "0x" + "12" * 20
    async with index(subject, tmp_path) as indexed:
        with pytest.raises(NotIndexed) as error:
            await ask(indexed, [alice], transaction_filter(5))
        assert (error.value.first, error.value.last) == (0, subject.height)
        floor = subject.height - 30
        await indexed.fill(floor, subject.height)
        indexed_hashes = [tx_hash for height, _, tx_hash in expected(details, alice) if height >= floor]
        assert len(indexed_hashes) > 3
        first_s = int(subject.node.block(floor)["timestamp"], 16)
        assert hashes(await ask(indexed, [alice], transaction_filter(len(indexed_hashes)))) == indexed_hashes
        # A missing block may be as old as the oldest indexed one: only dates above that one are answered completely.
        assert hashes(await ask(indexed, [alice], transaction_filter(since_us=first_s * 1_000_000))) == indexed_hashes
        for question in (
            transaction_filter(len(indexed_hashes) + 1),
            transaction_filter(1, len(indexed_hashes)),
            transaction_filter(1, newest_first=False),
        ):
            with pytest.raises(NotIndexed) as error:
                await ask(indexed, [alice], question)
            assert (error.value.first, error.value.last) == (0, floor - 1)
        with pytest.raises(NotIndexed):
            await ask(indexed, [stranger], transaction_filter(5))
        with pytest.raises(NotIndexed):
            await ask(indexed, [alice], transaction_filter(types=("VOTE",)))
        await indexed.fill(0, floor - 1, LOGS)
        with pytest.raises(NotIndexed) as error:  # native coins and transactions are still missing there
            await ask(indexed, [stranger], transaction_filter(5))
        assert error.value.dataset == "transactions"
        await indexed.fill(0, floor - 1)
        right = [tx_hash for *_, tx_hash in expected(details, alice)]
        assert hashes(await ask(indexed, [alice])) == right
    assert set(EVERYTHING) > set(LOGS)
