"""Effects of system contracts on the state; smart contracts are in `vm.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

from chainfolio.localchain.tron.fees import NEW_ACCOUNT
from chainfolio.localchain.tron.state import (
    KINDS,
    SLOT_MS,
    TRX,
    Account,
    Asset,
    Delegation,
    Exchange,
    Permission,
    State,
    Unfreezing,
)

UNFREEZE_MS = 14 * 86_400_000
DAY_MS = 86_400_000
MOST_UNFREEZING = 32
ISSUE, EXCHANGE, PERMISSIONS = 1024 * TRX, 1024 * TRX, 100 * TRX
COIN = "_"  # in exchanges
POOL_SUPPLY = 10**18


class InvalidTransaction(Exception):
    """The transaction is not valid; the message is java-tron's."""


@dataclass
class Execution:
    """The execution of one transaction: state, time, owner, arguments, fee and receipt."""

    state: State
    now_ms: int
    owner: str
    value: dict[str, Any]
    fee: int = 0
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def account(self) -> Account:
        """Account of the owner."""
        return self.state.accounts[self.owner]

    @property
    def resource(self) -> str:
        """The resource of a stake, bandwidth by default."""
        return str(self.value.get("resource", KINDS[0]))

    def require(self, holds: object, reason: str) -> None:
        """Raise InvalidTransaction with a reason unless a condition holds."""
        if not holds:
            raise InvalidTransaction(reason)

    def burn(self, sun: int) -> None:
        """Take a fee from the owner, destroy it, and count it; InvalidTransaction if it is not covered."""
        self.require(self.account.balance >= sun, "Validate TransferContract error, balance is not sufficient.")
        self.state.burn(self.owner, sun)
        self.fee += sun

    def amount(self, name: str) -> int:
        """Return a number of the transaction's value; 0 if it is missing."""
        return int(self.value.get(name, 0))


def creates_account(state: State, kind: str, value: dict[str, Any]) -> bool:
    """Return True if a transaction creates an account, for which another fee is due."""
    if kind == "AccountCreateContract":
        return True
    return kind in ("TransferContract", "TransferAssetContract") and value.get("to_address") not in state.accounts


def do(execution: Execution, kind: str) -> None:
    """Apply a transaction of a system contract to the state; InvalidTransaction if it is not valid."""
    ACTIONS[kind](execution)


def _open(execution: Execution, address: str) -> None:
    execution.burn(NEW_ACCOUNT)
    execution.state.accounts[address] = Account(address, execution.now_ms)


def _create_account(execution: Execution) -> None:
    address = execution.value["account_address"]
    execution.require(address not in execution.state.accounts, "Account has existed")
    _open(execution, address)


def _transfer(execution: Execution) -> None:
    """Send coins; a new recipient costs a fee, and a contract is refused."""
    to, sun = execution.value["to_address"], execution.amount("amount")
    execution.require(to != execution.owner, "Cannot transfer TRX to yourself.")
    execution.require(sun > 0, "Amount must be greater than 0.")
    existing = execution.state.accounts.get(to)
    execution.require(not existing or existing.kind != "Contract", "Cannot transfer TRX to a smartContract.")
    fee = 0 if existing else NEW_ACCOUNT
    execution.require(
        execution.account.balance >= sun + fee, "Validate TransferContract error, balance is not sufficient."
    )
    if not existing:
        _open(execution, to)
    execution.state.give(execution.owner, -sun)
    execution.state.give(to, sun)


def _transfer_asset(execution: Execution) -> None:
    """Send a TRC-10 token; a new recipient costs a fee."""
    number, to = bytes.fromhex(execution.value["asset_name"]).decode(errors="replace"), execution.value["to_address"]
    raw = execution.amount("amount")
    execution.require(raw > 0, "Amount must be greater than 0.")
    execution.require(to != execution.owner, "Cannot transfer asset to yourself.")
    execution.require(number in execution.state.assets, "No asset!")
    execution.require(execution.account.assets.get(number, 0) >= raw, "assetBalance is not sufficient.")
    if to not in execution.state.accounts:
        _open(execution, to)
    execution.state.move_asset(execution.owner, to, number, raw)


