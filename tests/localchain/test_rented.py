"""The rented endpoint keeps its rules: limits, faults and a head that lags, the same for the same seed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.rented import Limits, RentedEndpoint, log_id

FREE = Limits(rps=0, failing=0, hanging=0, lag=0)
pytestmark = pytest.mark.node


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as node:
        yield node


@pytest.fixture(scope="module")
def deployment(node: LocalNode) -> Deployment:
    deployed = deploy(node)
    node.mine(10)
    return deployed


@pytest.fixture
def endpoint(node: LocalNode, deployment: Deployment) -> Iterator[RentedEndpoint]:
    with RentedEndpoint(node.url, FREE, now_s=ManualClock()).serving() as endpoint:
        yield endpoint


def post(endpoint: RentedEndpoint, *calls: tuple[str, Any]) -> tuple[int, Any]:
    """The status and the decoded answer; one call is no batch."""
    body = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(calls)
    ]
    content = json.dumps(body if len(body) > 1 else body[0]).encode()
    request = urllib.request.Request(endpoint.url, content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["retry-after"]


def test_log_ranges_results_and_batches_are_limited(endpoint: RentedEndpoint, node: LocalNode) -> None:
    every = node.rpc("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    wide = ("eth_getLogs", [{"fromBlock": "0x0", "toBlock": "latest"}])
    assert post(endpoint, wide)[1]["result"] == every
    endpoint.reset(replace(FREE, results=len(every) - 1))
    assert "returned more than" in post(endpoint, wide)[1]["error"]["message"]
    endpoint.reset(replace(FREE, range_blocks=node.height))
    assert "range" in post(endpoint, wide)[1]["error"]["message"]
    endpoint.reset(replace(FREE, batch=2))
    chain_id: tuple[str, Any] = ("eth_chainId", [])
    assert len(post(endpoint, chain_id, chain_id)[1]) == 2
    assert "batch" in post(endpoint, chain_id, chain_id, chain_id)[1]["error"]["message"]


def test_requests_above_the_rate_are_refused_and_counted(endpoint: RentedEndpoint) -> None:
    endpoint.reset(replace(FREE, rps=3, retry_after=("7",)))
    statuses = [post(endpoint, ("eth_chainId", []))[0] for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert post(endpoint, ("eth_chainId", [])) == (429, "7")
    assert isinstance(endpoint.now_s, ManualClock)
    endpoint.now_s.now = 1.0
    assert post(endpoint, ("eth_chainId", []))[0] == 200
    assert (endpoint.requests, endpoint.refusals) == (6, 2)
    endpoint.reset(replace(FREE, rps=3, counts_calls=True, retry_after=(None,)))
    assert post(endpoint, *[("eth_chainId", [])] * 3)[0] == 200
    assert post(endpoint, ("eth_chainId", [])) == (429, None)


def test_faults_and_lag_are_the_same_for_the_same_seed(endpoint: RentedEndpoint, node: LocalNode) -> None:
    responses = []
    for _ in range(2):
        endpoint.reset(replace(FREE, failing=0.3, lag=2))
        responses.append([post(endpoint, ("eth_getBlockByNumber", ["latest", False])) for _ in range(30)])
        assert endpoint.failures == sum(status == 502 for status, _ in responses[-1]) > 0
    assert responses[0] == responses[1]
    heads = {int(answer["result"]["number"], 16) for status, answer in responses[0] if status == 200}
    assert heads == {node.height - lag for lag in range(3)}


def test_methods_of_traces_are_not_there(endpoint: RentedEndpoint) -> None:
    assert post(endpoint, ("trace_block", ["0x1"]))[1]["error"]["code"] == -32601
    assert post(endpoint, ("debug_traceTransaction", ["0x1"]))[1]["error"]["code"] == -32601


def test_logs_that_are_left_out_stay_in_their_receipts(endpoint: RentedEndpoint, node: LocalNode) -> None:
    every = node.rpc("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    endpoint.reset(replace(FREE, left_out=frozenset([log_id(every[5])])))
    answer = post(endpoint, ("eth_getLogs", [{"fromBlock": "0x0", "toBlock": "latest"}]))[1]
    assert answer["result"] == every[:5] + every[6:]
    receipt = post(endpoint, ("eth_getTransactionReceipt", [every[5]["transactionHash"]]))[1]["result"]
    assert every[5]["logIndex"] in {log["logIndex"] for log in receipt["logs"]}
