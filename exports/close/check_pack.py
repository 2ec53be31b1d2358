#!/usr/bin/env python3
"""Check the pack of a closed period offline, independent of the program that wrote it.

    python check_pack.py PACK [--signer KEY.pub]

It needs Python 3.11, pyarrow and safe-pysha3 (for Keccak), and shares no code with Chainfolio. It verifies signature,
digests and proofs, and that numbers follow from each other; it does not choose lots again: `chainfolio close check`
does. Exit code 0: all follows; 12: something does not; 13: the pack itself names gaps, or nobody says whose key it is.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet
from sha3 import keccak_256

Manifest = dict[str, Any]
Tables = dict[str, list[dict[str, str]]]
Values = dict[tuple[str, str], Fraction]
Parts = dict[tuple[str, ...], list[tuple[int, Fraction | None]]]
UNKNOWN = "N/A"
OPENZEPPELIN = "52c63247e1f47db19d5ce0460030c497f067ca4cebf71ba98eeadabe20bace00"
ONCE = {"accounts": 1, "assets": 1, "balances": 3, "closings": 2, "prices": 3, "proofs": 4, "rollforward": 1}
MONEY = Fraction(1, 10**30)  # unit of money in entries
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = (
    *("accounts", "assets", "balances", "blocks", "closings", "entries", "gains", "holdings", "income", "issues"),
    *("lots", "movements", "prices", "proofs", "remaining", "rollforward", "transactions"),
)
CLASSES = ("proven", "derived from proven", "as two sources say", "as one source says")
ENDS = ("opening", "closing")
NUMBER = re.compile(r"-?[0-9]{1,200}(\.[0-9]{1,200})?")
BITS = ("", "255 bits", "128 bits", "112 bits", "96 bits")
LEFT_OUT = ("spam", "unvalued")
SOLD = ("sell", "sent", "gift", "donate", "fee")
NOTHING = dict.fromkeys(("raw", "cost", "unasked", "short", "deposited"), "0")
NO_LOT = ("more left than is known to have come", "what others sent of it")  # reasons of gains that used no lot
PLUS, MINUS = ("opening", "additions", "income", "other"), ("disposals", "fees")


class Check:
    """Findings of a check: texts about wrong numbers and files, and about gaps of the pack itself."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.wrong: list[str] = []
        self.open: list[str] = []

    def expect(self, is_true: bool, problem: str) -> None:
        """Add a problem unless something holds."""
        if not is_true:
            self.wrong.append(problem)

    def equal(self, name: str, stated: object, follows: object) -> None:
        """Add a problem if a stated number is not the one that follows."""
        self.expect(stated == follows, f"{name}: {stated} is stated, and {follows} follows")


def number(text: str) -> Fraction | None:
    """Return a decimal text as a fraction; None for N/A."""
    return None if text == UNKNOWN else fraction(text)


def fraction(text: str) -> Fraction:
    """Return a decimal text of bounded length as a fraction; ValueError for any other text."""
    if not NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no number")
    return Fraction(text)


def total(numbers: Iterable[Fraction | None]) -> Fraction | None:
    """Return a sum; None if a part is not known."""
    parts = [*numbers]
    return None if None in parts else sum((each for each in parts if each is not None), Fraction(0))


def less(minuend: Fraction | None, subtrahend: Fraction | None) -> Fraction | None:
    """Return a difference; None if a part is not known."""
    return None if minuend is None or subtrahend is None else minuend - subtrahend


def sums(parts: list[tuple[int, Fraction | None]]) -> tuple[int, Fraction | None]:
    """Return the sums of units and of money; the latter is None if a part is not known."""
    return sum(part[0] for part in parts), total(part[1] for part in parts)


