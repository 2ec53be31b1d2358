"""Blocks of Tron to rows beside fetching and parsing them, and the requests of a wallet of 200 tokens.

python -m bench.tron [--blocks 1000] [--transactions 20] [--tokens 200] [--repeat 3]
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import multiprocessing
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode

from adapters.tron.addresses import of_hex
from adapters.tron.chain import TronChain, build
from adapters.tron.forms import Info, Whole
from adapters.tron.settings import TronSettings
from adapters.tron.state import AGGREGATE
from bench.figures import Figure, main, spread
from bench.tron_blocks import generated
from chainfolio.blocks import Span
from chainfolio.seams import Seams
from cli.main import main as chainfolio

LEAST, MAX_REQUESTS, SPAN = 0.6, 6, 50
DATASETS = ("blocks", "transactions", "native", "internal", "transfers")
WALLET: Final = "417e00d496e324876bbc8531f2d9a82bf154d1a04a"
GENESIS: Final = "00" * 32
MULTICALL: Final = of_hex("bench", "4132a4f47a74a6810bd0bf861cabab99656a75de9e")
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
    """Generated blocks, and tokens of which everybody has as many as their number. `requests` counts."""

    def __init__(self, blocks: int, transactions: int, tokens: int) -> None:
        self.requests, self.blocks, self.infos = 0, [b"{}"], [b"[]"]
        for block, infos in generated(blocks, transactions, tokens, WALLET):
            self.blocks.append(block)
            self.infos.append(infos)
        self.first = {"blockID": GENESIS, "block_header": {"raw_data": {
            "parentHash": GENESIS, "txTrieRoot": GENESIS, "witness_address": "",
        }}}  # fmt: skip

    def answer(self, path: str, body: Any) -> Any:
        """What a node says."""
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
        said = [{"jsonrpc": "2.0", "id": each["id"], "result": self.called(each)} for each in batch]
        return said if isinstance(body, list) else said[0]

    def header(self, height: int) -> Any:
        """A block without its transactions."""
        whole = msgspec.json.decode(self.blocks[height])
        return {"blockID": whole["blockID"], "block_header": whole["block_header"]}

    def called(self, asked: Any) -> Any:
        """What a contract answers, and the newest block."""
        if asked["method"] == "eth_getBlockByNumber":
            head = self.header(len(self.blocks) - 1)
            raw = head["block_header"]["raw_data"]
            return {"number": hex(raw["number"]), "hash": f"0x{head['blockID']}",
                    "parentHash": f"0x{raw['parentHash']}", "timestamp": hex(raw["timestamp"] // 1_000)}  # fmt: skip
        data = bytes.fromhex(asked["params"][0]["data"][2:])
        if data[:4] != AGGREGATE:
            return f"0x{self.told(asked['params'][0]['to'], data).hex()}"
        ((calls),) = abi_decode(["(address,bool,bytes)[]"], data[4:])
        return f"0x{abi_encode(['(bool,bytes)[]'], [[(True, self.told(to, said)) for to, _, said in calls]]).hex()}"

    @staticmethod
    def told(contract: str, data: bytes) -> bytes:
        """What a token says of itself, or of an account."""
        number = int(contract, 16) % 2**16
        if data[:4] in (SYMBOL, NAME):
            return bytes(abi_encode(["string"], [f"T{number}"]))
        return int(6 if data[:4] == DECIMALS else number + 1).to_bytes(32, "big")


class Handler(http.server.BaseHTTPRequestHandler):
    """The node over HTTP; `GET` says how many requests there were."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    node: Node

    def do_GET(self) -> None:
        """The number of requests."""
        self._send(str(self.node.requests).encode())

    def do_POST(self) -> None:
        """One request."""
        self.node.requests += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._send(msgspec.json.encode(self.node.answer(self.path, body)))

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


async def fetched(chain: TronChain, span: Span) -> None:
    """The same answers, over the same transport, into the structs whose fields rows are made of."""
    (endpoint,) = chain.node.endpoints
    heights = range(span.first, span.last + 1)
    await asyncio.gather(
        *(endpoint.told("/wallet/getblockbynum", {"num": each}, Whole) for each in heights),
        *(endpoint.told("/wallet/gettransactioninfobyblocknum", {"num": each}, list[Info]) for each in heights),
    )


async def timed(url: str, folder: Path, blocks: int, *, as_rows: bool) -> float:
    """Seconds for all blocks, span by span."""
    settings = TronSettings(adapter="tron", rpc=[url], facts=str(folder / "facts.toml"), concurrency=4)
    chain = build("tron", settings, Seams(), configs=folder)
    await chain.heads()
    start_s = time.perf_counter()
    for span in Span(0, blocks - 1).cut(SPAN):
        span = Span(span.first + 1, span.last + 1)
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
        f'data = "{folder}/data"\n[chains.tron]\nadapter = "tron"\nrpc = ["{url}"]\nregistry_lists = 0\n'
        f'start_block = 1\nfacts = "{folder}/facts.toml"\n'
    )
    assert chainfolio(["--config", str(settings), "index", "tron"]) == 0
    before = _count(url)
    assert chainfolio(["--config", str(settings), "portfolio", of_hex("bench", WALLET), "--json"]) == 0
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
        with tempfile.TemporaryDirectory() as place:
            folder, ratios = Path(place), []
            (folder / "facts.toml").write_text(FACTS)
            ways = partial(timed, url, folder)
            asyncio.run(ways(min(SPAN, options.blocks), as_rows=True))  # what is loaded at the first use
            for _ in range(options.repeat):
                plain_s = asyncio.run(ways(options.blocks, as_rows=False))
                ratios.append(plain_s / asyncio.run(ways(options.blocks, as_rows=True)))
            asked = requests_of_a_wallet(url, folder)
    finally:
        server.kill()
        server.join()
    name = f"{options.blocks:,} blocks of {options.transactions} transactions to rows: rate / of fetching and parsing"
    return [
        Figure("tron", name, spread(ratios), f"≥ {LEAST}", sorted(ratios)[len(ratios) // 2] >= LEAST),
        Figure(
            "tron", f"portfolio of a wallet of {options.tokens} tokens: requests", str(asked),
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
