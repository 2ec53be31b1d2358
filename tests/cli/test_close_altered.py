"""Altered packs: whatever is changed after signing, or does not follow before it, both checkers notice."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from chainfolio import amounts
from chainfolio.engine.gains.pnl import zone_of
from chainfolio.errors import BadRequest
from chainfolio.exports.close import check_pack as independent
from chainfolio.exports.close.accounting import (
    AssetTable,
    Method,
    accounting,
    gain_rows,
    lot_rows,
    remaining_rows,
    rollforward_rows,
)
from chainfolio.exports.close.check import check_pack
from chainfolio.exports.close.cutoff import instant_us
from chainfolio.exports.close.pack import (
    MANIFEST,
    SIGNATURE,
    Manifest,
    digest_of,
    entries_of,
    evidence_of,
    totals_of,
    write_table,
)
from chainfolio.exports.close.rules import closing_faults
from chainfolio.exports.close.signature import public_key_in, sign
from chainfolio.exports.close.tables import COLUMNS, CloseTables, entry_in, plain_row, values_by_asset
from chainfolio.portfolio.pnl.entries import AssetFacts

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here"),
]
# Numbers that follow from others: nobody can change one alone, not even who holds the key.
NUMBERS = {
    "balances": ("opening", "closing", "moved", "unexplained"),
    "blocks": ("rate", "height", "hash", "header"),
    "closings": ("moved", "inWallet", "difference"),
    "gains": ("raw", "proceeds", "cost", "gain", "asset"),
    "holdings": ("raw", "price", "value", "decimals", "end"),
    "lots": ("raw", "cost"),
    "movements": ("raw",),
    "prices": ("usd", "price", "source"),
    "proofs": ("account", "asset", "address", "key", "rule"),
    "remaining": ("raw", "cost", "deposited"),
    "rollforward": tuple(name for name in COLUMNS["rollforward"] if name not in ("symbol", "decimals")),
}
ROWS = (
    "accounts",
    "balances",
    "blocks",
    "entries",
    "gains",
    "holdings",
    "lots",
    "movements",
    "prices",
    "proofs",
    "rollforward",
)
PROPERTY = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def findings(folder: Path, signer: Path) -> tuple[list[str], list[str]]:
    """Return what each checker finds wrong: ours and the independent one; an error counts."""
    try:
        ours = [*check_pack(folder, public_key_in(signer.read_text())).wrong]
    except BadRequest as error:
        ours = [str(error)]
    try:
        theirs = independent.run(folder, str(signer)).wrong
    except Exception as error:  # as its command does: what cannot be read does not follow
        theirs = [repr(error)]
    return ours, theirs


def changed_text(text: str) -> str:
    """Return another text of the same kind: a number that is one digit larger, else a longer text."""
    return f"{text}1" if text not in ("N/A", "") else "7"


def rewrite(folder: Path, name: str, rows: list[list[str]]) -> None:
    """Write a table anew, in both formats."""
    write_table(folder / "tables", name, rows)


def table(folder: Path, name: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO((folder / "tables" / f"{name}.csv").read_text(), newline="")))[1:]


def sign_again(folder: Path, key: Path) -> None:
    """Make manifest and signature fit the files."""
    files = entries_of(folder)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    counts = {name: len(table(folder, name)) for name in COLUMNS}
    manifest = msgspec.structs.replace(manifest, files=files, digest=digest_of(files), rows=counts)
    data = json.dumps(msgspec.to_builtins(manifest), indent=2).encode()
    (folder / MANIFEST).write_bytes(data)
    (folder / SIGNATURE).write_bytes(sign(data, key))


# --- alterations after signing ---------------------------------------------------------------------------------------


def change_byte(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(each for each in folder.rglob("*") if each.is_file())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)


def change_number(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(NUMBERS)))
    path = folder / "tables" / f"{name}.parquet"
    content = pq.read_table(path)
    column = data.draw(st.sampled_from(NUMBERS[name]))
    row = data.draw(st.integers(0, content.num_rows - 1))
    cells = content.column(column).to_pylist()
    cells[row] = changed_text(cells[row])
    at = content.column_names.index(column)
    array = pa.array(cells, content.schema.field(at).type)
    pq.write_table(content.set_column(at, content.schema.field(at), array), path, compression="zstd")


def swap_files(folder: Path, data: st.DataObject) -> None:
    paths = sorted(each for each in folder.rglob("*") if each.is_file())
    first, second = data.draw(st.lists(st.sampled_from(paths), min_size=2, max_size=2, unique=True))
    contents = second.read_bytes(), first.read_bytes()
    for path, content in zip((first, second), contents, strict=True):
        path.write_bytes(content)


def drop_row(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ROWS))
    rows = table(folder, name)
    del rows[data.draw(st.integers(0, len(rows) - 1))]
    rewrite(folder, name, rows)


def cut_off(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(each for each in folder.rglob("*") if each.is_file())))
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])


def remove_file(folder: Path, data: st.DataObject) -> None:
    data.draw(st.sampled_from(sorted(each for each in folder.rglob("*") if each.is_file()))).unlink()


def add_file(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["more.csv", "tables/more.csv", "tables/.hidden"]))
    (folder / name).write_text("more")


def sign_with_another_key(folder: Path, data: st.DataObject) -> None:
    drop_row(folder, data)
    sign_again(folder, folder.parent / "other_key")


ALTERATIONS = (
    change_byte,
    change_number,
    swap_files,
    drop_row,
    cut_off,
    remove_file,
    add_file,
    sign_with_another_key,
)


@pytest.fixture
def folder(pack: Path, tmp_path: Path) -> Path:
    """A place for altered copies of the pack, beside its keys."""
    for name in ("key", "key.pub", "other_key"):
        shutil.copy(pack.parent / name, tmp_path / name)
    return tmp_path / "altered"


def copy_of(pack: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pack, folder)
    return folder


@pytest.mark.slow(
    "the alterations that are not slow show the same for files and tables", fast=["*another_key*", "drop*"]
)
@PROPERTY
@given(data=st.data())
@pytest.mark.parametrize("alter", ALTERATIONS, ids=lambda alter: alter.__name__)
def test_whatever_is_altered_after_signing_both_checkers_notice(
    alter: Callable[[Path, st.DataObject], None], data: st.DataObject, pack: Path, folder: Path
) -> None:
    copy_of(pack, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    alter(folder, data)
    if before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}:
        return  # two equal files were swapped
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert ours
    assert theirs


@PROPERTY
@given(data=st.data())
def test_a_number_that_does_not_follow_is_noticed_under_the_right_signature(
    data: st.DataObject, pack: Path, folder: Path
) -> None:
    copy_of(pack, folder)
    name = data.draw(st.sampled_from(sorted(NUMBERS)))
    column = data.draw(st.sampled_from(NUMBERS[name]))
    rows, at = table(folder, name), COLUMNS[name].index(column)
    row = data.draw(st.integers(0, len(rows) - 1))
    rows[row][at] = changed_text(rows[row][at])
    rewrite(folder, name, rows)
    sign_again(folder, folder.parent / "key")
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert ours, (name, column, rows[row])
    assert theirs, (name, column, rows[row])


@pytest.mark.slow("the property of single numbers shows nearly the same")
@PROPERTY
@given(data=st.data())
def test_a_row_that_is_left_out_is_noticed_under_the_right_signature(
    data: st.DataObject, pack: Path, folder: Path
) -> None:
    copy_of(pack, folder)
    name = data.draw(st.sampled_from([each for each in ROWS if each not in ("entries",)]))
    rows = table(folder, name)
    dropped = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
    rewrite(folder, name, rows)
    sign_again(folder, folder.parent / "key")
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert ours, (name, dropped)
    assert theirs, (name, dropped)


@pytest.mark.slow("gains are computed again in the faster tests too")
@PROPERTY
@given(data=st.data())
def test_every_number_of_the_entries_is_noticed_by_computing_the_gains_again(
    data: st.DataObject, pack: Path, folder: Path
) -> None:
    copy_of(pack, folder)
    rows = table(folder, "entries")
    row = data.draw(st.sampled_from([row for row in rows if row[1] in ("buy", "sell", "received", "fee", "sent")]))
    is_acquired = row[1] in ("buy", "received")  # what a disposal before the period brought is in no statement
    names = ("time_us", "quantity", "value") if is_acquired else ("time_us", "quantity")
    at = COLUMNS["entries"].index(data.draw(st.sampled_from(names)))
    row[at] = changed_text(row[at])
    rewrite(folder, "entries", rows)
    sign_again(folder, folder.parent / "key")
    ours, _ = findings(folder, folder.parent / "key.pub")
    assert ours, row


@pytest.mark.parametrize("total", ["openingValue", "closingValue", "realised", "income", "fees", "closingCost"])
def test_a_total_that_is_not_the_sum_is_noticed(pack: Path, folder: Path, total: str) -> None:
    copy_of(pack, folder)
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    manifest["totals"][total] += "1" if "." in manifest["totals"][total] else ".1"
    (folder / MANIFEST).write_text(json.dumps(manifest))
    sign_again(folder, folder.parent / "key")
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert any("total" in each for each in ours)
    assert any("total" in each for each in theirs)


@pytest.mark.parametrize("path", ["../key", "tables/../../key", "/etc/hostname", "link"])
def test_a_path_that_leaves_the_folder_is_refused(pack: Path, folder: Path, path: str) -> None:
    copy_of(pack, folder)
    if path == "link":
        (folder / "link").symlink_to(folder.parent / "key")
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    manifest["files"].append({"path": path, "sha256": "0" * 64, "size": 1})
    data = json.dumps(manifest).encode()
    (folder / MANIFEST).write_bytes(data)
    (folder / SIGNATURE).write_bytes(sign(data, folder.parent / "key"))
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert any("leaves the folder" in each for each in ours)
    assert any("leaves the folder" in each for each in theirs)


@pytest.mark.parametrize("column", ["accountProof", "storageProof"])
def test_an_altered_or_cut_proof_shows_nothing(pack: Path, folder: Path, column: str) -> None:
    at = COLUMNS["proofs"].index(column)
    for change in (
        lambda nodes: nodes[:-1],
        lambda nodes: nodes[1:],
        lambda nodes: [each[:-2] + "00" for each in nodes],
    ):
        copy_of(pack, folder)
        proofs = table(folder, "proofs")
        row = next(each for each in proofs if each[at] != "[]")
        row[at] = json.dumps(change(json.loads(row[at])))
        rewrite(folder, "proofs", proofs)
        sign_again(folder, folder.parent / "key")
        ours, theirs = findings(folder, folder.parent / "key.pub")
        assert any("shows nothing" in each for each in ours)
        assert any("shows nothing" in each for each in theirs)


def test_a_balance_called_proven_without_a_proof_is_wrong(pack: Path, folder: Path) -> None:
    copy_of(pack, folder)
    rewrite(folder, "proofs", table(folder, "proofs")[1:])
    sign_again(folder, folder.parent / "key")
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert any("None is proven" in each for each in ours)
    assert any("None is proven" in each for each in theirs)


def test_a_pack_signed_anew_without_changes_is_right(pack: Path, folder: Path) -> None:
    copy_of(pack, folder)
    for name in COLUMNS:
        rewrite(folder, name, table(folder, name))
    sign_again(folder, folder.parent / "key")
    assert findings(folder, folder.parent / "key.pub") == ([], [])


# --- tables that an owner of the key alters, with all that follows from them ------------------------------------------


def computed_again(folder: Path) -> None:
    """Make gains, lots, the roll-forward and all sums fit altered tables, and sign again."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    tables = {name: [dict(zip(COLUMNS[name], row, strict=True)) for row in table(folder, name)] for name in COLUMNS}
    held = [each for each in tables["holdings"] if each["flag"] not in ("spam", "unvalued")]
    values = values_by_asset((each["end"], each["countsAs"], amounts.parse(each["value"]).copy_abs()) for each in held)
    entries = [entry_in([*row.values()]) for row in tables["entries"]]
    period, zone = manifest.period, zone_of(manifest.zone, manifest.method)
    first, last = (instant_us("", day, period.at) for day in (period.first, period.last))
    unclosed = {(row["asset"], row["wallet"]) for row in tables["closings"] if row["difference"] != "0"}
    result = accounting(entries, Method(manifest.method, manifest.lots == "wallet", zone), first, last, unclosed)
    shown = AssetTable({row["asset"]: AssetFacts(row["symbol"], int(row["decimals"])) for row in tables["assets"]})
    for name, rows in (
        ("gains", gain_rows(result, shown)),
        ("lots", lot_rows(result, shown)),
        ("remaining", remaining_rows(result, shown)),
        ("rollforward", rollforward_rows(result, values, shown)),
    ):
        rewrite(folder, name, [[*map(str, plain_row(row))] for row in rows])
    cells = {name: table(folder, name) for name in COLUMNS}
    totals = totals_of(result, values, evidence_of(CloseTables(cells, result, values)))
    manifest = msgspec.structs.replace(manifest, totals=totals)
    (folder / MANIFEST).write_bytes(json.dumps(msgspec.to_builtins(manifest)).encode())
    sign_again(folder, folder.parent / "key")


