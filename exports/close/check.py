"""The check of a pack without network: digests, signature, and every number computed again."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq

from chainfolio import amounts
from chainfolio.engine.gains.pnl import zone_of
from chainfolio.errors import BadRequest
from chainfolio.exports.close.accounting import (
    CLOSING,
    OPENING,
    Accounting,
    AssetTable,
    Method,
    accounting,
    gain_rows,
    lot_rows,
    remaining_rows,
    rollforward_rows,
)
from chainfolio.exports.close.check_pack import proof_faults, unique
from chainfolio.exports.close.cutoff import instant_us
from chainfolio.exports.close.evidence import CLASSES
from chainfolio.exports.close.pack import (
    FORMAT,
    MANIFEST,
    POLICY,
    SIGNATURE,
    TABLES,
    VERSION,
    Manifest,
    digest_of,
    entry_of,
    evidence_of,
    is_inside,
    totals_of,
)
from chainfolio.exports.close.policy import policy_in
from chainfolio.exports.close.rules import form_faults, table_faults
from chainfolio.exports.close.signature import fingerprint, signer_of
from chainfolio.exports.close.tables import (
    COLUMNS,
    CloseTables,
    entry_in,
    plain_row,
    values_by_asset,
)
from chainfolio.exports.close.valued import CAPPED, OVERRIDE, SPAM, UNVALUED
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import AssetFacts, iso_time

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Row

Tables = dict[str, list[dict[str, str]]]
MAX_MANIFEST: Final = 50_000_000  # bytes
# What reading a malformed table, policy or list of quotes raises.
FAULTS: Final = (
    ArithmeticError,
    AssertionError,
    BadRequest,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class CheckResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a check.

    `wrong` are numbers and files that do not follow; `open` are things that the pack itself does not show. `evidence`
    is the closing value by class.
    """

    pack: str
    signer: str
    wrong: tuple[str, ...]
    open: tuple[str, ...]
    evidence: dict[str, str]
    currency: str


@dataclass(slots=True)
class _Findings:
    """Findings of a check: `wrong` and `open`, as of `CheckResult`."""

    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def expect(self, is_true: bool, problem: str) -> None:
        """Add a problem unless something holds."""
        if not is_true:
            self.wrong.append(problem)


def check_pack(folder: Path, signer: str = "") -> CheckResult:
    """Check a pack and return what does not follow.

    Args:
        signer: The public key that must have signed it, `ssh-ed25519 AAAA…`; empty if it is not known.

    Raises:
        BadRequest: There is no manifest, or one of another format or version.
    """
    findings = _Findings()
    data, manifest = _manifest(folder)
    key = _check_signature(folder, data, signer, findings)
    _check_files(folder, manifest, findings)
    tables = None if findings.wrong else _tables(folder, manifest.rows, findings)
    if tables is not None and not findings.wrong:
        try:
            _check_numbers(folder, manifest, tables, findings)
        except FAULTS as error:
            findings.wrong.append(f"the tables cannot be computed again: {type(error).__name__} {error}")
    return CheckResult(
        str(folder), key, tuple(findings.wrong), tuple(findings.open), manifest.totals.evidence, manifest.currency
    )


def _manifest(folder: Path) -> tuple[bytes, Manifest]:
    """Return the bytes of a manifest and its content; BadRequest without one of this version."""
    remedy = "check a folder that `chainfolio close make` wrote"
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(MAX_MANIFEST)
        head = json.loads(data, object_pairs_hook=unique)
    except OSError as error:
        raise BadRequest("pack", f"{folder / MANIFEST}: {error.strerror}", remedy=remedy) from None
    except ValueError as error:
        raise BadRequest("pack", f"{MANIFEST} is no JSON: {error}", remedy=remedy) from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise BadRequest("pack", f"{MANIFEST} is not one of {FORMAT}", remedy=remedy)
    if head.get("version") != VERSION:
        raise BadRequest("pack", f"it has version {head.get('version')}, and this release checks {VERSION}")
    try:
        return data, msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BadRequest("pack", f"{MANIFEST} is malformed: {error}", remedy=remedy) from None


