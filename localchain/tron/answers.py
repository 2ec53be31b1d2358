"""Responses of java-tron's HTTP API: `/wallet` of the newest block, `/walletsolidity` of the final."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.tron.chain import Block, Chain, Transaction
from chainfolio.localchain.tron.codec import decode
from chainfolio.localchain.tron.forms import base58check, inner, tron
from chainfolio.localchain.tron.state import (
    ENERGY_LIMIT,
    ENERGY_WEIGHT,
    FREE_NET,
    KINDS,
    NET_LIMIT,
    NET_WEIGHT,
    Account,
    State,
)

FACTOR = 100  # blocks that one request may ask for
Json = dict[str, Any]


@dataclass(frozen=True)
class View:
    """A node as of one of its blocks, for one request."""

    node: Chain
    height: int
    visible: bool = False

    @property
    def state(self) -> State:
        """State at the block."""
        return self.node.states[self.height]

    @property
    def now_ms(self) -> int:
        """Time of the block, in milliseconds."""
        return self.node.blocks[self.height].time_ms

    def spelled(self, address: str) -> str:
        """An address as the request wants it."""
        return base58check(address) if self.visible else address

    def text(self, content: str) -> str:
        """A name as the request wants it."""
        return content if self.visible else content.encode().hex()

    def account(self, body: Mapping[str, Any], name: str = "address") -> Account | None:
        """The account that a request names."""
        return self.state.accounts.get(inner(body.get(name), self.visible))

    def locate(self, body: Mapping[str, Any]) -> tuple[Block, int] | None:
        """The block and number of the transaction that a request names."""
        height = self.node.heights.get(str(body.get("value", "")).lower())
        if height is None or height > self.height:
            return None
        block = self.node.blocks[height]
        names = [each.txid for each in block.transactions]
        return block, names.index(str(body["value"]).lower())


def nonempty(**fields: Any) -> Json:
    """A message as java-tron writes it: without what is zero or empty."""
    return {name: value for name, value in fields.items() if value}


# --- blocks and transactions ----------------------------------------------------------------------------------------


def block_json(view: View, block: Block) -> Json:
    """A block with its transactions."""
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
    """A transaction of a block."""
    return {
        **transaction.ends(result),
        "txID": transaction.txid,
        "raw_data": decode("raw", transaction.raw, view.visible),
        "raw_data_hex": transaction.raw.hex(),
    }


def info_json(view: View, info: Mapping[str, Any]) -> Json:
    """The record of a transaction."""
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


# --- accounts -------------------------------------------------------------------------------------------------------


def _pairs(amounts: Mapping[str, int]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in amounts.items()]


def _typed(resource: str, **fields: Any) -> Json:
    """The first resource is the default, and so is not named."""
    return nonempty(type=resource if resource != KINDS[0] else "", **fields)


def account_json(view: View, account: Account) -> Json:
    """An account, in /wallet/getaccount's names."""
    legacy = {
        kind: {"frozen_balance": stake.sun, "expire_time": stake.expires_ms} for kind, stake in account.legacy.items()
    }
    votes = [{"vote_address": view.spelled(to), "vote_count": count} for to, count in account.votes.items()]
    return nonempty(
        account_name=account.name if not view.visible else bytes.fromhex(account.name).decode(errors="replace"),
        type=account.kind if account.kind != "Normal" else "",
        address=view.spelled(account.address),
        balance=account.balance,
        votes=votes,
        frozen=[legacy[KINDS[0]]] if KINDS[0] in legacy else [],
        net_usage=account.net.amount,
        create_time=account.created_ms,
        latest_opration_time=account.operated_ms,
        allowance=account.allowance,
        latest_withdraw_time=account.withdrawn_ms,
        free_net_usage=account.free_net.amount,
        latest_consume_time=account.net.slot,
        latest_consume_free_time=account.free_net.slot,
        net_window_size=28_800_000,
        net_window_optimized=True,
        account_resource=_resources(account, legacy),
        tron_power=legacy.get(KINDS[2]),
        **_permissions(view, account),
        assetV2=_pairs({k: v for k, v in account.assets.items() if v}),
        free_asset_net_usageV2=_pairs(dict.fromkeys(account.assets, 0)),
        asset_optimized=True,
        frozenV2=[_typed(kind, amount=account.frozen.get(kind, 0)) for kind in KINDS],
        unfrozenV2=[
            _typed(each.resource, unfreeze_amount=each.sun, unfreeze_expire_time=each.expires_ms)
            for each in account.unfreezing
        ],
        delegated_frozenV2_balance_for_bandwidth=account.delegated.get(KINDS[0]),
        acquired_delegated_frozenV2_balance_for_bandwidth=account.acquired.get(KINDS[0]),
    )


