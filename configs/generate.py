"""Generate facts of configs/ from public registries: `python -m chainfolio.configs.generate REGISTRY`.

REGISTRY is a folder with `protocols.csv.gz` and `tokens/<chain>.csv.gz`: registries that were collected from public
repositories, with the source of each row. Written are `protocols/forks.csv`, the token registries
`tokens/<chain>.csv`, and `price_contracts.toml`: the contracts on chain that prices come from. The same input gives
the same bytes. What is taken, from whom, and what is left out: docs/how-to/configs.md.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from chainfolio.configs.label_sources import LABELS, address_labels

CONFIGS = Path(__file__).parent
ADDRESS = re.compile(r"0x[0-9a-f]{40}\Z")
KEY = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,44}\Z")  # of Solana, in base58
TRON = re.compile(r"T[1-9A-HJ-NP-Za-km-z]{33}\Z")
ZERO = "0x" + "0" * 40
NATIVE_KEY = "1" * 32  # as some lists write the native coin of Solana
MAX_KEY = 32

# The role that a row's address has in one of our families. A family's other roles say nothing that its decoder reads.
ROLES = {
    ("uniswap_v2", "factory"): ("uniswap_v2", "factory"),
    ("uniswap_v3", "factory"): ("uniswap_v3", "factory"),
    ("algebra", "factory"): ("algebra", "factory"),
    ("solidly", "factory"): ("solidly", "factory"),
    # The registry names many markets of V3 as V2: which release a market is, its contracts say, and no list.
    ("aave_v2", "pool"): ("aave", "pool"),
    ("aave_v2", "data_provider"): ("aave", "data_provider"),
    ("aave_v2", "addresses_provider_registry"): ("aave", "addresses_provider_registry"),
    ("aave_v3", "data_provider"): ("aave", "data_provider"),
    ("compound_v2", "comptroller"): ("compound_v2", "comptroller"),
    ("masterchef", "masterchef"): ("masterchef", "farm"),
    ("balancer_v2", "vault"): ("balancer_v2", "vault"),
    ("erc4626", "vault"): ("erc4626", "vault"),
    ("morpho_vault", "vault"): ("erc4626", "vault"),
    ("euler_vault", "vault"): ("erc4626", "vault"),
    ("yearn_vault", "vault_v3"): ("erc4626", "vault"),
    ("yearn_vault", "vault_v2"): ("yearn_v2", "vault"),
    ("staking", "owner"): ("staking_rewards", "staking"),
    ("pool2", "owner"): ("staking_rewards", "staking"),
}
LAST = "staking_rewards"  # of whose contracts it is not known how they are asked: any other family goes first
# Families that lists also name by the family that they are like: the first one is meant.
SPECIAL = {"solidly": "uniswap_v2", "algebra": "uniswap_v3"}
TRUSTED = ("registry", "helper")  # kept by the source as data of this family; another confidence is a guess
SOURCES = ("projects/", "registries/", "dimension-adapters:", "yearn/")  # ISC, ISC, ISC, MIT
FORKS = ("protocol", "name", "family", "chain", "role", "address")

# Lists of tokens whose own licence lets facts be carried over (MIT, Apache-2.0, ISC, MPL-2.0). Others do not count.
LISTS = frozenset(
    [
        "aave",
        "arbitrum",
        "balancer",
        "bitgo",
        "blockscout",
        "celo",
        "coingecko",
        "cow",
        "ethlists",
        "ledger",
        "lifi",
        "linea",
        "mantle",
        "metamask",
        "optimism",
        "paraswap",
        "pancakeswap",
        "rainbow",
        "scroll",
        "sequence",
        "superchain",
        "spl_registry",
        "superfluid",
        "swapkit",
        "traderjoe",
        "trustwallet",
        "viaprotocol",
    ]
)
ENOUGH_LISTS = 2
MAX_DECIMALS = 36
TOKENS = ("address", "lists", "decimals", "symbol", "name")

# Venues whose pools are trusted to trade as their families do: (protocol, family) -> name and how the venue differs.
# Of Uniswap's own, the files written by hand name the factories; of these forks, the registry does.
FEES = "[100, 500, 3000, 10000]"
VENUES = {
    ("uniswap2", "uniswap_v2"): ("Uniswap V2", ""),
    ("uniswap3", "uniswap_v3"): ("Uniswap V3", f", fees = {FEES}"),
    ("sushiswap", "uniswap_v2"): ("SushiSwap", ""),
    ("pancake_swap", "uniswap_v2"): ("PancakeSwap V2", ""),
    ("pancakeswap_v3", "uniswap_v3"): ("PancakeSwap V3", ", fees = [100, 500, 2500, 10000]"),
}
# Venues whose families have no decoder of positions: (protocol, role) in the registry -> family, name, how it differs.
SPACINGS = ", spacings = [1, 50, 100, 200, 2000]"
MARKETS = {
    ("aerodrome", "factory"): ("solidly", "Aerodrome", ""),
    ("velodrome-v2", "factory"): ("solidly", "Velodrome V2", ""),
    ("aerodrome-CL", "factory"): ("slipstream", "Slipstream", SPACINGS),
    ("velodrome-CL", "factory"): ("slipstream", "Velodrome Slipstream", SPACINGS),
    ("quickswap-v3", "factory"): ("algebra", "QuickSwap V3", ""),
    ("thena-v3", "factory"): ("algebra", "THENA", ""),
    ("camelot-v2", "factory"): ("algebra", "Camelot V3", ""),
    ("curve", "CurveStableswapFactoryNG"): ("curve_ng", "Curve", ""),
}
# Pools of Balancer V2, which no contract finds: the ids of those whose code is of the kinds that a test deploys.
BALANCER_POOLS = {"ethereum": ("0x5c6ee304399dbdb9c8ef030ab642b10820db8f56000200000000000000000014",)}  # BAL and WETH
# What a pool has to be able to pay of a token that prices are taken in: about 10,000 USD. By the symbols of the tokens
# that a chain lists itself, and of its wrapped native coin.
ENOUGH = {
    "USDC": "10000",
    "USDT": "10000",
    "USD₮0": "10000",
    "USDt": "10000",
    "DAI": "10000",
    "USDC.e": "10000",
    "DAI.e": "10000",
    "USDT.e": "10000",
    "USDbC": "10000",
    "WETH": "4",
    "WETH.e": "4",
    "ETH": "4",
    "WBTC": "0.1",
    "BTCB": "0.1",
    "WBNB": "15",
    "WAVAX": "400",
    "WXDAI": "10000",
    "WPOL": "25000",
    "WFTM": "30000",
    "WMNT": "10000",
    "WMON": "200000",
    "wS": "40000",
    "WHYPE": "300",
    "WCRO": "100000",
}


def main(registry: Path) -> None:
    """Write all files of known contracts anew from a folder of registries, and print what is in them."""
    chains = {path.stem for path in (CONFIGS / "chains").glob("*.toml")}
    with gzip.open(registry / "protocols.csv.gz", "rt", newline="") as file:
        registered = list(csv.DictReader(file))
    rows = list(forks(registered, chains, by_hand()))
    write(CONFIGS / "protocols" / "forks.csv", FORKS, rows)
    print(f"protocols/forks.csv: {len({row[0] for row in rows})} protocols, {len(rows)} contracts")
    for chain in sorted(chains):
        if found := tokens(registry / "tokens", chain):
            write(CONFIGS / "tokens" / f"{chain}.csv", TOKENS, found)
            print(f"tokens/{chain}.csv: {len(found)} tokens")
    found_labels = [(*row[:2], printable(row[2]), *row[3:]) for row in address_labels(registry, chains)]
    write(CONFIGS / "labels.csv", LABELS, found_labels)
    print(f"labels.csv: {len(found_labels)} addresses")
    of_evm = [key for key, kind in kinds().items() if kind == "evm"]
    text = "\n".join([PRICES_HEAD, *pools(of_evm, rows, registered), *shares(of_evm, registered)])
    (CONFIGS / "price_contracts.toml").write_text(text, encoding="utf-8")
    print(f"price_contracts.toml: {text.count('{family')} venues of {text.count('.quotes]')} chains")


def by_hand() -> dict[str, set[tuple[str, str]]]:
    """Return chain and address of each contract in files written by hand, by the key of the protocol."""
    files = [tomllib.loads(path.read_text()) for path in sorted((CONFIGS / "protocols").glob("*.toml"))]
    return {
        file["key"]: {
            (chain, address)
            for chain, roles in file["contracts"].items()
            for addresses in roles.values()
            for address in addresses
        }
        for file in files
    }


def forks(
    rows: Iterable[dict[str, str]], chains: set[str], known: dict[str, set[tuple[str, str]]]
) -> Iterator[tuple[str, ...]]:
    """Yield the forks that our families read, in the order of their keys.

    Each contract comes once, from its most trusted row. Contracts that sources give to different families are left out.
    """
    taken: dict[tuple[str, str], tuple[tuple[str, bool, str, str], tuple[str, ...]]] = {}
    claimed: dict[tuple[str, str], set[str]] = {}
    written = {place for places in known.values() for place in places}
    for row in rows:
        place = row["chain"], row["address"]
        role = ROLES.get((row["family"], row["role"]))
        sound = row["chain"] in chains and ADDRESS.match(row["address"]) and row["address"] != ZERO
        if not (role and sound and row["confidence"] in TRUSTED and row["source"].startswith(SOURCES)):
            continue
        if row["dead"] == "1" or place in written:
            continue
        family, ours = role
        claimed.setdefault(place, set()).add(family)
        likeness = LAST if family == LAST else "" if family in SPECIAL else "like"
        order = likeness, row["confidence"] != "registry", row["slug"], family
        if place not in taken or order < taken[place][0]:
            taken[place] = order, (row["slug"], family, row["chain"], ours, row["address"])
    likened = {LAST, *SPECIAL.values()}
    found = [
        fork
        for place, (_, fork) in taken.items()
        if len(claimed[place] - (likened if claimed[place] & SPECIAL.keys() else {LAST})) <= 1
    ]
    keys = _keys({(slug, family) for slug, family, *_ in found}, set(known))
    yield from sorted((keys[fork[0], fork[1]], _name(fork[0]), *fork[1:]) for fork in found)


def _keys(protocols: set[tuple[str, str]], taken: set[str]) -> dict[tuple[str, str], str]:
    """Return a unique key for each pair of protocol and family, and add the keys to `taken`.

    The key is the protocol's name in lower case, with `_` for other characters and a `p` before a digit, cut at
    `MAX_KEY`. The family is appended if that key is taken, because a protocol may be in two families, and a number if
    that is taken, too. Pairs of the family `LAST` get their keys last.
    """
    keys: dict[tuple[str, str], str] = {}
    for slug, family in sorted(protocols, key=lambda each: (each[1] == LAST, each)):
        plain = re.sub(r"[^a-z0-9]+", "_", slug.lower()).strip("_")
        plain = plain if plain[:1].isalpha() else f"p{plain}"  # a key begins with a letter
        keys[slug, family] = next(key for key in _candidate_keys(plain, family) if key not in taken)
        taken.add(keys[slug, family])
    return keys


def _candidate_keys(plain: str, family: str) -> Iterator[str]:
    """Yield keys of at most MAX_KEY characters without end: the name alone, with the family, and with a number."""
    yield plain[:MAX_KEY]
    for number in count(1):
        ending = f"_{family}" if number == 1 else f"_{family}_{number}"
        yield f"{plain[: MAX_KEY - len(ending)]}{ending}"


def _name(slug: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in re.split(r"[-_ ]+", slug) if word)


def tokens(folder: Path, chain: str) -> list[tuple[str, ...]]:
    """Return the tokens of a chain that enough lists name, those that most lists name first.

    The name is empty if it equals the symbol.
    """
    address = {"solana": KEY, "tron": TRON}.get(chain, ADDRESS)
    own, others = folder / f"{chain}.csv.gz", folder / "other_evm.csv.gz"
    with gzip.open(own if own.exists() else others, "rt", newline="", encoding="utf-8") as file:
        found = [
            (count, row["address"], row["decimals"], symbol, name if name != symbol else "")
            for row in csv.DictReader(file)
            if row.get("chain", chain) == chain and address.match(row["address"])
            if row["address"] not in (ZERO, NATIVE_KEY)
            if (count := len(LISTS & set(row["lists"].split("|")))) >= ENOUGH_LISTS
            if int(row["decimals"]) <= MAX_DECIMALS and (symbol := printable(row["symbol"]))
            for name in [printable(row["name"])]
        ]
    return [(address, str(count), *rest) for count, address, *rest in sorted(found, key=lambda row: (-row[0], row[1]))]


PRICES_HEAD = "# Generated by `python -m chainfolio.configs.generate`. What the keys mean: docs/how-to/configs.md.\n"


def pools(
    chains: Iterable[str], rows: Iterable[tuple[str, ...]], registered: Iterable[dict[str, str]]
) -> Iterator[str]:
    """Yield the lines of venues and trusted tokens, chain by chain, without chains that lack one of them."""
    others = markets(registered)
    listed = {(row[0], row[2], row[3]): row[5] for row in rows if row[4] == "factory"}
    for protocol, family in VENUES:
        known = contracts(protocol)
        listed |= {(protocol, family, chain): own["factory"][0] for chain, own in known.items() if "factory" in own}
    for chain in chains:
        venues = [
            f'  {{family = "{family}", name = "{name}", factory = "{listed[protocol, family, chain]}"{more}}},'
            for (protocol, family), (name, more) in VENUES.items()
            if (protocol, family, chain) in listed
        ]
        venues += v4_venues(chain)
        venues += [
            f'  {{family = "{family}", name = "{name}", factory = "{factory}"{more}}},'
            for family, name, factory, more in others.get(chain, ())
        ]
        venues += balancer_venues(chain)
        quotes = list(trusted(chain))
        if venues and quotes:
            yield from (f"[pools.{chain}]", "venues = [", *venues, "]", f"[pools.{chain}.quotes]", *quotes, "")


def v4_venues(chain: str) -> Iterator[str]:
    """Yield the line of Uniswap V4, which has no factory: its pools are numbers, read by a view contract.

    None for a chain without that contract or without a wrapped coin.
    """
    wrapped = facts_of(chain).get("wrapped", {}).get("address")
    for view in contracts("uniswap4").get(chain, {}).get("state_view", ()):
        if wrapped:
            yield (
                f'  {{family = "uniswap_v4", name = "Uniswap V4", state_view = "{view}", wrapped = "{wrapped}", '
                f"fees = {FEES}, spacings = [1, 10, 60, 200]}},"
            )


def markets(registered: Iterable[dict[str, str]]) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return the venues of `MARKETS` by chain, in the order there: family, name, factory, other settings.

    Dead contracts and those of other sources are left out.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for row in registered:
        sound = ADDRESS.match(row["address"]) and row["dead"] != "1" and row["source"].startswith(SOURCES)
        if sound and (key := (row["slug"], row["role"])) in MARKETS:
            found.setdefault(row["chain"], []).append((list(MARKETS).index(key), row["address"]))
    own = list(MARKETS.values())
    return {
        chain: [(*own[at][:2], factory, own[at][2]) for at, factory in sorted(each)] for chain, each in found.items()
    }


def balancer_venues(chain: str) -> Iterator[str]:
    """Yield the line of Balancer V2 with its chosen pools; none for a chain without them."""
    if chain in BALANCER_POOLS:
        yield f'  {{family = "balancer_v2", name = "Balancer V2", {balancer_pools(chain)}}},'


def balancer_pools(chain: str) -> str:
    """Return the vault of Balancer V2 and its chosen pools on a chain, as TOML."""
    (vault,) = contracts("balancer2")[chain]["vault"]
    return f'vault = "{vault}", pools = [{", ".join(map(quoted, BALANCER_POOLS[chain]))}]'


def contracts(protocol: str) -> dict[str, dict[str, list[str]]]:
    """Return the contracts of a protocol by chain and role; empty if no file written by hand has it."""
    path = CONFIGS / "protocols" / f"{protocol}.toml"
    found: dict[str, dict[str, list[str]]] = {}
    return tomllib.loads(path.read_text(encoding="utf-8"))["contracts"] if path.exists() else found


# Who vouches for shares: the role in which a file written by hand names such contracts, and the files.
VOUCHERS = {
    "vault": ("ethena", "makerdao"),
    "data_provider": ("aave2", "aave3"),
    "comptroller": ("compound",),
    "factory": ("uniswap2",),
}
# Tokens that name their own rate: the file and role that have the token, of what it is a rate, and the function.
RATES = (
    ("lido", "wsteth", "steth", "stEthPerToken()(uint256)"),
    ("rocketpool", "reth", "", "getExchangeRate()(uint256)"),
)


# Families of pools whose factories vouch for shares, and the role in which they do.
SHARED = {"solidly": "solidly_factory", "curve_ng": "curve_factory"}


def shares(chains: Iterable[str], registered: Iterable[dict[str, str]]) -> Iterator[str]:
    """Yield the lines of the sections `[shares.CHAIN]`, in TOML; chains without entries have none.

    They name the contracts that are trusted to list shares (vaults, markets, pools), and tokens with their own rate.

    Args:
        chains: Keys of the chains, in the order of the sections.
        registered: Rows of the registry of protocols: only factories of pools come from it. All other contracts come
            from files written by hand, and from constants of this module.
    """
    others = markets(registered)
    for chain in chains:
        facts = facts_of(chain)
        native = f"eip155:{facts['chain_id']}/slip44:{facts['native']['slip44']}"
        lines = []
        for role, protocols in VOUCHERS.items():
            named = sorted({each for key in protocols for each in contracts(key).get(chain, {}).get(role, [])})
            lines += [f"{role} = [{', '.join(map(quoted, named))}]"] if named else []
        for family, role in SHARED.items():
            named = [factory for kind, _, factory, _ in others.get(chain, ()) if kind == family]
            lines += [f"{role} = [{', '.join(map(quoted, named))}]"] if named else []
        lines += [f"balancer_v2 = {{{balancer_pools(chain)}}}"] if chain in BALANCER_POOLS else []
        rates = []
        for protocol, role, of, function in RATES:
            own = contracts(protocol).get(chain, {})
            for token in own.get(role, []):
                behind = f"{native.partition('/')[0]}/erc20:{own[of][0]}" if of else native
                rates.append(
                    f'"{native.partition("/")[0]}/erc20:{token}" = {{of = "{behind}", function = "{function}"}}'
                )
        if lines or rates:
            yield from (f"[shares.{chain}]", f'native = "{native}"', *lines)
            yield from ((f"[shares.{chain}.rates]", *rates, "") if rates else ("",))


def quoted(text: str) -> str:
    """Return a text as a string of TOML; it is not escaped."""
    return f'"{text}"'


def kinds() -> dict[str, str]:
    """Return the kind of each shipped chain, by its key."""
    return {path.stem: str(facts_of(path.stem)["kind"]) for path in sorted((CONFIGS / "chains").glob("*.toml"))}


def facts_of(chain: str) -> dict[str, Any]:
    """Return the content of the file of a chain."""
    return tomllib.loads((CONFIGS / "chains" / f"{chain}.toml").read_text(encoding="utf-8"))


def trusted(chain: str) -> Iterator[str]:
    """Yield the lines of a chain's tokens that prices are taken in.

    They are its wrapped native coin and the tokens that its own list has under certain symbols.
    """
    facts = facts_of(chain)
    path = CONFIGS / "tokens" / f"{chain}.toml"
    own = tomllib.loads(path.read_text(encoding="utf-8"))["tokens"] if path.exists() else []
    tokens = {
        token["address"]: token["symbol"] for token in [*own, *([facts["wrapped"]] if "wrapped" in facts else [])]
    }
    for address, symbol in sorted(tokens.items(), key=lambda each: (each[1], each[0])):
        if symbol in ENOUGH:
            yield f'"eip155:{facts["chain_id"]}/erc20:{address}" = "{ENOUGH[symbol]}" # {symbol}'


def printable(text: str) -> str:
    """Return a text on one line, without characters that cannot be printed."""
    return " ".join("".join(char for char in text if char.isprintable() or char.isspace()).split())


def write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write a file of comma-separated values with a header, over an existing one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "protocols.csv.gz").exists():
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
