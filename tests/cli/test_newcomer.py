"""The commands of somebody who starts with a rented endpoint: `watch`, and what it can answer afterwards."""

from __future__ import annotations

import pytest

from localchain.newcomer import TRANSACTIONS, Newcomer
from tests.cli.conftest import Run
from tests.cli.newcomer import Rent

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("newcomer")]
LISTED = "250"  # transactions of one page


def sent(chain: Newcomer) -> set[str]:
    """The transactions that the wallet sent, as the node itself has them."""
    hashes = set[str]()
    for height in sorted({int(log["blockNumber"], 16) for log in chain.logs}):
        block = chain.node.rpc("eth_getBlockByNumber", hex(height), True)
        hashes |= {each["hash"] for each in block["transactions"] if each["from"] == chain.wallet}
    return hashes


def test_watch_reads_every_transaction_from_a_rented_endpoint(run: Run, rent: Rent, newcomer_chain: Newcomer) -> None:
    endpoint = rent(hanging=0)
    ran = run("watch", newcomer_chain.wallet, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert endpoint.calls["eth_getLogs"]
    page = run("transactions", newcomer_chain.wallet, "--limit", LISTED, "--json").json
    listed = {each["hash"] for each in page["transactions"] if each["from"] == newcomer_chain.wallet}
    every = sent(newcomer_chain)
    assert every <= listed
    assert len(listed) == TRANSACTIONS
    for command in ("pnl", "approvals", "history", "reconcile"):
        ran = run(command, newcomer_chain.wallet, "--json")
        assert ran.code == 0, ran.out + ran.err
