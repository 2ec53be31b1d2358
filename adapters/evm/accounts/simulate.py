"""Internal transfers of blocks, from a node that executes their transactions again (`eth_simulateV1`).

The transactions run in order on the parent's state with the block's own parameters. The node reports each movement of
native coins as a log of a pseudo-token. The caller must compare such results with the balances: nothing proves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, coin_transfers
from chainfolio.adapters.evm.forms import Address, Data, Hash
from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

NATIVE_COIN: Final = "0x" + "ee" * 20  # ERC-7528: the address that represents native coins
MAX_BLOCKS = 10  # of one request


class _Log(msgspec.Struct):
    address: Address
    topics: list[Hash]
    data: Data


class _Call(msgspec.Struct):
    logs: list[_Log]


class _Block(msgspec.Struct):
    calls: list[_Call]


async def simulate_transfers(node: Node, blocks: Sequence[Body]) -> list[list[CoinTransfer] | None]:
    """Return the internal transfers of each block; None for a block that the endpoint cannot simulate.

    All are None if no endpoint has the method or the state. Contract creations are not simulated.

    Raises:
        BadAnswer: An endpoint simulated other transactions than requested.
    """

    async def at(endpoint: Endpoint) -> list[list[CoinTransfer] | None]:
        results: list[list[CoinTransfer] | None] = []
        for start in range(0, len(blocks), MAX_BLOCKS):
            part = blocks[start : start + MAX_BLOCKS]
            answers = await endpoint.ask([_request(body) for body in part], height=part[0].traced_block.height)
            for answer in answers:
                if isinstance(answer, HistoryUnavailable) or (
                    isinstance(answer, UnsupportedMethod) and _is_about_method(answer)
                ):
                    raise answer
            results += [
                None if isinstance(each, SourceError) else _transfers(endpoint.name, body, each)
                for body, each in zip(part, answers, strict=True)
            ]
        return results

    try:
        return await node.with_any(at, kind="simulated")
    except (UnsupportedMethod, HistoryUnavailable):
        return [None] * len(blocks)


def _is_about_method(refusal: UnsupportedMethod) -> bool:
    """Return True if the endpoint refuses the method itself, False if it refuses a transaction."""
    return "transaction" not in refusal.reason


def _simulated_indices(body: Body) -> list[int]:
    """Return the transactions to simulate: all but contract creations, which some nodes refuse."""
    return [index for index, tx in enumerate(body.full.transactions) if tx.to is not None]


def _request(body: Body) -> Request:
    """Return the request that runs a block's transactions, without creations, on the state of its parent."""
    full = body.full
    parameters = {
        "number": full.number,
        "time": full.timestamp,
        "feeRecipient": full.miner,
        "gasLimit": full.gasLimit,
        "baseFeePerGas": full.baseFeePerGas,
        "prevRandao": full.mixHash,
    }
    transactions = [full.transactions[index] for index in _simulated_indices(body)]
    calls = [
        {"from": tx.sender, "to": tx.to, "value": tx.value, "input": tx.input, "nonce": tx.nonce} for tx in transactions
    ]
    state = {"blockOverrides": {name: value for name, value in parameters.items() if value}, "calls": calls}
    options = {"blockStateCalls": [state], "traceTransfers": True, "validation": False}
    return Request("eth_simulateV1", (options, hex_of(body.traced_block.height - 1)))


def _transfers(source: str, body: Body, answer: bytes) -> list[CoinTransfer]:
    """Return the coin transfers of a simulated block, without the values of the transactions.

    Raises BadAnswer if the simulation has another number of blocks or calls than the request.
    """
    blocks, indices = typed(source, answer, list[_Block]), _simulated_indices(body)
    if len(blocks) != 1 or len(blocks[0].calls) != len(indices):
        raise BadAnswer(
            source, f"a simulation of block {body.traced_block.height} with other transactions than were asked for"
        )
    transfers = []
    for index, call in zip(indices, blocks[0].calls, strict=True):
        coins = [log for log in call.logs if log.address.lower() == NATIVE_COIN and len(log.topics) == 3]
        has_value = int(body.full.transactions[index].value, 16) > 0  # the transaction's own value comes first
        for log in coins[1:] if has_value else coins:
            sender, recipient = ("0x" + topic[26:] for topic in log.topics[1:])
            transfers += coin_transfers(source, index, sender, recipient, int(log.data, 16))
    return transfers