P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def curve_add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Add two points of the curve of Ed25519 (RFC 8032)."""
    d = D * a[0] * b[0] * a[1] * b[1]
    return (a[0] * b[1] + a[1] * b[0]) * pow(1 + d, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - d, -1, P) % P


def curve_times(scalar: int, point: tuple[int, int]) -> tuple[int, int]:
    """Return a multiple of a point."""
    if not scalar:
        return 0, 1
    double = curve_add(*[curve_times(scalar >> 1, point)] * 2)
    return curve_add(double, point) if scalar & 1 else double


def curve_point(data: bytes) -> tuple[int, int]:
    """Return the point in 32 bytes; ValueError if they are none."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        raise ValueError("not a point")
    return P - x if x & 1 != sign else x, y


BASE = curve_point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return True if an Ed25519 signature of a message is by a key; ValueError if either is no point."""
    r, a, s = curve_point(signature[:32]), curve_point(key), int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    return s < L and curve_times(s, BASE) == curve_add(r, curve_times(k, a))


def ssh_text(data: bytes) -> bytes:
    """Return data with its length before it."""
    return len(data).to_bytes(4, "big") + data


def signature_of(key: bytes, signature: bytes) -> bytes:
    """Return a signature file as ssh-keygen writes it (PROTOCOL.sshsig of OpenSSH)."""
    blob = b"SSHSIG" + (1).to_bytes(4, "big")
    for part in (key, b"chainfolio-close", b"", b"sha512", ssh_text(b"ssh-ed25519") + ssh_text(signature)):
        blob += ssh_text(part)
    body = base64.b64encode(blob).decode()
    lines = [body[at : at + 70] for at in range(0, len(body), 70)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()


def check_signature(check: Check, signer: str) -> None:
    """Verify the signature of the manifest: rebuild the file from its key and signature, then verify both."""
    path = check.folder / "manifest.json.sig"
    if not path.is_file():
        (check.wrong if signer else check.open).append("the manifest is not signed")
        return
    armored = path.read_bytes()
    blob = base64.b64decode(b"".join(armored.split(b"\n")[1:-2]), validate=True)
    key, signature = blob[14 : 14 + 51], blob[-64:]
    is_plain = key.startswith(ssh_text(b"ssh-ed25519") + (32).to_bytes(4, "big"))
    if signature_of(key, signature) != armored or not is_plain:
        check.wrong.append("manifest.json.sig is no signature of ssh-keygen for chainfolio-close by a key of Ed25519")
        return
    digest = ssh_text(hashlib.sha512((check.folder / "manifest.json").read_bytes()).digest())
    message = b"SSHSIG" + b"".join(map(ssh_text, (b"chainfolio-close", b"", b"sha512"))) + digest
    check.expect(is_signed(key[-32:], message, signature), "the signature is not of this manifest")
    encoded = base64.b64encode(key).decode()
    if not signer:
        check.open.append(f"nobody says whose key ssh-ed25519 {encoded} is: name it with --signer KEY.pub")
    else:
        lines = [line.partition("#")[0].split() for line in Path(signer).read_bytes().decode().splitlines()]
        keys = [key for words in lines for kind, key in pairwise(words) if kind == "ssh-ed25519"]
        check.expect(keys[:1] == [encoded], f"it is signed by another key: {encoded}")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; ValueError if it has a key twice."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("the manifest has a key twice")
    return dict(pairs)


def check_files(check: Check, manifest: Manifest) -> None:
    """Compare each file with the manifest."""
    files = sorted(manifest["files"], key=lambda each: each["path"])
    names = {each["path"] for each in files}
    check.expect(len(names) == len(files), "the manifest names a file twice")
    for each in files:
        path, parts = each["path"], each["path"].split("/")
        below = [check.folder.joinpath(*parts[: count + 1]) for count in range(len(parts))]
        is_plain = path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(parts)
        if not is_plain or any(each.is_symlink() for each in below):
            check.wrong.append(f"{path!r} leaves the folder")
        elif not below[-1].is_file():
            check.wrong.append(f"{path} is missing")
        else:
            data = below[-1].read_bytes()
            same = (hashlib.sha256(data).hexdigest(), len(data)) == (each["sha256"], each["size"])
            check.expect(same, f"{path} is not the file of the manifest")
    found = [path for path in check.folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    check.wrong += [f"{path} is a link" for path in found if path.is_symlink()]
    present = {path.relative_to(check.folder).as_posix() for path in found}
    for path in sorted(present - names - {"manifest.json", "manifest.json.sig"}):
        check.wrong.append(f"{path} is not in the manifest")
    needed = {f"tables/{name}.{kind}" for name in NAMES for kind in ("csv", "parquet")} | {"policy.toml"}
    check.expect(needed <= names, f"the manifest lacks {sorted(needed - names)}")
    lines = "".join(f"{each['sha256']} {each['size']} {each['path']}\n" for each in files)
    check.expect(
        hashlib.sha256(lines.encode()).hexdigest() == manifest["digest"], "the digest over all files is another one"
    )


def read_tables(check: Check, counts: dict[str, int]) -> Tables:
    """Return all tables as lists of dictionaries; both formats must have the same cells and signed counts."""
    tables: Tables = {}
    for name in NAMES:
        file = check.folder / "tables" / name
        content = pyarrow.parquet.ParquetFile(io.BytesIO(file.with_suffix(".parquet").read_bytes()))
        if content.metadata.num_rows != counts[name]:
            raise ValueError(f"{name} has {content.metadata.num_rows} rows, and not those of the manifest")
        parquet = content.read()
        text = file.with_suffix(".csv").read_bytes().decode()
        header, *rows = csv.reader(io.StringIO(text, newline=""))
        same = header == parquet.column_names and rows == [list(row.values()) for row in parquet.to_pylist()]
        check.expect(same, f"{name}.csv and {name}.parquet differ")
        tables[name] = [dict(zip(header, row, strict=True)) for row in rows]
    return tables


def instant(day: str, at: str) -> int:
    """Return a cut-off in microseconds since 1970."""
    hour, zone = at.split(" ", 1)
    local = datetime.fromisoformat(f"{day}T{hour}").replace(tzinfo=ZoneInfo(zone))
    return (local.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def check_places(check: Check, manifest: Manifest, tables: Tables) -> None:
    """Rows are there once, of listed accounts and chains, and of the period."""
    for name, count in ONCE.items():
        keys = [tuple(row.values())[:count] for row in tables[name]]
        check.expect(len({*keys}) == len(keys), f"{name} has a row twice")
    accounts = {row["account"] for name in ("balances", "movements", "holdings") for row in tables[name]}
    check.equal("accounts with rows", accounts, {*manifest["accounts"]})
    heights = {(row["end"], row["chain"]): int(row["height"]) for row in tables["blocks"]}
    check.equal("blocks", sorted(heights), sorted((end, chain) for end in ENDS for chain in manifest["chains"]))
    check.equal("rows of blocks", len(tables["blocks"]), len(heights))
    is_dollar = manifest["currency"] == "USD"
    check.expect(not is_dollar or {row["rate"] for row in tables["blocks"]} == {"1"}, "a rate of USD is not 1")
    for row in tables["movements"]:
        is_inside = heights["opening", row["chain"]] < int(row["block"]) <= heights["closing", row["chain"]]
        check.expect(is_inside, f"a movement in block {row['block']} is not of the period")
    incomes = [(row["asset"], row["proceeds"]) for row in tables["gains"] if row["kind"] == "income"]
    days = [(f"{row['chain']}:{row['contract']}", row["value"]) for row in tables["income"]]
    for asset in {asset for asset, _ in (*incomes, *days)}:
        of_gains, of_days = ([number(value) for key, value in rows if key == asset] for rows in (incomes, days))
        check.expect(bool(of_days) and total(of_gains) == total(of_days), f"income of days of {asset} is another one")


def check_balances(check: Check, tables: Tables) -> None:
    """Closing less opening is what moved, for each account and asset."""
    moved: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in tables["movements"]:
        moved[row["account"], row["chain"], row["asset"]] += int(row["raw"]) * (1 if row["direction"] == "in" else -1)
    for row in tables["balances"]:
        name = f"{row['asset']} of {row['account']}"
        sum_of_rows = moved.pop((row["account"], row["chain"], row["asset"]), 0)
        check.equal(f"{name}, moved", int(row["moved"]), sum_of_rows)
        classes = {row["openingEvidence"], row["closingEvidence"]}
        check.expect(classes <= {CLASSES[0], *CLASSES[2:]}, f"{name}: {classes} are no classes of evidence")
        rest = less(less(number(row["closing"]), number(row["opening"])), Fraction(sum_of_rows))
        check.equal(f"{name}, unexplained", number(row["unexplained"]), rest)
        if rest != 0:
            check.open.append(f"{name}: closing - opening - movements is {rest}")
    check.expect(not moved, f"these moved and have no balance: {sorted(moved)}")


def rlp(data: bytes) -> tuple[Any, bytes]:
    """Return the first item of RLP, and the data behind it; ValueError if it is cut off."""
    start, size = 1, data[0] & 0x3F
    if data[0] < 0x80:
        return data[:1], data[1:]
    if size > 55:
        start, size = size - 54, int.from_bytes(data[1 : size - 54], "big")
    body, rest = data[start : start + size], data[start + size :]
    if len(body) != size:
        raise ValueError("RLP is cut off")
    if data[0] < 0xC0:
        return body, rest
    items = []
    while body:
        item, body = rlp(body)
        items.append(item)
    return items, rest


def trie_value(root: bytes, key: bytes, proof: str) -> bytes:
    """Return the value at a key of a secure trie, empty if absent; ValueError if it is not shown."""
    nodes = {keccak_256(node).digest(): node for node in (bytes.fromhex(each[2:]) for each in json.loads(proof))}
    path, current = keccak_256(key).hexdigest(), root
    while current:
        if isinstance(current, bytes) and current not in nodes:
            raise ValueError("a node of a proof is missing")
        node = rlp(nodes[current])[0] if isinstance(current, bytes) else current
        if len(node) == 17:
            current, path = node[int(path[0], 16)], path[1:]
            continue
        flag, part = int(node[0].hex()[0], 16), node[0].hex()
        part = part[1:] if flag & 1 else part[2:]
        if not path.startswith(part) or (flag & 2 and path != part):
            return b""
        current, path = node[1], path[len(part) :]
        if flag & 2:
            return bytes(current)
    return b""


def storage_key(rule: str, holder: str) -> bytes:
    """Return the storage key at which compilers and libraries put an account's balance, by a rule."""
    _, _, slot = rule.partition(" mapping at slot ")
    padded = bytes(12) + bytes.fromhex(holder[2:])
    places = {
        "ERC-7201 openzeppelin.storage.ERC20": padded + bytes.fromhex(OPENZEPPELIN),
        "Solady's slot of balances": padded[12:] + bytes(8) + bytes.fromhex("87a211a2"),
    }
    if slot and int(slot) < 512:
        index = int(slot).to_bytes(32, "big")
        places = {f"Solidity mapping at slot {slot}": padded + index, f"Vyper mapping at slot {slot}": index + padded}
    return bytes(keccak_256(places[rule]).digest())


