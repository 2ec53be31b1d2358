"""The shipped facts are well formed and equal to the public registries they were taken from."""

import csv
import gzip
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.prices.pools import build_pools
from chainfolio.adapters.solana.facts import load as load_solana
from chainfolio.adapters.starknet.facts import load as load_starknet
from chainfolio.adapters.tron.facts import load as load_tron
from chainfolio.addresses import SOLANA, STARKNET, TRON
from chainfolio.configs import generate
from chainfolio.configs.generate import ENOUGH_LISTS
from chainfolio.engine.snapshots.token_book import token_list
from chainfolio.engine.snapshots.token_registry import TokenRegistry
from chainfolio.errors import BadSettings

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
REGISTRY = ROOT.parent / "shared" / "data" / "registry"

EVERY = {path.stem: tomllib.loads(path.read_text()) for path in sorted((CONFIGS / "chains").glob("*.toml"))}
CHAINS = {key: chain for key, chain in EVERY.items() if chain["kind"] == "evm"}
TOKENS = {path.stem: tomllib.loads(path.read_text()) for path in sorted((CONFIGS / "tokens").glob("*.toml"))}
SPENDERS = {path.stem: tomllib.loads(path.read_text()) for path in sorted((CONFIGS / "spenders").glob("*.toml"))}
PROTOCOLS = {path.stem: tomllib.loads(path.read_text()) for path in sorted((CONFIGS / "protocols").glob("*.toml"))}
PRICES = tomllib.loads((CONFIGS / "prices.toml").read_text())
POOLS = tomllib.loads((CONFIGS / "price_contracts.toml").read_text(encoding="utf-8"))["pools"]
WBTC_OF_ETHEREUM = "eip155:1/erc20:0x2260fac5e5542a773aa44fbcfedf7c193bc2c599"  # no plain feed: Aave caps it
VENDORS = tomllib.loads((CONFIGS / "vendors.toml").read_text())
UNITS = {asset for assets in VENDORS["units"].values() for asset in assets}
FEEDS = [
    (chain, *feed) for chain, facts in PRICES["chainlink"].items() for feed in facts.items() if feed[0] != "sequencer"
]

REQUIRED = {"key", "kind", "chain_id", "name", "block_time_ms", "finality", "color", "native"}
OPTIONAL = {
    "wrapped": {"address", "symbol"},
    "explorer": {"token", "transaction", "address"},
    "images": {"small", "large"},
}
ADDRESS = re.compile(r"0x[0-9a-f]{40}")
ZERO = "0x" + "0" * 40

needs_registry = pytest.mark.skipif(not REGISTRY.is_dir(), reason="the recorded registries are not here")
LOADS: dict[str, tuple[Any, Any]] = {
    "evm": (load, ADDRESS.fullmatch),
    "solana": (load_solana, SOLANA.canonical),
    "starknet": (load_starknet, STARKNET.canonical),
    "tron": (load_tron, TRON.canonical),
}
every_chain = pytest.mark.parametrize("key", CHAINS)


def registry(name: str) -> Any:
    content = (REGISTRY / name).read_bytes()
    return json.loads(gzip.decompress(content) if name.endswith(".gz") else content)


@every_chain
def test_a_chain_has_all_the_keys_it_needs_and_no_unknown_one(key: str) -> None:
    chain = CHAINS[key]
    assert REQUIRED <= chain.keys() <= REQUIRED | OPTIONAL.keys() | {"genesis", "unproven", "pays"}
    assert chain["native"].keys() - {"also_at", "images"} == {"symbol", "name", "decimals", "slip44"}
    assert all(chain[table].keys() <= keys for table, keys in OPTIONAL.items() if table in chain)
    assert (chain["key"], chain["kind"]) == (key, "evm")


@every_chain
def test_the_values_of_a_chain_have_the_right_shape(key: str) -> None:
    chain = CHAINS[key]
    addresses = [chain.get("wrapped", {}).get("address", ZERO), chain["native"].get("also_at", ZERO)]
    assert all(ADDRESS.fullmatch(address) for address in addresses)
    assert re.fullmatch(r"0x[0-9a-f]{64}", chain.get("genesis", ZERO + "0" * 24))
    assert re.fullmatch(r"#[0-9A-F]{6}", chain["color"])
    assert chain["block_time_ms"] in range(1, 60_001)
    assert chain["finality"] == "finalized" or chain["finality"] in range(10_000)
    for kind, link in chain.get("explorer", {}).items():
        assert link.startswith("https://")
        assert re.findall(r"{(\w+)}", link) == ["hash" if kind == "transaction" else "address"]


