"""The part of Ethereum's JSON-RPC that java-tron has at /jsonrpc, with its refusals."""

from typing import Any

from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.tron.blocks import Block
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.forms import BadAddress, evm_address, tron
from chainfolio.localchain.tron.vm import MOST_ENERGY

Json = dict[str, Any]
TAGS = ("earliest", "pending", "finalized", "safe")
MOST_BLOCKS = 5_000
WORD = "0x" + "00" * 32


class Invalid(Exception):
    """Parameters that java-tron does not take."""

    def __init__(self, message: str, code: int = -32602) -> None:
        self.code = code
        super().__init__(message)


def rpc(node: Chain, request: Any) -> Json:
    """Return the response to one request; refusals are in its `error`."""
    response: Json = {"jsonrpc": "2.0", "id": request.get("id") if isinstance(request, dict) else None}
    try:
        return {**response, "result": _result(node, request["method"], request.get("params") or [])}
    except Invalid as error:
        return {**response, "error": {"code": error.code, "message": str(error), "data": "{}"}}
    except RpcError as error:
        return {**response, "error": {"code": -32000, "message": "REVERT opcode executed", "data": error.data or "{}"}}
    except (KeyError, IndexError, TypeError, ValueError, BadAddress) as error:
        return {**response, "error": {"code": -32602, "message": f"invalid params: {error}", "data": "{}"}}


def _result(node: Chain, method: str, params: list[Any]) -> Any:
    """Return the result of a method; state is only known at the newest block."""
    machine = node.machine.node
    if method in ("eth_call", "eth_getBalance", "eth_getCode", "eth_getStorageAt"):
        _newest_only(params[-1])
        if method == "eth_getBalance":
            account = node.state.accounts.get(tron(params[0]))
            return hex(account.balance if account else 0)
        if method == "eth_call" and tron(params[0]["to"]) not in node.state.contracts:
            raise Invalid("Smart contract is not exist.", -32600)
        if method == "eth_call":
            return machine.rpc(method, {**params[0], "gas": hex(MOST_ENERGY)}, "latest")
        return machine.rpc(method, *params[:-1], "latest")
    if method == "eth_getLogs":
        return logs(node, params[0])
    if method in ("eth_getBlockByNumber", "eth_getBlockByHash"):
        block_found = _block_by_hash(node, params[0]) if method.endswith("Hash") else _numbered(node, params[0])
        return block(node, block_found, bool(params[1])) if block_found else None
    if method in ("eth_getTransactionReceipt", "eth_getTransactionByHash"):
        return _transaction(node, params[0], method.endswith("Receipt"))
    plain: dict[str, Any] = {
        "eth_chainId": hex(node.chain_id),
        "net_version": hex(node.chain_id),
        "eth_gasPrice": hex(100),
        "eth_blockNumber": hex(node.head.height),
        "web3_clientVersion": "TRON/v4.8.0/Linux/Java1.8/GreatVoyage",
        "eth_syncing": False,
        "net_listening": False,
        "eth_protocolVersion": hex(31),
        "eth_accounts": [],
    }
    if method in plain:
        return plain[method]
    raise Invalid(f"the method {method} does not exist/is not available", -32601)


def _newest_only(tag: object) -> None:
    """Raise Invalid for any tag or height but `latest`, ValueError for a height that is not hex."""
    if tag in TAGS:
        raise Invalid("TAG [earliest | pending | finalized] not supported")
    if tag != "latest":
        int(str(tag), 16)
        raise Invalid("QUANTITY not supported, just support TAG as latest")


def _numbered(node: Chain, tag: str) -> Block | None:
    """Return the block of a height or word, None if it does not exist; Invalid for `pending`."""
    if tag == "pending":
        raise Invalid("TAG pending not supported")
    heights = {"latest": node.head.height, "earliest": 0, "finalized": node.solid}
    height = heights[tag] if tag in heights else int(tag, 16)
    return node.blocks[height] if 0 <= height <= node.head.height else None


def _block_by_hash(node: Chain, name: str) -> Block | None:
    return next((each for each in node.blocks if each.id == name.removeprefix("0x")), None)


