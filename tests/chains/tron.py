"""Tron's subject: the stand-in with real contracts, and a reading of it that shares no code with the adapter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from eth_abi.abi import encode as abi
from eth_keys.datatypes import PrivateKey

from bench.tron_blocks import signature
from chainfolio.adapters.tron.chain import TronChain
from chainfolio.adapters.tron.facts import load
from chainfolio.adapters.tron.node import Node
from chainfolio.adapters.tron.node import TronNode as Endpoint
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import SpanTables
from chainfolio.environment import Environment
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import call_data
from chainfolio.localchain.tron.block_answers import block_json, info_json
from chainfolio.localchain.tron.codec import CONTRACTS, TYPE_URL, encode
from chainfolio.localchain.tron.forms import base58check, contract_address, evm_address, sha256, tron
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.views import View
from chainfolio.transport.exchange import HttpResponse, Sink
from chainfolio.transport.http import HttpTransport
from tests.chains.index import EVERYTHING
from tests.chains.subject import FINALITY, RequestLog, Row
from tests.tron.chains import facts

KEY = "tron"
RICH, LIMIT = 10**14, 10**9
NOBODY = base58check("41" + "00" * 20)
TRANSFER, APPROVAL, DEPOSIT, WITHDRAWAL = (
    "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
    "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925",
    "e1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c",
    "7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65",
)
NUMBERS = {name: number for number, name in CONTRACTS.items()}


@dataclass(slots=True)
class Recording:
    """A transport that counts what is asked, and can be pointed at another node."""

    request_log: RequestLog
    url: str
    first: str
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange with the node of the moment."""
        self.request_log.count()
        return await self._real.post(source, url.replace(self.first, self.url), body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """Send a GET request to the current node."""
        self.request_log.count()
        return await self._real.get(source, url.replace(self.first, self.url), timeout_s)

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Stream a response of the current node into a sink."""
        self.request_log.count()
        return await self._real.stream(source, url.replace(self.first, self.url), sink, timeout_s)

    async def close(self) -> None:
        """Let go of connections."""
        await self._real.close()


class RecordedTron(TronChain):
    """The adapter; spans that it reads are noted."""

    request_log: RequestLog

    async def collect(self, span: Span, *args: Any, **named: Any) -> SpanTables:
        """Collect as the adapter does, and record the span."""
        contracts = args[1] if len(args) > 1 else named.get("contracts", ())
        self.request_log.spans.append((span, tuple(contracts)))
        return await super().collect(span, *args, **named)


@dataclass(frozen=True)
class Signer:
    """A signer by arithmetic alone: quicker than the official client, and as good."""

    number: int

    @cached_property
    def hex(self) -> str:
        """Return the address as hex."""
        return tron(PrivateKey(self.number.to_bytes(32, "big")).public_key.to_address())

    def send(self, node: TronNode, kind: str, limit: int = LIMIT, **value: object) -> str:
        """Signs a transaction and hands it in; its id."""
        body = {"owner_address": self.hex, **{name: each for name, each in value.items() if each}}
        contract = {"type": kind, "parameter": {"value": body, "type_url": TYPE_URL + kind}}
        raw = encode("raw", {**node.reference(), "contract": [contract], "fee_limit": limit})
        name = sha256(raw)
        return node.send({"raw_data_hex": raw.hex(), "signature": [signature(name, self.number)]})

    def create(self, node: TronNode, name: str, arguments: bytes = b"") -> str:
        """Brings a contract into being; where it will lie."""
        code = artifact(name).bytecode.removeprefix("0x") + arguments.hex()
        new = {"origin_address": self.hex, "bytecode": code, "consume_user_resource_percent": 100, "name": name}
        return contract_address(self.send(node, "CreateSmartContract", 15 * LIMIT, new_contract=new), self.hex)

    def call(self, node: TronNode, contract: str, function: str, *args: Any, sun: int = 0) -> str:
        """Calls a function of a contract."""
        data = call_data(function, *args)[2:]
        return self.send(node, "TriggerSmartContract", contract_address=contract, data=data, call_value=sun)


class TronSubject:
    """A stand-in on which four people pay, wrap, approve and fail. Its nodes keep no old state, and prove nothing."""

    lacks = frozenset(Capability) - {
        Capability.ACCOUNT_HISTORY,
        Capability.APPROVALS,
        Capability.PAST_COINS,
        Capability.TRANSACTIONS,
    }
    no_rows = frozenset(["logs"])
    datasets = EVERYTHING
    standards = frozenset(["native", "trc10", "trc20", "wrap", "unwrap"])
    approval_standards = frozenset(["erc20"])
    events: Sequence[str] = ()
    asks_each_block = True

    def __init__(self, node: TronNode, folder: Path, blocks: int) -> None:
        self.node, self.request_log, self._folder, self._blocks = node, RequestLog(), folder, blocks
        self.people = [Signer(number) for number in range(11, 15)]
        self._first = node.url
        self._spare: TronNode | None = None
        self._second: TronNode | None = None
        self._transports: list[Recording] = []
        self._begin()
        if blocks:
            self.trade(blocks, 7)

    def _begin(self) -> None:
        """Coins, two contracts, a token of the chain itself."""
        alice, bob, carol = self.people[:3]
        for each in self.people:
            self.node.endow(each.hex, RICH)
        self.node.advance()
        self.wrapped = alice.create(self.node, "WETH9")
        self.dollar, self.euro = (
            issuer.create(self.node, "Token", abi(["string", "string", "uint8"], [name, name, 6]))
            for issuer, name in ((bob, "USD"), (self.people[3], "EUR"))
        )
        asset_fields: dict[str, Any] = {
            name: text.hex() for name, text in (("name", b"Bell"), ("abbr", b"BEL"), ("url", b"http://b.test"))
        }
        carol.send(
            self.node,
            "AssetIssueContract",
            total_supply=10**15,
            trx_num=1,
            num=1,
            precision=6,
            end_time=4 * 10**12,
            start_time=3 * 10**12,
            **asset_fields,
        )
        self.node.advance()
        for each in self.people:
            each.call(self.node, self.dollar, "mint(address,uint256)", evm_address(each.hex), 10**12)
        self.node.advance()
        for each in self.people:
            each.call(self.node, self.euro, "mint(address,uint256)", evm_address(each.hex), 10**12)
        self.birth = self.node.advance().height

    # --- who and what ------------------------------------------------------------------------------------------------

    @cached_property
    def accounts(self) -> Sequence[str]:
        """Return the people, the contract that holds their coins, and an address that holds nothing."""
        return [base58check(each) for each in (*(person.hex for person in self.people), self.wrapped, "41" + "12" * 20)]

    @cached_property
    def tokens(self) -> Sequence[str]:
        """The tokens of contracts."""
        return [base58check(each) for each in (self.wrapped, self.dollar, self.euro)]

    @property
    def plain(self) -> Sequence[str]:
        """Return all of them."""
        return self.tokens

    @property
    def height(self) -> int:
        """The newest block's height."""
        return self.node.head.height

    # --- the adapter -------------------------------------------------------------------------------------------------

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> RecordedTron:
        """A new adapter; what it asks is counted."""
        transport = Recording(self.request_log, self.node.url, self._first)
        self._transports.append(transport)
        path = facts(self.node, self._folder, KEY, wrapped=self.wrapped)
        settings = TronSettings(
            adapter="tron", rpc=[self._first], facts=str(path), contracts=list(contracts), span=span, concurrency=3
        )
        environment, chain_settings = Environment(), load(path)
        endpoint = Endpoint(self._first, transport, environment, timeout_s=settings.timeout_s, concurrency=3)
        chain = RecordedTron(
            chain_settings, Node(chain_settings, [endpoint], environment, hedge=settings.hedge), settings, environment
        )
        chain.request_log = self.request_log
        return chain

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Empty blocks."""
        self.node.advance(blocks)

    def trade(self, blocks: int, seed: int) -> None:
        """Each does something in each block; some of it fails."""
        chance = Random(seed)
        for _ in range(blocks):
            self._act(chance)
            self.node.advance()

    def _act(self, chance: Random) -> None:
        first, second, third, fourth = chance.sample(self.people, 4)
        raw, node = chance.randrange(1, 10**6), self.node
        first.send(node, "TransferContract", to_address=second.hex, amount=raw)
        token = chance.choice([self.dollar, self.euro])
        second.call(node, token, "transfer(address,uint256)", evm_address(third.hex), raw)
        third.call(node, token, "approve(address,uint256)", evm_address(fourth.hex), raw)
        if chance.random() < 0.7:
            fourth.call(node, self.wrapped, "deposit()", sun=raw)
        else:
            fourth.call(node, self.wrapped, "withdraw(uint256)", raw // 2)
        self.people[2].send(
            node, "TransferAssetContract", asset_name=b"1000001".hex(), to_address=self.people[0].hex, amount=raw
        )

    def reorg(self, depth: int) -> None:
        """Other blocks in the place of the newest; the first of them has other deeds."""
        self.node.fork(self.height - depth + 1, final_too=True)
        self._act(Random(self.height))
        self.node.advance(depth)

    def fork(self, depth: int) -> None:
        """Run the same script on a second node, then another end."""
        assert self._spare is None, "there is a second node already"
        self._spare = self._second = opened()
        twin = TronSubject(self._spare, self._folder, self._blocks)
        assert twin.node.head.id == self.node.head.id, "the same script gives the same chain"
        if depth:
            twin.reorg(depth)

    def switch(self) -> None:
        """The other node is the chain now."""
        assert self._spare is not None, "there is no second node"
        self.node, self._spare = self._spare, self.node
        for transport in self._transports:
            transport.url = self.node.url

    def close(self) -> None:
        """End the second node."""
        if self._second is not None:
            self._second.__exit__(None, None, None)

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """The balance that the node keeps."""
        balances = {base58check(each.address): each.balance for each in self.node.states[height].accounts.values()}
        return balances.get(account, 0)

    def balance(self, account: str, token: str, height: int) -> int | None:
        """`balanceOf`; of a token of the chain itself, what the node keeps."""
        if token.isdecimal():
            assets = {base58check(each.address): each.assets for each in self.node.states[height].accounts.values()}
            return assets.get(account, {}).get(token, 0) if token in self.node.states[height].assets else None
        return self._number(token, "balanceOf(address)(uint256)", account, height=height)

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """`allowance`."""
        allowance_raw = self._number(token, "allowance(address,address)(uint256)", owner, spender, height=height)
        assert allowance_raw is not None, f"{token} knows its allowances"
        return allowance_raw

    def _number(self, token: str, function: str, *accounts: str, height: int) -> int | None:
        contracts = {base58check(each): each for each in self.node.states[height].contracts}
        if token not in contracts:
            return None
        evm_arguments = [
            evm_address(next(hex_ for hex_ in self._all_accounts if base58check(hex_) == each)) for each in accounts
        ]
        number: int = self.node.machine.node.call(evm_address(contracts[token]), function, *evm_arguments, block=height)
        return number

    @property
    def _all_accounts(self) -> list[str]:
        return [*self.node.state.accounts, "41" + "12" * 20]

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Block by block, record by record, log by log."""
        rows_by_table: dict[str, list[Row]] = {
            name: [] for name in ("blocks", "transactions", "transfers", "approvals", "logs")
        }
        for height in range(span.first, min(span.last, self.height) + 1):
            view = View(self.node, height, visible=True)
            block = block_json(view, self.node.blocks[height])
            infos = [info_json(view, each) for each in self.node.blocks[height].infos]
            for name, rows in rows_of_block(block, infos, base58check(self.wrapped)).items():
                rows_by_table[name] += rows
        return rows_by_table


def rows_of_block(block: Row, infos: Sequence[Row], wrapped: str) -> dict[str, list[Row]]:
    """The rows of every table, from a block and the records of its transactions, addresses in base58."""
    header, transactions = block["block_header"]["raw_data"], block.get("transactions", [])
    height, time = header.get("number", 0), datetime.fromtimestamp(header["timestamp"] / 1000, UTC)
    block_columns = {"chain": KEY, "height": height, "time": time}
    empty_columns = dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))
    rows: dict[str, list[Row]] = {"transactions": [], "transfers": [], "approvals": []}
    rows["blocks"] = [
        {
            **block_columns,
            "hash": block["blockID"],
            "parent": header["parentHash"],
            "tx_count": len(transactions),
            **empty_columns,
        }
    ]
    logs = 0
    for index, each in enumerate(transactions):
        info = infos[index] if height else {"receipt": {}}
        at = block_columns | {"tx_index": index}
        rows["transactions"].append(_transaction_row(at, each, info))
        ok = each["ret"][0]["contractRet"] == "SUCCESS"
        here = at | {"tx_hash": each["txID"]}
        rows["transfers"] += _carried(here, each, info) if ok else []
        for log in info.get("log", ()):
            log_columns = here | {"log_index": logs}
            rows["transfers"] += _log_transfers(log_columns, log, wrapped)
            rows["approvals"] += _allowed(log_columns, log)
            logs += 1
    return rows


