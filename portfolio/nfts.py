"""Collectibles as a portfolio shows them: counted by chain, and one by one by collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec import UNSET

from chainfolio.contracts import Holding
from chainfolio.portfolio.compose import clean
from chainfolio.portfolio.document import CollectionDocument, NftChainDocument, NftDocument, Portfolio
from chainfolio.portfolio.facts import ChainFacts, Options, token_pictures
from chainfolio.portfolio.spam import is_phishing

Things = Sequence[tuple[str, Holding]]  # chain, collectible


def with_nfts(document: Portfolio, things: Things, chains: Mapping[str, ChainFacts], options: Options) -> Portfolio:
    """Return the portfolio of one address with its collectibles, if `options` ask for them."""
    if not options.nfts:
        return document
    return msgspec.structs.replace(
        document,
        nfts_chains=_by_chain(things, chains),
        nfts_by_collection=_by_collection(things, chains, options),
    )


def _by_chain(things: Things, chains: Mapping[str, ChainFacts]) -> dict[str, NftChainDocument]:
    """Return how many collectibles are held, by the key of their chain."""
    counts: dict[str, int] = {}
    for chain, holding in things:
        counts[chain] = counts.get(chain, 0) + holding.raw
    return {
        chains[chain].key: NftChainDocument(chains[chain].name, chains[chain].key, chains[chain].chain_id, str(count))
        for chain, count in sorted(counts.items())
    }


def _by_collection(things: Things, chains: Mapping[str, ChainFacts], options: Options) -> dict[str, CollectionDocument]:
    """Return the collections of collectibles, by `chain:contract`, with their numbers in ascending order.

    Equal numbers of several accounts stay single. `spam` depends on the collection's name and symbol alone.
    """
    order = sorted(
        things, key=lambda item: (item[0], item[1].token.asset.collection, int(item[1].token.asset.token_id))
    )
    collections = {}
    for (chain, collection), group in groupby(order, key=lambda item: (item[0], item[1].token.asset.collection)):
        facts, holdings = chains[chain], [holding for _, holding in group]
        token, contract = holdings[0].token, clean(collection.shown_contract)
        small, large = token_pictures(facts, collection, token.symbol, options)
        link = facts.explorer.get("token", "")
        collections[f"{facts.key}:{contract}"] = CollectionDocument(
            name=clean(token.name),
            symbol=clean(token.symbol),
            contract_address=contract,
            chain_key=facts.key,
            chain_id=facts.chain_id,
            count=str(sum(item.raw for item in holdings)),
            items=tuple(NftDocument(item.token.asset.token_id, str(item.raw)) for item in holdings),
            spam=is_phishing(collection, token.symbol, token.name),
            img_small=small,
            img_large=large,
            explorer_url=link.replace("{address}", contract) if link and options.explorer_urls else UNSET,
        )
    return collections
