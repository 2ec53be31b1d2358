"""A price source of an installed package that asks a web server and the chain in one round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.environment import Environment
from chainfolio.errors import BadSettings
from chainfolio.pricing.http_reads import Http
from chainfolio.pricing.registry import GROUP, build_sources
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index
from tests.pricing.server import serving

SOURCE = """
from decimal import Decimal

from chainfolio.adapters.evm.reads import Call
from chainfolio.contracts import Price
from chainfolio.plans import Unknown
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.price_sources import PriceSection, Quotes, Refusal


class Web:
    name = "web"

    def __init__(self, url, token):
        self.url, self.token = url, token

    def prices(self, assets, block):
        own = [asset for asset in assets if asset.reference == self.token]
        if not own:
            return Quotes()
        usd, decimals = yield [HttpGet(self.url), Call(self.token, "decimals()(uint8)")]
        if isinstance(usd, Unknown):
            return Quotes(refused=tuple(Refusal(asset, self.name, usd.reason) for asset in own))
        price = Decimal(usd.decode()) * decimals
        return Quotes(tuple(Price(asset, price, self.name, block.time_us, Decimal(1)) for asset in own))


SECTION = PriceSection(lambda section, chain, where: Web(section["url"], section["token"]), kinds=("evm",))
"""


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(0) as chain:
        yield chain


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of the source, where it is found as an installed one is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "p_web.py").write_text(SOURCE)
    (tmp_path / "p_torn.py").write_text("raise RuntimeError('torn')")
    info = tmp_path / "p_web-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: p-web\nVersion: 1.0\n")
    lines = ("web = p_web:SECTION", "torn = p_torn:SECTION", "wrong = p_web:Web")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    yield
    for name in ("p_web", "p_torn"):
        sys.modules.pop(name, None)


@pytest.mark.node
@pytest.mark.parametrize(
    ("path", "price", "reasons"),
    [
        ("usd", Decimal("1234.5") * 6, []),
        ("gone", None, ["127.0.0.1 answered with status 503: it is asked again with the next answer"]),
    ],
)
@pytest.mark.usefixtures("installed")
async def test_a_price_may_come_from_a_web_server_in_the_round_of_the_chain_s_reads(
    subject: EvmSubject, tmp_path: Path, path: str, price: Decimal | None, reasons: list[str]
) -> None:
    alice, usdc = subject.deployment.accounts["alice"].lower(), subject.token("USDC")
    async with index(subject, tmp_path, datasets=("transfers",)) as indexed, serving() as server:
        await indexed.fill_final()
        http = Http(Environment())
        sources = build_sources({"web": {"url": f"{server.url}/{path}", "token": usdc}}, {}, indexed.key, "evm")
        book = TokenBook(indexed.chain.key, indexed.lake, {})
        snapshot = await Snapshotter(
            with_mixed_reads(indexed.chain, http), indexed.lake, indexed.tail, book, sources
        ).take([alice], extra=[indexed.chain.info.token_asset(usdc)])
        await http.close()
    assert [each.usd for each in snapshot.prices] == ([] if price is None else [price])
    assert [issue.reason for issue in snapshot.issues if issue.adapter == "web"] == reasons
    assert len(server.requests) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torn", r"\[torn\]: p_torn:SECTION cannot be loaded: RuntimeError: torn"),
        ("wrong", r"\[wrong\]: p_web:Web is a type, not a PriceSection"),
        ("webs", r"unknown section \[webs\] \(did you mean \[web\]\?"),
    ],
)
def test_a_source_that_cannot_be_used_is_told_where_its_section_is_named(name: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        build_sources({name: {}}, {}, "local", "evm")
