"""Convert Tron's messages between protobuf bytes and java-tron's JSON, by one table of fields.

In JSON an address is hex or, where a request is `visible`, base58; names are hex or text; what is zero is left out. A
field that a message does not have is there by its number, with everything that was written under it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from chainfolio.localchain.tron.forms import base58check, inner

CONTRACTS = {
    0: "AccountCreateContract",
    1: "TransferContract",
    2: "TransferAssetContract",
    4: "VoteWitnessContract",
    5: "WitnessCreateContract",
    6: "AssetIssueContract",
    9: "ParticipateAssetIssueContract",
    10: "AccountUpdateContract",
    11: "FreezeBalanceContract",
    12: "UnfreezeBalanceContract",
    13: "WithdrawBalanceContract",
    30: "CreateSmartContract",
    31: "TriggerSmartContract",
    41: "ExchangeCreateContract",
    42: "ExchangeInjectContract",
    43: "ExchangeWithdrawContract",
    44: "ExchangeTransactionContract",
    46: "AccountPermissionUpdateContract",
    49: "UpdateBrokerageContract",
    54: "FreezeBalanceV2Contract",
    55: "UnfreezeBalanceV2Contract",
    56: "WithdrawExpireUnfreezeContract",
    57: "DelegateResourceContract",
    58: "UnDelegateResourceContract",
    59: "CancelAllUnfreezeV2Contract",
}
ENUMS = {
    "resource": {0: "BANDWIDTH", 1: "ENERGY", 2: "TRON_POWER"},
    "contract": CONTRACTS,
    "permission": {0: "Owner", 1: "Witness", 2: "Active"},
    "account": {0: "Normal", 1: "AssetIssue", 2: "Contract"},
    "entry": {1: "Constructor", 2: "Function", 3: "Event", 4: "Fallback", 5: "Receive", 6: "Error"},
    "result": dict(
        enumerate(
            (
                "DEFAULT",
                "SUCCESS",
                "REVERT",
                "BAD_JUMP_DESTINATION",
                "OUT_OF_MEMORY",
                "PRECOMPILED_CONTRACT",
                "STACK_TOO_SMALL",
                "STACK_TOO_LARGE",
                "ILLEGAL_OPERATION",
                "STACK_OVERFLOW",
                "OUT_OF_ENERGY",
                "OUT_OF_TIME",
                "JVM_STACK_OVER_FLOW",
                "UNKNOWN",
                "TRANSFER_FAILED",
                "INVALID_CODE",
            )
        )
    ),
    "code": {1: "FAILED"},
    "mutability": {1: "Pure", 2: "View", 3: "Nonpayable", 4: "Payable"},
}
TYPE_URL = "type.googleapis.com/protocol."
# A message: number, name, kind; with a star where there may be several. Kinds: int, bytes (always hex), address, name
# (hex or text), text, an enumeration, or another message.
_TABLE = {
    "raw": """1 ref_block_bytes bytes; 3 ref_block_num int; 4 ref_block_hash bytes; 8 expiration int; 10 data bytes;
        11 contract* Contract; 12 scripts bytes; 14 timestamp int; 18 fee_limit int""",
    "Contract": "1 type contract; 2 parameter Any; 3 provider bytes; 4 ContractName bytes; 5 Permission_id int",
    "Any": "1 type_url text; 2 value bytes",
    "AccountCreateContract": "1 owner_address address; 2 account_address address; 3 type account",
    "TransferContract": "1 owner_address address; 2 to_address address; 3 amount int",
    "TransferAssetContract": "1 asset_name name; 2 owner_address address; 3 to_address address; 4 amount int",
    "VoteWitnessContract": "1 owner_address address; 2 votes* Vote; 3 support int",
    "Vote": "1 vote_address address; 2 vote_count int",
    "WitnessCreateContract": "1 owner_address address; 2 url name",
    "AssetIssueContract": """41 id text; 1 owner_address address; 2 name name; 3 abbr name; 4 total_supply int;
        5 frozen_supply* FrozenSupply; 6 trx_num int; 7 precision int; 8 num int; 9 start_time int; 10 end_time int;
        11 order int; 16 vote_score int; 20 description name; 21 url name; 22 free_asset_net_limit int;
        23 public_free_asset_net_limit int; 24 public_free_asset_net_usage int; 25 public_latest_free_net_time int""",
    "FrozenSupply": "1 frozen_amount int; 2 frozen_days int",
    "ParticipateAssetIssueContract": "1 owner_address address; 2 to_address address; 3 asset_name name; 4 amount int",
    "AccountUpdateContract": "1 account_name name; 2 owner_address address",
    "FreezeBalanceContract": """1 owner_address address; 2 frozen_balance int; 3 frozen_duration int;
        10 resource resource; 15 receiver_address address""",
    "UnfreezeBalanceContract": "1 owner_address address; 10 resource resource; 15 receiver_address address",
    "WithdrawBalanceContract": "1 owner_address address",
    "CreateSmartContract": """1 owner_address address; 2 new_contract SmartContract; 3 call_token_value int;
        4 token_id int""",
    "SmartContract": """1 origin_address address; 2 contract_address address; 3 abi ABI; 4 bytecode bytes;
        5 call_value int; 6 consume_user_resource_percent int; 7 name text; 8 origin_energy_limit int;
        9 code_hash bytes; 10 trx_hash bytes; 11 version int""",
    "ABI": "1 entrys* Entry",
    "Entry": """1 anonymous int; 2 constant int; 3 name text; 4 inputs* Param; 5 outputs* Param; 6 type entry;
        7 payable int; 8 stateMutability mutability""",
    "Param": "1 indexed int; 2 name text; 3 type text",
    "TriggerSmartContract": """1 owner_address address; 2 contract_address address; 3 call_value int; 4 data bytes;
        5 call_token_value int; 6 token_id int""",
    "ExchangeCreateContract": """1 owner_address address; 2 first_token_id name; 3 first_token_balance int;
        4 second_token_id name; 5 second_token_balance int""",
    "ExchangeInjectContract": "1 owner_address address; 2 exchange_id int; 3 token_id name; 4 quant int",
    "ExchangeWithdrawContract": "1 owner_address address; 2 exchange_id int; 3 token_id name; 4 quant int",
    "ExchangeTransactionContract": """1 owner_address address; 2 exchange_id int; 3 token_id name; 4 quant int;
        5 expected int""",
    "AccountPermissionUpdateContract": """1 owner_address address; 2 owner Permission; 3 witness Permission;
        4 actives* Permission""",
    "Permission": """1 type permission; 2 id int; 3 permission_name text; 4 threshold int; 5 parent_id int;
        6 operations bytes; 7 keys* Key""",
    "Key": "1 address address; 2 weight int",
    "UpdateBrokerageContract": "1 owner_address address; 2 brokerage int",
    "FreezeBalanceV2Contract": "1 owner_address address; 2 frozen_balance int; 3 resource resource",
    "UnfreezeBalanceV2Contract": "1 owner_address address; 2 unfreeze_balance int; 3 resource resource",
    "WithdrawExpireUnfreezeContract": "1 owner_address address",
    "DelegateResourceContract": """1 owner_address address; 2 resource resource; 3 balance int;
        4 receiver_address address; 5 lock int; 6 lock_period int""",
    "UnDelegateResourceContract": """1 owner_address address; 2 resource resource; 3 balance int;
        4 receiver_address address""",
    "CancelAllUnfreezeV2Contract": "1 owner_address address",
    "Header": """1 timestamp int; 2 txTrieRoot bytes; 3 parentHash bytes; 7 number int; 9 witness_address address;
        10 version int""",
    "Transaction": "1 raw_data bytes; 2 signature* bytes; 5 ret* Result",
    "Result": """1 fee int; 2 ret code; 3 contractRet result; 14 assetIssueID text; 15 withdraw_amount int;
        16 unfreeze_amount int; 25 orderId bytes; 26 orderDetails* Order""",
    "Order": "1 makerOrderId bytes; 2 takerOrderId bytes; 3 fillSellQuantity int; 4 fillBuyQuantity int",
}
FIELDS: dict[str, dict[int, tuple[str, str, bool]]] = {
    message: {
        int(number): (name.rstrip("*"), kind, name.endswith("*"))
        for number, name, kind in (field.split() for field in fields.split(";"))
    }
    for message, fields in _TABLE.items()
}


class BadMessage(ValueError):
    """Bytes or JSON that are no message of Tron's."""


