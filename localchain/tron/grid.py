"""TronGrid's `/v1`: accounts with their histories, page by page."""

import base64
from collections.abc import Iterator
from typing import Any

from chainfolio.localchain.tron.account_answers import account_json
from chainfolio.localchain.tron.answers import asset_json
from chainfolio.localchain.tron.block_answers import transaction_json
from chainfolio.localchain.tron.blocks import Block
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.forms import base58check, inner, tron
from chainfolio.localchain.tron.views import View

Json = dict[str, Any]
MOST = 200
TRANSFER = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


def grid(node: Chain, path: str, query: Json) -> tuple[int, Any]:
    """Return the HTTP status and the response to a request for a path under /v1."""
    parts = path.split("/")
    try:
        if parts[0] == "assets" and len(parts) == 2:
            exists = parts[1] in node.state.assets
            return 200, _page(node, [_asset(node, parts[1])] if exists else [], {})
        if parts[0] == "accounts" and len(parts) > 1:
            address = inner(parts[1], parts[1].startswith("T"))
            return 200, _account(node, address, "/".join(parts[2:]), query)
    except (KeyError, ValueError) as error:
        return 400, {"success": False, "error": str(error), "statusCode": 400}
    return 404, {"success": False, "error": "not found", "statusCode": 404}


def _asset(node: Chain, number: str) -> Json:
    return asset_json(View(node, node.head.height, visible=True), number)


def _account(node: Chain, address: str, resource: str, query: Json) -> Json:
    """Return a page of one account, or of one of its histories; KeyError for another path."""
    view = View(node, node.solid if query.get("only_confirmed") == "true" else node.head.height)
    if not resource:
        account = view.state.accounts.get(address)
        return _page(node, [account_json(view, account)] if account else [], {})
    histories = {"transactions": _transactions, "transactions/trc20": _tokens}
    items = [each for block in _blocks(view, query) for each in histories[resource](view, block, address, query)]
    return _page(node, items, query)


def _blocks(view: View, query: Json) -> list[Block]:
    first_ms = int(query.get("min_timestamp") or query.get("min_block_timestamp") or 0)
    last_ms = int(query.get("max_timestamp") or query.get("max_block_timestamp") or 1 << 62)
    blocks = [each for each in view.node.blocks[: view.height + 1] if first_ms <= each.time_ms <= last_ms]
    return blocks if str(query.get("order_by", "")).endswith("asc") else blocks[::-1]


def _page(node: Chain, items: list[Json], query: Json) -> Json:
    """Return a page of a list, with the fingerprint of the next one unless it is the last."""
    limit = min(MOST, int(query.get("limit") or 20))
    start = int(base64.b64decode(query["fingerprint"])) if query.get("fingerprint") else 0
    page = items[start : start + limit]
    meta: Json = {"at": node.head.time_ms, "page_size": len(page)}
    if start + limit < len(items):
        meta["fingerprint"] = base64.b64encode(str(start + limit).encode()).decode()
    return {"data": page, "success": True, "meta": meta}


def _transactions(view: View, block: Block, address: str, query: Json) -> Iterator[Json]:
    """Yield the transactions of a block that an account signed, or that name it.

    Calls of tokens that it only receives are left out.
    """
    # The first block has no records.
    for transaction, result, info in zip(block.transactions, block.results, block.infos, strict=False):
        ends = {value for name, value in transaction.value.items() if name.endswith("address")}
        if address in ends:
            receipt = info["receipt"]
            document = transaction_json(view, transaction, result)
            document["ret"] = [{"contractRet": result, "fee": info.get("fee", 0)}]
            yield {
                **document,
                "blockNumber": block.height,
                "block_timestamp": block.time_ms,
                "net_usage": receipt.get("net_usage", 0),
                "net_fee": receipt.get("net_fee", 0),
                "energy_usage": receipt.get("energy_usage", 0),
                "energy_fee": receipt.get("energy_fee", 0),
                "energy_usage_total": receipt.get("energy_usage_total", 0),
                "internal_transactions": info.get("internal_transactions", []),
            }


def _tokens(view: View, block: Block, address: str, query: Json) -> Iterator[Json]:
    """Yield the transfers of TRC-20 tokens in a block from or to an account."""
    for info in block.infos:
        for log in info.get("log", ()):
            topics = log.get("topics", [])
            if len(topics) != 3 or topics[0] != TRANSFER:
                continue
            source, to, token = tron(topics[1][24:]), tron(topics[2][24:]), tron(log["address"])
            if address in (source, to) and query.get("contract_address", base58check(token)) == base58check(token):
                yield {
                    "transaction_id": info["id"],
                    "block_timestamp": block.time_ms,
                    "from": base58check(source),
                    "to": base58check(to),
                    "type": "Transfer",
                    "value": str(int(log.get("data") or "0", 16)),
                    "token_info": {"address": base58check(token)},
                }
