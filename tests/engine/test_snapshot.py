"""Snapshots of wallets with hostile tokens, of pruned chains, and of thousands of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.amounts import MAX_RAW
from chainfolio.assets import ZERO_ADDRESS, Asset, account
from chainfolio.blocks import Block
from chainfolio.contracts import Token as Described
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.errors import HistoryUnavailable
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.indexer.wiring import System
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import Tx, created_address, tx, words
from chainfolio.localchain.hostile import BALANCES, deploy_hostile
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, every_asset
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.valuation import valuate
from chainfolio.pricing.fixed import build_fixed
from chainfolio.protocols import InstalledProtocol, InstalledProtocols, TokenAmount
from chainfolio.settings import Settings
from chainfolio.storage.lake import Lake
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

pytestmark = pytest.mark.node
LOGS = ("transfers", "approvals")
READABLE = {"balance of 64 bytes", "balance of 1 MB", "balance of max uint256"}  # their first word is a balance


@pytest.fixture(scope="module")
def hostile() -> Iterator[tuple[EvmSubject, dict[str, str]]]:
    with evm(0) as subject:
        tokens = {name: address.lower() for name, address in deploy_hostile(subject.node).items()}
        yield subject, tokens


async def followed(indexed: Index) -> None:
    await indexed.fill_final()
    await indexed.follower().step()


async def test_hostile_tokens_spoil_nothing(hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path) -> None:
    subject, tokens = hostile
    alice = subject.deployment.accounts["alice"].lower()
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        snapshot = await indexed.snapshot([alice])
        balances = {holding.token.asset.reference: holding.raw for holding in snapshot.holdings}
        honest = {token: subject.balance(alice, token, subject.height) for token in subject.plain}
        assert {token: balances.get(token, 0) for token in honest} == honest
        assert [issue for issue in snapshot.issues if issue.makes_partial] == []
        silent = {tokens[name] for name in BALANCES} - {tokens[name] for name in READABLE}
        assert silent <= {issue.subject for issue in snapshot.issues}
        assert not silent & set(balances)
        assert balances[tokens["balance of max uint256"]] == MAX_RAW


async def test_a_total_is_what_it_would_be_without_hostile_tokens(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, _ = hostile
    alice, usdc = subject.deployment.accounts["alice"].lower(), subject.token("USDC")
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        facts = indexed.chain.facts
        prices = build_fixed({str(facts.native_asset): "2000", str(facts.token_asset(usdc)): "1"}, "test")
        book = TokenBook(facts.key, indexed.lake, {})
        snapshot = await Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (prices,)).take([alice])
        chains = {"local": ChainFacts("local", "Local", 31337)}
        document = portfolio(alice, valuate([snapshot]), chains, updated_ms=0)
        ether, dollars = subject.native(alice, subject.height), subject.balance(alice, usdc, subject.height)
        assert dollars
        assert Decimal(document.networth) == Decimal(ether) * 2000 / 10**18 + Decimal(dollars) / 10**6
        assert document.completeness == "complete"
        assert document.issues != ()


@pytest.mark.parametrize("trust", ["listed", "priced", "neither"])
async def test_an_unreadable_balance_makes_the_answer_partial_where_the_token_is_listed_or_priced(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path, trust: str
) -> None:
    subject, tokens = hostile
    alice, reverting = subject.deployment.accounts["alice"].lower(), tokens["balance reverts"]
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        asset = indexed.chain.facts.token_asset(reverting)
        book = TokenBook(
            indexed.chain.key, indexed.lake, {asset: Described(asset, "R", "R", 6)} if trust == "listed" else {}
        )
        sources = [build_fixed({str(asset): "1"}, "test")] if trust == "priced" else []
        snapshot = await Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, sources).take([alice])
    partial_subjects = [issue.subject for issue in snapshot.issues if issue.makes_partial]
    assert partial_subjects == ([] if trust == "neither" else [reverting])
    assert reverting in {issue.subject for issue in snapshot.issues}


async def test_a_portfolio_is_partial_for_a_protocol_that_nothing_here_can_read(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, _ = hostile
    alice, stranger, usdc = subject.deployment.accounts["alice"].lower(), "0x" + "12" * 20, subject.token("USDC")
    (unread,) = Registry([Protocol("bank", "Bank", {"local": {"vault": [usdc]}}, families=["of_mine"])]).unread(())
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        book, protocols = (
            TokenBook(indexed.chain.key, indexed.lake, {}),
            InstalledProtocols(unread={usdc: unread.document}),
        )
        snapshot = await Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (), protocols).take(
            [alice, stranger]
        )
    assert [(issue.subject, issue.account) for issue in snapshot.issues if issue.makes_partial] == [("bank", alice)]


async def test_a_wallet_is_read_at_the_newest_block_whatever_is_indexed_and_a_portfolio_says_how_far_it_is_behind(
    tmp_path: Path,
) -> None:
    with evm(0) as subject:
        node, deployer, bob = subject.node, subject.deployment.accounts["deployer"], account("0x" + "b0" * 20)
        async with index(subject, tmp_path / "index", datasets=LOGS) as indexed:
            await followed(indexed)
            top, usdc = node.height, subject.token("USDC")
            # After the index: coins, and a token that the account never met before.
            node.settle(
                [Tx(deployer, bob.address, value=7), tx(deployer, usdc, "mint(address,uint256)", bob.address, 5)]
            )
            node.mine(3)
            system = System(Settings(data=str(tmp_path / "data"), chains={"local": EvmSettings(rpc=[node.url])}))
            book = TokenBook(indexed.chain.key, indexed.lake, {})
            source = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, ())
            engine = Engine(system, _snapshotters={"local": source})
            (now,) = await engine.portfolios([bob], Options(), wait=True, wallet_only=True)
            (indexed_portfolio,) = await engine.portfolios([bob], Options(), wait=True, wallet_only=False)
            await system.close()
        assert (balances_of(now), balances_of(indexed_portfolio)) == (
            {"eth": "0.000000000000000007", "usdc": "0.000005"},
            {},
        )
        assert (now.completeness, indexed_portfolio.completeness) == ("complete", "complete")
        chains = [each.chains["local"] for each in (now, indexed_portfolio)]
        assert [chain.block_number for chain in chains] == [str(node.height), str(top)]
        assert [chain.blocks_behind for chain in chains] == [0, node.height - top]


def balances_of(document: Portfolio) -> dict[str, str]:
    chains = document.asset_by_protocols["wallet"].chains.values()
    return {asset.symbol: asset.balance for chain in chains for asset in every_asset(chain)}


async def test_what_is_held_nowhere_is_described_and_priced_at_one_block_of_the_head(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, tokens = hostile
    usdc, silent, absent = subject.token("USDC"), tokens["decimals 256"], "0x" + "de" * 20
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        facts = indexed.chain.facts
        prices = build_fixed({str(facts.native_asset): "2000", str(facts.token_asset(usdc)): "1"}, "test")
        snapshotter = Snapshotter(
            indexed.chain, indexed.lake, indexed.tail, TokenBook(facts.key, indexed.lake, {}), (prices,)
        )
        quoted = await snapshotter.quote([facts.token_asset(each) for each in (usdc, silent, absent, usdc)])
        assert quoted.block.height == subject.height
        assert {asset.shown_contract: token.decimals for asset, token in quoted.tokens.items()} == {
            ZERO_ADDRESS: 18,
            usdc: 6,
            silent: None,
            absent: None,
        }
        assert {price.usd: price.time_us for price in quoted.prices.values()} == {
            Decimal(2000): quoted.block.time_us,
            Decimal(1): quoted.block.time_us,
        }
        assert quoted.issues == ()


async def test_what_hostile_tokens_call_themselves_can_be_printed(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, tokens = hostile
    alice = subject.deployment.accounts["alice"].lower()
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        snapshot = await indexed.snapshot([alice])
        described = {holding.token.asset.reference: holding.token for holding in snapshot.holdings}
        assert all(token.symbol.isprintable() and token.name.isprintable() for token in described.values())
        assert max(len(token.name) for token in described.values()) < 100
        assert described[tokens["decimals 256"]].decimals is None
        assert described[tokens["decimals 255"]].decimals == 255


async def test_a_pruned_past_is_an_error_and_never_a_zero(tmp_path: Path) -> None:
    with evm(20, LocalNode(archive=False, extra_args=["--prune-history", "5"])) as subject:
        subject.mine(200)
        alice = subject.deployment.accounts["alice"].lower()
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await followed(indexed)
            assert (await indexed.snapshot([alice])).holdings[0].raw > 0
            with pytest.raises(HistoryUnavailable):
                await indexed.snapshot([alice], await indexed.chain.block(subject.birth))


async def test_five_thousand_tokens_are_three_requests(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, _ = hostile
    bob = subject.deployment.accounts["bob"].lower()
    contracts = [f"0x{0xABC0_0000 + at:040x}" for at in range(5_000)]
    paying = set(contracts[::100])
    subject.node.batch(("anvil_setCode", [token, answers(1 if token in paying else 0)]) for token in contracts)
    subject.mine(1)
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await followed(indexed)
        book = TokenBook(indexed.chain.key, indexed.lake, token_list(indexed, contracts))
        before = indexed.chain.requests
        snapshot = await Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, ()).take([bob])
        tokens = {holding.token.asset.reference for holding in snapshot.holdings if not holding.token.asset.is_native}
        assert tokens == paying | {token for token in subject.plain if subject.balance(bob, token, subject.height)}
        assert snapshot.issues == ()
        assert snapshot.requests == indexed.chain.requests - before <= 3


def answers(number: int) -> str:
    """Code that returns a number, whatever it is asked: PUSH1, PUSH0, MSTORE, PUSH1 32, PUSH0, RETURN."""
    return f"0x60{number:02x}5f5260205ff3"


def token_list(indexed: Index, contracts: list[str]) -> dict[Asset, Described]:
    assets = map(indexed.chain.info.token_asset, contracts)
    return {asset: Described(asset, "X", "X", 6) for asset in assets}


async def test_what_tokens_say_is_written_down_once_by_any_number_of_books(
    hostile: tuple[EvmSubject, dict[str, str]], tmp_path: Path
) -> None:
    subject, _ = hostile
    async with index(subject, tmp_path) as indexed:
        facts, block = indexed.chain.facts, Block(5, "0x05", "0x04", 0)
        books = [TokenBook(facts.key, Lake(indexed.lake.uri), {}) for _ in range(3)]
        assert all(book.seen_contracts == set() for book in books)
        for book, contract in zip(books, ("0xa", "0xb", "0xa"), strict=True):
            asset = facts.token_asset(contract)
            book.add({asset: Described(asset, "A", "A", 6)}, block)
        assert [row["token"] for row in indexed.stored("tokens").to_pylist()] == ["0xa", "0xb"]
        assert TokenBook(facts.key, indexed.lake, {}).seen_contracts == {"0xa", "0xb"}
        both = [facts.token_asset(contract) for contract in ("0xa", "0xb")]
        assert set(books[0].described_at(both, block)) == set(both[:1])
        assert books[0].described_at(both, Block(6, "0x06", "0x05", 0)) == {}


async def test_what_a_token_is_called_is_what_it_said_at_the_block_whichever_was_asked_first(tmp_path: Path) -> None:
    with evm(0) as subject:
        node, maker, bob = subject.node, subject.deployment.accounts["deployer"], "0x" + "b0" * 20
        at = [int(node.rpc("eth_getTransactionCount", maker, "pending"), 16) + k for k in range(2)]
        token, second_token = (created_address(maker, nonce).lower() for nonce in at)
        constructor_args = [
            words(["string", "string", "uint8"], "Token", name, decimals)
            for name, decimals in (("OLD", 6), ("NEW", 18))
        ]
        node.settle([Tx(maker, None, artifact("Token").creation(each), gas=5_000_000) for each in constructor_args])
        node.settle([tx(maker, token, "mint(address,uint256)", bob, 10**18)])
        early = node.height
        node.mine()  # the node keeps the state of a block when the next one is made
        node.rpc(
            "anvil_setCode", token, node.rpc("eth_getCode", second_token, "latest")
        )  # as a proxy that was upgraded
        node.mine(2)
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await followed(indexed)
            blocks = await indexed.chain.blocks([early, node.height])
            decimals_read = []
            for order in ((0, 1), (1, 0)):
                book = TokenBook(indexed.chain.key, Lake(f"{indexed.lake.uri}{order[0]}"), {})
                source = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, ())
                snapshots = {k: await source.take([bob], blocks[k]) for k in order}
                repeated = [await source.take([bob], blocks[k]) for k in (0, 1)]
                assert [each.holdings for each in repeated] == [snapshots[0].holdings, snapshots[1].holdings]
                assert [each.requests for each in repeated] == [1, 1]  # as many as the balances alone
                decimals_read.append(
                    [
                        {h.token.asset.shown_contract: h.token.decimals for h in snapshots[k].holdings}[token]
                        for k in (0, 1)
                    ]
                )
    assert decimals_read == [[6, 18], [6, 18]]


async def test_what_a_token_is_a_share_of_is_what_it_said_at_the_block_whichever_was_asked_first(
    tmp_path: Path,
) -> None:
    def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
        yield []
        return (TokenAmount(match.answer, raw),)

    underlying = [f"0x{number:040x}" for number in (5, 7)]
    family = Family("wrap", (Token("pool", question="pool()(address)"),), unwrap=unwrap, position_type="VAULT")
    row = InstalledProtocol("wrap", family, {"pool": tuple(underlying)}, {})
    with evm(0) as subject:
        node, bob, token = subject.node, "0x" + "b0" * 20, subject.token("USDC")
        node.settle([tx(subject.deployment.accounts["deployer"], token, "mint(address,uint256)", bob, 1)])
        heights = []
        for number in (5, 7):  # as a proxy that was upgraded
            node.rpc("anvil_setCode", token, answers(number))
            node.mine(2)
            heights.append(node.height - 1)
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await followed(indexed)
            blocks = await indexed.chain.blocks(heights)
            underlying_read = []
            for order in ((0, 1), (1, 0)):
                book = TokenBook(indexed.chain.key, Lake(f"{indexed.lake.uri}{order[0]}"), {})
                source = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (), InstalledProtocols((row,)))
                snapshots = {k: await source.take([bob], blocks[k]) for k in order}
                repeated = [await source.take([bob], blocks[k]) for k in (0, 1)]
                for k, each in enumerate(repeated):
                    assert replace(each, requests=0) == replace(snapshots[k], requests=0)
                underlying_read.append(
                    [part.token.asset.shown_contract for k in (0, 1) for part in snapshots[k].positions[0].supplied]
                )
    assert underlying_read == [underlying, underlying]
