"""Questions from Python on a chain where wallets traded: each has the answer of its command, plain and asynchronous."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import chainfolio
from chainfolio.cli.main import main
from chainfolio.cli.reconcile import DIFFERS
from chainfolio.errors import BadRequest, BadSettings, ChainfolioError, NotFound, NotIndexed, SourceError
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.tables import TABLES

pytestmark = pytest.mark.node
Ask = Callable[..., Any]
USD = {"USDC": "1", "DAI": "1", "WBTC": "60000", "WETH": "2000"}


@dataclass(frozen=True)
class Place:
    """An indexed chain, its node, and the folder with settings and data."""

    node: LocalNode
    folder: Path
    alice: str
    bob: str  # what is found to differ of his balances is an issue of his later answers
    frank: str

    def command(self, *words: str, ends: int = 0) -> Any:
        """The JSON of a command."""
        with chdir(self.folder), redirect_stdout(io.StringIO()) as output:
            assert main((*words, "--json")) == ends, output.getvalue()
        return json.loads(output.getvalue(), parse_float=Decimal)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 40)
        prices = [f'"eip155:31337/erc20:{deployment.contracts[each].lower()}" = "{USD[each]}"' for each in USD]
        lines = ["[chains.local]", f'rpc = ["{node.url}"]', "[prices]", '"eip155:31337/slip44:60" = "2000"', *prices]
        (folder / "chainfolio.toml").write_text("\n".join(lines) + "\n")
        wallets = {name: address.lower() for name, address in deployment.accounts.items()}
        new_world = Place(node, folder, wallets["alice"], wallets["bob"], wallets["frank"])
        new_world.command("index", "local")
        yield new_world


@pytest.fixture(scope="module", params=["plain", "async"])
def ask(request: pytest.FixtureRequest, world: Place) -> Iterator[Ask]:
    """Asks a session of the folder: `ask("nav", address)`."""
    if request.param == "plain":
        with chainfolio.open(world.folder) as session:
            yield lambda name, *given, **named: getattr(session, name)(*given, **named)
        return
    with asyncio.Runner() as runner:
        asked = runner.run(_entered(world.folder))
        yield lambda name, *given, **named: runner.run(getattr(asked, name)(*given, **named))
        runner.run(asked.close())


async def _entered(folder: Path) -> chainfolio.AsyncSession:
    return await chainfolio.AsyncSession.open(folder).__aenter__()


def plain(document: Any) -> Any:
    """A document as the JSON of a command has it."""
    return json.loads(msgspec.json.encode(document))


def without_times(portfolio: dict[str, Any]) -> dict[str, Any]:
    """A portfolio without the moment at which it was read."""
    return {name: value for name, value in portfolio.items() if name != "lastUpdated"}


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_portfolio_is_that_of_the_command_now_and_at_a_block(ask: Ask, world: Place) -> None:
    portfolio = ask("portfolio", world.alice)
    assert portfolio.completeness == "complete"
    (document,) = world.command("portfolio", world.alice)
    assert without_times(plain(portfolio)) == without_times(document)
    block = world.node.height - 10
    (then,) = world.command("portfolio", world.alice, "--chain", "local", "--block", str(block))
    assert without_times(plain(ask("portfolio", world.alice, chain="local", block=block))) == without_times(then)
    assert then["networth"] != document["networth"]


def test_portfolios_are_in_the_order_of_their_addresses(ask: Ask, world: Place) -> None:
    portfolios = ask("portfolios", [world.frank, world.alice])
    assert [each.address for each in portfolios] == [world.frank, world.alice]
    frame = pl.concat(each.to_polars() for each in portfolios)
    assert frame["address"].unique(maintain_order=True).to_list() == [world.frank, world.alice]


def test_the_frame_of_a_portfolio_adds_up_to_its_net_worth(ask: Ask, world: Place) -> None:
    portfolio = ask("portfolio", world.alice)
    frame = portfolio.to_polars().filter(pl.col("spam").is_null())
    signed = pl.when(side="owed").then(-pl.col("valueDecimal")).otherwise(pl.col("valueDecimal"))
    assert frame.select(signed.sum()).item() == pytest.approx(Decimal(portfolio.networth), abs=Decimal("1e-12"))
    assert not any(each.is_float() for each in frame.dtypes)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_net_asset_value_is_that_of_the_command(ask: Ask, world: Place) -> None:
    nav = ask("nav", [world.alice, world.frank])
    assert nav.nav == world.command("nav", world.alice, world.frank)["nav"] > 0
    assert nav.to_polars()["nav"].item() == f"{nav.nav.normalize():f}"
    assert ask("nav", world.alice, currency="USD").currency == "USD"


def test_a_history_has_the_values_of_the_command(ask: Ask, world: Place) -> None:
    day = world.command("history", world.alice)[0]["days"][-1]["day"]
    days = ask("history", world.alice, first=day, last=day)
    (document,) = world.command("history", world.alice, "--from", day, "--to", day)
    assert [(str(each.day), each.completeness) for each in days] == [(day, document["days"][0]["completeness"])]
    frame = days.to_polars()
    assert frame["value"].to_list() == [document["days"][0]["value"]]
    assert frame.schema["value_usd"] == pl.Decimal(38, 12)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_transactions_are_those_of_the_command_a_page_or_all(ask: Ask, world: Place) -> None:
    every = ask("transactions", world.frank)
    assert plain(every) == world.command("transactions", world.frank, "--all")
    assert len(every.transactions) > 10
    page = ask("transactions", world.frank, limit=4, offset=3)
    assert page.transactions == every.transactions[3:7]
    frame = every.to_polars()
    assert frame["hash"].unique(maintain_order=True).to_list() == [each.hash for each in every.transactions]
    assert frame.schema["time"] == pl.Datetime("us", "UTC")


def test_gains_are_those_of_the_command(ask: Ask, world: Place) -> None:
    gains = ask("gains", world.frank, method="lifo")
    document = world.command("pnl", world.frank, "--method", "lifo")
    assert plain(gains)["gains"] == document["gains"]
    assert gains.to_polars()["gain"].to_list() == [
        None if each["gain"] == "N/A" else each["gain"] for each in document["gains"]
    ]


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_tax_year_is_that_of_the_command(ask: Ask, world: Place) -> None:
    year = int(world.command("pnl", world.frank)["gains"][0]["time"][:4])
    tax_year = ask("tax_year", world.frank, year, jurisdiction="us", method="hifo")
    document = world.command("pnl", world.frank, "--year", str(year), "--jurisdiction", "us", "--method", "hifo")
    assert plain(tax_year)["gains"] == document["gains"] != []
    assert plain(tax_year)["incomes"] == document["incomes"]
    assert tax_year.to_polars()["term"].to_list() == [each["term"] for each in document["gains"]]
    with pytest.raises(BadRequest, match="'fr' is no jurisdiction"):
        ask("tax_year", world.frank, year, jurisdiction="fr")


def test_a_price_is_that_of_the_command(ask: Ask, world: Place) -> None:
    quote = ask("price", "local:ETH", at=world.node.height - 5)
    document = world.command("price", "local:ETH", "--at", str(world.node.height - 5))
    assert f"{quote.price.usd:f}" == document["price"]["usd"] == "2000"
    frame = quote.to_polars()
    assert (frame["usd"].item(), frame["block"].item()) == ("2000", world.node.height - 5)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_reconciliation_is_that_of_the_command(ask: Ask, world: Place) -> None:
    (reconciliation,) = ask("reconcile", world.bob, checkpoints=4)
    (document,) = world.command("reconcile", world.bob, "--checkpoints", "4", ends=DIFFERS)
    assert plain(reconciliation) == document
    assert "rebasing" in {each.cause for each in reconciliation.differences}, "what pays interest has no event for it"
    frame = reconciliation.to_polars()
    assert frame["asset"].to_list() == [each["asset"] for each in document["assets"]]
    assert frame["balance"].to_list() == [each["balance"] for each in document["assets"]]


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_tables_are_lazy_frames_of_the_lake(ask: Ask, world: Place) -> None:
    names = ask("tables")
    assert {"blocks", "transactions", "transfers"} <= set(names) <= TABLES.keys()
    for name in names:
        frame = ask("table", name)
        assert isinstance(frame, pl.LazyFrame)
        assert frame.select(pl.len()).collect().item() > 0, name
        assert set(TABLES[name].names) <= set(frame.collect_schema().names())
    (document,) = world.command("sql", "SELECT count(*) AS n FROM transfers")
    assert ask("table", "transfers").select(pl.len()).collect().item() == document["n"]


@pytest.mark.parametrize(
    ("name", "arguments", "options", "error"),
    [
        ("portfolio", ["0x12"], {}, BadRequest),
        ("portfolio", ["0x" + "12" * 20], {"chain": "moon"}, BadRequest),
        ("portfolio", ["0x" + "12" * 20], {"block": 10**12}, BadRequest),
        ("nav", [[]], {}, BadRequest),
        ("nav", ["0x" + "12" * 20], {"currency": "XXY"}, ChainfolioError),
        ("history", ["0x" + "12" * 20], {"first": "2024-02-30"}, BadRequest),
        ("history", ["0x" + "12" * 20], {"interval": "hour"}, BadRequest),
        ("transactions", ["0x" + "12" * 20], {"limit": 0}, BadRequest),
        ("transactions", ["0x" + "12" * 20], {"offset": -1}, BadRequest),
        ("gains", ["0x" + "12" * 20], {"method": "best"}, BadRequest),
        ("gains", ["0x" + "12" * 20], {"received_at": "cost"}, BadRequest),
        ("gains", ["0x" + "12" * 20], {"zone": "Moon/Sea"}, BadRequest),
        ("price", ["local:NOTHING"], {}, BadRequest),
        ("reconcile", ["0x" + "12" * 20], {"checkpoints": 0}, BadRequest),
        ("table", ["swaps"], {}, BadRequest),
        ("table", ["validators"], {}, NotFound),
    ],
)
def test_what_cannot_be_meant_is_a_typed_error(
    ask: Ask, name: str, arguments: list[Any], options: dict[str, Any], error: type[ChainfolioError]
) -> None:
    with pytest.raises(error):
        ask(name, *arguments, **options)


def test_a_node_alone_is_enough_and_nothing_is_written(
    world: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with chainfolio.connect(rpc=world.node.url) as session:
        portfolio = session.portfolio(world.alice)
        assert session.tables() == []
        with pytest.raises(NotIndexed):
            session.transactions(world.alice)
    assert (portfolio.address, portfolio.completeness) == (world.alice, "partial")
    assert list(tmp_path.iterdir()) == []


def test_with_a_folder_what_was_read_is_kept(world: Place, tmp_path: Path) -> None:
    with chainfolio.connect(rpc=[world.node.url], data=tmp_path / "data") as session:
        session.portfolio(world.alice)
    assert (tmp_path / "data" / "tail.db").exists()
    with chainfolio.open(tmp_path / "data") as session:
        assert "transfers" not in session.tables()


def test_threads_may_share_a_plain_session(world: Place) -> None:
    wallets = [world.alice, world.bob, world.frank]
    with chainfolio.open(world.folder) as session, ThreadPoolExecutor(len(wallets)) as pool:
        values = [each.nav for each in pool.map(session.nav, wallets)]
        assert values == [session.nav(each).nav for each in wallets]


async def test_a_plain_session_works_where_a_loop_is_running(world: Place) -> None:
    """Use both sessions inside a loop, as in a notebook."""
    with chainfolio.open(world.folder) as session:
        plainly = session.nav(world.alice)
    async with chainfolio.AsyncSession.open(world.folder) as async_session:
        both = await asyncio.gather(async_session.nav(world.alice), async_session.portfolio(world.alice))
    assert both[0].nav == plainly.nav
    assert Decimal(both[1].networth) > 0


def test_a_data_folder_is_opened_with_its_settings_or_with_a_node(world: Place, tmp_path: Path) -> None:
    with chainfolio.open(world.folder / "data") as session:
        assert Decimal(session.portfolio(world.alice).networth) > 0
    (tmp_path / "moved").symlink_to(world.folder / "data")
    with chainfolio.open(tmp_path / "moved") as session:
        assert "transfers" in session.tables()
        with pytest.raises(BadRequest, match="no chain is configured"):
            session.portfolio(world.alice)
    with chainfolio.open(tmp_path / "moved", rpc=world.node.url) as session:
        assert session.transactions(world.frank, limit=1).transactions


def test_a_closed_session_says_so(world: Place) -> None:
    session = chainfolio.open(world.folder)
    session.close()
    session.close()
    with pytest.raises(BadRequest, match="closed"):
        session.nav(world.alice)


def test_what_cannot_be_opened_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="neither settings nor data"):
        chainfolio.open(tmp_path)
    with pytest.raises(BadSettings, match="no such settings file"):
        chainfolio.open(tmp_path / "nothing.toml")
    with pytest.raises(BadRequest, match="no node is named"):
        chainfolio.connect(rpc=[])
    with pytest.raises(BadRequest, match="not an http"):
        chainfolio.connect(rpc="ftp://127.0.0.1")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        with pytest.raises(SourceError):
            chainfolio.connect(rpc=f"http://127.0.0.1:{holder.getsockname()[1]}")
