"""Facts of configs/ out of public registries:  python -m configs.generate REGISTRY

REGISTRY is a folder with `protocols.csv.gz` and `tokens/<chain>.csv.gz`: registries that were collected from public
repositories, with the source of each row. Written are `protocols/forks.csv` and the token registries
`tokens/<chain>.csv`. The same input gives the same bytes. What is taken, from whom, and what is left out:
docs/how-to/configs.md.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

CONFIGS = Path(__file__).parent
ADDRESS = re.compile(r"0x[0-9a-f]{40}\Z")
ZERO = "0x" + "0" * 40
MAX_KEY = 32

# The role that a row's address has in one of our families. A family's other roles say nothing that its decoder reads.
ROLES = {
    ("uniswap_v2", "factory"): ("uniswap_v2", "factory"),
    ("uniswap_v3", "factory"): ("uniswap_v3", "factory"),
    ("aave_v2", "pool"): ("aave_v2", "pool"),
    ("aave_v2", "data_provider"): ("aave_v2", "data_provider"),
    ("aave_v2", "addresses_provider_registry"): ("aave_v2", "addresses_provider_registry"),
    ("aave_v3", "data_provider"): ("aave_v3", "data_provider"),
    ("compound_v2", "comptroller"): ("compound_v2", "comptroller"),
    ("masterchef", "masterchef"): ("masterchef", "farm"),
    ("balancer_v2", "vault"): ("balancer_v2", "vault"),
    ("erc4626", "vault"): ("erc4626", "vault"),
    ("morpho_vault", "vault"): ("erc4626", "vault"),
    ("euler_vault", "vault"): ("erc4626", "vault"),
    ("yearn_vault", "vault_v3"): ("erc4626", "vault"),
    ("staking", "owner"): ("staking_rewards", "staking"),
    ("pool2", "owner"): ("staking_rewards", "staking"),
}
LAST = "staking_rewards"  # of whose contracts it is not known how they are asked: any other family goes first
TRUSTED = ("registry", "helper")  # kept by the source as data of this family; another confidence is a guess
SOURCES = ("projects/", "registries/", "dimension-adapters:", "yearn/")  # ISC, ISC, ISC, MIT
FORKS = ("protocol", "name", "family", "chain", "role", "address")

# Lists of tokens whose own licence lets facts be carried over (MIT, Apache-2.0, ISC, MPL-2.0). Others do not count.
LISTS = frozenset((
    "aave", "arbitrum", "balancer", "bitgo", "blockscout", "celo", "coingecko", "cow", "ethlists", "ledger", "lifi",
    "linea", "mantle", "metamask", "optimism", "paraswap", "pancakeswap", "rainbow", "scroll", "sequence", "superchain",
    "superfluid", "swapkit", "traderjoe", "trustwallet", "viaprotocol",
))  # fmt: skip
ENOUGH_LISTS = 2
MAX_DECIMALS = 36
TOKENS = ("address", "lists", "decimals", "symbol", "name")


def main(registry: Path) -> None:
    """Write all files anew and say what is in them."""
    chains = {path.stem for path in (CONFIGS / "chains").glob("*.toml")}
    with gzip.open(registry / "protocols.csv.gz", "rt", newline="") as file:
        rows = list(forks(csv.DictReader(file), chains, by_hand()))
    write(CONFIGS / "protocols" / "forks.csv", FORKS, rows)
    print(f"protocols/forks.csv: {len({row[0] for row in rows})} protocols, {len(rows)} contracts")
    for chain in sorted(chains):
        if found := tokens(registry / "tokens", chain):
            write(CONFIGS / "tokens" / f"{chain}.csv", TOKENS, found)
            print(f"tokens/{chain}.csv: {len(found)} tokens")


def by_hand() -> dict[str, set[tuple[str, str]]]:
    """Chain and address of each contract that a file written by hand names, by the key of its protocol."""
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
    """The forks that our families read, in the order of their keys; each contract once, with the row trusted most,
    and none of which sources say different families."""
    taken: dict[tuple[str, str], tuple[tuple[bool, bool, str, str], tuple[str, ...]]] = {}
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
        order = family == LAST, row["confidence"] != "registry", row["slug"], family
        if place not in taken or order < taken[place][0]:
            taken[place] = order, (row["slug"], family, row["chain"], ours, row["address"])
    found = [fork for place, (_, fork) in taken.items() if len(claimed[place] - {LAST}) <= 1]
    keys = _keys({(slug, family) for slug, family, *_ in found}, set(known))
    yield from sorted((keys[fork[0], fork[1]], _name(fork[0]), *fork[1:]) for fork in found)


def _keys(protocols: set[tuple[str, str]], taken: set[str]) -> dict[tuple[str, str], str]:
    """A key of its own for each family of each protocol: roles of two families may have one name."""
    keys: dict[tuple[str, str], str] = {}
    for slug, family in sorted(protocols, key=lambda each: (each[1] == LAST, each)):
        plain = re.sub(r"[^a-z0-9]+", "_", slug.lower()).strip("_")
        plain = plain if plain[0].isalpha() else f"p{plain}"  # a key begins with a letter
        tries = (plain[:MAX_KEY], f"{plain[: MAX_KEY - len(family) - 1]}_{family}")
        keys[slug, family] = next(key for key in tries if key not in taken)
        taken.add(keys[slug, family])
    return keys


def _name(slug: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in re.split(r"[-_ ]+", slug) if word)


def tokens(folder: Path, chain: str) -> list[tuple[str, ...]]:
    """The tokens of a chain that enough lists name: those that most lists name first. A name is left out where it is
    the symbol."""
    own, others = folder / f"{chain}.csv.gz", folder / "other_evm.csv.gz"
    with gzip.open(own if own.exists() else others, "rt", newline="", encoding="utf-8") as file:
        found = [
            (count, row["address"], row["decimals"], symbol, name if name != symbol else "")
            for row in csv.DictReader(file)
            if row.get("chain", chain) == chain and ADDRESS.match(row["address"]) and row["address"] != ZERO
            if (count := len(LISTS & set(row["lists"].split("|")))) >= ENOUGH_LISTS
            if int(row["decimals"]) <= MAX_DECIMALS and (symbol := printable(row["symbol"]))
            for name in [printable(row["name"])]
        ]
    return [(address, str(count), *rest) for count, address, *rest in sorted(found, key=lambda row: (-row[0], row[1]))]


def printable(text: str) -> str:
    """A text on one line, without what is not seen."""
    return " ".join("".join(char for char in text if char.isprintable() or char.isspace()).split())


def write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A file of comma-separated values with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "protocols.csv.gz").exists():
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
