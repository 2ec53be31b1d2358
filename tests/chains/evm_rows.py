"""One block's JSON as rows, in the plainest way: what the adapter's columns are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chainfolio.localchain.evm import ZERO, topic

Row = dict[str, Any]
TRANSFER = topic("Transfer(address,address,uint256)")
SINGLE = topic("TransferSingle(address,address,address,uint256,uint256)")
BATCH = topic("TransferBatch(address,address,address,uint256[],uint256[])")
DEPOSIT = topic("Deposit(address,uint256)")
WITHDRAWAL = topic("Withdrawal(address,uint256)")
APPROVAL = topic("Approval(address,address,uint256)")
FOR_ALL = topic("ApprovalForAll(address,address,bool)")
WATCHED = (TRANSFER, SINGLE, BATCH, DEPOSIT, WITHDRAWAL, APPROVAL, FOR_ALL)


def rows_of_block(block_columns: Row, block: Row, receipts: Sequence[Row], wrapped: str) -> dict[str, list[Row]]:
    """The rows of every table, from a block with its transactions and their receipts."""
    rows: dict[str, list[Row]] = {"blocks": [block_row(block_columns, block)], "transactions": []}
    rows |= {"transfers": [], "approvals": [], "logs": []}
    for index, (transaction, receipt) in enumerate(zip(block["transactions"], receipts, strict=True)):
        at = block_columns | {"tx_index": index}
        rows["transactions"].append(transaction_row(at, transaction, receipt))
        rows["transfers"] += native_rows(at, transaction, receipt)
        for log in receipt["logs"]:
            if log["topics"] and log["topics"][0] in WATCHED:
                here = at | {"log_index": int(log["logIndex"], 16), "tx_hash": log["transactionHash"]}
                decoded = [*transfer_rows(here, log, wrapped)]
                rows["transfers"] += decoded
                approved = [*approval_rows(here, log)]
                rows["approvals"] += approved
                if not decoded and not approved:
                    rows["logs"].append(log_row(here, log))
    return rows


def raw(number: str | int) -> bytes:
    """A number as tables keep it."""
    return (int(number, 16) if isinstance(number, str) else number).to_bytes(32, "big")


def block_row(block_columns: Row, block: Row) -> Row:
    """A row of `blocks`."""
    return block_columns | {
        "hash": block["hash"],
        "parent": block["parentHash"],
        "miner": block["miner"],
        "gas_used": int(block["gasUsed"], 16),
        "gas_limit": int(block["gasLimit"], 16),
        "base_fee": raw(block["baseFeePerGas"]),
        "tx_count": len(block["transactions"]),
    }


def transaction_row(at: Row, transaction: Row, receipt: Row) -> Row:
    """A row of `transactions`."""
    gas_used, price = int(receipt["gasUsed"], 16), int(receipt["effectiveGasPrice"], 16)
    return at | {
        "hash": transaction["hash"],
        "sender": transaction["from"],
        "recipient": transaction["to"],
        "created": receipt["contractAddress"] if transaction["to"] is None else None,
        "raw": raw(transaction["value"]),
        "nonce": int(transaction["nonce"], 16),
        "type": int(transaction["type"], 16),
        "status": int(receipt["status"], 16),
        "gas_used": gas_used,
        "gas_price": raw(price),
        "fee": raw(gas_used * price),
        "input": bytes.fromhex(transaction["input"][2:]),
    }


def native_rows(at: Row, transaction: Row, receipt: Row) -> Iterator[Row]:
    """The native coins that one transaction moved."""
    if int(transaction["value"], 16) and receipt["status"] == "0x1":
        parties = {"sender": transaction["from"], "recipient": transaction["to"] or receipt["contractAddress"]}
        here = at | {"log_index": -1, "tx_hash": transaction["hash"]}
        yield transfer(here, "native", None, raw(transaction["value"]), **parties)


def transfer(here: Row, standard: str, token: str | None, amount: bytes, **columns: Any) -> Row:
    """A row of `transfers`."""
    usual = {"item": 0, "operator": None, "token_id": None, "layout": None}
    return here | usual | {"standard": standard, "token": token, "raw": amount} | columns


def transfer_rows(here: Row, log: Row, wrapped: str) -> Iterator[Row]:
    """The movements that one log tells of."""
    topics, data, token = log["topics"], log["data"][2:], log["address"]
    data_words = [data[start : start + 64] for start in range(0, len(data), 64)]
    parties = [address(each) for each in topics[1:]]
    if topics[0] == TRANSFER and len(topics) == 3:
        yield transfer(here, "erc20", token, raw(data_words[0]), sender=parties[0], recipient=parties[1])
    elif topics[0] == TRANSFER:
        parties_of_token = {"sender": parties[0], "recipient": parties[1], "token_id": raw(topics[3])}
        yield transfer(here, "erc721", token, raw(1), **parties_of_token)
    elif topics[0] in (SINGLE, BATCH):
        parties_of_token = dict(zip(("operator", "sender", "recipient"), parties, strict=True))
        batch = topics[0] == BATCH
        count = int(data_words[2], 16) if batch else 1
        for item in range(count):
            identity, amount = (data_words[3 + item], data_words[4 + count + item]) if batch else data_words
            token_columns = parties_of_token | {
                "item": item,
                "token_id": raw(identity),
                "layout": "batch" if batch else None,
            }
            yield transfer(here, "erc1155", token, raw(amount), **token_columns)
    elif topics[0] == DEPOSIT and token == wrapped:
        yield transfer(here, "wrap", token, raw(data_words[0]), sender=ZERO, recipient=parties[0])
    elif topics[0] == WITHDRAWAL and token == wrapped:
        yield transfer(here, "unwrap", token, raw(data_words[0]), sender=parties[0], recipient=ZERO)


def approval_rows(here: Row, log: Row) -> Iterator[Row]:
    """The approval that one log tells of."""
    topics = log["topics"]
    if topics[0] not in (APPROVAL, FOR_ALL):
        return
    row = here | {"token": log["address"], "owner": address(topics[1]), "spender": address(topics[2])}
    row |= {"token_id": None, "raw": None, "approved": None}
    if topics[0] == FOR_ALL:
        yield row | {"standard": "operator", "approved": bool(int(log["data"], 16))}
    elif len(topics) == 4:
        yield row | {"standard": "erc721", "token_id": raw(topics[3])}
    else:
        yield row | {"standard": "erc20", "raw": raw(log["data"])}


def log_row(here: Row, log: Row) -> Row:
    """A row of `logs`."""
    topics = {f"topic{k}": log["topics"][k] if k < len(log["topics"]) else None for k in range(4)}
    return here | topics | {"address": log["address"], "data": bytes.fromhex(log["data"][2:])}


def address(data_word: str) -> str:
    """The address in a topic."""
    return "0x" + data_word[26:]