def test_solana_is_what_its_genesis_says() -> None:
    facts = load_solana(CONFIGS / "chains" / "solana.toml")
    assert facts.caip2 == "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"  # as CAIP-2 has it
    assert (facts.key, facts.kind, facts.chain_id) == ("solana", "solana", 101)
    assert (facts.info.native.symbol, facts.info.native.decimals) == ("SOL", 9)
    assert str(facts.info.wrapped) == f"{facts.caip2}/token:So11111111111111111111111111111111111111112"


def test_starknet_has_its_coin_as_a_token_and_is_final_by_ethereum() -> None:
    facts = load_starknet(CONFIGS / "chains" / "starknet.toml")
    assert (facts.caip2, facts.finality, facts.fee_unit) == ("starknet:SN_MAIN", "l1", "FRI")
    assert (facts.info.native.symbol, facts.info.native.decimals) == ("STRK", 18)
    assert str(facts.info.also_at) == f"{facts.caip2}/erc20:{facts.coin}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('network = "SN_MAIN"', 'network = ""', "network is the name"),
        ("also_at = ", "images = {}  # ", "also_at is the contract"),
        ('name = "Starknet"', 'name = "Starknet"\nfinality = "soon"', "finality is `l1`"),
    ],
)
def test_facts_of_starknet_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "starknet.toml"
    path.write_text((CONFIGS / "chains" / "starknet.toml").read_text().replace(old, new, 1))
    with pytest.raises(BadSettings, match=message):
        load_starknet(path)


@every_chain
def test_a_chain_costs_at_most_20_lines(key: str) -> None:
    assert len((CONFIGS / "chains" / f"{key}.toml").read_text().splitlines()) <= 20


def test_no_two_chains_share_an_id_or_a_genesis() -> None:
    for field in ("chain_id", "genesis"):
        values = [chain[field] for chain in CHAINS.values() if field in chain]
        assert len(values) == len(set(values))


@pytest.mark.parametrize("key", TOKENS)
def test_tokens_are_listed_once_on_a_chain_we_know(key: str) -> None:
    _, address = LOADS[EVERY[key]["kind"]]
    tokens = TOKENS[key]["tokens"]
    assert all(token.keys() - {"images", "name"} == {"address", "symbol", "decimals"} for token in tokens)
    assert all(address(token["address"]) and 0 <= token["decimals"] <= 36 for token in tokens)
    assert len({token["address"] for token in tokens}) == len(tokens)


def test_a_listed_token_is_shown_by_its_name_and_not_by_its_symbol() -> None:
    dai = "0x6b175474e89094c44da98b954eedeac495271d0f"
    info = load(CONFIGS / "chains" / "ethereum.toml").info
    listed_tokens, asset = token_list(CONFIGS / "tokens" / "ethereum.toml", info), info.token_asset(dai)
    assert (listed_tokens[asset].symbol, listed_tokens[asset].name) == ("DAI", "Dai Stablecoin")


@needs_registry
@pytest.mark.parametrize("key", TOKENS)
def test_names_of_listed_tokens_are_those_of_the_registry(key: str) -> None:
    with gzip.open(REGISTRY / "tokens" / f"{key}.csv.gz", "rt", newline="") as file:
        names_by_address = {row["address"]: row["name"] for row in csv.DictReader(file)}
    named_tokens = [token for token in TOKENS[key]["tokens"] if "name" in token]
    assert named_tokens
    assert all(names_by_address[token["address"]] == token["name"] for token in named_tokens)


@pytest.mark.parametrize("path", sorted((CONFIGS / "tokens").glob("*.csv")), ids=lambda path: path.stem)
def test_a_token_registry_has_each_token_once_and_those_that_most_lists_name_first(path: Path) -> None:
    load, address = LOADS[EVERY[path.stem]["kind"]]
    info = load(CONFIGS / "chains" / f"{path.stem}.toml").info
    registry = TokenRegistry(path, info)
    tokens = list(registry.tokens(ENOUGH_LISTS))
    assert len({token.asset for token in tokens}) == len(registry) == len(path.read_text().splitlines()) - 1
    assert [token.asset for token in tokens] == registry.assets_on(ENOUGH_LISTS)
    lists = [registry.list_count(token.asset) for token in tokens]
    assert lists == sorted(lists, reverse=True)
    assert lists[-1] >= ENOUGH_LISTS
    assert all(address(token.asset.reference) and token.symbol and token.name for token in tokens)
    assert all(f"{token.symbol}{token.name}".isprintable() for token in tokens)
    assert {token.decimals for token in tokens} <= set(range(37))


