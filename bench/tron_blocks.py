"""Generate random Tron blocks with valid hashes, ids and signatures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from chainfolio.localchain.tron.block_answers import block_json, info_json
from chainfolio.localchain.tron.blocks import Transaction, seal
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.codec import TYPE_URL, decode, encode
from chainfolio.localchain.tron.forms import sha256
from chainfolio.localchain.tron.views import View

# The curve's order, and the x of its generator: a signature whose secret number is one takes no point of the curve.
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
FIRST = 0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798
KEYS = (1, 2, 3)
OWNERS = (  # addresses of those keys
    "417e5f4552091a69125d5dfcb7b8c2659029395bdf",
    "412b5ad5c4795c026514f8317c7a215e218dccd6cf",
    "416813eb9362372eef6200f3b1dbc3f819671cba69",
)
TRANSFER = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
START_MS, SLOT_MS = 1_700_000_000_000, 3_000
# Approximate percentages of the kinds of transactions on the main chain.
KINDS = {
    "TriggerSmartContract": 55,
    "TransferContract": 30,
    "TransferAssetContract": 5,
    "DelegateResourceContract": 5,
    "UnDelegateResourceContract": 4,
    "VoteWitnessContract": 1,
}


def token(number: int) -> str:
    """Return the contract of a token, in hex."""
    return f"41{0x5000000000000000000000000000 + number:040x}"


def generated(count: int, transactions: int, tokens: int, wallet: str, seed: int = 7) -> Iterator[tuple[bytes, bytes]]:
    """Yield blocks from 1 on: responses of `getblockbynum` and `gettransactioninfobyblocknum`.

    One transaction of each block sends something to `wallet`, an address in hex.
    """
    chance, view, parent = random.Random(seed), View(Chain(), 0), "00" * 32
    for height in range(1, count + 1):
        time_ms = START_MS + SLOT_MS * height
        block_transactions = [_transaction(chance, tokens, wallet, height, number) for number in range(transactions)]
        infos = tuple(
            {**_info(chance, each), "blockNumber": height, "blockTimeStamp": time_ms} for each in block_transactions
        )
        block = seal(height, parent, time_ms, block_transactions, ("SUCCESS",) * transactions, infos)
        parent = block.id
        yield (
            msgspec.json.encode(block_json(view, block)),
            msgspec.json.encode([info_json(view, each) for each in infos]),
        )


def _transaction(chance: random.Random, tokens: int, wallet: str, height: int, number: int) -> Transaction:
    kind = "TriggerSmartContract" if number == 0 else chance.choices(list(KINDS), list(KINDS.values()))[0]
    signs = chance.randrange(len(KEYS))
    to = wallet if number == 0 else f"41{chance.getrandbits(160):040x}"
    value = {"owner_address": OWNERS[signs], **_value(chance, kind, to, tokens, height + number)}
    raw = encode(
        "raw",
        {
            "ref_block_bytes": f"{height - 1 & 0xFFFF:04x}",
            "ref_block_hash": f"{chance.getrandbits(64):016x}",
            "expiration": START_MS + SLOT_MS * (height + 20),
            "timestamp": START_MS + SLOT_MS * height + number,
            "contract": [{"type": kind, "parameter": {"value": value, "type_url": TYPE_URL + kind}}],
            **({"fee_limit": 10**9} if kind == "TriggerSmartContract" else {}),
        },
    )
    name = sha256(raw)
    return Transaction(name.hex(), raw, (signature(name, KEYS[signs]),), decode("raw", raw))


def _value(chance: random.Random, kind: str, to: str, tokens: int, number: int) -> dict[str, Any]:
    amount = chance.randrange(1_000_000, 10**10)
    if kind == "TriggerSmartContract":
        return {"contract_address": token(number % tokens), "data": f"a9059cbb{to[2:]:0>64}{amount:064x}"}
    if kind == "VoteWitnessContract":
        return {"votes": [{"vote_address": to, "vote_count": amount}]}
    if kind.endswith("DelegateResourceContract"):
        return {"receiver_address": to, "balance": amount, "resource": "ENERGY"}
    asset = {"asset_name": b"1002000".hex()} if kind == "TransferAssetContract" else {}
    return {"to_address": to, "amount": amount, **asset}


def _info(chance: random.Random, transaction: Transaction) -> dict[str, Any]:
    """Return the record of a transaction; token transfers pay for energy and have an event."""
    size, value = len(transaction.raw) + 134, transaction.value
    if transaction.kind != "TriggerSmartContract":
        return {"id": transaction.txid, "contractResult": [""], "receipt": {"net_usage": size}}
    energy = chance.randrange(13_000, 65_000)
    fee = {"energy_fee": energy * 100, "net_fee": size * 1_000}
    data = value["data"]
    log = {
        "address": value["contract_address"][2:],
        "data": data[72:],
        "topics": [TRANSFER, f"{value['owner_address'][2:]:0>64}", data[8:72]],
    }
    return {
        "id": transaction.txid,
        "fee": sum(fee.values()),
        "contractResult": [f"{1:064x}"],
        "contract_address": value["contract_address"],
        "log": [log],
        "receipt": {**fee, "energy_usage_total": energy, "result": "SUCCESS"},
    }


def signature(name: bytes, key: int) -> str:
    """Return a signature from which the key's owner is recovered."""
    s = (int.from_bytes(name, "big") + FIRST * key) % ORDER
    low = min(s, ORDER - s)
    return f"{FIRST:064x}{low:064x}{low != s:02x}"