def _issue(execution: Execution) -> None:
    """Issue a TRC-10 token to the owner for a fee, and record its number."""
    texts = {
        name: bytes.fromhex(execution.value.get(name, "")).decode() for name in ("name", "abbr", "url", "description")
    }
    supply = execution.amount("total_supply")
    execution.require(supply > 0, "TotalSupply must greater than 0!")
    execution.burn(ISSUE)
    number = str(1_000_001 + len(execution.state.assets))
    execution.state.assets[number] = Asset(
        number,
        execution.owner,
        texts["name"],
        texts["abbr"],
        execution.amount("precision"),
        supply,
        texts["url"],
        texts["description"],
        execution.amount("start_time"),
        execution.amount("end_time"),
    )
    execution.state.change(execution.owner, assets={**execution.account.assets, number: supply})
    execution.record["assetIssueID"] = number


def _rename(execution: Execution) -> None:
    execution.state.change(execution.owner, name=execution.value.get("account_name", ""))


def _freeze(execution: Execution) -> None:
    """Stake coins of the owner for a resource."""
    sun = execution.amount("frozen_balance")
    execution.require(sun >= TRX, "frozenBalance must be greater than or equal to 1 TRX")
    execution.require(execution.account.balance >= sun, "frozenBalance must be less than or equal to accountBalance")
    execution.state.give(execution.owner, -sun)
    frozen = dict(execution.account.frozen)
    frozen[execution.resource] = frozen.get(execution.resource, 0) + sun
    execution.state.change(execution.owner, frozen=frozen)


def _withdraw_expired(execution: Execution) -> int:
    """Pay expired unfreezings to the owner, and return their sum in sun."""
    ready = sum(each.sun for each in execution.account.unfreezing if each.expires_ms <= execution.now_ms)
    waiting = tuple(each for each in execution.account.unfreezing if each.expires_ms > execution.now_ms)
    execution.state.give(execution.owner, ready)
    execution.state.change(execution.owner, unfreezing=waiting)
    if ready:
        execution.record["withdraw_expire_amount"] = ready
    return ready


def _unfreeze(execution: Execution) -> None:
    """Start to unfreeze a stake, reduce votes, and pay what has expired."""
    sun, have = execution.amount("unfreeze_balance"), execution.account.frozen.get(execution.resource, 0)
    execution.require(have > 0, f"no frozenBalance({execution.resource})")
    execution.require(0 < sun <= have, f"Invalid unfreeze_balance, [{sun}] is error")
    waiting = sum(each.expires_ms > execution.now_ms for each in execution.account.unfreezing)
    execution.require(waiting < MOST_UNFREEZING, "Invalid unfreeze operation, unfreezing times is over limit")
    _withdraw_expired(execution)
    unfreezing = Unfreezing(execution.resource, sun, execution.now_ms + UNFREEZE_MS)
    frozen = {**execution.account.frozen, execution.resource: have - sun}
    execution.state.change(execution.owner, frozen=frozen, unfreezing=(*execution.account.unfreezing, unfreezing))
    execution.record["unfreeze_amount"] = sun
    _fit_votes(execution)


def _unfreeze_legacy(execution: Execution) -> None:
    """Return an expired stake of the first kind as a whole, and reduce votes."""
    stake = execution.account.legacy.get(execution.resource)
    execution.require(stake, f"no frozenBalance({execution.resource})")
    assert stake is not None
    execution.require(stake.expires_ms <= execution.now_ms, "It's not time to unfreeze.")
    execution.state.give(execution.owner, stake.sun)
    execution.state.change(
        execution.owner, legacy={k: v for k, v in execution.account.legacy.items() if k != execution.resource}
    )
    execution.record["unfreeze_amount"] = stake.sun
    _fit_votes(execution)


