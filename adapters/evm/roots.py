"""Recompute what a block's hash covers: the header, its transactions, its receipts and logs.

A block hash is the hash of the header's RLP; the header names the roots of two Merkle-Patricia tries, one over its
transactions, one over its receipts, each under its index. So with a trusted hash, none of these can be forged. Not
covered, and so not proven here: the sender of a transaction (`from`), and prices that a node computes from it.

A chain whose blocks hash differently says so in its facts (`unproven`); the checks then return `UnprovenPart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from sha3 import keccak_256

from chainfolio.adapters.evm import rlp
from chainfolio.adapters.evm.facts import WITHDRAWALS, Facts
from chainfolio.adapters.evm.forms import Address, Scalar
from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.errors import BadAnswer, Contradiction
from chainfolio.transport.wire import typed

HEADERS, TRANSACTIONS, RECEIPTS = "headers", "transactions", "receipts"
EMPTY_LIST_ROOT = bytes.fromhex(
    "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
)  # of a trie of nothing
Nibbles = tuple[int, ...]
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class UnprovenPart:
    """A part of a chain's blocks that cannot be recomputed, and why: a known fact, no failure."""

    part: str
    reason: str


# --- the trie ---------------------------------------------------------------------------------------------------------


def list_root(values: Sequence[bytes]) -> bytes:
    """Return the root (32 bytes) of the trie that stores each value under the RLP of its index."""
    pairs = sorted((_nibbles(rlp.encode(rlp.number(index))), value) for index, value in enumerate(values))
    return keccak(rlp.encode(_trie(pairs)))


def _nibbles(key: bytes) -> Nibbles:
    return tuple(nibble for byte in key for nibble in (byte >> 4, byte & 15))


def _trie(pairs: Sequence[tuple[Nibbles, bytes]]) -> rlp.Item:
    """Return the node over sorted (path, value) pairs with different paths; `b""` without pairs.

    The node is a leaf, extension or branch.
    """
    if not pairs:
        return b""
    first, last = pairs[0][0], pairs[-1][0]
    if len(pairs) == 1:
        return [_path(first, is_leaf=True), pairs[0][1]]
    shared = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    if shared:
        return [_path(first[:shared], is_leaf=False), _reference([(path[shared:], value) for path, value in pairs])]
    branch: list[rlp.Item] = [
        _reference([(path[1:], value) for path, value in pairs if path[:1] == (nibble,)]) for nibble in range(16)
    ]
    return [*branch, next((value for path, value in pairs if not path), b"")]


def _reference(pairs: Sequence[tuple[Nibbles, bytes]]) -> rlp.Item:
    """Return a node's reference in its parent: its hash, or the node itself if that is shorter."""
    node = _trie(pairs)
    encoded = rlp.encode(node)
    return node if len(encoded) < 32 else keccak(encoded)


def _path(nibbles: Nibbles, *, is_leaf: bool) -> bytes:
    odd = len(nibbles) % 2
    flagged = (2 * is_leaf + odd, *(() if odd else (0,)), *nibbles)
    return bytes(high << 4 | low for high, low in zip(flagged[::2], flagged[1::2], strict=True))


def keccak(content: bytes) -> bytes:
    """Return the Keccak-256 hash of Ethereum."""
    digest: bytes = keccak_256(content).digest()
    return digest


# --- hashed forms of a block's parts ----------------------------------------------------------------------------------


