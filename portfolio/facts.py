"""What an answer needs to know about a chain, and what its reader asked to see."""

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

# A grey disc. It is an absolute URL, as clients insist, and nobody learns who looks at it.
PLACEHOLDER: Final = (
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%202%202'%3E"
    "%3Ccircle%20cx='1'%20cy='1'%20r='1'%20fill='gray'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """One chain as answers show it; `explorer` and `images` are as in `configs/chains`.

    `tokens` are the pictures of its tokens, as in `configs/tokens`. `wallet_reads` are the reads that say how much of
    something lies loose in a wallet, each with the name of its number; None where the chain has no such reads.
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
    """One protocol as answers show it; `images` are as in `configs/protocols`, and `transactions` what calls of its
    functions are called."""

    key: str
    name: str
    images: Mapping[str, str] = field(default_factory=dict)
    transactions: tuple[Rule, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Options:
    """What a portfolio shows beyond its numbers; `placeholder` is the picture of what has none. With `spam`, what is
    taken for spam is in the sums; with `zero`, numbers that are not known are written as 0; with `nfts`, collectibles
    are listed; with `rates`, the rates of other currencies are there."""

    images: bool = False
    explorer_urls: bool = False
    sources: bool = False
    spam: bool = False
    zero: bool = False
    nfts: bool = False
    rates: bool = False
    placeholder: str = PLACEHOLDER


def pictures(images: Mapping[str, str], placeholder: str) -> tuple[str, str]:
    """The small and the large picture: either stands in for the other, the placeholder for both."""
    small = images.get("small") or images.get("large") or placeholder
    return small, images.get("large") or small


def shown_pictures(images: Mapping[str, str], options: Options) -> tuple[str | UnsetType, str | UnsetType]:
    """The small and the large picture as an answer has them: absent if nobody asked for pictures."""
    return pictures(images, options.placeholder) if options.images else (UNSET, UNSET)


def asset_page(chain: ChainFacts, contract: str, account: str, options: Options) -> str | UnsetType:
    """The explorer's page of a token; the native coin (an empty `contract`) has none, so it is the account's. Absent if
    there is no such page, or nobody asked for links."""
    link, address = chain.explorer.get("token" if contract else "address", ""), contract or account
    return link.replace("{address}", address) if options.explorer_urls and link and address else UNSET