def proven_balance(row: dict[str, str], root: bytes) -> int:
    """Return the balance that a proof shows; ValueError if it shows none of this account and asset."""
    fields = rlp(trie_value(root, bytes.fromhex(row["address"][2:]), row["accountProof"]) or b"\xc4\x80\x80\x80\x80")[0]
    if not row["key"]:
        if row["address"] != row["account"] or "/slip44:" not in row["asset"]:
            raise ValueError("it is of another account")
        return int.from_bytes(fields[1], "big")
    rule, _, bits = row["rule"].partition(", low ")
    if bits not in BITS:
        raise ValueError(f"no library has balances of {bits}")
    key = storage_key(rule, row["account"])
    if key.hex() != row["key"][2:] or row["asset"].partition("/erc20:")[2] != row["address"]:
        raise ValueError("it is of another account or token")
    word = int.from_bytes(rlp(trie_value(fields[2], key, row["storageProof"]) or b"\x80")[0], "big")
    return word & ((1 << int(bits.split()[0] if bits else 256)) - 1)


def proof_faults(tables: Tables) -> list[str]:
    """Return what is wrong with headers and proofs, and with balances that are called proven."""
    faults, roots, shown_by_proof = [], {}, {}
    for row in tables["blocks"]:
        if row["header"]:
            header = bytes.fromhex(row["header"][2:])
            fields = rlp(header)[0]
            time = (datetime.fromisoformat(row["time"]) - EPOCH) // timedelta(seconds=1)
            numbers = [int.from_bytes(fields[at], "big") for at in (8, 11)]
            if [row["hash"], int(row["height"]), time] != [f"0x{keccak_256(header).hexdigest()}", *numbers]:
                faults.append(f"the header of {row['chain']} at the {row['end']} is not that of its block")
            roots[row["end"], row["chain"]] = fields[3]
    for row in tables["proofs"]:
        key = row["end"], row["chain"], row["account"], row["asset"]
        try:
            shown_by_proof[key] = str(proven_balance(row, roots[row["end"], row["chain"]]))
        except (LookupError, TypeError, ValueError) as error:
            faults.append(f"proof of {key} shows nothing: {type(error).__name__} {error}")
    for row in tables["balances"]:
        for end in ENDS:
            value = shown_by_proof.pop((end, row["chain"], row["account"], row["asset"]), None)
            if (row[f"{end}Evidence"] == "proven") != (value is not None) or value not in (None, row[end]):
                faults.append(f"{row['asset']} of {row['account']} at the {end}: {value} is proven, not {row[end]}")
    return [*faults, *(f"a proof of no balance: {key}" for key in shown_by_proof)]


