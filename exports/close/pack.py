"""Folder of a close: tables as Parquet and CSV, and a manifest of all files that may be signed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio import amounts
from chainfolio.chain_settings import masked
from chainfolio.errors import BadRequest
from chainfolio.exports.close import check_pack
from chainfolio.exports.close.accounting import CLOSING, OPENING, Accounting
from chainfolio.exports.close.evidence import CLASSES, ONE_SOURCE
from chainfolio.exports.close.signature import SIGNATURE_SUFFIX, sign
from chainfolio.exports.close.tables import COLUMNS, CloseTables, tables_of
from chainfolio.exports.csv_file import CsvWriter
from chainfolio.exports.dataset import Dataset, Page, write
from chainfolio.exports.parquet_file import ParquetWriter
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import iso_time
from chainfolio.portfolio.pnl.report import text, total
from chainfolio.storage.disk import write_error

if TYPE_CHECKING:
    from decimal import Decimal

    from chainfolio.exports.close.books import Books
    from chainfolio.exports.dataset import Row
    from chainfolio.settings import Settings

FORMAT: Final = "chainfolio-close"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = MANIFEST + SIGNATURE_SUFFIX
SCHEMA: Final = "manifest.schema.json"
POLICY: Final = "policy.toml"
SETTINGS: Final = "settings.json"
CHECKER: Final = "check_pack.py"
TABLES: Final = "tables"


class FileEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file of the pack: its path with slashes, SHA-256 as hex, and size in bytes."""

    path: str
    sha256: str
    size: int


