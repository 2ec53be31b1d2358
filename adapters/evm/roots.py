"""What a block's hash covers, computed again from whole bodies: the header, its transactions, its receipts and logs.

A block hash is the hash of the header's RLP; the header names the roots of two Merkle-Patricia tries, one over its
transactions, one over its receipts, each under its index. So whoever has a hash he trusts can be lied to about none of
these. Not covered, and so not proven here: who signed a transaction (`from`), and prices that a node computes from it.

A chain whose blocks hash otherwise says so in its facts (`unproven`): that is `Unproven`, a fact and no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from sha3 import keccak_256

from adapters.evm import rlp
from adapters.evm.facts import WITHDRAWALS, Facts
from adapters.evm.hexadecimal import data, quantity
from chainfolio.errors import BadAnswer, Contradicted
from transport.wire import typed

if TYPE_CHECKING:
    from adapters.evm.node import Withdrawal

HEADERS, TRANSACTIONS, RECEIPTS = "headers", "transactions", "receipts"
EMPTY = bytes.fromhex("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421")  # of a trie of nothing
Nibbles = tuple[int, ...]
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unproven:
    """What of a chain's blocks cannot be computed again, and why: known from its facts, so that it alarms nobody."""

    what: str
    reason: str


# --- the trie ---------------------------------------------------------------------------------------------------------


def list_root(values: Sequence[bytes]) -> bytes:
    """The root (32 bytes) of the trie that keeps each value under the RLP of its index."""
    pairs = sorted((_nibbles(rlp.encode(rlp.number(index))), value) for index, value in enumerate(values))
    return keccak(rlp.encode(_trie(pairs)))


def _nibbles(key: bytes) -> Nibbles:
    return tuple(half for byte in key for half in (byte >> 4, byte & 15))


def _trie(pairs: Sequence[tuple[Nibbles, bytes]]) -> Any:
    """The node over sorted (path, value) pairs whose paths differ: nothing, a leaf, an extension or a branch."""
    if not pairs:
        return b""
    first, last = pairs[0][0], pairs[-1][0]
    if len(pairs) == 1:
        return [_path(first, is_leaf=True), pairs[0][1]]
    shared = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    if shared:
        return [_path(first[:shared], is_leaf=False), _reference([(path[shared:], value) for path, value in pairs])]
    branch: list[Any] = [
        _reference([(path[1:], value) for path, value in pairs if path[:1] == (nibble,)]) for nibble in range(16)
    ]
    return [*branch, next((value for path, value in pairs if not path), b"")]


def _reference(pairs: Sequence[tuple[Nibbles, bytes]]) -> Any:
    """How a node names one below it: by its hash, or as it is where that is shorter."""
    node = _trie(pairs)
    written = rlp.encode(node)
    return node if len(written) < 32 else keccak(written)


def _path(nibbles: Nibbles, *, is_leaf: bool) -> bytes:
    odd = len(nibbles) % 2
    flagged = (2 * is_leaf + odd, *(() if odd else (0,)), *nibbles)
    return bytes(high << 4 | low for high, low in zip(flagged[::2], flagged[1::2], strict=True))


def keccak(content: bytes) -> bytes:
    """The hash of Ethereum."""
    digest: bytes = keccak_256(content).digest()
    return digest


# --- a block's parts as they are hashed ------------------------------------------------------------------------------


