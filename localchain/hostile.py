"""Tokens that misbehave, each in one way, and otherwise as good as any: what an indexer must survive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import MAX, ZERO, Tx, created_address, selector, topic, topic_of, tx, words
from chainfolio.localchain.node import LocalNode

TRANSFER = topic("Transfer(address,address,uint256)")
TRANSFER_SINGLE = topic("TransferSingle(address,address,address,uint256,uint256)")
TRANSFER_BATCH = topic("TransferBatch(address,address,address,uint256[],uint256[])")
MEGABYTE = 2**20
LOG_GAS = 2_000_000


class Kind(IntEnum):
    """Ways in which a function ends."""

    RETURN = 1
    REVERT = 2
    LOOP = 3
    INVALID = 4


@dataclass(frozen=True)
class Answer:
    """Behaviour of one function. `size` cuts the returned data or pads it with zeros."""

    kind: Kind
    data: str = ""
    size: int | None = None

    def row(self, signature: str) -> tuple[bytes, int, int, bytes]:
        """Encode the behaviour for the contract."""
        data = bytes.fromhex(self.data)
        size = len(data) if self.size is None else self.size
        return bytes.fromhex(selector(signature)[2:]), self.kind, size, data


@dataclass(frozen=True)
class Log:
    """An event with any topics and any data."""

    topics: Sequence[str]
    data: str = ""


@dataclass(frozen=True)
class Hostile:
    """A token: what it answers differently, and what it logs instead of an honest mint."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    logs: Sequence[Log] = ()


def gives(*types_and_values: object, size: int | None = None) -> Answer:
    """Return the answer of types and their values in turn, such as "string", "Name", "uint8", 6."""
    types = [str(each) for each in types_and_values[::2]]
    return Answer(Kind.RETURN, words(types, *types_and_values[1::2]), size)


def raw(data: str = "", size: int | None = None) -> Answer:
    """Return the answer of these bytes, given in hex without a prefix."""
    return Answer(Kind.RETURN, data, size)


GOOD = {
    "name()": gives("string", "Hostile"),
    "symbol()": gives("string", "HOST"),
    "decimals()": gives("uint8", 18),
    "totalSupply()": gives("uint256", WAD),
    "balanceOf(address)": gives("uint256", WAD),
    "allowance(address,address)": gives("uint256", 0),
    "transfer(address,uint256)": gives("bool", True),
    "approve(address,uint256)": gives("bool", True),
    "transferFrom(address,address,uint256)": gives("bool", True),
}
REASON = "08c379a0" + words(["string"], "no")  # Error(string)

BALANCES = {
    "balance reverts": Answer(Kind.REVERT),
    "balance reverts with a reason": Answer(Kind.REVERT, REASON),
    "balance reverts with a megabyte": Answer(Kind.REVERT, size=MEGABYTE),
    "balance of 0 bytes": raw(),
    "balance of 31 bytes": raw("ff" * 31),
    "balance of 64 bytes": gives("uint256", WAD, "uint256", MAX),
    "balance of 1 MB": gives("uint256", WAD, size=MEGABYTE),
    "balance loops": Answer(Kind.LOOP),
    "balance is invalid": Answer(Kind.INVALID),
    "balance of max uint256": gives("uint256", MAX),
}
DECIMALS = {
    "decimals revert": Answer(Kind.REVERT),
    "decimals of 0 bytes": raw(),
    "decimals 0": gives("uint8", 0),
    "decimals 77": gives("uint8", 77),
    "decimals 255": gives("uint8", 255),
    "decimals 256": gives("uint256", 256),
    "decimals of max uint256": gives("uint256", MAX),
}
TEXTS = {
    "control characters": "Nul\x00Bell\x07Line\nReturn\rTab\tDelete\x7f",
    "right to left": "\u202eCDSU\u202c \u2066\u200b\u200f",
    "ANSI": "\x1b[2J\x1b[31mUSDC\x1b[0m\x1b]0;title\x07",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&",
    "10 kB": "A" * 10_240,
    "empty": "",
    "homoglyphs": "US\u0044\u0421",  # the last letter is Cyrillic
    "formula": '=HYPERLINK("http://example.invalid","USDC")',
}
ODD_NAMES = {
    "name as bytes32": raw(b"Maker".ljust(32, b"\0").hex()),
    "name is not UTF-8": raw(words(["bytes"], b"\xff\xfe\xc3\x28")),
    "name points outside": raw(words(["uint256", "uint256"], 2**255, 5)),
    "name is longer than its data": raw(words(["uint256", "uint256"], 32, MAX)),
    "name reverts": Answer(Kind.REVERT),
}


