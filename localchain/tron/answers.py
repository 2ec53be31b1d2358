"""Responses of java-tron's HTTP API: `/wallet` of the newest block, `/walletsolidity` of the final."""

from collections.abc import Callable
from typing import Any

from chainfolio.localchain.tron.account_answers import ACCOUNT_READS
from chainfolio.localchain.tron.block_answers import BLOCK_READS
from chainfolio.localchain.tron.forms import inner
from chainfolio.localchain.tron.state import (
    ENERGY_LIMIT,
    FREE_NET,
    NET_LIMIT,
)
from chainfolio.localchain.tron.views import Json, View, nonempty


def asset_json(view: View, number: str) -> Json:
    """Return a TRC-10 token as JSON."""
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
    """Return a token pair and its balances by number, or {}."""
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


READS: dict[str, Callable[[View, Json], Any]] = (
    BLOCK_READS
    | ACCOUNT_READS
    | {
        "getassetissuebyid": _asset,
        "getassetissuelist": _assets,
        "getexchangebyid": _exchange,
        "getcontract": _contract,
        "listwitnesses": _witnesses,
        "getnodeinfo": _node_info,
        "getchainparameters": _parameters,
    }
)
