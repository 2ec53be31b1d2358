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
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 40)
        prices = [f'"eip155:31337/erc20:{deployment.contracts[each].lower()}" = "{USD[each]}"' for each in USD]
        lines = ["[chains.local]", f'rpc = ["{node.url}"]', "[prices]", '"eip155:31337/slip44:60" = "2000"', *prices]
        (folder / "chainfolio.toml").write_text("\n".join(lines) + "\n")
        wallets = {name: address.lower() for name, address in deployment.accounts.items()}
        made = Place(node, folder, wallets["alice"], wallets["bob"], wallets["frank"])
        made.command("index", "local")
        yield made


@pytest.fixture(scope="module", params=["plain", "async"])
def ask(request: pytest.FixtureRequest, place: Place) -> Iterator[Ask]:
    """Asks a session of the folder: `ask("nav", address)`."""
    if request.param == "plain":
        with chainfolio.open(place.folder) as session:
            yield lambda name, *given, **named: getattr(session, name)(*given, **named)
        return
    with asyncio.Runner() as runner:
        asked = runner.run(_entered(place.folder))
        yield lambda name, *given, **named: runner.run(getattr(asked, name)(*given, **named))
        runner.run(asked.close())


async def _entered(folder: Path) -> chainfolio.AsyncSession:
    return await chainfolio.AsyncSession.open(folder).__aenter__()


def plain(document: Any) -> Any:
    """A document as the JSON of a command has it."""
    return json.loads(msgspec.json.encode(document))


def lasting(portfolio: dict[str, Any]) -> dict[str, Any]:
    """A portfolio without the moment at which it was read."""
    return {name: value for name, value in portfolio.items() if name != "lastUpdated"}


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_portfolio_is_that_of_the_command_now_and_at_a_block(ask: Ask, place: Place) -> None:
    found = ask("portfolio", place.alice)
    assert found.completeness == "complete"
    (told,) = place.command("portfolio", place.alice)
    assert lasting(plain(found)) == lasting(told)
    block = place.node.height - 10
    (then,) = place.command("portfolio", place.alice, "--chain", "local", "--block", str(block))
    assert lasting(plain(ask("portfolio", place.alice, chain="local", block=block))) == lasting(then)
    assert then["networth"] != told["networth"]


def test_portfolios_are_in_the_order_of_their_addresses(ask: Ask, place: Place) -> None:
    found = ask("portfolios", [place.frank, place.alice])
    assert [each.address for each in found] == [place.frank, place.alice]
    frame = pl.concat(each.to_polars() for each in found)
    assert frame["address"].unique(maintain_order=True).to_list() == [place.frank, place.alice]


def test_the_frame_of_a_portfolio_adds_up_to_its_net_worth(ask: Ask, place: Place) -> None:
    found = ask("portfolio", place.alice)
    frame = found.to_polars().filter(pl.col("spam").is_null())
    signed = pl.when(side="owed").then(-pl.col("valueDecimal")).otherwise(pl.col("valueDecimal"))
    assert frame.select(signed.sum()).item() == pytest.approx(Decimal(found.networth), abs=Decimal("1e-12"))
    assert not any(each.is_float() for each in frame.dtypes)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_net_asset_value_is_that_of_the_command(ask: Ask, place: Place) -> None:
    found = ask("nav", [place.alice, place.frank])
    assert found.nav == place.command("nav", place.alice, place.frank)["nav"] > 0
    assert found.to_polars()["nav"].item() == f"{found.nav.normalize():f}"
    assert ask("nav", place.alice, currency="USD").currency == "USD"


def test_a_history_has_the_values_of_the_command(ask: Ask, place: Place) -> None:
    day = place.command("history", place.alice)[0]["days"][-1]["day"]
    found = ask("history", place.alice, first=day, last=day)
    (told,) = place.command("history", place.alice, "--from", day, "--to", day)
    assert [(str(each.day), each.completeness) for each in found] == [(day, told["days"][0]["completeness"])]
    frame = found.to_polars()
    assert frame["value"].to_list() == [told["days"][0]["value"]]
    assert frame.schema["value_usd"] == pl.Decimal(38, 12)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_transactions_are_those_of_the_command_a_page_or_all(ask: Ask, place: Place) -> None:
    every = ask("transactions", place.frank)
    assert plain(every) == place.command("transactions", place.frank, "--all")
    assert len(every.transactions) > 10
    page = ask("transactions", place.frank, limit=4, offset=3)
    assert page.transactions == every.transactions[3:7]
    frame = every.to_polars()
    assert frame["hash"].unique(maintain_order=True).to_list() == [each.hash for each in every.transactions]
    assert frame.schema["time"] == pl.Datetime("us", "UTC")


