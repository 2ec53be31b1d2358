from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import DayFlows, Holding, Issue, Snapshot, Spam
from chainfolio.portfolio.compose import clean, iso, portfolio
from chainfolio.portfolio.document import Sources, encode_one, percentages, wallet_only
from chainfolio.portfolio.facts import Options, ProtocolFacts
from chainfolio.portfolio.finished import finish
from chainfolio.portfolio.pictures import drawn
from chainfolio.portfolio.valuation import Valuation, ValuedPosition, valuate, value_holding
from chainfolio.reads import ReadResult
from tests.portfolio.examples import ALICE, BLOCK, BOB, CHAINS, IDS, USDC, erc20, native, price, snapshot

FEED = "0x" + "fe" * 20
NOTHING = {"totalCostBasis": "N/A", "totalClosedPnl": "N/A", "totalOpenPnl": "N/A"}


def tree(
    snapshots: list[Snapshot],
    *,
    positions: tuple[ValuedPosition, ...] = (),
    wallet: bool = False,
    rates: dict[str, Decimal] | None = None,
    **options: Any,
) -> Any:
    """The answer for Alice, as a client parses it."""
    document = portfolio(
        ALICE,
        replace(valuate(snapshots), positions=tuple(positions)),
        CHAINS,
        updated_ms=1_760_000_000_000,
        **options,
    )
    return json.loads(encode_one(finish(wallet_only(document) if wallet else document, rates)))


def assets(answer: Any, chain: str = "ethereum") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer["assetByProtocols"]["wallet"]["chains"][chain]["protocolPositions"]["WALLET"][
        "assets"
    ]
    return rows