def _resources(account: Account, legacy: Mapping[str, Json]) -> Json:
    return nonempty(
        energy_usage=account.energy.amount,
        frozen_balance_for_energy=legacy.get(KINDS[1]),
        latest_consume_time_for_energy=account.energy.slot,
        energy_window_size=28_800_000,
        delegated_frozenV2_balance_for_energy=account.delegated.get(KINDS[1]),
        acquired_delegated_frozenV2_balance_for_energy=account.acquired.get(KINDS[1]),
        energy_window_optimized=True,
    )


def _permissions(view: View, account: Account) -> Json:
    if account.kind == "Contract":
        return {}
    keys = [{"address": view.spelled(account.address), "weight": 1}]
    permissions: list[Json] = [
        {"permission_name": "owner", "threshold": 1, "keys": keys},
        {
            "type": "Active",
            "id": 2,
            "permission_name": "active",
            "threshold": 1,
            "operations": "7fff1fc0033efb0f" + "00" * 24,
            "keys": keys,
        },
    ]
    if account.permissions:
        permissions = [
            nonempty(
                type="Active" if each.number else "",
                id=each.number,
                permission_name=each.name,
                threshold=each.threshold,
                operations=each.operations,
                keys=[{"address": view.spelled(key), "weight": weight} for key, weight in each.keys.items()],
            )
            for each in account.permissions
        ]
    return {"owner_permission": permissions[0], "active_permission": permissions[1:]}


def _account(view: View, body: Json) -> Json:
    account = view.account(body)
    return account_json(view, account) if account else {}


def _used(view: View, account: Account) -> Json:
    slot = view.node.slot(view.now_ms)
    return nonempty(
        freeNetUsed=account.free_net.at(slot),
        freeNetLimit=FREE_NET,
        NetUsed=account.net.at(slot),
        NetLimit=account.limit(KINDS[0]),
        TotalNetLimit=NET_LIMIT,
        TotalNetWeight=NET_WEIGHT,
    )


def _net(view: View, body: Json) -> Json:
    account = view.account(body)
    return _used(view, account) if account else {}


def _resource(view: View, body: Json) -> Json:
    account = view.account(body)
    if account is None:
        return {}
    slot = view.node.slot(view.now_ms)
    return _used(view, account) | nonempty(
        tronPowerUsed=sum(account.votes.values()),
        tronPowerLimit=account.power,
        EnergyUsed=account.energy.at(slot),
        EnergyLimit=account.limit(KINDS[1]),
        TotalEnergyLimit=ENERGY_LIMIT,
        TotalEnergyWeight=ENERGY_WEIGHT,
    )


def _reward(view: View, body: Json) -> Json:
    account = view.account(body)
    return {"reward": account.allowance + view.state.pending_reward(account.address) if account else 0}


def _brokerage(view: View, body: Json) -> Json:
    witness = view.state.witnesses.get(inner(body.get("address"), view.visible))
    return {"brokerage": witness.brokerage if witness else 20}


def _balance_at(view: View, body: Json) -> Json:
    """Return the balance of an account at a block, and the block of its last change.

    A node without balance history does not refuse: it answers as for an account that never had coins.
    """
    identifier, address = body["block_identifier"], inner(body["account_identifier"]["address"], view.visible)
    height = int(identifier["number"])
    if not 0 <= height <= view.height or view.node.blocks[height].id != identifier["hash"]:
        return {"Error": "class java.lang.IllegalArgumentException : number and hash do not match"}
    course = [_sun(view.node, at, address) for at in range(height + 1)] if view.node.balances else [0]
    if not any(course):
        return {"block_identifier": {"hash": identifier["hash"], "number": height}}
    changed_at = next(at for at in range(height, -1, -1) if at == 0 or course[at - 1] != course[at])
    return nonempty(balance=course[height]) | {
        "block_identifier": {"hash": view.node.blocks[changed_at].id, "number": changed_at}
    }


def _sun(node: Chain, height: int, address: str) -> int:
    account = node.states[height].accounts.get(address)
    return account.balance if account else 0


def _withdrawable(view: View, body: Json) -> Json:
    account = view.account(body, "owner_address")
    at_ms = int(body.get("timestamp") or view.now_ms)
    return nonempty(amount=sum(e.sun for e in account.unfreezing if e.expires_ms <= at_ms)) if account else {}


def _unfreezes_left(view: View, body: Json) -> Json:
    account = view.account(body, "owner_address")
    waiting = sum(each.expires_ms > view.now_ms for each in account.unfreezing) if account else 0
    return nonempty(count=32 - waiting)


def _delegated(view: View, body: Json) -> Json:
    ends = inner(body.get("fromAddress"), view.visible), inner(body.get("toAddress"), view.visible)
    delegation_records: Json = {}
    for (source, to, resource), delegation in view.state.delegations.items():
        if (source, to) == ends:
            suffix = resource.lower()
            parts = {"": delegation.sun - delegation.locked} | (
                {"lock": delegation.locked} if delegation.locked else {}
            )
            for locked in parts:  # the locked part is a separate record
                record = delegation_records.setdefault(locked, {"from": view.spelled(source), "to": view.spelled(to)})
                record |= nonempty(**{f"frozen_balance_for_{suffix}": parts[locked]})
                if locked:
                    record[f"expire_time_for_{suffix}"] = delegation.until_ms
    records = [record for record in delegation_records.values() if len(record) > 2]
    return nonempty(delegatedResource=records)


