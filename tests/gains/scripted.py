"""Scripted contracts on the local chain: real calls, tokens and events without a protocol's code.

Code that its authors do not publish cannot be deployed. Its calls and events are known, and a wallet sees no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import MAX, ZERO, Tx, call_data, created_address, selector, topic, topic_of, tx, words
from tests.gains.conftest import World
from tests.gains.ledger import ETH, Wallet

TRANSFER, TRANSFER_FROM = "transfer(address,uint256)", "transferFrom(address,address,uint256)"
NOTE = "note()"
GAS = 3_000_000
ANSWER_BYTES = 512  # zeros, which are the empty result of any function


class Step:
    """A step of a scripted contract in a transaction."""


@dataclass(frozen=True)
class Call(Step):
    """A call that a scripted contract makes."""

    to: str
    data: str
    value: int = 0


@dataclass(frozen=True)
class Log(Step):
    """An event of a scripted contract, with the wallet's balance of its token; None if it is unchanged."""

    topics: Sequence[str]
    data: str = ""
    balance: int | None = None


@dataclass
class Contract:
    """A contract that answers zeros until a test sets the steps of a call; also a token or a collection."""

    world: World
    address: str
    symbol: str = ""
    balance: int = 0  # of the wallet of a test in its token, after the steps so far
    answers: dict[str, int | tuple[int, ...]] = field(default_factory=dict)  # words other than 0, by function

    def act(self, me: Wallet, signature: str, *args: Any, steps: Sequence[Step], value: int = 0) -> dict[str, int]:
        """Let a wallet call a function that makes these steps, and return what it moved."""
        self._set_code(selector(signature), steps)
        return me.do(tx(me.address, self.address, signature, *args, value=value, gas=GAS))

    def script(self, signature: str, steps: Sequence[Step]) -> None:
        """Set the steps of the next calls of a function."""
        self._set_code(selector(signature), steps)

    def event(self, signature: str, *topics: str, data: Sequence[Any] = ()) -> Log:
        """An event of this contract; `data` has the values of the arguments that are not indexed."""
        types = signature[signature.index("(") + 1 : -1].split(",")[len(topics) :]
        return Log((topic(signature), *topics), words(types, *data) if data else "")

    def issue(self, me: Wallet, raw: int) -> Log:
        """Create units of this token for a wallet."""
        return self._transfer(ZERO, me.address, raw)

    def burn(self, me: Wallet, raw: int) -> Log:
        """Destroy units of this token."""
        return self._transfer(me.address, ZERO, -raw)

    def send(self, me: Wallet, recipient: Contract, raw: int) -> Log:
        """Move units of this token from a wallet to a contract."""
        return self._transfer(me.address, recipient.address, -raw)

    def give(self, me: Wallet, sender: Contract, raw: int) -> Log:
        """Move units of this token from a contract to a wallet."""
        return self._transfer(sender.address, me.address, raw)

    def move(self, sender: str, recipient: str, number: int) -> Log:
        """Move a collectible of this collection; the zero address creates and destroys it."""
        return Log((TRANSFER_TOPIC, topic_of(sender), topic_of(recipient), hex_word(number)))

    def note(self, *steps: Step) -> Call:
        """A call by which another contract lets this one make steps in its next transaction; once in each."""
        self._set_code(selector(NOTE), steps)
        return Call(self.address, call_data(NOTE))

    def take(self, me: Wallet, symbol: str, raw: int) -> Call:
        """Take a token of a wallet, which approved it."""
        return Call(me.assets[symbol], call_data(TRANSFER_FROM, me.address, self.address, raw))

    def take_for(self, recipient: Contract, me: Wallet, symbol: str, raw: int) -> Call:
        """Take a token of a wallet, which approved this contract, for another one."""
        return Call(me.assets[symbol], call_data(TRANSFER_FROM, me.address, recipient.address, raw))

    def pay(self, me: Wallet, symbol: str, raw: int) -> Call:
        """Pay a token or ether that this contract has."""
        if symbol == ETH:
            return Call(me.address, "0x", raw)
        return Call(me.assets[symbol], call_data(TRANSFER, me.address, raw))

    def _transfer(self, sender: str, recipient: str, change: int) -> Log:
        self.balance = max(self.balance + change, 0)  # shares may have grown
        return Log((TRANSFER_TOPIC, topic_of(sender), topic_of(recipient)), hex_word(abs(change))[2:], self.balance)

    def _set_code(self, chosen: str, steps: Sequence[Step]) -> None:
        answers = {
            selector("decimals()"): words(["uint8"], 18),
            selector("symbol()"): words(["uint256", "uint256", "bytes32"], 32, len(self.symbol), self.symbol.encode()),
        }
        for name, answer in self.answers.items():
            numbers = (answer,) if isinstance(answer, int) else answer
            answers[selector(name)] = words(["uint256"] * len(numbers), *numbers)
        code = _program(chosen, steps, answers)
        self.world.node.rpc("anvil_setCode", self.address, "0x" + code.hex())


