"""Reference history of the long chain's wallets, from recorded files by plain Python.

It and the product's stored rows are tuples of the same form. Nothing is shared with the product.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.truth import APPROVAL, TRANSFER, rows

Row = tuple[Any, ...]
PAY = "0xc39328f1"  # pay(address[],uint256), the only call that moves coins inside


@dataclass(frozen=True, slots=True)
class Wallets:
    """The long chain: its blocks, its wallets, and the planted differences."""

    folder: Path
    first: int
    last: int
    wallets: tuple[str, ...]
    payer: str
    planted: tuple[tuple[str, str, str, int], ...]  # kind, wallet, token, first block
    logs: int

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.last - self.first + 1


def read(folder: Path) -> Wallets:
    """Read `chain.json`."""
    facts = json.loads((folder / "chain.json").read_text())
    planted = tuple((each["kind"], each["wallet"], each["token"], each["height"]) for each in facts["planted"])
    return Wallets(
        folder, facts["firstBlock"], facts["lastBlock"], tuple(facts["wallets"]), facts["payer"], planted, facts["logs"]
    )


def expected(chain: Wallets) -> dict[str, set[Row]]:
    """Return the rows of the wallets by table; transfers include native and internal ones."""
    tables: dict[str, set[Row]] = {"transfers": set(), "approvals": set(), "transactions": set()}
    files = [(chain.folder / f"{name}.jsonl").open() for name in ("blocks", "logs", "receipts")]
    for height, (block, logs, receipts) in enumerate(zip(*files, strict=True)):
        if chain.first <= height <= chain.last and len(receipts) > 3:
            for log in json.loads(logs):
                _log(tables, height, log, chain.wallets)
            for tx, receipt in zip(json.loads(block)["transactions"], json.loads(receipts), strict=True):
                _transaction(tables, height, tx, receipt, chain)
    return tables


def _log(tables: dict[str, set[Row]], height: int, log: dict[str, Any], wallets: Collection[str]) -> None:
    topics, position = log["topics"], (height, int(log["logIndex"], 16))
    if len(topics) < 3 or topics[0] not in (TRANSFER, APPROVAL):
        return
    first, second = ("0x" + topic[26:] for topic in topics[1:3])
    if first not in wallets and second not in wallets:
        return
    token = log["address"].lower()
    if topics[0] == APPROVAL:
        tables["approvals"].add((*position, token, first, second, int(log["data"], 16)))
    elif len(topics) == 4:
        tables["transfers"].add((*position, "erc721", token, first, second, int(topics[3], 16), 1))
    else:
        tables["transfers"].add((*position, "erc20", token, first, second, None, int(log["data"], 16)))


def _transaction(
    tables: dict[str, set[Row]], height: int, tx: dict[str, Any], receipt: dict[str, Any], chain: Wallets
) -> None:
    position, value, is_done = int(tx["transactionIndex"], 16), int(tx["value"], 16), receipt["status"] == "0x1"
    fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
    sender, recipient = tx["from"], tx["to"]
    if sender in chain.wallets or recipient in chain.wallets:
        tables["transactions"].add((height, position, tx["hash"], sender, recipient, value, int(is_done), fee))
        if is_done and value:
            tables["transfers"].add((height, -1, "native", None, sender, recipient, None, value))
    if recipient == chain.payer and is_done and tx["input"].startswith(PAY):
        arguments = [tx["input"][at : at + 64] for at in range(10, len(tx["input"]), 64)]
        for argument in arguments[3:]:
            if "0x" + argument[24:] in chain.wallets:
                transfer = (
                    height,
                    -1,
                    "internal",
                    None,
                    chain.payer,
                    "0x" + argument[24:],
                    None,
                    int(arguments[1], 16),
                )
                tables["transfers"].add(transfer)


def stored(data: Path, chain: Wallets) -> dict[str, list[Row]]:
    """Return the product's stored rows of the wallets by table, including duplicates."""
    return {
        "transfers": [
            (height, log, standard, token, sender, recipient, _int(token_id), _int(raw))
            for height, log, standard, token, sender, recipient, token_id, raw in _of(
                data,
                chain,
                "transfers",
                ["log_index", "standard", "token", "sender", "recipient", "token_id", "raw"],
                ("sender", "recipient"),
            )
        ],
        "approvals": [
            (*row[:-1], _int(row[-1]))
            for row in _of(
                data, chain, "approvals", ["log_index", "token", "owner", "spender", "raw"], ("owner", "spender")
            )
        ],
        "transactions": [
            (height, position, tx_hash, sender, recipient, _int(raw), status, _int(fee))
            for height, position, tx_hash, sender, recipient, raw, status, fee in _of(
                data,
                chain,
                "transactions",
                ["tx_index", "hash", "sender", "recipient", "raw", "status", "fee"],
                ("sender", "recipient"),
            )
        ],
    }


def _of(data: Path, chain: Wallets, table: str, columns: list[str], parties: tuple[str, str]) -> Iterator[Row]:
    first, second = (columns.index(name) + 1 for name in parties)
    for row in rows(data, table, ["height", *columns]):
        is_theirs = row[first] in chain.wallets or row[second] in chain.wallets
        if is_theirs and chain.first <= row[0] <= chain.last:
            yield row


def _int(raw: bytes | None) -> int | None:
    return None if raw is None else int.from_bytes(raw, "big")


def compared(expected_rows: dict[str, set[Row]], stored_rows: dict[str, list[Row]]) -> dict[str, tuple[int, int, int]]:
    """Return for each table the number of missing rows, of rows too many, and of duplicates."""
    return {
        name: (
            len(rows_ - set(stored_rows[name])),
            len(set(stored_rows[name]) - rows_),
            len(stored_rows[name]) - len(set(stored_rows[name])),
        )
        for name, rows_ in expected_rows.items()
    }