def _delegations(view: View, body: Json) -> Json:
    address = inner(body.get("value"), view.visible)
    pairs = [(source, to) for source, to, _ in view.state.delegations]
    return nonempty(
        account=view.spelled(address),
        fromAccounts=sorted({view.spelled(source) for source, to in pairs if to == address}),
        toAccounts=sorted({view.spelled(to) for source, to in pairs if source == address}),
    )


# --- tokens, contracts, the chain -----------------------------------------------------------------------------------


def asset_json(view: View, number: str) -> Json:
    """A TRC-10 token."""
    asset = view.state.assets[number]
    return nonempty(
        id=number,
        owner_address=view.spelled(asset.owner),
        name=view.text(asset.name),
        abbr=view.text(asset.abbr),
        total_supply=asset.supply,
        trx_num=1,
        precision=asset.precision,
        num=1,
        start_time=asset.start_ms,
        end_time=asset.end_ms,
        description=view.text(asset.description),
        url=view.text(asset.url),
    )


def _asset(view: View, body: Json) -> Json:
    number = str(body.get("value"))
    return asset_json(view, number) if number in view.state.assets else {}


def _assets(view: View, body: Json) -> Json:
    return nonempty(assetIssue=[asset_json(view, number) for number in view.state.assets])


def _exchange(view: View, body: Json) -> Json:
    number = int(body.get("id", 0))
    if number not in view.state.exchanges:
        return {}
    pair = view.state.exchanges[number]
    return nonempty(
        exchange_id=number,
        creator_address=view.spelled(pair.creator),
        create_time=pair.created_ms,
        first_token_id=view.text(pair.tokens[0]),
        first_token_balance=pair.balances[0],
        second_token_id=view.text(pair.tokens[1]),
        second_token_balance=pair.balances[1],
    )


def _contract(view: View, body: Json) -> Json:
    contract = view.state.contracts.get(inner(body.get("value"), view.visible))
    ends = ("origin_address", "contract_address")
    return {**contract, **{end: view.spelled(str(contract[end])) for end in ends}} if contract else {}


def _witnesses(view: View, body: Json) -> Json:
    return {
        "witnesses": [
            nonempty(address=view.spelled(each.address), voteCount=each.votes, url=each.url, isJobs=True)
            for each in view.state.witnesses.values()
        ]
    }


def _node_info(view: View, body: Json) -> Json:
    newest, solid = view.node.head, view.node.blocks[view.node.solid]
    return {
        "beginSyncNum": 0,
        "block": f"Num:{newest.height},ID:{newest.id}",
        "solidityBlock": f"Num:{solid.height},ID:{solid.id}",
        "currentConnectCount": 0,
        "configNodeInfo": {"codeVersion": "4.8.0", "supportConstant": True},
    }


def _parameters(view: View, body: Json) -> Json:
    parameters = {
        "getMaintenanceTimeInterval": 3_000 * view.node.maintenance,
        "getCreateAccountFee": 100_000,
        "getTransactionFee": 1_000,
        "getAssetIssueFee": 1_024_000_000,
        "getExchangeCreateFee": 1_024_000_000,
        "getCreateNewAccountFeeInSystemContract": 1_000_000,
        "getEnergyFee": 100,
        "getMemoFee": 1_000_000,
        "getMultiSignFee": 1_000_000,
        "getUpdateAccountPermissionFee": 100_000_000,
        "getUnfreezeDelayDays": 14,
        "getFreeNetLimit": FREE_NET,
        "getTotalNetLimit": NET_LIMIT,
        "getTotalEnergyCurrentLimit": ENERGY_LIMIT,
        "getMaxFeeLimit": 15_000_000_000,
    }
    return {"chainParameter": [{"key": key, "value": value} for key, value in parameters.items()]}


READS: dict[str, Callable[[View, Json], Any]] = {
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
    "getaccount": _account,
    "getaccountnet": _net,
    "getaccountresource": _resource,
    "getaccountbalance": _balance_at,
    "getReward": _reward,
    "getBrokerage": _brokerage,
    "getcanwithdrawunfreezeamount": _withdrawable,
    "getavailableunfreezecount": _unfreezes_left,
    "getdelegatedresourcev2": _delegated,
    "getdelegatedresourceaccountindexv2": _delegations,
    "getassetissuebyid": _asset,
    "getassetissuelist": _assets,
    "getexchangebyid": _exchange,
    "getcontract": _contract,
    "listwitnesses": _witnesses,
    "getnodeinfo": _node_info,
    "getchainparameters": _parameters,
}