def _check_signature(folder: Path, data: bytes, signer: str, findings: _Findings) -> str:
    """Check the signature, and return the fingerprint of its key; empty without a valid one."""
    path = folder / SIGNATURE
    if not path.is_file():
        (findings.wrong if signer else findings.open).append("the manifest is not signed")
        return ""
    try:
        key = signer_of(data, path.read_bytes())
    except ValueError as error:
        findings.wrong.append(f"{SIGNATURE}: {error}")
        return ""
    if signer:
        findings.expect(key == signer, f"it is signed by {fingerprint(key)}, and not by {fingerprint(signer)}")
    else:
        findings.open.append(f"nobody says whose key {fingerprint(key)} is: name it with --signer KEY.pub")
    return fingerprint(key)


def _check_files(folder: Path, manifest: Manifest, findings: _Findings) -> None:
    """Compare the files of a folder with its manifest."""
    named = {each.path for each in manifest.files}
    findings.expect(len(named) == len(manifest.files), "the manifest names a file twice")
    for each in manifest.files:
        if not is_inside(each.path) or any(
            (folder / parent).is_symlink() for parent in (each.path, *_parents(each.path))
        ):
            findings.wrong.append(f"{each.path!r} leaves the folder")
        elif not (folder / each.path).is_file():
            findings.wrong.append(f"{each.path} is missing")
        elif (entry := entry_of(folder, each.path)) != each:
            findings.wrong.append(f"{each.path} has SHA-256 {entry.sha256} and {entry.size} bytes, not as signed")
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    findings.wrong += [f"{path} is a link" for path in found if path.is_symlink()]
    present = {path.relative_to(folder).as_posix() for path in found}
    for path in sorted(present - named - {MANIFEST, SIGNATURE}):
        findings.wrong.append(f"{path} is not in the manifest")
    needed = {f"{TABLES}/{name}.{kind}" for name in COLUMNS for kind in ("csv", "parquet")} | {POLICY}
    for path in sorted(needed - named):
        findings.wrong.append(f"the manifest lacks {path}")
    findings.expect(digest_of(manifest.files) == manifest.digest, "the digest over all files is another one")


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")[:-1]
    yield from ("/".join(parts[: count + 1]) for count in range(len(parts)))


def _tables(folder: Path, counts: Mapping[str, int], findings: _Findings) -> Tables | None:
    """Read all tables, which must be equal in both formats; None if one cannot be read."""
    tables: Tables = {}
    for name, columns in COLUMNS.items():
        try:
            content = pq.ParquetFile(io.BytesIO((folder / TABLES / f"{name}.parquet").read_bytes()))
            if content.metadata.num_rows != counts.get(name):
                findings.wrong.append(f"{name} has {content.metadata.num_rows} rows, and not those of the manifest")
                continue
            table = content.read()
            text = (folder / TABLES / f"{name}.csv").read_bytes().decode()
            header, *rows = csv.reader(io.StringIO(text, newline=""))
        except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
            findings.wrong.append(f"{name} cannot be read: {type(error).__name__}")
            continue
        cells = [list(row.values()) for row in table.to_pylist()]
        if tuple(header) != columns or tuple(table.column_names) != columns:
            findings.wrong.append(f"{name} has other columns")
        elif cells != rows:
            findings.wrong.append(f"{name}.csv and {name}.parquet differ")
        else:
            tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]
    return tables if len(tables) == len(COLUMNS) else None


def _check_numbers(folder: Path, manifest: Manifest, tables: Tables, findings: _Findings) -> None:
    """Compute every number again, and add each that does not follow."""
    document = msgspec.to_builtins(manifest)
    findings.wrong += form_faults(document, tables)
    if findings.wrong:
        return
    findings.wrong += table_faults(document, tables)
    _check_balances(tables, findings)
    findings.wrong += proof_faults(tables)
    _check_prices(folder, manifest, tables, findings)
    values = _check_holdings(tables, findings)
    result = _check_accounting(manifest, tables, values, findings)
    _check_closings(tables, findings)
    rows = {name: [list(row.values()) for row in table] for name, table in tables.items()}
    evidence = evidence_of(CloseTables(rows, result, values))
    totals = totals_of(result, values, evidence)
    for name in totals.__struct_fields__:
        stated, computed = getattr(manifest.totals, name), getattr(totals, name)
        findings.expect(stated == computed, f"total {name}: {stated} is stated, and {computed} follows")
    if totals.unknown_gains:
        findings.open.append(f"{totals.unknown_gains} gains are not known: see the column reason of gains")
    counts = {name: len(table) for name, table in tables.items()}
    findings.expect(counts == manifest.rows, "tables have other numbers of rows than the manifest says")
    accounts = tuple(row["address"] for row in tables["accounts"])
    findings.expect(accounts == manifest.accounts, "accounts are others than in the manifest")
    for row in tables["issues"]:
        findings.open.append(f"{row['adapter']}: {row['subject']}: {row['reason']}")


