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
class Act:
    """A transaction at work: on which state, when, whose, and what its record says besides."""

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


def do(act: Act, kind: str) -> None:
    """Apply a transaction of a system contract to the state; InvalidTransaction if it is not valid."""
    ACTIONS[kind](act)


def _open(act: Act, address: str) -> None:
    act.burn(NEW_ACCOUNT)
    act.state.accounts[address] = Account(address, act.now_ms)


def _create_account(act: Act) -> None:
    address = act.value["account_address"]
    act.require(address not in act.state.accounts, "Account has existed")
    _open(act, address)


def _transfer(act: Act) -> None:
    """Send coins; a new recipient costs a fee, and a contract is refused."""
    to, sun = act.value["to_address"], act.amount("amount")
    act.require(to != act.owner, "Cannot transfer TRX to yourself.")
    act.require(sun > 0, "Amount must be greater than 0.")
    existing = act.state.accounts.get(to)
    act.require(not existing or existing.kind != "Contract", "Cannot transfer TRX to a smartContract.")
    fee = 0 if existing else NEW_ACCOUNT
    act.require(act.account.balance >= sun + fee, "Validate TransferContract error, balance is not sufficient.")
    if not existing:
        _open(act, to)
    act.state.give(act.owner, -sun)
    act.state.give(to, sun)


def _transfer_asset(act: Act) -> None:
    """Send a TRC-10 token; a new recipient costs a fee."""
    number, to = bytes.fromhex(act.value["asset_name"]).decode(errors="replace"), act.value["to_address"]
    raw = act.amount("amount")
    act.require(raw > 0, "Amount must be greater than 0.")
    act.require(to != act.owner, "Cannot transfer asset to yourself.")
    act.require(number in act.state.assets, "No asset!")
    act.require(act.account.assets.get(number, 0) >= raw, "assetBalance is not sufficient.")
    if to not in act.state.accounts:
        _open(act, to)
    act.state.move_asset(act.owner, to, number, raw)


def _issue(act: Act) -> None:
    """Issue a TRC-10 token to the owner for a fee, and record its number."""
    texts = {name: bytes.fromhex(act.value.get(name, "")).decode() for name in ("name", "abbr", "url", "description")}
    supply = act.amount("total_supply")
    act.require(supply > 0, "TotalSupply must greater than 0!")
    act.burn(ISSUE)
    number = str(1_000_001 + len(act.state.assets))
    act.state.assets[number] = Asset(
        number,
        act.owner,
        texts["name"],
        texts["abbr"],
        act.amount("precision"),
        supply,
        texts["url"],
        texts["description"],
        act.amount("start_time"),
        act.amount("end_time"),
    )
    act.state.change(act.owner, assets={**act.account.assets, number: supply})
    act.record["assetIssueID"] = number


def _rename(act: Act) -> None:
    act.state.change(act.owner, name=act.value.get("account_name", ""))


def _freeze(act: Act) -> None:
    """Stake coins of the owner for a resource."""
    sun = act.amount("frozen_balance")
    act.require(sun >= TRX, "frozenBalance must be greater than or equal to 1 TRX")
    act.require(act.account.balance >= sun, "frozenBalance must be less than or equal to accountBalance")
    act.state.give(act.owner, -sun)
    frozen = dict(act.account.frozen)
    frozen[act.resource] = frozen.get(act.resource, 0) + sun
    act.state.change(act.owner, frozen=frozen)


def _withdraw_expired(act: Act) -> int:
    """Pay expired unfreezings to the owner, and return their sum in sun."""
    ready = sum(each.sun for each in act.account.unfreezing if each.expires_ms <= act.now_ms)
    waiting = tuple(each for each in act.account.unfreezing if each.expires_ms > act.now_ms)
    act.state.give(act.owner, ready)
    act.state.change(act.owner, unfreezing=waiting)
    if ready:
        act.record["withdraw_expire_amount"] = ready
    return ready


def _unfreeze(act: Act) -> None:
    """Start to unfreeze a stake, reduce votes, and pay what has expired."""
    sun, have = act.amount("unfreeze_balance"), act.account.frozen.get(act.resource, 0)
    act.require(have > 0, f"no frozenBalance({act.resource})")
    act.require(0 < sun <= have, f"Invalid unfreeze_balance, [{sun}] is error")
    waiting = sum(each.expires_ms > act.now_ms for each in act.account.unfreezing)
    act.require(waiting < MOST_UNFREEZING, "Invalid unfreeze operation, unfreezing times is over limit")
    _withdraw_expired(act)
    unfreezing = Unfreezing(act.resource, sun, act.now_ms + UNFREEZE_MS)
    frozen = {**act.account.frozen, act.resource: have - sun}
    act.state.change(act.owner, frozen=frozen, unfreezing=(*act.account.unfreezing, unfreezing))
    act.record["unfreeze_amount"] = sun
    _fit_votes(act)