def test_gains_are_those_of_the_command(ask: Ask, place: Place) -> None:
    found = ask("gains", place.frank, method="lifo")
    told = place.command("pnl", place.frank, "--method", "lifo")
    assert plain(found)["gains"] == told["gains"]
    assert found.to_polars()["gain"].to_list() == [
        None if each["gain"] == "N/A" else each["gain"] for each in told["gains"]
    ]


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_tax_year_is_that_of_the_command(ask: Ask, place: Place) -> None:
    year = int(place.command("pnl", place.frank)["gains"][0]["time"][:4])
    found = ask("tax_year", place.frank, year, jurisdiction="us", method="hifo")
    told = place.command("pnl", place.frank, "--year", str(year), "--jurisdiction", "us", "--method", "hifo")
    assert plain(found)["gains"] == told["gains"] != []
    assert plain(found)["incomes"] == told["incomes"]
    assert found.to_polars()["term"].to_list() == [each["term"] for each in told["gains"]]
    with pytest.raises(BadRequest, match="'fr' is no jurisdiction"):
        ask("tax_year", place.frank, year, jurisdiction="fr")


def test_a_price_is_that_of_the_command(ask: Ask, place: Place) -> None:
    found = ask("price", "local:ETH", at=place.node.height - 5)
    told = place.command("price", "local:ETH", "--at", str(place.node.height - 5))
    assert f"{found.price.usd:f}" == told["price"]["usd"] == "2000"
    frame = found.to_polars()
    assert (frame["usd"].item(), frame["block"].item()) == ("2000", place.node.height - 5)


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_a_reconciliation_is_that_of_the_command(ask: Ask, place: Place) -> None:
    (found,) = ask("reconcile", place.bob, checkpoints=4)
    (told,) = place.command("reconcile", place.bob, "--checkpoints", "4", ends=DIFFERS)
    assert plain(found) == told
    assert "rebasing" in {each.cause for each in found.differences}, "what pays interest has no event for it"
    frame = found.to_polars()
    assert frame["asset"].to_list() == [each["asset"] for each in told["assets"]]
    assert frame["balance"].to_list() == [each["balance"] for each in told["assets"]]


@pytest.mark.slow("a plain session runs the asynchronous one", only=["async"])
def test_tables_are_lazy_frames_of_the_lake(ask: Ask, place: Place) -> None:
    names = ask("tables")
    assert {"blocks", "transactions", "transfers"} <= set(names) <= TABLES.keys()
    for name in names:
        frame = ask("table", name)
        assert isinstance(frame, pl.LazyFrame)
        assert frame.select(pl.len()).collect().item() > 0, name
        assert set(TABLES[name].names) <= set(frame.collect_schema().names())
    (told,) = place.command("sql", "SELECT count(*) AS n FROM transfers")
    assert ask("table", "transfers").select(pl.len()).collect().item() == told["n"]


@pytest.mark.parametrize(
    ("name", "given", "named", "error"),
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
    ask: Ask, name: str, given: list[Any], named: dict[str, Any], error: type[ChainfolioError]
) -> None:
    with pytest.raises(error):
        ask(name, *given, **named)


def test_a_node_alone_is_enough_and_nothing_is_written(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with chainfolio.connect(rpc=place.node.url) as session:
        found = session.portfolio(place.alice)
        assert session.tables() == []
        with pytest.raises(NotIndexed):
            session.transactions(place.alice)
    assert (found.address, found.completeness) == (place.alice, "partial")
    assert list(tmp_path.iterdir()) == []


def test_with_a_folder_what_was_read_is_kept(place: Place, tmp_path: Path) -> None:
    with chainfolio.connect(rpc=[place.node.url], data=tmp_path / "data") as session:
        session.portfolio(place.alice)
    assert (tmp_path / "data" / "tail.db").exists()
    with chainfolio.open(tmp_path / "data") as session:
        assert "transfers" not in session.tables()


def test_threads_may_share_a_plain_session(place: Place) -> None:
    wallets = [place.alice, place.bob, place.frank]
    with chainfolio.open(place.folder) as session, ThreadPoolExecutor(len(wallets)) as pool:
        together = [each.nav for each in pool.map(session.nav, wallets)]
        assert together == [session.nav(each).nav for each in wallets]


async def test_a_plain_session_works_where_a_loop_is_running(place: Place) -> None:
    """As in a notebook."""
    with chainfolio.open(place.folder) as session:
        plainly = session.nav(place.alice)
    async with chainfolio.AsyncSession.open(place.folder) as asked:
        both = await asyncio.gather(asked.nav(place.alice), asked.portfolio(place.alice))
    assert both[0].nav == plainly.nav
    assert Decimal(both[1].networth) > 0


def test_a_data_folder_is_opened_with_its_settings_or_with_a_node(place: Place, tmp_path: Path) -> None:
    with chainfolio.open(place.folder / "data") as session:
        assert Decimal(session.portfolio(place.alice).networth) > 0
    (tmp_path / "moved").symlink_to(place.folder / "data")
    with chainfolio.open(tmp_path / "moved") as session:
        assert "transfers" in session.tables()
        with pytest.raises(BadRequest, match="no chain is configured"):
            session.portfolio(place.alice)
    with chainfolio.open(tmp_path / "moved", rpc=place.node.url) as session:
        assert session.transactions(place.frank, limit=1).transactions


def test_a_closed_session_says_so(place: Place) -> None:
    session = chainfolio.open(place.folder)
    session.close()
    session.close()
    with pytest.raises(BadRequest, match="closed"):
        session.nav(place.alice)


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
