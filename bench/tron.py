"""Measure indexing of Tron blocks compared with fetching and parsing, and requests of a wallet.

python -m bench.tron [--blocks 1000] [--transactions 20] [--tokens 200] [--repeat 3]
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode

from bench.figures import main
from bench.served import ServedChain, Variant, add, run
from bench.tron_blocks import generated, token
from chainfolio.adapters.tron.addresses import parse_address
from chainfolio.adapters.tron.calls import AGGREGATE
from chainfolio.adapters.tron.chain import TronChain, build
from chainfolio.adapters.tron.forms import FullBlock, TransactionInfo
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment

DATASETS = ("blocks", "transactions", "native", "internal", "transfers")
WALLET: Final = "417e00d496e324876bbc8531f2d9a82bf154d1a04a"
GENESIS: Final = "00" * 32
MULTICALL: Final = parse_address("bench", "4132a4f47a74a6810bd0bf861cabab99656a75de9e")
FACTS: Final = f"""key = "tron"
kind = "tron"
chain_id = 0
name = "Generated"
genesis = "{GENESIS}"
multicall = "{MULTICALL}"
native = {{symbol = "TRX", name = "Tronix", decimals = 6, slip44 = 195}}
"""
BALANCE, SYMBOL, NAME, DECIMALS = (bytes.fromhex(each) for each in ("70a08231", "95d89b41", "06fdde03", "313ce567"))


class Node:
    """Generated blocks, and tokens; each account has as many of a token as its number."""

    def __init__(self, blocks: int, transactions: int, tokens: int) -> None:
        self.blocks, self.infos = [b"{}"], [b"[]"]
        for block, infos in generated(blocks, transactions, tokens, WALLET):
            self.blocks.append(block)
            self.infos.append(infos)
        self.first = {
            "blockID": GENESIS,
            "block_header": {
                "raw_data": {
                    "parentHash": GENESIS,
                    "txTrieRoot": GENESIS,
                    "witness_address": "",
                }
            },
        }

    def answer(self, path: str, body: Any) -> Any:
        """Return the result of a request."""
        match path:
            case "/wallet/getblock" | "/walletsolidity/getblock":
                height = int(body.get("id_or_num", len(self.blocks) - 1))
                return self.header(height) if height else self.first
            case "/wallet/getblockbynum":
                return msgspec.Raw(self.blocks[body["num"]])
            case "/wallet/gettransactioninfobyblocknum":
                return msgspec.Raw(self.infos[body["num"]])
            case "/wallet/getaccount":
                return {"address": body["address"], "balance": 10**9}
        batch = body if isinstance(body, list) else [body]
        replies = [{"jsonrpc": "2.0", "id": each["id"], "result": self.called(each)} for each in batch]
        return replies if isinstance(body, list) else replies[0]

    def header(self, height: int) -> Any:
        """Return a block without its transactions."""
        block = msgspec.json.decode(self.blocks[height])
        return {"blockID": block["blockID"], "block_header": block["block_header"]}

    def called(self, request: Any) -> Any:
        """Return the result of a JSON-RPC request: a contract call, or the newest block."""
        if request["method"] == "eth_getBlockByNumber":
            head = self.header(len(self.blocks) - 1)
            raw = head["block_header"]["raw_data"]
            return {
                "number": hex(raw["number"]),
                "hash": f"0x{head['blockID']}",
                "parentHash": f"0x{raw['parentHash']}",
                "timestamp": hex(raw["timestamp"] // 1_000),
            }
        data = bytes.fromhex(request["params"][0]["data"][2:])
        assert data[:4] == AGGREGATE, "all that is asked of contracts goes through one"
        ((calls),) = abi_decode(["(address,bool,bytes)[]"], data[4:])
        results = [self.token_result(to, call_data) for to, _, call_data in calls]
        return f"0x{abi_encode(['(bool,bytes)[]'], [results]).hex()}"

    @staticmethod
    def token_result(contract: str, data: bytes) -> tuple[bool, bytes]:
        """Return success and result of a call to a token; other functions fail, other tokens have balance 0."""
        number = int(contract, 16) % 2**16
        if data[:4] not in (BALANCE, SYMBOL, NAME, DECIMALS):
            return False, b""
        if f"41{contract[2:]}".lower() != token(number):
            return True, bytes(32)
        if data[:4] in (SYMBOL, NAME):
            return True, bytes(abi_encode(["string"], [f"T{number}"]))
        return True, int(6 if data[:4] == DECIMALS else number + 1).to_bytes(32, "big")


async def fetched(chain: TronChain, span: Span) -> None:
    """Request the same responses over the same transport, and decode them into the product's structs."""
    (endpoint,) = chain.node.endpoints
    heights = range(span.first, span.last + 1)
    await asyncio.gather(
        *(endpoint.read_typed("/wallet/getblockbynum", {"num": each}, FullBlock) for each in heights),
        *(
            endpoint.read_typed("/wallet/gettransactioninfobyblocknum", {"num": each}, list[TransactionInfo])
            for each in heights
        ),
    )


def build_chain(signatures: str, url: str, folder: Path) -> TronChain:
    """Return the chain of the node, checking the signatures of that many transactions."""
    facts = str(folder / "facts.toml")
    settings = TronSettings(adapter="tron", rpc=[url], facts=facts, concurrency=4, signatures=signatures)
    return build("tron", settings, Environment(), configs=folder)


VARIANTS: Final = (
    Variant('signatures = "sample"', partial(build_chain, "sample"), min_rate=0.4),
    Variant('signatures = "off"', partial(build_chain, "off"), min_rate=0.4),
    Variant('signatures = "all"', partial(build_chain, "all"), min_rate=None),
)
SERVED = ServedChain("tron", Node, VARIANTS, fetched, DATASETS, parse_address("bench", WALLET), facts=FACTS, first=1)

if __name__ == "__main__":
    main(__doc__, partial(run, SERVED), add)
