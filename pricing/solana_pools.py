"""Prices from pools on Solana: of a token's pools with trusted tokens, the one that could pay most.

The address of a pool follows from both mints and a tier, so the plan has three rounds: mints, pools, and the vaults of
the pools that exist. Nodes keep no state of the parent block. Instead, all pools of the same two tokens that could pay
enough must agree, so that an attacker has to move all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, read_distinct
from chainfolio.pool_prices import TOO_MANY_TOKENS, parse_minimum, percent_apart, ratio
from chainfolio.price_sources import PricePlan, PriceSection, Quotes, Refusal, RelativePrice, Section, by_chain
from chainfolio.pricing.programs import (
    KIND,
    Record,
    account_read,
    address_bytes,
    derive_address,
    parse_address,
    parse_token,
)
from chainfolio.reads import ContractRead, ReadResult

SOURCE: Final = "solana_pools"
MAX_TOKENS: Final = 50  # of one plan: each takes dozens of reads of accounts
MAX_MINTS: Final = 2_000  # of one plan: their supply and decimals are read
MAX_DIFFERENCE: Final = 1 + Fraction(10, 100)
CONFIDENCE_OF_SEVERAL: Final = Decimal("0.7")  # at least two pools agree
CONFIDENCE_OF_ONE: Final = Decimal("0.5")
MAX_DECIMALS: Final = 36
CONSTANT_PRODUCT: Final = "raydium_cpmm"
FAMILIES: Final = {  # and the setting that lists the tiers of their pools
    "orca_whirlpool": "spacings",
    "raydium_clmm": "indexes",
    CONSTANT_PRODUCT: "indexes",
}
MAX_TIER: Final = 2**16 - 1

Results = Mapping[ContractRead, Any]


@dataclass(frozen=True, slots=True)
class Venue:
    """A program with pools of two tokens. `config` is the account that Orca's pools are derived from."""

    family: str
    program: str
    tiers: tuple[int, ...]
    config: str = ""

    def pool_reads(self, first: str, second: str) -> Iterator[ContractRead]:
        """Return the reads of the pools of two mints, given in the order of their bytes."""
        for tier in self.tiers:
            if self.family == "orca_whirlpool":
                seeds = (b"whirlpool", self.config, first, second, tier.to_bytes(2, "little"))
                yield account_read(self.program, "whirlpool", *seeds)
            else:
                config = derive_address(self.program, b"amm_config", tier.to_bytes(2, "big"))
                yield account_read(self.program, self.family, b"pool", config, first, second)


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of a token.

    Attributes:
        read: The read of its account.
        account: The parsed account.
        quote: The trusted token.
        token_is_first: True if the token is the first of the pool's two tokens.
    """

    read: ContractRead
    account: Record
    quote: Asset
    token_is_first: bool

    @property
    def vault_reads(self) -> tuple[ContractRead, ...]:
        """The reads of the vault of the quote and, for a constant product, of the vault of the token."""
        vaults = (self.account.vault_a, self.account.vault_b)
        reads = tuple(account_read("", "token_account", vault) for vault in vaults)
        quote_first = reads[::-1] if self.token_is_first else reads
        return quote_first if self.is_constant_product else quote_first[:1]

    @property
    def label(self) -> str:
        """The family and the address, for users."""
        _, address, layout, _ = self.read.label
        return f"{str(layout).replace('_', ' ')} {address}"

    @property
    def is_constant_product(self) -> bool:
        """True if its price is the ratio of the balances in its vaults."""
        return self.read.label[2] == CONSTANT_PRODUCT

    @property
    def can_price(self) -> bool:
        """True unless it is a concentrated pool without a price or without liquidity."""
        return self.is_constant_product or bool(self.account.sqrt_price and self.account.liquidity)

    def market(self, results: Results) -> Market | None:
        """Return its price and depth; None if a vault could not be read, is empty, or belongs to another pool."""
        vaults = [results[read] for read in self.vault_reads]
        if any(isinstance(vault, Unknown) for vault in vaults):
            return None
        return self._product_market(*vaults) if self.is_constant_product else self._concentrated_market(*vaults)

    def _product_market(self, quote_vault: Record, token_vault: Record) -> Market | None:
        """Return price and depth of a product pool, None for other vaults or without reserves."""
        if (quote_vault.mint, token_vault.mint) != self._mints or quote_vault.owner != token_vault.owner:
            return None
        balances = (token_vault.raw, quote_vault.raw)
        reserves = self.account.reserves(*(balances if self.token_is_first else balances[::-1]))
        reserve, depth = reserves if self.token_is_first else reserves[::-1]
        return Market(self, Fraction(depth, reserve), depth) if min(reserves) > 0 else None

    @property
    def _mints(self) -> tuple[str, str]:
        """The mints of the quote and of the token."""
        mints = (self.account.mint_a, self.account.mint_b)
        return (mints[1], mints[0]) if self.token_is_first else mints

    def _concentrated_market(self, quote_vault: Record) -> Market | None:
        """Return the market of a concentrated pool; None if the vault is not its own.

        Vault and active liquidity limit its depth.
        """
        _, address, _, _ = self.read.label
        if (quote_vault.owner, quote_vault.mint) != (address, self.quote.reference):
            return None
        root, liquidity = self.account.sqrt_price, self.account.liquidity
        price = Fraction(root**2, 1 << 128)
        active = liquidity * root >> 64 if self.token_is_first else (liquidity << 64) // root
        return Market(self, price if self.token_is_first else 1 / price, int(min(active, quote_vault.raw)))


@dataclass(frozen=True, slots=True)
class Market:
    """A pool's price (raw quote per raw token), and the most of the quote that it could pay."""

    pool: Pool
    price: Fraction
    depth: int


