"""226 real transactions of ten chains: transfers in logs equal the gains that two sources report."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm import facts
from chainfolio.adapters.evm.datasets import transfers
from tests.evm.recorded import lines, logs_in, needs_recordings

pytestmark = needs_recordings

CONFIGS = Path(__file__).parents[2] / "configs" / "chains"
CHAINS = {
    "arbitrum": "arbitrum",
    "base": "base",
    "bsc": "binance",
    "ethereum": "ethereum",
    "gnosis": "gnosis",
    "hyperevm": "",
    "monad": "monad",
    "optimism": "optimism",
    "polygon": "polygon",
    "scroll": "",
}
# Chains that we have no file for: who wraps their coin.
WRAPPERS = {
    "hyperevm": "0x5555555555555555555555555555555555555555",
    "scroll": "0x5300000000000000000000000000000000000004",
}


def wrapper(chain: str) -> str | None:
    if chain in WRAPPERS:
        return WRAPPERS[chain]
    wrapped = facts.load(CONFIGS / f"{CHAINS[chain]}.toml").wrapped
    return wrapped.address if wrapped else None


def net_transfers(receipt: dict[str, Any], wrapped: str | None) -> dict[str, Counter[str]]:
    """The change of each account in each token by the transfers in a receipt."""
    net: dict[str, Counter[str]] = defaultdict(Counter)
    rows, _ = transfers.decode(logs_in([receipt], 0), "case", wrapped)
    for row in rows.to_pylist():
        if row["standard"] == "erc721":
            asset = f"nft:{row['token']}/{int.from_bytes(row['token_id'], 'big')}"
        elif row["standard"] in ("erc20", "wrap", "unwrap"):
            asset = f"erc20:{row['token']}"
        else:
            continue
        raw = int.from_bytes(row["raw"], "big")
        net[row["sender"]][asset] -= raw
        net[row["recipient"]][asset] += raw
    return net


@pytest.mark.parametrize("chain", CHAINS)
def test_tokens_move_as_the_net_of_every_case_says(chain: str) -> None:
    receipts = {
        line["result"]["transactionHash"]: line["result"]
        for line in lines(f"tx_cases/{chain}.rpc.jsonl.gz")
        if line["method"] == "eth_getTransactionReceipt"
    }
    wrapped = wrapper(chain)
    cases = lines(f"tx_cases/{chain}.expected.jsonl.gz")
    assert cases
    for case in cases:
        net = net_transfers(receipts[case["tx_hash"]], wrapped)
        for account in case["tracked_accounts"]:
            want = {
                asset: int(change["raw"])
                for asset, change in case["net"].get(account, {}).items()
                if asset != "native" and int(change["raw"])
            }
            assert {asset: raw for asset, raw in net[account].items() if raw} == want, case["id"]
