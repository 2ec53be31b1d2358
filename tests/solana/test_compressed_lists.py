"""Lists of compressed NFTs as indexes give them: how they end, what they cost, and what is called how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana import das
from chainfolio.adapters.solana.accounts import describe
from chainfolio.adapters.solana.compressed import NO_INDEX
from chainfolio.adapters.solana.facts import COMPRESSED
from chainfolio.adapters.solana.reads import LeavesRead, NameRead
from chainfolio.adapters.solana.trees import asset_address, ring_end
from chainfolio.assets import Asset
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.errors import ResponseTooLarge
from chainfolio.plans import run_batched
from chainfolio.printable import MAX_NAME, MAX_SYMBOL
from tests.solana.bubblegum import (
    OTHER,
    OWNER,
    Index,
    compressed_nfts,
    ids,
    item,
    refusing,
    sample_grove,
    serving,
    state,
)
from tests.solana.fakes import FakeNode
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode


async def test_names_are_those_of_the_list_and_a_leaf_that_nobody_listed_has_none() -> None:
    grove = sample_grove()
    chain = serving(grove)[0].chain()
    block = (await chain.heads()).latest
    await chain.answer([LeavesRead(OWNER)], block)
    assets = [Asset(chain.caip2, COMPRESSED, id) for id in ids(grove, 0, 1)]
    reports = await run_batched({"": describe(assets)}, lambda reads: chain.answer(reads, block))
    assert reports[""].result is not None
    metadata = [reports[""].result[asset] for asset in assets]
    assert [(each.symbol, each.name, each.decimals) for each in metadata] == [("LEAF", "Monke #1", 0), ("", "", 0)]
    await chain.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x" * 2**20, "x" * (MAX_NAME - 1) + "\u2026"),
        ("<b>\x1b[2J\u202eevil</b>\n", "<b>[2Jevil</b>"),
        ("\0", ""),
        ("\u200b\u2066", ""),
    ],
)
async def test_a_name_is_made_safe_and_short(name: str, expected: str) -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    asset = item(grove, content={"metadata": {"name": name, "symbol": name}})
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [asset]}}
    chain = node.chain()
    block = (await chain.heads()).latest
    await chain.answer([LeavesRead(OWNER)], block)
    [answer] = await chain.answer([NameRead(ids(grove, 0)[0])], block)
    assert isinstance(answer, tuple)
    symbol, shown_name = answer
    assert (shown_name, len(symbol) <= MAX_SYMBOL) == (expected, True)
    await chain.close()


@pytest.mark.parametrize("code", [-32601, -32600, -32602])
async def test_an_endpoint_without_an_index_is_not_asked_again(code: int) -> None:
    node = FakeNode(getAssetsByOwner=refusing(code))
    chain = node.chain()
    block = (await chain.heads()).latest
    for _ in range(3):
        [leaf_list] = await chain.answer([LeavesRead(OWNER)], block)
        assert leaf_list == das.NO_INDEX
    assert node.asked.count("getAssetsByOwner") == 1
    await chain.close()


async def test_doctor_asks_anew_whether_an_endpoint_has_an_index() -> None:
    node, index = serving(sample_grove())
    node.moves = 0
    chain = node.chain()
    [endpoint] = chain.node.endpoints
    for answer, has_index in ((refusing(-32601), False), (refusing(-32000, "down"), None), (index.assets, True)):
        node.answers = {**node.answers, "getAssetsByOwner": answer}
        [row] = await chain.examine()
        assert row["compressedNfts"] is has_index
        assert endpoint.capabilities[das.INDEX_CAPABILITY] == (has_index is True)
    await chain.close()


async def test_that_nobody_has_an_index_is_said_and_takes_nothing_from_an_answer() -> None:
    node = LedgerNode(Ledger(), {OWNER: []})
    node.answers = {**node.answers, "getAssetsByOwner": refusing(-32601)}
    account_state = await state(node)
    assert [(each.subject, each.reason, each.makes_partial) for each in account_state.issues] == [
        (OWNER, NO_INDEX, False)
    ]


@pytest.mark.parametrize(
    "answer",
    [
        refusing(-32000, "database is down"),
        lambda params: {"items": "none"},
        lambda params: [],
        lambda params: None,
        lambda params: {"items": [], "limit": 0},
        lambda params: {"items": [{}] * (das.PAGE + 1)},
    ],
)
async def test_an_index_that_fails_is_not_an_empty_one(answer: Callable[[Any], Any]) -> None:
    node, _ = serving(sample_grove())
    node.answers = {**node.answers, "getAssetsByOwner": answer}
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    [issue] = account_state.issues
    assert issue.makes_partial
    assert issue.reason.startswith("compressed NFTs could not be read")


async def test_pages_that_repeat_are_refused() -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    page = {"items": [grove.items[0]], "limit": 1}
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: page}
    [issue] = (await state(node)).issues
    assert (issue.makes_partial, "twice" in issue.reason) == (True, True)


async def test_pages_are_as_long_as_the_endpoint_likes() -> None:
    grove = sample_grove()
    node, index = serving(grove)
    node.answers = {
        **node.answers,
        "getAssetsByOwner": lambda params: index.assets({**params, "limit": min(params["limit"], 1)}),
    }
    assert len(compressed_nfts(await state(node))) == 3


async def test_a_list_without_an_end_is_bounded_and_what_was_not_looked_at_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(das, "MAX_PAGES", 3)
    node, _ = serving(sample_grove())
    plain = [{"id": str(Keypair().pubkey()), "interface": "V1_NFT"} for _ in range(3)]
    node.answers = {
        **node.answers,
        "getAssetsByOwner": lambda params: {"items": [plain[params["page"] - 1]], "limit": 1},
    }
    [issue] = (await state(node)).issues
    assert (issue.makes_partial, "behind the first 3 of the list were not looked at" in issue.reason) == (False, True)


async def test_a_wallet_with_ten_thousand_of_them_costs_a_bound_of_requests() -> None:
    node, _ = serving(sample_grove())
    assets = [{**item(sample_grove()), "id": str(Pubkey(each.to_bytes(32, "big")))} for each in range(1, 10_500)]

    def page(params: Any) -> Any:
        first = params["limit"] * (params["page"] - 1)
        return {"items": assets[first : first + params["limit"]], "limit": params["limit"]}

    node.answers, node.moves = {**node.answers, "getAssetsByOwner": page}, 0
    account_state = await state(node)
    assert (compressed_nfts(account_state), node.asked.count("getAssetsByOwner")) == ({}, das.MAX_PAGES)
    assert not any(each.makes_partial for each in Trust(lambda asset: False).resolve_issues(account_state.issues))
    reasons = sorted((each.reason, each.count) for each in account_state.issues)
    counts = [
        count for phrase in ("9000 more than 1000", "behind the first") for reason, count in reasons if phrase in reason
    ]
    assert counts == [9000, 1]


async def test_a_list_about_whose_assets_too_much_is_written_comes_in_smaller_pages() -> None:
    node, index = serving(sample_grove())

    def fat(params: Any) -> Any:
        if params["limit"] > das.SMALL_PAGE:
            raise ResponseTooLarge("one", "an answer of more than 96 MiB")
        return index.assets(params)

    node.answers = {**node.answers, "getAssetsByOwner": fat}
    account_state = await state(node)
    assert (len(compressed_nfts(account_state)), account_state.issues) == (3, ())


async def test_trees_that_there_are_not_are_one_issue_however_many() -> None:
    node, _ = serving(sample_grove())
    assets = []
    for number in range(1, 60):
        tree = str(Pubkey(number.to_bytes(32, "big")))
        assets.append({**item(sample_grove(), tree=tree), "id": asset_address(tree, 0)})
    node.answers = {
        **node.answers,
        "getAssetsByOwner": lambda params: {"items": assets},
        "getAssetProofs": lambda params: {id: {"proof": [OTHER] * 3} for id in params["ids"]},
    }
    account_state = await state(node)
    assert [("and 56 more" in each.reason, "no such tree" in each.reason) for each in account_state.issues] == [
        (True, True)
    ]


async def test_more_than_are_looked_at_and_trees_that_are_too_large_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    grove = sample_grove()
    monkeypatch.setattr(das, "MAX_LEAVES", 2)
    account_state = await state(serving(grove)[0])
    assert len(compressed_nfts(account_state)) == 2
    assert ["1 more than 2" in each.reason for each in account_state.issues if each.makes_partial] == [True]
    monkeypatch.setattr(das, "MAX_TREE_BYTES", 100)
    account_state = await state(serving(grove)[0])
    assert compressed_nfts(account_state) == {}
    assert any("MiB" in each.reason for each in account_state.issues)


async def test_trees_without_a_proof_use_no_bytes_of_honest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    grove, index = sample_grove(), Index([sample_grove()])
    first = str(Pubkey((1).to_bytes(32, "big")))  # trees are read in the order of their addresses
    index.also = [{**item(grove, tree=first), "id": asset_address(first, 0)}]
    monkeypatch.setattr(das, "MAX_TREE_BYTES", ring_end(grove.content, grove.program))
    node, _ = serving(replace(grove, tree=first), grove, index=index)
    account_state = await state(node)
    assert set(compressed_nfts(account_state)) == set(ids(grove, 0, 2, 3))
    assert ["its proof cannot be read" in each.reason for each in account_state.issues] == [True]
