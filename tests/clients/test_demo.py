"""The Python client reads what a running demo holds: every page, to the last digit."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import polars as pl
import pytest

from tests.e2e.running import ALICE, BOB, DAVE, THE_DAY, Demo, Running

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("demo")]

FRACTION = re.compile(r"-?\d+\.\d+")
DAYS = {"start_date": THE_DAY, "end_date": THE_DAY}


@pytest.fixture(scope="module")
def client(package: Any, demo: Demo) -> Iterator[Any]:
    """A client of a customer who has subscribed to Alice and Dave."""
    key = demo.account("reader", plan="PRO", funds=10_000, grants=("portfolio", "at-block", "sql")).key
    with package.Client(demo.url, key) as client:
        addresses = [package.models.NewSubscription(address=each) for each in (ALICE, DAVE)]
        client.subscribe_snapshot(addresses=addresses)
        yield client


def raw(client: Any, path: str) -> Any:
    """The document at a path, read without the client's types."""
    answer = client._http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def compared(document: Any, read: Any, path: str = "") -> int:
    """Return the number of decimals in a document; each is read exactly, and no fraction stays a text."""
    if isinstance(document, dict):
        return sum(compared(value, read[name], f"{path}.{name}") for name, value in document.items())
    if isinstance(document, list):
        return sum(compared(*pair, f"{path}[]") for pair in zip(document, read, strict=True))
    if isinstance(read, Decimal):
        assert format(read, "f") == document, path
        return 1
    if read is None:
        assert document in (None, "N/A"), path
    elif isinstance(document, str):
        assert not FRACTION.fullmatch(document), f"{path} is no decimal of the description: {document}"
    return 0


@pytest.mark.parametrize(
    ("name", "path", "arguments", "min_decimals"),
    [
        ("portfolio", f"/v1/portfolio?addresses={ALICE},{DAVE}&includeSources=true", {"include_sources": True}, 150),
        ("wallet", f"/v1/wallet?addresses={ALICE},{DAVE}", {}, 60),
        ("historical", f"/v1/historical?addresses={ALICE},{DAVE}&date={THE_DAY}", {"date": THE_DAY}, 60),
        ("token_overview", f"/v1/token-overview?addresses={ALICE},{DAVE}&date={THE_DAY}", {"date": THE_DAY}, 20),
        ("gains", f"/v1/gains?addresses={ALICE},{DAVE}&method=fifo", {"method": "fifo"}, 100),
        ("performance", f"/v1/performance?addresses={ALICE},{DAVE}&startDate={THE_DAY}&endDate={THE_DAY}", DAYS, 15),
    ],
    ids=["portfolio", "wallet", "historical", "token_overview", "gains", "performance"],
)
def test_decimals_of_answers_are_read_to_the_last_digit(
    client: Any, name: str, path: str, arguments: dict[str, Any], min_decimals: int
) -> None:
    read = getattr(client, name)(addresses=[ALICE, DAVE], **arguments)
    decimals = compared(raw(client, path), msgspec.to_builtins(read, builtin_types=(Decimal,)))
    assert decimals >= min_decimals


def test_pages_of_transactions_are_the_whole_list(client: Any) -> None:
    pages = client.transactions(addresses=[ALICE, BOB], limit=7)
    raw_rows = raw(client, f"/v1/transactions?addresses={ALICE},{BOB}&limit=250&offset=0")["transactions"]
    read = list(pages)
    assert len(read) == len(raw_rows) > 28
    assert compared(raw_rows, msgspec.to_builtins(read, builtin_types=(Decimal,))) > 200
    documents = list(pages.pages())
    assert [len(each.transactions) for each in documents[:-1]] == [7] * (len(documents) - 1)
    assert {each.completeness for each in documents} == {"complete"}
    swaps = list(client.transactions([ALICE], tx_types=["SWAP", "WRAP"], sort="ASC"))
    assert {each.type for each in swaps} == {"SWAP", "WRAP"}
    assert swaps == sorted(swaps, key=lambda each: int(each.timestamp))


