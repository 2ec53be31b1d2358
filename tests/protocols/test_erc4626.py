"""Vaults that a protocol's file names belong to that protocol; all others to `erc4626`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.localchain.evm import tx
from tests.protocols.world import World, parts

FILE = """\
key = "aaa"
name = "The first in the alphabet"
families = ["erc4626"]
[contracts.local]
vault = ["{vault}"]
"""


@pytest.fixture
def owner(demo_world: World) -> str:
    """Give vault shares to an account that never sent the vault anything, and return the account."""
    node, accounts = demo_world.node, demo_world.deployment.accounts
    vault = demo_world.deployment.contracts["Vault"]
    node.settle([tx(accounts["deployer"], vault, "transfer(address,uint256)", accounts["ivan"], 10**18)])
    return accounts["ivan"].lower()


def with_vault(world: World, folder: Path, vault: str) -> World:
    return World(world.node, world.deployment, folder, {"aaa": FILE.format(vault=vault.lower())})


def test_a_named_vault_s_shares_are_believed_however_they_came(demo_world: World, owner: str, tmp_path: Path) -> None:
    vault = demo_world.deployment.contracts["Vault"].lower()
    snapshot = with_vault(demo_world, tmp_path, vault).snapshot(owner)
    (position,) = snapshot.positions
    assert position.protocol == "aaa"
    shares = next(each.raw for each in snapshot.holdings if each.token.asset.shown_contract == vault)
    redeem = tx(owner, vault, "redeem(uint256,address,address)", shares, owner, owner)
    payout = demo_world.payout(owner, [redeem], snapshot.block)
    assert parts([position], "supplied") == {token: raw for token, raw in payout.items() if token != vault}


def test_a_file_that_names_one_vault_has_no_say_in_others(demo_world: World, tmp_path: Path) -> None:
    accounts = demo_world.deployment.accounts
    wallets = [account for name, account in accounts.items() if name not in ("deployer", "ivan")]
    snapshot = with_vault(demo_world, tmp_path, "0x" + "12" * 20).snapshot(*wallets)
    protocols = {each.protocol for each in snapshot.positions}
    assert "erc4626" in protocols
    assert "aaa" not in protocols