def lending(pool: str = "") -> ValuedPosition:
    weth, usdc = erc20("0x" + "ee" * 20, 18, "WETH"), erc20()
    return ValuedPosition(
        ALICE,
        "ethereum",
        "aave3",
        "LENDING",
        "Main market",
        supplied=(value_holding(Holding(ALICE, weth, 10**18 // 2), "ethereum", BLOCK, price(weth, "2000")),),
        borrowed=(value_holding(Holding(ALICE, usdc, 400_000_000), "ethereum", BLOCK, price(usdc, "1")),),
        health=Decimal("1.90"),
        pool=pool,
    )


WALLET = {
    "name": "Wallet",
    "key": "wallet",
    "value": "1000",
    **NOTHING,
    "chains": {
        "ethereum": {
            "name": "Ethereum",
            "key": "ethereum",
            "value": "1000",
            **NOTHING,
            "protocolPositions": {
                "WALLET": {
                    "name": "wallet",
                    "totalValue": "1000",
                    **NOTHING,
                    "unlockAt": "0",
                    "protocolPositions": [],
                    "assets": [
                        {
                            "symbol": "eth",
                            "name": "ethereum",
                            "balance": "0.5",
                            "price": "2000",
                            "value": "1000",
                            "decimal": "18",
                            "contract": ZERO_ADDRESS,
                            "chainKey": "ethereum",
                            "chainContract": f"ethereum:{ZERO_ADDRESS}",
                            "openPnl": "N/A",
                            "totalCostBasis": "N/A",
                            "priceSource": "example",
                            "address": ZERO_ADDRESS,
                            "percentage": "62.5",
                        }
                    ],
                }
            },
        }
    },
}


@pytest.mark.parametrize(
    ("fees", "usd", "expected"),
    [
        ({}, "2", ("N/A", "N/A")),
        ({"ethereum": 5}, "2", ("N/A", "N/A")),
        ({"ethereum": 0, "base": 0}, "2", ("0", "0")),
        ({"ethereum": 5 * 10**17, "base": 10**18}, "2", ("1500000000000000000", "3")),
        ({"ethereum": 5 * 10**17, "base": 10**18}, None, ("1500000000000000000", "N/A")),
    ],
)
def test_fees_of_chains_are_added_up_only_where_all_are_known(
    fees: dict[str, int], usd: str | None, expected: tuple[str, str]
) -> None:
    read = [
        replace(
            snapshot(chain=chain, prices=() if usd is None else (price(native(chain), usd),)),
            fees=(Holding(ALICE, native(chain), fees[chain]), Holding(BOB, native(chain), 7)) if chain in fees else (),
        )
        for chain in ("ethereum", "base")
    ]
    answer = tree(read)
    assert (answer["fees"], answer["feesFiat"]) == expected


def test_fees_of_an_account_that_no_chain_was_read_for_are_unknown() -> None:
    nowhere = Valuation((), scope={ALICE: ()}, unread={ALICE: (Issue("portfolio", ALICE, "no such chain"),)})
    assert portfolio(ALICE, nowhere, CHAINS, updated_ms=0).fees == "N/A"
    assert portfolio(ALICE, replace(nowhere, unread={ALICE: ()}), CHAINS, updated_ms=0).fees == "0"


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ({}, ("N/A", "N/A")),
        ({"ethereum": (1, 2)}, ("N/A", "N/A")),
        ({"ethereum": (0, 0), "base": (0, 0)}, ("0", "0")),
        ({"ethereum": (5 * 10**17, 0), "base": (10**18, 1)}, ("3", "0.000000000000000002")),
    ],
)
def test_a_day_of_chains_is_added_up_only_where_all_are_known(
    days: dict[str, tuple[int, int]], expected: tuple[str, str]
) -> None:
    read = [
        replace(
            snapshot(chain=chain, prices=(price(native(chain), "2"),)),
            day_flows=(
                DayFlows(
                    ALICE,
                    *(
                        (Holding(ALICE, native(chain), raw), Holding(ALICE, erc20(chain=chain), 9))
                        for raw in days[chain]
                    ),
                ),
                DayFlows(BOB, (Holding(BOB, native(chain), 7),)),
            )
            if chain in days
            else (),
        )
        for chain in ("ethereum", "base")
    ]
    answer = tree(read)
    assert (answer["dailyIncome"], answer["dailyExpense"], answer["networth"]) == (*expected, "0")
    alone = portfolio(ALICE, valuate(read).by_account()[ALICE], CHAINS, updated_ms=0)
    assert (alone.daily_income, alone.daily_expense) == expected


def test_spam_that_came_today_is_income_only_where_spam_counts() -> None:
    read = replace(
        snapshot(prices=(price(erc20(), "1"),)),
        day_flows=(DayFlows(ALICE, (Holding(ALICE, erc20(), 5_000_000),)),),
        spam={(ALICE, erc20().asset): Spam(90, ("LURE", "NO_PRICE"))},
    )
    assert tree([read])["dailyIncome"] == "0"
    assert tree([read], options=Options(spam=True))["dailyIncome"] == "5"


def test_cash_is_what_is_pegged_and_loose_whatever_its_price_is() -> None:
    vault = replace(erc20("0x" + "77" * 20, symbol="DAI"))
    read = replace(
        snapshot(
            Holding(ALICE, erc20(), 5_000_000),
            Holding(ALICE, vault, 7_000_000),
            Holding(ALICE, native(), 10**18),
            prices=(price(erc20(), "0.99", "chainlink"), price(native(), "2000")),
        ),
        pegged=frozenset({erc20().asset, vault.asset}),
    )
    answer = tree([read], positions=(lending(),))
    assert (answer["cashBalance"], answer["networth"]) == ("4.95", "2604.95")
    spam = replace(read, spam={(ALICE, erc20().asset): Spam(90, ("LURE", "NO_PRICE"))})
    assert tree([spam])["cashBalance"] == "0"


def test_fees_in_different_coins_are_added_up_in_money_alone() -> None:
    base_coin = replace(native("base"), symbol="BASE")
    first = replace(snapshot(prices=(price(native(), "2"),)), fees=(Holding(ALICE, native(), 10**18),))
    both = [
        first,
        replace(snapshot(chain="base", prices=(price(base_coin, "3"),)), fees=(Holding(ALICE, base_coin, 10**18),)),
    ]
    answer = tree(both)
    assert (answer["fees"], answer["feesFiat"]) == ("N/A", "5")
    free = [first, replace(both[1], fees=(Holding(ALICE, base_coin, 0),))]
    assert (tree(free)["fees"], tree(free)["feesFiat"]) == ("1000000000000000000", "2")


def test_the_public_example_comes_out_field_by_field() -> None:
    answer = tree(
        [
            replace(
                snapshot(Holding(ALICE, native(), 10**18 // 2), prices=(price(native(), "2000.00"),)),
                fees=(Holding(ALICE, native(), 48_918_000_000_000),),
                day_flows=(DayFlows(ALICE),),
            )
        ],
        positions=(lending(),),
        protocols={"aave3": ProtocolFacts("aave3", "Aave V3")},
        rates={"ETH": Decimal(2000)},
    )
    aave = answer["assetByProtocols"].pop("aave3")
    assert answer == {
        "address": ALICE,
        "networth": "1600",
        "cashBalance": "0",
        "dailyIncome": "0",
        "dailyExpense": "0",
        "fees": "48918000000000",
        "feesFiat": "0.097836",
        "lastUpdated": "1760000000000",
        "openPnl": "N/A",
        "closedPnl": "N/A",
        "totalCostBasis": "N/A",
        "manualBalanceNetworth": "0",
        "priceAdapters": ["example"],
        "conversionRates": {"ETH": "2000"},
        "completeness": "complete",
        "issues": [],
        "unpricedAssets": 0,
        "spamAssets": 0,
        "chains": {
            "ethereum": {
                "name": "Ethereum",
                "key": "ethereum",
                "chainId": 1,
                "value": "1600",
                "valuePercentile": "100",
                "blockNumber": "19000000",
                **NOTHING,
            }
        },
        "assetByProtocols": {"wallet": WALLET},
    }
    positions = aave["chains"]["ethereum"]["protocolPositions"]["LENDING"]
    assert (aave["name"], aave["value"], positions["name"], positions["totalValue"]) == (
        "Aave V3",
        "600",
        "Lending",
        "600",
    )
    assert positions["assets"] == []
    (nested,) = positions["protocolPositions"]
    assert (nested["name"], nested["value"], nested["healthRate"], nested["assets"]) == (
        "Main market",
        "600",
        "1.9",
        [],
    )
    assert [each["value"] for each in nested["supplyAssets"]] == ["1000"]
    assert [each["value"] for each in nested["borrowAssets"]] == ["400"]


def test_wallet_only_leaves_positions_out_of_the_tree_and_out_of_the_sums() -> None:
    snapshots = [snapshot(Holding(ALICE, native(), 10**18 // 2), prices=(price(native(), "2000"),))]
    assert tree(snapshots, positions=(lending(),), wallet=True) == tree(snapshots)


def test_an_unpriced_asset_stays_as_unknown_outside_the_sum_and_is_counted() -> None:
    answer = tree(
        [snapshot(Holding(ALICE, native(), 10**18), Holding(ALICE, erc20(), 5), prices=(price(native(), "2"),))]
    )
    assert [(a["symbol"], a["balance"], a["price"], a["value"]) for a in assets(answer)] == [
        ("eth", "1", "2", "2"),
        ("usdc", "0.000005", "N/A", "N/A"),
    ]
    assert (assets(answer)[1]["priceSource"], assets(answer)[1]["percentage"]) == ("N/A", "N/A")
    assert (answer["networth"], answer["unpricedAssets"], answer["completeness"]) == ("2", 1, "complete")


def test_a_token_without_decimals_is_an_issue_but_cannot_make_the_answer_partial() -> None:
    answer = tree([snapshot(Holding(ALICE, erc20(decimals=None), 5))])
    assert [(a["balance"], a["decimal"], a["value"]) for a in assets(answer)] == [("N/A", "N/A", "N/A")]
    assert [issue["subject"] for issue in answer["issues"]] == [f"eip155:1/erc20:{USDC}"]
    assert answer["completeness"] == "complete"


def test_a_failed_read_makes_the_answer_partial_and_says_what_failed() -> None:
    answer = tree([snapshot(issues=(Issue("evm", "0xtoken", "timed out"),))])
    assert answer["completeness"] == "partial"
    assert answer["issues"] == [{"adapter": "evm", "subject": "0xtoken", "reason": "timed out"}]


def test_an_issue_that_spoils_nothing_is_told_and_leaves_the_answer_complete() -> None:
    answer = tree([snapshot(issues=(Issue("chainlink", "0xtoken", "stale", makes_partial=False),))])
    assert (answer["completeness"], len(answer["issues"])) == ("complete", 1)


def test_a_chain_that_was_read_and_is_empty_is_there_with_zero() -> None:
    answer = tree([snapshot(), snapshot(chain="base")])
    assert {key: (c["value"], c["valuePercentile"]) for key, c in answer["chains"].items()} == {
        "base": ("0", "0"),
        "ethereum": ("0", "0"),
    }
    assert answer["assetByProtocols"]["wallet"]["chains"] == {}


def test_an_account_that_was_not_read_has_no_chains() -> None:
    assert tree([snapshot(accounts=(BOB,))])["chains"] == {}


def test_at_a_block_its_number_is_echoed_and_no_adapter_is_named() -> None:
    ether_snapshot = snapshot(Holding(ALICE, native(), 1), prices=(price(native(), "2"),))
    answer = tree([ether_snapshot], block_number=17)
    assert (answer["blockNumber"], answer["priceAdapters"]) == ("17", [])


def test_images_explorer_links_and_sources_are_there_when_asked() -> None:
    wallet_snapshot = snapshot(
        Holding(ALICE, native(), 7), Holding(ALICE, erc20(), 5), prices=(price(native(), "2", confidence="0.90"),)
    )
    answer = tree([wallet_snapshot], options=Options(images=True, explorer_urls=True, sources=True))
    eth, usdc = assets(answer)
    assert (eth["explorerUrl"], usdc["explorerUrl"]) == (
        f"https://etherscan.io/address/{ALICE}",
        f"https://etherscan.io/token/{USDC}",
    )
    assert (eth["imgSmall"], answer["chains"]["ethereum"]["imgLarge"]) == (
        drawn("ethereum:0x0000000000000000000000000000000000000000", "ETH"),
        "https://images.example/ethereum.svg",
    )
    assert eth["sources"] == {
        "blockNumber": "19000000",
        "blockHash": BLOCK.hash,
        "raw": "7",
        "priceSource": "example",
        "priceTime": "2025-10-09T08:53:15Z",
        "confidence": "0.9",
        "detail": "feed 0xfeed round 7",
        "calls": [
            {
                "number": "balance",
                "method": "eth_getBalance",
                "contract": None,
                "signature": None,
                "arguments": [ALICE],
                "result": ["7"],
            }
        ],
    }
    assert usdc["sources"] | {"raw": "5", "priceSource": None, "priceTime": None, "confidence": None} == usdc["sources"]


def test_sources_name_the_calls_behind_balance_decimals_and_price() -> None:
    latest, decimals = Call(FEED, "latestRoundData()(uint80,int256)"), Call(FEED, "decimals()(uint8)")
    price_calls = (ReadResult(latest, (7, 10**8)), ReadResult(decimals, 8))
    wallet_snapshot = snapshot(Holding(ALICE, erc20(), 5), prices=(replace(price(erc20(), "1"), calls=price_calls),))
    (usdc,) = assets(tree([wallet_snapshot], options=Options(sources=True)))
    calls = usdc["sources"]["calls"]
    assert [(c["number"], c["contract"], c["signature"], c["arguments"], c["result"]) for c in calls] == [
        ("balance", USDC, "balanceOf(address)(uint256)", [ALICE], ["5"]),
        ("decimal", USDC, "decimals()(uint8)", [], ["6"]),
        ("price", FEED, "latestRoundData()(uint80,int256)", [], ["7", "100000000"]),
        ("price", FEED, "decimals()(uint8)", [], ["8"]),
    ]
    assert {call["method"] for call in calls} == {"eth_call"}


@pytest.mark.parametrize(
    ("holding", "numbers"),
    [
        (Holding(ALICE, erc20(decimals=None), 5), ["balance"]),
        (Holding(ALICE, erc20(), 5, protocol="aave3"), []),
    ],
    ids=["no decimals were told", "inside a protocol"],
)
def test_no_call_is_listed_that_was_never_made(holding: Holding, numbers: list[str]) -> None:
    answer = tree([snapshot(holding)], options=Options(sources=True))
    (protocol,) = (each for each in answer["assetByProtocols"].values() if each["chains"])
    (asset,) = protocol["chains"]["ethereum"]["protocolPositions"]["WALLET"]["assets"]
    assert [call["number"] for call in asset["sources"]["calls"]] == numbers


def test_a_chain_that_has_no_such_reads_lists_none() -> None:
    silent = {**CHAINS, "ethereum": replace(CHAINS["ethereum"], wallet_reads=None)}
    document = portfolio(
        ALICE,
        valuate([snapshot(Holding(ALICE, erc20(), 5))]),
        silent,
        updated_ms=0,
        options=Options(sources=True),
    )
    (asset,) = document.asset_by_protocols["wallet"].chains["ethereum"].protocol_positions["WALLET"].assets
    assert isinstance(asset.sources, Sources)
    assert asset.sources.calls == ()


def pictured(node: Any, keys_by_path: dict[str, set[str]], path: str = "") -> dict[str, set[str]]:
    """Every picture and link in a tree, by what carries it."""
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key in ("imgSmall", "imgLarge", "explorerUrl"):
            keys_by_path.setdefault(path, set()).add(key)
        pictured(inner, keys_by_path, path if isinstance(key, int) else f"{path}.{key}".lstrip("."))
    return keys_by_path


def test_pictures_and_links_are_on_every_level_when_asked_for_and_on_none_otherwise() -> None:
    snapshots = [snapshot(Holding(ALICE, native(), 7), Holding(ALICE, erc20(), 5))]
    facts = {"aave3": ProtocolFacts("aave3", "Aave V3", {"large": "https://images.example/aave.png"})}
    chains = {
        **CHAINS,
        "ethereum": replace(CHAINS["ethereum"], tokens={erc20().asset: {"small": "https://images.example/u.png"}}),
    }

    def document_with(options: Options) -> Any:
        valuation = replace(valuate(snapshots), positions=(lending(pool="0x" + "90" * 20),))
        document = portfolio(ALICE, valuation, chains, updated_ms=0, options=options, protocols=facts)
        return json.loads(encode_one(document))

    assert pictured(document_with(Options()), {}) == {}
    answer = document_with(Options(images=True, explorer_urls=True))
    both, all_three = {"imgSmall", "imgLarge"}, {"imgSmall", "imgLarge", "explorerUrl"}
    on = "assetByProtocols.{}.chains.ethereum"
    aave, wallet = on.format("aave3"), on.format("wallet")
    lent, loose = f"{aave}.protocolPositions.LENDING", f"{wallet}.protocolPositions.WALLET"
    nested = f"{lent}.protocolPositions"
    assert pictured(answer, {}) == {
        "chains.ethereum": both,
        "assetByProtocols.aave3": both,
        "assetByProtocols.wallet": both,
        aave: both,
        wallet: both,
        lent: all_three,
        loose: all_three,
        f"{loose}.assets": all_three,
        nested: all_three,
        f"{nested}.supplyAssets": all_three,
        f"{nested}.borrowAssets": all_three,
    }
    lending_, wallet_ = answer["assetByProtocols"]["aave3"], assets(answer)
    (position,) = lending_["chains"]["ethereum"]["protocolPositions"]["LENDING"]["protocolPositions"]
    assert {lending_["imgSmall"], lending_["imgLarge"], position["imgSmall"]} == {"https://images.example/aave.png"}
    assert (position["poolAddress"], position["explorerUrl"]) == (
        "0x" + "90" * 20,
        "https://etherscan.io/address/0x" + "90" * 20,
    )
    assert {asset["symbol"]: asset["imgLarge"] for asset in wallet_} == {
        "eth": drawn("ethereum:0x0000000000000000000000000000000000000000", "ETH"),
        "usdc": "https://images.example/u.png",
    }


def test_a_position_without_a_contract_has_no_link() -> None:
    answer = tree([snapshot()], positions=(lending(),), options=Options(explorer_urls=True))
    assert pictured(answer["assetByProtocols"]["aave3"], {}) == {
        "chains.ethereum.protocolPositions.LENDING": {"explorerUrl"},
        "chains.ethereum.protocolPositions.LENDING.protocolPositions.supplyAssets": {"explorerUrl"},
        "chains.ethereum.protocolPositions.LENDING.protocolPositions.borrowAssets": {"explorerUrl"},
    }


def test_assets_are_ordered_by_value_then_contract_with_the_unpriced_last() -> None:
    tokens = [erc20(f"0x{n:040x}", 0) for n in range(5)]
    usd = {0: "1", 1: "10", 2: "1", 3: "9"}
    wallet_snapshot = snapshot(
        *(Holding(ALICE, token, 1) for token in tokens), prices=tuple(price(tokens[n], p) for n, p in usd.items())
    )
    assert [int(a["contract"], 16) for a in assets(tree([wallet_snapshot]))] == [1, 3, 0, 2, 4]


@pytest.mark.parametrize(
    "name", ["\ud800", "a\udfffb", "\ud83d\ude00", "\x00\x1b[31m", '"\\</script>', "ſ\u202eİ", "é" * 500]
)
def test_whatever_a_token_calls_itself_the_answer_is_json_in_utf8(name: str) -> None:
    wallet_snapshot = snapshot(Holding(ALICE, erc20(symbol=name), 1), issues=(Issue(name, name, name),))
    body = encode_one(portfolio(ALICE, valuate([wallet_snapshot]), CHAINS, updated_ms=0))
    assert assets(json.loads(body.decode("utf-8")))[0]["symbol"] == clean(name).lower()


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_can_always_be_written_and_is_left_alone_if_it_could(text: str) -> None:
    cleaned = clean(text).encode("utf-8").decode()
    assert clean(cleaned) == cleaned
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_times_are_iso_8601() -> None:
    assert iso(1_760_000_000_000_001) == "2025-10-09T08:53:20.000001Z"


@given(st.dictionaries(st.text(max_size=3), st.decimals(0, 10**30, places=18), max_size=6))
def test_percentages_are_rounded_once_from_the_exact_share(values: dict[str, Decimal]) -> None:
    shares = percentages(values)
    total = sum(map(Fraction, values.values()), Fraction())
    for key, usd in values.items():
        exact = Fraction(usd) * 100 / total if total else Fraction()
        assert abs(Fraction(shares[key]) - exact) <= Fraction(1, 20_000)


def test_percentages_round_half_to_even() -> None:
    assert percentages({"a": Decimal(1), "b": Decimal(1_999_999)})["a"] == "0"  # 0.00005
    assert percentages({"a": Decimal(3), "b": Decimal(1_999_997)})["a"] == "0.0002"  # 0.00015


HOLDINGS = st.lists(
    st.tuples(
        st.sampled_from(sorted(CHAINS)),
        st.integers(0, 4),
        st.one_of(st.integers(0, amounts.MAX_RAW), st.sampled_from([1, amounts.MAX_RAW])),
        st.one_of(st.none(), st.integers(0, 255)),
        st.one_of(st.none(), st.decimals(Decimal("1E-18"), Decimal(10**12), places=18)),
        st.sampled_from([("wallet", "WALLET"), ("lido", "STAKED"), ("aave3", "REWARDS")]),
        st.text(st.characters(exclude_categories=()), max_size=4),
    ),
    max_size=12,
)


def arranged(rows: list[Any], shuffle: random.Random) -> list[Snapshot]:
    """Return snapshots of these rows in a random order, with one price and one set of facts per token."""
    by_chain: dict[str, Any] = {chain: ([], []) for chain in CHAINS}
    facts: dict[Any, Any] = {}
    for chain, number, raw, decimals, usd, (protocol, position), symbol in rows:
        token, usd = facts.setdefault((chain, number), (erc20(f"0x{number:040x}", decimals, symbol, chain), usd))
        by_chain[chain][0].append(Holding(ALICE, token, raw, protocol, position))
        if usd is not None:
            by_chain[chain][1].append(price(token, str(usd)))
    for pair, items in itertools.product(by_chain.values(), range(2)):
        shuffle.shuffle(pair[items])
    snapshots = [
        snapshot(*holdings, prices=tuple(prices), chain=chain) for chain, (holdings, prices) in by_chain.items()
    ]
    shuffle.shuffle(snapshots)
    return snapshots


@given(HOLDINGS)
def test_chains_and_protocols_add_up_to_the_net_worth_in_plain_notation(rows: list[Any]) -> None:
    answer = tree(arranged(rows, random.Random(1)))
    protocols = answer["assetByProtocols"].values()
    below = [chain for protocol in protocols for chain in protocol["chains"].values()]
    wrappers = [wrapper for chain in below for wrapper in chain["protocolPositions"].values()]
    read_all = [asset for wrapper in wrappers for asset in wrapper["assets"]]
    networth = Fraction(answer["networth"])
    for level, field in (
        (answer["chains"].values(), "value"),
        (protocols, "value"),
        (below, "value"),
        (wrappers, "totalValue"),
    ):
        assert sum((Fraction(each[field]) for each in level), Fraction()) == networth
    assert sum((Fraction(asset["value"]) for asset in read_all if asset["value"] != "N/A"), Fraction()) == networth
    assert len(read_all) == sum(raw != 0 for _, _, raw, *_ in rows)
    assert sum(asset["value"] == "N/A" for asset in read_all) == answer["unpricedAssets"]
    for text in (number for asset in read_all for number in (asset["balance"], asset["price"], asset["value"])):
        assert text == "N/A" or amounts.text(amounts.parse(text, max_digits=1000)) == text


@given(HOLDINGS, st.randoms())
def test_the_same_holdings_in_any_order_give_the_same_bytes(rows: list[Any], shuffle: random.Random) -> None:
    first, second = (
        encode_one(
            portfolio(ALICE, valuate(arranged(rows, order)), CHAINS, updated_ms=0, options=Options(sources=True))
        )
        for order in (random.Random(1), shuffle)
    )
    assert first == second


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tests.portfolio.test_document import *\n"
        "held = [(chain, n, 5 + n, 6, None if n == 3 else Decimal(n + 1), ('wallet', 'WALLET'), 'x')"
        " for chain in CHAINS for n in range(5)]\n"
        "issues = tuple(Issue('evm', str(n), 'late') for n in range(5))\n"
        "snaps = [*arranged(held, random.Random(3)), snapshot(issues=issues)]\n"
        "print(encode_one(portfolio(ALICE, valuate(snaps), CHAINS, updated_ms=0)))\n"
    )
    root = Path(__file__).parents[2]
    bodies = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(bodies) == 1


def test_ids_and_counts_are_numbers_and_amounts_are_text() -> None:
    holdings = Holding(ALICE, native(), 10**18), Holding(ALICE, erc20(), 5)
    answer = tree([snapshot(*holdings, prices=(price(native(), "2"),)), snapshot(chain="base")], block_number=19)
    assert {key: chain["chainId"] for key, chain in answer["chains"].items()} == {"ethereum": 1, "base": 8453}
    numbers = {name for name, each in answer.items() if isinstance(each, (int, float))}
    assert numbers == {"unpricedAssets", "spamAssets"}
    assert all(type(answer[name]) is int for name in numbers)
    for chain in answer["chains"].values():
        assert [name for name, each in chain.items() if not isinstance(each, str)] == ["chainId"]
        assert type(chain["chainId"]) is int
    for asset in assets(answer):
        assert all(isinstance(each, str) for each in asset.values())


def test_the_chain_ids_in_these_examples_are_those_of_their_facts() -> None:
    assert {key: f"eip155:{facts.chain_id}" for key, facts in CHAINS.items()} == IDS


def test_sources_of_a_position_name_its_block_and_its_calls() -> None:
    debt_call = ReadResult(Call(FEED, "debtOf(address)(uint256)", (ALICE,)), 5)
    position = replace(lending(), block=BLOCK, calls=(debt_call,))
    answer = tree([snapshot()], positions=(position,), options=Options(sources=True))
    ((protocol_row, *_),) = (
        each["protocolPositions"].values()
        for protocol in answer["assetByProtocols"].values()
        for each in protocol["chains"].values()
        if "LENDING" in each["protocolPositions"]
    )
    (sources,) = (each["sources"] for each in protocol_row["protocolPositions"])
    assert (sources["blockNumber"], sources["blockHash"]) == ("19000000", BLOCK.hash)
    assert [(call["number"], call["signature"], call["arguments"], call["result"]) for call in sources["calls"]] == [
        ("position", "debtOf(address)(uint256)", [ALICE], ["5"])
    ]