class _Fields:
    """The fields of one JSON object in the form in which they are hashed; BadAnswer names the one that is not there."""

    def __init__(self, source: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise BadAnswer(source, "an answer of the wrong shape: no object where a part of a block should be")
        self.source, self.given = source, given

    def text(self, name: str) -> str:
        value = self.given.get(name)
        if not isinstance(value, str):
            raise BadAnswer(self.source, f"a part of a block without `{name}`, which its hash covers")
        return value

    def content(self, name: str) -> bytes:
        return data(self.source, self.text(name))

    def number(self, name: str) -> bytes:
        return rlp.number(quantity(self.source, self.text(name)))

    def to(self) -> bytes:
        return b"" if self.given.get("to") is None else self.content("to")

    def parts(self, name: str) -> list[_Fields]:
        value = self.given.get(name)
        if not isinstance(value, list):
            raise BadAnswer(self.source, f"a part of a block without the list `{name}`, which its hash covers")
        return [_Fields(self.source, each) for each in value]

    def texts(self, name: str) -> list[bytes]:
        value = self.given.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadAnswer(self.source, f"a part of a block without the list `{name}`, which its hash covers")
        return [data(self.source, each) for each in value]

    def parity(self) -> bytes:
        return self.number("yParity" if isinstance(self.given.get("yParity"), str) else "v")


# Each fork of Ethereum put its fields behind the others: London, Shanghai, Cancun (three), Prague.
_ALWAYS: tuple[tuple[str, Callable[[_Fields, str], bytes]], ...] = (
    *((name, _Fields.content) for name in (
        "parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom",
    )),
    *((name, _Fields.number) for name in ("difficulty", "number", "gasLimit", "gasUsed", "timestamp")),
    ("extraData", _Fields.content),
)  # fmt: skip
_SEAL = (("mixHash", _Fields.content), ("nonce", _Fields.content))
_AURA_SEAL = (("step", lambda fields, name: rlp.number(int(fields.given[name]))), ("signature", _Fields.content))
_SINCE: tuple[tuple[str, Callable[[_Fields, str], bytes]], ...] = (
    ("baseFeePerGas", _Fields.number),
    ("withdrawalsRoot", _Fields.content),
    ("blobGasUsed", _Fields.number),
    ("excessBlobGas", _Fields.number),
    ("parentBeaconBlockRoot", _Fields.content),
    ("requestsHash", _Fields.content),
)


def header_hash(source: str, header: Json) -> bytes:
    """The hash (32 bytes) of a header as nodes give it, of any fork from Frontier to Prague, sealed
    by work, by stake or by the authorities of Gnosis' first years."""
    fields = _Fields(source, header)
    since = [(name, read) for name, read in _SINCE if header.get(name) is not None]
    is_aura = "mixHash" not in header and isinstance(header.get("step"), int) and header["step"] >= 0
    seal = _AURA_SEAL if is_aura else _SEAL
    return keccak(rlp.encode([read(fields, name) for name, read in (*_ALWAYS, *seal, *since)]))


def transaction(source: str, given: Any) -> bytes:
    """A transaction as it is hashed: legacy, or of type 1 (EIP-2930), 2 (1559), 3 (4844) or 4 (7702)."""
    fields = _Fields(source, given)
    kind = quantity(source, given.get("type") or "0x0", bits=8)
    common = [fields.number("gas"), fields.to(), fields.number("value"), fields.content("input")]
    if kind == 0:
        signed = [fields.number(name) for name in ("v", "r", "s")]
        return rlp.encode([fields.number("nonce"), fields.number("gasPrice"), *common, *signed])
    if kind > 4:
        raise BadAnswer(source, f"a transaction of type {kind}, which this chain does not have")
    prices = ["gasPrice"] if kind == 1 else ["maxPriorityFeePerGas", "maxFeePerGas"]
    body: list[Any] = [fields.number(name) for name in ("chainId", "nonce", *prices)] + common
    body.append([[each.content("address"), each.texts("storageKeys")] for each in fields.parts("accessList")])
    if kind == 3:
        body += [fields.number("maxFeePerBlobGas"), fields.texts("blobVersionedHashes")]
    if kind == 4:
        body.append([_authorization(each) for each in fields.parts("authorizationList")])
    return bytes([kind]) + rlp.encode([*body, fields.parity(), fields.number("r"), fields.number("s")])


def _authorization(fields: _Fields) -> list[bytes]:
    who = [fields.number("chainId"), fields.content("address"), fields.number("nonce")]
    return [*who, fields.parity(), fields.number("r"), fields.number("s")]


def receipt(source: str, given: Any) -> bytes:
    """A receipt as it is hashed: with the state's root before Byzantium, with a status since."""
    fields = _Fields(source, given)
    kind = quantity(source, given.get("type") or "0x0", bits=8)
    outcome = fields.number("status") if given.get("status") is not None else fields.content("root")
    logs = [[log.content("address"), log.texts("topics"), log.content("data")] for log in fields.parts("logs")]
    body = rlp.encode([outcome, fields.number("cumulativeGasUsed"), fields.content("logsBloom"), logs])
    return bytes([kind]) + body if kind else body


# --- what is held against a hash -------------------------------------------------------------------------------------


def unproven(facts: Facts, what: str) -> Unproven | None:
    """Whether a part of this chain's blocks can be computed again; where not, why."""
    if what not in facts.unproven:
        return None
    return Unproven(what, f"{what} of {facts.name} are hashed in a way of its own")


def check_header(facts: Facts, source: str, header: bytes) -> Unproven | None:
    """Raise Contradicted where a header (JSON) does not hash to the hash that it names."""
    if fact := unproven(facts, HEADERS):
        return fact
    given = typed(source, header, dict[str, Any])
    found, named = header_hash(source, given), _Fields(source, given).content("hash")
    if found != named:
        number = given.get("number")
        raise Contradicted(
            source, f"header {number}", "its fields", f"they hash to 0x{found.hex()}, it names 0x{named.hex()}"
        )
    return None


def check_count(facts: Facts, source: str, number: str, count: int, root: str) -> None:
    """Raise Contradicted where a header comes with transactions and has the root of none, or the other way round."""
    if not unproven(facts, TRANSACTIONS) and (count == 0) != (data(source, root) == EMPTY):
        raise Contradicted(source, f"header {number}", f"{count} transactions", f"it has the root {root}")


class Pays(Protocol):
    """A block as nodes give it, as far as validators are paid in it."""

    number: str
    withdrawals: list[Withdrawal] | None
    withdrawalsRoot: str


def check_withdrawals(facts: Facts, source: str, block: Pays, *, hashed: bool) -> None:
    """Raise Contradicted where the withdrawals of validators in a block are not those of its own root; without `hashed`
    only where there are none and should be some, or the other way round. A chain that pays none may keep something else
    there."""
    if WITHDRAWALS not in facts.pays or not block.withdrawalsRoot:
        return
    every, root = block.withdrawals or [], data(source, block.withdrawalsRoot)
    if hashed:
        is_right = list_root([_withdrawal(source, each) for each in every]) == root
    else:
        is_right = (not every) == (root == EMPTY)
    if not is_right:
        asked = f"withdrawals of block {block.number}"
        raise Contradicted(source, asked, f"{len(every)} withdrawals", f"it has the root {block.withdrawalsRoot}")


def _withdrawal(source: str, given: Withdrawal) -> bytes:
    index, validator, amount = (int(each, 16) for each in (given.index, given.validatorIndex, given.amount))
    return rlp.encode([rlp.number(index), rlp.number(validator), data(source, given.address), rlp.number(amount)])


def check_transactions(facts: Facts, source: str, block: bytes, root: str) -> Unproven | None:
    """Raise Contradicted where a block's bodies (JSON) are not those of its header's transactions root, or a
    transaction's hash, index or place is not its own."""
    if fact := unproven(facts, TRANSACTIONS):
        return fact
    given = typed(source, block, dict[str, Any])
    place = _Fields(source, given)
    bodies = [fields.given for fields in place.parts("transactions")]
    written = [transaction(source, body) for body in bodies]
    asked = f"transactions of block {place.text('number')}"
    if list_root(written) != data(source, root):
        raise Contradicted(source, asked, f"{len(bodies)} transactions", f"their root is not the header's {root}")
    for index, (body, form) in enumerate(zip(bodies, written, strict=True)):
        said = (_lower(body, "hash"), _lower(body, "blockHash"), _lower(body, "transactionIndex"))
        meant = ("0x" + keccak(form).hex(), _lower(given, "hash"), hex(index))
        if said != meant:
            raise Contradicted(source, asked, f"transaction {index} as {said}", f"it is {meant}")
    return None


def check_receipts(facts: Facts, source: str, receipts: bytes, block_hash: str, root: str) -> Unproven | None:
    """Raise Contradicted where receipts (JSON) are not those of a header's receipts root, or their logs, indices and
    gas not what follows from it."""
    if fact := unproven(facts, RECEIPTS):
        return fact
    given = typed(source, receipts, list[dict[str, Any]])
    asked = f"receipts of block {block_hash}"
    if list_root([receipt(source, each) for each in given]) != data(source, root):
        raise Contradicted(source, asked, f"{len(given)} receipts", f"their root is not the header's {root}")
    burnt, logs = 0, 0
    for index, each in enumerate(given):
        fields = _Fields(source, each)
        total = quantity(source, fields.text("cumulativeGasUsed"))
        told = (_lower(each, "blockHash"), _lower(each, "transactionIndex"), _lower(each, "gasUsed"))
        meant = (block_hash, hex(index), hex(total - burnt))
        if told != meant:
            raise Contradicted(source, asked, f"receipt {index} as {told}", f"it is {meant}")
        for log in each["logs"]:
            place = tuple(_lower(log, name) for name in ("blockHash", "transactionIndex", "transactionHash"))
            if (*place, _lower(log, "logIndex")) != (*told[:2], _lower(each, "transactionHash"), hex(logs)):
                raise Contradicted(source, asked, f"log {logs} at {place}", f"it lies in transaction {index}")
            logs += 1
        burnt = total
    return None


def _lower(given: Json, name: str) -> str | None:
    value = given.get(name)
    return value.lower() if isinstance(value, str) else None


def logs_of(source: str, receipts: bytes) -> bytes:
    """All logs of some receipts (JSON) as one `eth_getLogs` answer (JSON)."""
    given = typed(source, receipts, list[dict[str, msgspec.Raw]])
    none = msgspec.Raw(b"[]")
    parts = [bytes(each.get("logs", none)).strip()[1:-1].strip() for each in given]
    return b"[" + b",".join(part for part in parts if part) + b"]"
