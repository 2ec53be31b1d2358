"""Measure indexing of Starknet blocks compared with fetching and parsing, and requests of a wallet.

python -m bench.starknet [--blocks 1000] [--transactions 20] [--tokens 200] [--repeat 3]
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import main
from bench.places import HERE
from bench.served import ServedChain, Variant, add, run
from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.facts import load
from chainfolio.adapters.starknet.felts import encode_short_string, selector
from chainfolio.adapters.starknet.forms import FullBlock
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment

CONFIGS = HERE.parent / "configs"
FACTS = load(CONFIGS / "chains" / "starknet.toml")
DATASETS = ("blocks", "transactions", "native", "transfers")
TRANSFER, BALANCE, DECIMALS = (hex(selector(each)) for each in ("Transfer", "balanceOf", "decimals"))
NAMES = {hex(selector("symbol")), hex(selector("name"))}
WALLET = 0x7E00D496E324876BBC8531F2D9A82BF154D1A04A50218EE74CDD372F75A551A


def token(number: int) -> str:
    """Return the contract of a token."""
    return hex(0x5000000000000000000000000000 + number)


class Node:
    """Generated blocks, and tokens; each account has as many of a token as its number."""

    def __init__(self, blocks: int, transactions: int, tokens: int) -> None:
        chance = random.Random(blocks)
        self.head = blocks - 1
        self.blocks = [self._block(height, transactions, tokens, chance) for height in range(blocks)]

    def _block(self, height: int, count: int, tokens: int, chance: random.Random) -> bytes:
        receipts = []
        for number in range(count):
            fee, sender = chance.randrange(10**15, 10**16), hex(chance.getrandbits(250))
            events = [
                {
                    "from_address": token((height + number) % tokens),
                    "keys": [TRANSFER, sender, hex(WALLET if number == 0 else chance.getrandbits(250))],
                    "data": [hex(chance.getrandbits(90)), "0x0"],
                },
                *(
                    {
                        "from_address": token(number % tokens),
                        "keys": [hex(chance.getrandbits(250))],
                        "data": [hex(chance.getrandbits(250)) for _ in range(4)],
                    }
                    for _ in range(2)
                ),
                {
                    "from_address": FACTS.coin.replace("0x0", "0x"),
                    "keys": [TRANSFER],
                    "data": [sender, "0x1176", hex(fee), "0x0"],
                },
            ]
            receipts.append(
                {
                    "transaction": {
                        "type": "INVOKE",
                        "version": "0x3",
                        "sender_address": sender,
                        "nonce": hex(number),
                        "calldata": ["0x1", token(number), TRANSFER, "0x3", sender, "0x5", "0x0"],
                        "signature": [hex(chance.getrandbits(250)), hex(chance.getrandbits(250))],
                    },
                    "receipt": {
                        "type": "INVOKE",
                        "transaction_hash": hex((height + 1) * 2**200 + number),
                        "actual_fee": {"amount": hex(fee), "unit": "FRI"},
                        "events": events,
                        "execution_status": "SUCCEEDED",
                        "finality_status": "ACCEPTED_ON_L1",
                        "messages_sent": [],
                    },
                }
            )
        return msgspec.json.encode({**self.header(height), "transactions": receipts})

    def header(self, height: int) -> dict[str, Any]:
        """Return a block without its transactions."""
        return {
            "block_hash": hex(2**100 + height),
            "parent_hash": hex(2**100 + height - 1) if height else "0x0",
            "block_number": height,
            "timestamp": 1_700_000_000 + 4 * height,
            "sequencer_address": "0x1176",
            "status": "ACCEPTED_ON_L1",
            "transactions": [],
        }

    def answer(self, path: str, body: Any) -> Any:
        """Return the response to a request, or to a batch."""
        replies = [
            {"jsonrpc": "2.0", "id": each["id"], "result": self.result(each["method"], each["params"])}
            for each in (body if isinstance(body, list) else [body])
        ]
        return replies if isinstance(body, list) else replies[0]

    def result(self, method: str, params: list[Any]) -> msgspec.Raw | Any:
        """Return the result of a request, as a node of version 0.9."""
        match method:
            case "starknet_chainId":
                return hex(encode_short_string(FACTS.network))
            case "starknet_getBlockWithTxHashes":
                return self.header(params[0]["block_number"] if isinstance(params[0], dict) else self.head)
            case "starknet_getBlockWithReceipts":
                return msgspec.Raw(self.blocks[params[0]["block_number"]])
        selector = params[0]["entry_point_selector"]
        if selector == DECIMALS:
            return ["0x12"]
        number = int(params[0]["contract_address"], 16) % 2**20
        return [hex(encode_short_string(f"T{number}"))] if selector in NAMES else [hex(number + 1), "0x0"]


async def fetched(chain: StarknetChain, span: Span) -> None:
    """Request the same responses over the same transport, and decode them into the product's structs."""
    (endpoint,) = chain.node.endpoints

    def parsed(source: str, content: bytes | memoryview) -> FullBlock:
        return msgspec.json.decode(content, type=FullBlock)

    from chainfolio.transport.wire import Request

    requests = [
        Request("starknet_getBlockWithReceipts", ({"block_number": h},)) for h in range(span.first, span.last + 1)
    ]
    await asyncio.gather(*(endpoint.ask_large(each, parsed) for each in requests))


def built(url: str, folder: Path) -> StarknetChain:
    """Return the chain of the node."""
    settings = StarknetSettings(adapter="starknet", rpc=[url], concurrency=4)
    return build("starknet", settings, Environment(), configs=CONFIGS)


SERVED = ServedChain("starknet", Node, [Variant("", built)], fetched, DATASETS, f"0x{WALLET:064x}")

if __name__ == "__main__":
    main(__doc__, partial(run, SERVED), add)