class _Fields:
    """The fields of one JSON object in their hashed form.

    Its methods raise BadAnswer if the field is missing or malformed.
    """

    def __init__(self, source: str, json: JsonObject) -> None:
        if not isinstance(json, Mapping):
            raise BadAnswer(source, "an answer of the wrong shape: no object where a part of a block should be")
        self.source, self.json = source, json

    def text(self, name: str) -> str:
        """Return a text field; raise BadAnswer if it is none."""
        value = self.json.get(name)
        if not isinstance(value, str):
            raise BadAnswer(self.source, f"a part of a block without `{name}`, which its hash covers")
        return value

    def content(self, name: str) -> bytes:
        return data(self.source, self.text(name))

    def number(self, name: str) -> bytes:
        return rlp.number(quantity(self.source, self.text(name)))

    def to(self) -> bytes:
        return b"" if self.json.get("to") is None else self.content("to")

    def parts(self, name: str) -> list[_Fields]:
        """Return a field that is a list of objects; raise BadAnswer if it is none."""
        value = self.json.get(name)
        if not isinstance(value, list):
            raise BadAnswer(self.source, f"a part of a block without the list `{name}`, which its hash covers")
        return [_Fields(self.source, item) for item in value]

    def texts(self, name: str) -> list[bytes]:
        """Return a field that is a list of hex data; raise BadAnswer if it is none."""
        value = self.json.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadAnswer(self.source, f"a part of a block without the list `{name}`, which its hash covers")
        return [data(self.source, item) for item in value]

    def parity(self) -> bytes:
        return self.number("yParity" if isinstance(self.json.get("yParity"), str) else "v")


# Each fork of Ethereum appended its fields: London, Shanghai, Cancun (three), Prague.
_BASE_FIELDS: tuple[tuple[str, Callable[[_Fields, str], bytes]], ...] = (
    *(
        (name, _Fields.content)
        for name in (
            "parentHash",
            "sha3Uncles",
            "miner",
            "stateRoot",
            "transactionsRoot",
            "receiptsRoot",
            "logsBloom",
        )
    ),
    *((name, _Fields.number) for name in ("difficulty", "number", "gasLimit", "gasUsed", "timestamp")),
    ("extraData", _Fields.content),
)
_SEAL_FIELDS = (("mixHash", _Fields.content), ("nonce", _Fields.content))
_AURA_SEAL_FIELDS = (("step", lambda fields, name: rlp.number(int(fields.json[name]))), ("signature", _Fields.content))
_FORK_FIELDS: tuple[tuple[str, Callable[[_Fields, str], bytes]], ...] = (
    ("baseFeePerGas", _Fields.number),
    ("withdrawalsRoot", _Fields.content),
    ("blobGasUsed", _Fields.number),
    ("excessBlobGas", _Fields.number),
    ("parentBeaconBlockRoot", _Fields.content),
    ("requestsHash", _Fields.content),
)


def header_hash(source: str, header: JsonObject) -> bytes:
    """Return the hash (32 bytes) of a header; errors as of `header_rlp`."""
    return keccak(header_rlp(source, header))


def header_rlp(source: str, header: JsonObject) -> bytes:
    """Return a header of any fork from Frontier to Prague in RLP, whose hash is that of the block.

    It may be sealed by work, by stake or by the authorities of Gnosis' first years.

    Raises:
        BadAnswer: A field is missing or malformed.
    """
    fields = _Fields(source, header)
    optional_fields = [(name, read) for name, read in _FORK_FIELDS if header.get(name) is not None]
    is_aura = "mixHash" not in header and isinstance(header.get("step"), int) and header["step"] >= 0
    seal = _AURA_SEAL_FIELDS if is_aura else _SEAL_FIELDS
    return rlp.encode([read(fields, name) for name, read in (*_BASE_FIELDS, *seal, *optional_fields)])


def transaction(source: str, json: JsonObject) -> bytes:
    """Return a transaction as it is hashed: legacy, or of type 1, 2, 3 or 4 (EIP-2930, 1559, 4844, 7702).

    Raises:
        BadAnswer: A field is missing or malformed, or the type is unknown.
    """
    fields = _Fields(source, json)
    tx_type = quantity(source, json.get("type") or "0x0", bits=8)
    common = [fields.number("gas"), fields.to(), fields.number("value"), fields.content("input")]
    if tx_type == 0:
        signed = [fields.number(name) for name in ("v", "r", "s")]
        return rlp.encode([fields.number("nonce"), fields.number("gasPrice"), *common, *signed])
    if tx_type > 4:
        raise BadAnswer(source, f"a transaction of type {tx_type}, which this chain does not have")
    prices = ["gasPrice"] if tx_type == 1 else ["maxPriorityFeePerGas", "maxFeePerGas"]
    body: list[object] = [*(fields.number(name) for name in ("chainId", "nonce", *prices)), *common]
    body.append([[entry.content("address"), entry.texts("storageKeys")] for entry in fields.parts("accessList")])
    if tx_type == 3:
        body += [fields.number("maxFeePerBlobGas"), fields.texts("blobVersionedHashes")]
    if tx_type == 4:
        body.append([_authorization(entry) for entry in fields.parts("authorizationList")])
    return bytes([tx_type]) + rlp.encode([*body, fields.parity(), fields.number("r"), fields.number("s")])


