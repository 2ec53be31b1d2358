"""Transfers between own accounts on two local chains with real nodes, by the report of gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from chainfolio.assets import account
from chainfolio.cli.demo import FACTS, index_chain, prepare
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import WAD, Deployment, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from chainfolio.loop import run_until_done
from chainfolio.portfolio.pnl.own_transfers import NOTHING_ARRIVED
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.settings_file import load
from tests.gains.conftest import CENT
from tests.gains.ledger import ETH, Wallet

pytestmark = pytest.mark.node
BURN, CLAIM = "depositForBurn(uint256,uint32,bytes32,address)", "receiveMessage(bytes,bytes)"
OUT, IN, COINS_IN = (f"0x{0xB81D6E00 + number:040x}" for number in range(3))
MILLION = 10**6


@dataclass
class Side:
    """One of the chains."""

    node: LocalNode
    deployment: Deployment

    def wallet(self, address: str) -> Wallet:
        self.node.rpc("anvil_impersonateAccount", address)
        wallet = Wallet(
            self.node,
            self.deployment,
            address,
            {symbol: each.address for symbol, each in self.deployment.tokens.items()},
        )
        wallet.get(ETH, 5 * WAD)
        return wallet

    def set_code(self, address: str, code: str) -> None:
        self.node.rpc("anvil_setCode", address, "0x" + code)


def takes(token: str) -> str:
    """Code that takes the amount of the call's first argument from its caller by `transferFrom`."""
    call = f"60206000606460006000{'73' + token[2:].lower()}5af100"
    return "6323b872dd60e01b6000523360045230602452600435604452" + call


def pays(token: str, raw: int) -> str:
    """Code that pays its caller a fixed amount of a token."""
    call = f"60206000604460006000{'73' + token[2:].lower()}5af100"
    return f"63a9059cbb60e01b6000523360045267{raw:016x}602452{call}"


PAYS_COINS = "600060006000600047335af100"  # all that it has


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    with LocalNode() as first, LocalNode(chain_id=31338) as second:
        yield Side(first, deploy(first)), Side(second, deploy(second))


def read(sides: tuple[Side, Side], folder: Path, *addresses: str) -> PnlDocument:
    """Index both chains, and return the report of gains."""
    source, target = sides
    for side in sides:
        side.node.mine(20)
    prepare(folder, source.node, source.deployment, 0)
    facts = FACTS.format(weth=target.deployment.contracts["WETH"].lower())
    facts = facts.replace("31337", "31338").replace('"local"', '"second"').replace('"Local"', '"Second"')
    (folder / "second.toml").write_text(facts)
    prices = folder / "prices.toml"
    feeds, _, pegs = prices.read_text().partition("[peg]\n")
    other_feeds, other_pegs = (text.replace("31337", "31338") for text in (feeds, pegs))
    prices.write_text(f"{feeds}{other_feeds.replace('chainlink.local', 'chainlink.second')}[peg]\n{pegs}{other_pegs}")
    file = folder / "chainfolio.toml"
    chain = file.read_text().partition("[chains.local]")[2].partition("[rates]")[0]
    chain = chain.replace(source.node.url, target.node.url).replace("local.toml", "second.toml")
    file.write_text(file.read_text().replace("[rates]", f"[chains.second]{chain}[rates]"))

    async def go() -> PnlDocument:
        system = System(load(file, {}))
        try:
            await index_chain(system, quiet=True)
            await index_chain(system, "second", quiet=True)
            return await pnl(Engine(system), [account(each) for each in addresses], PnlRequest())
        finally:
            await system.close()

    return run_until_done(go())


