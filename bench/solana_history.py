"""Back-fill the transactions of one Solana wallet without batches, and kill the run repeatedly.

python -m bench.solana_history [--transactions 10000] [--kills 10]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from solders.pubkey import Pubkey
from solders.signature import Signature

from bench.figures import Figure, main
from bench.places import ROOT, scratch
from bench.runs import environment, product, run
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.blocks import Span
from chainfolio.indexer.collect import BATCH_REQUESTS
from chainfolio.storage.lake import Lake
from chainfolio.tables import TRANSACTIONS, TRANSFERS

A_TRANSACTION: Final = 1.05
A_KILL: Final = 2 * BATCH_REQUESTS + 20  # requests of two batches and of the lists, which a kill may repeat
FIRST, STEP = 1_000, 3  # the slot of the first transaction, and slots between two
BEGAN_S: Final = 1_700_000_000
GENESIS: Final = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"


@dataclass
class Wallet:
    """A wallet with many payments, and a node's responses about it.

    `stop_after`: Number of requests after which the client is killed; None for never.
    """

    count: int
    requests: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    kill: Any = None
    stop_after: int | None = None

    def __post_init__(self) -> None:
        chance = random.Random(self.count)
        self.owner, self.friend = (str(Pubkey(chance.randbytes(32))) for _ in range(2))
        self.signatures = [str(Signature(chance.randbytes(64))) for _ in range(self.count)]

    @cached_property
    def positions(self) -> dict[str, int]:
        """Positions of the transactions, by signature."""
        return {each: number for number, each in enumerate(self.signatures)}

    @property
    def head(self) -> int:
        """The newest slot."""
        return FIRST + STEP * self.count + 100

    def answer(self, method: str, params: Any) -> Any:
        """Return the result of a request."""
        with self.lock:
            self.requests[method] += 1
            if self.stop_after is not None and self.requests.total() >= self.stop_after and self.kill is not None:
                self.kill()
        at = {"context": {"slot": self.head}}
        match method:
            case "getGenesisHash":
                return GENESIS
            case "getSlot":
                return self.head
            case "getEpochSchedule":
                return {"slotsPerEpoch": 432_000, "firstNormalEpoch": 0, "firstNormalSlot": 0}
            case "getFirstAvailableBlock":
                return 0
            case "getTokenAccountsByOwner" | "getProgramAccounts":
                return {**at, "value": []}
            case "getBlocks":
                return list(range(params[0], params[1] + 1))
            case "getBlock":
                slot = params[0]
                return {
                    "blockhash": f"h{slot}",
                    "previousBlockhash": f"h{slot - 1}",
                    "parentSlot": max(0, slot - 1),
                    "blockTime": BEGAN_S + slot,
                    "transactions": [],
                }
            case "getSignaturesForAddress":
                return self._page(params[1])
        return self._transaction(params[0])

    def _page(self, options: Any) -> list[dict[str, Any]]:
        last = self.positions[options["before"]] if "before" in options else self.count
        newest = range(last - 1, max(-1, last - 1 - options["limit"]), -1)
        return [{"signature": self.signatures[each], "slot": FIRST + STEP * each, "err": None} for each in newest]

    def _transaction(self, signature: str) -> dict[str, Any]:
        number = self.positions[signature]
        message = {
            "accountKeys": [self.friend, self.owner, SYSTEM],
            "instructions": [{"programIdIndex": 2}],
            "header": {"numRequiredSignatures": 1},
        }
        before, after = [10**12, number, 1], [10**12 - 5_000 - number, 2 * number, 1]
        return {
            "slot": FIRST + STEP * number,
            "blockTime": BEGAN_S + FIRST + STEP * number,
            "meta": {"err": None, "fee": 5_000, "preBalances": before, "postBalances": after},
            "transaction": {"signatures": [signature], "message": message},
        }


@contextmanager
def serving(wallet: Wallet) -> Iterator[str]:
    """Serve the wallet's node on a free port within the context, one request at a time; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", 2**16

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if isinstance(request, list):
                reply: Any = {"id": None, "error": {"code": -32600, "message": "Only method calls are supported"}}
            else:
                reply = {"id": request["id"], "result": wallet.answer(request["method"], request["params"])}
            body = json.dumps({"jsonrpc": "2.0", **reply}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore broken connections of killed clients."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Watching:
    """`chainfolio watch` of a wallet in a folder."""

    wallet: Wallet
    url: str
    folder: Path

    @property
    def command(self) -> list[str]:
        """The command, as a user writes it."""
        return [*product(), "watch", self.wallet.owner, "--chain", "solana", "--config", str(self.settings), "--json"]

    @property
    def settings(self) -> Path:
        """The settings file; it is written if it is missing."""
        path = self.folder / "chainfolio.toml"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            lines = f'adapter = "solana"\nrpc = ["{self.url}"]\nindex = "accounts"\n'
            path.write_text(f'data = "{self.folder / "data"}"\n[chains.solana]\n{lines}')
        return path

    def run_once(self) -> int:
        """Run it to its end, and return the number of its requests."""
        before = self.wallet.requests.total()
        run(self.command, environment({"PYTHONPATH": str(ROOT)})).checked()
        return self.wallet.requests.total() - before

    def killed(self, after: int) -> bool:
        """Run it and kill it after so many requests; return True if it was killed before its end."""
        with subprocess.Popen(
            self.command,
            env=environment({"PYTHONPATH": str(ROOT)}),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            self.wallet.kill, self.wallet.stop_after = process.kill, self.wallet.requests.total() + after
            code = process.wait()
        self.wallet.kill = self.wallet.stop_after = None
        return code < 0

    def rows(self) -> list[tuple[str, str, bytes]]:
        """Return hash, recipient and raw amount of every stored movement, in the order of the chain."""
        lake = Lake(str(self.folder / "data" / "lake"))
        rows = lake.window(TRANSFERS, "solana", Span(0, 2**40)).to_pylist()
        assert lake.window(TRANSACTIONS, "solana", Span(0, 2**40)).num_rows == 0, "it neither paid nor was called"
        return [(row["tx_hash"], row["recipient"], row["raw"]) for row in sorted(rows, key=lambda row: row["height"])]


def expected(wallet: Wallet) -> list[tuple[str, str, bytes]]:
    """Return the rows that should be stored: the first payment has none, for it moves 0."""
    return [
        (signature, wallet.owner, number.to_bytes(32, "big"))
        for number, signature in enumerate(wallet.signatures)
        if number
    ]


def measure(count: int, kills: int, seed: int = 7) -> list[Figure]:
    """Compare a whole back-fill with one that is killed, and return the figures."""
    wallet, chance = Wallet(count), random.Random(seed)
    with serving(wallet) as url, scratch() as folder:
        unbroken = Watching(wallet, url, folder / "unbroken")
        request_count = unbroken.run_once()
        repeated_count = unbroken.run_once()
        broken, kill_count, before = Watching(wallet, url, folder / "broken"), 0, wallet.requests.total()
        while kill_count < kills and broken.killed(chance.randrange(20, max(21, 2 * count // max(1, kills)))):
            kill_count += 1
        broken.run_once()
        additional = wallet.requests.total() - before - request_count
        wrong = sum(rows != expected(wallet) for rows in (unbroken.rows(), broken.rows()))
    subject = f"back-fill of a wallet with {count:,} transactions, no batches"
    share = request_count / count
    return [
        Figure(
            "solana_history",
            f"{subject}: requests a transaction",
            f"{share:.4f} ({request_count:,}; run again: {repeated_count})",
            f"≤ {A_TRANSACTION}",
            share <= A_TRANSACTION,
        ),
        Figure(
            "solana_history",
            f"{subject}, {kill_count} kills: runs with other rows; requests more for each kill",
            f"{wrong}; {additional / max(1, kill_count):.0f}",
            f"0; ≤ {A_KILL}",
            wrong == 0 < kill_count and additional <= A_KILL * kill_count,
        ),
    ]


def run_all(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    return measure(options.transactions, options.kills)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)


if __name__ == "__main__":
    main(__doc__, run_all, add)
