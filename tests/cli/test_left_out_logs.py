"""The commands of a wallet whose rented endpoint leaves out one log of 500, or one approval."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from chainfolio.localchain.newcomer import Newcomer
from chainfolio.localchain.rented import LogId, log_id
from tests.cli.conftest import Run
from tests.cli.newcomer import Rent

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("newcomer")]
CALM: dict[str, Any] = {"rps": 0, "failing": 0, "hanging": 0, "lag": 0}
LISTED = "250"  # transactions of one page
REMARKS = ("issues", "completeness", "lastUpdated", "updatedAt", "requests")
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


def transfers(chain: Newcomer, topic_index: int) -> dict[LogId, bool]:
    """The ERC-20 transfers that name the wallet in a topic; True for those in transactions that it sent."""
    topic = "0x" + chain.wallet[2:].rjust(64, "0")
    transfer_logs = [log for log in chain.logs if log["topics"][0] == TRANSFER and len(log["topics"]) == 3]
    wallet_logs = [log for log in transfer_logs if log["topics"][topic_index] == topic]
    senders = {
        log_id(log): chain.node.rpc("eth_getTransactionByHash", log["transactionHash"])["from"] for log in wallet_logs
    }
    return {log: sender == chain.wallet for log, sender in senders.items()}


def own_transfer(chain: Newcomer) -> frozenset[LogId]:
    return frozenset([[log for log, is_own in transfers(chain, 1).items() if is_own][-1]])


def transfer_to_the_wallet(chain: Newcomer) -> frozenset[LogId]:
    return frozenset([[log for log, is_own in transfers(chain, 2).items() if not is_own][-1]])


@pytest.fixture(scope="module")
def complete() -> dict[str, Any]:
    """The answers from an endpoint that leaves out nothing, read by the first test that needs them."""
    return {}


def answers_of_all_logs(complete: dict[str, Any], run: Run, rent: Rent, chain: Newcomer) -> dict[str, Any]:
    if not complete:
        complete.update(watched(run, rent, chain, frozenset()))
    return complete


def watched(run: Run, rent: Rent, chain: Newcomer, left_out: frozenset[LogId], extra: str = "") -> dict[str, Any]:
    """Watch the wallet again at an endpoint that omits logs; return the answers without remarks."""
    shutil.rmtree("data", ignore_errors=True)
    rent(left_out=left_out, more=extra, **CALM)
    ran = run("watch", chain.wallet, "--json")
    assert ran.code == 0, ran.out + ran.err
    commands = {
        "transactions": ("--limit", LISTED),
        "approvals": (),
        "pnl": (),
        "history": (),
        "reconcile": (),
    }
    documents = {name: run(name, chain.wallet, *options, "--json").json for name, options in commands.items()}
    return {name: without_remarks(document) for name, document in documents.items()}


def without_remarks(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: without_remarks(value) for name, value in document.items() if name not in REMARKS}
    return [without_remarks(each) for each in document] if isinstance(document, list) else document


@pytest.mark.slow("another kind of log, which is read in the same way", only=["transfer"])
@pytest.mark.parametrize("kind", ["approval", "transfer"])
def test_a_log_of_an_own_transaction_that_the_endpoint_leaves_out_is_in_every_answer_and_named(
    run: Run, rent: Rent, newcomer_chain: Newcomer, complete: dict[str, Any], kind: str
) -> None:
    left_out = newcomer_chain.one_approval() if kind == "approval" else own_transfer(newcomer_chain)
    ((tx_hash, number),) = left_out
    complete_answers = answers_of_all_logs(complete, run, rent, newcomer_chain)
    assert watched(run, rent, newcomer_chain, left_out) == complete_answers
    assert len(complete_answers["transactions"]["transactions"]) > 100
    assert complete_answers["approvals"]["approvals"]
    reason = f"left out log {number} of transaction {tx_hash}"
    page = run("transactions", newcomer_chain.wallet, "--json").json
    assert page["completeness"] == "partial"
    assert [issue for issue in page["issues"] if reason in issue["reason"]]
    (chain,) = run("status", "--json").json["chains"]
    assert [each for each in chain["accounts"][0]["unexplained"] if reason in each["reason"]]
    (endpoint,) = run("doctor", "--json").json["endpoints"]
    assert (endpoint["ok"], endpoint["leavesOutLogs"]) == (True, True)
    assert endpoint["problem"].startswith("left out logs of accounts")


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_watch_that_ends_between_logs_and_transactions_loses_no_log(
    run: Run, rent: Rent, newcomer_chain: Newcomer, complete: dict[str, Any]
) -> None:
    """The process that reads the receipts does not remember which logs were given."""
    left_out = newcomer_chain.one_approval()
    rent(left_out=left_out, **CALM)
    ran = run("watch", newcomer_chain.wallet, "--max-requests", "40", "--json")
    assert ran.code != 0
    (chain,) = run("status", "--json").json["chains"]
    spans = {each["dataset"]: each["indexed"] for each in chain["accounts"][0]["datasets"]}
    assert spans["approvals"] != spans["transactions"]
    assert run("watch", newcomer_chain.wallet, "--json").code == 0
    stopped = run("approvals", newcomer_chain.wallet, "--json").json
    assert without_remarks(stopped) == answers_of_all_logs(complete, run, rent, newcomer_chain)["approvals"]


@pytest.mark.slow("watches a long history; one log that is left out has a faster test")
def test_one_log_of_500_is_left_out_and_no_answer_lacks_it(
    run: Run, rent: Rent, newcomer_chain: Newcomer, complete: dict[str, Any]
) -> None:
    complete_answers = answers_of_all_logs(complete, run, rent, newcomer_chain)
    assert complete_answers["reconcile"][0]["differences"] == []
    assert watched(run, rent, newcomer_chain, newcomer_chain.one_log_of()) == complete_answers


@pytest.mark.slow("watches a long history twice")
def test_a_payment_by_others_that_is_left_out_is_named_by_reconcile_and_found_by_roots(
    run: Run, rent: Rent, newcomer_chain: Newcomer, complete: dict[str, Any]
) -> None:
    """No receipt of a transaction of the wallet holds it."""
    left_out = transfer_to_the_wallet(newcomer_chain)
    ((tx_hash, number),) = left_out
    differences = watched(run, rent, newcomer_chain, left_out)["reconcile"][0]["differences"]
    reason = f"the node left out log {number} of transaction {tx_hash} when the block was indexed"
    assert {(each["cause"], each["reason"].partition(":")[0]) for each in differences} == {("missing_row", reason)}
    complete_answers = answers_of_all_logs(complete, run, rent, newcomer_chain)
    assert watched(run, rent, newcomer_chain, left_out, 'integrity = "roots"\nsample = 1') == complete_answers
