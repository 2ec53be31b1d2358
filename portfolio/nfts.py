"""Collectibles as a portfolio shows them: counted by chain, and one by one by collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec
from msgspec import UNSET

from chainfolio.assets import Asset
from chainfolio.contracts import Collectible
from chainfolio.portfolio.compose import call_document, clean
from chainfolio.portfolio.document import (
    WALLET,
    CollectionDocument,
    IssueDocument,
    NftAttribute,
    NftChainDocument,
    NftDocument,
    Portfolio,
    PositionSources,
)
from chainfolio.portfolio.facts import ChainFacts, Options, token_pictures
from chainfolio.portfolio.nft_metadata import NftMetadata
from chainfolio.portfolio.pictures import drawn
from chainfolio.portfolio.spam import is_phishing

Metadata = Mapping[Asset, NftMetadata]
ADAPTER = "collectibles"


@dataclass(frozen=True, slots=True)
class _Style:
    """Facts of chains, options and metadata, by which collectibles are written."""

    chains: Mapping[str, ChainFacts]
    options: Options
    metadata: Metadata = field(default_factory=dict)


def with_nfts(
    document: Portfolio,
    collectibles: Sequence[Collectible],
    chains: Mapping[str, ChainFacts],
    options: Options,
    metadata: Metadata | None = None,
) -> Portfolio:
    """Return the portfolio of one address with its collectibles, if `options` ask for them.

    Metadata that could not be read are issues, one for each collection and reason; they make nothing partial.
    """
    if not options.nfts:
        return document
    style = _Style(chains, options, metadata or {})
    return msgspec.structs.replace(
        document,
        nfts_chains=_by_chain(collectibles, chains),
        nfts_by_collection=_by_collection(collectibles, style),
        issues=(*document.issues, *_issues(collectibles, style)),
    )


def _by_chain(collectibles: Sequence[Collectible], chains: Mapping[str, ChainFacts]) -> dict[str, NftChainDocument]:
    """Return how many collectibles are held, by the key of their chain."""
    counts: dict[str, int] = {}
    for group in _groups(collectibles):
        counts[group[0].chain] = counts.get(group[0].chain, 0) + sum(each.holding.raw for each in group)
    return {
        chains[chain].key: NftChainDocument(chains[chain].name, chains[chain].key, chains[chain].chain_id, str(count))
        for chain, count in sorted(counts.items())
    }


def _groups(collectibles: Sequence[Collectible]) -> list[list[Collectible]]:
    """Return the collectibles of each chain and contract, by number.

    A contract that has both standards gives a number once, with the larger balance.
    """

    def contract(each: Collectible) -> tuple[str, str]:
        return each.chain, each.holding.token.asset.reference

    def number(each: Collectible) -> tuple[str, str, int, str, int]:
        token_id = each.holding.token.asset.token_id
        return *contract(each), int(token_id or 0), each.holding.account, -each.holding.raw

    groups = []
    for _, group in groupby(sorted(collectibles, key=number), key=contract):
        by_number: dict[tuple[str, str], Collectible] = {}
        for each in group:
            by_number.setdefault((each.holding.token.asset.token_id, each.holding.account), each)
        groups.append(list(by_number.values()))
    return groups


def _by_collection(collectibles: Sequence[Collectible], style: _Style) -> dict[str, CollectionDocument]:
    """Return the collections of collectibles, by `chain:contract`, with their numbers in ascending order.

    A number that several accounts hold has one item for each of them.
    """
    collections = {}
    for group in _groups(collectibles):
        facts, token = style.chains[group[0].chain], group[0].holding.token
        collection = token.asset.collection
        contract, spam = clean(collection.shown_contract), next((each.spam for each in group if each.spam), None)
        small, large = token_pictures(facts, collection, token.symbol, style.options)
        link = facts.explorer.get("token", "")
        collections[f"{facts.key}:{contract}"] = CollectionDocument(
            name=clean(token.name),
            symbol=clean(token.symbol),
            contract_address=contract,
            chain_key=facts.key,
            chain_id=facts.chain_id,
            count=str(sum(each.holding.raw for each in group)),
            items=tuple(_item(each, style) for each in group),
            spam=spam is not None or is_phishing(collection, token.symbol, token.name),
            spam_reasons=UNSET if spam is None else spam.reasons,
            img_small=small,
            img_large=large,
            explorer_url=link.replace("{address}", contract) if link and style.options.explorer_urls else UNSET,
        )
    return collections


def _item(collectible: Collectible, style: _Style) -> NftDocument:
    """Return one collectible, with what its metadata say if they are known."""
    facts, asset = style.chains[collectible.chain], collectible.holding.token.asset
    metadata = style.metadata.get(asset)
    name = "" if metadata is None else metadata.name
    is_known = metadata is not None and not metadata.problem
    picture = drawn(f"{facts.key}:{asset.shown_contract}:{asset.token_id}", name or asset.token_id[-2:])
    return NftDocument(
        asset.token_id or asset.reference,
        str(collectible.holding.raw),
        name=name if is_known else UNSET,
        attributes=tuple(NftAttribute(*pair) for pair in metadata.attributes) if metadata and is_known else UNSET,
        omitted_attributes=metadata.omitted_count if metadata and metadata.omitted_count else UNSET,
        metadata_uri=metadata.uri if metadata and metadata.uri else UNSET,
        metadata_problem=metadata.problem if metadata and metadata.problem else UNSET,
        spam=is_phishing(asset, "", name),
        img_small=picture if style.options.images else UNSET,
        img_large=picture if style.options.images else UNSET,
        sources=_sources(collectible, facts) if style.options.sources else UNSET,
    )


def _sources(collectible: Collectible, facts: ChainFacts) -> PositionSources:
    holding = collectible.holding
    reads = facts.wallet_reads(holding) if facts.wallet_reads is not None and holding.protocol == WALLET else ()
    calls = tuple(call_document(label, read) for label, read in reads)
    return PositionSources(str(collectible.block.height), collectible.block.hash, calls)


def _issues(collectibles: Sequence[Collectible], style: _Style) -> list[IssueDocument]:
    """Return an issue for each collection and reason for which metadata could not be read."""
    counts: dict[tuple[str, str], int] = {}
    for each in collectibles:
        metadata = style.metadata.get(each.holding.token.asset)
        if metadata is not None and metadata.is_unread:
            key = clean(str(each.holding.token.asset.collection)), clean(metadata.problem)
            counts[key] = counts.get(key, 0) + 1
    return [
        IssueDocument(ADAPTER, subject, reason, count if count > 1 else UNSET)
        for (subject, reason), count in sorted(counts.items())
    ]
