"""A Solana node that answers what a test wants it to: for faults that a real one does not have."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import base58

from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.environment import Environment
from tests.evm.fakes import FakeClock
from tests.json_rpc import JsonRpcNode, Refuse

ROOT = Path(__file__).parents[2]
GENESIS = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"
WALLET = "4abvSWugzSRhpAk4rpvdSruFAFoNG1D1JTStmzpGt7xA"
MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
HOME = "D9fuVSy8oRGmztVJZVFsnHzTvowsfCAkY7VoNV8Ls2Jt"
Answer = Callable[[Any], Any]
SCHEDULE = {"slotsPerEpoch": 432_000, "firstNormalEpoch": 0, "firstNormalSlot": 0, "warmup": False}


def unserved(params: Any) -> Any:
    """Refuse a method as a node does that lacks it."""
    raise Refuse(-32601, "Method not found")


class FakeNode(JsonRpcNode):
    """Answer each method with a function of its parameters.

    The slot moves by `moves` with each answer.
    """

    def __init__(self, **answers: Answer) -> None:
        self.slot, self.moves = 100, 0
        self.asked: list[str] = []
        self.answers: Mapping[str, Answer] = {
            "getGenesisHash": lambda params: GENESIS,
            "getSlot": lambda params: self.slot,
            "getBlock": lambda params: header(params[0]),
            "getMultipleAccounts": lambda params: self.at([account(SYSTEM, 5), self.clock()]),
            "getEpochSchedule": lambda params: SCHEDULE,
            "getFirstAvailableBlock": lambda params: 0,
            "getSignaturesForAddress": lambda params: [],
            "getTokenAccountsByOwner": lambda params: self.at([]),
            "getProgramAccounts": lambda params: self.at([]),
            **answers,
        }

    def at(self, value: Any) -> dict[str, Any]:
        """A value as of now; then some slots go by."""
        response = {"context": {"slot": self.slot}, "value": value}
        self.slot += self.moves
        return response

    def clock(self) -> dict[str, Any]:
        """The clock of the slot."""
        return account("Sysvar", 1, struct.pack("<QqQQq", self.slot, 0, 7, 7, 1_700_000_000 + self.slot))

    def answer(self, method: str, params: Any) -> Any:
        """Return the answer of the method's function; log the request in `asked`."""
        self.asked.append(method)
        return self.answers.get(method, unserved)(params)

    def chain(self, *urls: str) -> SolanaChain:
        """The chain of this node."""
        settings = SolanaSettings(adapter="solana", rpc=list(urls) or ["http://one.test"])
        return build("solana", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=self)


def header(slot: int) -> dict[str, Any]:
    """A block without its transactions."""
    return {
        "blockhash": f"hash{slot}",
        "previousBlockhash": f"hash{slot - 1}",
        "parentSlot": slot - 1,
        "blockTime": 1_700_000_000 + slot,
    }


def account(owner: str, lamports: int, content: bytes = b"") -> dict[str, Any]:
    """An account as bytes."""
    return {"data": [base64.b64encode(content).decode(), "base64"], "owner": owner, "lamports": lamports}


def token_account(amount: Any = "7", *, owner: str = WALLET, decimals: Any = 6, address: str = HOME) -> dict[str, Any]:
    """A token account as a node parses it."""
    info = {
        "mint": MINT,
        "owner": owner,
        "state": "initialized",
        "isNative": False,
        "tokenAmount": {"amount": amount, "decimals": decimals, "uiAmount": 0.1, "uiAmountString": "x"},
    }
    parsed = {"parsed": {"info": info, "type": "account"}, "program": "spl-token", "space": 165}
    return {"pubkey": address, "account": {"data": parsed, "owner": TOKEN, "lamports": 2039280}}


def transaction(slot: int, signature: str = "1" * 88, **meta: Any) -> dict[str, Any]:
    """A transaction in which the wallet pays a fee."""
    message = {"accountKeys": [WALLET, HOME], "instructions": [], "header": {"numRequiredSignatures": 1}}
    outcome = {"err": None, "fee": 5, "preBalances": [10, 1], "postBalances": [5, 1], **meta}
    return {
        "slot": slot,
        "blockTime": 1_700_000_000,
        "meta": outcome,
        "transaction": {"signatures": [signature], "message": message},
    }


def signature(slot: int) -> str:
    """One for each slot."""
    return base58.b58encode(slot.to_bytes(64, "big")).decode()


class ListingNode(FakeNode):
    """A node with a transaction of the wallet in each of some slots, of which those up to its slot are final."""

    def __init__(self, *slots: int, slot: int = 1_000) -> None:
        super().__init__(
            getSignaturesForAddress=self._signatures,
            getTransaction=lambda params: transaction(self._slot_of(params[0]), params[0]),
            getBlocks=lambda params: [params[1]],
        )
        self.slots_by_address, self.slot = {WALLET: slots}, slot

    def _signatures(self, params: Any) -> Any:
        last = self._slot_of(params[1]["before"]) - 1 if "before" in params[1] else self.slot
        slots = sorted((each for each in self.slots_by_address.get(params[0], ()) if each <= last), reverse=True)
        return [{"signature": signature(each), "slot": each} for each in slots]

    @staticmethod
    def _slot_of(name: str) -> int:
        return int.from_bytes(base58.b58decode(name), "big")