def decode(message: str, content: bytes, visible: bool = False) -> dict[str, Any]:
    """Return the JSON of a message's bytes; BadMessage if they are malformed."""
    document: dict[str, Any] = {}
    for number, wire in _fields(content):
        if number not in FIELDS[message]:
            document.setdefault(str(number), []).append(wire if isinstance(wire, int) else wire.hex())
            document[str(number)].sort(key=lambda each: isinstance(each, str))  # numbers first, as Java writes them
            continue
        name, kind, is_repeated = FIELDS[message][number]
        value = _decode_value(kind, wire, visible)
        if is_repeated:
            document.setdefault(name, []).append(value)
        elif value not in (0, "") or kind in FIELDS:
            document[name] = value
    if message == "Contract":
        document.setdefault("type", CONTRACTS[0])
        body = document["parameter"]
        parameter = decode(document["type"], bytes.fromhex(body.get("value", "")), visible)
        document["parameter"] = {"value": parameter, "type_url": body.get("type_url", "")}
    return document


def encode(message: str, content: Mapping[str, Any], visible: bool = False) -> bytes:
    """Return the bytes of a message's JSON, in the order of the fields' numbers."""
    encoded = b""
    fields = {name: (number, kind, is_repeated) for number, (name, kind, is_repeated) in FIELDS[message].items()}
    if message == "Contract":
        parameter = content["parameter"]
        value = encode(content["type"], parameter["value"], visible)
        content = {**content, "parameter": {"type_url": parameter["type_url"], "value": value.hex()}}
    for name in sorted(content.keys() & fields.keys(), key=lambda name: fields[name][0]):
        number, kind, is_repeated = fields[name]
        for each in content[name] if is_repeated else [content[name]]:
            wire = _wire(kind, each, visible)
            if isinstance(wire, bytes):
                encoded += _piece(number, wire) if wire or is_repeated or kind in FIELDS else b""
            elif wire:
                encoded += _varint(number << 3) + _varint(wire)
    nameless = sorted(int(name) for name in content if name.isdigit())
    return encoded + b"".join(_nameless(number, each) for number in nameless for each in content[str(number)])