def _check_balances(tables: Tables, findings: _Findings) -> None:
    """Check that closing less opening is what moved, for each account and asset."""
    moved: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for row in tables["movements"]:
        sign = {"in": 1, "out": -1, "fee": -1}[row["direction"]]
        moved[row["account"], row["chain"], row["asset"]] += sign * int(row["raw"])
    for row in tables["balances"]:
        key = row["account"], row["chain"], row["asset"]
        name = f"{row['asset']} of {row['account']}"
        movements = moved.pop(key, 0)
        findings.expect(int(row["moved"]) == movements, f"{name}: its movements are {movements}, not {row['moved']}")
        if UNKNOWN in (row["opening"], row["closing"]):
            findings.expect(row["unexplained"] == UNKNOWN, f"{name}: what cannot be read has no difference")
            findings.open.append(f"{name}: its balance could not be read")
            continue
        rest = int(row["closing"]) - int(row["opening"]) - movements
        stated = row["unexplained"]
        findings.expect(str(rest) == stated, f"{name}: closing - opening - movements is {rest}, not {stated}")
        if rest:
            findings.open.append(f"{name}: closing - opening - movements is {rest}")
        for end in ("openingEvidence", "closingEvidence"):
            findings.expect(row[end] in CLASSES, f"{name}: {row[end]!r} is no class of evidence")
    for key in moved:
        findings.wrong.append(f"{key[2]} of {key[0]} moved, and has no balance")


def _check_prices(folder: Path, manifest: Manifest, tables: Tables, findings: _Findings) -> None:
    """Check each price against its quote, its rate and the limits of the policy."""
    policy = policy_in((folder / POLICY).read_bytes())
    findings.expect((policy.method, policy.lots) == (manifest.method, manifest.lots), "the policy has other rules")
    days = {OPENING: manifest.period.first, CLOSING: manifest.period.last}
    blocks = {(row["end"], row["chain"]): row for row in tables["blocks"]}
    for end, chain in blocks:
        time, instant = blocks[end, chain]["time"], getattr(manifest.period, end)
        findings.expect(time < instant, f"the block of {chain} at the {end} is not before the cut-off")
    for row in tables["prices"]:
        name = f"price of {row['symbol']} ({row['asset']}) at the {row['end']}"
        block = blocks[row["end"], row["chain"]]
        override = {str(key): each for key, each in policy.overrides(days[row["end"]]).items()}.get(row["asset"])
        if override is not None:
            price, rule = override.price, f"{OVERRIDE} by {override.who}: {override.reason}"
        else:
            price, rule = _product(row["usd"], block["rate"]), row["source"]
            for fault in _limit_faults(
                row, block["time"], policy.prices.max_age_hours, policy.prices.max_deviation_percent
            ):
                findings.wrong.append(f"{name}: {fault}")
        is_same = Decimal(price) == Decimal(row["price"])
        findings.expect(is_same, f"{name}: {row['price']} is stated, and {price} follows")
        findings.expect(row["rule"] == plain_row((rule,))[0], f"{name}: another rule chose it")


def _product(left: str, right: str) -> str:
    return amounts.text(amounts.value_of(amounts.parse(left), amounts.parse(right)))


def _limit_faults(row: Mapping[str, str], block_time: str, max_age: int, most: str) -> Iterator[str]:
    age = datetime.fromisoformat(block_time) - datetime.fromisoformat(row["observed"])
    if not 0 <= age.total_seconds() <= max_age * 3600:
        yield f"it is older than {max_age} hours, or later than the block"
    for source, usd in json.loads(row["alternatives"]):
        if abs(Decimal(usd) - Decimal(row["usd"])) * 100 > Decimal(most) * Decimal(row["usd"]):
            yield f"{source} says {usd} USD"