def block(node: Chain, source: Block, is_full: bool) -> Json:
    """Return a block in Ethereum's format, with transactions instead of hashes if `is_full`."""
    names: list[Any] = [f"0x{each.txid}" for each in source.transactions]
    if is_full:
        names = [_transaction(node, name, receipt=False) for name in names]
    return {
        "number": hex(source.height),
        "hash": f"0x{source.id}",
        "parentHash": "0x" + source.header["parentHash"],
        "timestamp": hex(source.time_ms // 1000),
        "transactions": names,
        "miner": evm_address(source.header["witness_address"]),
        "transactionsRoot": "0x" + source.header["txTrieRoot"],
        "stateRoot": "0x",
        "receiptsRoot": WORD,
        "logsBloom": "0x" + "00" * 256,
        "gasLimit": hex(10**8),
        "gasUsed": "0x0",
        "difficulty": "0x0",
        "totalDifficulty": "0x0",
        "size": "0x0",
        "extraData": "0x",
        "mixHash": WORD,
        "nonce": "0x0000000000000000",
        "sha3Uncles": WORD,
        "uncles": [],
        "baseFeePerGas": "0x0",
    }


def _transaction(node: Chain, name: str, receipt: bool) -> Json | None:
    """Return a transaction or its receipt in Ethereum's format; None if it is not in a block."""
    txid = name.removeprefix("0x")
    if txid not in node.heights:
        return None
    block_of_tx = node.blocks[node.heights[txid]]
    number = [each.txid for each in block_of_tx.transactions].index(txid)
    transaction, info = block_of_tx.transactions[number], block_of_tx.infos[number]
    to = transaction.value.get("contract_address") or transaction.value.get("to_address")
    location = {
        "transactionIndex": hex(number),
        "blockHash": f"0x{block_of_tx.id}",
        "blockNumber": hex(block_of_tx.height),
        "from": evm_address(transaction.owner),
        "to": evm_address(to) if to else None,
    }
    if receipt:
        used = info["receipt"].get("energy_usage_total", 0)
        tx_logs = [log for log in _all(block_of_tx) if log["transactionHash"] == f"0x{txid}"]
        return {
            **location,
            "transactionHash": f"0x{txid}",
            "status": hex(block_of_tx.results[number] == "SUCCESS"),
            "gasUsed": hex(used),
            "cumulativeGasUsed": hex(used),
            "effectiveGasPrice": hex(100),
            "logs": tx_logs,
            "logsBloom": "0x" + "00" * 256,
            "type": "0x0",
            "contractAddress": None,
        }
    return {
        **location,
        "hash": f"0x{txid}",
        "input": "0x" + transaction.value.get("data", ""),
        "gas": "0x0",
        "value": hex(transaction.value.get("amount", transaction.value.get("call_value", 0))),
        "gasPrice": hex(100),
        "nonce": "0x0000000000000000",
        "type": "0x0",
        "r": WORD,
        "s": WORD,
        "v": "0x1b",
    }


def _all(source: Block) -> list[Json]:
    """Return every log of a block."""
    logs: list[Json] = []
    for number, info in enumerate(source.infos):
        for log in info.get("log", ()):
            logs.append(
                {
                    "address": "0x" + log["address"],
                    "topics": ["0x" + topic for topic in log.get("topics", ())],
                    "data": "0x" + log.get("data", ""),
                    "blockNumber": hex(source.height),
                    "blockHash": f"0x{source.id}",
                    "transactionHash": f"0x{info['id']}",
                    "transactionIndex": hex(number),
                    "logIndex": hex(len(logs)),
                    "removed": False,
                }
            )
    return logs


def logs(node: Chain, query: Json) -> list[Json]:
    """Return the logs of a range of blocks, or of one block; Invalid for an unknown block or a long range."""
    if "blockHash" in query:
        by_hash = _block_by_hash(node, query["blockHash"])
        if by_hash is None:
            raise Invalid("resource not found", -32000)
        span = [by_hash]
    else:
        first, last = (_numbered(node, query.get(end, "latest")) for end in ("fromBlock", "toBlock"))
        start, end = first.height if first else node.head.height + 1, last.height if last else node.head.height
        if end - start > MOST_BLOCKS:
            raise Invalid(f"exceed max block range: {MOST_BLOCKS}")
        span = node.blocks[start : end + 1]
    return [log for each in span for log in _all(each) if _matches(log, query)]


def _matches(log: Json, query: Json) -> bool:
    """Return True if a log has the addresses and topics of a query."""
    addresses = query.get("address") or []
    addresses = [addresses] if isinstance(addresses, str) else addresses
    if addresses and log["address"] not in {address.lower() for address in addresses}:
        return False
    topics = query.get("topics") or []
    if len(topics) > len(log["topics"]):
        return False
    pairs = zip(topics, log["topics"], strict=False)
    return all(not any_of or topic in ([any_of] if isinstance(any_of, str) else any_of) for any_of, topic in pairs)