def check_prices(check: Check, manifest: Manifest, tables: Tables) -> None:
    """Each price is its quote at the rate, or an override, and within the limits of the policy."""
    policy = tomllib.loads((check.folder / "policy.toml").read_bytes().decode())
    check.equal("method", manifest["method"], policy.get("method", "fifo"))
    check.equal("lots", manifest["lots"], policy.get("lots", "owner"))
    limits = {"max_age_hours": 24, "max_deviation_percent": "10", **policy.get("prices", {})}
    blocks = {(row["end"], row["chain"]): row for row in tables["blocks"]}
    overrides = {(each["asset"].lower(), each["date"]): each for each in policy.get("override", [])}
    for (end, chain), block in blocks.items():
        check.equal("day", block["day"], manifest["period"]["first" if end == "opening" else "last"])
        is_before = block["time"] < manifest["period"][end] and block["time"][10] == "T"
        check.expect(is_before, f"the block of {chain} at the {end} is not before the cut-off")
    for row in tables["prices"]:
        name, block = f"price of {row['asset']} at the {row['end']}", blocks[row["end"], row["chain"]]
        override = overrides.get((row["asset"].lower(), block["day"]))
        if override:
            check.equal(name, number(row["price"]), fraction(override["price"]))
            rule = f"override by {override['who']}: {override['reason']}"
            check.equal(f"{name}, rule", *("".join(filter(str.isprintable, each)) for each in (row["rule"], rule)))
            continue
        check.equal(name, number(row["price"]), fraction(row["usd"]) * fraction(block["rate"]))
        check.equal(f"{name}, rule", row["rule"], row["source"])
        age = datetime.fromisoformat(block["time"]) - datetime.fromisoformat(row["observed"])
        hours = age // timedelta(microseconds=1) / Fraction(3_600_000_000)
        check.expect(0 <= hours <= limits["max_age_hours"], f"{name} is too old, or of later")
        for source, usd in json.loads(row["alternatives"]):
            apart = abs(fraction(usd) / fraction(row["usd"]) - 1) * 100
            check.expect(apart <= fraction(limits["max_deviation_percent"]), f"{name}: {source} says {usd} USD")