def test_lots_follow_over_two_chains_and_close_to_the_unit(sides: tuple[Side, Side], tmp_path: Path) -> None:
    source, target = sides
    me = source.wallet("0x00000000000000000000000000000000face1001")
    target_wallet = target.wallet("0x00000000000000000000000000000000face1002")
    usdc, target_usdc = source.deployment.tokens["USDC"].address, target.deployment.tokens["USDC"].address
    me.get("USDC", 5_000 * MILLION)
    source.set_code(OUT, takes(usdc))
    me.do(tx(me.address, usdc, "approve(address,uint256)", OUT, MAX))
    assert me.do(tx(me.address, OUT, BURN, 3_000 * MILLION, 1, bytes(32), usdc)) == {"USDC": -3_000 * MILLION}
    source.set_code(IN, "00")
    assert me.do(tx(me.address, IN, "bridgeETH(uint32,bytes)", 200_000, b"", value=2 * WAD)) == {ETH: -2 * WAD}
    cost = me.ledger.cost_of(ETH, 2 * WAD)

    target.node.mine(1, 8 * 86_400)  # an optimistic rollup pays after seven days
    set_price(target.node, target.deployment, "ETH", 2_500 * 10**8)
    target.set_code(IN, pays(target_usdc, 2_991 * MILLION))
    friend = target.deployment.accounts["ivan"]
    target.node.settle([tx(friend, target_usdc, "transfer(address,uint256)", IN, 2_991 * MILLION)])
    assert target_wallet.do(tx(target_wallet.address, IN, CLAIM, b"", b"")) == {"USDC": 2_991 * MILLION}
    target.set_code(COINS_IN, PAYS_COINS)
    target.node.rpc("anvil_setBalance", COINS_IN, hex(2 * WAD))
    assert target_wallet.do(tx(target_wallet.address, COINS_IN, "exit(bytes)", b"")) == {ETH: 2 * WAD}
    me.ledger.sell("USDC", 9 * MILLION, me.value("USDC", 9 * MILLION))

    report = read(sides, tmp_path, me.address, target_wallet.address)
    assert (report.unknown, report.unexplained) == ({}, ()), report.issues
    assert [(each.symbol.upper(), each.fee, each.to_wallet, each.reason) for each in report.transfers] == [
        ("USDC", "9", target_wallet.address, ""),
        ("ETH", "0", target_wallet.address, ""),
    ]
    holdings = {(each.chain, each.symbol.upper()): each for each in report.holdings}
    assert holdings["second", "USDC"].amount == holdings["second", "USDC"].held == "2991"
    total = me.ledger.cost + target_wallet.ledger.cost
    assert abs(Fraction(total) - Fraction(report.total_cost_basis)) < CENT
    target_ether = holdings["second", "ETH"]
    assert abs(Fraction(target_ether.total_cost_basis) - Fraction(cost + target_wallet.ledger.cost)) < CENT
    assert abs(Fraction(report.closed_pnl) - (me.ledger.closed + target_wallet.ledger.closed)) < CENT


@pytest.mark.slow("tests/portfolio/test_own_transfers.py joins departures and arrivals without a chain")
def test_a_strangers_payment_is_no_arrival_and_the_departure_is_listed(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    source, target = sides
    address = "0x00000000000000000000000000000000face1003"
    me, target_wallet = source.wallet(address), target.wallet(address)
    usdc = source.deployment.tokens["USDC"].address
    me.get("USDC", 700 * MILLION)
    source.set_code(OUT, takes(usdc))
    me.do(
        tx(address, usdc, "approve(address,uint256)", OUT, MAX),
        tx(address, OUT, BURN, 700 * MILLION, 1, bytes(32), usdc),
    )
    target.node.mine(1, 3_600)
    target_wallet.get("USDC", 700 * MILLION)
    report = read(sides, tmp_path, address)
    assert [(each.amount, each.to_chain, each.reason) for each in report.transfers] == [("700", "", NOTHING_ARRIVED)]
    (row,) = report.unexplained
    assert (row.chain, row.place, row.amount) == ("local", "protocols", "-700")
    assert not any(each.kind in ("sent", "sell") for each in report.gains)
