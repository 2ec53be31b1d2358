"""Measure a Solana wallet of a thousand token accounts, and indexing of a recorded block.

python -m bench.solana [--accounts 1000] [--repeat 30]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from solders.pubkey import Pubkey
from solders.rpc.responses import GetTokenAccountsByOwnerJsonParsedResp
from solders.signature import Signature

from bench.figures import Figure, main, spread
from bench.places import HERE
from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.forms import Digits
from chainfolio.adapters.solana.layouts import CLOCK, TOKEN
from chainfolio.adapters.solana.node import Header
from chainfolio.adapters.solana.parsing import slot_and_content, token_accounts
from chainfolio.adapters.solana.reads import Wallet, WalletRead
from chainfolio.adapters.solana.rows import tables
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.adapters.solana.spans import parse_block
from chainfolio.adapters.solana.transactions import Entry, Meta, TokenBalance
from chainfolio.configs.generate import kinds
from chainfolio.environment import Environment
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import load
from chainfolio.interactions import Interactions
from chainfolio.plans import run_batched
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from chainfolio.transport.exchange import HttpResponse

MAX_REQUESTS, LEAST_PARSED, LEAST_ROWS = 4, 3.0, 0.6
SLOT, TRANSACTIONS = 380_000_000, 600
RECORDED = HERE.parents[1] / "shared" / "data" / "solana"
BLOCK = RECORDED / "blocks" / "devnet_147078734_json.rpc.jsonl.gz"
SINGLE = RECORDED / "transactions.rpc.jsonl.gz"  # of wallets that trade: most change balances of tokens
GENESIS = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"
DATASETS = ("transactions", "native", "transfers")


def listed_accounts(account: str, count: int) -> list[dict[str, Any]]:
    """Return `count` token accounts as a node parses them."""
    chance = random.Random(count)

    def key() -> str:
        return str(Pubkey(chance.randbytes(32)))

    return [
        {
            "pubkey": key(),
            "account": {
                "data": {
                    "program": "spl-token",
                    "space": 165,
                    "parsed": {
                        "type": "account",
                        "info": {
                            "isNative": False,
                            "mint": key(),
                            "owner": account,
                            "state": "initialized",
                            "tokenAmount": {
                                "amount": str(raw := chance.randrange(1, 10**15)),
                                "decimals": 6,
                                "uiAmount": raw / 10**6,
                                "uiAmountString": f"{raw // 10**6}.{raw % 10**6:06}",
                            },
                        },
                    },
                },
                "executable": False,
                "lamports": 2039280,
                "owner": TOKEN,
                "rentEpoch": 18446744073709551615,
                "space": 165,
            },
        }
        for _ in range(count)
    ]


class Endpoint:
    """An endpoint with one wallet that answers single requests, and batches if `batches` is True."""

    def __init__(self, account: str, accounts: list[dict[str, Any]], *, batches: bool) -> None:
        self.batches = batches
        clock = struct.pack("<QqQQq", SLOT, 0, 7, 7, 1_700_000_000)
        mint = bytes(36) + struct.pack("<QBB", 10**15, 6, 1) + bytes(36)
        accounts_by_address = {account: ("1" * 32, b""), CLOCK: ("Sysvar", clock)}
        at = {"context": {"slot": SLOT}}

        def account_json(address: str) -> dict[str, Any]:
            owner, content = accounts_by_address.get(address, (TOKEN, mint))
            return {"data": [base64.b64encode(content).decode(), "base64"], "owner": owner, "lamports": 5}

        self.answers: dict[str, Callable[[Any], Any]] = {
            "getGenesisHash": lambda params: GENESIS,
            "getSlot": lambda params: SLOT,
            "getBlock": lambda params: {
                "blockhash": "h",
                "previousBlockhash": "p",
                "parentSlot": SLOT - 1,
                "blockTime": 1_700_000_000,
            },
            "getMultipleAccounts": lambda params: {**at, "value": list(map(account_json, params[0]))},
            "getProgramAccounts": lambda params: {**at, "value": []},
            "getTokenAccountsByOwner": lambda params: {
                **at,
                "value": accounts if params[1]["programId"] == TOKEN else [],
            },
        }

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Answer one request, or a batch, which is refused without `batches`."""
        request = json.loads(body)
        if not isinstance(request, list):
            return HttpResponse(200, None, msgspec.json.encode(self._reply(request)))
        if self.batches:
            return HttpResponse(200, None, msgspec.json.encode(list(map(self._reply, request))))
        error = {"code": -32600, "message": "Only method calls are supported"}
        return HttpResponse(200, None, msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error}))

    def _reply(self, request: Any) -> dict[str, Any]:
        if request["method"] not in self.answers:
            return {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": request["id"]}
        return {"jsonrpc": "2.0", "result": self.answers[request["method"]](request["params"]), "id": request["id"]}

    async def close(self) -> None:
        """Do nothing."""


def chain_of(account: str, accounts: list[dict[str, Any]], *, batches: bool) -> SolanaChain:
    """Return a chain of one endpoint."""
    settings = SolanaSettings(adapter="solana", rpc=["http://one.test"])
    endpoint = Endpoint(account, accounts, batches=batches)
    return build("solana", settings, Environment(), configs=Path(HERE.parent, "configs"), transport=endpoint)


async def requests(account: str, accounts: list[dict[str, Any]]) -> int:
    """Return the requests of reading the wallet at a known head."""
    chain = chain_of(account, accounts, batches=False)
    head = (await chain.heads()).latest
    before = chain.requests
    [state] = await chain.answer([WalletRead(account)], head)
    assert isinstance(state, Wallet)
    assert len(state.tokens) == len(accounts)
    return chain.requests - before


async def requests_with_positions(account: str, accounts: list[dict[str, Any]]) -> int:
    """Return the requests of reading a wallet without positions and looking for them in every protocol."""
    chain = chain_of(account, accounts, batches=True)
    rows = load([HERE.parent / "configs" / "protocols"], kinds()).rows("solana", "solana", families())
    head = (await chain.heads()).latest
    before = chain.requests
    reader = chain.account_reader(InstalledProtocols(rows)).at(head)
    plan = {"wallet": reader.read(account, Interactions(), ())}
    reports = await run_batched(plan, lambda reads: chain.answer(reads, head), max_rounds=64)
    state: AccountState | None = reports["wallet"].result
    assert state is not None
    assert len(state.balances) == len(accounts)
    assert not [each for each in state.issues if each.makes_partial]
    return chain.requests - before


def turns(product: Callable[[], object], peer: Callable[[], object], repeat: int) -> list[float]:
    """Return ratios of processor time, `peer` to `product`, measured in turns."""
    ratios = []
    for _ in range(repeat):
        times = []
        for each in (product, peer):
            start_s = time.process_time()
            for _ in range(5):
                each()
            times.append(time.process_time() - start_s)
        ratios.append(times[1] / times[0])
    return ratios


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure requests and the parsing of accounts and blocks, and return the figures."""
    account, subject = str(Pubkey(random.Random(1).randbytes(32))), f"wallet of {options.accounts:,} token accounts"
    accounts = listed_accounts(account, options.accounts)
    request_counts = asyncio.run(requests(account, accounts))
    position_counts = asyncio.run(requests_with_positions(account, accounts))
    result = msgspec.json.encode({"context": {"slot": SLOT, "apiVersion": "2.0.19"}, "value": accounts})
    text = msgspec.json.encode({"jsonrpc": "2.0", "result": msgspec.Raw(result), "id": 1}).decode()

    def product() -> object:
        return token_accounts("bench", slot_and_content("bench", result)[1], account, TOKEN)

    def typed_client() -> object:
        response = GetTokenAccountsByOwnerJsonParsedResp.from_json(text)
        assert isinstance(response, GetTokenAccountsByOwnerJsonParsedResp)
        return [each.account.data.parsed for each in response.value]

    parsed = turns(product, typed_client, options.repeat)
    figures = [
        Figure(
            "solana",
            f"{subject}: requests, without batches",
            str(request_counts),
            f"≤ {MAX_REQUESTS}",
            request_counts <= MAX_REQUESTS,
        ),
        Figure(
            "solana",
            f"{subject}: requests with a look for positions in all protocols, in batches",
            str(position_counts),
            f"≤ {MAX_REQUESTS}",
            position_counts <= MAX_REQUESTS,
        ),
        Figure(
            "solana",
            f"{subject}: rate of reading it / of solana-py's typed accounts",
            spread(parsed),
            f"≥ {LEAST_PARSED}",
            sorted(parsed)[len(parsed) // 2] >= LEAST_PARSED,
        ),
    ]
    return figures + (of_blocks(options.repeat) if RECORDED.exists() else [])


class TokenBalances(msgspec.Struct, gc=False):
    """An amount of a token, as strictly declared as rows check it."""

    amount: Digits


class Balance(TokenBalance, gc=False):
    """Balance of a token account before or after a transaction."""

    uiTokenAmount: TokenBalances  # type: ignore[assignment]


class Outcome(Meta, gc=False):
    """Metadata of a transaction, with token balances."""

    preTokenBalances: list[Balance] | None = None  # type: ignore[assignment]
    postTokenBalances: list[Balance] | None = None  # type: ignore[assignment]


class DeclaredTransaction(Entry, gc=False):
    """A transaction in the structs whose fields rows are made of."""

    meta: Outcome | None = None


class ParsedData(Header, kw_only=True):
    """A block of declared transactions."""

    transactions: list[DeclaredTransaction]


def lines(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a recording."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def traded() -> list[dict[str, Any]]:
    """Return the recorded single transactions that changed a token balance, in the encoding of blocks."""
    blocks = [line["result"] for line in lines(SINGLE) if line["params"][1]["encoding"] == "json"]
    return [each for each in blocks if each["meta"]["preTokenBalances"] != each["meta"]["postTokenBalances"]]


def block_of(count: int, recorded: list[dict[str, Any]] | None = None) -> tuple[int, bytes]:
    """Return a slot and its block with `count` transactions, repeated under distinct signatures.

    By default the transactions are those of the recorded block.
    """
    [line] = lines(BLOCK)
    chance, transactions = random.Random(count), []
    recorded = recorded or line["result"]["transactions"]
    for number in range(count):
        transaction = recorded[number % len(recorded)]
        signature = str(Signature(chance.randbytes(64)))
        transactions.append({**transaction, "transaction": {**transaction["transaction"], "signatures": [signature]}})
    return line["params"][0], msgspec.json.encode({**line["result"], "transactions": transactions})


def of_blocks(repeat: int) -> list[Figure]:
    """Measure a block without token transfers, and one in which each transaction moves tokens."""
    return [
        of_block(f"block of {TRANSACTIONS} recorded transactions", *block_of(TRANSACTIONS), repeat),
        of_block(f"block of {TRANSACTIONS} recorded trades", *block_of(TRANSACTIONS, traded()), repeat),
    ]


def of_block(subject: str, slot: int, content: bytes, repeat: int) -> Figure:
    """Compare making the rows of a block with parsing the same bytes into declared structs."""
    parser = msgspec.json.Decoder(ParsedData)

    def rows() -> object:
        read = parse_block(slot, "bench", content)
        assert read is not None
        return tables("solana", read.changes, DATASETS)

    rates = turns(rows, lambda: parser.decode(content), repeat)
    value = sorted(rates)[len(rates) // 2]
    return Figure(
        "solana",
        f"{subject} to rows: rate / of parsing it into structs",
        spread(rates),
        f"≥ {LEAST_ROWS}",
        value >= LEAST_ROWS,
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--accounts", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=30)


if __name__ == "__main__":
    main(__doc__, run, add)