def _fit_votes(execution: Execution) -> None:
    """Reduce votes in proportion if they exceed the stake."""
    vote_count, power = sum(execution.account.votes.values()), execution.account.power
    if vote_count > power:
        _set_votes(execution, {w: count * power // vote_count for w, count in execution.account.votes.items()})


def _withdraw_unfrozen(execution: Execution) -> None:
    execution.require(_withdraw_expired(execution), "no unFreeze balance to withdraw ")


def _cancel_unfreezing(execution: Execution) -> None:
    """Pay expired unfreezings, and stake the other ones again."""
    execution.require(execution.account.unfreezing, "No unfreezeV2 list to cancel")
    _withdraw_expired(execution)
    frozen, back = dict(execution.account.frozen), dict.fromkeys(KINDS, 0)
    for each in execution.account.unfreezing:
        frozen[each.resource] = frozen.get(each.resource, 0) + each.sun
        back[each.resource] += each.sun
    execution.state.change(execution.owner, frozen=frozen, unfreezing=())
    execution.record["cancel_unfreezeV2_amount"] = [{"key": kind, "value": sun} for kind, sun in back.items()]


def _set_votes(execution: Execution, votes: dict[str, int]) -> None:
    """Settle the reward of the old votes, then store new ones, which count from the next cycle on."""
    state = execution.state
    state.settle_reward(execution.owner)
    if execution.account.votes_since <= state.cycle:
        for witness, count in execution.account.votes.items():
            old = state.witnesses[witness]
            state.witnesses[witness] = with_fields(old, votes=old.votes - count)
    nonzero = {witness: count for witness, count in votes.items() if count}
    state.change(execution.owner, votes=nonzero, votes_since=state.cycle + 1)


def _vote(execution: Execution) -> None:
    """Replace all votes of the owner."""
    votes: dict[str, int] = {}
    for each in execution.value.get("votes", ()):
        witness = each["vote_address"]
        execution.require(witness in execution.state.witnesses, f"Witness[{witness}] not exists")
        execution.require(each.get("vote_count", 0) > 0, "vote count must be greater than 0")
        votes[witness] = votes.get(witness, 0) + each["vote_count"]
    execution.require(votes, "VoteNumber must more than 0")
    total = sum(votes.values())
    execution.require(
        total <= execution.account.power,
        f"The total number of votes[{total * TRX}] is greater than the tronPower[{execution.account.power * TRX}]",
    )
    _set_votes(execution, votes)


def _withdraw_reward(execution: Execution) -> None:
    """Pay the whole reward to the owner, at most once a day."""
    execution.require(
        execution.now_ms - execution.account.withdrawn_ms >= DAY_MS, "The last withdraw time is less than 24 hours"
    )
    execution.state.settle_reward(execution.owner)
    sun = execution.account.allowance
    execution.require(sun > 0, "witnessAccount does not have any reward")
    execution.state.give(execution.owner, sun)
    execution.state.change(execution.owner, allowance=0, withdrawn_ms=execution.now_ms)
    execution.record["withdraw_amount"] = sun


def _shift(amounts: Any, resource: str, sun: int) -> dict[str, int]:
    return {**amounts, resource: amounts.get(resource, 0) + sun}


def _delegate(execution: Execution) -> None:
    """Give the resource of a stake to another account; a locked part stays for its period."""
    to, sun, state = execution.value["receiver_address"], execution.amount("balance"), execution.state
    execution.require(execution.resource in KINDS[:2], "ResourceCode error, valid ResourceCode[BANDWIDTH、ENERGY]")
    execution.require(sun >= TRX, "delegateBalance must be greater than or equal to 1 TRX")
    execution.require(
        to in state.accounts and to != execution.owner, "receiverAddress must not be the same as ownerAddress"
    )
    execution.require(
        execution.account.frozen.get(execution.resource, 0) >= sun,
        "delegateBalance must be less than or equal to available FreezeV2 balance",
    )
    state.change(
        execution.owner,
        frozen=_shift(execution.account.frozen, execution.resource, -sun),
        delegated=_shift(execution.account.delegated, execution.resource, sun),
    )
    state.change(to, acquired=_shift(state.accounts[to].acquired, execution.resource, sun))
    key = (execution.owner, to, execution.resource)
    old = state.delegations.get(key, Delegation())
    if execution.value.get("lock"):
        until_ms = execution.now_ms + (execution.amount("lock_period") or 86_400) * SLOT_MS
        state.delegations[key] = Delegation(old.sun + sun, old.locked + sun, until_ms)
    else:
        state.delegations[key] = with_fields(old, sun=old.sun + sun)


def _undelegate(execution: Execution) -> None:
    """Take back a part of a delegation that is not locked."""
    to, sun, state = execution.value["receiver_address"], execution.amount("balance"), execution.state
    key = (execution.owner, to, execution.resource)
    old = state.delegations.get(key, Delegation())
    locked = old.locked if old.until_ms > execution.now_ms else 0
    execution.require(
        0 < sun <= old.sun - locked,
        f"insufficient delegatedFrozenBalance({execution.resource}), request={sun}, unlock_balance={old.sun - locked}",
    )
    state.delegations[key] = Delegation(old.sun - sun, locked, old.until_ms if locked else 0)
    if old.sun == sun:
        del state.delegations[key]
    state.change(
        execution.owner,
        frozen=_shift(execution.account.frozen, execution.resource, sun),
        delegated=_shift(execution.account.delegated, execution.resource, -sun),
    )
    state.change(to, acquired=_shift(state.accounts[to].acquired, execution.resource, -sun))


def _permissions(execution: Execution) -> None:
    """Burn the fee, and replace the account's permissions by the given owner and active ones."""
    execution.burn(PERMISSIONS)
    permissions = [execution.value["owner"], *execution.value.get("actives", ())]
    execution.state.change(
        execution.owner,
        permissions=tuple(
            Permission(
                number if number == 0 else number + 1,
                each.get("permission_name", ""),
                each.get("threshold", 0),
                {key["address"]: key["weight"] for key in each["keys"]},
                each.get("operations", ""),
            )
            for number, each in enumerate(permissions)
        ),
    )


# --- the chain's own exchange ---------------------------------------------------------------------------------------


def _token(value: dict[str, Any], name: str) -> str:
    return bytes.fromhex(value[name]).decode(errors="replace")


def _have(execution: Execution, token: str) -> int:
    return execution.account.balance if token == COIN else execution.account.assets.get(token, 0)


def _move(execution: Execution, token: str, raw: int) -> None:
    if token == COIN:
        execution.state.give(execution.owner, raw)
    else:
        assets = {**execution.account.assets, token: execution.account.assets.get(token, 0) + raw}
        execution.state.change(execution.owner, assets=assets)


def _create_exchange(execution: Execution) -> None:
    """Apply an ExchangeCreateContract: burn the fee, take both balances, and add the exchange.

    Raises:
        InvalidTransaction: A balance is zero, or the owner has less than a balance or the fee.
    """
    tokens = _token(execution.value, "first_token_id"), _token(execution.value, "second_token_id")
    balances = execution.amount("first_token_balance"), execution.amount("second_token_balance")
    execution.burn(EXCHANGE)
    for token, raw in zip(tokens, balances, strict=True):
        execution.require(0 < raw <= _have(execution, token), "balance is not enough")
        _move(execution, token, -raw)
    number = len(execution.state.exchanges) + 1
    execution.state.exchanges[number] = Exchange(execution.owner, execution.now_ms, tokens, balances)
    execution.record["exchange_id"] = number


def _trade(execution: Execution) -> None:
    """Sell a token to an exchange, whose balances set the price."""
    number, token, sold = (
        execution.amount("exchange_id"),
        _token(execution.value, "token_id"),
        execution.amount("quant"),
    )
    execution.require(number in execution.state.exchanges, f"Exchange[{number}] not exists")
    pair = execution.state.exchanges[number]
    execution.require(token in pair.tokens, "token is not in exchange")
    execution.require(0 < sold <= _have(execution, token), "token balance is not enough")
    side = pair.tokens.index(token)
    # java-tron's curve (Bancor with a connector of 0.0005), in its floating point.
    filled = pair.balances[side] + sold
    supply = -POOL_SUPPLY * (1.0 - (1.0 + sold / filled) ** 0.0005)
    bought = int(pair.balances[1 - side] * ((1.0 + int(supply) / POOL_SUPPLY) ** 2000.0 - 1.0))
    execution.require(bought >= execution.amount("expected"), "token required must greater than expected")
    _move(execution, token, -sold)
    _move(execution, pair.tokens[1 - side], bought)
    balances = {side: filled, 1 - side: pair.balances[1 - side] - bought}
    execution.state.exchanges[number] = with_fields(pair, balances=(balances[0], balances[1]))
    execution.record["exchange_received_amount"] = bought


ACTIONS: dict[str, Callable[[Execution], None]] = {
    "AccountCreateContract": _create_account,
    "TransferContract": _transfer,
    "TransferAssetContract": _transfer_asset,
    "VoteWitnessContract": _vote,
    "AssetIssueContract": _issue,
    "AccountUpdateContract": _rename,
    "UnfreezeBalanceContract": _unfreeze_legacy,
    "WithdrawBalanceContract": _withdraw_reward,
    "ExchangeCreateContract": _create_exchange,
    "ExchangeTransactionContract": _trade,
    "AccountPermissionUpdateContract": _permissions,
    "FreezeBalanceV2Contract": _freeze,
    "UnfreezeBalanceV2Contract": _unfreeze,
    "WithdrawExpireUnfreezeContract": _withdraw_unfrozen,
    "DelegateResourceContract": _delegate,
    "UnDelegateResourceContract": _undelegate,
    "CancelAllUnfreezeV2Contract": _cancel_unfreezing,
}