SOURCES = ("accounts", "assets", "balances", "blocks", "closings", "holdings", "movements", "prices", "proofs")


@PROPERTY
@given(data=st.data())
def test_a_source_row_that_is_doubled_or_left_out_is_noticed_when_all_is_computed_again(
    data: st.DataObject, pack: Path, folder: Path
) -> None:
    copy_of(pack, folder)
    name = data.draw(st.sampled_from(SOURCES))
    rows = table(folder, name)
    at = data.draw(st.integers(0, len(rows) - 1))
    rows[at : at + 1] = data.draw(st.sampled_from([[], [rows[at], rows[at]]]))
    rewrite(folder, name, rows)
    with suppress(LookupError):  # what cannot be computed again is signed as it was
        computed_again(folder)
    sign_again(folder, folder.parent / "key")
    ours, theirs = findings(folder, folder.parent / "key.pub")
    assert ours, (name, at)
    assert theirs, (name, at)


@pytest.mark.parametrize(("in_wallet", "fault_count"), [("5", 0), ("4", 1)], ids=["equal", "one less"])
def test_lots_are_compared_with_balances(in_wallet: str, fault_count: int) -> None:
    tables = {
        "balances": [{"account": "a", "countsAs": "eth:coin", "closing": "5"}],
        "closings": [{"asset": "eth:coin", "wallet": "", "inWallet": in_wallet}],
        "remaining": [],
        "holdings": [],
    }
    assert len(closing_faults(tables, set())) == fault_count


def test_an_asset_with_lots_needs_a_comparison() -> None:
    lot = {"asset": "eth:coin", "end": "closing"}
    tables: dict[str, list[dict[str, str]]] = {"balances": [], "closings": [], "remaining": [lot], "holdings": []}
    assert closing_faults(tables, set()) == ["lots of eth:coin are not compared with balances"]
