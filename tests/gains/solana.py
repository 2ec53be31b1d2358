"""Solana transactions in the form that nodes answer, and wallets with ledgers of their gains.

The programs of protocols cannot be run here. A test writes their instructions, with the inner instructions that move
tokens. Those of the token programs and of the system program are executed: balances follow from them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN, TOKEN_2022
from chainfolio.adapters.solana.program_calls import WRAPPED
from chainfolio.adapters.solana.transactions import to_base58
from chainfolio.assets import account
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.indexer.scopes import Scope
from chainfolio.indexer.watching import index_accounts
from chainfolio.indexer.wiring import System
from chainfolio.loop import run_until_done
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.settings_file import load
from chainfolio.storage.watches import WatchedAccount
from tests.gains.ledger import Ledger
from tests.json_rpc import JsonRpcNode
from tests.solana.fakes import GENESIS, SCHEDULE, header
from tests.solana.fakes import account as account_of
from tests.solana.ledger import mint as mint_bytes

CHAIN: Final = f"solana:{GENESIS[:32]}"
SOL: Final = "SOL"
COIN: Final = 10**9  # lamports
RENT: Final = 2_039_280  # lamports of a token account
FEE: Final = 5_000
PRICES: Final = {SOL: "100", "USDC": "1", "RAY": "4"}
DECIMALS: Final = {SOL: 9, "USDC": 6, "RAY": 6}


def address(name: str) -> str:
    """A fixed address of a name."""
    return str(Pubkey.from_bytes(hashlib.sha256(name.encode()).digest()))


MINTS: Final = {SOL: WRAPPED, **{symbol: address(symbol) for symbol in DECIMALS if symbol != SOL}}
SYMBOLS: Final = {mint: symbol for symbol, mint in MINTS.items()}


@dataclass(frozen=True)
class Ix:
    """An instruction, and those that its program calls."""

    program: str
    accounts: Sequence[str]
    data: bytes
    inner: Sequence[Ix | Drain] = ()


@dataclass(frozen=True)
class Drain:
    """A program closes one of its accounts: no instruction shows that its lamports go to another account."""

    account: str
    to: str


def anchor_data(name: str, *parts: bytes) -> bytes:
    """Data of an instruction of an Anchor program."""
    return hashlib.sha256(f"global:{name}".encode()).digest()[:8] + b"".join(parts)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def u128(number: int) -> bytes:
    return number.to_bytes(16, "little")


@dataclass
class Stage(JsonRpcNode):
    """A node with the transactions of a test. Token accounts have the address `OWNER:MINT`, hashed."""

    lamports: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # mint, owner and raw, by account
    issued: dict[str, int] = field(default_factory=dict)  # decimals by mint
    transactions: list[dict[str, Any]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.issued |= {MINTS[symbol]: decimals for symbol, decimals in DECIMALS.items()}

    # --- what a test does -------------------------------------------------------------------------------------------

    def home(self, owner: str, mint: str) -> str:
        """Return the token account of an owner and open it if it is not open."""
        key = address(f"{owner}:{mint}")
        if key not in self.tokens:
            self.tokens[key], self.lamports[key] = (mint, owner, 0), RENT
        return key

    def put(self, owner: str, symbol: str, raw: int) -> None:
        """Give an account of others something, outside of any transaction."""
        mint = MINTS.get(symbol, symbol)
        key = self.home(owner, mint)
        self.tokens[key] = mint, owner, self.tokens[key][2] + raw
        self.lamports[key] += raw if mint == WRAPPED else 0

    def send(self, signer: str, *instructions: Ix) -> dict[str, Any]:
        """Execute a transaction, and return it."""
        keys: dict[str, None] = {signer: None}
        for each in _all(instructions):
            keys |= dict.fromkeys((*each.accounts, each.program))
            if each.program == SYSTEM and each.data[:4] == struct.pack("<I", 0):
                self.lamports.setdefault(each.accounts[1], 0)
        names = list(keys)
        before = [self.lamports.get(key, 1) for key in names]
        balances = self._balances(names)
        self.lamports[signer] -= FEE
        for each in instructions:
            self._execute(each)
        number = len(self.transactions)
        entry = {
            "slot": 1_000 + 10 * number,
            "blockTime": 1_700_001_000 + 10 * number,
            "version": "legacy",
            "meta": {
                "err": None,
                "fee": FEE,
                "preBalances": before,
                "postBalances": [self.lamports.get(key, 1) for key in names],
                "preTokenBalances": balances,
                "postTokenBalances": self._balances(names),
                "innerInstructions": [
                    {"index": i, "instructions": list(_inner(names, each.inner, 2))}
                    for i, each in enumerate(instructions)
                    if each.inner
                ],
                "logMessages": [],
            },
            "transaction": {
                "signatures": [to_base58(hashlib.sha512(str(number).encode()).digest())],
                "message": {
                    "accountKeys": names,
                    "header": {"numRequiredSignatures": 1},
                    "instructions": [_json(names, each, 1) for each in instructions],
                },
            },
        }
        self.transactions.append(entry)
        return entry

    def _balances(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {
                "accountIndex": i,
                "mint": token[0],
                "owner": token[1],
                "uiTokenAmount": {"amount": str(token[2]), "decimals": self.issued.get(token[0], 0)},
            }
            for i, key in enumerate(names)
            if (token := self.tokens.get(key)) is not None and self.lamports.get(key)
        ]

    def _execute(self, step: Ix | Drain) -> None:
        if isinstance(step, Drain):
            self.lamports[step.to] = self.lamports.get(step.to, 1) + self.lamports[step.account]
            self.lamports[step.account] = 0
            self.tokens.pop(step.account, None)
            return
        if step.program == SYSTEM and step.data[:4] in (struct.pack("<I", 0), struct.pack("<I", 2)):
            at = 4
            raw = int.from_bytes(step.data[at : at + 8], "little")
            for key, change in zip(step.accounts[:2], (-raw, raw), strict=True):
                self.lamports[key] = self.lamports.get(key, 1) + change
        elif step.program in (TOKEN, TOKEN_2022):
            self._execute_token(step)
        for each in step.inner:
            self._execute(each)

    def _execute_token(self, step: Ix) -> None:
        kind, raw = step.data[0], int.from_bytes(step.data[1:9], "little")
        if kind == 255:
            accounts, data = list(step.accounts), list(step.data[1:])
            while data:
                count, size = data[:2]
                self._execute_token(Ix(step.program, accounts[:count], bytes(data[2 : 2 + size])))
                del accounts[:count], data[: 2 + size]
            return
        if kind == 18:
            self.tokens[step.accounts[0]] = step.accounts[1], to_base58(step.data[1:33]), 0
            return
        if kind == 9:
            self._execute(Drain(step.accounts[0], step.accounts[1]))
            return
        ends = {3: (0, 1), 12: (0, 2), 7: (None, 1), 8: (0, None)}[kind]
        for at, sign in zip(ends, (-1, 1), strict=True):
            if at is not None:
                mint, owner, balance = self.tokens[step.accounts[at]]
                assert balance + sign * raw >= 0, "nobody pays more than they have"
                self.tokens[step.accounts[at]] = mint, owner, balance + sign * raw
                if mint == WRAPPED:
                    self.lamports[step.accounts[at]] += sign * raw

    # --- what a node answers ----------------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        """The newest slot."""
        return 2_000 + 10 * len(self.transactions)

    def answer(self, method: str, params: Any) -> Any:
        """The result of a request."""
        self.methods.append(method)
        if method == "getTransaction":
            return next((each for each in self.transactions if params[0] in each["transaction"]["signatures"]), None)
        if method == "getSignaturesForAddress":
            return self._signatures(params[0]) if "before" not in params[1] else []
        if method in ("getTokenAccountsByOwner", "getMultipleAccounts", "getProgramAccounts"):
            value: list[Any] = []
            if method == "getMultipleAccounts":
                value = [self._account(each) for each in params[0]]
            elif method == "getTokenAccountsByOwner" and params[1]["programId"] == TOKEN:
                value = self._homes(params[0])
            return {"context": {"slot": self.slot}, "value": value}
        if method == "getBlocks":
            return [params[1]]
        constants: dict[str, Any] = {
            "getGenesisHash": GENESIS,
            "getSlot": self.slot,
            "getEpochSchedule": SCHEDULE,
            "getFirstAvailableBlock": 0,
            "getAssetsByOwner": {"items": []},
        }
        return header(params[0]) if method == "getBlock" else constants[method]

    def _signatures(self, account: str) -> list[dict[str, Any]]:
        return [
            {"signature": each["transaction"]["signatures"][0], "slot": each["slot"]}
            for each in reversed(self.transactions)
            if account in each["transaction"]["message"]["accountKeys"]
        ]

    def _homes(self, owner: str) -> list[dict[str, Any]]:
        return [
            {"pubkey": key, "account": _holder(mint, owner, raw, self.issued.get(mint, 0))}
            for key, (mint, holder, raw) in self.tokens.items()
            if holder == owner and self.lamports.get(key)
        ]

    def _account(self, key: str) -> Any:
        if key.startswith("SysvarC1ock"):
            return account_of("Sysvar", 1, struct.pack("<QqQQq", self.slot, 0, 7, 7, 1_700_000_000 + self.slot))
        if key in self.issued:
            return account_of(TOKEN, 1, mint_bytes(10**15, self.issued[key]))
        return account_of(SYSTEM, self.lamports[key]) if self.lamports.get(key) else None


def _all(instructions: Sequence[Ix | Drain]) -> Iterator[Ix]:
    for each in instructions:
        if isinstance(each, Ix):
            yield each
            yield from _all(each.inner)


def _inner(names: Sequence[str], instructions: Sequence[Ix | Drain], height: int) -> Iterator[dict[str, Any]]:
    for each in instructions:
        if isinstance(each, Ix):
            yield _json(names, each, height)
            yield from _inner(names, each.inner, height + 1)


def _json(names: Sequence[str], each: Ix, height: int) -> dict[str, Any]:
    return {
        "programIdIndex": names.index(each.program),
        "accounts": [names.index(key) for key in each.accounts],
        "data": to_base58(each.data),
        "stackHeight": height,
    }


def _parsed(mint: str, owner: str, raw: int, decimals: int) -> dict[str, Any]:
    amount = {"amount": str(raw), "decimals": decimals}
    return {"info": {"mint": mint, "owner": owner, "state": "initialized", "tokenAmount": amount}, "type": "account"}


def _holder(mint: str, owner: str, raw: int, decimals: int) -> dict[str, Any]:
    data = {"parsed": _parsed(mint, owner, raw, decimals), "program": "spl-token"}
    return {"data": data, "owner": TOKEN, "lamports": RENT}


# --- instructions of the token program and of the system program -----------------------------------------------------


def pay(stage: Stage, sender: str, recipient: str, symbol: str, raw: int) -> Ix:
    """Move a token between the accounts of two owners."""
    mint = MINTS.get(symbol, symbol)
    homes = stage.home(sender, mint), mint, stage.home(recipient, mint)
    return Ix(TOKEN, (*homes, sender), bytes([12]) + u64(raw) + bytes([stage.issued.get(mint, 0)]))


def batch(*steps: Ix) -> Ix:
    """Several instructions of the token program in one: before each, the sizes of its accounts and its data."""
    data = b"".join(bytes([len(each.accounts), len(each.data)]) + each.data for each in steps)
    return Ix(TOKEN, [key for each in steps for key in each.accounts], bytes([255]) + data)


def issue(stage: Stage, mint: str, recipient: str, raw: int) -> Ix:
    """Create tokens."""
    return Ix(TOKEN, (mint, stage.home(recipient, mint), address("authority")), bytes([7]) + u64(raw))


def burn(stage: Stage, mint: str, owner: str, raw: int) -> Ix:
    """Destroy tokens."""
    return Ix(TOKEN, (stage.home(owner, mint), mint, owner), bytes([8]) + u64(raw))


def coins(sender: str, recipient: str, raw: int) -> Ix:
    """Move lamports."""
    return Ix(SYSTEM, (sender, recipient), struct.pack("<IQ", 2, raw))


def create(payer: str, new: str, program: str, raw: int = RENT) -> Ix:
    """Create an account that a program owns."""
    return Ix(SYSTEM, (payer, new), struct.pack("<IQQ", 0, raw, 165) + bytes(Pubkey.from_string(program)))


# --- wallets ---------------------------------------------------------------------------------------------------------


@dataclass
class SolanaWallet:
    """A wallet, and its ledger."""

    stage: Stage
    address: str
    ledger: Ledger = field(default_factory=Ledger)

    @classmethod
    def new(cls, stage: Stage, **got: int) -> SolanaWallet:
        """A wallet that a friend gave something."""
        wallet = cls(stage, str(Keypair().pubkey()))
        friend = address("friend")
        stage.lamports.setdefault(friend, 10**15)
        stage.lamports[wallet.address] = 0
        for symbol, raw in {SOL: 50 * COIN, **got}.items():
            if symbol != SOL:
                stage.put(friend, symbol, raw)
            gift = (
                coins(friend, wallet.address, raw) if symbol == SOL else pay(stage, friend, wallet.address, symbol, raw)
            )
            stage.send(friend, gift)
            wallet.ledger.buy(symbol, raw, usd_value(symbol, raw))
        return wallet

    def do(self, *instructions: Ix) -> None:
        """Send a transaction; its fee is sold at once."""
        self.stage.send(self.address, *instructions)
        self.ledger.sell(SOL, FEE, usd_value(SOL, FEE))

    def trade(self, sold: str, raw: int, bought: str, raw_bought: int) -> None:
        """Exchange something at a market; the value is that of what was given."""
        market = address("market")
        self.stage.put(market, bought, raw_bought)
        swap = [
            pay(self.stage, self.address, market, sold, raw),
            pay(self.stage, market, self.address, bought, raw_bought),
        ]
        self.stage.send(self.address, Ix(address("any market"), (), b"swap", swap))
        self.ledger.sell(sold, raw, usd_value(sold, raw))
        self.ledger.buy(bought, raw_bought, usd_value(sold, raw) + usd_value(SOL, FEE))
        self.ledger.sell(SOL, FEE, usd_value(SOL, FEE))

    def withdraw(self, went_in: Mapping[str, int], came_out: Mapping[str, int]) -> None:
        """Record that a part of a position was withdrawn, with its shortfall exchanged for its surplus."""
        symbols = [*dict.fromkeys([*went_in, *came_out])]
        net = {symbol: came_out.get(symbol, 0) - went_in.get(symbol, 0) for symbol in symbols}
        shortfall = {symbol: -raw for symbol, raw in net.items() if raw < 0}
        surplus = {symbol: raw for symbol, raw in net.items() if raw > 0}
        value = sum((usd_value(symbol, raw) for symbol, raw in shortfall.items()), Fraction(0))
        total = sum((usd_value(symbol, raw) for symbol, raw in surplus.items()), Fraction(0))
        for symbol, raw in surplus.items():
            if shortfall:
                self.ledger.buy(symbol, raw, value * usd_value(symbol, raw) / total)
            else:
                self.ledger.earn(symbol, raw, usd_value(symbol, raw))
        for symbol, raw in shortfall.items():
            self.ledger.sell(symbol, raw, usd_value(symbol, raw) if surplus else Fraction(0))


def usd_value(symbol: str, raw: int) -> Fraction:
    """USD of raw units."""
    return Fraction(PRICES[symbol]) * Fraction(raw, 10 ** DECIMALS[symbol])


@contextmanager
def served(stage: Stage) -> Iterator[str]:
    """Serve a node over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            content = stage.replies(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def read(stage: Stage, folder: Path, *wallets: SolanaWallet, **options: Any) -> tuple[PnlDocument, Mapping[str, str]]:
    """Index wallets; return their report, and the types of their transactions by hash."""

    async def go(url: str) -> tuple[PnlDocument, Mapping[str, str]]:
        prices = "".join(f'"{CHAIN}/token:{MINTS[symbol]}" = "{price}"\n' for symbol, price in PRICES.items())
        path = folder / "chainfolio.toml"
        path.write_text(
            f'[chains.solana]\nadapter = "solana"\nrpc = ["{url}"]\nindex = "accounts"\n'
            f'commitment = "confirmed"\n[prices]\n"{CHAIN}/slip44:501" = "{PRICES[SOL]}"\n{prices}'
        )
        system = System(load(path, {}))
        try:
            chain = system.chain("solana")
            watches = [WatchedAccount(each.address, 0) for each in wallets]
            system.tail.watch("solana", watches)
            await index_accounts(system, chain, Scope(tuple(watches)))
            engine = Engine(system)
            accounts = [account(each.address) for each in wallets]
            report = await pnl(engine, accounts, PnlRequest(trade_value="given", **options))
            page, _ = await engine.records(accounts, TransactionFilter(1000, 0, newest_first=False))
            return report, {each.hash: each.type for each in page.document.transactions}
        finally:
            await system.close()

    with served(stage) as url:
        return run_until_done(go(url))


def assert_equal(report: PnlDocument, wallet: SolanaWallet) -> None:
    """Costs, income and gains of a report are those of the ledger, to the cent, and every unit is held."""
    assert report.unknown == {}, (report.unknown, report.issues)
    holdings = {SYMBOLS.get(each.contract, each.symbol.upper()): each for each in report.holdings}
    assert {symbol for symbol in holdings if Decimal(holdings[symbol].amount)} == {
        symbol for symbol in wallet.ledger.lots if wallet.ledger.quantity(symbol)
    }
    for symbol in wallet.ledger.lots:
        raw = wallet.ledger.quantity(symbol)
        amount = Decimal(holdings[symbol].amount) if symbol in holdings else Decimal(0)
        assert int(amount.scaleb(DECIMALS[symbol])) == raw, symbol
    for name, reported, expected in (
        ("income", report.income, wallet.ledger.income),
        ("closed", report.closed_pnl, wallet.ledger.closed),
        ("cost", report.total_cost_basis, wallet.ledger.cost),
    ):
        assert abs(Fraction(reported) - expected) < Fraction(1, 100), (name, reported, float(expected))