def _nameless(number: int, value: int | str) -> bytes:
    """Encode an unknown field."""
    return _varint(number << 3) + _varint(value) if isinstance(value, int) else _piece(number, bytes.fromhex(value))


def _piece(number: int, wire: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(wire)) + wire


def _decode_value(kind: str, wire: int | bytes, visible: bool) -> Any:
    """Return the JSON of a field's value; BadMessage if number and bytes are confused."""
    if isinstance(wire, int):
        if kind in ENUMS:
            return ENUMS[kind].get(wire, wire) if wire or kind == "contract" else 0
        if kind != "int":
            raise BadMessage("a number stands where bytes belong")
        return wire - (1 << 64) if wire >> 63 else wire
    if kind in FIELDS:
        return decode(kind, wire, visible)
    if kind == "int" or kind in ENUMS:
        raise BadMessage("bytes stand where a number belongs")
    if kind == "address" and visible:
        return base58check(wire.hex())
    if kind == "text" or (kind == "name" and visible):
        return wire.decode(errors="replace")
    return wire.hex()


def _wire(kind: str, value: Any, visible: bool) -> int | bytes:
    """Return the number or the bytes of a field's JSON."""
    if kind in FIELDS:
        return encode(kind, value, visible)
    if kind in ENUMS:
        numbers = {name: number for number, name in ENUMS[kind].items()}
        return value if isinstance(value, int) else numbers[value]
    if kind == "int":
        return int(value) % (1 << 64)
    if kind == "address" and visible:
        return bytes.fromhex(inner(value, visible))
    if kind == "text" or (kind == "name" and visible):
        return str(value).encode()
    return bytes.fromhex(value) if isinstance(value, str) else b""


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the raw value of each field; BadMessage if the bytes are malformed."""
    position = 0
    while position < len(content):
        key, position = _read(content, position)
        if key & 7 == 0:
            value, position = _read(content, position)
            yield key >> 3, value
        elif key & 7 == 2:
            size, position = _read(content, position)
            if position + size > len(content):
                raise BadMessage("the message ends before its content does")
            yield key >> 3, content[position : position + size]
            position += size
        else:
            raise BadMessage(f"wire type {key & 7}")


def _read(content: bytes, position: int) -> tuple[int, int]:
    """Return a number at a position and the position behind it; BadMessage if it does not end."""
    value = shift = 0
    while True:
        if position >= len(content) or shift > 63:
            raise BadMessage("the message ends within a number")
        byte = content[position]
        value, position, shift = value | (byte & 127) << shift, position + 1, shift + 7
        if byte < 128:
            return value, position


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