def check_holdings(check: Check, tables: Tables) -> Values:
    """Each value is amount times price; return the sums by end and asset."""
    prices = {(row["end"], row["chain"], row["asset"]): row["price"] for row in tables["prices"]}
    balances = {(end, row["account"], row["asset"]): row[end] for row in tables["balances"] for end in ENDS}
    values: Values = defaultdict(Fraction)
    rest = {place for place, raw in balances.items() if raw not in ("0", UNKNOWN)}
    decimals = {row["asset"]: row["decimals"] for row in tables["assets"]}
    for row in tables["holdings"]:
        name = f"{row['asset']} of {row['account']} in {row['protocol']} at the {row['end']}"
        price = prices.get((row["end"], row["chain"], row["asset"]), UNKNOWN)
        check.equal(f"{name}, price", row["price"], price)
        if row["protocol"] == "wallet":
            place = row["end"], row["account"], row["asset"]
            check.equal(f"{name}, raw", row["raw"], balances.get(place))
            check.expect(place in rest and row["side"] == "owned", f"{name}: it is there twice, or not owned")
            rest -= {place}
        check.expect(row["decimals"] in ("", decimals[row["countsAs"]]), f"{name} has other decimals than its asset")
        is_priced = row["price"] != UNKNOWN and row["decimals"] != ""
        flags = ("spam", "", "capped") if is_priced else LEFT_OUT
        check.expect(row["flag"] in flags, f"{name}: another flag follows")
        if not is_priced:
            continue
        value, stated = int(row["raw"]) * fraction(price) / 10 ** int(row["decimals"]), fraction(row["value"])
        if not (row["flag"] in ("capped", "spam") and 0 <= stated < value):
            check.equal(f"{name}, value", stated, value)
        if row["flag"] not in LEFT_OUT:
            values[row["end"], row["countsAs"]] += -stated if row["side"] == "owed" else stated
    check.expect(not rest, f"these balances are in no row of holdings: {sorted(rest)}")
    return values