@dataclass(frozen=True, slots=True)
class SolanaPools:
    """The venues of one chain, and its trusted tokens with the amount that a pool must be able to pay."""

    quotes: Mapping[Asset, Fraction]
    venues: Sequence[Venue]
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Return None for tokens of the chain, whose pools are only known after a lookup.

        False for other assets.

        Trusted tokens are priced by other sources: False.
        """
        is_token = asset.kind == "token" and not asset.token_id
        is_on_chain = any(asset.chain == quote.chain for quote in self.quotes)
        return None if is_token and is_on_chain and asset not in self.quotes else False

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a relative price or a refusal for each token with a pool, in up to three rounds.

        Tokens of one piece (NFTs) and without a pool are left out. Beyond MAX_TOKENS tokens, or MAX_MINTS candidates,
        tokens are refused.
        """
        candidates = [asset for asset in assets if self.knows(asset) is None]
        if not candidates:
            return Quotes()
        mint_reads = map(_mint_read, (*self.quotes, *candidates[:MAX_MINTS]))
        results = yield from read_distinct(mint_reads)
        tokens = [token for token in candidates[:MAX_MINTS] if not _is_nft(results[_mint_read(token)])]
        searches = [_Search(token, self) for token in tokens[:MAX_TOKENS]]
        too_many = (*tokens[MAX_TOKENS:], *candidates[MAX_MINTS:])
        refusals = [Refusal(token, SOURCE, TOO_MANY_TOKENS) for token in too_many]
        if not searches:
            return Quotes(refused=tuple(refusals))
        results |= yield from read_distinct(read for search in searches for read, *_ in search.pool_reads())
        for search in searches:
            search.add_pools(results)
        pools = [pool for search in searches for pool in search.pools]
        results |= yield from read_distinct(read for pool in pools for read in pool.vault_reads)
        outcomes = [search.outcome(results, block) for search in searches]
        refusals += [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
        relative = tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice))
        return Quotes(refused=tuple(refusals), relative=relative)