def _authorization(fields: _Fields) -> list[bytes]:
    authority = [fields.number("chainId"), fields.content("address"), fields.number("nonce")]
    return [*authority, fields.parity(), fields.number("r"), fields.number("s")]


def receipt(source: str, json: JsonObject) -> bytes:
    """Return a receipt as it is hashed: with a state root before Byzantium, with a status since.

    Raises:
        BadAnswer: A field is missing or malformed.
    """
    fields = _Fields(source, json)
    tx_type = quantity(source, json.get("type") or "0x0", bits=8)
    outcome = fields.number("status") if json.get("status") is not None else fields.content("root")
    logs = [[log.content("address"), log.texts("topics"), log.content("data")] for log in fields.parts("logs")]
    body = rlp.encode([outcome, fields.number("cumulativeGasUsed"), fields.content("logsBloom"), logs])
    return bytes([tx_type]) + body if tx_type else body


# --- checks against a hash -------------------------------------------------------------------------------------------


def unproven(facts: Facts, part: str) -> UnprovenPart | None:
    """Return why a part of this chain's blocks cannot be recomputed; None if it can."""
    if part not in facts.unproven:
        return None
    return UnprovenPart(part, f"{part} of {facts.name} are hashed in a way of its own")


def check_header(facts: Facts, source: str, header: bytes) -> UnprovenPart | None:
    """Check that a header (JSON) hashes to the hash that it names.

    Returns:
        None if it was checked; the reason if this chain's headers cannot be checked.

    Raises:
        Contradiction: It does not.
    """
    if fact := unproven(facts, HEADERS):
        return fact
    fields = typed(source, header, JsonObject)
    computed, claimed = header_hash(source, fields), _Fields(source, fields).content("hash")
    if computed != claimed:
        number = fields.get("number")
        raise Contradiction(
            source, f"header {number}", "its fields", f"they hash to 0x{computed.hex()}, it names 0x{claimed.hex()}"
        )
    return None


def check_count(facts: Facts, source: str, number: str, count: int, root: str) -> None:
    """Check that a header without transactions has the root of an empty list, and one with some does not.

    Raises:
        Contradiction: It is not so.
    """
    if not unproven(facts, TRANSACTIONS) and (count == 0) != (data(source, root) == EMPTY_LIST_ROOT):
        raise Contradiction(source, f"header {number}", f"{count} transactions", f"it has the root {root}")


class Withdrawal(msgspec.Struct, gc=False):
    """A withdrawal of a validator; `amount` is in gwei."""

    address: Address
    amount: Scalar
    index: Scalar = "0x0"
    validatorIndex: Scalar = "0x0"


class BlockWithdrawals(Protocol):
    """A block as nodes give it, as far as validators are paid in it."""

    number: str
    withdrawals: list[Withdrawal] | None
    withdrawalsRoot: str


def check_withdrawals(facts: Facts, source: str, block: BlockWithdrawals, *, hashed: bool) -> None:
    """Check that the withdrawals of validators in a block match its withdrawals root.

    Without `hashed`, check only that a block without withdrawals has the root of an empty list, and one with some does
    not. A chain that pays no withdrawals may store something else in that field.

    Raises:
        Contradiction: They do not match.
    """
    if WITHDRAWALS not in facts.pays or not block.withdrawalsRoot:
        return
    withdrawals, root = block.withdrawals or [], data(source, block.withdrawalsRoot)
    if hashed:
        is_right = list_root([_withdrawal(source, withdrawal) for withdrawal in withdrawals]) == root
    else:
        is_right = (not withdrawals) == (root == EMPTY_LIST_ROOT)
    if not is_right:
        question = f"withdrawals of block {block.number}"
        raise Contradiction(
            source, question, f"{len(withdrawals)} withdrawals", f"it has the root {block.withdrawalsRoot}"
        )