def test_a_chain_without_a_list_of_its_own_lists_what_three_public_lists_name() -> None:
    info = load(CONFIGS / "chains" / "fantom.toml").info
    path = CONFIGS / "tokens" / "fantom.toml"
    registry = TokenRegistry(path.with_suffix(".csv"), info)
    assert list(token_list(path, info)) == registry.assets_on(3)
    assert len(registry.assets_on(3)) < len(registry.assets_on(2))


def test_nothing_is_fixed_or_pegged_unless_the_operator_says_so() -> None:
    chains = {
        "chainlink",
        "pyth_accounts",
        "liquid_stake",
        "solana_pools",
    }  # what is read of chains: no vendor is asked
    assert PRICES.keys() == {"fixed", "order", "classes", "guards"} | chains
    assert PRICES["fixed"] == {}


@needs_registry
def test_the_uptime_feeds_of_sequencers_are_those_of_the_registry() -> None:
    lines = gzip.decompress((REGISTRY / "chainlink_feeds_2025.csv.gz").read_bytes()).decode().splitlines()
    feeds = {
        row["chain"]: row["address"]
        for row in csv.DictReader(lines)
        if row["provider"] == "chainlink" and row["pair"] == "L2 / SEQUENCER"
    }
    for chain, address in feeds.items():
        if chain in PRICES["chainlink"]:
            assert PRICES["chainlink"][chain]["sequencer"] == {"feed": address, "grace_s": 3600}


def test_a_feed_prices_an_asset_of_its_own_chain() -> None:
    for chain, asset, fact in FEEDS:
        home, name = asset.split("/")
        assert home == f"eip155:{CHAINS[chain]['chain_id']}" or asset in UNITS, "only net asset values need others"
        assert re.fullmatch(rf"slip44:\d+|erc20:{ADDRESS.pattern}", name)
        assert fact.keys() == {"feed", "decimals", "heartbeat_s"}
        assert ADDRESS.fullmatch(fact["feed"])


def test_the_native_coin_and_its_wrapper_have_the_same_feed() -> None:
    for chain, facts in PRICES["chainlink"].items():
        native = f"eip155:{CHAINS[chain]['chain_id']}/slip44:"
        natives = [fact for asset, fact in facts.items() if asset.startswith(native)]
        wrapper = f"eip155:{CHAINS[chain]['chain_id']}/erc20:{CHAINS[chain]['wrapped']['address']}"
        assert natives == [facts[wrapper]]


@needs_registry
def test_chains_are_those_of_the_viem_registry() -> None:
    chains_by_id = {chain["chain_id"]: chain for chain in registry("evm_chains.json.gz")}
    for chain in CHAINS.values():
        theirs = chains_by_id[chain["chain_id"]]
        assert chain["native"]["symbol"].upper() == theirs["native"]["symbol"].upper()
        assert chain["native"]["decimals"] == theirs["native"]["decimals"]


@needs_registry
def test_feeds_are_dollar_feeds_of_the_chainlink_registry() -> None:
    feeds = {(int(f["chainId"]), f["proxyAddress"].lower()): f for f in registry("chainlink_feeds.json.gz")}
    lines = gzip.decompress((REGISTRY / "chainlink_feeds_2025.csv.gz").read_bytes()).decode().splitlines()
    newer = {(row["chain"], row["address"]): row for row in csv.DictReader(lines) if row["provider"] == "chainlink"}
    for chain, asset, fact in FEEDS:
        theirs = feeds.get((CHAINS[chain]["chain_id"], fact["feed"]))
        if theirs is None:
            row = newer[chain, fact["feed"]]
            assert row["pair"].endswith(" / USD"), asset
            assert fact["decimals"] == int(row["decimals"])
            continue
        assert theirs["name"].endswith(" / USD"), asset
        assert 10 ** fact["decimals"] == int(theirs["multiply"])


# --- protocols -------------------------------------------------------------------------------------------------------


def contracts_of(key: str) -> list[tuple[str, str, str]]:
    """Chain, role and address of every contract of a protocol."""
    return places_of(PROTOCOLS[key])


def places_of(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (chain, role, address)
        for chain, roles in facts["contracts"].items()
        for role, addresses in roles.items()
        for address in addresses
    ]


