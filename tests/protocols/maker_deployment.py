"""Maker on a local chain: replayed transactions of its own test chain, from npm."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain import install
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode

GAS = 15_000_000  # they were sent with less, when storage was cheaper to read


@dataclass(frozen=True)
class RecordedTx:
    """A transaction of the package's snapshot, and when it was mined."""

    tx: Tx
    height: int
    time_s: int


@dataclass(frozen=True)
class Maker:
    """Maker's contracts by their names in the package's list."""

    contracts: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.contracts[name].lower()

    @property
    def file(self) -> str:
        """The protocol's file for this chain."""
        roles = {
            "cdp_manager": "CDP_MANAGER",
            "get_cdps": "GET_CDPS",
            "vat": "MCD_VAT",
            "dai": "MCD_DAI",
            "ilk_registry": "ILK_REGISTRY",
            "pot": "MCD_POT",
            "dsr_manager": "DSR_MANAGER",
            "proxy_factory": "PROXY_FACTORY",
        }
        head = 'key = "maker"\nname = "Maker"\nfamilies = ["maker_vaults", "maker_savings"]\n[contracts.local]\n'
        return head + "".join(f'{role} = ["{self[name]}"]\n' for role, name in roles.items())


def load_snapshot() -> tuple[list[RecordedTx], Maker]:
    """Load the snapshot's transactions in their order, and the addresses of the contracts."""
    package = install.home() / "node_modules" / "@makerdao" / "testchain"
    tables: dict[str, dict[str, Any]] = {"transactions": {}, "transactionReceipts": {}, "blocks": {}}
    with tarfile.open(package / "snapshots" / "default.tgz") as files:
        for file in files:
            _, kind, key = [*file.name.split("!"), "", ""][:3]
            if kind in tables and (content := files.extractfile(file)) is not None:
                tables[kind][key] = json.load(content)
    times = {
        int(key): int(block["header"]["timestamp"], 16) for key, block in tables["blocks"].items() if key.isdigit()
    }
    txs = []
    for key, each in tables["transactions"].items():
        height = int(tables["transactionReceipts"][key]["blockNumber"], 16)
        tx = Tx(each["from"], each["to"] or None, "0x" + each["data"].removeprefix("0x"), int(each["value"], 16), GAS)
        txs.append(RecordedTx(tx, height, times[height]))
    addresses = json.loads((package / "out" / "addresses-mcd.json").read_text())
    return sorted(txs, key=lambda each: each.height), Maker(addresses)


def replay(node: LocalNode, txs: list[RecordedTx]) -> None:
    """Send the transactions again, each in a block with its original time."""
    sender = txs[0].tx.sender
    node.rpc("anvil_impersonateAccount", sender)
    node.rpc("anvil_setBalance", sender, hex(10**24))
    for each in txs:
        node.rpc("evm_setNextBlockTimestamp", each.time_s)
        node.settle([each.tx])