def _raw(number: int | str) -> bytes:
    return (int(number, 16) if isinstance(number, str) else number).to_bytes(32, "big")


def _contract_call(transaction: Row) -> tuple[str, Row]:
    contract = transaction["raw_data"]["contract"][0]
    return contract["type"], contract["parameter"]["value"]


def _transaction_row(at: Row, transaction: Row, info: Row) -> Row:
    """A row of `transactions`."""
    kind, value = _contract_call(transaction)
    ok = transaction["ret"][0]["contractRet"] == "SUCCESS"
    is_creation = kind == "CreateSmartContract"
    carried = value.get("amount", 0) if kind == "TransferContract" else value.get("call_value", 0)
    recipient = value.get("to_address") or value.get("contract_address")
    if kind == "AssetIssueContract":  # it comes from the chain, which the zero address stands for
        recipient = NOBODY
    return at | {
        "hash": transaction["txID"],
        "sender": value["owner_address"] if at["height"] else NOBODY,
        "recipient": recipient,
        "created": info["contract_address"] if is_creation and ok else None,
        "raw": _raw(carried),
        "nonce": None,
        "type": NUMBERS[kind],
        "status": int(ok),
        "gas_used": info["receipt"].get("energy_usage_total", 0),
        "gas_price": None,
        "fee": _raw(info.get("fee", 0)),
        "input": _input(kind, value),
    }


