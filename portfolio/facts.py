"""Facts about chains and protocols that answers show, and the options of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainfolio.portfolio.activity import Rule

from msgspec import UNSET, UnsetType

from chainfolio.assets import Asset
from chainfolio.contracts import Holding
from chainfolio.portfolio.pictures import pictures, token_images
from chainfolio.reads import ReadResult


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """One chain as answers show it; `explorer` and `images` are as in `configs/chains`.

    `tokens` are pictures of tokens, as in `configs/tokens`; `token_url` is the template of the others' pictures, or
    empty. `wallet_reads` returns the reads behind a wallet balance, each with the name of its number; None if the chain
    has no such reads.
    """

    key: str
    name: str
    chain_id: int
    explorer: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[Asset, Mapping[str, str]] = field(default_factory=dict)
    token_url: str = ""
    wallet_reads: Callable[[Holding], Sequence[tuple[str, ReadResult]]] | None = None


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """One protocol as answers show it; `images` are those of `configs/protocols`.

    `transactions`: rules for the types of transactions that call its functions.
    """

    key: str
    name: str
    images: Mapping[str, str] = field(default_factory=dict)
    transactions: tuple[Rule, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Options:
    """Optional parts of a portfolio.

    Attributes:
        spam: Include assets judged to be spam in the sums.
        zero: Write unknown numbers as 0.
        nfts: List collectibles.
        nft_metadata: Add what the metadata of listed collectibles say.
        rates: Add the rates of other currencies.
    """

    images: bool = False
    explorer_urls: bool = False
    sources: bool = False
    spam: bool = False
    zero: bool = False
    nfts: bool = False
    nft_metadata: bool = False
    rates: bool = False


def named_pictures(facts: ChainFacts | ProtocolFacts, options: Options) -> tuple[str | UnsetType, str | UnsetType]:
    """Return the small and the large picture of a chain or a protocol.

    UNSET if pictures are not requested.
    """
    return pictures(facts.images, facts.key, facts.name) if options.images else (UNSET, UNSET)


def token_pictures(
    chain: ChainFacts, asset: Asset, symbol: str, options: Options
) -> tuple[str | UnsetType, str | UnsetType]:
    """Return the small and the large picture of a token; UNSET if pictures are not requested."""
    if not options.images:
        return UNSET, UNSET
    contract = asset.shown_contract
    images = chain.tokens.get(asset) or token_images(chain.token_url, chain.key, contract)
    return pictures(images, f"{chain.key}:{contract}", symbol)


def asset_page(chain: ChainFacts, contract: str, account: str, options: Options) -> str | UnsetType:
    """Return the explorer's page of a token, or of the account for the native coin (an empty `contract`).

    UNSET if there is no such page, or links are not requested.
    """
    link, address = chain.explorer.get("token" if contract else "address", ""), contract or account
    return link.replace("{address}", address) if options.explorer_urls and link and address else UNSET
