"""Commands at a rented endpoint: `watch`, and the commands that read its rows."""

from __future__ import annotations

import pytest

from chainfolio.localchain.newcomer import TRANSACTIONS, Newcomer
from chainfolio.transport import http_endpoint
from tests.cli.conftest import Run
from tests.cli.newcomer import KEY, Rent

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("newcomer")]
MAX_WATCH, MAX_AGAIN, MAX_AFTERWARDS = 250, 15, 40  # requests of the first `watch`, the second one, and reads
MAX_REFUSED = 0.05  # share of the requests
MAX_ESTIMATE = 20
DATASETS = "blocks,transactions,native,transfers,approvals"
LISTED = "250"  # transactions of one page


def sent_transactions(chain: Newcomer) -> set[str]:
    """The transactions that the wallet sent, as the node itself has them."""
    hashes = set[str]()
    for height in sorted({int(log["blockNumber"], 16) for log in chain.logs}):
        block = chain.node.rpc("eth_getBlockByNumber", hex(height), True)
        hashes |= {each["hash"] for each in block["transactions"] if each["from"] == chain.wallet}
    return hashes


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_watch_reads_every_transaction_from_a_rented_endpoint(run: Run, rent: Rent, newcomer_chain: Newcomer) -> None:
    endpoint = rent(hanging=0)
    ran = run("watch", newcomer_chain.wallet, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert endpoint.requests <= MAX_WATCH
    assert endpoint.refusals <= MAX_REFUSED * endpoint.requests
    assert endpoint.calls["eth_getTransactionCount"] <= 3 * TRANSACTIONS, "logs show where the wallet acted"
    for command in (("pnl",), ("transactions",), ("transactions", "--limit", LISTED)):
        endpoint.reset()
        ran = run(command[0], newcomer_chain.wallet, *command[1:], "--json")
        assert ran.code == 0, ran.out + ran.err
        assert not endpoint.calls, f"{command}: watch has read what it needs"
    page = ran.json
    hashes = {each["hash"] for each in page["transactions"] if each["from"] == newcomer_chain.wallet}
    assert sent_transactions(newcomer_chain) <= hashes
    assert len(hashes) == TRANSACTIONS
    for name in ("approvals", "history", "reconcile"):
        endpoint.reset()
        ran = run(name, newcomer_chain.wallet, "--json")
        assert ran.code == 0, ran.out + ran.err
        assert endpoint.requests <= MAX_AFTERWARDS
    (reconciled,) = ran.json
    assert reconciled["differences"] == []
    endpoint.reset()
    assert run("watch", newcomer_chain.wallet, "--json").code == 0
    assert endpoint.requests <= MAX_AGAIN


@pytest.mark.slow("waits for requests that hang, twice")
@pytest.mark.parametrize("seed", [2, 3])
def test_watch_survives_hung_requests_and_failures(
    run: Run, rent: Rent, newcomer_chain: Newcomer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(http_endpoint, "LEAST_PATIENCE_S", 0.2)
    endpoint = rent(hanging=0.04, failing=0.03, seed=seed, more="timeout_s = 12")
    ran = run("watch", newcomer_chain.wallet, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert endpoint.hangs
    assert endpoint.requests <= MAX_WATCH
    (reconciled,) = run("reconcile", newcomer_chain.wallet, "--json").json
    assert reconciled["differences"] == []


@pytest.mark.slow("tests/evm/test_account_places.py ends work by a limit")
def test_watch_keeps_to_a_limit_that_counts_calls(run: Run, rent: Rent, newcomer_chain: Newcomer) -> None:
    endpoint = rent(hanging=0, rps=120, counts_calls=True)
    ran = run("watch", newcomer_chain.wallet, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert endpoint.refusals <= 2 * MAX_REFUSED * endpoint.requests


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_an_estimate_of_watch_is_cheap_and_near_what_watch_costs(
    run: Run, rent: Rent, newcomer_chain: Newcomer
) -> None:
    endpoint = rent(hanging=0)
    (estimate,) = run("watch", newcomer_chain.wallet, "--estimate", "--json").json
    assert endpoint.requests <= MAX_ESTIMATE
    assert estimate["factor"] <= 2
    endpoint.reset()
    (spent,) = run("watch", newcomer_chain.wallet, "--json").json
    assert spent["requests"] / 2 <= estimate["requests"] <= spent["requests"] * 2
    assert spent["rows"] / 2 <= estimate["rows"] <= spent["rows"] * 2


def test_an_estimate_of_index_is_cheap_and_near_what_index_costs(
    run: Run, rent: Rent, newcomer_chain: Newcomer
) -> None:
    endpoint = rent(hanging=0, failing=0)
    estimate = run("index", KEY, "--to", "400", "--datasets", DATASETS, "--estimate", "--json").json
    assert endpoint.requests <= MAX_ESTIMATE
    endpoint.reset()
    spent = run("index", KEY, "--to", "400", "--datasets", DATASETS, "--json").json
    assert spent["requests"] / 2 <= estimate["requests"] <= spent["requests"] * 2
