"""Requests that do something: broadcast transactions, build them, and simulate contract calls."""

from collections.abc import Callable
from typing import Any

from sha3 import keccak_256

from chainfolio.localchain.tron.blocks import TransactionRejected, read_transaction
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.codec import TYPE_URL, decode, encode
from chainfolio.localchain.tron.forms import base58check, inner, sha256
from chainfolio.localchain.tron.views import View

Json = dict[str, Any]
NOBODY = "41" + "00" * 20


def call_data(body: Json) -> str:
    """Return the data of a call, from `data` or from a function's name and its encoded arguments."""
    if body.get("data"):
        return str(body["data"]).removeprefix("0x")
    selector = str(body.get("function_selector", ""))
    return (keccak_256(selector.encode()).hexdigest()[:8] if selector else "") + str(body.get("parameter") or "")


def constant_call(view: View, body: Json) -> Json:
    """Simulate a contract call for triggerconstantcontract; the state stays."""
    owner = inner(body.get("owner_address") or NOBODY, view.visible and bool(body.get("owner_address")))
    contract, data = inner(body.get("contract_address"), view.visible), call_data(body)
    if contract not in view.state.contracts:
        message = "Smart contract is not exist."
        return {"result": {"code": "CONTRACT_VALIDATE_ERROR", "message": message.encode().hex()}}
    outcome = view.node.machine.simulate(owner, contract, data, int(body.get("call_value", 0)))
    failed = outcome.result != "SUCCESS"
    result: Json = {"result": True, **({"message": b"REVERT opcode executed".hex()} if failed else {})}
    transaction = trigger(view, owner, contract, data)
    transaction["ret"] = [{"ret": "FAILED"} if failed else {}]
    return {
        "result": result,
        "energy_used": outcome.energy,
        "constant_result": [outcome.output],
        "transaction": transaction,
    }


def trigger(view: View, owner: str, contract: str, data: str, value: int = 0, fee_limit: int = 0) -> Json:
    """Return a contract call as an unsigned transaction."""
    body = {"owner_address": owner, "contract_address": contract, "data": data, "call_value": value}
    return _unsigned(view, "TriggerSmartContract", {k: v for k, v in body.items() if v}, fee_limit)


def _unsigned(view: View, kind: str, value: Json, fee_limit: int = 0) -> Json:
    """Return an unsigned transaction with one contract of a kind, after the newest block."""
    content = {"contract": [{"type": kind, "parameter": {"value": value, "type_url": TYPE_URL + kind}}]}
    raw = encode("raw", {**content, **view.node.reference(), **({"fee_limit": fee_limit} if fee_limit else {})})
    return {
        "visible": view.visible,
        "txID": sha256(raw).hex(),
        "raw_data": decode("raw", raw, view.visible),
        "raw_data_hex": raw.hex(),
    }


def _trigger(view: View, body: Json) -> Json:
    """Return an unsigned contract call; an error in the result if the contract does not exist."""
    owner, contract = (inner(body.get(name), view.visible) for name in ("owner_address", "contract_address"))
    if contract not in view.state.contracts:
        message = "Contract validate error : No contract or not a valid smart contract"
        return {"result": {"code": "CONTRACT_VALIDATE_ERROR", "message": message.encode().hex()}}
    transaction = trigger(
        view, owner, contract, call_data(body), int(body.get("call_value", 0)), int(body.get("fee_limit", 0))
    )
    return {"result": {"result": True}, "transaction": transaction}


def _transfer(view: View, body: Json) -> Json:
    ends = {name: inner(body.get(name), view.visible) for name in ("owner_address", "to_address")}
    return _unsigned(view, "TransferContract", {**ends, "amount": int(body.get("amount", 0))})


def _broadcast(node: Chain, signed: Json, visible: bool) -> Json:
    """Queue a signed transaction, and return its id or java-tron's form of the error."""
    try:
        transaction = read_transaction(signed, visible)
    except TransactionRejected as error:
        return {"Error": error.message}
    try:
        return {"result": True, "txid": node.take(transaction)}
    except TransactionRejected as error:
        message = error.message if visible else error.message.encode().hex()
        return {"code": error.code, "txid": transaction.txid, "message": message}


def _broadcast_hex(view: View, body: Json) -> Json:
    """Queue a serialized transaction like `_broadcast`; error messages are text."""
    transaction = decode("Transaction", bytes.fromhex(body["transaction"]))
    response = _broadcast(view.node, {**transaction, "raw_data_hex": transaction["raw_data"]}, False)
    if "code" in response:
        response["message"] = bytes.fromhex(response["message"]).decode()
    return {**response, "transaction": body["transaction"]}


def _sign_weight(view: View, body: Json) -> Json:
    """Return a transaction with the default owner permission; the code is always NOT_ENOUGH_PERMISSION."""
    transaction = read_transaction(body, view.visible)
    raw = {"txID": transaction.txid, "raw_data_hex": transaction.raw.hex()}
    account = view.state.accounts.get(transaction.owner)
    owner = base58check(transaction.owner) if view.visible else transaction.owner
    permission = {"permission_name": "owner", "threshold": 1, "keys": [{"address": owner, "weight": 1}]}
    return {
        "result": {"code": "NOT_ENOUGH_PERMISSION"},
        **({"permission": permission} if account else {}),
        "transaction": {"result": {"result": True}, "txid": transaction.txid, "transaction": raw},
    }


def _validate(view: View, body: Json) -> Json:
    """Return if an address is valid, and in which form."""
    address = str(body.get("address", ""))
    try:
        inner(address, address.startswith("T"))
    except ValueError:
        return {"result": False, "message": "Invalid address"}
    return {"result": True, "message": "Base58check format" if address.startswith("T") else "Hex string format"}


ASKS: dict[str, Callable[[View, Json], Any]] = {
    "triggerconstantcontract": constant_call,
    "triggersmartcontract": _trigger,
    "createtransaction": _transfer,
    "broadcasttransaction": lambda view, body: _broadcast(view.node, body, view.visible),
    "broadcasthex": _broadcast_hex,
    "getsignweight": _sign_weight,
    "validateaddress": _validate,
}
