"""The beacon subject: a real state transition behind the Beacon API, and a reading of its blocks that shares no code
with the adapter. There are no accounts: beside blocks, the suite judges the rows that blocks say of validators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any
from urllib.error import HTTPError

from chainfolio.adapters.beacon.chain import BeaconChain, build
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.environment import Environment
from chainfolio.localchain.beacon import GENESIS_S, BeaconRuntime
from chainfolio.table import bucket
from chainfolio.transport.exchange import HttpResponse, Sink
from chainfolio.transport.http import HttpTransport
from tests.beacon.conftest import CONFIGS, ETH, started
from tests.chains.subject import FINALITY, RequestLog, Row

KEY, VALIDATORS = "own", 64
EPOCH, SLOT_S = 8, 6  # of the minimal preset
OWN = ("proposals", "withdrawals", "deposits", "stake_requests")


@dataclass(slots=True)
class Recording:
    """A transport that counts requests, can be pointed at another node, and is as final as the suite wants."""

    subject: BeaconSubject
    real: HttpTransport

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange with the node of the moment."""
        return await self.real.post(source, self._count_request(url), body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """Send a GET request to the current node."""
        posted = await self.real.get(source, self._count_request(url), timeout_s)
        return self._less_final(posted) if url.endswith("/head/finality_checkpoints") else posted

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Stream a response of the current node into a sink."""
        return await self.real.stream(source, self._count_request(url), sink, timeout_s)

    def _count_request(self, url: str) -> str:
        self.subject.request_log.count()
        return url.replace(self.subject.first, self.subject.node.url)

    def _less_final(self, posted: HttpResponse) -> HttpResponse:
        posted.give_back()
        document = json.loads(posted.body)
        document["data"]["finalized"]["epoch"] = str(max(0, self.subject.height - FINALITY) // EPOCH)
        return HttpResponse(posted.status, None, json.dumps(document).encode())

    async def close(self) -> None:
        """Let go of connections."""
        await self.real.close()


class BeaconSubject:
    """A chain that misses slots, pays out, and is asked for deposits, exits and consolidations."""

    lacks = frozenset(Capability) - {Capability.HEAD_EVENTS, Capability.VALIDATORS}
    no_rows = frozenset(["transactions", "transfers", "approvals", "logs"])
    datasets: Sequence[str] = ("blocks", *OWN)
    standards: frozenset[str] = frozenset()
    approval_standards: frozenset[str] = frozenset()
    accounts: Sequence[str] = ()
    tokens: Sequence[str] = ()
    plain: Sequence[str] = ()
    events: Sequence[str] = ()
    asks_each_block = True
    birth = 1

    def __init__(self, blocks: int) -> None:
        self.request_log, self._blocks = RequestLog(), blocks
        self.node = started(validators=VALIDATORS)
        self.first = self.node.url
        self._nodes = [self.node]
        if blocks:
            self.trade(blocks, 7)

    @property
    def height(self) -> int:
        """The newest slot, which has a block."""
        return self._head(self.node)

    @staticmethod
    def _head(node: BeaconRuntime) -> int:
        return int(node.call("/eth/v1/node/syncing")["data"]["head_slot"])

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> BeaconChain:
        """A new adapter; what it asks is counted. `contracts` are validators."""
        chain_settings = BeaconSettings(
            adapter="beacon", rpc=[self.first], span=span, concurrency=3, validators=list(contracts), hedge=False
        )
        transport = Recording(self, HttpTransport(connections=8))
        return build(KEY, chain_settings, Environment(), configs=CONFIGS, transport=transport)

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Add blocks without requests of validators."""
        self.node.advance(blocks)

    def trade(self, blocks: int, seed: int) -> None:
        """Top-ups, new validators, partial withdrawals and consolidations, and slots that are missed."""
        chance, head = Random(seed), self.height
        end = head + blocks
        while head < end:
            self._act(chance)
            slots = min(chance.randrange(1, 5), end - head)
            head = self.node.advance(slots, miss=[head + 1] if slots > 2 else [])

    def _act(self, chance: Random) -> None:
        depositor, withdrawer = chance.sample(range(VALIDATORS), 2)
        self.node.do("deposit", validator=depositor, amount=chance.randrange(1, 5) * ETH)
        if chance.random() < 0.3:
            self.node.do("deposit", amount=32 * ETH)
        if chance.random() < 0.5:
            self.node.do("withdraw", validator=withdrawer, amount=chance.randrange(1, ETH))
        if chance.random() < 0.3:
            self.node.do("consolidate", source=withdrawer, target=withdrawer)

    def reorg(self, depth: int) -> None:
        """Other blocks in the place of the newest; the first of them has another deposit."""
        head = self.height
        self.node.do("rewind", slot=head - depth)
        self._act(Random(head))
        self.node.advance(depth)

    def fork(self, depth: int) -> None:
        """Run the same script on a second node, then another end."""
        assert len(self._nodes) == 1, "there is a second node already"
        twin = BeaconSubject(self._blocks)
        assert _root(twin.node, twin.height) == _root(self.node, self.height), "the same script gives the same chain"
        self._nodes.append(twin.node)
        if depth:
            twin.reorg(depth)

    def switch(self) -> None:
        """The other node is the chain now."""
        self.node = next(each for each in self._nodes if each is not self.node)

    def close(self) -> None:
        """End the nodes."""
        for each in self._nodes:
            each.__exit__(None, None, None)

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """There are no accounts."""
        raise AssertionError("nobody asks here")

    def balance(self, account: str, token: str, height: int) -> int | None:
        """There are no tokens."""
        raise AssertionError("nobody asks here")

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Return 0: this chain has no allowances."""
        raise AssertionError("nobody asks here")

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Block by block, as the node writes it."""
        rows_by_table: dict[str, list[Row]] = {name: [] for name in ("blocks", *OWN, *self.no_rows)}
        for slot in range(span.first, min(span.last, self.height) + 1):
            try:
                message = self.node.call(f"/eth/v2/beacon/blocks/{slot}")["data"]["message"]
            except HTTPError:
                continue
            for name, rows in rows_of_block(message, _root(self.node, slot)).items():
                rows_by_table[name] += rows
        return rows_by_table


def _root(node: BeaconRuntime, slot: int) -> str:
    root: str = node.call(f"/eth/v1/beacon/blocks/{slot}/root")["data"]["root"]
    return root


def rows_of_block(message: Row, root: str) -> dict[str, list[Row]]:
    """The rows of a block, which is of Electra."""
    slot, body = int(message["slot"]), message["body"]
    payload, requests = body["execution_payload"], body["execution_requests"]
    time = datetime.fromtimestamp(GENESIS_S + slot * SLOT_S, UTC)
    of_slot = {"chain": KEY, "height": slot}
    at = of_slot | {"time": time, "epoch": slot // EPOCH}
    proposer = int(message["proposer_index"])
    fees = {"miner": payload["fee_recipient"].lower(), **dict.fromkeys(("gas_used", "gas_limit", "base_fee"))}
    return {
        "blocks": [of_slot | {"time": time, "hash": root, "parent": message["parent_root"], "tx_count": 0} | fees],
        "proposals": [
            of_slot
            | {
                "bucket": proposer % 64,
                "validator": proposer,
                "epoch": slot // EPOCH,
                "execution_height": int(payload["block_number"]),
                "execution_hash": payload["block_hash"],
                "fee_recipient": payload["fee_recipient"].lower(),
            }
        ],
        "withdrawals": [
            at
            | {
                "bucket": int(each["validator_index"]) % 64,
                "validator": int(each["validator_index"]),
                "number": int(each["index"]),
                "address": each["address"].lower(),
                "gwei": int(each["amount"]),
            }
            for each in payload["withdrawals"]
        ],
        "deposits": [
            at
            | _of_key(each["pubkey"], item)
            | {
                "number": int(each["index"]),
                "kind": "request",
                "credentials": each["withdrawal_credentials"],
                "gwei": int(each["amount"]),
            }
            for item, each in enumerate(requests["deposits"])
        ],
        "stake_requests": [at | row for row in _requests(requests)],
    }


def _of_key(pubkey: str, item: int) -> Row:
    return {"bucket": bucket(pubkey), "pubkey": pubkey, "item": item}


def _requests(requests: Row) -> Iterator[Row]:
    """Yield requests of the execution chain: withdrawals first, then consolidations."""
    for item, each in enumerate(requests["withdrawals"]):
        gwei = int(each["amount"])
        kind = {"kind": "withdrawal" if gwei else "exit", "target": None, "gwei": gwei}
        yield _of_key(each["validator_pubkey"], item) | kind | {"address": each["source_address"].lower()}
    for item, each in enumerate(requests["consolidations"], len(requests["withdrawals"])):
        kind = {"kind": "consolidation", "target": each["target_pubkey"], "gwei": None}
        yield _of_key(each["source_pubkey"], item) | kind | {"address": each["source_address"].lower()}


@contextmanager
def beacon(blocks: int) -> Iterator[Any]:
    """A beacon chain with so many slots of trading."""
    subject = BeaconSubject(blocks)
    try:
        yield subject
    finally:
        subject.close()
