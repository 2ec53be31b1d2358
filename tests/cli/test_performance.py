"""`chainfolio performance` of a wallet with payments, a swap and a changing price.

The tests compute the returns from the node's balances and the payments that they made.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from chainfolio.amounts import EXACT, total
from chainfolio.cli.demo import prepare
from chainfolio.cli.main import main
from chainfolio.engine.history.day_blocks import days_from, midnight_us
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from tests.cli.conftest import Run

pytestmark = pytest.mark.node
FIRST, LAST = date(2024, 2, 27), date(2024, 3, 2)
DAYS = days_from(FIRST, LAST)
WALLET, OTHER = "0x00000000000000000000000000000000000a77e7", "0x00000000000000000000000000000000000b77e7"
HOUR_S = 3600
PARTS = ("flows", "realised", "unrealised", "income", "fees", "debts", "rewards")
SWAP, PAY = "swapExactETHForTokens(uint256,address[],address,uint256)", "transfer(address,uint256)"


@dataclass(frozen=True)
class PricedChain:
    """The chain, its settings, and the last height before each day."""

    node: LocalNode
    deployment: Deployment
    settings: str
    heights: dict[date, int]

    def value_usd(self, wallet: str, day: date, ether: int) -> Fraction:
        """Return a wallet's value in USD at the begin of a day, by the node's balances."""
        height = self.heights[day]
        coins = int(self.node.rpc("eth_getBalance", wallet, hex(height)), 16)
        usdc = self.node.call(self.deployment.contracts["USDC"], "balanceOf(address)(uint256)", wallet, block=height)
        return Fraction(coins * ether, 10**18) + Fraction(usdc, 10**6)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PricedChain]:
    """Four days, indexed. Ether: 2,000, then 2,200 from the second day on, 1,980 from the fourth."""
    with LocalNode(timestamp=midnight_us(FIRST) // 10**6 - 80_000) as node:
        deployment = deploy(node)
        alice, usdc = deployment.accounts["alice"], deployment.contracts["USDC"]
        heights: dict[date, int] = {}

        def at(day: date, hour: int, *txs: Tx) -> None:
            node.rpc("evm_setNextBlockTimestamp", midnight_us(day) // 10**6 + hour * HOUR_S)
            if txs:
                node.settle(list(txs))

        for wallet in (WALLET, OTHER):
            node.rpc("anvil_impersonateAccount", wallet)
        node.settle([Tx(alice, WALLET, value=10**18), Tx(alice, OTHER, value=10**18)])
        heights[DAYS[0]] = node.height
        at(DAYS[0], 12, tx(alice, usdc, PAY, WALLET, 1000 * 10**6))
        heights[DAYS[1]] = node.height
        at(DAYS[1], 6)
        set_price(node, deployment, "ETH", 2_200 * 10**8)
        path = [deployment.contracts["WETH"], usdc]
        at(
            DAYS[1],
            18,
            tx(WALLET, deployment.contracts["UniswapV2Router02"], SWAP, 0, path, WALLET, 2**255, value=5 * 10**17),
        )
        heights[DAYS[2]] = node.height
        at(DAYS[2], 6, tx(WALLET, usdc, PAY, alice, 500 * 10**6))
        at(DAYS[2], 18, tx(WALLET, usdc, PAY, OTHER, 100 * 10**6))
        heights[DAYS[3]] = node.height
        at(DAYS[3], 6)
        set_price(node, deployment, "ETH", 1_980 * 10**8)
        heights[DAYS[4]] = node.height
        at(DAYS[4], 6)
        node.mine(80)
        config = prepare(tmp_path_factory.mktemp("past"), node, deployment, 0)
        settings = str(config.data_dir / "chainfolio.toml")
        assert main(["index", "local", "--config", settings]) == 0
        yield PricedChain(node, deployment, settings, heights)


@pytest.fixture
def options(past: PricedChain) -> list[str]:
    return ["--config", past.settings, "--from", str(FIRST), "--to", str(LAST)]


def performance(run: Run, *arguments: str) -> dict[str, Any]:
    ran = run("performance", *arguments, "--json")
    assert ran.code == 0, ran
    document: dict[str, Any] = ran.json
    return document


def close(text: str, expected: Fraction) -> bool:
    return abs(Fraction(Decimal(text)) - expected) <= Fraction(1, 2 * 10**12)


def test_returns_leave_out_what_was_paid_in_and_taken_out_and_a_swap_is_no_payment(
    run: Run, past: PricedChain, options: list[str]
) -> None:
    document = performance(run, WALLET, *options)
    assert document["reasons"] == []
    prices = (2_000, 2_000, 2_200, 2_200, 1_980)
    values = [past.value_usd(WALLET, day, price) for day, price in zip(DAYS, prices, strict=True)]
    assert values[0] == 2_000
    first = 1 + (values[1] - values[0] - 1_000) / (values[0] + Fraction(1_000, 2))  # 1,000 were there for half the day
    second = values[2] / values[1]  # the swap is no flow: what it cost is in the return
    third = 1 + (values[3] - values[2] + 600) / (values[2] - Fraction(500 * 18, 24) - Fraction(100 * 6, 24))
    fourth = values[4] / values[3]
    assert close(document["timeWeightedReturn"], first * second * third * fourth - 1)
    assert first == 1
    assert second > 1  # by the price
    assert [each["value"] for each in document["flows"]] == ["1000", "-500", "-100"]
    assert [Fraction(each["value"]) for each in document["days"]] == values
    assert Decimal(document["netFlows"]) == 400
    assert Fraction(document["gain"]) == values[4] - values[0] - 400
    assert close(document["drawdown"]["part"], 1 - fourth * third / max(Fraction(1), third))
    assert document["drawdown"]["low"] == str(LAST)


def assert_adds_up(document: dict[str, Any]) -> dict[str, Decimal]:
    """The parts of the change of value, whose sum is the change."""
    changes = document["changes"]
    assert not changes["reason"], changes
    parts = {name: Decimal(changes[name]) for name in PARTS}
    parts["unexplained"] = total([Decimal(row["value"]) for row in changes["unexplained"]])
    change = EXACT.subtract(Decimal(document["endValue"]), Decimal(document["startValue"]))
    assert total([*parts.values(), 2 * parts["fees"].copy_negate()]) == change
    return parts


def test_the_parts_of_the_change_add_up_and_are_those_of_the_transactions(
    run: Run, past: PricedChain, options: list[str]
) -> None:
    document = performance(run, WALLET, *options)
    parts = assert_adds_up(document)
    assert document["changes"]["unexplained"] == []
    assert parts["flows"] == Decimal(document["netFlows"]) == 400
    assert parts["income"] == parts["debts"] == parts["rewards"] == 0
    assert parts["fees"] > 0  # of two payments; the fee of the swap is in the cost of what it brought
    assert -5 < parts["realised"] < 0  # half an ether of 2,000 was sold in a pool whose price stayed
    assert 0 > parts["unrealised"] > -Decimal(12)  # the other half is worth 1,980
    euros = performance(run, WALLET, *options, "--currency", "EUR")
    in_euros = assert_adds_up(euros)
    assert abs(in_euros["realised"] - parts["realised"] * Decimal("0.92")) < Decimal("1e-20")
    ether = performance(run, WALLET, *options, "--currency", "ETH")["changes"]
    assert (ether["flows"], ether["reason"]) == ("N/A", "costs are converted to fiat money only")
    output = run("performance", WALLET, *options).out
    assert "realised gains" in output
    assert "not explained" not in output


def test_the_money_weighted_return_makes_all_payments_worth_what_is_left(
    run: Run, past: PricedChain, options: list[str]
) -> None:
    document = performance(run, WALLET, *options)
    rate, period_hours = Decimal(document["moneyWeightedReturn"]), Decimal(4 * 24)
    payments = [(0, -2_000), (12, -1_000), (54, 500), (66, 100)]
    end = past.value_usd(WALLET, LAST, 1_980)
    future_value = sum(
        -Decimal(amount) * (1 + rate) ** ((period_hours - hours) / period_hours) for hours, amount in payments
    )
    assert abs(future_value - Decimal(end.numerator) / end.denominator) < Decimal("1e-7")
    assert document["moneyWeightedYearly"] == document["timeWeightedYearly"] == "N/A"  # four days say nothing of a year


def test_what_goes_between_wallets_of_one_owner_is_no_flow(run: Run, options: list[str]) -> None:
    combined = performance(run, WALLET, OTHER, *options)
    assert [each["value"] for each in combined["flows"]] == ["1000", "-500"]
    assert combined["addresses"] == [WALLET, OTHER]


def test_in_another_currency_every_value_has_the_rate_of_its_own_moment(
    run: Run, past: PricedChain, options: list[str]
) -> None:
    euros = performance(run, WALLET, *options, "--currency", "EUR")  # the demo's settings fix 0.92
    dollars = performance(run, WALLET, *options)
    assert euros["timeWeightedReturn"] == dollars["timeWeightedReturn"]
    assert Decimal(euros["startValue"]) == 2_000 * Decimal("0.92")
    ether = performance(run, WALLET, *options, "--currency", "ETH")
    assert ether["startValue"] == "1"
    assert ether["flows"][0]["value"] == "0.5"
    end = past.value_usd(WALLET, LAST, 1_980) / 1_980
    assert abs(Fraction(Decimal(ether["endValue"])) - end) < Fraction(1, 10**17)
    net_flows = sum(Decimal(each["value"]) for each in ether["flows"])
    assert abs(Decimal(ether["gain"]) - (Decimal(ether["endValue"]) - 1 - net_flows)) < Decimal("1e-17")
    assert ether["timeWeightedReturn"] != dollars["timeWeightedReturn"]


def test_without_an_index_no_return_is_said_and_the_command_that_reads_it_is(
    run: Run, past: PricedChain, here: Path, options: list[str]
) -> None:
    Path("chainfolio.toml").write_text('[prices]\n"eip155:31337/slip44:60" = "2000"\n')
    span = options[2:]
    document = performance(run, WALLET, "--rpc", past.node.url, *span)
    assert document["timeWeightedReturn"] == document["moneyWeightedReturn"] == document["gain"] == "N/A"
    assert document["drawdown"] is None
    assert any("chainfolio watch" in reason and WALLET in reason for reason in document["reasons"])
    output = run("performance", WALLET, "--rpc", past.node.url, *span)
    assert "not known" in output.out
    assert "time-weighted return    -" in output.out


def test_where_the_index_says_what_is_held_and_not_what_came_values_are_there_and_returns_are_not(
    run: Run, past: PricedChain, here: Path, options: list[str]
) -> None:
    folder = Path(past.settings).parent
    for name in ("local.toml", "prices.toml", "chainfolio.toml"):
        Path(name).write_text((folder / name).read_text())
    assert run("index", "local", "--datasets", "transfers,events").code == 0
    document = performance(run, WALLET, *options[2:])
    assert document["startValue"] == "2000"
    assert document["timeWeightedReturn"] == document["moneyWeightedReturn"] == document["netFlows"] == "N/A"
    (reason,) = document["reasons"]
    assert f"chainfolio watch {WALLET} --chain local" in reason
    assert "NotIndexed" not in reason
    assert len(document["days"]) == 5


def test_what_was_held_before_the_index_has_no_known_gain_and_the_sum_is_still_the_change(
    run: Run, past: PricedChain, here: Path, options: list[str]
) -> None:
    folder = Path(past.settings).parent
    for name in ("local.toml", "prices.toml", "chainfolio.toml"):
        Path(name).write_text((folder / name).read_text())
    assert run("index", "local", "--datasets", "transfers,events").code == 0
    assert run("index", "local", "--from", str(past.heights[DAYS[1]] + 1)).code == 0
    document = performance(run, WALLET, "--from", str(DAYS[2]), "--to", str(LAST))
    parts = assert_adds_up(document)
    assert parts["flows"] == -600
    assert parts["realised"] == parts["unrealised"] == 0
    rows = {row["symbol"]: row["reason"] for row in document["changes"]["unexplained"]}
    assert rows == dict.fromkeys(("eth", "usdc"), "it was held before the first indexed block: its cost is not known")


def test_the_table_the_chart_and_the_rows_say_the_same(run: Run, options: list[str]) -> None:
    document = performance(run, WALLET, *options)
    output = run("performance", WALLET, *options, "--plot")
    assert output.code == 0
    assert f"{Decimal(document['timeWeightedReturn']) * 100:,.2f} %" in output.out
    assert any("⠀" < char <= "⣿" for char in output.out)
    assert "eth on local" in output.out
    assert "pnl:" not in output.out  # what lots do not know says nothing of returns
    rows = list(csv.DictReader(io.StringIO(run("performance", WALLET, *options, "--csv").out)))
    assert [row["growth"] for row in rows] == [each["growth"] for each in document["days"]]


def test_exposure_is_that_of_the_last_day_and_its_shares_are_the_whole(run: Run, options: list[str]) -> None:
    document = performance(run, WALLET, *options)
    for part in ("chains", "protocols", "assets"):
        shares = document["exposure"][part]
        assert sum(Decimal(each["value"]) for each in shares) == Decimal(document["endValue"])
        assert {each["symbol"] for each in shares} == ({"eth", "usdc"} if part == "assets" else {""})
        share_sum = sum((Decimal(each["share"]) for each in shares), Decimal(0))
        assert abs(share_sum - 1) < Decimal("1e-11")