def _withdrawal(source: str, withdrawal: Withdrawal) -> bytes:
    index, validator, amount = (
        int(text, 16) for text in (withdrawal.index, withdrawal.validatorIndex, withdrawal.amount)
    )
    return rlp.encode([rlp.number(index), rlp.number(validator), data(source, withdrawal.address), rlp.number(amount)])


def check_transactions(facts: Facts, source: str, block: bytes, root: str) -> UnprovenPart | None:
    """Check that a block's bodies (JSON) have its transactions root, and consistent hashes and positions.

    Returns:
        None if they were checked; the reason if this chain's transactions cannot be checked.

    Raises:
        Contradiction: They do not.
    """
    if fact := unproven(facts, TRANSACTIONS):
        return fact
    block_json = typed(source, block, JsonObject)
    block_fields = _Fields(source, block_json)
    bodies = [fields.json for fields in block_fields.parts("transactions")]
    encoded = [transaction(source, body) for body in bodies]
    question = f"transactions of block {block_fields.text('number')}"
    if list_root(encoded) != data(source, root):
        raise Contradiction(source, question, f"{len(bodies)} transactions", f"their root is not the header's {root}")
    for index, (body, encoding) in enumerate(zip(bodies, encoded, strict=True)):
        claimed = (_lower(body, "hash"), _lower(body, "blockHash"), _lower(body, "transactionIndex"))
        expected = ("0x" + keccak(encoding).hex(), _lower(block_json, "hash"), hex(index))
        if claimed != expected:
            raise Contradiction(source, question, f"transaction {index} as {claimed}", f"it is {expected}")
    return None


def check_receipts(facts: Facts, source: str, receipts: bytes, block_hash: str, root: str) -> UnprovenPart | None:
    """Check that receipts (JSON) have a header's receipts root, and consistent logs, positions and gas.

    Returns:
        None if they were checked; the reason if this chain's receipts cannot be checked.

    Raises:
        Contradiction: They do not.
    """
    if fact := unproven(facts, RECEIPTS):
        return fact
    receipt_list = typed(source, receipts, list[JsonObject])
    question = f"receipts of block {block_hash}"
    if list_root([receipt(source, receipt_json) for receipt_json in receipt_list]) != data(source, root):
        raise Contradiction(source, question, f"{len(receipt_list)} receipts", f"their root is not the header's {root}")
    gas_before, log_count = 0, 0
    for index, receipt_json in enumerate(receipt_list):
        fields = _Fields(source, receipt_json)
        total = quantity(source, fields.text("cumulativeGasUsed"))
        claimed = tuple(_lower(receipt_json, name) for name in ("blockHash", "transactionIndex", "gasUsed"))
        tx_hash = _lower(receipt_json, "transactionHash")
        expected = (block_hash, hex(index), hex(total - gas_before))
        if claimed != expected:
            raise Contradiction(source, question, f"receipt {index} as {claimed}", f"it is {expected}")
        for log in receipt_json["logs"]:
            log_position = tuple(_lower(log, name) for name in ("blockHash", "transactionIndex", "transactionHash"))
            if (*log_position, _lower(log, "logIndex")) != (*claimed[:2], tx_hash, hex(log_count)):
                raise Contradiction(
                    source, question, f"log {log_count} at {log_position}", f"it lies in transaction {index}"
                )
            log_count += 1
        gas_before = total
    return None


def _lower(json: JsonObject, name: str) -> str | None:
    value = json.get(name)
    return value.lower() if isinstance(value, str) else None


def logs_of(source: str, receipts: bytes) -> bytes:
    """Return the logs of some receipts (JSON) as one `eth_getLogs` answer (JSON)."""
    receipt_list = typed(source, receipts, list[dict[str, msgspec.Raw]])
    none = msgspec.Raw(b"[]")
    parts = [bytes(item.get("logs", none)).strip()[1:-1].strip() for item in receipt_list]
    return b"[" + b",".join(part for part in parts if part) + b"]"