def _check_holdings(tables: Tables, findings: _Findings) -> dict[tuple[str, str], Decimal | None]:
    """Check each value against amount and price, and return the sums by end and asset."""
    prices = {(row["end"], row["chain"], row["asset"]): row["price"] for row in tables["prices"]}
    balances = {
        (end, row["account"], row["asset"]): row[end] for row in tables["balances"] for end in (OPENING, CLOSING)
    }
    parts: list[tuple[str, str, Decimal | None]] = []
    for row in tables["holdings"]:
        name = f"{row['symbol']} ({row['asset']}) of {row['account']} in {row['protocol']} at the {row['end']}"
        price = prices.get((row["end"], row["chain"], row["asset"]), UNKNOWN)
        findings.expect(row["price"] == price, f"{name}: its price is {price}, not {row['price']}")
        if row["protocol"] == "wallet":
            balance = balances.get((row["end"], row["account"], row["asset"]))
            findings.expect(balance == row["raw"], f"{name}: {row['raw']} are held, and the balance is {balance}")
        if UNKNOWN not in (row["price"], row["value"]) and row["decimals"]:
            amount = amounts.amount(int(row["raw"]), int(row["decimals"]))
            value, stated = amounts.value_of(amount, amounts.parse(price)), amounts.parse(row["value"])
            is_right = stated == value or (row["flag"] in (CAPPED, SPAM) and stated < value)
            findings.expect(is_right, f"{name}: its value is {amounts.text(value)}, not {row['value']}")
        else:
            findings.expect(row["flag"] in (SPAM, UNVALUED), f"{name}: it counts and has no value")
        if row["flag"] not in (SPAM, UNVALUED):
            value = amounts.parse(row["value"])
            parts.append((row["end"], row["countsAs"], value.copy_negate() if row["side"] == "owed" else value))
    return values_by_asset(parts)


def _check_accounting(
    manifest: Manifest,
    tables: Tables,
    values: Mapping[tuple[str, str], Decimal | None],
    findings: _Findings,
) -> Accounting:
    """Compute gains, lots and the roll-forward again from the entries, and compare each row."""
    entries = [entry_in(list(row.values())) for row in tables["entries"]]
    period = manifest.period
    instants = [instant_us(end, day, period.at) for end, day in (("from", period.first), ("to", period.last))]
    stated = [period.opening, period.closing]
    findings.expect([iso_time(each) for each in instants] == stated, "the instants do not follow from the cut-off")
    unclosed = {(row["asset"], row["wallet"]) for row in tables["closings"] if row["difference"] != "0"}
    facts = {row["asset"]: AssetFacts(row["symbol"], int(row["decimals"])) for row in tables["assets"]}
    method = Method(manifest.method, manifest.lots == "wallet", zone_of(manifest.zone, manifest.method))
    result, shown = accounting(entries, method, instants[0], instants[1], unclosed), AssetTable(facts)
    computed: dict[str, Sequence[Row]] = {
        "gains": gain_rows(result, shown),
        "lots": lot_rows(result, shown),
        "remaining": remaining_rows(result, shown),
        "rollforward": rollforward_rows(result, values, shown),
    }
    for name, rows in computed.items():
        of_pack = [list(row.values()) for row in tables[name]]
        again = [list(plain_row(row)) for row in rows]
        for number, (left, right) in enumerate(zip(of_pack, again, strict=False), 1):
            for column, cell, follows in zip(COLUMNS[name], left, right, strict=True):
                findings.expect(cell == follows, f"{name}, row {number}, {column}: {cell} is stated, {follows} follows")
        findings.expect(len(of_pack) == len(again), f"{name} has {len(of_pack)} rows, and {len(again)} follow")
    return result


def _check_closings(tables: Tables, findings: _Findings) -> None:
    """Check that the lots of each asset are what wallets hold."""
    lots = {(row["asset"], row["wallet"]): row for row in tables["remaining"] if row["end"] == CLOSING}
    for row in tables["closings"]:
        name = f"lots of {row['asset']}"
        of_lots = lots.get((row["asset"], row["wallet"]))
        quantity = 0
        if of_lots is not None:
            quantity = sum(int(of_lots[column]) for column in ("raw", "unasked"))
            quantity -= int(of_lots["short"]) + int(of_lots["deposited"])
        findings.expect(int(row["moved"]) == quantity, f"{name}: they are {quantity}, not {row['moved']}")
        rest = int(row["inWallet"]) - quantity
        findings.expect(int(row["difference"]) == rest, f"{name}: the difference is {rest}, not {row['difference']}")
        if rest:
            findings.open.append(f"{name}: the wallet holds {rest} more than its transactions explain")
