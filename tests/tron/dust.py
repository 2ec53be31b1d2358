"""A Tron wallet with tokens of strangers, on a node where a call may use all energy of a call."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from eth_abi.abi import decode, encode

from chainfolio.adapters.tron.addresses import parse_address
from chainfolio.adapters.tron.facts import TRC20
from chainfolio.adapters.tron.untrusted import MAX_FAILED, MAX_REQUESTS, MIN_SENT, MULTICALL_SIZE, SPLIT
from chainfolio.assets import Asset
from chainfolio.transport.exchange import HttpResponse
from tests.chains.dust import DustKind, Mix, Wallet, Work, counts, wallet_of
from tests.tron.fakes import ALICE, USDT, FakeNode
from tests.tron.recorded import FACTS

ENERGY: Final = 100_000_000  # of one call, as java-tron has it
READ: Final = 5_000
OWN: Final = "TNUC9Qb1rRpS5CbWLmNMxXBjyFoydXjWFR"
MULTICALL: Final = "TEazPvZwDjDtFeJupyo7QunvnrnUjPH8ED"
BALANCE_OF, AGGREGATE = bytes.fromhex("70a08231"), bytes.fromhex("82ad56cb")
WORD: Final = 32
ROUNDS: Final = 3  # in which contracts are read: balances, names, and balances once more for one block
BEHAVIOURS: Final = (
    "loops for ever",
    "loops in its name",
    "reverts",
    "answers nothing",
    "answers too much",
    "answers one",
    "answers dearly",
)


class OutOfEnergy(Exception):
    """A call used up all that it may use."""


class Reverts(Exception):
    """A contract refuses."""


class DustNode(FakeNode):
    """A fake node with contracts. `energy` is what its calls used."""

    def __init__(self, behaviours: dict[str, str]) -> None:
        super().__init__()
        self.behaviours, self.energy, self.requests = behaviours, 0, 0
        self.give(ALICE, balance=7_000_000)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One request."""
        self.requests += 1
        return await super().post(source, url, body, timeout_s)

    def _call_contract(self, request: Any) -> dict[str, Any]:
        if request["method"] == "eth_getBlockByNumber":
            return super()._call_contract(request)
        to, data = (request["params"][0][name].removeprefix("0x") for name in ("to", "data"))
        try:
            returned = self._run(parse_address("", "41" + to), bytes.fromhex(data))
        except OutOfEnergy:
            self.energy += ENERGY
            return {"error": {"code": -32000, "message": "OUT_OF_ENERGY"}}
        except Reverts:
            return {"error": {"code": -32000, "message": "REVERT opcode executed"}}
        return {"result": f"0x{returned.hex()}"}

    def _run(self, contract: str, data: bytes) -> bytes:
        self.energy += READ
        if contract == MULTICALL:
            [calls] = decode(["(address,bool,bytes)[]"], data[4:])
            return encode(
                ["(bool,bytes)[]"],
                [[self._try_call(parse_address("", "41" + to[2:]), payload) for to, _, payload in calls]],
            )
        is_balance = data[:4] == BALANCE_OF
        match self.behaviours.get(contract, "honest"):
            case "loops for ever":
                raise OutOfEnergy
            case "loops in its name" if not is_balance:
                raise OutOfEnergy
            case "reverts":
                raise Reverts
            case "answers nothing":
                return b""
            case "answers too much":
                return b"\xff" * 20_000
            case "answers dearly":
                self.energy += READ * 20
        return (5 if is_balance else 6).to_bytes(WORD, "big")

    def _try_call(self, contract: str, data: bytes) -> tuple[bool, bytes]:
        try:
            return True, self._run(contract, data)
        except Reverts:
            return False, b""


def address(number: int) -> str:
    """The address of a stranger's contract, some below and some above the honest ones."""
    return parse_address("", f"41{(number % 2) * 0xFF:02x}{number:038x}")


def token(contract: str) -> Asset:
    """The token of a contract."""
    return Asset(FACTS.caip2, TRC20, contract)


async def read(mix: Mix) -> Wallet:
    """Read the wallet: its coins, a listed token, a trusted one, and the hostile ones."""
    behaviours = {address(number): behaviour for number, behaviour in enumerate(counts(mix), 1)}
    node = DustNode(behaviours)
    chain = node.chain()
    chain.facts = msgspec.structs.replace(chain.facts, multicall=MULTICALL)
    trusted = {"listed": token(USDT), "own": token(OWN)}
    return await wallet_of(
        chain, ALICE, trusted, [token(each) for each in behaviours], lambda: Work(node.requests, node.energy)
    )


def allowance(count: int) -> Work:
    """Calls that fail are bounded for each round of 200 reads, and so are the requests that they take."""
    groups = -(-3 * count // MULTICALL_SIZE)
    calls = MAX_FAILED + MIN_SENT + groups
    call_count = groups + SPLIT * calls
    energy = ROUNDS * (ENERGY * calls + READ * call_count) + 4 * 25 * READ * count
    return Work(ROUNDS * (8 + groups // MIN_SENT), energy, ROUNDS * (MAX_REQUESTS - 1))


TRON: Final = DustKind(BEHAVIOURS, read, allowance, DustNode)