def contract(world: World, symbol: str = "", *, is_funded: bool = True) -> Contract:
    """A new scripted contract, by default with tokens and ether to pay from."""
    number = int(world.node.rpc("eth_blockNumber"), 16)
    address = created_address("0x" + "5c" * 20, number).lower()
    scripted = Contract(world, address, symbol)
    scripted.note()
    if not is_funded:
        world.node.mine(1)  # the next address
        return scripted
    minted = [token.address for name, token in world.deployment.tokens.items() if name != "WETH"]
    owner, mint, weth = world.deployment.accounts["deployer"], "mint(address,uint256)", world.contract("WETH")
    world.node.settle([tx(owner, token, mint, address, 10**7 * WAD) for token in (*minted, *world.rewards.values())])
    world.node.rpc("anvil_setBalance", owner, hex(10_000 * WAD))
    world.node.settle([tx(owner, weth, "deposit()", value=500 * WAD), tx(owner, weth, TRANSFER, address, 500 * WAD)])
    world.node.rpc("anvil_setBalance", address, hex(500 * WAD))
    return scripted


def approve(me: Wallet, spender: Contract, *symbols: str) -> None:
    """Let a contract take tokens of a wallet."""
    me.do(*(tx(me.address, me.assets[symbol], "approve(address,uint256)", spender.address, MAX) for symbol in symbols))


def minted_by(world: World, symbol: str, address: str, raw: int) -> Tx:
    """A transaction of others that creates tokens for a wallet."""
    return tx(world.deployment.accounts["ivan"], world.rewards[symbol], "mint(address,uint256)", address, raw)


def minted(me: Wallet, symbol: str, raw: int) -> Call:
    """Create a token for a wallet."""
    return Call(me.assets[symbol], call_data("mint(address,uint256)", me.address, raw))


TRANSFER_TOPIC = topic("Transfer(address,address,uint256)")


def hex_word(number: int) -> str:
    """A number as a topic."""
    return f"0x{number % 2**256:064x}"


def bytes_of(hex_topic: str) -> bytes:
    """A topic as bytes."""
    return bytes.fromhex(hex_topic[2:])


# --- the code --------------------------------------------------------------------------------------------------------

STOP, RETURN, GAS_LEFT, CALL, JUMP_TARGET = b"\x00", b"\xf3", b"\x5a", b"\xf1", b"\x5b"
ZERO_WORD = b"\x5f"  # PUSH0
SELECTOR = bytes.fromhex("5f3560e01c")
BALANCE = bytes.fromhex("5f545f5260205ff3")  # the first word of the storage
FAIL = bytes.fromhex("5b5f5ffd")


def _program(chosen: str, steps: Sequence[Step], answers: Mapping[str, str]) -> bytes:
    """The code: branches by selector; any other call returns zeros."""
    branches = {
        name: _store(bytes.fromhex(data)) + _push(len(data) // 2) + ZERO_WORD + RETURN for name, data in answers.items()
    }
    branches.setdefault(selector("balanceOf(address)"), BALANCE)
    fail_at = len(SELECTOR) + (len(branches) + 1) * 11 + 5  # after the dispatch
    branches[chosen] = b"".join(_step(step, fail_at) for step in steps) + STOP
    tests, bodies, at = b"", b"", fail_at + len(FAIL)
    for name, body in branches.items():
        tests += b"\x80\x63" + bytes.fromhex(name[2:]) + b"\x14\x61" + (at + len(bodies)).to_bytes(2, "big") + b"\x57"
        bodies += JUMP_TARGET + body
    return SELECTOR + tests + _push(ANSWER_BYTES) + ZERO_WORD + RETURN + FAIL + bodies


def _step(step: Step, fail_at: int) -> bytes:
    assert isinstance(step, Call | Log)
    data = bytes.fromhex(step.data.removeprefix("0x"))
    if isinstance(step, Log):
        topics = b"".join(b"\x7f" + bytes_of(each) for each in reversed(step.topics))
        balance_code = b"" if step.balance is None else b"\x7f" + step.balance.to_bytes(32, "big") + ZERO_WORD + b"\x55"
        return balance_code + _store(data) + topics + _push(len(data)) + ZERO_WORD + bytes([0xA0 + len(step.topics)])
    target = b"\x73" + bytes.fromhex(step.to[2:])
    value = b"\x7f" + step.value.to_bytes(32, "big")
    arguments = ZERO_WORD + ZERO_WORD + _push(len(data)) + ZERO_WORD + value + target + GAS_LEFT
    return _store(data) + arguments + CALL + b"\x15" + _push(fail_at) + b"\x57"


def _store(data: bytes) -> bytes:
    """Code that writes data to the beginning of the memory."""
    code = b""
    for offset in range(0, len(data), 32):
        code += b"\x7f" + data[offset : offset + 32].ljust(32, b"\0") + _push(offset) + b"\x52"
    return code


def _push(number: int) -> bytes:
    return b"\x61" + number.to_bytes(2, "big")