class Period(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    """The days of both cut-offs, the cut-off, and its two instants in UTC."""

    first: str
    last: str
    at: str
    opening: str
    closing: str


class Totals(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    """Sums in the currency of the close; `N/A` if a part is not known, which `unknownGains` counts.

    `evidence` is the closing value of balances and positions by the class of their evidence, debts positive.
    """

    opening_value: str
    closing_value: str
    realised: str
    income: str
    fees: str
    opening_cost: str
    closing_cost: str
    unknown_gains: int
    evidence: dict[str, str]


class Manifest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel", kw_only=True):
    """The manifest of a pack. `digest` is the SHA-256 of a line `SHA256 SIZE PATH` for each file, by path."""

    format: str
    version: int
    made_with: str
    period: Period
    currency: str
    method: str
    lots: str
    zone: str
    accounts: tuple[str, ...]
    chains: tuple[str, ...]
    totals: Totals
    rows: dict[str, int]
    files: tuple[FileEntry, ...]
    digest: str


def write_pack(
    books: Books, policy: bytes, settings: Settings, target: Path, key: Path | None, *, made_with: str
) -> Manifest:
    """Write the pack of some books into a new folder, which appears when it is complete.

    Args:
        policy: The bytes of the policy's file.
        key: A private key of OpenSSH; None for a pack without a signature.
        made_with: Name and version of the program.

    Raises:
        BadRequest: The folder exists, its parent does not, or the key cannot be used.
        StoreError: A file cannot be written.
    """
    if target.exists() or not target.parent.is_dir():
        reason = f"{target} exists" if target.exists() else f"there is no folder {target.parent}"
        raise BadRequest("out", reason, remedy="name a new folder in one that exists")
    if key:
        sign(b"", key)  # a key that cannot be used is refused before anything is written
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        manifest = _write(books, policy, settings, part, made_with)
        if key:
            (part / SIGNATURE).write_bytes(sign((part / MANIFEST).read_bytes(), key))
        os.replace(part, target)
    except OSError as error:
        raise write_error("close", target, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _write(books: Books, policy: bytes, settings: Settings, folder: Path, made_with: str) -> Manifest:
    (folder / TABLES).mkdir(parents=True)
    tables = tables_of(books)
    for name, rows in tables.rows.items():
        write_table(folder / TABLES, name, rows)
    (folder / POLICY).write_bytes(policy)
    (folder / SETTINGS).write_bytes(_json(shown_settings(settings, [end.chain.key for end in books.ends])))
    (folder / SCHEMA).write_bytes(_json(msgspec.json.schema(Manifest)))
    shutil.copyfile(check_pack.__file__, folder / CHECKER)
    files = entries_of(folder)
    request = books.request
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        made_with=made_with,
        period=Period(request.first, request.last, request.at, iso_time(books.opening_us), iso_time(books.closing_us)),
        currency=request.currency,
        method=books.method.name,
        lots=request.policy.lots,
        zone=str(books.method.zone),
        accounts=tuple(each.address for each in request.accounts),
        chains=tuple(dict.fromkeys(end.chain.key for end in books.ends)),
        totals=totals_of(tables.accounting, tables.values, evidence_of(tables)),
        rows={name: len(rows) for name, rows in tables.rows.items()},
        files=files,
        digest=digest_of(files),
    )
    (folder / MANIFEST).write_bytes(_json(manifest))
    return manifest


def write_table(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Write a table as NAME.parquet and NAME.csv. It runs a loop, so the caller is no coroutine."""
    columns = COLUMNS[name]

    def dataset() -> Dataset:
        async def pages() -> AsyncIterator[Page]:
            yield Page(rows)

        return Dataset(name, (), columns, pages())

    asyncio.run(write(dataset(), ParquetWriter(folder / f"{name}.parquet", dataset())))
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        asyncio.run(write(dataset(), CsvWriter(file, columns)))


def entries_of(folder: Path) -> tuple[FileEntry, ...]:
    """Return all files of a folder except manifest and signature, by path."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return tuple(entry_of(folder, path) for path in paths if path not in (MANIFEST, SIGNATURE))


def entry_of(folder: Path, path: str) -> FileEntry:
    """Return the entry of a file."""
    data = (folder / path).read_bytes()
    return FileEntry(path, hashlib.sha256(data).hexdigest(), len(data))


def digest_of(files: Iterable[FileEntry]) -> str:
    """Return the digest over all files."""
    lines = (f"{each.sha256} {each.size} {each.path}\n" for each in sorted(files, key=lambda each: each.path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_inside(path: str) -> bool:
    """Return True if a path of a manifest is in its one form and stays in the folder."""
    parts = PurePosixPath(path).parts
    return path == "/".join(parts) and ".." not in parts and "\\" not in path and path.isprintable() and bool(parts)


def totals_of(result: Accounting, values: Mapping[tuple[str, str], Decimal | None], evidence: dict[str, str]) -> Totals:
    """Return the sums of a period."""
    disposals = [each for each in result.gains if each.kind != "income"]
    value = {end: [each for (name, _), each in values.items() if name == end] for end in (OPENING, CLOSING)}
    cost = {end: text(total(lots.cost for lots in result.lots[end].remaining)) for end in (OPENING, CLOSING)}
    return Totals(
        opening_value=_sum(value[OPENING]),
        closing_value=_sum(value[CLOSING]),
        realised=text(total(each.gain for each in disposals)),
        income=text(total(each.proceeds for each in result.gains if each.kind == "income")),
        fees=text(total(each.proceeds for each in disposals if each.kind == "fee")),
        opening_cost=cost[OPENING],
        closing_cost=cost[CLOSING],
        unknown_gains=sum(each.gain is None for each in result.gains),
        evidence=evidence,
    )


def evidence_of(tables: CloseTables) -> dict[str, str]:
    """Return the closing value by class of evidence; positions have that of one source."""
    columns = COLUMNS["balances"]
    classes = {(row[0], row[2]): str(row[columns.index("closingEvidence")]) for row in tables.rows["balances"]}
    values = dict.fromkeys(CLASSES, amounts.ZERO)
    for cells in tables.rows["holdings"]:
        row = dict(zip(COLUMNS["holdings"], map(str, cells), strict=True))
        if row["end"] == CLOSING and row["flag"] not in ("spam", "unvalued"):
            is_balance = row["protocol"] == "wallet"
            name = classes.get((row["account"], row["asset"]), ONE_SOURCE) if is_balance else ONE_SOURCE
            values[name] = amounts.total([values[name], amounts.parse(row["value"])])
    return {name: amounts.text(value) for name, value in values.items()}


def shown_settings(settings: Settings, chains: Iterable[str]) -> dict[str, object]:
    """Return the settings that books depend on; what is not named here may be a secret and is left out."""
    used = {key: settings.chains[key] for key in sorted({*chains})}
    return {
        "pnl": {"treatLiquidity": settings.pnl.treat_liquidity, "tradeValue": settings.pnl.trade_value},
        "rates": dict(settings.rates),
        "prices": dict(settings.prices),
        "chains": {
            key: {"adapter": each.adapter, "rpc": list(map(masked, each.endpoints))} for key, each in used.items()
        },
    }


def _sum(values: Sequence[Decimal | None]) -> str:
    known = [each for each in values if each is not None]
    return amounts.text(amounts.total(known)) if len(known) == len(values) else UNKNOWN


def _json(document: object) -> bytes:
    """Return a document as indented JSON with sorted keys, the same bytes each time."""
    tree = msgspec.to_builtins(document)
    return (json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
