"""Responses of java-tron's HTTP API about blocks and transactions."""

from collections.abc import Callable, Mapping
from typing import Any

from chainfolio.localchain.tron.blocks import Block, Transaction
from chainfolio.localchain.tron.codec import decode
from chainfolio.localchain.tron.forms import base58check, tron
from chainfolio.localchain.tron.views import Json, View

FACTOR = 100  # blocks that one request may ask for


def block_json(view: View, block: Block) -> Json:
    """Return a block with its transactions as JSON."""
    header = {**block.header, "witness_address": view.spelled(block.header["witness_address"])}
    document: Json = {
        "blockID": block.id,
        "block_header": {"raw_data": header, "witness_signature": block.signature},
    }
    if block.transactions:
        pairs = zip(block.transactions, block.results, strict=True)
        document["transactions"] = [transaction_json(view, each, result) for each, result in pairs]
    return document


def transaction_json(view: View, transaction: Transaction, result: str) -> Json:
    """Return a transaction of a block as JSON."""
    return {
        **transaction.ends(result),
        "txID": transaction.txid,
        "raw_data": decode("raw", transaction.raw, view.visible),
        "raw_data_hex": transaction.raw.hex(),
    }


def info_json(view: View, info: Mapping[str, Any]) -> Json:
    """Return the record of a transaction, with addresses as the request wants them."""
    if not view.visible:
        return dict(info)
    document = dict(info)
    if "contract_address" in document:
        document["contract_address"] = base58check(document["contract_address"])
    if "log" in document:
        document["log"] = [{**log, "address": base58check(tron(log["address"]))} for log in document["log"]]
    if "internal_transactions" in document:
        ends = ("caller_address", "transferTo_address")
        document["internal_transactions"] = [
            {**each, **{end: base58check(each[end]) for end in ends}} for each in document["internal_transactions"]
        ]
    return document


def _block_at(view: View, height: int) -> Json:
    return block_json(view, view.node.blocks[height]) if 0 <= height <= view.height else {}


def _by_num(view: View, body: Json) -> Json:
    return _block_at(view, int(body.get("num", 0)))


def _by_id(view: View, body: Json) -> Json:
    block = next((b for b in view.node.blocks[: view.height + 1] if b.id == body.get("value")), None)
    return block_json(view, block) if block else {}


def _block(view: View, body: Json) -> Json:
    key = str(body.get("id_or_num", view.height))
    block = _block_at(view, int(key)) if key.isdigit() and len(key) < 64 else _by_id(view, {"value": key})
    return block if body.get("detail") else {k: v for k, v in block.items() if k != "transactions"}


def _range(view: View, first: int, end: int) -> Json:
    if not 0 <= first < end or end - first > FACTOR:
        return {}
    blocks = [_block_at(view, height) for height in range(first, min(end, view.height + 1))]
    return {"block": blocks} if blocks else {}


def _transaction(view: View, body: Json) -> Json:
    location = view.locate(body)
    return (
        transaction_json(view, location[0].transactions[location[1]], location[0].results[location[1]])
        if location
        else {}
    )


def _info(view: View, body: Json) -> Json:
    location = view.locate(body)
    return info_json(view, location[0].infos[location[1]]) if location else {}


def _infos(view: View, body: Json) -> list[Json]:
    height = int(body.get("num", 0))
    infos = view.node.blocks[height].infos if 0 <= height <= view.height else ()
    return [info_json(view, info) for info in infos]


def _count(view: View, body: Json) -> Json:
    height = int(body.get("num", 0))
    return {"count": len(view.node.blocks[height].transactions) if 0 <= height <= view.height else -1}


BLOCK_READS: dict[str, Callable[[View, Json], Any]] = {
    "getnowblock": lambda view, body: _block_at(view, view.height),
    "getblock": _block,
    "getblockbynum": _by_num,
    "getblockbyid": _by_id,
    "getblockbylimitnext": lambda v, body: _range(v, int(body.get("startNum", 0)), int(body.get("endNum", 0))),
    "getblockbylatestnum": lambda v, body: _range(v, max(0, v.height + 1 - int(body.get("num", 1))), v.height + 1),
    "gettransactionbyid": _transaction,
    "gettransactioninfobyid": _info,
    "gettransactioninfobyblocknum": _infos,
    "gettransactioncountbyblocknum": _count,
}