def check_gains(check: Check, tables: Tables, opening_us: int, closing_us: int) -> None:
    """Gains are proceeds less cost, and the disposals of the period are those of the entries."""
    sold: Parts = defaultdict(list)
    for row in tables["gains"]:
        name = f"gain of {row['asset']} in {row['transaction']}"
        check.equal(name, number(row["gain"]), less(number(row["proceeds"]), number(row["cost"])))
        time = (datetime.fromisoformat(row["time"]) - EPOCH) // timedelta(microseconds=1)
        check.expect(opening_us <= time < closing_us, f"{name} is not in the period")
        if row["kind"] in SOLD:
            key = row["kind"], row["asset"], row["transaction"], row["wallet"]
            sold[key].append((int(row["raw"]), number(row["proceeds"])))
    expected: Parts = defaultdict(list)
    repaid = {(row["asset"], row["transaction"]) for row in tables["entries"] if row["kind"] == "repay"}
    for row in tables["entries"]:
        if row["kind"] in SOLD and opening_us <= int(row["time_us"]) < closing_us:
            key = row["kind"], row["asset"], row["transaction"], row["wallet"]
            value = (int(row["value"]) - int(row["fee"])) * MONEY if row["value"] else None
            expected[key].append((int(row["quantity"]), value))
    for disposal in sorted({*sold, *expected}):
        if disposal[1:3] not in repaid:  # interest of a loan is a fee without an entry
            check.equal(f"units and proceeds of {disposal}", sums(sold[disposal]), sums(expected[disposal]))


