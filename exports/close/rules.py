"""Rules between the tables of a pack, such as forms of cells and sums."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from chainfolio.exports.close.check_pack import CLASSES, ENDS, NUMBER, UNKNOWN, fraction, number, total

if TYPE_CHECKING:
    from chainfolio.exports.close.check_pack import Manifest, Tables

KEYS: Final = {  # columns whose cells name one row
    "accounts": "address",
    "assets": "asset",
    "balances": "account chain asset",
    "blocks": "end chain",
    "closings": "asset wallet",
    "prices": "end chain asset",
    "proofs": "end chain account asset",
    "remaining": "end asset wallet",
    "rollforward": "asset",
}
NUMBERS: Final = re.compile(
    "decimals|opening|closing|moved|unexplained|height|rate|inWallet|inProtocols|deposited|difference|time_us|quantity"
    "|value|fee|raw|proceeds|cost|gain|price|usd|block|unasked|short|.*(Raw|Cost|Value)"
)
TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")


def form_faults(manifest: Manifest, tables: Tables) -> list[str]:
    """Return the cells that are no numbers or times in their one form."""
    faults = [f"{end}: no instant" for end in ENDS if not TIME.fullmatch(manifest["period"][end])]
    for name, rows in tables.items():
        for row in rows if name != "transactions" else ():
            for column, cell in row.items():
                is_number = NUMBERS.fullmatch(column) is not None
                if (is_number and cell not in ("", UNKNOWN) and not NUMBER.fullmatch(cell)) or (
                    column in ("time", "observed") and cell and not TIME.fullmatch(cell)
                ):
                    faults.append(f"{name}, {column}: {cell[:40]!r} is not in the form of such cells")
                if column == "decimals" and len(cell) > 3:
                    faults.append(f"{name}: {cell[:40]} decimals")
    return faults


def table_faults(manifest: Manifest, tables: Tables) -> list[str]:
    """Return what contradicts between tables: rows that are there twice or not at all, and blocks."""
    faults, listed = [], {row["address"] for row in tables["accounts"]}
    for name, columns in KEYS.items():
        keys = Counter(tuple(row[column] for column in columns.split()) for row in tables[name])
        faults += [f"{name} has {key} twice" for key, count in keys.items() if count > 1]
    for name in ("balances", "movements", "holdings"):
        faults += [f"{name}: {row['account']} is not listed" for row in tables[name] if row["account"] not in listed]
    faults += [f"{each} has no balance" for each in listed - {row["account"] for row in tables["balances"]}]
    blocks = {(row["end"], row["chain"]): row for row in tables["blocks"]}
    if {*blocks} != {(end, chain) for end in ENDS for chain in manifest["chains"]}:
        faults.append("the blocks are not those of the chains of the manifest at both ends")
    if manifest["currency"] == "USD" and any(fraction(row["rate"]) != 1 for row in tables["blocks"]):
        faults.append("a rate of USD is not 1")
    heights = {place: int(row["height"]) for place, row in blocks.items()}
    for chain in manifest["chains"]:
        if heights["opening", chain] >= heights["closing", chain]:
            faults.append(f"{chain}: the closing is not after the opening")
    for row in tables["movements"]:
        if not heights["opening", row["chain"]] < int(row["block"]) <= heights["closing", row["chain"]]:
            faults.append(f"a movement of {row['asset']} in block {row['block']} is not of the period")
    gains = [(row["asset"], row["proceeds"]) for row in tables["gains"] if row["kind"] == "income"]
    days = [(f"{row['chain']}:{row['contract']}", row["value"]) for row in tables["income"]]
    incomes, of_days = (
        {asset: total(number(value) for other, value in pairs if other == asset) for asset, _ in pairs}
        for pairs in (gains, days)
    )
    if incomes != of_days:
        faults.append("income by day is not that of the gains")
    return [*faults, *holding_faults(tables), *closing_faults(tables, listed)]


def holding_faults(tables: Tables) -> list[str]:
    """Return what contradicts between holdings, balances and assets."""
    faults, in_wallets = [], set()
    balances = {(end, row["account"], row["asset"]): row for row in tables["balances"] for end in ENDS}
    decimals = {row["asset"]: row["decimals"] for row in tables["assets"]}
    for row in tables["holdings"]:
        place, flag = (row["end"], row["account"], row["asset"]), row["flag"]
        is_native, counts_as = row["asset"].startswith("eip155:") and "/slip44:" in row["asset"], row["countsAs"]
        is_priced = row["price"] != UNKNOWN and row["decimals"] != ""
        rules = {
            "an end": row["end"] in ENDS,
            "a side": row["side"] in ("owned", "owed", "claimable"),
            "these decimals": (row["decimals"] in ("", decimals.get(counts_as)))
            and (not is_native or row["decimals"] == "18"),
            "this flag": flag == "spam"
            or (flag in ("", "capped") and is_priced)
            or (flag == "unvalued" and not is_priced),
            "a value from 0 on": not row["value"].startswith("-"),
        }
        if row["protocol"] == "wallet":
            rules["one row"] = place not in in_wallets
            rules["the asset and side of its balance"] = (
                place in balances and balances[place]["countsAs"] == counts_as and row["side"] == "owned"
            )
            in_wallets.add(place)
        faults += [
            f"the holding {place} in {row['protocol']} has not {name}" for name, holds in rules.items() if not holds
        ]
    for place, row in balances.items():
        if row[place[0]] not in ("0", UNKNOWN) and place not in in_wallets:
            faults.append(f"the balance {place} is in no row of holdings")
        if row[f"{place[0]}Evidence"] == CLASSES[1]:
            faults.append(f"the balance {place} is {CLASSES[1]}, which version 1 has not")
    return faults


def closing_faults(tables: Tables, listed: set[str]) -> list[str]:
    """Return what contradicts between lots and balances at the closing."""
    held: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in tables["balances"]:
        for wallet in (row["account"], ""):
            held[row["countsAs"], wallet].append(row["closing"])
    closings = {(row["asset"], row["wallet"]): row for row in tables["closings"]}
    faults = []
    for place, row in closings.items():
        cells = held[place if place[1] in listed else (place[0], "")]
        if UNKNOWN not in cells and int(row["inWallet"]) != sum(map(int, cells)):
            faults.append(f"lots of {place[0]}: {row['inWallet']} are stated, and not the balances: {cells}")
    assets = {asset for asset, _ in closings}
    lots = {row["asset"] for row in tables["remaining"] if row["end"] == "closing"}
    loose = [row for row in tables["holdings"] if (row["end"], row["protocol"]) == ("closing", "wallet")]
    lots |= {row["countsAs"] for row in loose if row["decimals"]}  # shares of positions have no lots
    missing = sorted(each for each in lots - assets if each.count(":") == 1)  # collectibles have no comparison
    return [*faults, *(f"lots of {each} are not compared with balances" for each in missing)]
