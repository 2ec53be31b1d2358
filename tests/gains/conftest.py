"""A local chain with real contracts, and wallets with ledgers to compare their gains with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chainfolio.assets import account
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.engine.gains.pnl import PnlRequest, compute_gains, pnl
from chainfolio.engine.history.day_blocks import days_from
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import PRICES, WAD, Deployment, deploy
from chainfolio.localchain.evm import Tx, created_address, tx, words
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from chainfolio.loop import run_until_done
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.metrics.report import PerformanceDocument
from chainfolio.portfolio.pnl.gains import RemainingLots
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.portfolio.transactions import TransactionDocument
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.gains.ledger import ETH, Wallet

CENT = Fraction(1, 100)
Result = TypeVar("Result")


@dataclass
class World:
    """A chain on which no file names a router, a pool or a position manager, as for hundreds of forks.

    `rewards` are tokens that are worth two, by symbol. `wrapped` is the token that wraps the coin, by default WETH.
    """

    node: LocalNode
    deployment: Deployment
    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    rewards: dict[str, str] = field(default_factory=dict)
    wrapped: str = ""
    _wallets: int = 0

    def contract(self, name: str) -> str:
        """The address of a deployed contract."""
        return self.deployment.contracts[name]

    def pass_time(self, seconds: int) -> None:
        """Let time pass; the feeds answer again, because old answers are no prices."""
        self.node.mine(1, seconds)
        for symbol in PRICES:
            answer = self.node.call(self.contract(f"{symbol} FluxAggregator"), "latestAnswer()(int256)")
            set_price(self.node, self.deployment, symbol, answer)

    def wallet(self, **got: int) -> Wallet:
        """A new wallet that friends gave something, with ether for its fees."""
        self._wallets += 1
        address = f"0xface{self._wallets:036x}"
        self.node.rpc("anvil_impersonateAccount", address)
        assets = {symbol: token.address for symbol, token in self.deployment.tokens.items()}
        wallet = Wallet(self.node, self.deployment, address, {**assets, **self.rewards})
        for symbol, raw in {ETH: 5 * WAD, **got}.items():
            wallet.get(symbol, raw)
        return wallet

    def read(self, *wallets: Wallet, **options: Any) -> tuple[PnlDocument, list[TransactionDocument]]:
        """Index the chain; return the report of wallets, and their transactions, the oldest first."""

        async def work(engine: Engine) -> tuple[PnlDocument, list[TransactionDocument]]:
            accounts = [account(wallet.address) for wallet in wallets]
            report = await pnl(engine, accounts, PnlRequest(**options))
            page, _ = await engine.records(accounts, TransactionFilter(1000, 0, newest_first=False))
            return report, list(page.document.transactions)

        return self._run(work)

    def portfolio(self, wallet: Wallet) -> Portfolio:
        """Index the chain; return the portfolio of a wallet, with gains."""

        async def work(engine: Engine) -> Portfolio:
            (portfolio,) = await engine.portfolios([account(wallet.address)], Options(), wait=True, wallet_only=False)
            return portfolio

        return self._run(work)

    def performance(self, *addresses: str, first: date, last: date) -> PerformanceDocument:
        """Index the chain; return the performance of wallets as one owner's."""

        async def work(engine: Engine) -> PerformanceDocument:
            return await engine.performance([account(each) for each in addresses], days_from(first, last), "USD")

        self.node.mine(60)
        return self._run(work)

    def lots(self, wallet: Wallet) -> list[RemainingLots]:
        """Index the chain; return the lots that remain of a wallet."""

        async def work(engine: Engine) -> list[RemainingLots]:
            return (await compute_gains(engine, [account(wallet.address)], PnlRequest())).gains.remaining

        return self._run(work)

    def _run(self, work: Callable[[Engine], Coroutine[Any, Any, Result]]) -> Result:
        async def go() -> Result:
            system = System(settings)
            try:
                await index_chain(system, quiet=True)
                return await work(Engine(system))
            finally:
                await system.close()

        self.node.mine(20)
        settings = self._settings()
        return run_until_done(go())

    def _settings(self) -> Settings:
        """Settings with the protocols of `files` only, and prices of rewards."""
        protocols = Path(prepare(self.folder / "data", self.node, self.deployment, 0).protocols)
        for path in protocols.glob("*.toml"):
            path.unlink()
        for key, text in self.files.items():
            (protocols / f"{key}.toml").write_text(text)
        facts = self.folder / "data" / "local.toml"
        if self.wrapped:
            facts.write_text(facts.read_text().replace(self.contract("WETH").lower(), self.wrapped))
        file = self.folder / "data" / "chainfolio.toml"
        prices = "".join(f'"eip155:31337/erc20:{token.lower()}" = "2"\n' for token in self.rewards.values())
        file.write_text(file.read_text().replace("[rates]", f"[prices]\n{prices}[rates]"))
        return load(file, {})


def assert_equal(report: PnlDocument, wallet: Wallet, *others: Wallet) -> None:
    """Costs, income and gains of a report are those of the ledger, to the cent, and every unit is held."""
    assert report.unknown == {}, report.issues
    holdings = {each.symbol.upper().replace("WETH", ETH): each for each in report.holdings if Decimal(each.amount)}
    symbols = {symbol for symbol in wallet.ledger.lots if wallet.ledger.quantity(symbol)}
    assert holdings.keys() == symbols
    for symbol in symbols:
        decimals = {ETH: 18, "USDC": 6, "WBTC": 8}.get(symbol, 18)
        assert int(Decimal(holdings[symbol].amount).scaleb(decimals)) == wallet.ledger.quantity(symbol), symbol
    for name, reported, expected in (
        ("income", report.income, wallet.ledger.income),
        ("closed", report.closed_pnl, wallet.ledger.closed),
        ("cost", report.total_cost_basis, wallet.ledger.cost),
    ):
        assert abs(Fraction(reported) - expected) < CENT, (name, reported, float(expected))


def deploy_token(world: World, symbol: str) -> None:
    """Deploy a token that is worth two."""
    owner = world.deployment.accounts["deployer"]
    nonce = int(world.node.rpc("eth_getTransactionCount", owner, "latest"), 16)
    code = artifact("Token").creation(words(["string", "string", "uint8"], symbol, symbol, 18))
    world.node.settle([Tx(owner, None, code, gas=5_000_000)])
    world.rewards[symbol] = created_address(owner, nonce)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        rewards = {"SUSHI": deployment.contracts["SUSHI"]}
        yield World(node, deployment, tmp_path_factory.mktemp("gains"), rewards=rewards)


@pytest.fixture(scope="session")
def scripted_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One chain for all scripted contracts, with tokens that protocols pay."""
    with LocalNode() as node:
        deployment = deploy(node)
        world = World(node, deployment, tmp_path_factory.mktemp("stage"))
        for symbol in ("COMP", "CRV", "CVX", "LQTY", "AERO"):
            deploy_token(world, symbol)
        friend, owner = deployment.accounts["ivan"], deployment.accounts["deployer"]
        node.rpc("anvil_setBalance", friend, hex(10_000 * WAD))
        node.settle([tx(friend, deployment.contracts["WETH"], "deposit()", value=2_000 * WAD)])
        mint = "mint(address,uint256)"
        for symbol in ("DAI", "USDC", "WBTC"):
            node.settle([tx(owner, deployment.tokens[symbol].address, mint, friend, 10**7 * WAD)])
        yield world


@pytest.fixture
def stage(scripted_world: World) -> Iterator[World]:
    """The chain of scripted contracts; a test adds its protocol files."""
    yield scripted_world
    scripted_world.files.clear()
