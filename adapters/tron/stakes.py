"""What an account has staked, as positions: each coin that is not in its balance, once.

A stake works for its owner or is lent to others, and stays the owner's. What others lend to an account is not its own:
it is a note. Unfreezing takes a fortnight; then the coins wait to be withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.tron.facts import Facts
from adapters.tron.forms import OldFrozen, Wallet
from adapters.tron.reads import Told
from chainfolio.contracts import Issue
from chainfolio.positions import OpenPosition

PROTOCOL: Final = "tron-stake"
PURPOSE: Final = {"BANDWIDTH": "bandwidth", "ENERGY": "energy", "TRON_POWER": "votes"}


def positions(facts: Facts, account: str, told: Told) -> tuple[OpenPosition, ...]:
    """Stakes of either version by their purpose, lent or not; coins on their way back by the time they arrive; and
    what votes have earned."""
    return tuple(
        OpenPosition(
            account, PROTOCOL, "STAKED", name, {facts.native_asset: sun}, {}, {}, unlock_s=unlock_s, vouches=True
        )
        for (name, unlock_s), sun in _staked(told).items()
        if sun
    ) + tuple(_earned(facts, account, told))


def _staked(told: Told) -> dict[tuple[str, int], int]:
    """Sun by the name of a position and by when it can be had (0 where nobody has asked for it)."""
    found: dict[tuple[str, int], int] = {}
    for name, unlock_ms, sun in (*_stakes(told.wallet), *_returning(told)):
        key = (name, -(-unlock_ms // 1_000))
        found[key] = found.get(key, 0) + sun
    return found


def _stakes(wallet: Wallet) -> Iterator[tuple[str, int, int]]:
    """The name of each stake, when it can be had, how much it is."""
    energy = wallet.account_resource
    for each in wallet.frozenV2:
        yield f"Staked for {_purpose(each.type)}", 0, each.amount
    yield "Staked for bandwidth, lent", 0, wallet.delegated_frozenV2_balance_for_bandwidth
    yield "Staked for energy, lent", 0, energy.delegated_frozenV2_balance_for_energy
    yield "Staked for bandwidth, lent (Stake 1.0)", 0, wallet.delegated_frozen_balance_for_bandwidth
    yield "Staked for energy, lent (Stake 1.0)", 0, energy.delegated_frozen_balance_for_energy
    for old in wallet.frozen:
        yield "Staked for bandwidth (Stake 1.0)", old.expire_time, old.frozen_balance
    old = energy.frozen_balance_for_energy or OldFrozen()
    yield "Staked for energy (Stake 1.0)", old.expire_time, old.frozen_balance


def _returning(told: Told) -> Iterator[tuple[str, int, int]]:
    """Coins that come back, and those that did and were not withdrawn."""
    now_ms = told.block.time_us // 1_000
    for each in told.wallet.unfrozenV2:
        name = "Withdrawable" if each.unfreeze_expire_time <= now_ms else "Unfreezing"
        yield name, each.unfreeze_expire_time, each.unfreeze_amount


def _earned(facts: Facts, account: str, told: Told) -> Iterator[OpenPosition]:
    """What could be withdrawn of what votes have earned; a witness earns without votes of its own."""
    votes = sum(each.vote_count for each in told.wallet.votes)
    if told.reward:
        name = f"Rewards for {votes:,} votes" if votes else "Rewards"
        yield OpenPosition(account, PROTOCOL, "REWARDS", name, {}, {}, {facts.native_asset: told.reward}, vouches=True)


def _purpose(resource: str) -> str:
    return PURPOSE.get(resource, resource[:40].lower())


def notes(facts: Facts, account: str, told: Told) -> Iterator[Issue]:
    """What others have staked and lent to an account: it may use it, and does not own it."""
    wallet, energy = told.wallet, told.wallet.account_resource
    lent = {
        "bandwidth": wallet.acquired_delegated_frozenV2_balance_for_bandwidth
        + wallet.acquired_delegated_frozen_balance_for_bandwidth,
        "energy": energy.acquired_delegated_frozenV2_balance_for_energy
        + energy.acquired_delegated_frozen_balance_for_energy,
    }
    for resource, sun in lent.items():
        if sun:
            reason = f"others have lent it {sun} sun staked for {resource}, which is not its own"
            yield Issue(facts.kind, PROTOCOL, reason, makes_partial=False, account=account)