def test_transactions_are_a_frame_without_floats(client: Any) -> None:
    frame = client.transactions([ALICE], limit=50).to_polars()
    raw_rows = raw(client, f"/v1/transactions?addresses={ALICE}&limit=250&offset=0")["transactions"]
    assert frame["hash"].to_list() == [each["hash"] for each in raw_rows]
    assert frame["fees"].to_list() == [each["fees"] for each in raw_rows]
    assert frame["chain_key"].unique().to_list() == ["local"]
    assert frame["fees_decimal"].sum() == sum(Decimal(each["fees"]) for each in raw_rows) > 0
    assets = [msgspec.json.decode(each) for each in frame["assets_in"]]
    assert [[asset["balance"] for asset in asset_list] for asset_list in assets] == [
        [asset["balance"] for asset in each["assetsIn"]] for each in raw_rows
    ]
    assert not {pl.Float64, pl.Float32} & set(frame.dtypes)
    empty = client.transactions([ALICE], initial_search_text="nothing has this name").to_polars()
    assert (empty.height, empty.schema) == (0, frame.schema)


def test_approvals_follow_cursors(package: Any, ethereum: Running) -> None:
    key = ethereum.account("approver", grants=("portfolio",)).key
    with package.Client(ethereum.url, key) as client:
        approvals = list(client.approvals("ethereum", [ALICE]))
        assert len(approvals) > 4
        assert list(client.approvals("ethereum", [ALICE], limit=2)) == approvals
        assert max(each.amount for each in approvals) == 2**256 - 1
        frame = client.approvals("ethereum", [ALICE], include=["allowance"]).to_polars()
        assert str(2**256 - 1) in frame["amount"].to_list()
        assert frame["amount_decimal"].null_count() > 0, "it has more digits than a frame computes with"
        assert frame["timestamp"].dtype == pl.Datetime("us", "UTC")


def test_files_are_streamed_to_disk(client: Any, tmp_path: Path) -> None:
    with client.export_file("holdings", [ALICE], format="csv") as download:
        assert download.headers["Chainfolio-Completeness"] == "complete"
        download.save(tmp_path / "holdings.csv")
    rows = csv.DictReader((tmp_path / "holdings.csv").read_text().splitlines())
    assert {"eth", "usdc"} <= {row["symbol"].lower() for row in rows}
    with client.export_file("transactions", [ALICE], format="parquet") as download:
        assert b"".join(download.chunks())[:4] == b"PAR1"


def test_a_query_in_sql_is_sent_with_its_body_and_saved_under_a_name(client: Any) -> None:
    with client.run_sql(query="SELECT ? AS n", parameters=[str(2**100)], format="csv") as download:
        assert download.headers["Chainfolio-Rows"] == "1"
        assert b"".join(download.chunks()) == f"n\n{2**100}\n".encode()
    assert client.save_query(name="mine", query="SELECT $a AS a").name == "mine"
    with client.run_sql(saved="mine", parameters={"a": True}) as download:
        assert msgspec.json.decode(b"".join(download.chunks()))["rows"] == [[True]]
    assert [each.name for each in client.list_queries().data] == ["mine"]
    client.remove_query("mine")
    assert {"blocks", "transfers"} <= {each.name for each in client.sql_tables().data}


async def test_events_come_as_typed_states(package: Any, demo: Demo) -> None:
    async with package.AsyncClient(demo.url, demo.key) as client:
        stream = client.events([ALICE])
        first = await anext(stream)
        await stream.aclose()
        assert first.data == await client.status([ALICE])
        assert (await client.nav([ALICE])).nav > 0
    with pytest.raises(RuntimeError, match="closed"):
        await client.credits()


def test_a_server_that_is_gone_is_one_error(package: Any, demo: Demo) -> None:
    with (
        package.Client("http://127.0.0.1:9", demo.key, retry=package.Retry(attempts=1)) as client,
        pytest.raises(package.ConnectionFailed) as caught,
    ):
        client.credits()
    assert demo.key not in f"{caught.value!r}{caught.value.__cause__!r}"
    assert not isinstance(caught.value, httpx2.HTTPError)
