"""Transactions as clients sign them, and blocks as witnesses seal them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eth_keys.datatypes import PrivateKey

from chainfolio.localchain.tron.codec import TYPE_URL, BadMessage, decode, encode
from chainfolio.localchain.tron.forms import sha256, tron

VERSION = 31
WITNESSES = tuple(PrivateKey(bytes([number + 1]) * 32) for number in range(3))


class TransactionRejected(Exception):
    """A transaction that the node does not take, with java-tron's code and words."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class Transaction:
    """A signed transaction, read."""

    txid: str
    raw: bytes
    signatures: tuple[str, ...]
    content: Mapping[str, Any]  # the JSON of `raw`, addresses in hex
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)  # what its sender wrote that Tron has no name for
    ended: Mapping[str, Any] = field(default_factory=dict)  # and how it ended, as its sender says

    @property
    def kind(self) -> str:
        """Name of its contract type."""
        return str(self.content["contract"][0]["type"])

    @property
    def value(self) -> dict[str, Any]:
        """Parameter of its contract."""
        parameter: dict[str, Any] = self.content["contract"][0]["parameter"]["value"]
        return parameter

    @property
    def owner(self) -> str:
        """Sender in hex; empty if there is none."""
        return str(self.value.get("owner_address", ""))

    @property
    def serialized(self) -> bytes:
        """Serialized form with signatures."""
        return encode("Transaction", {"raw_data": self.raw.hex(), "signature": self.signatures, **self.unknown_fields})

    def ends(self, result: str) -> dict[str, Any]:
        """Return its result, signatures and unknown fields, as JSON of a block."""
        return {
            "ret": [{**self.ended, "contractRet": result}],
            "signature": list(self.signatures),
            **self.unknown_fields,
        }

    def leaf(self, result: str) -> bytes:
        """Return the serialized form with its result, which a block hashes."""
        return encode("Transaction", {"raw_data": self.raw.hex(), **self.ends(result)})


@dataclass(frozen=True)
class Block:
    """A block and what its transactions did."""

    height: int
    id: str
    header: Mapping[str, Any]  # the header's content, as JSON
    signature: str
    transactions: tuple[Transaction, ...] = ()
    results: tuple[str, ...] = ()
    infos: tuple[Mapping[str, Any], ...] = ()

    @property
    def time_ms(self) -> int:
        """Time in milliseconds."""
        return int(self.header["timestamp"])


def read_transaction(signed: Mapping[str, Any], visible: bool = False) -> Transaction:
    """Return a transaction from a client's JSON; TransactionRejected if it is malformed."""
    try:
        if "raw_data_hex" in signed:
            raw = bytes.fromhex(signed["raw_data_hex"])
        else:
            raw = encode("raw", signed["raw_data"], visible)
        content = decode("raw", raw)
        if len(content["contract"]) != 1:
            raise BadMessage("a transaction has one contract")
        unknown_fields = {name: values for name, values in signed.items() if name.isdigit()}
        ended = dict((signed.get("ret") or [{}])[0])  # of several results, nodes keep as many as there are contracts
    except (KeyError, TypeError, ValueError) as error:
        raise TransactionRejected("OTHER_ERROR", f"Error: {error}") from error
    return Transaction(sha256(raw).hex(), raw, tuple(signed.get("signature") or ()), content, unknown_fields, ended)


def genesis_transfer(address: str, sun: int) -> Transaction:
    """Return the transfer of the first block to an account; it has no signature and no sender."""
    value = {"owner_address": b"0x000000000000000000000".hex(), "to_address": address, "amount": sun}
    contract = {"type": "TransferContract", "parameter": {"value": value, "type_url": f"{TYPE_URL}TransferContract"}}
    raw = encode("raw", {"contract": [contract]})
    return Transaction(sha256(raw).hex(), raw, (), decode("raw", raw))


def seal(
    height: int,
    parent: str,
    time_ms: int,
    transactions: Sequence[Transaction],
    results: tuple[str, ...],
    infos: tuple[Mapping[str, Any], ...],
) -> Block:
    """Return a block with its id and the signature of its witness."""
    key = WITNESSES[height % len(WITNESSES)]
    leaves = [sha256(each.leaf(result)) for each, result in zip(transactions, results, strict=True)]
    header = {
        "number": height,
        "txTrieRoot": _root(leaves).hex(),
        "witness_address": tron(key.public_key.to_address()),
        "parentHash": parent,
        "version": VERSION,
        "timestamp": time_ms,
    }
    if not height:
        del header["number"], header["version"]
    name = sha256(encode("Header", header))
    return Block(
        height, f"{height:016x}{name.hex()[16:]}", header, _witnessed(key, name), tuple(transactions), results, infos
    )


@lru_cache(10_000)
def _witnessed(key: PrivateKey, name: bytes) -> str:
    """Return the signature of a witness; cached, because signing takes long."""
    return key.sign_msg_hash(name).to_bytes().hex()


def _root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of java-tron's tree, in which a node without a neighbour moves up unchanged."""
    if not leaves:
        return bytes(32)
    while len(leaves) > 1:
        pairs = [leaves[at : at + 2] for at in range(0, len(leaves), 2)]
        leaves = [sha256(b"".join(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return leaves[0]