def hostile_tokens(victim: str, thief: str) -> dict[str, Hostile]:
    """Return every hostile token by a description of its fault."""
    tokens = {name: Hostile({"balanceOf(address)": answer}) for name, answer in BALANCES.items()}
    tokens |= {name: Hostile({"decimals()": answer}) for name, answer in DECIMALS.items()}
    for name, text in TEXTS.items():
        tokens[f"name: {name}"] = Hostile({"name()": gives("string", text), "symbol()": gives("string", text)})
    for name, answer in ODD_NAMES.items():
        tokens[name] = Hostile({"name()": answer, "symbol()": answer})
    lies = {"balanceOf(address)": gives("uint256", 0)}
    return tokens | {name: Hostile(lies, logs) for name, logs in hostile_logs(victim, thief).items()}


def hostile_logs(victim: str, thief: str) -> dict[str, list[Log]]:
    """Return events that no honest contract emits, by a description of their fault."""
    giver, taker, zero, dirty = topic_of(victim), topic_of(thief), topic_of(ZERO), "0x" + "ff" * 12 + victim[2:].lower()
    amount = words(["uint256"], WAD)
    parties = [TRANSFER, zero, giver]
    batch = [TRANSFER_BATCH, taker, zero, giver]
    return {
        "fake transfer from the victim": [Log([TRANSFER, giver, taker], words(["uint256"], 10**30))],
        "transfer without indexes": [Log([TRANSFER], words(["address", "address", "uint256"], ZERO, victim, WAD))],
        "transfer with two topics": [Log([TRANSFER, giver], words(["address", "uint256"], thief, WAD))],
        "transfer with long data": [Log(parties, amount + amount)],
        "transfer with short data": [Log(parties, amount[:62])],
        "transfer without data": [Log(parties)],
        "transfer of both standards": [Log([*parties, "0x" + amount], amount)],
        "transfer to a dirty address": [Log([TRANSFER, zero, dirty], amount)],
        "transfer with 64 kB": [Log(parties, "00" * 65_536)],
        "mint of max uint256": [Log(parties, words(["uint256"], MAX))],
        "two mints of max uint256": [Log(parties, words(["uint256"], MAX))] * 2,
        "batch of unequal lengths": [Log(batch, words(["uint256[]", "uint256[]"], [1, 2], [1, 2, 3]))],
        "batch that points outside": [Log(batch, words(["uint256", "uint256"], 2**255, 64))],
        "batch that is longer than its data": [Log(batch, words(["uint256"] * 4, 64, 64, MAX, 1))],
        "batch of the same id twice": [Log(batch, words(["uint256[]", "uint256[]"], [7, 7], [MAX, MAX]))],
        "empty batch": [Log(batch, words(["uint256[]", "uint256[]"], [], []))],
        "single with short data": [Log([TRANSFER_SINGLE, taker, zero, giver], words(["uint256"], 1))],
    }


def deploy_hostile(node: LocalNode, victim: str | None = None) -> dict[str, str]:
    """Deploy each hostile token, let it log a transfer to the victim, and return addresses by name.

    The victim is the node's second account by default. Tokens with own logs emit those instead.
    """
    owner, alice = node.accounts[:2]
    victim = victim or alice
    nonce = int(node.rpc("eth_getTransactionCount", owner, "pending"), 16)
    addresses: dict[str, str] = {}
    txs: list[Tx] = []
    honest = Log([TRANSFER, topic_of(ZERO), topic_of(victim)], words(["uint256"], WAD))
    for name, token in hostile_tokens(victim, owner).items():
        address = addresses[name] = created_address(owner, nonce + len(txs))
        rows = [answer.row(signature) for signature, answer in {**GOOD, **token.answers}.items()]
        data = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
        txs.append(Tx(owner, None, data, gas=4_000_000 + 500 * len(data), label=name))
        # Without an event the token would not be indexed.
        txs += [replace(log_tx(owner, address, log), label=name) for log in token.logs or [honest]]
    node.settle(txs)
    return addresses


def log_tx(sender: str, token: str, log: Log) -> Tx:
    """Return the transaction that makes a hostile token emit an event."""
    topics = [bytes.fromhex(each[2:]) for each in log.topics]
    return tx(sender, token, "log(bytes32[],bytes)", topics, bytes.fromhex(log.data), gas=LOG_GAS)