def check_lots(check: Check, tables: Tables) -> None:
    """Lots add up to what remains, and what remains to what wallets hold."""
    lots: Parts = defaultdict(list)
    for row in tables["lots"]:
        lots[row["end"], row["asset"], row["wallet"]].append((int(row["raw"]), number(row["cost"])))
    remaining = {tuple(row[name] for name in ("end", "asset", "wallet")): row for row in tables["remaining"]}
    for key in sorted({*remaining, *lots}) if lots else ():  # methods that pool have no single lots
        row = remaining.get(key, NOTHING)
        check.equal(f"lots of {key}", (int(row["raw"]), number(row["cost"])), sums(lots[key]))
    missing = {key[1] for key in remaining if key[0] == "closing" and key[1].count(":") == 1}
    missing -= {row["asset"] for row in tables["closings"]}
    check.expect(not missing, f"these lots are not compared with balances: {sorted(missing)}")
    for row in tables["closings"]:
        own = [each for each in tables["balances"] if row["wallet"] in ("", each["account"])]
        held = total(number(each["closing"]) for each in own if each["countsAs"] == row["asset"])
        check.expect(held in (None, int(row["inWallet"])), f"{row['asset']}: balances are {held}, not as in closings")
        left = remaining.get(("closing", row["asset"], row["wallet"]), NOTHING)
        moved = int(left["raw"]) + int(left["unasked"]) - int(left["short"]) - int(left["deposited"])
        check.equal(f"moved of {row['asset']}", int(row["moved"]), moved)
        check.equal(f"difference of {row['asset']}", int(row["difference"]), int(row["inWallet"]) - moved)
        if row["difference"] != "0":
            check.open.append(f"{row['asset']}: the wallet holds {row['difference']} more than its lots")


def amount_in(rows: list[dict[str, str]], column: str) -> Fraction | None:
    """Return the sum of a column; None if a cell is not known."""
    return total(number(row[column]) for row in rows)


def check_rollforward(check: Check, tables: Tables, values: Values) -> None:
    """Each asset rolls forward from opening to closing, with the sums of the other tables."""
    parts: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in tables["gains"]:
        kind = {"income": "income", "fee": "fees"}.get(row["kind"], "disposals")
        parts[kind, row["asset"]].append(row)
        if kind != "income" and not row["reason"].startswith(NO_LOT):
            parts[f"used {kind}", row["asset"]].append(row)
    for row in tables["remaining"]:
        parts[row["end"], row["asset"]].append(row)
    for row in tables["rollforward"]:
        asset = row["asset"]
        raw = {name: int(row[f"{name}Raw"]) for name in (*PLUS, *MINUS, "closing")}
        follows = sum(raw[name] for name in PLUS) - sum(raw[name] for name in MINUS)
        check.equal(f"units of {asset}", raw["closing"], follows)
        plus = total(number(row["incomeValue" if name == "income" else f"{name}Cost"]) for name in PLUS)
        cost = less(plus, total(number(row[f"{name}Cost"]) for name in MINUS))
        if cost is not None:
            check.equal(f"cost of {asset}", number(row["closingCost"]), cost)
        for end in ("opening", "closing"):
            check.equal(f"{end} of {asset}", raw[end], amount_in(parts[end, asset], "raw"))
            check.equal(f"{end} cost of {asset}", number(row[f"{end}Cost"]), amount_in(parts[end, asset], "cost"))
            check.equal(f"{end} value of {asset}", number(row[f"{end}Value"]), values.pop((end, asset), Fraction(0)))
        for name in MINUS:
            used = parts[f"used {name}", asset]
            check.equal(f"{name} of {asset}", raw[name], amount_in(used, "raw"))
            check.equal(f"cost of {name} of {asset}", number(row[f"{name}Cost"]), amount_in(used, "cost"))
        for name in ("proceeds", "gain"):
            check.equal(f"{name} of {asset}", number(row[name]), amount_in(parts["disposals", asset], name))
        income = parts["income", asset]
        check.equal(f"income of {asset}", raw["income"], amount_in(income, "raw"))
        check.equal(f"income value of {asset}", number(row["incomeValue"]), amount_in(income, "proceeds"))
    check.expect(not values, f"these are held and in no statement: {sorted(values)}")


