"""Costs of transactions: bandwidth, energy, and fees in sun."""

from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.tron.state import FREE_NET, TRX, State

NET_PRICE, ENERGY_PRICE = 1_000, 100  # sun for a byte, for a unit of energy
NEW_ACCOUNT = TRX  # and, without staked bandwidth for it:
NEW_ACCOUNT_NET = TRX // 10
MEMO, MANY_SIGNERS = TRX, TRX
RESULT_BYTES = 64  # that a transaction's result may take, paid for beforehand


class Poor(Exception):
    """Neither bandwidth nor balance suffices."""


@dataclass(frozen=True)
class Net:
    """Payment of bandwidth: by usage in bytes, or by a fee in sun."""

    usage: int = 0
    fee: int = 0

    def receipt(self) -> dict[str, int]:
        """Return the fields of java-tron's receipt, without zeros."""
        return {name: value for name, value in (("net_usage", self.usage), ("net_fee", self.fee)) if value}


def pay_bandwidth(state: State, owner: str, size: int, new_account: bool, slot: int, now_ms: int) -> Net:
    """Use staked or free bandwidth, or burn coins; Poor if none of them suffices."""
    account, size = state.accounts[owner], size + RESULT_BYTES
    if size <= account.limit("BANDWIDTH") - account.net.at(slot):
        state.change(owner, net=account.net.add(size, slot), operated_ms=now_ms)
        return Net(usage=size)
    if not new_account and size <= FREE_NET - account.free_net.at(slot):
        state.change(owner, free_net=account.free_net.add(size, slot), operated_ms=now_ms)
        return Net(usage=size)
    fee = NEW_ACCOUNT_NET if new_account else size * NET_PRICE
    if account.balance < fee:
        raise Poor(f"account has insufficient bandwidth[{size}] and balance[{fee}]")
    state.burn(owner, fee)
    state.change(owner, operated_ms=now_ms)
    return Net(fee=fee)


def energy_limit(state: State, owner: str, value: int, fee_limit: int, slot: int) -> int:
    """Return the maximum energy of a call, by stake, balance after `value`, and `fee_limit`."""
    account = state.accounts[owner]
    staked = max(0, account.limit("ENERGY") - account.energy.at(slot))
    affordable = staked + max(0, account.balance - value) // ENERGY_PRICE
    return min(affordable, max(fee_limit // ENERGY_PRICE, 0))


def pay_energy(state: State, owner: str, used: int, contract: dict[str, Any] | None, slot: int) -> dict[str, int]:
    """Use energy of the contract's owner, then of the caller, then burn coins; return the receipt."""
    receipt = {"energy_usage_total": used}
    origin = str(contract["origin_address"]) if contract else owner
    percent = 100 - int(contract.get("consume_user_resource_percent", 0)) if contract and origin != owner else 0
    if percent and origin in state.accounts:
        account = state.accounts[origin]
        theirs = min(used * percent // 100, max(0, account.limit("ENERGY") - account.energy.at(slot)))
        state.change(origin, energy=account.energy.add(theirs, slot))
        receipt["origin_energy_usage"], used = theirs, used - theirs
    account = state.accounts[owner]
    usage = min(used, max(0, account.limit("ENERGY") - account.energy.at(slot)))
    state.change(owner, energy=account.energy.add(usage, slot))
    state.burn(owner, (used - usage) * ENERGY_PRICE)
    receipt |= {"energy_usage": usage, "energy_fee": (used - usage) * ENERGY_PRICE}
    return {name: value for name, value in receipt.items() if value}