@dataclass(slots=True)
class _Search:
    """The search for the market of one token. `fault` is the reason of the first failed read.

    Empty if none failed.
    """

    asset: Asset
    source: SolanaPools
    pools: list[Pool] = field(default_factory=list)
    fault: str = ""

    def pool_reads(self) -> Iterator[tuple[ContractRead, Asset, bool]]:
        """Return the reads of its possible pools, each with the quote and `token_is_first`."""
        token = self.asset.reference
        for quote in self.source.quotes:
            token_is_first = address_bytes(token) < address_bytes(quote.reference)
            mints = (token, quote.reference) if token_is_first else (quote.reference, token)
            for venue in self.source.venues:
                for read in venue.pool_reads(*mints):
                    yield read, quote, token_is_first

    def add_pools(self, results: Results) -> None:
        """Store the token's pools that may have a price; set `fault` to the reason of the first failed read."""
        for read, quote, token_is_first in self.pool_reads():
            account = results[read]
            if isinstance(account, Unknown):
                self.fault = self.fault or (account.reason if account.cause == "read" else "")
                continue
            mints = [self.asset.reference, quote.reference]
            pool = Pool(read, account, quote, token_is_first)
            if [account.mint_a, account.mint_b] == (mints if token_is_first else mints[::-1]) and pool.can_price:
                self.pools.append(pool)

    def outcome(self, results: Results, block: Block) -> RelativePrice | Refusal | None:
        """Return the price in the quote of the deepest pool; None if the token has no pool.

        A refusal if pools are unread, the token has no known decimals, no pool could pay the least amount, or a pool in
        the same quote is apart by more than MAX_DIFFERENCE.
        """
        if self.fault:
            return self._refusal(f"its pools could not be read: {self.fault}")
        if not self.pools:
            return None
        token_unit = _raw_unit(results[_mint_read(self.asset)])
        if not token_unit:
            return self._refusal("the token does not say how many decimals it has")
        markets = list(self._deep_markets(results))
        if not markets:
            return self._refusal(f"none of its {len(self.pools)} pools could pay enough for a price")
        _, deepest = max(markets, key=lambda candidate: (candidate[0], candidate[1].pool.label))
        pool = deepest.pool
        rivals = [market for _, market in markets if market.pool.quote == pool.quote and market is not deepest]
        for rival in rivals:
            if ratio(rival.price, deepest.price) > MAX_DIFFERENCE:
                apart = percent_apart(rival.price, deepest.price)
                return self._refusal(f"its pools are {apart} apart, so one is moved: {pool.label}, {rival.pool.label}")
        quote_unit = _raw_unit(results[_mint_read(pool.quote)])
        reads = (_mint_read(self.asset), _mint_read(pool.quote), pool.read, *pool.vault_reads)
        return RelativePrice(
            self.asset,
            ((pool.quote, deepest.price * Fraction(token_unit, quote_unit)),),
            SOURCE,
            block.time_us,
            CONFIDENCE_OF_SEVERAL if rivals else CONFIDENCE_OF_ONE,
            pool.label,
            tuple(ReadResult(read, results[read]) for read in reads),
            (pool.quote, Fraction(deepest.depth, quote_unit)),
        )

    def _deep_markets(self, results: Results) -> Iterator[tuple[Fraction, Market]]:
        """Return the markets that could pay enough, each with its depth in relation to the least depth."""
        for pool in self.pools:
            quote_unit, market = _raw_unit(results[_mint_read(pool.quote)]), pool.market(results)
            if quote_unit and market:
                min_depth = max(int(self.source.quotes[pool.quote] * quote_unit), 1)
                if market.depth >= min_depth:
                    yield Fraction(market.depth, min_depth), market

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _mint_read(asset: Asset) -> ContractRead:
    return account_read("", "mint", asset.reference)


def _is_nft(mint: Record) -> bool:
    """Return True if a mint issued at most one indivisible token, which has no pools.

    False if it could not be read.
    """
    return not isinstance(mint, Unknown) and mint.decimals == 0 and mint.supply <= 1


def _raw_unit(mint: Record) -> int:
    """Return the raw units of one token; 0 if its mint could not be read."""
    return 10**mint.decimals if not isinstance(mint, Unknown) and mint.decimals <= MAX_DECIMALS else 0


def _build(section: Section, location: str) -> SolanaPools:
    """Build the source; raise BadSettings for unknown keys or wrong types."""
    for key in sorted(section.keys() - {"quotes", "venues"}):
        raise BadSettings(location, f"unknown key `{key}`")
    lines, venues = section.get("quotes", {}), section.get("venues", [])
    if not isinstance(lines, Mapping) or not isinstance(venues, list):
        raise BadSettings(location, "`quotes` has lines asset = amount, and `venues` is a list of sections")
    quotes = {parse_token(text, location): parse_minimum(amount, text, location) for text, amount in lines.items()}
    return SolanaPools(quotes, [_build_venue(venue, location) for venue in venues])


def _build_venue(section: Any, location: str) -> Venue:
    """Build a venue; raise BadSettings for an unknown family, other keys or invalid tiers."""
    family = section.get("family") if isinstance(section, Mapping) else None
    if family not in FAMILIES:
        raise BadSettings(location, f"a venue's family is {family!r:.40}", remedy=f"one of {', '.join(FAMILIES)}")
    tier_key = FAMILIES[family]
    tiers = section.get(tier_key)
    keys = {"family", "program", tier_key, *(["config"] if family == "orca_whirlpool" else [])}
    if section.keys() != keys:
        raise BadSettings(location, f"{family} needs exactly {', '.join(sorted(keys))}")
    if not isinstance(tiers, list) or not tiers or not all(type(t) is int and 0 <= t <= MAX_TIER for t in tiers):
        raise BadSettings(location, f"{tier_key} of {family} are no list of whole numbers up to {MAX_TIER}")
    config = parse_address(section, "config", location) if "config" in keys else ""
    return Venue(family, parse_address(section, "program", location), tuple(dict.fromkeys(tiers)), config)


SECTION = PriceSection(by_chain(_build), order=70, kinds=(KIND,))