@pytest.mark.parametrize("key", PROTOCOLS)
def test_the_contracts_of_a_protocol_lie_on_chains_we_know(key: str) -> None:
    assert PROTOCOLS[key]["key"] == key
    assert PROTOCOLS[key]["contracts"].keys() <= EVERY.keys()
    assert contracts_of(key) or PROTOCOLS[key]["contracts"] == {}  # one of every chain names none
    for chain, _, address in contracts_of(key):
        _, is_address = LOADS[EVERY[chain]["kind"]]
        assert is_address(address)
        assert address != ZERO


def test_no_contract_is_of_two_protocols_nor_everybodys() -> None:
    contracts = [(chain, address) for key in PROTOCOLS for chain, _, address in contracts_of(key)]
    assert len(contracts) == len(set(contracts))
    permit2 = "0x000000000022d473030f116ddee9f6b43ac78ba3"
    assert permit2 not in {address for _, address in contracts}


@pytest.mark.parametrize("key", ["aerodrome", "velodrome"])
def test_each_factory_of_slipstream_has_its_position_manager(key: str) -> None:
    for roles in PROTOCOLS[key]["contracts"].values():
        assert len(roles["position_manager"]) == len(roles["cl_factory"])


@pytest.mark.parametrize("key", SPENDERS)
def test_spenders_lie_on_chains_we_know(key: str) -> None:
    assert SPENDERS[key]["key"] == key
    assert SPENDERS[key]["contracts"].keys() <= CHAINS.keys()
    assert all(ADDRESS.fullmatch(address) and address != ZERO for _, _, address in places_of(SPENDERS[key]))


def test_no_spender_has_two_names() -> None:
    contracts = [(chain, address) for facts in SPENDERS.values() for chain, _, address in places_of(facts)]
    assert len(contracts) == len(set(contracts))


@needs_registry
def test_spenders_of_uniswap_are_its_deployments() -> None:
    deployed = registry("uniswap_deployments.json")
    for key in ("uniswap", "permit2"):
        for chain, _, address in places_of(SPENDERS[key]):
            assert address in {
                deployed_address.lower() for deployed_address in deployed[str(CHAINS[chain]["chain_id"])].values()
            }


@needs_registry
@pytest.mark.parametrize("key", ["aave2", "aave3"])
def test_aave_contracts_are_those_of_its_address_book_for_that_version(key: str) -> None:
    names = {
        "pool": "POOL",
        "addresses_provider": "POOL_ADDRESSES_PROVIDER",
        "data_provider": "AAVE_PROTOCOL_DATA_PROVIDER",
        "native_gateway": "WETH_GATEWAY",
    }
    book_entries = {
        (market["CHAIN_ID"], role, market[name].lower())
        for book, market in registry("aave_markets.json.gz").items()
        if book.startswith(f"AaveV{key[-1]}")
        for role, name in names.items()
        if name in market
    }
    assert {(CHAINS[chain]["chain_id"], role, address) for chain, role, address in contracts_of(key)} <= book_entries


@needs_registry
@pytest.mark.parametrize("key", ["uniswap2", "uniswap3", "uniswap4"])
def test_uniswap_contracts_are_those_of_its_deployments(key: str) -> None:
    names = {
        "uniswap2": {"factory": "UniswapV2Factory", "router": "UniswapV2Router02"},
        "uniswap3": {
            "factory": "UniswapV3Factory",
            "position_manager": "NonfungiblePositionManager",
            "router": "SwapRouter",
            "migrator": "V3Migrator",
        },
        "uniswap4": {
            "pool_manager": "PoolManager",
            "position_manager": "PositionManager",
            "state_view": "StateView",
        },
    }[key]
    deployed = json.loads((REGISTRY / "uniswap_deployments.json").read_text())
    for chain, role, address in contracts_of(key):
        assert deployed[str(CHAINS[chain]["chain_id"])][names[role]].lower() == address


# --- forks -----------------------------------------------------------------------------------------------------------

with (CONFIGS / "protocols" / "forks.csv").open(newline="") as file:
    FORKS = list(csv.DictReader(file))


def test_forks_lie_on_chains_we_know_each_contract_once() -> None:
    assert {row["chain"] for row in FORKS} <= CHAINS.keys()
    assert all(ADDRESS.fullmatch(row["address"]) and row["address"] != ZERO for row in FORKS)
    contracts = [(row["chain"], row["address"]) for row in FORKS]
    assert len(contracts) == len(set(contracts))
    assert not {(chain, address) for key in PROTOCOLS for chain, _, address in contracts_of(key)} & set(contracts)