def _input(kind: str, value: Row) -> bytes | None:
    """Return the call data; transactions of the system use the selector of their name in `configs/functions.toml`."""
    from chainfolio.adapters.tron.functions import selector

    if kind == "AssetIssueContract":
        return selector("tron:issueAsset()")
    return bytes.fromhex(value["data"]) if "data" in value else None


def _transfer(here: Row, standard: str, token: str | None, sender: str, recipient: str, raw: int | str) -> Row:
    """A row of `transfers`."""
    usual = {"item": 0, "operator": None, "token_id": None, "layout": None, "log_index": -1}
    parties = {"sender": sender, "recipient": recipient, "raw": _raw(raw)}
    return usual | here | {"standard": standard, "token": token} | parties


def _carried(here: Row, transaction: Row, info: Row) -> Iterator[Row]:
    """Yield the transfers that a transaction makes itself."""
    kind, value = _contract_call(transaction)
    owner = value["owner_address"] if here["height"] else NOBODY
    if kind == "TransferContract":
        yield _transfer(here, "native", None, owner, value["to_address"], value["amount"])
    if kind == "AssetIssueContract":
        yield _transfer(here, "trc10", info["assetIssueID"], NOBODY, owner, value["total_supply"])
    if kind == "TransferAssetContract":
        yield _transfer(here, "trc10", value["asset_name"], owner, value["to_address"], value["amount"])
    if kind == "TriggerSmartContract" and value.get("call_value"):
        yield _transfer(here, "native", None, owner, value["contract_address"], value["call_value"])


