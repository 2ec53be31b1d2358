"""Internal transfers of blocks, from a node that executes their transactions again (`eth_simulateV1`).

The transactions run in order on the parent's state with the block's own parameters. The node reports each movement of
native coins as a log of a pseudo-token. The caller must compare such results with the balances: nothing proves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
    """Return the internal transfers of each block; None for a block that no endpoint can simulate.

    A block that one endpoint refuses is sent to the next. Contract creations are not simulated.

    Raises:
        BadAnswer: An endpoint simulated other transactions than requested.
        Unavailable: An endpoint that may simulate a block does not answer.
    """
    simulated: dict[int, list[CoinTransfer]] = {}

    async def at(endpoint: Endpoint) -> None:
        """Simulate and store the pending blocks; raise UnsupportedMethod if the endpoint refuses one."""
        pending = [index for index in range(len(blocks)) if index not in simulated]
        refusal: SourceError | None = None
        for start in range(0, len(pending), MAX_BLOCKS):
            part = pending[start : start + MAX_BLOCKS]
            requests = [_request(blocks[index]) for index in part]
            answers = await endpoint.ask(requests, height=blocks[part[0]].traced_block.height)
            for index, answer in zip(part, answers, strict=True):
                if isinstance(answer, HistoryUnavailable) or (
                    isinstance(answer, UnsupportedMethod) and _is_about_method(answer)
                ):
                    raise answer
                if isinstance(answer, SourceError):
                    refusal = answer
                else:
                    simulated[index] = _transfers(endpoint.name, blocks[index], answer)
        if refusal is not None:
            raise UnsupportedMethod(endpoint.name, f"does not simulate a block: {refusal.reason}")

    with suppress(UnsupportedMethod, HistoryUnavailable):
        await node.with_any(at, kind="simulated")
    return [simulated.get(index) for index in range(len(blocks))]


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