def test_no_row_of_forks_names_a_release_of_aave() -> None:
    """Registries name many markets of V3 as V2, so the contracts say which release they are."""
    rows = {row["protocol"]: row["family"] for row in FORKS}
    assert {rows[key] for key in ("spark_fi", "zerolend", "kinza", "seamless", "hyperlend", "aave_v3")} == {"aave"}
    assert not {"aave_v2", "aave_v3"} & {*rows.values()}


@needs_registry
def test_what_was_generated_is_what_the_registry_says_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "configs"
    shutil.copytree(CONFIGS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    generated = [Path("price_contracts.toml"), *sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.csv"))]
    for path in generated:
        (copy / path).unlink()
    monkeypatch.setattr(generate, "CONFIGS", copy)
    generate.main(REGISTRY)
    assert sorted(path.relative_to(copy) for path in copy.rglob("*.csv")) == generated[1:]
    for path in generated:
        assert (copy / path).read_bytes() == (CONFIGS / path).read_bytes(), path


@pytest.mark.parametrize("key", POOLS)
def test_prices_are_taken_in_tokens_of_the_chain_at_factories_of_known_venues(key: str) -> None:
    source = build_pools(POOLS[key], key)
    assert {quote.chain for quote in source.quotes} == {f"eip155:{CHAINS[key]['chain_id']}"}
    assert f"erc20:{CHAINS[key]['wrapped']['address']}" in {str(each).partition("/")[2] for each in source.quotes}
    assert source.venues


def test_the_venues_of_a_chain_are_of_every_family_that_has_them_there() -> None:
    families = {key: {venue["family"] for venue in section["venues"]} for key, section in POOLS.items()}
    assert families["ethereum"] == {"uniswap_v2", "uniswap_v3", "uniswap_v4", "curve_ng", "balancer_v2"}
    assert families["base"] == {"uniswap_v2", "uniswap_v3", "uniswap_v4", "solidly", "slipstream", "curve_ng"}
    assert families["optimism"] >= {"solidly", "slipstream", "curve_ng"}


def test_a_user_of_ethereum_has_prices_from_pools_in_coins_that_have_feeds() -> None:
    feeds = PRICES["chainlink"]["ethereum"].keys()
    assert [venue["name"] for venue in POOLS["ethereum"]["venues"]][:2] == ["Uniswap V2", "Uniswap V3"]
    assert {CHAINS["ethereum"]["wrapped"]["address"]} < {each.partition(":0x")[2] and each[-42:] for each in feeds}
    assert {asset for asset in POOLS["ethereum"]["quotes"] if asset not in feeds} <= {WBTC_OF_ETHEREUM}


def test_a_row_that_is_a_guess_dead_or_of_a_source_without_licence_is_left_out() -> None:
    row = {
        "slug": "pan-swap",
        "family": "uniswap_v2",
        "chain": "base",
        "role": "factory",
        "address": "0x" + "01" * 20,
        "confidence": "registry",
        "dead": "",
        "source": "registries/uniswapV2.js",
    }

    def fork_rows(**changed: str) -> list[tuple[str, ...]]:
        return list(generate.forks([row | changed], {"base"}, {"mine": {("base", "0x" + "02" * 20)}}))

    assert fork_rows() == [("pan_swap", "Pan Swap", "uniswap_v2", "base", "factory", "0x" + "01" * 20)]
    assert fork_rows(slug="9mine", family="erc4626", role="vault")[0][0] == "p9mine"
    assert fork_rows(slug="mine")[0][0] == "mine_uniswap_v2"
    assert fork_rows(slug="币")[0][:2] == ("p", "币")
    for changed in (
        {"confidence": "abi"},
        {"dead": "1"},
        {"source": "euler-labels"},
        {"chain": "solana"},
        {"role": "router"},
        {"address": ZERO},
        {"address": "0x01"},
        {"address": "0x" + "02" * 20},
    ):
        assert fork_rows(**changed) == []


def test_protocols_whose_names_give_the_same_key_are_numbered() -> None:
    rows = [
        {
            "slug": slug,
            "family": "uniswap_v2",
            "chain": "base",
            "role": "factory",
            "address": f"0x{number:040x}",
            "confidence": "registry",
            "dead": "",
            "source": "registries/uniswapV2.js",
        }
        for number, slug in enumerate(("a-b", "a.b", "a_b", "a b"), 1)
    ]
    keys = ["a_b", "a_b_uniswap_v2", "a_b_uniswap_v2_2", "a_b_uniswap_v2_3"]
    assert [row[0] for row in generate.forks(rows, {"base"}, {})] == keys
