"""Staked coins of an account as positions: each coin that is not in its balance is counted once.

A stake works for its owner or is lent to others, and stays the owner's. Stakes that others lend to an account are not
its own: they become an issue. Unfreezing takes a fortnight; after that, the coins wait to be withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from chainfolio.adapters.tron.facts import Facts
from chainfolio.adapters.tron.forms import FrozenV1, Wallet
from chainfolio.adapters.tron.reads import WalletState
from chainfolio.contracts import Issue
from chainfolio.positions import OpenPosition

PROTOCOL: Final = "tron-stake"
PURPOSE: Final = {"BANDWIDTH": "bandwidth", "ENERGY": "energy", "TRON_POWER": "votes"}


class Stake(NamedTuple):
    """Coins of a position, and when they can be withdrawn (0 if they are not unfreezing)."""

    name: str
    unlock_ms: int
    sun: int


def positions(facts: Facts, account: str, state: WalletState) -> tuple[OpenPosition, ...]:
    """Return positions of staked coins by purpose and loan, unfreezing coins by time, and voting rewards.

    Those of 0 sun are left out.
    """
    staked = tuple(
        OpenPosition(
            account,
            PROTOCOL,
            "STAKED",
            name,
            {facts.native_asset: sun},
            {},
            {},
            unlock_s=unlock_s,
            has_trusted_assets=True,
        )
        for (name, unlock_s), sun in _stake_totals(state).items()
        if sun
    )
    return staked + tuple(_rewards(facts, account, state))


def _stake_totals(state: WalletState) -> dict[tuple[str, int], int]:
    """Return sun by the name of a position and by the second in which it can be withdrawn."""
    totals: dict[tuple[str, int], int] = {}
    for stake in (*_stakes(state.wallet), *_unfreezing(state)):
        key = (stake.name, -(-stake.unlock_ms // 1_000))
        totals[key] = totals.get(key, 0) + stake.sun
    return totals


def _stakes(wallet: Wallet) -> Iterator[Stake]:
    """Yield the stakes of a wallet, lent ones included, also those of 0 sun."""
    energy = wallet.account_resource
    for frozen in wallet.frozenV2:
        yield Stake(f"Staked for {_purpose(frozen.type)}", 0, frozen.amount)
    yield Stake("Staked for bandwidth, lent", 0, wallet.delegated_frozenV2_balance_for_bandwidth)
    yield Stake("Staked for energy, lent", 0, energy.delegated_frozenV2_balance_for_energy)
    yield Stake("Staked for bandwidth, lent (Stake 1.0)", 0, wallet.delegated_frozen_balance_for_bandwidth)
    yield Stake("Staked for energy, lent (Stake 1.0)", 0, energy.delegated_frozen_balance_for_energy)
    for old in wallet.frozen:
        yield Stake("Staked for bandwidth (Stake 1.0)", old.expire_time, old.frozen_balance)
    old = energy.frozen_balance_for_energy or FrozenV1()
    yield Stake("Staked for energy (Stake 1.0)", old.expire_time, old.frozen_balance)


def _unfreezing(state: WalletState) -> Iterator[Stake]:
    """Yield unfreezing coins, and those that are unfrozen and not yet withdrawn."""
    now_ms = state.block.time_us // 1_000
    for each in state.wallet.unfrozenV2:
        name = "Withdrawable" if each.unfreeze_expire_time <= now_ms else "Unfreezing"
        yield Stake(name, each.unfreeze_expire_time, each.unfreeze_amount)


def _rewards(facts: Facts, account: str, state: WalletState) -> Iterator[OpenPosition]:
    """Yield the voting rewards that can be withdrawn. A witness earns without voting."""
    votes = sum(each.vote_count for each in state.wallet.votes)
    if state.reward:
        name = f"Rewards for {votes:,} votes" if votes else "Rewards"
        yield OpenPosition(
            account, PROTOCOL, "REWARDS", name, {}, {}, {facts.native_asset: state.reward}, has_trusted_assets=True
        )


def _purpose(resource: str) -> str:
    return PURPOSE.get(resource, resource[:40].lower())


def borrowed_stake_issues(facts: Facts, account: str, state: WalletState) -> Iterator[Issue]:
    """Yield an issue per resource for stakes that others lend to an account, which does not own them."""
    wallet, energy = state.wallet, state.wallet.account_resource
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
