"""Prices from pools on Solana, with no vendor: of all pools of a token with a trusted one, that which could pay most.

Addresses of pools follow from both mints and a tier, so three rounds are enough: mints, pools, and the vaults of those
that there are. Nodes keep no state of the block before. What stands in its place: every pool of the same two
tokens that could pay enough has to agree, so that whoever moves one has to move all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult
from pricing.markets import factor, percent
from pricing.programs import KIND, account, address_of, derived, key_of, token_of
from pricing.quotes import PriceSection, Quotes, Refusal, Relative, by_chain

SOURCE: Final = "solana_pools"
MAX_TOKENS: Final = 50  # of one plan: each takes some dozens of accounts to look for
MAX_MINTS: Final = 2_000  # of one plan, of which is looked whether they are one of a kind
TOO_MANY: Final = "too many tokens at once: its pools were not looked for"
APART: Final = 1 + Fraction(10, 100)
AGREED: Final = Decimal("0.7")  # at least two pools say so
ALONE: Final = Decimal("0.5")
MAX_DECIMALS: Final = 36
BY_PRODUCT: Final = "raydium_cpmm"
FAMILIES: Final = {  # and what tells their pools of two tokens
    "orca_whirlpool": "spacings", "raydium_clmm": "indexes", BY_PRODUCT: "indexes",
}  # fmt: skip
MAX_TIER: Final = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Venue:
    """A program with pools of two tokens. `config` is that of Orca's pools."""

    family: str
    program: str
    tiers: tuple[int, ...]
    config: str = ""

    def pools(self, first: str, second: str) -> Iterator[Read]:
        """Where the pools of two mints lie, these in the order of their bytes."""
        for tier in self.tiers:
            if self.family == "orca_whirlpool":
                seeds = (b"whirlpool", self.config, first, second, tier.to_bytes(2, "little"))
                yield account(self.program, "whirlpool", *seeds)
            else:
                config = derived(self.program, b"amm_config", tier.to_bytes(2, "big"))
                yield account(self.program, self.family, b"pool", config, first, second)


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of a token: by which read, what it says, in which trusted token, and whether the token is its first."""

    read: Read
    said: Any
    quote: Asset
    first: bool

    @property
    def vaults(self) -> tuple[Read, Read]:
        """The accounts that its two tokens lie in: the trusted one first."""
        found = (account("", "token_account", self.said.vault_b), account("", "token_account", self.said.vault_a))
        return found if self.first else (found[1], found[0])

    @property
    def label(self) -> str:
        """Which pool it is."""
        _, address, layout, _ = self.read.shown
        return f"{str(layout).replace('_', ' ')} {address}"

    @property
    def is_by_product(self) -> bool:
        """Whether its price is that of what lies in its vaults."""
        return self.read.shown[2] == BY_PRODUCT

    @property
    def asked(self) -> tuple[Read, ...]:
        """The accounts that its price and depth take."""
        return self.vaults if self.is_by_product else self.vaults[:1]

    @property
    def can_price(self) -> bool:
        """Whether it may have a price."""
        return self.is_by_product or bool(self.said.root and self.said.liquidity)

    def market(self, known: Mapping[Read, Any]) -> Market | None:
        """Its price and depth; None where its vaults do not say, or hold nothing."""
        vaults = [known[each] for each in self.asked]
        if any(isinstance(each, Unknown) for each in vaults):
            return None
        return self._of_reserves(*vaults) if self.is_by_product else self._of_range(*vaults)

    def _of_reserves(self, trusted: Any, own: Any) -> Market | None:
        if (trusted.mint, own.mint) != self._mints or trusted.owner != own.owner:
            return None
        raws = self.said.reserves(*((own.raw, trusted.raw) if self.first else (trusted.raw, own.raw)))
        reserve, depth = raws if self.first else raws[::-1]
        return Market(self, Fraction(depth, reserve), depth) if min(raws) > 0 else None

    @property
    def _mints(self) -> tuple[str, str]:
        return (self.said.mint_b, self.said.mint_a) if self.first else (self.said.mint_a, self.said.mint_b)

    def _of_range(self, trusted: Any) -> Market | None:
        """What it could pay is what lies there, and no more than what its liquidity stands for."""
        _, address, _, _ = self.read.shown
        if (trusted.owner, trusted.mint) != (address, self.quote.reference):
            return None
        root, liquidity = self.said.root, self.said.liquidity
        price = Fraction(root**2, 1 << 128)
        active = liquidity * root >> 64 if self.first else (liquidity << 64) // root
        return Market(self, price if self.first else 1 / price, int(min(active, trusted.raw)))


@dataclass(frozen=True, slots=True)
class Market:
    """What a pool says: raw units of the trusted token for one of the token, and how many of those it could pay."""

    pool: Pool
    price: Fraction
    depth: int


@dataclass(frozen=True, slots=True)
class SolanaPools:
    """The venues of one chain, and its trusted tokens with how much of each a pool has to be able to pay (amounts)."""

    quotes: Mapping[Asset, Fraction]
    venues: Sequence[Venue]
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Not what is no token of the chain, nor the trusted tokens; of others it cannot be told before."""
        ours = asset.kind == "token" and not asset.token_id and any(asset.chain == each.chain for each in self.quotes)
        return None if ours and asset not in self.quotes else False

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A relative price, or the reason for none, for each token that has a pool."""
        tokens = [each for each in assets if self.knows(each) is None]
        if not tokens:
            return Quotes()
        mints = list(map(_mint, (*self.quotes, *tokens[:MAX_MINTS])))
        known: dict[Read, Any] = dict(zip(mints, (yield mints), strict=True))
        wanted = [each for each in tokens[:MAX_MINTS] if not _is_one_of_a_kind(known[_mint(each)])]
        searches = [_Search(each, self) for each in wanted[:MAX_TOKENS]]
        refused = [Refusal(each, SOURCE, TOO_MANY) for each in (*wanted[MAX_TOKENS:], *tokens[MAX_MINTS:])]
        if not searches:
            return Quotes(refused=tuple(refused))
        asked = list(dict.fromkeys(read for each in searches for read, *_ in each.places()))
        known |= zip(asked, (yield asked), strict=True)
        for each in searches:
            each.find(known)
        if vaults := list(dict.fromkeys(read for each in searches for pool in each.pools for read in pool.asked)):
            known |= zip(vaults, (yield vaults), strict=True)
        outcomes = [each.outcome(known, block) for each in searches]
        refused += [each for each in outcomes if isinstance(each, Refusal)]
        return Quotes(refused=tuple(refused), relative=tuple(each for each in outcomes if isinstance(each, Relative)))


@dataclass(slots=True)
class _Search:
    """The search for the market of one token. `failed` is the first read that nobody answered."""

    asset: Asset
    source: SolanaPools
    pools: list[Pool] = field(default_factory=list)
    failed: str = ""

    def places(self) -> Iterator[tuple[Read, Asset, bool]]:
        """Where its pools may lie, in which trusted token each is, and whether the token is the first."""
        token = self.asset.reference
        for quote in self.source.quotes:
            first = key_of(token) < key_of(quote.reference)
            pair = (token, quote.reference) if first else (quote.reference, token)
            for venue in self.source.venues:
                for read in venue.pools(*pair):
                    yield read, quote, first

    def find(self, known: Mapping[Read, Any]) -> None:
        """Its pools that have a price."""
        for read, quote, first in self.places():
            said = known[read]
            if isinstance(said, Unknown):
                self.failed = self.failed or (said.reason if said.cause == "read" else "")
                continue
            mints = [self.asset.reference, quote.reference]
            pool = Pool(read, said, quote, first)
            if [said.mint_a, said.mint_b] == (mints if first else mints[::-1]) and pool.can_price:
                self.pools.append(pool)

    def outcome(self, known: Mapping[Read, Any], block: Block) -> Relative | Refusal | None:
        """Its price, why it has none, or nothing where it has no pool."""
        if self.failed:
            return self._refusal(f"its pools could not be read: {self.failed}")
        if not self.pools:
            return None
        one = _scale(known[_mint(self.asset)])
        if not one:
            return self._refusal("the token does not say how many decimals it has")
        deep = list(self._deep(known))
        if not deep:
            return self._refusal(f"none of its {len(self.pools)} pools could pay enough for a price")
        _, best = max(deep, key=lambda each: (each[0], each[1].pool.label))
        pool = best.pool
        rivals = [each for _, each in deep if each.pool.quote == pool.quote and each is not best]
        for rival in rivals:
            if factor(rival.price, best.price) > APART:
                apart = percent(rival.price, best.price)
                return self._refusal(f"its pools are {apart} apart, so one is moved: {pool.label}, {rival.pool.label}")
        scale = _scale(known[_mint(pool.quote)])
        reads = (_mint(self.asset), _mint(pool.quote), pool.read, *pool.asked)
        return Relative(
            self.asset, ((pool.quote, best.price * Fraction(one, scale)),), SOURCE, block.time_us,
            AGREED if rivals else ALONE, pool.label, tuple(ReadResult(each, known[each]) for each in reads),
            (pool.quote, Fraction(best.depth, scale)),
        )  # fmt: skip

    def _deep(self, known: Mapping[Read, Any]) -> Iterator[tuple[Fraction, Market]]:
        """The pools that could pay enough, and how many times that is what they have to."""
        for pool in self.pools:
            scale, market = _scale(known[_mint(pool.quote)]), pool.market(known)
            if scale and market:
                least = max(int(self.source.quotes[pool.quote] * scale), 1)
                if market.depth >= least:
                    yield Fraction(market.depth, least), market

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _mint(asset: Asset) -> Read:
    return account("", "mint", asset.reference)


def _is_one_of_a_kind(said: Any) -> bool:
    """Whether a mint issued one thing, for which there is no pool; not where it does not say."""
    return not isinstance(said, Unknown) and said.decimals == 0 and said.supply <= 1


def _scale(said: Any) -> int:
    """How many raw units one of a token is; 0 where its mint does not say."""
    return 10**said.decimals if not isinstance(said, Unknown) and said.decimals <= MAX_DECIMALS else 0


def _build(section: Mapping[str, Any], where: str) -> SolanaPools:
    for key in sorted(section.keys() - {"quotes", "venues"}):
        raise BadSettings(where, f"unknown key `{key}`")
    quotes, venues = section.get("quotes", {}), section.get("venues", [])
    if not isinstance(quotes, Mapping) or not isinstance(venues, list):
        raise BadSettings(where, "`quotes` has lines asset = amount, and `venues` is a list of sections")
    trusted = {token_of(written, where): _amount(amount, written, where) for written, amount in quotes.items()}
    return SolanaPools(trusted, [_venue(each, where) for each in venues])


def _venue(section: Any, where: str) -> Venue:
    family = section.get("family") if isinstance(section, Mapping) else None
    if family not in FAMILIES:
        raise BadSettings(where, f"a venue's family is {family!r:.40}", remedy=f"one of {', '.join(FAMILIES)}")
    tiers = section.get(FAMILIES[family])
    keys = {"family", "program", FAMILIES[family], *(["config"] if family == "orca_whirlpool" else [])}
    if section.keys() != keys:
        raise BadSettings(where, f"{family} needs exactly {', '.join(sorted(keys))}")
    if (
        not isinstance(tiers, list)
        or not tiers
        or not all(type(each) is int and 0 <= each <= MAX_TIER for each in tiers)
    ):
        raise BadSettings(where, f"{FAMILIES[family]} of {family} are no list of whole numbers up to {MAX_TIER}")
    config = address_of(section, "config", where) if "config" in keys else ""
    return Venue(family, address_of(section, "program", where), tuple(dict.fromkeys(tiers)), config)


def _amount(written: Any, asset: str, where: str) -> Fraction:
    try:
        amount = amounts.parse(written) if isinstance(written, str) else None
    except ValueError:
        amount = None
    if amount is None or amount <= 0:
        raise BadSettings(where, f"what a pool has to have of {asset} is {written!r}", remedy='an amount: "5000"')
    return Fraction(amount)


SECTION = PriceSection(by_chain(_build), order=70, kinds=(KIND,))
