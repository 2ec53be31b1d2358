"""Blocks of Starknet to rows beside fetching and parsing them, and the requests of a wallet of 200 tokens.

python -m bench.starknet [--blocks 1000] [--transactions 20] [--tokens 200] [--repeat 3]
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import multiprocessing
import random
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from adapters.starknet.chain import StarknetChain, build
from adapters.starknet.facts import load
from adapters.starknet.felts import packed, selector
from adapters.starknet.forms import Whole
from adapters.starknet.settings import StarknetSettings
from bench.figures import Figure, main, spread
from bench.places import HERE
from chainfolio.blocks import Span
from chainfolio.seams import Seams
from cli.main import main as chainfolio

LEAST, MAX_REQUESTS, SPAN = 0.6, 6, 50
CONFIGS = HERE.parent / "configs"
FACTS = load(CONFIGS / "chains" / "starknet.toml")
DATASETS = ("blocks", "transactions", "native", "transfers")
TRANSFER, BALANCE, DECIMALS = (hex(selector(each)) for each in ("Transfer", "balanceOf", "decimals"))
NAMES = {hex(selector("symbol")), hex(selector("name"))}
WALLET = 0x7E00D496E324876BBC8531F2D9A82BF154D1A04A50218EE74CDD372F75A551A


def token(number: int) -> str:
    """The contract of a token."""
    return hex(0x5000000000000000000000000000 + number)


class Node:
    """Generated blocks, and tokens of which everybody has as many as their number. `requests` counts."""

    def __init__(self, blocks: int, transactions: int, tokens: int) -> None:
        chance = random.Random(blocks)
        self.head, self.requests = blocks - 1, 0
        self.blocks = [self._block(height, transactions, tokens, chance) for height in range(blocks)]

    def _block(self, height: int, count: int, tokens: int, chance: random.Random) -> bytes:
        done = []
        for number in range(count):
            fee, sender = chance.randrange(10**15, 10**16), hex(chance.getrandbits(250))
            events = [
                {"from_address": token((height + number) % tokens),
                 "keys": [TRANSFER, sender, hex(WALLET if number == 0 else chance.getrandbits(250))],
                 "data": [hex(chance.getrandbits(90)), "0x0"]},
                *({"from_address": token(number % tokens), "keys": [hex(chance.getrandbits(250))],
                   "data": [hex(chance.getrandbits(250)) for _ in range(4)]} for _ in range(2)),
                {"from_address": FACTS.coin.replace("0x0", "0x"), "keys": [TRANSFER],
                 "data": [sender, "0x1176", hex(fee), "0x0"]},
            ]  # fmt: skip
            done.append({
                "transaction": {"type": "INVOKE", "version": "0x3", "sender_address": sender, "nonce": hex(number),
                                "calldata": ["0x1", token(number), TRANSFER, "0x3", sender, "0x5", "0x0"],
                                "signature": [hex(chance.getrandbits(250)), hex(chance.getrandbits(250))]},
                "receipt": {"type": "INVOKE", "transaction_hash": hex((height + 1) * 2**200 + number),
                            "actual_fee": {"amount": hex(fee), "unit": "FRI"}, "events": events,
                            "execution_status": "SUCCEEDED", "finality_status": "ACCEPTED_ON_L1", "messages_sent": []},
            })  # fmt: skip
        return msgspec.json.encode({**self.header(height), "transactions": done})

    def header(self, height: int) -> dict[str, Any]:
        """A block without its transactions."""
        return {
            "block_hash": hex(2**100 + height), "parent_hash": hex(2**100 + height - 1) if height else "0x0",
            "block_number": height, "timestamp": 1_700_000_000 + 4 * height, "sequencer_address": "0x1176",
            "status": "ACCEPTED_ON_L1", "transactions": [],
        }  # fmt: skip

    def answer(self, method: str, params: list[Any]) -> msgspec.Raw | Any:
        """What a node of version 0.9 says."""
        match method:
            case "starknet_chainId":
                return hex(packed(FACTS.network))
            case "starknet_getBlockWithTxHashes":
                return self.header(params[0]["block_number"] if isinstance(params[0], dict) else self.head)
            case "starknet_getBlockWithReceipts":
                return msgspec.Raw(self.blocks[params[0]["block_number"]])
        asked = params[0]["entry_point_selector"]
        if asked == DECIMALS:
            return ["0x12"]
        number = int(params[0]["contract_address"], 16) % 2**20
        return [hex(packed(f"T{number}"))] if asked in NAMES else [hex(number + 1), "0x0"]


class Handler(http.server.BaseHTTPRequestHandler):
    """The node over HTTP; `GET` says how many requests there were."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    node: Node

    def do_GET(self) -> None:
        """The number of requests."""
        self._send(str(self.node.requests).encode())

    def do_POST(self) -> None:
        """One request, or several at once."""
        self.node.requests += 1
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        replies = [
            {"jsonrpc": "2.0", "id": each["id"], "result": self.node.answer(each["method"], each["params"])}
            for each in (asked if isinstance(asked, list) else [asked])
        ]
        self._send(msgspec.json.encode(replies if isinstance(asked, list) else replies[0]))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(blocks: int, transactions: int, tokens: int, ready: Any) -> None:
    """The node, in a process of its own."""
    Handler.node = Node(blocks, transactions, tokens)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    ready.send(server.server_port)
    server.serve_forever()


