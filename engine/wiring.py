"""Wiring of a process's parts: the reader of each chain, with its tokens, price sources and protocols."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio import pricing
from chainfolio.assets import asset
from chainfolio.capabilities import Capability, find_capability
from chainfolio.engine.prices.fiat import Fiat
from chainfolio.engine.prices.rate_store import RateStore
from chainfolio.engine.prices.rates import PriceReader, Rates
from chainfolio.engine.results import ChainFact
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook, token_images, token_list
from chainfolio.engine.snapshots.token_registry import TokenRegistry
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.engine.validators.stakes import WITHDRAWALS_DATASET, Stakes
from chainfolio.errors import BadSettings
from chainfolio.indexer.file_versions import FileVersion
from chainfolio.kinds import SelectsFunctions, kind_of
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.pictures import named_images, pictures
from chainfolio.pricing import ecb
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.vendors import add_vendor_names

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.activity import Functions


GREY = "#808080"  # the default colour of a chain


def snapshotter_of(system: System, chain: Chain) -> Snapshotter:
    """Build the snapshotter of a chain with its price sources, token list, protocols and stakes.

    If the system keeps nothing, tokens and prices are not stored.
    """
    sections = {name: section for name, section in price_sections(system).items() if name != ecb.SOURCE}
    wrapped = [chain.info.wrapped] if chain.info.wrapped else []
    source_chain = build_sources(
        sections, system.settings.prices, chain.key, chain.kind, wrapped=wrapped, file=_prices(system).name
    )
    path = _tokens(system, chain)
    registry = TokenRegistry(path.with_suffix(".csv"), chain.info)
    lake = None if system.keeps_nothing else system.lake
    book = TokenBook(chain.key, lake, token_list(path, chain.info), registry)
    chain = with_mixed_reads(chain, system.http)
    store = None
    if not system.keeps_nothing:
        named = repr((_price_code(), system.settings.prices, sections))
        digest = hashlib.sha256(named.encode()).hexdigest()[:16]
        store = PriceStore(chain.key, system.lake, system.tail, system.shares_answers, digest)
    stakes = stakes_of(system, chain)
    return Snapshotter(
        chain, system.lake, system.tail, book, source_chain, system.installed_protocols(chain), store, stakes
    )


@cache
def _price_code() -> str:
    """Return a digest of the code that reads prices: what older code refused may have a price now."""
    packages = Path(pricing.__file__).parents[1]
    digest = hashlib.sha256()
    for pattern in ("pricing/*.py", "adapters/*/prices/**/*.py"):
        for file in sorted(packages.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def stakes_of(system: System, chain: Chain) -> Stakes | None:
    """Build the stakes of validators that withdraw to a chain.

    They are read by the configured chain of validators, else, if withdrawals are indexed, known from those only. Return
    None if there are neither, or the settings hide them.
    """
    for beacon in system.chains:
        validators = find_capability(beacon, Capability.VALIDATORS)
        if validators is not None and validators.execution == chain.key:
            stakes = Stakes(chain.info.native.asset, beacon, system.lake, system.tail)
            return stakes if validators.shows_stake else None
    if WITHDRAWALS_DATASET not in chain.datasets:
        return None
    return Stakes(chain.info.native.asset, None, system.lake, system.tail)


def rates_of(system: System, read_prices: PriceReader) -> Rates:
    """Build the rates of currencies: of the central bank, if the settings have it, and of token prices.

    If the system keeps nothing, rates are not stored.
    """
    path, section = _prices(system), price_sections(system).get(ecb.SOURCE)
    host = None if section is None else ecb.ecb_host(section, f"{path.name}: {ecb.SOURCE}")
    store = None if system.keeps_nothing else RateStore(system.lake, system.tail)
    fiat = Fiat(system.environment, system.http, host, store)
    units = _sections(system.configs / "vendors.toml")["units"]
    return Rates(
        system.settings.rates,
        fiat.at,
        {symbol: list(map(asset, assets)) for symbol, assets in units.items()},
        system.account_chains,
        read_prices,
    )


def shown_facts(system: System, chain: Chain) -> ChainFacts:
    """Return the facts of a chain that documents show, such as names, explorer and images."""
    info, tokens = chain.info, token_images(_tokens(system, chain), chain.info)
    settings = system.settings.images
    return ChainFacts(
        chain.key,
        info.name,
        info.chain_id,
        info.explorer,
        info.images or named_images(settings.chain, chain.key),
        tokens,
        settings.token,
        chain.wallet_reads,
    )


def chain_facts(chains: Iterable[Chain], shown: Mapping[str, ChainFacts]) -> list[ChainFact]:
    """Return what clients see of chains, by name."""
    return sorted((_chain_fact(chain, shown[chain.key]) for chain in chains), key=lambda fact: fact.name)


def _chain_fact(chain: Chain, shown: ChainFacts) -> ChainFact:
    """Return what clients see of a chain.

    Missing colours and images are replaced, missing explorer links are None.
    """
    info = chain.info
    small, large = pictures(shown.images, shown.key, shown.name)
    return ChainFact(
        chain_id=info.chain_id,
        key=chain.key,
        name=info.name,
        symbol=info.native.symbol,
        color=info.color or GREY,
        img_small=small,
        img_large=large,
        explorer_token_url=info.explorer.get("token"),
        explorer_transaction_url=info.explorer.get("transaction"),
        explorer_address_url=info.explorer.get("address"),
        is_portfolio_supported=True,
        is_transactions_supported=True,
    )


def functions(system: System) -> Functions:
    """Load the functions of the configs, by their selectors on the kinds of the configured chains."""
    from chainfolio.engine.transactions.function_names import load

    kinds = map(kind_of, sorted({chain.adapter for chain in system.settings.chains.values()}))
    selectors = [kind.selector for kind in kinds if isinstance(kind, SelectsFunctions)]
    return load(system.configs / "functions.toml", *selectors)


def price_sections(system: System) -> dict[str, Any]:
    """Return the sections of the price sources' file, with the names that vendors use.

    The builtin file is completed by generated contracts; an operator's own file is complete.

    Raises:
        BadSettings: A file cannot be read.
    """
    sections = _sections(_prices(system))
    if not system.settings.prices_file:
        sections = {**_sections(system.configs / "price_contracts.toml"), **sections}
    return add_vendor_names(sections, _sections(system.configs / "vendors.toml"))


def _sections(path: Path) -> Mapping[str, Any]:
    """Return the sections of a file of prices; BadSettings if it is missing or no TOML."""
    try:
        return _parsed(FileVersion.of(path))
    except FileNotFoundError:
        raise BadSettings("prices_file", f"there is no {path}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(path.name, f"not valid TOML: {error}") from None


@lru_cache(maxsize=8)
def _parsed(file: FileVersion) -> Mapping[str, Any]:
    return tomllib.loads(file.path.read_text(encoding="utf-8"))


def _prices(system: System) -> Path:
    return Path(system.settings.prices_file) if system.settings.prices_file else system.configs / "prices.toml"


def _tokens(system: System, chain: Chain) -> Path:
    return system.configs / "tokens" / f"{chain.key}.toml"