def check_totals(check: Check, manifest: Manifest, tables: Tables) -> None:
    """The sums of the manifest are those of the tables."""
    totals, gains = manifest["totals"], tables["gains"]
    disposals, roll = [row for row in gains if row["kind"] != "income"], tables["rollforward"]
    follows = {name: amount_in(roll, name) for name in ("openingValue", "closingValue", "openingCost", "closingCost")}
    follows["realised"] = amount_in(disposals, "gain")
    follows["income"] = amount_in([row for row in gains if row["kind"] == "income"], "proceeds")
    follows["fees"] = amount_in([row for row in disposals if row["kind"] == "fee"], "proceeds")
    for name, value in follows.items():
        check.equal(f"total {name}", number(totals[name]), value)
    unknown = sum(row["gain"] == UNKNOWN for row in gains)
    check.equal("number of unknown gains", totals["unknownGains"], unknown)
    if unknown:
        check.open.append(f"{unknown} gains are not known")
    check.equal("accounts", manifest["accounts"], [row["address"] for row in tables["accounts"]])
    evidence = dict.fromkeys(CLASSES, Fraction(0))
    classes = {(row["account"], row["asset"]): row["closingEvidence"] for row in tables["balances"]}
    for row in tables["holdings"]:
        if row["end"] == "closing" and row["flag"] not in LEFT_OUT:
            own = classes.get((row["account"], row["asset"]), CLASSES[-1])
            evidence[own if row["protocol"] == "wallet" else CLASSES[-1]] += fraction(row["value"])
    check.equal("evidence", {name: fraction(value) for name, value in totals["evidence"].items()}, evidence)
    check.open += [f"{row['adapter']}: {row['subject']}: {row['reason']}" for row in tables["issues"]]


def run(folder: str | Path, signer: str = "") -> Check:
    """Check a pack and return what was seen."""
    check = Check(folder)
    manifest = json.loads((check.folder / "manifest.json").read_bytes(), object_pairs_hook=unique)
    if (manifest["format"], manifest["version"]) != ("chainfolio-close", 1):
        raise ValueError(f"format {manifest['format']}, version {manifest['version']}: this program checks version 1")
    check_signature(check, signer)
    check_files(check, manifest)
    if check.wrong:  # what is not the signed folder is not read
        return check
    tables = read_tables(check, manifest["rows"])
    instants = [instant(manifest["period"][day], manifest["period"]["at"]) for day in ("first", "last")]
    stated = [(datetime.fromisoformat(manifest["period"][end]) - EPOCH) // timedelta(microseconds=1) for end in ENDS]
    check.equal("instants", stated, instants)
    check_places(check, manifest, tables)
    check_balances(check, tables)
    check.wrong += proof_faults(tables)
    check_prices(check, manifest, tables)
    values = check_holdings(check, tables)
    check_gains(check, tables, *instants)
    check_lots(check, tables)
    check_rollforward(check, tables, values)
    check_totals(check, manifest, tables)
    return check


def main() -> int:
    """Check the pack of the command line, print what was seen, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", help="the folder")
    parser.add_argument("--signer", default="", metavar="KEY.pub", help="the public key that must have signed it")
    options = parser.parse_args()
    try:
        check = run(options.pack, options.signer)
    except Exception as error:  # whatever cannot be read does not follow
        print(f"wrong: it cannot be read: {type(error).__name__}: {error}")
        return 12
    for text in (*(f"wrong: {each}" for each in check.wrong), *(f"open: {each}" for each in check.open)):
        print(text)
    print(f"{len(check.wrong)} wrong, {len(check.open)} open")
    return 12 if check.wrong else 13 if check.open else 0


if __name__ == "__main__":
    sys.exit(main())