async def fetched(chain: StarknetChain, span: Span) -> None:
    """The same answers, over the same transport, into the structs whose fields rows are made of."""
    (endpoint,) = chain.node.endpoints

    def parsed(source: str, content: bytes | memoryview) -> Whole:
        return msgspec.json.decode(content, type=Whole)

    from transport.wire import Request

    asked = [Request("starknet_getBlockWithReceipts", ({"block_number": h},)) for h in range(span.first, span.last + 1)]
    await asyncio.gather(*(endpoint.big(each, parsed) for each in asked))


async def timed(url: str, blocks: int, *, as_rows: bool) -> float:
    """Seconds for all blocks, span by span."""
    settings = StarknetSettings(adapter="starknet", rpc=[url], concurrency=4)
    chain = build("starknet", settings, Seams(), configs=CONFIGS)
    await chain.heads()
    start_s = time.perf_counter()
    for span in Span(0, blocks - 1).cut(SPAN):
        if as_rows:
            found = await chain.collect(span, DATASETS)
            assert len(found.chain) == len(span)
        else:
            await fetched(chain, span)
    spent_s = time.perf_counter() - start_s
    await chain.close()
    return spent_s


def requests_of_a_wallet(url: str, folder: Path) -> int:
    """What `chainfolio portfolio` asks for a wallet whose tokens are indexed, by the node's own count."""
    settings = folder / "chainfolio.toml"
    settings.write_text(
        f'data = "{folder}/data"\n[chains.starknet]\nadapter = "starknet"\nrpc = ["{url}"]\nregistry_lists = 0\n'
    )
    assert chainfolio(["--config", str(settings), "index", "starknet"]) == 0
    before = _count(url)
    assert chainfolio(["--config", str(settings), "portfolio", f"0x{WALLET:064x}", "--json"]) == 0
    return _count(url) - before


def _count(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return int(reply.read())


def run(options: argparse.Namespace) -> list[Figure]:
    """Everything."""
    ours, theirs = multiprocessing.Pipe()
    sizes = options.blocks, options.transactions, options.tokens
    server = multiprocessing.get_context("spawn").Process(target=partial(serve, *sizes, theirs), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    try:
        ratios = []
        asyncio.run(timed(url, min(SPAN, options.blocks), as_rows=True))  # what is loaded at the first use
        for _ in range(options.repeat):
            plain_s = asyncio.run(timed(url, options.blocks, as_rows=False))
            ratios.append(plain_s / asyncio.run(timed(url, options.blocks, as_rows=True)))
        with tempfile.TemporaryDirectory() as folder:
            asked = requests_of_a_wallet(url, Path(folder))
    finally:
        server.kill()
        server.join()
    name = f"{options.blocks:,} blocks of {options.transactions} transactions to rows: rate / of fetching and parsing"
    return [
        Figure("starknet", name, spread(ratios), f"≥ {LEAST}", sorted(ratios)[len(ratios) // 2] >= LEAST),
        Figure(
            "starknet", f"portfolio of a wallet of {options.tokens} tokens: requests", str(asked),
            f"≤ {MAX_REQUESTS}", asked <= MAX_REQUESTS,
        ),
    ]  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--transactions", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)


if __name__ == "__main__":
    main(__doc__, run, add)
