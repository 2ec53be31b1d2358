"""The way in and the way out of what reads positions: assets outside, contracts inside."""

from __future__ import annotations

from pathlib import Path

from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.unfolded import AccountContents, Underlying, UnfoldedPosition
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.interactions import Interactions
from chainfolio.protocols import DecodedPosition, TokenAmount

ME, OTHER, COIN, NFT, EDITION = ("0x" + digit * 40 for digit in "12345")
FACTS = load(Path(__file__).parents[2] / "configs" / "chains" / "ethereum.toml")
ETHER, TOKEN = FACTS.native_asset, FACTS.token_asset(COIN)
EVENT = f"{OTHER}/0x01"
ROWS = {EVENT: ({"place": 1, "topic1": "0x02", "topic2": None, "topic3": None, "data": b""},)}
EVENTS = {EVENT: (NamedEvent(1, ("0x02",), b""),)}


def test_what_was_met_by_asset_is_met_by_contract_and_the_native_coin_has_none() -> None:
    collection, editions = (Asset(FACTS.caip2, kind, at) for kind, at in (("erc721", NFT), ("erc1155", EDITION)))
    interactions = Interactions(
        frozenset({TOKEN}),
        {collection: frozenset({7}), editions: frozenset({8})},
        {OTHER: frozenset({ETHER, TOKEN, collection})},
        {OTHER: frozenset({ETHER})},
        ROWS,
        frozenset(ROWS),
    )
    assert ContractInteractions.of(interactions) == ContractInteractions(
        frozenset({COIN}),
        {NFT: frozenset({7})},
        {OTHER: frozenset({None, COIN, NFT})},
        {OTHER: frozenset({None})},
        EVENTS,
        frozenset(EVENTS),
    )


def test_what_was_found_by_contract_is_found_by_asset_each_amount_once() -> None:
    rewards = TokenAmount(ZERO_ADDRESS, 3), TokenAmount(ZERO_ADDRESS, 4)
    position = DecodedPosition("LENDING", supplied=(TokenAmount(NFT, 9),), rewards=rewards, replaces=(OTHER,))
    underlying = Underlying({ZERO_ADDRESS: 1, COIN: 2}, unlisted={OTHER})
    contents = AccountContents(5, {COIN: 6}, (UnfoldedPosition(ME, "bank", position, underlying),), ())
    state = contents.by_asset([TOKEN], FACTS)
    (opened,) = state.positions
    assert (state.native, state.balances) == (5, {TOKEN: 6})
    assert (opened.supplied, opened.borrowed, opened.rewards) == ({ETHER: 1, TOKEN: 2}, {}, {ETHER: 7})
    share = FACTS.token_asset(OTHER)
    assert (opened.replaces, opened.required_assets, opened.unlisted_shares) == (
        (share,),
        frozenset({share}),
        frozenset({share}),
    )
    assert (opened.owned, opened.tokens) == ({ETHER, TOKEN}, {ETHER, TOKEN})
