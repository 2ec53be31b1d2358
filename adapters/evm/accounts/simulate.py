"""What calls moved inside a block's transactions, by having the node run them again (`eth_simulateV1`).

The transactions run in their order on the state of the parent, with the block's own numbers, and the node tells each
movement of native coins as a log of a made-up token. Nobody vouches for such a run: whoever asks holds what it says
against what the balances say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from adapters.evm.accounts.bodies import Body
from adapters.evm.datasets.internal import Moved, movements
from adapters.evm.forms import Address, Data, Hash
from adapters.evm.node import Node, hex_of
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

COIN: Final = "0x" + "ee" * 20  # ERC-7528: the address that stands for native coins
AT_ONCE = 10  # blocks of one request


class _Log(msgspec.Struct):
    address: Address
    topics: list[Hash]
    data: Data


class _Call(msgspec.Struct):
    logs: list[_Log]


class _Block(msgspec.Struct):
    calls: list[_Call]


async def simulated(node: Node, blocks: Sequence[Body]) -> list[list[Moved] | None]:
    """What moved inside each block's transactions; None where no node can run it again."""

    async def at(endpoint: Endpoint) -> list[list[Moved] | None]:
        found: list[list[Moved] | None] = []
        for start in range(0, len(blocks), AT_ONCE):
            part = blocks[start : start + AT_ONCE]
            answers = await endpoint.ask([_request(body) for body in part], height=part[0].place.height)
            for answer in answers:
                if isinstance(answer, HistoryUnavailable) or (isinstance(answer, Unsupported) and _no_method(answer)):
                    raise answer
            found += [
                None if isinstance(each, SourceError) else _moved(endpoint.name, body, each)
                for body, each in zip(part, answers, strict=True)
            ]
        return found

    try:
        return await node.with_any(at, kind="simulated")
    except (Unsupported, HistoryUnavailable):
        return [None] * len(blocks)


def _no_method(refusal: Unsupported) -> bool:
    """Whether it is the method that is refused, and not one of the transactions."""
    return "transaction" not in refusal.reason


def _calls(body: Body) -> list[int]:
    """Which transactions run: not those that create contracts, which some nodes cannot run like this."""
    return [index for index, sent in enumerate(body.full.transactions) if sent.to is not None]


def _request(body: Body) -> Request:
    full = body.full
    named = {
        "number": full.number, "time": full.timestamp, "feeRecipient": full.miner, "gasLimit": full.gasLimit,
        "baseFeePerGas": full.baseFeePerGas, "prevRandao": full.mixHash,
    }  # fmt: skip
    calls: list[dict[str, Any]] = []
    for index in _calls(body):
        sent = full.transactions[index]
        calls.append({
            "from": sent.sender, "to": sent.to, "value": sent.value, "input": sent.input, "nonce": sent.nonce,
        })  # fmt: skip
    state = {"blockOverrides": {name: value for name, value in named.items() if value}, "calls": calls}
    options = {"blockStateCalls": [state], "traceTransfers": True, "validation": False}
    return Request("eth_simulateV1", (options, hex_of(body.place.height - 1)))


def _moved(source: str, body: Body, answer: bytes) -> list[Moved]:
    told, ran = typed(source, answer, list[_Block]), _calls(body)
    if len(told) != 1 or len(told[0].calls) != len(ran):
        raise BadAnswer(
            source, f"a simulation of block {body.place.height} with other transactions than were asked for"
        )
    found = []
    for index, call in zip(ran, told[0].calls, strict=True):
        coins = [log for log in call.logs if log.address.lower() == COIN and len(log.topics) == 3]
        own = int(body.full.transactions[index].value, 16) > 0  # the transaction's own value comes first
        for log in coins[1:] if own else coins:
            sender, recipient = ("0x" + topic[26:] for topic in log.topics[1:])
            found += movements(source, index, sender, recipient, int(log.data, 16))
    return found
