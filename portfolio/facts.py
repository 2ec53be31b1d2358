"""Facts about chains and protocols that answers show, and the options of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chainfolio.portfolio.activity import Rule

from msgspec import UNSET, UnsetType

from chainfolio.assets import Asset
from chainfolio.contracts import Holding
from chainfolio.reads import ReadResult

# A grey disc. Clients insist on an absolute URL; a data URL reveals no reader to a third party.
PLACEHOLDER: Final = (
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%202%202'%3E"
    "%3Ccircle%20cx='1'%20cy='1'%20r='1'%20fill='gray'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """One chain as answers show it; `explorer` and `images` are as in `configs/chains`.

    `tokens` are pictures of tokens, as in `configs/tokens`. `wallet_reads` returns the reads behind a wallet balance,
    each with the name of its number; None if the chain has no such reads.
    """

    key: str
    name: str
    chain_id: int
    explorer: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[Asset, Mapping[str, str]] = field(default_factory=dict)
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
        rates: Add the rates of other currencies.
        placeholder: The picture of an asset that has none.
    """

    images: bool = False
    explorer_urls: bool = False
    sources: bool = False
    spam: bool = False
    zero: bool = False
    nfts: bool = False
    rates: bool = False
    placeholder: str = PLACEHOLDER


def pictures(images: Mapping[str, str], placeholder: str) -> tuple[str, str]:
    """Return the small and the large picture: a missing one is replaced by the other, or the placeholder."""
    small = images.get("small") or images.get("large") or placeholder
    return small, images.get("large") or small


def shown_pictures(images: Mapping[str, str], options: Options) -> tuple[str | UnsetType, str | UnsetType]:
    """Return the small and the large picture; UNSET if pictures are not requested."""
    return pictures(images, options.placeholder) if options.images else (UNSET, UNSET)


def asset_page(chain: ChainFacts, contract: str, account: str, options: Options) -> str | UnsetType:
    """Return the explorer's page of a token, or of the account for the native coin (an empty `contract`).

    UNSET if there is no such page, or links are not requested.
    """
    link, address = chain.explorer.get("token" if contract else "address", ""), contract or account
    return link.replace("{address}", address) if options.explorer_urls and link and address else UNSET