def _log_transfers(here: Row, log: Row, wrapped: str) -> Iterator[Row]:
    """The movement that one log tells of."""
    topics, token = log["topics"], log["address"]
    parties = [base58check("41" + each[24:]) for each in topics[1:]]
    if topics[0] == TRANSFER:
        yield _transfer(here, "trc20", token, parties[0], parties[1], log["data"])
    if topics[0] == DEPOSIT and token == wrapped:
        yield _transfer(here, "wrap", token, NOBODY, parties[0], log["data"])
    if topics[0] == WITHDRAWAL and token == wrapped:
        yield _transfer(here, "unwrap", token, parties[0], NOBODY, log["data"])


def _allowed(here: Row, log: Row) -> Iterator[Row]:
    """The approval that one log tells of."""
    if log["topics"][0] == APPROVAL:
        owner, spender = (base58check("41" + each[24:]) for each in log["topics"][1:])
        approval = {"owner": owner, "spender": spender, "token": log["address"], "standard": "erc20"}
        yield here | approval | {"raw": _raw(log["data"]), "token_id": None, "approved": None}


def opened() -> TronNode:
    """A new node that is as final as the suite wants."""
    return TronNode(lag=FINALITY).__enter__()


@contextmanager
def tron_chain(blocks: int) -> Iterator[TronSubject]:
    """A subject of Tron with so many blocks of trading."""
    with tempfile.TemporaryDirectory() as folder, TronNode(lag=FINALITY) as running:
        subject = TronSubject(running, Path(folder), blocks)
        try:
            yield subject
        finally:
            subject.close()