def _unfreeze_legacy(act: Act) -> None:
    """Return an expired stake of the first kind as a whole, and reduce votes."""
    stake = act.account.legacy.get(act.resource)
    act.require(stake, f"no frozenBalance({act.resource})")
    assert stake is not None
    act.require(stake.expires_ms <= act.now_ms, "It's not time to unfreeze.")
    act.state.give(act.owner, stake.sun)
    act.state.change(act.owner, legacy={k: v for k, v in act.account.legacy.items() if k != act.resource})
    act.record["unfreeze_amount"] = stake.sun
    _fit_votes(act)


def _fit_votes(act: Act) -> None:
    """Reduce votes in proportion if they exceed the stake."""
    vote_count, power = sum(act.account.votes.values()), act.account.power
    if vote_count > power:
        _set_votes(act, {w: count * power // vote_count for w, count in act.account.votes.items()})


def _withdraw_unfrozen(act: Act) -> None:
    act.require(_withdraw_expired(act), "no unFreeze balance to withdraw ")


def _cancel_unfreezing(act: Act) -> None:
    """Pay expired unfreezings, and stake the other ones again."""
    act.require(act.account.unfreezing, "No unfreezeV2 list to cancel")
    _withdraw_expired(act)
    frozen, back = dict(act.account.frozen), dict.fromkeys(KINDS, 0)
    for each in act.account.unfreezing:
        frozen[each.resource] = frozen.get(each.resource, 0) + each.sun
        back[each.resource] += each.sun
    act.state.change(act.owner, frozen=frozen, unfreezing=())
    act.record["cancel_unfreezeV2_amount"] = [{"key": kind, "value": sun} for kind, sun in back.items()]


def _set_votes(act: Act, votes: dict[str, int]) -> None:
    """Settle the reward of the old votes, then store new ones, which count from the next cycle on."""
    state = act.state
    state.settle_reward(act.owner)
    if act.account.votes_since <= state.cycle:
        for witness, count in act.account.votes.items():
            old = state.witnesses[witness]
            state.witnesses[witness] = with_fields(old, votes=old.votes - count)
    nonzero = {witness: count for witness, count in votes.items() if count}
    state.change(act.owner, votes=nonzero, votes_since=state.cycle + 1)


def _vote(act: Act) -> None:
    """Replace all votes of the owner."""
    votes: dict[str, int] = {}
    for each in act.value.get("votes", ()):
        witness = each["vote_address"]
        act.require(witness in act.state.witnesses, f"Witness[{witness}] not exists")
        act.require(each.get("vote_count", 0) > 0, "vote count must be greater than 0")
        votes[witness] = votes.get(witness, 0) + each["vote_count"]
    act.require(votes, "VoteNumber must more than 0")
    total = sum(votes.values())
    act.require(
        total <= act.account.power,
        f"The total number of votes[{total * TRX}] is greater than the tronPower[{act.account.power * TRX}]",
    )
    _set_votes(act, votes)


def _withdraw_reward(act: Act) -> None:
    """Pay the whole reward to the owner, at most once a day."""
    act.require(act.now_ms - act.account.withdrawn_ms >= DAY_MS, "The last withdraw time is less than 24 hours")
    act.state.settle_reward(act.owner)
    sun = act.account.allowance
    act.require(sun > 0, "witnessAccount does not have any reward")
    act.state.give(act.owner, sun)
    act.state.change(act.owner, allowance=0, withdrawn_ms=act.now_ms)
    act.record["withdraw_amount"] = sun


def _shift(amounts: Any, resource: str, sun: int) -> dict[str, int]:
    return {**amounts, resource: amounts.get(resource, 0) + sun}


def _delegate(act: Act) -> None:
    """Give the resource of a stake to another account; a locked part stays for its period."""
    to, sun, state = act.value["receiver_address"], act.amount("balance"), act.state
    act.require(act.resource in KINDS[:2], "ResourceCode error, valid ResourceCode[BANDWIDTH、ENERGY]")
    act.require(sun >= TRX, "delegateBalance must be greater than or equal to 1 TRX")
    act.require(to in state.accounts and to != act.owner, "receiverAddress must not be the same as ownerAddress")
    act.require(
        act.account.frozen.get(act.resource, 0) >= sun,
        "delegateBalance must be less than or equal to available FreezeV2 balance",
    )
    state.change(
        act.owner,
        frozen=_shift(act.account.frozen, act.resource, -sun),
        delegated=_shift(act.account.delegated, act.resource, sun),
    )
    state.change(to, acquired=_shift(state.accounts[to].acquired, act.resource, sun))
    key = (act.owner, to, act.resource)
    old = state.delegations.get(key, Delegation())
    if act.value.get("lock"):
        until_ms = act.now_ms + (act.amount("lock_period") or 86_400) * SLOT_MS
        state.delegations[key] = Delegation(old.sun + sun, old.locked + sun, until_ms)
    else:
        state.delegations[key] = with_fields(old, sun=old.sun + sun)


def _undelegate(act: Act) -> None:
    """Take back a part of a delegation that is not locked."""
    to, sun, state = act.value["receiver_address"], act.amount("balance"), act.state
    key = (act.owner, to, act.resource)
    old = state.delegations.get(key, Delegation())
    locked = old.locked if old.until_ms > act.now_ms else 0
    act.require(
        0 < sun <= old.sun - locked,
        f"insufficient delegatedFrozenBalance({act.resource}), request={sun}, unlock_balance={old.sun - locked}",
    )
    state.delegations[key] = Delegation(old.sun - sun, locked, old.until_ms if locked else 0)
    if old.sun == sun:
        del state.delegations[key]
    state.change(
        act.owner,
        frozen=_shift(act.account.frozen, act.resource, sun),
        delegated=_shift(act.account.delegated, act.resource, -sun),
    )
    state.change(to, acquired=_shift(state.accounts[to].acquired, act.resource, -sun))


def _permissions(act: Act) -> None:
    act.burn(PERMISSIONS)
    permissions = [act.value["owner"], *act.value.get("actives", ())]
    act.state.change(
        act.owner,
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


def _have(act: Act, token: str) -> int:
    return act.account.balance if token == COIN else act.account.assets.get(token, 0)


def _move(act: Act, token: str, raw: int) -> None:
    if token == COIN:
        act.state.give(act.owner, raw)
    else:
        assets = {**act.account.assets, token: act.account.assets.get(token, 0) + raw}
        act.state.change(act.owner, assets=assets)


def _create_exchange(act: Act) -> None:
    """Create an exchange of two tokens from the owner's balances, for a fee."""
    tokens = _token(act.value, "first_token_id"), _token(act.value, "second_token_id")
    balances = act.amount("first_token_balance"), act.amount("second_token_balance")
    act.burn(EXCHANGE)
    for token, raw in zip(tokens, balances, strict=True):
        act.require(0 < raw <= _have(act, token), "balance is not enough")
        _move(act, token, -raw)
    number = len(act.state.exchanges) + 1
    act.state.exchanges[number] = Exchange(act.owner, act.now_ms, tokens, balances)
    act.record["exchange_id"] = number


def _trade(act: Act) -> None:
    """Sell a token to an exchange, whose balances set the price."""
    number, token, sold = act.amount("exchange_id"), _token(act.value, "token_id"), act.amount("quant")
    act.require(number in act.state.exchanges, f"Exchange[{number}] not exists")
    pair = act.state.exchanges[number]
    act.require(token in pair.tokens, "token is not in exchange")
    act.require(0 < sold <= _have(act, token), "token balance is not enough")
    side = pair.tokens.index(token)
    # java-tron's curve (Bancor with a connector of 0.0005), in its floating point.
    filled = pair.balances[side] + sold
    supply = -POOL_SUPPLY * (1.0 - (1.0 + sold / filled) ** 0.0005)
    bought = int(pair.balances[1 - side] * ((1.0 + int(supply) / POOL_SUPPLY) ** 2000.0 - 1.0))
    act.require(bought >= act.amount("expected"), "token required must greater than expected")
    _move(act, token, -sold)
    _move(act, pair.tokens[1 - side], bought)
    balances = {side: filled, 1 - side: pair.balances[1 - side] - bought}
    act.state.exchanges[number] = with_fields(pair, balances=(balances[0], balances[1]))
    act.record["exchange_received_amount"] = bought


ACTIONS: dict[str, Callable[[Act], None]] = {
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
