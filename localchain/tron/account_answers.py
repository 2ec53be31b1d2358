"""Responses of java-tron's HTTP API about accounts and their resources."""

from collections.abc import Callable, Mapping
from typing import Any

from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.forms import inner
from chainfolio.localchain.tron.state import (
    ENERGY_LIMIT,
    ENERGY_WEIGHT,
    FREE_NET,
    KINDS,
    NET_LIMIT,
    NET_WEIGHT,
    Account,
)
from chainfolio.localchain.tron.views import Json, View, nonempty


def _pairs(amounts: Mapping[str, int]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in amounts.items()]


def _typed(resource: str, **fields: object) -> Json:
    """Return a record with its resource, which is left out if it is the first one."""
    return nonempty(type=resource if resource != KINDS[0] else "", **fields)


def account_json(view: View, account: Account) -> Json:
    """Return an account as JSON of /wallet/getaccount."""
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
    """Return the stored permissions of an account, or its default ones; empty for a contract."""
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
    """Return the bandwidth that an account has used, and its limits."""
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
    """Return the bandwidth, energy and votes that an account has used, and its limits; {} without account."""
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
    """Return the delegations between two accounts; a locked part is a separate record."""
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
    """Return the accounts that delegate resources to an account, and those that it delegates to."""
    address = inner(body.get("value"), view.visible)
    pairs = [(source, to) for source, to, _ in view.state.delegations]
    return nonempty(
        account=view.spelled(address),
        fromAccounts=sorted({view.spelled(source) for source, to in pairs if to == address}),
        toAccounts=sorted({view.spelled(to) for source, to in pairs if source == address}),
    )


ACCOUNT_READS: dict[str, Callable[[View, Json], Any]] = {
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
}
